//! Volumes on a temporary directory.

use serde_json::json;

use super::*;

fn pod(spec: serde_json::Value) -> Pod {
    serde_json::from_value(json!({"metadata": {"name": "web", "namespace": "default", "uid": "u"}, "spec": spec}))
        .unwrap()
}

#[test]
fn lc_318_an_empty_dir_is_for_everyone_and_keeps_its_content() {
    let root = tempfile::tempdir().unwrap();
    let path = root.path().join("v");
    empty_dir(&path, &EmptyDirVolumeSource::default(), None, 0).unwrap();
    fs::write(path.join("f"), "x").unwrap();
    empty_dir(&path, &EmptyDirVolumeSource::default(), None, 0).unwrap();
    assert_eq!(fs::metadata(&path).unwrap().mode() & 0o7777, 0o777);
    assert_eq!(fs::read_to_string(path.join("f")).unwrap(), "x");
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
fn lc_319_payloads_are_switched_as_a_whole() {
    let root = tempfile::tempdir().unwrap();
    let file = |text: &str| payload::File { content: text.as_bytes().to_vec(), mode: 0o640 };
    let path = root.path().join("v");
    write_payload(&path, &BTreeMap::from([("a".to_owned(), file("1")), ("d/b".to_owned(), file("2"))])).unwrap();
    let first = fs::read_link(path.join("..data")).unwrap();
    write_payload(&path, &BTreeMap::from([("a".to_owned(), file("3")), ("d/b".to_owned(), file("2"))])).unwrap();
    assert_eq!(fs::read_to_string(path.join("a")).unwrap(), "3");
    assert_eq!(fs::read_to_string(path.join("d/b")).unwrap(), "2");
    assert_eq!(fs::metadata(path.join("a")).unwrap().mode() & 0o777, 0o640);
    assert!(!path.join(first).exists(), "the old generation is removed");
}

#[test]
fn lc_324_host_path_types_create_or_insist() {
    let root = tempfile::tempdir().unwrap();
    let path = root.path().join("x/y");
    let of = |kind: &str| HostPathVolumeSource { path: path.display().to_string(), type_: Some(kind.to_owned()) };
    assert!(host_path(&of("Directory")).is_err());
    host_path(&of("DirectoryOrCreate")).unwrap();
    host_path(&of("Directory")).unwrap();
    assert!(host_path(&of("File")).is_err());
}

#[test]
fn lc_326_the_hosts_file_names_the_pod_and_its_aliases() {
    let pod = pod(json!({"containers": [], "hostAliases": [{"ip": "192.0.2.9", "hostnames": ["db", "db2"]}]}));
    let text = hosts(&pod, &["10.0.0.2".to_owned()]);
    assert!(text.starts_with("# Kubernetes-managed hosts file.\n127.0.0.1\tlocalhost\n"));
    assert!(text.ends_with("10.0.0.2\tweb\n\n# Entries added by HostAliases.\n192.0.2.9\tdb\tdb2\n"), "{text}");
}

#[tokio::test]
async fn lc_013_tear_down_leaves_nothing_and_may_run_twice() {
    let root = tempfile::tempdir().unwrap();
    let config = crate::tests::config(root.path());
    make_pod_dirs(&config.pod_dir("u"), &config.pod_log_dir("default", "web", "u")).unwrap();
    fs::write(config.pod_dir("u").join("volumes/f"), "x").unwrap();
    for _ in 0..2 {
        tear_down(&config, "default", "web", "u").await.unwrap();
        assert!(!config.pod_dir("u").exists());
        assert!(!config.pod_log_dir("default", "web", "u").exists());
    }
}

#[test]
fn lc_090_the_message_file_is_fresh_and_writable_by_all() {
    let root = tempfile::tempdir().unwrap();
    let file = message_file(root.path(), "a", 2);
    write_own_files(root.path(), None, Some(file.clone())).unwrap();
    fs::write(&file, "old").unwrap();
    write_own_files(root.path(), None, Some(file.clone())).unwrap();
    assert_eq!(fs::read_to_string(&file).unwrap(), "");
    assert_eq!(fs::metadata(&file).unwrap().mode() & 0o777, 0o666);
}
