//! The API server's checks of a CRD when it is created or updated.
//!
//! | checks | module | upstream |
//! |---|---|---|
//! | order of all checks, metadata, `status` | this one | `ValidateCustomResourceDefinition` and `…Update` of `pkg/apis/apiextensions/validation` |
//! | names, versions, subresources, printer columns | `spec` | the same |
//! | conversion | `conversion` | the same, `pkg/util/webhook` of `k8s.io/apiserver` |
//! | structure of schemas | [`schema`](crate::schema) | `pkg/apiserver/schema` |
//! | defaults | `defaults` | `pkg/apiserver/schema/defaulting` |
//! | keywords of schemas | `keywords` | `pkg/apis/apiextensions/validation` |
//! | rules | `rules::admit` | the same |
//! | checks that an update skips | `ratchet` | the same |
//! | warnings | `warnings` | `pkg/registry/customresourcedefinition` |
//!
//! The CRD has been decoded, so its fields have their types. The API server accepts a CRD even if its names are in use or its
//! conversion webhook does not answer. A controller writes this to its status.

mod conversion;
mod defaults;
pub(crate) mod keywords;
mod ratchet;
mod spec;
mod warnings;

use super::Crd;
use super::rules;
use crate::cel::library::url;
use crate::field::{FieldError, Path, PathStep, Validated, remove_duplicates};
use crate::meta::{MetadataChecks, NameSyntax};
use crate::release::Release;
use crate::schema::{Schema, structural};
use crate::value::Value;
use ratchet::Ratchet;
use spec::DefinitionSpec;

/// The annotation without which the API server refuses CRDs of its own groups.
const APPROVAL: &str = "api-approved.kubernetes.io";

/// The fields that the root of a schema can have if the status has a schema of its own, as the API server names them.
const ROOT_FIELDS: &str = "[Description Type Format Title Maximum ExclusiveMaximum Minimum ExclusiveMinimum MaxLength MinLength Pattern MaxItems MinItems UniqueItems MultipleOf Required Items Properties ExternalDocs Example XPreserveUnknownFields XValidations]";

/// Checks a decoded CRD on an API server of a minor. `full` is the same CRD with the empty lists and maps of its schemas, which the API
/// server checks, but does not compare. `old` is the CRD before an update. If `keep_going` returns false, defaults are undecided.
pub fn admit(
    new: Value<'_>,
    full: Value<'_>,
    old: Option<Value<'_>>,
    server: u8,
    keep_going: &dyn Fn() -> bool,
) -> Validated {
    let release = Release::for_new(server);
    let read = |crd: Value<'_>| Crd::read(crd);
    let (crd, previous) = match (read(full), old.map(read).transpose()) {
        (Ok(crd), Ok(previous)) => (crd, previous),
        (Err(mut errors), _) => {
            remove_duplicates(&mut errors);
            return Validated { errors, ..Validated::default() };
        }
        (Ok(_), Err(errors)) => {
            let unread =
                |error: FieldError| FieldError { body: format!("of the old CRD: {}", error.body), ..error };
            let undecided = errors.into_iter().map(unread).collect();
            return Validated { undecided, ..Validated::default() };
        }
    };
    let ratchet = match (old, &previous) {
        (Some(old), Some(previous)) => Ratchet::of(previous, [new, old], release),
        _ => Ratchet::all(),
    };
    let mut found = CrdChecks { release, errors: Vec::new(), undecided: Vec::new() };
    let spec = DefinitionSpec::new(new);
    let before = old.map(DefinitionSpec::new);
    found.metadata(new, old, &spec);
    spec.check(&mut found.errors);
    found.schemas(&crd, &spec, &ratchet, keep_going);
    let schema_of = |index: usize| crd.versions.get(index).and_then(|version| version.schema.as_ref());
    spec.selectable_fields(schema_of, before.as_ref(), release, &mut found.errors);
    let is_established = old.is_some_and(is_established);
    let unchecked = conversion::check(&spec, before.as_ref(), is_established, release, &mut found.errors);
    found.undecided.extend(unchecked);
    if let Some(before) = &before {
        spec::immutable(&spec, before, is_established, &mut found.errors);
    }
    found.status(&spec, old.zip(before.as_ref()));
    found.approval(new, old);
    found.preserve(new, old);
    let CrdChecks { mut errors, undecided, .. } = found;
    remove_duplicates(&mut errors);
    let is_valid = errors.is_empty();
    let warnings = if is_valid { warnings::of(&crd, previous.as_ref(), release) } else { Vec::new() };
    Validated { errors, undecided, unchanged: Vec::new(), warnings }
}

/// State of the checks.
struct CrdChecks {
    release: Release,
    errors: Vec<FieldError>,
    undecided: Vec<FieldError>,
}

impl CrdChecks {
    /// Checks the metadata. An update does not check the name again.
    fn metadata(&mut self, new: Value<'_>, old: Option<Value<'_>>, spec: &DefinitionSpec<'_>) {
        let (path, release) = (Path::new("metadata"), self.release);
        let metadata = new.field("metadata").unwrap_or_default();
        let name = spec::text(metadata, "name");
        let names = NameSyntax::Subdomain;
        let checks =
            MetadataChecks { release, path: &path, namespaced: false, names, name, is_embedded: false };
        if let Some(old) = old {
            let old = old.field("metadata").unwrap_or_default();
            return checks.update(metadata, old, &mut self.errors);
        }
        checks.object(metadata, &mut self.errors);
        let plural = spec.value.field("names").map(|names| spec::text(names, "plural")).unwrap_or_default();
        let required = format!("{plural}.{}", spec::text(spec.value, "group"));
        for (field, name) in [("generateName", spec::text(metadata, "generateName")), ("name", name)] {
            if !name.is_empty() && name != required {
                let detail = r#"must be spec.names.plural+"."+spec.group"#;
                self.errors.push(FieldError::invalid(&path.child(field), name, detail));
            }
        }
    }

    /// Checks the schema of each version, or that of all versions.
    fn schemas(
        &mut self,
        crd: &Crd,
        spec: &DefinitionSpec<'_>,
        ratchet: &Ratchet,
        keep_going: &dyn Fn() -> bool,
    ) {
        let keeps = matches!(spec.value.field("preserveUnknownFields"), Some(Value::Bool(true)));
        let any = |is_found: &dyn Fn(&Schema) -> bool| {
            let mut schemas = crd.versions.iter().filter_map(|version| version.schema.as_ref());
            schemas.any(|schema| schema.any(&mut |schema| is_found(schema)))
        };
        let has_defaults = any(&|schema| schema.default.is_some());
        if keeps && has_defaults {
            let path = spec.path.child("preserveUnknownFields");
            let detail = "must be false in order to use defaults in the schema";
            self.errors.push(FieldError::invalid_json(&path, "true", detail));
        }
        let must_be_structural = ratchet.structural || !keeps || has_defaults || any(&has_extensions);
        for (index, version) in crd.versions.iter().enumerate() {
            if version.schema.is_none() && (ratchet.schemas || (!keeps && version.served)) {
                let path = spec.path.child("versions").index(index).child("schema").child("openAPIV3Schema");
                let detail = if ratchet.schemas {
                    self.release.missing_schema()
                } else {
                    "because otherwise all fields are pruned"
                };
                self.errors.push(FieldError::required(&path, detail));
            }
        }
        for part in spec.parts("schema", "validation") {
            let Some(version) = crd.versions.get(part.index) else { continue };
            let Some(schema) = &version.schema else { continue };
            let path = part.path.child("openAPIV3Schema");
            let options = rules::RuleOptions {
                release: self.release,
                stored: &ratchet.stored,
                is_unchanged: ratchet.unchanged.contains(&version.name),
                strictness: ratchet.strictness,
                compiles: false,
            };
            let before = self.errors.len();
            if spec.has_status(&part) {
                self.root(schema, &path);
            }
            if schema.nullable {
                let detail = "nullable cannot be true at the root";
                self.errors.push(FieldError::forbidden(&path.child("nullable"), detail));
            }
            let is_supported = structural::is_supported(schema);
            let compiles = must_be_structural && is_supported && {
                let mut errors = structural::check(schema, &path);
                if errors.is_empty() {
                    let answer =
                        defaults::check(schema, &path, ratchet.pruned_defaults, self.release, keep_going);
                    self.undecided.extend(answer.undecided);
                    errors = answer.errors;
                }
                self.errors.extend_from_slice(&errors);
                errors.is_empty()
            };
            let errors = rules::check(schema, rules::RuleOptions { compiles, ..options }, &path);
            self.errors.extend(errors);
            if must_be_structural && !is_supported && self.errors.len() == before {
                let detail = "OpenAPIV3Schema 'schema' is not supported";
                self.errors.push(FieldError::invalid(&path, "", detail));
            }
        }
    }

    /// Checks the root of a schema whose status is validated alone.
    fn root(&mut self, schema: &Schema, path: &Path) {
        let is_named = |name: &&&str| matches!(**name, "id" | "$schema" | "$ref");
        let is_first = schema.has_empty_reference || schema.unsupported.iter().any(|name| is_named(&name));
        let name = schema.type_name();
        if !is_first && !matches!(name, "" | "object") {
            let detail = r#"only "object" is allowed as the type at the root of the schema if the status subresource is enabled"#;
            self.errors.push(FieldError::invalid(&path.child("type"), name, detail));
        } else if !schema.has_only_root_fields() {
            let detail = format!(
                "only {ROOT_FIELDS} fields are allowed at the root of the schema if the status subresource is enabled"
            );
            self.errors.push(FieldError::invalid_json(path, "{...}", &detail));
        }
    }

    /// Checks the status, which is that before the update.
    fn status(&mut self, spec: &DefinitionSpec<'_>, old: Option<(Value<'_>, &DefinitionSpec<'_>)>) {
        let Some((old, before)) = old else {
            let stored: Vec<&str> = spec.storage().into_iter().take(1).collect();
            return spec::stored_versions(spec, &stored, self.release, &mut self.errors);
        };
        let status = old.field("status").unwrap_or_default();
        let accepted = status.field("acceptedNames").unwrap_or_default();
        spec::names(accepted, &Path::new("status").child("acceptedNames"), false, &mut self.errors);
        let known = status.field("storedVersions").unwrap_or_default();
        let mut stored: Vec<&str> = known.all_elements().filter_map(|name| name.as_str()).collect();
        if stored.is_empty() {
            // A CRD without a status is one that was not read from a cluster. Its other versions can be stored as well.
            stored.extend(before.storage());
            let is_gone =
                |name: &&str| !spec.names().any(|version| version == *name) && !stored.contains(name);
            if let Some(name) = before.names().find(is_gone) {
                let detail = format!("of the old CRD: needed to know whether objects are stored as {name}");
                let path = Path::new("status").child("storedVersions");
                self.undecided.push(FieldError::required(&path, &detail));
            }
        }
        if let Some(name) = spec.storage().first().filter(|name| !stored.contains(name)) {
            stored.push(name);
        }
        spec::stored_versions(spec, &stored, self.release, &mut self.errors);
    }

    /// Checks that a CRD of a group of Kubernetes has an approval. One that never had any stays valid.
    fn approval(&mut self, new: Value<'_>, old: Option<Value<'_>>) {
        let group = new.field("spec").map(|spec| spec::text(spec, "group")).unwrap_or_default();
        let is_protected =
            ["k8s.io", "kubernetes.io"].iter().any(|of| group.strip_suffix(of).is_some_and(is_domain));
        if !is_protected {
            return;
        }
        let strict = self.release.url_host_is_strict();
        let annotation = |crd: Value<'_>| approval_of(crd).to_owned();
        let state = |crd: Value<'_>| Approval::of(&annotation(crd), strict);
        if old.is_some_and(|old| state(old) == state(new)) {
            return;
        }
        let path = Path::new("metadata").child("annotations").key(APPROVAL);
        let see = "see https://github.com/kubernetes/enhancements/pull/1111";
        let start = format!("protected groups must have approval annotation \"{APPROVAL}\"");
        match state(new) {
            Approval::Given | Approval::Bypassed => {}
            Approval::Missing => self.errors.push(FieldError::required(&path, &format!("{start}, {see}"))),
            Approval::Invalid => {
                let detail =
                    format!("{start} with either a URL or a reason starting with \"unapproved\", {see}");
                self.errors.push(FieldError::invalid(&path, &annotation(new), &detail));
            }
        }
    }

    /// A CRD can't begin to keep unknown fields.
    fn preserve(&mut self, new: Value<'_>, old: Option<Value<'_>>) {
        let keeps = |crd: Value<'_>| {
            let keeps = crd.field("spec").and_then(|spec| spec.field("preserveUnknownFields"));
            matches!(keeps, Some(Value::Bool(true)))
        };
        if keeps(new) && !old.is_some_and(keeps) {
            let path = Path::new("spec").child("preserveUnknownFields");
            let detail = "cannot set to true, set x-kubernetes-preserve-unknown-fields to true in spec.versions[*].schema instead";
            self.errors.push(FieldError::invalid_json(&path, "true", detail));
        }
    }
}

/// The state of an approval.
#[derive(PartialEq, Eq)]
enum Approval {
    Missing,
    Bypassed,
    Given,
    Invalid,
}

impl Approval {
    fn of(annotation: &str, strict: bool) -> Self {
        if annotation.is_empty() {
            return Self::Missing;
        }
        if annotation.starts_with("unapproved") {
            return Self::Bypassed;
        }
        if url::request_host(annotation, strict).is_some() { Self::Given } else { Self::Invalid }
    }
}

fn approval_of(crd: Value<'_>) -> &str {
    let annotations = crd.field("metadata").and_then(|metadata| metadata.field("annotations"));
    annotations.map(|annotations| spec::text(annotations, APPROVAL)).unwrap_or_default()
}

/// Whether the rest of a name before a domain leaves a domain.
fn is_domain(rest: &str) -> bool {
    rest.is_empty() || rest.ends_with('.')
}

/// Whether the API server serves a CRD, so that its kind and scope can't change. A CRD without conditions is one that was not read from a
/// cluster. It counts as served, as nearly all CRDs are.
fn is_established(crd: Value<'_>) -> bool {
    let conditions = crd.field("status").and_then(|status| status.field("conditions")).unwrap_or_default();
    if conditions.list_len().is_none_or(|len| len == 0) {
        return true;
    }
    conditions.all_elements().any(|condition| {
        spec::text(condition, "type") == "Established" && spec::text(condition, "status") == "True"
    })
}

/// Whether a schema has a keyword that only structural schemas can have.
fn has_extensions(schema: &Schema) -> bool {
    schema.is_embedded_resource
        || schema.preserve.is_some()
        || schema.is_int_or_string
        || !schema.map_keys.is_empty()
        || schema.list_type.is_some()
        || !schema.rules.is_empty()
}

/// Returns the field of the document that an error of the API server names by a path. The API server moves fields that all versions share, and renames some.
pub fn document_path(path: &Path) -> Path {
    let version = Path::new("spec").child("versions").index(0);
    let field = |step: &PathStep| if let PathStep::Field(name) = step { name.clone() } else { String::new() };
    let names: Vec<String> = path.steps().iter().take(3).map(field).collect();
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    let (start, skipped) = match names.as_slice() {
        ["spec", "validation", ..] => (version.child("schema"), 2),
        ["spec", "version", ..] => (version.child("name"), 2),
        ["spec", shared @ ("subresources" | "additionalPrinterColumns" | "selectableFields"), ..] => {
            (version.child(shared), 2)
        }
        ["spec", "conversion", "webhookClientConfig"] => {
            (Path::new("spec").child("conversion").child("webhook").child("clientConfig"), 3)
        }
        ["spec", "conversion", "conversionReviewVersions"] => {
            (Path::new("spec").child("conversion").child("webhook").child("conversionReviewVersions"), 3)
        }
        _ => (Path::default(), 0),
    };
    let rest = path.steps().iter().skip(skipped);
    rest.fold(start, |path, step| match step {
        PathStep::Field(name) if name == "JSONPath" => path.child("jsonPath"),
        step => path.step(step),
    })
}
