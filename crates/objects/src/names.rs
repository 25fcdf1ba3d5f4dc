//! Name formats: what may be called what (API-160 to API-174).
//!
//! Every check answers the list of problems in upstream's words; an empty list
//! means the name is fine.

use std::net::IpAddr;

use crate::errors::{Errors, FieldError};

const LABEL: &str = "[a-z0-9]([-a-z0-9]*[a-z0-9])?";
const SUBDOMAIN: &str = "[a-z0-9]([-a-z0-9]*[a-z0-9])?(\\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*";
const LABEL_1035: &str = "[a-z]([-a-z0-9]*[a-z0-9])?";
const QUALIFIED: &str = "([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]";
const QUALIFIED_RULE: &str = "must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an \
                              alphanumeric character";

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
    /// An IP address in its one form; no name is ever made from a prefix.
    Address,
}

impl NameFormat {
    /// Problems of `name`; with `prefix` a trailing `-` is fine (API-155).
    pub fn check(self, name: &str, prefix: bool) -> Vec<String> {
        let masked = match name.strip_suffix('-') {
            Some(stem) if prefix && !stem.is_empty() => format!("{stem}a"),
            _ => name.to_owned(),
        };
        match self {
            Self::Label => dns_label(&masked),
            Self::Subdomain => dns_subdomain(&masked),
            Self::Label1035 => dns_1035_label(&masked),
            Self::PathSegment => path_segment(name),
            Self::Address => ip_address(name),
        }
    }
}

/// API-160.
pub fn dns_label(name: &str) -> Vec<String> {
    let mut problems = Vec::new();
    if name.len() > 63 {
        problems.push(too_long(63));
    }
    if !is_label(name) {
        problems.push(if is_subdomain(name) {
            "must not contain dots".to_owned()
        } else {
            regex(
                "a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-', and must start \
                 and end with an alphanumeric character",
                LABEL,
                &["my-name", "123-abc"],
            )
        });
    }
    problems
}

/// API-161.
pub fn dns_subdomain(name: &str) -> Vec<String> {
    let mut problems = Vec::new();
    if name.len() > 253 {
        problems.push(too_long(253));
    }
    if !is_subdomain(name) {
        problems.push(regex(
            "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', and must \
             start and end with an alphanumeric character",
            SUBDOMAIN,
            &["example.com"],
        ));
    }
    problems
}

/// A subdomain after `*.`: the hosts of ingresses and certificates.
pub fn wildcard_subdomain(name: &str) -> Vec<String> {
    let mut problems = Vec::new();
    if name.len() > 253 {
        problems.push(too_long(253));
    }
    if !name.strip_prefix("*.").is_some_and(is_subdomain) {
        let expression = format!("\\*\\.{SUBDOMAIN}");
        problems.push(regex(
            "a wildcard DNS-1123 subdomain must start with '*.', followed by a valid DNS subdomain, which must consist \
             of lower case alphanumeric characters, '-' or '.' and end with an alphanumeric character",
            &expression,
            &["*.example.com"],
        ));
    }
    problems
}

/// An address in its one form.
pub fn ip_address(name: &str) -> Vec<String> {
    let Ok(address) = name.parse::<IpAddr>() else {
        return vec!["must be a valid IP address, (e.g. 10.9.8.7 or 2001:db8::ffff)".to_owned()];
    };
    if matches!(address, IpAddr::V6(ip) if ip.to_ipv4_mapped().is_some()) {
        return vec!["must not be an IPv4-mapped IPv6 address".to_owned()];
    }
    let canonical = address.to_string();
    if canonical == name { Vec::new() } else { vec![format!("must be in canonical form ({canonical:?})")] }
}

/// `domain/path`: who answers for something.
pub(crate) fn domain_path(errors: &mut Errors, path: &str, name: &str) {
    if name.is_empty() {
        return errors.push(FieldError::required(path, ""));
    }
    let (Some((host, rest)), false) = (name.split_once('/'), name.starts_with('/') || name.ends_with('/')) else {
        let detail = "must be a domain-prefixed path (such as \"acme.io/foo\")";
        return errors.push(FieldError::invalid(path, name, detail));
    };
    errors.0.extend(dns_subdomain(host).into_iter().map(|problem| FieldError::invalid(path, host, problem)));
    if !rest.bytes().all(|b| b.is_ascii_alphanumeric() || b"/-._~%!$&'()*+,;=:".contains(&b)) {
        let detail = "Invalid path (regex used for validation is '[A-Za-z0-9/\\-._~%!$&'()*+,;=:]+')";
        errors.push(FieldError::invalid(path, rest, detail));
    }
}

/// API-162.
pub fn dns_1035_label(name: &str) -> Vec<String> {
    let mut problems = Vec::new();
    if name.len() > 63 {
        problems.push(too_long(63));
    }
    if !is_label(name) || !name.starts_with(|c: char| c.is_ascii_lowercase()) {
        problems.push(regex(
            "a DNS-1035 label must consist of lower case alphanumeric characters or '-', start with an alphabetic \
             character, and end with an alphanumeric character",
            LABEL_1035,
            &["my-name", "abc-123"],
        ));
    }
    problems
}

/// API-163.
pub fn path_segment(name: &str) -> Vec<String> {
    if name == "." || name == ".." {
        return vec![format!("may not be '{name}'")];
    }
    ['/', '%'].into_iter().filter(|c| name.contains(*c)).map(|c| format!("may not contain '{c}'")).collect()
}

/// API-164: keys of labels, annotations and finalizers, condition types.
pub fn qualified_name(name: &str) -> Vec<String> {
    let rule = || regex(QUALIFIED_RULE, QUALIFIED, &["MyName", "my.name", "123-abc"]);
    let mut problems = Vec::new();
    let parts: Vec<&str> = name.split('/').collect();
    let part = match parts.as_slice() {
        [part] => part,
        ["", part] => {
            problems.push("prefix part must be non-empty".to_owned());
            part
        }
        [prefix, part] => {
            problems.extend(dns_subdomain(prefix).into_iter().map(|problem| format!("prefix part {problem}")));
            part
        }
        _ => {
            let rule = rule();
            return vec![format!(
                "a qualified name {rule} with an optional DNS subdomain prefix and '/' (e.g. 'example.com/MyName')"
            )];
        }
    };
    if part.is_empty() {
        problems.push("name part must be non-empty".to_owned());
    } else if part.len() > 63 {
        problems.push(format!("name part {}", too_long(63)));
    }
    if !is_qualified_part(part) {
        problems.push(format!("name part {}", rule()));
    }
    problems
}

/// API-165.
pub fn label_value(value: &str) -> Vec<String> {
    let mut problems = Vec::new();
    if value.len() > 63 {
        problems.push(too_long(63));
    }
    if !value.is_empty() && !is_qualified_part(value) {
        problems.push(regex(
            "a valid label must be an empty string or consist of alphanumeric characters, '-', '_' or '.', and must \
             start and end with an alphanumeric character",
            "(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?",
            &["MyValue", "my_value", "12345"],
        ));
    }
    problems
}

/// API-166.
pub fn port_name(name: &str) -> Vec<String> {
    let mut problems = Vec::new();
    if name.len() > 15 {
        problems.push("must be no more than 15 characters".to_owned());
    }
    if !name.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-') || name.is_empty() {
        problems.push("must contain only alpha-numeric characters (a-z, 0-9), and hyphens (-)".to_owned());
    }
    if !name.bytes().any(|b| b.is_ascii_lowercase()) {
        problems.push("must contain at least one letter (a-z)".to_owned());
    }
    if name.contains("--") {
        problems.push("must not contain consecutive hyphens".to_owned());
    }
    if name.starts_with('-') || name.ends_with('-') {
        problems.push("must not begin or end with a hyphen".to_owned());
    }
    problems
}

/// API-167.
pub fn port_number(port: i64) -> Vec<String> {
    if (1..=65535).contains(&port) { Vec::new() } else { vec!["must be between 1 and 65535, inclusive".to_owned()] }
}

/// API-168: keys of ConfigMaps and Secrets.
pub fn config_key(key: &str) -> Vec<String> {
    let mut problems = Vec::new();
    if key.len() > 253 {
        problems.push(too_long(253));
    }
    if key.is_empty() || !key.bytes().all(|b| b.is_ascii_alphanumeric() || b"-._".contains(&b)) {
        problems.push(regex(
            "a valid config key must consist of alphanumeric characters, '-', '_' or '.'",
            "[-._a-zA-Z0-9]+",
            &["key.name", "KEY_NAME", "key-name"],
        ));
    }
    match key {
        "." | ".." => problems.push(format!("must not be '{key}'")),
        key if key.starts_with("..") => problems.push("must not start with '..'".to_owned()),
        _ => {}
    }
    problems
}

/// API-169: names of environment variables, relaxed as of 1.35.
pub fn env_name(name: &str) -> Vec<String> {
    if name.is_empty() {
        return vec!["environment variable name must be non-empty".to_owned()];
    }
    if name.bytes().all(|b| (0x20..=0x7e).contains(&b) && b != b'=') {
        return Vec::new();
    }
    vec!["a valid environment variable name must consist only of printable ASCII characters other than '='".to_owned()]
}

fn is_label(name: &str) -> bool {
    let bytes = name.as_bytes();
    let alphanumeric = |b: Option<&u8>| b.is_some_and(|b| b.is_ascii_lowercase() || b.is_ascii_digit());
    alphanumeric(bytes.first())
        && alphanumeric(bytes.last())
        && bytes.iter().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || *b == b'-')
}

fn is_subdomain(name: &str) -> bool {
    name.split('.').all(is_label)
}

fn is_qualified_part(name: &str) -> bool {
    let bytes = name.as_bytes();
    bytes.first().is_some_and(u8::is_ascii_alphanumeric)
        && bytes.last().is_some_and(u8::is_ascii_alphanumeric)
        && bytes.iter().all(|b| b.is_ascii_alphanumeric() || b"-_.".contains(b))
}

pub(crate) fn too_long(max: usize) -> String {
    format!("must be no more than {max} bytes")
}

/// A rule with examples and its regular expression, punctuated as upstream.
fn regex(rule: &str, expression: &str, examples: &[&str]) -> String {
    let examples: Vec<String> = examples.iter().map(|example| format!("'{example}', ")).collect();
    format!("{rule} (e.g. {}regex used for validation is '{expression}')", examples.join(" or "))
}

#[cfg(test)]
mod tests {
    use expect_test::{Expect, expect};

    use super::*;

    fn check(problems: Vec<String>, expected: Expect) {
        expected.assert_eq(&problems.join("\n"));
    }

    #[test]
    fn api_160_labels_have_no_dots_and_63_bytes() {
        check(dns_label("web-1"), expect![""]);
        check(dns_label("a.b"), expect!["must not contain dots"]);
        check(
            dns_label(&"A".repeat(64)),
            expect![[r#"
                must be no more than 63 bytes
                a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-', and must start and end with an alphanumeric character (e.g. 'my-name',  or '123-abc', regex used for validation is '[a-z0-9]([-a-z0-9]*[a-z0-9])?')"#]],
        );
    }

    #[test]
    fn api_161_subdomains_join_labels_with_dots() {
        check(dns_subdomain("a.b-c.3"), expect![""]);
        check(
            dns_subdomain("a..b"),
            expect![[
                r#"a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', and must start and end with an alphanumeric character (e.g. 'example.com', regex used for validation is '[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')"#
            ]],
        );
    }

    #[test]
    fn api_162_1035_labels_start_with_a_letter() {
        check(dns_1035_label("web"), expect![""]);
        assert_eq!(dns_1035_label("1web").len(), 1);
    }

    #[test]
    fn api_155_a_prefix_may_end_with_one_dash() {
        assert!(NameFormat::Subdomain.check("web-", true).is_empty());
        assert!(!NameFormat::Subdomain.check("web-", false).is_empty());
        assert!(!NameFormat::Subdomain.check("-", true).is_empty());
    }

    #[test]
    fn api_163_path_segments_can_stand_in_a_url() {
        check(path_segment("system:node"), expect![""]);
        check(path_segment(".."), expect!["may not be '..'"]);
        check(
            path_segment("a/b%"),
            expect![[r#"
                may not contain '/'
                may not contain '%'"#]],
        );
    }

    #[test]
    fn api_164_qualified_names_have_an_optional_prefix() {
        check(qualified_name("example.com/My_Name"), expect![""]);
        check(qualified_name("/x"), expect!["prefix part must be non-empty"]);
        check(
            qualified_name("a/"),
            expect![[r#"
                name part must be non-empty
                name part must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character (e.g. 'MyName',  or 'my.name',  or '123-abc', regex used for validation is '([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]')"#]],
        );
        check(
            qualified_name("a/b/c"),
            expect![[
                r#"a qualified name must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character (e.g. 'MyName',  or 'my.name',  or '123-abc', regex used for validation is '([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]') with an optional DNS subdomain prefix and '/' (e.g. 'example.com/MyName')"#
            ]],
        );
    }

    #[test]
    fn api_165_label_values_may_be_empty() {
        check(label_value(""), expect![""]);
        check(label_value("A_b.c-1"), expect![""]);
        assert_eq!(label_value("-a").len(), 1);
        assert_eq!(label_value(&"a".repeat(64)), ["must be no more than 63 bytes"]);
    }

    #[test]
    fn api_166_port_names() {
        check(port_name("http-2"), expect![""]);
        check(
            port_name("-0--very-long-number"),
            expect![[r#"
                must be no more than 15 characters
                must not contain consecutive hyphens
                must not begin or end with a hyphen"#]],
        );
        check(port_name("80"), expect!["must contain at least one letter (a-z)"]);
    }

    #[test]
    fn api_168_config_keys() {
        check(config_key("app.conf_1"), expect![""]);
        check(config_key(".."), expect!["must not be '..'"]);
        check(config_key("..x"), expect!["must not start with '..'"]);
        check(
            config_key("a/b"),
            expect![[
                r#"a valid config key must consist of alphanumeric characters, '-', '_' or '.' (e.g. 'key.name',  or 'KEY_NAME',  or 'key-name', regex used for validation is '[-._a-zA-Z0-9]+')"#
            ]],
        );
    }

    #[test]
    fn api_169_environment_names_are_printable_ascii_without_equals() {
        check(env_name("my var.1"), expect![""]);
        assert_eq!(env_name("a=b").len(), 1);
        assert_eq!(env_name("é").len(), 1);
    }
}
