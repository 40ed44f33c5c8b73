//! Selection of a field, key or index from a value.

use super::outcome::{EvalContext, INTERNAL, NoValue};
use crate::value::{Opaque, Value, format, number};

/// Selects from a value. Absent keys are `None` if presence is asked, and errors otherwise.
pub(crate) fn select<'a>(
    context: &EvalContext<'a>,
    object: Value<'a>,
    key: Value<'a>,
    presence: bool,
) -> Result<Option<Value<'a>>, NoValue<'a>> {
    if !matches!(key, Value::String(_) | Value::Int(_) | Value::Uint(_) | Value::Bool(_) | Value::Double(_)) {
        return context.error(&format!("invalid qualifier type: {}", key.type_name()));
    }
    if let Some(entries) = object.entries() {
        return match entries.get(&key) {
            Some(value) => Ok(Some(value)),
            None if presence => Ok(None),
            None => missing_key(context, &key),
        };
    }
    if let Some(len) = object.list_len() {
        let index = match key {
            Value::Int(index) => Some(index),
            Value::Uint(index) => i64::try_from(index).ok(),
            Value::Double(index) => number::lossless_int(index),
            other => {
                return context.error(&format!("unsupported index type '{}' in list", other.type_name()));
            }
        };
        let Some(index) = index else {
            return context.error(&format!("unsupported index value {} in list", format::plain(&key)));
        };
        return match usize::try_from(index)
            .ok()
            .filter(|index| *index < len)
            .and_then(|index| object.element(index))
        {
            Some(value) => Ok(Some(value)),
            None if presence => Ok(None),
            None => context.error(&format!("index out of bounds: {}", format::plain(&key))),
        };
    }
    if presence { Ok(None) } else { missing_key(context, &key) }
}

/// Checks a key of a map or an element of a constant set. cel-go fails within itself for some types.
pub(crate) fn hash<'a>(value: &Value<'a>) -> Result<(), NoValue<'a>> {
    match value {
        Value::Bytes(_) | Value::Opaque(Opaque::Semver(_) | Opaque::Format(_)) => Err(INTERNAL),
        _ => Ok(()),
    }
}

fn missing_key<'a, T>(context: &EvalContext<'a>, key: &Value<'a>) -> Result<T, NoValue<'a>> {
    context.error(&format!("no such key: {}", format::plain(key)))
}
