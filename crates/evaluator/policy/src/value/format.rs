//! Values as text in error messages, as Go prints them with `%v` and `%q`.

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
        _ if value.is_list() => {
            let items: Vec<String> = value.elements().map(|item| plain(&item)).collect();
            format!("[{}]", items.join(", "))
        }
        _ => match value.entries() {
            Some(entries) => {
                let text = |(key, value)| format!("{}: {}", plain(&key), plain(&value));
                let items: Vec<String> = entries.iter().map(text).collect();
                format!("{{{}}}", items.join(", "))
            }
            None => value.type_name().to_owned(),
        },
    }
}

/// Text in quotes, as `%q` of Go prints it.
pub(crate) fn quote(text: &str) -> String {
    let mut out = String::with_capacity(text.len() + 2);
    out.push('"');
    for character in text.chars() {
        match character {
            '"' => out.push_str("\\\""),
            '\\' => out.push_str("\\\\"),
            '\u{7}' => out.push_str("\\a"),
            '\u{8}' => out.push_str("\\b"),
            '\u{c}' => out.push_str("\\f"),
            '\n' => out.push_str("\\n"),
            '\r' => out.push_str("\\r"),
            '\t' => out.push_str("\\t"),
            '\u{b}' => out.push_str("\\v"),
            control if u32::from(control) < 0x20 || control == '\u{7f}' => {
                let _ = write!(out, "\\x{:02x}", u32::from(control));
            }
            other if is_printable(other) => out.push(other),
            other if u32::from(other) < 0x1_0000 => {
                let _ = write!(out, "\\u{:04x}", u32::from(other));
            }
            other => {
                let _ = write!(out, "\\U{:08x}", u32::from(other));
            }
        }
    }
    out.push('"');
    out
}

/// `strings.ToLower` of Go. Each character stays one character, unlike in Rust, where `İ` becomes two.
pub(crate) fn lowercase(text: &str) -> String {
    text.chars().filter_map(|character| character.to_lowercase().next()).collect()
}

/// A JSON value as `json.Marshal` of Go prints it: without spaces, and with `<`, `>` and `&` escaped.
pub(crate) fn go_json(value: Value<'_>) -> String {
    let mut out = String::new();
    write_go_json(value, &mut out);
    out
}

/// Recursion is bounded, since no reader builds deep values.
fn write_go_json(value: Value<'_>, out: &mut String) {
    match value {
        Value::Bool(value) => out.push_str(if value { "true" } else { "false" }),
        Value::Int(value) => drop(write!(out, "{value}")),
        Value::Double(value) => out.push_str(&go_json_number(value)),
        Value::String(text) => write_go_json_text(text, out),
        Value::List(items) => {
            out.push('[');
            for (index, item) in items.iter().enumerate() {
                if index > 0 {
                    out.push(',');
                }
                write_go_json(*item, out);
            }
            out.push(']');
        }
        Value::Object(entries) => {
            out.push('{');
            for (index, (key, value)) in entries.iter().enumerate() {
                if index > 0 {
                    out.push(',');
                }
                write_go_json_text(key, out);
                out.push(':');
                write_go_json(*value, out);
            }
            out.push('}');
        }
        _ => out.push_str("null"),
    }
}

fn go_json_number(value: f64) -> String {
    let size = value.abs();
    if size > 0.0 && !(1e-6..1e21).contains(&size) {
        let text = format!("{value:e}");
        return if size < 1.0 { text } else { text.replace('e', "e+") };
    }
    format!("{value}")
}

/// Writes a JSON string as Go does: `<`, `>` and `&` are escaped.
pub(crate) fn write_go_json_text(text: &str, out: &mut String) {
    out.push('"');
    for character in text.chars() {
        match character {
            '"' => out.push_str("\\\""),
            '\\' => out.push_str("\\\\"),
            '\n' => out.push_str("\\n"),
            '\r' => out.push_str("\\r"),
            '\t' => out.push_str("\\t"),
            '\u{8}' => out.push_str("\\b"),
            '\u{c}' => out.push_str("\\f"),
            '<' | '>' | '&' | '\u{2028}' | '\u{2029}' | '\0'..='\u{1f}' => {
                let _ = write!(out, "\\u{:04x}", u32::from(character));
            }
            other => out.push(other),
        }
    }
    out.push('"');
}

pub(crate) fn is_printable(character: char) -> bool {
    character == ' '
        || !(character.is_control()
            || character.is_whitespace()
            || matches!(character, '\u{ad}' | '\u{200b}'..='\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2060}'..='\u{206f}' | '\u{feff}')
            || matches!(u32::from(character), 0xe000..=0xf8ff | 0xfff0..=0xfffb | 0xe0000..=0x10_ffff))
}

#[cfg(test)]
mod tests {
    use super::lowercase;

    #[test]
    fn each_character_becomes_one_lowercase_character() {
        assert_eq!(lowercase("aB1-İΣ"), "ab1-iσ");
    }
}
