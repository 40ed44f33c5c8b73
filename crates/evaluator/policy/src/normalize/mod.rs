//! Objects of built-in kinds in the form that policies see.
//!
//! The API server decodes a built-in object into a Go type and encodes it again before policies see it. Struct fields then
//! appear as `{}`, so `has(container.resources)` is always true. Zero values of fields with `omitempty` disappear:
//! `hostNetwork: false` is absent. Quantities and times get their canonical form. This module does the same, from the Go
//! types of one release, or from OpenAPI documents of another one.
//!
//! It also finds fields without which the API server refuses an object, and values that are not in an enum. OpenAPI lists more of
//! both than validation demands, so only those count that a running API server refused (`demands.tsv`).
//!
//! It does not apply the API server's defaults, such as `restartPolicy: Always`. Up to 1.33, servers also add `creationTimestamp: null` to the metadata of templates.

mod convert;
pub mod openapi;
mod quantity;
mod scalars;
mod table;

use crate::field::{ErrorKind, FieldError, Path};
use crate::place::ValuePlace;
use crate::value::format::quote;
use crate::value::{Arena, Value};
use table::{Alternative, Demand, FieldType, Omit, StructField};

pub use table::{RECORDED, Types};

/// Characters of a wrong value that its error shows.
const MAX_SHOWN: usize = 64;

/// An object as the API server encodes it again.
#[derive(Clone, Debug, Default)]
pub struct Normalized<'a> {
    /// The object.
    pub object: Value<'a>,
    /// Fields that the type lacks, in the order of their names. The API server drops them, or refuses the object if field
    /// validation is strict.
    pub unknown: Vec<Path>,
    /// Fields that the API server demands, and values that it does not support. It finds them after decoding, with many others.
    pub invalid: Vec<FieldError>,
}

/// Returns the form of an object that policies see, or the errors for which the API server can't decode it. The types of the
/// built-in kinds are known. An object of another kind keeps all fields but those of its metadata.
pub fn normalize<'a>(
    kind: (&str, &str, &str),
    object: Value<'a>,
    arena: &'a Arena,
) -> Result<Normalized<'a>, Vec<FieldError>> {
    decode(Types::recorded(), kind, object, arena, Form { converts: true, ..Form::default() })
}

/// Returns this form with other types. If the object is stored, it is that of an object that the API server has read from its
/// storage, whose format has no empty lists and maps.
pub fn normalize_as<'a>(
    types: &'a Types,
    kind: (&str, &str, &str),
    object: Value<'a>,
    is_stored: bool,
    arena: &'a Arena,
) -> Result<Normalized<'a>, Vec<FieldError>> {
    decode(types, kind, object, arena, Form { converts: true, is_stored, ..Form::default() })
}

/// Returns this form of an object of a request with the empty lists and maps of schemas, from which the API server tells absent ones
/// when it checks a CRD.
pub fn with_empty<'a>(
    kind: (&str, &str, &str),
    object: Value<'a>,
    arena: &'a Arena,
) -> Result<Normalized<'a>, Vec<FieldError>> {
    let form = Form { converts: true, keeps_empty: true, ..Form::default() };
    decode(Types::recorded(), kind, object, arena, form)
}

/// Does the same without conversion to the API server's internal version and back.
pub fn round_trip<'a>(
    kind: (&str, &str, &str),
    object: Value<'a>,
    arena: &'a Arena,
) -> Result<Normalized<'a>, Vec<FieldError>> {
    decode(Types::recorded(), kind, object, arena, Form::default())
}

/// Metadata as the API server encodes it again.
pub(crate) struct EncodedMetadata<'a> {
    pub(crate) value: Value<'a>,
    /// Fields that metadata does not have.
    pub(crate) unknown: Vec<Path>,
}

/// Returns this form of the metadata of an embedded object, or the errors for which the API server can't decode it.
pub(crate) fn metadata<'a>(
    value: Value<'a>,
    path: &Path,
    arena: &'a Arena,
) -> Result<EncodedMetadata<'a>, Vec<FieldError>> {
    let form = Form { converts: true, ..Form::default() };
    let mut decoder = ObjectDecoder::new(Types::recorded(), arena, form, path);
    let value = decoder.metadata(value, &ValuePlace::root());
    let ObjectDecoder { unknown, errors, .. } = decoder;
    if errors.is_empty() { Ok(EncodedMetadata { value, unknown }) } else { Err(errors) }
}

fn decode<'a>(
    types: &'a Types,
    kind: (&str, &str, &str),
    object: Value<'a>,
    arena: &'a Arena,
    form: Form,
) -> Result<Normalized<'a>, Vec<FieldError>> {
    let base = Path::default();
    let mut decoder = ObjectDecoder::new(types, arena, form, &base);
    let object = match types.kind(kind) {
        Some(index) => decoder.fields(index, object, &ValuePlace::root()),
        None => decoder.metadata_of(object),
    };
    if decoder.errors.is_empty() {
        Ok(Normalized { object, unknown: decoder.unknown, invalid: decoder.invalid })
    } else {
        Err(decoder.errors)
    }
}

/// Steps besides decoding and encoding.
#[derive(Clone, Copy, Default)]
struct Form {
    /// Whether structs are converted to the internal version and back.
    converts: bool,
    /// Whether empty lists and maps have become null.
    is_stored: bool,
    /// Whether schemas keep empty lists and maps.
    keeps_empty: bool,
}

struct ObjectDecoder<'a, 'p> {
    types: &'a Types,
    arena: &'a Arena,
    /// The path of the value that is decoded, from which places start.
    base: &'p Path,
    unknown: Vec<Path>,
    errors: Vec<FieldError>,
    invalid: Vec<FieldError>,
    /// Whether demands count. They don't in zero values, which are not in the object, nor in metadata, which has its own rules in
    /// templates, nor in the status, which a create and an update drop, nor in fields below which nothing was tried.
    has_demands: bool,
    /// Whether a schema is decoded that has an alternative. Its unknown fields are not reported, as in the API server.
    in_schema: bool,
    form: Form,
}

impl<'a, 'p> ObjectDecoder<'a, 'p> {
    fn new(types: &'a Types, arena: &'a Arena, form: Form, base: &'p Path) -> Self {
        let (unknown, errors, invalid) = (Vec::new(), Vec::new(), Vec::new());
        Self { types, arena, base, unknown, errors, invalid, has_demands: true, in_schema: false, form }
    }

    /// Decodes and encodes a value.
    fn value(&mut self, of: &FieldType, value: Value<'a>, place: &ValuePlace<'_>) -> Value<'a> {
        if matches!(value, Value::Null) {
            return self.zero(of);
        }
        match of {
            FieldType::Any => value,
            FieldType::List(_) if self.form.is_stored && value.is_list() && value.is_zero() => Value::Null,
            FieldType::Map(_) if self.form.is_stored && matches!(value, Value::Object([])) => Value::Null,
            FieldType::Pointer(of) => self.value(of, value, place),
            FieldType::Struct(index) => self.fields(*index, value, place),
            FieldType::List(of) if value.is_list() => {
                let items: Vec<Value<'a>> = value
                    .elements()
                    .enumerate()
                    .map(|(index, item)| self.value(of, item, &place.index(index)))
                    .collect();
                Value::List(self.arena.slice(&items))
            }
            FieldType::Map(of) => {
                let Value::Object(entries) = value else { return self.wrong(place, "an object", value) };
                let entries: Vec<(&'a str, Value<'a>)> = entries
                    .iter()
                    .map(|(key, item)| (*key, self.value(of, *item, &place.property(key))))
                    .collect();
                Value::Object(self.arena.slice(&entries))
            }
            FieldType::List(_) => self.wrong(place, "a list", value),
            FieldType::SchemaOr(alternative, index) => self.schema_or(*alternative, *index, value, place),
            scalar => match scalars::encode(scalar, value, self.arena) {
                Ok(value) => value,
                Err(expected) => match (scalar, value) {
                    // The right value is a string too, so the error shows this one. Bytes can be secret.
                    (FieldType::Bytes, Value::String(_)) => self.wrong_text(place, &expected, "other text"),
                    (
                        FieldType::Quantity | FieldType::Time | FieldType::MicroTime | FieldType::Duration,
                        Value::String(text),
                    ) => {
                        let shown: String = text.chars().take(MAX_SHOWN).collect();
                        self.wrong_text(place, &expected, &quote(&shown))
                    }
                    _ => self.wrong(place, &expected, value),
                },
            },
        }
    }

    /// Decodes and encodes the metadata of an object of unknown type, and keeps its other fields.
    fn metadata_of(&mut self, object: Value<'a>) -> Value<'a> {
        let root = ValuePlace::root();
        let Value::Object(entries) = object else { return self.wrong(&root, "an object", object) };
        let entries: Vec<(&'a str, Value<'a>)> = entries
            .iter()
            .map(|(name, value)| match *name {
                "metadata" => (*name, self.metadata(*value, &root.property("metadata"))),
                _ => (*name, *value),
            })
            .collect();
        Value::Object(self.arena.slice(&entries))
    }

    fn metadata(&mut self, value: Value<'a>, place: &ValuePlace<'_>) -> Value<'a> {
        match self.types.metadata() {
            Some(index) => self.value(&FieldType::Struct(index), value, place),
            None => self.wrong(place, "metadata", value),
        }
    }

    fn wrong(&mut self, place: &ValuePlace<'_>, expected: &str, value: Value<'a>) -> Value<'a> {
        let found = match value {
            Value::Bool(_) => "a boolean",
            Value::Int(_) | Value::Double(_) => "a number",
            Value::String(_) => "a string",
            Value::List(_) => "a list",
            _ => "an object",
        };
        self.wrong_text(place, expected, found)
    }

    fn wrong_text(&mut self, place: &ValuePlace<'_>, expected: &str, found: &str) -> Value<'a> {
        self.errors
            .push(FieldError::wrong_type(&place.path(self.base), &format!("{expected}, found {found}")));
        Value::Null
    }

    /// Decodes and encodes the fields of a struct.
    fn fields(&mut self, index: usize, value: Value<'a>, place: &ValuePlace<'_>) -> Value<'a> {
        let Value::Object(entries) = value else { return self.wrong(place, "an object", value) };
        let mut given = entries.iter().peekable();
        let mut encoded = Vec::with_capacity(entries.len() + 2);
        let types = self.types;
        let keeps_empty = self.form.keeps_empty && types.name(index) == "apiextensions/v1.JSONSchemaProps";
        for field in types.fields(index) {
            let known = &*field.name;
            while let Some((name, _)) = given.next_if(|(name, _)| *name < known) {
                self.report_unknown(place, name);
            }
            let given = given.next_if(|(name, _)| *name == known);
            self.check_demands(field, given.map(|(_, value)| *value).unwrap_or_default(), place);
            let value = match given {
                // Null decodes to a nil pointer, which is omitted. A pointer to a value that encodes as null is kept.
                Some((_, Value::Null)) | None if field.is_omitted_if_absent() => continue,
                Some((name, value)) => {
                    let has_demands = self.has_demands;
                    let is_status = place.is_root() && self.base.is_empty() && *name == "status";
                    self.has_demands &= *name != "metadata" && !is_status && !field.demand.is_untried;
                    let value = self.value(&field.of, *value, &place.property(name));
                    self.has_demands = has_demands;
                    value
                }
                None => self.zero(&field.of),
            };
            let is_kept = keeps_empty && matches!(value, Value::List([]) | Value::Object([]));
            if is_kept || !field.is_omitted(&value) {
                encoded.push((known, value));
            }
        }
        for (name, _) in given {
            self.report_unknown(place, name);
        }
        if self.form.converts {
            convert::convert(types.name(index), &mut encoded, self.arena);
        }
        Value::Object(self.arena.slice(&encoded))
    }

    /// Reports a required field that is absent, and texts that are not in an enum. An absent field is null here.
    fn check_demands(&mut self, field: &StructField, given: Value<'a>, place: &ValuePlace<'_>) {
        if !self.has_demands {
            return;
        }
        let Demand { required, values, unsupported, .. } = &field.demand;
        if let Some(body) = required
            && field.is_like_absent(given)
        {
            let path = place.property(&field.name).path(self.base);
            self.invalid.push(FieldError::recorded(&path, ErrorKind::Required, body));
        }
        if values.is_empty() {
            return;
        }
        let base = self.base;
        let mut check = |value: Value<'_>, place: &ValuePlace<'_>| {
            // An empty text often stands for an absent field.
            let text = value.as_str().filter(|text| !text.is_empty());
            let Some(text) = text.filter(|text| !values.iter().any(|known| **known == **text)) else {
                return;
            };
            self.invalid.push(if unsupported.is_empty() {
                let values: Vec<&str> = values.iter().map(|value| &**value).collect();
                FieldError::not_supported(&place.path(base), text, &values)
            } else {
                let body = unsupported.replacen('%', &quote(text), 1);
                FieldError::recorded(&place.path(base), ErrorKind::NotSupported, &body)
            });
        };
        let place = place.property(&field.name);
        match given {
            Value::List(items) => {
                for (index, item) in items.iter().enumerate() {
                    check(*item, &place.index(index));
                }
            }
            value => check(value, &place),
        }
    }

    fn report_unknown(&mut self, place: &ValuePlace<'_>, name: &str) {
        if !self.in_schema {
            self.unknown.push(place.property(name).path(self.base));
        }
    }

    fn schema_or(
        &mut self,
        alternative: Alternative,
        index: usize,
        value: Value<'a>,
        place: &ValuePlace<'_>,
    ) -> Value<'a> {
        let outer = std::mem::replace(&mut self.in_schema, true);
        let encoded = match (value, alternative) {
            (Value::Object(_), _) => self.fields(index, value, place),
            (Value::Bool(_), Alternative::Bool) => value,
            (_, Alternative::Bool) => self.wrong(place, "a boolean or a schema", value),
            (Value::List(items), _) if !items.is_empty() => {
                let of = if alternative == Alternative::Schemas {
                    FieldType::Struct(index)
                } else {
                    FieldType::String
                };
                self.value(&FieldType::List(Box::new(of)), value, place)
            }
            // The API server ignores other values.
            _ => Value::Null,
        };
        self.in_schema = outer;
        encoded
    }

    /// Encodes the zero value of a type.
    fn zero(&mut self, of: &FieldType) -> Value<'a> {
        let has_demands = std::mem::replace(&mut self.has_demands, false);
        let value = self.zero_of(of);
        self.has_demands = has_demands;
        value
    }

    fn zero_of(&mut self, of: &FieldType) -> Value<'a> {
        match of {
            FieldType::String => Value::String(""),
            FieldType::Bool | FieldType::SchemaOr(Alternative::Bool, _) => Value::Bool(false),
            FieldType::Integer(..) | FieldType::IntOrString => Value::Int(0),
            FieldType::Float => Value::Double(0.0),
            FieldType::Quantity => Value::String("0"),
            FieldType::Duration => Value::String("0s"),
            FieldType::Struct(index) => self.fields(*index, Value::Object(&[]), &ValuePlace::root()),
            FieldType::Bytes
            | FieldType::Time
            | FieldType::MicroTime
            | FieldType::Any
            | FieldType::Pointer(_)
            | FieldType::List(_)
            | FieldType::Map(_)
            | FieldType::SchemaOr(..) => Value::Null,
        }
    }
}

impl StructField {
    /// Whether a value decodes to the same as an absent field. A pointer to an empty value does not.
    fn is_like_absent(&self, value: Value<'_>) -> bool {
        match self.of {
            FieldType::String
            | FieldType::Integer(..)
            | FieldType::Float
            | FieldType::List(_)
            | FieldType::Map(_)
            | FieldType::Bytes => value.is_zero(),
            _ => matches!(value, Value::Null),
        }
    }

    /// Whether an encoded value is left out.
    fn is_omitted(&self, value: &Value<'_>) -> bool {
        match self.omit {
            Omit::Never => false,
            Omit::Zero => matches!(value, Value::Null),
            Omit::Empty => match self.of {
                FieldType::List(_)
                | FieldType::Map(_)
                | FieldType::Bytes
                | FieldType::String
                | FieldType::Bool
                | FieldType::Integer(..)
                | FieldType::Float => value.is_zero(),
                _ => false,
            },
        }
    }

    /// Whether a field that is absent or null is left out.
    fn is_omitted_if_absent(&self) -> bool {
        match self.omit {
            Omit::Never => false,
            Omit::Zero => true,
            Omit::Empty => matches!(
                self.of,
                FieldType::Pointer(_)
                    | FieldType::List(_)
                    | FieldType::Map(_)
                    | FieldType::Bytes
                    | FieldType::String
                    | FieldType::Bool
                    | FieldType::Integer(..)
                    | FieldType::Float
            ),
        }
    }
}
