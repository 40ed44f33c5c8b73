//! Fields that change when the API server converts an object to its internal version and back.
//!
//! Upstream's conversion functions are written by hand: `pkg/apis/core/v1/conversion.go`. Those of Pods and Secrets change what
//! policies commonly read.

use super::scalars::encode_base64;
use crate::value::{Arena, Value};

/// Fields of a struct, sorted by name.
type EncodedFields<'a> = Vec<(&'a str, Value<'a>)>;

/// Converts the encoded fields of a struct.
pub(super) fn convert<'a>(name: &str, fields: &mut EncodedFields<'a>, arena: &'a Arena) {
    match name {
        "core/v1.PodSpec" => pod_spec(fields),
        "core/v1.Secret" => secret(fields, arena),
        _ => {}
    }
}

/// A Pod always has a security context, and its service account under both names.
fn pod_spec(fields: &mut EncodedFields<'_>) {
    if get(fields, "securityContext").is_none() {
        set(fields, "securityContext", Value::Object(&[]));
    }
    if let Some(account) = get(fields, "serviceAccountName").or_else(|| get(fields, "serviceAccount")) {
        set(fields, "serviceAccount", account);
        set(fields, "serviceAccountName", account);
    }
}

/// The entries of `stringData` become entries of `data`.
fn secret<'a>(fields: &mut EncodedFields<'a>, arena: &'a Arena) {
    let Some(Value::Object(texts)) = get(fields, "stringData") else { return };
    let mut data: EncodedFields<'a> = match get(fields, "data") {
        Some(Value::Object(data)) => data.to_vec(),
        _ => Vec::new(),
    };
    for (key, text) in texts {
        let encoded = encode_base64(text.as_str().unwrap_or_default().as_bytes());
        set(&mut data, key, Value::String(arena.text(&encoded)));
    }
    set(fields, "data", Value::Object(arena.slice(&data)));
    fields.retain(|(name, _)| *name != "stringData");
}

fn get<'a>(fields: &EncodedFields<'a>, name: &str) -> Option<Value<'a>> {
    fields.iter().find(|(known, _)| *known == name).map(|(_, value)| *value)
}

fn set<'a>(fields: &mut EncodedFields<'a>, name: &'a str, value: Value<'a>) {
    match fields.binary_search_by(|(known, _)| (*known).cmp(name)) {
        Ok(found) => fields.splice(found..=found, [(name, value)]).for_each(drop),
        Err(place) => fields.insert(place, (name, value)),
    }
}
