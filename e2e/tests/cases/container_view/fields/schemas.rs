//! The fields of a pod, as the API server lists them (`/openapi/v3`).

use std::collections::{BTreeMap, BTreeSet};

use e2e::prelude::*;

use super::ROOTS;

/// A kind, by the last part of its name, and one of its fields.
pub(super) type Field = (String, String);

pub(super) struct Schemas(BTreeMap<String, Value>);

impl Schemas {
    pub(super) fn read(cluster: &Cluster) -> Result<Self> {
        let document = cluster.api().get("/openapi/v3/api/v1")?.succeeded()?.body;
        let schemas = document["components"]["schemas"].as_object().context("an OpenAPI without schemas")?;
        let short = |name: &str| name.rsplit('.').next().unwrap_or_default().to_owned();
        // Other API groups have kinds with the same short name.
        let core = |name: &str| name.contains(".core.v1.") || name.contains(".meta.v1.");
        Ok(Self(
            schemas
                .iter()
                .filter(|(name, _)| core(name))
                .map(|(name, schema)| (short(name), schema.clone()))
                .collect(),
        ))
    }

    /// Returns the fields of a kind, and none for a plain value such as a quantity.
    fn fields(&self, kind: &str) -> impl Iterator<Item = (&String, &Value)> {
        self.0.get(kind).and_then(|schema| schema["properties"].as_object()).into_iter().flatten()
    }

    /// Returns every field that a pod can have, at any depth.
    pub(super) fn reachable(&self) -> Result<BTreeSet<Field>> {
        let mut fields = BTreeSet::new();
        let mut kinds: Vec<String> = ROOTS.map(|(_, kind)| kind.to_owned()).into();
        let mut known = BTreeSet::new();
        while let Some(kind) = kinds.pop() {
            if !known.insert(kind.clone()) {
                continue;
            }
            for (field, schema) in self.fields(&kind) {
                fields.insert((kind.clone(), field.clone()));
                kinds.extend(kind_in(schema));
            }
        }
        ensure!(fields.len() > 500, "in the OpenAPI a pod has only {} fields", fields.len());
        Ok(fields)
    }

    /// Adds the fields of an object of this kind, including nested ones.
    pub(super) fn find(&self, kind: &str, value: &Value, found: &mut BTreeSet<Field>) -> Result<()> {
        match value {
            Value::Array(items) => {
                for item in items {
                    self.find(kind, item, found)?;
                }
            }
            Value::Object(object) => {
                for (field, schema) in self.fields(kind) {
                    let Some(value) = object.get(field) else { continue };
                    found.insert((kind.to_owned(), field.clone()));
                    if let Some(kind) = kind_in(schema) {
                        self.find(&kind, value, found)?;
                    }
                }
                let known: BTreeSet<&String> = self.fields(kind).map(|(field, _)| field).collect();
                let unknown = object.keys().find(|key| !known.is_empty() && !known.contains(key));
                ensure!(unknown.is_none(), "{kind} has {unknown:?}, which is not in the OpenAPI document");
            }
            _ => {}
        }
        Ok(())
    }
}

/// Returns the kind that a field refers to, directly or in a list.
fn kind_in(schema: &Value) -> Option<String> {
    let direct = schema["$ref"].as_str().or_else(|| schema["allOf"][0]["$ref"].as_str());
    match direct {
        Some(reference) => reference.rsplit('.').next().map(ToOwned::to_owned),
        None => [&schema["items"], &schema["additionalProperties"]]
            .into_iter()
            .find(|inner| inner.is_object())
            .and_then(kind_in),
    }
}
