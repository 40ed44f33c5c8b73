//! Owner references that an update adds to a `StatefulSet`, PVC or PDB.

use std::collections::BTreeSet;

use admission::{Cause, Object};
use serde::Deserialize;

use super::super::removal::{OWNERS, malformed};
use super::Input;

/// The next step after a denial.
pub(super) const NEXT: &str =
    "if an operator manages it, list the operator's user in guards.etcd.controllerUsers";

#[derive(Deserialize)]
struct Reference {
    uid: String,
}

/// Whether the new object has an owner that the old one does not have.
pub(super) fn are_added(input: Input<'_>) -> Result<bool, Cause> {
    let new = input.request.object.as_ref().ok_or_else(|| malformed("it has no object"))?;
    let before = uids(input.old)?;
    Ok(uids(new)?.iter().any(|uid| !before.contains(uid)))
}

fn uids(object: &Object<'_>) -> Result<BTreeSet<String>, Cause> {
    if let Some(key) = object.duplicate_key() {
        return Err(malformed(&format!("duplicate key {key}")));
    }
    let Some(raw) = object.field(OWNERS) else { return Ok(BTreeSet::new()) };
    let references: Option<Vec<Reference>> =
        raw.parse().map_err(|_| malformed("ownerReferences cannot be read"))?;
    Ok(references.unwrap_or_default().into_iter().map(|reference| reference.uid).collect())
}
