//! How long a review may take: read from the caller's `?timeout=`, capped, and less than that, so that an answer is on its way
//! back before the API server gives up.
//!
//! Fact: the API server sends the time left to the webhook's deadline as a Go duration **rounded up** to a whole second
//! (`validating/dispatcher.go`): up to one second of it is not there. Half a second more is for the way there and back.

use std::borrow::Cow;
use std::time::Duration;

/// What a caller without `?timeout=` is taken to wait: the default of `timeoutSeconds`.
const UNSAID: Duration = Duration::from_secs(10);
/// What the answer must be early by.
const MARGIN: Duration = Duration::from_millis(1500);

/// Why `?timeout=` cannot be understood.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("?timeout={got:?} is no duration: write it as Go does, for instance 10s, 1m30s or 300ms")]
pub(crate) struct BadTimeout {
    got: String,
}

/// How long the caller waits, by the query of its request, and at most `cap`.
pub(crate) fn timeout(query: Option<&str>, cap: Duration) -> Result<Duration, BadTimeout> {
    let asked = query
        .into_iter()
        .flat_map(|query| query.split('&'))
        .find_map(|pair| pair.strip_prefix("timeout="))
        .map_or(Ok(UNSAID), |value| {
            let text = unescaped(value);
            go_duration(&text).ok_or_else(|| BadTimeout { got: text.chars().take(40).collect() })
        })?;
    Ok(asked.min(cap))
}

/// How much of that a guard may use.
pub(crate) fn budget(timeout: Duration) -> Duration {
    timeout.saturating_sub(MARGIN).max(timeout / 2)
}

/// A duration as a person reads it: `8.5 s`, `150 ms`.
pub(crate) fn told(duration: Duration) -> String {
    if duration < Duration::from_secs(1) {
        return format!("{} ms", duration.as_millis());
    }
    let text = format!("{:.1}", duration.as_secs_f64());
    format!("{} s", text.strip_suffix(".0").unwrap_or(&text))
}

/// `%C2%B5` for the letter of microseconds is the only escape that makes sense here, but any is taken.
fn unescaped(value: &str) -> Cow<'_, str> {
    if !value.contains('%') {
        return Cow::Borrowed(value);
    }
    let mut bytes = Vec::with_capacity(value.len());
    let mut rest = value.as_bytes();
    while let [first, after @ ..] = rest {
        let escaped = match after {
            [high, low, ..] if *first == b'%' => hex(*high).zip(hex(*low)),
            _ => None,
        };
        if let Some((high, low)) = escaped {
            bytes.push(high << 4 | low);
            rest = after.get(2..).unwrap_or_default();
        } else {
            bytes.push(*first);
            rest = after;
        }
    }
    Cow::Owned(String::from_utf8_lossy(&bytes).into_owned())
}

fn hex(digit: u8) -> Option<u8> {
    char::from(digit).to_digit(16).and_then(|digit| u8::try_from(digit).ok())
}

/// What Go's `time.ParseDuration` takes, without a minus: a wait cannot be negative.
fn go_duration(text: &str) -> Option<Duration> {
    let mut rest = text.strip_prefix('+').unwrap_or(text);
    if rest == "0" {
        return Some(Duration::ZERO);
    }
    if rest.is_empty() {
        return None;
    }
    let mut total: u64 = 0;
    while !rest.is_empty() {
        let (whole, after) = digits(rest);
        let (fraction, after) = match after.strip_prefix('.') {
            Some(after) => digits(after),
            None => ("", after),
        };
        if whole.is_empty() && fraction.is_empty() {
            return None;
        }
        let end = after.find(|c: char| c.is_ascii_digit() || c == '.').unwrap_or(after.len());
        let (unit, after) = after.split_at(end);
        let part = nanoseconds(whole, fraction, unit_nanoseconds(unit)?)?;
        total = total.checked_add(part)?;
        rest = after;
    }
    // Go's duration is a signed 64-bit number of nanoseconds.
    i64::try_from(total).ok()?;
    Some(Duration::from_nanos(total))
}

fn digits(text: &str) -> (&str, &str) {
    text.split_at(text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len()))
}

fn unit_nanoseconds(unit: &str) -> Option<u64> {
    Some(match unit {
        "ns" => 1,
        // The micro sign and the Greek letter.
        "us" | "\u{b5}s" | "\u{3bc}s" => 1_000,
        "ms" => 1_000_000,
        "s" => 1_000_000_000,
        "m" => 60 * 1_000_000_000,
        "h" => 3600 * 1_000_000_000,
        _ => return None,
    })
}

fn nanoseconds(whole: &str, fraction: &str, unit: u64) -> Option<u64> {
    let whole: u64 = if whole.is_empty() { 0 } else { whole.parse().ok()? };
    // Digits past what 64 bits hold change nothing above a nanosecond.
    let (mut part, mut scale) = (0u128, 1u128);
    for digit in fraction.bytes().take(18) {
        part = part * 10 + u128::from(digit - b'0');
        scale *= 10;
    }
    let part = u64::try_from(part * u128::from(unit) / scale).ok()?;
    whole.checked_mul(unit)?.checked_add(part)
}

#[cfg(test)]
mod tests {
    use super::*;

    const CAP: Duration = Duration::from_secs(3600 * 24 * 365);

    fn asked(value: &str) -> Result<Duration, BadTimeout> {
        timeout(Some(&format!("timeout={value}")), CAP)
    }

    #[test]
    fn reads_every_duration_that_go_writes() {
        for (text, microseconds) in [
            ("10s", 10_000_000),
            ("1m30s", 90_000_000),
            ("1.5s", 1_500_000),
            (".5s", 500_000),
            ("1.s", 1_000_000),
            ("300ms", 300_000),
            ("1h", 3_600_000_000),
            ("1h0m0.25s", 3_600_250_000),
            ("250us", 250),
            ("250µs", 250),
            ("250μs", 250),
            ("250%C2%B5s", 250),
            ("1000000ns", 1_000),
            ("+2s", 2_000_000),
            ("0", 0),
            ("0s", 0),
            ("0.0000000000000000000001h", 0),
        ] {
            assert_eq!(asked(text), Ok(Duration::from_micros(microseconds)), "{text}");
        }
    }

    #[test]
    fn refuses_what_go_refuses() {
        for text in [
            "",
            "10",
            "s",
            ".",
            ".s",
            "1",
            "-5s",
            "+",
            "10 s",
            "10S",
            "1d",
            "10s1",
            "1e3s",
            "ten",
            "99999999999999999999s",
            "9999999999h",
            "3000000h",
            "%zzs",
            "10s%",
            "%",
        ] {
            let error = asked(text).unwrap_err();
            assert!(error.to_string().contains("write it as Go does"), "{text}: {error}");
        }
    }

    #[test]
    fn the_first_timeout_of_the_query_counts_and_none_is_ten_seconds() {
        assert_eq!(timeout(None, CAP), Ok(UNSAID));
        assert_eq!(timeout(Some(""), CAP), Ok(UNSAID));
        assert_eq!(timeout(Some("xtimeout=1s"), CAP), Ok(UNSAID));
        assert_eq!(timeout(Some("a=b&timeout=3s&timeout=x"), CAP), Ok(Duration::from_secs(3)));
        assert_eq!(timeout(Some("timeout=30s"), Duration::from_secs(7)), Ok(Duration::from_secs(7)));
        assert_eq!(timeout(None, Duration::from_secs(7)), Ok(Duration::from_secs(7)));
    }

    #[test]
    fn a_guard_gets_all_but_the_margin_and_at_least_half() {
        for (timeout, expected) in
            [(10_000, 8_500), (30_000, 28_500), (3_000, 1_500), (2_000, 1_000), (300, 150), (0, 0)]
        {
            assert_eq!(budget(Duration::from_millis(timeout)), Duration::from_millis(expected), "{timeout}");
        }
    }

    #[test]
    fn durations_are_told_as_people_read_them() {
        for (milliseconds, text) in [(8_500, "8.5 s"), (1_000, "1 s"), (150, "150 ms"), (0, "0 ms")] {
            assert_eq!(told(Duration::from_millis(milliseconds)), text);
        }
    }
}
