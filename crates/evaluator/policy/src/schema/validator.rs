//! The state and the result of a validation, which `validate` and `bounds` share.

use super::model::{Schema, SchemaType};
use crate::field::{FieldError, Path, remove_duplicates};
use crate::place::ValuePlace;
use crate::release::Release;
use crate::value::Value;

/// Schemas that one validation applies to values, and values that it compares. The largest object has 1.5 million values. A schema
/// can multiply them with `anyOf` within `anyOf`.
pub(super) const MAX_STEPS: usize = 1 << 24;

/// Errors that are reported of one value.
const MAX_ERRORS: usize = 10_000;

/// State of one validation.
pub(super) struct Validator<'p> {
    pub(super) base: &'p Path,
    pub(super) release: Release,
    /// Whether the value is a default. The API server builds another schema for it, see [`super::validate::default`].
    pub(super) is_default: bool,
    /// Steps that are left. The first one above the limit makes it zero.
    pub(super) steps: usize,
    pub(super) undecided: Vec<FieldError>,
}

/// The types that a schema allows.
#[derive(Clone, Copy)]
pub(super) enum AllowedTypes<'s> {
    Any,
    One(&'s SchemaType),
    IntOrString,
}

impl AllowedTypes<'_> {
    pub(super) fn contains(self, kind: &SchemaType) -> bool {
        match self {
            AllowedTypes::Any => false,
            AllowedTypes::One(one) => one == kind,
            AllowedTypes::IntOrString => matches!(kind, SchemaType::Integer | SchemaType::String),
        }
    }

    pub(super) fn is_empty(self) -> bool {
        matches!(self, AllowedTypes::Any)
    }

    /// The names as in the API server's errors.
    pub(super) fn names(&self) -> &str {
        match self {
            AllowedTypes::Any => "",
            AllowedTypes::One(kind) => kind.name(),
            AllowedTypes::IntOrString => "integer,string",
        }
    }
}

/// The result of one schema.
#[derive(Default)]
pub(super) struct NodeErrors {
    pub(super) errors: Vec<FieldError>,
    /// Checks that were made, as the API server counts them.
    pub(super) matches: u64,
    /// Whether a part can't be decided, so that the errors of `anyOf` and its like would be guessed.
    pub(super) is_undecided: bool,
}

impl NodeErrors {
    pub(super) fn is_valid(&self) -> bool {
        self.errors.is_empty()
    }

    pub(super) fn push(&mut self, error: FieldError) {
        if self.errors.len() < MAX_ERRORS {
            self.errors.push(error);
        }
    }

    pub(super) fn merge(&mut self, other: NodeErrors) {
        let room = MAX_ERRORS - self.errors.len();
        self.errors.extend(other.errors.into_iter().take(room));
        self.matches += other.matches;
        self.is_undecided |= other.is_undecided;
    }

    /// Removes errors that are there twice.
    pub(super) fn unique(&mut self) {
        if self.errors.len() > 1 {
            remove_duplicates(&mut self.errors);
        }
    }
}

impl Validator<'_> {
    /// Counts a step. Returns false above the limit.
    pub(super) fn charge(&mut self, place: &ValuePlace<'_>) -> bool {
        if self.steps == 1 {
            self.undecided(place, "the schema has too many alternatives for this value");
        }
        self.steps = self.steps.saturating_sub(1);
        self.steps > 0
    }

    pub(super) fn undecided(&mut self, place: &ValuePlace<'_>, reason: &str) {
        if self.undecided.len() < MAX_ERRORS {
            self.undecided.push(FieldError::internal(&place.path(self.base), reason));
        }
    }

    /// An error whose text names the place.
    pub(super) fn invalid(&self, place: &ValuePlace<'_>, value: Value<'_>, detail: &str) -> FieldError {
        self.error(place, value, &format!("{place} in body {detail}"))
    }

    pub(super) fn error(&self, place: &ValuePlace<'_>, value: Value<'_>, detail: &str) -> FieldError {
        named(FieldError::invalid_value(&place.path(self.base), value, detail))
    }

    /// An error that belongs to no field. The path remains for positions.
    pub(super) fn general(&self, place: &ValuePlace<'_>, detail: &str) -> FieldError {
        if self.base.is_empty() {
            return FieldError::unnamed(&place.path(self.base), detail);
        }
        FieldError::invalid(self.base, "", detail)
    }

    pub(super) fn release(&self) -> Release {
        self.release
    }

    /// The types that a value must have. There are none if any type is allowed.
    pub(super) fn types<'s>(&self, schema: &'s Schema) -> AllowedTypes<'s> {
        match &schema.kind {
            _ if schema.is_int_or_string && !self.is_default => AllowedTypes::IntOrString,
            Some(kind) => AllowedTypes::One(kind),
            None => AllowedTypes::Any,
        }
    }
}

/// An error of a place. The root has no name.
pub(super) fn named(error: FieldError) -> FieldError {
    FieldError { is_unnamed: error.path.is_empty(), ..error }
}
