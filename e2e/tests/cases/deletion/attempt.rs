//! A deletion that was tried, as the one who tried it sees it.

use std::time::Duration;

use anyhow::{Result, bail, ensure};
use e2e::api::{Answer, Api};
use serde_json::Value;

/// What every denial of the guard begins with.
const VOICE: &str = "admission webhook \"deletion.durward.dev\" denied the request: ";

/// Earlier than the API server gives up, which is ten seconds after it asked.
const IN_TIME: Duration = Duration::from_secs(8);

/// What came of it.
#[derive(Debug, Clone)]
#[must_use = "say what it should have come to"]
pub(super) struct Attempt(Answer);

/// What came of it, when that is what it should.
#[derive(Debug)]
pub(super) struct Verdict(Answer);

/// Deletes what stands at this path.
pub(super) fn delete(api: &Api, path: &str) -> Result<Attempt> {
    Ok(Attempt(api.delete(path)?))
}

/// The same as a dry run.
pub(super) fn try_delete(api: &Api, path: &str) -> Result<Attempt> {
    let mark = if path.contains('?') { '&' } else { '?' };
    delete(api, &format!("{path}{mark}dryRun=All"))
}

impl Attempt {
    /// It was refused by the guard, in words and with a code that programs understand, before the API server gave
    /// up.
    pub(super) fn refused(self) -> Result<Verdict> {
        let Answer { status, body, took, .. } = &self.0;
        ensure!(!self.0.is_success(), "it was allowed: {}", self.told());
        ensure!(
            *status == 403 && body["reason"] == "Forbidden",
            "it was refused as {status}: {}",
            self.told()
        );
        ensure!(self.0.message().starts_with(VOICE), "somebody else refused it: {}", self.told());
        ensure!(*took < IN_TIME, "it was refused after {took:?}: {}", self.told());
        Ok(Verdict(self.0))
    }

    /// It was let through.
    pub(super) fn allowed(self) -> Result<Verdict> {
        ensure!(self.0.is_success(), "it was refused: {}", self.told());
        Ok(Verdict(self.0))
    }

    /// Whether there is a warning in which this stands.
    pub(super) fn has_warning(&self, words: &str) -> bool {
        has_warning(&self.0, words)
    }

    /// What came of it, for errors.
    pub(super) fn told(&self) -> String {
        told(&self.0)
    }
}

impl Verdict {
    /// The denial says each of these.
    pub(super) fn saying(self, words: &[&str]) -> Result<Self> {
        let message = self.0.message();
        if let Some(missing) = words.iter().find(|&&word| !message.contains(word)) {
            bail!("the denial does not say {missing:?}: {}", self.told());
        }
        Ok(self)
    }

    /// The denial says none of these.
    pub(super) fn not_saying(self, words: &[&str]) -> Result<Self> {
        let message = self.0.message();
        if let Some(word) = words.iter().find(|&&word| message.contains(word)) {
            bail!("the denial says {word:?}: {}", self.told());
        }
        Ok(self)
    }

    /// There is a warning in which this stands.
    pub(super) fn warning(self, words: &str) -> Result<Self> {
        ensure!(has_warning(&self.0, words), "no warning says {words:?}: {}", self.told());
        Ok(self)
    }

    /// Nobody warns of anything.
    pub(super) fn without_warnings(self) -> Result<Self> {
        ensure!(self.0.warnings.is_empty(), "there are warnings: {}", self.told());
        Ok(self)
    }

    /// Programs are told this of a cluster: `InUse`, `Unknown`, `WouldStay`.
    pub(super) fn telling(self, cluster: &str, reason: &str) -> Result<Self> {
        let causes = self.0.body["details"]["causes"].as_array().map(Vec::as_slice).unwrap_or_default();
        let told = causes.iter().any(|cause| cause["field"] == cluster && cause["reason"] == reason);
        ensure!(told, "{reason} of {cluster} is not among the causes: {}", Value::from(causes.to_vec()));
        Ok(self)
    }

    /// It took no longer than this.
    pub(super) fn within(self, time: Duration) -> Result<Self> {
        ensure!(self.0.took <= time, "it took {:?}, not {time:?}: {}", self.0.took, self.told());
        Ok(self)
    }

    /// It took no less than this.
    pub(super) fn after(self, time: Duration) -> Result<Self> {
        ensure!(self.0.took >= time, "it took {:?}, less than {time:?}: {}", self.0.took, self.told());
        Ok(self)
    }

    /// What came of it, for errors.
    pub(super) fn told(&self) -> String {
        told(&self.0)
    }
}

fn has_warning(answer: &Answer, words: &str) -> bool {
    answer.warnings.iter().any(|warning| warning.contains(words))
}

fn told(answer: &Answer) -> String {
    let Answer { what, status, warnings, took, .. } = answer;
    format!("{what}: {status} after {took:?}: {:?}, warnings {warnings:?}", answer.message())
}
