//! The API server's checks of `metadata`, with its texts and in its order.
//!
//! Upstream: `apimachinery/pkg/api/validation/objectmeta.go` and, for `managedFields`, `apimachinery/pkg/apis/meta/v1/validation`. The
//! metadata has been decoded, so its fields have their types.
//!
//! In the metadata of a request, fields that the API server sets itself are not checked: it ignores `generation` and the time of
//! creation, rewrites `managedFields`, and drops equal owner references. In the metadata of an embedded object, all fields are checked.

use std::collections::BTreeSet;
use std::fmt::Write as _;

use crate::cel::library::formats;
use crate::field::{FieldError, Path};
use crate::release::Release;
use crate::value::format::{is_printable, lowercase};
use crate::value::{Value, equal, write_json};
use crate::vap::decision::json;

/// Limit of all annotations of an object, keys and values, in bytes.
const MAX_ANNOTATIONS: i64 = 256 * 1024;

/// Finalizers of the API server without a domain.
const STANDARD_FINALIZERS: [&str; 3] = [ORPHAN, FOREGROUND, "kubernetes"];
const ORPHAN: &str = "orphan";
const FOREGROUND: &str = "foregroundDeletion";

/// Limit of `manager` in `managedFields`, in bytes.
const MAX_MANAGER: usize = 128;
/// Limit of `subresource` in `managedFields`, in bytes.
const MAX_SUBRESOURCE: usize = 256;

/// The syntax of names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum NameSyntax {
    /// A DNS subdomain, as for new custom resources.
    Subdomain,
    /// Any segment of a URL path, as for objects that exist and for embedded ones.
    PathSegment,
}

/// The checks of metadata at a path.
pub(crate) struct MetadataChecks<'c> {
    pub(crate) release: Release,
    pub(crate) path: &'c Path,
    /// Whether the object must be in a namespace. Otherwise it must not be in one.
    pub(crate) namespaced: bool,
    pub(crate) names: NameSyntax,
    pub(crate) name: &'c str,
    /// Whether the object is a part of a custom resource, so that the API server sets no fields of its metadata.
    pub(crate) is_embedded: bool,
}

impl MetadataChecks<'_> {
    /// Checks the metadata of an object, as the API server does for a new one.
    pub(crate) fn object(&self, metadata: Value<'_>, errors: &mut Vec<FieldError>) {
        let text = |field: &str| text(metadata, field);
        let generate_name = text("generateName");
        if !generate_name.is_empty() {
            self.name("generateName", generate_name, true, errors);
        }
        if self.name.is_empty() {
            errors.push(FieldError::required(&self.path.child("name"), "name or generateName is required"));
        } else {
            self.name("name", self.name, false, errors);
        }
        self.namespace(text("namespace"), errors);
        self.generation(metadata, errors);
        self.labels(metadata, errors);
        self.annotations(metadata, errors);
        self.owners(metadata, errors);
        self.finalizers(metadata, errors);
        self.managed_fields(metadata, errors);
    }

    /// Checks the metadata of an object that replaces an old one. Most fields that can't change are those of the old object: the API server
    /// sets them.
    pub(crate) fn update(&self, metadata: Value<'_>, old: Value<'_>, errors: &mut Vec<FieldError>) {
        if field(old, "deletionTimestamp").is_some() {
            self.new_finalizers(metadata, old, errors);
        }
        let uid = text(metadata, "uid");
        if !text(old, "uid").is_empty() && !uid.is_empty() && uid != text(old, "uid") {
            errors.push(FieldError::invalid(&self.path.child("uid"), uid, IMMUTABLE));
        }
        for (name, is_kept) in [("deletionTimestamp", true), ("deletionGracePeriodSeconds", false)] {
            let (new, old) = (field(metadata, name), field(old, name));
            let is_changed = match (new, old) {
                (Some(new), Some(old)) => !is_kept && !equal(&new, &old),
                (new, None) => new.is_some(),
                (None, Some(_)) => false,
            };
            if let Some(new) = new.filter(|_| is_changed) {
                errors.push(FieldError::invalid_json(&self.path.child(name), &write_json(new), IMMUTABLE));
            }
        }
        self.labels(metadata, errors);
        self.annotations(metadata, errors);
        self.owners(metadata, errors);
    }

    fn name(&self, field: &str, name: &str, is_prefix: bool, errors: &mut Vec<FieldError>) {
        let problems = match self.names {
            NameSyntax::Subdomain if is_prefix => formats::subdomain(&formats::mask_dash(name)),
            NameSyntax::Subdomain => formats::subdomain(name),
            NameSyntax::PathSegment => path_segment(name, is_prefix),
        };
        self.invalid(field, name, &problems, errors);
    }

    fn namespace(&self, namespace: &str, errors: &mut Vec<FieldError>) {
        let path = self.path.child("namespace");
        match (self.namespaced, namespace) {
            (true, "") => errors.push(FieldError::required(&path, "")),
            (true, namespace) => self.invalid("namespace", namespace, &formats::label(namespace), errors),
            (false, "") => {}
            (false, _) => errors.push(FieldError::forbidden(&path, "not allowed on this type")),
        }
    }

    fn labels(&self, metadata: Value<'_>, errors: &mut Vec<FieldError>) {
        let recent = self.release.has_new_label_texts();
        for (key, value) in texts(metadata, "labels") {
            self.invalid("labels", key, &formats::qualified_name(key, recent), errors);
            self.invalid("labels", value, &formats::label_value(value, recent), errors);
        }
    }

    fn annotations(&self, metadata: Value<'_>, errors: &mut Vec<FieldError>) {
        let recent = self.release.has_new_label_texts();
        let mut size = 0;
        for (key, value) in texts(metadata, "annotations") {
            self.invalid("annotations", key, &formats::qualified_name(&lowercase(key), recent), errors);
            size += key.len() + value.len();
        }
        if i64::try_from(size).unwrap_or(i64::MAX) > MAX_ANNOTATIONS {
            errors.push(FieldError::too_large(
                &self.path.child("annotations"),
                MAX_ANNOTATIONS,
                self.release,
            ));
        }
    }

    fn owners(&self, metadata: Value<'_>, errors: &mut Vec<FieldError>) {
        let path = self.path.child("ownerReferences");
        // The API server drops equal references of a request first.
        let mut owners: Vec<Value<'_>> = Vec::new();
        for owner in items(metadata, "ownerReferences") {
            if self.is_embedded || !owners.iter().any(|known| equal(known, &owner)) {
                owners.push(owner);
            }
        }
        let mut controller: Option<String> = None;
        for (index, owner) in owners.iter().enumerate() {
            if self.release.has_owner_paths() {
                owner_by_index(*owner, &path.index(index), errors);
            } else {
                self::owner(*owner, &path, errors);
            }
            if !matches!(field(*owner, "controller"), Some(Value::Bool(true))) {
                continue;
            }
            let name = format!("{}/{}", text(*owner, "kind"), text(*owner, "name"));
            let Some(first) = &controller else {
                controller = Some(name);
                continue;
            };
            let all: Vec<String> = owners.iter().map(|owner| owner_json(*owner)).collect();
            let detail = format!(
                "Only one reference can have Controller set to true. Found \"true\" in references for {first} and {name}"
            );
            errors.push(FieldError::invalid_json(&path, &format!("[{}]", all.join(",")), &detail));
        }
    }

    fn finalizers(&self, metadata: Value<'_>, errors: &mut Vec<FieldError>) {
        let finalizers = finalizers(metadata);
        for finalizer in &finalizers {
            let problems = formats::qualified_name(finalizer, self.release.has_new_label_texts());
            self.invalid("finalizers", finalizer, &problems, errors);
        }
        if finalizers.contains(&ORPHAN) && finalizers.contains(&FOREGROUND) {
            let detail = format!("finalizer {ORPHAN} and {FOREGROUND} cannot be both set");
            let all: Vec<String> = finalizers.iter().map(|finalizer| json(finalizer)).collect();
            let all = format!("[{}]", all.join(","));
            errors.push(FieldError::invalid_json(&self.path.child("finalizers"), &all, &detail));
        }
    }

    fn generation(&self, metadata: Value<'_>, errors: &mut Vec<FieldError>) {
        if let Some(Value::Int(generation @ ..0)) = field(metadata, "generation")
            && self.is_embedded
        {
            let detail = "must be greater than or equal to 0";
            let path = self.path.child("generation");
            errors.push(FieldError::invalid_json(&path, &generation.to_string(), detail));
        }
    }

    fn managed_fields(&self, metadata: Value<'_>, errors: &mut Vec<FieldError>) {
        let entries = if self.is_embedded { items(metadata, "managedFields") } else { Vec::new() };
        for (index, entry) in entries.into_iter().enumerate() {
            let path = self.path.child("managedFields").index(index);
            let text = |field: &str| text(entry, field);
            errors.extend(self.operation(text("operation"), &path.child("operation")));
            let fields_type = text("fieldsType");
            if !matches!(fields_type, "" | "FieldsV1") {
                let detail = "must be `FieldsV1`";
                errors.push(FieldError::invalid(&path.child("fieldsType"), fields_type, detail));
            }
            let too_long = |field: &str, max: usize| {
                let limit = i64::try_from(max).unwrap_or(i64::MAX);
                let is_too_long = text(field).len() > max;
                is_too_long.then(|| FieldError::too_long(&path.child(field), limit, self.release))
            };
            errors.extend(too_long("manager", MAX_MANAGER));
            let manager = text("manager");
            for (at, symbol) in manager.char_indices().filter(|(_, symbol)| !is_printable(*symbol)) {
                let detail = format!("invalid character U+{:04X} (at position {at})", u32::from(symbol));
                errors.push(FieldError::invalid(&path.child("manager"), manager, &detail));
            }
            errors.extend(too_long("subresource", MAX_SUBRESOURCE));
        }
    }

    /// Returns the error of the operation of an entry in `managedFields`.
    fn operation(&self, operation: &str, path: &Path) -> Option<FieldError> {
        match operation {
            "Apply" | "Update" => None,
            "" if self.release.lists_operations() => Some(FieldError::required(path, "must not be empty")),
            _ if self.release.lists_operations() => {
                Some(FieldError::not_supported(path, operation, &["Apply", "Update"]))
            }
            _ => Some(FieldError::invalid(path, operation, "must be `Apply` or `Update`")),
        }
    }

    /// An object that is being deleted gets no new finalizers.
    fn new_finalizers(&self, metadata: Value<'_>, old: Value<'_>, errors: &mut Vec<FieldError>) {
        let old = finalizers(old);
        let added: BTreeSet<&str> =
            finalizers(metadata).into_iter().filter(|finalizer| !old.contains(finalizer)).collect();
        if !added.is_empty() {
            let added: Vec<String> = added.into_iter().map(crate::value::format::quote).collect();
            let detail = format!(
                "no new finalizers can be added if the object is being deleted, found new finalizers []string{{{}}}",
                added.join(", ")
            );
            errors.push(FieldError::forbidden(&self.path.child("finalizers"), &detail));
        }
    }

    fn invalid(&self, field: &str, value: &str, problems: &[String], errors: &mut Vec<FieldError>) {
        let path = self.path.child(field);
        errors.extend(problems.iter().map(|problem| FieldError::invalid(&path, value, problem)));
    }
}

const IMMUTABLE: &str = "field is immutable";

/// Returns the warnings about finalizers that the old object does not have.
pub(crate) fn finalizer_warnings(metadata: Value<'_>, old: Value<'_>, release: Release) -> Vec<String> {
    let old = finalizers(old);
    let added: BTreeSet<&str> =
        finalizers(metadata).into_iter().filter(|finalizer| !old.contains(finalizer)).collect();
    let warning = |finalizer: &str| {
        if finalizer.contains('/') || STANDARD_FINALIZERS.contains(&finalizer) {
            return None;
        }
        let path = if finalizer.contains('.') && release.has_finalizer_path_warning() {
            " including a path (/)"
        } else {
            ""
        };
        Some(format!(
            "metadata.finalizers: {}: prefer a domain-qualified finalizer name{path} to avoid accidental conflicts with other finalizer writers",
            crate::value::format::quote(finalizer)
        ))
    };
    added.into_iter().filter_map(warning).collect()
}

/// Returns a field that is present and not null.
fn field<'a>(object: Value<'a>, name: &str) -> Option<Value<'a>> {
    object.field(name).filter(|value| !matches!(value, Value::Null))
}

fn text<'a>(object: Value<'a>, name: &str) -> &'a str {
    object.field(name).and_then(|value| value.as_str()).unwrap_or_default()
}

fn items<'a>(object: Value<'a>, name: &str) -> Vec<Value<'a>> {
    object.field(name).unwrap_or_default().all_elements().collect()
}

fn finalizers(metadata: Value<'_>) -> Vec<&str> {
    items(metadata, "finalizers").iter().filter_map(Value::as_str).collect()
}

fn texts<'a>(object: Value<'a>, name: &str) -> impl Iterator<Item = (&'a str, &'a str)> {
    let entries = match object.field(name) {
        Some(Value::Object(entries)) => entries,
        _ => &[],
    };
    entries.iter().map(|(key, value)| (*key, value.as_str().unwrap_or_default()))
}

/// Returns the problems of a name that is a part of a URL.
pub(crate) fn path_segment(name: &str, is_prefix: bool) -> Vec<String> {
    if !is_prefix && matches!(name, "." | "..") {
        return vec![format!("may not be '{name}'")]; // lint: allow(text of the API server)
    }
    let found = ["/", "%"].into_iter().filter(|part| name.contains(part));
    found.map(|part| format!("may not contain '{part}'")).collect() // lint: allow(text of the API server)
}

/// Checks an owner, up to Kubernetes 1.36.
fn owner(owner: Value<'_>, path: &Path, errors: &mut Vec<FieldError>) {
    let text = |field: &str| text(owner, field);
    let api_version = text("apiVersion");
    let version = version(api_version);
    if version.is_empty() {
        errors.push(FieldError::invalid(&path.child("apiVersion"), api_version, "version must not be empty"));
    }
    for field in ["kind", "name", "uid"] {
        if text(field).is_empty() {
            errors.push(FieldError::invalid(&path.child(field), "", "must not be empty"));
        }
    }
    banned(owner, path, errors);
}

/// Checks an owner, from Kubernetes 1.37 on.
fn owner_by_index(owner: Value<'_>, path: &Path, errors: &mut Vec<FieldError>) {
    let text = |field: &str| text(owner, field);
    let api_version = text("apiVersion");
    if !api_version.is_empty() && version(api_version).is_empty() {
        let detail = "must be <group>/<version> or <version>";
        errors.push(FieldError::invalid(&path.child("apiVersion"), api_version, detail));
    }
    for field in ["apiVersion", "kind", "name", "uid"] {
        if text(field).is_empty() {
            errors.push(FieldError::required(&path.child(field), "must not be empty"));
        }
    }
    banned(owner, path, errors);
}

/// An Event owns nothing.
fn banned(owner: Value<'_>, path: &Path, errors: &mut Vec<FieldError>) {
    if matches!(text(owner, "apiVersion"), "v1" | "/v1") && text(owner, "kind") == "Event" {
        let detail = "/v1, Kind=Event is disallowed from being an owner";
        errors.push(FieldError::invalid_json(path, &owner_json(owner), detail));
    }
}

/// Returns the version of an `apiVersion`, which is empty if the text is not one.
fn version(api_version: &str) -> &str {
    match api_version.split_once('/') {
        None => api_version,
        Some((_, version)) if version.contains('/') => "",
        Some((_, version)) => version,
    }
}

/// Returns an owner as Go encodes it.
fn owner_json(owner: Value<'_>) -> String {
    let mut out = String::from("{");
    for field in ["apiVersion", "kind", "name", "uid"] {
        let _ = write!(out, "{}:{},", json(field), json(text(owner, field)));
    }
    for name in ["controller", "blockOwnerDeletion"] {
        if let Some(Value::Bool(value)) = field(owner, name) {
            let _ = write!(out, "{}:{value},", json(name));
        }
    }
    out.pop();
    out.push('}');
    out
}
