//! What every namespace has: a service account `default` and the certificate of
//! the API server's authority, for pods to trust (API-708).

use std::collections::BTreeMap;

use objects::api::core::v1::{ConfigMap, Namespace};
use objects::apimachinery::pkg::apis::meta::v1::ObjectMeta;

pub const ACCOUNT: &str = "default";
pub const AUTHORITY: &str = "kube-root-ca.crt";
const AUTHORITY_KEY: &str = "ca.crt";

/// One namespace as it is seen.
pub struct Snapshot<'a> {
    pub namespace: &'a Namespace,
    pub has_account: bool,
    pub authority: Option<&'a ConfigMap>,
}

#[derive(Debug, Clone, PartialEq)]
pub enum Write {
    CreateAccount,
    CreateAuthority(Box<ConfigMap>),
    ReplaceAuthority(Box<ConfigMap>),
}

/// Nothing is made in a namespace that is going away.
pub fn plan(seen: &Snapshot<'_>, certificate: &str) -> Vec<Write> {
    if seen.namespace.metadata.deletion_timestamp.is_some() {
        return Vec::new();
    }
    let mut writes = Vec::new();
    if !seen.has_account {
        writes.push(Write::CreateAccount);
    }
    let data = BTreeMap::from([(AUTHORITY_KEY.to_owned(), certificate.to_owned())]);
    match seen.authority {
        None => writes.push(Write::CreateAuthority(Box::new(authority(seen.namespace, data)))),
        Some(known) if known.data.as_ref() != Some(&data) => {
            let fresh = ConfigMap { data: Some(data), binary_data: None, ..known.clone() };
            writes.push(Write::ReplaceAuthority(Box::new(fresh)));
        }
        Some(_) => {}
    }
    writes
}

fn authority(namespace: &Namespace, data: BTreeMap<String, String>) -> ConfigMap {
    let description = "Contains a CA bundle that can be used to verify the kube-apiserver when using internal endpoints \
        such as the internal service IP or kubernetes.default.svc. No other usage is guaranteed across distributions \
        of Kubernetes clusters.";
    ConfigMap {
        metadata: ObjectMeta {
            name: Some(AUTHORITY.to_owned()),
            namespace: namespace.metadata.name.clone(),
            annotations: Some(BTreeMap::from([("kubernetes.io/description".to_owned(), description.to_owned())])),
            ..ObjectMeta::default()
        },
        data: Some(data),
        ..ConfigMap::default()
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn api_708_a_namespace_gets_what_it_lacks_and_nothing_when_it_goes() {
        let namespace =
            |meta: serde_json::Value| -> Namespace { serde_json::from_value(json!({"metadata": meta})).unwrap() };
        let open = namespace(json!({"name": "team"}));
        let writes = plan(&Snapshot { namespace: &open, has_account: false, authority: None }, "CERT");
        let [Write::CreateAccount, Write::CreateAuthority(made)] = &writes[..] else { panic!("{writes:?}") };
        assert_eq!(made.metadata.namespace.as_deref(), Some("team"));
        let settled = Snapshot { namespace: &open, has_account: true, authority: Some(made) };
        assert_eq!(plan(&settled, "CERT"), []);
        let changed = plan(&settled, "NEW");
        let [Write::ReplaceAuthority(fresh)] = &changed[..] else { panic!("{changed:?}") };
        assert_eq!(fresh.data.as_ref().unwrap()["ca.crt"], "NEW");
        let dying = namespace(json!({"name": "team", "deletionTimestamp": "2026-01-01T00:00:00Z"}));
        assert_eq!(plan(&Snapshot { namespace: &dying, has_account: false, authority: None }, "CERT"), []);
    }
}
