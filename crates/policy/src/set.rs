//! Policies and bindings together: loading with all errors, and evaluation of requests.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use crate::cel::outcome::Context;
use crate::expression::{Need, Variables};
use crate::facts::{Facts, Lookup};
use crate::field::{FieldError, Path};
use crate::release::Release;
use crate::request::{Request, namespace_object};
use crate::value::{Arena, Value, read_json};
use crate::vap::compiled::CompiledPolicy;
use crate::vap::decision::{Annotations, Decisions, Denial, Evaluated, Failure, Warning, failure_annotation};
use crate::vap::evaluate::{Annotation, Input, Report, Verdict, evaluate};
use crate::vap::matching::{Matching, is_judged, matches, not_found};
use crate::vap::model::{Binding, Policy};
use crate::vap::params::{Params, collect};
use crate::vap::{admit, read};

/// Collects documents.
pub struct Builder {
    release: Release,
    checks: bool,
    policies: Vec<(String, Policy)>,
    bindings: Vec<(String, Binding)>,
    errors: Vec<LoadError>,
}

/// The kind of a document.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Recognized {
    /// A `ValidatingAdmissionPolicy`.
    Policy,
    /// A `ValidatingAdmissionPolicyBinding`.
    Binding,
    /// A policy or webhook that changes objects; it is not evaluated.
    Mutating,
    /// Something else.
    Other,
}

/// An error of a document.
#[derive(Clone, Debug, thiserror::Error)]
#[error("{source_name}: {kind} \"{name}\": {error}")]
pub struct LoadError {
    /// Name of the document's source.
    pub source_name: String,
    /// Its kind.
    pub kind: &'static str,
    /// Its name.
    pub name: String,
    /// The field and the problem.
    pub error: FieldError,
}

const POLICY: &str = "ValidatingAdmissionPolicy";
const BINDING: &str = "ValidatingAdmissionPolicyBinding";

impl Builder {
    /// Starts with a server and the environment for new expressions.
    pub fn new(release: Release) -> Self {
        Self { release, checks: true, policies: Vec::new(), bindings: Vec::new(), errors: Vec::new() }
    }

    /// Starts with a server for policies and bindings that it already stores; they are not checked again.
    pub fn stored(server: u8) -> Self {
        Self { checks: false, ..Self::new(Release::for_stored(server)) }
    }

    /// Adds a document if it is a policy or binding. Errors are returned by [`Builder::finish`].
    pub fn add(&mut self, source_name: &str, document: Value<'_>) -> Recognized {
        let text = |field: &str| document.field(field).and_then(|value| value.as_str()).unwrap_or("");
        let (group, version) = text("apiVersion").split_once('/').unwrap_or(("", ""));
        if group != "admissionregistration.k8s.io" {
            return Recognized::Other;
        }
        let mut errors = Vec::new();
        let (recognized, kind, name) = match text("kind") {
            POLICY => {
                let policy = read::policy(document, &mut errors);
                if errors.is_empty() && self.checks {
                    admit::policy(&policy, self.release, &mut errors);
                }
                let name = policy.name.clone();
                self.policies.push((source_name.to_owned(), policy));
                (Recognized::Policy, POLICY, name)
            }
            BINDING => {
                let binding = read::binding(document, &mut errors);
                if errors.is_empty() && self.checks {
                    admit::binding(&binding, self.release.server, &mut errors);
                }
                let name = binding.name.clone();
                self.bindings.push((source_name.to_owned(), binding));
                (Recognized::Binding, BINDING, name)
            }
            "MutatingAdmissionPolicy" | "MutatingAdmissionPolicyBinding" | "MutatingWebhookConfiguration" => {
                return Recognized::Mutating;
            }
            _ => return Recognized::Other,
        };
        if !matches!(version, "v1" | "v1beta1" | "v1alpha1") {
            let supported = ["admissionregistration.k8s.io/v1", "admissionregistration.k8s.io/v1beta1"];
            errors.push(FieldError::not_supported(&Path::new("apiVersion"), text("apiVersion"), &supported));
        }
        let error =
            |error| LoadError { source_name: source_name.to_owned(), kind, name: name.clone(), error };
        self.errors.extend(errors.into_iter().map(error));
        recognized
    }

    /// Compiles all policies, or returns all errors.
    pub fn finish(mut self) -> Result<PolicySet, Vec<LoadError>> {
        self.check_names();
        if !self.errors.is_empty() {
            return Err(self.errors);
        }
        let server = self.release.server;
        let policies: Vec<Arc<CompiledPolicy>> =
            self.policies.into_iter().map(|(_, policy)| CompiledPolicy::new(policy, server)).collect();
        let mut by_policy: HashMap<String, Vec<Binding>> = HashMap::new();
        for (_, binding) in self.bindings {
            by_policy.entry(binding.policy_name.clone()).or_default().push(binding);
        }
        let mut set = PolicySet { server, hooks: Vec::new(), index: HashMap::new(), anywhere: Vec::new() };
        for policy in policies {
            let bindings = by_policy.remove(&policy.policy.name).unwrap_or_default();
            set.insert(Hook { policy, bindings });
        }
        Ok(set)
    }

    /// Names are unique, and each binding has a policy.
    fn check_names(&mut self) {
        let path = Path::new("metadata").child("name");
        let mut errors = Vec::new();
        let mut names = HashSet::new();
        for (source_name, policy) in &self.policies {
            if !policy.name.is_empty() && !names.insert(policy.name.as_str()) {
                let error = FieldError::duplicate(&path, &policy.name);
                errors.push(LoadError {
                    source_name: source_name.clone(),
                    kind: POLICY,
                    name: policy.name.clone(),
                    error,
                });
            }
        }
        let mut bindings = HashSet::new();
        for (source_name, binding) in &self.bindings {
            let mut report = |error| {
                let (source_name, name) = (source_name.clone(), binding.name.clone());
                errors.push(LoadError { source_name, kind: BINDING, name, error });
            };
            if !binding.name.is_empty() && !bindings.insert(binding.name.as_str()) {
                report(FieldError::duplicate(&path, &binding.name));
            }
            if !binding.policy_name.is_empty() && !names.contains(binding.policy_name.as_str()) {
                let field = Path::new("spec").child("policyName");
                report(FieldError::invalid(&field, &binding.policy_name, "no document defines this policy"));
            }
        }
        self.errors.extend(errors);
    }
}

/// A policy with its bindings.
struct Hook {
    policy: Arc<CompiledPolicy>,
    bindings: Vec<Binding>,
}

/// Compiled policies with their bindings.
pub struct PolicySet {
    server: u8,
    hooks: Vec<Hook>,
    /// Policies by the resources that their rules name.
    index: HashMap<String, Vec<usize>>,
    /// Policies whose rules name all resources.
    anywhere: Vec<usize>,
}

/// The result of an evaluation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// All policies were evaluated.
    Decided(Decisions),
    /// Facts are missing; evaluate again with their answers.
    Needs(Vec<Lookup>),
    /// The caller asked to stop.
    Interrupted,
}

impl PolicySet {
    fn insert(&mut self, hook: Hook) {
        let position = self.hooks.len();
        let constraints = hook.policy.policy.match_constraints.as_ref();
        let mut names = HashSet::new();
        for resource in constraints
            .iter()
            .flat_map(|constraints| &constraints.resource_rules)
            .flat_map(|rule| &rule.resources)
        {
            names.insert(resource.split('/').next().unwrap_or_default().to_owned());
        }
        if names.contains("*") || names.is_empty() {
            self.anywhere.push(position);
        } else {
            for name in names {
                self.index.entry(name).or_default().push(position);
            }
        }
        self.hooks.push(hook);
    }

    /// Number of policies.
    pub fn len(&self) -> usize {
        self.hooks.len()
    }

    /// Whether there is no policy.
    pub fn is_empty(&self) -> bool {
        self.hooks.is_empty()
    }

    /// Evaluates all policies that match a request. `keep_going` is asked every few thousand cost units.
    pub fn evaluate<'a>(
        &'a self,
        request: &Request<'a>,
        facts: &'a Facts,
        arena: &'a Arena,
        keep_going: &dyn Fn() -> bool,
    ) -> Outcome {
        let mut run = Run { request, facts, arena, keep_going, variable: None, found: Found::default() };
        if is_judged(request) {
            let named = self.index.get(request.resource.name).map(Vec::as_slice).unwrap_or_default();
            let mut positions: Vec<usize> = named.iter().chain(&self.anywhere).copied().collect();
            positions.sort_unstable();
            for hook in positions.into_iter().filter_map(|position| self.hooks.get(position)) {
                run.hook(hook);
                if run.found.interrupted {
                    return Outcome::Interrupted;
                }
            }
        }
        let mut found = run.found;
        if !found.needs.is_empty() {
            return Outcome::Needs(found.needs);
        }
        found.decisions.audit_annotations.extend(failure_annotation(&found.failures, self.server));
        Outcome::Decided(found.decisions)
    }
}

#[derive(Default)]
struct Found {
    decisions: Decisions,
    failures: Vec<Failure>,
    needs: Vec<Lookup>,
    interrupted: bool,
}

impl Found {
    fn need(&mut self, lookup: Lookup) {
        if !self.needs.contains(&lookup) {
            self.needs.push(lookup);
        }
    }
}

struct Run<'a, 'r> {
    request: &'r Request<'a>,
    facts: &'a Facts,
    arena: &'a Arena,
    keep_going: &'r dyn Fn() -> bool,
    /// The variable `request`, built when the first policy matches.
    variable: Option<Value<'a>>,
    found: Found,
}

impl<'a> Run<'a, '_> {
    fn config_error(&mut self, policy: &CompiledPolicy, binding: Option<&Binding>, error: &str) {
        if policy.policy.failure_policy == "Ignore" {
            return;
        }
        let what = if binding.is_some() { "binding" } else { "policy" };
        self.found.decisions.denials.push(Denial {
            policy: policy.policy.name.clone(),
            binding: binding.map(|binding| binding.name.clone()),
            validation: None,
            error: true,
            message: format!("failed to configure {what}: {error}"),
            reason: "Invalid".to_owned(),
        });
    }

    /// Whether to go on with a policy or binding. Missing facts are recorded, and evaluation goes on to find more of them.
    fn goes_on(&mut self, matching: Matching, policy: &CompiledPolicy, binding: Option<&Binding>) -> bool {
        match matching {
            Matching::Yes => true,
            Matching::No => false,
            Matching::Unknown(lookup) => {
                self.found.need(lookup);
                true
            }
            Matching::Error(error) => {
                self.config_error(policy, binding, &error);
                false
            }
        }
    }

    fn hook(&mut self, hook: &'a Hook) {
        // The API server does not look at policies without bindings.
        if hook.bindings.is_empty() {
            return;
        }
        let policy = &*hook.policy;
        let name = policy.policy.name.as_str();
        if let Some(constraints) = &policy.policy.match_constraints {
            let matching = matches(constraints, self.request, self.facts, name, self.arena);
            if !self.goes_on(matching, policy, None) {
                return;
            }
        }
        if let Some(kind) = &policy.policy.param_kind {
            match self.facts.param_kinds.get(kind) {
                None => self.found.need(Lookup::ParamKind(kind.clone())),
                Some(None) => {
                    let error =
                        format!("failed to find resource referenced by paramKind: '{}'", kind.display());
                    self.config_error(policy, None, &error);
                    return;
                }
                Some(Some(_)) => {}
            }
        }
        let mut annotations = Annotations::default();
        for binding in &hook.bindings {
            if let Some(resources) = &binding.match_resources {
                let matching = matches(resources, self.request, self.facts, name, self.arena);
                if !self.goes_on(matching, policy, Some(binding)) {
                    continue;
                }
            }
            self.binding(policy, binding, &mut annotations);
            if self.found.interrupted {
                return;
            }
        }
        self.found.decisions.audit_annotations.extend(annotations.publish(name));
    }

    fn binding(&mut self, policy: &'a CompiledPolicy, binding: &Binding, annotations: &mut Annotations) {
        let kind = policy.policy.param_kind.as_ref();
        let params = match collect(kind, binding.param_ref.as_ref(), self.request, self.facts, self.arena) {
            Params::None => vec![Some(Value::Null)],
            Params::Each(values) => values.into_iter().map(Some).collect(),
            Params::Unknown(lookup) => {
                self.found.need(lookup);
                vec![None]
            }
            Params::Error(error) => {
                self.config_error(policy, Some(binding), &error);
                return;
            }
        };
        let Some(namespace) = self.namespace(policy, binding) else { return };
        let arena = self.arena;
        let request = self.request;
        let variable = *self.variable.get_or_insert_with(|| request.variable(arena));
        for param in params {
            let variables = Variables {
                object: self.request.object,
                old_object: self.request.old_object,
                params: param,
                request: variable,
                namespace_object: namespace,
            };
            let context = Context { arena, answers: self.facts };
            let namespace_null = matches!(namespace, Some(Value::Null));
            let report =
                evaluate(policy, Input { context, keep_going: self.keep_going, variables, namespace_null });
            self.record(policy, binding, report, annotations);
        }
    }

    /// The value of `namespaceObject`: null, known, or unknown. The result is absent if the API server refuses the request.
    #[allow(clippy::option_option)] // the outer option ends the evaluation of the binding
    fn namespace(&mut self, policy: &CompiledPolicy, binding: &Binding) -> Option<Option<Value<'a>>> {
        if self.request.namespace.is_empty() || self.request.is_namespace() {
            return Some(Some(Value::Null));
        }
        match self.facts.namespaces.get(self.request.namespace) {
            None => Some(None),
            Some(Some(text)) => match read_json(text, self.arena) {
                Ok(namespace) => Some(Some(namespace_object(namespace, self.arena))),
                Err(error) => {
                    self.config_error(policy, Some(binding), &error.to_string());
                    None
                }
            },
            Some(None) => {
                self.config_error(policy, Some(binding), &not_found(self.request.namespace));
                None
            }
        }
    }

    fn record(
        &mut self,
        policy: &CompiledPolicy,
        binding: &Binding,
        report: Report,
        annotations: &mut Annotations,
    ) {
        self.found.interrupted |= report.interrupted;
        for need in report.needs {
            match need {
                Need::Check(check) => self.found.need(Lookup::Check(check)),
                // Parameters were recorded when they were collected.
                Need::Variable(name) if name == "params" => {}
                Need::Variable(_) => self.found.need(Lookup::Namespace(self.request.namespace.to_owned())),
            }
        }
        let (policy_name, binding_name) = (&policy.policy.name, &binding.name);
        self.found.decisions.evaluated.push(Evaluated {
            policy: policy_name.clone(),
            binding: binding_name.clone(),
            skipped: report.skipped,
        });
        let validations = policy.validations.len();
        let replaced = report.decisions.len() != validations;
        for (index, verdict) in report.decisions.into_iter().enumerate() {
            let (error, message, reason) = match verdict {
                Verdict::Admit => continue,
                Verdict::Deny { message, reason } => (false, message, reason),
                Verdict::Error(_) if policy.policy.failure_policy == "Ignore" => continue,
                Verdict::Error(message) => (true, message, "Invalid".to_owned()),
            };
            let validation = (!replaced).then_some(index);
            self.deny(binding, policy_name, index, validation, error, &message, &reason);
        }
        for annotation in report.annotations {
            match annotation {
                Annotation::Publish { key, value } => annotations.add(&key, &value),
                Annotation::Error(message) => self.found.decisions.denials.push(Denial {
                    policy: policy_name.clone(),
                    binding: Some(binding_name.clone()),
                    validation: None,
                    error: true,
                    message,
                    reason: "Invalid".to_owned(),
                }),
            }
        }
    }

    /// Applies the actions of a binding to a failure.
    #[allow(clippy::too_many_arguments)] // the parts of one failure
    fn deny(
        &mut self,
        binding: &Binding,
        policy: &str,
        index: usize,
        validation: Option<usize>,
        error: bool,
        message: &str,
        reason: &str,
    ) {
        for action in &binding.validation_actions {
            let message = message.to_owned();
            match action.as_str() {
                "Deny" => self.found.decisions.denials.push(Denial {
                    policy: policy.to_owned(),
                    binding: Some(binding.name.clone()),
                    validation,
                    error,
                    message,
                    reason: reason.to_owned(),
                }),
                "Warn" => self.found.decisions.warnings.push(Warning {
                    policy: policy.to_owned(),
                    binding: binding.name.clone(),
                    validation,
                    message,
                }),
                _ => self.found.failures.push(Failure {
                    policy: policy.to_owned(),
                    binding: binding.name.clone(),
                    index,
                    message,
                    actions: binding.validation_actions.clone(),
                }),
            }
        }
    }
}
