//! Names, versions, subresources, printer columns and fields for selectors of a CRD.
//!
//! The API server moves a field that all versions share to the specification, and names it there: `spec.validation` is the schema of all
//! versions.

use std::collections::{BTreeMap, HashSet};

use crate::cel::library::formats;
use crate::crd::rules::field_path;
use crate::field::{FieldError, Path};
use crate::release::Release;
use crate::schema::{Schema, SchemaType};
use crate::value::format::{is_printable, lowercase};
use crate::value::{Value, equal};

const COLUMN_TYPES: [&str; 5] = ["boolean", "date", "integer", "number", "string"];
const COLUMN_FORMATS: [&str; 8] =
    ["byte", "date", "date-time", "double", "float", "int32", "int64", "password"];

/// Most fields for selectors.
const MAX_SELECTABLE: usize = 8;
/// Bytes of a warning about a deprecated version.
const MAX_WARNING: usize = 256;

/// The specification of a CRD.
pub(super) struct DefinitionSpec<'a> {
    pub(super) value: Value<'a>,
    pub(super) path: Path,
    pub(super) versions: Vec<Value<'a>>,
}

/// A field of a version, or of all versions.
pub(super) struct SpecPart<'a> {
    /// The version, or the first of all.
    pub(super) index: usize,
    /// Whether it is that of all versions.
    pub(super) is_shared: bool,
    /// The path that the API server prints.
    pub(super) path: Path,
    pub(super) value: Value<'a>,
}

impl<'a> DefinitionSpec<'a> {
    pub(super) fn new(crd: Value<'a>) -> Self {
        let value = crd.field("spec").unwrap_or_default();
        let versions = value.field("versions").unwrap_or_default().all_elements().collect();
        Self { value, path: Path::new("spec"), versions }
    }

    /// The names of the versions.
    pub(super) fn names(&self) -> impl Iterator<Item = &'a str> {
        self.versions.iter().map(|version| text(*version, "name"))
    }

    /// The names of the versions that are stored. A valid CRD has one.
    pub(super) fn storage(&self) -> Vec<&'a str> {
        self.versions
            .iter()
            .filter(|version| is_storage(**version))
            .map(|version| text(*version, "name"))
            .collect()
    }

    /// The values of a field of the versions. If all are equal, there is one with another name.
    pub(super) fn parts(&self, own: &str, shared: &str) -> Vec<SpecPart<'a>> {
        let part = |(index, version): (usize, &Value<'a>)| SpecPart {
            index,
            is_shared: false,
            path: self.path.child("versions").index(index).child(own),
            value: version.field(own).unwrap_or_default(),
        };
        let mut parts: Vec<SpecPart<'a>> = self.versions.iter().enumerate().map(part).collect();
        if let Some((first, others)) = parts.split_first_mut()
            && others.iter().all(|other| equal(&first.value, &other.value))
        {
            first.is_shared = true;
            first.path = self.path.child(shared);
            parts.truncate(1);
        }
        parts
    }

    /// Whether a version has the subresource `status`, or any version.
    pub(super) fn has_status(&self, part: &SpecPart<'_>) -> bool {
        let has = |version: &Value<'_>| {
            let status = version.field("subresources").and_then(|subresources| subresources.field("status"));
            matches!(status, Some(Value::Object(_)))
        };
        if part.is_shared {
            self.versions.iter().any(has)
        } else {
            self.versions.get(part.index).is_some_and(has)
        }
    }

    /// Adds the errors of everything but schemas and conversion.
    pub(super) fn check(&self, errors: &mut Vec<FieldError>) {
        self.group(errors);
        self.check_versions(errors);
        names(self.value.field("names").unwrap_or_default(), &self.path.child("names"), true, errors);
        for part in self.parts("subresources", "subresources") {
            subresources(part.value, &part.path, errors);
        }
        for part in self.parts("additionalPrinterColumns", "additionalPrinterColumns") {
            for (index, value) in part.value.all_elements().enumerate() {
                column(value, &part.path.index(index), errors);
            }
        }
    }

    fn group(&self, errors: &mut Vec<FieldError>) {
        let (path, group) = (self.path.child("group"), text(self.value, "group"));
        let problems = formats::subdomain(group);
        if !problems.is_empty() {
            errors.push(FieldError::invalid(&path, group, &problems.join(",")));
        } else if !group.contains('.') {
            errors.push(FieldError::invalid(&path, group, "should be a domain with at least one dot"));
        }
    }

    fn check_versions(&self, errors: &mut Vec<FieldError>) {
        let path = self.path.child("versions");
        let mut seen = HashSet::new();
        let mut is_unique = true;
        for (index, name) in self.names().enumerate() {
            let problems = formats::label_1035(name);
            if !problems.is_empty() {
                let detail = problems.join(",");
                errors.push(FieldError::invalid(&path.index(index).child("name"), name, &detail));
                // The API server copies the first name.
                if index == 0 && !name.is_empty() {
                    errors.push(FieldError::invalid(&self.path.child("version"), name, &detail));
                }
            }
            is_unique &= seen.insert(name);
        }
        for (index, version) in self.versions.iter().enumerate() {
            deprecation(*version, &path.index(index).child("deprecationWarning"), errors);
        }
        let mut invalid = |detail: &str| errors.push(FieldError::invalid_json(&path, "[...]", detail));
        if !is_unique {
            invalid("must contain unique version names");
        }
        if self.storage().len() != 1 {
            invalid("must have exactly one version marked as storage version");
        }
    }

    /// Adds the errors of the fields for selectors. `schema_of` returns the schema of a version.
    pub(super) fn selectable_fields<'s>(
        &self,
        schema_of: impl Fn(usize) -> Option<&'s Schema>,
        old: Option<&DefinitionSpec<'_>>,
        release: Release,
        errors: &mut Vec<FieldError>,
    ) {
        if !release.has_selectable_fields() {
            return;
        }
        // A version can have other fields and the same schema.
        let shares_schema = self.parts("schema", "validation").first().is_some_and(|part| part.is_shared);
        for part in self.parts("selectableFields", "selectableFields") {
            if part.value.list_len().is_none_or(|len| len == 0) {
                continue;
            }
            let is_known = part.is_shared == shares_schema;
            let Some(schema) = schema_of(part.index).filter(|_| is_known) else {
                let detail = release.selectable_without_schema(part.is_shared);
                errors.push(FieldError::invalid(&part.path, "", detail));
                continue;
            };
            let count = selectable(part.value, schema, &part.path, errors);
            // A CRD that had too many keeps them.
            let is_kept = release.keeps_selectable_fields() && old.is_some_and(|old| keeps(old, self, &part));
            if count > MAX_SELECTABLE && !is_kept {
                let max = i64::try_from(MAX_SELECTABLE).unwrap_or(i64::MAX);
                errors.push(FieldError::too_many(&part.path, count, max, release));
            }
        }
    }
}

/// Whether the fields for selectors are too many in the old CRD as well, and unchanged.
fn keeps(old: &DefinitionSpec<'_>, new: &DefinitionSpec<'_>, part: &SpecPart<'_>) -> bool {
    let name = new.versions.get(part.index).map(|version| text(*version, "name")).unwrap_or_default();
    old.parts("selectableFields", "selectableFields").iter().any(|before| {
        let is_same_version = || {
            let version = old.versions.get(before.index);
            version.is_some_and(|version| text(*version, "name") == name)
        };
        before.is_shared == part.is_shared
            && (part.is_shared || is_same_version())
            && before.value.list_len().is_some_and(|len| len > MAX_SELECTABLE)
            && equal(&before.value, &part.value)
    })
}

fn is_storage(version: Value<'_>) -> bool {
    matches!(version.field("storage"), Some(Value::Bool(true)))
}

pub(super) fn text<'a>(value: Value<'a>, field: &str) -> &'a str {
    value.field(field).and_then(|value| value.as_str()).unwrap_or_default()
}

/// Adds the errors of names. Those of the specification have defaults.
pub(super) fn names(names: Value<'_>, path: &Path, has_defaults: bool, errors: &mut Vec<FieldError>) {
    let kind = text(names, "kind");
    let list_kind = match text(names, "listKind") {
        "" if has_defaults => format!("{kind}List"),
        name => name.to_owned(),
    };
    let singular = match text(names, "singular") {
        "" if has_defaults => lowercase(kind),
        name => name.to_owned(),
    };
    let mut check = |path: Path, name: &str| {
        let problems = formats::label_1035(name);
        if !name.is_empty() && !problems.is_empty() {
            errors.push(FieldError::invalid(&path, name, &problems.join(",")));
        }
    };
    check(path.child("plural"), text(names, "plural"));
    check(path.child("singular"), &singular);
    for (field, name) in [("kind", kind), ("listKind", &list_kind)] {
        let problems = formats::label_1035(&lowercase(name));
        if !name.is_empty() && !problems.is_empty() {
            let detail = format!("may have mixed case, but should otherwise match: {}", problems.join(","));
            errors.push(FieldError::invalid(&path.child(field), name, &detail));
        }
    }
    if !kind.is_empty() && kind == list_kind {
        let detail = r"kind and listKind may not be the same"; // a text of the API server
        errors.push(FieldError::invalid(&path.child("listKind"), &list_kind, detail));
    }
    for field in ["shortNames", "categories"] {
        for (index, name) in names.field(field).unwrap_or_default().all_elements().enumerate() {
            let name = name.as_str().unwrap_or_default();
            let problems = formats::label_1035(name);
            if !problems.is_empty() {
                errors.push(FieldError::invalid(&path.child(field).index(index), name, &problems.join(",")));
            }
        }
    }
}

fn deprecation(version: Value<'_>, path: &Path, errors: &mut Vec<FieldError>) {
    let Some(warning) = version.field("deprecationWarning").and_then(|warning| warning.as_str()) else {
        return;
    };
    let mut invalid = |detail: &str| errors.push(FieldError::invalid(path, warning, detail));
    if !matches!(version.field("deprecated"), Some(Value::Bool(true))) {
        return invalid("can only be set for deprecated versions");
    }
    if warning.len() > MAX_WARNING {
        invalid("must be <= 256 characters long");
    }
    if warning.is_empty() {
        invalid("must not be an empty string");
    }
    if let Some((index, _)) = warning.char_indices().find(|(_, character)| !is_printable(*character)) {
        invalid(&format!(
            "must only contain printable UTF-8 characters; non-printable character found at index {index}"
        ));
    }
}

/// Returns the error of a path such as `.spec.replicas`.
fn json_path(text: &str, path: &Path) -> Option<FieldError> {
    (!text.starts_with('.'))
        .then(|| FieldError::invalid(path, text, "must be a simple json path starting with ."))
}

fn subresources(value: Value<'_>, path: &Path, errors: &mut Vec<FieldError>) {
    let Some(scale @ Value::Object(_)) = value.field("scale") else { return };
    let path = path.child("scale");
    for (field, above) in [("specReplicasPath", ".spec."), ("statusReplicasPath", ".status.")] {
        let (path, text) = (path.child(field), text(scale, field));
        if text.is_empty() {
            errors.push(FieldError::required(&path, ""));
        } else if let Some(error) = json_path(text, &path) {
            errors.push(error);
        } else if !text.starts_with(above) {
            let detail = format!("should be a json path under {}", above.trim_end_matches('.'));
            errors.push(FieldError::invalid(&path, text, &detail));
        }
    }
    let (path, text) = (path.child("labelSelectorPath"), text(scale, "labelSelectorPath"));
    if text.is_empty() {
        return;
    }
    if let Some(error) = json_path(text, &path) {
        errors.push(error);
    } else if !text.starts_with(".spec.") && !text.starts_with(".status.") {
        let detail = "should be a json path under either .spec or .status";
        errors.push(FieldError::invalid(&path, text, detail));
    }
}

fn column(value: Value<'_>, path: &Path, errors: &mut Vec<FieldError>) {
    if text(value, "name").is_empty() {
        errors.push(FieldError::required(&path.child("name"), ""));
    }
    let (kind, types) = (text(value, "type"), format!("must be one of {}", COLUMN_TYPES.join(",")));
    if kind.is_empty() {
        errors.push(FieldError::required(&path.child("type"), &types));
    } else if !COLUMN_TYPES.contains(&kind) {
        errors.push(FieldError::invalid(&path.child("type"), kind, &types));
    }
    let format = text(value, "format");
    if !format.is_empty() && !COLUMN_FORMATS.contains(&format) {
        let detail = format!("must be one of {}", COLUMN_FORMATS.join(","));
        errors.push(FieldError::invalid(&path.child("format"), format, &detail));
    }
    // The name of the field in the API server.
    let (path, json) = (path.child("JSONPath"), text(value, "jsonPath"));
    if json.is_empty() {
        errors.push(FieldError::required(&path, ""));
    } else {
        errors.extend(json_path(json, &path));
    }
}

/// Checks fields for selectors. Returns how many different ones there are.
fn selectable(fields: Value<'_>, schema: &Schema, path: &Path, errors: &mut Vec<FieldError>) -> usize {
    let mut seen = HashSet::new();
    for (index, field) in fields.all_elements().enumerate() {
        let (path, text) = (path.index(index).child("jsonPath"), text(field, "jsonPath"));
        let mut invalid = |detail: &str| errors.push(FieldError::invalid(&path, text, detail));
        if text.is_empty() {
            errors.push(FieldError::required(&path, ""));
            continue;
        }
        let (found, of) = match field_path::parse_names(text, schema) {
            Ok(found) => found,
            Err(why) => {
                invalid(&format!("is an invalid path: {why}"));
                continue;
            }
        };
        if found.first_field() == Some("metadata") {
            invalid("must not point to fields in metadata");
        }
        let kind = of.and_then(|of| of.kind.as_ref());
        if !matches!(kind, Some(SchemaType::String | SchemaType::Boolean | SchemaType::Integer)) {
            invalid(
                "must point to a field of type string, boolean or integer. Enum string fields and strings with formats are allowed.",
            );
        }
        if !seen.insert(found) {
            errors.push(FieldError::duplicate(&path, text));
        }
    }
    seen.len()
}

/// Adds the errors of the versions that objects are stored in. `stored` are those of the status.
pub(super) fn stored_versions(
    spec: &DefinitionSpec<'_>,
    stored: &[&str],
    release: Release,
    errors: &mut Vec<FieldError>,
) {
    let path = Path::new("status").child("storedVersions");
    if stored.is_empty() {
        let detail = "must have at least one stored version";
        errors.push(FieldError::invalid_json(&path, "null", detail));
        return;
    }
    let texts: Vec<Box<str>> = stored.iter().map(|name| Box::from(*name)).collect();
    // Each version is looked up once: a second one of the same name is missing.
    let mut left: BTreeMap<&str, usize> = stored.iter().copied().zip(0..).collect();
    for version in &spec.versions {
        let name = text(*version, "name");
        if left.remove(name).is_none() && is_storage(*version) {
            let detail = format!("must have the storage version {name}");
            errors.push(FieldError::invalid_list(&path, &texts, &detail));
        }
    }
    for (name, index) in left {
        let detail = release.missing_stored_version(name);
        errors.push(FieldError::invalid(&path.index(index), name, &detail));
    }
}

/// Adds the errors of fields that can't change.
pub(super) fn immutable(
    new: &DefinitionSpec<'_>,
    old: &DefinitionSpec<'_>,
    is_established: bool,
    errors: &mut Vec<FieldError>,
) {
    let of_names = |spec: &DefinitionSpec<'_>, field: &str| {
        spec.value.field("names").map(|names| text(names, field).to_owned()).unwrap_or_default()
    };
    let mut compare = |path: Path, new: &str, old: &str| {
        if new != old {
            errors.push(FieldError::invalid(&path, new, "field is immutable"));
        }
    };
    let path = &new.path;
    if is_established {
        compare(path.child("scope"), text(new.value, "scope"), text(old.value, "scope"));
        compare(path.child("names").child("kind"), &of_names(new, "kind"), &of_names(old, "kind"));
    }
    compare(path.child("group"), text(new.value, "group"), text(old.value, "group"));
    compare(path.child("names").child("plural"), &of_names(new, "plural"), &of_names(old, "plural"));
}
