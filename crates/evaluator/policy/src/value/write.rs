//! Values to JSON text.

use std::fmt::Write as _;

use super::Value;

/// Writes a JSON value. [`read_json`](super::read_json) reads the same value again. Values that JSON does not have become `null`.
pub fn write_json(value: Value<'_>) -> String {
    write_json_up_to(value, usize::MAX)
}

/// Writes a JSON value, and stops after `max` bytes: a longer text is not complete. The aliases of a short text can repeat a value many
/// times.
pub fn write_json_up_to(value: Value<'_>, max: usize) -> String {
    let mut out = String::new();
    write(value, &mut out, max);
    out
}

/// Recursion is bounded, since no reader builds deep values.
fn write(value: Value<'_>, out: &mut String, max: usize) {
    if out.len() > max {
        return;
    }
    match value {
        Value::Bool(true) => out.push_str("true"),
        Value::Bool(false) => out.push_str("false"),
        // Writing to a `String` cannot fail.
        Value::Int(value) => drop(write!(out, "{value}")),
        Value::Uint(value) => drop(write!(out, "{value}")),
        // The fraction or exponent keeps it a double.
        Value::Double(value) if value.is_finite() => drop(write!(out, "{value:?}")),
        Value::String(text) => string(text, out),
        Value::Typed(value, _) => write(*value, out, max),
        Value::List(_) | Value::Concat(_) => {
            out.push('[');
            for (index, item) in value.elements().enumerate() {
                if out.len() > max {
                    return;
                }
                if index > 0 {
                    out.push(',');
                }
                write(item, out, max);
            }
            out.push(']');
        }
        Value::Object(entries) => {
            out.push('{');
            for (index, (key, value)) in entries.iter().enumerate() {
                if out.len() > max {
                    return;
                }
                if index > 0 {
                    out.push(',');
                }
                string(key, out);
                out.push(':');
                write(*value, out, max);
            }
            out.push('}');
        }
        _ => out.push_str("null"),
    }
}

fn string(text: &str, out: &mut String) {
    out.push('"');
    let mut rest = text;
    while let Some(at) = rest.bytes().position(|byte| matches!(byte, b'"' | b'\\' | 0..=0x1f)) {
        let (before, after) = rest.split_at(at);
        out.push_str(before);
        let mut characters = after.chars();
        match characters.next() {
            Some('"') => out.push_str("\\\""),
            Some('\\') => out.push_str("\\\\"),
            Some('\n') => out.push_str("\\n"),
            Some(control) => drop(write!(out, "\\u{:04x}", u32::from(control))),
            None => {}
        }
        rest = characters.as_str();
    }
    out.push_str(rest);
    out.push('"');
}

#[cfg(test)]
mod tests {
    use super::super::{Arena, read_json};
    use super::*;

    #[test]
    fn reads_back_as_the_same_text() {
        let text = r#"{"a":[1,-2.5,1e19,3.0,true,false,null,""],"b":{"c":"\u0001\n\"\\é"}}"#;
        let arena = Arena::new();
        assert_eq!(read_json(text, &arena).map(write_json).as_deref(), Ok(text));
    }
}
