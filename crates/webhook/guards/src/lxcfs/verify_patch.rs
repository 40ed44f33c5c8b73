//! Checks in debug builds that a patch applies to the pod and replaces nothing.

use admission::{Patch, Raw};
use serde_json::Value;

use super::opt_in::STATUS;

/// Applies the patch. Returns false if an operation fails or replaces a value other than the guard's own status.
pub(super) fn applies(object: Raw<'_>, patch: &Patch) -> bool {
    let Ok(mut object) = serde_json::from_str::<Value>(object.get()) else { return false };
    let Ok(operations) = serde_json::from_slice::<Vec<Value>>(patch.as_json()) else { return false };
    operations.iter().all(|operation| add(&mut object, operation).is_some())
}

fn add(object: &mut Value, operation: &Value) -> Option<()> {
    let (parent, key) = operation["path"].as_str()?.rsplit_once('/')?;
    let value = operation["value"].clone();
    match object.pointer_mut(parent)? {
        Value::Array(list) if key == "-" => list.push(value),
        Value::Object(map) => {
            let key = key.replace("~1", "/").replace("~0", "~");
            let replaced = map.insert(key.clone(), value);
            (replaced.is_none_or(|old| old.is_null()) || key == STATUS).then_some(())?;
        }
        _ => return None,
    }
    Some(())
}
