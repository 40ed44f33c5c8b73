//! Validates values with schemas, with the API server's texts.
//!
//! Errors are in the order in which the API server finds them, and those of fields in the order of keys. Within `anyOf` and `oneOf`
//! the API server reports the errors of the schema with the most checks that pass. The number of these checks is therefore counted
//! as it counts them.

use super::bounds;
use super::correlate::Correlation;
use super::formats::{self, StringFormat};
use super::model::{Additional, Schema, SchemaType, ValueChecks};
use super::validator::{MAX_STEPS, NodeErrors, Validator, named};
use crate::field::{FieldError, Path, Validated};
use crate::place::ValuePlace;
use crate::release::Release;
use crate::value::format::{go_json, quote};
use crate::value::{Arena, Value, identical};

/// Validates a value below a path. `old` is the value before an update: errors in unchanged parts of it are ignored.
pub(crate) fn validate<'a>(
    value: Value<'a>,
    schema: &'a Schema,
    path: &Path,
    old: Option<Value<'a>>,
    release: Release,
) -> Validated {
    within(MAX_STEPS, value, schema, path, old, release)
}

/// Validates a default. The API server builds the schema for it in another way: formats that it does not know remain, and
/// `x-kubernetes-int-or-string` allows every type.
pub(crate) fn default<'a>(value: Value<'a>, schema: &'a Schema, path: &Path, release: Release) -> Validated {
    let mut validator =
        Validator { base: path, release, is_default: true, steps: MAX_STEPS, undecided: Vec::new() };
    let outcome = validator.node(value, schema, &ValuePlace::root(), None);
    Validated { errors: outcome.errors, undecided: validator.undecided, ..Validated::default() }
}

/// Validates a value with a limit of steps.
pub(super) fn within<'a>(
    max_steps: usize,
    value: Value<'a>,
    schema: &'a Schema,
    path: &Path,
    old: Option<Value<'a>>,
    release: Release,
) -> Validated {
    let mut validator =
        Validator { base: path, release, is_default: false, steps: max_steps, undecided: Vec::new() };
    let pair = old.map(|old| Correlation::new(value, old, schema));
    let outcome = validator.node(value, schema, &ValuePlace::root(), pair.as_ref());
    Validated { errors: outcome.errors, undecided: validator.undecided, ..Validated::default() }
}

impl Validator<'_> {
    fn node<'a>(
        &mut self,
        value: Value<'a>,
        schema: &'a Schema,
        place: &ValuePlace<'_>,
        pair: Option<&Correlation<'a>>,
    ) -> NodeErrors {
        let mut outcome = NodeErrors::default();
        if !self.charge(place) {
            return NodeErrors { is_undecided: true, ..outcome };
        }
        if !schema.unsupported.is_empty() {
            self.undecided(place, &format!("the schema has {}", schema.unsupported.join(", ")));
            outcome.is_undecided = true;
        }
        let checks = schema.checks.as_deref();
        let format = checks.and_then(|checks| formats::of(schema, checks, self.release, self.is_default));
        self.check_type(value, schema, format, place, &mut outcome);
        if !matches!(value, Value::Null) {
            // Two for the validator of combined schemas, one for that of values, and one for the node.
            outcome.matches += 4;
            if let Some(checks) = checks {
                self.junctors(value, checks, place, &mut outcome);
            }
            match value {
                Value::String(text) => self.check_text(text, checks, format, place, &mut outcome),
                Value::Int(_) | Value::Double(_) => {
                    outcome.matches += 2;
                    bounds::check(self, value, schema, checks, format, place, &mut outcome);
                }
                Value::List(items) => self.list(items, schema, place, pair, &mut outcome),
                _ => {}
            }
        }
        if let Some(checks) = checks {
            self.check_values(value, checks, place, &mut outcome);
        }
        if let Value::Object(entries) = value {
            outcome.matches += 1;
            self.object(entries, schema, place, pair, &mut outcome);
        }
        if checks.is_some_and(ValueChecks::has_junctors) {
            outcome.unique();
        }
        // The API server never finds an object unchanged: a schema can't declare `metadata.uid`.
        if !outcome.is_valid()
            && !place.is_root()
            && let Some(pair) = pair
            && pair.is_unchanged(&mut || self.charge(place))
        {
            outcome.errors.clear();
        }
        outcome.is_undecided |= self.steps == 0;
        outcome
    }

    fn check_type(
        &self,
        value: Value<'_>,
        schema: &Schema,
        format: Option<StringFormat<'_>>,
        place: &ValuePlace<'_>,
        outcome: &mut NodeErrors,
    ) {
        let types = self.types(schema);
        let (found, found_format) = match value {
            Value::Null => {
                if !types.is_empty() && !schema.nullable && types.names() != "null" {
                    outcome.push(self.wrong_type(place, types.names(), "null"));
                } else {
                    outcome.matches += 1;
                }
                return;
            }
            Value::Bool(_) => (SchemaType::Boolean, ""),
            Value::Int(_) => (SchemaType::Integer, "int64"),
            Value::Double(_) => (SchemaType::Number, "float64"),
            Value::String(_) => (SchemaType::String, ""),
            Value::List(_) => (SchemaType::Array, ""),
            _ => (SchemaType::Object, ""),
        };
        if types.is_empty() && format.is_none() {
            return;
        }
        // The validator applies.
        outcome.matches += 1;
        let is_number = matches!(value, Value::Int(_)) && types.contains(&SchemaType::Number)
            || matches!(value, Value::Double(double) if bounds::is_integer(double, self.release))
                && types.contains(&SchemaType::Integer);
        let fits = types.contains(&found) || is_number;
        if let Some(format) = format {
            let is_sized = matches!(value, Value::String(_) | Value::List(_));
            if !is_sized && !fits && found_format != format.name {
                outcome.push(self.wrong_type(place, format.name, found_format));
                return;
            }
            if is_sized && !types.contains(&SchemaType::Number) && !types.contains(&SchemaType::Integer) {
                outcome.matches += 1;
                return;
            }
        }
        if fits {
            outcome.matches += 1;
        } else {
            outcome.push(self.wrong_type(place, types.names(), found.name()));
        }
    }

    /// A value of another type or format. The text repeats what was found.
    fn wrong_type(&self, place: &ValuePlace<'_>, expected: &str, found: &str) -> FieldError {
        let detail = format!("{place} in body must be of type {expected}: {}", quote(found));
        let path = place.path(self.base);
        named(FieldError::type_invalid(&path, Value::String(found), &detail))
    }

    /// Checks `anyOf`, `oneOf`, `allOf` and `not`. The schemas there ignore the value before the update.
    fn junctors<'a>(
        &mut self,
        value: Value<'a>,
        checks: &'a ValueChecks,
        place: &ValuePlace<'_>,
        outcome: &mut NodeErrors,
    ) {
        if !checks.any_of.is_empty() {
            self.any_of(value, &checks.any_of, place, outcome);
        }
        if !checks.one_of.is_empty() {
            self.one_of(value, &checks.one_of, place, outcome);
        }
        let mut valid = 0;
        for schema in &checks.all_of {
            let result = self.node(value, schema, place, None);
            valid += usize::from(result.is_valid());
            outcome.merge(result);
        }
        if valid < checks.all_of.len() {
            let none = if valid == 0 { ". None validated" } else { "" };
            let name = quote(&place.to_string());
            outcome.push(self.general(place, &format!("{name} must validate all the schemas (allOf){none}")));
        }
        if let Some(schema) = &checks.not {
            let result = self.node(value, schema, place, None);
            outcome.is_undecided |= result.is_undecided;
            if result.is_valid() && !result.is_undecided {
                let name = quote(&place.to_string());
                outcome.push(self.general(place, &format!("{name} must not validate the schema (not)")));
            }
        }
    }

    fn any_of<'a>(
        &mut self,
        value: Value<'a>,
        schemas: &'a [Schema],
        place: &ValuePlace<'_>,
        outcome: &mut NodeErrors,
    ) {
        let mut best: Option<NodeErrors> = None;
        let mut is_undecided = false;
        let undecided_before = self.undecided.len();
        for schema in schemas {
            let result = self.node(value, schema, place, None);
            if result.is_undecided {
                is_undecided = true;
            } else if result.is_valid() {
                // An undecided schema before this one does not matter.
                if self.steps > 0 {
                    self.undecided.truncate(undecided_before);
                }
                outcome.matches += result.matches;
                return;
            } else if best.as_ref().is_none_or(|best| result.matches > best.matches) {
                best = Some(result);
            }
        }
        if is_undecided {
            outcome.is_undecided = true;
            return;
        }
        let name = quote(&place.to_string());
        outcome.push(self.general(place, &format!("{name} must validate at least one schema (anyOf)")));
        if let Some(best) = best {
            outcome.merge(best);
        }
    }

    fn one_of<'a>(
        &mut self,
        value: Value<'a>,
        schemas: &'a [Schema],
        place: &ValuePlace<'_>,
        outcome: &mut NodeErrors,
    ) {
        let mut best: Option<NodeErrors> = None;
        let mut first: Option<u64> = None;
        let mut valid = 0;
        for schema in schemas {
            let result = self.node(value, schema, place, None);
            if result.is_undecided {
                outcome.is_undecided = true;
            } else if result.is_valid() {
                valid += 1;
                best = None;
                first = first.or(Some(result.matches));
            } else if valid == 0 && best.as_ref().is_none_or(|best| result.matches > best.matches) {
                best = Some(result);
            }
        }
        if outcome.is_undecided {
            return;
        }
        if valid == 1 {
            outcome.matches += first.unwrap_or_default();
            return;
        }
        let found = if valid == 0 {
            "Found none valid".to_owned()
        } else {
            format!("Found {valid} valid alternatives")
        };
        let name = quote(&place.to_string());
        let detail = format!("{name} must validate one and only one schema (oneOf). {found}");
        outcome.push(self.general(place, &detail));
        if let Some(best) = best {
            outcome.merge(best);
        }
    }

    fn check_text(
        &mut self,
        text: &str,
        checks: Option<&ValueChecks>,
        format: Option<StringFormat<'_>>,
        place: &ValuePlace<'_>,
        outcome: &mut NodeErrors,
    ) {
        outcome.matches += 1;
        let Some(checks) = checks else { return };
        if let Some(error) = self.text_error(text, checks, place, outcome) {
            outcome.push(error);
        }
        let Some(format) = format else { return };
        let Some(test) = format.test else { return };
        outcome.matches += 1;
        if !test(text, self.release) {
            outcome.push(self.wrong_type(place, format.name, text));
        }
    }

    /// The first error of length and pattern.
    fn text_error(
        &mut self,
        text: &str,
        checks: &ValueChecks,
        place: &ValuePlace<'_>,
        outcome: &mut NodeErrors,
    ) -> Option<FieldError> {
        let len =
            if checks.max_length.is_some() || checks.min_length.is_some() { bounds::length(text) } else { 0 };
        if let Some(max) = checks.max_length.filter(|max| len > *max) {
            return Some(named(FieldError::too_long(&place.path(self.base), max, self.release)));
        }
        if let Some(min) = checks.min_length.filter(|min| len < *min) {
            return Some(self.invalid(
                place,
                Value::String(text),
                &format!("should be at least {min} chars long"),
            ));
        }
        let pattern = checks.pattern.as_deref()?;
        match pattern.is_match(text) {
            Some(true) => None,
            Some(false) => {
                let detail = format!("should match '{}'", pattern.source);
                Some(self.invalid(place, Value::String(text), &detail))
            }
            None => {
                self.undecided(
                    place,
                    &format!("the pattern {} needs too much memory or time", quote(&pattern.source)),
                );
                outcome.is_undecided = true;
                None
            }
        }
    }

    fn check_values(
        &mut self,
        value: Value<'_>,
        checks: &ValueChecks,
        place: &ValuePlace<'_>,
        outcome: &mut NodeErrors,
    ) {
        if checks.values.is_empty() {
            return;
        }
        let arena = Arena::new();
        let matches = |wanted| bounds::is_enum_value(value, wanted, &mut || self.charge(place));
        if checks.values.iter().map(|wanted| wanted.value(&arena)).any(matches) {
            return;
        }
        let shown = |wanted| match wanted {
            Value::String(text) => text.to_owned(),
            other => go_json(other),
        };
        let supported: Vec<String> = checks.values.iter().map(|wanted| shown(wanted.value(&arena))).collect();
        let path = place.path(self.base);
        outcome.push(named(FieldError::unsupported_value(&path, value, &supported)));
    }

    fn list<'a>(
        &mut self,
        items: &'a [Value<'a>],
        schema: &'a Schema,
        place: &ValuePlace<'_>,
        pair: Option<&Correlation<'a>>,
        outcome: &mut NodeErrors,
    ) {
        outcome.matches += 2;
        if let Some(schema) = schema.items.as_deref() {
            for (index, item) in items.iter().enumerate() {
                let element = pair.and_then(|pair| pair.element(index));
                outcome.merge(self.node(*item, schema, &place.index(index), element.as_ref()));
            }
        }
        let Some(checks) = schema.checks.as_deref() else { return };
        let len = bounds::count(items.len());
        if let Some(min) = checks.min_items.filter(|min| len < *min) {
            outcome.push(self.invalid(place, Value::Int(len), &format!("should have at least {min} items")));
        }
        if let Some(max) = checks.max_items.filter(|max| len > *max) {
            let path = place.path(self.base);
            outcome.push(named(FieldError::too_many(&path, items.len(), max, self.release)));
        }
        if checks.unique_items {
            let has_duplicate = items.iter().enumerate().any(|(index, item)| {
                let before = items.iter().take(index);
                let mut charge = || self.charge(place);
                before.into_iter().any(|other| identical(*item, *other, &mut charge))
            });
            if has_duplicate {
                outcome.push(self.invalid(place, Value::String(""), "shouldn't contain duplicates"));
            }
        }
    }

    fn object<'a>(
        &mut self,
        entries: &'a [(&'a str, Value<'a>)],
        schema: &'a Schema,
        place: &ValuePlace<'_>,
        pair: Option<&Correlation<'a>>,
        outcome: &mut NodeErrors,
    ) {
        let checks = schema.checks.as_deref();
        let len = bounds::count(entries.len());
        if let Some(min) = checks.and_then(|checks| checks.min_properties).filter(|min| len < *min) {
            let detail = format!("should have at least {min} properties");
            outcome.push(self.invalid(place, Value::Int(len), &detail));
        }
        if let Some(max) = checks.and_then(|checks| checks.max_properties).filter(|max| len > *max) {
            let path = place.path(self.base);
            outcome.push(named(FieldError::too_many(&path, entries.len(), max, self.release)));
        }
        match &schema.additional {
            Some(Additional::Allowed(false)) => {
                for (name, _) in entries {
                    if schema.property(name).is_none() {
                        let detail = format!("{place}.{name} in body is a forbidden property");
                        outcome.push(self.error(place, Value::String(name), &detail));
                    }
                }
            }
            Some(Additional::Schema(additional)) => {
                for (name, value) in entries {
                    if schema.property(name).is_none() {
                        let entry = place.entry(name);
                        let pair = child(pair, place, name);
                        outcome.merge(self.node(*value, additional, &entry, pair.as_ref()));
                    }
                }
            }
            _ => {}
        }
        for (name, value) in entries {
            if let Some(property) = schema.property(name) {
                let pair = child(pair, place, name);
                outcome.merge(self.node(*value, property, &place.property(name), pair.as_ref()));
            }
        }
        for name in checks.map(|checks| checks.required.as_slice()).unwrap_or_default() {
            if !entries.iter().any(|(key, _)| **key == **name) {
                outcome.push(FieldError::required(&place.path(self.base).child(name), ""));
            }
        }
    }
}

/// The pair of a field. `apiVersion` and `kind` of the root have none.
fn child<'a>(pair: Option<&Correlation<'a>>, place: &ValuePlace<'_>, name: &str) -> Option<Correlation<'a>> {
    if place.is_root() && matches!(name, "apiVersion" | "kind") {
        return None;
    }
    pair?.field(name)
}
