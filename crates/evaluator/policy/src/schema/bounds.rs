//! Bounds of numbers, and comparisons with the conversions of Go.

use super::formats::StringFormat;
use super::model::{Schema, SchemaType, ValueChecks};
use super::validator::{AllowedTypes, NodeErrors, Validator};
use crate::field::FieldError;
use crate::place::ValuePlace;
use crate::release::Release;
use crate::value::format::plain;
use crate::value::number::chars;
use crate::value::{Value, identical};

/// Largest integer that every double below it can have as neighbor, as in ECMAScript.
const MAX_SAFE: f64 = 9_007_199_254_740_991.0;

/// A count as Go has it.
pub(super) fn count(len: usize) -> i64 {
    i64::try_from(len).unwrap_or(i64::MAX)
}

/// The length of a text in code points.
pub(super) fn length(text: &str) -> i64 {
    count(chars(text))
}

/// Checks `multipleOf`, `minimum` and `maximum`, and the range of the format.
pub(super) fn check(
    validator: &Validator<'_>,
    value: Value<'_>,
    schema: &Schema,
    checks: Option<&ValueChecks>,
    format: Option<StringFormat<'_>>,
    place: &ValuePlace<'_>,
    outcome: &mut NodeErrors,
) {
    let range = Range::new(validator, schema, format);
    if !range.contains(value) {
        outcome.push(range.error(validator, "Checked", place));
    }
    let Some(checks) = checks else { return };
    let limit = BoundedNumber { validator, place, range, value };
    limit.check(checks.multiple_of, "MultipleOf", outcome, |value, factor| limit.multiple_of(value, factor));
    limit.check(checks.minimum, "Minimum boundary", outcome, |value, min| {
        limit.minimum(value, min, checks.exclusive_minimum)
    });
    limit.check(checks.maximum, "Maximum boundary", outcome, |value, max| {
        limit.maximum(value, max, checks.exclusive_maximum)
    });
}

/// A number that is compared with bounds.
struct BoundedNumber<'c> {
    validator: &'c Validator<'c>,
    place: &'c ValuePlace<'c>,
    range: Range<'c>,
    value: Value<'c>,
}

impl BoundedNumber<'_> {
    fn check(
        &self,
        bound: Option<f64>,
        name: &str,
        outcome: &mut NodeErrors,
        test: impl Fn(Value<'_>, f64) -> Option<FieldError>,
    ) {
        let Some(bound) = bound else { return };
        let mut value = self.value;
        if !self.range.contains(Value::Double(bound)) {
            outcome.push(self.range.error(self.validator, name, self.place));
            // Out of the range, the API server compares doubles.
            value = Value::Double(double(value));
        }
        if let Some(error) = test(value, bound) {
            outcome.push(error);
        }
    }

    fn multiple_of(&self, value: Value<'_>, factor: f64) -> Option<FieldError> {
        let release = self.validator.release();
        let (is_positive, is_multiple, factor) = match value {
            Value::Int(value) => {
                let factor = truncate(factor);
                (factor > 0, factor > 0 && value % factor == 0, Value::Int(factor))
            }
            value => {
                let value = double(value);
                let quotient = if factor < 1.0 { 1.0 / factor * value } else { value / factor };
                (factor > 0.0, is_integer(quotient, release), Value::Double(factor))
            }
        };
        if !is_positive {
            let place = self.place;
            let detail =
                format!("factor MultipleOf declared for {place} must be positive: {}", plain(&factor));
            return Some(self.validator.error(place, factor, &detail));
        }
        (!is_multiple).then(|| self.error(value, &format!("be a multiple of {}", plain(&factor))))
    }

    fn minimum(&self, value: Value<'_>, min: f64, is_exclusive: bool) -> Option<FieldError> {
        let (is_below, min) = match value {
            Value::Int(value) => {
                let min = truncate(min);
                (value < min || is_exclusive && value == min, Value::Int(min))
            }
            value => {
                let value = double(value);
                (if is_exclusive { value <= min } else { value < min }, Value::Double(min))
            }
        };
        let relation = if is_exclusive { "greater than" } else { "greater than or equal to" };
        is_below.then(|| self.error(value, &format!("be {relation} {}", plain(&min))))
    }

    fn maximum(&self, value: Value<'_>, max: f64, is_exclusive: bool) -> Option<FieldError> {
        let (is_above, max) = match value {
            Value::Int(value) => {
                let max = truncate(max);
                (value > max || is_exclusive && value == max, Value::Int(max))
            }
            value => {
                let value = double(value);
                (if is_exclusive { value >= max } else { value > max }, Value::Double(max))
            }
        };
        let relation = if is_exclusive { "less than" } else { "less than or equal to" };
        is_above.then(|| self.error(value, &format!("be {relation} {}", plain(&max))))
    }

    fn error(&self, value: Value<'_>, detail: &str) -> FieldError {
        self.validator.invalid(self.place, value, &format!("should {detail}"))
    }
}

/// The range of a type and its format.
#[derive(Clone, Copy)]
struct Range<'c> {
    kind: Option<&'c SchemaType>,
    format: Option<&'c str>,
}

impl<'c> Range<'c> {
    /// The range of a schema with one type. Formats of other types don't count.
    fn new(validator: &Validator<'_>, schema: &'c Schema, format: Option<StringFormat<'c>>) -> Self {
        let kind = match validator.types(schema) {
            AllowedTypes::One(kind) if validator.release().checks_number_formats() => Some(kind),
            _ => None,
        };
        let is_of_kind = |name: &&str| match kind {
            Some(SchemaType::Integer) => matches!(*name, "int32" | "int64"),
            Some(SchemaType::Number) => matches!(*name, "float" | "double"),
            _ => false,
        };
        Self { kind, format: format.map(|format| format.name).filter(is_of_kind) }
    }

    /// Whether a number is in the range. The API server reads the decimal text of the number.
    fn contains(&self, value: Value<'_>) -> bool {
        match (self.kind, self.format) {
            (Some(SchemaType::Integer), Some("int32")) => match value {
                Value::Int(value) => i32::try_from(value).is_ok(),
                value => double(value).to_string().parse::<i32>().is_ok(),
            },
            (Some(SchemaType::Integer), _) => match value {
                Value::Int(_) => true,
                value => double(value).to_string().parse::<i64>().is_ok(),
            },
            #[allow(clippy::cast_possible_truncation)] // too large values become infinite
            (Some(SchemaType::Number), Some("float")) => (double(value) as f32).is_finite(),
            _ => true,
        }
    }

    fn error(&self, validator: &Validator<'_>, what: &str, place: &ValuePlace<'_>) -> FieldError {
        let kind = self.kind.map_or("", SchemaType::name);
        let format = match self.format {
            Some(format) => format!("with format {format}"),
            None => "(default format)".to_owned(),
        };
        validator.general(place, &format!("{what} value must be of type {kind} {format} in {place}"))
    }
}

fn double(value: Value<'_>) -> f64 {
    match value {
        Value::Int(value) => value as f64,
        Value::Double(value) => value,
        _ => 0.0,
    }
}

/// Converts a double as Go does on x86-64: out of the range, the result is the smallest integer.
#[allow(clippy::cast_possible_truncation)] // checked by the condition
fn truncate(value: f64) -> i64 {
    if (-9_223_372_036_854_775_808.0..9_223_372_036_854_775_808.0).contains(&value) {
        value as i64
    } else {
        i64::MIN
    }
}

/// Whether a double counts as an integer: nearly, and below 2^53.
pub(super) fn is_integer(value: f64, release: Release) -> bool {
    /// Relative difference to the integer.
    const EPSILON: f64 = 1e-9;
    if value.is_nan() || value.abs() > MAX_SAFE {
        return false;
    }
    if value.fract() == 0.0 {
        return true;
    }
    if release.rounds_to_integers() {
        let rounded = value.round();
        return rounded != 0.0 && (value - rounded).abs() < EPSILON * rounded.abs();
    }
    let whole = value.trunc();
    whole > 0.0 && (value - whole) / (value + whole) < EPSILON
}

/// Whether a value is one of an enumeration. The API server converts it to the type there first: an integer to the character with
/// this number, and a double to an integer.
pub(super) fn is_enum_value(value: Value<'_>, wanted: Value<'_>, charge: &mut dyn FnMut() -> bool) -> bool {
    match (value, wanted) {
        (Value::Null, _) => false,
        (Value::Double(value), Value::Int(wanted)) => charge() && truncate(value) == wanted,
        (Value::Int(value), Value::Double(_)) => identical(Value::Double(value as f64), wanted, charge),
        (Value::Int(value), Value::String(wanted)) => {
            let character = u32::try_from(value).ok().and_then(char::from_u32);
            charge() && wanted.chars().eq([character.unwrap_or(char::REPLACEMENT_CHARACTER)])
        }
        (value, wanted) => identical(value, wanted, charge),
    }
}
