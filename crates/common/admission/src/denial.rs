//! Denials: the text for the user, and the same as data for programs.

use crate::text::{lines, one_line, truncate_middle};

// The API server treats an answer that is longer than it reads as no answer. With `failurePolicy: Ignore` that would allow what
// the guard denied, so the limits below stay far under it. All are in bytes.

/// Limit of a message: a screen or two. A longer one keeps its beginning, and the next step at its end.
const MAX_MESSAGE: usize = 16 * 1024;
/// Length of the end that a message keeps.
const MESSAGE_END: usize = 2 * 1024;
/// Limit of a reason or a field of a cause.
const MAX_WORD: usize = 256;
/// Limit of the text of a cause.
pub(crate) const MAX_CAUSE: usize = 4 * 1024 - 2 * MAX_WORD;
/// Limit of all causes together: a few thousand clusters with a line each.
const MAX_CAUSES: usize = 256 * 1024;

/// Status code of a denial, and the reason that belongs to it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Code {
    /// 403, the usual one. Clients retry 429 and 5xx silently, so a denial uses those only where a retry is right.
    Forbidden,
    /// 413: a policy can have this reason.
    RequestEntityTooLarge,
    /// 404: the object of an eviction does not exist. `kubectl drain` goes on to the next pod.
    NotFound,
    /// 422: the object itself is invalid.
    Invalid,
    /// 429: only for evictions, because `kubectl drain` waits and retries them.
    TooManyRequests,
}

impl Code {
    /// Returns the HTTP status code.
    pub fn number(self) -> u16 {
        match self {
            Self::RequestEntityTooLarge => 413,
            Self::Forbidden => 403,
            Self::NotFound => 404,
            Self::Invalid => 422,
            Self::TooManyRequests => 429,
        }
    }

    /// Returns the reason that kubectl prints in parentheses.
    pub fn reason(self) -> &'static str {
        match self {
            Self::RequestEntityTooLarge => "RequestEntityTooLarge",
            Self::Forbidden => "Forbidden",
            Self::NotFound => "NotFound",
            Self::Invalid => "Invalid",
            Self::TooManyRequests => "TooManyRequests",
        }
    }
}

/// A denial: `message` for the user, `causes` for programs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Denial {
    /// Status code and reason.
    pub code: Code,
    /// The object, the reason and the next step.
    pub message: String,
    /// The same as data (`status.details.causes`).
    pub causes: Vec<DenialCause>,
}

/// An entry of `status.details.causes`.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct DenialCause {
    /// A word in `CamelCase` for programs.
    pub reason: String,
    /// The text for users.
    pub message: String,
    /// The field of the object, or the cluster or etcd member that the cause is about.
    pub field: String,
}

impl Denial {
    /// Creates a denial with code 403.
    pub fn forbidden(message: impl Into<String>) -> Self {
        Self { code: Code::Forbidden, message: message.into(), causes: Vec::new() }
    }

    /// Returns the denial without unprintable characters and within the limits above.
    pub(crate) fn cleaned(self) -> Self {
        let count = self.causes.len();
        let mut left = MAX_CAUSES;
        let mut causes: Vec<DenialCause> = Vec::with_capacity(count);
        for cause in self.causes {
            let cause = DenialCause {
                reason: truncate_middle(one_line(&cause.reason), MAX_WORD, 0),
                message: truncate_middle(lines(&cause.message), MAX_CAUSE, 0),
                field: truncate_middle(one_line(&cause.field), MAX_WORD, 0),
            };
            let size = cause.reason.len() + cause.message.len() + cause.field.len();
            let Some(rest) = left.checked_sub(size) else { break };
            left = rest;
            causes.push(cause);
        }
        let missing = count - causes.len();
        if missing > 0 {
            let message = format!("{missing} more are not shown");
            causes.push(DenialCause { reason: "More".to_owned(), message, field: String::new() });
        }
        Self { message: truncate_middle(lines(&self.message), MAX_MESSAGE, MESSAGE_END), causes, ..self }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keeps_line_breaks_of_messages_and_no_other_control_character() {
        let mut denial = Denial::forbidden("in use\n\u{1b}[31m\u{202e}x\r");
        denial.causes.push(DenialCause {
            reason: "In\nUse".into(),
            message: "a\u{7}\u{2067}b".into(),
            field: "m\n1\u{1b}".into(),
        });
        let out = denial.cleaned();
        assert_eq!(out.message, "in use\n [31m x ");
        let cause = &out.causes[0];
        assert_eq!(
            (cause.reason.as_str(), cause.message.as_str(), cause.field.as_str()),
            ("In Use", "a  b", "m 1")
        );
    }

    #[test]
    fn cuts_a_long_message_in_the_middle() {
        let long = Denial::forbidden(format!("begins {} Empty it", "é".repeat(1 << 20)));
        let message = long.cleaned().message;
        assert!(message.len() <= MAX_MESSAGE && message.len() > MAX_MESSAGE - 8, "{}", message.len());
        assert!(message.starts_with("begins é") && message.ends_with("é Empty it"));
        let fits = Denial::forbidden("x".repeat(MAX_MESSAGE));
        assert_eq!(fits.clone().cleaned(), fits);
    }

    #[test]
    fn bounds_causes_each_and_together_and_counts_the_rest() {
        let long =
            || DenialCause { reason: "r".repeat(9000), message: "m".repeat(9000), field: "f".repeat(9000) };
        let many = Denial { causes: (0..5000).map(|_| long()).collect(), ..Denial::forbidden("in use") };
        let out = many.cleaned();
        let size = |cause: &DenialCause| cause.reason.len() + cause.message.len() + cause.field.len();
        assert!(out.causes.iter().all(|cause| size(cause) <= 4096));
        assert!(out.causes.iter().map(size).sum::<usize>() <= MAX_CAUSES + 64);
        assert_eq!(out.causes.len(), 65);
        assert_eq!(out.causes[64].message, "4936 more are not shown");
        let few = Denial { causes: vec![DenialCause::default(); 64], ..Denial::forbidden("in use") };
        assert_eq!(few.clone().cleaned(), few);
    }
}
