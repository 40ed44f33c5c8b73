//! Values as the records have them.

use policy::value::Value;

fn quoted(text: &str) -> String {
    serde_json::Value::from(text).to_string()
}

fn number(value: f64) -> String {
    if value.is_nan() {
        return "double:NaN".to_owned();
    }
    if value.is_infinite() {
        return format!("double:{}Inf", if value > 0.0 { "+" } else { "-" });
    }
    let text = format!("{value:e}");
    let (mantissa, exponent) = text.split_once('e').unwrap_or((&text, "0"));
    let exponent: i32 = exponent.parse().unwrap_or(0);
    if (-4..6).contains(&exponent) {
        return format!("double:{value}");
    }
    format!("double:{mantissa}e{}{:02}", if exponent < 0 { '-' } else { '+' }, exponent.abs())
}

/// The text of a value.
pub(crate) fn show(value: &Value<'_>) -> String {
    let join = |items: Vec<String>| items.join(",");
    match value {
        Value::Null => "null".to_owned(),
        Value::Bool(value) => value.to_string(),
        Value::Int(value) => value.to_string(),
        Value::Uint(value) => format!("{value}u"),
        Value::Double(value) => number(*value),
        Value::String(text) => quoted(text),
        Value::Bytes(bytes) => {
            let digits: Vec<String> = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
            format!("bytes:{}", digits.concat())
        }
        Value::Optional(Some(value)) => format!("optional({})", show(value)),
        Value::Optional(None) => "optional.none()".to_owned(),
        Value::List(_) | Value::Concat(_) => {
            format!("[{}]", join(value.elements().map(|item| show(&item)).collect()))
        }
        Value::Object(entries) => {
            let mut items: Vec<String> =
                entries.iter().map(|(key, value)| format!("{}:{}", quoted(key), show(value))).collect();
            items.sort();
            format!("{{{}}}", join(items))
        }
        Value::Map(entries) => {
            let mut items: Vec<String> =
                entries.iter().map(|(key, value)| format!("{}:{}", show(key), show(value))).collect();
            items.sort();
            format!("{{{}}}", join(items))
        }
        Value::Timestamp(time) => format!("timestamp:{}", policy::value::timestamp_text(*time)),
        Value::Duration(nanos) => format!("duration:{nanos}"),
        Value::Type(name) => format!("type:{name}"),
        Value::Opaque(_) | Value::Typed(..) | Value::Variables => value.type_name().to_owned(),
    }
}
