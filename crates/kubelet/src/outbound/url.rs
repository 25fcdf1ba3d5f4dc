//! Pure. The address of an HTTP request, and where a redirect leads from it.

use std::fmt;

use super::dial::joined;

/// Of http or https only. Prints as it is requested.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Url {
    pub(crate) is_https: bool,
    /// Without brackets.
    pub(crate) host: String,
    /// As written; see [`Url::port`].
    port: Option<u16>,
    /// Path and query, escaped.
    target: String,
}

impl Url {
    /// LC-247: the path may carry a query.
    pub(crate) fn new(is_https: bool, host: &str, port: u16, path: &str) -> Self {
        Self { is_https, host: host.to_owned(), port: Some(port), target: target_of(path) }
    }

    /// `https://host:port/path?query`
    pub(crate) fn parse(text: &str) -> Result<Self, String> {
        let nowhere = Self::new(false, "", 0, "/");
        match nowhere.follow(text)? {
            (url, true) => Ok(url),
            (_, false) => Err("say https://host/path".to_owned()),
        }
    }

    pub(crate) fn port(&self) -> u16 {
        self.port.unwrap_or(if self.is_https { 443 } else { 80 })
    }

    /// `host:port` as written, for the `Host` header.
    pub(crate) fn authority(&self) -> String {
        match self.port {
            Some(port) => joined(&self.host, port),
            None if self.host.contains(':') => format!("[{}]", self.host),
            None => self.host.clone(),
        }
    }

    /// What a request line asks for.
    pub(crate) fn target(&self) -> &str {
        if self.target.is_empty() { "/" } else { &self.target }
    }

    pub(crate) fn with_plain_http(&self) -> Self {
        Self { is_https: false, ..self.clone() }
    }

    /// Where `location` leads from here; also whether it names a host.
    pub(crate) fn follow(&self, location: &str) -> Result<(Self, bool), String> {
        let location = location.split('#').next().unwrap_or_default();
        if let Some((scheme, rest)) = location.split_once("://").filter(|(scheme, _)| is_scheme(scheme)) {
            let is_https = match scheme.to_ascii_lowercase().as_str() {
                "http" => false,
                "https" => true,
                other => return Err(format!("unsupported protocol scheme {other:?}")),
            };
            return Ok((Self::absolute(is_https, rest)?, true));
        }
        if let Some(rest) = location.strip_prefix("//") {
            return Ok((Self::absolute(self.is_https, rest)?, true));
        }
        let (path, _) = split(&self.target);
        let target = if location.is_empty() {
            self.target.clone()
        } else if location.starts_with('?') {
            format!("{path}{}", escaped(location))
        } else if location.starts_with('/') {
            without_dots(&target_of(location))
        } else {
            let folder = path.rfind('/').map_or("/", |at| &path[..=at]);
            without_dots(&target_of(&format!("{folder}{location}")))
        };
        Ok((Self { target, ..self.clone() }, false))
    }

    fn absolute(is_https: bool, rest: &str) -> Result<Self, String> {
        let end = rest.find(['/', '?']).unwrap_or(rest.len());
        let (authority, target) = rest.split_at(end);
        let authority = authority.rsplit('@').next().unwrap_or_default();
        let (host, port) = match authority.strip_prefix('[').and_then(|inner| inner.split_once(']')) {
            Some((host, port)) => (host, port.strip_prefix(':')),
            None => authority.split_once(':').map_or((authority, None), |(host, port)| (host, Some(port))),
        };
        let port = match port.filter(|port| !port.is_empty()) {
            Some(port) => Some(port.parse().map_err(|_| format!("invalid port {:?} after host", format!(":{port}")))?),
            None => None,
        };
        if host.is_empty() {
            return Err("http: no Host in request URL".to_owned());
        }
        let target = if target.is_empty() { String::new() } else { target_of(target) };
        Ok(Self { is_https, host: host.to_owned(), port, target })
    }
}

impl fmt::Display for Url {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let scheme = if self.is_https { "https" } else { "http" };
        write!(f, "{scheme}://{}{}", self.authority(), self.target)
    }
}

fn is_scheme(text: &str) -> bool {
    text.starts_with(|c: char| c.is_ascii_alphabetic())
        && text.chars().all(|c| c.is_ascii_alphanumeric() || "+-.".contains(c))
}

fn split(target: &str) -> (&str, Option<&str>) {
    target.split_once('?').map_or((target, None), |(path, query)| (path, Some(query)))
}

fn target_of(path_and_query: &str) -> String {
    let text = path_and_query.split('#').next().unwrap_or_default();
    let (path, query) = split(text);
    let slash = if path.starts_with('/') || text.is_empty() { "" } else { "/" };
    let path = format!("{slash}{}", escaped(path));
    query.map_or(path.clone(), |query| format!("{path}?{}", escaped(query)))
}

/// RFC 3986 §5.2.4, only when there is something to do.
fn without_dots(target: &str) -> String {
    let (path, query) = split(target);
    if !path.split('/').any(|segment| segment == "." || segment == "..") {
        return target.to_owned();
    }
    let mut kept: Vec<&str> = Vec::new();
    let mut segments = path.split('/').skip(1).peekable();
    while let Some(segment) = segments.next() {
        let is_last = segments.peek().is_none();
        match segment {
            "." | ".." => {
                if segment == ".." {
                    kept.pop();
                }
                if is_last {
                    kept.push("");
                }
            }
            _ => kept.push(segment),
        }
    }
    let query = query.map(|query| format!("?{query}")).unwrap_or_default();
    format!("/{}{query}", kept.join("/"))
}

/// What may not stand in a request line is percent-encoded; escapes stay.
fn escaped(text: &str) -> String {
    let bytes = text.as_bytes();
    let mut escaped = String::with_capacity(text.len());
    for (at, byte) in bytes.iter().enumerate() {
        let is_escape = *byte == b'%' && bytes[at + 1..].iter().take(2).filter(|b| b.is_ascii_hexdigit()).count() == 2;
        if byte.is_ascii_alphanumeric() || b"-._~!$&'()*+,;=:@/?".contains(byte) || is_escape {
            escaped.push(char::from(*byte));
        } else {
            escaped.push_str(&format!("%{byte:02X}"));
        }
    }
    escaped
}

#[cfg(test)]
mod tests {
    use super::*;

    fn followed(location: &str) -> String {
        let from = Url::new(false, "10.0.0.1", 8080, "/a/b?c=d");
        match from.follow(location) {
            Ok((url, _)) => url.to_string(),
            Err(error) => error,
        }
    }

    #[test]
    fn lc_247_a_probe_url_prints_as_upstream_prints_it() {
        assert_eq!(Url::new(false, "10.0.0.1", 80, "/healthz?full=1").to_string(), "http://10.0.0.1:80/healthz?full=1");
        assert_eq!(Url::new(true, "fd00::1", 443, "live").to_string(), "https://[fd00::1]:443/live");
        assert_eq!(Url::new(false, "web", 80, "/a b/%20/%zz").to_string(), "http://web:80/a%20b/%20/%25zz");
        assert_eq!(Url::new(false, "web", 80, "/a/../b").target(), "/a/../b", "as written");
        assert_eq!(Url::new(false, "web", 80, "").target(), "/");
    }

    #[test]
    fn lc_248_redirects_are_resolved() {
        assert_eq!(followed("/x/../y?z"), "http://10.0.0.1:8080/y?z");
        assert_eq!(followed("x"), "http://10.0.0.1:8080/a/x");
        assert_eq!(followed("?q"), "http://10.0.0.1:8080/a/b?q");
        assert_eq!(followed("//other:81"), "http://other:81");
        assert_eq!(followed("https://user:secret@[fd00::1]/x#y"), "https://[fd00::1]/x");
        assert_eq!(followed("ftp://other/"), "unsupported protocol scheme \"ftp\"");
        assert_eq!(followed("http://other:x/"), "invalid port \":x\" after host");
    }
}
