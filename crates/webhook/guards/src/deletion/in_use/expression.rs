//! The expressions of a rule, in CEL: over `object`, which is used, and `by`, which uses it.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Instant;

use cluster::fleet::Object;
use policy::relation::{Relation, Side};
use policy::value::{Arena, Value, read_json};
use serde_json::json;

/// The fields of `object.metadata` that every review and every read has.
const OF_OBJECT: [&str; 3] = ["name", "namespace", "labels"];
/// The fields of `by.metadata` that a List of metadata has.
const OF_BY: [&str; 5] = ["name", "namespace", "uid", "labels", "annotations"];

/// Objects that are evaluated with one copy of the used object.
const BATCH: usize = 16;

/// Whether an expression reads more of `object` than every review has.
pub(super) fn needs_whole_object(expression: &Relation) -> bool {
    !expression.reads_only_metadata(Side::Object, &OF_OBJECT)
}

/// Whether an expression reads more of `by` than a List of metadata has.
pub(super) fn needs_whole_by(expression: &Relation) -> bool {
    !expression.reads_only_metadata(Side::By, &OF_BY)
}

fn value_of<'a>(by: &Object, arena: &'a Arena) -> Result<Value<'a>, String> {
    let text = if let Some(raw) = &by.raw {
        arena.text(raw.get())
    } else {
        let Object { namespace, name, uid, metadata, .. } = by;
        let (labels, annotations) = (&metadata.labels, &metadata.annotations);
        let known = json!({"metadata": {
            "name": name, "namespace": namespace, "uid": uid, "labels": labels, "annotations": annotations,
        }});
        arena.text(&known.to_string())
    };
    read_json(text, arena).map_err(|error| error.message.to_owned())
}

/// The object that a deletion removes, as expressions see it.
#[derive(Debug, Clone)]
pub(in crate::deletion) struct UsedObject(Arc<str>);

impl UsedObject {
    /// The whole object, as JSON.
    pub(in crate::deletion) fn whole(json: &str) -> Self {
        Self(json.into())
    }

    /// The object by the fields that every review has.
    pub(in crate::deletion) fn by_metadata(
        namespace: &str,
        name: &str,
        labels: &BTreeMap<String, String>,
    ) -> Self {
        let metadata = json!({"name": name, "namespace": namespace, "labels": labels});
        Self(json!({"metadata": metadata}).to_string().into())
    }

    fn value<'a>(&self, arena: &'a Arena) -> Result<Value<'a>, String> {
        read_json(arena.text(&self.0), arena)
            .map_err(|error| format!("the object cannot be read: {}", error.message))
    }

    /// Returns a selector of objects that can use it.
    pub(super) fn selector(&self, expression: &Relation) -> Result<String, String> {
        let arena = Arena::new();
        let value = expression.evaluate(self.value(&arena)?, None, &arena)?;
        value.as_str().map(str::to_owned).ok_or_else(|| "it is not a string".to_owned())
    }

    /// Calls `each` for every object before the deadline, with whether it uses this one.
    pub(super) fn each_use(
        &self,
        condition: &Relation,
        objects: &[&Object],
        deadline: Instant,
        mut each: impl FnMut(&Object, Result<bool, String>),
    ) {
        for batch in objects.chunks(BATCH) {
            let arena = Arena::new();
            let used = self.value(&arena);
            let is_use = |by: &Object| {
                let value = condition.evaluate(used.clone()?, Some(value_of(by, &arena)?), &arena)?;
                value.as_bool().ok_or_else(|| "it is not a bool".to_owned())
            };
            for by in batch {
                if Instant::now() >= deadline {
                    return;
                }
                each(by, is_use(by));
            }
        }
    }
}
