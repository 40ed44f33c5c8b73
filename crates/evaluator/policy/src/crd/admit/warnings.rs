//! Warnings about schemas, `pkg/registry/customresourcedefinition/strategy.go` of `k8s.io/apiextensions-apiserver`.

use std::collections::BTreeSet;

use crate::crd::Crd;
use crate::release::Release;
use crate::schema::{Schema, SchemaType, formats};

/// Returns the warnings about a CRD. An update warns only of what the old CRD does not have.
pub(super) fn of(crd: &Crd, old: Option<&Crd>, release: Release) -> Vec<String> {
    let mut warnings = Vec::new();
    if release.warns_of_formats() {
        let known: BTreeSet<String> = old.map(|old| unknown_formats(old, release)).unwrap_or_default();
        let formats = unknown_formats(crd, release);
        let warning =
            |format: &String| format!("unrecognized format {}", crate::value::format::quote(format));
        warnings.extend(formats.difference(&known).map(warning));
    }
    if release.warns_of_sets() {
        let known: BTreeSet<String> = old.map(sets).unwrap_or_default();
        warnings.extend(sets(crd).difference(&known).cloned());
    }
    warnings
}

fn each(crd: &Crd, see: &mut dyn FnMut(&Schema)) {
    for schema in crd.versions.iter().filter_map(|version| version.schema.as_ref()) {
        schema.any(&mut |schema| {
            see(schema);
            false
        });
    }
}

/// The formats that an API server does not check.
fn unknown_formats(crd: &Crd, release: Release) -> BTreeSet<String> {
    let mut found = BTreeSet::new();
    each(crd, &mut |schema| {
        let format = schema.checks.as_ref().and_then(|checks| checks.format.as_deref());
        if let Some(format) = format.filter(|format| !formats::is_recognized(schema, format, release)) {
            found.insert(format.to_owned());
        }
    });
    found
}

/// The warnings about sets whose elements are objects or lists.
fn sets(crd: &Crd) -> BTreeSet<String> {
    let mut found = BTreeSet::new();
    each(crd, &mut |schema| {
        let items = schema.items.as_deref().filter(|_| schema.list_type.as_deref() == Some("set"));
        if let Some(SchemaType::Object | SchemaType::Array) = items.and_then(|items| items.kind.as_ref()) {
            let kind = items.map(Schema::type_name).unwrap_or_default();
            found.insert(format!(
                "x-kubernetes-list-type: set for items of type \"{kind}\" is not supported by server-side apply or CEL validation rules"
            ));
        }
    });
    found
}
