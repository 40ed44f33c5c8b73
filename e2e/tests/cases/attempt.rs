//! A request that a guard reviews, and checks of the response.

use e2e::api::Answer;
use e2e::prelude::*;

/// How a guard denies.
#[derive(Debug)]
pub(crate) struct Guard {
    /// The start of its denials. A number can follow the last word, in the name of the webhook.
    prefixes: &'static [&'static str],
    /// Longest time of a response. The API server gives up after ten seconds.
    answers_within: Duration,
}

pub(crate) static DELETION: Guard = Guard {
    prefixes: &["admission webhook \"deletion.durward.dev\" denied the request: "],
    answers_within: Duration::from_secs(8),
};

pub(crate) static ETCD: Guard = Guard {
    prefixes: &["admission webhook \"etcd-pods", "admission webhook \"etcd-evictions"],
    answers_within: Duration::from_secs(9),
};

/// The response to a request, before any check.
#[derive(Debug)]
#[must_use = "check the response"]
pub(crate) struct Attempt {
    answer: Answer,
    guard: &'static Guard,
}

/// A response with the expected verdict.
#[derive(Debug)]
pub(crate) struct Verdict(Answer);

impl Attempt {
    pub(crate) fn new(answer: Answer, guard: &'static Guard) -> Self {
        Self { answer, guard }
    }

    /// Expects a denial by the guard, before the API server gives up.
    pub(crate) fn denied(self) -> Result<Verdict> {
        self.check_denied()?;
        self.in_time()
    }

    pub(crate) fn allowed(self) -> Result<Verdict> {
        ensure!(self.is_allowed(), "it was denied: {}", self.describe());
        self.in_time()
    }

    /// The code of a denial is 403 for a deletion, and 429 for an eviction, so that clients retry it.
    fn check_denied(&self) -> Result<()> {
        let Answer { what, status, body, .. } = &self.answer;
        ensure!(!self.is_allowed(), "it was allowed: {}", self.describe());
        let is_eviction = what.contains("/eviction");
        let expected = if is_eviction { (429, "TooManyRequests") } else { (403, "Forbidden") };
        let code = (*status, body["reason"].as_str().unwrap_or_default());
        ensure!(code == expected, "it was denied with {code:?} instead of {expected:?}: {}", self.describe());
        let is_by_guard = self.guard.prefixes.iter().any(|prefix| self.answer.message().starts_with(prefix));
        ensure!(is_by_guard, "the denial is not the guard's: {}", self.describe());
        let has_cause = causes(&self.answer).iter().any(|cause| cause["reason"] == "DisruptionBudget");
        ensure!(has_cause == is_eviction, "the causes do not match the request: {body}");
        Ok(())
    }

    fn in_time(self) -> Result<Verdict> {
        let is_in_time = self.answer.took < self.guard.answers_within;
        ensure!(is_in_time, "the response took {:?}: {}", self.answer.took, self.describe());
        Ok(Verdict(self.answer))
    }

    /// Expects an error of the API server because it cannot call the webhook.
    pub(crate) fn not_reviewed(self) -> Result<()> {
        let is_failure =
            self.answer.status == 500 && self.answer.message().contains("failed calling webhook");
        ensure!(is_failure, "it did not fail because of the webhook: {}", self.describe());
        Ok(())
    }

    pub(crate) fn is_allowed(&self) -> bool {
        self.answer.is_success()
    }

    pub(crate) fn is_denied(&self) -> bool {
        self.check_denied().is_ok()
    }

    /// Returns whether the message or a warning contains this text.
    pub(crate) fn contains(&self, text: &str) -> bool {
        self.describe().contains(text)
    }

    /// Returns whether a warning contains this text.
    pub(crate) fn has_warning(&self, text: &str) -> bool {
        has_warning(&self.answer, text)
    }

    /// Returns the response as text for errors.
    pub(crate) fn describe(&self) -> String {
        describe(&self.answer)
    }
}

impl Verdict {
    /// Expects all of these texts in the denial.
    pub(crate) fn with_message(self, texts: &[&str]) -> Result<Self> {
        let message = self.0.message();
        if let Some(missing) = texts.iter().find(|&&text| !message.contains(text)) {
            bail!("the denial does not contain {missing:?}: {}", self.describe());
        }
        Ok(self)
    }

    /// Returns the command that ends the line of the denial with this start, with a reason instead of the placeholder.
    pub(crate) fn command(&self, line: &str, reason: &str) -> Result<String> {
        let message = self.0.message();
        let found = message.lines().find(|printed| printed.starts_with(line));
        let command = found.and_then(|line| line.rsplit_once(": kubectl ")).map(|(_, rest)| rest);
        let command = command.with_context(|| format!("no command after {line:?}: {message}"))?;
        Ok(format!("kubectl {}", command.replace("<reason>", reason)))
    }

    /// Expects none of these texts in the denial and the warnings.
    pub(crate) fn without_text(self, texts: &[&str]) -> Result<Self> {
        let response = self.describe();
        if let Some(text) = texts.iter().find(|&&text| response.contains(text)) {
            bail!("the response contains {text:?}: {response}");
        }
        Ok(self)
    }

    /// Expects a warning with this text.
    pub(crate) fn with_warning(self, text: &str) -> Result<Self> {
        ensure!(has_warning(&self.0, text), "no warning contains {text:?}: {}", self.describe());
        Ok(self)
    }

    pub(crate) fn without_warnings(self) -> Result<Self> {
        ensure!(self.0.warnings.is_empty(), "there are warnings: {}", self.describe());
        Ok(self)
    }

    /// Expects this reason for a cluster or a member among the causes.
    pub(crate) fn with_cause(self, field: &str, reason: &str) -> Result<Self> {
        let causes = causes(&self.0);
        let is_listed = causes.iter().any(|cause| cause["field"] == field && cause["reason"] == reason);
        ensure!(is_listed, "{reason} of {field} is not among the causes: {}", Value::from(causes.to_vec()));
        Ok(self)
    }

    /// Expects a response within this time.
    pub(crate) fn within(self, limit: Duration) -> Result<Self> {
        ensure!(self.0.took <= limit, "it took {:?}, not {limit:?}: {}", self.0.took, self.describe());
        Ok(self)
    }

    /// Expects a response that took at least this time.
    pub(crate) fn after(self, limit: Duration) -> Result<Self> {
        ensure!(self.0.took >= limit, "it took {:?}, less than {limit:?}: {}", self.0.took, self.describe());
        Ok(self)
    }

    /// Returns the response as text for errors.
    pub(crate) fn describe(&self) -> String {
        describe(&self.0)
    }
}

/// Repeats a request until `is_expected` accepts the response.
pub(crate) fn retry_until(
    what: &str,
    send: impl Fn() -> Result<Attempt>,
    is_expected: impl Fn(&Attempt) -> bool,
) -> Result<()> {
    until(what, || {
        let attempt = send()?;
        Ok((is_expected(&attempt), attempt.describe()))
    })
}

pub(crate) fn await_allowed(what: &str, send: impl Fn() -> Result<Attempt>) -> Result<()> {
    retry_until(what, send, Attempt::is_allowed)
}

pub(crate) fn await_denied(what: &str, send: impl Fn() -> Result<Attempt>) -> Result<()> {
    retry_until(what, send, Attempt::is_denied)
}

fn causes(answer: &Answer) -> &[Value] {
    answer.body["details"]["causes"].as_array().map(Vec::as_slice).unwrap_or_default()
}

fn has_warning(answer: &Answer, text: &str) -> bool {
    answer.warnings.iter().any(|warning| warning.contains(text))
}

fn describe(answer: &Answer) -> String {
    let Answer { what, status, warnings, took, .. } = answer;
    format!("{what}: {status} after {took:?}: {:?}, warnings {warnings:?}", answer.message())
}
