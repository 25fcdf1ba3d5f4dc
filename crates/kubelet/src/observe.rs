//! Takes a snapshot of one pod from the runtime, in the words of `lifecycle`.

use std::collections::BTreeMap;
use std::path::Path;

use cri::{Container, ContainerState, CriError, NamespaceMode, ProcessUser, Sandbox, SandboxState};
use lifecycle::{Instance, InstanceState, Observation, SandboxSeen, UserSeen};

use crate::cgroup;
use crate::container::{HASH, MESSAGE_POLICY, log_path};
use crate::ctx::Ctx;
use crate::logs;
use crate::volumes::message_file;

/// What dead instances said, by container id. Read once: the files go away
/// with the pod's directories, the messages must not.
#[derive(Debug, Default)]
pub(crate) struct LastWords(BTreeMap<String, String>);

/// Names a pod on disk and in the runtime.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct PodRef {
    pub(crate) namespace: String,
    pub(crate) name: String,
    pub(crate) uid: String,
}

impl PodRef {
    /// As messages name a pod.
    pub(crate) fn full_name(&self) -> String {
        format!("{}_{}({})", self.name, self.namespace, self.uid)
    }
}

pub(crate) async fn observe(ctx: &Ctx, pod: &PodRef, words: &mut LastWords) -> Result<Observation, CriError> {
    let taken_at = Some(ctx.clock.now().mono);
    let containers = ctx.runtime.containers(Some(&pod.uid)).await?;
    let sandboxes = ctx.runtime.sandboxes(Some(&pod.uid)).await?;
    let mut instances = Vec::with_capacity(containers.len());
    for container in containers {
        instances.push(instance(ctx, pod, container, words).await);
    }
    Ok(Observation { taken_at, sandboxes: sandboxes.into_iter().map(sandbox_seen).collect(), instances })
}

fn sandbox_seen(sandbox: Sandbox) -> SandboxSeen {
    SandboxSeen {
        id: sandbox.id.0,
        attempt: sandbox.meta.attempt,
        is_ready: sandbox.state == SandboxState::Ready,
        is_host_network: sandbox.network == NamespaceMode::Node,
        ips: sandbox.ips,
        created_at: sandbox.created_at,
    }
}

async fn instance(ctx: &Ctx, pod: &PodRef, container: Container, words: &mut LastWords) -> Instance {
    let state = match (container.state, container.started_at) {
        (ContainerState::Created, _) => InstanceState::Created,
        (ContainerState::Running, started_at) => {
            InstanceState::Running { started_at: started_at.unwrap_or(container.created_at) }
        }
        (ContainerState::Exited, started_at) => InstanceState::Exited {
            started_at,
            finished_at: container.finished_at.unwrap_or(container.created_at),
            code: container.exit_code,
            reason: container.reason.clone(),
            message: words.of(ctx, pod, &container).await,
        },
        (ContainerState::Unknown, _) => InstanceState::Unknown,
    };
    Instance {
        id: ctx.shown_id(&container.id),
        name: container.name,
        attempt: container.attempt,
        sandbox: container.sandbox.0,
        state,
        spec_hash: container.annotations.get(HASH).cloned().unwrap_or_default(),
        image: container.image,
        image_id: container.image_ref,
        created_at: container.created_at,
        stop_signal: container.stop_signal,
        user: container.user.map(user_seen),
        limits: container.resources.as_ref().map(cgroup::values),
    }
}

/// LC-083.
fn user_seen(user: ProcessUser) -> UserSeen {
    UserSeen {
        uid: user.uid.into(),
        gid: user.gid.into(),
        supplemental_groups: user.supplemental_groups.into_iter().map(i64::from).collect(),
    }
}

impl LastWords {
    async fn of(&mut self, ctx: &Ctx, pod: &PodRef, container: &Container) -> String {
        if let Some(known) = self.0.get(container.id.as_str()) {
            return known.clone();
        }
        let file = message_file(&ctx.config.pod_dir(&pod.uid), &container.name, container.attempt);
        let log_dir = ctx.config.pod_log_dir(&pod.namespace, &pod.name, &pod.uid);
        let log = log_dir.join(log_path(&container.name, container.attempt));
        let may_fall_back = container.annotations.get(MESSAGE_POLICY).is_some_and(|it| it == "FallbackToLogsOnError")
            && container.exit_code != 0
            && container.reason != "ContainerCannotRun";
        let read = move || last_words(&file, may_fall_back.then_some(log.as_path()));
        let own = tokio::task::spawn_blocking(read).await.unwrap_or_default();
        let text = joined(&container.message, own);
        self.0.insert(container.id.0.clone(), text.clone());
        text
    }
}

/// LC-093.
fn joined(of_runtime: &str, own: String) -> String {
    match (of_runtime.is_empty(), own.is_empty()) {
        (true, _) => own,
        (false, true) => of_runtime.to_owned(),
        (false, false) => format!("{of_runtime}: {own}"),
    }
}

/// LC-091.
const MESSAGE_BYTES_MAX: u64 = 4096;
/// LC-092.
const FALLBACK_LINES_MAX: usize = 80;
const FALLBACK_BYTES_MAX: usize = 2048;

/// LC-091, LC-092.
fn last_words(file: &Path, fallback: Option<&Path>) -> String {
    let own = match logs::tail_bytes(file, MESSAGE_BYTES_MAX) {
        Ok(bytes) => String::from_utf8_lossy(&bytes).into_owned(),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => String::new(),
        Err(error) => format!("Error on reading termination log {}: {error}", file.display()),
    };
    match fallback {
        Some(log) if own.is_empty() => {
            logs::last_lines(log, FALLBACK_LINES_MAX, FALLBACK_BYTES_MAX).unwrap_or_default()
        }
        _ => own,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lc_091_lc_092_last_words_come_from_the_file_or_the_log() {
        let root = tempfile::tempdir().unwrap();
        let (file, log) = (root.path().join("m"), root.path().join("0.log"));
        std::fs::write(&log, "2026-01-01T00:00:00Z stderr F boom\n").unwrap();
        assert_eq!(last_words(&file, None), "");
        assert_eq!(last_words(&file, Some(&log)), "boom\n");
        std::fs::write(&file, "x".repeat(5000)).unwrap();
        assert_eq!(last_words(&file, Some(&log)).len(), 4096);
    }

    #[test]
    fn lc_093_the_runtime_speaks_first() {
        assert_eq!(joined("a", "b".into()), "a: b");
        assert_eq!(joined("", "b".into()), "b");
        assert_eq!(joined("a", String::new()), "a");
    }
}
