//! Drives `controllers::certificates`: asks who may, approves, has signed.

use std::collections::BTreeSet;
use std::convert::Infallible;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use ambient::Clock;
use client::{ApiError, Client, Deletion, Scope};
use controllers::certificates::{APPROVED_REASON, CLEANING_PERIOD, FAILED_REASON, Step, is_over, plan};
use objects::api::certificates::v1::CertificateSigningRequest as Request;
use serde_json::{Value, json};

pub use controllers::certificates::Asked;

/// Whoever holds the key of the cluster's authority.
pub trait Signer: fmt::Debug + Send + Sync {
    /// What a request in PEM asks for, if it can be read.
    fn read(&self, request: &[u8]) -> Option<Asked>;

    /// The certificate, in PEM. Subject and names are the request's; what it
    /// is for and how long is not.
    fn sign(&self, request: &[u8], usages: &[String], seconds: i64) -> Result<String, String>;
}

/// Pause before what failed is tried again.
const RETRY: Duration = Duration::from_secs(1);

/// Never returns. Without a signer there is nothing to do.
pub(crate) async fn run(client: Client, signer: Option<Arc<dyn Signer>>) -> Infallible {
    let Some(signer) = signer else { return std::future::pending().await };
    let requests = client.cache::<Request>(Scope::everywhere());
    requests.synced().await;
    let mut news = requests.subscribe();
    let (mut pending, mut failed) = (BTreeSet::<String>::new(), BTreeSet::new());
    loop {
        while let Some(name) = pending.pop_first() {
            let Some(request) = requests.get("", &name) else { continue };
            if let Err(error) = settle(&client, &*signer, &request).await {
                tracing::warn!(request = name, %error, "a request for a certificate waits");
                failed.insert(name);
            }
        }
        tokio::select! {
            biased;
            change = news.next() => drop(pending.insert(change.object().metadata.name.clone().unwrap_or_default())),
            () = tokio::time::sleep(RETRY), if !failed.is_empty() => pending.append(&mut failed),
        }
    }
}

/// Removes requests that nobody needs any more. Never returns.
pub(crate) async fn clean(client: Client, clock: Clock) -> Infallible {
    let mut passes = tokio::time::interval(CLEANING_PERIOD);
    passes.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    loop {
        passes.tick().await;
        let all = match client.list::<Request>(&Scope::everywhere()).await {
            Ok(all) => all,
            Err(error) => {
                tracing::warn!(%error, "requests for certificates could not be listed");
                continue;
            }
        };
        for request in all.items.iter().filter(|request| is_over(request, clock.now().wall)) {
            let how = Deletion { uid: request.metadata.uid.clone(), ..Deletion::default() };
            let name = request.metadata.name.as_deref().unwrap_or_default();
            match client.delete::<Request>("", name, &how).await {
                Ok(()) => tracing::info!(request = name, "removed an old request for a certificate"),
                Err(ApiError::NotFound { .. } | ApiError::Conflict { .. }) => {}
                Err(error) => tracing::warn!(request = name, %error, "a request could not be removed"),
            }
        }
    }
}

async fn settle(client: &Client, signer: &dyn Signer, request: &Request) -> Result<(), ApiError> {
    let pem = &request.spec.request.0;
    let done = match plan(request, signer.read(pem).as_ref()) {
        None => return Ok(()),
        Some(Step::Review(rules)) => {
            let mut message = None;
            for (rule, words) in rules {
                if message.is_none() && may(client, request, rule).await? {
                    message = Some(words);
                }
            }
            // Somebody else may know better.
            let Some(message) = message else { return Ok(()) };
            write(client, request, "approval", with_condition(request, "Approved", APPROVED_REASON, message)).await
        }
        Some(Step::Sign { usages, seconds }) => match signer.sign(pem, &usages, seconds) {
            Ok(certificate) => {
                let mut doc = json!(request);
                doc["status"]["certificate"] = json!(objects::ByteString(certificate.into_bytes()));
                write(client, request, "status", doc).await
            }
            // Trying again would not help.
            Err(message) => {
                write(client, request, "status", with_condition(request, "Failed", FAILED_REASON, &message)).await
            }
        },
        Some(Step::Fail { message }) => {
            write(client, request, "status", with_condition(request, "Failed", FAILED_REASON, &message)).await
        }
    };
    match done {
        // Somebody was faster: we will see it.
        Err(ApiError::Conflict { .. } | ApiError::NotFound { .. }) => Ok(()),
        other => other,
    }
}

fn with_condition(request: &Request, kind: &str, reason: &str, message: &str) -> Value {
    let mut doc = json!(request);
    let condition = json!({"type": kind, "status": "True", "reason": reason, "message": message});
    match doc["status"]["conditions"].as_array_mut() {
        Some(conditions) => conditions.push(condition),
        None => doc["status"]["conditions"] = json!([condition]),
    }
    doc
}

/// The whole object with its version: a change in between makes it fail.
async fn write(client: &Client, request: &Request, part: &str, doc: Value) -> Result<(), ApiError> {
    let name = request.metadata.name.as_deref().unwrap_or_default();
    let path = format!("/apis/certificates.k8s.io/v1/certificatesigningrequests/{name}/{part}");
    send(client, http::Method::PUT, &path, &doc).await.map(drop)
}

/// Whether the rules let the sender of a request ask for this.
async fn may(client: &Client, request: &Request, subresource: &str) -> Result<bool, ApiError> {
    let spec = &request.spec;
    let review = json!({"kind": "SubjectAccessReview", "apiVersion": "authorization.k8s.io/v1", "spec": {
        "user": spec.username, "uid": spec.uid, "groups": spec.groups, "extra": spec.extra,
        "resourceAttributes": {"group": "certificates.k8s.io", "resource": "certificatesigningrequests",
            "verb": "create", "subresource": subresource, "version": "*"},
    }});
    let path = "/apis/authorization.k8s.io/v1/subjectaccessreviews";
    let answer = send(client, http::Method::POST, path, &review).await?;
    Ok(answer["status"]["allowed"] == true)
}

async fn send(client: &Client, method: http::Method, path: &str, body: &Value) -> Result<Value, ApiError> {
    let request = http::Request::builder().method(method).uri(path).header("content-type", "application/json");
    let request = request
        .body(body.to_string().into_bytes())
        .map_err(|error| ApiError::Invalid { message: error.to_string() })?;
    client.request(request).await
}
