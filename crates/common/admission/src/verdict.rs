//! The result of a review. A guard returns a [`Ruling`], never an error, so no `?` can turn a failed request into an allow.

use std::time::Duration;

use crate::denial::{Denial, DenialCause, MAX_CAUSE};
use crate::patch::Patch;
use crate::text::{one_line, truncate_middle};
use crate::warnings::{Audit, Warnings};

/// Audit annotation of an object that was allowed because the guard could not parse it. The value is the reason.
pub const SKIPPED: &str = "left-as-it-is";

/// Audit annotation of a request that a guard allowed because it is off, or has no rule for it. The value is the reason.
pub const UNREVIEWED: &str = "unreviewed";

/// Audit annotation of a request that the annotations of an override allowed. The value is the expiry and the reason.
pub const OVERRIDE: &str = "override";

/// The result of a guard.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Verdict {
    /// Allow the request unchanged.
    Allow,
    /// Deny the request.
    Deny(Denial),
    /// Allow the request with changes.
    Mutate(Patch),
    /// The guard could not check the request. The [`SettlePolicy`](crate::SettlePolicy) decides.
    Unknown(Vec<Cause>),
}

/// The answer to the API server, after [`settle`](crate::settle) has resolved Unknown.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Answer {
    /// Allow the request unchanged.
    Allow,
    /// Deny the request.
    Deny(Denial),
    /// Allow the request with changes.
    Mutate(Patch),
}

/// The reason why something is unknown.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Cause {
    /// A word from a closed set: the metric's label.
    pub code: &'static str,
    /// The end of the sentence "could not be checked: …".
    pub text: String,
    /// The parts of `text` if it is about one failed request.
    pub request: Option<Box<FailedRequest>>,
}

/// A request that failed, and why.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FailedRequest {
    /// The name of the server or object.
    pub subject: String,
    /// The reason without the subject and the request.
    pub reason: String,
}

impl Cause {
    /// Creates a cause.
    pub fn new(code: &'static str, text: impl Into<String>) -> Self {
        Self { code, text: text.into(), request: None }
    }

    /// Creates the cause of a failed request. Its text is `<subject> <failure>: <reason>`.
    pub fn failed(code: &'static str, subject: &str, failure: &str, reason: &str) -> Self {
        let request = FailedRequest { subject: subject.to_owned(), reason: reason.to_owned() };
        let text = format!("{subject} {failure}: {reason}");
        Self { code, text, request: Some(Box::new(request)) }
    }

    /// Returns the reason of a failed request, or the text.
    pub fn reason(&self) -> &str {
        self.request.as_ref().map_or(&self.text, |request| &request.reason)
    }

    /// Returns the text without the request: `etcd-2: connection refused`.
    pub fn brief(&self) -> String {
        let brief = |request: &FailedRequest| format!("{}: {}", request.subject, request.reason);
        self.request.as_deref().map_or_else(|| self.text.clone(), brief)
    }

    /// Returns the cause as an entry of a denial, with the reason `Unknown`.
    pub fn to_denial_cause(&self) -> DenialCause {
        DenialCause { reason: "Unknown".to_owned(), message: self.text.clone(), field: self.code.to_owned() }
    }

    /// Returns the cause on one line and within the limit of a denial's cause.
    pub(crate) fn cleaned(&self) -> Self {
        Self::new(self.code, truncate_middle(one_line(&self.text), MAX_CAUSE, 0))
    }
}

/// A verdict with warnings and audit annotations.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Ruling {
    /// The result.
    pub verdict: Verdict,
    /// Warnings for the user, on allow and on deny.
    pub warnings: Warnings,
    /// Annotations for the audit log.
    pub audit: Audit,
    /// The denial if the verdict is Unknown and the policy denies that. Without it, the denial is made of the causes.
    pub refusal: Option<Denial>,
    /// The evaluation of policies, for guards that have some.
    pub evaluation: Option<PolicyEvaluation>,
    /// Whether the configuration leaves the object out of the guard. If such a ruling allows, it is logged only at level debug for
    /// the target `durward::review`.
    pub is_unguarded: bool,
}

/// The evaluation of policies, for metrics and the log.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PolicyEvaluation {
    /// The outcomes of the policies that matched the request.
    pub outcomes: Vec<PolicyOutcome>,
    /// The duration.
    pub time: Duration,
}

/// The outcome of a policy.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PolicyOutcome {
    /// The name of the policy.
    pub policy: String,
    /// `deny`, `error`, `unknown`, `warn`, `audit`, `skip` or `allow`.
    pub outcome: &'static str,
}

impl Ruling {
    /// Creates a ruling without warnings and annotations.
    pub fn new(verdict: Verdict) -> Self {
        let (warnings, audit) = (Warnings::default(), Audit::default());
        Self { verdict, warnings, audit, refusal: None, evaluation: None, is_unguarded: false }
    }

    /// Creates a ruling that allows silently.
    pub fn allow() -> Self {
        Self::new(Verdict::Allow)
    }

    /// Allows an object that the guard cannot parse: the API server rejects it with a better message. This is logged, because
    /// the object itself shows no trace of it.
    pub fn skipped(reason: impl AsRef<str>) -> Self {
        Self::allow().audit(SKIPPED, reason)
    }

    /// Allows a request that the guard doesn't review, although the API server sends it. This is logged and counted.
    pub fn unreviewed(reason: impl AsRef<str>) -> Self {
        let reason = reason.as_ref();
        Self::allow().warn(format!("allowed without a check: {reason}")).audit(UNREVIEWED, reason)
    }

    /// Marks the object as one that the configuration leaves out of the guard.
    #[must_use]
    pub fn unguarded(self) -> Self {
        Self { is_unguarded: true, ..self }
    }

    /// Creates a ruling that denies.
    pub fn deny(denial: Denial) -> Self {
        Self::new(Verdict::Deny(denial))
    }

    /// Creates a ruling that is unknown for one cause.
    pub fn unknown(cause: Cause) -> Self {
        Self::new(Verdict::Unknown(vec![cause]))
    }

    /// Adds a warning.
    #[must_use]
    pub fn warn(mut self, text: impl AsRef<str>) -> Self {
        self.warnings.push(text);
        self
    }

    /// Sets the denial for an Unknown that the policy denies.
    #[must_use]
    pub fn refuse_with(mut self, denial: Denial) -> Self {
        self.refusal = Some(denial);
        self
    }

    /// Adds an audit annotation.
    #[must_use]
    pub fn audit(mut self, key: &str, value: impl AsRef<str>) -> Self {
        self.audit.set(key, value);
        self
    }
}
