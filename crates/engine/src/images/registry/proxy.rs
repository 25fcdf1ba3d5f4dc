//! Who is asked through whom: `HTTP_PROXY`, `HTTPS_PROXY` and `NO_PROXY`, read
//! as Go programs read them, so that what works for containerd works here. Pure.

use std::fmt;
use std::net::IpAddr;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use http::Uri;
use http::header::HeaderValue;

/// The words of the environment.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct ProxyConfig {
    /// For registries reached by plain HTTP.
    pub http: String,
    /// For those reached by HTTPS.
    pub https: String,
    /// Hosts, domains, addresses and networks that are reached directly.
    pub except: String,
}

/// Passwords may be in it.
impl fmt::Debug for ProxyConfig {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ProxyConfig").field("except", &self.except).finish_non_exhaustive()
    }
}

impl ProxyConfig {
    /// `variable` tells the value of a variable of the environment. Capital
    /// letters win, and empty counts as absent.
    pub fn read(variable: impl Fn(&str) -> Option<String>) -> Self {
        let any = |names: [&str; 2]| {
            names.into_iter().filter_map(&variable).find(|value| !value.is_empty()).unwrap_or_default()
        };
        Self {
            http: any(["HTTP_PROXY", "http_proxy"]),
            https: any(["HTTPS_PROXY", "https_proxy"]),
            except: any(["NO_PROXY", "no_proxy"]),
        }
    }
}

/// The same, understood.
pub(super) struct Proxies {
    /// An error only for those who would need it.
    http: Result<Option<Proxy>, String>,
    https: Result<Option<Proxy>, String>,
    exceptions: Vec<Exception>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Proxy {
    pub(super) kind: Kind,
    /// Without credentials.
    pub(super) address: Uri,
    /// User and password.
    pub(super) credentials: Option<(String, String)>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    /// `http://` and `https://`.
    Http,
    /// `socks5://` and `socks5h://`; names are always resolved by the proxy, as in Go.
    Socks5,
}

#[derive(Debug, PartialEq, Eq)]
enum Exception {
    Everything,
    Network {
        address: IpAddr,
        prefix: u8,
    },
    Address {
        address: IpAddr,
        port: Option<String>,
    },
    /// With a dot before it.
    Domain {
        suffix: String,
        with_itself: bool,
        port: Option<String>,
    },
}

impl Proxies {
    pub(super) fn new(config: &ProxyConfig) -> Self {
        let (http, https) = (Proxy::parse(&config.http), Proxy::parse(&config.https));
        let listed = config.except.split(',').map(|word| word.trim().to_ascii_lowercase());
        Self { http, https, exceptions: listed.filter_map(|word| Exception::parse(&word)).collect() }
    }

    /// Through whom `target` is asked; `None`: directly.
    pub(super) fn of(&self, target: &Uri) -> Result<Option<&Proxy>, String> {
        let (proxy, default_port) = match target.scheme_str() {
            Some("https") => (&self.https, 443),
            _ => (&self.http, 80),
        };
        let host = target.host().unwrap_or_default().trim_matches(['[', ']']).to_ascii_lowercase();
        let port = target.port_u16().unwrap_or(default_port).to_string();
        match proxy {
            Ok(None) => Ok(None),
            _ if self.is_excepted(&host, &port) => Ok(None),
            Ok(Some(proxy)) => Ok(Some(proxy)),
            Err(complaint) => Err(complaint.clone()),
        }
    }

    /// This machine is never asked through another.
    fn is_excepted(&self, host: &str, port: &str) -> bool {
        let address: Option<IpAddr> = host.parse().ok();
        host == "localhost"
            || address.is_some_and(|address| address.to_canonical().is_loopback())
            || self.exceptions.iter().any(|exception| exception.covers(host, port, address))
    }
}

impl Proxy {
    fn parse(text: &str) -> Result<Option<Proxy>, String> {
        if text.is_empty() {
            return Ok(None);
        }
        // Without the text: it may hold a password.
        let invalid = |detail: &str| format!("invalid proxy address: {detail}");
        let full = if text.contains("://") { text.to_owned() } else { format!("http://{text}") };
        let uri: Uri = full.parse().map_err(|_| invalid("not an address"))?;
        let kind = match uri.scheme_str() {
            Some("http" | "https") => Kind::Http,
            Some("socks5" | "socks5h") => Kind::Socks5,
            other => return Err(invalid(&format!("unknown scheme {:?}", other.unwrap_or_default()))),
        };
        let authority = uri.authority().ok_or_else(|| invalid("no host"))?.as_str();
        let (user, host) = authority.rsplit_once('@').map_or((None, authority), |(user, host)| (Some(user), host));
        let credentials = user.map(|user| {
            let (name, password) = user.split_once(':').unwrap_or((user, ""));
            (decoded(name), decoded(password))
        });
        let default_port = match uri.scheme_str() {
            Some("https") => 443,
            Some("http") => 80,
            _ => 1080,
        };
        let port = uri.port_u16().unwrap_or(default_port);
        let name = host.strip_suffix(&format!(":{port}")).unwrap_or(host).trim_end_matches(':');
        // A proxy is itself reached over TCP, or over TLS if it is `https`.
        let scheme = if uri.scheme_str() == Some("https") { "https" } else { "http" };
        let address = format!("{scheme}://{name}:{port}").parse().map_err(|_| invalid("not an address"))?;
        Ok(Some(Proxy { kind, address, credentials }))
    }

    /// For `Proxy-Authorization`.
    pub(super) fn authorization(&self) -> Option<HeaderValue> {
        let (user, password) = self.credentials.as_ref()?;
        let mut value: HeaderValue = format!("Basic {}", BASE64.encode(format!("{user}:{password}"))).parse().ok()?;
        value.set_sensitive(true);
        Some(value)
    }
}

impl Exception {
    /// A word in small letters; `None` if it means nothing.
    fn parse(word: &str) -> Option<Exception> {
        if word == "*" {
            return Some(Exception::Everything);
        }
        if let Some(network) = network(word) {
            return Some(network);
        }
        let (host, port) = host_and_port(word);
        if host.is_empty() {
            return None;
        }
        if let Ok(address) = host.parse() {
            return Some(Exception::Address { address, port });
        }
        let host = host.strip_prefix('*').filter(|rest| rest.starts_with('.')).unwrap_or(host);
        let with_itself = !host.starts_with('.');
        let suffix = if with_itself { format!(".{host}") } else { host.to_owned() };
        Some(Exception::Domain { suffix, with_itself, port })
    }

    fn covers(&self, host: &str, port: &str, address: Option<IpAddr>) -> bool {
        let is_port = |wanted: &Option<String>| wanted.as_deref().is_none_or(|wanted| wanted == port);
        match self {
            Exception::Everything => true,
            Exception::Network { address: network, prefix } => {
                address.is_some_and(|address| is_in(address.to_canonical(), *network, *prefix))
            }
            Exception::Address { address: wanted, port } => {
                address.is_some_and(|address| address.to_canonical() == wanted.to_canonical()) && is_port(port)
            }
            Exception::Domain { suffix, with_itself, port } => {
                (host.ends_with(suffix.as_str()) || (*with_itself && host == &suffix[1..])) && is_port(port)
            }
        }
    }
}

/// `10.0.0.0/8`.
fn network(word: &str) -> Option<Exception> {
    let (address, prefix) = word.split_once('/')?;
    let (address, prefix): (IpAddr, u8) = (address.parse().ok()?, prefix.parse().ok()?);
    let longest = if address.is_ipv4() { 32 } else { 128 };
    (prefix <= longest).then_some(Exception::Network { address, prefix })
}

fn is_in(address: IpAddr, network: IpAddr, prefix: u8) -> bool {
    let bits = |address: IpAddr| match address {
        IpAddr::V4(address) => (u128::from(address.to_bits()) << 96, true),
        IpAddr::V6(address) => (address.to_bits(), false),
    };
    let ((one, one_is_v4), (other, other_is_v4)) = (bits(address), bits(network));
    let difference = (one ^ other).checked_shr(128 - u32::from(prefix)).unwrap_or(0);
    one_is_v4 == other_is_v4 && difference == 0
}

/// An IPv6 address has a port only behind brackets.
fn host_and_port(word: &str) -> (&str, Option<String>) {
    let split = match word.strip_prefix('[') {
        Some(rest) => match rest.split_once(']') {
            Some((host, rest)) => return (host, rest.strip_prefix(':').map(str::to_owned)),
            None => None,
        },
        None if word.matches(':').count() == 1 => word.split_once(':'),
        None => None,
    };
    split.map_or((word, None), |(host, port)| (host, Some(port.to_owned())))
}

/// `%40` is `@`. What is no such code stays as it is.
fn decoded(text: &str) -> String {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let [first, tail @ ..] = rest {
        let code = tail.get(..2).and_then(|digits| std::str::from_utf8(digits).ok());
        match code.and_then(|digits| u8::from_str_radix(digits, 16).ok()).filter(|_| *first == b'%') {
            Some(byte) => (bytes.push(byte), rest = &tail[2..]).1,
            None => (bytes.push(*first), rest = tail).1,
        }
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn proxies(http: &str, https: &str, except: &str) -> Proxies {
        Proxies::new(&ProxyConfig { http: http.into(), https: https.into(), except: except.into() })
    }

    #[test]
    fn capital_letters_win_and_empty_is_absent() {
        let read = |all: &'static [(&str, &str)]| {
            ProxyConfig::read(|name| all.iter().find(|(known, _)| *known == name).map(|(_, value)| (*value).to_owned()))
        };
        let small = read(&[("http_proxy", "a"), ("https_proxy", "b"), ("no_proxy", "c")]);
        assert_eq!(small, ProxyConfig { http: "a".into(), https: "b".into(), except: "c".into() });
        assert_eq!(read(&[("http_proxy", "a"), ("HTTP_PROXY", "b")]).http, "b");
        assert_eq!(read(&[("http_proxy", "a"), ("HTTP_PROXY", "")]).http, "a");
        assert_eq!(read(&[("ALL_PROXY", "a")]), ProxyConfig::default(), "Go does not know it");
    }

    #[test]
    fn a_proxy_is_an_address_with_or_without_scheme_and_credentials() {
        let parse = |text: &str| Proxy::parse(text).unwrap().unwrap();
        let shown = |proxy: Proxy| (proxy.kind, proxy.address.to_string(), proxy.credentials);
        let plain = |kind, address: &str| (kind, address.to_owned(), None);
        assert_eq!(shown(parse("proxy.example:3128")), plain(Kind::Http, "http://proxy.example:3128/"));
        assert_eq!(shown(parse("http://proxy.example")), plain(Kind::Http, "http://proxy.example:80/"));
        assert_eq!(shown(parse("https://proxy.example/")), plain(Kind::Http, "https://proxy.example:443/"));
        assert_eq!(shown(parse("http://[fd00::1]:3128")), plain(Kind::Http, "http://[fd00::1]:3128/"));
        assert_eq!(shown(parse("socks5://proxy.example")), plain(Kind::Socks5, "http://proxy.example:1080/"));
        let known = parse("http://us%40er:p%3Aw%zz@proxy.example:1");
        assert_eq!(known.credentials, Some(("us@er".into(), "p:w%zz".into())));
        assert_eq!(known.authorization().unwrap(), "Basic dXNAZXI6cDp3JXp6");
        assert_eq!(Proxy::parse(""), Ok(None));
        for wrong in ["ftp://secret@x", "http://", "http://a secret"] {
            let complaint = Proxy::parse(wrong).unwrap_err();
            assert!(complaint.starts_with("invalid proxy address: ") && !complaint.contains("secret"), "{complaint}");
        }
    }

    #[test]
    fn each_scheme_has_its_own_and_this_machine_none() {
        let proxies = proxies("http://a:1", "http://b:2", "");
        let of = |target: &str| {
            proxies.of(&target.parse().unwrap()).unwrap().map(|proxy| proxy.address.authority().unwrap().to_string())
        };
        assert_eq!(of("http://registry.example/v2"), Some("a:1".into()));
        assert_eq!(of("https://registry.example/v2"), Some("b:2".into()));
        for own in ["https://localhost:5000", "http://127.0.0.1", "https://127.9.9.9:1", "http://[::1]:5000"] {
            assert_eq!(of(own), None, "{own}");
        }
        let broken = self::proxies("ftp://x", "", "");
        assert!(broken.of(&"http://registry.example".parse().unwrap()).is_err());
        assert_eq!(broken.of(&"https://registry.example".parse().unwrap()), Ok(None));
        assert_eq!(broken.of(&"http://localhost".parse().unwrap()), Ok(None));
    }

    #[test]
    fn exceptions_are_domains_addresses_networks_and_ports() {
        let is_direct =
            |except: &str, target: &str| proxies("p", "p", except).of(&target.parse().unwrap()).unwrap().is_none();
        for (except, target) in [
            ("*", "https://anything"),
            ("example.com", "https://example.com"),
            ("example.com", "https://deep.down.EXAMPLE.com"),
            (" other , Example.COM", "https://example.com"),
            (".example.com", "https://a.example.com"),
            ("*.example.com", "https://a.example.com"),
            ("example.com:443", "https://example.com"),
            ("example.com:5000", "https://example.com:5000"),
            ("10.0.0.0/8", "http://10.200.0.1"),
            ("fd00::/8", "http://[fd12::1]:5000"),
            ("10.1.2.3", "http://10.1.2.3:5000"),
            ("10.1.2.3:80", "http://10.1.2.3"),
            ("[fd00::1]:5000", "http://[fd00::1]:5000"),
            ("fd00::1", "http://[fd00::1]"),
            ("0.0.0.0/0", "http://10.1.2.3"),
        ] {
            assert!(is_direct(except, target), "{except} {target}");
        }
        for (except, target) in [
            ("", "https://example.com"),
            (",,:80,", "https://example.com"),
            ("example.com", "https://notexample.com"),
            (".example.com", "https://example.com"),
            ("*.example.com", "https://example.com"),
            ("example.com:80", "https://example.com"),
            ("10.0.0.0/8", "http://11.0.0.1"),
            ("10.0.0.0/8", "http://ten.example"),
            ("10.0.0.0/99", "http://10.0.0.1"),
            ("10.1.2.3:81", "http://10.1.2.3"),
            ("0.0.0.0/0", "http://[fd00::1]"),
            ("10.1.2", "http://10.1.2.3"),
        ] {
            assert!(!is_direct(except, target), "{except} {target}");
        }
    }
}
