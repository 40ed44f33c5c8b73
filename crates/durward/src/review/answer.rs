//! An answer as `review` tells it. The JSON is stable: fields are added, never renamed or taken away.

use std::collections::BTreeMap;
use std::time::Duration;

use admission::{Answer, OnUnknown, Request, SettlePolicy, Settled};
use cluster::cause;
use config::Problem;
use guards::WebhookEntry;
use serde::Serialize;
use serde_json::value::RawValue;

use crate::documents::apply;

/// One guard's answer to one review.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Answered {
    /// File and number of the review in it.
    pub(crate) source: String,
    /// Who was asked; none where no guard's rules fit.
    pub(crate) guard: Option<&'static str>,
    /// Of the review.
    pub(crate) uid: String,
    /// `CREATE`, `UPDATE`, `DELETE`, `CONNECT`.
    pub(crate) operation: &'static str,
    /// The object's kind, with its subresource behind a slash.
    pub(crate) kind: String,
    /// Empty where it has none.
    pub(crate) namespace: String,
    /// Empty for a create with generateName.
    pub(crate) name: String,
    /// Who asks the API server.
    pub(crate) user: String,
    /// Whether nothing would be stored.
    pub(crate) dry_run: bool,
    /// What the guard found: `allow`, `deny`, `mutate`, `unknown`; `unasked` where none was asked.
    pub(crate) verdict: &'static str,
    /// What comes of it.
    pub(crate) allowed: bool,
    /// Why it is refused.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) message: Option<String>,
    /// Why it is unknown.
    pub(crate) causes: Vec<Cause>,
    /// As kubectl shows them.
    pub(crate) warnings: Vec<String>,
    /// For the audit log.
    pub(crate) audit: BTreeMap<String, String>,
    /// The JSON Patch, empty where nothing changes.
    pub(crate) patch: Vec<Box<RawValue>>,
    /// The object after the patch, where there is one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) patched_object: Option<Box<RawValue>>,
    /// What goes back to the API server.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) response: Option<Box<RawValue>>,
    /// The way it took.
    pub(crate) way: Way,
    /// What the guard's stance makes of Unknown for this user.
    pub(crate) settle_policy: String,
}

/// Why something is unknown.
#[derive(Debug, Serialize)]
pub(crate) struct Cause {
    /// The metric's label.
    pub(crate) code: &'static str,
    /// For people.
    pub(crate) text: String,
}

/// The way an answer took.
#[derive(Debug, Default, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Way {
    /// The webhook entries by which it is asked: their rules fit, and their namespaceSelector selects.
    pub(crate) rules: Vec<String>,
    /// The matchConditions of these entries, by name. The API server evaluates them; here nobody does.
    pub(crate) match_conditions: Vec<String>,
    /// Guards whose rules fit and that are not asked nevertheless, with the reason.
    pub(crate) not_asked: Vec<String>,
    /// What the guard asked the world, with the answers.
    pub(crate) facts: Vec<String>,
    /// From bytes to ruling.
    #[serde(rename = "microseconds", serialize_with = "microseconds")]
    pub(crate) took: Duration,
}

impl Way {
    /// By these entries.
    pub(super) fn by(entries: &[&WebhookEntry], facts: Vec<String>, took: Duration) -> Self {
        let mut match_conditions: Vec<String> = Vec::new();
        for condition in entries.iter().flat_map(|entry| &entry.match_conditions) {
            if !match_conditions.contains(&condition.name) {
                match_conditions.push(condition.name.clone());
            }
        }
        let rules = entries.iter().map(|entry| entry.name.clone()).collect();
        Self { rules, match_conditions, not_asked: Vec::new(), facts, took }
    }
}

fn microseconds<S: serde::Serializer>(took: &Duration, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_u64(u64::try_from(took.as_micros()).unwrap_or(u64::MAX))
}

impl Answered {
    /// Whether it is unknown because there was no world to look at.
    pub(super) fn saw_nothing(&self) -> bool {
        self.causes.iter().any(|why| why.code == cause::NO_CLUSTER)
    }

    /// What `guard` said.
    pub(super) fn new(
        source: &str,
        guard: &'static str,
        request: &Request<'_>,
        settled: &Settled,
        settle_policy: &SettlePolicy,
        response: &[u8],
        way: Way,
    ) -> Result<Self, Problem> {
        let raw =
            |text: String| RawValue::from_string(text).map_err(|e| Problem::new(source).why(e.to_string()));
        let mut answered = Self::unasked(source, request);
        answered.guard = Some(guard);
        answered.verdict = settled.verdict;
        answered.way = way;
        answered.response = Some(raw(String::from_utf8_lossy(response).into_owned())?);
        answered.causes =
            settled.causes.iter().map(|cause| Cause { code: cause.code, text: cause.text.clone() }).collect();
        answered.warnings = settled.warnings.fitted();
        answered.audit =
            settled.audit.iter().map(|(key, value)| (key.to_owned(), value.to_owned())).collect();
        answered.settle_policy = stance_of(request, settle_policy);
        match &settled.answer {
            Answer::Allow => {}
            Answer::Deny(denial) => {
                answered.allowed = false;
                answered.message = Some(denial.message.clone());
            }
            Answer::Mutate(patch) => {
                let json = patch.to_json();
                answered.patch =
                    serde_json::from_slice(&json).map_err(|e| Problem::new(source).why(e.to_string()))?;
                if let Some(object) = &request.object {
                    let after = apply(object.raw().get(), &json);
                    let after = after
                        .map_err(|why| Problem::new(format!("{source}: the patch does not apply")).why(why));
                    answered.patched_object = Some(raw(after?)?);
                }
            }
        }
        Ok(answered)
    }

    /// Nobody's rules fit, so the API server asks nobody and lets it pass.
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
            verdict: "unasked",
            allowed: true,
            message: None,
            causes: Vec::new(),
            warnings: Vec::new(),
            audit: BTreeMap::new(),
            patch: Vec::new(),
            patched_object: None,
            response: None,
            way: Way::default(),
            settle_policy: String::new(),
        }
    }
}

fn stance_of(request: &Request<'_>, settle_policy: &SettlePolicy) -> String {
    let (who, on_unknown) = if settle_policy.is_controller(&request.user) {
        ("a controller", settle_policy.controllers)
    } else {
        ("a person", settle_policy.users)
    };
    let becomes = match on_unknown {
        OnUnknown::Allow => "allow",
        OnUnknown::Deny => "deny",
    };
    format!("{:?}; unknown is {becomes} for {who}", settle_policy.mode).to_lowercase()
}
