//! The fields of the subresource `scale`, whose values are not those of the schema alone.

use super::Scale;
use crate::field::{FieldError, Path};
use crate::value::Value;

/// Checks the replicas and the label selector of an object.
pub(super) fn validate(object: Value<'_>, scale: &Scale, errors: &mut Vec<FieldError>) {
    for path in scale.replicas() {
        let (replicas, problem) = match find(object, path) {
            Err(problem) => (0, Some(problem)),
            Ok(Some(Value::Int(replicas))) if replicas < 0 => {
                (replicas, Some("should be a non-negative integer".to_owned()))
            }
            Ok(Some(Value::Int(replicas))) if replicas > i64::from(i32::MAX) => {
                (replicas, Some(format!("should be less than or equal to {}", i32::MAX)))
            }
            Ok(None | Some(Value::Int(_))) => (0, None),
            Ok(Some(other)) => (0, Some(wrong_type(path, other, "int"))),
        };
        errors.extend(problem.map(|problem| error(path, &replicas.to_string(), &problem)));
    }
    if let Some(path) = &scale.label_selector {
        let problem = match find(object, path) {
            Err(problem) => Some(problem),
            Ok(None | Some(Value::String(_))) => None,
            Ok(Some(other)) => Some(wrong_type(path, other, "string")),
        };
        errors.extend(problem.map(|problem| error(path, "\"\"", &problem)));
    }
}

/// The API server prints the path of the CRD, with a dot before its first field.
fn error(path: &str, value: &str, problem: &str) -> FieldError {
    FieldError::invalid_json(&Path::new(path), value, problem)
}

/// Returns the value at a path, or the error of a parent that is not an object.
fn find<'a>(object: Value<'a>, path: &str) -> Result<Option<Value<'a>>, String> {
    let mut found = object;
    let mut seen = String::new();
    for name in path.strip_prefix('.').unwrap_or(path).split('.') {
        seen.push('.');
        seen.push_str(name);
        found = match found {
            Value::Null => return Ok(None),
            Value::Object(_) => match found.field(name) {
                None => return Ok(None),
                Some(value) => value,
            },
            other => return Err(wrong_type(&seen, other, "map")),
        };
    }
    Ok(Some(found))
}

/// The text about a value of another type. The API server prints the value, and the types of Go.
fn wrong_type(path: &str, value: Value<'_>, expected: &str) -> String {
    format!("{path} accessor error: the value is of the type {}, expected {expected}", value.type_name())
}
