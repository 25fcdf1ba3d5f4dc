//! Whose cluster the pods of this node belong to.
//!
//! An API that knows nothing of a node's pods is right to have them removed,
//! unless it is another API: a store that was lost, or one of another cluster.
//! The UID of this node's object tells: it stays as long as the object does,
//! and it is kept on disk.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use cri::{Sandbox, SandboxState};
use lifecycle::is_of_node;
use objects::api::core::v1::Node;

use crate::ctx::Ctx;
use crate::durable;

const FILE: &str = "node-uid";

/// Why an agent does not work: it would remove pods that nobody told it to.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "{count} pods run here (such as {example}) that the API does not know, and its Node object is not the one they \
     were started for: this is another cluster, or its objects were lost. Nothing was removed. Restore the objects, \
     point to the right cluster, or start with --remove-unknown-pods to remove these pods"
)]
pub struct UnknownPods {
    pub count: usize,
    /// Namespace and name of one of them.
    pub example: String,
}

pub(crate) struct Home {
    root: PathBuf,
    /// The UID of the Node that pods here were started for.
    known: Option<String>,
}

impl Home {
    pub(crate) async fn open(ctx: &Ctx) -> Self {
        let root = ctx.config.root.clone();
        let known = tokio::task::spawn_blocking({
            let file = root.join(FILE);
            move || fs::read_to_string(file).ok().filter(|uid| !uid.is_empty())
        });
        Self { known: known.await.ok().flatten(), root }
    }

    /// Before anybody unknown is removed: whether those who run here are unknown
    /// to their own API. `shown`: this node's object there. False: it cannot be
    /// told yet.
    pub(crate) async fn check(
        &mut self,
        ctx: &Ctx,
        shown: Option<&Node>,
        is_known: impl Fn(&str) -> bool,
    ) -> Result<bool, UnknownPods> {
        let uid = shown.and_then(|node| node.metadata.uid.as_deref());
        let Ok(sandboxes) = ctx.runtime.sandboxes(None).await else { return Ok(false) };
        if let Some(refusal) = refusal(self.known.as_deref(), uid, &sandboxes, is_known) {
            match ctx.config.remove_unknown_pods {
                false => return Err(refusal),
                true => tracing::warn!(pods = refusal.count, "removing pods that the API does not know, as told"),
            }
        }
        if let Some(node) = shown {
            self.remember(node).await;
        }
        Ok(true)
    }

    pub(crate) async fn remember(&mut self, node: &Node) {
        let Some(uid) = node.metadata.uid.clone().filter(|uid| self.known.as_ref() != Some(uid)) else { return };
        let (root, text) = (self.root.clone(), uid.clone());
        let kept = tokio::task::spawn_blocking(move || keep(&root, &text)).await;
        match kept.map_err(io::Error::other).flatten() {
            Ok(()) => self.known = Some(uid),
            Err(error) => tracing::warn!(%error, "the UID of this node could not be kept on disk"),
        }
    }
}

fn keep(root: &Path, uid: &str) -> io::Result<()> {
    fs::create_dir_all(root)?;
    durable::replace(root, FILE, uid.as_bytes())
}

/// Static pods need no API.
fn refusal(
    known: Option<&str>,
    shown: Option<&str>,
    sandboxes: &[Sandbox],
    is_known: impl Fn(&str) -> bool,
) -> Option<UnknownPods> {
    if known.is_none() || known == shown {
        return None;
    }
    let runs = |it: &&Sandbox| it.state == SandboxState::Ready && !is_of_node(&it.annotations);
    let unknown: Vec<&Sandbox> = sandboxes.iter().filter(runs).filter(|it| !is_known(&it.meta.uid)).collect();
    let first = unknown.first()?;
    Some(UnknownPods { count: unknown.len(), example: format!("{}/{}", first.meta.namespace, first.meta.name) })
}

#[cfg(test)]
mod tests {
    use super::*;
    use cri::NamespaceMode;

    fn sandbox(state: SandboxState) -> Sandbox {
        Sandbox {
            id: "s1".into(),
            meta: cri::PodMeta { name: "web".into(), namespace: "default".into(), uid: "u1".into(), attempt: 0 },
            state,
            created_at: ambient::Timestamp::UNIX_EPOCH,
            network: NamespaceMode::Pod,
            ips: Vec::new(),
            labels: Default::default(),
            annotations: Default::default(),
        }
    }

    #[test]
    fn only_running_pods_of_another_node_object_are_a_reason() {
        let pods = [sandbox(SandboxState::Ready)];
        let ask = |known, shown, pods: &[Sandbox], knows: bool| refusal(known, shown, pods, |_| knows).is_some();
        assert!(ask(Some("n1"), None, &pods, false), "an empty store");
        assert!(ask(Some("n1"), Some("n2"), &pods, false), "another cluster");
        assert!(!ask(Some("n1"), Some("n1"), &pods, false), "the node's own API may forget pods");
        assert!(!ask(None, Some("n1"), &pods, false), "nobody knows better");
        assert!(!ask(Some("n1"), None, &pods, true));
        assert!(!ask(Some("n1"), None, &[sandbox(SandboxState::NotReady)], false), "nothing runs");
        let mut own = sandbox(SandboxState::Ready);
        own.annotations.insert("kubernetes.io/config.source".into(), "file".into());
        assert!(!ask(Some("n1"), None, &[own], false), "a static pod");
    }
}
