//! The result of a run of `check`. Every output format is written from a [`CheckReport`], and its JSON form is the format `json`.

use std::collections::BTreeMap;

use admission::Operation;
use config::Place;
use console::exit::Exit;
use manifests::LoadProblem;
use serde::{Serialize, Serializer};

/// The result of a run.
#[derive(Debug, Clone, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct CheckReport {
    /// Minor version of the API server that the verdicts are for, such as `1.35`.
    pub(crate) kube_version: String,
    /// Namespace of namespaced objects that name none.
    pub(crate) namespace: String,
    /// Remarks about the run; each is printed once.
    pub(crate) notes: Vec<String>,
    /// Documents that can't be used, sorted by file and line.
    pub(crate) problems: Vec<LoadProblem>,
    /// Checked documents, sorted by file and line.
    pub(crate) documents: Vec<CheckedDocument>,
    /// Cases, sorted by file and line.
    pub(crate) cases: Vec<CheckedCase>,
    /// Numbers of documents and findings.
    pub(crate) totals: Totals,
    /// Exit code of the command.
    pub(crate) exit_code: Exit,
}

#[allow(clippy::trivially_copy_pass_by_ref, reason = "serde passes a reference")]
fn operation<S: Serializer>(operation: &Operation, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_str(operation.as_str())
}

/// A document and its findings. It passes if there are none.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct CheckedDocument {
    /// First line of the document.
    #[serde(flatten)]
    pub(crate) position: Place,
    /// `apiVersion`
    pub(crate) api_version: String,
    /// `kind`
    pub(crate) kind: String,
    /// Namespace of the request; empty for cluster-scoped objects.
    pub(crate) namespace: String,
    /// Name; `generateName` if there is only that.
    pub(crate) name: String,
    /// Operation of the request that the document stands for: `CREATE`; `UPDATE` if it is in PATH and in `--old`; `DELETE` if it is in
    /// `--old` only.
    #[serde(serialize_with = "operation")]
    pub(crate) operation: Operation,
    /// Whether the object was compared with the schema of its CRD. A CRD was checked as the API server checks it.
    pub(crate) schema_checked: bool,
    /// Whether the object is one of a built-in kind. Only its structure was checked: fields, types, required fields and enums.
    pub(crate) structure_only: bool,
    /// Policies that judged the document.
    pub(crate) policies: Vec<Judge>,
    /// Whether a policy that matched the document reads fields that the API server sets. The report has a note about it.
    #[serde(skip)]
    pub(crate) lacks_server_fields: bool,
    /// Findings in the order of the API server.
    pub(crate) findings: Vec<DocumentFinding>,
    /// Annotations of the request in the audit log, by key.
    pub(crate) audit_annotations: BTreeMap<String, String>,
}

impl CheckedDocument {
    /// Returns `namespace/name`, or the name of a cluster-scoped object.
    pub(crate) fn full_name(&self) -> String {
        if self.namespace.is_empty() {
            self.name.clone()
        } else {
            format!("{}/{}", self.namespace, self.name)
        }
    }
}

impl CheckedDocument {
    /// Returns whether the API server returns a denial only after those of other responses are fixed. It reports all errors of a schema
    /// together, before any policy.
    pub(crate) fn is_later(&self, finding: &DocumentFinding) -> bool {
        let order = |finding: &DocumentFinding| finding.server_order.unwrap_or_default();
        let is_before = |other: &DocumentFinding| {
            other.policy.is_empty() && other.server_order.is_some() && order(other) < order(finding)
        };
        self.findings.iter().any(is_before)
    }
}

/// A policy and binding that matched a document.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Judge {
    /// The policy.
    pub(crate) policy: String,
    /// The binding.
    pub(crate) binding: String,
}

/// The meaning of a finding for the request.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) enum Severity {
    /// A validation is false and its binding denies, or a custom resource does not fit its schema.
    Deny,
    /// An evaluation failed, and `failurePolicy: Fail` denies the request.
    Error,
    /// A fact that was not given decides about the request, or a part of a schema that is not evaluated.
    Unknown,
    /// A validation failed and its binding warns.
    Warn,
    /// A validation failed and its binding records it in the audit log.
    Audit,
}

impl Severity {
    /// Returns the word of the formats.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Deny => "deny",
            Self::Error => "error",
            Self::Unknown => "unknown",
            Self::Warn => "warn",
            Self::Audit => "audit",
        }
    }
}

/// One finding.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct DocumentFinding {
    /// Its meaning for the request.
    pub(crate) verdict: Severity,
    /// The policy; empty if the finding is about no single policy.
    pub(crate) policy: String,
    /// The binding; empty if the finding is about the policy itself.
    pub(crate) binding: String,
    /// The validation, if one failed.
    pub(crate) rule: Option<FailedRule>,
    /// The message. For denials, errors and warnings it is the API server's text without the names of policy and binding.
    pub(crate) message: String,
    /// Reason of the API server's status, such as `Invalid`; empty unless the request is denied.
    pub(crate) reason: String,
    /// HTTP code of the API server's status; only if the request is denied.
    pub(crate) code: Option<u16>,
    /// The field that the rule is about, such as `spec.replicas`, or empty.
    pub(crate) field: String,
    /// Place of the field, or of the document.
    #[serde(flatten)]
    pub(crate) position: Place,
    /// Place of the API server's response among those that deny the document, from 0. The API server returns the first one only.
    pub(crate) server_order: Option<usize>,
    /// The next step, or empty.
    pub(crate) next: String,
}

impl DocumentFinding {
    /// Returns whether the API server denies the request.
    pub(crate) fn is_denial(&self) -> bool {
        matches!(self.verdict, Severity::Deny | Severity::Error)
    }
}

/// A validation of a policy.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct FailedRule {
    /// Index in `spec.validations`.
    pub(crate) index: usize,
    /// Its expression.
    pub(crate) expression: String,
}

/// A case of a document of kind `Cases`, and its result.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct CheckedCase {
    /// Place of the case; of its expected verdict if it failed.
    #[serde(flatten)]
    pub(crate) position: Place,
    /// Name of the case.
    pub(crate) name: String,
    /// Whether the verdict is the expected one.
    pub(crate) passed: bool,
    /// The expected verdict, if the case failed.
    pub(crate) expected: String,
    /// The actual verdict, if the case failed.
    pub(crate) actual: String,
    /// The next step, or empty.
    pub(crate) next: String,
}

/// Numbers of a run.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Totals {
    /// Policies.
    pub(crate) policies: usize,
    /// Bindings.
    pub(crate) bindings: usize,
    /// Checked documents.
    pub(crate) documents: usize,
    /// Documents that at least one policy judged.
    pub(crate) matched: usize,
    /// Documents that the API server denies.
    pub(crate) denied: usize,
    /// Documents that could not be decided: a fact was not given, or a part of a schema is not evaluated.
    pub(crate) unknown: usize,
    /// Findings with the verdict `warn`.
    pub(crate) warnings: usize,
    /// Findings with the verdict `audit`.
    pub(crate) audits: usize,
    /// Problems of documents that can't be used.
    pub(crate) problems: usize,
    /// Cases.
    pub(crate) cases: usize,
    /// Cases with another verdict than the expected one.
    pub(crate) failed_cases: usize,
}
