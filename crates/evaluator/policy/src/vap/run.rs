//! The evaluation of all policies on one request.
//!
//! A missing fact is reported only if the verdict can depend on it: if it decides whether a policy judges the request, and the
//! policy has no objection and needs no other fact, the fact does not matter.

use std::sync::Arc;

use super::compiled::CompiledPolicy;
use super::decision::{
    Annotations, Decisions, Denial, Evaluated, Evaluation, Failure, Missing, Warning, failure_annotation,
};
use super::evaluate::{Annotation, Input, Report, Verdict, evaluate};
use super::matching::{Matching, matches, not_found};
use super::model::{Binding, MatchResources};
use super::params::{Params, collect};
use crate::cel::environment::{OLD_OBJECT, USER};
use crate::cel::outcome::Context;
use crate::cel::reads::NamespacePart;
use crate::expression::{Need, Variables};
use crate::facts::{Facts, Limit, Lookup};
use crate::release::Release;
use crate::request::{Request, namespace_object};
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
pub(crate) struct Run<'a, 'r> {
    request: &'r Request<'a>,
    facts: &'a Facts,
    arena: &'a Arena,
    keep_going: &'a dyn Fn() -> bool,
    /// The variable `request`, built when the first policy matches.
    variable: Option<Value<'a>>,
    found: Evaluation,
    /// Whether the namespace of the request does not exist. The API server then evaluates nothing more.
    ended: bool,
}

/// The result of one policy, binding and parameter.
#[derive(Default)]
struct Effects {
    decisions: Decisions,
    annotations: Vec<(String, String)>,
    needs: Vec<Lookup>,
    /// Whether an expression needs parameters that are unknown. Their lookup is recorded when they are collected.
    needs_params: bool,
}

impl Effects {
    fn denied(denial: Option<Denial>) -> Self {
        let mut effects = Self::default();
        effects.decisions.denials.extend(denial);
        effects
    }

    fn needing(lookup: Lookup) -> Self {
        Self { needs: vec![lookup], ..Self::default() }
    }

    fn is_empty(&self) -> bool {
        let Decisions { denials, warnings, failures, .. } = &self.decisions;
        denials.is_empty()
            && warnings.is_empty()
            && failures.is_empty()
            && self.annotations.is_empty()
            && self.needs.is_empty()
            && !self.needs_params
    }
}

/// The step after matching, for a policy or binding.
enum Next {
    /// It judges the request, unless a missing fact says otherwise.
    Judge(Option<Lookup>),
    /// It judges the object in another version of the resource, which is unknown, or matching needed too much memory.
    Undecided(Lookup),
    Skip,
    /// The API server fails to find out.
    Fail(Option<Denial>),
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

impl<'a, 'r> Run<'a, 'r> {
    pub(crate) fn new(
        request: &'r Request<'a>,
        facts: &'a Facts,
        arena: &'a Arena,
        keep_going: &'a dyn Fn() -> bool,
    ) -> Self {
        Self { request, facts, arena, keep_going, variable: None, found: Evaluation::default(), ended: false }
    }

    pub(crate) fn has_ended(&self) -> bool {
        self.ended
    }

    pub(crate) fn finish(self, release: Release) -> Evaluation {
        let mut found = self.found;
        // A policy that does not match a full arena can match the request.
        let lookup = Lookup::Limit(Limit::Memory);
        if self.arena.is_full() && !found.missing.iter().any(|missing| missing.lookup == lookup) {
            found.missing.push(Missing { policy: String::new(), binding: None, lookup });
        }
        if !self.ended || !release.annotates_failures_together() {
            let annotation = failure_annotation(&found.decisions.failures, release);
            found.decisions.audit_annotations.extend(annotation);
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
        let mut annotations = Annotations::default();
        let constraints = policy.policy.match_constraints.as_ref();
        let Some(pending) = self.applies(policy, None, constraints, &[], &mut annotations) else { return };
        if let Some(kind) = &policy.policy.param_kind {
            match self.facts.param_kinds.get(kind) {
                None => {
                    // Without its kind nothing is known about the parameters.
                    let effects = Effects::needing(Lookup::ParamKind(kind.clone()));
                    self.commit(policy, None, &pending, effects, &mut annotations);
                }
                Some(None) => {
                    let error =
                        format!("failed to find resource referenced by paramKind: '{}'", kind.display());
                    let effects = Effects::denied(config_error(policy, None, &error));
                    return self.commit(policy, None, &pending, effects, &mut annotations);
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
        self.found.decisions.audit_annotations.extend(annotations.publish(&policy.policy.name));
    }

    /// Matches a policy or binding. If it judges the request, returns the facts that can still exclude it; otherwise records why it
    /// does not, if that is unknown or an error.
    fn applies(
        &mut self,
        policy: &CompiledPolicy,
        binding: Option<&Binding>,
        resources: Option<&MatchResources>,
        pending: &[Lookup],
        annotations: &mut Annotations,
    ) -> Option<Vec<Lookup>> {
        let Some(resources) = resources else { return Some(pending.to_vec()) };
        let matching = matches(resources, self.request, self.facts, &policy.policy.name, self.arena);
        let effects = match next(matching, policy, binding, self.arena) {
            Next::Judge(lookup) => return Some(pending.iter().cloned().chain(lookup).collect()),
            Next::Undecided(lookup) => Effects::needing(lookup),
            Next::Skip => return None,
            Next::Fail(denial) => Effects::denied(denial),
        };
        self.commit(policy, binding, pending, effects, annotations);
        None
    }

    fn binding(
        &mut self,
        policy: &'a CompiledPolicy,
        binding: &Binding,
        mut pending: Vec<Lookup>,
        annotations: &mut Annotations,
    ) {
        let kind = policy.policy.param_kind.as_ref();
        let params = collect(kind, binding.param_ref.as_ref(), self.request, self.facts, self.arena);
        let namespace = self.namespace();
        // Values can be missing in the object, the labels, the parameters and the Namespace.
        if self.arena.is_full() {
            let effects = Effects::needing(Lookup::Limit(Limit::Memory));
            return self.commit(policy, Some(binding), &pending, effects, annotations);
        }
        let params = match params {
            Params::None => vec![Some(Value::Null)],
            Params::Each(values) => values.into_iter().map(Some).collect(),
            Params::Unknown(lookup) => {
                let denies = binding
                    .param_ref
                    .as_ref()
                    .is_some_and(|reference| reference.parameter_not_found_action == "Deny");
                if denies {
                    let effects = Effects::needing(lookup.clone());
                    self.commit(policy, Some(binding), &pending, effects, annotations);
                }
                pending.push(lookup);
                vec![None]
            }
            Params::Error(error) => {
                let effects = Effects::denied(config_error(policy, Some(binding), &error));
                return self.commit(policy, Some(binding), &pending, effects, annotations);
            }
        };
        let namespace = match namespace {
            Ok(namespace) => namespace,
            Err(None) => return self.missing_namespace(policy, binding, &pending, annotations),
            Err(Some(error)) => {
                let effects = Effects::denied(config_error(policy, Some(binding), &error));
                return self.commit(policy, Some(binding), &pending, effects, annotations);
            }
        };
        let arena = self.arena;
        let request = self.request;
        let variable = *self.variable.get_or_insert_with(|| request.variable(arena));
        for param in params {
            if !(self.keep_going)() {
                let effects = Effects::needing(Lookup::Limit(Limit::Time));
                return self.commit(policy, Some(binding), &pending, effects, annotations);
            }
            let report = evaluate(policy, self.input(variable, param, namespace));
            let mut pending = pending.clone();
            pending.extend(self.lookups(&report.condition_needs));
            let effects = self.effects(policy, binding, report);
            self.commit(policy, Some(binding), &pending, effects, annotations);
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
        let context = Context { arena: self.arena, answers: self.facts, keep_going: self.keep_going };
        Input { context, variables, namespace_null: matches!(namespace, Some(Value::Null)) }
    }

    /// Denies a request whose namespace does not exist, which outranks the failure policy and all other denials.
    fn missing_namespace(
        &mut self,
        policy: &CompiledPolicy,
        binding: &Binding,
        pending: &[Lookup],
        annotations: &mut Annotations,
    ) {
        if pending.is_empty() {
            self.ended = true;
            self.found.decisions.denials.clear();
        }
        let message = not_found(self.request.namespace);
        let denial = Denial::missing_namespace(&policy.policy.name, &binding.name, message);
        self.commit(policy, Some(binding), pending, Effects::denied(Some(denial)), annotations);
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

    /// The lookups for facts that expressions need. Parameters were recorded when they were collected.
    fn lookups(&self, needs: &[Need]) -> Vec<Lookup> {
        let lookup = |need: &Need| match need {
            Need::Check(check) => Some(Lookup::Check(check.clone())),
            Need::Variable(name) if name == "params" => None,
            Need::Variable(name) if name == USER => Some(Lookup::User),
            Need::Variable(name) if name == OLD_OBJECT => Some(Lookup::OldObject),
            Need::Variable(_) => Some(Lookup::Namespace(self.request.namespace.to_owned())),
        };
        needs.iter().filter_map(lookup).collect()
    }

    fn effects(&self, policy: &CompiledPolicy, binding: &Binding, report: Report) -> Effects {
        let (policy_name, binding_name) = (&policy.policy.name, &binding.name);
        let needs_params =
            report.needs.iter().any(|need| matches!(need, Need::Variable(name) if name == "params"));
        if let Some(limit) = report.limit {
            return Effects::needing(Lookup::Limit(limit));
        }
        let mut effects = Effects { needs: self.lookups(&report.needs), needs_params, ..Effects::default() };
        let ignores = policy.policy.failure_policy == "Ignore";
        let is_error = |verdict: &Verdict| matches!(verdict, Verdict::Error(_));
        effects.decisions.evaluated.push(Evaluated {
            policy: policy_name.clone(),
            binding: binding_name.clone(),
            skipped: report.skipped,
            ignored: report.ignored || ignores && report.decisions.iter().any(is_error),
        });
        let replaced = report.decisions.len() != policy.validations.len();
        for (index, verdict) in report.decisions.into_iter().enumerate() {
            let (error, message, reason) = match verdict {
                Verdict::Admit => continue,
                Verdict::Deny { message, reason } => (false, message, reason),
                Verdict::Error(_) if policy.policy.failure_policy == "Ignore" => continue,
                Verdict::Error(message) => (true, message, "Invalid".to_owned()),
            };
            let validation = (!replaced).then_some(index);
            let failed = Failed { index, validation, error, message: &message, reason: &reason };
            apply(&mut effects.decisions, binding, policy_name, &failed);
        }
        for annotation in report.annotations {
            match annotation {
                Annotation::Publish { key, value } => effects.annotations.push((key, value)),
                Annotation::Error(message) => effects.decisions.denials.push(Denial {
                    policy: policy_name.clone(),
                    binding: Some(binding_name.clone()),
                    validation: None,
                    error: true,
                    message,
                    reason: "Invalid".to_owned(),
                }),
            }
        }
        effects
    }

    /// Records effects. If facts are pending that decide whether there are any, those facts are recorded instead.
    fn commit(
        &mut self,
        policy: &CompiledPolicy,
        binding: Option<&Binding>,
        pending: &[Lookup],
        effects: Effects,
        annotations: &mut Annotations,
    ) {
        if !pending.is_empty() && effects.is_empty() {
            return;
        }
        for lookup in pending.iter().chain(&effects.needs) {
            let missing = Missing {
                policy: policy.policy.name.clone(),
                binding: binding.map(|binding| binding.name.clone()),
                lookup: lookup.clone(),
            };
            if !self.found.missing.contains(&missing) {
                self.found.missing.push(missing);
            }
        }
        if pending.is_empty() {
            let found = &mut self.found.decisions;
            found.denials.extend(effects.decisions.denials);
            found.warnings.extend(effects.decisions.warnings);
            found.failures.extend(effects.decisions.failures);
            found.evaluated.extend(effects.decisions.evaluated);
            for (key, value) in effects.annotations {
                annotations.add(&key, &value);
            }
        }
    }
}

/// The denial of a request for which the API server can't use a policy or binding.
fn config_error(policy: &CompiledPolicy, binding: Option<&Binding>, error: &str) -> Option<Denial> {
    let what = if binding.is_some() { "binding" } else { "policy" };
    (policy.policy.failure_policy != "Ignore").then(|| Denial {
        policy: policy.policy.name.clone(),
        binding: binding.map(|binding| binding.name.clone()),
        validation: None,
        error: true,
        message: format!("failed to configure {what}: {error}"),
        reason: "Invalid".to_owned(),
    })
}

/// A failed validation, or an error that denies a request.
struct Failed<'f> {
    /// Index among the decisions.
    index: usize,
    /// Index of the validation, if one failed.
    validation: Option<usize>,
    error: bool,
    message: &'f str,
    reason: &'f str,
}

/// Applies the actions of a binding to a failure.
fn apply(decisions: &mut Decisions, binding: &Binding, policy: &str, failed: &Failed<'_>) {
    for action in &binding.validation_actions {
        let message = failed.message.to_owned();
        match action.as_str() {
            "Deny" => decisions.denials.push(Denial {
                policy: policy.to_owned(),
                binding: Some(binding.name.clone()),
                validation: failed.validation,
                error: failed.error,
                message,
                reason: failed.reason.to_owned(),
            }),
            "Warn" => decisions.warnings.push(Warning {
                policy: policy.to_owned(),
                binding: binding.name.clone(),
                validation: failed.validation,
                message,
            }),
            _ => decisions.failures.push(Failure {
                policy: policy.to_owned(),
                binding: binding.name.clone(),
                index: failed.index,
                validation: failed.validation,
                message,
                actions: binding.validation_actions.clone(),
            }),
        }
    }
}
