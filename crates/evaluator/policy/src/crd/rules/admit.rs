//! The API server's checks of the keywords and rules of a CRD, `pkg/apis/apiextensions/validation` of `k8s.io/apiextensions-apiserver`.
//!
//! A rule and all rules of a schema have limits of their estimated cost. A rule counts as often as its field can occur. It is compiled
//! only if no keyword at its schema or below is wrong.

use std::sync::Arc;

use super::hint::{self, Bounded, RULE_LIMIT};
use super::{ROOT_TYPE, RuleCompiler, StoredRules, child_type, field_path};
use crate::cel::escape::escape;
use crate::cel::estimate::{InnerSizes, Sizes};
use crate::cel::program::Program;
use crate::cel::types::CelType;
use crate::crd::admit::keywords::{self, Strictness};
use crate::field::{FieldError, Path};
use crate::release::Release;
use crate::schema::declare::shape;
use crate::schema::sizes::{MAX_REQUEST, sizes};
use crate::schema::{self, Schema, ValidationRule, structural};

/// Estimated cost that all rules of a schema can have.
const SCHEMA_LIMIT: u64 = 100_000_000;
/// Rules that the error about the cost of a schema names.
const NAMED: usize = 4;
/// Rules for which a cheap enough size is searched. A search estimates a cost some fifty times.
const MAX_HINTS: usize = 20;

const REASONS: [&str; 4] =
    ["FieldValueDuplicate", "FieldValueForbidden", "FieldValueInvalid", "FieldValueRequired"];

/// How a schema is checked.
#[derive(Clone, Copy)]
pub(crate) struct RuleOptions<'o> {
    /// That of new expressions.
    pub(crate) release: Release,
    /// Expressions of the CRD before an update.
    pub(crate) stored: &'o Arc<StoredRules>,
    /// Whether an update does not change the schema. A rule can then have any cost.
    pub(crate) is_unchanged: bool,
    pub(crate) strictness: Strictness,
    /// Whether the rules are compiled, as the API server does if the schema is structural and its defaults are valid.
    pub(crate) compiles: bool,
}

/// Returns the errors of the keywords and rules of a schema, whose path is `path`.
pub(crate) fn check(schema: &Schema, options: RuleOptions<'_>, path: &Path) -> Vec<FieldError> {
    let compiles = options.compiles && super::has_rules(schema);
    RuleChecks::new(schema, RuleOptions { compiles, ..options }, path).finish()
}

/// Returns the estimated costs of all rules and message expressions.
#[cfg(test)]
pub(super) fn costs(schema: &Schema, release: Release) -> Vec<(Path, u64)> {
    let stored = Arc::default();
    let strictness = Strictness::ALL;
    let options = RuleOptions { release, stored: &stored, is_unchanged: false, strictness, compiles: true };
    RuleChecks::new(schema, options, &Path::default()).costs
}

/// Checks the fields of a rule that need no compilation.
fn written(
    rule: &ValidationRule,
    schema: &Schema,
    path: &Path,
    release: Release,
    errors: &mut Vec<FieldError>,
) {
    let (text, message) = (rule.rule.trim(), rule.message.trim());
    let has_break = |text: &str| text.contains(['\n', '\r']);
    let names_field = release.names_fields_of_rules();
    let shown =
        |field: &str, detail: &str| if names_field { format!("{field} {detail}") } else { detail.to_owned() };
    let at = path.child("message");
    if text.is_empty() {
        errors.push(FieldError::required(&path.child("rule"), "rule is not specified"));
    } else if !rule.message.is_empty() && message.is_empty() {
        errors.push(FieldError::invalid(
            &at,
            &rule.message,
            &shown("message", "must be non-empty if specified"),
        ));
    } else if has_break(message) {
        let detail = shown("message", "must not contain line breaks");
        errors.push(FieldError::invalid(&at, &rule.message, &detail));
    } else if has_break(text) && message.is_empty() {
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
    let mut invalid =
        |detail: &str| errors.push(FieldError::invalid(&at, &rule.field_path, &shown("fieldPath", detail)));
    if !rule.field_path.is_empty() && rule.field_path.trim().is_empty() {
        invalid("must be non-empty if specified");
    }
    if has_break(&rule.field_path) {
        invalid("must not contain line breaks");
    }
    // The API server does not look for the field if it can't convert the schema.
    if !rule.field_path.is_empty()
        && structural::is_supported(schema)
        && field_path::parse(&rule.field_path, schema).is_err()
    {
        invalid("must be a valid path");
    }
}

/// A schema within a CRD.
struct RulePlace {
    of: Option<CelType>,
    /// Whether a schema around it has rules.
    in_rules: bool,
    /// Whether a schema around it, with rules there or around it, has no type. The API server then finds none for this one.
    is_untyped: bool,
    within: keywords::KeywordPlace,
    /// How often it can occur, if that has a limit.
    cardinality: Option<u64>,
    /// The lists and maps around it.
    around: Vec<Bounded>,
    /// The list around it whose elements have no old value.
    uncorrelated: Option<Path>,
}

struct RuleChecks<'o> {
    options: RuleOptions<'o>,
    compiler: RuleCompiler,
    /// The path of the schema as the API server prints it.
    printed: Path,
    costs: Vec<(Path, u64)>,
    errors: Vec<FieldError>,
    /// Rules for which a cheap enough size was found.
    hints: usize,
}

impl<'o> RuleChecks<'o> {
    fn new(schema: &Schema, options: RuleOptions<'o>, printed: &Path) -> Self {
        let compiler = RuleCompiler::new(options.release, options.stored);
        let (costs, errors, hints) = (Vec::new(), Vec::new(), 0);
        let mut admission = RuleChecks { options, compiler, printed: printed.clone(), costs, errors, hints };
        let (mut of, mut all_sizes) = (None, None);
        if options.compiles {
            of = admission.compiler.declare(&shape(schema, true, options.release), ROOT_TYPE);
            all_sizes = sizes(schema, true, options.release);
        }
        let within = keywords::KeywordPlace::root();
        let root = RulePlace {
            of,
            in_rules: false,
            is_untyped: false,
            within,
            cardinality: Some(1),
            around: Vec::new(),
            uncorrelated: None,
        };
        admission.schema(schema, &root, all_sizes.as_ref(), &Path::default());
        admission
    }

    /// Checks the keywords of a schema, and what is written in its rules. Returns whether they are right.
    fn keywords(&mut self, schema: &Schema, within: &keywords::KeywordPlace, path: &Path) -> bool {
        let RuleOptions { release, strictness, .. } = self.options;
        let before = self.errors.len();
        keywords::check(schema, within, strictness, path, &mut self.errors);
        for (index, rule) in schema.rules.iter().enumerate() {
            let path = path.child("x-kubernetes-validations").index(index);
            written(rule, schema, &path, release, &mut self.errors);
        }
        self.errors.len() == before
    }

    /// Checks a schema and those within. Returns whether all keywords are right: the API server compiles the rules of a schema only if
    /// they are.
    fn schema(&mut self, schema: &Schema, place: &RulePlace, sizes: Option<&Sizes>, path: &Path) -> bool {
        let mut is_valid = self.keywords(schema, &place.within, path);
        for (path, inner) in structural::junctors(schema, path) {
            is_valid &= self.clause(inner, &place.within.inner(), &path);
        }
        let most = most_elements(schema);
        let cardinality = place.cardinality.and_then(|count| Some(count.saturating_mul(most?)));
        let mut around = place.around.clone();
        around.extend(hint::bounded(schema, path));
        let in_rules = place.in_rules || !schema.rules.is_empty();
        let is_untyped = self.options.compiles
            && in_rules
            && place.of.is_none()
            && self.own_type(schema, place, path).is_none();
        let child = |of, within| RulePlace {
            of,
            in_rules,
            is_untyped,
            within,
            cardinality,
            around: around.clone(),
            uncorrelated: place.uncorrelated.clone(),
        };
        if let Some(values) = schema.additional_schema() {
            let place = child(child_type(place.of.as_ref()), place.within.additional());
            is_valid &= self.schema(values, &place, within(sizes), &path.child("additionalProperties"));
        }
        for (name, property) in &schema.properties {
            let of = if self.options.compiles {
                self.compiler.property_type(name, property, place.of.as_ref())
            } else {
                None
            };
            let own;
            let sizes = match (escape(name), sizes.map(|sizes| &sizes.within)) {
                (Some(name), Some(InnerSizes::Fields(fields))) => fields.get(&name),
                (None, _) if self.options.compiles => {
                    own = schema::sizes::sizes(property, property.is_embedded_resource, self.options.release);
                    own.as_ref()
                }
                _ => None,
            };
            let place = child(of, place.within.property(schema, name));
            is_valid &= self.schema(property, &place, sizes, &path.child("properties").key(name));
        }
        if let Some(items) = schema.items.as_deref() {
            let is_map = schema.list_type.as_deref() == Some("map");
            let mut place = child(child_type(place.of.as_ref()), place.within.inner());
            if !is_map && place.uncorrelated.is_none() {
                place.uncorrelated = Some(path.clone());
            }
            is_valid &= self.schema(items, &place, within(sizes), &path.child("items"));
        }
        if is_valid && self.options.compiles && !schema.rules.is_empty() {
            self.rules(schema, place, sizes, path);
        }
        is_valid
    }

    /// Checks a schema within `allOf` and its like, whose rules are never compiled.
    fn clause(&mut self, schema: &Schema, within: &keywords::KeywordPlace, path: &Path) -> bool {
        let mut is_valid = self.keywords(schema, within, path);
        for (path, inner) in structural::junctors(schema, path) {
            is_valid &= self.clause(inner, within, &path);
        }
        if let Some(values) = schema.additional_schema() {
            is_valid &= self.clause(values, &within.additional(), &path.child("additionalProperties"));
        }
        for (name, property) in &schema.properties {
            let path = path.child("properties").key(name);
            is_valid &= self.clause(property, &within.property(schema, name), &path);
        }
        if let Some(items) = schema.items.as_deref() {
            is_valid &= self.clause(items, within, &path.child("items"));
        }
        is_valid
    }

    /// Returns the type of a schema that the schemas around it don't have.
    fn own_type(&mut self, schema: &Schema, place: &RulePlace, path: &Path) -> Option<CelType> {
        if place.is_untyped {
            return None;
        }
        let is_resource = path.is_empty() || schema.is_embedded_resource;
        self.compiler
            .declare(&shape(schema, is_resource, self.options.release), &format!("{ROOT_TYPE}.@{path}"))
    }

    /// Compiles the rules of a schema and estimates their cost.
    fn rules(&mut self, schema: &Schema, place: &RulePlace, sizes: Option<&Sizes>, path: &Path) {
        // A schema within one that has no type in expressions has its own type.
        let is_resource = path.is_empty() || schema.is_embedded_resource;
        let (own, own_sizes);
        let (of, sizes) = if place.of.is_none() {
            own = self.own_type(schema, place, path);
            own_sizes = schema::sizes::sizes(schema, is_resource, self.options.release);
            (own.as_ref(), own_sizes.as_ref())
        } else {
            (place.of.as_ref(), sizes)
        };
        let compiled = self.compiler.rules(schema, of, path);
        self.errors.append(&mut self.compiler.errors);
        let (Some(sizes), Some(of)) = (sizes, of) else { return };
        let count = place.cardinality.unwrap_or(MAX_REQUEST / (sizes.min_bytes + 1));
        for (index, rule) in schema.rules.iter().enumerate() {
            let at = path.child("x-kubernetes-validations").index(index);
            let [environment, of_message] = self.compiler.environments(rule, of);
            let Some(cost) = Program::estimate(&rule.rule, &environment, sizes) else { continue };
            let search = |source, environment, around| hint::Search {
                source,
                environment,
                schema,
                is_resource,
                path,
                around,
                release: self.options.release,
            };
            let (expression, message) = (
                search(&rule.rule, &environment, &place.around[..]),
                search(&rule.message_expression, &of_message, &[]),
            );
            let mut estimated = vec![("estimated rule cost", "rule", cost.saturating_mul(count), expression)];
            if !rule.message_expression.is_empty()
                && let Some(cost) = Program::estimate(&rule.message_expression, &of_message, sizes)
            {
                estimated.push(("estimated messageExpression cost", "messageExpression", cost, message));
            }
            let estimated: Vec<_> = estimated
                .into_iter()
                .map(|(name, field, cost, search)| {
                    let is_dear = cost > RULE_LIMIT && !self.options.is_unchanged;
                    let has_hint = is_dear && self.hints < MAX_HINTS;
                    let hint = if has_hint { search.hint(&self.printed) } else { None };
                    (name, at.child(field), cost, is_dear, hint)
                })
                .collect();
            for (name, path, cost, is_dear, hint) in estimated {
                if is_dear {
                    self.hints += usize::from(hint.is_some());
                    let error = FieldError::forbidden(&path, &too_expensive(name, cost, RULE_LIMIT));
                    self.errors.push(FieldError { hint: hint.unwrap_or_default(), ..error });
                }
                self.costs.push((path, cost));
            }
        }
        for index in 0..schema.rules.len() {
            let rule = compiled.iter().find(|rule| rule.index == index);
            self.old_self(schema, index, rule.is_some_and(|rule| rule.program.reads.old_self), place, path);
        }
    }

    /// Checks that a rule that reads `oldSelf` can have an old value, and that only such a rule makes it optional.
    fn old_self(&mut self, schema: &Schema, index: usize, reads_old: bool, place: &RulePlace, path: &Path) {
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
        let Self { printed, mut errors, .. } = self;
        for error in &mut errors {
            error.path = printed.join(&error.path);
        }
        errors
    }
}

/// The sizes of elements, or of the values of a map.
fn within(sizes: Option<&Sizes>) -> Option<&Sizes> {
    match &sizes?.within {
        InnerSizes::Elements(sizes) | InnerSizes::Values(sizes) => Some(sizes),
        _ => None,
    }
}

/// How many values the values of a schema can contain, if that has a limit.
fn most_elements(schema: &Schema) -> Option<u64> {
    let checks = schema.checks.as_deref();
    let bound = |max: Option<i64>| max.map(|max| u64::try_from(max).unwrap_or(0));
    match schema.kind {
        Some(schema::SchemaType::Object) if schema.additional.is_some() => {
            bound(checks.and_then(|checks| checks.max_properties))
        }
        Some(schema::SchemaType::Array) => bound(checks.and_then(|checks| checks.max_items)),
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
