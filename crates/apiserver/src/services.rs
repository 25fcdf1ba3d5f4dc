//! Addresses of Services and ports of nodes: who has which, and what a new or
//! changed Service gets (API-730, API-752, API-753).
//!
//! Services themselves are the only record of what is given out. Writers of
//! Services take turns, so what is free when looked at is free when written.

use std::collections::BTreeSet;
use std::net::{IpAddr, Ipv4Addr, SocketAddrV4};
use std::ops::RangeInclusive;
use std::sync::atomic::{AtomicU32, Ordering};

use objects::kinds::service::{self, Held};
use objects::{FieldError, Kind};
use serde_json::{Value, json};
use store::ListRequest;
use tokio::sync::{Mutex, MutexGuard};

use crate::api::Api;
use crate::error::ApiError;
use crate::object;

/// Where Services live.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ServiceConfig {
    /// Range of the Services' addresses and its prefix length, at most 30.
    pub cidr: (Ipv4Addr, u8),
    /// Where pods find this server; there is a Service `kubernetes` then.
    pub endpoint: Option<SocketAddrV4>,
}

impl Default for ServiceConfig {
    fn default() -> Self {
        Self { cidr: (Ipv4Addr::new(10, 96, 0, 0), 12), endpoint: None }
    }
}

impl ServiceConfig {
    /// API-753: the first address is the API server's.
    pub fn api_address(&self) -> Ipv4Addr {
        Ipv4Addr::from(*self.addresses().start())
    }

    /// All but the network's own and the last one.
    fn addresses(&self) -> RangeInclusive<u32> {
        let (address, length) = self.cidr;
        let hosts = u32::MAX.checked_shr(u32::from(length)).unwrap_or(0);
        let network = u32::from(address) & !hosts;
        network + 1..=(network | hosts).saturating_sub(1)
    }
}

/// Upstream's `--service-node-port-range`.
const NODE_PORTS: RangeInclusive<u32> = 30_000..=32_767;

/// The turn of writers, and where the last search ended: what was freed a
/// moment ago is given to someone else as late as possible.
#[derive(Default)]
pub(crate) struct Services {
    turn: Mutex<()>,
    last_ip: AtomicU32,
    last_port: AtomicU32,
}

/// Held until the Service is written.
pub(crate) type Turn<'a> = MutexGuard<'a, ()>;

impl Services {
    pub(crate) async fn turn(&self, kind: &Kind) -> Option<Turn<'_>> {
        if is_service(kind) { Some(self.turn.lock().await) } else { None }
    }
}

fn is_service(kind: &Kind) -> bool {
    kind.kind == "Service" && kind.group.is_empty()
}

/// Fills in what a Service gets from the cluster. It must be the caller's turn.
pub(crate) async fn allocate(api: &Api, kind: &Kind, doc: &mut Value, old: Option<&Value>) -> Result<(), ApiError> {
    if !is_service(kind) || !service::needs_cluster_ip(doc) {
        return Ok(());
    }
    let name = object::name(doc).to_owned();
    let refuse = |errors: Vec<FieldError>| {
        if errors.is_empty() { Ok(()) } else { Err(ApiError::invalid(kind, &name, errors)) }
    };
    refuse(service::address_problems(doc))?;
    refuse(families(doc))?;
    let own = old.map(Held::of).unwrap_or_default();
    let taken = taken(api, kind, &own).await?;
    if !service::is_headless(doc) {
        cluster_ip(api, doc, &own, &taken).map_err(|problem| problem.of(kind, &name))?;
    }
    node_ports(api, doc, &own, &taken).map_err(|problem| problem.of(kind, &name))
}

/// Why something could not be given.
enum Problem {
    Fields(Vec<FieldError>),
    /// Nothing is left.
    Full(&'static str),
}

impl Problem {
    fn of(self, kind: &Kind, name: &str) -> ApiError {
        match self {
            Self::Fields(errors) => ApiError::invalid(kind, name, errors),
            Self::Full(what) => ApiError::Internal(format!("failed to allocate a {what}: range is full")),
        }
    }
}

/// This cluster speaks IPv4 only. A Service without selector and address of
/// its own may say what it likes: somebody else fills in its endpoints.
fn families(doc: &mut Value) -> Vec<FieldError> {
    let has_selector = object::at(doc, &["spec", "selector"]).as_object().is_some_and(|labels| !labels.is_empty());
    let is_free = service::is_headless(doc) && !has_selector;
    let is_headless = service::is_headless(doc);
    let spec = object::object_mut(doc, "spec");
    let mut errors = Vec::new();
    let mut families: Vec<Value> = spec.get("ipFamilies").and_then(Value::as_array).cloned().unwrap_or_default();
    let ips: Vec<Value> = spec.get("clusterIPs").and_then(Value::as_array).cloned().unwrap_or_default();
    for (index, ip) in ips.iter().enumerate().skip(families.len()).filter(|_| !is_headless) {
        if ip.as_str().is_some_and(|ip| ip.contains(':')) {
            let path = format!("spec.clusterIPs[{index}]");
            errors.push(FieldError::invalid(path, json!(ips), "IPv6 is not configured on this cluster"));
        } else {
            families.push(json!("IPv4"));
        }
    }
    let mut policy = spec.get("ipFamilyPolicy").and_then(Value::as_str).map(str::to_owned);
    if policy.is_none() && families.len() == 2 {
        policy = Some("RequireDualStack".to_owned());
    }
    if is_free {
        let policy = policy.unwrap_or_else(|| "RequireDualStack".to_owned());
        if families.is_empty() {
            families.push(json!("IPv4"));
        }
        if families.len() == 1 && policy != "SingleStack" {
            families.push(json!(if families[0] == "IPv4" { "IPv6" } else { "IPv4" }));
        }
        spec.insert("ipFamilies".to_owned(), json!(families));
        spec.insert("ipFamilyPolicy".to_owned(), json!(policy));
        return errors;
    }
    if policy.as_deref() == Some("RequireDualStack") {
        let detail = "this cluster is not configured for dual-stack services";
        errors.push(FieldError::invalid("spec.ipFamilyPolicy", "RequireDualStack", detail));
    }
    for (index, family) in families.iter().enumerate().filter(|(_, family)| **family != "IPv4") {
        let path = format!("spec.ipFamilies[{index}]");
        errors.push(FieldError::invalid(path, family.clone(), "not configured on this cluster"));
    }
    if families.is_empty() {
        families.push(json!("IPv4"));
    }
    spec.insert("ipFamilies".to_owned(), json!(families));
    spec.insert("ipFamilyPolicy".to_owned(), json!(policy.unwrap_or_else(|| "SingleStack".to_owned())));
    errors
}

/// What other Services hold.
#[derive(Default)]
struct Taken {
    ips: BTreeSet<IpAddr>,
    ports: BTreeSet<(String, u16)>,
}

async fn taken(api: &Api, kind: &Kind, own: &Held) -> Result<Taken, ApiError> {
    let listing = api.store.list(ListRequest::all(&object::prefix(kind, None))).await?;
    let mut taken = Taken::default();
    for entry in &listing.entries {
        let held = object::held(kind, entry);
        taken.ips.extend(held.ips.iter().copied());
        taken.ports.extend(held.ports.iter().cloned());
    }
    taken.ips.retain(|ip| !own.ips.contains(ip));
    taken.ports.retain(|port| !own.ports.contains(port));
    Ok(taken)
}

fn cluster_ip(api: &Api, doc: &mut Value, own: &Held, taken: &Taken) -> Result<(), Problem> {
    let range = api.config.services.addresses();
    let asked = object::text(doc, &["spec", "clusterIP"]).to_owned();
    if asked.is_empty() {
        let is_free = |number: u32| !taken.ips.contains(&IpAddr::V4(number.into()));
        let found = search(&range, static_addresses(&range), &api.services.last_ip, is_free);
        let ip = Ipv4Addr::from(found.ok_or(Problem::Full("serviceIP"))?).to_string();
        let spec = object::object_mut(doc, "spec");
        spec.insert("clusterIP".to_owned(), json!(ip));
        spec.insert("clusterIPs".to_owned(), json!([ip]));
        return Ok(());
    }
    let Ok(IpAddr::V4(ip)) = asked.parse() else { return Ok(()) };
    // What it has it keeps, also where the range has changed since.
    if own.ips.contains(&ip.into()) {
        return Ok(());
    }
    let problem = if !range.contains(&u32::from(ip)) {
        let (network, length) = api.config.services.cidr;
        format!("the provided IP ({ip}) is not in the valid range. The range of valid IPs is {network}/{length}")
    } else if taken.ips.contains(&ip.into()) {
        "provided IP is already allocated".to_owned()
    } else {
        return Ok(());
    };
    let detail = format!("failed to allocate IP {ip}: {problem}");
    Err(Problem::Fields(vec![FieldError::invalid("spec.clusterIPs", json!([asked]), detail)]))
}

/// API-753: how many at the start of a range are left to those who ask for
/// one, while there are others.
fn static_addresses(range: &RangeInclusive<u32>) -> u32 {
    static_band(range, 16, 256)
}

fn static_ports(range: &RangeInclusive<u32>) -> u32 {
    static_band(range, 32, 128)
}

fn static_band(range: &RangeInclusive<u32>, part: u32, max: u32) -> u32 {
    const MIN: u32 = 16;
    let size = range.end() - range.start() + 1;
    if size <= MIN { 0 } else { (size / part).clamp(MIN, max) }
}

/// The next free number after the last one found, in the upper part of the
/// range first.
fn search(range: &RangeInclusive<u32>, band: u32, last: &AtomicU32, is_free: impl Fn(u32) -> bool) -> Option<u32> {
    let upper = range.start() + band..=*range.end();
    let after = last.load(Ordering::Relaxed).saturating_add(1);
    let from = if upper.contains(&after) { after } else { *upper.start() };
    let upper = (from..=*upper.end()).chain(*upper.start()..from);
    let found = upper.clone().find(|number| is_free(*number));
    if let Some(found) = found {
        last.store(found, Ordering::Relaxed);
        return Some(found);
    }
    (*range.start()..range.start() + band).find(|number| is_free(*number))
}

fn node_ports(api: &Api, doc: &mut Value, own: &Held, taken: &Taken) -> Result<(), Problem> {
    let (gives, gives_health) = (service::needs_node_ports(doc), service::needs_health_port(doc));
    let is_external = matches!(object::text(doc, &["spec", "type"]), "NodePort" | "LoadBalancer");
    let mut given: BTreeSet<(String, u16)> = asked_ports(doc);
    let spec = object::object_mut(doc, "spec");
    let mut errors = Vec::new();
    let is_free = |given: &BTreeSet<(String, u16)>, protocol: &str, port: u16| {
        let key = (protocol.to_owned(), port);
        !taken.ports.contains(&key) && !given.contains(&key)
    };
    let next = |given: &BTreeSet<(String, u16)>, protocols: &[String]| {
        let fits = |number: u32| {
            let port = u16::try_from(number).unwrap_or_default();
            protocols.iter().all(|protocol| is_free(given, protocol, port))
        };
        search(&NODE_PORTS, static_ports(&NODE_PORTS), &api.services.last_port, fits)
    };
    let check = |path: &str, protocol: &str, number: i64| {
        let key = (protocol.to_owned(), u16::try_from(number).unwrap_or_default());
        if own.ports.contains(&key) { None } else { problem_of(path, number, taken.ports.contains(&key)) }
    };
    let ports = spec.get_mut("ports").and_then(Value::as_array_mut).into_iter().flatten();
    for (index, port) in ports.enumerate().filter(|_| is_external) {
        let protocol = object::text(port, &["protocol"]).to_owned();
        match object::at(port, &["nodePort"]).as_i64().unwrap_or(0) {
            0 if gives => {
                let found = next(&given, std::slice::from_ref(&protocol)).ok_or(Problem::Full("nodePort"))?;
                port["nodePort"] = json!(found);
                given.insert((protocol, u16::try_from(found).unwrap_or_default()));
            }
            0 => {}
            number => errors.extend(check(&format!("spec.ports[{index}].nodePort"), &protocol, number)),
        }
    }
    if gives_health {
        match spec.get("healthCheckNodePort").and_then(Value::as_i64).unwrap_or(0) {
            0 => {
                let found = next(&given, &["TCP".to_owned()]).ok_or(Problem::Full("nodePort"))?;
                spec.insert("healthCheckNodePort".to_owned(), json!(found));
            }
            number => errors.extend(check("spec.healthCheckNodePort", "TCP", number)),
        }
    }
    if errors.is_empty() { Ok(()) } else { Err(Problem::Fields(errors)) }
}

/// What the Service names itself must not be given to another port of it.
fn asked_ports(doc: &Value) -> BTreeSet<(String, u16)> {
    Held::of(doc).ports.into_iter().collect()
}

fn problem_of(path: &str, number: i64, is_taken: bool) -> Option<FieldError> {
    let is_inside = u32::try_from(number).is_ok_and(|number| NODE_PORTS.contains(&number));
    let detail = match (is_inside, is_taken) {
        (true, false) => return None,
        (true, true) => "provided port is already allocated".to_owned(),
        (false, _) => format!(
            "provided port is not in the valid range. The range of valid ports is {}-{}",
            NODE_PORTS.start(),
            NODE_PORTS.end()
        ),
    };
    Some(FieldError::invalid(path, number, detail))
}

#[cfg(test)]
mod tests;
