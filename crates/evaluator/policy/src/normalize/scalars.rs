//! Values without parts, in the canonical form of the API server.

use std::fmt::Write as _;

use super::quantity;
use super::table::FieldType;
use crate::value::{Arena, Timestamp, Value, number};

/// Encodes a value that is not null. The error says which value is expected.
pub(super) fn encode<'a>(of: &FieldType, value: Value<'a>, arena: &'a Arena) -> Result<Value<'a>, String> {
    let expected = |text: &str| text.to_owned();
    match (of, value) {
        (FieldType::String | FieldType::IntOrString, Value::String(_))
        | (FieldType::Bool, Value::Bool(_))
        | (FieldType::Float, Value::Double(_)) => Ok(value),
        (FieldType::Float, Value::Int(int)) => Ok(Value::Double(int as f64)),
        (FieldType::Integer(smallest, largest), Value::Int(_) | Value::Double(_)) => integer(value)
            .filter(|int| (smallest..=largest).contains(&int))
            .map(Value::Int)
            .ok_or_else(|| format!("an integer from {smallest} to {largest}")),
        (FieldType::IntOrString, Value::Int(_) | Value::Double(_)) => integer(value)
            .filter(|int| i32::try_from(*int).is_ok())
            .map(Value::Int)
            .ok_or_else(|| expected("a 32-bit integer or a string")),
        (FieldType::Bytes, Value::String(text)) => {
            base64(text).map(|text| Value::String(arena.text(&text))).ok_or_else(|| expected("base64"))
        }
        (FieldType::Quantity, Value::String(text)) => quantity::canonical(text)
            .map(|canonical| Value::String(arena.text(&canonical)))
            .map_err(|problem| format!("a quantity ({problem})")),
        (FieldType::Quantity, Value::Int(int)) => {
            encode(of, Value::String(arena.text(&int.to_string())), arena)
        }
        (FieldType::Quantity, Value::Double(double)) => {
            encode(of, Value::String(arena.text(&json_number(double))), arena)
        }
        (FieldType::Time, Value::String(text)) => number::parse_timestamp(text)
            .map(|time| time_text(time, false, arena))
            .ok_or_else(|| expected("a time such as 2026-01-02T15:04:05Z")),
        (FieldType::MicroTime, Value::String(text)) => micro_time(text)
            .map(|time| time_text(time, true, arena))
            .ok_or_else(|| expected("a time with six digits, such as 2026-01-02T15:04:05.000000Z")),
        (FieldType::Duration, Value::String(text)) => number::parse_duration(text)
            .map(|nanos| Value::String(arena.text(&duration(nanos))))
            .ok_or_else(|| expected("a duration such as 1h30m")),
        _ => Err(expected(match of {
            FieldType::Bool => "a boolean",
            FieldType::Integer(..) => "an integer",
            FieldType::Float => "a number",
            FieldType::Quantity => "a quantity",
            FieldType::IntOrString => "an integer or a string",
            _ => "a string",
        })),
    }
}

/// Returns an integer; `kubectl` prints `3.0` as `3`.
fn integer(value: Value<'_>) -> Option<i64> {
    match value {
        Value::Int(int) => Some(int),
        Value::Double(double) => number::lossless_int(double),
        _ => None,
    }
}

/// Prints a number as Go's JSON encoder does.
fn json_number(value: f64) -> String {
    let size = value.abs();
    if size == 0.0 || (1e-6..1e21).contains(&size) {
        return value.to_string();
    }
    let text = format!("{value:e}");
    if text.contains("e-") { text } else { text.replacen('e', "e+", 1) }
}

/// Returns the text of a time in UTC, or null for Go's zero time.
fn time_text(time: Timestamp, micro: bool, arena: &Arena) -> Value<'_> {
    if time.seconds == number::YEAR_ONE && time.nanos == 0 {
        return Value::Null;
    }
    let mut text = number::timestamp(Timestamp { nanos: 0, offset: 0, ..time });
    if micro {
        text.pop();
        let _ = write!(text, ".{:06}Z", time.nanos / 1_000);
    }
    Value::String(arena.text(&text))
}

/// Parses a time whose seconds have exactly six digits.
fn micro_time(text: &str) -> Option<Timestamp> {
    let (_, fraction) = text.split_once(['.', ','])?;
    let digits = fraction.bytes().take_while(u8::is_ascii_digit).count();
    if digits == 6 { number::parse_timestamp(text) } else { None }
}

/// `time.Duration.String` of Go: `1h30m0s`, `250ms`.
fn duration(nanos: i64) -> String {
    let sign = if nanos < 0 { "-" } else { "" };
    let size = nanos.unsigned_abs();
    let fraction = |unit: u64| {
        let digits = unit.ilog10() as usize;
        let text = format!("{}.{:0digits$}", size / unit, size % unit);
        text.trim_end_matches('0').trim_end_matches('.').to_owned()
    };
    match size {
        0 => "0s".to_owned(),
        1..1_000 => format!("{sign}{size}ns"),
        1_000..1_000_000 => format!("{sign}{}µs", fraction(1_000)),
        1_000_000..1_000_000_000 => format!("{sign}{}ms", fraction(1_000_000)),
        _ => {
            let minutes = size / 60_000_000_000;
            let seconds = {
                let rest = size % 60_000_000_000;
                let text = format!("{}.{:09}", rest / 1_000_000_000, rest % 1_000_000_000);
                text.trim_end_matches('0').trim_end_matches('.').to_owned()
            };
            match (minutes / 60, minutes % 60) {
                (0, 0) => format!("{sign}{seconds}s"),
                (0, minutes) => format!("{sign}{minutes}m{seconds}s"),
                (hours, minutes) => format!("{sign}{hours}h{minutes}m{seconds}s"),
            }
        }
    }
}

/// The symbols of base64.
const ALPHABET: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

/// Encodes bytes as base64.
pub(super) fn encode_base64(bytes: &[u8]) -> String {
    let mut text = String::with_capacity(bytes.len().div_ceil(3) * 4);
    for chunk in bytes.chunks(3) {
        let bits = (0..3).fold(0usize, |bits, index| {
            bits << 8 | usize::from(chunk.get(index).copied().unwrap_or_default())
        });
        for index in 0..4 {
            let symbol = ALPHABET.get(bits >> (18 - 6 * index) & 0b11_1111);
            text.push(if index > chunk.len() { '=' } else { symbol.copied().unwrap_or(b'A').into() });
        }
    }
    text
}

/// Decodes and encodes base64: line breaks disappear, and unused bits become zero.
fn base64(text: &str) -> Option<String> {
    let mut encoded: String = text.chars().filter(|symbol| !matches!(symbol, '\r' | '\n')).collect();
    if !encoded.len().is_multiple_of(4) {
        return None;
    }
    let symbols = encoded.trim_end_matches('=').len();
    let mask = match encoded.len() - symbols {
        0 => 0b11_1111,
        1 => 0b11_1100,
        2 => 0b11_0000,
        _ => return None,
    };
    let position = |symbol: u8| ALPHABET.iter().position(|known| *known == symbol);
    let data = encoded.as_bytes().get(..symbols)?;
    if !data.iter().all(|symbol| position(*symbol).is_some()) {
        return None;
    }
    if let Some(last) = data.last() {
        let used = ALPHABET.get(position(*last)? & mask)?;
        encoded.replace_range(symbols - 1..symbols, &char::from(*used).to_string());
    }
    Some(encoded)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn prints_durations_as_go() {
        for (nanos, text) in [
            (0, "0s"),
            (5_400_000_000_000, "1h30m0s"),
            (1_500_000_000, "1.5s"),
            (250_000_000, "250ms"),
            (1_500, "1.5µs"),
            (-180_000_000_000, "-3m0s"),
            (60_000_000_001, "1m0.000000001s"),
            (999, "999ns"),
        ] {
            assert_eq!(duration(nanos), text);
        }
    }

    #[test]
    fn encodes_base64_again() {
        assert_eq!(base64("YW\nJj").as_deref(), Some("YWJj"));
        assert_eq!(base64("YR==").as_deref(), Some("YQ=="));
        assert_eq!(base64("").as_deref(), Some(""));
        for wrong in ["YQ", "YQ=", "Y===", "Y!==", "YQ==YQ=="] {
            assert_eq!(base64(wrong), None, "{wrong}");
        }
    }

    #[test]
    fn encodes_bytes_as_base64() {
        for (text, encoded) in
            [("", ""), ("a", "YQ=="), ("ab", "YWI="), ("abc", "YWJj"), ("abcd", "YWJjZA==")]
        {
            assert_eq!(encode_base64(text.as_bytes()), encoded);
        }
    }

    #[test]
    fn prints_numbers_as_go() {
        for (value, text) in
            [(0.5, "0.5"), (1e9, "1000000000"), (1e21, "1e+21"), (1.5e-7, "1.5e-7"), (-2.0, "-2"), (0.0, "0")]
        {
            assert_eq!(json_number(value), text);
        }
    }
}
