//! Where other servers are, as objects say it. Whoever may write such an object
//! chooses the text, so it is parsed before anything is sent there, and URLs
//! are made of parts: nothing that others wrote can become another part.

use std::net::IpAddr;

use http::uri::{Authority, PathAndQuery, Scheme};
use http::{StatusCode, Uri};
use objects::{kinds, names};
use serde_json::Value;

use crate::api::Api;
use crate::error::ApiError;
use crate::object;

/// What an agent listens on where its node does not say.
const AGENT_PORT: u16 = 10250;

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Endpoint {
    pub(crate) scheme: Scheme,
    pub(crate) host: Host,
    pub(crate) port: u16,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Host {
    Ip(IpAddr),
    /// Known to be one.
    DnsName(String),
}

impl Host {
    pub(crate) fn parse(text: &str) -> Option<Self> {
        if let Ok(ip) = text.parse() {
            return Some(Self::Ip(ip));
        }
        let name = text.to_ascii_lowercase();
        names::dns_subdomain(&name).is_empty().then_some(Self::DnsName(name))
    }

    /// API-607: any address may be written into a status; not every one is for
    /// others to reach. What a name stands for can change between asking and
    /// connecting, so it is none.
    pub(crate) fn reachable(&self) -> Result<(), ApiError> {
        let is_allowed = match self {
            Self::Ip(ip) => is_global(*ip),
            Self::DnsName(_) => false,
        };
        if is_allowed { Ok(()) } else { Err(ApiError::BadRequest("address not allowed".to_owned())) }
    }
}

/// Neither this machine nor its neighbours only, nor many at once.
fn is_global(ip: IpAddr) -> bool {
    match ip.to_canonical() {
        IpAddr::V4(ip) => {
            !(ip.is_loopback() || ip.is_link_local() || ip.is_multicast() || ip.is_unspecified() || ip.is_broadcast())
        }
        IpAddr::V6(ip) => !(ip.is_loopback() || ip.is_unicast_link_local() || ip.is_multicast() || ip.is_unspecified()),
    }
}

impl Endpoint {
    /// A port of a pod, by plain HTTP.
    pub(crate) fn of_pod(address: &str, port: u16) -> Result<Self, ApiError> {
        let host = address.parse().map(Host::Ip).map_err(|_| ApiError::BadRequest("address not allowed".to_owned()))?;
        host.reachable()?;
        Ok(Self { scheme: Scheme::HTTP, host, port })
    }

    /// The agent of a node.
    pub(crate) async fn of_agent(api: &Api, node: &str) -> Result<Self, ApiError> {
        let nodes = kinds::find("", "v1", "nodes").expect("the kinds table has nodes");
        let entry = api.store.get(&object::key(nodes, None, node)).await?;
        let entry = entry.ok_or_else(|| ApiError::not_found(nodes, node))?;
        match api.config.agents.get(node) {
            Some(own) => Ok(Self { scheme: Scheme::HTTPS, host: Host::Ip(own.ip()), port: own.port() }),
            None => Self::agent(&object::document(&entry)),
        }
    }

    fn agent(node: &Value) -> Result<Self, ApiError> {
        let name = object::name(node);
        let wrong = |detail| ApiError::Node { code: StatusCode::INTERNAL_SERVER_ERROR, detail };
        let missing = || wrong(format!("no preferred addresses found; known addresses: [] of node {name}"));
        let addresses = object::at(node, &["status", "addresses"]).as_array().map(Vec::as_slice).unwrap_or_default();
        let of_type = |wanted: &str| addresses.iter().find(|address| address["type"] == wanted);
        let address = of_type("InternalIP").or_else(|| of_type("Hostname")).ok_or_else(missing)?;
        let address = object::text(address, &["address"]);
        let host = Host::parse(address).ok_or_else(|| {
            wrong(format!("address {address:?} of node {name} is neither an IP address nor a DNS name"))
        })?;
        let port = match object::at(node, &["status", "daemonEndpoints", "kubeletEndpoint", "Port"]) {
            Value::Null => AGENT_PORT,
            given => port_of(given).ok_or_else(|| wrong(format!("{given} is not the port of node {name}'s agent")))?,
        };
        Ok(Self { scheme: Scheme::HTTPS, host, port })
    }

    /// A path of it. `path` is percent-encoded as it should be sent, without a
    /// query.
    pub(crate) fn uri(&self, path: &str, query: Option<&str>) -> Result<Uri, ApiError> {
        let wrong = || ApiError::BadRequest(format!("{path:?} is not a path that can be passed on"));
        if !path.starts_with('/') || path.contains(['?', '#']) {
            return Err(wrong());
        }
        let path: PathAndQuery = match query.filter(|query| !query.is_empty()) {
            Some(query) => format!("{path}?{query}").parse(),
            None => path.parse(),
        }
        .map_err(|_| wrong())?;
        let port = self.port;
        let authority: Authority = match &self.host {
            Host::Ip(IpAddr::V6(ip)) => format!("[{ip}]:{port}"),
            Host::Ip(IpAddr::V4(ip)) => format!("{ip}:{port}"),
            Host::DnsName(name) => format!("{name}:{port}"),
        }
        .parse()
        .map_err(|_| wrong())?;
        let uri = Uri::builder().scheme(self.scheme.clone()).authority(authority).path_and_query(path);
        uri.build().map_err(|_| wrong())
    }
}

/// A TCP port that can be connected to.
pub(crate) fn port_of(given: &Value) -> Option<u16> {
    u16::try_from(given.as_u64()?).ok().filter(|port| *port > 0)
}

/// `/a/b/c`. The parts are names of stored objects; one that would need to be
/// escaped is none of ours.
pub(crate) fn path(parts: &[&str]) -> Result<String, ApiError> {
    let is_plain = |part: &str| {
        let is_named = part.bytes().all(|b| b.is_ascii_alphanumeric() || b"-._:".contains(&b));
        is_named && !matches!(part, "" | "." | "..")
    };
    if let Some(part) = parts.iter().find(|part| !is_plain(part)) {
        return Err(ApiError::BadRequest(format!("{part:?} is not a name that can be passed on")));
    }
    Ok(format!("/{}", parts.join("/")))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn agent(kind: &str, address: &str, port: &Value) -> Result<String, String> {
        let node = json!({"metadata": {"name": "n"}, "status": {"addresses": [{"type": kind, "address": address}],
            "daemonEndpoints": {"kubeletEndpoint": {"Port": port}}}});
        let uri = Endpoint::agent(&node).and_then(|agent| agent.uri("/containerLogs/a/b/c", Some("tailLines=5")));
        uri.map(|uri| uri.to_string()).map_err(|error| error.to_string())
    }

    #[test]
    fn api_625_an_address_is_a_host_and_nothing_else() {
        let rest = "/containerLogs/a/b/c?tailLines=5";
        for (kind, address, expected) in [
            ("InternalIP", "10.0.0.1", "https://10.0.0.1:10250"),
            ("InternalIP", "fd00::1", "https://[fd00::1]:10250"),
            ("Hostname", "Node-1.example.com", "https://node-1.example.com:10250"),
        ] {
            assert_eq!(agent(kind, address, &Value::Null), Ok(format!("{expected}{rest}")));
        }
        for address in [
            "::1]:7443/api/v1/namespaces/kube-system/secrets?x=[",
            "[::1]",
            "10.0.0.1:7443",
            "10.0.0.1/api",
            "10.0.0.1#",
            "10.0.0.1?",
            "user@10.0.0.1",
            "fe80::1%eth0",
            "a b",
            "a%2fb",
            "a\\b",
            "",
            "..",
            "-a",
        ] {
            for kind in ["InternalIP", "Hostname"] {
                let refused = agent(kind, address, &Value::Null).unwrap_err();
                assert!(refused.contains("is neither an IP address nor a DNS name"), "{address}: {refused}");
            }
        }
    }

    #[test]
    fn api_625_a_port_is_in_range() {
        assert!(agent("InternalIP", "10.0.0.1", &json!(65535)).unwrap().starts_with("https://10.0.0.1:65535/"));
        for port in [json!(0), json!(65536), json!(-1), json!("7443/api"), json!(4_294_967_296_u64 + 7443)] {
            assert!(agent("InternalIP", "10.0.0.1", &port).unwrap_err().contains("is not the port"), "{port}");
        }
    }

    #[test]
    fn api_607_the_machines_own_addresses_are_not_allowed() {
        for address in [
            "127.0.0.1",
            "127.8.8.8",
            "169.254.169.254",
            "::1",
            "fe80::1",
            "::ffff:127.0.0.1",
            "::ffff:169.254.169.254",
            "0.0.0.0",
            "::",
            "255.255.255.255",
            "224.0.0.1",
            "ff02::1",
            "localhost",
            "0x7f.1",
            "10.88.0.7:80",
            "10.88.0.7/..",
            "here",
            "",
        ] {
            let refused = Endpoint::of_pod(address, 80).unwrap_err();
            assert_eq!(refused.to_string(), "address not allowed", "{address}");
        }
        let uri = |address| Endpoint::of_pod(address, 80).unwrap().uri("/a%2f..%3f//b", None).unwrap().to_string();
        assert_eq!(uri("10.88.0.7"), "http://10.88.0.7:80/a%2f..%3f//b");
        assert_eq!(uri("fd00::7"), "http://[fd00::7]:80/a%2f..%3f//b");
    }

    #[test]
    fn api_607_a_path_stays_a_path() {
        let endpoint = Endpoint::of_pod("10.88.0.7", 80).unwrap();
        for wrong in ["", "x", "@evil/", "/a?b", "/a#b", "/a b"] {
            assert!(endpoint.uri(wrong, None).is_err(), "{wrong}");
        }
        assert_eq!(path(&["exec", "ns", "web", "main"]).unwrap(), "/exec/ns/web/main");
        for wrong in ["", "..", "a/b", "a%2fb", "a?b", "a#b", "a b"] {
            assert!(path(&["exec", wrong]).is_err(), "{wrong}");
        }
    }
}
