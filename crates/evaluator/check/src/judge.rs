//! The verdict on one request.

use std::time::Instant;

use policy::facts::{Facts, Lookup};
use policy::field::{FieldError, Path};
use policy::request::{AdmissionRequest, GroupVersion, RequestUser};
use policy::set::{Decisions, Missing};
use policy::value::{Arena, write_json_up_to};
use policy::vap::decision::Objection;

use manifests::facts::FieldValidation;
use manifests::kind::is_crd;
use manifests::objects::Manifest;

use crate::basis::{Basis, MAX_TIME, describe, refusal, shown};
use crate::built_in;
use crate::changes::ObjectChange;
use crate::custom;
use crate::decoded::request_name;
use crate::grants::service_account;
use crate::report::{CheckedDocument, DocumentFinding, FailedRule, Judge, Severity};
use crate::storage;

/// Rounds of lookups. An answer can lead to another lookup: the kind of parameters, then the parameters.
const MAX_ROUNDS: usize = 8;

/// Longest body of a request in bytes: `MaxRequestBodyBytes` of `pkg/server/config.go` of `k8s.io/apiserver`.
const MAX_BODY: usize = 3 << 20;

/// State of one thread.
#[derive(Default)]
pub(crate) struct Worker {
    arena: Arena,
    /// Answers so far. They are the same for all requests.
    facts: Facts,
}

impl Basis<'_> {
    /// Judges a change.
    pub(crate) fn judge(&self, worker: &mut Worker, change: &ObjectChange<'_>) -> Option<CheckedDocument> {
        let document = self.document(worker, change);
        worker.arena.reset();
        document
    }

    fn document(&self, worker: &mut Worker, change: &ObjectChange<'_>) -> Option<CheckedDocument> {
        let object = change.object()?;
        let Worker { arena, facts } = worker;
        let arena = &*arena;
        let crd = self.kinds.crd(object.group(), object.version(), &object.kind);
        let mut decoded = self.decoded(change, crd, arena);
        let kind = GroupVersion { group: object.group(), version: object.version(), name: &object.kind };
        let groups = groups(self.user.unwrap_or_default());
        let groups: Vec<&str> = groups.iter().chain(self.groups).map(String::as_str).collect();
        let is_namespace = object.is("", "Namespace");
        let request = AdmissionRequest {
            operation: change.operation().as_str(),
            kind,
            resource: GroupVersion { name: &change.resource, ..kind },
            subresource: &change.subresource,
            name: &request_name(object),
            namespace: if is_namespace { &object.name } else { &change.namespace },
            user: RequestUser {
                name: self.user.unwrap_or_default(),
                groups: &groups,
                ..RequestUser::default()
            },
            user_is_unknown: self.user.is_none(),
            object: decoded.new,
            old_object: decoded.old,
            old_object_is_unknown: decoded.old_is_unknown,
            ..AdmissionRequest::default()
        };
        let is_validated = self.validates && change.new.is_some();
        if is_validated && change.new.is_some_and(|new| is_too_large(new, arena)) {
            decoded.refused = vec![too_large(object)];
        }
        let is_refused = !decoded.refused.is_empty();
        let is_crd = is_crd(object);
        let checked = match crd {
            _ if is_refused || !is_validated => Vec::new(),
            None if !is_crd => built_in::check(self, object, &decoded.errors, arena),
            _ => custom::check(self, change, &request, crd, &decoded.unknown, object, arena),
        };
        let decisions = if is_refused { Decisions::default() } else { self.evaluate(&request, facts, arena) };
        let id = (kind.group, kind.version, kind.name);
        let is_built_in = crd.is_none() && self.kinds.types(id).has(id);
        let is_open = is_built_in && self.is_open(id);
        let mut refused = decoded.refused;
        refused.extend(self.unknown_fields(object, &decoded.unknown, is_open));
        let storage = || storage::check(change, [decoded.new, decoded.old], object);
        let [before, after] = if self.validates { storage() } else { [None, None] };
        let findings = in_order(
            [refused, before.into_iter().collect(), checked],
            self.findings(object, &decisions),
            after.into_iter().collect(),
        );
        Some(CheckedDocument {
            position: object.position(),
            api_version: object.api_version.clone(),
            kind: object.kind.clone(),
            namespace: change.namespace.clone(),
            name: object.name.clone(),
            operation: change.operation(),
            schema_checked: is_validated && (crd.is_some() || is_crd),
            structure_only: is_validated && is_built_in && !is_crd,
            policies: judges(&decisions),
            lacks_server_fields: self.lacks_server_fields(&decisions),
            findings,
            audit_annotations: decisions.audit_annotations.into_iter().collect(),
        })
    }

    /// Returns whether unknown fields leave the verdict open, because the types of the kind are those of another minor.
    fn is_open(&self, kind: (&str, &str, &str)) -> bool {
        self.field_validation == FieldValidation::Strict && !self.kinds.has_types_of(self.minor, kind)
    }

    /// Returns the findings for fields that the kind does not have.
    fn unknown_fields(&self, object: &Manifest, fields: &[Path], is_open: bool) -> Vec<DocumentFinding> {
        match self.field_validation {
            FieldValidation::Ignore => Vec::new(),
            _ if is_open => shown(fields, |field| built_in::unknown_field(self, object, field)),
            _ => shown(fields, |field| self.unknown_field(object, field)),
        }
    }

    /// Returns the finding for a field that the kind does not have: a denial, or a warning.
    fn unknown_field(&self, object: &Manifest, field: &Path) -> DocumentFinding {
        let message = format!("unknown field \"{field}\"");
        let refusal = refusal(object, &FieldError::forbidden(field, ""));
        if self.field_validation == FieldValidation::Strict {
            return DocumentFinding { message: format!("strict decoding error: {message}"), ..refusal };
        }
        DocumentFinding { verdict: Severity::Warn, message, reason: String::new(), code: None, ..refusal }
    }

    /// Returns whether a policy that matched the document reads fields that the API server sets. Match conditions count, even if
    /// they skip the policy.
    fn lacks_server_fields(&self, decisions: &Decisions) -> bool {
        let mut evaluated = decisions.evaluated.iter();
        evaluated.any(|evaluated| self.set.reads_server_fields(&evaluated.policy))
    }

    /// Evaluates the policies, and again as long as facts answer a lookup.
    fn evaluate(&self, request: &AdmissionRequest<'_>, facts: &mut Facts, arena: &Arena) -> Decisions {
        let mut decisions = Decisions::default();
        let end = Instant::now() + MAX_TIME;
        facts.params_are_partial = !self.store.has_all_params();
        for _ in 0..MAX_ROUNDS {
            decisions = self.set.evaluate(request, facts, arena, &|| Instant::now() < end);
            let mut answered = false;
            for missing in &decisions.missing {
                answered |= match (&missing.lookup, self.grants) {
                    (Lookup::Check(check), Some(grants)) => {
                        facts.decisions.insert(check.clone(), grants.decide(check)).is_none()
                    }
                    (lookup, _) => self.store.answer(lookup, self.kinds, facts),
                };
            }
            if !answered {
                break;
            }
        }
        decisions
    }

    fn findings(&self, object: &Manifest, decisions: &Decisions) -> Vec<DocumentFinding> {
        let mut findings = Vec::new();
        for (order, denial) in decisions.denials.iter().enumerate() {
            let verdict = if denial.error { Severity::Error } else { Severity::Deny };
            findings.push(DocumentFinding {
                reason: denial.reason.clone(),
                code: Some(denial.code()),
                server_order: Some(order),
                ..self.objection(object, verdict, denial)
            });
        }
        for missing in &decisions.missing {
            let finding = unknown(object, missing);
            if !findings.contains(&finding) {
                findings.push(finding);
            }
        }
        let warned = decisions.warnings.iter().map(|warning| (Severity::Warn, warning));
        let audited = decisions.failures.iter().map(|failure| (Severity::Audit, failure));
        findings.extend(warned.chain(audited).map(|(verdict, one)| self.objection(object, verdict, one)));
        findings
    }

    fn objection(&self, object: &Manifest, verdict: Severity, objection: &Objection) -> DocumentFinding {
        let Objection { policy, validation, message, .. } = objection;
        let failed = validation.and_then(|index| Some((index, self.set.validation(policy, index)?)));
        let field = failed.and_then(|(_, (_, subject))| subject.cloned()).unwrap_or_default();
        DocumentFinding {
            verdict,
            policy: policy.clone(),
            binding: objection.binding.clone().unwrap_or_default(),
            rule: failed.map(|(index, (validation, _))| FailedRule {
                index,
                expression: validation.expression.trim().to_owned(),
            }),
            message: message.clone(),
            reason: String::new(),
            code: None,
            ..refusal(object, &FieldError::forbidden(&field, ""))
        }
    }
}

/// Returns the finding that a policy needs a fact.
fn unknown(object: &Manifest, missing: &Missing) -> DocumentFinding {
    let (message, next) = describe(&missing.lookup);
    DocumentFinding {
        verdict: Severity::Unknown,
        policy: missing.policy.clone(),
        binding: missing.binding.clone().unwrap_or_default(),
        message,
        reason: String::new(),
        code: None,
        next,
        ..refusal(object, &FieldError::forbidden(&Path::default(), ""))
    }
}

/// Returns whether an object does not fit into a request. Its text has at most six bytes for each byte in memory.
fn is_too_large(object: &Manifest, arena: &Arena) -> bool {
    object.document.root().size() > MAX_BODY / 6
        && write_json_up_to(object.value(arena), MAX_BODY).len() > MAX_BODY
}

/// Returns the finding for such an object.
fn too_large(object: &Manifest) -> DocumentFinding {
    DocumentFinding {
        verdict: Severity::Deny,
        message: format!("Request entity too large: limit is {MAX_BODY}"),
        reason: "RequestEntityTooLarge".to_owned(),
        code: Some(413),
        next: "split the object".to_owned(),
        ..refusal(object, &FieldError::forbidden(&Path::default(), ""))
    }
}

/// Returns the policies that judged a document.
fn judges(decisions: &Decisions) -> Vec<Judge> {
    let evaluated = decisions.evaluated.iter().filter(|evaluated| !evaluated.skipped);
    let judge =
        |policy: &String, binding: &String| Judge { policy: policy.clone(), binding: binding.clone() };
    let mut judges: Vec<Judge> =
        evaluated.map(|evaluated| judge(&evaluated.policy, &evaluated.binding)).collect();
    judges.dedup();
    judges
}

/// Returns the findings of a document. Each list of `first` is one response of the API server, each denial of `policies` another one,
/// and `last` is the last one. Their order is that in which the API server returns them. Other findings that leave the verdict open come
/// last, unless there is a denial.
fn in_order(
    first: [Vec<DocumentFinding>; 3],
    policies: Vec<DocumentFinding>,
    last: Vec<DocumentFinding>,
) -> Vec<DocumentFinding> {
    let (mut findings, mut undecided, mut order) = (Vec::new(), Vec::new(), 0);
    for response in first {
        let (open, decided): (Vec<_>, Vec<_>) =
            response.into_iter().partition(|finding| finding.verdict == Severity::Unknown);
        undecided.extend(open);
        let responded = in_response(decided, order);
        order += usize::from(responded.iter().any(DocumentFinding::is_denial));
        findings.extend(responded);
    }
    let shifted = policies.into_iter().map(|finding| DocumentFinding {
        server_order: finding.server_order.map(|own| own + order),
        ..finding
    });
    findings.extend(shifted);
    let next = findings.iter().filter_map(|finding| finding.server_order).max().map_or(0, |last| last + 1);
    findings.extend(in_response(last, next));
    if !findings.iter().any(DocumentFinding::is_denial) {
        findings.extend(undecided);
    }
    findings
}

/// Sets the place of a response in the order of the API server.
fn in_response(mut response: Vec<DocumentFinding>, order: usize) -> Vec<DocumentFinding> {
    let denials = response.iter_mut().filter(|finding| finding.is_denial());
    denials.for_each(|denial| denial.server_order = Some(order));
    response
}

/// Returns the groups that the API server gives a user.
fn groups(user: &str) -> Vec<String> {
    let mut groups = Vec::new();
    if let Some((namespace, _)) = service_account(user) {
        groups.push("system:serviceaccounts".to_owned());
        groups.push(format!("system:serviceaccounts:{namespace}"));
    }
    let everyone = if user == "system:anonymous" { "system:unauthenticated" } else { "system:authenticated" };
    groups.push(everyone.to_owned());
    groups
}
