//! A JSON or YAML value whose maps keep the order in which they were written.

use std::fmt;

use config::Problem;
use serde::de::{Deserialize, Deserializer, MapAccess, SeqAccess, Visitor};
use serde::ser::{Serialize, SerializeMap as _, Serializer};
use serde_json::Number;

/// A value of a document.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum OrderedValue {
    Null,
    Bool(bool),
    Number(Number),
    String(String),
    List(Vec<OrderedValue>),
    /// Keys and values in the order of the document.
    Map(Vec<(String, OrderedValue)>),
}

impl OrderedValue {
    /// Parses JSON text.
    pub(crate) fn from_json(json: &str) -> Result<Self, Problem> {
        serde_json::from_str(json)
            .map_err(|error| Problem::new("this is not JSON that can be printed").why(error.to_string()))
    }

    /// Converts a value that can be serialized. Fields keep their order.
    pub(crate) fn of(value: &impl Serialize) -> Result<Self, Problem> {
        let json = serde_json::to_string(value)
            .map_err(|error| Problem::new("a value is no JSON").why(error.to_string()))?;
        Self::from_json(&json)
    }

    /// Returns compact JSON text.
    pub(crate) fn to_json(&self) -> String {
        // A `Value` has string keys and finite numbers, so this can't fail.
        serde_json::to_string(self).unwrap_or_default()
    }

    /// Returns the value of `key` if this is a map that contains it.
    pub(crate) fn get(&self, key: &str) -> Option<&Self> {
        match self {
            Self::Map(entries) => entries.iter().find(|(name, _)| name == key).map(|(_, value)| value),
            _ => None,
        }
    }

    /// Returns the text if this is a string.
    pub(crate) fn as_str(&self) -> Option<&str> {
        match self {
            Self::String(text) => Some(text),
            _ => None,
        }
    }

    /// Returns the elements if this is a list, and no elements otherwise.
    pub(crate) fn items(&self) -> &[Self] {
        match self {
            Self::List(items) => items,
            _ => &[],
        }
    }
}

impl Serialize for OrderedValue {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Self::Null => serializer.serialize_unit(),
            Self::Bool(value) => serializer.serialize_bool(*value),
            Self::Number(value) => value.serialize(serializer),
            Self::String(value) => serializer.serialize_str(value),
            Self::List(items) => items.serialize(serializer),
            Self::Map(entries) => {
                let mut map = serializer.serialize_map(Some(entries.len()))?;
                for (key, value) in entries {
                    map.serialize_entry(key, value)?;
                }
                map.end()
            }
        }
    }
}

impl<'de> Deserialize<'de> for OrderedValue {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(ValueVisitor)
    }
}

struct ValueVisitor;

impl<'de> Visitor<'de> for ValueVisitor {
    type Value = OrderedValue;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("any value")
    }

    fn visit_unit<E>(self) -> Result<OrderedValue, E> {
        Ok(OrderedValue::Null)
    }

    fn visit_none<E>(self) -> Result<OrderedValue, E> {
        Ok(OrderedValue::Null)
    }

    fn visit_some<D: Deserializer<'de>>(self, deserializer: D) -> Result<OrderedValue, D::Error> {
        OrderedValue::deserialize(deserializer)
    }

    fn visit_bool<E>(self, value: bool) -> Result<OrderedValue, E> {
        Ok(OrderedValue::Bool(value))
    }

    fn visit_i64<E>(self, value: i64) -> Result<OrderedValue, E> {
        Ok(OrderedValue::Number(value.into()))
    }

    fn visit_u64<E>(self, value: u64) -> Result<OrderedValue, E> {
        Ok(OrderedValue::Number(value.into()))
    }

    fn visit_f64<E: serde::de::Error>(self, value: f64) -> Result<OrderedValue, E> {
        Number::from_f64(value)
            .map(OrderedValue::Number)
            .ok_or_else(|| E::custom("a number that JSON does not have"))
    }

    fn visit_str<E>(self, text: &str) -> Result<OrderedValue, E> {
        Ok(OrderedValue::String(text.to_owned()))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<OrderedValue, A::Error> {
        let mut items = Vec::new();
        while let Some(item) = list.next_element()? {
            items.push(item);
        }
        Ok(OrderedValue::List(items))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<OrderedValue, A::Error> {
        let mut entries = Vec::new();
        while let Some(entry) = map.next_entry()? {
            entries.push(entry);
        }
        Ok(OrderedValue::Map(entries))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keeps_the_order_of_keys() {
        let json = r#"{"b":1.5,"a":[true,null,"x\"\n",-7],"c":{}}"#;
        assert_eq!(OrderedValue::from_json(json).unwrap().to_json(), json);
    }

    #[test]
    fn rejects_deep_nesting() {
        let json = "[".repeat(600) + &"]".repeat(600);
        assert!(OrderedValue::from_json(&json).unwrap_err().to_string().contains("recursion limit"));
    }
}
