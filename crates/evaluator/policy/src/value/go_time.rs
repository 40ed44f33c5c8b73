//! Errors of Go's `time.Parse`, for the layouts of which the API server reports errors.

use std::fmt::Write as _;

use super::number::parse_timestamp;

/// The layout of a date.
pub(super) const DATE: Layout = Layout { text: "2006-01-02", elements: &[YEAR, MONTH, DAY] };

/// The layout of a time without an offset. The API server tries it last.
pub(super) const LOCAL_TIME: Layout =
    Layout { text: "2006-01-02T15:04:05", elements: &[YEAR, MONTH, DAY, HOUR, MINUTE, SECOND] };

/// `time.RFC3339`. The elements end before the offset, since errors are reported only for a wrong year.
const TIME: Layout = Layout { text: "2006-01-02T15:04:05Z07:00", elements: LOCAL_TIME.elements };

const YEAR: Element = Element { prefix: "", name: "2006", range: None };
const MONTH: Element = Element { prefix: "-", name: "01", range: Some(("month", 1, 12)) };
const DAY: Element = Element { prefix: "-", name: "02", range: None };
const HOUR: Element = Element { prefix: "T", name: "15", range: Some(("hour", 0, 23)) };
const MINUTE: Element = Element { prefix: ":", name: "04", range: Some(("minute", 0, 59)) };
const SECOND: Element = Element { prefix: ":", name: "05", range: Some(("second", 0, 59)) };

/// A layout of `time.Parse`.
pub(super) struct Layout {
    text: &'static str,
    elements: &'static [Element],
}

/// A number in a layout.
struct Element {
    /// The symbol before it.
    prefix: &'static str,
    name: &'static str,
    /// The name in the error about another number, with the least and the greatest number. Days are checked after all others.
    range: Option<(&'static str, i64, i64)>,
}

/// Returns the error of Go about a time that it has printed and can't read, since the year does not have four digits.
pub(crate) fn year_error(text: &str) -> Option<String> {
    parse_timestamp(text).is_none().then(|| parse_error(text, &TIME))
}

/// Returns the error of Go about a text that it can't parse with a layout.
pub(super) fn parse_error(text: &str, layout: &Layout) -> String {
    let parsing = format!("parsing time {}", quote(text));
    let cannot = |value: &str, element: &str| {
        format!("{parsing} as {}: cannot parse {} as {}", quote(layout.text), quote(value), quote(element))
    };
    let mut rest = text;
    for element in layout.elements {
        let Some(value) = rest.strip_prefix(element.prefix) else { return cannot(rest, element.prefix) };
        let Some((number, after)) = number(value, element.name) else { return cannot(value, element.name) };
        if let Some((name, least, greatest)) = element.range
            && !(least..=greatest).contains(&number)
        {
            return format!("{parsing}: {name} out of range");
        }
        rest = if element.name == SECOND.name { after_fraction(after) } else { after };
    }
    if !rest.is_empty() {
        return format!("{parsing}: extra text: {}", quote(rest));
    }
    format!("{parsing}: day out of range")
}

/// Reads the number of an element. An hour can have one digit.
fn number<'t>(text: &'t str, name: &str) -> Option<(i64, &'t str)> {
    let digits = text.bytes().take_while(u8::is_ascii_digit).count();
    let len = match name {
        "2006" => 4,
        "15" if digits == 1 => 1,
        _ => 2,
    };
    let (number, rest) = text.split_at_checked(len).filter(|_| digits >= len)?;
    Some((number.parse().ok()?, rest))
}

/// The text after a fraction of a second, which layouts don't name.
fn after_fraction(text: &str) -> &str {
    let Some(fraction) = text.strip_prefix(['.', ',']) else { return text };
    let rest = fraction.trim_start_matches(|symbol: char| symbol.is_ascii_digit());
    if rest.len() < fraction.len() { rest } else { text }
}

/// Quotes a text as the package `time` does: bytes of other symbols than ASCII have numbers.
fn quote(text: &str) -> String {
    let mut quoted = String::from('"');
    for symbol in text.chars() {
        if symbol.is_ascii() && symbol >= ' ' {
            if matches!(symbol, '"' | '\\') {
                quoted.push('\\');
            }
            quoted.push(symbol);
        } else {
            for byte in symbol.encode_utf8(&mut [0; 4]).bytes() {
                let _ = write!(quoted, "\\x{byte:02x}");
            }
        }
    }
    quoted + "\""
}

#[cfg(test)]
mod tests {
    use super::{DATE, LOCAL_TIME, parse_error, year_error};

    /// Texts with the errors of Go 1.26.
    #[test]
    fn reports_what_go_reports() {
        for (text, expected) in [
            ("2023-02-29", r#"parsing time "2023-02-29": day out of range"#),
            ("2024-13-01", r#"parsing time "2024-13-01": month out of range"#),
            ("2024-1-1", r#"parsing time "2024-1-1" as "2006-01-02": cannot parse "1-1" as "01""#),
            ("20240101", r#"parsing time "20240101" as "2006-01-02": cannot parse "0101" as "-""#),
            ("2024-02-30 ", r#"parsing time "2024-02-30 ": extra text: " ""#),
            (
                "a\"é\u{1}",
                r#"parsing time "a\"\xc3\xa9\x01" as "2006-01-02": cannot parse "a\"\xc3\xa9\x01" as "2006""#,
            ),
            ("", r#"parsing time "" as "2006-01-02": cannot parse "" as "2006""#),
        ] {
            assert_eq!(parse_error(text, &DATE), expected);
        }
        for (text, expected) in [
            ("2024-01-01", r#"parsing time "2024-01-01" as "2006-01-02T15:04:05": cannot parse "" as "T""#),
            ("2024-01-01T24:00:00Z", r#"parsing time "2024-01-01T24:00:00Z": hour out of range"#),
            ("2024-01-01T1:60:00", r#"parsing time "2024-01-01T1:60:00": minute out of range"#),
            ("2024-01-01T00:00:60", r#"parsing time "2024-01-01T00:00:60": second out of range"#),
            ("2024-01-01T00:00:00.5z", r#"parsing time "2024-01-01T00:00:00.5z": extra text: "z""#),
            ("2024-01-01T00:00:00.z", r#"parsing time "2024-01-01T00:00:00.z": extra text: ".z""#),
            ("2023-02-29T00:00:00", r#"parsing time "2023-02-29T00:00:00": day out of range"#),
            (
                "2024-01-01T00:0",
                r#"parsing time "2024-01-01T00:0" as "2006-01-02T15:04:05": cannot parse "0" as "04""#,
            ),
        ] {
            assert_eq!(parse_error(text, &LOCAL_TIME), expected);
        }
    }

    #[test]
    fn reports_a_year_without_four_digits() {
        let layout = r#""2006-01-02T15:04:05Z07:00""#;
        for (text, rest, element) in [
            ("10000-01-01T00:59:59Z", "0-01-01T00:59:59Z", "-"),
            ("-0001-12-31T23:00:00Z", "-0001-12-31T23:00:00Z", "2006"),
        ] {
            let expected =
                format!(r#"parsing time "{text}" as {layout}: cannot parse "{rest}" as "{element}""#);
            assert_eq!(year_error(text), Some(expected));
        }
        assert_eq!(year_error("9999-12-31T23:59:59Z"), None);
    }
}
