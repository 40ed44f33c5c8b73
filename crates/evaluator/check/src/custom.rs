//! The API server's answer to a custom resource before it evaluates policies: errors of metadata, schema and rules.

use std::time::Instant;

use policy::crd::admit::{admit, document_path};
use policy::crd::object::validate;
use policy::crd::{Crd, Version};
use policy::facts::{Limit, Lookup};
use policy::field::{ErrorKind, FieldError, Path, Validated};
use policy::normalize::with_empty;
use policy::request::AdmissionRequest;
use policy::value::{Arena, Value};

use manifests::expression;
use manifests::kind::is_crd;
use manifests::objects::Manifest;

use crate::basis::{Basis, MAX_TIME, describe, refusal, shown};
use crate::changes::ObjectChange;
use crate::report::{DocumentFinding, Severity};

const ASK_SERVER: &str =
    "let an API server decide: kubectl apply --dry-run=server; or accept this: --allow-unknown";
const PRUNED: &str = "required but not declared: the API server prunes it. Declare it in the schema of the CRD, or set x-kubernetes-preserve-unknown-fields: true there";

/// Returns the findings about a create or an update of a custom resource or a CRD that could be decoded. `pruned` are the fields that its kind does not have.
pub(crate) fn check(
    basis: &Basis<'_>,
    change: &ObjectChange<'_>,
    request: &AdmissionRequest<'_>,
    crd: Option<(&Crd, &Version)>,
    pruned: &[Path],
    object: &Manifest,
    arena: &Arena,
) -> Vec<DocumentFinding> {
    if arena.is_full() {
        return vec![missing(object, &Lookup::Limit(Limit::Memory))];
    }
    let is_definition = is_crd(object);
    if request.old_object_is_unknown {
        return vec![missing(object, &Lookup::OldObject)];
    }
    let old = change.old.map(|_| request.old_object);
    if is_definition {
        let full = with_empty_collections(request.object, object, arena);
        if arena.is_full() {
            return vec![missing(object, &Lookup::Limit(Limit::Memory))];
        }
        return definition(basis, [request.object, full], old, object);
    }
    let Some((crd, version)) = crd else { return Vec::new() };
    let end = Instant::now() + MAX_TIME;
    let Validated { errors, undecided, unchanged, warnings } =
        validate((crd, version), request.object, old, basis.minor, arena, &|| Instant::now() < end);
    if arena.is_full() {
        return vec![missing(object, &Lookup::Limit(Limit::Memory))];
    }
    let pruned: Vec<String> = pruned.iter().map(ToString::to_string).collect();
    let denial = |error: &FieldError| {
        let is_pruned = error.kind == ErrorKind::Required && pruned.contains(&error.path.to_string());
        let next = if is_pruned { PRUNED } else { "" };
        DocumentFinding { next: next.to_owned(), ..invalid(object, error) }
    };
    let mut findings = shown(&errors, denial);
    let finalizers = Path::new("metadata").child("finalizers");
    findings.extend(warnings.into_iter().map(|message| warning(object, &finalizers, message)));
    findings.extend(shown(&unchanged, |error| warning(object, &error.path, error.to_string())));
    let text = |error: &FieldError| {
        if error.path.is_empty() { error.body.clone() } else { error.to_string() }
    };
    findings.extend(shown(&undecided, |error| open(object, &error.path, text(error))));
    findings
}

/// Returns a CRD whose schemas have empty lists and maps, which policies don't see.
fn with_empty_collections<'a>(new: Value<'a>, object: &Manifest, arena: &'a Arena) -> Value<'a> {
    let kind = (object.group(), object.version(), object.kind.as_str());
    let decoded = with_empty(kind, object.value(arena), arena).unwrap_or_default();
    match decoded.object.field("spec") {
        Some(spec) => new.with_field("spec", spec, arena),
        None => new,
    }
}

/// Returns the findings for a CRD that is created or updated. `full` is `new` with the empty lists and maps of its schemas.
fn definition(
    basis: &Basis<'_>,
    [new, full]: [Value<'_>; 2],
    old: Option<Value<'_>>,
    object: &Manifest,
) -> Vec<DocumentFinding> {
    let end = Instant::now() + MAX_TIME;
    let Validated { errors, undecided, warnings, .. } =
        admit(new, full, old, basis.minor, &|| Instant::now() < end);
    let finding = |error: &FieldError| {
        let field = document_path(&error.path);
        let position = match error.places.first() {
            Some((line, column, _)) => expression::position(object, &field, (*line, *column)),
            None => object.place_of(&field),
        };
        DocumentFinding {
            field: field.to_string(),
            position,
            next: error.hint.clone(),
            ..invalid(object, error)
        }
    };
    let mut findings = shown(&errors, finding);
    findings.extend(warnings.into_iter().map(|message| warning(object, &Path::default(), message)));
    findings.extend(shown(&undecided, |error| open(object, &error.path, error.to_string())));
    findings
}

/// Returns the finding that a fact or a limit leaves the verdict open.
pub(crate) fn missing(object: &Manifest, lookup: &Lookup) -> DocumentFinding {
    let (message, next) = describe(lookup);
    DocumentFinding { next, ..open(object, &Path::default(), message) }
}

/// Returns a denial by the schema.
pub(crate) fn invalid(object: &Manifest, error: &FieldError) -> DocumentFinding {
    DocumentFinding {
        verdict: Severity::Deny,
        message: error.to_string(),
        reason: "Invalid".to_owned(),
        code: Some(422),
        ..refusal(object, error)
    }
}

/// Returns a warning of the API server.
fn warning(object: &Manifest, path: &Path, message: String) -> DocumentFinding {
    DocumentFinding {
        verdict: Severity::Warn,
        message,
        reason: String::new(),
        code: None,
        ..refusal(object, &FieldError::forbidden(path, ""))
    }
}

/// Returns a finding that leaves the verdict open.
pub(crate) fn open(object: &Manifest, path: &Path, message: String) -> DocumentFinding {
    DocumentFinding {
        verdict: Severity::Unknown,
        message,
        reason: String::new(),
        code: None,
        next: ASK_SERVER.to_owned(),
        ..refusal(object, &FieldError::forbidden(path, ""))
    }
}
