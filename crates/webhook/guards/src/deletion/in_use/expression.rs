//! The expressions of a rule, in CEL: over `object`, which is used, and `by`, which uses it.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;
use std::time::Instant;

use cluster::fleet::Object;
use policy::expression::{ExpressionError, Refused};
use policy::relation::{Relation, Side};
use policy::release::{NEWEST, Release};
use policy::schema::Schema;
use policy::value::{Arena, Value, read_json};
use serde_json::json;

/// The fields of `object.metadata` that every review and every read has.
const OF_OBJECT: [&str; 3] = ["name", "namespace", "labels"];
/// The fields of `by.metadata` that a List of metadata has.
const OF_BY: [&str; 5] = ["name", "namespace", "uid", "labels", "annotations"];

/// Objects that are evaluated with one copy of the used object.
const BATCH: usize = 16;

/// A compiled expression and its source.
#[derive(Clone)]
pub(in crate::deletion) struct RuleExpression {
    pub(super) source: Arc<str>,
    relation: Arc<Relation>,
}

impl fmt::Debug for RuleExpression {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.source.fmt(f)
    }
}

/// Rules are evaluated by Durward, so the newest functions exist.
fn release() -> Release {
    Release::for_stored(NEWEST)
}

impl RuleExpression {
    /// Compiles `where`.
    pub(super) fn condition(source: &str) -> Result<Self, Refused> {
        Relation::condition(source, release()).map(|relation| Self::new(source, relation))
    }

    /// Compiles a selector.
    pub(super) fn text(source: &str) -> Result<Self, Refused> {
        Relation::text(source, release()).map(|relation| Self::new(source, relation))
    }

    fn new(source: &str, relation: Relation) -> Self {
        Self { source: source.into(), relation: Arc::new(relation) }
    }

    /// Whether it reads more of `object` than every review has.
    pub(super) fn needs_whole_object(&self) -> bool {
        !self.relation.reads_only_metadata(Side::Object, &OF_OBJECT)
    }

    /// Whether it reads more of `by` than a List of metadata has.
    pub(super) fn needs_whole_by(&self) -> bool {
        !self.relation.reads_only_metadata(Side::By, &OF_BY)
    }

    /// Returns the fields that it reads and that the schema of one of the objects does not have.
    pub(super) fn unknown_fields(&self, of: Side, schema: &Schema) -> Vec<String> {
        self.relation.unknown_fields(of, schema)
    }

    /// Returns a selector for an object.
    pub(super) fn selector(&self, object: &UsedObject) -> Result<String, String> {
        let arena = Arena::new();
        let value =
            self.relation.evaluate(object.value(&arena)?, None, &arena).map_err(|error| text(&error))?;
        value.as_str().map(str::to_owned).ok_or_else(|| "it is not a string".to_owned())
    }

    /// Calls `each` for every object, with whether it uses `used`. Ends at the deadline.
    pub(super) fn matches(
        &self,
        used: &UsedObject,
        objects: &[&Object],
        deadline: Instant,
        mut each: impl FnMut(&Object, Result<bool, String>),
    ) {
        for batch in objects.chunks(BATCH) {
            let arena = Arena::new();
            let value = used.value(&arena);
            for by in batch {
                let found = value.clone().and_then(|object| self.uses(object, by, &arena, deadline));
                each(by, found);
            }
        }
    }

    fn uses<'a>(
        &'a self,
        object: Value<'a>,
        by: &Object,
        arena: &'a Arena,
        deadline: Instant,
    ) -> Result<bool, String> {
        if Instant::now() >= deadline {
            return Err("there was no time left".to_owned());
        }
        let by = value_of(by, arena)?;
        match self.relation.evaluate(object, Some(by), arena) {
            Ok(value) => value.as_bool().ok_or_else(|| "it is not a bool".to_owned()),
            Err(error) => Err(text(&error)),
        }
    }
}

fn text(error: &ExpressionError) -> String {
    match error {
        ExpressionError::Error(text) => text.clone(),
        ExpressionError::TooExpensive => "it costs more than an expression may".to_owned(),
        ExpressionError::Limit(_) => "it needs more memory or time than an expression has".to_owned(),
        ExpressionError::Unknown(_) => "it reads what is not known".to_owned(),
    }
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
}
