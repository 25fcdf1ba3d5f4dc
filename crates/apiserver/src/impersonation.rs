//! Acting as someone else (API-654): allowed by the verb `impersonate`, for
//! the user, each group, the uid and each extra value.

use http::{HeaderMap, HeaderName};

use crate::api::Api;
use crate::auth::{ANONYMOUS, AUTHENTICATED, Identity, UNAUTHENTICATED};
use crate::authz::{self, Access, Object, Resource};
use crate::error::ApiError;

const USER: &str = "impersonate-user";
const GROUP: &str = "impersonate-group";
const UID: &str = "impersonate-uid";
const EXTRA: &str = "impersonate-extra-";

/// Who the request is to be seen as, if headers name another than the caller.
/// They are removed, so that nobody further on believes them.
pub(crate) async fn apply(api: &Api, caller: &Identity, headers: &mut HeaderMap) -> Result<Option<Identity>, ApiError> {
    let wanted = Wanted::of(headers);
    if wanted.is_empty() {
        return Ok(None);
    }
    wanted.check()?;
    for access in wanted.accesses() {
        authz::require(api, caller, &access).await?;
    }
    let mut others = HeaderMap::with_capacity(headers.keys_len());
    for (name, value) in headers.iter().filter(|(name, _)| !is_ours(name)) {
        others.append(name, value.clone());
    }
    *headers = others;
    Ok(Some(wanted.identity()))
}

fn is_ours(name: &HeaderName) -> bool {
    matches!(name.as_str(), USER | GROUP | UID) || name.as_str().starts_with(EXTRA)
}

#[derive(Debug, Default)]
struct Wanted {
    user: String,
    groups: Vec<String>,
    uid: String,
    /// Key and value.
    extra: Vec<(String, String)>,
}

impl Wanted {
    fn of(headers: &HeaderMap) -> Self {
        let mut wanted = Self::default();
        for (name, value) in headers.iter().filter(|(name, _)| is_ours(name)) {
            let value = String::from_utf8_lossy(value.as_bytes()).into_owned();
            match name.as_str() {
                USER if wanted.user.is_empty() => wanted.user = value,
                UID if wanted.uid.is_empty() => wanted.uid = value,
                GROUP => wanted.groups.push(value),
                name => {
                    if let Some(key) = name.strip_prefix(EXTRA) {
                        wanted.extra.push((unescape(key), value));
                    }
                }
            }
        }
        wanted
    }

    fn is_empty(&self) -> bool {
        self.user.is_empty() && self.groups.is_empty() && self.uid.is_empty() && self.extra.is_empty()
    }

    fn check(&self) -> Result<(), ApiError> {
        if !self.user.is_empty() {
            return Ok(());
        }
        // As Go prints references to objects.
        let of_groups = self.groups.iter().map(|group| format!("{{Group  {group}    }}"));
        let v1 = "authentication.k8s.io/v1";
        let of_extra = self.extra.iter().map(|(key, value)| format!("{{UserExtra  {value}  {v1}  {key}}}"));
        let of_uid = Some(&self.uid).filter(|uid| !uid.is_empty()).map(|uid| format!("{{UID  {uid}  {v1}  }}"));
        let all: Vec<String> = of_groups.chain(of_extra).chain(of_uid).collect();
        Err(ApiError::BadRequest(format!("requested [{}] without impersonating a user", all.join(" "))))
    }

    /// Namespace and name, if it is a service account.
    fn account(&self) -> Option<(&str, &str)> {
        let (namespace, name) = self.user.strip_prefix("system:serviceaccount:")?.split_once(':')?;
        (!namespace.is_empty() && !name.is_empty() && !name.contains(':')).then_some((namespace, name))
    }

    /// Everything the caller must be allowed.
    fn accesses(&self) -> Vec<Access> {
        let access = |group: &str, resource: &str, name: &str| Resource {
            group: group.to_owned(),
            resource: resource.to_owned(),
            name: name.to_owned(),
            ..Resource::default()
        };
        let of_user = match self.account() {
            Some((namespace, name)) => {
                Resource { namespace: namespace.to_owned(), ..access("", "serviceaccounts", name) }
            }
            None => access("", "users", &self.user),
        };
        let mut all = vec![of_user];
        all.extend(self.groups.iter().map(|group| access("", "groups", group)));
        all.extend(self.extra.iter().map(|(key, value)| Resource {
            subresource: key.clone(),
            ..access("authentication.k8s.io", "userextras", value)
        }));
        if !self.uid.is_empty() {
            all.push(access("authentication.k8s.io", "uids", &self.uid));
        }
        all.into_iter().map(|to| Access { verb: "impersonate".to_owned(), to: Object::Resource(to) }).collect()
    }

    fn identity(self) -> Identity {
        let mut groups = self.groups.clone();
        if let (Some((namespace, _)), true) = (self.account(), groups.is_empty()) {
            groups = vec!["system:serviceaccounts".to_owned(), format!("system:serviceaccounts:{namespace}")];
        }
        let is_one_of = |names: &[&str]| groups.iter().any(|group| names.contains(&group.as_str()));
        if self.user == ANONYMOUS {
            if !is_one_of(&[UNAUTHENTICATED]) {
                groups.push(UNAUTHENTICATED.to_owned());
            }
        } else if !is_one_of(&[AUTHENTICATED, UNAUTHENTICATED]) {
            groups.push(AUTHENTICATED.to_owned());
        }
        let mut identity = Identity { user: self.user, groups, uid: self.uid, extra: Default::default() };
        for (key, value) in self.extra {
            identity.extra.entry(key).or_default().push(value);
        }
        identity
    }
}

/// What is no escape stands for itself.
fn unescape(key: &str) -> String {
    let mut bytes = Vec::with_capacity(key.len());
    let mut rest = key.as_bytes();
    while let [first, left @ ..] = rest {
        let escaped = (*first == b'%')
            .then(|| left.get(..2).and_then(|digits| std::str::from_utf8(digits).ok()))
            .flatten()
            .and_then(|digits| u8::from_str_radix(digits, 16).ok());
        bytes.push(escaped.unwrap_or(*first));
        rest = if escaped.is_some() { &left[2..] } else { left };
    }
    String::from_utf8(bytes).unwrap_or_else(|_| key.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn wanted(lines: &[(&str, &str)]) -> Wanted {
        let mut headers = HeaderMap::new();
        for (name, value) in lines {
            headers.append(HeaderName::from_bytes(name.as_bytes()).unwrap(), value.parse().unwrap());
        }
        Wanted::of(&headers)
    }

    #[test]
    fn api_654_each_part_is_asked_for() {
        let wanted = wanted(&[
            ("Impersonate-User", "jane"),
            ("Impersonate-Group", "dev"),
            ("Impersonate-Group", "ops"),
            ("Impersonate-Uid", "7"),
            ("Impersonate-Extra-example.com%2fscope", "all"),
        ]);
        let shown: Vec<String> = wanted
            .accesses()
            .into_iter()
            .map(|access| match access.to {
                Object::Resource(to) => format!("{}/{}/{} {}", to.group, to.resource, to.subresource, to.name),
                Object::Path(_) => panic!("no path is impersonated"),
            })
            .collect();
        let expected = [
            "/users/ jane",
            "/groups/ dev",
            "/groups/ ops",
            "authentication.k8s.io/userextras/example.com/scope all",
            "authentication.k8s.io/uids/ 7",
        ];
        assert_eq!(shown, expected);
        let identity = wanted.identity();
        assert_eq!((identity.user.as_str(), identity.uid.as_str()), ("jane", "7"));
        assert_eq!(identity.groups, ["dev", "ops", AUTHENTICATED]);
        assert_eq!(identity.extra["example.com/scope"], ["all"]);
    }

    #[test]
    fn api_654_accounts_have_their_groups_and_strangers_stay_strangers() {
        let account = wanted(&[("impersonate-user", "system:serviceaccount:a:robot")]);
        assert_eq!(account.account(), Some(("a", "robot")));
        let groups = ["system:serviceaccounts", "system:serviceaccounts:a", AUTHENTICATED];
        assert_eq!(account.identity().groups, groups);
        assert_eq!(wanted(&[("impersonate-user", ANONYMOUS)]).identity().groups, [UNAUTHENTICATED]);
    }

    #[test]
    fn api_654_groups_without_a_user_are_refused() {
        let error = wanted(&[("impersonate-group", "dev")]).check().unwrap_err();
        assert_eq!(error.to_string(), "requested [{Group  dev    }] without impersonating a user");
        assert!(wanted(&[("impersonate-user", "jane")]).check().is_ok());
    }
}
