//! Durations and sizes in the configuration.

use std::time::Duration;

/// Parses `300ms`, `10s`, `2m` or `12h`.
pub(super) fn duration(text: &str) -> Option<Duration> {
    let digits = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    let (number, unit) = text.split_at_checked(digits)?;
    let number: u64 = number.parse().ok()?;
    match unit {
        "ms" => Some(Duration::from_millis(number)),
        "s" => Some(Duration::from_secs(number)),
        "m" => number.checked_mul(60).map(Duration::from_secs),
        "h" => number.checked_mul(3600).map(Duration::from_secs),
        _ => None,
    }
}

/// Parses `512Ki`, `8Mi`, `1Gi`, or bytes.
pub(super) fn size(text: &str) -> Option<usize> {
    let digits = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    let (number, unit) = text.split_at_checked(digits)?;
    let number: usize = number.parse().ok()?;
    let unit: usize = match unit {
        "" => 1,
        "Ki" => 1 << 10,
        "Mi" => 1 << 20,
        "Gi" => 1 << 30,
        _ => return None,
    };
    number.checked_mul(unit)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parses_durations_and_sizes() {
        assert_eq!(duration("300ms"), Some(Duration::from_millis(300)));
        assert_eq!(duration("2h"), Some(Duration::from_secs(7200)));
        assert_eq!(size("8Mi"), Some(8 << 20));
        assert_eq!(size("7"), Some(7));
    }

    #[test]
    fn rejects_invalid_durations_and_sizes() {
        for text in ["", "10", "s", "-1s", "1.5s", "1 s", "99999999999999999999s", "999999999999999999h"] {
            assert_eq!(duration(text), None, "{text}");
        }
        for text in ["", "Mi", "1M", "1.5Mi", "-1", "99999999999999999999", "18446744073709551615Gi"] {
            assert_eq!(size(text), None, "{text}");
        }
    }
}
