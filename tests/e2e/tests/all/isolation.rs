//! How far a container is from the node: its users, its calls, its mounts.

use std::fs;
use std::os::unix::fs::MetadataExt;

use podium_e2e::{Patience, Podium, Sketch};
use serde_json::{Value, json};

fn container(script: &str, more: Value) -> Value {
    let mut container = json!({ "name": "app", "image": "busybox:1.36", "command": ["sh", "-c", script] });
    for (field, value) in more.as_object().into_iter().flatten() {
        container[field] = value.clone();
    }
    container
}

#[test]
fn a_file_of_a_config_map_can_be_mounted_directly_below_the_root() {
    let podium = Podium::start();
    let settings = json!({ "apiVersion": "v1", "kind": "ConfigMap", "metadata": { "name": "settings" },
        "data": { "app.conf": "key=value" } });
    podium.kubectl_with_input(&["apply", "-f", "-"], &settings.to_string()).ok();
    let mount = json!([{ "name": "conf", "mountPath": "/app.conf", "subPath": "app.conf" }]);
    let app = container("cat /app.conf; echo; echo x > /app.conf || echo refused", json!({ "volumeMounts": mount }));
    let volumes = json!([{ "name": "conf", "configMap": { "name": "settings" } }]);
    podium.apply(&Sketch::pod("config").restart("Never").raw_container(app).with("volumes", volumes));
    podium.wait_phase("config", "Succeeded");
    let log = podium.logs("config");
    assert!(log.starts_with("key=value\n") && log.contains("\nrefused\n"), "{log}");
}

/// Two pods, each with users of its own, through a restart of the agent.
#[test]
fn pods_with_own_users_share_none_with_the_node_or_each_other() {
    let mut podium = Podium::start();
    let script = "cat /proc/self/uid_map; id -u; touch /data/file; stat -c %u /data/file; echo told > /dev/termination-log; \
        while ! [ -e /data/stop ]; do sleep 0.1; done";
    let pod = |name: &str| {
        // A command in the container: root there, as its own process is.
        let probe = json!({ "exec": { "command": ["sh", "-c", "[ $(id -u) = 0 ]"] }, "periodSeconds": 1 });
        let mounts = json!({ "volumeMounts": [{ "name": "data", "mountPath": "/data" }], "readinessProbe": probe });
        let volumes = json!([{ "name": "data", "emptyDir": {} }]);
        let pod = Sketch::pod(name).restart("Never").raw_container(container(script, mounts));
        pod.with("volumes", volumes).with("hostUsers", json!(false))
    };
    let first_id = |podium: &Podium, name: &str| {
        podium.wait_ready(name);
        podium.follow_log(name, "app", "its map", |line| {
            let words: Vec<&str> = line.split_whitespace().collect();
            (words.len() == 3).then(|| (words[0].to_owned(), words[1].parse::<u32>().unwrap(), words[2].to_owned()))
        })
    };
    podium.apply(&pod("one"));
    podium.apply(&pod("two"));
    let (one, two) = (first_id(&podium, "one"), first_id(&podium, "two"));
    for map in [&one, &two] {
        assert_eq!((map.0.as_str(), map.2.as_str()), ("0", "65536"));
        assert!(map.1 >= 65536 && map.1 % 65536 == 0, "{map:?}");
    }
    assert_ne!(one.1, two.1);
    podium.kill_agent();
    podium.start_agent();
    podium.apply(&pod("three"));
    let three = first_id(&podium, "three");
    assert!(three.1 != one.1 && three.1 != two.1, "{three:?} was in use");
    for name in ["one", "two", "three"] {
        let uid = podium.wait_ready(name)["metadata"]["uid"].as_str().unwrap().to_owned();
        let volume = podium.data().join("kubelet/pods").join(uid).join("volumes/kubernetes.io~empty-dir/data");
        // On disk it is root's, as in the pod: the mount is what differs.
        assert_eq!(fs::metadata(volume.join("file")).unwrap().uid(), 0);
        fs::write(volume.join("stop"), "").unwrap();
        let pod = podium.wait_phase(name, "Succeeded");
        let ended = &pod["status"]["containerStatuses"][0]["state"]["terminated"];
        assert_eq!(ended["message"], "told\n", "{ended}");
        assert!(podium.logs(name).ends_with("0\n0\n"), "{}", podium.logs(name));
    }
}

#[test]
fn a_profile_of_the_node_decides_on_calls_or_nothing_starts() {
    let podium = Podium::start();
    let profiles = podium.data().join("kubelet/seccomp/team");
    fs::create_dir_all(&profiles).unwrap();
    let text = r#"{"defaultAction": "SCMP_ACT_ALLOW", "syscalls": [
        {"names": ["mkdir", "mkdirat"], "action": "SCMP_ACT_ERRNO", "errnoRet": 122}]}"#;
    fs::write(profiles.join("web.json"), text).unwrap();
    let with = |name: &str, profile: &str| {
        let profile = json!({ "type": "Localhost", "localhostProfile": profile });
        let app = container("mkdir /x; echo over", json!({ "securityContext": { "seccompProfile": profile } }));
        Sketch::pod(name).restart("Never").raw_container(app)
    };
    podium.apply(&with("confined", "team/web.json"));
    podium.wait_phase("confined", "Succeeded");
    let log = podium.logs("confined");
    assert!(log.contains("quota exceeded") && log.contains("over\n"), "{log}");
    podium.apply(&with("missing", "team/none.json"));
    let pod = podium.wait_pod("missing", "CreateContainerError", Patience::SHORT, |pod| {
        pod["status"]["containerStatuses"][0]["state"]["waiting"]["reason"] == "CreateContainerError"
    });
    let message = pod["status"]["containerStatuses"][0]["state"]["waiting"]["message"].as_str().unwrap_or_default();
    assert!(message.contains("cannot load seccomp profile") && message.contains("team/none.json"), "{message}");
    let complaint =
        podium.kubectl_with_input(&["create", "-f", "-"], &with("outside", "../x.json").manifest()).refused(1);
    assert!(complaint.contains("localhostProfile") && complaint.contains("must not contain '..'"), "{complaint}");
}
