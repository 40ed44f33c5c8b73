//! The kinds of errors of an API server. This module alone says which status and reason is which kind; callers add the words.
//!
//! Statuses are those of `apimachinery/pkg/api/errors`. A watch reports an old version by its reason, with another status.

/// The kind of a failed request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ApiError {
    /// 401: the API server does not accept the credentials.
    Credentials,
    /// 403: a permission is missing.
    Forbidden,
    /// 404: the object, its namespace or the resource does not exist.
    NotFound,
    /// 409: another client created or changed the object first.
    Conflict,
    /// 410, or the reason `Expired` or `Gone`: the requested version is too old.
    Expired,
    /// 408, 429, 5xx, or no answer: the API server can't answer now, and the same request can succeed later.
    Unavailable,
    /// Any other status: the API server rejects the request.
    Rejected,
}

impl ApiError {
    /// Returns the kind of an answer with this status, whose `Status` has this reason, or an empty one.
    pub fn of(status: u16, reason: &str) -> Self {
        match (status, reason) {
            (_, "Expired" | "Gone") | (410, _) => Self::Expired,
            (401, _) => Self::Credentials,
            (403, _) => Self::Forbidden,
            (404, _) => Self::NotFound,
            (409, _) => Self::Conflict,
            (408 | 429 | 500..=599, _) => Self::Unavailable,
            _ => Self::Rejected,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_status_decides_except_for_expired_versions() {
        for (status, reason, expected) in [
            (401, "Unauthorized", ApiError::Credentials),
            (403, "Forbidden", ApiError::Forbidden),
            (404, "", ApiError::NotFound),
            (409, "AlreadyExists", ApiError::Conflict),
            (410, "", ApiError::Expired),
            (500, "Expired", ApiError::Expired),
            (408, "Timeout", ApiError::Unavailable),
            (429, "TooManyRequests", ApiError::Unavailable),
            (503, "ServiceUnavailable", ApiError::Unavailable),
            (422, "Invalid", ApiError::Rejected),
            (302, "", ApiError::Rejected),
        ] {
            assert_eq!(ApiError::of(status, reason), expected, "{status} {reason}");
        }
    }
}
