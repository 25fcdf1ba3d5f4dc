//! How a registry says that it wants to know who asks: `WWW-Authenticate`. Pure.

use http::header::{HeaderMap, WWW_AUTHENTICATE};

#[derive(Debug, PartialEq, Eq)]
pub(super) enum Challenge {
    Basic,
    /// A token of `realm` is wanted.
    Bearer {
        realm: String,
        service: Option<String>,
        scope: Option<String>,
    },
}

/// The one we can best answer; `None` if there is none.
pub(super) fn read(headers: &HeaderMap) -> Option<Challenge> {
    let all = headers.get_all(WWW_AUTHENTICATE).iter().filter_map(|value| value.to_str().ok());
    let mut found = None;
    for text in all.take(CHALLENGES_MAX) {
        match parse(text) {
            Some(bearer @ Challenge::Bearer { .. }) => return Some(bearer),
            other => found = found.or(other),
        }
    }
    found
}

fn parse(text: &str) -> Option<Challenge> {
    let (scheme, rest) = text.trim().split_once(' ').unwrap_or((text.trim(), ""));
    if scheme.eq_ignore_ascii_case("basic") {
        return Some(Challenge::Basic);
    }
    if !scheme.eq_ignore_ascii_case("bearer") {
        return None;
    }
    let (mut realm, mut service, mut scope) = (None, None, None);
    for (name, value) in parameters(rest) {
        match name.to_ascii_lowercase().as_str() {
            "realm" => realm = Some(value),
            "service" => service = Some(value),
            "scope" => scope = Some(value),
            _ => {}
        }
    }
    Some(Challenge::Bearer { realm: realm?, service, scope })
}

/// `name="quoted, \"value\"", other=token`.
fn parameters(text: &str) -> Vec<(String, String)> {
    let mut found = Vec::new();
    let mut rest = text;
    while let Some((name, after)) = rest.split_once('=') {
        let (value, after) = match after.trim_start().strip_prefix('"') {
            Some(quoted) => unquote(quoted),
            None => {
                let (value, after) = after.split_once(',').unwrap_or((after, ""));
                (value.trim().to_owned(), after)
            }
        };
        found.push((name.trim_start_matches([',', ' ']).trim().to_owned(), value));
        rest = after;
    }
    found
}

/// What is before the closing quote, and what is after it.
fn unquote(text: &str) -> (String, &str) {
    let mut value = String::new();
    let mut characters = text.char_indices();
    while let Some((position, character)) = characters.next() {
        match character {
            '"' => return (value, &text[position + 1..]),
            '\\' => value.extend(characters.next().map(|(_, escaped)| escaped)),
            plain => value.push(plain),
        }
    }
    (value, "")
}

/// No registry sends more than two.
const CHALLENGES_MAX: usize = 8;

#[cfg(test)]
mod tests {
    use super::*;

    fn bearer(realm: &str, service: Option<&str>, scope: Option<&str>) -> Option<Challenge> {
        let own = |text: Option<&str>| text.map(str::to_owned);
        Some(Challenge::Bearer { realm: realm.into(), service: own(service), scope: own(scope) })
    }

    #[test]
    fn challenges_are_read_as_registries_write_them() {
        let hub = r#"Bearer realm="https://auth.docker.io/token",service="registry.docker.io",scope="repository:a/b:pull,push""#;
        assert_eq!(
            parse(hub),
            bearer("https://auth.docker.io/token", Some("registry.docker.io"), Some("repository:a/b:pull,push"))
        );
        assert_eq!(parse(r#"bearer service=x, realm="https://r/t""#), bearer("https://r/t", Some("x"), None));
        assert_eq!(parse(r#"Bearer realm="a\"b",error="invalid_token""#), bearer("a\"b", None, None));
        assert_eq!(parse(r#"Basic realm="Registry""#), Some(Challenge::Basic));
        assert_eq!(parse("Basic"), Some(Challenge::Basic));
        for useless in ["", "Negotiate", "Bearer", r#"Bearer service="x""#, "Bearer realm"] {
            assert_eq!(parse(useless), None, "{useless}");
        }
        assert_eq!(parse(r#"Bearer realm="unclosed"#), bearer("unclosed", None, None));
    }

    #[test]
    fn a_token_is_better_than_a_password() {
        let mut headers = HeaderMap::new();
        assert_eq!(read(&headers), None);
        headers.append(WWW_AUTHENTICATE, "Basic realm=\"x\"".parse().unwrap());
        assert_eq!(read(&headers), Some(Challenge::Basic));
        headers.append(WWW_AUTHENTICATE, "Bearer realm=\"https://r\"".parse().unwrap());
        assert_eq!(read(&headers), bearer("https://r", None, None));
    }
}
