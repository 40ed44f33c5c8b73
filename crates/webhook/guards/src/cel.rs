//! Parts of CEL expressions for match conditions and native policies.
//!
//! An error in an expression denies every request of a policy. So optional fields are read with `?`, and each expression is evaluated in
//! tests on objects that have none of them.

use std::collections::BTreeSet;

use ::config::{Expression, Selector};
use admission::Glob;

/// Returns a CEL string literal. CEL has the escapes of JSON.
pub(crate) fn string(value: &str) -> String {
    serde_json::Value::from(value).to_string()
}

/// Returns a CEL list of strings.
pub(crate) fn strings<'s>(values: impl IntoIterator<Item = &'s str>) -> String {
    let values: Vec<String> = values.into_iter().map(string).collect();
    format!("[{}]", values.join(", "))
}

/// Joins conditions of which all must be true. Without one, the result is true.
pub(crate) fn all(conditions: impl IntoIterator<Item = String>) -> String {
    joined(conditions, " && ", "true")
}

/// Joins conditions of which one must be true. Without one, the result is false.
pub(crate) fn any(conditions: impl IntoIterator<Item = String>) -> String {
    joined(conditions, " || ", "false")
}

fn joined(conditions: impl IntoIterator<Item = String>, operator: &str, empty: &str) -> String {
    let conditions: Vec<String> = conditions.into_iter().collect();
    match conditions.as_slice() {
        [] => empty.to_owned(),
        [one] => one.clone(),
        many => {
            let many: Vec<String> = many.iter().map(|condition| format!("({condition})")).collect();
            many.join(operator)
        }
    }
}

/// Returns a condition that is true if a selector matches. `labels` is an optional map, such as `oldObject.metadata.?labels`.
pub(crate) fn matches(selector: &Selector, labels: &str) -> String {
    // A label value contains no blank.
    let is_in = |key: &str, values: &BTreeSet<String>| {
        format!("{labels}[?{}].orValue(\" \") in {}", string(key), strings(values.iter().map(String::as_str)))
    };
    all_expressions(selector, is_in, |key| format!("{labels}[?{}].hasValue()", string(key)))
}

/// Returns a condition that is true if all expressions of a selector hold. `is_in` tests whether a label has one of these values, `has`
/// whether there is such a label.
pub(crate) fn all_expressions(
    selector: &Selector,
    is_in: impl Fn(&str, &BTreeSet<String>) -> String,
    has: impl Fn(&str) -> String,
) -> String {
    all(selector.clone().into_iter().map(|expression| match expression {
        Expression::In(key, values) => is_in(&key, &values),
        Expression::NotIn(key, values) => format!("!({})", is_in(&key, &values)),
        Expression::Equal(key, value) => is_in(&key, &[value].into()),
        Expression::NotEqual(key, value) => format!("!({})", is_in(&key, &[value].into())),
        Expression::Exists(key) => has(&key),
        Expression::DoesNotExist(key) => format!("!{}", has(&key)),
    }))
}

/// Returns a condition that is true if a text matches a pattern. The text must be a string.
pub(crate) fn matches_glob(glob: &Glob, text: &str) -> String {
    let pattern = glob.to_string();
    if !pattern.contains('*') {
        return format!("{text} == {}", string(&pattern));
    }
    let escape = |part: &str| {
        let mut escaped = String::new();
        for char in part.chars() {
            if char.is_ascii_punctuation() {
                escaped.push('\\');
            }
            escaped.push(char);
        }
        escaped
    };
    let parts: Vec<String> = pattern.split('*').map(escape).collect();
    format!("{text}.matches({})", string(&format!("^(?s){}$", parts.join(".*"))))
}
