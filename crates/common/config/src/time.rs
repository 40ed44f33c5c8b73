//! Times in annotations and in the configuration.

use std::time::SystemTime;

use k8s_openapi::jiff::Timestamp;

/// Parses RFC 3339, and no similar format.
pub fn read(text: &str) -> Option<Timestamp> {
    // Dates alone, spaces for the T and zone names in brackets are other formats.
    let shaped = text.len() >= "2026-11-21T10:00:00Z".len()
        && text.as_bytes().get(10).is_some_and(|byte| byte.eq_ignore_ascii_case(&b'T'))
        && !text.contains(['[', ' ']);
    if shaped { text.parse().ok() } else { None }
}

/// Parses the end of a period: RFC 3339, or a date such as `2026-12-01`, which ends the period when that day begins in UTC.
pub fn read_end(text: &str) -> Option<Timestamp> {
    let is_date = text.len() == "2026-12-01".len() && !text.contains('T');
    if is_date { read(&format!("{text}T00:00:00Z")) } else { read(text) }
}

/// Formats a time as RFC 3339 in seconds.
pub fn format(time: SystemTime) -> String {
    let seconds = time.duration_since(SystemTime::UNIX_EPOCH).map_or(0, |since| since.as_secs());
    let time = i64::try_from(seconds).ok().and_then(|seconds| Timestamp::from_second(seconds).ok());
    time.unwrap_or_default().to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_the_end_of_a_period_as_a_time_or_a_date() {
        for (text, expected) in [
            ("2026-12-01", Some("2026-12-01T00:00:00Z")),
            ("2026-12-01T18:00:00+01:00", Some("2026-12-01T17:00:00Z")),
            ("2026-12-32", None),
            ("2026-12-1", None),
            ("20261201", None),
            ("tomorrow", None),
        ] {
            assert_eq!(read_end(text).map(|time| format(time.into())).as_deref(), expected, "{text}");
        }
    }

    #[test]
    fn reads_rfc_3339_and_nothing_else() {
        for text in ["2026-11-21T10:00:00Z", "2026-11-21T12:00:00+02:00", "2026-11-21T10:00:00.000Z"] {
            assert_eq!(
                read(text).map(|time| format(time.into())).as_deref(),
                Some("2026-11-21T10:00:00Z"),
                "{text}"
            );
        }
        for text in [
            "",
            "tomorrow",
            "2026-11-21",
            "2026-11-21 10:00:00Z",
            "2026-11-21T10:00:00",
            "1763719200",
            "2026-11-21T10:00:00+01:00[Europe/Paris]",
            "2026-13-21T10:00:00Z",
        ] {
            assert_eq!(read(text), None, "{text}");
        }
    }
}
