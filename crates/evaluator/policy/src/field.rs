//! Paths of fields and the errors that the API server prints for them.

use std::collections::HashSet;
use std::fmt::{self, Display};

use crate::release::Release;
use crate::value::Value;
use crate::value::format::{go_json, quote};
use crate::value::number;

/// The path of a field, such as `spec.validations[0].expression`.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Path {
    steps: Vec<PathStep>,
}

/// A step of a path.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum PathStep {
    /// A field of an object.
    Field(String),
    /// An element of a list.
    Index(usize),
    /// An entry of a map.
    Key(String),
}

impl Path {
    /// The path of a top-level field.
    pub fn new(field: &str) -> Self {
        Self { steps: vec![PathStep::Field(field.to_owned())] }
    }

    /// The path of a field below this one.
    #[must_use]
    pub fn child(&self, field: &str) -> Self {
        let mut path = self.clone();
        path.steps.push(PathStep::Field(field.to_owned()));
        path
    }

    /// The path of an element of this list.
    #[must_use]
    pub fn index(&self, index: usize) -> Self {
        let mut path = self.clone();
        path.steps.push(PathStep::Index(index));
        path
    }

    /// The path of an entry of this map, which is printed in brackets.
    #[must_use]
    pub fn key(&self, key: &str) -> Self {
        let mut path = self.clone();
        path.steps.push(PathStep::Key(key.to_owned()));
        path
    }

    /// The path of a step below this one.
    #[must_use]
    pub(crate) fn step(&self, step: &PathStep) -> Self {
        let mut path = self.clone();
        path.steps.push(step.clone());
        path
    }

    /// This path with another one below it.
    #[must_use]
    pub fn join(&self, below: &Path) -> Self {
        Self { steps: self.steps.iter().chain(&below.steps).cloned().collect() }
    }

    /// The longest path that this path and another one start with.
    pub(crate) fn common(&self, other: &Path) -> Path {
        let equal = self.steps.iter().zip(&other.steps).take_while(|(left, right)| left == right);
        Path { steps: equal.map(|(step, _)| step.clone()).collect() }
    }

    /// The first step, if it is a field.
    pub(crate) fn first_field(&self) -> Option<&str> {
        match self.steps.first()? {
            PathStep::Field(name) => Some(name),
            PathStep::Index(_) | PathStep::Key(_) => None,
        }
    }

    /// Whether this is the path of the whole document.
    pub fn is_empty(&self) -> bool {
        self.steps.is_empty()
    }

    /// The path without its last step.
    #[must_use]
    pub fn parent(&self) -> Self {
        let mut path = self.clone();
        path.steps.pop();
        path
    }

    /// The steps from the top.
    pub fn steps(&self) -> &[PathStep] {
        &self.steps
    }
}

impl Display for Path {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, step) in self.steps.iter().enumerate() {
            match step {
                PathStep::Field(name) => write!(formatter, "{}{name}", if index == 0 { "" } else { "." })?,
                PathStep::Index(index) => write!(formatter, "[{index}]")?,
                PathStep::Key(key) => write!(formatter, "[{key}]")?,
            }
        }
        Ok(())
    }
}

/// The type of an error, which the API server calls the reason of a cause.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ErrorKind {
    /// The value is invalid.
    Invalid,
    /// The value has another type than its schema. It is printed like an invalid value.
    TypeInvalid,
    /// A required field is absent.
    Required,
    /// The value is not one of the supported ones.
    NotSupported,
    /// A text is too long.
    TooLong,
    /// A list or map has too many entries.
    TooMany,
    /// A value occurs twice.
    Duplicate,
    /// A field is set that can't be set.
    Forbidden,
    /// An error of the API server itself.
    Internal,
    /// The API server refuses the document while it decodes it.
    Undecodable,
}

impl ErrorKind {
    /// The text that the API server prints.
    fn text(self) -> &'static str {
        match self {
            Self::Invalid | Self::TypeInvalid => "Invalid value",
            Self::Required => "Required value",
            Self::NotSupported => "Unsupported value",
            Self::TooLong => "Too long",
            Self::TooMany => "Too many",
            Self::Duplicate => "Duplicate value",
            Self::Forbidden => "Forbidden",
            Self::Internal => "Internal error",
            Self::Undecodable => "Invalid type",
        }
    }
}

/// An error of a field, with the API server's text.
#[derive(Clone, Debug, PartialEq, Eq, Hash, thiserror::Error)]
#[error("{}: {body}", self.shown_path())]
pub struct FieldError {
    /// The field.
    pub path: Path,
    /// The type of the error.
    pub kind: ErrorKind,
    /// Whether the API server prints `<nil>` instead of the path, as for `anyOf`.
    pub is_unnamed: bool,
    /// The text after the path.
    pub body: String,
    /// For errors within an expression: line, column (from 1) and text of each.
    pub places: Vec<(usize, usize, String)>,
    /// A change with which the API server accepts the field, or empty.
    pub hint: String,
}

/// The API server's answer to an object before it evaluates policies, or to a part of one.
#[derive(Clone, Debug, Default)]
pub struct Validated {
    /// The errors for which it refuses the object.
    pub errors: Vec<FieldError>,
    /// Fields whose validity is not known, with the reason. If there are any, the object does not pass, and more errors are possible.
    pub undecided: Vec<FieldError>,
    /// Rules that are false of values that an update does not change. The API server prints them as warnings.
    pub unchanged: Vec<FieldError>,
    /// Other warnings, if there are no errors.
    pub warnings: Vec<String>,
}

/// Removes errors with the text of an earlier one, as the API server does.
pub(crate) fn remove_duplicates(errors: &mut Vec<FieldError>) {
    let mut seen = HashSet::new();
    errors.retain(|error| seen.insert(error.to_string()));
}

impl FieldError {
    /// `value` is the printed value, and is empty if the type prints none.
    fn new(path: &Path, kind: ErrorKind, value: &str, detail: &str) -> Self {
        let mut body = kind.text().to_owned();
        for part in [value, detail].into_iter().filter(|part| !part.is_empty()) {
            body.push_str(": ");
            body.push_str(part);
        }
        Self { path: path.clone(), kind, is_unnamed: false, body, places: Vec::new(), hint: String::new() }
    }

    /// The path as the API server prints it.
    pub fn shown_path(&self) -> String {
        if self.is_unnamed { "<nil>".to_owned() } else { self.path.to_string() }
    }

    /// A text of the API server without a field and without a value.
    pub(crate) fn unnamed(path: &Path, detail: &str) -> Self {
        Self { is_unnamed: true, ..Self::invalid(path, "", detail) }
    }

    /// A required field is absent.
    pub fn required(path: &Path, detail: &str) -> Self {
        Self::new(path, ErrorKind::Required, "", detail)
    }

    /// A text is invalid.
    pub fn invalid(path: &Path, value: &str, detail: &str) -> Self {
        Self::new(path, ErrorKind::Invalid, &quote(value), detail)
    }

    /// A value is invalid.
    pub(crate) fn invalid_value(path: &Path, value: Value<'_>, detail: &str) -> Self {
        Self::new(path, ErrorKind::Invalid, &shown_value(value), detail)
    }

    /// A value is invalid. `json` is the value as Go encodes it.
    pub(crate) fn invalid_json(path: &Path, json: &str, detail: &str) -> Self {
        Self::new(path, ErrorKind::Invalid, json, detail)
    }

    /// An error without a value.
    pub(crate) fn without_value(path: &Path, kind: ErrorKind, detail: &str) -> Self {
        Self::new(path, kind, "", detail)
    }

    /// A value has another type than its schema.
    pub(crate) fn type_invalid(path: &Path, value: Value<'_>, detail: &str) -> Self {
        Self::new(path, ErrorKind::TypeInvalid, &shown_value(value), detail)
    }

    /// A value is not one of the supported ones.
    pub(crate) fn unsupported_value(path: &Path, value: Value<'_>, supported: &[String]) -> Self {
        let quoted: Vec<String> = supported.iter().map(|value| quote(value)).collect();
        let detail = format!("supported values: {}", quoted.join(", "));
        Self::new(path, ErrorKind::NotSupported, &shown_value(value), &detail)
    }

    /// A value occurs twice.
    pub(crate) fn duplicate_value(path: &Path, value: Value<'_>) -> Self {
        Self::new(path, ErrorKind::Duplicate, &shown_value(value), "")
    }

    /// A text is too long.
    pub(crate) fn too_long(path: &Path, max: i64, release: Release) -> Self {
        let limit = match max {
            ..=-1 => return Self::new(path, ErrorKind::TooLong, "", "value is too long"),
            _ if release.counts_characters_as_length() => format!("longer than {max}"),
            1 if release.has_singular_units() => "more than 1 byte".to_owned(),
            _ => format!("more than {max} bytes"),
        };
        Self::new(path, ErrorKind::TooLong, "", &format!("may not be {limit}")) // lint: allow(text of the API server)
    }

    /// Something has too many bytes.
    pub(crate) fn too_large(path: &Path, max: i64, release: Release) -> Self {
        if release.counts_characters_as_length() {
            return Self::new(path, ErrorKind::TooLong, "", &format!("must have at most {max} bytes"));
        }
        Self::too_long(path, max, release)
    }

    /// A list or map has too many items.
    pub(crate) fn too_many(path: &Path, actual: usize, max: i64, release: Release) -> Self {
        let detail = match max {
            ..=-1 => "has too many items".to_owned(),
            1 if release.has_singular_units() => "must have at most 1 item".to_owned(),
            _ => format!("must have at most {max} items"),
        };
        Self::new(path, ErrorKind::TooMany, &actual.to_string(), &detail)
    }

    /// A list of texts is invalid.
    pub fn invalid_list(path: &Path, values: &[impl AsRef<str>], detail: &str) -> Self {
        let quoted: Vec<String> = values.iter().map(|value| quote(value.as_ref())).collect();
        Self::new(path, ErrorKind::Invalid, &format!("[{}]", quoted.join(",")), detail)
    }

    /// A text is not one of the supported ones.
    pub fn not_supported(path: &Path, value: &str, supported: &[&str]) -> Self {
        let quoted: Vec<String> = supported.iter().map(|value| quote(value)).collect();
        let detail = format!("supported values: {}", quoted.join(", "));
        Self::new(path, ErrorKind::NotSupported, &quote(value), &detail)
    }

    /// An error whose text is recorded.
    pub(crate) fn recorded(path: &Path, kind: ErrorKind, body: &str) -> Self {
        Self { body: body.to_owned(), ..Self::new(path, kind, "", "") }
    }

    /// A value occurs twice.
    pub fn duplicate(path: &Path, value: &str) -> Self {
        Self::new(path, ErrorKind::Duplicate, &quote(value), "")
    }

    /// A field is set that can't be set.
    pub fn forbidden(path: &Path, detail: &str) -> Self {
        Self::new(path, ErrorKind::Forbidden, "", detail)
    }

    /// An error of the API server itself.
    pub fn internal(path: &Path, detail: &str) -> Self {
        Self::new(path, ErrorKind::Internal, "", detail)
    }

    /// A field has a value of another type; the API server refuses the document while it decodes it.
    pub fn wrong_type(path: &Path, expected: &str) -> Self {
        Self::new(path, ErrorKind::Undecodable, "", &format!("expected {expected}"))
    }
}

/// A value in an error.
fn shown_value(value: Value<'_>) -> String {
    match value {
        Value::String(text) => quote(text),
        Value::Double(value) => number::general(value),
        other => go_json(other),
    }
}
