//! What a guard says of a request. A guard returns a [`Ruling`], never an error: no `?` can turn a failed look-up into an
//! allow.

use crate::courtesy::{Audit, Warnings};
use crate::patch::Patch;

/// The audit annotation of an object that a guard let through because it could not be read, and why that is.
pub const SKIPPED: &str = "left-as-it-is";

/// The four things a guard can find.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Verdict {
    /// Let it pass as it is.
    Allow,
    /// Refuse it.
    Deny(Denial),
    /// Let it pass, changed.
    Mutate(Patch),
    /// The guard could not see what it needed; the [`Stance`](crate::Stance) decides.
    Unknown(Vec<Cause>),
}

/// What goes back to the API server once [`settle`](crate::settle) has turned Unknown into one or the other.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Answer {
    /// Let it pass as it is.
    Allow,
    /// Refuse it.
    Deny(Denial),
    /// Let it pass, changed.
    Mutate(Patch),
}

/// Why something is unknown.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Cause {
    /// One of a closed set of words: the metric's label.
    pub code: &'static str,
    /// The end of the sentence "could not be decided: …".
    pub text: String,
}

impl Cause {
    /// A cause with its code and its sentence.
    pub fn new(code: &'static str, text: impl Into<String>) -> Self {
        Self { code, text: text.into() }
    }
}

/// The status code of a refusal, and the reason that belongs to it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Code {
    /// 403: what a denial is, unless it is one of the others. Never 429 or 5xx, which clients retry silently.
    Forbidden,
    /// 422: the object itself is at fault.
    Invalid,
    /// 429: only for evictions, where `kubectl drain` waits and tries again.
    TooManyRequests,
}

impl Code {
    /// The number.
    pub fn number(self) -> u16 {
        match self {
            Self::Forbidden => 403,
            Self::Invalid => 422,
            Self::TooManyRequests => 429,
        }
    }

    /// The word that kubectl prints in parentheses.
    pub fn reason(self) -> &'static str {
        match self {
            Self::Forbidden => "Forbidden",
            Self::Invalid => "Invalid",
            Self::TooManyRequests => "TooManyRequests",
        }
    }
}

/// A refusal: the whole text for the person in `message`, data for programs in `causes`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Denial {
    /// Status code and reason.
    pub code: Code,
    /// Who refuses, what, why, and the way out.
    pub message: String,
    /// The same for programs (`status.details.causes`).
    pub causes: Vec<DenialCause>,
}

/// One entry of `status.details.causes`.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct DenialCause {
    /// A word for programs, `CamelCase`.
    pub reason: String,
    /// For people.
    pub message: String,
    /// Which field, or for guards that look outward, which cluster or member.
    pub field: String,
}

impl Denial {
    /// A 403 with this text.
    pub fn forbidden(message: impl Into<String>) -> Self {
        Self { code: Code::Forbidden, message: message.into(), causes: Vec::new() }
    }
}

/// A verdict with what is said beside it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Ruling {
    /// What was found.
    pub verdict: Verdict,
    /// For the person at kubectl, on allow and on deny.
    pub warnings: Warnings,
    /// For the audit log.
    pub audit: Audit,
    /// What is said if the verdict is Unknown and the stance refuses it: for guards that can tell more than the causes, as what
    /// each cluster of a fleet answered. A sentence made of the causes where there is none.
    pub refusal: Option<Denial>,
}

impl Ruling {
    /// A ruling with nothing beside it.
    pub fn new(verdict: Verdict) -> Self {
        Self { verdict, warnings: Warnings::default(), audit: Audit::default(), refusal: None }
    }

    /// Allow, silently.
    pub fn allow() -> Self {
        Self::new(Verdict::Allow)
    }

    /// Allow an object that cannot be read, for whoever knows better to say what is wrong with it. Other than a plain allow it is
    /// logged, since nothing of it can be seen in the object.
    pub fn skipped(why: impl AsRef<str>) -> Self {
        Self::allow().audit(SKIPPED, why)
    }

    /// Refuse.
    pub fn deny(denial: Denial) -> Self {
        Self::new(Verdict::Deny(denial))
    }

    /// Unknown for one cause.
    pub fn unknown(cause: Cause) -> Self {
        Self::new(Verdict::Unknown(vec![cause]))
    }

    /// The same ruling with one more warning.
    #[must_use]
    pub fn warn(mut self, text: impl AsRef<str>) -> Self {
        self.warnings.push(text);
        self
    }

    /// The same ruling, refused in these words if it is Unknown and the stance refuses it.
    #[must_use]
    pub fn refuse_with(mut self, denial: Denial) -> Self {
        self.refusal = Some(denial);
        self
    }

    /// The same ruling with one more audit annotation.
    #[must_use]
    pub fn audit(mut self, key: &str, value: impl AsRef<str>) -> Self {
        self.audit.set(key, value);
        self
    }
}
