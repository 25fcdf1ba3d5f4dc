//! CertificateSigningRequest: descriptor and rules (API-058, API-743,
//! API-767). Who asks is written by the server, and it reads the request
//! itself; both are not this file's.

use std::collections::BTreeSet;

use serde_json::{Value, json};

use crate::api::certificates::v1::CertificateSigningRequest;
use crate::doc::{as_object, at, items, items_mut, keep, object, text};
use crate::errors::{Errors, FieldError};
use crate::gates::Gates;
use crate::kinds::{Column, Kind, KindOps, Scope, Subresource};
use crate::meta;
use crate::names::{self, NameFormat};
use crate::printing::{self, or_none};
use crate::schema::{Schema, Typed};

/// API-264.
pub static KIND: Kind = Kind {
    short_names: &["csr"],
    subresources: &[Subresource::Approval, Subresource::Status],
    columns: &[
        Column::NAME,
        Column::AGE,
        Column::text("SignerName", "Requested signer for the request."),
        Column::text("Requestor", "Who asked for the certificate."),
        Column::text("RequestedDuration", "How long the certificate should be valid."),
        Column::text("Condition", "Conditions applied to the request, such as approval or denial."),
    ],
    ..Kind::new(
        "certificates.k8s.io",
        [
            "CertificateSigningRequest",
            "CertificateSigningRequestList",
            "certificatesigningrequests",
            "certificatesigningrequest",
        ],
        Scope::Cluster,
        &RequestOps,
    )
};

/// What a certificate can be used for, sorted as messages show it.
pub const USAGES: [&str; 23] = [
    "any",
    "cert sign",
    "client auth",
    "code signing",
    "content commitment",
    "crl sign",
    "data encipherment",
    "decipher only",
    "digital signature",
    "email protection",
    "encipher only",
    "ipsec end system",
    "ipsec tunnel",
    "ipsec user",
    "key agreement",
    "key encipherment",
    "microsoft sgc",
    "netscape sgc",
    "ocsp signing",
    "s/mime",
    "server auth",
    "signing",
    "timestamping",
];

/// The fields of the spec that say who asks.
pub const REQUESTER: [&str; 4] = ["username", "uid", "groups", "extra"];

const CONDITIONS: &str = "status.conditions";

struct RequestOps;

impl KindOps for RequestOps {
    fn kind(&self) -> &'static Kind {
        &KIND
    }

    fn schema(&self) -> &'static dyn Schema {
        &Typed::<CertificateSigningRequest>::NEW
    }

    fn name_format(&self) -> NameFormat {
        NameFormat::PathSegment
    }

    fn prepare_create(&self, doc: &mut Value, _gates: &Gates) {
        as_object(doc).insert("status".to_owned(), json!({}));
        meta::prepare_create(doc, false);
    }

    /// API-358: what was asked for stays, and so does the answer.
    fn prepare_update(&self, doc: &mut Value, old: &Value, _gates: &Gates) {
        keep(as_object(doc), old, "spec");
        keep(as_object(doc), old, "status");
        meta::prepare_update(doc, old, false);
    }

    /// API-358: whether it is approved is not said here.
    fn prepare_status_update(&self, doc: &mut Value, old: &Value) {
        meta::prepare_status_update(doc, old);
        for kind in ["Approved", "Denied"] {
            let known: Vec<Value> = of_type(old, kind).cloned().collect();
            let mut given: Vec<&mut Value> =
                items_mut(doc, CONDITIONS).iter_mut().filter(|condition| text(condition, "type") == kind).collect();
            if known.len() == given.len() {
                given.iter_mut().zip(known).for_each(|(given, known)| **given = known);
            }
        }
    }

    /// API-358: `approval` changes conditions and nothing else.
    fn prepare_part(&self, _part: Subresource, doc: &mut Value, old: &Value, _gates: &Gates) {
        let conditions = at(doc, CONDITIONS).clone();
        let metadata = at(doc, "metadata").clone();
        *doc = old.clone();
        as_object(doc).insert("metadata".to_owned(), metadata);
        let status = object(doc, "status");
        match conditions {
            Value::Null => drop(status.shift_remove("conditions")),
            conditions => drop(status.insert("conditions".to_owned(), conditions)),
        }
        meta::prepare_update(doc, old, false);
    }

    fn validate_create(&self, doc: &Value, _gates: &Gates) -> Vec<FieldError> {
        let mut errors = Errors(meta::validate_create(doc, Scope::Cluster, self.name_format()));
        spec(&mut errors, doc);
        errors.0
    }

    fn validate_status_update(&self, doc: &Value, old: &Value, _gates: &Gates) -> Vec<FieldError> {
        let mut errors = Errors(Vec::new());
        conditions(&mut errors, doc, old);
        for kind in ["Approved", "Denied"] {
            let (new, known) = (of_type(doc, kind).count(), of_type(old, kind).count());
            if new > known {
                let detail = format!("updates may not add a condition of type \"{kind}\"");
                errors.push(FieldError::forbidden(CONDITIONS, detail));
            }
        }
        let (new, known) = (text(doc, "status.certificate"), text(old, "status.certificate"));
        if new != known && !known.is_empty() {
            let detail = "updates may not modify existing certificate content";
            errors.push(FieldError::forbidden("status.certificate", detail));
        }
        errors.0.extend(meta::validate_update(doc, old));
        errors.0
    }

    fn validate_part(&self, _part: Subresource, doc: &Value, old: &Value, _gates: &Gates) -> Vec<FieldError> {
        let mut errors = Errors(Vec::new());
        conditions(&mut errors, doc, old);
        errors.0.extend(meta::validate_update(doc, old));
        errors.0
    }

    /// API-227.
    fn fields(&self, doc: &Value) -> Vec<(&'static str, String)> {
        let mut fields = meta::fields(doc, Scope::Cluster);
        fields.push(("spec.signerName", text(doc, "spec.signerName").to_owned()));
        fields
    }

    /// API-291.
    fn row(&self, doc: &Value, now: ambient::Now) -> Vec<Value> {
        let seconds = at(doc, "spec.expirationSeconds").as_i64();
        let duration = seconds.map(|seconds| printing::human_duration(jiff::SignedDuration::from_secs(seconds)));
        vec![
            json!(text(doc, "metadata.name")),
            json!(printing::age_of(doc, now)),
            json!(or_none(text(doc, "spec.signerName"))),
            json!(text(doc, "spec.username")),
            json!(duration.as_deref().unwrap_or("<none>")),
            json!(state(doc)),
        ]
    }
}

fn of_type<'a>(doc: &'a Value, kind: &'a str) -> impl Iterator<Item = &'a Value> {
    items(doc, CONDITIONS).iter().filter(move |condition| text(condition, "type") == kind)
}

fn state(doc: &Value) -> String {
    let has = |kind: &str| of_type(doc, kind).next().is_some();
    let mut state = match () {
        () if has("Denied") => "Denied",
        () if has("Approved") => "Approved",
        () => "Pending",
    }
    .to_owned();
    if has("Failed") {
        state.push_str(",Failed");
    }
    if !text(doc, "status.certificate").is_empty() {
        state.push_str(",Issued");
    }
    state
}

/// API-767.
fn spec(errors: &mut Errors, doc: &Value) {
    let usages: Vec<&str> = items(doc, "spec.usages").iter().filter_map(Value::as_str).collect();
    if usages.is_empty() {
        errors.push(FieldError::required("spec.usages", ""));
    }
    for (index, usage) in usages.iter().enumerate().filter(|(_, usage)| !USAGES.contains(usage)) {
        errors.push(FieldError::not_supported(format!("spec.usages[{index}]"), *usage, &USAGES));
    }
    let mut seen = BTreeSet::new();
    for (index, usage) in usages.iter().enumerate() {
        if !seen.insert(usage) {
            errors.push(FieldError::duplicate(format!("spec.usages[{index}]"), *usage));
        }
    }
    signer(errors, "spec.signerName", text(doc, "spec.signerName"));
    if let Some(seconds) = at(doc, "spec.expirationSeconds").as_i64().filter(|seconds| *seconds < 600) {
        let detail = "may not specify a duration less than 600 seconds (10 minutes)";
        errors.push(FieldError::invalid("spec.expirationSeconds", seconds, detail));
    }
}

fn signer(errors: &mut Errors, path: &str, name: &str) {
    if name == "kubernetes.io/legacy-unknown" {
        let detail = "the legacy signerName is not allowed via this API version";
        return errors.push(FieldError::invalid(path, name, detail));
    }
    if name.is_empty() {
        return errors.push(FieldError::required(path, ""));
    }
    let [domain, rest] = name.split('/').collect::<Vec<_>>()[..] else {
        let detail = "must be a fully qualified domain and path of the form 'example.com/signer-name'";
        return errors.push(FieldError::invalid(path, name, detail));
    };
    if domain.len() > 253 {
        errors.push(FieldError::too_long(path, 253));
    }
    // Only the first bad part is told of.
    let mut parts = |whole: &str, check: fn(&str) -> Vec<String>| {
        let first = whole.split('.').map(|part| (part, check(part))).find(|(_, problems)| !problems.is_empty());
        if let Some((part, problems)) = first {
            let told = problems.iter().map(|problem| format!("validating label \"{part}\": {problem}"));
            errors.0.extend(told.map(|detail| FieldError::invalid(path, whole, detail)));
        }
    };
    parts(domain, names::dns_label);
    parts(rest, names::dns_subdomain);
    if !domain.contains('.') {
        let detail = "should be a domain with at least two segments separated by dots";
        errors.push(FieldError::invalid(path, domain, detail));
    }
    const WHOLE_MAX: usize = 253 + 253 + 63 + 1 + 1;
    if name.len() > WHOLE_MAX {
        errors.push(FieldError::too_long(path, WHOLE_MAX));
    }
}

/// What is said about a request stays said, and is not contradicted.
fn conditions(errors: &mut Errors, doc: &Value, old: &Value) {
    let settled = ["Approved", "Denied", "Failed"];
    let mut seen = BTreeSet::new();
    for (index, condition) in items(doc, CONDITIONS).iter().enumerate() {
        let (path, kind) = (format!("{CONDITIONS}[{index}]"), text(condition, "type"));
        if kind.is_empty() {
            errors.push(FieldError::required(format!("{path}.type"), ""));
        }
        let known: &[&str] = if settled.contains(&kind) { &["True"] } else { &["False", "True", "Unknown"] };
        errors.one_of(&format!("{path}.status"), text(condition, "status"), known);
        let other = if kind == "Approved" { "Denied" } else { "Approved" };
        if ["Approved", "Denied"].contains(&kind) && seen.contains(other) {
            let detail = "Approved and Denied conditions are mutually exclusive";
            errors.push(FieldError::invalid(CONDITIONS, kind, detail));
        }
        if !seen.insert(kind) {
            errors.push(FieldError::duplicate(format!("{path}.type"), kind));
        }
    }
    for kind in settled.into_iter().filter(|kind| of_type(doc, kind).count() < of_type(old, kind).count()) {
        let detail = format!("updates may not remove a condition of type \"{kind}\"");
        errors.push(FieldError::forbidden(CONDITIONS, detail));
    }
}
