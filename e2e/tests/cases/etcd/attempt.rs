//! A deletion or an eviction that was tried, as the one who tried it sees it.

use std::time::Duration;

use anyhow::{Result, bail, ensure};
use e2e::api::{Answer, Api};
use e2e::etcd_cluster::pods::Pods;
use serde_json::{Value, json};

/// What every denial of the guard begins with; a number may follow in the webhook's name.
const VOICES: [&str; 3] =
    ["admission webhook \"etcd-pods", "admission webhook \"etcd-evictions", "admission webhook \"etcd-above"];

/// Earlier than the API server gives up, which is ten seconds after it asked.
const IN_TIME: Duration = Duration::from_secs(9);

/// What came of it.
#[derive(Debug, Clone)]
#[must_use = "say what it should have come to"]
pub(super) struct Attempt(Answer);

/// What came of it, when that is what it should.
#[derive(Debug)]
pub(super) struct Verdict(Answer);

/// By which way a pod goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Way {
    /// DELETE.
    Delete,
    /// An Eviction of policy/v1.
    Evict,
    /// One of policy/v1beta1, as older clients send it.
    EvictBeta,
}

impl Way {
    /// All of them.
    pub(super) const ALL: [Self; 3] = [Self::Delete, Self::Evict, Self::EvictBeta];

    /// It goes, with these options of a deletion.
    fn go(self, api: &Api, pods: &Pods<'_>, name: &str, options: &Value) -> Result<Attempt> {
        let answer = match self.eviction(name, options) {
            None => api.delete_with(&pods.path(name), options)?,
            Some(eviction) => api.create(&format!("{}/eviction", pods.path(name)), &eviction)?,
        };
        Ok(Attempt(answer))
    }

    fn eviction(self, name: &str, options: &Value) -> Option<Value> {
        let version = match self {
            Self::Delete => return None,
            Self::Evict => "policy/v1",
            Self::EvictBeta => "policy/v1beta1",
        };
        let metadata = json!({"name": name});
        Some(json!({
            "apiVersion": version, "kind": "Eviction", "metadata": metadata, "deleteOptions": options,
        }))
    }

    /// It goes.
    pub(super) fn goes(self, api: &Api, pods: &Pods<'_>, name: &str) -> Result<Attempt> {
        self.go(api, pods, name, &json!({}))
    }

    /// It goes, with so much time.
    pub(super) fn goes_within(self, api: &Api, pods: &Pods<'_>, name: &str, seconds: u32) -> Result<Attempt> {
        self.go(api, pods, name, &json!({"gracePeriodSeconds": seconds}))
    }

    /// It is tried with no time at all.
    pub(super) fn tried_at_once(self, api: &Api, pods: &Pods<'_>, name: &str) -> Result<Attempt> {
        self.go(api, pods, name, &json!({"gracePeriodSeconds": 0, "dryRun": ["All"]}))
    }

    /// The same as a dry run, which stands in the URL. A deletion then has no options of its own: where it has, the
    /// API server does not look at the URL.
    pub(super) fn tried(self, api: &Api, pods: &Pods<'_>, name: &str) -> Result<Attempt> {
        let path = pods.path(name);
        let answer = match self.eviction(name, &json!({})) {
            None => api.delete(&format!("{path}?dryRun=All"))?,
            Some(eviction) => api.create(&format!("{path}/eviction?dryRun=All"), &eviction)?,
        };
        Ok(Attempt(answer))
    }

    /// The same where it stands in the options alone, as `kubectl drain --dry-run=server` has it.
    pub(super) fn tried_by_options(self, api: &Api, pods: &Pods<'_>, name: &str) -> Result<Attempt> {
        self.go(api, pods, name, &json!({"dryRun": ["All"]}))
    }
}

/// Deletes a pod by the administrator.
pub(super) fn delete(pods: &Pods<'_>, name: &str) -> Result<Attempt> {
    Way::Delete.goes(pods.namespace().cluster().api(), pods, name)
}

/// Evicts a pod by the administrator.
pub(super) fn evict(pods: &Pods<'_>, name: &str) -> Result<Attempt> {
    Way::Evict.goes(pods.namespace().cluster().api(), pods, name)
}

/// Tries to delete a pod by the administrator, as a dry run.
pub(super) fn try_delete(pods: &Pods<'_>, name: &str) -> Result<Attempt> {
    Way::Delete.tried(pods.namespace().cluster().api(), pods, name)
}

/// Whatever else is tried: what stands at this path is deleted.
pub(super) fn delete_at(api: &Api, path: &str) -> Result<Attempt> {
    Ok(Attempt(api.delete(path)?))
}

/// Whatever else is tried.
pub(super) fn came_to(answer: Answer) -> Attempt {
    Attempt(answer)
}

impl Attempt {
    /// It was refused by the guard, with the code that programs understand (429 an eviction, so that it is
    /// tried again; 403 a deletion), before the API server gave up.
    pub(super) fn refused(self) -> Result<Verdict> {
        let Answer { what, status, body, took, .. } = &self.0;
        ensure!(!self.0.is_success(), "it was allowed: {}", self.told());
        let is_eviction = what.contains("/eviction");
        let expected = if is_eviction { (429, "TooManyRequests") } else { (403, "Forbidden") };
        let came = (*status, body["reason"].as_str().unwrap_or_default());
        ensure!(came == expected, "it was refused as {came:?}, not {expected:?}: {}", self.told());
        let is_ours = VOICES.iter().any(|voice| self.0.message().starts_with(voice));
        ensure!(is_ours, "somebody else refused it: {}", self.told());
        ensure!(*took < IN_TIME, "it was refused after {took:?}: {}", self.told());
        let has_cause = causes(&self.0).iter().any(|cause| cause["reason"] == "DisruptionBudget");
        ensure!(has_cause == is_eviction, "the causes are not those of its way: {}", self.0.body);
        Ok(Verdict(self.0))
    }

    /// It was let through.
    pub(super) fn allowed(self) -> Result<Verdict> {
        ensure!(self.0.is_success(), "it was refused: {}", self.told());
        ensure!(self.0.took < IN_TIME, "it was allowed after {:?}: {}", self.0.took, self.told());
        Ok(Verdict(self.0))
    }

    /// Whether it was let through.
    pub(super) fn is_allowed(&self) -> bool {
        self.0.is_success()
    }

    /// What came of it, for errors.
    pub(super) fn told(&self) -> String {
        told(&self.0)
    }

    /// Nobody of the guard was asked: the API server itself says that it could not be.
    pub(super) fn unanswered(self) -> Result<()> {
        let is_it = self.0.status == 500 && self.0.message().contains("failed calling webhook");
        ensure!(is_it, "it was not refused for want of an answer: {}", self.told());
        Ok(())
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
        let text = self.told();
        if let Some(word) = words.iter().find(|&&word| text.contains(word)) {
            bail!("it says {word:?}: {text}");
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

    /// Programs are told this of a member: `Healthy`, `Silent`, `Leaving`.
    pub(super) fn telling(self, member: &str, reason: &str) -> Result<Self> {
        let causes = causes(&self.0);
        let told = causes.iter().any(|cause| cause["field"] == member && cause["reason"] == reason);
        ensure!(told, "{reason} of {member} is not among the causes: {}", Value::from(causes.to_vec()));
        Ok(self)
    }

    /// It took no longer than this.
    pub(super) fn within(self, time: Duration) -> Result<Self> {
        ensure!(self.0.took <= time, "it took {:?}, not {time:?}: {}", self.0.took, self.told());
        Ok(self)
    }

    /// What came of it, for errors.
    pub(super) fn told(&self) -> String {
        told(&self.0)
    }
}

fn causes(answer: &Answer) -> &[Value] {
    answer.body["details"]["causes"].as_array().map(Vec::as_slice).unwrap_or_default()
}

fn has_warning(answer: &Answer, words: &str) -> bool {
    answer.warnings.iter().any(|warning| warning.contains(words))
}

fn told(answer: &Answer) -> String {
    let Answer { what, status, warnings, took, .. } = answer;
    format!("{what}: {status} after {took:?}: {:?}, warnings {warnings:?}", answer.message())
}
