//! A pod in one line: `Sketch::pod("web").container("app", "sleep 60")`.

use serde_json::{Value, json};

/// A pod manifest under construction. Containers run a shell line in busybox.
#[derive(Debug, Clone)]
pub struct Sketch(Value);

const IMAGE: &str = "busybox:1.36";

impl Sketch {
    pub fn pod(name: &str) -> Self {
        Self(json!({
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": { "name": name },
            "spec": { "containers": [], "terminationGracePeriodSeconds": 3 }
        }))
    }

    #[must_use]
    pub fn container(self, name: &str, shell: &str) -> Self {
        self.add("containers", json!({ "name": name, "image": IMAGE, "command": ["sh", "-c", shell] }))
    }

    /// The same, with more fields: probes, hooks, ports.
    #[must_use]
    pub fn container_with(self, name: &str, shell: &str, more: Value) -> Self {
        let mut container = json!({ "name": name, "image": IMAGE, "command": ["sh", "-c", shell] });
        for (field, value) in more.as_object().into_iter().flatten() {
            container[field] = value.clone();
        }
        self.raw_container(container)
    }

    #[must_use]
    pub fn init(self, name: &str, shell: &str) -> Self {
        self.add("initContainers", json!({ "name": name, "image": IMAGE, "command": ["sh", "-c", shell] }))
    }

    /// A container that says everything itself.
    #[must_use]
    pub fn raw_container(self, container: Value) -> Self {
        self.add("containers", container)
    }

    #[must_use]
    pub fn restart(self, policy: &str) -> Self {
        self.with("restartPolicy", json!(policy))
    }

    #[must_use]
    pub fn grace(self, seconds: u32) -> Self {
        self.with("terminationGracePeriodSeconds", json!(seconds))
    }

    /// Any other field of the spec.
    #[must_use]
    pub fn with(mut self, field: &str, value: Value) -> Self {
        self.0["spec"][field] = value;
        self
    }

    pub fn manifest(&self) -> String {
        self.0.to_string()
    }

    fn add(mut self, list: &str, container: Value) -> Self {
        match self.0["spec"][list].as_array_mut() {
            Some(containers) => containers.push(container),
            None => self.0["spec"][list] = json!([container]),
        }
        self
    }
}
