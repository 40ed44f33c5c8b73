//! Values that a program owns.

use super::ast::Literal;
use crate::value::{Arena, Timestamp, Value};

/// A constant of a program.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Constant {
    Literal(Literal),
    List(Vec<Constant>),
    Map(Vec<(Constant, Constant)>),
    /// An object of a document. Its errors differ from those of maps.
    Object(Vec<(Box<str>, Constant)>),
    Timestamp(Timestamp),
    Duration(i64),
    Type(String),
    /// An error that evaluating the constant gives.
    Error(String),
}

impl Constant {
    /// Copies a value. Values of libraries and optionals are never constant.
    pub(crate) fn from_value(value: &Value<'_>) -> Option<Self> {
        Some(match value {
            Value::Null => Constant::Literal(Literal::Null),
            Value::Bool(value) => Constant::Literal(Literal::Bool(*value)),
            Value::Int(value) => Constant::Literal(Literal::Int(*value)),
            Value::Uint(value) => Constant::Literal(Literal::Uint(*value)),
            Value::Double(value) => Constant::Literal(Literal::Double(*value)),
            Value::String(text) => Constant::Literal(Literal::String((*text).to_owned())),
            Value::Bytes(bytes) => Constant::Literal(Literal::Bytes(bytes.to_vec())),
            Value::Timestamp(time) => Constant::Timestamp(*time),
            Value::Duration(nanos) => Constant::Duration(*nanos),
            Value::Type(name) => Constant::Type((*name).to_owned()),
            Value::List(_) | Value::Concat(_) => {
                Constant::List(value.elements().map(|item| Self::from_value(&item)).collect::<Option<_>>()?)
            }
            Value::Object(entries) => Constant::Object(
                entries
                    .iter()
                    .map(|(key, value)| Some((Box::from(*key), Self::from_value(value)?)))
                    .collect::<Option<_>>()?,
            ),
            Value::Map(_) => Constant::Map(
                value
                    .entries()?
                    .iter()
                    .map(|(key, value)| Some((Self::from_value(&key)?, Self::from_value(&value)?)))
                    .collect::<Option<_>>()?,
            ),
            Value::Optional(_) | Value::Opaque(_) | Value::Typed(..) | Value::Variables => return None,
        })
    }

    /// The constant as a value. Text and bytes are borrowed.
    pub(crate) fn value<'a>(&'a self, arena: &'a Arena) -> Value<'a> {
        match self {
            Constant::Literal(literal) => literal.value(),
            Constant::Error(_) => Value::Null,
            Constant::Timestamp(time) => Value::Timestamp(*time),
            Constant::Duration(nanos) => Value::Duration(*nanos),
            Constant::Type(name) => Value::Type(name),
            Constant::List(items) => {
                if items.is_empty() {
                    return Value::List(&[]);
                }
                let values: Vec<Value<'a>> = items.iter().map(|item| item.value(arena)).collect();
                Value::List(arena.slice(&values))
            }
            Constant::Object(entries) => {
                if entries.is_empty() {
                    return Value::Object(&[]);
                }
                let values: Vec<(&'a str, Value<'a>)> =
                    entries.iter().map(|(key, value)| (&**key, value.value(arena))).collect();
                Value::Object(arena.slice(&values))
            }
            Constant::Map(entries) => {
                if entries.is_empty() {
                    return Value::Object(&[]);
                }
                Value::map(
                    arena,
                    entries.iter().map(|(key, value)| (key.value(arena), value.value(arena))).collect(),
                )
            }
        }
    }
}

impl Literal {
    /// The literal as a value. Text and bytes are borrowed.
    fn value(&self) -> Value<'_> {
        match self {
            Literal::Null => Value::Null,
            Literal::Bool(value) => Value::Bool(*value),
            Literal::Int(value) => Value::Int(*value),
            Literal::Uint(value) => Value::Uint(*value),
            Literal::Double(value) => Value::Double(*value),
            Literal::String(text) => Value::String(text),
            Literal::Bytes(bytes) => Value::Bytes(bytes),
        }
    }
}
