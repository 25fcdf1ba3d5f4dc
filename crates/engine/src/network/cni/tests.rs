//! Plugins are shell scripts that write down what they were told.

use std::os::fd::AsRawFd;
use std::os::unix::fs::PermissionsExt;

use expect_test::expect;
use nix::sched::{CloneFlags, unshare};

use super::*;
use crate::images::testing::root_or_return;

struct World {
    dir: tempfile::TempDir,
    namespace: fs::File,
}

impl World {
    fn new(list: &str) -> World {
        let dir = tempfile::tempdir().unwrap();
        for name in ["conf", "bin", "state"] {
            fs::create_dir(dir.path().join(name)).unwrap();
        }
        fs::write(dir.path().join("conf/10-net.conflist"), list).unwrap();
        fs::write(dir.path().join("conf/20-other.conflist"), "not looked at").unwrap();
        let made = std::thread::spawn(|| {
            unshare(CloneFlags::CLONE_NEWNET).unwrap();
            fs::File::open("/proc/thread-self/ns/net").unwrap()
        });
        World { dir, namespace: made.join().unwrap() }
    }

    fn plugin(&self, name: &str, script: &str) {
        let path = self.dir.path().join("bin").join(name);
        let log = self.dir.path().join("log").display().to_string();
        let script = format!(
            "#!/bin/sh\n{{ echo \"$CNI_COMMAND {name} $CNI_IFNAME $CNI_ARGS\"; cat; echo; }} >>{log}\n{script}\n"
        );
        fs::write(&path, script).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
    }

    fn cni(&self) -> Cni {
        let path = |name: &str| self.dir.path().join(name);
        let config = CniConfig { conf_dir: path("conf"), bin_dirs: vec![path("none"), path("bin")] };
        Cni::open(Some(config), path("state")).unwrap()
    }

    async fn attach(&self, cni: &Cni) -> Result<Vec<IpAddr>, NetworkError> {
        let pod = PodMeta { name: "web".into(), namespace: "default".into(), uid: "u1".into(), attempt: 0 };
        let port = HostPort { protocol: Protocol::Tcp, container_port: 80, host_port: 8080, host_ip: None };
        let netns = format!("/proc/{}/fd/{}", std::process::id(), self.namespace.as_raw_fd());
        cni.attach(cni.config().unwrap(), &"s1".into(), &pod, &[port], Path::new(&netns)).await
    }

    fn log(&self) -> String {
        let log = self.dir.path().join("log");
        let text = fs::read_to_string(&log).unwrap_or_default();
        let _ = fs::remove_file(log);
        text
    }

    fn records(&self) -> usize {
        fs::read_dir(self.dir.path().join("state")).unwrap().count()
    }
}

const TWO: &str = r#"{"cniVersion": "1.0.0", "name": "net", "plugins": [
    {"type": "wire", "mtu": 1400}, {"type": "portmap", "capabilities": {"portMappings": true}}]}"#;
const ADDRESS: &str =
    r#"test "$CNI_COMMAND" = DEL || echo '{"cniVersion": "1.0.0", "ips": [{"address": "10.9.0.7/24"}]}'"#;

#[tokio::test]
async fn plugins_are_run_in_order_and_taken_back_in_reverse() {
    root_or_return!();
    let world = World::new(TWO);
    world.plugin("wire", ADDRESS);
    world.plugin("portmap", ADDRESS);
    let cni = world.cni();
    assert_eq!(world.attach(&cni).await.unwrap(), ["10.9.0.7".parse::<IpAddr>().unwrap()]);
    let args =
        "IgnoreUnknown=1;K8S_POD_NAMESPACE=default;K8S_POD_NAME=web;K8S_POD_INFRA_CONTAINER_ID=s1;K8S_POD_UID=u1";
    expect![[r#"
        ADD wire eth0 ARGS
        {"type":"wire","mtu":1400,"cniVersion":"1.0.0","name":"net"}
        ADD portmap eth0 ARGS
        {"type":"portmap","cniVersion":"1.0.0","name":"net","prevResult":{"cniVersion":"1.0.0","ips":[{"address":"10.9.0.7/24"}]},"runtimeConfig":{"portMappings":[{"hostPort":8080,"containerPort":80,"protocol":"tcp"}]}}
    "#]]
    .assert_eq(&world.log().replace(args, "ARGS"));
    // Another engine takes it back, with what was configured then.
    let later = Cni::open(None, world.dir.path().join("state")).unwrap();
    later.reconcile(&["s1".into()]).await.unwrap();
    assert_eq!(world.log(), "", "it is known");
    later.reconcile(&[]).await.unwrap();
    expect![[r#"
        DEL portmap eth0 ARGS
        {"type":"portmap","cniVersion":"1.0.0","name":"net","prevResult":{"cniVersion":"1.0.0","ips":[{"address":"10.9.0.7/24"}]},"runtimeConfig":{"portMappings":[{"hostPort":8080,"containerPort":80,"protocol":"tcp"}]}}
        DEL wire eth0 ARGS
        {"type":"wire","mtu":1400,"cniVersion":"1.0.0","name":"net","prevResult":{"cniVersion":"1.0.0","ips":[{"address":"10.9.0.7/24"}]}}
    "#]]
    .assert_eq(&world.log().replace(args, "ARGS"));
    later.detach(&"s1".into()).await.unwrap();
    assert_eq!((world.log(), world.records()), (String::new(), 0), "again is fine");
}

#[tokio::test]
async fn a_plugin_that_fails_is_named_and_what_was_done_is_taken_back() {
    root_or_return!();
    let world = World::new(TWO);
    world.plugin("wire", ADDRESS);
    world.plugin(
        "portmap",
        r#"test "$CNI_COMMAND" = DEL || { echo '{"code": 100, "msg": "port 8080 is taken"}'; exit 1; }"#,
    );
    let error = world.attach(&world.cni()).await.unwrap_err();
    expect![[r#"CNI network net: plugin "portmap": port 8080 is taken"#]].assert_eq(&error.to_string());
    let told: Vec<String> =
        world.log().lines().filter(|line| !line.starts_with('{')).map(|line| line[..8].to_owned()).collect();
    assert_eq!(told, ["ADD wire", "ADD port", "DEL port", "DEL wire"]);
    assert_eq!(world.records(), 0);
}

#[tokio::test]
async fn a_plugin_that_is_missing_is_looked_for_where_it_says() {
    root_or_return!();
    let world = World::new(&TWO.replace("wire", "../wire"));
    world.plugin("portmap", ADDRESS);
    let error =
        world.attach(&world.cni()).await.unwrap_err().to_string().replace(world.dir.path().to_str().unwrap(), "DIR");
    expect![[r#"CNI network net: plugin "../wire" is not in DIR/none, DIR/bin"#]].assert_eq(&error);
}

#[test]
fn what_is_no_network_is_told_at_the_start() {
    let cases = [
        ("{", "EOF while parsing an object at line 1 column 1"),
        (r#"{"plugins": []}"#, "missing field `name`"),
        (r#"{"name": "n", "plugins": []}"#, "plugins: must name at least one"),
    ];
    for (text, expected) in cases {
        assert_eq!(parse(text).unwrap_err(), expected, "{text}");
    }
    let single = parse(r#"{"cniVersion": "0.4.0", "name": "n", "type": "bridge"}"#).unwrap();
    assert_eq!((single.version.as_str(), single.name.as_str(), single.plugins.len()), ("0.4.0", "n", 1));
}

/// A plugin that an agent leaves behind when it is killed is waited for: what
/// it does must be taken back after it, not before.
#[tokio::test]
async fn a_plugin_of_a_dead_agent_is_waited_for() {
    root_or_return!();
    let world = World::new(TWO);
    world.plugin("wire", ADDRESS);
    world.plugin("portmap", ADDRESS);
    let cni = world.cni();
    world.attach(&cni).await.unwrap();
    world.log();
    let request = request_file(&world.dir.path().join("state").join(request_name(&"s1".into())), "{}").await.unwrap();
    let mut orphan = Command::new("cat").stdin(Stdio::piped()).stdout(request).spawn().unwrap();
    let sandbox = "s1".into();
    let mut detached = std::pin::pin!(cni.detach(&sandbox));
    // Long enough for a plugin that would be called.
    let early = tokio::time::timeout(LOCK_PAUSE * 20, detached.as_mut()).await;
    assert!(early.is_err(), "{early:?}");
    assert_eq!(world.log(), "");
    drop(orphan.stdin.take());
    orphan.wait().await.unwrap();
    detached.await.unwrap();
    assert_eq!(world.log().lines().filter(|line| line.starts_with("DEL ")).count(), 2);
    assert_eq!(world.records(), 0);
}
