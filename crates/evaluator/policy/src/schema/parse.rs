//! Schemas from documents. Fields of other types are errors, as the API server decodes them.

use std::collections::HashMap;
use std::sync::Arc;

use super::model::{Additional, Schema, SchemaType, ValidationRule, ValueChecks};
use super::pattern::{Pattern, PatternMemory};
use crate::cel::constant::Constant;
use crate::field::{FieldError, Path};
use crate::value::Value;

/// Levels of schemas that are read. Go reads more, but no CRD comes near.
const MAX_DEPTH: usize = 200;

/// Schemas within one schema. The largest CRDs have 20,000. Aliases of YAML can repeat a schema, so that a short text has millions.
const MAX_SCHEMAS: usize = 200_000;

/// Fields that no structural schema has.
const UNSUPPORTED: [&str; 7] =
    ["id", "$schema", "$ref", "patternProperties", "dependencies", "additionalItems", "definitions"];

/// Lists and maps of a schema.
const COLLECTIONS: [&str; 11] = [
    "allOf",
    "anyOf",
    "definitions",
    "dependencies",
    "enum",
    "oneOf",
    "patternProperties",
    "properties",
    "required",
    "x-kubernetes-list-map-keys",
    "x-kubernetes-validations",
];

impl Schema {
    /// Reads a schema such as `openAPIV3Schema`. The errors are those of fields with another type. Whether the schema is structural
    /// is a step of its own.
    pub fn parse(value: Value<'_>, path: &Path) -> Result<Self, Vec<FieldError>> {
        let mut shared = ParseState::default();
        let schema = schema(value, path, 0, &mut shared);
        if shared.errors.is_empty() { Ok(schema) } else { Err(shared.errors) }
    }
}

/// State of one call of [`Schema::parse`].
#[derive(Default)]
struct ParseState<'v> {
    errors: Vec<FieldError>,
    schemas: usize,
    /// Equal patterns are compiled once.
    patterns: HashMap<&'v str, Arc<Pattern>>,
    memory: PatternMemory,
}

/// A schema that is read.
struct SchemaReader<'r, 'v> {
    value: Value<'v>,
    path: &'r Path,
    depth: usize,
    shared: &'r mut ParseState<'v>,
}

fn schema<'v>(value: Value<'v>, path: &Path, depth: usize, shared: &mut ParseState<'v>) -> Schema {
    if !matches!(value, Value::Object(_) | Value::Null) {
        shared.errors.push(FieldError::wrong_type(path, "an object"));
        return Schema::default();
    }
    if depth > MAX_DEPTH {
        shared.errors.push(FieldError::forbidden(path, "schemas nested over 200 levels are not supported"));
        return Schema::default();
    }
    shared.schemas += 1;
    if shared.schemas > MAX_SCHEMAS {
        if shared.schemas == MAX_SCHEMAS + 1 {
            let detail = "schemas with over 200,000 schemas in them are not supported";
            shared.errors.push(FieldError::forbidden(path, detail));
        }
        return Schema::default();
    }
    let mut reader = SchemaReader { value, path, depth, shared };
    let checks = reader.checks();
    Schema {
        kind: reader.text("type").filter(|name| !name.is_empty()).map(SchemaType::parse),
        properties: reader.properties(),
        additional: reader.additional(),
        items: reader.items(),
        default: reader.get("default").and_then(|value| Constant::from_value(&value)).map(Box::new),
        nullable: reader.flag("nullable"),
        preserve: reader.boolean("x-kubernetes-preserve-unknown-fields"),
        is_int_or_string: reader.flag("x-kubernetes-int-or-string"),
        is_embedded_resource: reader.flag("x-kubernetes-embedded-resource"),
        list_type: reader.text("x-kubernetes-list-type").map(Into::into),
        map_keys: reader.texts("x-kubernetes-list-map-keys"),
        map_type: reader.text("x-kubernetes-map-type").map(Into::into),
        rules: reader.rules(),
        unsupported: reader.unsupported(),
        empty: reader.empty(),
        has_empty_reference: reader.text("$ref").is_some_and(str::is_empty),
        has_title: reader.text("title").is_some_and(|text| !text.is_empty()),
        has_description: reader.text("description").is_some_and(|text| !text.is_empty()),
        checks,
    }
}

impl<'v> SchemaReader<'_, 'v> {
    /// A field that is present and not null.
    fn get(&self, name: &str) -> Option<Value<'v>> {
        self.value.field(name).filter(|value| !matches!(value, Value::Null))
    }

    fn wrong_type(&mut self, name: &str, expected: &str) {
        self.shared.errors.push(FieldError::wrong_type(&self.path.child(name), expected));
    }

    /// Whether a field has content. Most empty texts, lists and objects are like absent ones.
    fn has(&self, name: &str) -> bool {
        match self.get(name) {
            None | Some(Value::String("") | Value::List([])) => false,
            Some(Value::Object([])) => matches!(name, "additionalItems" | "dependencies"),
            Some(_) => true,
        }
    }

    /// A field of a type.
    fn typed<T>(
        &mut self,
        name: &str,
        expected: &str,
        convert: impl Fn(Value<'v>) -> Option<T>,
    ) -> Option<T> {
        let converted = convert(self.get(name)?);
        if converted.is_none() {
            self.wrong_type(name, expected);
        }
        converted
    }

    fn text(&mut self, name: &str) -> Option<&'v str> {
        self.typed(name, "a string", |value| value.as_str())
    }

    fn boolean(&mut self, name: &str) -> Option<bool> {
        self.typed(name, "a boolean", |value| value.as_bool())
    }

    fn flag(&mut self, name: &str) -> bool {
        self.boolean(name).unwrap_or_default()
    }

    fn number(&mut self, name: &str) -> Option<f64> {
        self.typed(name, "a number", |value| match value {
            Value::Int(value) => Some(value as f64),
            Value::Double(value) => Some(value),
            _ => None,
        })
    }

    fn integer(&mut self, name: &str) -> Option<i64> {
        self.typed(name, "an integer", |value| if let Value::Int(value) = value { Some(value) } else { None })
    }

    fn list(&mut self, name: &str) -> &'v [Value<'v>] {
        let items = |value| if let Value::List(items) = value { Some(items) } else { None };
        self.typed(name, "a list", items).unwrap_or_default()
    }

    fn texts(&mut self, name: &str) -> Vec<Box<str>> {
        let items = self.list(name);
        if items.iter().any(|item| item.as_str().is_none()) {
            self.wrong_type(name, "a list of strings");
        }
        items.iter().filter_map(Value::as_str).map(Into::into).collect()
    }

    fn schema(&mut self, value: Value<'v>, path: &Path) -> Schema {
        schema(value, path, self.depth + 1, self.shared)
    }

    fn schemas(&mut self, name: &str) -> Vec<Schema> {
        let path = self.path.child(name);
        let items = self.list(name).iter().enumerate();
        items.map(|(index, item)| self.schema(*item, &path.index(index))).collect()
    }

    fn properties(&mut self) -> Vec<(Box<str>, Schema)> {
        let path = self.path.child("properties");
        let entries = |value| if let Value::Object(entries) = value { Some(entries) } else { None };
        let entries = self.typed("properties", "an object", entries).unwrap_or_default();
        let read =
            |(name, value): &(&'v str, Value<'v>)| (Box::from(*name), self.schema(*value, &path.key(name)));
        entries.iter().map(read).collect()
    }

    fn additional(&mut self) -> Option<Additional> {
        match self.get("additionalProperties")? {
            Value::Bool(allowed) => Some(Additional::Allowed(allowed)),
            value => {
                let path = self.path.child("additionalProperties");
                Some(Additional::Schema(Box::new(self.schema(value, &path))))
            }
        }
    }

    fn items(&mut self) -> Option<Box<Schema>> {
        let value = self.get("items")?;
        // A list is among the unsupported fields.
        let path = self.path.child("items");
        (!value.is_list()).then(|| Box::new(self.schema(value, &path)))
    }

    fn unsupported(&self) -> Vec<&'static str> {
        let mut found: Vec<&'static str> = UNSUPPORTED.into_iter().filter(|name| self.has(name)).collect();
        if self.get("items").is_some_and(|items| items.is_list()) {
            found.push("items");
        }
        found
    }

    fn empty(&self) -> Vec<&'static str> {
        let is_empty = |name: &&str| matches!(self.get(name), Some(Value::List([]) | Value::Object([])));
        COLLECTIONS.into_iter().filter(is_empty).collect()
    }

    fn checks(&mut self) -> Option<Box<ValueChecks>> {
        let pattern = self.text("pattern").filter(|pattern| !pattern.is_empty()).map(|pattern| {
            let ParseState { patterns, memory, .. } = &mut *self.shared;
            Arc::clone(patterns.entry(pattern).or_insert_with(|| Arc::new(Pattern::new(pattern, memory))))
        });
        let not = self.get("not").map(|value| self.schema(value, &self.path.child("not")));
        let checks = ValueChecks {
            format: self.text("format").filter(|format| !format.is_empty()).map(Into::into),
            maximum: self.number("maximum"),
            exclusive_maximum: self.flag("exclusiveMaximum"),
            minimum: self.number("minimum"),
            exclusive_minimum: self.flag("exclusiveMinimum"),
            multiple_of: self.number("multipleOf"),
            max_length: self.integer("maxLength"),
            min_length: self.integer("minLength"),
            pattern,
            max_items: self.integer("maxItems"),
            min_items: self.integer("minItems"),
            unique_items: self.flag("uniqueItems"),
            max_properties: self.integer("maxProperties"),
            min_properties: self.integer("minProperties"),
            required: self.texts("required"),
            values: self.list("enum").iter().filter_map(Constant::from_value).collect(),
            all_of: self.schemas("allOf"),
            any_of: self.schemas("anyOf"),
            one_of: self.schemas("oneOf"),
            not,
        };
        (!checks.is_empty()).then(|| Box::new(checks))
    }

    fn rules(&mut self) -> Vec<ValidationRule> {
        let path = self.path.child("x-kubernetes-validations");
        let items = self.list("x-kubernetes-validations").iter().enumerate();
        items
            .map(|(index, item)| {
                let path = path.index(index);
                if !matches!(item, Value::Object(_) | Value::Null) {
                    self.shared.errors.push(FieldError::wrong_type(&path, "an object"));
                }
                let mut reader =
                    SchemaReader { value: *item, path: &path, depth: self.depth, shared: self.shared };
                let mut text = |name: &str| reader.text(name).map(str::to_owned);
                ValidationRule {
                    rule: text("rule").unwrap_or_default(),
                    message: text("message").unwrap_or_default(),
                    message_expression: text("messageExpression").unwrap_or_default(),
                    reason: text("reason"),
                    field_path: text("fieldPath").unwrap_or_default(),
                    optional_old_self: reader.boolean("optionalOldSelf"),
                }
            })
            .collect()
    }
}

impl ValueChecks {
    fn is_empty(&self) -> bool {
        let bounds = [
            self.max_length,
            self.min_length,
            self.max_items,
            self.min_items,
            self.max_properties,
            self.min_properties,
        ];
        !self.has_junctors()
            && self.format.is_none()
            && [self.maximum, self.minimum, self.multiple_of].iter().all(Option::is_none)
            && bounds.iter().all(Option::is_none)
            && !(self.exclusive_maximum || self.exclusive_minimum || self.unique_items)
            && self.pattern.is_none()
            && self.required.is_empty()
            && self.values.is_empty()
    }
}
