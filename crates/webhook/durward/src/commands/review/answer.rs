//! The answer of `review`. Its JSON is stable: fields are only added.

use std::collections::BTreeMap;
use std::time::Duration;

use admission::{Answer, OnUnknown, Request, SettlePolicy, Settled};
use cluster::cause;
use config::Problem;
use guards::WebhookEntry;
use serde::Serialize;
use serde_json::value::RawValue;

/// The answer of one guard to one review.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Answered {
    /// The file, and the index of the review in it.
    pub(crate) source: String,
    /// The guard; `None` if the rules of no guard match.
    pub(crate) guard: Option<&'static str>,
    /// The uid of the review.
    pub(crate) uid: String,
    /// `CREATE`, `UPDATE`, `DELETE`, `CONNECT`.
    pub(crate) operation: &'static str,
    /// The kind of the object, with a subresource after a slash.
    pub(crate) kind: String,
    /// The namespace; empty for cluster-scoped objects.
    pub(crate) namespace: String,
    /// The name; empty for a create with `generateName`.
    pub(crate) name: String,
    /// The user of the request.
    pub(crate) user: String,
    /// Whether the request is a dry run.
    pub(crate) dry_run: bool,
    /// The verdict: `allow`, `deny`, `mutate`, `unknown`, or `not-called` if no guard is called.
    pub(crate) verdict: &'static str,
    /// Whether the request is allowed.
    pub(crate) allowed: bool,
    /// The text of the denial.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) message: Option<String>,
    /// The causes of Unknown.
    pub(crate) causes: Vec<ReportedCause>,
    /// Warnings, as kubectl prints them.
    pub(crate) warnings: Vec<String>,
    /// Audit annotations.
    pub(crate) audit: BTreeMap<String, String>,
    /// The JSON Patch; empty without changes.
    pub(crate) patch: json_patch::Patch,
    /// The object after the patch.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) patched_object: Option<serde_json::Value>,
    /// The response to the API server.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) response: Option<Box<RawValue>>,
    /// How the verdict was found.
    pub(crate) evaluation: Evaluation,
    /// The verdict for this user if the result is Unknown.
    #[serde(rename = "onUnknown")]
    pub(crate) settle_policy: String,
}

/// A cause of Unknown.
#[derive(Debug, Serialize)]
pub(crate) struct ReportedCause {
    /// The code, as in metrics.
    pub(crate) code: &'static str,
    /// The text for users.
    pub(crate) text: String,
}

/// How a verdict was found.
#[derive(Debug, Default, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Evaluation {
    /// The webhook entries whose rules and namespaceSelector match.
    pub(crate) rules: Vec<String>,
    /// The names of their matchConditions, which only the API server evaluates.
    pub(crate) match_conditions: Vec<String>,
    /// Guards whose rules match and that are not called, with the reason.
    pub(crate) not_called: Vec<String>,
    /// The requests of the guard and their answers.
    pub(crate) facts: Vec<String>,
    /// The time from decoding to the ruling.
    #[serde(rename = "microseconds", serialize_with = "microseconds")]
    pub(crate) took: Duration,
}

impl Evaluation {
    /// Creates it from the matching entries.
    pub(super) fn by(entries: &[&WebhookEntry], facts: Vec<String>, took: Duration) -> Self {
        let mut match_conditions: Vec<String> = Vec::new();
        for condition in entries.iter().flat_map(|entry| &entry.match_conditions) {
            if !match_conditions.contains(&condition.name) {
                match_conditions.push(condition.name.clone());
            }
        }
        let rules = entries.iter().map(|entry| entry.name.clone()).collect();
        Self { rules, match_conditions, not_called: Vec::new(), facts, took }
    }
}

fn microseconds<S: serde::Serializer>(took: &Duration, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_u64(u64::try_from(took.as_micros()).unwrap_or(u64::MAX))
}

impl Answered {
    /// Returns whether the guard could not check.
    pub(super) fn is_unknown(&self) -> bool {
        self.verdict == "unknown"
    }

    /// Returns whether the verdict is unknown because there is no snapshot.
    pub(super) fn saw_nothing(&self) -> bool {
        self.causes.iter().any(|why| why.code == cause::NO_CLUSTER)
    }

    /// Creates the answer of `guard`.
    pub(super) fn new(
        source: &str,
        guard: &'static str,
        request: &Request<'_>,
        settled: &Settled,
        settle_policy: &SettlePolicy,
        response: &[u8],
        evaluation: Evaluation,
    ) -> Result<Self, Problem> {
        let raw =
            |text: String| RawValue::from_string(text).map_err(|e| Problem::new(source).why(e.to_string()));
        let mut answered = Self::unasked(source, request);
        answered.guard = Some(guard);
        answered.verdict = settled.verdict;
        answered.evaluation = evaluation;
        answered.response = Some(raw(String::from_utf8_lossy(response).into_owned())?);
        answered.causes = settled
            .causes
            .iter()
            .map(|cause| ReportedCause { code: cause.code, text: cause.text.clone() })
            .collect();
        answered.warnings = settled.warnings.fitted();
        answered.audit =
            settled.audit.iter().map(|(key, value)| (key.to_owned(), value.to_owned())).collect();
        answered.settle_policy = settle_policy_text(request, settle_policy);
        match &settled.answer {
            Answer::Allow => {}
            Answer::Deny(denial) => {
                answered.allowed = false;
                answered.message = Some(denial.message.clone());
            }
            Answer::Mutate(patch) => {
                let unfit = |why: &dyn std::error::Error| {
                    Problem::new(format!("{source}: the patch does not apply")).why(why.to_string())
                };
                answered.patch = serde_json::from_slice(patch.as_json()).map_err(|e| unfit(&e))?;
                if let Some(object) = &request.object {
                    let mut object = serde_json::from_str(object.raw().get()).map_err(|e| unfit(&e))?;
                    json_patch::patch(&mut object, &answered.patch).map_err(|e| unfit(&e))?;
                    answered.patched_object = Some(object);
                }
            }
        }
        Ok(answered)
    }

    /// Creates the answer to a review that matches no rules, which the API server allows without a call.
    pub(super) fn unasked(source: &str, request: &Request<'_>) -> Self {
        let sub =
            if request.subresource.is_empty() { String::new() } else { format!("/{}", request.subresource) };
        Self {
            source: source.to_owned(),
            guard: None,
            uid: request.uid.to_string(),
            operation: request.operation.as_str(),
            kind: format!("{}{sub}", request.kind.kind),
            namespace: request.namespace.to_string(),
            name: request.name.to_string(),
            user: request.user.name.to_string(),
            dry_run: request.dry_run,
            verdict: "not-called",
            allowed: true,
            message: None,
            causes: Vec::new(),
            warnings: Vec::new(),
            audit: BTreeMap::new(),
            patch: json_patch::Patch::default(),
            patched_object: None,
            response: None,
            evaluation: Evaluation::default(),
            settle_policy: String::new(),
        }
    }
}

fn settle_policy_text(request: &Request<'_>, settle_policy: &SettlePolicy) -> String {
    let (user, on_unknown) = if settle_policy.is_controller(&request.user) {
        ("a controller", settle_policy.controllers)
    } else {
        ("a user", settle_policy.users)
    };
    let verdict = match on_unknown {
        OnUnknown::Allow => "allow",
        OnUnknown::Deny => "deny",
    };
    format!("{:?}; unknown is {verdict} for {user}", settle_policy.mode).to_lowercase()
}
