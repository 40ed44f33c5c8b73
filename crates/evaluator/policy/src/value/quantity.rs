//! Quantities of resources, such as `1.5Gi` or `500m`.

use std::cmp::Ordering;

const FORMAT: &str =
    "quantities must match the regular expression '^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'";
const NUMERIC: &str = "unable to parse numeric part of quantity";
const SUFFIX: &str = "unable to parse quantity's suffix";

/// The error of a quantity that is valid in the API server, whose numbers have no limit.
pub(crate) const TOO_LARGE: &str = "quantities of more than 38 digits are not supported";

/// A quantity: an integer and a decimal exponent. Larger numbers than `i128` has are not supported.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Quantity {
    value: i128,
    exponent: i32,
    /// Whether Go stores it as a big decimal, which is never an integer.
    big: bool,
    /// The exponent that Go stores, from which the rounding of [`Quantity::float`] follows.
    stored: i32,
}

impl Quantity {
    pub(crate) fn int(value: i64) -> Self {
        Self { value: i128::from(value), exponent: 0, big: false, stored: 0 }
    }

    /// The number and its decimal exponent.
    pub(crate) fn parts(&self) -> (i128, i32) {
        (self.value, self.exponent)
    }

    /// -1, 0 or 1.
    pub(crate) fn sign(&self) -> i64 {
        self.value.signum() as i64
    }

    /// Order of two quantities.
    pub(crate) fn compare(&self, other: &Quantity) -> Ordering {
        if let Some((left, right, _)) = align(self, other) {
            return left.cmp(&right);
        }
        // The quantity with the larger exponent can't be aligned. So it is farther from zero than the other one, and its sign decides.
        if self.exponent > other.exponent { self.value.cmp(&0) } else { 0.cmp(&other.value) }
    }

    pub(crate) fn add(&self, other: &Quantity) -> Option<Quantity> {
        if other.value == 0 {
            return Some(Quantity { big: self.big || other.big, ..*self });
        }
        if self.value == 0 {
            return Some(Quantity {
                big: self.big || other.big,
                stored: self.stored.min(other.stored),
                ..*other
            });
        }
        let (left, right, exponent) = align(self, other)?;
        let value = left.checked_add(right)?;
        let big = self.big || other.big || i64::try_from(value).is_err();
        Some(Quantity { value, exponent, big, stored: self.stored.min(other.stored) })
    }

    pub(crate) fn subtract(&self, other: &Quantity) -> Option<Quantity> {
        // Go negates the smallest integer to itself, if the sum then fits.
        let smallest = !other.big && other.exponent == 0 && other.value == i128::from(i64::MIN);
        if smallest
            && !self.big
            && let Some(quantity) = self.add(other).filter(|quantity| !quantity.big)
        {
            return Some(quantity);
        }
        self.add(&other.negated()?)
    }

    fn negated(&self) -> Option<Quantity> {
        let value = self.value.checked_neg()?;
        Some(Quantity { value, big: self.big || i64::try_from(value).is_err(), ..*self })
    }

    pub(crate) fn integer(&self) -> Option<i64> {
        if self.big || self.exponent < 0 {
            return None;
        }
        let factor = 10i128.checked_pow(u32::try_from(self.exponent).ok()?)?;
        i64::try_from(self.value.checked_mul(factor)?).ok()
    }

    pub(crate) fn float(&self) -> f64 {
        // Both factors are rounded on their own, as in Go.
        let parse = |text: String| text.parse::<f64>().unwrap_or(f64::INFINITY);
        let base = parse(format!("{}e{}", self.value, self.exponent.saturating_sub(self.stored)));
        if self.stored == 0 { base } else { base * parse(format!("1e{}", self.stored)) }
    }
}

/// Both values with the smaller exponent.
fn align(left: &Quantity, right: &Quantity) -> Option<(i128, i128, i32)> {
    let exponent = left.exponent.min(right.exponent);
    let scaled = |quantity: &Quantity| {
        if quantity.value == 0 {
            return Some(0);
        }
        let factor = 10i128.checked_pow(quantity.exponent.checked_sub(exponent)?.try_into().ok()?)?;
        quantity.value.checked_mul(factor)
    };
    Some((scaled(left)?, scaled(right)?, exponent))
}

/// The parts of a quantity's text.
pub(crate) struct QuantityParts<'a> {
    pub(crate) negative: bool,
    /// The digits before the point, without leading zeros; at least one digit.
    pub(crate) whole: &'a str,
    /// The digits after the point.
    pub(crate) fraction: &'a str,
    pub(crate) suffix: Suffix,
}

/// The suffix of a quantity with its exponent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Suffix {
    /// A power of ten by a letter, or none.
    Decimal(i32),
    /// A power of two: `Ki`.
    Binary(i32),
    /// A power of ten by a number: `e3`.
    Exponent(i32),
}

impl<'a> QuantityParts<'a> {
    /// Splits a text as `resource.ParseQuantity` does.
    pub(crate) fn split(text: &'a str) -> Result<Self, &'static str> {
        if text.is_empty() {
            return Err(FORMAT);
        }
        let (negative, unsigned) = match text.strip_prefix('-') {
            Some(rest) => (true, rest),
            None => (false, text.strip_prefix('+').unwrap_or(text)),
        };
        let digits = |text: &str| text.bytes().take_while(u8::is_ascii_digit).count();
        let stripped = unsigned.trim_start_matches('0');
        if stripped.is_empty() {
            return Ok(Self { negative, whole: "0", fraction: "", suffix: Suffix::Decimal(0) });
        }
        let (whole, rest) = stripped.split_at(digits(stripped));
        let (fraction, suffix) = match rest.strip_prefix('.') {
            Some(rest) => rest.split_at(digits(rest)),
            None => ("", rest),
        };
        let letters = suffix.bytes().take_while(|byte| b"eEinumkKMGTP".contains(byte)).count();
        let exponent_part = suffix.get(letters..).unwrap_or_default();
        if !exponent_part.trim_start_matches(['+', '-']).bytes().all(|byte| byte.is_ascii_digit())
            || exponent_part.matches(['+', '-']).count() > 1
        {
            return Err(FORMAT);
        }
        let whole = if whole.is_empty() { "0" } else { whole };
        Ok(Self { negative, whole, fraction, suffix: interpret(suffix).ok_or(SUFFIX)? })
    }
}

/// `resource.ParseQuantity`
pub(crate) fn parse(text: &str) -> Result<Quantity, &'static str> {
    let QuantityParts { negative, whole, fraction, suffix } = QuantityParts::split(text)?;
    // There are only digits, at least one.
    let value: i128 = format!("{whole}{fraction}").parse().map_err(|_| TOO_LARGE)?;
    if value == 0 && fraction.is_empty() && suffix == Suffix::Decimal(0) {
        return Ok(Quantity::int(0));
    }
    let scale = i32::try_from(fraction.len()).map_err(|_| NUMERIC)?;
    let length = i32::try_from(whole.len()).unwrap_or(i32::MAX).saturating_add(scale);
    let quantity = match suffix {
        Suffix::Binary(exponent) => binary_quantity(value, scale, exponent, length)?,
        Suffix::Decimal(exponent) | Suffix::Exponent(exponent) => {
            decimal_quantity(value, exponent.saturating_sub(scale), length)
        }
    };
    if negative { quantity.negated().ok_or(NUMERIC) } else { Ok(quantity) }
}

/// Small numbers are exact; others are rounded up to a billionth.
fn decimal_quantity(value: i128, exponent: i32, length: i32) -> Quantity {
    if length <= 18 && exponent >= -9 {
        return Quantity { value, exponent, big: false, stored: exponent };
    }
    round_up(value, exponent)
}

fn round_up(value: i128, exponent: i32) -> Quantity {
    if value == 0 || exponent >= -9 {
        return Quantity { value, exponent, big: true, stored: if value == 0 { exponent } else { -9 } };
    }
    let value = match u32::try_from(-9 - exponent).ok().and_then(|excess| 10i128.checked_pow(excess)) {
        Some(divisor) => value.div_euclid(divisor) + i128::from(value.rem_euclid(divisor) != 0),
        None => 1,
    };
    Quantity { value, exponent: -9, big: true, stored: -9 }
}

fn binary_quantity(value: i128, scale: i32, exponent: i32, length: i32) -> Result<Quantity, &'static str> {
    let factor = 1i128.checked_shl(u32::try_from(exponent).map_err(|_| SUFFIX)?).ok_or(NUMERIC)?;
    let product = value.checked_mul(factor).ok_or(TOO_LARGE)?;
    let fits = 15 - length - exponent * 3 / 10 > 0;
    if scale == 0 && fits {
        return Ok(Quantity { value: product, exponent: 0, big: false, stored: 0 });
    }
    let quantity = round_up(product, -scale);
    let largest = Quantity { value: i128::from(i64::MAX), exponent: 0, big: true, stored: 0 };
    Ok(if quantity.compare(&largest).is_gt() { largest } else { quantity })
}

fn interpret(suffix: &str) -> Option<Suffix> {
    Some(match suffix {
        "" => Suffix::Decimal(0),
        "n" => Suffix::Decimal(-9),
        "u" => Suffix::Decimal(-6),
        "m" => Suffix::Decimal(-3),
        "k" => Suffix::Decimal(3),
        "M" => Suffix::Decimal(6),
        "G" => Suffix::Decimal(9),
        "T" => Suffix::Decimal(12),
        "P" => Suffix::Decimal(15),
        "E" => Suffix::Decimal(18),
        "Ki" => Suffix::Binary(10),
        "Mi" => Suffix::Binary(20),
        "Gi" => Suffix::Binary(30),
        "Ti" => Suffix::Binary(40),
        "Pi" => Suffix::Binary(50),
        "Ei" => Suffix::Binary(60),
        _ => {
            let digits = suffix.strip_prefix(['e', 'E'])?;
            let exponent: i64 = digits.parse().ok()?;
            // Go keeps the low 32 bits; such numbers are out of any range.
            Suffix::Exponent(i32::try_from(exponent).ok()?)
        }
    })
}

#[cfg(test)]
mod tests {
    use super::{TOO_LARGE, parse};

    /// The order of an API server of 1.35.
    #[test]
    fn quantities_that_differ_much_have_the_order_of_their_numbers() {
        let large = "150000000000000000000000000000000000000";
        for (larger, smaller) in [
            ("1e39", large),
            ("2e38", "1"),
            (large, "-1e39"),
            ("1", "-1e39"),
            ("-1", "-1e39"),
            ("1e300", "1e200"),
            ("-1e200", "-1e300"),
            ("1e39", "0"),
            ("0", "-1e39"),
        ] {
            let (larger, smaller) = (parse(larger).unwrap(), parse(smaller).unwrap());
            assert!(larger.compare(&smaller).is_gt(), "{larger:?} {smaller:?}");
            assert!(smaller.compare(&larger).is_lt(), "{larger:?} {smaller:?}");
        }
    }

    #[test]
    fn a_number_of_more_than_38_digits_is_not_supported() {
        for text in
            ["1".repeat(42), "1".repeat(42) + "Ki", "1".repeat(38) + "Ki", "1.".to_owned() + &"1".repeat(42)]
        {
            assert_eq!(parse(&text).unwrap_err(), TOO_LARGE, "{text}");
        }
        assert_eq!(parse("1e").unwrap_err(), super::SUFFIX);
    }
}
