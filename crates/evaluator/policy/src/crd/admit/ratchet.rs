//! The checks that an update of a CRD skips, because the old CRD has the same defect: the options of
//! `ValidateCustomResourceDefinitionUpdate`.

use std::collections::HashSet;
use std::sync::Arc;

use super::keywords::{self, Strictness};
use crate::crd::Crd;
use crate::crd::rules::StoredRules;
use crate::field::Path;
use crate::release::Release;
use crate::schema::{Schema, SchemaType, prune};
use crate::value::{Arena, Value, identical, write_json};

/// Which checks a CRD must pass.
#[derive(Debug)]
pub(super) struct Ratchet {
    pub(super) strictness: Strictness,
    /// All versions need a schema.
    pub(super) schemas: bool,
    /// Schemas must be structural, even if unknown fields are kept.
    pub(super) structural: bool,
    /// Defaults can't have unknown fields.
    pub(super) pruned_defaults: bool,
    /// Expressions of the old CRD, which keep the functions of the server.
    pub(super) stored: Arc<StoredRules>,
    /// Versions with the schema of the old CRD. Their rules can be expensive one by one.
    pub(super) unchanged: HashSet<String>,
}

impl Ratchet {
    /// All checks, as for a new CRD.
    pub(super) fn all() -> Self {
        Self {
            strictness: Strictness::ALL,
            schemas: true,
            structural: true,
            pruned_defaults: true,
            stored: Arc::default(),
            unchanged: HashSet::new(),
        }
    }

    /// The checks of an update.
    pub(super) fn of(old: &Crd, values: [Value<'_>; 2], release: Release) -> Self {
        let schemas: Vec<&Schema> =
            old.versions.iter().filter_map(|version| version.schema.as_ref()).collect();
        let none = |is_defect: &dyn Fn(&Schema) -> bool| {
            !schemas.iter().any(|schema| schema.any(&mut |schema| is_defect(schema)))
        };
        let strictness = Strictness {
            types: none(&|schema| matches!(schema.kind, Some(SchemaType::Other(_)))),
            atomic_sets: none(&|schema| {
                schema.list_type.as_deref() == Some("set")
                    && schema.items.as_deref().is_some_and(|items| !keywords::is_atomic(items))
            }),
            map_keys: none(&|schema| {
                let mut errors = Vec::new();
                keywords::elements(schema, &Path::default(), &mut errors);
                !errors.is_empty()
            }),
        };
        let mut stored = StoredRules::default();
        for schema in &schemas {
            schema.any(&mut |schema: &Schema| {
                stored.add(&schema.rules, release);
                false
            });
        }
        Self {
            strictness,
            schemas: old.versions.iter().all(|version| version.schema.is_some()),
            structural: old
                .versions
                .iter()
                .all(|version| version.schema.is_none() || version.structural().is_some()),
            pruned_defaults: !old
                .versions
                .iter()
                .filter_map(|version| version.structural())
                .any(|schema| schema.any(&mut has_unpruned_default)),
            stored: Arc::new(stored),
            unchanged: unchanged(values),
        }
    }
}

/// The versions whose schemas are equal in two CRDs.
fn unchanged(values: [Value<'_>; 2]) -> HashSet<String> {
    let versions = |crd: Value<'_>| -> Vec<(String, String)> {
        let versions = crd.field("spec").and_then(|spec| spec.field("versions")).unwrap_or_default();
        let text = |version: Value<'_>| {
            let name = version.field("name").and_then(|name| name.as_str().map(str::to_owned));
            (name.unwrap_or_default(), write_json(version.field("schema").unwrap_or_default()))
        };
        versions.all_elements().map(text).collect()
    };
    let [new, old] = values.map(versions);
    // The schema that all old versions share is that of each version, also of a new one.
    let shared = old.split_first().filter(|(first, others)| others.iter().all(|other| other.1 == first.1));
    let is_kept = |version: &(String, String)| {
        shared.map_or_else(|| old.contains(version), |(first, _)| first.1 == version.1)
    };
    new.into_iter().filter(is_kept).map(|(name, _)| name).collect()
}

fn has_unpruned_default(schema: &Schema) -> bool {
    let arena = Arena::new();
    let Some(default) = &schema.default else { return false };
    let value = default.value(&arena);
    let (pruned, _) = prune::prune(value, schema, schema.is_embedded_resource, &arena);
    !identical(pruned, value, &mut || true)
}
