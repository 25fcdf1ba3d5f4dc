//! How pods are reached, by our own network and by CNI plugins.

use std::fs;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use podium_e2e::{Patience, Podium, Sketch, free_port};
use serde_json::json;

fn web(host_port: u16) -> Sketch {
    let shell = "mkdir /www; echo here I am > /www/hello; exec httpd -f -p 8080 -h /www";
    let more = json!({
        "ports": [{"containerPort": 8080, "hostPort": host_port}],
        "readinessProbe": {"httpGet": {"path": "/hello", "port": 8080}, "periodSeconds": 1},
    });
    Sketch::pod("web").container_with("app", shell, more)
}

/// What is answered at a port of this machine.
fn ask(port: u16) -> std::io::Result<String> {
    let address = SocketAddr::from(([127, 0, 0, 1], port));
    let mut stream = TcpStream::connect_timeout(&address, Duration::from_secs(10))?;
    stream.write_all(b"GET /hello HTTP/1.0\r\n\r\n")?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer)?;
    Ok(answer)
}

#[test]
fn a_host_port_leads_to_its_pod_as_long_as_there_is_one() {
    let mut podium = Podium::start();
    let port = free_port();
    podium.apply(&web(port));
    podium.wait_ready("web");
    assert!(ask(port).unwrap().ends_with("here I am\n"));
    podium.kill_agent();
    assert!(ask(port).unwrap().ends_with("here I am\n"), "the agent is not needed for it");
    podium.start_agent();
    assert!(ask(port).unwrap().ends_with("here I am\n"));
    podium.delete("web");
    podium.wait_gone("web", Patience::LONG);
    assert_eq!(ask(port).unwrap_err().kind(), std::io::ErrorKind::ConnectionRefused);
}

/// The API server's port led to a pod once, and no kubectl worked until it ended.
#[test]
fn the_nodes_own_ports_lead_to_no_pod() {
    let podium = Podium::start();
    let api_port = podium.address().rsplit(':').next().and_then(|port| port.parse().ok()).unwrap();
    for port in [api_port, 22] {
        podium.apply(&web(port));
        let refused = podium.wait_phase("web", "Failed");
        assert_eq!(refused["status"]["reason"], "NodePorts", "{refused}");
        podium.delete("web");
        podium.wait_gone("web", Patience::LONG);
    }
    let taken = std::net::TcpListener::bind("0.0.0.0:0").unwrap();
    let port = taken.local_addr().unwrap().port();
    podium.apply(&web(port));
    podium.wait_event("web", "FailedCreatePodSandBox", &format!("host port {port}/TCP is in use on this node"));
    drop(taken);
    podium.wait_ready("web");
    assert!(ask(port).unwrap().ends_with("here I am\n"));
}

#[test]
fn a_pod_is_told_an_address_of_its_node_that_is_not_the_pod() {
    let podium = Podium::start_with(&["--node-ip", "192.0.2.77"]);
    let field = json!({"env": [{"name": "HOST", "valueFrom": {"fieldRef": {"fieldPath": "status.hostIP"}}}]});
    podium.apply(&Sketch::pod("web").container_with("app", "echo host $HOST; exec sleep 3600", field));
    let pod = podium.wait_ready("web");
    assert_eq!(pod["status"]["hostIP"], "192.0.2.77");
    // The agent listens elsewhere and is found all the same.
    assert_eq!(podium.logs("web"), "host 192.0.2.77\n");
    let address = "jsonpath={.items[0].status.addresses[?(@.type=='InternalIP')].address}";
    assert_eq!(podium.kubectl(&["get", "nodes", "-o", address]).ok(), "192.0.2.77");
}

#[test]
fn pods_can_be_connected_by_cni_plugins() {
    let dir = tempfile::tempdir().unwrap();
    let addresses = dir.path().join("addresses");
    let list = json!({"cniVersion": "1.0.0", "name": "test", "plugins": [
        {"type": "ptp", "ipam": {"type": "host-local", "dataDir": addresses, "ranges": [[{"subnet": "198.18.77.0/24"}]]}},
    ]});
    fs::create_dir(dir.path().join("conf")).unwrap();
    fs::write(dir.path().join("conf/10-test.conflist"), list.to_string()).unwrap();
    let conf = dir.path().join("conf");
    let podium = Podium::start_with(&["--cni-conf-dir", conf.to_str().unwrap()]);
    podium.apply(&Sketch::pod("web").container("app", "exec sleep 3600"));
    let pod = podium.wait_ready("web");
    let address = pod["status"]["podIP"].as_str().unwrap();
    assert!(address.starts_with("198.18.77."), "{address}");
    let lease = addresses.join("test").join(address);
    assert!(lease.exists());
    podium.delete("web");
    podium.wait_gone("web", Patience::LONG);
    assert!(!lease.exists(), "the plugins were asked to take it back");
}

/// The inodes of a process's sockets.
fn sockets(pid: u32) -> Vec<String> {
    let descriptors = fs::read_dir(format!("/proc/{pid}/fd")).expect("it runs").flatten();
    let target = |entry: fs::DirEntry| Some(fs::read_link(entry.path()).ok()?.to_str()?.to_owned());
    let inode = |target: String| Some(target.strip_prefix("socket:[")?.trim_end_matches(']').to_owned());
    descriptors.filter_map(target).filter_map(inode).collect()
}

/// A table of the kernel without its heading, as words, with those lines that
/// are about the sockets of a process.
fn table(pid: u32, name: &str, inode_at: usize) -> Vec<Vec<String>> {
    let own = sockets(pid);
    let text = fs::read_to_string(format!("/proc/{pid}/net/{name}")).expect("it runs");
    let words = text.lines().skip(1).map(|line| line.split_whitespace().map(str::to_owned).collect::<Vec<_>>());
    words.filter(|line| line.get(inode_at).is_some_and(|inode| own.contains(inode))).collect()
}

/// CVE-2025-46599, CVE-2020-15257, CIS 1.4.1 and 4.2.4: no port for reading, for
/// health, for metrics, for profiles or for the store; no socket without a file.
#[test]
fn nobody_is_listened_to_but_at_the_ports_of_server_and_agent() {
    let podium = Podium::start();
    let host_port = free_port();
    podium.apply(&web(host_port));
    podium.wait_ready("web");
    podium.logs("web");
    let pid = podium.agent_pid();
    // What leads to a pod is held, and nobody is heard there.
    let held = format!("00000000:{host_port:04X}");
    // Local address, state, inode; 0A listens, 0100007F is 127.0.0.1.
    let listening: Vec<String> = ["tcp", "tcp6"]
        .into_iter()
        .flat_map(|name| table(pid, name, 9))
        .filter(|line| line[3] == "0A" && line[1] != held)
        .map(|line| line[1].clone())
        .collect();
    let api_port: u16 = podium.address().rsplit(':').next().and_then(|port| port.parse().ok()).unwrap();
    assert!(listening.contains(&format!("0100007F:{api_port:04X}")), "{listening:?}");
    assert_eq!(listening.len(), 2, "{listening:?}");
    assert!(listening.iter().all(|address| address.starts_with("0100007F:")), "{listening:?}");
    for (name, inode_at) in [("udp", 9), ("udp6", 9), ("raw", 9)] {
        assert_eq!(table(pid, name, inode_at), Vec::<Vec<String>>::new(), "{name}");
    }
    let has_file = |line: &Vec<String>| line.get(7).is_none_or(|name| !name.starts_with('@'));
    let unix = table(pid, "unix", 6);
    assert!(unix.iter().all(has_file), "{unix:?}");
}
