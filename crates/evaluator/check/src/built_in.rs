//! The API server's answer to an object of a built-in kind before it evaluates policies, as far as the structure decides.
//!
//! A built-in kind is validated by Go code, which has many more rules. So an object without a finding can still be refused.

use policy::facts::{Limit, Lookup};
use policy::field::{FieldError, Path};
use policy::normalize::RECORDED;
use policy::value::Arena;

use manifests::objects::Manifest;

use crate::basis::{Basis, shown};
use crate::custom::{invalid, missing, open};
use crate::report::{CheckedDocument, DocumentFinding};

const GIVE_TYPES: &str = "give the OpenAPI documents of that API server: --openapi PATH";

/// Returns the findings about an object that could be decoded. `errors` are those of its structure.
pub(crate) fn check(
    basis: &Basis<'_>,
    object: &Manifest,
    errors: &[FieldError],
    arena: &Arena,
) -> Vec<DocumentFinding> {
    if arena.is_full() {
        return vec![missing(object, &Lookup::Limit(Limit::Memory))];
    }
    let kind = (object.group(), object.version(), object.kind.as_str());
    if !basis.kinds.types(kind).has(kind) {
        let message = format!(
            "the schema of {} is not evaluated, so the API server could refuse the object",
            object.kind
        );
        return vec![open(object, &Path::default(), message)];
    }
    if basis.kinds.has_types_of(basis.minor, kind) {
        return shown(errors, |error| invalid(object, error));
    }
    shown(errors, |error| other_minor(basis, object, &error.path, &error.to_string()))
}

/// Returns the finding for a field that the recorded types don't have, if the API server has another version.
pub(crate) fn unknown_field(basis: &Basis<'_>, object: &Manifest, field: &Path) -> DocumentFinding {
    other_minor(basis, object, field, &format!("unknown field \"{field}\""))
}

/// Returns the finding for an error that an API server of another version could not report.
fn other_minor(basis: &Basis<'_>, object: &Manifest, field: &Path, error: &str) -> DocumentFinding {
    let message =
        format!("{error} in Kubernetes 1.{RECORDED}, and the types of 1.{} are not recorded", basis.minor);
    DocumentFinding { next: GIVE_TYPES.to_owned(), ..open(object, field, message) }
}

/// Returns the note about objects whose types are those of another version.
pub(crate) fn note(basis: &Basis<'_>, documents: &[CheckedDocument]) -> Option<String> {
    let is_other = |document: &&CheckedDocument| {
        let (group, version) = manifests::facts::group_version(&document.api_version);
        document.structure_only && !basis.kinds.has_types_of(basis.minor, (group, version, &document.kind))
    };
    let kinds = documents.iter().filter(is_other).map(|document| document.kind.as_str());
    let kinds: Vec<&str> = kinds.collect::<std::collections::BTreeSet<_>>().into_iter().collect();
    if kinds.is_empty() {
        return None;
    }
    Some(format!(
        "the types of Kubernetes 1.{} are not recorded: those of 1.{RECORDED} were used for {}; {GIVE_TYPES}",
        basis.minor,
        kinds.join(", ")
    ))
}
