//! What a container's mounts lead to.

use serde_json::json;

use super::*;

fn mount_of(volume: serde_json::Value, mount: serde_json::Value) -> Result<Mount, String> {
    let (volume, mount) = (serde_json::from_value(volume).unwrap(), serde_json::from_value(mount).unwrap());
    let variables = BTreeMap::from([("POD".to_owned(), "web".to_owned()), ("EMPTY".to_owned(), String::new())]);
    volume_mount(Path::new("/pods/u"), &volume, &mount, &variables)
}

fn empty(mount: serde_json::Value) -> Result<Mount, String> {
    let mut whole = json!({"name": "v", "mountPath": "/m"});
    whole.as_object_mut().unwrap().extend(mount.as_object().unwrap().clone());
    mount_of(json!({"name": "v", "emptyDir": {}}), whole)
}

#[test]
fn parts_of_volumes_may_be_named_by_variables() {
    let part = |mount: serde_json::Value| empty(mount).map(|mount| mount.sub_path);
    assert_eq!(part(json!({})), Ok(None));
    assert_eq!(part(json!({"subPath": "a/./b"})), Ok(Some("a/b".into())));
    assert_eq!(part(json!({"subPath": "."})), Ok(None));
    assert_eq!(part(json!({"subPathExpr": "logs/$(POD)"})), Ok(Some("logs/web".into())));
    assert_eq!(part(json!({"subPathExpr": "$$(POD)"})), Ok(Some("$(POD)".into())));
    assert_eq!(part(json!({"subPathExpr": "$(NO)/$(EMPTY)"})), Err("missing value for EMPTY, NO".to_owned()));
    assert_eq!(
        part(json!({"subPathExpr": "/$(POD)"})),
        Err("error SubPath `/web` must not be an absolute path".into())
    );
    let climbing = Err("unable to provision SubPath `../web`: must not contain '..'".to_owned());
    assert_eq!(part(json!({"subPathExpr": "../$(POD)"})), climbing);
}

#[test]
fn lc_319_a_part_of_a_payload_is_what_it_was_at_the_start() {
    let volume = json!({"name": "v", "configMap": {"name": "m"}});
    let mount = mount_of(volume, json!({"name": "v", "mountPath": "/m", "subPathExpr": "$(POD).yaml"})).unwrap();
    let expected = "/pods/u/volumes/kubernetes.io~configmap/v/..data/web.yaml";
    assert_eq!((mount.host_path, mount.sub_path, mount.readonly), (expected.into(), None, true));
}

#[test]
fn mounts_travel_as_the_pod_asks() {
    let asked = |how: Option<&str>| {
        propagation(&VolumeMount { mount_propagation: how.map(str::to_owned), ..VolumeMount::default() })
    };
    assert_eq!(asked(None), Propagation::Private);
    assert_eq!(asked(Some("None")), Propagation::Private);
    assert_eq!(asked(Some("HostToContainer")), Propagation::HostToContainer);
    assert_eq!(asked(Some("Bidirectional")), Propagation::Bidirectional);
}

#[test]
fn log_directories_are_known_by_the_uid_of_their_pod() {
    let root = tempfile::tempdir().unwrap();
    for name in ["default_web_u-1", "default_web_u-2", "stray", "a_b", "a_b_c_d"] {
        fs::create_dir(root.path().join(name)).unwrap();
    }
    let mut uids: Vec<String> = log_dirs(root.path()).unwrap().into_iter().map(|(uid, _)| uid).collect();
    uids.sort();
    assert_eq!(uids, ["u-1", "u-2"]);
    assert_eq!(log_dirs(&root.path().join("nowhere")).unwrap(), []);
}

#[test]
fn unknown_volumes_are_refused_and_not_taken_for_empty_ones() {
    let refused =
        mount_of(json!({"name": "v", "nfs": {"server": "s", "path": "/"}}), json!({"name": "v", "mountPath": "/m"}));
    assert_eq!(refused.unwrap_err(), "no volume plugin matched: volumes of type nfs are not supported");
    assert_eq!(Source::of(&Volume { name: "v".into(), ..Volume::default() }), Ok(Source::EmptyDir));
}

/// CVE-2024-10220, CVE-2025-1767: nothing is fetched, and no directory is made.
#[test]
fn a_volume_of_git_is_refused_whatever_it_names() {
    for repository in ["https://example.com/x.git", "/var/lib", "file:///etc", "--upload-pack=touch"] {
        let volume = json!({"name": "v", "gitRepo": {"repository": repository, "directory": "../../x"}});
        let refused = mount_of(volume, json!({"name": "v", "mountPath": "/m"}));
        assert_eq!(refused.unwrap_err(), "no volume plugin matched: volumes of type gitRepo are not supported");
    }
}

#[test]
fn a_volume_is_of_one_type() {
    let both = json!({"name": "v", "emptyDir": {}, "hostPath": {"path": "/etc"}});
    let refused = mount_of(both, json!({"name": "v", "mountPath": "/m"}));
    assert_eq!(refused.unwrap_err(), "may not specify more than 1 volume type: emptyDir and hostPath");
}

#[test]
fn make_pod_dirs_are_private() {
    use std::os::unix::fs::MetadataExt as _;
    let root = tempfile::tempdir().unwrap();
    let dir = root.path().join("pods/u");
    make_pod_dirs(&dir, &root.path().join("logs")).unwrap();
    assert_eq!(fs::metadata(&dir).unwrap().mode() & 0o777, 0o750);
}

#[test]
fn lc_013_tear_down_leaves_nothing_and_may_run_twice() {
    let root = tempfile::tempdir().unwrap();
    let config = crate::tests::config(root.path());
    let (dir, log_dir) = (config.pod_dir("u"), config.pod_log_dir("default", "web", "u"));
    make_pod_dirs(&dir, &log_dir).unwrap();
    let data = root.path().join("data");
    fs::create_dir(&data).unwrap();
    fs::write(data.join("f"), "kept").unwrap();
    std::os::unix::fs::symlink(&data, dir.join("volumes/claimed")).unwrap();
    for _ in 0..2 {
        remove(&dir, std::slice::from_ref(&log_dir)).unwrap();
        assert!(!dir.exists());
        assert!(!log_dir.exists());
    }
    assert_eq!(fs::read_to_string(data.join("f")).unwrap(), "kept", "what a claim leads to is not the pod's");
}

#[tokio::test]
async fn turns_of_one_pod_exclude_each_other_and_are_forgotten() {
    let turns = Turns::default();
    let first = turns.of("u").await;
    let other = turns.of("w").await;
    let waiting = tokio::time::timeout(std::time::Duration::from_millis(10), turns.of("u")).await;
    assert!(waiting.is_err(), "the first still has its turn");
    drop((first, other));
    let _again = turns.of("u").await;
    assert_eq!(turns.of_pods.lock().unwrap().len(), 1);
}
