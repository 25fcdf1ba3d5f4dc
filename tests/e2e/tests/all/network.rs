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
