//! The evaluation of all policies on one request.
//!
//! A missing fact is reported only if the verdict can depend on it: if it decides whether a policy judges the request, and the
//! policy has no objection and needs no other fact, the fact does not matter.

use std::sync::Arc;

use super::compiled::CompiledPolicy;
use super::decision::{AuditAnnotations, Decisions, Missing, Objection, failure_annotation};
use super::evaluate::{Input, evaluate};
use super::matching::{Matching, matches, not_found};
use super::model::{Binding, MatchResources};
use super::params::{Params, collect};
use crate::cel::environment::{OLD_OBJECT, USER};
use crate::cel::outcome::EvalContext;
use crate::cel::reads::NamespacePart;
use crate::expression::{Need, Variables};
use crate::facts::{Facts, Limit, Lookup};
use crate::release::Release;
use crate::request::{AdmissionRequest, namespace_object};
use crate::value::{Arena, Value};

/// A policy with its bindings.
pub(crate) struct Hook {
    pub(crate) policy: Arc<CompiledPolicy>,
    pub(crate) bindings: Vec<Binding>,
    /// Whether a selector or an expression can need the Namespace of a request.
    pub(crate) needs_namespace: bool,
}

impl Hook {
    pub(crate) fn new(policy: Arc<CompiledPolicy>, bindings: Vec<Binding>) -> Self {
        let selects = |resources: &Option<MatchResources>| {
            resources.as_ref().is_some_and(|resources| !resources.namespace_selector.is_empty())
        };
        let needs_namespace = selects(&policy.policy.match_constraints)
            || bindings.iter().any(|binding| selects(&binding.match_resources))
            || policy.programs().any(|program| program.reads.namespace != NamespacePart::Nothing);
        Self { policy, bindings, needs_namespace }
    }
}

/// The evaluation of one request.
pub(crate) struct Dispatcher<'a, 'r> {
    request: &'r AdmissionRequest<'a>,
    facts: &'a Facts,
    arena: &'a Arena,
    keep_going: &'a dyn Fn() -> bool,
    /// The variable `request`, built when the first policy matches.
    variable: Option<Value<'a>>,
    found: Decisions,
    /// Whether the namespace of the request does not exist. The API server then evaluates nothing more.
    ended: bool,
}

/// The step after matching, for a policy or binding.
enum Next {
    /// It judges the request, unless a missing fact says otherwise.
    Judge(Option<Lookup>),
    /// It judges the object in another version of the resource, which is unknown, or matching needed too much memory.
    Undecided(Lookup),
    Skip,
    /// The API server fails to find out.
    Fail(Option<Objection>),
}

fn next(matching: Matching, policy: &CompiledPolicy, binding: Option<&Binding>, arena: &Arena) -> Next {
    if arena.is_full() {
        return Next::Undecided(Lookup::Limit(Limit::Memory));
    }
    match matching {
        Matching::Yes => Next::Judge(None),
        Matching::No => Next::Skip,
        Matching::Unknown(lookup @ Lookup::Conversion { .. }) => Next::Undecided(lookup),
        Matching::Unknown(lookup) => Next::Judge(Some(lookup)),
        Matching::Error(error) => Next::Fail(config_error(policy, binding, &error)),
    }
}

impl<'a, 'r> Dispatcher<'a, 'r> {
    pub(crate) fn new(
        request: &'r AdmissionRequest<'a>,
        facts: &'a Facts,
        arena: &'a Arena,
        keep_going: &'a dyn Fn() -> bool,
    ) -> Self {
        Self { request, facts, arena, keep_going, variable: None, found: Decisions::default(), ended: false }
    }

    pub(crate) fn has_ended(&self) -> bool {
        self.ended
    }

    pub(crate) fn finish(self, release: Release) -> Decisions {
        let mut found = self.found;
        // A policy that does not match a full arena can match the request.
        let lookup = Lookup::Limit(Limit::Memory);
        if self.arena.is_full() && !found.missing.iter().any(|missing| missing.lookup == lookup) {
            found.missing.push(Missing { policy: String::new(), binding: None, lookup });
        }
        if !self.ended || !release.annotates_failures_together() {
            let annotation = failure_annotation(&found.failures, release);
            found.audit_annotations.extend(annotation);
        }
        found
    }

    /// Evaluates a policy with all its bindings.
    pub(crate) fn hook(&mut self, hook: &'a Hook) {
        // The API server does not look at policies without bindings.
        if hook.bindings.is_empty() {
            return;
        }
        let policy = &*hook.policy;
        let mut annotations = AuditAnnotations::default();
        let constraints = policy.policy.match_constraints.as_ref();
        let Some(pending) = self.applies(policy, None, constraints, &[], &mut annotations) else { return };
        if let Some(kind) = &policy.policy.param_kind {
            match self.facts.param_kinds.get(kind) {
                None => {
                    // Without its kind nothing is known about the parameters.
                    let unknown = needing(policy, None, Lookup::ParamKind(kind.clone()));
                    self.commit((policy, None), &pending, unknown, &mut annotations);
                }
                Some(None) => {
                    let error =
                        format!("failed to find resource referenced by paramKind: '{}'", kind.display());
                    let denied = denied(config_error(policy, None, &error));
                    return self.commit((policy, None), &pending, denied, &mut annotations);
                }
                Some(Some(_)) => {}
            }
        }
        for binding in &hook.bindings {
            let resources = binding.match_resources.as_ref();
            let applies = self.applies(policy, Some(binding), resources, &pending, &mut annotations);
            let Some(pending) = applies else { continue };
            self.binding(policy, binding, pending, &mut annotations);
            if self.ended {
                return;
            }
        }
        self.found.audit_annotations.extend(annotations.publish(&policy.policy.name));
    }

    /// Matches a policy or binding. If it judges the request, returns the facts that can still exclude it; otherwise records why it
    /// does not, if that is unknown or an error.
    fn applies(
        &mut self,
        policy: &CompiledPolicy,
        binding: Option<&Binding>,
        resources: Option<&MatchResources>,
        pending: &[Lookup],
        annotations: &mut AuditAnnotations,
    ) -> Option<Vec<Lookup>> {
        let Some(resources) = resources else { return Some(pending.to_vec()) };
        let matching = matches(resources, self.request, self.facts, &policy.policy.name, self.arena);
        let decisions = match next(matching, policy, binding, self.arena) {
            Next::Judge(lookup) => return Some(pending.iter().cloned().chain(lookup).collect()),
            Next::Undecided(lookup) => needing(policy, binding, lookup),
            Next::Skip => return None,
            Next::Fail(denial) => denied(denial),
        };
        self.commit((policy, binding), pending, decisions, annotations);
        None
    }

    fn binding(
        &mut self,
        policy: &'a CompiledPolicy,
        binding: &Binding,
        mut pending: Vec<Lookup>,
        annotations: &mut AuditAnnotations,
    ) {
        let kind = policy.policy.param_kind.as_ref();
        let params = collect(kind, binding.param_ref.as_ref(), self.request, self.facts, self.arena);
        let namespace = self.namespace();
        // Values can be missing in the object, the labels, the parameters and the Namespace.
        if self.arena.is_full() {
            let unknown = needing(policy, Some(binding), Lookup::Limit(Limit::Memory));
            return self.commit((policy, Some(binding)), &pending, unknown, annotations);
        }
        let mut unknown_params = None;
        let params = match params {
            Params::None => vec![Some(Value::Null)],
            Params::Each(values) => values.into_iter().map(Some).collect(),
            Params::Unknown(lookup) => {
                let denies = binding
                    .param_ref
                    .as_ref()
                    .is_some_and(|reference| reference.parameter_not_found_action == "Deny");
                if denies {
                    let unknown = needing(policy, Some(binding), lookup.clone());
                    self.commit((policy, Some(binding)), &pending, unknown, annotations);
                }
                pending.push(lookup.clone());
                unknown_params = Some(lookup);
                vec![None]
            }
            Params::Error(error) => {
                let denied = denied(config_error(policy, Some(binding), &error));
                return self.commit((policy, Some(binding)), &pending, denied, annotations);
            }
        };
        let namespace = match namespace {
            Ok(namespace) => namespace,
            Err(None) => return self.missing_namespace(policy, binding, &pending, annotations),
            Err(Some(error)) => {
                let denied = denied(config_error(policy, Some(binding), &error));
                return self.commit((policy, Some(binding)), &pending, denied, annotations);
            }
        };
        let arena = self.arena;
        let request = self.request;
        let variable = *self.variable.get_or_insert_with(|| request.variable(arena));
        for param in params {
            if !(self.keep_going)() {
                let unknown = needing(policy, Some(binding), Lookup::Limit(Limit::Time));
                return self.commit((policy, Some(binding)), &pending, unknown, annotations);
            }
            let lookup = |need| self.lookup(need, unknown_params.as_ref());
            let (decisions, excluding) =
                evaluate(policy, binding, self.input(variable, param, namespace), &lookup);
            let pending: Vec<Lookup> = pending.iter().cloned().chain(excluding).collect();
            self.commit((policy, Some(binding)), &pending, decisions, annotations);
        }
    }

    fn input(
        &self,
        variable: Value<'a>,
        params: Option<Value<'a>>,
        namespace: Option<Value<'a>>,
    ) -> Input<'a> {
        let variables = Variables {
            object: self.request.object,
            old_object: self.request.old_object,
            old_object_is_unknown: self.request.old_object_is_unknown,
            params,
            request: variable,
            user_is_unknown: self.request.user_is_unknown,
            namespace_object: namespace,
        };
        let context = EvalContext { arena: self.arena, answers: self.facts, keep_going: self.keep_going };
        Input { context, variables, namespace_null: matches!(namespace, Some(Value::Null)) }
    }

    /// Denies a request whose namespace does not exist, which outranks the failure policy and all other denials.
    fn missing_namespace(
        &mut self,
        policy: &CompiledPolicy,
        binding: &Binding,
        pending: &[Lookup],
        annotations: &mut AuditAnnotations,
    ) {
        if pending.is_empty() {
            self.ended = true;
            self.found.denials.clear();
        }
        let message = not_found(self.request.namespace);
        let denial = Objection::missing_namespace(&policy.policy.name, &binding.name, message);
        self.commit((policy, Some(binding)), pending, denied(Some(denial)), annotations);
    }

    /// The value of `namespaceObject`: null, known, or unknown. The error is absent if the namespace does not exist.
    fn namespace(&self) -> Result<Option<Value<'a>>, Option<String>> {
        if self.request.namespace.is_empty() || self.request.is_namespace() {
            return Ok(Some(Value::Null));
        }
        match self.request.known_namespace(self.facts, self.arena) {
            None => Ok(None),
            Some(Ok(Some(namespace))) => Ok(Some(namespace_object(namespace, self.arena))),
            Some(Ok(None)) => Err(None),
            Some(Err(error)) => Err(Some(error)),
        }
    }

    /// The lookup of a fact that an expression needs. `params` is that of the parameters, if they are unknown.
    fn lookup(&self, need: Need, params: Option<&Lookup>) -> Option<Lookup> {
        match need {
            Need::Check(check) => Some(Lookup::Check(check)),
            Need::Variable(name) => match name.as_str() {
                "params" => params.cloned(),
                USER => Some(Lookup::User),
                OLD_OBJECT => Some(Lookup::OldObject),
                _ => Some(Lookup::Namespace(self.request.namespace.to_owned())),
            },
        }
    }

    /// Records decisions. If facts are pending that decide whether there are any, those facts are recorded instead.
    fn commit(
        &mut self,
        (policy, binding): (&CompiledPolicy, Option<&Binding>),
        pending: &[Lookup],
        decisions: Decisions,
        annotations: &mut AuditAnnotations,
    ) {
        if !pending.is_empty() && decisions.is_empty() {
            return;
        }
        let pending_facts = pending.iter().map(|lookup| missing(policy, binding, lookup.clone()));
        for missing in pending_facts.chain(decisions.missing) {
            if !self.found.missing.contains(&missing) {
                self.found.missing.push(missing);
            }
        }
        if pending.is_empty() {
            self.found.denials.extend(decisions.denials);
            self.found.warnings.extend(decisions.warnings);
            self.found.failures.extend(decisions.failures);
            self.found.evaluated.extend(decisions.evaluated);
            for (key, value) in decisions.audit_annotations {
                annotations.add(&key, &value);
            }
        }
    }
}

fn missing(policy: &CompiledPolicy, binding: Option<&Binding>, lookup: Lookup) -> Missing {
    Missing {
        policy: policy.policy.name.clone(),
        binding: binding.map(|binding| binding.name.clone()),
        lookup,
    }
}

fn denied(denial: Option<Objection>) -> Decisions {
    Decisions { denials: denial.into_iter().collect(), ..Decisions::default() }
}

fn needing(policy: &CompiledPolicy, binding: Option<&Binding>, lookup: Lookup) -> Decisions {
    Decisions { missing: vec![missing(policy, binding, lookup)], ..Decisions::default() }
}

/// The denial of a request for which the API server can't use a policy or binding.
fn config_error(policy: &CompiledPolicy, binding: Option<&Binding>, error: &str) -> Option<Objection> {
    let what = if binding.is_some() { "binding" } else { "policy" };
    let message = format!("failed to configure {what}: {error}");
    let binding = binding.map(|binding| binding.name.as_str());
    (policy.policy.failure_policy != "Ignore")
        .then(|| Objection::error(&policy.policy.name, binding, message))
}
