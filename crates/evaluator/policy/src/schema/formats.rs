//! Formats of texts, as `pkg/validation/strfmt` of `k8s.io/kube-openapi` checks them.

use std::sync::LazyLock;

use regex::Regex;

use super::model::{Schema, SchemaType, ValueChecks};
use super::{address, email};
use crate::cel::library::{formats, regex as re2, url};
use crate::release::Release;
use crate::value::number::parse_duration;

/// A format that the API server checks.
#[derive(Clone, Copy)]
pub(super) struct StringFormat<'s> {
    /// The name in the schema.
    pub(super) name: &'s str,
    /// The check of a text. Formats of numbers have none.
    pub(super) test: Option<Test>,
}

type Test = fn(&str, Release) -> bool;

/// The format of a schema. The API server ignores formats that it does not know, except for defaults.
pub(super) fn of<'s>(
    schema: &Schema,
    checks: &'s ValueChecks,
    release: Release,
    is_default: bool,
) -> Option<StringFormat<'s>> {
    let name = checks.format.as_deref()?;
    let text = || test(name, release).map(|test| StringFormat { name, test: Some(test) });
    if is_default {
        return text().or(Some(StringFormat { name, test: None }));
    }
    if !release.checks_number_formats() || schema.is_int_or_string {
        return text();
    }
    let number = |names: [&str; 2]| names.contains(&name).then_some(StringFormat { name, test: None });
    match &schema.kind {
        None | Some(SchemaType::String) => text(),
        Some(SchemaType::Integer) => number(["int32", "int64"]),
        Some(SchemaType::Number) => number(["float", "double"]),
        Some(_) => None,
    }
}

/// The name of the format of a schema without dashes, if the API server checks it.
pub(crate) fn name(schema: &Schema, release: Release) -> Option<String> {
    Some(of(schema, schema.checks.as_deref()?, release, false)?.name.replace('-', ""))
}

/// Whether the API server knows a format of a schema. It warns of others when the CRD is created.
pub(crate) fn is_recognized(schema: &Schema, format: &str, release: Release) -> bool {
    if !release.checks_number_formats() {
        return schema.kind != Some(SchemaType::String) || test(format, release).is_some();
    }
    match &schema.kind {
        None | Some(SchemaType::String) => test(format, release).is_some(),
        Some(SchemaType::Integer) => matches!(format, "int32" | "int64"),
        Some(SchemaType::Number) => matches!(format, "float" | "double"),
        Some(_) => false,
    }
}

/// The check of a format. Dashes in its name do not matter.
fn test(name: &str, release: Release) -> Option<Test> {
    let plain = name.replace('-', "");
    Some(match plain.as_str() {
        "bsonobjectid" => |text, _| text.len() == 24 && text.bytes().all(|byte| byte.is_ascii_hexdigit()),
        "uri" => |text, release| url::request_error(text, release.url_host_is_strict()).is_none(),
        "email" => email::is_valid,
        "hostname" => is_hostname,
        "ipv4" => |text, _| address::is_ipv4(text),
        "ipv6" => |text, _| address::is_ipv6(text),
        "cidr" => |text, _| address::is_cidr(text),
        "mac" => address::is_mac,
        "uuid" => |text, _| PATTERNS.uuid.matches(text),
        "uuid3" => |text, _| PATTERNS.uuid3.matches(text),
        "uuid4" => |text, _| PATTERNS.uuid4.matches(text),
        "uuid5" => |text, _| PATTERNS.uuid5.matches(text),
        "isbn" => |text, _| is_isbn10(text) || is_isbn13(text),
        "isbn10" => |text, _| is_isbn10(text),
        "isbn13" => |text, _| is_isbn13(text),
        "creditcard" => |text, _| is_credit_card(text),
        "ssn" => |text, _| text.len() == 11 && PATTERNS.ssn.matches(text),
        "hexcolor" => |text, _| is_hex_color(text),
        "rgbcolor" => |text, _| PATTERNS.rgb_color.matches(text),
        "byte" => |text, _| formats::is_base64(text),
        "password" => |_, _| true,
        "date" => |text, _| formats::is_date(text),
        "duration" => |text, _| is_duration(text),
        "datetime" => |text, _| formats::is_datetime(text),
        "k8sshortname" if release.has_name_formats() => |text, _| text.len() <= 63 && is_label(text),
        "k8slongname" if release.has_name_formats() => {
            |text, _| text.len() <= 253 && text.split('.').all(is_label)
        }
        _ => return None,
    })
}

/// A pattern of the API server.
struct FormatPattern(Option<Regex>);

impl FormatPattern {
    fn new(pattern: &str) -> Self {
        Self(re2::compile(pattern).ok())
    }

    fn matches(&self, text: &str) -> bool {
        self.0.as_ref().is_some_and(|regex| regex.is_match(text))
    }
}

struct Patterns {
    hostname: FormatPattern,
    uuid: FormatPattern,
    uuid3: FormatPattern,
    uuid4: FormatPattern,
    uuid5: FormatPattern,
    credit_card: FormatPattern,
    ssn: FormatPattern,
    rgb_color: FormatPattern,
    duration: FormatPattern,
}

static PATTERNS: LazyLock<Patterns> = LazyLock::new(|| {
    let uuid = |third: &str, fourth: &str| {
        FormatPattern::new(&format!("(?i)^[0-9a-f]{{8}}-?[0-9a-f]{{4}}-?{third}-?{fourth}-?[0-9a-f]{{12}}$"))
    };
    let (any, named) = ("[0-9a-f]{4}", "[89ab][0-9a-f]{3}");
    let byte = r"\s*(0|[1-9]\d?|1\d\d?|2[0-4]\d|25[0-5])\s*";
    Patterns {
        hostname: FormatPattern::new(
            r"^([a-zA-Z0-9\p{S}\p{L}]((-?[a-zA-Z0-9\p{S}\p{L}]{0,62})?)|([a-zA-Z0-9\p{S}\p{L}](([a-zA-Z0-9-\p{S}\p{L}]{0,61}[a-zA-Z0-9\p{S}\p{L}])?)(\.)){1,}([a-zA-Z\p{L}]){2,63})$",
        ),
        uuid: uuid(any, any),
        uuid3: uuid("3[0-9a-f]{3}", any),
        uuid4: uuid("4[0-9a-f]{3}", named),
        uuid5: uuid("5[0-9a-f]{3}", named),
        credit_card: FormatPattern::new(
            r"^(?:4[0-9]{12}(?:[0-9]{3})?|5[1-5][0-9]{14}|6(?:011|5[0-9][0-9])[0-9]{12}|3[47][0-9]{13}|3(?:0[0-5]|[68][0-9])[0-9]{11}|(?:2131|1800|35\d{3})\d{11})$",
        ),
        ssn: FormatPattern::new(r"^\d{3}[- ]?\d{2}[- ]?\d{4}$"),
        rgb_color: FormatPattern::new(&format!(r"^rgb\({byte},{byte},{byte}\)$")),
        duration: FormatPattern::new(r"((\d+)\s*([A-Za-zµ]+))"),
    }
});

fn is_hostname(text: &str, _: Release) -> bool {
    text.len() <= 255 && text.split('.').all(|label| label.len() <= 63) && PATTERNS.hostname.matches(text)
}

/// A part of a name: lower case letters, digits and dashes, but no dash at the ends.
fn is_label(text: &str) -> bool {
    !text.starts_with('-')
        && !text.ends_with('-')
        && !text.is_empty()
        && text.bytes().all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-')
}

/// The digits of a book number without spaces and dashes.
fn book_number(text: &str) -> Vec<u8> {
    text.bytes().filter(|byte| !matches!(byte, b'\t' | b'\n' | 0x0c | b'\r' | b' ' | b'-')).collect()
}

fn is_isbn10(text: &str) -> bool {
    let digits = book_number(text);
    let Some((last, first)) = digits.split_last() else { return false };
    if first.len() != 9 || !first.iter().all(u8::is_ascii_digit) || !(last.is_ascii_digit() || *last == b'X')
    {
        return false;
    }
    let weighted = first.iter().zip(1..).map(|(digit, weight)| weight * u32::from(digit - b'0'));
    let last = if *last == b'X' { 10 } else { u32::from(last - b'0') };
    (weighted.sum::<u32>() + 10 * last).is_multiple_of(11)
}

fn is_isbn13(text: &str) -> bool {
    let digits = book_number(text);
    if digits.len() != 13 || !digits.iter().all(u8::is_ascii_digit) {
        return false;
    }
    let weighted = digits.iter().zip([1, 3].into_iter().cycle());
    weighted.map(|(digit, weight)| weight * u32::from(digit - b'0')).sum::<u32>().is_multiple_of(10)
}

fn is_credit_card(text: &str) -> bool {
    let digits: String = text.chars().filter(char::is_ascii_digit).collect();
    if !PATTERNS.credit_card.matches(&digits) {
        return false;
    }
    let sum = digits.bytes().rev().zip([1, 2].into_iter().cycle()).map(|(digit, weight)| {
        let value = u32::from(digit - b'0') * weight;
        value / 10 + value % 10
    });
    sum.sum::<u32>().is_multiple_of(10)
}

fn is_hex_color(text: &str) -> bool {
    let digits = text.strip_prefix('#').unwrap_or(text);
    matches!(digits.len(), 3 | 6) && digits.bytes().all(|byte| byte.is_ascii_hexdigit())
}

/// A duration of Go, or a text that contains numbers with units. The last name of a unit can have any end.
fn is_duration(text: &str) -> bool {
    const UNITS: [(&[&str], &str); 8] = [
        (&["ns"], "nano"),
        (&["us", "µs"], "micro"),
        (&["ms"], "milli"),
        (&["s"], "sec"),
        (&["m"], "min"),
        (&["h", "hr"], "hour"),
        (&["d"], "day"),
        (&["w", "wk"], "week"),
    ];
    if parse_duration(text).is_some() {
        return true;
    }
    let Some(regex) = &PATTERNS.duration.0 else { return false };
    let mut has_unit = false;
    for captures in regex.captures_iter(text) {
        let part = |group| captures.get(group).map_or("", |part| part.as_str());
        if part(2).parse::<i64>().is_err() {
            return false;
        }
        let unit = part(3).to_lowercase();
        has_unit |=
            UNITS.iter().any(|(names, last)| names.contains(&unit.as_str()) || unit.starts_with(last));
    }
    has_unit
}
