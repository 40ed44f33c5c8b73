//! Converts a CRD of `v1beta1`, which Kubernetes 1.22 removed, to `v1`.
//!
//! The fields of the specification move as in `pkg/apis/apiextensions/v1/conversion.go`. Schemas must become structural. The module
//! `convert_schema` writes them, and whatever it can't write is an error.

use super::convert_schema::{FieldValues, SchemaWriter, fields, object};
use crate::field::{FieldError, Path};
use crate::value::{Arena, Value};

pub use super::convert_schema::Undeclared;

/// The API version of the CRDs that are converted.
pub const OLD_VERSION: &str = "apiextensions.k8s.io/v1beta1";
const NEW_VERSION: &str = "apiextensions.k8s.io/v1";

/// Fields that do not change.
const SAME: [&str; 3] = ["group", "names", "scope"];
/// Fields of the specification that become fields of each version.
const OF_VERSIONS: [&str; 3] = ["validation", "subresources", "additionalPrinterColumns"];
/// Other fields of the specification.
const OTHER: [&str; 4] = ["version", "versions", "conversion", "preserveUnknownFields"];

/// A CRD that was converted.
#[derive(Clone, Debug)]
pub struct Converted<'a> {
    /// The CRD in `v1`.
    pub crd: Value<'a>,
    /// Fields that a schema requires and does not declare.
    pub undeclared: Vec<Undeclared>,
    /// Fields of the specification that no API server knows. The result lacks them.
    pub unknown: Vec<Path>,
}

/// Converts a CRD. The result keeps what the CRD kept, with one exception: fields that no sample has are removed where samples are
/// given. The errors name the fields of the CRD that `v1` can't express, or that no API server accepts.
pub fn convert<'a>(
    crd: Value<'a>,
    samples: &[Value<'a>],
    arena: &'a Arena,
) -> Result<Converted<'a>, Vec<FieldError>> {
    let path = Path::new("spec");
    let Some(spec @ Value::Object(_)) = crd.field("spec") else {
        return Err(vec![FieldError::wrong_type(&path, "an object")]);
    };
    let keeps = match spec.field("preserveUnknownFields") {
        None | Some(Value::Null) => true,
        Some(Value::Bool(keeps)) => keeps,
        Some(_) => {
            return Err(vec![FieldError::wrong_type(&path.child("preserveUnknownFields"), "a boolean")]);
        }
    };
    let spec = fields(spec);
    let mut converter =
        Converter { spec: &spec, path: &path, samples, arena, schemas: SchemaWriter::new(arena, keeps) };
    let versions = converter.versions();
    let mut converted: FieldValues<'_> =
        SAME.into_iter().filter_map(|name| Some((name, *spec.get(name)?))).collect();
    converted.entry("scope").or_insert(Value::String("Namespaced"));
    converted.insert("versions", Value::List(arena.slice(&versions)));
    if let Some(conversion) = spec.get("conversion") {
        converted.insert("conversion", conversion_of(*conversion, arena));
    }
    let is_known = |name: &str| SAME.iter().chain(&OF_VERSIONS).chain(&OTHER).any(|known| *known == name);
    let unknown = spec.keys().filter(|name| !is_known(name)).map(|name| path.child(name)).collect();
    let mut whole = fields(crd);
    // The API server ignores the status of a new CRD.
    whole.remove("status");
    whole.insert("apiVersion", Value::String(NEW_VERSION));
    whole.insert("spec", object(&converted, arena));
    let (errors, undeclared) = converter.schemas.finish();
    if arena.is_full() {
        return Err(vec![FieldError::internal(&path, "the CRD is too large")]);
    }
    if errors.is_empty() {
        Ok(Converted { crd: object(&whole, arena), undeclared, unknown })
    } else {
        Err(errors)
    }
}

/// Moves the fields of a conversion webhook. The review version has a default in `v1beta1` only.
fn conversion_of<'a>(conversion: Value<'a>, arena: &'a Arena) -> Value<'a> {
    let mut conversion = fields(conversion);
    let mut webhook = FieldValues::new();
    let is_webhook = conversion.get("strategy").and_then(Value::as_str) == Some("Webhook");
    if let Some(client) = conversion.remove("webhookClientConfig") {
        webhook.insert("clientConfig", client);
    }
    match conversion.remove("conversionReviewVersions") {
        Some(versions) if versions.list_len() != Some(0) => {
            webhook.insert("conversionReviewVersions", versions);
        }
        _ if is_webhook => {
            let versions = Value::List(arena.slice(&[Value::String("v1beta1")]));
            webhook.insert("conversionReviewVersions", versions);
        }
        _ => {}
    }
    if !webhook.is_empty() {
        conversion.insert("webhook", object(&webhook, arena));
    }
    object(&conversion, arena)
}

struct Converter<'c, 'a> {
    spec: &'c FieldValues<'a>,
    path: &'c Path,
    samples: &'c [Value<'a>],
    arena: &'a Arena,
    schemas: SchemaWriter<'a>,
}

impl<'a> Converter<'_, 'a> {
    fn versions(&mut self) -> Vec<Value<'a>> {
        let path = self.path.child("versions");
        let versions: Vec<Value<'a>> = match (self.spec.get("versions"), self.spec.get("version")) {
            (Some(versions), _) if versions.list_len().is_some_and(|len| len > 0) => {
                versions.elements().collect()
            }
            (None | Some(Value::List(_)), Some(name @ Value::String(_))) => {
                let served = [("name", *name), ("served", Value::Bool(true)), ("storage", Value::Bool(true))];
                vec![self.arena.object(&served)]
            }
            (Some(Value::List(_)) | None, _) => {
                self.schemas.error(FieldError::required(&path, ""));
                Vec::new()
            }
            _ => {
                self.schemas.error(FieldError::wrong_type(&path, "a list"));
                Vec::new()
            }
        };
        let versions = versions.into_iter().enumerate();
        versions.map(|(index, version)| self.version(version, &path.index(index))).collect()
    }

    /// Converts a version. The fields of the specification that became fields of versions are the same in all of them.
    fn version(&mut self, version: Value<'a>, path: &Path) -> Value<'a> {
        let mut version = fields(version);
        let schema = self.moved(&mut version, "validation", "schema", path);
        let (schema, path) = schema.unwrap_or_else(|| (Value::Null, path.child("schema")));
        let name = version.get("name").and_then(Value::as_str).unwrap_or_default();
        let samples = self.samples_of(name);
        let schema = schema.field("openAPIV3Schema").unwrap_or_default();
        let schema = self.schemas.root(schema, &path.child("openAPIV3Schema"), &samples);
        version.insert("schema", self.arena.object(&[("openAPIV3Schema", schema)]));
        for name in ["subresources", "additionalPrinterColumns"] {
            if let Some((value, _)) = self.moved(&mut version, name, name, &path.parent()) {
                version.insert(name, if name == "subresources" { value } else { self.columns(value) });
            }
        }
        object(&version, self.arena)
    }

    /// Removes a field of a version and returns it, or that of the specification in its place. `v1beta1` refuses both.
    fn moved(
        &mut self,
        version: &mut FieldValues<'a>,
        common: &str,
        own: &str,
        path: &Path,
    ) -> Option<(Value<'a>, Path)> {
        let own_value = version.remove(own).map(|value| (value, path.child(own)));
        let common_path = self.path.child(common);
        match (self.spec.get(common), own_value) {
            (None, own) => own,
            (Some(value), None) => Some((*value, common_path)),
            (Some(_), Some(_)) => {
                let detail = format!("the versions have {own} as well, and no API server accepts both");
                self.schemas.error(FieldError::forbidden(&common_path, &detail));
                None
            }
        }
    }

    /// Renames the field `JSONPath` of printer columns.
    fn columns(&self, columns: Value<'a>) -> Value<'a> {
        let renamed = columns.elements().map(|column| {
            let mut column = fields(column);
            if let Some(path) = column.remove("JSONPath") {
                column.insert("jsonPath", path);
            }
            object(&column, self.arena)
        });
        Value::List(self.arena.slice(&renamed.collect::<Vec<_>>()))
    }

    /// The samples of a version.
    fn samples_of(&self, version: &str) -> Vec<Value<'a>> {
        let text = |value: Option<&Value<'a>>| value.and_then(Value::as_str).unwrap_or_default();
        let api_version = format!("{}/{version}", text(self.spec.get("group")));
        let kind = self.spec.get("names").and_then(|names| names.field("kind"));
        let has =
            |sample: &Value<'a>, field: &str, wanted: &str| text(sample.field(field).as_ref()) == wanted;
        let is_of = |sample: &&Value<'a>| {
            has(sample, "apiVersion", &api_version) && has(sample, "kind", text(kind.as_ref()))
        };
        self.samples.iter().filter(is_of).copied().collect()
    }
}
