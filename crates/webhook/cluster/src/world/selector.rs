//! Field selectors on recorded objects.
//!
//! API servers have a list of fields for each resource (`pkg/registry/core/*/strategy.go`). Here each field is one that the object has.

use serde_json::Value;

use crate::fleet::Object;

/// Conditions that must all hold.
#[derive(Debug)]
pub(super) struct Selector<'s> {
    conditions: Vec<Condition<'s>>,
}

#[derive(Debug)]
struct Condition<'s> {
    field: &'s str,
    is_equal: bool,
    value: &'s str,
}

const NAME: &str = "metadata.name";

impl<'s> Selector<'s> {
    /// The error names the unsupported part.
    pub(super) fn parse(text: &'s str) -> Result<Self, String> {
        let parts = text.split(',').filter(|part| !part.is_empty());
        Ok(Self { conditions: parts.map(condition).collect::<Result<_, _>>()? })
    }

    /// Whether metadata is enough.
    pub(super) fn is_of_metadata(&self) -> bool {
        self.conditions.iter().all(|condition| condition.field == NAME)
    }

    /// Whether all conditions hold. An absent field never equals the value; it is unequal only if that makes the object count.
    pub(super) fn holds(&self, object: &Object) -> Result<bool, String> {
        let parsed: Value = match &object.raw {
            None => Value::Null,
            Some(raw) => serde_json::from_str(raw.get()).map_err(|error| error.to_string())?,
        };
        for Condition { field, is_equal, value } in &self.conditions {
            let holds = match (*field, text(&parsed, field)?) {
                (NAME, _) => (object.name == *value) == *is_equal,
                (_, Some(found)) => (found == *value) == *is_equal,
                (_, None) if *is_equal => {
                    return Err(format!("{:?} is recorded without {field}", object.name));
                }
                (_, None) => true,
            };
            if !holds {
                return Ok(false);
            }
        }
        Ok(true)
    }
}

/// Returns a field of an object.
fn text<'v>(object: &'v Value, field: &str) -> Result<Option<&'v str>, String> {
    let mut at = object;
    for step in field.split('.') {
        match at {
            Value::Null => return Ok(None),
            Value::Object(fields) => at = fields.get(step).unwrap_or(&Value::Null),
            _ => return Err(format!("{field} has no fields")),
        }
    }
    match at {
        Value::Null => Ok(None),
        Value::String(text) => Ok(Some(text)),
        _ => Err(format!("{field} is not a text")),
    }
}

fn condition(text: &str) -> Result<Condition<'_>, String> {
    let parts = match text.split_once("!=") {
        Some((field, value)) => Some((field, false, value)),
        None => {
            text.split_once('=').map(|(field, value)| (field, true, value.strip_prefix('=').unwrap_or(value)))
        }
    };
    match parts {
        Some((field, is_equal, value)) if !field.contains(' ') && !value.contains(['=', '\\']) => {
            Ok(Condition { field, is_equal, value })
        }
        _ => Err(format!("the field selector {text:?} is not supported in snapshots")),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::value::RawValue;

    use super::*;

    fn object(name: &str, raw: &str) -> Object {
        let raw = Some(RawValue::from_string(raw.to_owned()).unwrap());
        Object { name: name.to_owned(), raw, ..Object::default() }
    }

    #[test]
    fn conditions_hold_all_together() {
        let running = object("web", r#"{"status":{"phase":"Running"}}"#);
        let done = object("job", r#"{"status":{"phase":"Succeeded"}}"#);
        let front = object("front", r#"{"spec":{"type":"LoadBalancer"}}"#);
        for (selector, object, expected) in [
            ("status.phase!=Succeeded,status.phase!=Failed", &running, true),
            ("status.phase!=Succeeded,status.phase!=Failed", &done, false),
            ("status.phase=Running", &running, true),
            ("status.phase==Running", &done, false),
            ("spec.type=LoadBalancer", &front, true),
            ("spec.type=ClusterIP", &front, false),
            ("metadata.name=front", &front, true),
            ("metadata.name=front", &done, false),
            ("metadata.name=job,status.phase=Succeeded", &done, true),
            ("", &done, true),
        ] {
            assert_eq!(Selector::parse(selector).unwrap().holds(object), Ok(expected), "{selector}");
        }
    }

    #[test]
    fn an_absent_field_matches_inequality_and_is_unknown_for_equality() {
        let bare = object("web", r#"{"metadata":{"name":"web"}}"#);
        assert_eq!(Selector::parse("status.phase!=Failed").unwrap().holds(&bare), Ok(true));
        assert!(Selector::parse("spec.type=LoadBalancer").unwrap().holds(&bare).is_err());
        let odd = object("web", r#"{"status":"Running"}"#);
        assert!(Selector::parse("status.phase!=Failed").unwrap().holds(&odd).is_err());
    }

    #[test]
    fn unsupported_selectors_are_reported() {
        for text in ["status.phase", "status.phase=a=b", "status.phase in (a)", "status.phase=a\\,b"] {
            assert!(Selector::parse(text).is_err(), "{text}");
        }
    }
}
