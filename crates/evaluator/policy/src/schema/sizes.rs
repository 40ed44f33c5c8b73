//! The largest sizes of values that a schema allows, for the estimated cost of rules: `pkg/cel/common/schemas.go` of
//! `k8s.io/apiserver`.

use std::collections::HashMap;

use super::declare::has_metadata;
use super::model::{Schema, SchemaType};
use crate::cel::ast::Literal;
use crate::cel::constant::Constant;
use crate::cel::escape::escape;
use crate::cel::estimate::{InnerSizes, Sizes};
use crate::release::Release;

/// Bytes of a request.
pub(crate) const MAX_REQUEST: u64 = 3 << 20;
/// Characters of a name, and of one to which the API server adds a character at least.
const MAX_NAME: u64 = 253;

/// Returns the sizes of the values of a schema, or `None` if they have no type in expressions.
pub(crate) fn sizes(schema: &Schema, is_resource: bool, release: Release) -> Option<Sizes> {
    let of = |max, min_bytes| Some(Sizes { max, min_bytes, within: InnerSizes::Nothing });
    let nested = |schema: &Schema| sizes(schema, schema.is_embedded_resource, release);
    let checks = schema.checks.as_deref();
    let bound = |number: Option<i64>| number.map(|number| u64::try_from(number).unwrap_or(0));
    let max_length = bound(checks.and_then(|checks| checks.max_length));
    if schema.is_int_or_string {
        let max_length = max_length.filter(|_| release.bounds_int_or_string());
        return of(max_length.map_or(MAX_REQUEST - 2, |max| max.saturating_mul(4)), 1);
    }
    match schema.kind.as_ref()? {
        SchemaType::Other(_) => None,
        SchemaType::Boolean => of(0, 4),
        SchemaType::Integer | SchemaType::Number => of(0, 1),
        SchemaType::String => match checks.and_then(|checks| checks.format.as_deref()) {
            Some("byte") => of(max_length.unwrap_or(MAX_REQUEST - 2), 2),
            Some("duration") => of(32, 3),
            Some("date") => of(12, 12),
            Some("date-time") => of(32, 21),
            _ => of(max_length.map_or_else(|| longest(schema), |max| max.saturating_mul(4)), 2),
        },
        SchemaType::Array => {
            let items = nested(schema.items.as_deref()?)?;
            let max = bound(checks.and_then(|checks| checks.max_items));
            let max = max.unwrap_or((MAX_REQUEST - 2) / (items.min_bytes + 1));
            Some(Sizes { max, min_bytes: 2, within: InnerSizes::Elements(Box::new(items)) })
        }
        SchemaType::Object => {
            let adds_metadata = is_resource && !has_metadata(schema);
            if let Some(values) = schema.additional_schema() {
                let values = nested(values)?;
                let max = bound(checks.and_then(|checks| checks.max_properties));
                let max = max.unwrap_or((MAX_REQUEST - 2) / (values.min_bytes + 6));
                return Some(Sizes { max, min_bytes: 2, within: InnerSizes::Values(Box::new(values)) });
            }
            let mut fields = HashMap::new();
            let mut min_bytes = 2;
            let is_required =
                |name: &str| checks.is_some_and(|checks| checks.required.iter().any(|key| **key == *name));
            let mut add = |name: &str, sizes: Sizes, has_default: bool| {
                if is_required(name) && !has_default {
                    min_bytes += name.len() as u64 + sizes.min_bytes + 4;
                }
                if let Some(name) = escape(name) {
                    fields.insert(name, sizes);
                }
            };
            for (name, property) in &schema.properties {
                let is_replaced = adds_metadata && matches!(&**name, "apiVersion" | "kind" | "metadata");
                if let Some(sizes) = nested(property).filter(|_| !is_replaced) {
                    add(name, sizes, property.default.is_some());
                }
            }
            if adds_metadata {
                for (name, sizes) in metadata(schema, release) {
                    add(name, sizes, false);
                }
            }
            Some(Sizes { max: 0, min_bytes, within: InnerSizes::Fields(fields) })
        }
    }
}

/// The sizes of the fields that every resource has.
fn metadata(schema: &Schema, release: Release) -> [(&'static str, Sizes); 3] {
    let text = |max| Sizes { max, min_bytes: 2, within: InnerSizes::Nothing };
    let name = |field: &str, most: u64| {
        let own = schema.property("metadata").and_then(|metadata| metadata.property(field));
        let own = own.and_then(|schema| schema.checks.as_ref()?.max_length);
        let own = own.and_then(|max| u64::try_from(max.max(0)).ok()).filter(|max| *max < most);
        let max = if release.bounds_names() { own.unwrap_or(most) * 4 } else { MAX_REQUEST - 2 };
        (field.to_owned(), text(max))
    };
    let names = [name("name", MAX_NAME), name("generateName", MAX_NAME - 1)];
    let metadata = Sizes { max: 0, min_bytes: 2, within: InnerSizes::Fields(names.into_iter().collect()) };
    [("apiVersion", text(MAX_REQUEST - 2)), ("kind", text(MAX_REQUEST - 2)), ("metadata", metadata)]
}

/// The length of the longest text of an enum, or of a request.
fn longest(schema: &Schema) -> u64 {
    let values = schema.checks.as_ref().map(|checks| checks.values.as_slice()).unwrap_or_default();
    if values.is_empty() {
        return MAX_REQUEST - 2;
    }
    let lengths = values.iter().filter_map(|value| match value {
        Constant::Literal(Literal::String(text)) => Some(text.len() as u64),
        _ => None,
    });
    lengths.max().unwrap_or(0)
}
