//! The order of one review: exemptions, the Namespace if a policy can need it, evaluation.

use std::sync::Arc;
use std::time::Instant;

use admission::{Cause, PolicyEvaluation, PolicyOutcome, Request, Ruling};
use cluster::{Address, Metadata, Resource, cause};
use policy::set::Decisions;

use super::request::UnreadRequest;
use super::{ResourcesGuard, messages, request};
use crate::exempt;

/// Reviews a request.
pub(super) async fn review(guard: &ResourcesGuard, request: &Request<'_>, deadline: Instant) -> Ruling {
    let common = &guard.config.common_config;
    if let Some(key) = common.exempt_by(request, &request.namespace) {
        return exempt::ruling(key);
    }
    let Some((policies, set)) = guard.policies() else { return Ruling::allow() };
    let (group, resource) = (request.resource.group.as_ref(), request.resource.resource.as_ref());
    if !set.can_match(group, resource) {
        return Ruling::allow();
    }
    let mut objects = [&request.object, &request.old_object].into_iter().flatten();
    if let Some(key) = objects.find_map(admission::ReviewedObject::duplicate_key) {
        return Ruling::unknown(Cause::new(cause::GARBAGE, format!("the object has the key {key:?} twice")));
    }
    let mut namespace = Ok(None);
    if set.needs_namespace_for(group, resource) {
        namespace = read_namespace(guard, request, deadline).await;
    }
    let began = Instant::now();
    let arena = request::arena(request);
    let known = namespace.as_ref().ok().and_then(Option::as_deref);
    let decisions = match request::convert(request, known, &arena) {
        Ok(converted) => set.evaluate(&converted, policies.facts(), &arena, &|| Instant::now() < deadline),
        // A user can create an object with more levels than are read, so it is denied also if `failurePolicy` or `onUnknown` would allow
        // it. An old object is there already, and perhaps the request makes it smaller.
        Err(unreadable) if arena.is_full() => {
            let text = format!("the request can't be read: {}", unreadable.error);
            return Ruling::unknown(Cause::new(cause::TOO_LONG, text));
        }
        Err(UnreadRequest { error, is_object: true }) if set.can_deny(group, resource) => {
            return Ruling::deny(messages::unreadable(request, &error));
        }
        Err(UnreadRequest { error, .. }) => {
            let text = format!("the request can't be read: {error}");
            return Ruling::unknown(Cause::new(cause::GARBAGE, text));
        }
    };
    let time = began.elapsed();
    let outcomes = outcomes(&decisions);
    let ruling = messages::ruling(set, request, &decisions, namespace.as_ref().err());
    Ruling { evaluation: Some(PolicyEvaluation { outcomes, time }), ..ruling }
}

/// Reads the Namespace of a request. A cluster-scoped object has none, and a Namespace that is created is not there yet.
async fn read_namespace(
    guard: &ResourcesGuard,
    request: &Request<'_>,
    deadline: Instant,
) -> Result<Option<Arc<Metadata>>, Cause> {
    let name = request.namespace.as_ref();
    if name.is_empty() {
        return Ok(None);
    }
    let address = Address { resource: &Resource::NAMESPACES, namespace: "", name };
    match guard.reader.get(address, deadline).await {
        Ok(None) if !request.is_for("", "namespaces") => {
            // The API server accepts no object in a missing namespace, so Durward reads another cluster.
            Err(Cause::new(cause::REFUSED, format!("namespace {name:?} does not exist")))
        }
        result => result,
    }
}

/// Returns the outcomes of all policies that matched, for metrics and the log.
fn outcomes(decisions: &Decisions) -> Vec<PolicyOutcome> {
    let denials =
        decisions.denials.iter().map(|denial| (&denial.policy, if denial.error { "error" } else { "deny" }));
    let ignored = decisions.evaluated.iter().filter(|evaluated| evaluated.ignored);
    let errors = ignored.map(|evaluated| (&evaluated.policy, "error"));
    let missing = decisions.missing.iter().map(|missing| (&missing.policy, "unknown"));
    let warnings = decisions.warnings.iter().map(|warning| (&warning.policy, "warn"));
    let failures = decisions.failures.iter().map(|failure| (&failure.policy, "audit"));
    let mut outcomes: Vec<PolicyOutcome> = Vec::new();
    for (policy, outcome) in denials.chain(errors).chain(missing).chain(warnings).chain(failures) {
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
