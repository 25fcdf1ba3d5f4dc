//! Requests for certificates: which the cluster approves by itself, and which
//! approved ones it signs. Nodes join by this.
//!
//! Approved are only client certificates of nodes, and only for those whom the
//! rules allow to ask (`certificatesigningrequests/nodeclient`, `…/selfnodeclient`).

use std::collections::BTreeSet;
use std::time::Duration;

use ambient::Timestamp;
use objects::api::certificates::v1::CertificateSigningRequest;

pub const CLIENT: &str = "kubernetes.io/kube-apiserver-client";
pub const NODE_CLIENT: &str = "kubernetes.io/kube-apiserver-client-kubelet";
pub const NODE_SERVING: &str = "kubernetes.io/kubelet-serving";

/// A year: no certificate is valid for longer.
pub const LIFE_SECONDS_MAX: i64 = 365 * 24 * 3600;

const NODES: &str = "system:nodes";
const MASTERS: &str = "system:masters";
const NODE_PREFIX: &str = "system:node:";

/// What a request asks for, read from its PKCS#10.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Asked {
    pub common_name: String,
    pub organizations: Vec<String>,
    pub dns: usize,
    pub ips: usize,
    pub emails: usize,
    pub uris: usize,
}

/// What to do about a request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Step {
    /// Ask whether the sender may `create` one of these subresources of
    /// requests, in order; approve with the message of the first that it may.
    Review(Vec<(&'static str, &'static str)>),
    Sign {
        usages: Vec<String>,
        seconds: i64,
    },
    /// It was approved, and can not be signed.
    Fail {
        message: String,
    },
}

pub const APPROVED_REASON: &str = "AutoApproved";
pub const FAILED_REASON: &str = "SignerValidationFailure";

/// `None`: nothing, now or ever.
pub fn plan(request: &CertificateSigningRequest, asked: Option<&Asked>) -> Option<Step> {
    let status = request.status.as_ref();
    let has = |kind: &str| {
        let conditions = status.and_then(|status| status.conditions.as_ref());
        conditions.into_iter().flatten().any(|condition| condition.type_ == kind)
    };
    let is_issued = status.and_then(|status| status.certificate.as_ref()).is_some_and(|it| !it.0.is_empty());
    if is_issued || has("Denied") || has("Failed") {
        return None;
    }
    let usages = request.spec.usages.clone().unwrap_or_default();
    if has("Approved") { sign(request, asked, usages) } else { review(request, asked?, &usages) }
}

/// Time between two looks at what is left over.
pub const CLEANING_PERIOD: Duration = Duration::from_secs(3600);
/// How long a request stays that was answered, and one that nobody answered
/// or signed.
const ANSWERED_SECONDS: i64 = 3600;
const WAITING_SECONDS: i64 = 24 * 3600;

/// Whether nobody needs a request any more (API-687: agents make new ones
/// again and again).
pub fn is_over(request: &CertificateSigningRequest, now: Timestamp) -> bool {
    let is_older =
        |time: Option<&Timestamp>, seconds: i64| time.is_some_and(|time| now.as_second() - time.as_second() > seconds);
    let status = request.status.as_ref();
    let is_issued = status.and_then(|status| status.certificate.as_ref()).is_some_and(|it| !it.0.is_empty());
    let conditions = status.and_then(|status| status.conditions.as_deref()).unwrap_or_default();
    if conditions.is_empty() {
        return is_older(request.metadata.creation_timestamp.as_ref().map(|time| &time.0), WAITING_SECONDS);
    }
    conditions.iter().any(|condition| {
        let seconds = match condition.type_.as_str() {
            "Denied" | "Failed" => ANSWERED_SECONDS,
            "Approved" if is_issued => ANSWERED_SECONDS,
            "Approved" => WAITING_SECONDS,
            _ => return false,
        };
        is_older(condition.last_update_time.as_ref().map(|time| &time.0), seconds)
    })
}

fn review(request: &CertificateSigningRequest, asked: &Asked, usages: &[String]) -> Option<Step> {
    if request.spec.signer_name != NODE_CLIENT || check_client(asked, usages).is_err() {
        return None;
    }
    let own = (request.spec.username.as_deref() == Some(&asked.common_name))
        .then_some(("selfnodeclient", "Auto approving self kubelet client certificate after SubjectAccessReview."));
    let any = ("nodeclient", "Auto approving kubelet client certificate after SubjectAccessReview.");
    Some(Step::Review(own.into_iter().chain([any]).collect()))
}

fn sign(request: &CertificateSigningRequest, asked: Option<&Asked>, usages: Vec<String>) -> Option<Step> {
    let check = match request.spec.signer_name.as_str() {
        NODE_CLIENT => check_client,
        NODE_SERVING => check_serving,
        CLIENT => check_any_client,
        // Somebody else's.
        _ => return None,
    };
    let unreadable = || "PEM block type must be CERTIFICATE REQUEST".to_owned();
    match asked.ok_or_else(unreadable).and_then(|asked| check(asked, &usages)) {
        Ok(()) => {
            let seconds = request.spec.expiration_seconds.map_or(LIFE_SECONDS_MAX, i64::from).min(LIFE_SECONDS_MAX);
            Some(Step::Sign { usages, seconds })
        }
        Err(message) => Some(Step::Fail { message }),
    }
}

fn check_node(asked: &Asked) -> Result<(), String> {
    if asked.organizations != [NODES] {
        return Err("subject organization is not system:nodes".to_owned());
    }
    if !asked.common_name.starts_with(NODE_PREFIX) {
        return Err("subject common name does not begin with system:node:".to_owned());
    }
    Ok(())
}

/// With or without encipherment, which keys that are not RSA have no use for.
fn check_usages(usages: &[String], purpose: &str) -> Result<(), String> {
    let wanted = BTreeSet::from(["digital signature", "key encipherment", purpose]);
    let mut given: BTreeSet<&str> = usages.iter().map(String::as_str).collect();
    let is_subset = given.is_subset(&wanted);
    given.insert("key encipherment");
    if is_subset && given == wanted {
        return Ok(());
    }
    let wanted: Vec<&str> = wanted.into_iter().collect();
    Err(format!("usages did not match [{}]", wanted.join(" ")))
}

fn check_client(asked: &Asked, usages: &[String]) -> Result<(), String> {
    check_node(asked)?;
    for (count, name) in [(asked.dns, "DNS"), (asked.emails, "Email"), (asked.ips, "IP"), (asked.uris, "URI")] {
        if count > 0 {
            return Err(format!("{name} subjectAltNames are not allowed"));
        }
    }
    check_usages(usages, "client auth")
}

fn check_serving(asked: &Asked, usages: &[String]) -> Result<(), String> {
    check_node(asked)?;
    if asked.dns == 0 && asked.ips == 0 {
        return Err("DNS or IP subjectAltName is required".to_owned());
    }
    for (count, name) in [(asked.emails, "Email"), (asked.uris, "URI")] {
        if count > 0 {
            return Err(format!("{name} subjectAltNames are not allowed"));
        }
    }
    check_usages(usages, "server auth")
}

/// Approved by a person, for anyone but the masters.
fn check_any_client(asked: &Asked, usages: &[String]) -> Result<(), String> {
    if asked.organizations.iter().any(|group| group == MASTERS) {
        return Err(format!("use of {CLIENT} signer with {MASTERS} group is not allowed"));
    }
    let fine = ["digital signature", "key encipherment", "client auth"];
    let is_client = usages.iter().any(|usage| usage == "client auth");
    let is_fine = usages.iter().all(|usage| fine.contains(&usage.as_str()));
    if is_client && is_fine {
        Ok(())
    } else {
        Err(format!("invalid usages for client certificate: {}", usages.join(",")))
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn request(signer: &str, usages: &[&str], status: &Value) -> CertificateSigningRequest {
        serde_json::from_value(json!({"metadata": {"name": "r"}, "status": status,
            "spec": {"request": "eA==", "signerName": signer, "usages": usages, "username": "system:node:a", "expirationSeconds": 3600}}))
        .unwrap()
    }

    fn node() -> Asked {
        Asked { common_name: "system:node:a".into(), organizations: vec![NODES.into()], ..Asked::default() }
    }

    const USAGES: [&str; 2] = ["digital signature", "client auth"];

    #[test]
    fn api_687_a_nodes_client_certificate_is_approved_by_the_rules() {
        let asks = |request: &CertificateSigningRequest, asked: &Asked| match plan(request, Some(asked)) {
            Some(Step::Review(rules)) => rules.iter().map(|(rule, _)| *rule).collect(),
            Some(other) => panic!("{other:?}"),
            None => Vec::new(),
        };
        let plain = request(NODE_CLIENT, &USAGES, &json!({}));
        assert_eq!(asks(&plain, &node()), ["selfnodeclient", "nodeclient"]);
        let other = Asked { common_name: "system:node:b".into(), ..node() };
        assert_eq!(asks(&plain, &other), ["nodeclient"]);
        assert!(asks(&plain, &Asked { organizations: vec!["system:masters".into()], ..node() }).is_empty());
        assert!(asks(&plain, &Asked { dns: 1, ..node() }).is_empty());
        assert!(asks(&plain, &Asked { common_name: "jane".into(), ..node() }).is_empty());
        assert!(asks(&request(NODE_CLIENT, &["server auth"], &json!({})), &node()).is_empty());
        assert!(asks(&request(NODE_SERVING, &USAGES, &json!({})), &node()).is_empty(), "people approve those");
        assert_eq!(plan(&plain, None), None);
    }

    #[test]
    fn api_687_what_is_approved_is_signed_or_said_to_be_wrong() {
        let approved = json!({"conditions": [{"type": "Approved", "status": "True"}]});
        let signs =
            |signer: &str, usages: &[&str], asked: &Asked| plan(&request(signer, usages, &approved), Some(asked));
        let sign = |usages: &[&str]| {
            Some(Step::Sign { usages: usages.iter().map(|usage| (*usage).to_owned()).collect(), seconds: 3600 })
        };
        let fails = |message: &str| Some(Step::Fail { message: message.to_owned() });
        assert_eq!(signs(NODE_CLIENT, &USAGES, &node()), sign(&USAGES));
        let serving = ["digital signature", "key encipherment", "server auth"];
        assert_eq!(signs(NODE_SERVING, &serving, &Asked { ips: 1, ..node() }), sign(&serving));
        assert_eq!(signs(NODE_SERVING, &serving, &node()), fails("DNS or IP subjectAltName is required"));
        assert_eq!(
            signs(NODE_SERVING, &USAGES, &Asked { dns: 1, ..node() }),
            fails("usages did not match [digital signature key encipherment server auth]")
        );
        assert_eq!(signs(CLIENT, &["client auth"], &Asked::default()), sign(&["client auth"]));
        let master = Asked { organizations: vec!["dev".into(), MASTERS.into()], ..Asked::default() };
        let refused = "use of kubernetes.io/kube-apiserver-client signer with system:masters group is not allowed";
        assert_eq!(signs(CLIENT, &["client auth"], &master), fails(refused));
        assert_eq!(signs("example.com/s", &USAGES, &node()), None);
        for done in ["Denied", "Failed"] {
            let status =
                json!({"conditions": [{"type": "Approved", "status": "True"}, {"type": done, "status": "True"}]});
            assert_eq!(plan(&request(NODE_CLIENT, &USAGES, &status), Some(&node())), None);
        }
        let issued = json!({"conditions": [{"type": "Approved", "status": "True"}], "certificate": "eA=="});
        assert_eq!(plan(&request(NODE_CLIENT, &USAGES, &issued), Some(&node())), None);
    }

    #[test]
    fn api_687_what_was_answered_goes_after_an_hour_and_what_was_not_after_a_day() {
        let at = |hours: i64| Timestamp::from_second(hours * 3600 + 1).unwrap();
        let with = |kind: &str, certificate: &str| {
            let condition = json!({"type": kind, "status": "True", "lastUpdateTime": "1970-01-01T00:00:00Z"});
            request(NODE_CLIENT, &USAGES, &json!({"conditions": [condition], "certificate": certificate}))
        };
        for (request, hours) in [
            (with("Approved", "eA=="), 1),
            (with("Denied", ""), 1),
            (with("Failed", ""), 1),
            (with("Approved", ""), 24),
        ] {
            assert!(!is_over(&request, at(hours - 1)), "{request:?}");
            assert!(is_over(&request, at(hours)), "{request:?}");
        }
        let mut pending = request(NODE_CLIENT, &USAGES, &json!({}));
        assert!(!is_over(&pending, at(1000)), "nobody knows how old it is");
        pending.metadata = serde_json::from_value(json!({"creationTimestamp": "1970-01-01T00:00:00Z"})).unwrap();
        assert!(!is_over(&pending, at(23)) && is_over(&pending, at(24)));
    }
}
