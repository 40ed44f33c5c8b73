//! Numbers, durations and times in the formats of Go's `strconv` and `time`.

use std::cmp::Ordering;
use std::fmt::Write as _;

/// Seconds of 0001-01-01T00:00:00Z, the smallest timestamp of CEL and the zero time of Go.
pub(crate) const YEAR_ONE: i64 = -62_135_596_800;
/// Seconds of 9999-12-31T23:59:59Z.
pub(crate) const YEAR_9999: i64 = 253_402_300_799;

/// A point in time between the years 1 and 9999. The offset of its text is printed again, but does not count.
#[derive(Clone, Copy, Debug)]
pub struct Timestamp {
    /// Seconds since 1970.
    pub seconds: i64,
    /// Nanoseconds within the second.
    pub nanos: u32,
    /// Minutes east of UTC in which the time is printed.
    pub offset: i16,
}

impl Ord for Timestamp {
    fn cmp(&self, other: &Self) -> Ordering {
        (self.seconds, self.nanos).cmp(&(other.seconds, other.nanos))
    }
}

impl PartialOrd for Timestamp {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for Timestamp {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other).is_eq()
    }
}

impl Eq for Timestamp {}

/// Number of code points.
pub(crate) fn chars(text: &str) -> usize {
    if text.is_ascii() { text.len() } else { text.chars().count() }
}

/// `%g` of Go without a precision: shortest digits, with an exponent below -4 and from 6 on.
pub(crate) fn general(value: f64) -> String {
    if value.is_nan() {
        return "NaN".to_owned();
    }
    if value.is_infinite() {
        return if value > 0.0 { "+Inf" } else { "-Inf" }.to_owned();
    }
    let scientific = format!("{value:e}");
    let (mantissa, exponent) = scientific.split_once('e').unwrap_or((&scientific, "0"));
    let exponent: i32 = exponent.parse().unwrap_or(0);
    if (-4..6).contains(&exponent) { format!("{value}") } else { with_exponent(mantissa, exponent) }
}

fn with_exponent(mantissa: &str, exponent: i32) -> String {
    let sign = if exponent < 0 { '-' } else { '+' };
    format!("{mantissa}e{sign}{:02}", exponent.unsigned_abs())
}

/// A double that is an integer in range, without loss.
pub(crate) fn lossless_int(value: f64) -> Option<i64> {
    let int = double_to_int(value)?;
    (int as f64 - value).abs().le(&0.0).then_some(int)
}

/// A double that is an unsigned integer in range, without loss.
pub(crate) fn lossless_uint(value: f64) -> Option<u64> {
    let uint = double_to_uint(value)?;
    (uint as f64 - value).abs().le(&0.0).then_some(uint)
}

/// Truncates a double; the limits themselves are out of range, as in cel-go.
#[allow(clippy::cast_possible_truncation)] // checked by the condition
pub(crate) fn double_to_int(value: f64) -> Option<i64> {
    (value > i64::MIN as f64 && value < i64::MAX as f64).then_some(value as i64)
}

/// Truncates a double to an unsigned integer.
#[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)] // checked by the condition
pub(crate) fn double_to_uint(value: f64) -> Option<u64> {
    (value >= 0.0 && value < u64::MAX as f64).then_some(value as u64)
}

/// A duration as CEL prints it: seconds with their fraction and `s`.
pub(crate) fn duration(nanos: i64) -> String {
    // Go divides in floating point: seconds plus the remainder.
    let seconds = (nanos / 1_000_000_000) as f64 + (nanos % 1_000_000_000) as f64 / 1e9;
    let mut text = format!("{seconds}");
    if text == "-0" {
        "0".clone_into(&mut text);
    }
    text.push('s');
    text
}

/// `time.ParseDuration` of Go.
pub(crate) fn parse_duration(text: &str) -> Option<i64> {
    let (negative, mut rest) = match text.as_bytes().first()? {
        b'-' => (true, text.get(1..)?),
        b'+' => (false, text.get(1..)?),
        _ => (false, text),
    };
    if rest == "0" {
        return Some(0);
    }
    if rest.is_empty() {
        return None;
    }
    let mut total: u64 = 0;
    while !rest.is_empty() {
        let whole_len = rest.bytes().take_while(u8::is_ascii_digit).count();
        let mut whole: u64 = 0;
        for digit in rest.bytes().take(whole_len) {
            if whole > (1 << 63) / 10 {
                return None;
            }
            whole = whole * 10 + u64::from(digit - b'0');
            if whole > 1 << 63 {
                return None;
            }
        }
        rest = rest.get(whole_len..)?;
        let (mut fraction, mut scale, mut fraction_len) = (0u64, 1.0f64, 0);
        if let Some(after) = rest.strip_prefix('.') {
            fraction_len = after.bytes().take_while(u8::is_ascii_digit).count();
            let mut overflow = false;
            for digit in after.bytes().take(fraction_len) {
                if overflow || fraction > ((1u64 << 63) - 1) / 10 {
                    overflow = true;
                    continue;
                }
                let next = fraction * 10 + u64::from(digit - b'0');
                if next > 1 << 63 {
                    overflow = true;
                    continue;
                }
                fraction = next;
                scale *= 10.0;
            }
            rest = after.get(fraction_len..)?;
        }
        if whole_len == 0 && fraction_len == 0 {
            return None;
        }
        let unit_len = rest.bytes().take_while(|byte| *byte != b'.' && !byte.is_ascii_digit()).count();
        let unit: u64 = match rest.get(..unit_len)? {
            "ns" => 1,
            "us" | "µs" | "μs" => 1_000,
            "ms" => 1_000_000,
            "s" => 1_000_000_000,
            "m" => 60_000_000_000,
            "h" => 3_600_000_000_000,
            _ => return None,
        };
        rest = rest.get(unit_len..)?;
        if whole > (1 << 63) / unit {
            return None;
        }
        let mut value = whole * unit;
        if fraction > 0 {
            #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)] // below one unit
            let part = (fraction as f64 * (unit as f64 / scale)) as u64;
            value = value.checked_add(part)?;
            if value > 1 << 63 {
                return None;
            }
        }
        total = total.checked_add(value)?;
        if total > 1 << 63 {
            return None;
        }
    }
    if negative {
        return Some(i64::try_from(total).map_or(i64::MIN, |total| -total));
    }
    i64::try_from(total).ok()
}

/// A duration as schemas have it: that of Go, or numbers with units in words, such as `2 days 3 hours`.
pub(crate) fn parse_long_duration(text: &str) -> Option<i64> {
    const UNITS: [(&[&str], i64); 8] = [
        (&["ns", "nano"], 1),
        (&["us", "µs", "micro"], 1_000),
        (&["ms", "milli"], 1_000_000),
        (&["s", "sec"], 1_000_000_000),
        (&["m", "min"], 60_000_000_000),
        (&["h", "hr", "hour"], 3_600_000_000_000),
        (&["d", "day"], 86_400_000_000_000),
        (&["w", "wk", "week"], 604_800_000_000_000),
    ];
    if let Some(nanos) = parse_duration(text) {
        return Some(nanos);
    }
    let (mut total, mut rest) = (None, text);
    while let Some(start) = rest.find(|symbol: char| symbol.is_ascii_digit()) {
        let from = rest.get(start..)?;
        let digits = from.find(|symbol: char| !symbol.is_ascii_digit())?;
        let after = from.get(digits..)?.trim_start_matches([' ', '\t', '\n', '\r', '\u{c}']);
        let end =
            after.find(|symbol: char| !symbol.is_ascii_alphabetic() && symbol != 'µ').unwrap_or(after.len());
        let (unit, left) = after.split_at(end);
        rest = left;
        if unit.is_empty() {
            continue;
        }
        let factor: i64 = from.get(..digits)?.parse().ok()?;
        let unit = unit.to_lowercase();
        for (names, nanos) in UNITS {
            let is_last = |name: &str| names.last().is_some_and(|last| *last == name);
            if names.iter().any(|name| unit == *name || is_last(name) && unit.starts_with(name)) {
                total = Some(total.unwrap_or(0i64).wrapping_add(factor.wrapping_mul(nanos)));
            }
        }
    }
    total
}

/// `time.RFC3339Nano` of Go: fractions without trailing zeros.
pub(crate) fn timestamp(value: Timestamp) -> String {
    let local = value.seconds + i64::from(value.offset) * 60;
    let days = local.div_euclid(86_400);
    let second = local.rem_euclid(86_400);
    let (year, month, day) = civil(days);
    let before_zero = if year < 0 { "-" } else { "" };
    let year = year.unsigned_abs();
    let mut text = format!(
        "{before_zero}{year:04}-{month:02}-{day:02}T{:02}:{:02}:{:02}",
        second / 3600,
        second / 60 % 60,
        second % 60
    );
    if value.nanos != 0 {
        let _ = write!(text, ".{:09}", value.nanos);
        text.truncate(text.trim_end_matches('0').len());
    }
    if value.offset == 0 {
        text.push('Z');
    } else {
        let minutes = value.offset.unsigned_abs();
        let sign = if value.offset < 0 { '-' } else { '+' };
        let _ = write!(text, "{sign}{:02}:{:02}", minutes / 60, minutes % 60);
    }
    text
}

/// Year, month and day of a day counted from 1970-01-01.
pub(crate) fn civil(days: i64) -> (i64, i64, i64) {
    let shifted = days + 719_468;
    let era = shifted.div_euclid(146_097);
    let day_of_era = shifted.rem_euclid(146_097);
    let year_of_era = (day_of_era - day_of_era / 1_460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let month_index = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * month_index + 2) / 5 + 1;
    let month = if month_index < 10 { month_index + 3 } else { month_index - 9 };
    (year_of_era + era * 400 + i64::from(month <= 2), month, day)
}

/// Days from 1970-01-01 to a date.
pub(crate) fn days(year: i64, month: i64, day: i64) -> i64 {
    let year = if month <= 2 { year - 1 } else { year };
    let era = year.div_euclid(400);
    let year_of_era = year.rem_euclid(400);
    let day_of_year = (153 * (if month > 2 { month - 3 } else { month + 9 }) + 2) / 5 + day - 1;
    let day_of_era = year_of_era * 365 + year_of_era / 4 - year_of_era / 100 + day_of_year;
    era * 146_097 + day_of_era - 719_468
}

/// `time.Parse(time.RFC3339)` of Go: an hour may have one digit, a comma may start the fraction.
pub(crate) fn parse_timestamp(text: &str) -> Option<Timestamp> {
    let bytes = text.as_bytes();
    let digits = |from: usize, len: usize| -> Option<i64> {
        let part = bytes.get(from..from + len)?;
        part.iter()
            .all(u8::is_ascii_digit)
            .then(|| part.iter().fold(0, |sum, digit| sum * 10 + i64::from(digit - b'0')))
    };
    let is = |at: usize, byte: u8| bytes.get(at) == Some(&byte);
    let (year, month, day) = (digits(0, 4)?, digits(5, 2)?, digits(8, 2)?);
    if !(is(4, b'-') && is(7, b'-') && is(10, b'T')) {
        return None;
    }
    let (hour, mut at) = match digits(11, 2) {
        Some(hour) => (hour, 13),
        None => (digits(11, 1)?, 12),
    };
    let (minute, second) = (digits(at + 1, 2)?, digits(at + 4, 2)?);
    if !(is(at, b':') && is(at + 3, b':')) {
        return None;
    }
    at += 6;
    let mut nanos: u32 = 0;
    if matches!(bytes.get(at), Some(b'.' | b',')) && bytes.get(at + 1).is_some_and(u8::is_ascii_digit) {
        let len = bytes.get(at + 1..)?.iter().take_while(|byte| byte.is_ascii_digit()).count();
        for index in 0..9 {
            let digit = if index < len { u32::from(bytes.get(at + 1 + index)? - b'0') } else { 0 };
            nanos = nanos * 10 + digit;
        }
        at += 1 + len;
    }
    let offset = match bytes.get(at)? {
        b'Z' => {
            at += 1;
            0
        }
        sign @ (b'+' | b'-') => {
            let (hours, minutes) = (digits(at + 1, 2)?, digits(at + 4, 2)?);
            if !is(at + 3, b':') || hours > 24 || minutes > 60 {
                return None;
            }
            at += 6;
            let seconds = hours * 3600 + minutes * 60;
            if *sign == b'-' { -seconds } else { seconds }
        }
        _ => return None,
    };
    let leap = year % 4 == 0 && (year % 100 != 0 || year % 400 == 0);
    let month_days = match month {
        2 => 28 + i64::from(leap),
        4 | 6 | 9 | 11 => 30,
        1..=12 => 31,
        _ => return None,
    };
    if at != bytes.len() || day < 1 || day > month_days || hour > 23 || minute > 59 || second > 59 {
        return None;
    }
    let seconds = days(year, month, day) * 86_400 + hour * 3600 + minute * 60 + second - offset;
    Some(Timestamp { seconds, nanos, offset: i16::try_from(offset / 60).unwrap_or(0) })
}
