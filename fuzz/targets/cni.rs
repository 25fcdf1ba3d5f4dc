//! What CNI plugins are told, and what they answer: plugins get their own
//! configuration, no program outside of its directory is run, and a pod has the
//! addresses that stand in the answer.
#![no_main]

use std::net::IpAddr;
use std::path::PathBuf;
use std::sync::LazyLock;

use cri::{HostPort, Protocol};
use engine::network::fuzzing::{addresses_of, network, program, requests, told};
use libfuzzer_sys::arbitrary::{Result, Unstructured};
use libfuzzer_sys::fuzz_target;
use podium_fuzz::Words;
use podium_fuzz::jail::scratch;
use serde_json::{Value, json};

/// Two directories of plugins, and what is beside them.
static BIN: LazyLock<PathBuf> = LazyLock::new(|| {
    let top = scratch("cni");
    for name in ["bin/bridge", "more/bridge", "more/portmap", "secret"] {
        let path = top.join(name);
        std::fs::create_dir_all(path.parent().expect("it is in a directory")).expect("a directory");
        std::fs::write(path, "").expect("a file");
    }
    top
});

const WORDS: Words<'static> = Words {
    names: &[
        "cniVersion",
        "name",
        "plugins",
        "type",
        "capabilities",
        "portMappings",
        "runtimeConfig",
        "prevResult",
        "ipam",
        "ips",
        "address",
        "ip4",
        "ip6",
        "ip",
        "gateway",
        "msg",
        "details",
        "code",
        "args",
        "disableCheck",
    ],
    texts: &[
        "",
        "bridge",
        "portmap",
        "../secret",
        "/etc/passwd",
        ".",
        "..",
        "0.2.0",
        "0.4.0",
        "1.1.0",
        "10.0.0.2/24",
        "10.0.0.2",
        "/",
        "fe80::1%eth0/64",
        "fd00::2/64",
        "::ffff:1.2.3.4/96",
        "300.0.0.1/8",
        "1.2.3.4/x/y",
        "no",
    ],
};

fuzz_target!(|bytes: &[u8]| {
    if let Ok(text) = std::str::from_utf8(bytes) {
        check_network(text, &[], None);
        check_program(text);
    }
    check_answer(bytes);
    let _ = play(&mut Unstructured::new(bytes));
});

fn play(bytes: &mut Unstructured<'_>) -> Result<()> {
    let mut plugin = json!({"type": "bridge", "ipam": {"type": "host-local"}, "capabilities": {"portMappings": true}});
    if bytes.arbitrary()? {
        plugin["runtimeConfig"] = json!({"portMappings": [], "dns": {}});
    }
    let mut list = json!({"cniVersion": "1.0.0", "name": "net", "plugins": [plugin.clone(), {"type": "portmap"}]});
    if bytes.ratio(1, 3)? {
        plugin["name"] = json!("net");
        list = plugin;
    }
    WORDS.change(bytes, &mut list)?;
    let mut answer = json!({"cniVersion": "1.0.0", "ips": [{"address": "10.0.0.2/24", "gateway": "10.0.0.1"}],
        "ip4": {"ip": "10.0.0.3/24"}, "interfaces": [{"name": "eth0"}], "dns": {}});
    WORDS.change(bytes, &mut answer)?;
    let mut ports = Vec::new();
    for _ in 0..bytes.int_in_range(0..=2)? {
        let protocol = *bytes.choose(&[Protocol::Tcp, Protocol::Udp, Protocol::Sctp])?;
        let (host_port, container_port) = (bytes.arbitrary()?, bytes.arbitrary()?);
        let host_ip = bytes.arbitrary::<Option<u32>>()?.map(|ip| IpAddr::from(ip.to_be_bytes()));
        ports.push(HostPort { protocol, container_port, host_port, host_ip });
    }
    check_network(&list.to_string(), &ports, Some(&answer));
    check_answer(answer.to_string().as_bytes());
    let mut problem = json!({"code": 7, "msg": "no", "details": "nothing"});
    WORDS.change(bytes, &mut problem)?;
    let why = told(problem.to_string().as_bytes(), b"stderr");
    if let Some(message) = problem["msg"].as_str() {
        assert!(message.is_empty() || why.starts_with(message), "{why}");
    }
    Ok(())
}

fn check_network(text: &str, ports: &[HostPort], previous: Option<&Value>) {
    let Some(list) = network(text) else { return };
    assert_eq!(network(&list.to_string()).as_ref(), Some(&list), "told again it is another network");
    let plugins = list["plugins"].as_array().expect("there are some");
    let requests = requests(text, ports, previous).expect("they are told something");
    assert!(!plugins.is_empty() && requests.len() == plugins.len());
    for (plugin, request) in plugins.iter().zip(&requests) {
        assert_eq!((&request["name"], &request["cniVersion"]), (&list["name"], &list["cniVersion"]));
        let is_wanted = plugin["capabilities"]["portMappings"] == true && !ports.is_empty();
        assert!(request.get("capabilities").is_none());
        assert_eq!(request["prevResult"], *previous.unwrap_or(&plugin["prevResult"]));
        let given = plugin.as_object().expect("it is an object").iter();
        for (key, value) in given {
            let is_ours = ["name", "cniVersion", "capabilities", "prevResult"].contains(&key.as_str());
            let is_ours = is_ours || (key == "runtimeConfig" && is_wanted);
            assert!(is_ours || request[key] == *value, "{key} of {plugin} became {request}");
        }
        if is_wanted {
            let told = request["runtimeConfig"]["portMappings"].as_array().expect("it is told its ports");
            assert_eq!(told.len(), ports.len());
            for (told, port) in told.iter().zip(ports) {
                assert_eq!(told["hostPort"], json!(port.host_port));
                assert_eq!(told["hostIP"].as_str().map(str::to_owned), port.host_ip.map(|ip| ip.to_string()));
            }
        }
        check_program(plugin["type"].as_str().unwrap_or_default());
    }
}

fn check_program(kind: &str) {
    let directories = ["bin", "more"].map(|name| BIN.join(name));
    let Some(found) = program(kind, &directories) else { return };
    assert!(directories.iter().any(|directory| found.parent() == Some(directory)), "{kind:?} is {found:?}");
    assert!(["bridge", "portmap"].contains(&kind));
}

fn check_answer(answer: &[u8]) {
    told(answer, answer);
    let Some(found) = addresses_of(answer) else { return };
    let said: Value = serde_json::from_slice(answer).expect("it was read");
    let listed = said["ips"].as_array().into_iter().flatten().map(|ip| &ip["address"]);
    let all = listed.chain([&said["ip4"]["ip"], &said["ip6"]["ip"]]).filter_map(Value::as_str);
    let expected: Vec<IpAddr> =
        all.filter_map(|text| text.split('/').next().unwrap_or_default().parse().ok()).collect();
    assert_eq!(found, expected, "{said}");
}
