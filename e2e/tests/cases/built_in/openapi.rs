//! The OpenAPI v3 documents of an API server.

use std::collections::BTreeMap;

use e2e::prelude::*;

/// The schemas of a document.
pub(super) struct Schemas(Value);

/// Returns the documents of an API server by `apiVersion`. With `directory`, they are written there too.
pub(super) fn documents(api: &Api, directory: Option<&std::path::Path>) -> Result<BTreeMap<String, Schemas>> {
    let index = api.get("/openapi/v3")?.succeeded()?.body;
    let paths = index["paths"].as_object().context("no paths in /openapi/v3")?;
    let mut documents = BTreeMap::new();
    for (path, entry) in paths {
        let version = match path.strip_prefix("apis/") {
            Some(version) if version.contains('/') => version,
            None if path == "api/v1" => "v1",
            _ => continue,
        };
        let url = entry["serverRelativeURL"].as_str().with_context(|| format!("no URL of {path}"))?;
        let mut document = api.get(url)?.succeeded()?.body;
        if let Some(directory) = directory {
            let name = format!("{}.json", path.replace('/', "-"));
            e2e::context::write(directory, &name, &document.to_string())?;
        }
        documents.insert(version.to_owned(), Schemas(document["components"]["schemas"].take()));
    }
    ensure!(documents.len() > 20, "only {} documents", documents.len());
    Ok(documents)
}

/// Returns the name of a type in `types.txt`: `core/v1.PodSpec` for `io.k8s.api.core.v1.PodSpec`.
pub(super) fn short(name: &str) -> String {
    let parts: Vec<&str> = name.rsplitn(4, '.').collect();
    match parts[..] {
        [kind, version, group, _] => format!("{group}/{version}.{kind}"),
        _ => name.to_owned(),
    }
}

/// Types that decode their JSON themselves, by the end of their names, and a name of them.
const SPECIAL: [(&str, &str); 11] = [
    (".resource.Quantity", "quantity"),
    (".intstr.IntOrString", "intorstring"),
    (".meta.v1.Time", "time"),
    (".meta.v1.MicroTime", "microtime"),
    (".meta.v1.Duration", "duration"),
    (".meta.v1.FieldsV1", "any"),
    (".runtime.RawExtension", "any"),
    (".apiextensions.v1.JSON", "any"),
    (".JSONSchemaPropsOrBool", "schemaorbool"),
    (".JSONSchemaPropsOrArray", "schemaorlist"),
    (".JSONSchemaPropsOrStringArray", "schemaorstrings"),
];

fn special(name: &str) -> Option<&'static str> {
    SPECIAL.iter().find(|(end, _)| name.ends_with(end)).map(|(_, special)| *special)
}

/// Returns the target of a reference.
fn reference(schema: &Value) -> Option<&str> {
    let only = if schema["allOf"].is_array() { &schema["allOf"][0] } else { schema };
    only["$ref"].as_str()?.strip_prefix("#/components/schemas/")
}

impl Schemas {
    /// Returns the name of the schema of a kind.
    pub(super) fn of_kind(&self, api_version: &str, kind: &str) -> Option<&str> {
        let (group, version) = api_version.split_once('/').unwrap_or(("", api_version));
        let is_kind = |of: &Value| of["group"] == group && of["version"] == version && of["kind"] == kind;
        let schemas = self.0.as_object()?.iter();
        let has_kind = |schema: &Value| {
            schema["x-kubernetes-group-version-kind"].as_array().is_some_and(|of| of.iter().any(is_kind))
        };
        schemas.into_iter().find(|(_, schema)| has_kind(schema)).map(|(name, _)| name.as_str())
    }

    /// Returns the schema of a property.
    pub(super) fn property(&self, name: &str, field: &str) -> Option<&Value> {
        self.0[name]["properties"].get(field)
    }

    /// Returns the names of all properties.
    pub(super) fn properties(&self, name: &str) -> Vec<&str> {
        let properties = self.0[name]["properties"].as_object();
        properties.into_iter().flatten().map(|(name, _)| name.as_str()).collect()
    }

    pub(super) fn requires(&self, name: &str, field: &str) -> bool {
        self.0[name]["required"].as_array().is_some_and(|required| required.iter().any(|name| name == field))
    }

    /// Returns the values of the enum of a field, if there is a type of this short name.
    pub(super) fn values_of(&self, of: &str, field: &str) -> Option<Vec<&str>> {
        let name = self.0.as_object()?.keys().find(|name| short(name) == of)?;
        let schema = self.property(name, field)?;
        let values = if schema["enum"].is_array() { &schema["enum"] } else { &schema["items"]["enum"] };
        Some(values.as_array()?.iter().filter_map(Value::as_str).collect())
    }

    /// Returns whether a property is a text, a number or a list itself.
    pub(super) fn is_plain(schema: &Value) -> bool {
        reference(schema).is_none() && schema["format"] != "int-or-string"
    }

    /// Returns the name of the struct that a schema refers to.
    pub(super) fn struct_of(&self, schema: &Value) -> Option<&str> {
        let name = reference(schema).filter(|name| special(name).is_none())?;
        let (name, schema) = self.0.as_object()?.get_key_value(name)?;
        schema["properties"].is_object().then_some(name.as_str())
    }

    /// Returns the type of a schema in the words of `types.txt`, without pointers.
    pub(super) fn type_of(&self, schema: &Value) -> String {
        if let Some(name) = reference(schema) {
            return match special(name) {
                Some(special) => special.to_owned(),
                None if self.0[name]["properties"].is_object() => short(name),
                None => self.type_of(&self.0[name]),
            };
        }
        match (schema["type"].as_str(), schema["format"].as_str()) {
            (_, Some("int-or-string")) => "intorstring".to_owned(),
            (Some("string"), Some("byte")) => "bytes".to_owned(),
            (Some("string"), Some("date-time")) => "time".to_owned(),
            (Some("string"), _) => "string".to_owned(),
            (Some("boolean"), _) => "bool".to_owned(),
            (Some("integer"), Some("int32")) => "int32".to_owned(),
            (Some("integer"), _) => "int64".to_owned(),
            (Some("number"), _) => "float".to_owned(),
            (Some("array"), _) => format!("[]{}", self.type_of(&schema["items"])),
            (Some("object"), _) if schema["additionalProperties"].is_object() => {
                format!("{{}}{}", self.type_of(&schema["additionalProperties"]))
            }
            _ => "any".to_owned(),
        }
    }

    /// Returns a value that a schema does not have.
    pub(super) fn wrong_value(&self, schema: &Value) -> Option<Value> {
        Some(match self.type_of(schema).as_str() {
            "any" | "schemaorbool" | "schemaorlist" | "schemaorstrings" => return None,
            "string" | "bytes" | "time" | "microtime" | "duration" => 7.into(),
            "quantity" | "intorstring" => true.into(),
            _ => "wrong".into(),
        })
    }
}
