//! The pod network by CNI plugins, for those who have their own: the first
//! network configured in a directory, its plugins run one after the other.
//!
//! What was asked of the plugins is on disk before they are asked, so that a
//! later engine can take it back with the very same words. A plugin may outlive
//! the engine that asked it; the next one waits for its end (see `request_file`).
//! Never: understands what a plugin does.

#[cfg(fuzzing)]
pub mod fuzzing;

use std::ffi::OsString;
use std::fs::{self, File};
use std::io::{self, Seek as _, Write as _};
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::process::{Output, Stdio};
use std::time::Duration;

use cri::{HostPort, PodMeta, Protocol, SandboxId};
use rustix::fs::FlockOperation;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};
use shim::crash;
use shim::record;
use tokio::process::Command;

use super::NetworkError;
use super::links::{Links, SANDBOX_INTERFACE};

/// Where networks are configured and where plugins are.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct CniConfig {
    pub conf_dir: PathBuf,
    /// Searched in order.
    pub bin_dirs: Vec<PathBuf>,
}

pub(crate) struct Cni {
    /// `None` where new pods are connected otherwise.
    config: Option<CniConfig>,
    /// One record per sandbox.
    state_dir: PathBuf,
}

/// A sandbox that is, was or will be connected.
#[derive(Debug, Serialize, Deserialize)]
struct Connected {
    sandbox: SandboxId,
    bin_dirs: Vec<PathBuf>,
    list: List,
    args: String,
    netns: PathBuf,
    host_ports: Vec<HostPort>,
    /// What the last plugin answered; `None` until all have.
    result: Option<Value>,
}

/// A network configuration list as CNI defines it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
struct List {
    #[serde(rename = "cniVersion", default = "oldest_version")]
    version: String,
    name: String,
    plugins: Vec<Map<String, Value>>,
}

fn oldest_version() -> String {
    "0.2.0".to_owned()
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Verb {
    Add,
    Del,
}

impl Cni {
    pub(crate) fn open(config: Option<CniConfig>, state_dir: PathBuf) -> Result<Cni, NetworkError> {
        fs::create_dir_all(&state_dir).map_err(|source| NetworkError::State { path: state_dir.clone(), source })?;
        // A mistake is told at the start, not with the first pod.
        config.iter().try_for_each(|config| load(&config.conf_dir).map(drop))?;
        Ok(Cni { config, state_dir })
    }

    pub(crate) fn config(&self) -> Option<&CniConfig> {
        self.config.as_ref()
    }

    pub(crate) async fn attach(
        &self,
        config: &CniConfig,
        sandbox: &SandboxId,
        pod: &PodMeta,
        host_ports: &[HostPort],
        netns: &Path,
    ) -> Result<Vec<IpAddr>, NetworkError> {
        let mut connected = Connected {
            sandbox: sandbox.clone(),
            bin_dirs: config.bin_dirs.clone(),
            list: load(&config.conf_dir)?,
            args: arguments(sandbox, pod),
            netns: netns.to_owned(),
            host_ports: host_ports.to_vec(),
            result: None,
        };
        self.write(&connected)?;
        crash::point("cni.recorded");
        match self.add(&mut connected).await {
            Ok(addresses) => Ok(addresses),
            Err(error) => {
                if let Err(error) = self.detach(sandbox).await {
                    tracing::warn!(%sandbox, %error, "failed attach left something behind until the next start");
                }
                Err(error)
            }
        }
    }

    async fn add(&self, connected: &mut Connected) -> Result<Vec<IpAddr>, NetworkError> {
        let failed = |source| NetworkError::Namespace { path: connected.netns.clone(), source };
        let namespace = fs::File::open(&connected.netns).map_err(failed)?;
        Links::open_inside(&connected.netns, &namespace).await?.set_loopback_up().await?;
        let mut result = None;
        for plugin in &connected.list.plugins {
            result = self.run(Verb::Add, plugin, connected, result.as_ref()).await?;
        }
        let addresses = addresses(result.as_ref().unwrap_or(&Value::Null));
        if addresses.is_empty() {
            let name = connected.list.name.clone();
            return Err(NetworkError::Cni { name, detail: "its plugins gave the pod no address".to_owned() });
        }
        connected.result = result;
        self.write(connected)?;
        crash::point("cni.connected");
        Ok(addresses)
    }

    /// Takes it back, last plugin first. Again is fine.
    pub(crate) async fn detach(&self, sandbox: &SandboxId) -> Result<(), NetworkError> {
        let failed = |source| NetworkError::State { path: self.state_dir.clone(), source };
        let Some(mut connected) = record::read::<Connected>(&self.state_dir, &file_name(sandbox)).map_err(failed)?
        else {
            return Ok(());
        };
        // A namespace that is gone took its interfaces along; plugins are told so by its absence.
        if !connected.netns.exists() {
            connected.netns = PathBuf::new();
        }
        for plugin in connected.list.plugins.iter().rev() {
            self.run(Verb::Del, plugin, &connected, connected.result.as_ref()).await?;
        }
        let removed = fs::remove_file(self.state_dir.join(file_name(sandbox)));
        crash::point("cni.forgotten");
        match removed {
            Err(error) if error.kind() != io::ErrorKind::NotFound => Err(failed(error)),
            _ => Ok(()),
        }
    }

    /// Takes back what belongs to none of the `known` sandboxes.
    pub(crate) async fn reconcile(&self, known: &[SandboxId]) -> Result<(), NetworkError> {
        let failed = |source| NetworkError::State { path: self.state_dir.clone(), source };
        for entry in fs::read_dir(&self.state_dir).map_err(failed)? {
            let name = entry.map_err(failed)?.file_name();
            let Some(sandbox) = name.to_str().and_then(|name| name.strip_suffix(".json")).map(SandboxId::from) else {
                continue;
            };
            if !known.contains(&sandbox)
                && let Err(error) = self.detach(&sandbox).await
            {
                // One plugin's trouble must not keep the other pods from starting.
                tracing::warn!(%sandbox, %error, "a sandbox that is gone stays connected until the next start");
            }
        }
        Ok(())
    }

    async fn run(
        &self,
        verb: Verb,
        plugin: &Map<String, Value>,
        connected: &Connected,
        previous: Option<&Value>,
    ) -> Result<Option<Value>, NetworkError> {
        let kind = plugin.get("type").and_then(Value::as_str).unwrap_or_default();
        let refused = |detail: String| NetworkError::Cni { name: connected.list.name.clone(), detail };
        let program = find(kind, &connected.bin_dirs).map_err(refused)?;
        let request = request(plugin, connected, previous).to_string();
        let path = self.state_dir.join(request_name(&connected.sandbox));
        let output = async {
            let output = execute(&program, verb, connected, request_file(&path, &request).await?).await;
            fs::remove_file(&path)?;
            output
        };
        let output = output.await.map_err(|error| refused(format!("plugin {kind:?}: {error}")))?;
        crash::point("cni.answered");
        if !output.status.success() {
            return Err(refused(format!("plugin {kind:?}: {}", complaint(&output))));
        }
        match verb {
            Verb::Del => Ok(None),
            Verb::Add => serde_json::from_slice(&output.stdout)
                .map(Some)
                .map_err(|error| refused(format!("plugin {kind:?}: unreadable answer: {error}"))),
        }
    }

    fn write(&self, connected: &Connected) -> Result<(), NetworkError> {
        let failed = |source| NetworkError::State { path: self.state_dir.clone(), source };
        record::write(&self.state_dir, &file_name(&connected.sandbox), connected).map_err(failed)
    }
}

/// What a plugin is told, in a file that it keeps locked as long as it lives:
/// one that was left alone by a dead engine must not connect what the next one
/// has taken back already.
async fn request_file(path: &Path, request: &str) -> io::Result<File> {
    let open = || File::options().read(true).write(true).create(true).truncate(false).open(path);
    let (mut file, deadline) = (open()?, tokio::time::Instant::now() + PLUGIN_TIMEOUT);
    loop {
        match rustix::fs::flock(&file, FlockOperation::NonBlockingLockExclusive) {
            Err(rustix::io::Errno::WOULDBLOCK) => {}
            outcome => break outcome?,
        }
        if tokio::time::Instant::now() > deadline {
            // It has had as long as any; a file of ours nobody else can hold.
            tracing::warn!(path = %path.display(), "a plugin called by an earlier agent does not end");
            fs::remove_file(path)?;
            file = open()?;
        }
        tokio::time::sleep(LOCK_PAUSE).await;
    }
    file.set_len(0)?;
    file.write_all(request.as_bytes())?;
    file.rewind()?;
    Ok(file)
}

/// By its plain name only: a configuration must not run any program it likes.
fn find(kind: &str, bin_dirs: &[PathBuf]) -> Result<PathBuf, String> {
    let is_plain = !kind.is_empty() && !kind.contains('/') && kind != "." && kind != "..";
    let found = bin_dirs.iter().map(|dir| dir.join(kind)).find(|place| is_plain && place.is_file());
    found.ok_or_else(|| {
        let places: Vec<_> = bin_dirs.iter().map(|dir| dir.display().to_string()).collect();
        format!("plugin {kind:?} is not in {}", places.join(", "))
    })
}

async fn execute(program: &Path, verb: Verb, connected: &Connected, input: File) -> io::Result<Output> {
    let environment: [(&str, OsString); 6] = [
        ("CNI_COMMAND", if verb == Verb::Add { "ADD" } else { "DEL" }.into()),
        ("CNI_CONTAINERID", connected.sandbox.as_str().into()),
        ("CNI_NETNS", connected.netns.clone().into()),
        ("CNI_IFNAME", SANDBOX_INTERFACE.into()),
        ("CNI_ARGS", connected.args.clone().into()),
        ("CNI_PATH", std::env::join_paths(&connected.bin_dirs).map_err(io::Error::other)?),
    ];
    let child = Command::new(program)
        .envs(environment)
        .stdin(input)
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .kill_on_drop(true)
        .spawn()?;
    tokio::time::timeout(PLUGIN_TIMEOUT, child.wait_with_output()).await.map_err(|_| io::ErrorKind::TimedOut)?
}

/// As CRI-O and containerd wait for theirs.
const PLUGIN_TIMEOUT: Duration = Duration::from_secs(120);
/// Between two looks whether an earlier plugin has ended.
const LOCK_PAUSE: Duration = Duration::from_millis(10);

/// The first configuration, by file name.
fn load(dir: &Path) -> Result<List, NetworkError> {
    let failed = |source| NetworkError::State { path: dir.to_owned(), source };
    let mut files: Vec<PathBuf> =
        fs::read_dir(dir).map_err(failed)?.map(|entry| Ok(entry?.path())).collect::<io::Result<_>>().map_err(failed)?;
    files.retain(|file| {
        file.extension().is_some_and(|end| ["conf", "conflist", "json"].iter().any(|known| end == *known))
    });
    files.sort();
    let none = || NetworkError::InvalidConfig(format!("no .conflist or .conf file in {}", dir.display()));
    let file = files.first().ok_or_else(none)?;
    let text = fs::read_to_string(file).map_err(|source| NetworkError::State { path: file.clone(), source })?;
    parse(&text).map_err(|detail| NetworkError::InvalidConfig(format!("{}: {detail}", file.display())))
}

/// A list, or a single plugin, which is a list of one.
fn parse(text: &str) -> Result<List, String> {
    let value: Value = serde_json::from_str(text).map_err(|error| error.to_string())?;
    let is_list = value.get("plugins").is_some();
    let value = if is_list {
        value
    } else {
        let version = value.get("cniVersion").cloned().unwrap_or_else(|| oldest_version().into());
        json!({"cniVersion": version, "name": value.get("name"), "plugins": [value]})
    };
    let list: List = serde_json::from_value(value).map_err(|error| error.to_string())?;
    match list.plugins.is_empty() {
        true => Err("plugins: must name at least one".to_owned()),
        false => Ok(list),
    }
}

/// What one plugin is told: its own configuration, where it stands in the
/// list, and what it says it can make use of.
fn request(plugin: &Map<String, Value>, connected: &Connected, previous: Option<&Value>) -> Value {
    let mut request = plugin.clone();
    request.insert("cniVersion".to_owned(), connected.list.version.clone().into());
    request.insert("name".to_owned(), connected.list.name.clone().into());
    if let Some(previous) = previous {
        request.insert("prevResult".to_owned(), previous.clone());
    }
    let wants_ports = plugin.get("capabilities").and_then(|able| able.get("portMappings")) == Some(&Value::Bool(true));
    request.shift_remove("capabilities");
    if wants_ports && !connected.host_ports.is_empty() {
        let ports: Vec<Value> = connected.host_ports.iter().map(port_mapping).collect();
        request.insert("runtimeConfig".to_owned(), json!({ "portMappings": ports }));
    }
    request.into()
}

fn port_mapping(port: &HostPort) -> Value {
    let protocol = match port.protocol {
        Protocol::Tcp => "tcp",
        Protocol::Udp => "udp",
        Protocol::Sctp => "sctp",
    };
    let mut mapping = json!({
        "hostPort": port.host_port, "containerPort": port.container_port, "protocol": protocol,
    });
    if let Some(ip) = port.host_ip {
        mapping["hostIP"] = ip.to_string().into();
    }
    mapping
}

fn arguments(sandbox: &SandboxId, pod: &PodMeta) -> String {
    format!(
        "IgnoreUnknown=1;K8S_POD_NAMESPACE={};K8S_POD_NAME={};K8S_POD_INFRA_CONTAINER_ID={sandbox};K8S_POD_UID={}",
        pod.namespace, pod.name, pod.uid
    )
}

/// Addresses of the pod, of results of any version.
fn addresses(result: &Value) -> Vec<IpAddr> {
    let listed = result.get("ips").and_then(Value::as_array).into_iter().flatten().filter_map(|ip| ip.get("address"));
    let oldest = ["ip4", "ip6"].into_iter().filter_map(|family| result.get(family)?.get("ip"));
    let texts = listed.chain(oldest).filter_map(Value::as_str);
    texts.filter_map(|text| text.split('/').next()?.parse().ok()).collect()
}

/// Plugins tell what went wrong on standard output, as an object.
fn complaint(output: &Output) -> String {
    let told: Value = serde_json::from_slice(&output.stdout).unwrap_or_default();
    let text = |key: &str| told.get(key).and_then(Value::as_str).filter(|text| !text.is_empty());
    match (text("msg"), text("details")) {
        (Some(message), Some(details)) => format!("{message}; {details}"),
        (Some(message), None) => message.to_owned(),
        _ => format!("{}: {}", output.status, String::from_utf8_lossy(&output.stderr).trim()),
    }
}

fn file_name(sandbox: &SandboxId) -> String {
    format!("{sandbox}.json")
}

fn request_name(sandbox: &SandboxId) -> String {
    format!("{sandbox}.request")
}

#[cfg(test)]
mod tests;
