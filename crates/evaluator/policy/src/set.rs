//! Policies and bindings together: loading with all errors, and evaluation of requests.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use crate::cel::reads::NamespacePart;
use crate::facts::Facts;
use crate::field::{FieldError, Path};
use crate::release::Release;
use crate::request::AdmissionRequest;
use crate::value::{Arena, Value};
use crate::vap::compiled::CompiledPolicy;
pub use crate::vap::decision::{Decisions, Missing};
use crate::vap::index::PolicyIndex;
use crate::vap::matching::is_judged;
use crate::vap::model::{Binding, Policy, Validation};
use crate::vap::run::{Dispatcher, Hook};
use crate::vap::{admit, read};

/// Collects documents.
pub struct PolicySetBuilder {
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

impl PolicySetBuilder {
    /// Starts with a server and the environment for new expressions.
    pub fn new(release: Release) -> Self {
        Self { release, checks: true, policies: Vec::new(), bindings: Vec::new(), errors: Vec::new() }
    }

    /// Starts with a server for policies and bindings that it already stores; they are not checked again.
    pub fn stored(server: u8) -> Self {
        Self { checks: false, ..Self::new(Release::for_stored(server)) }
    }

    /// Adds a document if it is a policy or binding. Errors are returned by [`PolicySetBuilder::finish`].
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
                    admit::binding(&binding, self.release, &mut errors);
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
        let release = Release::for_stored(self.release.server);
        let policies: Vec<Arc<CompiledPolicy>> =
            self.policies.into_iter().map(|(_, policy)| CompiledPolicy::new(policy, release)).collect();
        let mut by_policy: HashMap<String, Vec<Binding>> = HashMap::new();
        for (_, binding) in self.bindings {
            by_policy.entry(binding.policy_name.clone()).or_default().push(binding);
        }
        let mut set =
            PolicySet { release, hooks: Vec::new(), index: PolicyIndex::default(), names: HashMap::new() };
        for policy in policies {
            let bindings = by_policy.remove(&policy.policy.name).unwrap_or_default();
            set.insert(Hook::new(policy, bindings));
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

/// Compiled policies with their bindings.
pub struct PolicySet {
    release: Release,
    hooks: Vec<Hook>,
    /// Policies by the groups and resources that their rules name, `*` included.
    index: PolicyIndex,
    /// Policies by name.
    names: HashMap<String, usize>,
}

impl PolicySet {
    fn insert(&mut self, hook: Hook) {
        let position = self.hooks.len();
        self.index.insert(position, hook.policy.policy.match_constraints.as_ref());
        self.names.entry(hook.policy.policy.name.clone()).or_insert(position);
        self.hooks.push(hook);
    }

    /// Number of policies.
    pub fn len(&self) -> usize {
        self.hooks.len()
    }

    /// The names of the policies.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.hooks.iter().map(|hook| hook.policy.policy.name.as_str())
    }

    /// Returns true if the set has no policies.
    pub fn is_empty(&self) -> bool {
        self.hooks.is_empty()
    }

    /// A validation of a policy, and the field that it is about.
    pub fn validation(&self, policy: &str, index: usize) -> Option<(&Validation, Option<&Path>)> {
        let hook = self.hook(policy)?;
        let compiled = hook.policy.validations.get(index)?;
        Some((&compiled.validation, compiled.subject.as_ref()))
    }

    /// Returns the policies with their bindings.
    pub fn policies(&self) -> impl Iterator<Item = (&Policy, &[Binding])> {
        self.hooks.iter().map(|hook| (&hook.policy.policy, hook.bindings.as_slice()))
    }

    /// Returns the policy of a name.
    pub fn policy(&self, name: &str) -> Option<&Policy> {
        self.hook(name).map(|hook| &hook.policy.policy)
    }

    /// Returns whether any policy can need the Namespace of a request.
    pub fn needs_namespace(&self) -> bool {
        self.hooks.iter().any(|hook| hook.needs_namespace)
    }

    /// Returns whether a policy can match a resource.
    pub fn can_match(&self, group: &str, resource: &str) -> bool {
        self.candidates(group, resource).next().is_some()
    }

    /// Returns whether a policy that can match a resource can deny a request.
    pub fn can_deny(&self, group: &str, resource: &str) -> bool {
        let denies = |binding: &Binding| binding.validation_actions.iter().any(|action| action == "Deny");
        self.candidates(group, resource).any(|hook| hook.bindings.iter().any(denies))
    }

    /// Returns whether a policy that can match a resource can need the Namespace of the request.
    pub fn needs_namespace_for(&self, group: &str, resource: &str) -> bool {
        self.needs_namespace() && self.candidates(group, resource).any(|hook| hook.needs_namespace)
    }

    /// Returns the policies that can match a resource, in their order.
    fn candidates(&self, group: &str, resource: &str) -> impl Iterator<Item = &Hook> {
        let positions = self.index.positions(group, resource);
        positions.into_iter().filter_map(|position| self.hooks.get(position))
    }

    /// Returns the policies with a `failurePolicy`.
    #[must_use]
    pub fn with_failure_policy(&self, failure_policy: &str) -> Self {
        let mut set = Self {
            release: self.release,
            hooks: Vec::new(),
            index: PolicyIndex::default(),
            names: HashMap::new(),
        };
        for hook in self.hooks.iter().filter(|hook| hook.policy.policy.failure_policy == failure_policy) {
            set.insert(Hook::new(Arc::clone(&hook.policy), hook.bindings.clone()));
        }
        set
    }

    /// Returns the field of the first expression of a policy that asks the authorizer.
    pub fn authorizer_field(&self, policy: &str) -> Option<Path> {
        self.hook(policy)?.policy.field_of(|reads| reads.authorizer)
    }

    /// Returns the field of the first expression of a policy that reads more of the Namespace than its name and its labels.
    pub fn namespace_field(&self, policy: &str) -> Option<Path> {
        self.hook(policy)?.policy.field_of(|reads| reads.namespace == NamespacePart::More)
    }

    /// Returns whether an expression of a policy reads a field that the API server sets, such as `metadata.uid`.
    pub fn reads_server_fields(&self, policy: &str) -> bool {
        self.hook(policy)
            .is_some_and(|hook| hook.policy.programs().any(|program| program.reads.server_fields))
    }

    fn hook(&self, policy: &str) -> Option<&Hook> {
        self.hooks.get(*self.names.get(policy)?)
    }

    /// Evaluates all policies that match a request. If facts are missing, the decisions that do not depend on them are returned.
    /// `keep_going` is asked every few thousand cost units. If it returns false, or the arena is full, the verdict of a policy is missing
    /// with [`Lookup::Limit`](crate::facts::Lookup::Limit).
    pub fn evaluate<'a>(
        &'a self,
        request: &AdmissionRequest<'a>,
        facts: &'a Facts,
        arena: &'a Arena,
        keep_going: &'a dyn Fn() -> bool,
    ) -> Decisions {
        let mut dispatcher = Dispatcher::new(request, facts, arena, keep_going);
        if is_judged(request) {
            for hook in self.candidates(request.resource.group, request.resource.name) {
                dispatcher.hook(hook);
                if dispatcher.has_ended() {
                    break;
                }
            }
        }
        dispatcher.finish(self.release)
    }
}
