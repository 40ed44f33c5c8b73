//! A change between two versions of a CRD, and the place in the schema that it is about.

use std::fmt::Write as _;

use crate::field::Path;

/// A class of changes. Every difference that can break an existing object belongs to one of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Class {
    /// The new files do not have the CRD. [`compare`](super::compare) is not called then.
    CrdRemoved,
    /// The group, the kind or the plural has changed.
    NameChanged,
    /// The scope has changed.
    ScopeChanged,
    /// A version that is stored or served is absent, or not served any more.
    VersionRemoved,
    /// The subresource `status` or `scale` was added, removed or changed.
    SubresourceChanged,
    /// A field is not declared any more, so the API server removes it.
    FieldRemoved,
    /// A field is required that can be absent.
    RequiredAdded,
    /// A type of value is not valid any more.
    TypeTightened,
    /// Null is not valid any more.
    NullableRemoved,
    /// A value of an enumeration is not valid any more.
    EnumTightened,
    /// A bound of a number, a length or a count is narrower.
    BoundsTightened,
    /// A pattern is new or another one.
    PatternChanged,
    /// A format is new or another one.
    FormatChanged,
    /// `allOf`, `anyOf`, `oneOf` or `not` can refuse values that were valid.
    ConditionTightened,
    /// The type of a list or map has changed, or the keys of a list.
    ListTypeChanged,
    /// A rule is new or another one.
    RuleAdded,
    /// The effect of a difference is not known.
    NotCompared,
}

impl Class {
    /// All classes, in the order of the documentation.
    pub const ALL: [Self; 17] = [
        Self::CrdRemoved,
        Self::NameChanged,
        Self::ScopeChanged,
        Self::VersionRemoved,
        Self::SubresourceChanged,
        Self::FieldRemoved,
        Self::RequiredAdded,
        Self::TypeTightened,
        Self::NullableRemoved,
        Self::EnumTightened,
        Self::BoundsTightened,
        Self::PatternChanged,
        Self::FormatChanged,
        Self::ConditionTightened,
        Self::ListTypeChanged,
        Self::RuleAdded,
        Self::NotCompared,
    ];

    /// Returns the name in reports.
    pub fn name(self) -> &'static str {
        match self {
            Self::CrdRemoved => "crdRemoved",
            Self::NameChanged => "nameChanged",
            Self::ScopeChanged => "scopeChanged",
            Self::VersionRemoved => "versionRemoved",
            Self::SubresourceChanged => "subresourceChanged",
            Self::FieldRemoved => "fieldRemoved",
            Self::RequiredAdded => "requiredAdded",
            Self::TypeTightened => "typeTightened",
            Self::NullableRemoved => "nullableRemoved",
            Self::EnumTightened => "enumTightened",
            Self::BoundsTightened => "boundsTightened",
            Self::PatternChanged => "patternChanged",
            Self::FormatChanged => "formatChanged",
            Self::ConditionTightened => "conditionTightened",
            Self::ListTypeChanged => "listTypeChanged",
            Self::RuleAdded => "ruleAdded",
            Self::NotCompared => "notCompared",
        }
    }
}

/// A difference that can break an existing object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CrdChange {
    /// Its class.
    pub class: Class,
    /// The version that it is about, or empty for all versions.
    pub version: String,
    /// The version of the old CRD in which objects are stored, if it is another one.
    pub stored_as: Option<String>,
    /// The field of objects, such as `spec.ports[*].name`. Empty for the whole object.
    pub field: String,
    /// The path in the new CRD.
    pub path: Path,
    /// The difference in words.
    pub detail: String,
}

/// The place of a schema in its CRD and in objects. It grows without allocation.
#[derive(Clone, Copy)]
pub(super) struct SchemaPlace<'p> {
    above: Option<&'p SchemaPlace<'p>>,
    step: SchemaStep<'p>,
}

#[derive(Clone, Copy)]
enum SchemaStep<'p> {
    Root,
    Property(&'p str),
    /// A field that is not declared by name.
    Entry,
    Item,
}

impl<'p> SchemaPlace<'p> {
    pub(super) fn root() -> Self {
        Self { above: None, step: SchemaStep::Root }
    }

    pub(super) fn property(&'p self, name: &'p str) -> Self {
        Self { above: Some(self), step: SchemaStep::Property(name) }
    }

    pub(super) fn entry(&'p self) -> Self {
        Self { above: Some(self), step: SchemaStep::Entry }
    }

    pub(super) fn item(&'p self) -> Self {
        Self { above: Some(self), step: SchemaStep::Item }
    }

    /// Whether this is the place of the whole object.
    pub(super) fn is_root(&self) -> bool {
        matches!(self.step, SchemaStep::Root)
    }

    /// The steps from the top.
    fn steps(&self) -> Vec<SchemaStep<'p>> {
        let mut steps = Vec::new();
        let mut at = Some(self);
        while let Some(place) = at {
            steps.push(place.step);
            at = place.above;
        }
        steps.reverse();
        steps
    }

    /// The field of objects.
    pub(super) fn field(&self) -> String {
        let mut field = String::new();
        for step in self.steps() {
            let dot = if field.is_empty() { "" } else { "." };
            // Writing to a `String` cannot fail.
            let _ = match step {
                SchemaStep::Root => Ok(()),
                SchemaStep::Property(name) => write!(field, "{dot}{name}"),
                SchemaStep::Entry => write!(field, "{dot}*"),
                SchemaStep::Item => write!(field, "[*]"),
            };
        }
        field
    }

    /// The path of the schema in a CRD.
    pub(super) fn path(&self, base: &Path) -> Path {
        self.steps().into_iter().fold(base.clone(), |path, step| match step {
            SchemaStep::Root => path,
            SchemaStep::Property(name) => path.child("properties").key(name),
            SchemaStep::Entry => path.child("additionalProperties"),
            SchemaStep::Item => path.child("items"),
        })
    }
}
