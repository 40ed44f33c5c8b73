//! The API server's checks of rules when a CRD is created, `pkg/apis/apiextensions/validation` of `k8s.io/apiextensions-apiserver`.
//!
//! A rule and all rules of a schema have limits of their estimated cost. A rule counts as often as its field can occur.

use std::sync::Arc;

use super::{Compiler, ROOT_TYPE, child_type, field_path};
use crate::cel::environment::Environment;
use crate::cel::escape::escape;
use crate::cel::estimate::{Sizes, Within};
use crate::cel::program::Program;
use crate::cel::types::Type;
use crate::expression::library;
use crate::field::{FieldError, Path};
use crate::release::Release;
use crate::schema::declare::shape;
use crate::schema::sizes::{MAX_REQUEST, sizes};
use crate::schema::{self, Rule, Schema};

/// Estimated cost that a rule can have.
const RULE_LIMIT: u64 = 10_000_000;
/// Estimated cost that all rules of a schema can have.
const SCHEMA_LIMIT: u64 = 100_000_000;
/// Rules that the error about the cost of a schema names.
const NAMED: usize = 4;

const REASONS: [&str; 4] =
    ["FieldValueDuplicate", "FieldValueForbidden", "FieldValueInvalid", "FieldValueRequired"];

/// Returns the errors of the rules of a structural schema. `release` is that of new expressions. The paths start at the schema, and
/// `printed` is the path that the API server prints for it.
pub(crate) fn check(schema: &Schema, release: Release, printed: &Path) -> Vec<FieldError> {
    if super::has_rules(schema) { Admission::new(schema, release, printed).finish() } else { Vec::new() }
}

/// Returns the estimated costs of all rules and message expressions.
#[cfg(test)]
pub(super) fn costs(schema: &Schema, release: Release) -> Vec<(Path, u64)> {
    Admission::new(schema, release, &Path::default()).costs
}

/// Checks the fields of a rule that need no compilation.
fn written(rule: &Rule, schema: &Schema, path: &Path, errors: &mut Vec<FieldError>) {
    let (text, message) = (rule.rule.trim(), rule.message.trim());
    let at = path.child("message");
    if text.is_empty() {
        errors.push(FieldError::required(&path.child("rule"), "rule is not specified"));
    } else if !rule.message.is_empty() && message.is_empty() {
        errors.push(FieldError::invalid(&at, &rule.message, "must be non-empty if specified"));
    } else if message.contains('\n') {
        errors.push(FieldError::invalid(&at, &rule.message, "must not contain line breaks"));
    } else if text.contains('\n') && message.is_empty() {
        errors.push(FieldError::required(&at, "message must be specified if rule contains line breaks"));
    }
    if !rule.message_expression.is_empty() && rule.message_expression.trim().is_empty() {
        let detail = "messageExpression must be non-empty if specified";
        errors.push(FieldError::required(&path.child("messageExpression"), detail));
    }
    if let Some(reason) = rule.reason.as_deref().filter(|reason| !REASONS.contains(reason)) {
        errors.push(FieldError::not_supported(&path.child("reason"), reason, &REASONS));
    }
    let at = path.child("fieldPath");
    let mut invalid = |detail: &str| errors.push(FieldError::invalid(&at, &rule.field_path, detail));
    if !rule.field_path.is_empty() && rule.field_path.trim().is_empty() {
        invalid("must be non-empty if specified");
    }
    if rule.field_path.contains('\n') {
        invalid("must not contain line breaks");
    }
    if field_path::parse(&rule.field_path, schema).is_err() {
        invalid("must be a valid path");
    }
}

/// A schema within a CRD.
struct Place {
    of: Option<Type>,
    /// How often it can occur, if that has a limit.
    cardinality: Option<u64>,
    /// The list around it whose elements have no old value.
    uncorrelated: Option<Path>,
}

struct Admission {
    compiler: Compiler,
    /// The path of the schema as the API server prints it.
    printed: Path,
    costs: Vec<(Path, u64)>,
    errors: Vec<FieldError>,
}

impl Admission {
    fn new(schema: &Schema, release: Release, printed: &Path) -> Self {
        let mut compiler = Compiler { release, structs: Arc::default(), errors: Vec::new() };
        let of = compiler.declare(&shape(schema, true), ROOT_TYPE);
        let printed = printed.clone();
        let mut admission = Admission { compiler, printed, costs: Vec::new(), errors: Vec::new() };
        let root = Place { of, cardinality: Some(1), uncorrelated: None };
        let sizes = sizes(schema, true, release);
        admission.schema(schema, &root, sizes.as_ref(), &Path::default());
        admission
    }

    /// Checks the rules of a schema and of those within. Returns whether all of them are written well: the API server compiles the rules of
    /// a schema only if it has no other errors.
    fn schema(&mut self, schema: &Schema, place: &Place, sizes: Option<&Sizes>, path: &Path) -> bool {
        let before = self.errors.len();
        for (index, rule) in schema.rules.iter().enumerate() {
            let path = path.child("x-kubernetes-validations").index(index);
            written(rule, schema, &path, &mut self.errors);
        }
        let mut is_valid = self.errors.len() == before;
        let most = most_elements(schema);
        let cardinality = place.cardinality.and_then(|count| Some(count.saturating_mul(most?)));
        let uncorrelated = || place.uncorrelated.clone();
        if let Some(values) = schema.additional_schema() {
            let place =
                Place { of: child_type(place.of.as_ref()), cardinality, uncorrelated: uncorrelated() };
            is_valid &= self.schema(values, &place, within(sizes), &path.child("additionalProperties"));
        }
        for (name, property) in &schema.properties {
            let of = self.compiler.property_type(name, property, place.of.as_ref());
            let own;
            let sizes = match (escape(name), sizes.map(|sizes| &sizes.within)) {
                (Some(name), Some(Within::Fields(fields))) => fields.get(&name),
                (Some(_), _) => None,
                (None, _) => {
                    own =
                        schema::sizes::sizes(property, property.is_embedded_resource, self.compiler.release);
                    own.as_ref()
                }
            };
            let place = Place { of, cardinality, uncorrelated: uncorrelated() };
            is_valid &= self.schema(property, &place, sizes, &path.child("properties").key(name));
        }
        if let Some(items) = schema.items.as_deref() {
            let is_map = schema.list_type.as_deref() == Some("map");
            let uncorrelated = uncorrelated().or_else(|| (!is_map).then(|| path.clone()));
            let place = Place { of: child_type(place.of.as_ref()), cardinality, uncorrelated };
            is_valid &= self.schema(items, &place, within(sizes), &path.child("items"));
        }
        if is_valid && !schema.rules.is_empty() {
            self.rules(schema, place, sizes, path);
        }
        is_valid
    }

    /// Compiles the rules of a schema and estimates their cost.
    fn rules(&mut self, schema: &Schema, place: &Place, sizes: Option<&Sizes>, path: &Path) {
        let compiled = self.compiler.rules(schema, place.of.as_ref(), path);
        self.errors.append(&mut self.compiler.errors);
        let (Some(sizes), Some(of)) = (sizes, place.of.as_ref()) else { return };
        let mut environment = {
            let Compiler { release, structs, .. } = &self.compiler;
            Environment::rules(&library(*release), *release, structs)
        };
        let count = place.cardinality.unwrap_or(MAX_REQUEST / (sizes.min_bytes + 1));
        for (index, rule) in schema.rules.iter().enumerate() {
            let at = path.child("x-kubernetes-validations").index(index);
            environment.declare_self(of, rule.optional_old_self == Some(true));
            let Some(cost) = Program::estimate(&rule.rule, &environment, sizes) else { continue };
            self.cost("estimated rule cost", cost.saturating_mul(count), &at.child("rule"));
            if !rule.message_expression.is_empty()
                && let Some(cost) = Program::estimate(&rule.message_expression, &environment, sizes)
            {
                self.cost("estimated messageExpression cost", cost, &at.child("messageExpression"));
            }
        }
        for index in 0..schema.rules.len() {
            let rule = compiled.iter().find(|rule| rule.index == index);
            self.old_self(schema, index, rule.is_some_and(|rule| rule.program.reads.old_self), place, path);
        }
    }

    /// Checks that a rule that reads `oldSelf` can have an old value, and that only such a rule makes it optional.
    fn old_self(&mut self, schema: &Schema, index: usize, reads_old: bool, place: &Place, path: &Path) {
        let Some(rule) = schema.rules.get(index) else { return };
        let at = path.child("x-kubernetes-validations").index(index);
        if reads_old {
            if let Some(list) = &place.uncorrelated {
                let list = self.printed.join(list);
                let detail = format!(
                    "oldSelf cannot be used on the uncorrelatable portion of the schema within {list}"
                );
                self.errors.push(FieldError::invalid(&at.child("rule"), &rule.rule, &detail));
            }
        } else if let Some(value) = rule.optional_old_self {
            let detail = "may not be set if oldSelf is not used in rule"; // lint: allow(text of the API server)
            let at = at.child("optionalOldSelf");
            self.errors.push(FieldError::invalid_json(&at, &value.to_string(), detail));
        }
    }

    fn cost(&mut self, name: &str, cost: u64, path: &Path) {
        if cost > RULE_LIMIT {
            self.errors.push(FieldError::forbidden(path, &too_expensive(name, cost, RULE_LIMIT)));
        }
        self.costs.push((path.clone(), cost));
    }

    fn finish(mut self) -> Vec<FieldError> {
        let total = self.costs.iter().fold(0, |sum: u64, (_, cost)| sum.saturating_add(*cost));
        if total > SCHEMA_LIMIT {
            self.costs.retain(|(_, cost)| *cost >= SCHEMA_LIMIT / 100);
            self.costs.sort_by_key(|(_, cost)| std::cmp::Reverse(*cost));
            let detail =
                "contributed to estimated rule cost total exceeding cost limit for entire OpenAPIv3 schema";
            let named = self.costs.iter().take(NAMED).map(|(path, _)| FieldError::forbidden(path, detail));
            self.errors.extend(named);
            let name = "x-kubernetes-validations estimated rule cost total for entire OpenAPIv3 schema";
            let detail = too_expensive(name, total, SCHEMA_LIMIT);
            self.errors.push(FieldError::forbidden(&Path::default(), &detail));
        }
        self.errors
    }
}

/// The sizes of elements, or of the values of a map.
fn within(sizes: Option<&Sizes>) -> Option<&Sizes> {
    match &sizes?.within {
        Within::Elements(sizes) | Within::Values(sizes) => Some(sizes),
        _ => None,
    }
}

/// How many values the values of a schema can contain, if that has a limit.
fn most_elements(schema: &Schema) -> Option<u64> {
    let checks = schema.checks.as_deref();
    let bound = |max: Option<i64>| max.map(|max| u64::try_from(max).unwrap_or(0));
    match schema.kind {
        Some(schema::Type::Object) if schema.additional.is_some() => {
            bound(checks.and_then(|checks| checks.max_properties))
        }
        Some(schema::Type::Array) => bound(checks.and_then(|checks| checks.max_items)),
        _ => Some(1),
    }
}

fn too_expensive(name: &str, cost: u64, limit: u64) -> String {
    let factor = cost as f64 / limit as f64;
    let factor = if factor > 100.0 {
        "more than 100x".to_owned()
    } else if factor < 1.5 {
        format!("{factor:.6}x")
    } else {
        format!("{factor:.1}x")
    };
    format!(
        "{name} exceeds budget by factor of {factor} (try simplifying the rule, or adding maxItems, maxProperties, and maxLength where arrays, maps, and strings are declared)"
    )
}
