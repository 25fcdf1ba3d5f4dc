//! Fields of a pod that depend on feature gates (API §7.1): dropped while the
//! gate is off, unless the stored pod uses them already (LC-392, TC-428).

use serde_json::Value;

use crate::doc::{self, at, items, text};
use crate::gates::Gates;

/// The rule action of gate `RestartAllContainersOnContainerExits`.
pub(super) const RESTART_ALL: &str = "RestartAllContainers";

const LISTS: [&str; 3] = ["spec.containers", "spec.initContainers", "spec.ephemeralContainers"];

/// What a pod may use: what is on, and what it used before.
pub(super) struct Features {
    restart_rules: bool,
    /// Not a field but a value, so it is rejected and not dropped (LC-142).
    pub(super) restart_all: bool,
    stop_signals: bool,
    pod_resources: bool,
    hostname_override: bool,
    env_files: bool,
    image_volumes: bool,
}

impl Features {
    pub(super) fn of_new(gates: &Gates) -> Self {
        Self::of_stored(gates, &Value::Null)
    }

    pub(super) fn of_stored(gates: &Gates, old: &Value) -> Self {
        let any = |uses: fn(&Value) -> bool| containers(old).any(uses);
        Self {
            restart_rules: gates.enabled("ContainerRestartRules") || uses_restart_rules(old),
            restart_all: gates.enabled("RestartAllContainersOnContainerExits") || uses_restart_all(old),
            stop_signals: gates.enabled("ContainerStopSignals")
                || any(|container| !at(container, "lifecycle.stopSignal").is_null()),
            pod_resources: gates.enabled("PodLevelResources") || !at(old, "spec.resources").is_null(),
            hostname_override: gates.enabled("HostnameOverride") || !at(old, "spec.hostnameOverride").is_null(),
            env_files: gates.enabled("EnvFiles") || any(uses_env_files),
            image_volumes: gates.enabled("ImageVolume")
                || items(old, "spec.volumes").iter().any(|volume| !at(volume, "image").is_null()),
        }
    }

    pub(super) fn drop_unavailable(&self, doc: &mut Value) {
        if !self.restart_rules {
            drop_restart_rules(doc);
        }
        if !self.stop_signals {
            LISTS.iter().for_each(|list| doc::items_mut(doc, list).iter_mut().for_each(drop_stop_signal));
        }
        if !self.env_files {
            LISTS.iter().for_each(|list| doc::items_mut(doc, list).iter_mut().for_each(drop_env_files));
        }
        if !self.image_volumes {
            doc::items_mut(doc, "spec.volumes").iter_mut().for_each(|volume| remove(volume, "image"));
        }
        if let Some(spec) = doc.get_mut("spec") {
            for (field, is_available) in
                [("resources", self.pod_resources), ("hostnameOverride", self.hostname_override)]
            {
                if !is_available {
                    remove(spec, field);
                }
            }
        }
    }
}

fn containers(doc: &Value) -> impl Iterator<Item = &Value> {
    LISTS.iter().flat_map(|list| items(doc, list))
}

fn remove(holder: &mut Value, field: &str) {
    if let Some(holder) = holder.as_object_mut() {
        holder.shift_remove(field);
    }
}

/// The policy of a sidecar is older than the gate.
fn uses_restart_rules(doc: &Value) -> bool {
    let own_policy = |list: &str, container: &Value| {
        let policy = text(container, "restartPolicy");
        !(policy.is_empty() || list == "spec.initContainers" && policy == "Always")
    };
    LISTS.iter().any(|list| {
        let mut containers = items(doc, list).iter();
        containers.any(|container| own_policy(list, container) || !items(container, "restartPolicyRules").is_empty())
    })
}

/// LC-144.
fn drop_restart_rules(doc: &mut Value) {
    for list in LISTS {
        for container in doc::items_mut(doc, list) {
            if !(list == "spec.initContainers" && text(container, "restartPolicy") == "Always") {
                remove(container, "restartPolicy");
            }
            remove(container, "restartPolicyRules");
        }
    }
}

pub(super) fn uses_restart_all(doc: &Value) -> bool {
    containers(doc)
        .flat_map(|container| items(container, "restartPolicyRules"))
        .any(|rule| text(rule, "action") == RESTART_ALL)
}

/// TC-073: a `lifecycle` that says nothing else goes with it.
fn drop_stop_signal(container: &mut Value) {
    let Some(lifecycle) = container.get_mut("lifecycle").and_then(Value::as_object_mut) else { return };
    if lifecycle.shift_remove("stopSignal").is_some() && lifecycle.is_empty() {
        remove(container, "lifecycle");
    }
}

fn uses_env_files(container: &Value) -> bool {
    items(container, "env").iter().any(|variable| !at(variable, "valueFrom.fileKeyRef").is_null())
}

fn drop_env_files(container: &mut Value) {
    for variable in doc::items_mut(container, "env") {
        if let Some(source) = variable.get_mut("valueFrom") {
            remove(source, "fileKeyRef");
        }
    }
}

#[cfg(test)]
mod tests;
