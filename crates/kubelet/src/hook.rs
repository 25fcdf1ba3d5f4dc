//! Runs one lifecycle hook and words its failure (LC-223 to LC-230, TC-061).
//!
//! Never: whether to run it, or what a failure means; that is `lifecycle`'s.

use std::time::Duration;

use cri::{ContainerId, ContainerState, Runtime};
use futures::StreamExt as _;
use lifecycle::{HookSpec, HttpGet, Outcome};

use crate::observe::PodRef;
use crate::outbound::{self, GetError, PROBE_BYTES_MAX, Request, Resolver, Tls, Url};
use crate::probe;

/// LC-225.
const USER_AGENT: &str = "kube-lifecycle/1.35";

/// 128 + SIGKILL
const KILLED: i32 = 137;
/// How long an end may take to be seen; a container that goes on takes it once per hook.
const END_VISIBLE_WITHIN: Duration = Duration::from_secs(1);

/// Whose hook it is.
pub(crate) struct Subject<'a> {
    pub(crate) pod: &'a PodRef,
    pub(crate) container: &'a str,
    pub(crate) id: &'a ContainerId,
    /// Empty while the pod has no address.
    pub(crate) pod_ip: &'a str,
    pub(crate) runtime: &'a dyn Runtime,
    pub(crate) names: Resolver<'a>,
}

/// Ends with the hook or with the container, whichever is first.
pub(crate) async fn run(hook: &HookSpec, subject: &Subject<'_>) -> Outcome {
    match hook {
        HookSpec::Exec { command } => exec(command, subject).await,
        HookSpec::HttpGet(get) => tokio::select! {
            outcome = http(get, subject) => outcome,
            () = gone(subject) => http_failed(get, subject, "context canceled"),
        },
        // LC-227
        HookSpec::Sleep(duration) => tokio::select! {
            () = tokio::time::sleep(*duration) => Outcome::Done,
            () = gone(subject) => sleep_failed(*duration, subject),
        },
        // LC-223: accepted by the API, never by the node.
        HookSpec::TcpSocket => Outcome::Failed("Cannot run handler: invalid handler: tcpSocket".to_owned()),
    }
}

/// LC-224: without a timeout of its own; it dies with the container.
async fn exec(command: &[String], subject: &Subject<'_>) -> Outcome {
    let (error, output) = match subject.runtime.exec_sync(subject.id, command.to_vec(), None).await {
        Ok(done) if done.exit_code == 0 => return Outcome::Done,
        Ok(done) => {
            if done.exit_code == KILLED {
                // The kernel ends a container's first process after all others: a hook whose
                // work that was is killed just before anybody can see it.
                let _ = tokio::time::timeout(END_VISIBLE_WITHIN, gone(subject)).await;
            }
            let stderr = String::from_utf8_lossy(&done.stderr);
            let error = format!("command '{}' exited with {}: {stderr}", command.join(" "), done.exit_code);
            (error, [done.stdout, done.stderr].concat())
        }
        Err(error) => (error.to_string(), Vec::new()),
    };
    let (container, pod) = (subject.container, subject.pod.full_name());
    let output = String::from_utf8_lossy(&output);
    Outcome::Failed(format!(
        "Exec lifecycle hook ([{}]) for Container {container:?} in Pod {pod:?} failed - error: {error}, message: {output:?}",
        command.join(" ")
    ))
}

/// LC-225: whatever it answers is fine.
async fn http(get: &HttpGet, subject: &Subject<'_>) -> Outcome {
    let host = get.host.as_deref().unwrap_or(subject.pod_ip);
    let port = match probe::number(&get.port) {
        Ok(port) => port,
        Err(error) => return http_failed(get, subject, &error),
    };
    let url = Url::new(get.is_https, host, port, &get.path);
    let request = |url: Url, headers| Request {
        url,
        headers,
        user_agent: USER_AGENT,
        deadline: None,
        body_bytes_max: PROBE_BYTES_MAX,
        tls: Tls::Anyone,
        names: subject.names,
    };
    match outbound::get(request(url.clone(), &get.headers)).await {
        Ok(_) => Outcome::Done,
        Err(GetError::Failed(error)) => http_failed(get, subject, &error),
        // LC-226: a server that never spoke TLS is asked once more, but is not
        // told secrets in plain text.
        Err(GetError::PlainHttp(error)) => {
            let is_secret = |name: &str| name.eq_ignore_ascii_case("authorization");
            let headers: Vec<_> = get.headers.iter().filter(|(name, _)| !is_secret(name)).cloned().collect();
            match outbound::get(request(url.with_plain_http(), &headers)).await {
                Ok(_) => Outcome::FellBackToHttp { host: url.authority() },
                Err(_) => http_failed(get, subject, &error),
            }
        }
    }
}

fn http_failed(get: &HttpGet, subject: &Subject<'_>, error: &str) -> Outcome {
    let (path, container, pod) = (&get.path, subject.container, subject.pod.full_name());
    Outcome::Failed(format!(
        "HTTP lifecycle hook ({path}) for Container {container:?} in Pod {pod:?} failed - error: {error}"
    ))
}

fn sleep_failed(duration: Duration, subject: &Subject<'_>) -> Outcome {
    let (seconds, container, pod) = (duration.as_secs(), subject.container, subject.pod.full_name());
    Outcome::Failed(format!(
        "Sleep lifecycle hook ({seconds}) for Container {container:?} in Pod {pod:?} failed - \
         error: container terminated before sleep hook finished"
    ))
}

/// Returns when the container no longer runs.
async fn gone(subject: &Subject<'_>) {
    let uid = &subject.pod.uid;
    // Before the first look, so that nothing is missed in between.
    let mut events = subject.runtime.events().filter(|event| std::future::ready(event.pod_uid == *uid));
    loop {
        let runs =
            |container: &cri::Container| container.id == *subject.id && container.state == ContainerState::Running;
        match subject.runtime.containers(Some(uid)).await {
            Ok(containers) if !containers.iter().any(runs) => return,
            // A runtime that cannot be read says nothing about the container.
            Ok(_) | Err(_) => {}
        }
        if events.next().await.is_none() {
            return std::future::pending().await;
        }
    }
}

#[cfg(test)]
mod tests;
