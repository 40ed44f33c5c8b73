//! The metadata of printed objects.

use serde_json::{Value, json};

use crate::file::NAME;

/// Returns the metadata of a printed object.
pub(super) fn metadata(name: &str, namespace: Option<&str>) -> Value {
    let mut metadata = json!({"name": name});
    if let Some(namespace) = namespace {
        metadata["namespace"] = namespace.into();
    }
    metadata["labels"] = json!({"app.kubernetes.io/name": NAME});
    metadata
}
