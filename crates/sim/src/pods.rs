//! Pods from one line of text.
//!
//! `policy=Never grace=10 | init setup | sidecar proxy | app web image=nginx:1 restart=Never rule=In:42`

use std::collections::BTreeMap;

use objects::api::core::v1::{
    Container, ContainerResizePolicy, ContainerRestartRule, ContainerRestartRuleOnExitCodes, EphemeralContainer,
    ExecAction, ImageVolumeSource, LifecycleHandler, Pod, PodReadinessGate, PodSpec, PodStatus, Probe, SleepAction,
    Volume, VolumeMount,
};
use objects::apimachinery::pkg::api::resource::Quantity;
use objects::apimachinery::pkg::apis::meta::v1::ObjectMeta;

pub fn pod(text: &str) -> Pod {
    let mut parts = text.split('|').map(str::trim);
    let mut spec = PodSpec { restart_policy: Some("Always".into()), ..PodSpec::default() };
    let settings = if text.contains('|') { parts.next().unwrap_or_default() } else { "" };
    for (key, value) in settings.split_whitespace().filter_map(|word| word.split_once('=')) {
        match key {
            "policy" => spec.restart_policy = Some(value.into()),
            "grace" => spec.termination_grace_period_seconds = Some(value.parse().expect("a number or truth value")),
            "deadline" => spec.active_deadline_seconds = Some(value.parse().expect("a number or truth value")),
            "gate" => spec.readiness_gates = Some(vec![PodReadinessGate { condition_type: value.into() }]),
            "priority" => spec.priority = Some(value.parse().expect("a number")),
            "imageVolume" => spec.volumes.get_or_insert_default().push(image_volume(value)),
            "hostNetwork" => spec.host_network = Some(value.parse().expect("a number or truth value")),
            other => panic!("unknown pod setting {other}"),
        }
    }
    for part in parts {
        let mut words = part.split_whitespace();
        let role = words.next().expect("a role");
        let container = container(words.next().expect("a name"), words);
        match role {
            "app" => spec.containers.push(container),
            "ephemeral" => spec.ephemeral_containers.get_or_insert_default().push(ephemeral(container)),
            "init" => spec.init_containers.get_or_insert_default().push(container),
            "sidecar" => spec
                .init_containers
                .get_or_insert_default()
                .push(Container { restart_policy: Some("Always".into()), ..container }),
            other => panic!("unknown role {other}"),
        }
    }
    let qos_class = objects::qos::of(&spec).as_str().to_owned();
    Pod {
        metadata: ObjectMeta {
            name: Some("web".into()),
            namespace: Some("default".into()),
            uid: Some("u1".into()),
            generation: Some(1),
            ..ObjectMeta::default()
        },
        spec: Some(spec),
        status: Some(PodStatus { phase: Some("Pending".into()), qos_class: Some(qos_class), ..PodStatus::default() }),
    }
}

pub fn ephemeral(container: Container) -> EphemeralContainer {
    EphemeralContainer { name: container.name, image: container.image, ..EphemeralContainer::default() }
}

pub fn container<'a>(name: &str, settings: impl Iterator<Item = &'a str>) -> Container {
    let mut container = Container {
        name: name.into(),
        image: Some(format!("{name}:1")),
        image_pull_policy: Some("IfNotPresent".into()),
        ..Container::default()
    };
    for (key, value) in settings.filter_map(|word| word.split_once('=')) {
        match key {
            "image" => container.image = Some(value.into()),
            "pull" => container.image_pull_policy = Some(value.into()),
            "mount" => container.volume_mounts.get_or_insert_default().push(VolumeMount {
                name: value.into(),
                mount_path: format!("/{value}"),
                ..VolumeMount::default()
            }),
            "startup" => container.startup_probe = Some(probe(value)),
            "liveness" => container.liveness_probe = Some(probe(value)),
            "readiness" => container.readiness_probe = Some(probe(value)),
            "postStart" => container.lifecycle.get_or_insert_default().post_start = Some(hook(value)),
            "preStop" => container.lifecycle.get_or_insert_default().pre_stop = Some(hook(value)),
            "stopSignal" => container.lifecycle.get_or_insert_default().stop_signal = Some(value.into()),
            "all" => {
                let rule = ContainerRestartRule { action: "RestartAllContainers".into(), ..rule(value) };
                container.restart_policy_rules.get_or_insert_default().push(rule);
            }
            "restart" => container.restart_policy = Some(value.into()),
            "req" => container.resources.get_or_insert_default().requests = Some(amounts(value)),
            "lim" => container.resources.get_or_insert_default().limits = Some(amounts(value)),
            "restartOn" => container
                .resize_policy
                .get_or_insert_default()
                .push(ContainerResizePolicy { resource_name: value.into(), restart_policy: "RestartContainer".into() }),
            "rule" => container.restart_policy_rules.get_or_insert_default().push(rule(value)),
            other => panic!("unknown container setting {other}"),
        }
    }
    container
}

/// `models` is a volume of that name with the image `models:1`.
fn image_volume(name: &str) -> Volume {
    let source = ImageVolumeSource { reference: Some(format!("{name}:1")), pull_policy: Some("IfNotPresent".into()) };
    Volume { name: name.into(), image: Some(source), ..Volume::default() }
}

/// `period:10,failure:3,success:1,delay:5,grace:10`
pub fn probe(text: &str) -> Probe {
    let mut probe = Probe { exec: Some(ExecAction { command: Some(vec!["true".into()]) }), ..Probe::default() };
    for (key, value) in text.split(',').filter_map(|word| word.split_once(':')) {
        let number: i32 = value.parse().expect("a number");
        match key {
            "period" => probe.period_seconds = Some(number),
            "failure" => probe.failure_threshold = Some(number),
            "success" => probe.success_threshold = Some(number),
            "delay" => probe.initial_delay_seconds = Some(number),
            "grace" => probe.termination_grace_period_seconds = Some(number.into()),
            other => panic!("unknown probe setting {other}"),
        }
    }
    probe
}

/// `exec` or `sleep:5`
fn hook(text: &str) -> LifecycleHandler {
    match text.split_once(':') {
        Some(("sleep", seconds)) => LifecycleHandler {
            sleep: Some(SleepAction { seconds: seconds.parse().expect("a number") }),
            ..LifecycleHandler::default()
        },
        _ => LifecycleHandler {
            exec: Some(ExecAction { command: Some(vec!["true".into()]) }),
            ..LifecycleHandler::default()
        },
    }
}

/// `cpu:100m,memory:64Mi`
pub fn amounts(text: &str) -> BTreeMap<String, Quantity> {
    let pairs = text.split(',').map(|pair| pair.split_once(':').expect("resource:amount"));
    pairs.map(|(name, amount)| (name.to_owned(), Quantity(amount.to_owned()))).collect()
}

/// `In:42,43` or `NotIn:0`
fn rule(text: &str) -> ContainerRestartRule {
    let (operator, codes) = text.split_once(':').expect("operator:codes");
    ContainerRestartRule {
        action: "Restart".into(),
        exit_codes: Some(ContainerRestartRuleOnExitCodes {
            operator: operator.into(),
            values: Some(codes.split(',').map(|code| code.parse().expect("an exit code")).collect()),
        }),
    }
}
