//! Named formats of Kubernetes, with the texts of its validation.

use std::sync::LazyLock;

use regex::Regex;

use super::{Implementation, Library};
use crate::cel::outcome::{EvalContext, EvalResult, no_such_overload};
use crate::value::{Opaque, Value};

/// Formats with the length of their longest pattern, from which costs follow.
const FORMATS: [(&str, &str, u64); 13] = [
    ("dns1123Label", "format.dns1123Label(): Format", 30),
    ("dns1123Subdomain", "format.dns1123Subdomain(): Format", 60),
    ("dns1035Label", "format.dns1035Label(): Format", 30),
    ("qualifiedName", "format.qualifiedName(): Format", 60),
    ("dns1123LabelPrefix", "format.dns1123LabelPrefix(): Format", 30),
    ("dns1123SubdomainPrefix", "format.dns1123SubdomainPrefix(): Format", 60),
    ("dns1035LabelPrefix", "format.dns1035LabelPrefix(): Format", 30),
    ("labelValue", "format.labelValue(): Format", 40),
    ("uri", "format.uri(): Format", 1_104),
    ("uuid", "format.uuid(): Format", 70),
    ("byte", "format.byte(): Format", 84),
    ("date", "format.date(): Format", 71),
    ("datetime", "format.datetime(): Format", 71),
];

const LABEL: &str = "[a-z0-9]([-a-z0-9]*[a-z0-9])?";
const SUBDOMAIN: &str = "[a-z0-9]([-a-z0-9]*[a-z0-9])?(\\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*";
const LABEL_1035: &str = "[a-z]([-a-z0-9]*[a-z0-9])?";
const QUALIFIED: &str = "([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]";
const LABEL_VALUE: &str = "(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?";

/// Declares the formats.
pub(super) fn declare(library: &mut Library) {
    let validate: Implementation = if library.release.has_new_label_texts() {
        |context, args| validate(context, args, true)
    } else {
        |context, args| validate(context, args, false)
    };
    library.add("format-validate", "(Format).validate(string): optional(list(string))", validate);
    library.add("format-named", "format.named(string): optional(Format)", |context, args| match args {
        [Value::String(name)] => Ok(match FORMATS.iter().find(|(known, ..)| known == name) {
            Some((known, ..)) => context.some(Value::Opaque(context.arena.store(Opaque::Format(known)))),
            None => Value::Optional(None),
        }),
        _ => Err(no_such_overload()),
    });
    macro_rules! declare_formats {
        ($($index:literal)*) => {
            $(
                let (_, signature, _) = FORMATS[$index];
                library.add_variadic("format.constant", signature, |context, _| {
                    Ok(Value::Opaque(context.arena.store(Opaque::Format(FORMATS[$index].0))))
                });
            )*
        };
    }
    declare_formats!(0 1 2 3 4 5 6 7 8 9 10 11 12);
}

/// Length of the longest pattern of a format.
pub(crate) fn max_regex_size(name: &str) -> u64 {
    FORMATS.iter().find(|(known, ..)| *known == name).map_or(0, |(_, _, size)| *size)
}

fn validate<'a>(context: &EvalContext<'a>, args: &[Value<'a>], recent: bool) -> EvalResult<'a> {
    let [Value::Opaque(Opaque::Format(name)), Value::String(text)] = args else {
        return Err(no_such_overload());
    };
    let problems: Vec<Value<'a>> =
        problems(name, text, recent).iter().map(|problem| context.text(problem)).collect();
    Ok(if problems.is_empty() { Value::Optional(None) } else { context.some(context.list(&problems)) })
}

fn problems(format: &str, text: &str, recent: bool) -> Vec<String> {
    match format {
        "dns1123Label" => label(text),
        "dns1123LabelPrefix" => label(&mask_dash(text)),
        "dns1123Subdomain" => subdomain(text),
        "dns1123SubdomainPrefix" => subdomain(&mask_dash(text)),
        "dns1035Label" => label_1035(text),
        "dns1035LabelPrefix" => label_1035(&mask_dash(text)),
        "qualifiedName" => qualified_name(text, recent),
        "labelValue" => label_value(text, recent),
        "uri" => super::url::request_error(text, false).into_iter().collect(),
        "uuid" => {
            static UUID: LazyLock<Option<Regex>> = LazyLock::new(|| {
                Regex::new("(?i)^[0-9a-f]{8}-?[0-9a-f]{4}-?[0-9a-f]{4}-?[0-9a-f]{4}-?[0-9a-f]{12}$").ok()
            });
            unless(UUID.as_ref().is_some_and(|regex| regex.is_match(text)), "does not match the UUID format")
        }
        "byte" => unless(is_base64(text), "invalid base64"),
        "date" => unless(is_date(text), "invalid date"),
        "datetime" => unless(is_datetime(text), "invalid datetime"),
        _ => Vec::new(),
    }
}

fn unless(valid: bool, problem: &str) -> Vec<String> {
    if valid { Vec::new() } else { vec![problem.to_owned()] }
}

fn too_long(text: &str, max: usize) -> Option<String> {
    too_long_in(text, max, "characters")
}

fn too_long_in(text: &str, max: usize, unit: &str) -> Option<String> {
    (text.len() > max).then(|| format!("must be no more than {max} {unit}"))
}

/// The unit of lengths of labels.
fn unit(recent: bool) -> &'static str {
    if recent { "bytes" } else { "characters" }
}

fn matches(pattern: &'static str, text: &str) -> bool {
    static COMPILED: LazyLock<Vec<(&str, Regex)>> = LazyLock::new(|| {
        [LABEL, SUBDOMAIN, LABEL_1035, QUALIFIED, LABEL_VALUE]
            .into_iter()
            .filter_map(|pattern| Some((pattern, Regex::new(&format!("^(?:{pattern})$")).ok()?)))
            .collect()
    });
    COMPILED.iter().any(|(known, regex)| *known == pattern && regex.is_match(text))
}

fn explain(message: &str, pattern: &str, examples: &[&str]) -> String {
    let examples: Vec<String> = examples.iter().map(|example| format!("'{example}', ")).collect();
    format!("{message} (e.g. {}regex used for validation is '{pattern}')", examples.join(" or "))
}

/// A prefix can end with a dash, since characters follow.
pub(crate) fn mask_dash(text: &str) -> String {
    match text.strip_suffix('-') {
        Some(rest) if !rest.is_empty() => {
            let kept: String = rest.chars().take(rest.chars().count() - 1).collect();
            format!("{kept}a")
        }
        _ => text.to_owned(),
    }
}

/// The problems of a DNS label.
pub(crate) fn label(text: &str) -> Vec<String> {
    let mut problems: Vec<String> = too_long(text, 63).into_iter().collect();
    if !matches(LABEL, text) {
        problems.push(if matches(SUBDOMAIN, text) {
            "must not contain dots".to_owned()
        } else {
            explain(
                "a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-', and must start and end with an alphanumeric character",
                LABEL,
                &["my-name", "123-abc"],
            )
        });
    }
    problems
}

/// The problems of a DNS subdomain.
pub(crate) fn subdomain(text: &str) -> Vec<String> {
    subdomain_in(text, "characters")
}

/// The same with another unit of lengths.
fn subdomain_in(text: &str, unit: &str) -> Vec<String> {
    let mut problems: Vec<String> = too_long_in(text, 253, unit).into_iter().collect();
    if !matches(SUBDOMAIN, text) {
        problems.push(explain(
            "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', and must start and end with an alphanumeric character",
            SUBDOMAIN,
            &["example.com"],
        ));
    }
    problems
}

/// The problems of a DNS label that starts with a letter.
pub(crate) fn label_1035(text: &str) -> Vec<String> {
    let mut problems: Vec<String> = too_long(text, 63).into_iter().collect();
    if !matches(LABEL_1035, text) {
        problems.push(explain(
            "a DNS-1035 label must consist of lower case alphanumeric characters or '-', start with an alphabetic character, and end with an alphanumeric character",
            LABEL_1035,
            &["my-name", "abc-123"],
        ));
    }
    problems
}

/// The problems of a label's key. `recent` is [`Release::has_new_label_texts`](crate::release::Release::has_new_label_texts).
pub(crate) fn qualified_name(text: &str, recent: bool) -> Vec<String> {
    let explanation = || {
        explain(
            "must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character",
            QUALIFIED,
            &["MyName", "my.name", "123-abc"],
        )
    };
    let mut problems = Vec::new();
    let parts: Vec<&str> = text.split('/').collect();
    let name = match parts.as_slice() {
        [name] => *name,
        ["", name] => {
            problems.push("prefix part must be non-empty".to_owned());
            *name
        }
        [prefix, name] => {
            let prefix = subdomain_in(prefix, unit(recent));
            problems.extend(prefix.into_iter().map(|problem| format!("prefix part {problem}")));
            *name
        }
        _ => {
            let (kind, what) = (if recent { "valid label key" } else { "qualified name" }, explanation());
            return vec![format!(
                "a {kind} {what} with an optional DNS subdomain prefix and '/' (e.g. 'example.com/MyName')"
            )];
        }
    };
    if name.is_empty() {
        problems.push("name part must be non-empty".to_owned());
    } else if let Some(problem) = too_long_in(name, 63, unit(recent)) {
        problems.push(format!("name part {problem}"));
    }
    if !matches(QUALIFIED, name) {
        problems.push(format!("name part {}", explanation()));
    }
    problems
}

/// The problems of a label's value.
pub(crate) fn label_value(text: &str, recent: bool) -> Vec<String> {
    let mut problems: Vec<String> = too_long_in(text, 63, unit(recent)).into_iter().collect();
    if !matches(LABEL_VALUE, text) {
        problems.push(explain(
            "a valid label must be an empty string or consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character",
            LABEL_VALUE,
            &["MyValue", "my_value", "12345"],
        ));
    }
    problems
}

pub(crate) fn is_base64(text: &str) -> bool {
    let padding = text.bytes().rev().take_while(|byte| *byte == b'=').count();
    let body = text.get(..text.len() - padding).unwrap_or_default();
    !text.is_empty()
        && text.len().is_multiple_of(4)
        && padding <= 2
        && body.bytes().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'+' | b'/'))
}

pub(crate) fn is_date(text: &str) -> bool {
    text.len() == 10 && crate::value::number::parse_timestamp(&format!("{text}T00:00:00Z")).is_some()
}

pub(crate) fn is_datetime(text: &str) -> bool {
    static TIME: LazyLock<Option<Regex>> = LazyLock::new(|| {
        Regex::new("^([0-9]{2}):([0-9]{2}):([0-9]{2})(.[0-9]+)?(z|([+-][0-9]{2}:[0-9]{2}))$").ok()
    });
    let lower = text.to_lowercase();
    let mut parts = lower.split('t');
    let (Some(date), Some(time)) = (parts.next(), parts.next()) else { return false };
    let Some(captures) = TIME.as_ref().and_then(|regex| regex.captures(time)) else { return false };
    let below = |group: usize, max: &str| captures.get(group).is_some_and(|part| part.as_str() <= max);
    is_date(date) && below(1, "23") && below(2, "59") && below(3, "59")
}
