//! Writes the schemas of a CRD of `v1beta1` as structural schemas.
//!
//! A schema of `v1beta1` keeps unknown fields by default and needs no types. Its structural form
//!
//! - has `type: object` at the root, where no other value is possible,
//! - has `x-kubernetes-preserve-unknown-fields` where unknown fields are possible,
//! - has no type where the schema has none: any value stays valid, and `nullable` keeps null,
//! - declares the fields that only `allOf` and its like name, with any value.
//!
//! With samples, the fields of the samples are declared instead, and a part that no sample has stays as it is. Whatever is not
//! structural in the end is an error with the API server's text.

use std::collections::BTreeMap;

use crate::field::{FieldError, Path};
use crate::schema::{Schema, structural};
use crate::value::{Arena, Value};

const PRESERVE: &str = "x-kubernetes-preserve-unknown-fields";
const INT_OR_STRING: &str = "x-kubernetes-int-or-string";
const TYPES: [&str; 6] = ["array", "boolean", "integer", "number", "object", "string"];
const JUNCTORS: [&str; 4] = ["allOf", "anyOf", "oneOf", "not"];
/// Levels of values that samples declare. The schemas that are read have as many.
const MAX_DEPTH: usize = 200;

/// A field of objects that a schema requires and does not declare.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Undeclared {
    /// The field.
    pub path: Path,
    /// Whether the API server keeps the field. Otherwise it removes the field, and refuses every object.
    pub is_kept: bool,
}

/// The fields of an object that is changed.
pub(super) type FieldValues<'a> = BTreeMap<&'a str, Value<'a>>;

/// The fields of an object that are not null.
pub(super) fn fields(object: Value<'_>) -> FieldValues<'_> {
    let Value::Object(entries) = object else { return FieldValues::new() };
    entries.iter().copied().filter(|(_, value)| !matches!(value, Value::Null)).collect()
}

/// The object with these fields.
pub(super) fn object<'a>(fields: &FieldValues<'a>, arena: &'a Arena) -> Value<'a> {
    arena.object(&fields.iter().map(|(name, value)| (*name, *value)).collect::<Vec<_>>())
}

/// The knowledge of the API server about a value without its schema.
#[derive(Clone, Copy, PartialEq, Eq)]
enum ImplicitType {
    /// The whole object.
    Root,
    /// The metadata of the whole object.
    Metadata,
    /// A text: `apiVersion`, `kind`, a name.
    Text,
    Nothing,
}

/// A schema that is written: its path in the CRD, and the path of the values in objects.
struct SchemaNode<'n, 'a> {
    known: ImplicitType,
    path: &'n Path,
    values: &'n Path,
    /// The values in the samples.
    samples: &'n [Value<'a>],
    depth: usize,
}

impl SchemaNode<'_, '_> {
    /// Whether every object has a field without declaration.
    fn is_implicit(&self, name: &str) -> bool {
        self.known == ImplicitType::Root && matches!(name, "apiVersion" | "kind" | "metadata")
    }
}

/// Writes the schemas of a CRD and collects errors.
pub(super) struct SchemaWriter<'a> {
    arena: &'a Arena,
    /// Whether the CRD keeps unknown fields.
    keeps: bool,
    errors: Vec<FieldError>,
    undeclared: Vec<Undeclared>,
}

impl<'a> SchemaWriter<'a> {
    pub(super) fn new(arena: &'a Arena, keeps: bool) -> Self {
        Self { arena, keeps, errors: Vec::new(), undeclared: Vec::new() }
    }

    pub(super) fn error(&mut self, error: FieldError) {
        if !self.errors.contains(&error) {
            self.errors.push(error);
        }
    }

    /// The errors, and the fields that are required and not declared.
    pub(super) fn finish(mut self) -> (Vec<FieldError>, Vec<Undeclared>) {
        self.undeclared.sort();
        self.undeclared.dedup();
        (self.errors, self.undeclared)
    }

    /// Writes the schema of whole objects.
    pub(super) fn root(&mut self, schema: Value<'a>, path: &Path, samples: &[Value<'a>]) -> Value<'a> {
        if matches!(schema, Value::Null) && !self.keeps {
            self.error(FieldError::required(path, "without a schema, all fields would be removed"));
            return Value::Null;
        }
        if let Err(errors) = Schema::parse(schema, path) {
            for error in errors {
                self.error(error);
            }
            return Value::Null;
        }
        let node =
            SchemaNode { known: ImplicitType::Root, path, values: &Path::default(), samples, depth: 0 };
        let written = self.node(schema, &node);
        match Schema::parse(written, path) {
            Ok(schema) => structural::check(&schema, path).into_iter().for_each(|error| self.error(error)),
            Err(errors) => errors.into_iter().for_each(|error| self.error(error)),
        }
        written
    }

    fn node(&mut self, schema: Value<'a>, node: &SchemaNode<'_, 'a>) -> Value<'a> {
        let mut own = fields(schema);
        if node.depth > MAX_DEPTH {
            return object(&any(), self.arena);
        }
        self.check(&own, node.path);
        if self.keeps {
            self.settle(&mut own);
        }
        match node.known {
            ImplicitType::Root => {
                own.remove("nullable");
                own.entry("type").or_insert(Value::String("object"));
            }
            ImplicitType::Metadata => return self.metadata(own, node),
            ImplicitType::Text => {
                own.entry("type").or_insert(Value::String("string"));
            }
            ImplicitType::Nothing => self.infer_type(&mut own, node.samples),
        }
        self.properties(&mut own, node);
        self.elements(&mut own, node);
        self.additional(&mut own, node);
        if is_flag(&own, "nullable", false) {
            own.remove("nullable");
        }
        object(&own, self.arena)
    }

    /// Reports what no API server accepted in `v1beta1`.
    fn check(&mut self, own: &FieldValues<'a>, path: &Path) {
        if let Some(name) = type_of(own).filter(|name| !TYPES.contains(name)) {
            self.error(FieldError::not_supported(&path.child("type"), name, &TYPES));
        }
        if is_flag(own, "uniqueItems", true) {
            let detail = "uniqueItems cannot be set to true since the runtime complexity becomes quadratic";
            self.error(FieldError::forbidden(&path.child("uniqueItems"), detail));
        }
        if self.keeps && own.contains_key("default") {
            let detail = "defaults need spec.preserveUnknownFields: false";
            self.error(FieldError::forbidden(&path.child("default"), detail));
        }
    }

    /// Sets the type of a schema without one, if the samples have one. Without a type, any value stays valid.
    fn infer_type(&self, own: &mut FieldValues<'a>, samples: &[Value<'a>]) {
        if type_of(own).is_some() || is_flag(own, INT_OR_STRING, true) || is_flag(own, PRESERVE, true) {
            return;
        }
        let seen = |is: fn(&Value<'a>) -> bool| samples.iter().any(is);
        let kinds = [
            (seen(Value::is_list), "array"),
            (seen(|value| matches!(value, Value::Bool(_))), "boolean"),
            (seen(|value| matches!(value, Value::Double(_))), "number"),
            (seen(|value| matches!(value, Value::Int(_))), "integer"),
            (seen(|value| matches!(value, Value::Object(_))), "object"),
            (seen(|value| matches!(value, Value::String(_))), "string"),
        ];
        let found: Vec<&str> = kinds.iter().filter(|(is_seen, _)| *is_seen).map(|(_, name)| *name).collect();
        match found.as_slice() {
            [name] | [name @ "number", "integer"] => {
                own.insert("type", Value::String(name));
            }
            ["integer", "string"] => {
                own.insert(INT_OR_STRING, Value::Bool(true));
            }
            _ if self.keeps || own.is_empty() => own.extend(any()),
            _ => {}
        }
        if seen(|value| matches!(value, Value::Null)) {
            own.insert("nullable", Value::Bool(true));
        }
    }

    /// Writes the metadata of whole objects. Only names can have a schema, and descriptions change nothing.
    fn metadata(&mut self, mut own: FieldValues<'a>, node: &SchemaNode<'_, 'a>) -> Value<'a> {
        own.entry("type").or_insert(Value::String("object"));
        for name in ["description", "title", "nullable"] {
            own.remove(name);
        }
        if is_flag(&own, "additionalProperties", true) {
            own.remove("additionalProperties");
        }
        let node = SchemaNode { known: ImplicitType::Text, samples: &[], ..*node };
        self.declared(&mut own, &node, |_| ImplicitType::Text);
        object(&own, self.arena)
    }

    /// Writes the declared properties. `known` says what the API server knows of each.
    fn declared(
        &mut self,
        own: &mut FieldValues<'a>,
        node: &SchemaNode<'_, 'a>,
        known: impl Fn(&str) -> ImplicitType,
    ) {
        let Some(declared) = own.get("properties").copied() else { return };
        let path = node.path.child("properties");
        let written: FieldValues<'a> = fields(declared)
            .into_iter()
            .map(|(name, schema)| {
                let samples: Vec<_> = node.samples.iter().filter_map(|sample| sample.field(name)).collect();
                let below = SchemaNode {
                    known: known(name),
                    path: &path.key(name),
                    values: &node.values.child(name),
                    samples: &samples,
                    depth: node.depth + 1,
                };
                (name, self.node(schema, &below))
            })
            .collect();
        own.insert("properties", object(&written, self.arena));
    }

    /// Writes the properties, and declares those of samples.
    fn properties(&mut self, own: &mut FieldValues<'a>, node: &SchemaNode<'_, 'a>) {
        let mut declared = own.get("properties").copied().map(fields).unwrap_or_default();
        if is_object(own) && !own.contains_key("additionalProperties") {
            let seen = node.samples.iter().flat_map(entries).map(|(name, _)| *name);
            for name in seen.filter(|name| !node.is_implicit(name)) {
                declared.entry(name).or_insert(Value::Object(&[]));
            }
        }
        if !declared.is_empty() {
            own.insert("properties", object(&declared, self.arena));
        }
        self.declared(own, node, |name| match name {
            "metadata" if node.is_implicit(name) => ImplicitType::Metadata,
            _ if node.is_implicit(name) => ImplicitType::Text,
            _ => ImplicitType::Nothing,
        });
    }

    /// Writes the schema of the elements of a list.
    fn elements(&mut self, own: &mut FieldValues<'a>, node: &SchemaNode<'_, 'a>) {
        let is_list = type_of(own) == Some("array");
        let Some(items) = own.get("items").copied().or(is_list.then_some(Value::Object(&[]))) else { return };
        let samples: Vec<Value<'a>> = node.samples.iter().flat_map(Value::elements).collect();
        let below = SchemaNode {
            known: ImplicitType::Nothing,
            path: &node.path.child("items"),
            values: &node.values.key("*"),
            samples: &samples,
            depth: node.depth + 1,
        };
        own.insert("items", self.node(items, &below));
    }

    /// Writes the schema of other fields, or keeps them.
    fn additional(&mut self, own: &mut FieldValues<'a>, node: &SchemaNode<'_, 'a>) {
        if let Some(schema @ Value::Object(_)) = own.get("additionalProperties").copied() {
            let declared = own.get("properties").copied().map(fields).unwrap_or_default();
            let others = node.samples.iter().flat_map(entries);
            let samples: Vec<_> =
                others.filter(|(name, _)| !declared.contains_key(name)).map(|(_, value)| *value).collect();
            let below = SchemaNode {
                known: ImplicitType::Nothing,
                path: &node.path.child("additionalProperties"),
                values: &node.values.key("*"),
                samples: &samples,
                depth: node.depth + 1,
            };
            own.insert("additionalProperties", self.node(schema, &below));
            return;
        }
        let is_open = is_flag(own, "additionalProperties", true);
        if is_open && self.keeps {
            // In `v1`, the fields of objects below `additionalProperties: true` are removed.
            own.remove("additionalProperties");
        }
        let is_seen = node.samples.iter().any(|sample| matches!(sample, Value::Object(_)));
        let is_declared = is_seen && own.contains_key("properties") && !is_open;
        if own.contains_key("additionalProperties") || !(is_object(own) || is_flag(own, PRESERVE, true)) {
            return;
        }
        if self.keeps && !is_declared {
            own.insert(PRESERVE, Value::Bool(true));
        }
        let is_kept = is_flag(own, PRESERVE, true);
        let declared = own.get("properties").copied().map(fields).unwrap_or_default();
        for name in own.get("required").into_iter().flat_map(Value::elements) {
            let name = name.as_str().filter(|name| !node.is_implicit(name) && !declared.contains_key(name));
            self.undeclared.extend(name.map(|name| Undeclared { path: node.values.child(name), is_kept }));
        }
    }

    /// Writes `allOf` and its like with value validations only, and declares outside of them what they name.
    fn settle(&mut self, own: &mut FieldValues<'a>) {
        if type_of(own).is_none() {
            settle_int_or_string(own);
        }
        let clauses = take_junctors(own);
        if is_flag(own, INT_OR_STRING, true) {
            own.extend(clauses);
        } else {
            let settled = self.junctors(clauses, own, true);
            own.extend(settled);
        }
    }

    /// Writes clauses for values with the fields of `outer`. `is_certain` says that they hold for every valid value.
    fn junctors(
        &self,
        clauses: Vec<(&'a str, Value<'a>)>,
        outer: &mut FieldValues<'a>,
        is_certain: bool,
    ) -> Vec<(&'a str, Value<'a>)> {
        let mut settled = Vec::new();
        for (name, value) in clauses {
            if name == "not" {
                settled.push((name, self.clause(value, outer, false, false)));
                continue;
            }
            let list: Vec<Value<'a>> = value.elements().collect();
            // If all clauses have the same type, every valid value has it.
            if let [first, rest @ ..] = list.as_slice()
                && is_certain
                && let Some(common) = type_of(&fields(*first))
                && rest.iter().all(|clause| type_of(&fields(*clause)) == Some(common))
                && type_of(outer).is_none()
            {
                set_type(outer, common, true);
            }
            let is_certain = is_certain && (name == "allOf" || list.len() == 1);
            let list: Vec<_> =
                list.into_iter().map(|clause| self.clause(clause, outer, is_certain, false)).collect();
            settled.push((name, Value::List(self.arena.slice(&list))));
        }
        settled
    }

    /// Writes one clause. Fields that have no place in a clause are removed if they change no verdict. The others are errors later.
    ///
    /// The API server applies `allOf` and its like to no null. It applies the schema of a field to a null, so `of_field` tells them
    /// apart.
    fn clause(
        &self,
        clause: Value<'a>,
        outer: &mut FieldValues<'a>,
        is_certain: bool,
        of_field: bool,
    ) -> Value<'a> {
        let mut own = fields(clause);
        own.remove("description");
        own.remove("title");
        let allows_null = !of_field || is_flag(&own, "nullable", true);
        if let Some(name) = type_of(&own) {
            match type_of(outer) {
                Some(outer_name)
                    if outer_name == name && (allows_null || !is_flag(outer, "nullable", true)) =>
                {
                    own.remove("type");
                }
                None if is_certain => {
                    set_type(outer, name, allows_null);
                    own.remove("type");
                }
                _ => {}
            }
        }
        if type_of(&own).is_none() {
            own.remove("nullable");
        }
        if is_flag(&own, "additionalProperties", true) {
            own.remove("additionalProperties");
        }
        if let Some(named @ Value::Object(_)) = own.get("properties").copied()
            && !matches!(outer.get("additionalProperties"), Some(Value::Object(_) | Value::Bool(false)))
        {
            let mut declared = outer.get("properties").copied().map(fields).unwrap_or_default();
            let mut written = FieldValues::new();
            for (name, schema) in fields(named) {
                let mut property = declared.get(name).copied().map(fields).unwrap_or_default();
                written.insert(name, self.clause(schema, &mut property, is_certain, true));
                declared.insert(name, object(&property, self.arena));
            }
            own.insert("properties", object(&written, self.arena));
            outer.insert("properties", object(&declared, self.arena));
        }
        if let Some(items @ Value::Object(_)) = own.get("items").copied() {
            let mut element = outer.get("items").copied().map(fields).unwrap_or_default();
            own.insert("items", self.clause(items, &mut element, is_certain, true));
            outer.insert("items", object(&element, self.arena));
        }
        let clauses = take_junctors(&mut own);
        let settled = self.junctors(clauses, outer, is_certain);
        own.extend(settled);
        object(&own, self.arena)
    }
}

/// The fields of a sample, null included.
fn entries<'a>(sample: &Value<'a>) -> &'a [(&'a str, Value<'a>)] {
    if let Value::Object(entries) = sample { entries } else { &[] }
}

/// Removes `allOf` and its like from a schema.
fn take_junctors<'a>(own: &mut FieldValues<'a>) -> Vec<(&'a str, Value<'a>)> {
    JUNCTORS.into_iter().filter_map(|name| Some((name, own.remove(name)?))).collect()
}

fn type_of<'a>(own: &FieldValues<'a>) -> Option<&'a str> {
    own.get("type").and_then(Value::as_str).filter(|name| !name.is_empty())
}

fn is_object(own: &FieldValues<'_>) -> bool {
    type_of(own) == Some("object")
}

fn is_flag(own: &FieldValues<'_>, name: &str, value: bool) -> bool {
    own.get(name).and_then(Value::as_bool) == Some(value)
}

/// Sets the type of a schema without one.
fn set_type<'a>(own: &mut FieldValues<'a>, name: &'a str, allows_null: bool) {
    own.insert("type", Value::String(name));
    if allows_null {
        own.insert("nullable", Value::Bool(true));
    }
}

/// A schema for any value, null included.
fn any<'a>() -> FieldValues<'a> {
    FieldValues::from([("nullable", Value::Bool(true)), (PRESERVE, Value::Bool(true))])
}

/// Writes `anyOf` or `oneOf` of an integer and a string as a type.
fn settle_int_or_string(own: &mut FieldValues<'_>) {
    for name in ["anyOf", "oneOf"] {
        let clauses: Vec<FieldValues<'_>> =
            own.get(name).into_iter().flat_map(Value::elements).map(fields).collect();
        let mut types: Vec<&str> =
            clauses.iter().filter(|clause| clause.len() == 1).filter_map(type_of).collect();
        types.sort_unstable();
        if clauses.len() == 2 && types == ["integer", "string"] {
            own.remove(name);
            own.insert(INT_OR_STRING, Value::Bool(true));
            own.insert("nullable", Value::Bool(true));
            return;
        }
    }
}
