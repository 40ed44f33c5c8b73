//! Times of certificates.

use std::time::{SystemTime, UNIX_EPOCH};

use k8s_openapi::jiff::Timestamp;

const DAY: i64 = 86_400;

/// Returns the seconds since 1970.
pub(crate) fn now() -> i64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    i64::try_from(since.as_secs()).unwrap_or(i64::MAX)
}

/// Returns the whole days from `now` until `then`; negative if `then` has passed.
pub(crate) fn days_until(then: i64, now: i64) -> i64 {
    (then - now).div_euclid(DAY)
}

/// Formats a time in UTC.
pub(crate) fn rfc3339(seconds: i64) -> String {
    Timestamp::from_second(seconds).unwrap_or_default().to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn formats_times_in_utc() {
        for (seconds, text) in [
            (0, "1970-01-01T00:00:00Z"),
            (951_782_399, "2000-02-28T23:59:59Z"),
            (951_782_400, "2000-02-29T00:00:00Z"),
            (1_735_689_599, "2024-12-31T23:59:59Z"),
            (1_795_219_200, "2026-11-21T00:00:00Z"),
            (-1, "1969-12-31T23:59:59Z"),
        ] {
            assert_eq!(rfc3339(seconds), text);
        }
    }

    #[test]
    fn counts_days_that_have_passed_as_negative() {
        assert_eq!(days_until(DAY * 3, DAY), 2);
        assert_eq!(days_until(DAY - 1, DAY), -1);
    }
}
