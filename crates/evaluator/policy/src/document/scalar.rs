//! Plain scalars as `kubectl` reads them, with `sigs.k8s.io/yaml` and go-yaml 2. Those that other YAML readers take for another number are
//! refused.

use super::node::Content;
use super::{Position, SyntaxError};

/// Characters of a number that an error shows.
const MAX_SHOWN: usize = 40;

/// Resolves text without quotes.
pub(super) fn plain(text: &str, place: Position) -> Result<Content, SyntaxError> {
    Ok(match text {
        "" | "~" | "null" | "Null" | "NULL" => Content::Null,
        "y" | "Y" | "yes" | "Yes" | "YES" | "true" | "True" | "TRUE" | "on" | "On" | "ON" => {
            Content::Bool(true)
        }
        "n" | "N" | "no" | "No" | "NO" | "false" | "False" | "FALSE" | "off" | "Off" | "OFF" => {
            Content::Bool(false)
        }
        _ if is_special(text) => return Err(ambiguous(text, place)),
        _ if text.starts_with(['+', '-', '.', '0', '1', '2', '3', '4', '5', '6', '7', '8', '9']) => {
            number(text, place)?
        }
        _ => Content::Text(text.into()),
    })
}

/// `.nan`, `.inf` and `-.inf`, which JSON does not have.
fn is_special(text: &str) -> bool {
    let unsigned = text.trim_start_matches(['+', '-']);
    matches!(unsigned, ".nan" | ".NaN" | ".NAN" | ".inf" | ".Inf" | ".INF")
}

/// Resolves text that begins as a number.
pub(super) fn number(text: &str, place: Position) -> Result<Content, SyntaxError> {
    let (sign, digits) = match text.strip_prefix(['+', '-']) {
        Some(digits) => (&text[..1], digits),
        None => ("", text),
    };
    let radix = match digits.as_bytes() {
        [b'0', b'x' | b'X', ..] => Some((16, 2)),
        [b'0', b'o' | b'O', ..] => Some((8, 2)),
        [b'0', b'b' | b'B', ..] => Some((2, 2)),
        [b'0', b'0'..=b'9' | b'_', ..] => Some((8, 1)),
        _ => None,
    };
    let plain = digits.replace('_', "");
    if let Some((radix, prefix)) = radix
        && let Some(rest) =
            plain.get(prefix..).filter(|rest| rest.bytes().all(|byte| byte.is_ascii_alphanumeric()))
        && let Ok(value) = u64::from_str_radix(rest, radix)
    {
        // YAML 1.2 has hexadecimal and octal numbers without sign, and no binary ones.
        let is_common = radix > 2 && sign.is_empty() && plain == digits;
        let value = i64::try_from(value).ok().filter(|_| is_common);
        return value.map(Content::Int).ok_or_else(|| ambiguous(text, place));
    }
    if !is_decimal(&plain) {
        return Ok(Content::Text(text.into()));
    }
    // Others read `08` and `1_000` as numbers or as texts.
    if plain != digits || radix.is_some() && plain.bytes().all(|byte| byte.is_ascii_digit()) {
        return Err(ambiguous(text, place));
    }
    if let Ok(value) = text.parse() {
        return Ok(Content::Int(value));
    }
    if let Ok(value) = text.parse() {
        return Ok(Content::Uint(value));
    }
    match text.parse::<f64>() {
        Ok(value) if value.is_finite() && !plain.bytes().all(|byte| byte.is_ascii_digit()) => Ok(sent(value)),
        _ => Err(ambiguous(text, place)),
    }
}

/// Whether a text is `[0-9]+(\.[0-9]*)?` or `\.[0-9]+`, with an exponent or without.
fn is_decimal(text: &str) -> bool {
    let is_digits = |text: &str| text.bytes().all(|byte| byte.is_ascii_digit());
    let (mantissa, exponent) = text.split_once(['e', 'E']).unwrap_or((text, "0"));
    let exponent = exponent.strip_prefix(['+', '-']).unwrap_or(exponent);
    let (whole, fraction) = mantissa.split_once('.').unwrap_or((mantissa, ""));
    let has_digits = !(exponent.is_empty() || whole.is_empty() && fraction.is_empty());
    has_digits && [whole, fraction, exponent].into_iter().all(is_digits)
}

/// The number as the API server reads it: `kubectl` sends `1e3` and `1.0` as integers.
fn sent(value: f64) -> Content {
    let is_integer = value.fract() == 0.0 && value.abs() < 1e19;
    let integer = if is_integer { format!("{value}").parse().ok() } else { None };
    integer.map_or(Content::Float(value), Content::Int)
}

fn ambiguous(text: &str, place: Position) -> SyntaxError {
    let shown = text.get(..MAX_SHOWN).map_or(text.to_owned(), |start| format!("{start}…"));
    let message = format!("readers of YAML and JSON differ on the value of {shown}");
    SyntaxError::new(place, message, "write a decimal number of at most 64 bits, or quote the text")
}

const KEY: &str = "YAML readers differ on the text of this key";

/// Refuses a key such as `0644`, whose number has another text.
pub(super) fn check_key(content: &Content, text: &str, place: Position) -> Result<(), SyntaxError> {
    match content {
        Content::Int(value) if value.to_string() != text => {
            Err(SyntaxError::new(place, KEY, "quote the key"))
        }
        _ => Ok(()),
    }
}

/// The text of a key. JSON has no other keys.
pub(super) fn into_key(content: Content, place: Position) -> Result<Box<str>, SyntaxError> {
    Ok(match content {
        Content::Text(text) => text,
        Content::Bool(value) => value.to_string().into(),
        Content::Int(value) => value.to_string().into(),
        Content::Null | Content::Uint(_) | Content::Float(_) => {
            return Err(SyntaxError::new(place, KEY, "quote the key"));
        }
        Content::List(_) | Content::Map(_) => {
            return Err(SyntaxError::new(place, "a key is a list or map", "write the key as text"));
        }
    })
}
