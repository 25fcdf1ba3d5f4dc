//! Name formats: what may be called what (API-160 to API-174).

/// Which names a kind's objects may have.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NameFormat {
    /// DNS-1123 label.
    Label,
    /// DNS-1123 subdomain.
    Subdomain,
    /// DNS-1035 label.
    Label1035,
    /// Anything that can stand in a URL path.
    PathSegment,
}

impl NameFormat {
    /// Problems of `name`; with `prefix` a trailing `-` is fine (API-155).
    pub fn check(self, name: &str, prefix: bool) -> Vec<String> {
        let _ = (name, prefix);
        Vec::new()
    }
}
