//! Owner references that an update adds to a `StatefulSet`, PVC or PDB. The garbage collector reads an owner by kind and name, and
//! deletes the object if the owner has another uid or is missing. A reference with another kind, name or uid is therefore a new one.

use std::collections::BTreeSet;

use admission::{Cause, Object};
use serde::Deserialize;

use super::super::removal::{ReviewedField, malformed};
use super::Input;

/// The next step after a denial.
pub(super) const NEXT: &str =
    "if an operator manages it, list the operator's user in guards.etcd.controllerUsers";

#[derive(PartialEq, Eq, PartialOrd, Ord, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Reference {
    api_version: String,
    kind: String,
    name: String,
    uid: String,
}

/// Whether the new object has an owner that the old one does not have.
pub(super) fn are_added(input: Input<'_>) -> Result<bool, Cause> {
    let new = input.request.object.as_ref().ok_or_else(|| malformed("it has no object"))?;
    let before = references(input.old)?;
    Ok(references(new)?.iter().any(|reference| !before.contains(reference)))
}

fn references(object: &Object<'_>) -> Result<BTreeSet<Reference>, Cause> {
    if let Some(key) = object.duplicate_key() {
        return Err(malformed(&format!("duplicate key {key}")));
    }
    let Some(raw) = object.field(ReviewedField::Owners) else { return Ok(BTreeSet::new()) };
    let references: Option<BTreeSet<Reference>> =
        raw.parse().map_err(|_| malformed("ownerReferences cannot be read"))?;
    Ok(references.unwrap_or_default())
}
