//! Errors: what the runtime contract says and what gRPC says.

use cri::CriError;
use tonic::{Code, Status};

/// How a registry's absence is marked: at the beginning of the text of an
/// error without a code. Upstream's agent reads it nowhere else.
const REGISTRY_UNAVAILABLE: &str = "RegistryUnavailable";

pub(crate) fn to_status(error: CriError) -> Status {
    let code = match &error {
        CriError::NotFound { .. } | CriError::PullRefused(_) => Code::NotFound,
        CriError::Invalid(_) => Code::InvalidArgument,
        CriError::Unsupported(_) => Code::Unimplemented,
        CriError::NotRunning { .. } => Code::FailedPrecondition,
        CriError::ExecTimedOut { .. } => Code::DeadlineExceeded,
        CriError::RegistryUnavailable(_)
        | CriError::NetworkNotReady(_)
        | CriError::NoCgroup(_)
        | CriError::Failed(_) => Code::Unknown,
    };
    match error {
        CriError::RegistryUnavailable(message) => Status::new(code, format!("{REGISTRY_UNAVAILABLE}: {message}")),
        error => Status::new(code, error.to_string()),
    }
}

/// What was asked, for the errors that name it.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Asked<'a> {
    pub(crate) what: &'static str,
    pub(crate) id: &'a str,
    /// Completes "this runtime cannot …".
    pub(crate) to: &'static str,
}

pub(crate) fn from_status(status: &Status, asked: Asked<'_>) -> CriError {
    match status.code() {
        Code::NotFound => CriError::NotFound { what: asked.what, id: asked.id.to_owned() },
        Code::InvalidArgument => CriError::Invalid(status.message().to_owned()),
        Code::Unimplemented => CriError::Unsupported(asked.to),
        _ => CriError::Failed(status.message().to_owned()),
    }
}

/// Of a pull: whether the registry said no, or said nothing.
pub(crate) fn from_pull(status: &Status) -> CriError {
    let message = status.message().to_owned();
    match status.code() {
        Code::Unknown if message.starts_with(REGISTRY_UNAVAILABLE) => {
            let detail = message.trim_start_matches(REGISTRY_UNAVAILABLE).trim_start_matches([':', ' ']);
            CriError::RegistryUnavailable(detail.to_owned())
        }
        Code::NotFound | Code::PermissionDenied | Code::Unauthenticated => CriError::PullRefused(message),
        Code::InvalidArgument => CriError::Invalid(message),
        Code::Unimplemented => CriError::Unsupported("pull images"),
        _ => CriError::Failed(message),
    }
}

/// Stop and remove of something unknown succeed (TC-053).
pub(crate) fn gone_is_fine<T: Default>(result: Result<T, Status>) -> Result<T, Status> {
    match result {
        Err(status) if status.code() == Code::NotFound => Ok(T::default()),
        other => other,
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn errors_survive_the_wire() {
        let asked = Asked { what: "container", id: "c1", to: "reopen logs" };
        for error in [
            CriError::NotFound { what: "container", id: "c1".into() },
            CriError::Invalid("no command specified".into()),
            CriError::Unsupported("reopen logs"),
            CriError::Failed("out of memory".into()),
        ] {
            assert_eq!(from_status(&to_status(error.clone()), asked), error);
        }
        for error in [
            CriError::PullRefused("no such image".into()),
            CriError::RegistryUnavailable("connection refused".into()),
            CriError::Invalid("invalid reference".into()),
            CriError::Failed("disk full".into()),
        ] {
            assert_eq!(from_pull(&to_status(error.clone())), error);
        }
        let elsewhere = Status::unknown("failed to pull: RegistryUnavailable");
        assert_eq!(from_pull(&elsewhere), CriError::Failed("failed to pull: RegistryUnavailable".into()));
        let late = to_status(CriError::ExecTimedOut { timeout: Duration::from_secs(1) });
        assert_eq!(late.code(), Code::DeadlineExceeded);
        assert_eq!(to_status(CriError::NotRunning { id: "c1".into() }).code(), Code::FailedPrecondition);
    }

    #[test]
    fn tc_053_what_is_gone_is_stopped() {
        assert_eq!(gone_is_fine::<u8>(Err(Status::not_found("no such container"))).ok(), Some(0));
        assert!(gone_is_fine::<u8>(Err(Status::unknown("busy"))).is_err());
    }
}
