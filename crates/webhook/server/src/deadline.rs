//! The time that a review has: the caller's `?timeout=`, limited, less a margin for the way back.
//!
//! Fact: the API server sends the time left to the webhook's deadline as a Go duration (`validating/dispatcher.go`). It is
//! **rounded up** to a whole second, so up to one second of it does not exist. Half a second more is for the network.

use std::time::Duration;

use admission::text::truncate;
use percent_encoding::percent_decode_str;

/// Timeout of a caller that sends none: the default of `timeoutSeconds`.
const DEFAULT_TIMEOUT: Duration = Duration::from_secs(10);
/// How much earlier the answer must be ready.
const MARGIN: Duration = Duration::from_millis(1500);

/// Error: `?timeout=` is not a duration.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("?timeout={got:?} is not a duration; use the format of Go, for example 10s, 1m30s or 300ms")]
pub(crate) struct BadTimeout {
    got: String,
}

/// Returns the timeout in a request's query, at most `max`.
pub(crate) fn timeout(query: Option<&str>, max: Duration) -> Result<Duration, BadTimeout> {
    let mut pairs = query.into_iter().flat_map(|query| query.split('&'));
    let Some(value) = pairs.find_map(|pair| pair.strip_prefix("timeout=")) else {
        return Ok(DEFAULT_TIMEOUT.min(max));
    };
    let text = percent_decode_str(value).decode_utf8_lossy();
    let timeout = go_duration(&text).ok_or_else(|| BadTimeout { got: truncate(&text, 40).into_owned() })?;
    Ok(timeout.min(max))
}

/// Returns the part of a timeout that a guard has.
pub(crate) fn budget(timeout: Duration) -> Duration {
    timeout.saturating_sub(MARGIN).max(timeout / 2)
}

/// Formats a duration for users: `8.5 s`, `150 ms`.
pub(crate) fn format_duration(duration: Duration) -> String {
    if duration < Duration::from_secs(1) {
        return format!("{} ms", duration.as_millis());
    }
    let text = format!("{:.1}", duration.as_secs_f64());
    format!("{} s", text.strip_suffix(".0").unwrap_or(&text))
}

/// Parses what Go's `time.ParseDuration` takes, except negative durations.
fn go_duration(text: &str) -> Option<Duration> {
    let is_number = |c: char| c.is_ascii_digit() || c == '.';
    let mut rest = text.strip_prefix('+').unwrap_or(text);
    if rest == "0" {
        return Some(Duration::ZERO);
    }
    if rest.is_empty() {
        return None;
    }
    let mut seconds = 0.0;
    while !rest.is_empty() {
        let (number, tail) = rest.split_at(rest.find(|c| !is_number(c))?);
        let (unit, tail) = tail.split_at(tail.find(is_number).unwrap_or(tail.len()));
        seconds += number.parse::<f64>().ok()? * unit_seconds(unit)?;
        rest = tail;
    }
    // Go's duration is a signed 64-bit number of nanoseconds.
    let duration = Duration::try_from_secs_f64(seconds).ok()?;
    i64::try_from(duration.as_nanos()).is_ok().then_some(duration)
}

fn unit_seconds(unit: &str) -> Option<f64> {
    Some(match unit {
        "ns" => 1e-9,
        // The micro sign and the Greek letter.
        "us" | "\u{b5}s" | "\u{3bc}s" => 1e-6,
        "ms" => 1e-3,
        "s" => 1.0,
        "m" => 60.0,
        "h" => 3600.0,
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const MAX: Duration = Duration::from_secs(3600 * 24 * 365);

    fn parsed(value: &str) -> Result<Duration, BadTimeout> {
        timeout(Some(&format!("timeout={value}")), MAX)
    }

    #[test]
    fn parses_every_duration_that_go_writes() {
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
            assert_eq!(parsed(text), Ok(Duration::from_micros(microseconds)), "{text}");
        }
    }

    #[test]
    fn rejects_what_go_rejects() {
        for text in [
            "",
            "10",
            "s",
            ".",
            ".s",
            "1",
            "10s0",
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
            let error = parsed(text).unwrap_err();
            assert!(error.to_string().contains("use the format of Go"), "{text}: {error}");
        }
    }

    #[test]
    fn uses_the_first_timeout_of_the_query_and_ten_seconds_without_one() {
        assert_eq!(timeout(None, MAX), Ok(DEFAULT_TIMEOUT));
        assert_eq!(timeout(Some(""), MAX), Ok(DEFAULT_TIMEOUT));
        assert_eq!(timeout(Some("xtimeout=1s"), MAX), Ok(DEFAULT_TIMEOUT));
        assert_eq!(timeout(Some("a=b&timeout=3s&timeout=x"), MAX), Ok(Duration::from_secs(3)));
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
    fn formats_durations_for_users() {
        for (milliseconds, text) in [(8_500, "8.5 s"), (1_000, "1 s"), (150, "150 ms"), (0, "0 ms")] {
            assert_eq!(format_duration(Duration::from_millis(milliseconds)), text);
        }
    }
}
