//! Values in the plain form of Go, which cel-go passes through in some places.

use super::{Arena, Opaque, Value};

/// The text of a value whose plain form is a string.
pub(crate) fn text<'a>(value: &Value<'a>) -> Option<&'a str> {
    match value {
        Value::String(text) | Value::Type(text) => Some(text),
        Value::Optional(Some(value)) => text(value),
        _ => None,
    }
}

/// A value after the way to its plain form and back. Values of most libraries become errors.
pub(crate) fn rewrap<'a>(arena: &'a Arena, value: Value<'a>) -> Value<'a> {
    let failed = |text: &str| Value::Opaque(arena.store(Opaque::Failed(arena.text(text))));
    match value {
        Value::Type(name) => Value::String(name),
        Value::Typed(value, _) => *value,
        Value::Optional(None) => Value::Null,
        Value::Optional(Some(inner)) => rewrap(arena, *inner),
        Value::Concat(_) => {
            let elements: Vec<Value<'a>> = value.elements().map(|element| rewrap(arena, element)).collect();
            Value::List(arena.slice(&elements))
        }
        // The API server prints the value in the syntax of Go here.
        Value::Opaque(
            Opaque::Ip(_) | Opaque::Cidr(_) | Opaque::Url(_) | Opaque::Semver(_) | Opaque::Quantity(_),
        ) => failed(&format!("unsupported conversion to ref.Val: {}", value.type_name())),
        Value::Opaque(opaque) if opaque.type_name().starts_with("kubernetes.authorization.") => {
            failed("no such overload")
        }
        other => other,
    }
}
