//! Why the API said no, sorted by what a caller does about it.

/// A variant exists where some caller acts differently on it.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ApiError {
    #[error("{message}")]
    NotFound { message: String },
    #[error("{message}")]
    AlreadyExists { message: String },
    /// Someone else was faster, or a precondition (UID, resource version) failed.
    #[error("{message}")]
    Conflict { message: String },
    /// The history needed to go on is compacted away: list again.
    #[error("{message}")]
    Gone { message: String },
    /// The object itself is wrong; sending it again cannot help.
    #[error("{message}")]
    Invalid { message: String },
    /// 401 or 403.
    #[error("{message}")]
    Forbidden { message: String },
    /// No answer, or one that says "later" (429, 5xx): try again.
    #[error("the API server cannot be reached: {message}")]
    Unreachable { message: String },
    /// Any other refusal.
    #[error("{message}")]
    Refused { code: u16, reason: String, message: String },
    /// The answer is not what it should be.
    #[error("unreadable answer: {message}")]
    Unreadable { message: String },
    /// The kubeconfig cannot be used.
    #[error("kubeconfig: {message}")]
    Config { message: String },
}

impl ApiError {
    /// Waiting may help.
    pub fn is_temporary(&self) -> bool {
        matches!(self, Self::Unreachable { .. })
    }

    pub(crate) fn of_status(code: u16, reason: &str, message: String) -> Self {
        match (code, reason) {
            (_, "AlreadyExists") => Self::AlreadyExists { message },
            (404, _) => Self::NotFound { message },
            (409, _) => Self::Conflict { message },
            (410, _) | (_, "Expired" | "Gone") => Self::Gone { message },
            (422, _) | (400, _) => Self::Invalid { message },
            (401 | 403, _) => Self::Forbidden { message },
            (429 | 500..=599, _) => Self::Unreachable { message },
            _ => Self::Refused { code, reason: reason.to_owned(), message },
        }
    }

    pub(crate) fn of_kube(error: kube::Error) -> Self {
        match error {
            kube::Error::Api(status) => Self::of_status(status.code, &status.reason, status.message),
            kube::Error::SerdeError(error) => Self::Unreadable { message: error.to_string() },
            kube::Error::FromUtf8(error) => Self::Unreadable { message: error.to_string() },
            kube::Error::BuildRequest(error) => Self::Invalid { message: error.to_string() },
            kube::Error::InferKubeconfig(error) => Self::Config { message: error.to_string() },
            error => Self::Unreachable { message: innermost(&error) },
        }
    }
}

/// Transport errors hide their fact at the end of the chain.
fn innermost(error: &dyn std::error::Error) -> String {
    let mut last = error;
    while let Some(source) = last.source() {
        last = source;
    }
    last.to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answers_are_sorted_by_what_callers_do() {
        let of = |code, reason: &str| ApiError::of_status(code, reason, "m".into());
        let message = || "m".to_owned();
        assert_eq!(of(404, "NotFound"), ApiError::NotFound { message: message() });
        assert_eq!(of(409, "AlreadyExists"), ApiError::AlreadyExists { message: message() });
        assert_eq!(of(409, "Conflict"), ApiError::Conflict { message: message() });
        assert_eq!(of(410, "Expired"), ApiError::Gone { message: message() });
        assert_eq!(of(422, "Invalid"), ApiError::Invalid { message: message() });
        assert_eq!(of(403, "Forbidden"), ApiError::Forbidden { message: message() });
        assert!(of(503, "ServiceUnavailable").is_temporary());
        assert_eq!(
            of(405, "MethodNotAllowed"),
            ApiError::Refused { code: 405, reason: "MethodNotAllowed".into(), message: message() }
        );
    }
}
