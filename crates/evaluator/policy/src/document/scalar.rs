//! Scalars as go-yaml 2 resolves them, which `sigs.k8s.io/yaml` uses.

use std::borrow::Cow;

/// A reason to refuse a value, and the next step.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refusal {
    /// The problem.
    pub message: Cow<'static, str>,
    /// The next step.
    pub next: &'static str,
}

/// A scalar of a document.
#[derive(Clone, Debug, PartialEq)]
pub enum Scalar<'t> {
    /// `null`, `~`, or nothing.
    Null,
    /// A boolean.
    Bool(bool),
    /// An integer of 64 bits with sign.
    Int(i64),
    /// A larger integer of 64 bits without sign.
    Uint(u64),
    /// A number that is not an integer, or is written with a fraction or exponent.
    Float(f64),
    /// An integer of more than 64 bits: rounded, and its digits.
    Big(f64, String),
    /// Text.
    Text(Cow<'t, str>),
}

impl<'t> Scalar<'t> {
    /// Resolves text without quotes and tag.
    pub(super) fn plain(text: Cow<'t, str>) -> Self {
        resolve(&text).unwrap_or(Self::Text(text))
    }

    /// Resolves text with a tag of YAML, such as `int`.
    pub(super) fn tagged(tag: &str, text: Cow<'t, str>) -> Result<Self, Refusal> {
        if tag == "str" {
            return Ok(Self::Text(text));
        }
        if tag == "binary" {
            let next = "write the Base64 text as a string, as Secrets have it";
            return Err(Refusal { message: "the tag !!binary is not supported".into(), next });
        }
        if !matches!(tag, "bool" | "int" | "float" | "null" | "timestamp") {
            return Ok(Self::Text(text));
        }
        let fits = |scalar: &Self| match tag {
            "bool" => matches!(scalar, Self::Bool(_)),
            "int" => matches!(scalar, Self::Int(_) | Self::Uint(_)),
            "float" => matches!(scalar, Self::Int(_) | Self::Float(_) | Self::Big(..)),
            "null" => matches!(scalar, Self::Null),
            _ => matches!(scalar, Self::Text(text) if is_date(text)),
        };
        let scalar = Self::plain(text.clone());
        if fits(&scalar) {
            return Ok(scalar);
        }
        let message = format!("{text:?} does not fit to its tag !!{tag}").into();
        Err(Refusal { message, next: "remove the tag or fix the value" })
    }

    /// The number as the API server reads it: `kubectl` sends `1e3` and `1.0` as integers.
    pub(super) fn sent(self) -> Self {
        match self {
            Self::Float(value) if value.fract() == 0.0 && value.abs() < 1e19 => {
                // Go prints the shortest digits that read back, as Rust does.
                format!("{value}").parse().map_or(Self::Float(value), Self::Int)
            }
            other => other,
        }
    }

    /// The text of a key. JSON has no other keys.
    pub(super) fn into_key(self) -> Result<Cow<'t, str>, Refusal> {
        Ok(match self {
            Self::Text(text) => text,
            Self::Bool(value) => value.to_string().into(),
            Self::Int(value) => value.to_string().into(),
            Self::Float(value) | Self::Big(value, _) => general(value).into(),
            Self::Null | Self::Uint(_) => {
                let message =
                    if self == Self::Null { "a key is null" } else { "a key has more than 63 bits" };
                return Err(Refusal { message: message.into(), next: "quote the key" });
            }
        })
    }
}

fn resolve<'t>(text: &str) -> Option<Scalar<'t>> {
    let first = match text.as_bytes().first() {
        None => return Some(Scalar::Null),
        Some(first) => *first,
    };
    match first {
        b'y' | b'Y' | b'n' | b'N' | b't' | b'T' | b'f' | b'F' | b'o' | b'O' | b'~' => word(text),
        b'.' => infinite(text).or_else(|| float(&without_underscores(text))),
        b'+' | b'-' | b'0'..=b'9' => infinite(text).or_else(|| number(text)),
        _ => None,
    }
}

fn word<'t>(text: &str) -> Option<Scalar<'t>> {
    Some(match text {
        "y" | "Y" | "yes" | "Yes" | "YES" | "true" | "True" | "TRUE" | "on" | "On" | "ON" => {
            Scalar::Bool(true)
        }
        "n" | "N" | "no" | "No" | "NO" | "false" | "False" | "FALSE" | "off" | "Off" | "OFF" => {
            Scalar::Bool(false)
        }
        "~" | "null" | "Null" | "NULL" => Scalar::Null,
        _ => return None,
    })
}

fn infinite<'t>(text: &str) -> Option<Scalar<'t>> {
    Some(Scalar::Float(match text {
        ".nan" | ".NaN" | ".NAN" => f64::NAN,
        ".inf" | ".Inf" | ".INF" | "+.inf" | "+.Inf" | "+.INF" => f64::INFINITY,
        "-.inf" | "-.Inf" | "-.INF" => f64::NEG_INFINITY,
        _ => return None,
    }))
}

fn number<'t>(text: &str) -> Option<Scalar<'t>> {
    let text: Cow<'_, str> =
        if text.contains('_') { Cow::Owned(text.replace('_', "")) } else { Cow::Borrowed(text) };
    integer(&text).or_else(|| float(&text))
}

/// Removes underscores if all of them are between digits, as `strconv.ParseFloat` has it.
fn without_underscores(text: &str) -> Cow<'_, str> {
    let bytes = text.as_bytes();
    let is_digit =
        |index: Option<usize>| index.and_then(|index| bytes.get(index)).is_some_and(u8::is_ascii_digit);
    let separates = |(index, _): (usize, &str)| is_digit(index.checked_sub(1)) && is_digit(Some(index + 1));
    if text.contains('_') && text.match_indices('_').all(separates) {
        return Cow::Owned(text.replace('_', ""));
    }
    Cow::Borrowed(text)
}

/// Integers as `strconv.ParseInt` and `strconv.ParseUint` with base 0 read them.
fn integer<'t>(text: &str) -> Option<Scalar<'t>> {
    let (negative, signed, digits) = match text.as_bytes().first()? {
        b'-' => (true, true, text.get(1..)?),
        b'+' => (false, true, text.get(1..)?),
        _ => (false, false, text),
    };
    let (radix, digits) = match digits.as_bytes() {
        [b'0', b'x' | b'X', ..] => (16, digits.get(2..)?),
        [b'0', b'b' | b'B', ..] => (2, digits.get(2..)?),
        [b'0', b'o' | b'O', ..] => (8, digits.get(2..)?),
        [b'0', _, ..] => (8, digits.get(1..)?),
        _ => (10, digits),
    };
    if !digits.bytes().all(|byte| byte.is_ascii_alphanumeric()) {
        return None;
    }
    let value = u64::from_str_radix(digits, radix).ok()?;
    match i64::try_from(value) {
        Ok(value) => Some(Scalar::Int(if negative { -value } else { value })),
        Err(_) if negative && value == i64::MIN.unsigned_abs() => Some(Scalar::Int(i64::MIN)),
        Err(_) => (!signed).then_some(Scalar::Uint(value)),
    }
}

/// Decimal numbers `[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?`; a number out of range is a text.
fn float<'t>(text: &str) -> Option<Scalar<'t>> {
    let unsigned = text.strip_prefix(['+', '-']).unwrap_or(text);
    let (mantissa, exponent) = match unsigned.split_once(['e', 'E']) {
        Some((mantissa, exponent)) => (mantissa, Some(exponent)),
        None => (unsigned, None),
    };
    let is_digits = |text: &str| text.bytes().all(|byte| byte.is_ascii_digit());
    let (whole, fraction) = match mantissa.split_once('.') {
        Some((whole, fraction)) => (whole, Some(fraction)),
        None => (mantissa, None),
    };
    let fraction_ok =
        fraction.is_none_or(is_digits) && !(whole.is_empty() && fraction.is_none_or(str::is_empty));
    let exponent_ok = exponent.is_none_or(|exponent| {
        let digits = exponent.strip_prefix(['+', '-']).unwrap_or(exponent);
        !digits.is_empty() && is_digits(digits)
    });
    if !is_digits(whole) || !fraction_ok || !exponent_ok {
        return None;
    }
    let value: f64 = text.parse().ok()?;
    if value.is_infinite() {
        return None;
    }
    // Digits that begin with 0 were tried as octal; go-yaml then reads `08` as 8.
    let big = fraction.is_none() && exponent.is_none() && value.abs() >= 9_223_372_036_854_775_807.0;
    Some(if big { Scalar::Big(value, text.to_owned()) } else { Scalar::Float(value) })
}

fn is_date(text: &str) -> bool {
    let (year, rest) = text.split_at_checked(4).unwrap_or_default();
    !rest.is_empty() && year.bytes().all(|byte| byte.is_ascii_digit()) && rest.starts_with('-')
}

/// A key as Go's `FormatFloat(value, 'g', -1, 32)` prints it.
fn general(value: f64) -> String {
    #[allow(clippy::cast_possible_truncation)] // as sigs.k8s.io/yaml
    let value = value as f32;
    if value.is_nan() {
        return ".nan".to_owned();
    }
    if value.is_infinite() {
        return if value > 0.0 { ".inf".to_owned() } else { "-.inf".to_owned() };
    }
    let scientific = format!("{value:e}");
    let Some((mantissa, exponent)) = scientific.split_once('e') else { return scientific };
    match exponent.parse::<i32>() {
        Ok(exponent) if (-4..6).contains(&exponent) => format!("{value}"),
        Ok(exponent) => {
            let sign = if exponent < 0 { '-' } else { '+' };
            format!("{mantissa}e{sign}{:02}", exponent.unsigned_abs())
        }
        Err(_) => scientific,
    }
}
