//! The basis of a verdict, and texts about verdicts that policies and custom resources share.

use std::time::Duration;

use policy::facts::{Limit, Lookup};
use policy::field::FieldError;
use policy::kinds::Kinds;
use policy::set::PolicySet;
use policy::value::MAX_BYTES;

use manifests::facts::{FactStore, FieldValidation};
use manifests::objects::Manifest;

use crate::grants::Grants;
use crate::report::{DocumentFinding, Severity};

/// Time for the policies on one request. An API server decides in less than a second.
pub(crate) const MAX_TIME: Duration = Duration::from_secs(10);

/// Findings of one response of the API server. A strange object can have a million errors.
const MAX_FINDINGS: usize = 1_000;

/// Everything that verdicts depend on besides the object.
#[derive(Clone, Copy)]
pub(crate) struct Basis<'c> {
    pub(crate) set: &'c PolicySet,
    pub(crate) kinds: &'c Kinds,
    pub(crate) store: &'c FactStore,
    /// Permissions, if they are known.
    pub(crate) grants: Option<&'c Grants>,
    pub(crate) user: Option<&'c str>,
    /// Groups of the user besides those that the API server gives to all users of the name.
    pub(crate) groups: &'c [String],
    /// Namespace of objects that name none.
    pub(crate) namespace: &'c str,
    /// Minor version of the API server.
    pub(crate) minor: u8,
    pub(crate) field_validation: FieldValidation,
    /// Whether objects are compared with their schemas. Cases test policies only.
    pub(crate) validates: bool,
}

/// Returns the findings of one response. Those above the limit are left out.
pub(crate) fn shown<T>(errors: &[T], finding: impl Fn(&T) -> DocumentFinding) -> Vec<DocumentFinding> {
    let mut findings: Vec<DocumentFinding> = errors.iter().take(MAX_FINDINGS).map(finding).collect();
    if let Some(last) = findings.last().filter(|_| errors.len() > MAX_FINDINGS).cloned() {
        let message = "more errors are not shown".to_owned();
        findings.push(DocumentFinding { message, field: String::new(), next: String::new(), ..last });
    }
    findings
}

/// Returns the finding for an object that the API server can't decode.
pub(crate) fn refusal(object: &Manifest, error: &FieldError) -> DocumentFinding {
    DocumentFinding {
        verdict: Severity::Error,
        policy: String::new(),
        binding: String::new(),
        rule: None,
        message: format!("{}: {}", error.path, error.body),
        reason: "BadRequest".to_owned(),
        code: Some(400),
        field: error.path.to_string(),
        position: object.place_of(&error.path),
        server_order: None,
        next: String::new(),
    }
}

/// Returns why a missing fact leaves the verdict open, and the next step.
pub(crate) fn describe(lookup: &Lookup) -> (String, String) {
    match lookup {
        Lookup::Namespace(name) => (
            format!("needs the Namespace object \"{name}\""),
            "add the Namespace to PATH or --with".to_owned(),
        ),
        Lookup::ParamKind(kind) => (
            format!("needs to know the kind {} in {}", kind.kind, kind.api_version),
            "add its CRD with --with".to_owned(),
        ),
        Lookup::Params(query) => {
            let place = if query.namespace.is_empty() {
                String::new()
            } else {
                format!(" in namespace \"{}\"", query.namespace)
            };
            let which = match &query.name {
                Some(name) => format!("the params {} \"{name}\"{place}", query.kind.kind),
                None => format!("the params of kind {}{place}", query.kind.kind),
            };
            let next = format!("add the object in {} to PATH or --with", query.kind.api_version);
            (format!("needs {which}"), next)
        }
        Lookup::Check(check) => {
            let account = match &check.service_account {
                Some((namespace, name)) => format!("service account {namespace}/{name}"),
                None => "the user".to_owned(),
            };
            (
                format!("needs the permissions of {account}: verb {}", check.verb),
                "write the permissions to a file: --grants FILE".to_owned(),
            )
        }
        Lookup::User => ("needs the user of the request".to_owned(), "name the user: --as USER".to_owned()),
        Lookup::OldObject => (
            "needs the old object in the version of the new one".to_owned(),
            "write both objects in the same apiVersion".to_owned(),
        ),
        Lookup::Limit(limit) => (
            match limit {
                Limit::Memory => format!("needs too much memory: more than {} MiB", MAX_BYTES >> 20),
                Limit::Time => format!("needs too much time: more than {} s", MAX_TIME.as_secs()),
                Limit::Regex => "needs a regular expression that is too large".to_owned(),
                Limit::Digits => "needs a quantity of more than 38 digits".to_owned(),
            },
            "simplify the policy, or let an API server decide: kubectl apply --dry-run=server".to_owned(),
        ),
        Lookup::Conversion { rule, .. } => (
            format!("needs the object in another version: the policy matches {rule}"),
            "write the manifest in that version, or add its version to the policy".to_owned(),
        ),
    }
}
