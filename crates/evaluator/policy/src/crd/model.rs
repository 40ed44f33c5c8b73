//! A CRD as data.
//!
//! The fields are those that decide about objects of the CRD. The module `admit` checks whether the API server accepts the CRD itself.

use std::sync::Arc;

use super::{embedded, rules};
use crate::field::{FieldError, Path};
use crate::schema::{Schema, structural};
use crate::value::Value;

/// The older API version of CRDs. Its scope has a default, and it keeps unknown fields.
const V1BETA1: &str = "apiextensions.k8s.io/v1beta1";

/// A CRD.
#[derive(Clone, Debug)]
#[allow(clippy::struct_excessive_bools, reason = "fields of a CRD")]
pub struct Crd {
    /// The API group.
    pub group: String,
    /// The kind of its objects.
    pub kind: String,
    /// The resource in paths and rules.
    pub plural: String,
    /// Whether its objects are in namespaces.
    pub namespaced: bool,
    /// Whether the CRD has the version `v1beta1`, which Kubernetes 1.22 removed.
    pub is_v1beta1: bool,
    /// Whether a webhook converts objects between versions. Otherwise the API server replaces `apiVersion`.
    pub is_converted_by_webhook: bool,
    /// The versions, which can be served or not.
    pub versions: Vec<Arc<Version>>,
}

/// A version of a CRD.
#[derive(Debug)]
#[allow(clippy::struct_excessive_bools, reason = "fields of a CRD")]
pub struct Version {
    /// Its name, such as `v1`.
    pub name: String,
    /// Whether the API server serves it.
    pub served: bool,
    /// Whether objects are stored in it.
    pub storage: bool,
    /// The schema. Without one, all fields are valid.
    pub schema: Option<Schema>,
    /// The path of the schema in the CRD.
    pub(super) schema_path: Path,
    /// The reasons why the schema is not structural.
    pub not_structural: Vec<FieldError>,
    /// Whether unknown fields are kept although the schema is structural.
    pub keeps_unknown_fields: bool,
    /// Whether objects can contain other objects.
    pub(super) has_embedded: bool,
    /// Whether the schema has `x-kubernetes-validations`.
    pub(super) has_rules: bool,
    pub(super) rules: rules::RulesCache,
    /// Whether it has the subresource `status`.
    pub has_status: bool,
    /// The subresource `scale`.
    pub scale: Option<Scale>,
}

/// The paths of the subresource `scale`, such as `.spec.replicas`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Scale {
    /// The wanted replicas.
    pub spec_replicas: String,
    /// The present replicas.
    pub status_replicas: String,
    /// The label selector of the pods.
    pub label_selector: Option<String>,
}

impl Crd {
    /// Reads a CRD. Returns all errors of the fields that it needs.
    pub fn read(crd: Value<'_>) -> Result<Self, Vec<FieldError>> {
        let mut errors = Vec::new();
        let spec = CrdFields { value: crd.field("spec").unwrap_or_default(), path: Path::new("spec") };
        let is_v1beta1 = crd.field("apiVersion").and_then(|version| version.as_str()) == Some(V1BETA1);
        let names = spec.child("names");
        let group = spec.text("group", &mut errors).to_owned();
        let kind = names.text("kind", &mut errors).to_owned();
        let plural = names.text("plural", &mut errors).to_owned();
        let scope = match spec.value.field("scope") {
            None if is_v1beta1 => "Namespaced",
            _ => spec.text("scope", &mut errors),
        };
        let namespaced = match scope {
            "Cluster" => false,
            // The error is reported already if it is empty.
            "Namespaced" | "" => true,
            other => {
                let path = spec.path.child("scope");
                errors.push(FieldError::not_supported(&path, other, &["Cluster", "Namespaced"]));
                true
            }
        };
        let keeps_unknown_fields = match spec.value.field("preserveUnknownFields") {
            Some(Value::Bool(keeps)) => keeps,
            _ => is_v1beta1,
        };
        let strategy = spec.child("conversion").value.field("strategy");
        let is_converted_by_webhook = !matches!(strategy, None | Some(Value::Null | Value::String("None")));
        let versions = spec.versions(keeps_unknown_fields, &mut errors);
        if errors.is_empty() {
            Ok(Self { group, kind, plural, namespaced, is_v1beta1, is_converted_by_webhook, versions })
        } else {
            Err(errors)
        }
    }

    /// Returns the version of this name.
    pub fn version(&self, name: &str) -> Option<&Arc<Version>> {
        self.versions.iter().find(|version| version.name == name)
    }

    /// Returns the version of this name, if it is served.
    pub fn served(&self, name: &str) -> Option<&Arc<Version>> {
        self.version(name).filter(|version| version.served)
    }

    /// Returns the version in which objects are stored.
    pub fn stored(&self) -> Option<&Arc<Version>> {
        self.versions.iter().find(|version| version.storage)
    }
}

/// The fields of an object, with its path for errors.
struct CrdFields<'a> {
    value: Value<'a>,
    path: Path,
}

impl<'a> CrdFields<'a> {
    fn child(&self, field: &str) -> Self {
        Self { value: self.value.field(field).unwrap_or_default(), path: self.path.child(field) }
    }

    fn text(&self, field: &str, errors: &mut Vec<FieldError>) -> &'a str {
        match self.value.field(field) {
            Some(Value::String(text)) if !text.is_empty() => text,
            None | Some(Value::Null | Value::String(_)) => {
                errors.push(FieldError::required(&self.path.child(field), ""));
                ""
            }
            Some(_) => {
                errors.push(FieldError::wrong_type(&self.path.child(field), "a string"));
                ""
            }
        }
    }

    fn has(&self, field: &str) -> bool {
        self.value.field(field).is_some_and(|value| !matches!(value, Value::Null))
    }

    /// Returns the versions: `versions`, or `version` of v1beta1. Subresources and schema of v1beta1 can be those of the CRD.
    fn versions(&self, keeps_unknown_fields: bool, errors: &mut Vec<FieldError>) -> Vec<Arc<Version>> {
        let versions = self.child("versions");
        let read = |own: &Self, name: &str, errors: &mut Vec<FieldError>| {
            let schema_of = |fields: &Self, field: &str| fields.child(field).child("openAPIV3Schema");
            let mut schema = schema_of(self, "validation");
            if !schema.is_present() {
                schema = schema_of(own, "schema");
            }
            let subresources = if self.has("subresources") { self } else { own }.child("subresources");
            let flag = |field: &str| own.value.field(field).and_then(|value| value.as_bool());
            let mut version = Version {
                name: name.to_owned(),
                served: flag("served").unwrap_or(true),
                storage: flag("storage").unwrap_or(true),
                schema: None,
                schema_path: schema.path.clone(),
                not_structural: Vec::new(),
                keeps_unknown_fields,
                has_embedded: false,
                has_rules: false,
                rules: rules::RulesCache::default(),
                has_status: subresources.has("status"),
                scale: subresources.has("scale").then(|| subresources.child("scale").scale()),
            };
            version.read_schema(&schema, errors);
            Arc::new(version)
        };
        match versions.value {
            Value::Null if self.value.field("version").is_some() => {
                let name = self.text("version", errors);
                vec![read(&CrdFields { value: Value::Null, path: versions.path }, name, errors)]
            }
            Value::List(items) if !items.is_empty() => {
                let items = items.iter().enumerate().map(|(index, item)| {
                    let own = CrdFields { value: *item, path: versions.path.index(index) };
                    let name = own.text("name", errors);
                    read(&own, name, errors)
                });
                items.collect()
            }
            Value::Null | Value::List(_) => {
                errors.push(FieldError::required(&versions.path, ""));
                Vec::new()
            }
            _ => {
                errors.push(FieldError::wrong_type(&versions.path, "a list"));
                Vec::new()
            }
        }
    }

    fn is_present(&self) -> bool {
        !matches!(self.value, Value::Null)
    }

    fn scale(&self) -> Scale {
        let text = |field: &str| self.value.field(field).and_then(|value| value.as_str()).map(str::to_owned);
        Scale {
            spec_replicas: text("specReplicasPath").unwrap_or_default(),
            status_replicas: text("statusReplicasPath").unwrap_or_default(),
            label_selector: text("labelSelectorPath"),
        }
    }
}

impl Version {
    /// Reads the schema, which `v1` requires.
    fn read_schema(&mut self, fields: &CrdFields<'_>, errors: &mut Vec<FieldError>) {
        if !fields.is_present() {
            if !self.keeps_unknown_fields {
                self.not_structural.push(FieldError::required(&fields.path, "schemas are required"));
            }
            return;
        }
        match Schema::parse(fields.value, &fields.path) {
            Ok(schema) => {
                self.not_structural = structural::check(&schema, &fields.path);
                self.has_embedded = embedded::has_embedded(&schema);
                self.has_rules = rules::has_rules(&schema);
                self.schema = Some(schema);
            }
            Err(found) => errors.extend(found),
        }
    }

    /// Returns the schema if it is structural. Most steps need such a schema.
    pub(crate) fn structural(&self) -> Option<&Schema> {
        self.schema.as_ref().filter(|_| self.not_structural.is_empty())
    }
}
