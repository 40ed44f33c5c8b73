//! A schema as data.

use std::sync::Arc;

use super::pattern::Pattern;
use crate::cel::constant::Constant;

/// A schema of a CRD, or of a field within.
///
/// Schemas within `allOf`, `anyOf`, `oneOf` and `not` have the same type. A structural schema has only value validations,
/// `properties`, `items` and rules there.
#[derive(Clone, Debug, Default)]
#[allow(clippy::struct_excessive_bools, reason = "fields of the schema")]
pub struct Schema {
    pub(crate) kind: Option<SchemaType>,
    /// The properties, sorted by name.
    pub(crate) properties: Vec<(Box<str>, Schema)>,
    pub(crate) additional: Option<Additional>,
    pub(crate) items: Option<Box<Schema>>,
    pub(crate) default: Option<Box<Constant>>,
    pub(crate) nullable: bool,
    /// `x-kubernetes-preserve-unknown-fields`. A structural schema has no `false`.
    pub(crate) preserve: Option<bool>,
    pub(crate) is_int_or_string: bool,
    pub(crate) is_embedded_resource: bool,
    pub(crate) list_type: Option<Box<str>>,
    pub(crate) map_keys: Vec<Box<str>>,
    pub(crate) map_type: Option<Box<str>>,
    /// The value validations, if there are any.
    pub(crate) checks: Option<Box<ValueChecks>>,
    pub(crate) rules: Vec<ValidationRule>,
    /// Fields that no structural schema has, such as `$ref`, and that are not in this model.
    pub(crate) unsupported: Vec<&'static str>,
    /// Lists and maps that are present but empty. The API server compares some schemas with Go's `DeepEqual`, for which they differ
    /// from absent ones.
    pub(crate) empty: Vec<&'static str>,
    /// Whether there is a `$ref` without content, which a CRD can't have.
    pub(crate) has_empty_reference: bool,
    /// Whether `title` is present, and `description`. Both are forbidden within `allOf` and its like.
    pub(crate) has_title: bool,
    pub(crate) has_description: bool,
}

/// Lists and maps that the API server accepts at the root if the status has a schema of its own.
const ROOT_COLLECTIONS: [&str; 3] = ["properties", "required", "x-kubernetes-validations"];

/// `type`
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum SchemaType {
    Object,
    Array,
    String,
    Integer,
    Number,
    Boolean,
    /// A type that no schema can have.
    Other(Box<str>),
}

/// `additionalProperties`
#[derive(Clone, Debug)]
pub(crate) enum Additional {
    Allowed(bool),
    Schema(Box<Schema>),
}

/// The value validations of a schema.
#[derive(Clone, Debug, Default)]
pub(crate) struct ValueChecks {
    pub(crate) format: Option<Box<str>>,
    pub(crate) maximum: Option<f64>,
    pub(crate) exclusive_maximum: bool,
    pub(crate) minimum: Option<f64>,
    pub(crate) exclusive_minimum: bool,
    pub(crate) multiple_of: Option<f64>,
    pub(crate) max_length: Option<i64>,
    pub(crate) min_length: Option<i64>,
    pub(crate) pattern: Option<Arc<Pattern>>,
    pub(crate) max_items: Option<i64>,
    pub(crate) min_items: Option<i64>,
    pub(crate) unique_items: bool,
    pub(crate) max_properties: Option<i64>,
    pub(crate) min_properties: Option<i64>,
    pub(crate) required: Vec<Box<str>>,
    pub(crate) values: Vec<Constant>,
    pub(crate) all_of: Vec<Schema>,
    pub(crate) any_of: Vec<Schema>,
    pub(crate) one_of: Vec<Schema>,
    pub(crate) not: Option<Schema>,
}

/// A rule of `x-kubernetes-validations`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct ValidationRule {
    pub(crate) rule: String,
    pub(crate) message: String,
    pub(crate) message_expression: String,
    pub(crate) reason: Option<String>,
    pub(crate) field_path: String,
    pub(crate) optional_old_self: Option<bool>,
}

impl SchemaType {
    pub(crate) fn parse(name: &str) -> Self {
        match name {
            "object" => SchemaType::Object,
            "array" => SchemaType::Array,
            "string" => SchemaType::String,
            "integer" => SchemaType::Integer,
            "number" => SchemaType::Number,
            "boolean" => SchemaType::Boolean,
            other => SchemaType::Other(other.into()),
        }
    }

    pub(crate) fn name(&self) -> &str {
        match self {
            SchemaType::Object => "object",
            SchemaType::Array => "array",
            SchemaType::String => "string",
            SchemaType::Integer => "integer",
            SchemaType::Number => "number",
            SchemaType::Boolean => "boolean",
            SchemaType::Other(name) => name,
        }
    }
}

impl ValueChecks {
    /// Whether there are `allOf` and its like.
    pub(crate) fn has_junctors(&self) -> bool {
        let lists = [&self.all_of, &self.any_of, &self.one_of];
        lists.iter().any(|schemas| !schemas.is_empty()) || self.not.is_some()
    }
}

impl Schema {
    /// The schema of a declared property.
    pub(crate) fn property(&self, name: &str) -> Option<&Schema> {
        let found = self.properties.binary_search_by(|(key, _)| (**key).cmp(name)).ok()?;
        self.properties.get(found).map(|(_, schema)| schema)
    }

    /// The schema of the additional properties.
    pub(crate) fn additional_schema(&self) -> Option<&Schema> {
        match &self.additional {
            Some(Additional::Schema(schema)) => Some(schema),
            _ => None,
        }
    }

    pub(crate) fn additional_schema_mut(&mut self) -> Option<&mut Schema> {
        match &mut self.additional {
            Some(Additional::Schema(schema)) => Some(schema),
            _ => None,
        }
    }

    /// Whether the schema or one within it has a property.
    pub(crate) fn any(&self, found: &mut dyn FnMut(&Schema) -> bool) -> bool {
        if found(self) {
            return true;
        }
        let inner = self.items.as_deref().into_iter().chain(self.additional_schema());
        let mut inner = inner.chain(self.properties.iter().map(|(_, schema)| schema));
        if inner.any(|schema| schema.any(found)) {
            return true;
        }
        let Some(checks) = &self.checks else { return false };
        let lists = [&checks.all_of, &checks.any_of, &checks.one_of];
        lists.into_iter().flatten().chain(&checks.not).any(|schema| schema.any(found))
    }

    /// Whether `additionalProperties` is `false`.
    pub(crate) fn forbids_additional(&self) -> bool {
        matches!(self.additional, Some(Additional::Allowed(false)))
    }

    /// Whether a schema has only keywords that the API server accepts at the root if the status has a schema of its own. The type is
    /// not one of those that are checked here.
    pub(crate) fn has_only_root_fields(&self) -> bool {
        let has_clauses = self.checks.as_ref().is_some_and(|checks| {
            checks.has_junctors()
                || checks.max_properties.is_some()
                || checks.min_properties.is_some()
                || !checks.values.is_empty()
        });
        let is_array_of_items = |name: &&&str| **name == "items";
        let unsupported = self.unsupported.iter().filter(|name| !is_array_of_items(name)).count();
        !has_clauses
            && unsupported == 0
            && !self.has_empty_reference
            && self.empty.iter().all(|name| ROOT_COLLECTIONS.contains(name))
            && self.additional.is_none()
            && self.default.is_none()
            && !self.nullable
            && !self.is_embedded_resource
            && !self.is_int_or_string
            && self.map_keys.is_empty()
            && self.list_type.is_none()
            && self.map_type.is_none()
    }

    /// Whether unknown fields of this value stay.
    pub(crate) fn preserves_unknown_fields(&self) -> bool {
        self.preserve == Some(true)
    }

    /// The name of the type, which is empty if the schema has none.
    pub(crate) fn type_name(&self) -> &str {
        self.kind.as_ref().map_or("", SchemaType::name)
    }
}
