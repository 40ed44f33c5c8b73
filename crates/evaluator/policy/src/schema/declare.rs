//! Types of expressions and shapes of values from schemas, `pkg/cel/common/schemas.go` of `k8s.io/apiserver`.
//!
//! A field has no type if its schema has none, as below `x-kubernetes-preserve-unknown-fields`. Lists and maps of such values have no
//! type either, and expressions can't name these fields.

use std::collections::HashMap;

use super::model::{Schema, SchemaType};
use crate::cel::environment::StructFields;
use crate::cel::escape::escape;
use crate::cel::types;
use crate::release::Release;
use crate::value::ValueShape;
use crate::value::typed::{Order, ShapeKind, Sums};

/// Returns how expressions see a value of a schema. A resource always has `apiVersion`, `kind`, and names in its metadata.
pub(crate) fn shape(schema: &Schema, is_resource: bool, release: Release) -> ValueShape {
    let nested = |schema: &Schema| nested(schema, release);
    let format = schema.checks.as_ref().and_then(|checks| checks.format.as_deref());
    let kind = match &schema.kind {
        _ if schema.is_int_or_string => ShapeKind::IntOrString,
        None | Some(SchemaType::Other(_)) => ShapeKind::Hidden,
        Some(SchemaType::Boolean) => ShapeKind::Bool,
        Some(SchemaType::Integer) => ShapeKind::Int,
        Some(SchemaType::Number) => ShapeKind::Double,
        Some(SchemaType::String) => match format {
            Some("byte") => ShapeKind::Bytes,
            Some("date") => ShapeKind::Date,
            Some("date-time") => ShapeKind::DateTime,
            Some("duration") => ShapeKind::Duration,
            _ => ShapeKind::Text,
        },
        Some(SchemaType::Array) => match &schema.items {
            Some(items) => ShapeKind::List {
                items: Box::new(nested(items)),
                order: list_order(schema),
                sums: if release.converts_elements() { Sums::Converted } else { Sums::Raw },
            },
            None => ShapeKind::Hidden,
        },
        Some(SchemaType::Object) if is_resource && !has_metadata(schema) => {
            ShapeKind::Object(resource(schema, release))
        }
        Some(SchemaType::Object) => match schema.additional_schema() {
            Some(values) if schema.properties.is_empty() => ShapeKind::Map(Box::new(nested(values))),
            _ => ShapeKind::Object(
                schema.properties.iter().map(|(name, schema)| (name.clone(), nested(schema))).collect(),
            ),
        },
    };
    ValueShape { kind, is_nullable: schema.nullable }
}

fn nested(schema: &Schema, release: Release) -> ValueShape {
    shape(schema, schema.is_embedded_resource, release)
}

fn list_order(schema: &Schema) -> Order {
    match schema.list_type.as_deref() {
        Some("set") => Order::Set,
        Some("map") => {
            let keys = schema.map_keys.iter().map(|key| escape(key).map_or_else(|| key.clone(), Into::into));
            Order::Map(keys.collect())
        }
        _ => Order::Atomic,
    }
}

/// Whether a schema declares all fields that rules of resources can read.
pub(super) fn has_metadata(schema: &Schema) -> bool {
    let is_text = |schema: &Schema, name: &str| {
        schema.property(name).is_some_and(|schema| schema.kind == Some(SchemaType::String))
    };
    let metadata = schema.property("metadata").filter(|schema| schema.kind == Some(SchemaType::Object));
    is_text(schema, "kind")
        && is_text(schema, "apiVersion")
        && metadata.is_some_and(|metadata| is_text(metadata, "name") && is_text(metadata, "generateName"))
}

/// The properties of a resource.
fn resource(schema: &Schema, release: Release) -> Vec<(Box<str>, ValueShape)> {
    let of = |kind| ValueShape { kind, is_nullable: false };
    let names = vec![("generateName".into(), of(ShapeKind::Text)), ("name".into(), of(ShapeKind::Text))];
    let own: [(Box<str>, ValueShape); 3] = [
        ("apiVersion".into(), of(ShapeKind::Text)),
        ("kind".into(), of(ShapeKind::Text)),
        ("metadata".into(), of(ShapeKind::Object(names))),
    ];
    let is_own = |name: &str| matches!(name, "apiVersion" | "kind" | "metadata");
    let others = schema.properties.iter().filter(|(name, _)| !is_own(name));
    let mut properties: Vec<(Box<str>, ValueShape)> =
        others.map(|(name, schema)| (name.clone(), nested(schema, release))).chain(own).collect();
    properties.sort_by(|(left, _), (right, _)| left.cmp(right));
    properties
}

/// Returns the type of a shape, and adds the types of its objects. Their names begin with `name`.
pub(crate) fn declare(
    shape: &ValueShape,
    name: &str,
    structs: &mut HashMap<String, StructFields>,
) -> Option<types::CelType> {
    Some(match &shape.kind {
        ShapeKind::Bool => types::CelType::Bool,
        ShapeKind::Int => types::CelType::Int,
        ShapeKind::Double => types::CelType::Double,
        ShapeKind::Text => types::CelType::String,
        ShapeKind::Bytes => types::CelType::Bytes,
        ShapeKind::Date | ShapeKind::DateTime => types::CelType::Timestamp,
        ShapeKind::Duration => types::CelType::Duration,
        ShapeKind::IntOrString => types::CelType::Dyn,
        ShapeKind::Hidden | ShapeKind::Converted => return None,
        ShapeKind::List { items, .. } => {
            types::CelType::list(declare(items, &format!("{name}.@idx"), structs)?)
        }
        ShapeKind::Map(values) => {
            types::CelType::map(types::CelType::String, declare(values, &format!("{name}.@elem"), structs)?)
        }
        ShapeKind::Object(properties) => {
            let mut fields = StructFields::new();
            for (property, shape) in properties {
                let Some(field) = escape(property) else { continue };
                if let Some(of) = declare(shape, &format!("{name}.{field}"), structs) {
                    fields.insert(field, of);
                }
            }
            structs.insert(name.to_owned(), fields);
            types::CelType::structure(name)
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::field::Path;
    use crate::value::{Arena, read_json};

    #[test]
    fn declares_types_with_escaped_names_and_hides_fields_without_a_type() {
        let text = r#"{"type": "object", "properties": {
            "namespace": {"type": "string", "format": "date-time"},
            "foo-bar": {"type": "number"},
            "$odd": {"type": "string"},
            "any": {"x-kubernetes-preserve-unknown-fields": true},
            "anys": {"type": "array", "items": {"x-kubernetes-preserve-unknown-fields": true}},
            "port": {"x-kubernetes-int-or-string": true},
            "object": {"type": "object", "x-kubernetes-preserve-unknown-fields": true},
            "labels": {"type": "object", "additionalProperties": {"type": "string"}},
            "items": {"type": "array", "items": {"type": "object", "properties": {"data": {"type": "string", "format": "byte"}}}}
        }}"#;
        let arena = Arena::new();
        let value = read_json(text, &arena).unwrap();
        let schema = Schema::parse(value, &Path::default()).unwrap();
        let mut structs = HashMap::new();
        let root =
            declare(&shape(&schema, true, Release::for_stored(35)), "selfType0", &mut structs).unwrap();
        assert_eq!(root, types::CelType::structure("selfType0"));
        let fields: Vec<String> =
            structs.remove("selfType0").unwrap().iter().map(|(name, of)| format!("{name}: {of}")).collect();
        assert_eq!(
            fields,
            [
                "__namespace__: timestamp",
                "apiVersion: string",
                "foo__dash__bar: double",
                "items: list(selfType0.items.@idx)",
                "kind: string",
                "labels: map(string, string)",
                "metadata: selfType0.metadata",
                "object: selfType0.object",
                "port: dyn",
            ]
        );
        assert_eq!(structs.get("selfType0.object"), Some(&StructFields::new()));
        assert_eq!(structs["selfType0.items.@idx"]["data"], types::CelType::Bytes);
    }
}
