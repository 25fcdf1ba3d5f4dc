//! What the fuzz targets feed; in no build but theirs.

use std::net::IpAddr;
use std::os::unix::process::ExitStatusExt as _;
use std::path::PathBuf;
use std::process::{ExitStatus, Output};

use cri::{HostPort, SandboxId};
use serde_json::Value;

use super::{Connected, addresses, complaint, find, parse, request};

/// A network configuration, as a list.
pub fn network(text: &str) -> Option<Value> {
    serde_json::to_value(parse(text).ok()?).ok()
}

/// What each plugin of a configuration is told.
pub fn requests(text: &str, host_ports: &[HostPort], previous: Option<&Value>) -> Option<Vec<Value>> {
    let connected = Connected {
        sandbox: SandboxId::from("s"),
        bin_dirs: Vec::new(),
        list: parse(text).ok()?,
        args: String::new(),
        netns: PathBuf::new(),
        host_ports: host_ports.to_vec(),
        result: None,
    };
    Some(connected.list.plugins.iter().map(|plugin| request(plugin, &connected, previous)).collect())
}

/// The pod's addresses in what a plugin answered.
pub fn addresses_of(answer: &[u8]) -> Option<Vec<IpAddr>> {
    Some(addresses(&serde_json::from_slice(answer).ok()?))
}

/// Why a plugin failed, in its own words.
pub fn told(stdout: &[u8], stderr: &[u8]) -> String {
    complaint(&Output { status: ExitStatus::from_raw(1 << 8), stdout: stdout.to_vec(), stderr: stderr.to_vec() })
}

/// The program that a plugin's type names.
pub fn program(kind: &str, bin_dirs: &[PathBuf]) -> Option<PathBuf> {
    find(kind, bin_dirs).ok()
}
