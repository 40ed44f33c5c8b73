//! Facts that policies ask for, from the objects of the command line. A fact that was not given stays unknown.

use std::collections::{BTreeMap, HashMap};

use clap::ValueEnum;
use policy::crd::object::from_storage;
use policy::facts::{Facts, Lookup, ParamQuery};
use policy::field::{FieldError, Path};
use policy::kinds::Kinds;
use policy::normalize::Normalized;
use policy::value::{Arena, write_json};
use policy::vap::model::ParamKind;

use crate::LoadProblem;
use crate::decode::{NAME_LABEL, as_stored, with_name_label};
use crate::files::Use;
use crate::objects::Manifest;
use crate::parallel;

/// Treatment of fields that a kind does not have, as in requests to the API server. `kubectl` asks for `strict`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, ValueEnum)]
pub enum FieldValidation {
    /// Deny the object
    #[default]
    Strict,
    /// Warn
    Warn,
    /// Drop them
    Ignore,
}

/// The facts of a run.
#[derive(Debug, Clone, Default)]
pub struct FactStore {
    /// Namespaces as JSON.
    namespaces: HashMap<String, String>,
    /// Objects that can be parameters: by group and kind, namespace, then name.
    params: HashMap<(String, String), BTreeMap<String, BTreeMap<String, Manifest>>>,
    /// Whether there are no other parameters.
    has_all_params: bool,
    /// Minor version of the API server.
    minor: u8,
}

/// The input of a [`FactStore`] besides its objects.
pub struct Sources<'s> {
    /// The kinds of objects.
    pub kinds: &'s Kinds,
    /// The kinds of parameters.
    pub param_kinds: &'s [ParamKind],
    /// Namespace of objects that name none.
    pub namespace: &'s str,
    /// Minor version of the API server.
    pub minor: u8,
    /// The treatment of unknown fields.
    pub field_validation: FieldValidation,
}

impl FactStore {
    /// Creates a store of objects, and reports those that can't be used as facts.
    pub fn new<'o>(
        objects: impl Iterator<Item = &'o Manifest>,
        sources: &Sources<'_>,
        problems: &mut Vec<LoadProblem>,
    ) -> Self {
        let mut store = Self { minor: sources.minor, ..Self::default() };
        let mut arena = Arena::new();
        let mut seen: HashMap<(&str, &str, String, &str), &Manifest> = HashMap::new();
        for object in objects {
            let is_namespace = object.is("", "Namespace");
            let is_param = sources
                .param_kinds
                .iter()
                .any(|kind| kind.kind == object.kind && group_version(&kind.api_version).0 == object.group());
            if !is_namespace && !is_param {
                continue;
            }
            if object.is_generated {
                // A checked object without a name is reported when it is paired, and a generated name can't be a reference.
                if object.used == Use::Fact {
                    problems.push(object.nameless("set metadata.name"));
                }
                continue;
            }
            let resource = sources.kinds.lookup(object.group(), object.version(), &object.kind);
            let own = match (resource.is_some_and(|resource| resource.namespaced), object.namespace.as_str())
            {
                (false, _) => "",
                (true, "") => sources.namespace,
                (true, own) => own,
            };
            let key = (object.group(), object.kind.as_str(), own.to_owned(), object.name.as_str());
            if let Some(first) = seen.insert(key, object) {
                problems.push(object.duplicate_of(first));
            }
            let decoded = as_stored(object, sources.kinds, &arena);
            // Those of a checked object are findings.
            if object.used == Use::Fact {
                problems.extend(decoding_problems(object, &decoded, sources.field_validation));
            }
            if is_namespace {
                let json = match decoded {
                    Ok(decoded) => write_json(with_name_label(decoded.object, &object.name, &arena)),
                    Err(_) => write_json(object.value(&arena)),
                };
                store.namespaces.insert(object.name.clone(), json);
            }
            if is_param {
                let of_kind =
                    store.params.entry((object.group().to_owned(), object.kind.clone())).or_default();
                of_kind.entry(own.to_owned()).or_default().insert(object.name.clone(), object.clone());
            }
            arena.reset();
        }
        store
    }

    /// Replaces the labels of a namespace.
    pub fn set_labels(&mut self, namespace: &str, labels: &BTreeMap<String, String>) {
        let mut labels = labels.clone();
        labels.insert(NAME_LABEL.to_owned(), namespace.to_owned());
        let object = serde_json::json!({"metadata": {"name": namespace, "labels": labels}});
        self.namespaces.insert(namespace.to_owned(), object.to_string());
    }

    /// Replaces all parameters. `namespace` is that of objects that name none.
    pub fn set_params(
        &mut self,
        params: &[Manifest],
        kinds: &Kinds,
        namespace: &str,
        field_validation: FieldValidation,
    ) -> Result<(), Box<LoadProblem>> {
        let params: Vec<Manifest> =
            params.iter().map(|object| Manifest { used: Use::Fact, ..object.clone() }).collect();
        let kind = |object: &Manifest| ParamKind {
            api_version: object.api_version.clone(),
            kind: object.kind.clone(),
        };
        let param_kinds: Vec<ParamKind> = params.iter().map(kind).collect();
        let sources =
            Sources { kinds, param_kinds: &param_kinds, namespace, minor: self.minor, field_validation };
        let mut problems = Vec::new();
        self.params = Self::new(params.iter(), &sources, &mut problems).params;
        self.has_all_params = true;
        problems.into_iter().next().map_or(Ok(()), |problem| Err(Box::new(problem)))
    }

    /// Returns the namespaces that contain a parameter of a kind. An empty namespace stands for any, as does an absent name.
    pub fn namespaces_of_params(&self, kind: &ParamKind, namespace: &str, name: Option<&str>) -> Vec<String> {
        let (group, _) = group_version(&kind.api_version);
        let of_kind = self.params.get(&(group.to_owned(), kind.kind.clone()));
        let found = of_kind.into_iter().flatten().filter(|(own, params)| {
            (namespace.is_empty() || namespace == *own)
                && name.map_or(!params.is_empty(), |name| params.contains_key(name))
        });
        found.map(|(namespace, _)| namespace.clone()).collect()
    }

    /// Returns whether there are no other parameters than those of the store.
    pub fn has_all_params(&self) -> bool {
        self.has_all_params
    }

    /// Adds the answer to a lookup. Returns whether there is one.
    pub fn answer(&self, lookup: &Lookup, kinds: &Kinds, facts: &mut Facts) -> bool {
        match lookup {
            Lookup::Namespace(name) => match self.namespaces.get(name) {
                Some(json) => facts.namespaces.insert(name.clone(), Some(json.clone())).is_none(),
                None => false,
            },
            Lookup::ParamKind(kind) => match is_namespaced(kinds, kind, self.minor) {
                Some(namespaced) => facts.param_kinds.insert(kind.clone(), Some(namespaced)).is_none(),
                None => false,
            },
            Lookup::Params(query) => match self.params(query, kinds) {
                Some(params) => facts.params.insert(query.clone(), params).is_none(),
                None => false,
            },
            Lookup::Check(_)
            | Lookup::User
            | Lookup::OldObject
            | Lookup::Limit(_)
            | Lookup::Conversion { .. } => false,
        }
    }

    /// Returns the parameters of a query. It is unknown if there are none, or one has a version that can't be converted.
    fn params(&self, query: &ParamQuery, kinds: &Kinds) -> Option<Vec<String>> {
        let (group, version) = group_version(&query.kind.api_version);
        let key = (group.to_owned(), query.kind.kind.clone());
        let named = self.params.get(&key).and_then(|namespaces| namespaces.get(&query.namespace));
        let found: Vec<&Manifest> = match (&query.name, named) {
            (_, None) => Vec::new(),
            (Some(name), Some(named)) => named.get(name).into_iter().collect(),
            (None, Some(named)) => named.values().collect(),
        };
        if found.is_empty() && !self.has_all_params {
            return None;
        }
        let custom =
            kinds.crd(group, version, &query.kind.kind).filter(|(crd, _)| !crd.is_converted_by_webhook);
        let in_version = |param: &Manifest| {
            let arena = Arena::new();
            let decoded = as_stored(param, kinds, &arena);
            let value = decoded.map_or_else(|_| param.value(&arena), |decoded| decoded.object);
            let value = match custom {
                Some((crd, version)) => from_storage(crd, (param.version(), version), value, &arena),
                None if param.api_version == query.kind.api_version => value,
                None => return None,
            };
            let json = write_json(value);
            (!arena.is_full()).then_some(json)
        };
        found.into_iter().map(in_version).collect()
    }
}

/// Returns the problems of the objects before the change. The cluster can't have stored them in this form.
pub fn old_problems(
    objects: &[Manifest],
    old_kinds: &Kinds,
    field_validation: FieldValidation,
) -> Vec<LoadProblem> {
    let is_old = |object: &&Manifest| object.used == Use::Old && object.is_judged();
    let old: Vec<&Manifest> = objects.iter().filter(is_old).collect();
    let problems = parallel::map(&old, "reading", Arena::new, |arena, object| {
        let problems = decoding_problems(object, &as_stored(object, old_kinds, arena), field_validation);
        arena.reset();
        problems
    });
    problems.into_iter().flatten().collect()
}

/// Returns the errors for which the API server would not have stored an object.
fn decoding_problems(
    object: &Manifest,
    decoded: &Result<Normalized<'_>, Vec<FieldError>>,
    field_validation: FieldValidation,
) -> Vec<LoadProblem> {
    match decoded {
        Err(errors) => errors.iter().map(|error| object.problem(&error.path, error.body.clone())).collect(),
        Ok(decoded) if field_validation == FieldValidation::Strict => {
            decoded.unknown.iter().map(|field| unknown_field(object, field)).collect()
        }
        Ok(_) => Vec::new(),
    }
}

/// Returns the problem of a field that the kind does not have.
fn unknown_field(object: &Manifest, field: &Path) -> LoadProblem {
    LoadProblem {
        next: "fix its name, or drop unknown fields: --field-validation ignore".to_owned(),
        ..object.problem(field, "unknown field")
    }
}

/// Returns group and version; the core group is empty.
pub fn group_version(api_version: &str) -> (&str, &str) {
    api_version.split_once('/').unwrap_or(("", api_version))
}

/// Returns whether a kind of parameters is namespaced, if the API server of a minor serves it.
fn is_namespaced(kinds: &Kinds, kind: &ParamKind, minor: u8) -> Option<bool> {
    let (group, version) = group_version(&kind.api_version);
    let resource = kinds.lookup(group, version, &kind.kind)?;
    resource.minors.contains(&minor).then_some(resource.namespaced)
}
