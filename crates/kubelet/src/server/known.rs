//! Which pod of this node a name stands for.
//!
//! Never: believes an annotation. Only an object that shows a static pod of
//! this node leads to that pod's containers; any other leads to its own.

use std::sync::Arc;

use client::Cache;
use lifecycle::{is_mirror, is_mirror_of};
use objects::api::core::v1::Pod;
use tokio::sync::watch;

use crate::observe::PodRef;
use crate::pods::Sight;

/// What the API and the node's own sources say about pods here. Cheap to clone.
#[derive(Clone)]
pub(crate) struct Pods {
    pub(crate) cache: Arc<Cache<Pod>>,
    pub(crate) sight: watch::Receiver<Sight>,
}

pub(super) struct Found {
    /// As the API has it, if it does.
    pub(super) shown: Arc<Pod>,
    /// What runs here for it.
    pub(super) who: PodRef,
}

impl Pods {
    pub(super) fn find(&self, namespace: &str, name: &str) -> Option<Found> {
        let shown = self.cache.get(namespace, name);
        let is_meant = |pod: &&Arc<Pod>| {
            let meta = &pod.metadata;
            (meta.namespace.as_deref(), meta.name.as_deref()) == (Some(namespace), Some(name))
                && shown.as_ref().is_none_or(|shown| is_mirror_of(shown, pod))
        };
        let own = self.sight.borrow().statics.iter().find(is_meant).cloned();
        let (shown, runs) = choose(shown, own)?;
        let uid = runs.metadata.uid.clone().unwrap_or_default();
        Some(Found { shown, who: PodRef { namespace: namespace.to_owned(), name: name.to_owned(), uid } })
    }
}

/// What is shown and what runs, given the API's and the node's own pod of one name.
fn choose(shown: Option<Arc<Pod>>, own: Option<Arc<Pod>>) -> Option<(Arc<Pod>, Arc<Pod>)> {
    match (shown, own) {
        (Some(shown), _) if !is_mirror(&shown) => Some((shown.clone(), shown)),
        (Some(mirror), Some(own)) if is_mirror_of(&mirror, &own) => Some((mirror, own)),
        // A mirror of nothing, or of what was here before.
        (Some(_), _) | (None, None) => None,
        // The API does not show it yet, or is away.
        (None, Some(own)) => Some((own.clone(), own)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pod(uid: &str, annotation: Option<(&str, &str)>) -> Arc<Pod> {
        let mut pod = Pod::default();
        (pod.metadata.namespace, pod.metadata.name) = (Some("kube-system".into()), Some("web-n1".into()));
        pod.metadata.uid = Some(uid.into());
        pod.metadata.annotations =
            annotation.map(|(key, value)| [(format!("kubernetes.io/{key}"), value.into())].into());
        Arc::new(pod)
    }

    fn runs(shown: Option<Arc<Pod>>, own: Option<Arc<Pod>>) -> Option<String> {
        choose(shown, own).and_then(|(_, runs)| runs.metadata.uid.clone())
    }

    #[test]
    fn lc_354_only_the_mirror_of_a_static_pod_leads_to_it() {
        let own = || Some(pod("hash", Some(("config.hash", "hash"))));
        let mirror = |of: &str| Some(pod("m", Some(("config.mirror", of))));
        assert_eq!(runs(mirror("hash"), own()).as_deref(), Some("hash"));
        assert_eq!(runs(None, own()).as_deref(), Some("hash"));
        assert_eq!(runs(mirror("hash"), None), None, "its static pod is not here");
        assert_eq!(runs(mirror("victim"), None), None, "the UID of somebody else's pod");
        assert_eq!(runs(mirror("victim"), own()), None);
        assert_eq!(runs(Some(pod("p", None)), None).as_deref(), Some("p"));
        assert_eq!(runs(Some(pod("p", None)), own()).as_deref(), Some("p"), "of one name, but no mirror");
        assert_eq!(runs(None, None), None);
    }
}
