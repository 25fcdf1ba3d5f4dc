//! Bootstrap tokens: how a machine that is nobody yet shows that it may become
//! a node (API-640). A token is a Secret in `kube-system`, so it is made,
//! limited and revoked like any other object.

use ambient::Timestamp;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use objects::kinds::secret;
use serde_json::Value;
use sha2::{Digest as _, Sha256};
use store::Store;

use crate::auth::Identity;
use crate::error::ApiError;
use crate::object;

const NAMESPACE: &str = "kube-system";
const TYPE: &str = "bootstrap.kubernetes.io/token";
const GROUP: &str = "system:bootstrappers";

/// Id and secret of something that looks like such a token.
pub(crate) fn parts(token: &str) -> Option<(&str, &str)> {
    let (id, secret) = token.split_once('.')?;
    let is_made_of = |text: &str| text.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit());
    (id.len() == 6 && secret.len() == 16 && is_made_of(id) && is_made_of(secret)).then_some((id, secret))
}

pub(crate) async fn identity(
    store: &dyn Store,
    id: &str,
    secret: &str,
    now: Timestamp,
) -> Result<Option<Identity>, ApiError> {
    let key = object::key(&secret::KIND, Some(NAMESPACE), &format!("bootstrap-token-{id}"));
    let Some(entry) = store.get(&key).await? else { return Ok(None) };
    Ok(bearer(&object::document(&entry), id, secret, now))
}

/// None: nobody. What can not be read is never in the bearer's favour.
fn bearer(token: &Value, id: &str, secret: &str, now: Timestamp) -> Option<Identity> {
    let is_alive = object::at(token, &["metadata", "deletionTimestamp"]).is_null() && token["type"] == TYPE;
    let is_known = value(token, "token-id")? == id && is_same(&value(token, "token-secret")?, secret);
    let is_for_this = value(token, "usage-bootstrap-authentication")? == "true";
    let is_over = match value(token, "expiration")?.as_str() {
        "" => false,
        until => until.parse::<Timestamp>().ok()? <= now,
    };
    if !is_alive || !is_known || is_over || !is_for_this {
        return None;
    }
    let more = value(token, "auth-extra-groups")?;
    let more: Vec<&str> = if more.is_empty() { Vec::new() } else { more.split(',').collect() };
    // Nobody becomes more than someone who may join.
    if !more.iter().all(|group| is_group(group)) {
        return None;
    }
    let groups: Vec<&str> = std::iter::once(GROUP).chain(more).collect();
    Some(Identity::new(format!("system:bootstrap:{id}"), groups))
}

/// Empty if it is not there; None if it is not text.
fn value(token: &Value, key: &str) -> Option<String> {
    match object::at(token, &["data", key]) {
        Value::Null => Some(String::new()),
        data => String::from_utf8(STANDARD.decode(data.as_str()?).ok()?).ok(),
    }
}

fn is_group(name: &str) -> bool {
    let Some(rest) = name.strip_prefix("system:bootstrappers:") else { return false };
    let fits = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit();
    !rest.is_empty()
        && rest.len() <= 256
        && rest.bytes().all(|b| fits(b) || b == b':' || b == b'-')
        && rest.bytes().last().is_some_and(fits)
}

/// Takes as long whether the first character differs or the last.
fn is_same(one: &str, other: &str) -> bool {
    let digests = [one, other].map(Sha256::digest);
    digests[0].iter().zip(&digests[1]).fold(0, |different, (a, b)| different | (a ^ b)) == 0
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn token(change: impl FnOnce(&mut Value)) -> Value {
        let data = |pairs: &[(&str, &str)]| -> Value {
            pairs.iter().map(|(key, value)| ((*key).to_owned(), json!(STANDARD.encode(value)))).collect()
        };
        let mut token = json!({"metadata": {}, "type": TYPE, "data": data(&[
            ("token-id", "abcdef"), ("token-secret", "0123456789abcdef"), ("usage-bootstrap-authentication", "true"),
            ("expiration", "2026-01-02T00:00:00Z"), ("auth-extra-groups", "system:bootstrappers:team-a,system:bootstrappers:b"),
        ])});
        change(&mut token);
        token
    }

    fn check(token: &Value, secret: &str) -> Option<Vec<String>> {
        let now = ambient::Clock::manual().now().wall;
        bearer(token, "abcdef", secret, now).map(|identity| {
            assert_eq!(identity.user, "system:bootstrap:abcdef");
            identity.groups
        })
    }

    #[test]
    fn api_640_a_token_says_who_may_join() {
        let groups = check(&token(|_| {}), "0123456789abcdef").unwrap();
        let expected =
            ["system:bootstrappers", "system:bootstrappers:team-a", "system:bootstrappers:b", "system:authenticated"];
        assert_eq!(groups, expected);
        assert_eq!(check(&token(|_| {}), "0123456789abcdee"), None);
        let encoded = |text: &str| json!(STANDARD.encode(text));
        for (name, change) in [
            (
                "expired",
                Box::new(|it: &mut Value| it["data"]["expiration"] = encoded("2025-12-31T00:00:00Z"))
                    as Box<dyn Fn(&mut Value)>,
            ),
            ("for something else", Box::new(|it| it["data"]["usage-bootstrap-authentication"] = encoded("false"))),
            ("of another type", Box::new(|it| it["type"] = json!("Opaque"))),
            ("being deleted", Box::new(|it| it["metadata"]["deletionTimestamp"] = json!("2026-01-01T00:00:00Z"))),
            ("of another id", Box::new(|it| it["data"]["token-id"] = encoded("zzzzzz"))),
            ("of masters", Box::new(|it| it["data"]["auth-extra-groups"] = encoded("system:masters"))),
            ("without an end that can be read", Box::new(|it| it["data"]["expiration"] = encoded("tomorrow"))),
            ("with an end that is not text", Box::new(|it| it["data"]["expiration"] = json!("/w=="))),
            ("with an end that is not base64", Box::new(|it| it["data"]["expiration"] = json!("?"))),
            ("with an end that is a number", Box::new(|it| it["data"]["expiration"] = json!(1))),
            ("ending now", Box::new(|it| it["data"]["expiration"] = encoded("2026-01-01T00:00:00Z"))),
            ("for nothing", Box::new(|it| it["data"]["usage-bootstrap-authentication"] = json!(null))),
            ("for True", Box::new(|it| it["data"]["usage-bootstrap-authentication"] = encoded("True"))),
            ("for true and more", Box::new(|it| it["data"]["usage-bootstrap-authentication"] = encoded("true\n"))),
            ("without a secret", Box::new(|it| it["data"]["token-secret"] = json!(null))),
            ("of unreadable groups", Box::new(|it| it["data"]["auth-extra-groups"] = json!("/w=="))),
            (
                "of an empty group",
                Box::new(|it| {
                    it["data"]["auth-extra-groups"] = encoded("system:bootstrappers:a,,system:bootstrappers:b")
                }),
            ),
            ("of no group", Box::new(|it| it["data"]["auth-extra-groups"] = encoded("system:bootstrappers:"))),
        ] {
            assert_eq!(check(&token(|it| change(it)), "0123456789abcdef"), None, "a token that is {name}");
        }
    }

    #[test]
    fn api_640_a_token_without_an_end_or_groups_is_one() {
        let plain = token(|it| {
            for key in ["expiration", "auth-extra-groups"] {
                it["data"].as_object_mut().unwrap().shift_remove(key);
            }
        });
        assert_eq!(check(&plain, "0123456789abcdef").unwrap(), ["system:bootstrappers", "system:authenticated"]);
        assert_eq!(check(&plain, ""), None);
    }

    #[test]
    fn api_640_what_looks_like_a_token() {
        assert_eq!(parts("abcdef.0123456789abcdef"), Some(("abcdef", "0123456789abcdef")));
        for other in ["abcdef", "abcdef.0123", "ABCDEF.0123456789abcdef", "a.b.c", "abcdef.0123456789abcde."] {
            assert_eq!(parts(other), None, "{other}");
        }
    }
}
