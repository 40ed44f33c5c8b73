//! Conversions between types.

use super::{Library, any};
use crate::cel::outcome::{EvalContext, EvalResult, no_such_overload};
use crate::value::{Timestamp, Value, number};

/// Declares the conversions.
pub(super) fn declare(library: &mut Library) {
    library.add_singleton(
        "type",
        &[("type", "type(A): type(A)")],
        |_, args| args.first().map(|value| Value::Type(value.type_name())).ok_or_else(no_such_overload),
        any,
    );
    library.add("bool_to_bool", "bool(bool): bool", identity);
    library.add("string_to_bool", "bool(string): bool", to_bool);
    library.add("bytes_to_bytes", "bytes(bytes): bytes", identity);
    library.add("string_to_bytes", "bytes(string): bytes", |_, args| match args {
        [Value::String(text)] => Ok(Value::Bytes(text.as_bytes())),
        _ => Err(no_such_overload()),
    });
    library.add("double_to_double", "double(double): double", identity);
    library.add("int64_to_double", "double(int): double", to_double);
    library.add("string_to_double", "double(string): double", to_double);
    library.add("uint64_to_double", "double(uint): double", to_double);
    library.add("duration_to_duration", "duration(duration): duration", identity);
    if library.release.declares_int_to_duration() {
        library.add("int64_to_duration", "duration(int): duration", |context, args| {
            conversion_error(context, args, "duration")
        });
    }
    library.add("string_to_duration", "duration(string): duration", to_duration);
    library.add("to_dyn", "dyn(A): dyn", identity);
    library.add("int64_to_int64", "int(int): int", identity);
    library.add("double_to_int64", "int(double): int", to_int);
    library.add("duration_to_int64", "int(duration): int", to_int);
    library.add("string_to_int64", "int(string): int", to_int);
    library.add("timestamp_to_int64", "int(timestamp): int", to_int);
    library.add("uint64_to_int64", "int(uint): int", to_int);
    library.add("string_to_string", "string(string): string", identity);
    for (id, signature) in [
        ("bool_to_string", "string(bool): string"),
        ("bytes_to_string", "string(bytes): string"),
        ("double_to_string", "string(double): string"),
        ("duration_to_string", "string(duration): string"),
        ("int64_to_string", "string(int): string"),
        ("timestamp_to_string", "string(timestamp): string"),
        ("uint64_to_string", "string(uint): string"),
    ] {
        library.add(id, signature, to_string);
    }
    library.add("timestamp_to_timestamp", "timestamp(timestamp): timestamp", identity);
    library.add("int64_to_timestamp", "timestamp(int): timestamp", to_timestamp);
    library.add("string_to_timestamp", "timestamp(string): timestamp", to_timestamp);
    library.add("uint64_to_uint64", "uint(uint): uint", identity);
    library.add("double_to_uint64", "uint(double): uint", to_uint);
    library.add("int64_to_uint64", "uint(int): uint", to_uint);
    library.add("string_to_uint64", "uint(string): uint", to_uint);
}

fn identity<'a>(_: &EvalContext<'a>, args: &[Value<'a>]) -> EvalResult<'a> {
    args.first().copied().ok_or_else(no_such_overload)
}

fn conversion_error<'a>(context: &EvalContext<'a>, args: &[Value<'a>], to: &str) -> EvalResult<'a> {
    let from = args.first().map_or("", Value::type_name);
    let to = match to {
        "duration" => "google.protobuf.Duration",
        "timestamp" => "google.protobuf.Timestamp",
        other => other,
    };
    context.error(&format!("type conversion error from '{from}' to '{to}'"))
}

fn to_bool<'a>(context: &EvalContext<'a>, args: &[Value<'a>]) -> EvalResult<'a> {
    match args {
        [Value::String("1" | "t" | "T" | "true" | "TRUE" | "True")] => Ok(Value::Bool(true)),
        [Value::String("0" | "f" | "F" | "false" | "FALSE" | "False")] => Ok(Value::Bool(false)),
        _ => conversion_error(context, args, "bool"),
    }
}

/// `strconv.ParseFloat` of Go.
fn parse_double(text: &str) -> Option<f64> {
    let unsigned = text.strip_prefix(['+', '-']).unwrap_or(text);
    let sign = if text.starts_with('-') { -1.0 } else { 1.0 };
    let lower = unsigned.to_ascii_lowercase();
    if matches!(lower.as_str(), "inf" | "infinity") {
        return Some(sign * f64::INFINITY);
    }
    if lower == "nan" {
        return (text.len() == 3).then_some(f64::NAN);
    }
    // Underscores separate digits.
    let digits = |part: &str| part.chars().next().is_some_and(|next| next.is_ascii_hexdigit());
    for (index, _) in lower.match_indices('_') {
        let before = lower.get(..index)?.ends_with(|last: char| last.is_ascii_hexdigit() || last == 'x');
        if !before || !digits(lower.get(index + 1..)?) {
            return None;
        }
    }
    let plain = lower.replace('_', "");
    let value = match plain.strip_prefix("0x") {
        Some(hexadecimal) => parse_hexadecimal(hexadecimal)?,
        None if plain.starts_with(|first: char| first.is_ascii_digit() || first == '.') => {
            plain.parse().ok()?
        }
        None => return None,
    };
    // Go refuses numbers out of range.
    value.is_finite().then_some(sign * value)
}

/// A hexadecimal number with a binary exponent, such as `1.8p3`.
fn parse_hexadecimal(text: &str) -> Option<f64> {
    let (mantissa, exponent) = text.split_once('p')?;
    let (whole, fraction) = mantissa.split_once('.').unwrap_or((mantissa, ""));
    let digits = format!("{whole}{fraction}");
    if digits.is_empty() || digits.len() > 16 {
        return None;
    }
    let value = u64::from_str_radix(&digits, 16).ok()?;
    let exponent: i32 = exponent.parse().ok()?;
    let shift = exponent.checked_sub(i32::try_from(fraction.len()).ok()?.checked_mul(4)?)?;
    Some(value as f64 * 2f64.powi(shift))
}

fn to_double<'a>(context: &EvalContext<'a>, args: &[Value<'a>]) -> EvalResult<'a> {
    match args {
        [Value::Int(value)] => Ok(Value::Double(*value as f64)),
        [Value::Uint(value)] => Ok(Value::Double(*value as f64)),
        [Value::String(text)] => match parse_double(text) {
            Some(value) => Ok(Value::Double(value)),
            None => conversion_error(context, args, "double"),
        },
        _ => conversion_error(context, args, "double"),
    }
}

fn to_int<'a>(context: &EvalContext<'a>, args: &[Value<'a>]) -> EvalResult<'a> {
    let overflow = || context.error("integer overflow");
    match args {
        [Value::Double(value)] => {
            number::double_to_int(*value).map_or_else(overflow, |value| Ok(Value::Int(value)))
        }
        [Value::Uint(value)] => {
            i64::try_from(*value).map_or_else(|_| overflow(), |value| Ok(Value::Int(value)))
        }
        [Value::Duration(nanos)] => Ok(Value::Int(*nanos)),
        [Value::Timestamp(time)] => Ok(Value::Int(time.seconds)),
        [Value::String(text)] => match text.parse() {
            Ok(value) => Ok(Value::Int(value)),
            Err(_) => conversion_error(context, args, "int"),
        },
        _ => conversion_error(context, args, "int"),
    }
}

fn to_uint<'a>(context: &EvalContext<'a>, args: &[Value<'a>]) -> EvalResult<'a> {
    let overflow = || context.error("unsigned integer overflow");
    match args {
        [Value::Double(value)] => {
            number::double_to_uint(*value).map_or_else(overflow, |value| Ok(Value::Uint(value)))
        }
        [Value::Int(value)] => {
            u64::try_from(*value).map_or_else(|_| overflow(), |value| Ok(Value::Uint(value)))
        }
        [Value::String(text)] if !text.starts_with('+') => match text.parse() {
            Ok(value) => Ok(Value::Uint(value)),
            Err(_) => conversion_error(context, args, "uint"),
        },
        _ => conversion_error(context, args, "uint"),
    }
}

fn to_duration<'a>(context: &EvalContext<'a>, args: &[Value<'a>]) -> EvalResult<'a> {
    match args {
        [Value::String(text)] => match number::parse_duration(text) {
            Some(nanos) => Ok(Value::Duration(nanos)),
            None => conversion_error(context, args, "duration"),
        },
        _ => conversion_error(context, args, "duration"),
    }
}

fn to_timestamp<'a>(context: &EvalContext<'a>, args: &[Value<'a>]) -> EvalResult<'a> {
    let time = match args {
        [Value::Int(seconds)] => Some(Timestamp { seconds: *seconds, nanos: 0, offset: 0 }),
        [Value::String(text)] => number::parse_timestamp(text),
        _ => None,
    };
    match time {
        Some(time) if (number::YEAR_ONE..=number::YEAR_9999).contains(&time.seconds) => {
            Ok(Value::Timestamp(time))
        }
        Some(_) => context.error("timestamp overflow"),
        None => conversion_error(context, args, "timestamp"),
    }
}

/// `string()` of a value, without the types of Kubernetes.
pub(crate) fn to_string<'a>(context: &EvalContext<'a>, args: &[Value<'a>]) -> EvalResult<'a> {
    let text = match args {
        [text @ Value::String(_)] => return Ok(*text),
        [Value::Bytes(bytes)] => match std::str::from_utf8(bytes) {
            Ok(text) => return Ok(Value::String(text)),
            Err(_) => return context.error("invalid UTF-8 in bytes, cannot convert to string"),
        },
        [Value::Bool(value)] => value.to_string(),
        [Value::Int(value)] => value.to_string(),
        [Value::Uint(value)] => value.to_string(),
        [Value::Double(value)] => number::general(*value),
        [Value::Duration(nanos)] => number::duration(*nanos),
        [Value::Timestamp(time)] => number::timestamp(*time),
        [Value::Type(name)] => return Ok(Value::String(name)),
        _ => return conversion_error(context, args, "string"),
    };
    Ok(context.text(&text))
}
