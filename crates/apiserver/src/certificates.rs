//! Requests for certificates: who asks, what they ask for, and who may answer
//! (API-358, API-743, API-767). Nothing is signed here.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use objects::FieldError;
use objects::kinds::certificate_request::{KIND, REQUESTER};
use serde_json::{Value, json};
use x509_parser::pem::Pem;

use crate::api::{Api, Call};
use crate::auth::Identity;
use crate::authz::{Access, Object, Resource};
use crate::error::ApiError;
use crate::object;

mod request;

pub use request::{AlternativeName, CertificateRequest, Subject};

/// The signer of certificates that anyone could be.
const CLIENT_SIGNER: &str = "kubernetes.io/kube-apiserver-client";
const MASTERS: &str = "system:masters";

/// API-743: who asks is not theirs to say.
pub(crate) fn stamp(caller: &Identity, doc: &mut Value) {
    let spec = object::object_mut(doc, "spec");
    for field in REQUESTER {
        spec.shift_remove(field);
    }
    spec.insert("username".to_owned(), json!(caller.user));
    spec.insert("groups".to_owned(), json!(caller.groups));
    if !caller.uid.is_empty() {
        spec.insert("uid".to_owned(), json!(caller.uid));
    }
    if !caller.extra.is_empty() {
        spec.insert("extra".to_owned(), json!(caller.extra));
    }
}

/// API-767: signed by the key it is for; and nobody becomes a master this way.
pub(crate) fn check_create(doc: &Value) -> Result<(), ApiError> {
    let name = object::name(doc);
    let asked = asked(doc).map_err(|problem| {
        let request = object::text(doc, &["spec", "request"]);
        ApiError::invalid(&KIND, name, vec![FieldError::invalid("spec.request", request, problem)])
    })?;
    let is_master = asked.subject.organizations.iter().any(|group| group == MASTERS);
    if object::text(doc, &["spec", "signerName"]) == CLIENT_SIGNER && is_master {
        let detail = format!("use of {CLIENT_SIGNER} signer with {MASTERS} group is not allowed");
        return Err(ApiError::denied(&KIND, name, detail));
    }
    Ok(())
}

/// What a request asks for.
pub(crate) fn asked(doc: &Value) -> Result<CertificateRequest, String> {
    let pem = STANDARD.decode(object::text(doc, &["spec", "request"])).map_err(|error| error.to_string())?;
    CertificateRequest::read(&pem)
}

/// Who may approve, and who may put a certificate in: both per signer.
pub(crate) async fn check_update(api: &Api, call: &Call, doc: &Value, old: &Value) -> Result<(), ApiError> {
    let changes = |path: &[&str]| object::at(doc, path) != object::at(old, path);
    let verb = match call.path.subresource.as_deref() {
        Some("approval") => "approve",
        Some("status") if changes(&["status", "certificate"]) || changes(&["status", "conditions"]) => "sign",
        _ => return Ok(()),
    };
    let signer = object::text(old, &["spec", "signerName"]);
    let whole_domain = signer.split_once('/').map(|(domain, _)| format!("{domain}/*")).unwrap_or_default();
    for name in [signer, &whole_domain] {
        let resource = Resource {
            group: KIND.group.to_owned(),
            resource: "signers".to_owned(),
            name: name.to_owned(),
            ..Resource::default()
        };
        let access = Access { verb: verb.to_owned(), to: Object::Resource(resource) };
        if api.authorizer.allows(api, &call.caller, &access).await? {
            return Ok(());
        }
    }
    let detail = format!("user not permitted to {verb} requests with signerName {signer:?}");
    Err(ApiError::denied(&KIND, call.name(), detail))
}

/// What is put in is certificates, and conditions get the times they lack.
pub(crate) fn finish_update(doc: &mut Value, old: &Value, now: &str) -> Option<FieldError> {
    for condition in doc.pointer_mut("/status/conditions").and_then(Value::as_array_mut).into_iter().flatten() {
        if condition["lastUpdateTime"].is_null() {
            condition["lastUpdateTime"] = json!(now);
        }
        if condition["lastTransitionTime"].is_null() {
            let known = old.pointer("/status/conditions").and_then(Value::as_array).into_iter().flatten();
            let same = known
                .into_iter()
                .find(|known| known["type"] == condition["type"] && known["status"] == condition["status"])
                .map(|known| known["lastTransitionTime"].clone());
            condition["lastTransitionTime"] = same.filter(|time| !time.is_null()).unwrap_or_else(|| json!(now));
        }
    }
    let certificate = object::text(doc, &["status", "certificate"]);
    let problem = if certificate.is_empty() { None } else { check_certificates(certificate).err() };
    problem.map(|problem| FieldError::invalid("status.certificate", "<certificate data>", problem))
}

fn check_certificates(text: &str) -> Result<(), String> {
    let pem = STANDARD.decode(text).map_err(|error| error.to_string())?;
    let mut count = 0;
    for block in Pem::iter_from_buffer(&pem) {
        let block = block.map_err(|error| error.to_string())?;
        if block.label != "CERTIFICATE" {
            return Err(format!("only CERTIFICATE PEM blocks are allowed, found {:?}", block.label));
        }
        block.parse_x509().map_err(|error| error.to_string())?;
        count += 1;
    }
    if count == 0 { Err("must contain at least one CERTIFICATE PEM block".to_owned()) } else { Ok(()) }
}
