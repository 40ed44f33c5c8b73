//! Types from OpenAPI v3 documents, as an API server prints them at `/openapi/v3/api/v1`.
//!
//! OpenAPI lacks details of the Go types: which fields are pointers, and which empty values are left out. If the recorded types have
//! a field of the same type, its details are used. The documents have the recorded demands only as far as they agree: a field that
//! they require, and the values of their enums.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::fmt::Write as _;
use std::sync::LazyLock;

use super::table::{DEMANDS, TEXT, Types, demands, structs};
use crate::value::Value;

/// References that lead to a type that is not a struct. Documents of an API server have one.
const MAX_REFERENCES: usize = 32;

/// The type of schemas in CRDs.
const SCHEMA: &str = "io.k8s.apiextensions-apiserver.pkg.apis.apiextensions.v1.JSONSchemaProps";

/// Prefix of references.
const SCHEMAS: &str = "#/components/schemas/";

/// The fields of the recorded types and their demands.
static RECORDED: LazyLock<Recorded<'static>> = LazyLock::new(Recorded::read);

/// A document can't be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum OpenApiError {
    /// It is the list of documents.
    #[error("this is the list of OpenAPI documents, not one of them")]
    Index,
    /// It is OpenAPI v2.
    #[error("this is OpenAPI v2")]
    Old,
    /// It is something else.
    #[error("this is not an OpenAPI v3 document")]
    Other,
    /// It lacks a schema or has one that can't be read.
    #[error("the schema {name:?} {problem}")]
    Schema {
        /// Its name.
        name: String,
        /// The problem.
        problem: &'static str,
    },
}

/// Collects types from documents.
#[derive(Debug, Default)]
pub struct TypesBuilder {
    /// Lines of kinds, in the form of `types.txt`.
    kinds: BTreeSet<String>,
    /// Fields of structs, in the same form. The structs of several documents of a server are equal.
    structs: BTreeMap<String, String>,
    demands: String,
}

impl TypesBuilder {
    /// Adds the kinds of a document. Returns the version of Kubernetes, such as `v1.35.4`, or none if the document is one of another
    /// API server.
    pub fn add(&mut self, document: Value<'_>) -> Result<Option<String>, OpenApiError> {
        let text = |value: Value<'_>| value.as_str().unwrap_or_default().to_owned();
        let version = text(document.field("openapi").unwrap_or_default());
        if !version.starts_with("3.") {
            let is_index = document.field("paths").is_some() && document.field("openapi").is_none();
            return Err(match document.field("swagger") {
                Some(_) => OpenApiError::Old,
                None if is_index => OpenApiError::Index,
                None => OpenApiError::Other,
            });
        }
        let components = document.field("components").unwrap_or_default();
        let Some(Value::Object(entries)) = components.field("schemas") else {
            return Err(OpenApiError::Other);
        };
        let schemas = OpenApiSchemas { schemas: entries.iter().copied().collect() };
        for (name, schema) in entries {
            self.schema(name, *schema, &schemas, &RECORDED)?;
        }
        let info = document.field("info").unwrap_or_default();
        let part = |name: &str| text(info.field(name).unwrap_or_default());
        Ok((part("title") == "Kubernetes").then(|| part("version")))
    }

    /// Returns the types.
    pub fn finish(self) -> Types {
        let kinds = self.kinds.iter().map(String::as_str);
        let structs = self.structs.iter().map(|(name, fields)| format!("{name}{fields}"));
        let lines: Vec<String> = kinds.map(str::to_owned).chain(structs).collect();
        Types::read(&lines.join("\n"), &self.demands)
    }

    fn schema(
        &mut self,
        full_name: &str,
        schema: Value<'_>,
        schemas: &OpenApiSchemas<'_>,
        recorded: &Recorded<'_>,
    ) -> Result<(), OpenApiError> {
        let Some(properties) = properties(schema) else { return Ok(()) };
        let name = &*short(full_name);
        if self.structs.contains_key(name) {
            return Ok(());
        }
        let problem = |problem| OpenApiError::Schema { name: full_name.to_owned(), problem };
        if !is_plain(name) {
            return Err(problem("has a name with a space or another character that types don't have"));
        }
        let required: BTreeSet<&str> = texts(schema, "required").collect();
        let mut fields = String::new();
        for (field, schema) in properties {
            if !is_plain(field) {
                return Err(problem("has a field with a space or another character that fields don't have"));
            }
            let of = schemas.of(*schema, 0).map_err(|name| OpenApiError::Schema {
                name: name.to_owned(),
                problem: "is not in the document",
            })?;
            let token = recorded.fields.get(&(name, *field)).filter(|known| is_same(known, &of));
            if token.is_none() {
                let _ = writeln!(self.demands, "{name}\t{field}\tuntried");
            }
            let token = token.map_or_else(
                || new_field(field, &of, *schema, required.contains(field)),
                |known| (*known).to_owned(),
            );
            fields.push(' ');
            fields.push_str(&token);
            for [demand, content, text] in recorded.demands.get(&(name, *field)).into_iter().flatten() {
                let values = values(*schema).join(",");
                let (content, text) = match *demand {
                    "required" if required.contains(field) => (*content, ""),
                    "enum" if !values.is_empty() => (&*values, if values == *content { *text } else { "" }),
                    "untried" => ("", ""),
                    _ => continue,
                };
                let _ = writeln!(self.demands, "{name}\t{field}\t{demand}\t{content}\t{text}");
            }
        }
        self.structs.insert(name.to_owned(), fields);
        for kind in schema.field("x-kubernetes-group-version-kind").unwrap_or_default().elements() {
            let part = |name: &str| kind.field(name).and_then(|value| value.as_str()).unwrap_or_default();
            let parts = [part("group"), part("version"), part("kind")];
            // Types such as DeleteOptions list all groups.
            let is_kind = properties.iter().any(|(field, _)| *field == "metadata");
            if is_kind && parts.iter().all(|part| part.is_empty() || is_plain(part)) {
                self.kinds.insert(format!("@\t{}\t{name}", parts.join("\t")));
            }
        }
        Ok(())
    }
}

/// The recorded types as text.
struct Recorded<'t> {
    /// Fields by struct and name: `replicas?=*int32`.
    fields: HashMap<(&'t str, &'t str), &'t str>,
    /// Demands and their contents by struct and field.
    demands: HashMap<(&'t str, &'t str), Vec<[&'t str; 3]>>,
}

impl Recorded<'static> {
    fn read() -> Self {
        let (mut fields, mut known) = (HashMap::new(), HashMap::<_, Vec<_>>::new());
        for (name, tokens) in structs(TEXT) {
            for token in tokens {
                let field = token.split(['=', '?', '!']).next().unwrap_or_default();
                fields.insert((name, field), token);
            }
        }
        for [name, field, demand, content, text] in demands(DEMANDS) {
            known.entry((name, field)).or_default().push([demand, content, text]);
        }
        Self { fields, demands: known }
    }
}

/// The schemas of a document.
struct OpenApiSchemas<'a> {
    schemas: HashMap<&'a str, Value<'a>>,
}

impl<'a> OpenApiSchemas<'a> {
    /// Returns the type of a schema, or the name of a schema that the document lacks.
    fn of(&self, schema: Value<'a>, references: usize) -> Result<String, &'a str> {
        if let Some(reference) = reference(schema) {
            let name = reference.strip_prefix(SCHEMAS).unwrap_or(reference);
            match special(name) {
                // They contain the type of schemas.
                Some(of) if of.starts_with("schema") && !self.schemas.contains_key(SCHEMA) => {
                    return Err(SCHEMA);
                }
                Some(of) => return Ok(of.to_owned()),
                None => {}
            }
            let schema = *self.schemas.get(name).filter(|_| references < MAX_REFERENCES).ok_or(name)?;
            return match properties(schema) {
                Some(_) => Ok(short(name)),
                None => self.of(schema, references + 1),
            };
        }
        let text = |name: &str| schema.field(name).and_then(|value| value.as_str()).unwrap_or_default();
        let below = |name: &str| schema.field(name).filter(|value| matches!(value, Value::Object(_)));
        Ok(match (text("type"), text("format")) {
            (_, "int-or-string") => "intorstring".to_owned(),
            ("string", "byte") => "bytes".to_owned(),
            ("string", "date-time") => "time".to_owned(),
            ("string", _) => "string".to_owned(),
            ("boolean", _) => "bool".to_owned(),
            ("integer", "int32") => "int32".to_owned(),
            ("integer", _) => "int64".to_owned(),
            ("number", _) => "float".to_owned(),
            ("array", _) => match below("items") {
                Some(items) => format!("[]{}", self.of(items, references)?),
                None => "any".to_owned(),
            },
            ("object", _) => match below("additionalProperties") {
                Some(values) => format!("{{}}{}", self.of(values, references)?),
                None => "any".to_owned(),
            },
            _ => "any".to_owned(),
        })
    }
}

/// Returns the target of a reference. One with a default is in `allOf`.
fn reference(schema: Value<'_>) -> Option<&str> {
    let only = match schema.field("allOf") {
        Some(Value::List([only])) => *only,
        _ => schema,
    };
    only.field("$ref").and_then(|value| value.as_str())
}

/// Returns the properties of a struct.
fn properties(schema: Value<'_>) -> Option<&[(&str, Value<'_>)]> {
    match schema.field("properties") {
        Some(Value::Object(properties)) => Some(properties),
        _ => None,
    }
}

/// Returns types that decode their JSON themselves.
fn special(name: &str) -> Option<&'static str> {
    let name = name.strip_prefix("io.k8s.")?;
    Some(match name.rsplit_once(".pkg.").map_or(name, |(_, name)| name) {
        "api.resource.Quantity" => "quantity",
        "util.intstr.IntOrString" => "intorstring",
        "apis.meta.v1.Time" => "time",
        "apis.meta.v1.MicroTime" => "microtime",
        "apis.meta.v1.Duration" => "duration",
        "apis.meta.v1.FieldsV1" | "runtime.RawExtension" | "apis.apiextensions.v1.JSON" => "any",
        "apis.apiextensions.v1.JSONSchemaPropsOrBool" => "schemaorbool",
        "apis.apiextensions.v1.JSONSchemaPropsOrArray" => "schemaorlist",
        "apis.apiextensions.v1.JSONSchemaPropsOrStringArray" => "schemaorstrings",
        _ => return None,
    })
}

/// Returns the name of a struct as `types.txt` has it: `core/v1.PodSpec` for `io.k8s.api.core.v1.PodSpec`.
fn short(name: &str) -> String {
    let mut parts = name.rsplitn(4, '.');
    match (parts.next(), parts.next(), parts.next(), name.starts_with("io.k8s.")) {
        (Some(kind), Some(version), Some(group), true) => format!("{group}/{version}.{kind}"),
        _ => name.to_owned(),
    }
}

/// Returns whether a name can be written to a line of `types.txt`.
fn is_plain(name: &str) -> bool {
    let is_other = |symbol: char| symbol.is_whitespace() || symbol.is_control() || "=?!#@".contains(symbol);
    !name.is_empty() && !name.contains(is_other)
}

/// Returns whether a recorded field has this type, apart from pointers and the size of integers without a sign.
fn is_same(recorded: &str, of: &str) -> bool {
    let of_recorded = recorded.split_once('=').map_or("", |(_, of)| of).replace('*', "");
    of_recorded == of || (of_recorded.starts_with("uint") && matches!(of, "int32" | "int64"))
}

/// Returns a field that the recorded types don't have. OpenAPI gives a struct an empty object as default, unless it is a pointer. Other optional
/// fields count as pointers, so their values stay as they are.
fn new_field(name: &str, of: &str, schema: Value<'_>, is_required: bool) -> String {
    let is_struct = matches!(schema.field("default"), Some(Value::Object([])));
    match of {
        _ if is_required => format!("{name}={of}"),
        _ if is_struct || of.starts_with(['[', '{']) => format!("{name}?={of}"),
        _ => format!("{name}?=*{of}"),
    }
}

fn texts<'a>(schema: Value<'a>, name: &str) -> impl Iterator<Item = &'a str> {
    let texts = schema.field(name).unwrap_or_default();
    texts.elements().filter_map(|text| text.as_str())
}

/// Returns the values of an enum. For a list, they are those of its items. Returns none if a value can't be part of a line.
fn values(schema: Value<'_>) -> Vec<&str> {
    let of = if schema.field("enum").is_some() { schema } else { schema.field("items").unwrap_or_default() };
    let values: Vec<&str> = texts(of, "enum").collect();
    let is_strange = |value: &&str| value.contains(|symbol: char| symbol == ',' || symbol.is_control());
    if values.iter().any(is_strange) { Vec::new() } else { values }
}

#[cfg(test)]
mod tests;
