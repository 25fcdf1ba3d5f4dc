//! Where the images of a registry are fetched from: containerd's
//! `<directory>/<registry>/hosts.toml`, which many users have already.
//!
//! ```toml
//! server = "https://registry-1.docker.io"      # the registry itself, asked last
//! [host."https://mirror.example"]              # asked before it, in this order
//! capabilities = ["pull", "resolve"]
//! ca = "mirror.crt"                            # beside this file, or absolute
//! ```

use std::fs;
use std::io;
use std::net::{Ipv4Addr, Ipv6Addr};
use std::path::{Path, PathBuf};

use http::header::{HeaderMap, HeaderName, HeaderValue};
use http::uri::{Scheme, Uri};
use serde::Deserialize;

use crate::images::ImageError;

/// One place to ask, in the order to ask them.
#[derive(Debug, Clone)]
pub(super) struct Host {
    /// With the path that everything is below, e.g. `https://mirror.example/v2`.
    pub(super) base: Uri,
    /// Something that stands in for the registry; it never gets the
    /// credentials meant for the registry.
    pub(super) is_mirror: bool,
    /// May say which image a tag means now.
    pub(super) resolves: bool,
    pub(super) pulls: bool,
    pub(super) headers: HeaderMap,
    pub(super) tls: Tls,
}

#[derive(Debug, Clone, Default)]
pub(super) struct Tls {
    /// PEM files with authorities to trust besides the system's.
    pub(super) authorities: Vec<PathBuf>,
    /// Our own certificate and its key, where the host asks for one.
    pub(super) client: Option<(PathBuf, PathBuf)>,
    pub(super) skip_verify: bool,
}

/// The places to ask for images of the registry `domain`.
pub(super) fn hosts(directory: Option<&Path>, domain: &str, plain_http: bool) -> Result<Vec<Host>, ImageError> {
    let own = directory.map(|directory| directory.join(domain));
    let candidates = own.iter().cloned().chain(directory.map(|directory| directory.join("_default")));
    for place in candidates {
        let path = place.join("hosts.toml");
        match fs::read_to_string(&path) {
            Ok(text) => return parse(&text, domain, &place).map_err(|detail| invalid(&path, detail)),
            Err(err) if matches!(err.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory) => {}
            Err(err) => return Err(invalid(&path, err.to_string())),
        }
    }
    let mut host = registry_itself(&default_server(domain, plain_http)).map_err(|detail| {
        ImageError::InvalidReference { reference: domain.to_owned(), detail: format!("no registry address: {detail}") }
    })?;
    host.tls.authorities = own.map(|place| docker_authorities(&place)).unwrap_or_default();
    Ok(vec![host])
}

fn invalid(path: &Path, detail: String) -> ImageError {
    ImageError::InvalidRegistryConfig { path: path.to_owned(), detail }
}

/// Docker's older habit: a directory of `*.crt` files for a registry.
fn docker_authorities(place: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(place).into_iter().flatten().flatten().map(|entry| entry.path());
    let mut found: Vec<PathBuf> = entries.filter(|path| path.extension().is_some_and(|end| end == "crt")).collect();
    found.sort();
    found
}

/// Registries on this machine speak plain HTTP, as Docker has it.
fn default_server(domain: &str, plain_http: bool) -> String {
    let scheme = if plain_http || is_loopback(domain) { "http" } else { "https" };
    let host = if domain == "docker.io" { "registry-1.docker.io" } else { domain };
    format!("{scheme}://{host}")
}

fn is_loopback(domain: &str) -> bool {
    let host = match domain.strip_prefix('[') {
        Some(rest) => rest.split(']').next().unwrap_or_default(),
        None => domain.split(':').next().unwrap_or_default(),
    };
    host == "localhost"
        || host.parse::<Ipv4Addr>().is_ok_and(|address| address.is_loopback())
        || host.parse::<Ipv6Addr>().is_ok_and(|address| address.is_loopback())
}

fn registry_itself(server: &str) -> Result<Host, String> {
    let base = base(server, false)?;
    Ok(Host { base, is_mirror: false, resolves: true, pulls: true, headers: HeaderMap::new(), tls: Tls::default() })
}

#[derive(Deserialize)]
struct File {
    server: Option<String>,
    #[serde(default)]
    host: toml::Table,
    #[serde(flatten)]
    of_server: Entry,
}

#[derive(Deserialize, Default)]
struct Entry {
    capabilities: Option<Vec<String>>,
    ca: Option<Names>,
    client: Option<Names>,
    #[serde(default)]
    skip_verify: bool,
    #[serde(default)]
    override_path: bool,
    #[serde(default)]
    header: toml::Table,
}

/// One file, several, or pairs of certificate and key.
#[derive(Deserialize)]
#[serde(untagged)]
enum Names {
    One(PathBuf),
    Several(Vec<PathBuf>),
    Pairs(Vec<Vec<PathBuf>>),
}

fn parse(text: &str, domain: &str, place: &Path) -> Result<Vec<Host>, String> {
    let file: toml::Table = toml::from_str(text).map_err(|err| err.message().to_owned())?;
    check_fields(&file, &["server", "host"])?;
    let File { server, host: listed, of_server } = file.try_into().map_err(|err| err.message().to_owned())?;
    let mut hosts = Vec::new();
    for (address, entry) in listed {
        let table = entry.as_table().ok_or_else(|| format!("host {address:?} is not a table"))?;
        check_fields(table, &[]).map_err(|detail| format!("host {address:?}: {detail}"))?;
        let entry: Entry = entry.try_into().map_err(|err| format!("host {address:?}: {}", err.message()))?;
        hosts.push(host(&address, entry, place, true).map_err(|detail| format!("host {address:?}: {detail}"))?);
    }
    let server = server.unwrap_or_else(|| default_server(domain, false));
    hosts.push(host(&server, of_server, place, false).map_err(|detail| format!("server: {detail}"))?);
    Ok(hosts)
}

/// By name, so that the user learns which word is wrong.
fn check_fields(table: &toml::Table, more: &[&str]) -> Result<(), String> {
    let known = ["capabilities", "ca", "client", "skip_verify", "override_path", "header", "dial_timeout"];
    match table.keys().find(|key| !known.contains(&key.as_str()) && !more.contains(&key.as_str())) {
        Some(key) => Err(format!("unknown field {key:?}; known are {}", known.join(", "))),
        None => Ok(()),
    }
}

fn host(address: &str, entry: Entry, place: &Path, is_mirror: bool) -> Result<Host, String> {
    let can = |what: &str| entry.capabilities.as_ref().is_none_or(|all| all.iter().any(|one| one == what));
    let (resolves, pulls) = (can("resolve"), can("pull"));
    let beside = |path: PathBuf| place.join(path);
    let authorities = match entry.ca {
        None => Vec::new(),
        Some(Names::One(path)) => vec![beside(path)],
        Some(Names::Several(paths)) => paths.into_iter().map(beside).collect(),
        Some(Names::Pairs(_)) => return Err("ca: expected a file or a list of files".into()),
    };
    let client = match entry.client {
        None => None,
        Some(Names::One(path)) => Some((beside(path.clone()), beside(path))),
        Some(Names::Pairs(pairs)) => match pairs.as_slice() {
            [pair] if pair.len() == 2 => Some((beside(pair[0].clone()), beside(pair[1].clone()))),
            _ => return Err("client: expected one pair [\"certificate\", \"key\"]".into()),
        },
        Some(Names::Several(_)) => return Err("client: expected [[\"certificate\", \"key\"]] or one file".into()),
    };
    Ok(Host {
        base: base(address, entry.override_path)?,
        is_mirror,
        resolves,
        pulls,
        headers: headers(&entry.header)?,
        tls: Tls { authorities, client, skip_verify: entry.skip_verify },
    })
}

fn headers(table: &toml::Table) -> Result<HeaderMap, String> {
    let mut headers = HeaderMap::new();
    for (name, value) in table {
        let values = match value {
            toml::Value::String(value) => vec![value.as_str()],
            toml::Value::Array(values) => values.iter().filter_map(toml::Value::as_str).collect(),
            _ => return Err(format!("header {name:?}: expected text or a list of texts")),
        };
        let key: HeaderName = name.parse().map_err(|_| format!("header {name:?}: not a header name"))?;
        for value in values {
            let mut value: HeaderValue = value.parse().map_err(|_| format!("header {name:?}: unusable value"))?;
            value.set_sensitive(true);
            headers.append(key.clone(), value);
        }
    }
    Ok(headers)
}

/// `https://host[:port][/path]`, with `/v2` below unless the path says all.
fn base(address: &str, override_path: bool) -> Result<Uri, String> {
    let full = if address.contains("://") { address.to_owned() } else { format!("https://{address}") };
    let uri: Uri = full.parse().map_err(|_| format!("{address:?} is not an address"))?;
    let is_web = uri.scheme() == Some(&Scheme::HTTPS) || uri.scheme() == Some(&Scheme::HTTP);
    let Some(authority) = uri.authority().filter(|authority| is_web && !authority.as_str().contains('@')) else {
        return Err(format!("{address:?} is not an address: expected https://HOST[:PORT]"));
    };
    let path = uri.path().trim_end_matches('/');
    let path = if override_path || path.ends_with("/v2") { path.to_owned() } else { format!("{path}/v2") };
    let scheme = uri.scheme_str().unwrap_or("https");
    format!("{scheme}://{authority}{path}").parse().map_err(|_| format!("{address:?} is not an address"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bases(hosts: &[Host]) -> Vec<String> {
        hosts.iter().map(|host| host.base.to_string()).collect()
    }

    #[test]
    fn without_configuration_a_registry_is_asked_itself() {
        let base = |domain: &str, plain: bool| bases(&hosts(None, domain, plain).unwrap()).remove(0);
        assert_eq!(base("docker.io", false), "https://registry-1.docker.io/v2");
        assert_eq!(base("quay.io", false), "https://quay.io/v2");
        assert_eq!(base("quay.io", true), "http://quay.io/v2");
        for loopback in ["localhost:5000", "127.0.0.1:5000", "127.9.9.9", "[::1]:5000", "localhost"] {
            assert_eq!(base(loopback, false), format!("http://{loopback}/v2"));
        }
        assert_eq!(base("localhost.example", false), "https://localhost.example/v2");
    }

    #[test]
    fn mirrors_are_asked_first_and_in_order() {
        let text = r#"
            server = "https://upstream.example"
            skip_verify = true
            [host."https://z.example:5000"]
            capabilities = ["pull"]
            ca = "z.crt"
            [host."http://a.example/cache/v2"]
            override_path = true
            client = [["/c.pem", "/k.pem"]]
            [host."http://a.example/cache/v2".header]
            x-token = ["secret"]
        "#;
        let hosts = parse(text, "docker.io", Path::new("/certs.d/docker.io")).unwrap();
        assert_eq!(
            bases(&hosts),
            ["https://z.example:5000/v2", "http://a.example/cache/v2", "https://upstream.example/v2"]
        );
        assert_eq!(hosts.iter().map(|host| host.is_mirror).collect::<Vec<_>>(), [true, true, false]);
        assert!(!hosts[0].resolves && hosts[0].pulls && hosts[2].resolves);
        assert_eq!(hosts[0].tls.authorities, [PathBuf::from("/certs.d/docker.io/z.crt")]);
        assert_eq!(hosts[1].tls.client, Some(("/c.pem".into(), "/k.pem".into())));
        assert_eq!(hosts[1].headers["x-token"], "secret");
        assert!(!format!("{:?}", hosts[1]).contains("secret"), "a header may be a password");
        assert!(hosts[2].tls.skip_verify && !hosts[0].tls.skip_verify);
    }

    #[test]
    fn mistakes_are_named() {
        let complaint = |text: &str| parse(text, "quay.io", Path::new("/p")).unwrap_err();
        for (text, part) in [
            ("sever = \"x\"", "\"sever\""),
            ("[host.\"https://m\"]\nskip_verfy = true", "\"skip_verfy\""),
            ("[host.\"ftp://m\"]", "ftp://m"),
            ("[host.\"https://u:p@m\"]", "is not an address"),
            ("ca = [[\"a\", \"b\"]]", "ca:"),
            ("client = [\"a\"]", "client:"),
            ("server = ", ""),
        ] {
            assert!(complaint(text).contains(part), "{text}: {}", complaint(text));
        }
    }

    #[test]
    fn the_directory_of_a_registry_wins_over_the_default() {
        let directory = tempfile::tempdir().unwrap();
        let write = |name: &str, file: &str, text: &str| {
            fs::create_dir_all(directory.path().join(name)).unwrap();
            fs::write(directory.path().join(name).join(file), text).unwrap();
        };
        let base = |domain: &str| bases(&hosts(Some(directory.path()), domain, false).unwrap()).remove(0);
        write("quay.io", "ca.crt", "");
        let found = hosts(Some(directory.path()), "quay.io", false).unwrap();
        assert_eq!(found[0].tls.authorities, [directory.path().join("quay.io/ca.crt")]);
        write("_default", "hosts.toml", "[host.\"https://mirror\"]");
        write("127.0.0.1:5000", "hosts.toml", "server = \"https://127.0.0.1:5000\"");
        assert_eq!(base("ghcr.io"), "https://mirror/v2");
        assert_eq!(base("127.0.0.1:5000"), "https://127.0.0.1:5000/v2");
        write("_default", "hosts.toml", "=");
        assert!(matches!(
            hosts(Some(directory.path()), "ghcr.io", false),
            Err(ImageError::InvalidRegistryConfig { .. })
        ));
    }
}
