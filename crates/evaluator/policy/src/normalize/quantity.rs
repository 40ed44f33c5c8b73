//! The canonical text of quantities, as `resource.Quantity` prints it.
//!
//! Go keeps a text that is already in canonical form, or that its fast path takes for canonical: `+5`, `007` and `1.500` stay
//! as they are. All other texts are printed from the number: `0.5` becomes `500m`, and `1024Mi` becomes `1Gi`.

use std::borrow::Cow;

use crate::value::quantity::{QuantityParts, Suffix, parse};

/// Suffixes of powers of thousand, from a billionth.
const DECIMAL: [&str; 10] = ["n", "u", "m", "", "k", "M", "G", "T", "P", "E"];
/// Suffixes of powers of 1,024.
const BINARY: [&str; 7] = ["", "Ki", "Mi", "Gi", "Ti", "Pi", "Ei"];

/// Returns the canonical text of a quantity, or the reason why it is not one.
pub(super) fn canonical(text: &str) -> Result<Cow<'_, str>, &'static str> {
    let text = text.trim();
    let parts = QuantityParts::split(text)?;
    let (value, exponent) = parse(text)?.parts();
    if is_kept(&parts) {
        return Ok(text.into());
    }
    if value == 0 {
        return Ok("0".into());
    }
    let integer = integer(value, exponent);
    Ok(match (parts.suffix, integer) {
        (Suffix::Binary(_), Some(integer)) if integer.unsigned_abs() >= 1_024 => binary(integer),
        (Suffix::Binary(_) | Suffix::Decimal(_), _) => decimal(value, exponent, false),
        (Suffix::Exponent(_), _) => decimal(value, exponent, true),
    }
    .into())
}

/// Whether Go's fast path keeps the text.
fn is_kept(parts: &QuantityParts<'_>) -> bool {
    let digits = parts.whole.len() + parts.fraction.len();
    match parts.suffix {
        Suffix::Binary(exponent) => {
            let digits_of_factor = usize::try_from(exponent * 3 / 10).unwrap_or(usize::MAX);
            let fits = digits + digits_of_factor < 15;
            fits && parts.fraction.is_empty()
                && parts.whole.parse::<i64>().is_ok_and(|value| value & 0x07 != 0)
        }
        Suffix::Decimal(exponent) | Suffix::Exponent(exponent) => {
            let scale =
                i32::try_from(parts.fraction.len()).map_or(i32::MIN, |len| exponent.saturating_sub(len));
            // Go looks at the last three digits of the whole number, with those after the point.
            let tail = if parts.fraction.len() >= 3 {
                parts.fraction.ends_with("000")
            } else {
                format!("{}{}", parts.whole, parts.fraction).ends_with("000")
            };
            digits <= 18 && scale >= -9 && scale % 3 == 0 && !tail && !parts.whole.starts_with('0')
        }
    }
}

/// Returns the number without an exponent, if it is an integer.
fn integer(value: i128, exponent: i32) -> Option<i128> {
    let power = 10i128.checked_pow(exponent.unsigned_abs())?;
    if exponent >= 0 { value.checked_mul(power) } else { (value % power == 0).then_some(value / power) }
}

fn binary(mut value: i128) -> String {
    let mut times = 0;
    while value.unsigned_abs() >= 1_024 && value % 1_024 == 0 {
        value /= 1_024;
        times += 1;
    }
    format!("{value}{}", BINARY.get(times).copied().unwrap_or_default())
}

/// Prints a number with an exponent that three divides.
fn decimal(mut value: i128, mut exponent: i32, scientific: bool) -> String {
    while value % 10 == 0 {
        value /= 10;
        exponent += 1;
    }
    let excess = exponent.rem_euclid(3);
    // The number has lost its factors of ten, so two of them fit again unless it has 37 digits.
    let value = value.saturating_mul(if excess == 2 { 100 } else { i128::from(excess * 9 + 1) });
    let exponent = exponent - excess;
    if scientific {
        return if exponent == 0 { value.to_string() } else { format!("{value}e{exponent}") };
    }
    let index = usize::try_from(exponent / 3 + 3).ok();
    // Go prints no suffix for an exponent that has none.
    format!("{value}{}", index.and_then(|index| DECIMAL.get(index)).copied().unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn prints_quantities_as_go() {
        for (text, printed) in [
            ("0", "0"),
            ("0.0", "0"),
            ("-0", "0"),
            ("1", "1"),
            (" 3 ", "3"),
            ("+5", "+5"),
            ("007", "007"),
            ("1.500", "1.500"),
            ("0.5", "500m"),
            ("1.5", "1500m"),
            ("1000m", "1"),
            ("1000k", "1M"),
            ("2000000", "2M"),
            ("1024Mi", "1Gi"),
            ("8Mi", "8Mi"),
            ("1.5Gi", "1536Mi"),
            ("0.1Gi", "107374182400m"),
            ("0.5Ki", "512"),
            ("-2Ki", "-2Ki"),
            ("1e3", "1e3"),
            ("1E2", "100"),
            ("10e3", "10e3"),
            ("1000e3", "1e6"),
            ("12E", "12E"),
            ("0.0000000001", "1n"),
            ("999999999999999999999", "999999999999999999999"),
        ] {
            assert_eq!(canonical(text).as_deref(), Ok(printed), "{text}");
        }
        for wrong in ["", "1 core", "1Zi", "one", "--1"] {
            assert!(canonical(wrong).is_err(), "{wrong}");
        }
    }
}
