//! `string.format`, with the errors of cel-go and the locale `en_US`.

use crate::value::format::{plain, quote};
use crate::value::{Value, number, work};

/// A clause of a format string.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Clause {
    String,
    Decimal,
    Fixed(Option<usize>),
    Scientific(Option<usize>),
    Binary,
    Hex(bool),
    Octal,
}

/// A problem of a clause's argument, with the type that it was given.
pub(crate) fn type_error(clause: Clause, given: &str) -> String {
    let expected = match clause {
        Clause::String => {
            "string clause can only be used on strings, bools, bytes, ints, doubles, maps, lists, types, durations, and timestamps"
        }
        Clause::Decimal => "decimal clause can only be used on integers",
        Clause::Fixed(_) => "fixed-point clause can only be used on doubles",
        Clause::Scientific(_) => "scientific clause can only be used on doubles",
        Clause::Binary => "only integers and bools can be formatted as binary",
        Clause::Hex(_) => "only integers, byte buffers, and strings can be formatted as hex",
        Clause::Octal => "octal clause can only be used on integers",
    };
    format!("error during formatting: {expected}, was given {given}")
}

/// Reads a format string; `argument` is called for every clause with the index of its argument. cel-go checks a constant
/// string for a last `%` before it counts the arguments.
pub(crate) fn parse(
    text: &str,
    constant: bool,
    count: usize,
    out: &mut String,
    mut argument: impl FnMut(usize, Clause) -> Result<String, String>,
) -> Result<usize, String> {
    let mut rest = text;
    let mut index = 0;
    while let Some(at) = rest.find('%') {
        out.push_str(rest.get(..at).unwrap_or_default());
        rest = rest.get(at + 1..).unwrap_or_default();
        if let Some(after) = rest.strip_prefix('%') {
            out.push('%');
            rest = after;
            continue;
        }
        if rest.is_empty() && (constant || index < count) {
            return Err("unexpected end of string".to_owned());
        }
        if index >= count {
            return Err(format!("index {index} out of range"));
        }
        let (clause, len) =
            clause(rest).map_err(|message| format!("could not parse formatting clause: {message}"))?;
        let text = argument(index, clause)?;
        if !work::copy(text.as_bytes()) {
            return Err(String::new());
        }
        out.push_str(&text);
        rest = rest.get(len..).unwrap_or_default();
        index += 1;
    }
    out.push_str(rest);
    Ok(index)
}

fn clause(text: &str) -> Result<(Clause, usize), String> {
    let mut len = 0;
    let mut precision = None;
    if let Some(digits) = text.strip_prefix('.') {
        let count = digits.bytes().take_while(u8::is_ascii_digit).count();
        if count == digits.len() {
            return Err("error while parsing precision: could not find end of precision specifier".to_owned());
        }
        let number = digits.get(..count).unwrap_or_default();
        let parsed = number.parse::<usize>().ok().filter(|precision| *precision <= 1_000);
        let Some(parsed) = parsed else {
            let what = if number.is_empty() { "invalid syntax" } else { "value out of range" };
            let quoted = quote(number);
            return Err(format!(
                "error while parsing precision: error while converting precision to integer: strconv.Atoi: parsing {quoted}: {what}"
            ));
        };
        precision = Some(parsed);
        len = 1 + count;
    }
    let kind = text.get(len..).and_then(|rest| rest.bytes().next()).unwrap_or(0);
    let clause = match kind {
        b's' => Clause::String,
        b'd' => Clause::Decimal,
        b'f' => Clause::Fixed(precision),
        b'e' => Clause::Scientific(precision),
        b'b' => Clause::Binary,
        b'x' => Clause::Hex(false),
        b'X' => Clause::Hex(true),
        b'o' => Clause::Octal,
        other => return Err(format!("unrecognized formatting clause \"{}\"", char::from(other))),
    };
    Ok((clause, len + 1))
}

/// Formats a text with arguments.
pub(crate) fn format(text: &str, args: &[Value<'_>]) -> Result<String, String> {
    let mut out = String::with_capacity(text.len());
    parse(text, false, args.len(), &mut out, |index, clause| {
        let value = args.get(index).copied().unwrap_or_default();
        one(clause, &value)
    })?;
    Ok(out)
}

fn one(clause: Clause, value: &Value<'_>) -> Result<String, String> {
    let refused = || type_error(clause, value.type_name());
    let special = |text: &str| matches!(text, "NaN" | "Infinity" | "-Infinity");
    let double = || match value {
        Value::Double(double) => Ok(*double),
        Value::String(text) if special(text) => Ok(if *text == "NaN" {
            f64::NAN
        } else if text.starts_with('-') {
            f64::NEG_INFINITY
        } else {
            f64::INFINITY
        }),
        _ => Err(refused()),
    };
    match (clause, value) {
        (Clause::String, value) => string(value).map_err(|problem| match problem {
            NoText::Type(given) => type_error(clause, &given),
            NoText::Text(text) => format!("error during formatting: {text}"),
        }),
        (Clause::Decimal, Value::Int(value)) => Ok(value.to_string()),
        (Clause::Decimal, Value::Uint(value)) => Ok(value.to_string()),
        (Clause::Fixed(precision), _) => double().map(|double| fixed(double, precision.unwrap_or(6))),
        (Clause::Scientific(precision), _) => {
            double().map(|double| scientific(double, precision.unwrap_or(6)))
        }
        (Clause::Binary, Value::Bool(value)) => Ok(if *value { "1" } else { "0" }.to_owned()),
        (Clause::Binary, Value::Int(value)) => Ok(signed(*value, |value| format!("{value:b}"))),
        (Clause::Binary, Value::Uint(value)) => Ok(format!("{value:b}")),
        (Clause::Octal, Value::Int(value)) => Ok(signed(*value, |value| format!("{value:o}"))),
        (Clause::Octal, Value::Uint(value)) => Ok(format!("{value:o}")),
        (Clause::Hex(upper), Value::Int(value)) => Ok(signed(*value, |value| hex_number(value, upper))),
        (Clause::Hex(upper), Value::Uint(value)) => Ok(hex_number(*value, upper)),
        (Clause::Hex(upper), Value::String(text)) => Ok(hex_bytes(text.as_bytes(), upper)),
        (Clause::Hex(upper), Value::Bytes(bytes)) => Ok(hex_bytes(bytes, upper)),
        _ => Err(refused()),
    }
}

fn signed(value: i64, format: impl Fn(u64) -> String) -> String {
    format!("{}{}", if value < 0 { "-" } else { "" }, format(value.unsigned_abs()))
}

fn hex_number(value: u64, upper: bool) -> String {
    if upper { format!("{value:X}") } else { format!("{value:x}") }
}

fn hex_bytes(bytes: &[u8], upper: bool) -> String {
    bytes.iter().map(|byte| if upper { format!("{byte:02X}") } else { format!("{byte:02x}") }).collect()
}

/// Why `%s` has no text.
enum NoText {
    /// A type that has no form.
    Type(String),
    Text(String),
}

fn utf8(bytes: &[u8]) -> Result<&str, NoText> {
    std::str::from_utf8(bytes).map_err(|_| {
        let reason = "invalid UTF-8 in bytes, cannot convert to string";
        NoText::Text(format!("could not convert argument \"{reason}\" to string"))
    })
}

/// `%s`.
fn string(value: &Value<'_>) -> Result<String, NoText> {
    match value {
        Value::Null => Ok("null".to_owned()),
        Value::Bool(_)
        | Value::Int(_)
        | Value::Uint(_)
        | Value::Double(_)
        | Value::String(_)
        | Value::Timestamp(_)
        | Value::Duration(_)
        | Value::Type(_) => Ok(plain(value)),
        Value::Bytes(bytes) => Ok(utf8(bytes)?.to_owned()),
        value if value.is_list() || value.entries().is_some() => nested(value),
        other => Err(NoText::Type(other.type_name().to_owned())),
    }
}

/// A value within a list or map: strings are quoted, doubles have six digits.
fn nested(value: &Value<'_>) -> Result<String, NoText> {
    Ok(match value {
        Value::String(text) if !work::copy(text.as_bytes()) => String::new(),
        Value::String(text) => quote(text),
        Value::Bytes(bytes) if !work::copy(bytes) => String::new(),
        Value::Bytes(bytes) => format!("b{}", quote(utf8(bytes)?)),
        Value::Double(double) if double.is_finite() => format!("{double:.6}"),
        Value::Double(double) => quote(if double.is_nan() {
            "NaN"
        } else if *double > 0.0 {
            "+Inf"
        } else {
            "-Inf"
        }),
        Value::Timestamp(time) => format!("timestamp({})", quote(&number::timestamp(*time))),
        Value::Duration(nanos) => format!("duration({})", quote(&number::duration(*nanos))),
        value if value.is_list() => {
            let items: Vec<String> = value.elements().map(|item| nested(&item)).collect::<Result<_, _>>()?;
            format!("[{}]", items.join(", "))
        }
        value if value.entries().is_some() => {
            let mut pairs = Vec::new();
            for (key, value) in
                value.entries().map(|entries| entries.iter().collect::<Vec<_>>()).unwrap_or_default()
            {
                if !matches!(key, Value::String(_) | Value::Bool(_) | Value::Int(_) | Value::Uint(_)) {
                    let name = key.type_name();
                    return Err(NoText::Text(format!("no formatting function for map key of type {name}")));
                }
                pairs.push(format!("{}:{}", nested(&key)?, nested(&value)?));
            }
            pairs.sort();
            format!("{{{}}}", pairs.join(", "))
        }
        other => return string(other),
    })
}

fn infinite(value: f64) -> Option<String> {
    if value.is_nan() {
        return Some("NaN".to_owned());
    }
    value.is_infinite().then(|| if value > 0.0 { "∞" } else { "-∞" }.to_owned())
}

/// `%f` with groups of three digits.
fn fixed(value: f64, precision: usize) -> String {
    if let Some(text) = infinite(value) {
        return text;
    }
    let text = format!("{:.precision$}", if value == 0.0 { 0.0 } else { value });
    let (sign, unsigned) = match text.strip_prefix('-') {
        Some(unsigned) => ("-", unsigned),
        None => ("", text.as_str()),
    };
    let (whole, fraction) = unsigned.split_at(unsigned.find('.').unwrap_or(unsigned.len()));
    let mut out = String::from(sign);
    for (index, digit) in whole.char_indices() {
        if index > 0 && (whole.len() - index) % 3 == 0 {
            out.push(',');
        }
        out.push(digit);
    }
    out.push_str(fraction);
    out
}

/// `%e` with a power of ten. cel-go passes the precision as the width; there are always six digits after the point.
fn scientific(value: f64, width: usize) -> String {
    let text = infinite(value).unwrap_or_else(|| {
        let text = format!("{:.6e}", if value == 0.0 { 0.0 } else { value });
        let (mantissa, exponent) = text.split_once('e').unwrap_or((&text, "0"));
        let exponent: i32 = exponent.parse().unwrap_or(0);
        let superscripts = ['⁰', '¹', '²', '³', '⁴', '⁵', '⁶', '⁷', '⁸', '⁹'];
        let mut out = format!("{mantissa}×10{}", if exponent < 0 { "⁻" } else { "" });
        for digit in format!("{:02}", exponent.unsigned_abs()).bytes() {
            out.push(superscripts.get(usize::from(digit - b'0')).copied().unwrap_or('⁰'));
        }
        out
    });
    format!("{text:>width$}")
}
