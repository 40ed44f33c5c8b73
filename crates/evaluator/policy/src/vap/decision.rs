//! The decisions of all policies on a request, in the API server's words.

use std::fmt::Write as _;

use crate::facts::Lookup;
use crate::release::Release;
use crate::value::format::{quote, write_go_json_text};

/// Longest value of an audit annotation, in bytes.
const MAX_AUDIT_VALUE: usize = 10 * 1024;
/// Failures that one audit annotation lists, from 1.37 on.
const MAX_AUDIT_FAILURES: usize = 50;
/// Key of the audit annotation for failed validations.
const FAILURE_KEY: &str = "validation.policy.admission.k8s.io/validation_failure";

/// Reason of a denial because the request's namespace does not exist. Validations can't have it.
const NOT_FOUND: &str = "NotFound";

/// Reason of errors, and of validations that name none.
pub(crate) const INVALID: &str = "Invalid";

/// The decisions on a request, as far as facts are known.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Decisions {
    /// Objections that deny the request. The API server answers with the first one.
    pub denials: Vec<Objection>,
    /// Objections of which the API server warns the caller.
    pub warnings: Vec<Objection>,
    /// Objections for the audit log. The audit annotations contain the first of them, or from 1.37 on the first 50.
    pub failures: Vec<Objection>,
    /// Audit annotations: key and value.
    pub audit_annotations: Vec<(String, String)>,
    /// Pairs of policy and binding that matched, with the outcome of the match conditions.
    pub evaluated: Vec<Evaluated>,
    /// Facts that are missing. The decisions that depend on them are left out.
    pub missing: Vec<Missing>,
}

impl Decisions {
    /// Returns whether there are no decisions, and no fact is missing for one.
    pub(crate) fn is_empty(&self) -> bool {
        let Self { denials, warnings, failures, audit_annotations, evaluated: _, missing } = self;
        denials.is_empty()
            && warnings.is_empty()
            && failures.is_empty()
            && audit_annotations.is_empty()
            && missing.is_empty()
    }
}

/// A fact that a policy needs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Missing {
    /// The policy. Empty if the arena was full before a policy was found to match.
    pub policy: String,
    /// The binding; absent if the policy itself needs the fact.
    pub binding: Option<String>,
    /// The fact.
    pub lookup: Lookup,
}

/// A policy and binding that matched a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Evaluated {
    /// The policy.
    pub policy: String,
    /// The binding.
    pub binding: String,
    /// Whether the match conditions excluded the request.
    pub skipped: bool,
    /// Whether an expression failed and the failure policy ignores it.
    pub ignored: bool,
}

/// A failed validation, or an error.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Objection {
    /// The policy.
    pub policy: String,
    /// The binding; absent if the policy itself is misconfigured.
    pub binding: Option<String>,
    /// Index among the decisions of the policy, as the audit annotation has it.
    pub index: usize,
    /// Index of the validation, if one failed.
    pub validation: Option<usize>,
    /// Whether it is an error, and not a false validation.
    pub error: bool,
    /// The message without the names of policy and binding.
    pub message: String,
    /// The reason.
    pub reason: String,
    /// The actions of the binding.
    pub actions: Vec<String>,
}

impl Objection {
    /// An error that denies the request.
    pub(crate) fn error(policy: &str, binding: Option<&str>, message: String) -> Self {
        Self {
            policy: policy.to_owned(),
            binding: binding.map(str::to_owned),
            index: 0,
            validation: None,
            error: true,
            message,
            reason: INVALID.to_owned(),
            actions: Vec::new(),
        }
    }

    /// The denial of a request whose namespace does not exist.
    pub(crate) fn missing_namespace(policy: &str, binding: &str, message: String) -> Self {
        Self { reason: NOT_FOUND.to_owned(), ..Self::error(policy, Some(binding), message) }
    }

    /// The cause in the API server's status.
    pub fn cause(&self) -> String {
        match &self.binding {
            Some(binding) => format!(
                "ValidatingAdmissionPolicy '{}' with binding '{binding}' denied request: {}",
                self.policy, self.message
            ),
            None => format!("ValidatingAdmissionPolicy '{}' denied request: {}", self.policy, self.message),
        }
    }

    /// The message of the API server's status.
    pub fn status_message(&self, group_resource: &str, name: &str) -> String {
        if self.reason == NOT_FOUND {
            return self.message.clone();
        }
        format!("{group_resource} {} is forbidden: {}", quote(name), self.cause())
    }

    /// The HTTP code of the API server's status.
    pub fn code(&self) -> u16 {
        match self.reason.as_str() {
            "Forbidden" => 403,
            "Unauthorized" => 401,
            NOT_FOUND => 404,
            "RequestEntityTooLarge" => 413,
            _ => 422,
        }
    }

    /// The text of the warning header.
    pub fn warning(&self) -> String {
        format!(
            "Validation failed for ValidatingAdmissionPolicy '{}' with binding '{}': {}",
            self.policy,
            self.binding.as_deref().unwrap_or_default(),
            self.message
        )
    }
}

/// The audit annotation of failed validations.
pub(crate) fn failure_annotation(failures: &[Objection], release: Release) -> Option<(String, String)> {
    let kept = if release.annotates_failures_together() {
        failures.get(..failures.len().min(MAX_AUDIT_FAILURES))?
    } else {
        failures.get(..1)?
    };
    let mut text = String::from("[");
    for (index, failure) in kept.iter().enumerate() {
        let actions: Vec<String> = failure.actions.iter().map(|action| json(action)).collect();
        let _ = write!(
            text,
            "{}{{\"message\":{},\"policy\":{},\"binding\":{},\"expressionIndex\":{},\"validationActions\":[{}]}}",
            if index == 0 { "" } else { "," },
            json(&failure.message),
            json(&failure.policy),
            json(failure.binding.as_deref().unwrap_or_default()),
            failure.index,
            actions.join(",")
        );
    }
    text.push(']');
    (!kept.is_empty()).then(|| (FAILURE_KEY.to_owned(), text))
}

/// A JSON string as Go writes it: `<`, `>` and `&` are escaped.
pub(crate) fn json(text: &str) -> String {
    let mut out = String::with_capacity(text.len() + 2);
    write_go_json_text(text, &mut out);
    out
}

/// Values of audit annotations by key, of one policy.
#[derive(Default)]
pub(crate) struct AuditAnnotations {
    values: Vec<(String, Vec<String>)>,
}

impl AuditAnnotations {
    /// Adds a value; a value that another binding gave is ignored.
    pub(crate) fn add(&mut self, key: &str, value: &str) {
        // A character that is cut becomes a replacement character in the audit log.
        let end = value.len().min(MAX_AUDIT_VALUE);
        let value = String::from_utf8_lossy(value.as_bytes().get(..end).unwrap_or_default());
        let index = self.values.iter().position(|(known, _)| known == key).unwrap_or_else(|| {
            self.values.push((key.to_owned(), Vec::new()));
            self.values.len() - 1
        });
        if let Some((_, values)) = self.values.get_mut(index)
            && !values.iter().any(|known| *known == value)
        {
            values.push(value.into_owned());
        }
    }

    /// The annotations of a policy.
    pub(crate) fn publish(self, policy: &str) -> impl Iterator<Item = (String, String)> {
        let prefix = format!("{policy}/");
        self.values.into_iter().map(move |(key, values)| (format!("{prefix}{key}"), values.join(", ")))
    }
}
