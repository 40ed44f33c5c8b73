//! A value in the order in which it was written, between YAML and JSON. Numbers from JSON keep their spelling.

use std::fmt::{self, Write as _};

use admission::{JsonError, Scanner, Shape};
use config::Problem;
use serde::de::{Deserialize, Deserializer, MapAccess, SeqAccess, Visitor};

/// Deeper than any object of Kubernetes, and shallow enough for the stack.
const MAX_DEPTH: usize = 500;

/// A value.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Tree {
    /// Nothing.
    Null,
    /// `true` or `false`.
    Bool(bool),
    /// As spelled in JSON.
    Number(String),
    /// A text.
    Text(String),
    /// A list.
    List(Vec<Tree>),
    /// Keys in order.
    Map(Vec<(String, Tree)>),
}

impl Tree {
    /// Reads JSON.
    pub(crate) fn from_json(json: &str) -> Result<Self, Problem> {
        let mut scanner = Scanner::new(json);
        walk(&mut scanner, 0)
            .map_err(|error| Problem::new("this is not JSON that can be printed").why(error.what))
    }

    /// Takes a value that can be serialised, in the order of its fields.
    pub(crate) fn of(value: &impl serde::Serialize) -> Result<Self, Problem> {
        let json = serde_json::to_string(value)
            .map_err(|e| Problem::new("a value is no JSON").why(e.to_string()))?;
        Self::from_json(&json)
    }

    /// As JSON, compact.
    pub(crate) fn to_json(&self) -> String {
        let mut out = String::new();
        self.write_json(&mut out);
        out
    }

    /// The member `key`, if this is a map that has it.
    pub(crate) fn get(&self, key: &str) -> Option<&Self> {
        match self {
            Self::Map(entries) => entries.iter().find(|(name, _)| name == key).map(|(_, value)| value),
            _ => None,
        }
    }

    /// The text, if this is one.
    pub(crate) fn text(&self) -> Option<&str> {
        match self {
            Self::Text(text) => Some(text),
            _ => None,
        }
    }

    /// The elements, if this is a list.
    pub(crate) fn items(&self) -> &[Self] {
        match self {
            Self::List(items) => items,
            _ => &[],
        }
    }

    fn write_json(&self, out: &mut String) {
        match self {
            Self::Null => out.push_str("null"),
            Self::Bool(value) => {
                let _ = write!(out, "{value}");
            }
            Self::Number(text) => out.push_str(text),
            Self::Text(text) => out.push_str(&quoted(text)),
            Self::List(items) => {
                out.push('[');
                for (index, item) in items.iter().enumerate() {
                    if index > 0 {
                        out.push(',');
                    }
                    item.write_json(out);
                }
                out.push(']');
            }
            Self::Map(entries) => {
                out.push('{');
                for (index, (key, value)) in entries.iter().enumerate() {
                    if index > 0 {
                        out.push(',');
                    }
                    out.push_str(&quoted(key));
                    out.push(':');
                    value.write_json(out);
                }
                out.push('}');
            }
        }
    }
}

/// A text in the quotes of JSON.
pub(super) fn quoted(text: &str) -> String {
    serde_json::Value::from(text).to_string()
}

fn walk(scanner: &mut Scanner<'_>, depth: usize) -> Result<Tree, JsonError> {
    if depth > MAX_DEPTH {
        return Err(JsonError { at: scanner.offset(), what: "it is nested more than 500 deep" });
    }
    Ok(match scanner.peek()? {
        Shape::Null => scanner.value().map(|_| Tree::Null)?,
        Shape::Bool => Tree::Bool(scanner.value()?.is_true()),
        Shape::Number => Tree::Number(scanner.value()?.get().to_owned()),
        Shape::String => Tree::Text(scanner.string()?.into_owned()),
        Shape::Array => {
            let mut items = Vec::new();
            scanner.array(|scanner, _| walk(scanner, depth + 1).map(|item| items.push(item)))?;
            Tree::List(items)
        }
        Shape::Object => {
            let mut entries = Vec::new();
            scanner.object(|scanner, key| {
                walk(scanner, depth + 1).map(|value| entries.push((key.into_owned(), value)))
            })?;
            Tree::Map(entries)
        }
    })
}

impl<'de> Deserialize<'de> for Tree {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(Grow)
    }
}

struct Grow;

impl<'de> Visitor<'de> for Grow {
    type Value = Tree;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("any value")
    }

    fn visit_unit<E>(self) -> Result<Tree, E> {
        Ok(Tree::Null)
    }

    fn visit_none<E>(self) -> Result<Tree, E> {
        Ok(Tree::Null)
    }

    fn visit_some<D: Deserializer<'de>>(self, deserializer: D) -> Result<Tree, D::Error> {
        Tree::deserialize(deserializer)
    }

    fn visit_bool<E>(self, value: bool) -> Result<Tree, E> {
        Ok(Tree::Bool(value))
    }

    fn visit_i64<E>(self, value: i64) -> Result<Tree, E> {
        Ok(Tree::Number(value.to_string()))
    }

    fn visit_u64<E>(self, value: u64) -> Result<Tree, E> {
        Ok(Tree::Number(value.to_string()))
    }

    fn visit_f64<E: serde::de::Error>(self, value: f64) -> Result<Tree, E> {
        serde_json::Number::from_f64(value)
            .map(|number| Tree::Number(number.to_string()))
            .ok_or_else(|| E::custom("a number that JSON does not have"))
    }

    fn visit_str<E>(self, text: &str) -> Result<Tree, E> {
        Ok(Tree::Text(text.to_owned()))
    }

    fn visit_string<E>(self, text: String) -> Result<Tree, E> {
        Ok(Tree::Text(text))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Tree, A::Error> {
        let mut items = Vec::new();
        while let Some(item) = list.next_element()? {
            items.push(item);
        }
        Ok(Tree::List(items))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Tree, A::Error> {
        let mut entries = Vec::new();
        while let Some(entry) = map.next_entry::<String, Tree>()? {
            entries.push(entry);
        }
        Ok(Tree::Map(entries))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn json_comes_out_as_it_went_in() {
        let json = r#"{"b":1.10,"a":[true,null,"x\"\n",-0.0,1e400],"c":{}}"#;
        assert_eq!(Tree::from_json(json).unwrap().to_json(), json);
    }

    #[test]
    fn what_is_too_deep_is_refused() {
        let json = "[".repeat(600) + &"]".repeat(600);
        assert!(Tree::from_json(&json).unwrap_err().to_string().contains("500 deep"));
    }
}
