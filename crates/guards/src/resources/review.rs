//! The order of one review: exemptions, evaluation, and again with the Namespace if a policy needs it.

use std::time::Instant;

use admission::{Cause, PolicyOutcome, Request, Ruling};
use check::Policies;
use cluster::{Address, Resource, cause};
use policy::facts::Lookup;
use policy::set::Evaluation;
use policy::value::Arena;

use super::{ResourcesGuard, messages, request};
use crate::exempt::Exemption;

/// A Namespace as JSON, or none if it does not exist.
type Namespace = Option<std::sync::Arc<str>>;

/// Reviews a request.
pub(super) async fn review(guard: &ResourcesGuard, request: &Request<'_>, deadline: Instant) -> Ruling {
    let Some(policies) = &guard.config.policies else { return Ruling::allow() };
    if guard.config.excludes(&request.namespace) {
        return Ruling::allow();
    }
    let exempt = &guard.config.common_config.exempt;
    match exempt.of(request) {
        Exemption::By(part) => return Ruling::allow().audit("exempt", part),
        Exemption::DependsOnNamespace => {
            let address = address(request);
            match guard.reader.get(address, deadline).await {
                Ok(Some(namespace)) if exempt.selects(&namespace.labels) => {
                    return Ruling::allow().audit("exempt", "exempt.namespaceSelector");
                }
                Ok(_) => {}
                Err(cause) => return unreadable(request, &cause),
            }
        }
        Exemption::No => {}
    }
    let began = Instant::now();
    let evaluated = evaluate(guard, policies, request, None, deadline);
    let mut evaluation = match evaluated {
        Ok(evaluation) => evaluation,
        Err(cause) => return Ruling::unknown(cause),
    };
    let mut spent = began.elapsed();
    let needs_namespace =
        evaluation.missing.iter().any(|missing| matches!(missing.lookup, Lookup::Namespace(_)));
    let mut unread = None;
    if needs_namespace {
        match guard.reader.get_whole(address(request), deadline).await {
            Ok(namespace) => {
                let began = Instant::now();
                match evaluate(guard, policies, request, Some(namespace), deadline) {
                    Ok(again) => evaluation = again,
                    Err(cause) => return Ruling::unknown(cause),
                }
                spent += began.elapsed();
            }
            Err(cause) => unread = Some(cause),
        }
    }
    messages::ruling(policies, request, &evaluation, unread.as_ref()).evaluated_in(spent)
}

fn address<'a>(request: &'a Request<'_>) -> Address<'a> {
    Address { resource: &Resource::NAMESPACES, namespace: "", name: request.namespace.as_ref() }
}

fn unreadable(request: &Request<'_>, cause: &Cause) -> Ruling {
    Ruling::unknown(Cause::new(cause.code, messages::unread_namespace(&request.namespace, cause)))
}

/// Evaluates the guard's policies. The memory of the values is freed at the end.
fn evaluate(
    guard: &ResourcesGuard,
    policies: &Policies,
    request: &Request<'_>,
    namespace: Option<Namespace>,
    deadline: Instant,
) -> Result<Evaluation, Cause> {
    let set = guard.part.as_ref().unwrap_or_else(|| policies.set());
    let arena = Arena::new();
    let converted = request::convert(request, &arena)
        .map_err(|error| Cause::new(cause::GARBAGE, format!("the request can't be read: {error}")))?;
    let namespace = namespace.as_ref().map(|namespace| namespace.as_deref());
    Ok(policies.evaluate(set, &converted, namespace, &arena, &|| Instant::now() < deadline))
}

/// Returns the outcomes of all policies that matched, for metrics and the log.
pub(super) fn outcomes(evaluation: &Evaluation) -> Vec<PolicyOutcome> {
    let decisions = &evaluation.decisions;
    let denials =
        decisions.denials.iter().map(|denial| (&denial.policy, if denial.error { "error" } else { "deny" }));
    let missing = evaluation.missing.iter().map(|missing| (&missing.policy, "unknown"));
    let warnings = decisions.warnings.iter().map(|warning| (&warning.policy, "warn"));
    let failures = decisions.failures.iter().map(|failure| (&failure.policy, "audit"));
    let mut outcomes: Vec<PolicyOutcome> = Vec::new();
    for (policy, outcome) in denials.chain(missing).chain(warnings).chain(failures) {
        let outcome = PolicyOutcome { policy: policy.clone(), outcome };
        if !policy.is_empty() && !outcomes.contains(&outcome) {
            outcomes.push(outcome);
        }
    }
    for evaluated in &decisions.evaluated {
        if !outcomes.iter().any(|outcome| outcome.policy == evaluated.policy) {
            let outcome = if evaluated.skipped { "skip" } else { "allow" };
            outcomes.push(PolicyOutcome { policy: evaluated.policy.clone(), outcome });
        }
    }
    outcomes
}
