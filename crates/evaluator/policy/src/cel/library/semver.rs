//! Semantic versions, with the texts of the Go package that the API server uses.

use std::cmp::Ordering;

use super::Library;
use crate::cel::outcome::{EvalContext, EvalResult, NoValue, no_such_overload};
use crate::value::format::quote;
use crate::value::{Opaque, Semver, Value};

/// Declares the functions of versions.
pub(super) fn declare(library: &mut Library) {
    library.add("string_to_semver", "semver(string): Semver", convert);
    library.add("string_bool_to_semver", "semver(string, bool): Semver", convert);
    library.add("is_semver_string", "isSemver(string): bool", is_semver);
    library.add("is_semver_string_bool", "isSemver(string, bool): bool", is_semver);
    library.add("semver_is_greater_than", "(Semver).isGreaterThan(Semver): bool", |_, args| {
        order(args).map(|ordering| Value::Bool(ordering.is_gt()))
    });
    library.add("semver_is_less_than", "(Semver).isLessThan(Semver): bool", |_, args| {
        order(args).map(|ordering| Value::Bool(ordering.is_lt()))
    });
    library.add("semver_compare_to", "(Semver).compareTo(Semver): int", |_, args| {
        order(args).map(|ordering| Value::Int(ordering as i64))
    });
    library.add("semver_major", "(Semver).major(): int", |_, args| number(args, 0));
    library.add("semver_minor", "(Semver).minor(): int", |_, args| number(args, 1));
    library.add("semver_patch", "(Semver).patch(): int", |_, args| number(args, 2));
}

fn order<'a>(args: &[Value<'a>]) -> Result<Ordering, NoValue<'a>> {
    match args {
        [Value::Opaque(Opaque::Semver(left)), Value::Opaque(Opaque::Semver(right))] => {
            Ok(left.compare(right))
        }
        _ => Err(no_such_overload()),
    }
}

#[allow(clippy::cast_possible_wrap)] // Go converts the same way
fn number<'a>(args: &[Value<'a>], index: usize) -> EvalResult<'a> {
    match args {
        [Value::Opaque(Opaque::Semver(version))] => {
            Ok(Value::Int(version.numbers.get(index).copied().unwrap_or(0) as i64))
        }
        _ => Err(no_such_overload()),
    }
}

/// Numbers, pre-release and text of a version.
type VersionParts = ([u64; 3], String, String);

fn read(args: &[Value<'_>]) -> Option<Result<VersionParts, String>> {
    match args {
        [Value::String(text)] | [Value::String(text), Value::Bool(false)] => Some(parse(text)),
        [Value::String(text), Value::Bool(true)] => Some(normalize(text).and_then(|text| parse(&text))),
        _ => None,
    }
}

fn is_semver<'a>(_: &EvalContext<'a>, args: &[Value<'a>]) -> EvalResult<'a> {
    read(args).map(|read| Value::Bool(read.is_ok())).ok_or_else(no_such_overload)
}

fn convert<'a>(context: &EvalContext<'a>, args: &[Value<'a>]) -> EvalResult<'a> {
    match read(args) {
        Some(Ok((numbers, pre, text))) => {
            let version = Semver { numbers, pre: context.arena.text(&pre), text: context.arena.text(&text) };
            Ok(Value::Opaque(context.arena.store(Opaque::Semver(version))))
        }
        Some(Err(message)) => context.error(&message),
        None => Err(no_such_overload()),
    }
}

/// Adds absent numbers and removes `v` and leading zeros.
fn normalize(text: &str) -> Result<String, String> {
    let text = text.strip_prefix('v').unwrap_or(text);
    let mut parts: Vec<String> = text.splitn(3, '.').map(str::to_owned).collect();
    for part in &mut parts {
        if part.len() > 1 {
            let trimmed = part.trim_start_matches('0');
            let starts_with_digit = trimmed.starts_with(|first: char| first.is_ascii_digit());
            *part = if starts_with_digit { trimmed.to_owned() } else { format!("0{trimmed}") };
        }
    }
    if parts.len() < 3 {
        if parts.last().is_some_and(|last| last.contains(['+', '-'])) {
            return Err("short version cannot contain PreRelease/Build meta data".to_owned());
        }
        while parts.len() < 3 {
            parts.push("0".to_owned());
        }
    }
    Ok(parts.join("."))
}

fn parse(text: &str) -> Result<VersionParts, String> {
    if text.is_empty() {
        return Err("Version string empty".to_owned());
    }
    let parts: Vec<&str> = text.splitn(3, '.').collect();
    let [major, minor, rest] = parts.as_slice() else {
        return Err("No Major.Minor.Patch elements found".to_owned());
    };
    let numbers = [component("Major", major)?, component("Minor", minor)?, 0];
    let (rest, build) = match rest.split_once('+') {
        Some((rest, build)) => (rest, Some(build)),
        None => (*rest, None),
    };
    let (patch, pre) = match rest.split_once('-') {
        Some((patch, pre)) => (patch, Some(pre)),
        None => (rest, None),
    };
    let [major, minor, _] = numbers;
    let numbers = [major, minor, component("Patch", patch)?];
    for identifier in pre.into_iter().flat_map(|pre| pre.split('.')) {
        if identifier.is_empty() {
            return Err("Prerelease is empty".to_owned());
        }
        if identifier.bytes().all(|byte| byte.is_ascii_digit()) {
            if identifier.len() > 1 && identifier.starts_with('0') {
                return Err(format!(
                    "Numeric PreRelease version must not contain leading zeroes {}",
                    quote(identifier)
                ));
            }
            if identifier.parse::<u64>().is_err() {
                return Err(range_error(identifier));
            }
        } else if !is_alphanumeric(identifier) {
            return Err(format!("Invalid character(s) found in prerelease {}", quote(identifier)));
        }
    }
    for identifier in build.into_iter().flat_map(|build| build.split('.')) {
        if identifier.is_empty() {
            return Err("Build meta data is empty".to_owned());
        }
        if !is_alphanumeric(identifier) {
            return Err(format!("Invalid character(s) found in build meta data {}", quote(identifier)));
        }
    }
    Ok((numbers, pre.unwrap_or("").to_owned(), text.to_owned()))
}

fn range_error(digits: &str) -> String {
    format!("strconv.ParseUint: parsing {}: value out of range", quote(digits))
}

fn is_alphanumeric(text: &str) -> bool {
    text.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-')
}

fn component(name: &str, text: &str) -> Result<u64, String> {
    if !text.bytes().all(|byte| byte.is_ascii_digit()) {
        let what = format!("Invalid character(s) found in {} number {}", name.to_lowercase(), quote(text));
        return Err(what);
    }
    if text.len() > 1 && text.starts_with('0') {
        return Err(format!("{name} number must not contain leading zeroes {}", quote(text)));
    }
    if text.is_empty() {
        return Err("strconv.ParseUint: parsing \"\": invalid syntax".to_owned());
    }
    text.parse().map_err(|_| range_error(text))
}
