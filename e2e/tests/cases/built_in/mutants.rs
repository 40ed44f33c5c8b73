//! Objects that differ from an accepted one in one field: an absent field, a value outside of an enum, a field that the type does
//! not have, a value of another type.

use std::collections::{BTreeMap, BTreeSet};

use e2e::prelude::*;

use super::openapi::{Schemas, short};

/// Changes of the same field in all variants. Later occurrences of the field have fewer.
const COMPLETE: usize = 2;

/// The field that no type has.
const UNKNOWN: &str = "durwardUnknown";

/// The change of an object.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Change {
    /// A field that OpenAPI requires is absent or has an empty value.
    Required,
    /// A text is not in the enum.
    Enum,
    /// A field that the type does not have. It is the path.
    Unknown(String),
    /// A value of another type.
    Type,
}

/// An object with a change.
#[derive(Debug, Clone)]
pub(super) struct Mutant {
    pub(super) change: Change,
    /// Type and field.
    pub(super) field: (String, String),
    /// The path of the field.
    pub(super) path: String,
    /// The value of the field, or empty if it is absent.
    pub(super) value: String,
    pub(super) title: String,
    pub(super) object: Value,
}

/// The changes of all seeds.
#[derive(Debug, Default)]
pub(super) struct Mutants {
    pub(super) all: Vec<Mutant>,
    /// The fields with structs in the seeds: type and field.
    pub(super) entered: BTreeSet<(String, String)>,
}

/// Returns the changes of all seeds.
pub(super) fn of(seeds: &[Value], documents: &BTreeMap<String, Schemas>) -> Result<Mutants> {
    let mut mutants = Mutants::default();
    let mut seen = BTreeMap::new();
    for seed in seeds {
        let api_version = seed["apiVersion"].as_str().context("no apiVersion")?;
        let schemas = documents.get(api_version).with_context(|| format!("no document of {api_version}"))?;
        let kind = seed["kind"].as_str().context("no kind")?;
        let root = schemas.of_kind(api_version, kind).with_context(|| format!("no schema of {kind}"))?;
        let mut walker = Walker { schemas, seed, seen: &mut seen, mutants: &mut mutants };
        walker.object(root, seed, &Place::default(), true);
    }
    Ok(mutants)
}

/// A place in an object.
#[derive(Debug, Clone, Default)]
struct Place {
    /// As JSON pointer.
    pointer: String,
    /// As the API server prints it.
    path: String,
}

impl Place {
    fn field(&self, name: &str) -> Self {
        let dot = if self.path.is_empty() { "" } else { "." };
        let escaped = name.replace('~', "~0").replace('/', "~1");
        Self { pointer: format!("{}/{escaped}", self.pointer), path: format!("{}{dot}{name}", self.path) }
    }

    fn index(&self, index: usize) -> Self {
        Self { pointer: format!("{}/{index}", self.pointer), path: format!("{}[{index}]", self.path) }
    }
}

struct Walker<'w> {
    schemas: &'w Schemas,
    seed: &'w Value,
    /// Occurrences of each field and change in all seeds.
    seen: &'w mut BTreeMap<(String, String, &'static str), usize>,
    mutants: &'w mut Mutants,
}

impl Walker<'_> {
    /// `is_judged` says whether validation applies to the object.
    fn object(&mut self, name: &str, value: &Value, place: &Place, is_judged: bool) {
        let of = short(name);
        let Some(fields) = value.as_object() else { return };
        if self.count(&of, "", "unknown") == 0 {
            let path = place.field(UNKNOWN).path;
            self.push(Change::Unknown(path.clone()), (&of, UNKNOWN), place, path, "unknown", |object| {
                object[UNKNOWN] = 1.into();
            });
        }
        for (field, value) in fields {
            let Some(schema) = self.schemas.property(name, field) else { continue };
            let at = place.field(field);
            if is_judged && field != "metadata" && self.schemas.requires(name, field) {
                self.required((&of, field), schema, value, place);
            }
            if is_judged {
                self.enumeration((&of, field), schema, value, place);
            }
            // `check` needs these to name an object.
            let is_name = ["apiVersion", "kind", "metadata"].contains(&field.as_str())
                && place.path.is_empty()
                || ["name", "generateName", "namespace"].contains(&field.as_str())
                    && place.path == "metadata";
            let wrong = if is_name { None } else { self.schemas.wrong_value(schema) };
            if let Some(wrong) = wrong.filter(|_| self.count(&of, field, "type") == 0) {
                let what = wrong.to_string();
                self.push(Change::Type, (&of, field), place, at.path.clone(), &what, |object| {
                    object[field] = wrong.clone();
                });
            }
            let is_judged = is_judged && field != "metadata" && !(place.path.is_empty() && field == "status");
            self.below((&of, field), schema, value, &at, is_judged);
        }
    }

    fn below(
        &mut self,
        (of, field): (&str, &str),
        schema: &Value,
        value: &Value,
        at: &Place,
        is_judged: bool,
    ) {
        if let Some(name) = self.schemas.struct_of(schema) {
            self.mutants.entered.insert((of.to_owned(), field.to_owned()));
            self.object(name, value, at, is_judged);
            return;
        }
        match value {
            Value::Array(items) => {
                for (index, item) in items.iter().enumerate() {
                    self.below((of, field), &schema["items"], item, &at.index(index), is_judged);
                }
            }
            Value::Object(entries) => {
                for (key, item) in entries {
                    let schema = &schema["additionalProperties"];
                    self.below((of, field), schema, item, &at.field(key), is_judged);
                }
            }
            _ => {}
        }
    }

    fn required(&mut self, (of, field): (&str, &str), schema: &Value, value: &Value, place: &Place) {
        let is_complete = self.count(of, field, "required") < COMPLETE;
        let path = place.field(field).path;
        self.push(Change::Required, (of, field), place, path.clone(), "absent", |object| {
            if let Some(fields) = object.as_object_mut() {
                fields.remove(field);
            }
        });
        // An empty quantity or port decodes to something else than an absent one.
        let zero: Value = match value {
            _ if !is_complete || !Schemas::is_plain(schema) => return,
            Value::String(_) => "".into(),
            Value::Number(_) => 0.into(),
            Value::Array(_) => json!([]),
            _ => return,
        };
        let what = zero.to_string();
        self.push(Change::Required, (of, field), place, path, &what, |object| object[field] = zero.clone());
    }

    fn enumeration(&mut self, (of, field): (&str, &str), schema: &Value, value: &Value, place: &Place) {
        let at = place.field(field);
        let (known, first, at) = match value {
            Value::Array(items) => (&schema["items"]["enum"], items.first(), at.index(0)),
            value => (&schema["enum"], Some(value), at),
        };
        let (Some(known), Some(first)) = (known.as_array(), first.and_then(Value::as_str)) else { return };
        let is_complete = self.count(of, field, "enum") < COMPLETE;
        let own = [first.to_lowercase(), first.to_uppercase()];
        let own = own.into_iter().find(|text| !known.iter().any(|known| known == text.as_str()));
        let others = ["example.org/nonesuch".to_owned()].into_iter().chain(own).filter(|_| is_complete);
        for wrong in ["Nonesuch".to_owned()].into_iter().chain(others) {
            self.push(Change::Enum, (of, field), place, at.path.clone(), &wrong, |object| {
                let target = &mut object[field];
                let target = if target.is_array() { &mut target[0] } else { target };
                *target = wrong.clone().into();
            });
        }
    }

    /// Returns how often this was called with the same arguments.
    fn count(&mut self, of: &str, field: &str, change: &'static str) -> usize {
        let seen = self.seen.entry((of.to_owned(), field.to_owned(), change)).or_default();
        *seen += 1;
        *seen - 1
    }

    /// Adds a mutant. `change` gets the object that contains the field, at `place`.
    fn push(
        &mut self,
        change: Change,
        (of, field): (&str, &str),
        place: &Place,
        path: String,
        what: &str,
        apply: impl Fn(&mut Value),
    ) {
        let mut object = self.seed.clone();
        if let Some(target) = object.pointer_mut(&place.pointer) {
            apply(target);
        }
        let title = format!("{} {path}: {what}", self.seed["kind"].as_str().unwrap_or_default());
        let field = (of.to_owned(), field.to_owned());
        let value = what.to_owned();
        self.mutants.all.push(Mutant { change, field, path, value, title, object });
    }
}
