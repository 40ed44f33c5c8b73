//! The policies of files for a server that evaluates requests, instead of objects in files.
//!
//! The files are read as by the command, with two differences. They are the only source of params, so params that they don't contain
//! don't exist. A policy that could not be decided on any request is a problem: it asks the authorizer, or its params are missing.

use std::collections::HashMap;
use std::path::PathBuf;

use config::{Place, Problem};
use console::input;
use policy::facts::{Facts, Lookup};
use policy::field::Path;
use policy::kinds::Kinds;
use policy::request::Request;
use policy::set::{Evaluation, PolicySet};
use policy::value::Arena;
use policy::vap::model::{Binding, Policy};
use sha2::{Digest as _, Sha256};

use crate::args::{FieldValidation, KubeVersion, Unbound};
use crate::facts::{Store, group_version};
use crate::files::{self, File, Use};
use crate::load::{Loaded, Options, load};
use crate::objects::{self, ADMISSION, Object};
use crate::report::{LoadProblem, Position};

/// Largest file. An API server accepts a request of 3 MiB.
const MAX_FILE: u64 = 3 << 20;

/// Reads of files that change in between. The kubelet replaces all files of a `ConfigMap` at once.
const MAX_READS: usize = 5;

/// Rounds of lookups. An answer can lead to another lookup: the kind of parameters, then the parameters.
const MAX_ROUNDS: usize = 8;

/// The kind of policies.
const POLICY: &str = "ValidatingAdmissionPolicy";

/// Namespace of params that name none, as with `kubectl apply`.
const NAMESPACE: &str = "default";

/// The policies of files, with their bindings and params.
pub struct Policies {
    set: PolicySet,
    kinds: Kinds,
    store: Store,
    /// Facts that are the same for all requests.
    facts: Facts,
    /// Where each policy is.
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
                let (set, loaded, places) = loaded?;
                return Ok(Self::new(set, loaded, places, paths, digest));
            }
        }
        let problem = Problem::new("the files of the policies change while they are read");
        Err(vec![problem.next("write the files, then reload")])
    }

    fn new(
        set: PolicySet,
        loaded: Loaded,
        places: HashMap<String, Place>,
        paths: Vec<PathBuf>,
        digest: String,
    ) -> Self {
        let mut facts = Facts::default();
        for (policy, _) in set.policies() {
            if let Some(kind) = &policy.param_kind {
                loaded.store.answer(&Lookup::ParamKind(kind.clone()), &loaded.kinds, &mut facts);
            }
        }
        Self { set, kinds: loaded.kinds, store: loaded.store, facts, places, paths, digest }
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

    /// Evaluates policies of [`Policies::set`] on a request. `namespace` is its Namespace as JSON, if that was read; `None` in it is a
    /// Namespace that does not exist.
    pub fn evaluate(
        &self,
        set: &PolicySet,
        request: &Request<'_>,
        namespace: Option<Option<&str>>,
        arena: &Arena,
        keep_going: &dyn Fn() -> bool,
    ) -> Evaluation {
        let mut facts = None;
        if let Some(namespace) = namespace {
            let mut known = self.facts.clone();
            known.namespaces.insert(request.namespace.to_owned(), namespace.map(str::to_owned));
            facts = Some(known);
        }
        let mut evaluation = Evaluation::default();
        for _ in 0..MAX_ROUNDS {
            evaluation =
                set.evaluate_partly(request, facts.as_ref().unwrap_or(&self.facts), arena, keep_going);
            let lookups = evaluation.missing.iter().map(|missing| &missing.lookup);
            let mut params = lookups.filter(|lookup| matches!(lookup, Lookup::Params(_))).peekable();
            if params.peek().is_none() {
                break;
            }
            let known = facts.get_or_insert_with(|| self.facts.clone());
            for lookup in params {
                self.store.answer(lookup, &self.kinds, known);
            }
        }
        evaluation
    }
}

/// Policies, with their facts and places.
type Read = (PolicySet, Loaded, HashMap<String, Place>);

/// Reads policies and params, and checks that each policy can be decided.
fn read(paths: &[PathBuf]) -> Result<Read, Vec<Problem>> {
    let (files, unread) = find(paths);
    let objects = objects::read(&files);
    let mut problems: Vec<LoadProblem> = unread.into_iter().map(objects::unplaced).collect();
    problems.extend(objects.problems);
    let options = Options {
        minor: KubeVersion::default().0,
        namespace: NAMESPACE.to_owned(),
        unbound: Unbound::Skip,
        grants: None,
        field_validation: FieldValidation::Strict,
    };
    let mut loaded = load(&objects.all, options);
    loaded.store.contains_all_params();
    problems.append(&mut loaded.problems);
    if loaded.policies == 0 && problems.is_empty() {
        let problem = Problem::new("the files contain no ValidatingAdmissionPolicy");
        return Err(vec![problem.next("name files or directories with policies")]);
    }
    let set = loaded.set.take();
    if let Some(set) = &set {
        for (policy, bindings) in set.policies() {
            problems.extend(undecidable(set, policy, bindings, &loaded, &objects.all));
        }
    }
    problems.sort();
    problems.dedup();
    match set {
        Some(set) if problems.is_empty() => {
            let policies = objects.all.iter().filter(|object| object.is(ADMISSION, POLICY));
            let place = |object: &Object| {
                let Position { file, line, column } = object.position();
                (object.name.clone(), Place { file, line, column })
            };
            let places = policies.map(place).collect();
            Ok((set, loaded, places))
        }
        _ => Err(problems.into_iter().map(LoadProblem::into_problem).collect()),
    }
}

/// Returns why a policy can't be decided: it would be unknown on every request.
fn undecidable(
    set: &PolicySet,
    policy: &Policy,
    bindings: &[Binding],
    loaded: &Loaded,
    objects: &[Object],
) -> Vec<LoadProblem> {
    let object = |kind: &str, name: &str| {
        objects.iter().find(|object| object.is(ADMISSION, kind) && object.name == name)
    };
    let mut problems = Vec::new();
    if let Some(field) = set.authorizer_field(&policy.name)
        && let Some(object) = object(POLICY, &policy.name)
    {
        problems.push(LoadProblem {
            next: "apply this policy to the cluster instead: kubectl apply -f FILE".to_owned(),
            ..object.problem(&field, "asks the authorizer, which only the API server can")
        });
    }
    let Some(kind) = &policy.param_kind else { return problems };
    for binding in bindings {
        let Some(reference) = &binding.param_ref else { continue };
        let key = (group_version(&kind.api_version).0, kind.kind.as_str());
        if !loaded.store.has_param(key, &reference.namespace, &reference.name)
            && let Some(object) = object("ValidatingAdmissionPolicyBinding", &binding.name)
        {
            let which = if reference.name.is_empty() {
                format!("selects params of kind {}, but the files contain none", kind.kind)
            } else {
                format!("names {} \"{}\", which is not in the files", kind.kind, reference.name)
            };
            problems.push(LoadProblem {
                next: "add the params to the files of the policies".to_owned(),
                ..object.problem(&Path::new("spec").child("paramRef"), which)
            });
        }
    }
    problems
}

/// Returns the files of the paths. Their objects are facts, not manifests to check.
fn find(paths: &[PathBuf]) -> (Vec<File>, Vec<Problem>) {
    files::find(&[(paths, Use::Fact)], &[])
}

/// Returns a short hash of the names and texts of all files.
fn digest(paths: &[PathBuf]) -> Result<String, Vec<Problem>> {
    let (files, mut problems) = find(paths);
    let mut digest = Sha256::new();
    for file in files {
        match input::bytes(&file.path, MAX_FILE) {
            Ok(text) => {
                let name = file.path.as_os_str().as_encoded_bytes();
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
    Ok(digest.iter().take(6).map(|byte| format!("{byte:02x}")).collect())
}
