//! The policies of files for a server that evaluates requests, instead of objects in files.
//!
//! The files are read as by the command, with two differences. They are the only source of params, so params that they don't contain
//! don't exist. A policy that could not be decided on any request is a problem: it asks the authorizer, or its params are missing.

use std::collections::HashMap;
use std::path::PathBuf;

use config::{Place, Problem};
use console::input;
use policy::facts::{Facts, Lookup, ParamKind, ParamQuery};
use policy::field::Path;
use policy::kinds::Kinds;
use policy::set::PolicySet;
use policy::vap::model::Binding;
use sha2::{Digest as _, Sha256};

use crate::facts::FieldValidation;
use crate::files::{self, InputFile, Use};
use crate::load::{LoadOptions, Loaded, Unbound, load};
use crate::objects::{self, ADMISSION, Manifest};
use crate::{DEFAULT_MINOR, LoadProblem};

/// Largest file. An API server accepts a request of 3 MiB.
const MAX_FILE: u64 = 3 << 20;

/// Reads of files that change in between. The kubelet replaces all files of a `ConfigMap` at once.
const MAX_READS: usize = 5;

/// The kind of policies.
const POLICY: &str = "ValidatingAdmissionPolicy";

/// Namespace of params that name none, as with `kubectl apply`.
const NAMESPACE: &str = "default";

/// The policies of files, with their bindings and params.
pub struct Policies {
    set: PolicySet,
    kinds: Kinds,
    facts: Facts,
    /// The place of each policy.
    places: HashMap<String, Place>,
    paths: Vec<PathBuf>,
    digest: String,
}

impl Policies {
    /// Loads all files, or returns all problems.
    pub fn load(paths: Vec<PathBuf>) -> Result<Self, Vec<Problem>> {
        for _ in 0..MAX_READS {
            let digest = digest(&paths)?;
            let loaded = read(&paths);
            // A file that was replaced between the reads belongs to another set.
            if digest == self::digest(&paths)? {
                return Ok(Self { paths, digest, ..loaded? });
            }
        }
        let problem = Problem::new("the files of the policies change while they are read");
        Err(vec![problem.next("write the files, then reload")])
    }

    /// Returns the policies.
    pub fn set(&self) -> &PolicySet {
        &self.set
    }

    /// Returns the place of a policy.
    pub fn place(&self, policy: &str) -> Option<&Place> {
        self.places.get(policy)
    }

    /// Returns the kinds of Kubernetes, and those of CRDs in the files.
    pub fn kinds(&self) -> &Kinds {
        &self.kinds
    }

    /// Returns a short hash of the files. Replicas with the same hash have the same policies.
    pub fn digest(&self) -> &str {
        &self.digest
    }

    /// Returns whether the files differ from those that were loaded. A file that can't be read differs.
    pub fn has_changed(&self) -> bool {
        digest(&self.paths).ok().as_ref() != Some(&self.digest)
    }

    /// Returns the facts that are the same for all requests: the params.
    pub fn facts(&self) -> &Facts {
        &self.facts
    }
}

/// Reads policies and params, and checks that each policy can be decided. The paths and the hash are empty.
fn read(paths: &[PathBuf]) -> Result<Policies, Vec<Problem>> {
    let (files, unread) = find(paths);
    let (objects, unusable) = objects::read(&files);
    let mut problems: Vec<LoadProblem> = unread.into_iter().map(LoadProblem::unplaced).collect();
    problems.extend(unusable);
    let options = LoadOptions {
        minor: DEFAULT_MINOR,
        namespace: NAMESPACE.to_owned(),
        unbound: Unbound::Skip,
        field_validation: FieldValidation::Strict,
    };
    let mut loaded = load(&objects, Kinds::new(), &options);
    problems.append(&mut loaded.problems);
    let mut facts = Facts { params_are_complete: true, ..Facts::default() };
    let Some(set) = loaded.set.take().filter(|_| problems.is_empty()) else {
        return Err(sorted(problems));
    };
    if loaded.policies == 0 {
        let problem = Problem::new("the files contain no ValidatingAdmissionPolicy");
        return Err(vec![problem.next("name files or directories with policies")]);
    }
    let object = |kind: &str, name: &str| {
        objects.iter().find(|object| object.is(ADMISSION, kind) && object.name == name)
    };
    let mut places = HashMap::new();
    for (policy, bindings) in set.policies() {
        let Some(source) = object(POLICY, &policy.name) else { continue };
        places.insert(policy.name.clone(), source.position());
        problems.extend(undecidable(&set, source));
        let Some(kind) = &policy.param_kind else { continue };
        loaded.store.answer(&Lookup::ParamKind(kind.clone()), &loaded.kinds, &mut facts);
        for binding in bindings {
            let problem = add_params(kind, binding, &loaded, &mut facts);
            let source = object("ValidatingAdmissionPolicyBinding", &binding.name);
            problems.extend(problem.zip(source).map(|(problem, source)| LoadProblem {
                next: "add the params to the files of the policies".to_owned(),
                ..source.problem(&Path::new("spec").child("paramRef"), problem)
            }));
        }
    }
    if problems.is_empty() {
        let (paths, digest) = (Vec::new(), String::new());
        Ok(Policies { set, kinds: loaded.kinds, facts, places, paths, digest })
    } else {
        Err(sorted(problems))
    }
}

fn sorted(mut problems: Vec<LoadProblem>) -> Vec<Problem> {
    problems.sort();
    problems.dedup();
    problems.into_iter().map(LoadProblem::into_problem).collect()
}

/// Returns why a policy can't be decided: an expression reads what Durward does not know.
fn undecidable(set: &PolicySet, source: &Manifest) -> Vec<LoadProblem> {
    let reads = [
        (set.authorizer_field(&source.name), "asks the authorizer, which only the API server can"),
        (
            set.namespace_field(&source.name),
            "reads more of namespaceObject than metadata.name and metadata.labels, which Durward watches",
        ),
    ];
    let problem = |(field, what): (Option<Path>, &str)| {
        Some(LoadProblem {
            next: "leave this policy to the API server: kubectl apply -f FILE".to_owned(),
            ..source.problem(&field?, what)
        })
    };
    reads.into_iter().filter_map(problem).collect()
}

/// Adds the params of a binding to the facts. Returns why a request could need others.
fn add_params(kind: &ParamKind, binding: &Binding, loaded: &Loaded, facts: &mut Facts) -> Option<String> {
    let reference = binding.param_ref.as_ref()?;
    let name = Some(reference.name.clone()).filter(|name| !name.is_empty());
    let (kind_name, store) = (&kind.kind, &loaded.store);
    let namespaces = store.namespaces_of_params(kind, &reference.namespace, name.as_deref());
    if namespaces.is_empty() {
        return Some(match name {
            Some(name) => format!("names {kind_name} \"{name}\", which is not in the files"),
            None => format!("selects params of kind {kind_name}, but the files contain none"),
        });
    }
    let mut queries = namespaces
        .into_iter()
        .map(|namespace| Lookup::Params(ParamQuery { kind: kind.clone(), namespace, name: name.clone() }));
    let is_unknown =
        queries.any(|query| !store.answer(&query, &loaded.kinds, facts) && !is_answered(&query, facts));
    is_unknown.then(|| {
        format!("needs {kind_name} in {}, and the params in the files have another version", kind.api_version)
    })
}

/// Returns whether the facts contain the params of a query. Several bindings can have the same query.
fn is_answered(lookup: &Lookup, facts: &Facts) -> bool {
    matches!(lookup, Lookup::Params(query) if facts.params.contains_key(query))
}

/// Returns the files of the paths. Their objects are facts, not manifests to check.
fn find(paths: &[PathBuf]) -> (Vec<InputFile>, Vec<Problem>) {
    files::find(&[(paths, Use::Fact)], &[])
}

/// Returns a short hash of the names and texts of all files.
fn digest(paths: &[PathBuf]) -> Result<String, Vec<Problem>> {
    let (files, mut problems) = find(paths);
    let mut digest = Sha256::new();
    for file in files {
        match input::bytes(&file.path, MAX_FILE) {
            Ok(text) => {
                // Replicas can have the files in different directories.
                let name = file.path.file_name().unwrap_or_default().as_encoded_bytes();
                for part in [name, &text] {
                    digest.update(part.len().to_be_bytes());
                    digest.update(part);
                }
            }
            Err(problem) => problems.push(problem),
        }
    }
    if !problems.is_empty() {
        return Err(problems);
    }
    let digest = digest.finalize();
    let short = digest.iter().take(6).fold(0_u64, |short, byte| short << 8 | u64::from(*byte));
    Ok(format!("{short:012x}"))
}
