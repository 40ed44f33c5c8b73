//! Values as text in error messages (`%v` of Go).

use std::fmt::Write as _;

use super::{Value, number, work};

/// The text of a value within an error message.
pub(crate) fn plain(value: &Value<'_>) -> String {
    match value {
        Value::Null => "null".to_owned(),
        Value::Bool(value) => value.to_string(),
        Value::Int(value) => value.to_string(),
        Value::Uint(value) => value.to_string(),
        Value::Double(value) => number::general(*value),
        Value::String(text) if work::copy(text.as_bytes()) => (*text).to_owned(),
        Value::Bytes(bytes) if !work::read(bytes.len()) => String::new(),
        Value::String(_) => String::new(),
        Value::Type(name) => (*name).to_owned(),
        Value::Duration(nanos) => number::duration(*nanos),
        Value::Timestamp(time) => number::timestamp(*time),
        Value::Bytes(bytes) => {
            let mut text = String::from("[");
            for (index, byte) in bytes.iter().enumerate() {
                let _ = write!(text, "{}{byte}", if index > 0 { " " } else { "" });
            }
            text + "]"
        }
        Value::Optional(Some(value)) => format!("optional({})", plain(value)),
        Value::Optional(None) => "optional.none()".to_owned(),
        Value::List(_) | Value::Concat(_) => {
            let items: Vec<String> = value.elements().map(|item| plain(&item)).collect();
            format!("[{}]", items.join(", "))
        }
        Value::Object(_) | Value::Map(_) => {
            let entries =
                value.entries().map(|entries| entries.iter().collect::<Vec<_>>()).unwrap_or_default();
            let items: Vec<String> =
                entries.iter().map(|(key, value)| format!("{}: {}", plain(key), plain(value))).collect();
            format!("{{{}}}", items.join(", "))
        }
        Value::Opaque(_) | Value::Variables => value.type_name().to_owned(),
    }
}
