//! Finds sizes with which the estimated cost of a rule is low enough.
//!
//! The estimate grows with the sizes of the lists, maps and texts that the rule reads, and with the number of values that it applies to.
//! The sizes in the schema that have no bound get one. The largest bound with which the API server accepts the rule is the hint.

use crate::cel::environment::Environment;
use crate::cel::program::Program;
use crate::crd::admit::document_path;
use crate::field::{Path, PathStep};
use crate::release::Release;
use crate::schema::sizes::{MAX_REQUEST, sizes};
use crate::schema::{Schema, SchemaType};

/// Estimated cost that a rule can have.
pub(super) const RULE_LIMIT: u64 = 10_000_000;
/// Sizes without a bound that a search considers. A larger schema has no hint.
const MAX_SIZES: usize = 40;
/// Schemas that a search considers. Each attempt copies them.
const MAX_SCHEMAS: usize = 2_000;
/// The largest bound that is suggested. No value of a request is larger.
const MAX_BOUND: u64 = MAX_REQUEST;

/// A list, map or text of a schema.
#[derive(Clone, Debug)]
pub(super) struct Bounded {
    path: Path,
    keyword: &'static str,
    bound: Option<u64>,
}

/// Returns the keyword that bounds the values of a schema, if they are lists or maps.
pub(super) fn bounded(schema: &Schema, path: &Path) -> Option<Bounded> {
    let checks = schema.checks.as_deref();
    let (keyword, bound) = match schema.kind {
        Some(SchemaType::Array) => ("maxItems", checks.and_then(|checks| checks.max_items)),
        Some(SchemaType::Object) if schema.additional.is_some() => {
            ("maxProperties", checks.and_then(|checks| checks.max_properties))
        }
        _ => return None,
    };
    let bound = bound.map(|bound| u64::try_from(bound).unwrap_or(0));
    Some(Bounded { path: path.clone(), keyword, bound })
}

/// The lists, maps and texts of a schema and of those within that have no bound. `left` is the number of schemas that are considered.
fn unbounded(schema: &Schema, path: &Path, left: &mut usize, found: &mut Vec<Bounded>) {
    *left = left.saturating_sub(1);
    if *left == 0 {
        return;
    }
    let checks = schema.checks.as_deref();
    let is_text = schema.kind == Some(SchemaType::String) || schema.is_int_or_string;
    let has_size = |format: Option<&str>| matches!(format, Some("duration" | "date" | "date-time"));
    let is_open = checks.is_none_or(|checks| {
        checks.max_length.is_none() && checks.values.is_empty() && !has_size(checks.format.as_deref())
    });
    if is_text && is_open {
        found.push(Bounded { path: path.clone(), keyword: "maxLength", bound: None });
    }
    found.extend(bounded(schema, path).filter(|size| size.bound.is_none()));
    if let Some(items) = schema.items.as_deref() {
        unbounded(items, &path.child("items"), left, found);
    }
    if let Some(values) = schema.additional_schema() {
        unbounded(values, &path.child("additionalProperties"), left, found);
    }
    for (name, property) in &schema.properties {
        unbounded(property, &path.child("properties").key(name), left, found);
    }
}

/// A rule whose cost is too high.
pub(super) struct Search<'s> {
    pub(super) source: &'s str,
    pub(super) environment: &'s Environment,
    /// The schema of its values.
    pub(super) schema: &'s Schema,
    pub(super) is_resource: bool,
    /// The path of this schema.
    pub(super) path: &'s Path,
    /// The lists and maps around it. A message expression counts once, so it has none.
    pub(super) around: &'s [Bounded],
    pub(super) release: Release,
}

impl Search<'_> {
    /// Returns a sentence about the largest bounds with which the rule is cheap enough. `printed` is the path of the schema as the API
    /// server prints it.
    pub(super) fn hint(&self, printed: &Path) -> Option<String> {
        let (mut sizes, mut left) = (Vec::new(), MAX_SCHEMAS);
        unbounded(self.schema, self.path, &mut left, &mut sizes);
        if left == 0 {
            return None;
        }
        // The bounds at the end stay, if those before them are not needed.
        sizes.reverse();
        sizes.extend(self.around.iter().filter(|size| size.bound.is_none()).cloned());
        if sizes.is_empty() {
            sizes.extend(self.around.iter().cloned());
        }
        if sizes.is_empty() || sizes.len() > MAX_SIZES {
            return None;
        }
        let bound = self.largest(&sizes)?;
        let mut index = 0;
        while index < sizes.len() && sizes.len() > 1 {
            let removed = sizes.remove(index);
            if !self.passes(&sizes, bound) {
                sizes.insert(index, removed);
                index += 1;
            }
        }
        let bound = self.largest(&sizes)?;
        let text = |size: &Bounded| {
            format!("{}: {bound} in {}", size.keyword, document_path(&printed.join(&size.path)))
        };
        let sizes: Vec<String> = sizes.iter().map(text).collect();
        Some(format!("the API server accepts the rule with {}", sizes.join(", and ")))
    }

    /// The largest bound of all these sizes with which the rule is cheap enough.
    fn largest(&self, sizes: &[Bounded]) -> Option<u64> {
        if !self.passes(sizes, 1) {
            return None;
        }
        let (mut most, mut too_many) = (1, MAX_BOUND);
        while most + 1 < too_many {
            let middle = u64::midpoint(most, too_many);
            if self.passes(sizes, middle) {
                most = middle;
            } else {
                too_many = middle;
            }
        }
        Some(most)
    }

    fn passes(&self, sizes: &[Bounded], bound: u64) -> bool {
        self.cost(sizes, bound).is_some_and(|cost| cost <= RULE_LIMIT)
    }

    /// The estimated cost if these sizes have a bound.
    fn cost(&self, bounded: &[Bounded], bound: u64) -> Option<u64> {
        let mut schema = self.schema.clone();
        let depth = self.path.steps().len();
        for size in bounded {
            let below = size.path.steps().get(depth..).unwrap_or_default();
            if size.path.steps().starts_with(self.path.steps()) {
                restrict(&mut schema, below, size.keyword, bound);
            }
        }
        let all = sizes(&schema, self.is_resource, self.release)?;
        let own = |size: &Bounded| {
            let is_set = bounded.iter().any(|other| other.path == size.path);
            if is_set { Some(size.bound.map_or(bound, |own| own.min(bound))) } else { size.bound }
        };
        let count = self.around.iter().try_fold(1_u64, |count, size| Some(count.saturating_mul(own(size)?)));
        let count = count.unwrap_or(MAX_REQUEST / (all.min_bytes + 1));
        Some(Program::estimate(self.source, self.environment, &all)?.saturating_mul(count))
    }
}

/// Sets a bound of a schema within a schema.
fn restrict(schema: &mut Schema, steps: &[PathStep], keyword: &str, bound: u64) {
    let inner = match steps {
        [] => {
            let checks = schema.checks.get_or_insert_default();
            let bound = i64::try_from(bound).ok();
            match keyword {
                "maxItems" => checks.max_items = bound,
                "maxLength" => checks.max_length = bound,
                _ => checks.max_properties = bound,
            }
            return;
        }
        [PathStep::Field(name), rest @ ..] if name == "items" => schema.items.as_deref_mut().zip(Some(rest)),
        [PathStep::Field(name), rest @ ..] if name == "additionalProperties" => {
            schema.additional_schema_mut().zip(Some(rest))
        }
        [_, PathStep::Key(name), rest @ ..] => {
            let property = schema.properties.iter_mut().find(|(key, _)| **key == **name);
            property.map(|(_, schema)| schema).zip(Some(rest))
        }
        _ => None,
    };
    if let Some((inner, rest)) = inner {
        restrict(inner, rest, keyword, bound);
    }
}
