//! From objects to policies, kinds and facts, with all problems of all files.

use std::collections::{BTreeSet, HashMap};

use clap::ValueEnum;
use policy::crd::Crd;
use policy::field::{Path, PathStep};
use policy::kinds::Kinds;
use policy::normalize::normalize;
use policy::release::{NEWEST, Release};
use policy::set::{LoadError, PolicySet, PolicySetBuilder, Recognized};
use policy::value::{Arena, Value, read_json};
use policy::vap::model::ParamKind;

use crate::LoadProblem;
use crate::expression;
use crate::facts::{self, FactStore, FieldValidation, Sources, group_version};
use crate::files::Use;
use crate::kind::{is_crd, unknown_kind, unserved, unserved_kind};
use crate::objects::{ADMISSION, Manifest};

/// Treatment of policies without a binding.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, ValueEnum)]
pub enum Unbound {
    /// Report them
    #[default]
    Error,
    /// Ignore them, as the API server does
    Skip,
    /// Evaluate them as if a binding denied violations everywhere
    Deny,
}

/// Policies and facts of a run.
pub struct Loaded {
    /// The policies, unless one of them is refused.
    pub set: Option<PolicySet>,
    /// Kinds of Kubernetes, and those of CRDs.
    pub kinds: Kinds,
    /// Kinds of the state before the change.
    pub old_kinds: Kinds,
    /// Facts.
    pub store: FactStore,
    /// Number of policies.
    pub policies: usize,
    /// Number of bindings.
    pub bindings: usize,
    /// Objects that can't be used.
    pub problems: Vec<LoadProblem>,
    /// Remarks.
    pub notes: Vec<String>,
}

/// Choices of the command line.
pub struct LoadOptions {
    /// Minor version of the API server.
    pub minor: u8,
    /// Namespace of objects that name none.
    pub namespace: String,
    /// The treatment of policies without a binding.
    pub unbound: Unbound,
    /// The treatment of unknown fields.
    pub field_validation: FieldValidation,
}

/// Loads policies and facts. `built_in` are the kinds without those of CRDs.
pub fn load(objects: &[Manifest], built_in: Kinds, options: &LoadOptions) -> Loaded {
    let mut problems = Vec::new();
    let mut notes = BTreeSet::new();
    let (kinds, old_kinds) = kinds(objects, built_in, &mut problems, &mut notes);
    let policies: Vec<&Manifest> =
        objects.iter().filter(|object| object.group() == ADMISSION && object.used != Use::Old).collect();
    let mut found = FoundPolicies::default();
    let builder = found.read(&policies, options, &kinds, &mut problems, &mut notes);
    let set = match builder.finish() {
        Ok(set) => Some(set),
        Err(errors) => {
            for error in errors {
                refuse(&policies, &error, options.minor, &mut problems);
            }
            None
        }
    };
    let sources = Sources {
        kinds: &kinds,
        param_kinds: &found.param_kinds,
        namespace: &options.namespace,
        minor: options.minor,
        field_validation: options.field_validation,
    };
    let facts = objects.iter().filter(|object| object.used != Use::Old);
    let store = FactStore::new(facts, &sources, &mut problems);
    problems.extend(facts::old_problems(objects, &old_kinds, options.field_validation));
    let set = set.filter(|_| problems.is_empty());
    let (policies, bindings) = (found.policies.len(), found.bindings);
    let notes = notes.into_iter().collect();
    Loaded { set, kinds, old_kinds, store, policies, bindings, problems, notes }
}

/// Collects the kinds of all CRDs: those after the change, and those of objects before it. If the change deletes a CRD, the API
/// server doesn't accept objects of its kind.
fn kinds(
    objects: &[Manifest],
    built_in: Kinds,
    problems: &mut Vec<LoadProblem>,
    notes: &mut BTreeSet<String>,
) -> (Kinds, Kinds) {
    let (old, new): (Vec<_>, Vec<_>) =
        objects.iter().filter(|object| is_crd(object)).partition(|object| object.used == Use::Old);
    let kinds = with_crds(built_in, &new, problems, notes);
    let old_kinds = with_crds(kinds.clone(), &old, problems, notes);
    (kinds, old_kinds)
}

/// Adds the kinds of CRDs.
fn with_crds(
    mut kinds: Kinds,
    crds: &[&Manifest],
    problems: &mut Vec<LoadProblem>,
    notes: &mut BTreeSet<String>,
) -> Kinds {
    let mut arena = Arena::new();
    for object in crds {
        let value = object.value(&arena);
        match Crd::read(value) {
            Ok(crd) => {
                if crd.is_v1beta1 {
                    let place = object.position();
                    notes.insert(format!(
                        "{}:{}: CustomResourceDefinition \"{}\" is read as Kubernetes 1.15 read v1beta1; no API server since 1.22 accepts it",
                        place.file, place.line, object.name
                    ));
                }
                kinds.with_crd(crd);
            }
            Err(errors) => {
                problems.extend(errors.iter().map(|error| object.problem(&error.path, error.body.clone())));
            }
        }
        arena.reset();
    }
    kinds
}

/// The policies and bindings of a run.
#[derive(Default)]
struct FoundPolicies {
    /// Names of policies.
    policies: HashMap<String, usize>,
    bindings: usize,
    param_kinds: Vec<ParamKind>,
}

impl FoundPolicies {
    /// Adds all policies and bindings to a builder. The name of a source is the index of its object.
    fn read(
        &mut self,
        objects: &[&Manifest],
        options: &LoadOptions,
        kinds: &Kinds,
        problems: &mut Vec<LoadProblem>,
        notes: &mut BTreeSet<String>,
    ) -> PolicySetBuilder {
        let mut builder = PolicySetBuilder::new(Release::for_new(options.minor));
        let (mut bound, mut names) = (BTreeSet::new(), BTreeSet::new());
        let mut arena = Arena::new();
        for (index, object) in objects.iter().enumerate() {
            let value = object.value(&arena);
            decode(object, value, options, kinds, problems, notes);
            let spec = value.field("spec").unwrap_or_default();
            let text = |field: &str| spec.field(field).and_then(|value| value.as_str()).unwrap_or_default();
            match builder.add(&index.to_string(), value) {
                Recognized::Policy => {
                    self.policies.entry(object.name.clone()).or_insert(index);
                    let kind = spec.field("paramKind").unwrap_or_default();
                    let part = |field: &str| kind.field(field).and_then(|value| value.as_str());
                    if let (Some(api_version), Some(kind)) = (part("apiVersion"), part("kind")) {
                        let kind = ParamKind { api_version: api_version.to_owned(), kind: kind.to_owned() };
                        // The policy is refused if its version has several slashes.
                        let is_version = kind.api_version.matches('/').count() < 2;
                        if is_version {
                            problems.extend(check_param_kind(object, &kind, kinds, options.minor));
                        }
                        self.param_kinds.push(kind);
                    }
                }
                Recognized::Binding => {
                    self.bindings += 1;
                    bound.insert(text("policyName").to_owned());
                    names.insert(object.name.clone());
                }
                Recognized::Mutating => {
                    let place = object.position();
                    notes.insert(format!(
                        "{}:{}: {} \"{}\" is not evaluated: the verdict is before mutation",
                        place.file, place.line, object.kind, object.name
                    ));
                }
                Recognized::Other if object.kind == "ValidatingWebhookConfiguration" => {
                    let place = object.position();
                    notes.insert(format!(
                        "{}:{}: {} \"{}\" is not evaluated: no webhook is called",
                        place.file, place.line, object.kind, object.name
                    ));
                }
                // `decode` has reported it.
                Recognized::Other => {}
            }
            arena.reset();
        }
        let unbound: Vec<(&String, &usize)> =
            self.policies.iter().filter(|(name, _)| !bound.contains(*name)).collect();
        for (name, index) in unbound {
            match options.unbound {
                Unbound::Skip => {}
                Unbound::Deny => {
                    let mut binding = name.clone();
                    while !names.insert(binding.clone()) {
                        binding.push_str("-unbound");
                    }
                    add_binding(&mut builder, &binding, name, &arena);
                }
                Unbound::Error => {
                    if let Some(object) = objects.get(*index) {
                        problems.push(LoadProblem {
                            next: "add a ValidatingAdmissionPolicyBinding, or use --unbound deny or --unbound skip".to_owned(),
                            ..object.problem(
                                &Path::new("metadata").child("name"),
                                "no binding names this policy, so the API server never evaluates it",
                            )
                        });
                    }
                }
            }
        }
        builder
    }
}

/// Adds the problems for which the API server can't decode a policy, a binding or a webhook configuration.
fn decode(
    object: &Manifest,
    value: Value<'_>,
    options: &LoadOptions,
    kinds: &Kinds,
    problems: &mut Vec<LoadProblem>,
    notes: &mut BTreeSet<String>,
) {
    match kinds.lookup(object.group(), object.version(), &object.kind) {
        Some(resource) if !resource.minors.contains(&options.minor) => {
            problems.push(unserved_kind(object, &resource.minors, options.minor));
        }
        Some(_) => {}
        // The builder reports the version of a policy or binding.
        None if matches!(&*object.kind, "ValidatingAdmissionPolicy" | "ValidatingAdmissionPolicyBinding") => {
        }
        None => problems.push(unknown_kind(object, kinds, options.minor)),
    }
    // All versions of a kind have the same fields, and the types of one of them are recorded.
    let version = if object.kind.starts_with("MutatingAdmission") { "v1beta1" } else { "v1" };
    let arena = Arena::new();
    let unknown = match normalize((object.group(), version, &object.kind), value, &arena) {
        Ok(normalized) => normalized.unknown,
        Err(errors) => {
            // The builder reads `spec` itself and reports its errors.
            let is_read = |path: &Path| path.steps().first() == Some(&PathStep::Field("spec".to_owned()));
            let errors = errors.iter().filter(|error| !is_read(&error.path));
            problems.extend(errors.map(|error| object.problem(&error.path, error.body.clone())));
            return;
        }
    };
    for field in unknown {
        match options.field_validation {
            FieldValidation::Strict => problems.push(LoadProblem {
                next: "fix its name or remove it".to_owned(),
                ..object.problem(&field, "unknown field")
            }),
            FieldValidation::Warn => {
                let place = object.place_of(&field);
                notes.insert(format!(
                    "{}:{}: unknown field \"{field}\" of {} \"{}\" is ignored",
                    place.file, place.line, object.kind, object.name
                ));
            }
            FieldValidation::Ignore => {}
        }
    }
}

/// Adds the problems of a refused policy or binding.
fn refuse(objects: &[&Manifest], error: &LoadError, minor: u8, problems: &mut Vec<LoadProblem>) {
    let field = &error.error;
    let Some(object) = error.source_name.parse().ok().and_then(|index: usize| objects.get(index)) else {
        return problems.push(LoadProblem {
            position: None,
            kind: error.kind.to_owned(),
            name: error.name.clone(),
            field: field.path.to_string(),
            message: field.body.clone(),
            next: String::new(),
        });
    };
    let next = if field.places.is_empty() { None } else { accepted_from(object, error, minor) };
    let next = next.map(|minor| format!("accepted from Kubernetes 1.{minor} on: --kube-version 1.{minor}"));
    let next = next.unwrap_or_default();
    if field.places.is_empty() {
        problems.push(LoadProblem { next: next.clone(), ..object.problem(&field.path, field.body.clone()) });
    }
    for (line, column, text) in &field.places {
        problems.push(LoadProblem {
            position: Some(expression::position(object, &field.path, (*line, *column))),
            next: next.clone(),
            ..object.problem(&field.path, text.clone())
        });
    }
}

/// Returns the first newer API server that accepts an expression.
fn accepted_from(object: &Manifest, error: &LoadError, minor: u8) -> Option<u8> {
    let mut arena = Arena::new();
    for newer in minor.saturating_add(1)..=NEWEST {
        let mut builder = PolicySetBuilder::new(Release::for_new(newer));
        builder.add("", object.value(&arena));
        let refused = match builder.finish() {
            Ok(_) => false,
            Err(errors) => errors.iter().any(|other| other.error.path == error.error.path),
        };
        if !refused {
            return Some(newer);
        }
        arena.reset();
    }
    None
}

/// Returns the problem of a kind of parameters that the API server does not know or serve.
fn check_param_kind(object: &Manifest, kind: &ParamKind, kinds: &Kinds, minor: u8) -> Option<LoadProblem> {
    let (group, version) = group_version(&kind.api_version);
    let (message, next) = match kinds.lookup(group, version, &kind.kind) {
        Some(resource) if resource.minors.contains(&minor) => return None,
        Some(resource) => unserved(&kind.api_version, &kind.kind, &resource.minors, minor),
        None => {
            let message = format!("unknown kind {} in {}", kind.kind, kind.api_version);
            (message, "add its CRD with --with".to_owned())
        }
    };
    Some(LoadProblem { next, ..object.problem(&Path::new("spec").child("paramKind"), message) })
}

/// Binds a policy to everything.
fn add_binding(builder: &mut PolicySetBuilder, name: &str, policy: &str, arena: &Arena) {
    let binding = serde_json::json!({
        "apiVersion": "admissionregistration.k8s.io/v1",
        "kind": "ValidatingAdmissionPolicyBinding",
        "metadata": {"name": name},
        "spec": {"policyName": policy, "validationActions": ["Deny"]},
    });
    if let Ok(value) = read_json(arena.text(&binding.to_string()), arena) {
        builder.add("", value);
    }
}
