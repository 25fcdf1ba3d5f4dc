//! From manifest to static pod to mirror.

use objects::api::core::v1::{EnvFromSource, SecretEnvSource};

use super::*;

fn manifest(content: &[u8]) -> Manifest<'_> {
    let seen_at = Timestamp::UNIX_EPOCH;
    Manifest { source: ManifestSource::File, location: "/manifests/web.yaml", content, node_name: "Node-1", seen_at }
}

fn pod() -> Pod {
    let app = Container { name: "app".into(), image: Some("app:1".into()), ..Container::default() };
    let mut pod = Pod { spec: Some(ApiSpec { containers: vec![app], ..ApiSpec::default() }), ..Pod::default() };
    pod.metadata.name = Some("web".into());
    pod
}

#[test]
fn lc_353_lc_354_a_manifest_becomes_the_pod_of_its_node() {
    let made = static_pod(pod(), manifest(b"x"), References::Refused).expect("a static pod");
    assert_eq!(made.metadata.name.as_deref(), Some("web-node-1"));
    assert_eq!(made.metadata.namespace.as_deref(), Some("default"));
    assert_eq!(annotation(&made, SOURCE), Some("file"));
    assert_eq!(annotation(&made, HASH), made.metadata.uid.as_deref());
    let spec = made.spec.as_ref().expect("a spec");
    assert_eq!(spec.node_name.as_deref(), Some("Node-1"));
    assert_eq!(spec.tolerations.as_ref().map(|all| all[0].effect.as_deref()), Some(Some("NoExecute")));
    assert!(is_static(&made) && !is_static(&pod()));
    assert_eq!(made.status.and_then(|status| status.phase).as_deref(), Some("Pending"));
}

#[test]
fn lc_353_the_uid_follows_the_content() {
    let uid =
        |content: &[u8]| static_pod(pod(), manifest(content), References::Refused).expect("a static pod").metadata.uid;
    assert_eq!(uid(b"x"), uid(b"x"));
    assert_ne!(uid(b"x"), uid(b"y"));
    let mut own = pod();
    own.metadata.uid = Some("mine".into());
    assert_eq!(
        static_pod(own, manifest(b"x"), References::Refused).expect("a static pod").metadata.uid.as_deref(),
        Some("mine")
    );
}

#[test]
fn lc_355_a_static_pod_knows_nothing_of_the_api() {
    let refused = |edit: &dyn Fn(&mut ApiSpec)| {
        let mut pod = pod();
        edit(pod.spec.as_mut().expect("a spec"));
        static_pod(pod, manifest(b"x"), References::Refused).map(|_| ()).map_err(|error| error.problem)
    };
    let words = |what: &str| Err(format!("static pods may not reference {what}"));
    assert_eq!(refused(&|_| {}), Ok(()));
    assert_eq!(refused(&|spec| spec.service_account_name = Some("me".into())), words("serviceaccounts"));
    let secret = EnvFromSource { secret_ref: Some(SecretEnvSource::default()), ..EnvFromSource::default() };
    assert_eq!(refused(&|spec| spec.containers[0].env_from = Some(vec![secret.clone()])), words("secrets"));
    let volume = Volume { config_map: Some(Default::default()), ..Volume::default() };
    assert_eq!(refused(&|spec| spec.volumes = Some(vec![volume.clone()])), words("configmaps"));
}

#[test]
fn lc_356_a_mirror_belongs_to_one_version_of_its_pod() {
    let made = static_pod(pod(), manifest(b"x"), References::Refused).expect("a static pod");
    let mirror = mirror_of(&made, "Node-1", "n1");
    assert!(is_mirror(&mirror) && !is_mirror(&made));
    assert!(is_mirror_of(&mirror, &made));
    let owners = mirror.metadata.owner_references.as_ref().expect("an owner");
    assert_eq!((owners[0].kind.as_str(), owners[0].uid.as_str()), ("Node", "n1"));
    let changed = static_pod(pod(), manifest(b"y"), References::Refused).expect("a static pod");
    assert!(!is_mirror_of(&mirror, &changed));
}

#[test]
fn lc_356_lc_357_tc_148_a_mirror_follows_its_pod_and_never_leads() {
    let made = static_pod(pod(), manifest(b"x"), References::Refused).expect("a static pod");
    let mirror = mirror_of(&made, "Node-1", "n1");
    let step = |mirror: Option<&Pod>| mirror_step(Some(&made), false, mirror);
    assert_eq!(step(None), MirrorStep::Create);
    assert_eq!(step(Some(&mirror)), MirrorStep::Keep);
    // Whoever deletes it only makes it come again.
    let mut deleted = mirror.clone();
    deleted.metadata.deletion_timestamp = Some(objects::apimachinery::pkg::apis::meta::v1::Time(Timestamp::UNIX_EPOCH));
    assert_eq!(step(Some(&deleted)), MirrorStep::Delete);
    // Held by a finalizer it goes when that does, without being asked again and again.
    deleted.metadata.deletion_grace_period_seconds = Some(0);
    assert_eq!(step(Some(&deleted)), MirrorStep::Keep);
    assert_eq!(mirror_step(None, false, Some(&deleted)), MirrorStep::Keep);
    let older =
        mirror_of(&static_pod(pod(), manifest(b"y"), References::Refused).expect("a static pod"), "Node-1", "n1");
    assert_eq!(step(Some(&older)), MirrorStep::Delete);
    // The manifest is gone: the mirror shows the pod until it stopped.
    assert_eq!(mirror_step(None, true, Some(&mirror)), MirrorStep::Keep);
    assert_eq!(mirror_step(None, false, Some(&mirror)), MirrorStep::Delete);
    assert_eq!(mirror_step(None, false, None), MirrorStep::Keep);
}
