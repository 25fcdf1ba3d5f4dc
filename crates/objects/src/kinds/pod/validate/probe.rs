//! Probes, lifecycle hooks and stop signals (API-521 to API-526).

use serde_json::Value;

use super::Errors;
use crate::doc::{at, items, text};
use crate::errors::FieldError;
use crate::meta::invalid_each;
use crate::names;

pub(super) fn all(errors: &mut Errors, container: &Value, path: &str, spec: &Value) {
    let grace = at(spec, "terminationGracePeriodSeconds").as_i64().unwrap_or(30);
    for hook in ["postStart", "preStop"] {
        let handler = at(container, &format!("lifecycle.{hook}"));
        if !handler.is_null() {
            let path = format!("{path}.lifecycle.{hook}");
            handlers(errors, handler, &path, &["exec", "httpGet", "tcpSocket", "sleep"]);
            sleep(errors, handler, &path, grace);
        }
    }
    stop_signal(errors, container, path, spec);
    for name in ["livenessProbe", "readinessProbe", "startupProbe"] {
        let probe = at(container, name);
        if !probe.is_null() {
            check(errors, probe, &format!("{path}.{name}"), name);
        }
    }
}

/// API-524.
fn check(errors: &mut Errors, probe: &Value, path: &str, name: &str) {
    handlers(errors, probe, path, &["exec", "httpGet", "tcpSocket", "grpc"]);
    for field in ["initialDelaySeconds", "timeoutSeconds", "periodSeconds", "successThreshold", "failureThreshold"] {
        errors.non_negative(&format!("{path}.{field}"), at(probe, field));
    }
    let grace = at(probe, "terminationGracePeriodSeconds");
    if grace.as_i64().is_some_and(|seconds| seconds <= 0) {
        let detail = "must be greater than 0";
        errors.push(FieldError::invalid(format!("{path}.terminationGracePeriodSeconds"), grace.clone(), detail));
    }
    if name == "readinessProbe" {
        if !grace.is_null() {
            let detail = "must not be set for readinessProbes";
            errors.push(FieldError::invalid(format!("{path}.terminationGracePeriodSeconds"), grace.clone(), detail));
        }
    } else if at(probe, "successThreshold").as_i64().is_some_and(|threshold| threshold != 1) {
        let value = at(probe, "successThreshold").clone();
        errors.push(FieldError::invalid(format!("{path}.successThreshold"), value, "must be 1"));
    }
}

/// API-521: exactly one of `kinds`.
fn handlers(errors: &mut Errors, holder: &Value, path: &str, kinds: &[&str]) {
    let mut given = 0;
    for kind in kinds.iter().filter(|kind| !at(holder, kind).is_null()) {
        given += 1;
        let (path, handler) = (format!("{path}.{kind}"), at(holder, kind));
        if given > 1 {
            errors.push(FieldError::forbidden(path, "may not specify more than 1 handler type"));
            continue;
        }
        match *kind {
            // API-522
            "exec" if items(handler, "command").is_empty() => {
                errors.push(FieldError::required(format!("{path}.command"), ""));
            }
            "httpGet" => http_get(errors, handler, &path),
            "tcpSocket" | "grpc" => port(errors, at(handler, "port"), &format!("{path}.port")),
            _ => {}
        }
    }
    if given == 0 {
        errors.push(FieldError::required(path, "must specify a handler type"));
    }
}

/// API-523.
fn http_get(errors: &mut Errors, get: &Value, path: &str) {
    if text(get, "path").is_empty() {
        errors.push(FieldError::required(format!("{path}.path"), ""));
    }
    port(errors, at(get, "port"), &format!("{path}.port"));
    errors.one_of(&format!("{path}.scheme"), text(get, "scheme"), &["HTTP", "HTTPS"]);
    for header in items(get, "httpHeaders") {
        let name = text(header, "name");
        if name.is_empty() || !name.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'-') {
            let detail = "a valid HTTP header must consist of alphanumeric characters or '-' (e.g. 'X-Header-Name', \
                          regex used for validation is '[-A-Za-z0-9]+')";
            errors.push(FieldError::invalid(format!("{path}.httpHeaders"), name, detail));
        }
    }
}

fn port(errors: &mut Errors, port: &Value, path: &str) {
    match port.as_str() {
        Some(name) => invalid_each(&mut errors.0, path, name, names::port_name(name)),
        None => {
            let number = port.as_i64().unwrap_or(0);
            for problem in names::port_number(number) {
                errors.push(FieldError::invalid(path, number, problem));
            }
        }
    }
}

/// API-525.
fn sleep(errors: &mut Errors, handler: &Value, path: &str, grace: i64) {
    if let Some(seconds) = at(handler, "sleep.seconds").as_i64().filter(|seconds| *seconds < 0 || *seconds > grace) {
        let detail = format!("must be non-negative and less than terminationGracePeriodSeconds ({grace})");
        errors.push(FieldError::invalid(format!("{path}.sleep"), seconds, detail));
    }
}

/// API-526; TC-074 to TC-076.
fn stop_signal(errors: &mut Errors, container: &Value, path: &str, spec: &Value) {
    let path = format!("{path}.lifecycle.stopSignal");
    let signal = at(container, "lifecycle.stopSignal");
    let Some(signal) = signal.as_str() else { return };
    match text(spec, "os.name") {
        "" => {
            errors.push(FieldError::forbidden(path, "may not be set for containers with empty `spec.os.name`"));
        }
        "windows" => errors.one_of(&path, signal, &["SIGKILL", "SIGTERM"]),
        _ => {
            let known = linux_signals();
            let known: Vec<&str> = known.iter().map(String::as_str).collect();
            errors.one_of(&path, signal, &known);
        }
    }
}

const LINUX_SIGNALS: &str = "SIGABRT SIGALRM SIGBUS SIGCHLD SIGCLD SIGCONT SIGFPE SIGHUP SIGILL SIGINT SIGIO SIGIOT \
    SIGKILL SIGPIPE SIGPOLL SIGPROF SIGPWR SIGQUIT SIGSEGV SIGSTKFLT SIGSTOP SIGSYS SIGTERM SIGTRAP SIGTSTP SIGTTIN \
    SIGTTOU SIGURG SIGUSR1 SIGUSR2 SIGVTALRM SIGWINCH SIGXCPU SIGXFSZ SIGRTMIN SIGRTMAX";

/// Sorted, as upstream lists them.
fn linux_signals() -> Vec<String> {
    let mut names: Vec<String> = LINUX_SIGNALS.split(' ').map(str::to_owned).collect();
    names.extend((1..=15).map(|offset| format!("SIGRTMIN+{offset}")));
    names.extend((1..=14).map(|offset| format!("SIGRTMAX-{offset}")));
    names.sort_unstable();
    names
}
