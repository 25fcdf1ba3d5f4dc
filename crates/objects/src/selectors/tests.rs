//! Label and field selectors.

use std::collections::BTreeMap;

use expect_test::{Expect, expect};

use super::*;

fn labels(text: &str) -> BTreeMap<String, String> {
    text.split(',')
        .filter_map(|pair| pair.split_once('='))
        .map(|(key, value)| (key.to_owned(), value.to_owned()))
        .collect()
}

fn refused(text: &str, expected: Expect) {
    expected.assert_eq(&LabelSelector::parse(text).unwrap_err().to_string());
}

#[test]
fn api_215_every_operator_matches_as_upstream() {
    for (selector, object, expected) in [
        ("", "a=b", true),
        ("a=b", "a=b", true),
        ("a==b", "a=c", false),
        ("a!=b", "", true),
        ("a!=b", "a=b", false),
        ("a in (b, c)", "a=c", true),
        ("a in (b,c)", "", false),
        ("a notin (b,c)", "", true),
        ("a notin (b,c)", "a=b", false),
        ("a", "a=", true),
        ("a", "b=c", false),
        ("!a", "b=c", true),
        ("!a", "a=c", false),
        ("a>1", "a=2", true),
        ("a>2", "a=2", false),
        ("a<2", "a=x", false),
        ("a=", "a=", true),
        ("a in ()", "a=", true),
        ("a=b,c=d", "a=b,c=d", true),
        ("a=b,c=d", "a=b", false),
        ("in in (in)", "in=in", true),
        (" a = b , c ", "a=b,c=1", true),
    ] {
        assert_eq!(
            LabelSelector::parse(selector).unwrap().matches(&labels(object)),
            expected,
            "{selector} on {object}"
        );
    }
}

#[test]
fn api_215_selectors_print_sorted_by_key() {
    let print = |text| LabelSelector::parse(text).unwrap().to_string();
    assert_eq!(print("z, a in (y,x),!m,n!=1,g>3"), "a in (x,y),g>3,!m,n!=1,z");
}

#[test]
fn api_215_syntax_errors_say_what_was_expected() {
    refused("a b", expect!["unable to parse requirement: found 'b', expected: in, notin, =, ==, !=, gt, lt"]);
    refused("a,", expect!["found '', expected: identifier after ','"]);
    refused("=a", expect!["found '=', expected: !, identifier, or 'end of string'"]);
    refused("a in b", expect!["unable to parse requirement: found 'b' expected: '('"]);
    refused("a in (b", expect!["unable to parse requirement: found '', expected: ',' or ')'"]);
    refused("a=b c", expect!["found 'c', expected: ',' or 'end of string'"]);
    refused(
        "a>x",
        expect![[
            r#"unable to parse requirement: values: Invalid value: "x": for 'Gt', 'Lt' operators, the value must be an integer"#
        ]],
    );
    refused(
        "-a",
        expect![[
            r#"unable to parse requirement: <nil>: Invalid value: "-a": name part must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character (e.g. 'MyName',  or 'my.name',  or '123-abc', regex used for validation is '([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]')"#
        ]],
    );
}

#[test]
fn typed_selectors_match_and_an_absent_one_matches_nothing() {
    let typed = serde_json::from_str(
        r#"{"matchLabels": {"a": "b"}, "matchExpressions": [{"key": "c", "operator": "NotIn", "values": ["d"]}]}"#,
    )
    .unwrap();
    let selector = LabelSelector::from_typed(Some(&typed)).unwrap();
    assert!(selector.matches(&labels("a=b")));
    assert!(!selector.matches(&labels("a=b,c=d")));
    assert!(!LabelSelector::from_typed(None).unwrap().matches(&labels("a=b")));
    let empty = serde_json::from_str("{}").unwrap();
    assert!(LabelSelector::from_typed(Some(&empty)).unwrap().is_everything());
    let odd = serde_json::from_str(r#"{"matchExpressions": [{"key": "c", "operator": "Near"}]}"#).unwrap();
    let error = LabelSelector::from_typed(Some(&odd)).unwrap_err();
    assert_eq!(error.to_string(), r#""Near" is not a valid label selector operator"#);
}

#[test]
fn api_216_field_selectors_match_with_three_operators() {
    let fields = [("metadata.name", "a".to_owned()), ("spec.nodeName", String::new()), ("x", "a,b=c\\".to_owned())];
    for (selector, expected) in [
        ("", true),
        ("metadata.name=a", true),
        ("metadata.name==a,spec.nodeName=", true),
        ("metadata.name!=a", false),
        ("spec.nodeName!=", false),
        (r"x=a\,b\=c\\", true),
    ] {
        assert_eq!(FieldSelector::parse(selector).unwrap().matches(&fields), expected, "{selector}");
    }
    assert_eq!(FieldSelector::parse("metadata.name=a").unwrap().exact("metadata.name"), Some("a"));
    assert_eq!(FieldSelector::parse("metadata.name!=a").unwrap().exact("metadata.name"), None);
}

#[test]
fn api_216_bad_field_selectors_are_refused() {
    let error = |text| FieldSelector::parse(text).unwrap_err().to_string();
    assert_eq!(error("a"), r#"invalid selector: "a"; can't understand "a""#);
    assert_eq!(error("a=b=c"), r#"invalid field selector: unescaped character: "=""#);
    assert_eq!(error(r"a=\b"), r#"invalid field selector: invalid escape sequence: "\\b""#);
    let selector = FieldSelector::parse("spec.color=red").unwrap();
    let error = selector.check_supported(&[("metadata.name", String::new())]).unwrap_err();
    assert_eq!(error.to_string(), "field label not supported: spec.color");
}
