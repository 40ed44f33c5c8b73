//! Webhook entries of the policies, and remarks on them.
//!
//! There is one entry for each `failurePolicy` in use. It contains the rules of all its policies, without names, exclusions, selectors
//! and match conditions: those stay with the evaluator, so an entry is never narrower than its policies. `resourceNames` and
//! `excludeResourceRules` do not exist in webhooks.
//!
//! The API server converts an object to the version of a rule (`plugin/webhook/predicates/rules`, `generic/webhook.go`). All policies of
//! an entry get the same version, so policies with different versions of one resource are refused when they are loaded.

use std::collections::{BTreeMap, BTreeSet};

use ::config::{Expression, Problem};
use k8s_openapi::api::admissionregistration::v1::RuleWithOperations;
use manifests::Policies;
use policy::kinds::Kinds;
use policy::vap::matching::{EXCLUDED, MOVED};
use policy::vap::model::{Binding, Policy, ResourceRule};

use super::enforcement::PolicyRules;
use super::{ANY, Config, PARTS};
use crate::cel;
use crate::common::{FailurePolicy, NAMESPACE_NAME, Remark};
use crate::webhook::{WebhookEntry, WebhookType, condition};

/// The operations of requests.
const OPERATIONS: [&str; 4] = ["CREATE", "UPDATE", "DELETE", "CONNECT"];

/// Resources that a cluster needs to live, by group. A webhook that does not answer must not deny their changes.
const VITAL: [(&str, &str, &str); 5] = [
    ("coordination.k8s.io", "leases", "nodes and controllers lose their leases"),
    ("", "nodes", "nodes can't report their state"),
    ("", "events", "no event is recorded"),
    ("events.k8s.io", "events", "no event is recorded"),
    ("", "pods", "no pod starts outside of the exempt namespaces"),
];

/// Returns the entries.
pub(super) fn entries(config: &Config) -> Vec<WebhookEntry> {
    let Some(policies) = &config.policies else { return Vec::new() };
    let entry = |(failure_policy, guard, name)| {
        let rules = join(bound(policies, failure_policy).flat_map(rules_of));
        if rules.is_empty() {
            return None;
        }
        let common = &config.common_config;
        let mut entry = WebhookEntry::new(WebhookType::Validating, name, rules, common);
        let mut exempt: BTreeSet<String> = common.exempt.names_of_namespaces().collect();
        exempt.insert(common.namespace.clone());
        exempt.remove("");
        if !exempt.is_empty() {
            entry.namespace_selector.extend(Expression::NotIn(NAMESPACE_NAME.to_owned(), exempt));
        }
        if entry.rules.iter().any(covers_excluded) {
            entry.match_conditions.push(condition("judged-by-policies", not_excluded()));
        }
        Some(WebhookEntry { guard: Some(guard), failure_policy, ..entry })
    };
    PARTS.into_iter().filter_map(entry).collect()
}

/// Returns the policies with this `failurePolicy` that have bindings. The API server evaluates no others.
fn bound(policies: &Policies, failure_policy: FailurePolicy) -> impl Iterator<Item = &Policy> {
    let is_of_part = move |policy: &Policy| policy.failure_policy == failure_policy.as_str();
    let all = policies.set().policies();
    all.filter(move |(policy, bindings)| !bindings.is_empty() && is_of_part(policy)).map(|(policy, _)| policy)
}

/// Returns each bound policy with the name of its entry and the rules that the entry needs for it.
pub(super) fn needed(policies: &Policies) -> Vec<PolicyRules> {
    let of_part = |(failure_policy, _, entry)| {
        let rules = move |policy: &Policy| PolicyRules {
            policy: policy.name.clone(),
            entry,
            rules: join(rules_of(policy)),
        };
        bound(policies, failure_policy).map(rules)
    };
    PARTS.into_iter().flat_map(of_part).collect()
}

fn rules_of(policy: &Policy) -> impl Iterator<Item = &ResourceRule> {
    policy.match_constraints.iter().flat_map(|constraints| &constraints.resource_rules)
}

/// Joins rules: those that differ only in their operations become one.
fn join<'r>(rules: impl Iterator<Item = &'r ResourceRule>) -> Vec<RuleWithOperations> {
    let sorted = |items: &[String]| items.iter().cloned().collect::<BTreeSet<String>>();
    let mut joined: BTreeMap<_, BTreeSet<String>> = BTreeMap::new();
    for rule in rules {
        // Rules that name only resources that no policy judges are left out.
        let resources: BTreeSet<String> =
            sorted(&rule.resources).into_iter().filter(|resource| !is_excluded(rule, resource)).collect();
        if resources.is_empty() {
            continue;
        }
        let key = (sorted(&rule.api_groups), sorted(&rule.api_versions), resources, rule.scope.clone());
        joined.entry(key).or_default().extend(rule.operations.iter().cloned());
    }
    let list = |items: BTreeSet<String>| {
        let any = items.contains(ANY);
        Some(if any { vec![ANY.to_owned()] } else { items.into_iter().collect() })
    };
    joined
        .into_iter()
        .map(|((groups, versions, resources, scope), operations)| RuleWithOperations {
            operations: list(operations),
            api_groups: list(groups),
            api_versions: list(versions),
            resources: Some(resources.into_iter().collect()),
            scope: Some(scope),
        })
        .collect()
}

/// Returns whether a resource of a rule is one that no policy judges.
fn is_excluded(rule: &ResourceRule, resource: &str) -> bool {
    let plural = resource.split('/').next().unwrap_or_default();
    !rule.api_groups.is_empty()
        && rule.api_groups.iter().all(|group| {
            EXCLUDED.iter().any(|(excluded, resources)| excluded == group && resources.contains(&plural))
        })
}

/// Returns whether a rule covers resources that no policy judges, by `*`.
fn covers_excluded(rule: &RuleWithOperations) -> bool {
    let contains = |list: &Option<Vec<String>>, wanted: &str| {
        list.iter().flatten().any(|item| item == wanted || item == ANY)
    };
    let resources: Vec<String> = rule
        .resources
        .iter()
        .flatten()
        .filter_map(|resource| resource.split('/').next().map(str::to_owned))
        .collect();
    let resources = Some(resources);
    EXCLUDED.iter().any(|(group, excluded)| {
        contains(&rule.api_groups, group) && excluded.iter().any(|resource| contains(&resources, resource))
    })
}

/// Returns the match condition that leaves out what the API server never sends to policies.
fn not_excluded() -> String {
    let groups = EXCLUDED.iter().map(|(group, resources)| {
        let resources: Vec<String> = resources.iter().map(|resource| cel::string(resource)).collect();
        format!(
            "(request.resource.group == {} && request.resource.resource in [{}])",
            cel::string(group),
            resources.join(", ")
        )
    });
    format!("!({})", groups.collect::<Vec<_>>().join(" || "))
}

/// Returns the problems of policies that one entry can't have together: they get an object in one version only.
pub(super) fn problems(policies: &Policies) -> Vec<Problem> {
    let of_part = |(failure_policy, _, _): (FailurePolicy, &str, &str)| {
        let all: Vec<&Policy> = bound(policies, failure_policy).collect();
        let problem = |policy: &&Policy| {
            let other = all.iter().find_map(|other| {
                let version =
                    rules_of(other).find_map(|rule| missing_version(policies.kinds(), policy, rule))?;
                Some((other, version))
            });
            other.map(|(other, (version, resource))| {
                let what = format!(
                    "policy \"{}\" needs {resource} in another version than {version}, the one that policy \"{}\" names, but a webhook gets each object in one version",
                    policy.name, other.name
                );
                let next = "name the same apiVersions in both, set matchPolicy: Exact in the first, or add the CRD to the files if it has one version";
                let place = policies.place(&policy.name).cloned();
                Problem { place, ..Problem::new(what).next(next) }
            })
        };
        all.iter().filter_map(problem).collect::<Vec<_>>()
    };
    PARTS.into_iter().flat_map(of_part).collect()
}

/// Returns a version and a resource of a rule of another policy in which a policy can't judge an object: the policy matches the object
/// in another version, and the API server sends it in the version of the rule.
fn missing_version(kinds: &Kinds, policy: &Policy, rule: &ResourceRule) -> Option<(String, String)> {
    let constraints = policy.match_constraints.as_ref()?;
    if constraints.match_policy != "Equivalent" {
        return None;
    }
    OPERATIONS.into_iter().filter(|operation| contains(&rule.operations, operation)).find_map(|operation| {
        let own = constraints.resource_rules.iter().filter(|own| contains(&own.operations, operation));
        let shared: Vec<(&ResourceRule, Vec<(String, String)>)> =
            own.map(|own| (own, shared(kinds, own, rule))).filter(|(_, shared)| !shared.is_empty()).collect();
        let (_, resources) = shared.first()?;
        let is_missing = |version: &&String| {
            !shared.iter().any(|(own, _)| contains(&own.api_versions, version) && has_group(own, rule))
        };
        let version = rule.api_versions.iter().find(is_missing)?;
        let (group, plural) = resources.first()?;
        Some((version.clone(), if group.is_empty() { plural.clone() } else { format!("{plural}.{group}") }))
    })
}

/// Returns the groups and resources that two rules have in common and that can be served in several versions.
fn shared(kinds: &Kinds, own: &ResourceRule, other: &ResourceRule) -> Vec<(String, String)> {
    let plurals = common(&plurals(own), &plurals(other));
    let moved = MOVED.iter().filter(|(plural, from, to)| {
        own.api_groups.iter().any(|group| group == from)
            && other.api_groups.iter().any(|group| group == to)
            && plurals.iter().any(|name| name == plural || name == ANY)
    });
    let moved = moved.map(|(plural, from, _)| ((*from).to_owned(), (*plural).to_owned()));
    let groups = common(&own.api_groups, &other.api_groups);
    let same =
        groups.iter().flat_map(|group| plurals.iter().map(move |plural| (group.clone(), plural.clone())));
    same.filter(|(group, plural)| !kinds.has_one_version(group, plural)).chain(moved).collect()
}

/// Returns whether two rules have a group in common. Events have two groups, with the same versions.
fn has_group(own: &ResourceRule, other: &ResourceRule) -> bool {
    !common(&own.api_groups, &other.api_groups).is_empty()
}

/// Returns whether a list contains a word or `*`.
fn contains(items: &[String], wanted: &str) -> bool {
    items.iter().any(|item| item == wanted || item == ANY)
}

/// Returns the items that two lists have in common. `*` contains all items.
fn common(left: &[String], right: &[String]) -> Vec<String> {
    let any = ANY.to_owned();
    match (left.contains(&any), right.contains(&any)) {
        (true, _) => right.to_vec(),
        (_, true) => left.to_vec(),
        _ => left.iter().filter(|item| right.contains(item)).cloned().collect(),
    }
}

/// Returns the resources of a rule without subresources.
fn plurals(rule: &ResourceRule) -> Vec<String> {
    rule.resources.iter().filter_map(|name| name.split('/').next().map(str::to_owned)).collect()
}

/// Returns the remarks on the policies.
pub(super) fn remarks(config: &Config) -> Vec<Remark> {
    let mut remarks: Vec<Remark> = config.common_config.webhook_note().into_iter().collect();
    let Some(policies) = &config.policies else { return remarks };
    for (policy, bindings) in policies.set().policies() {
        remarks.push(Remark::Rule(summary(policy, bindings)));
        if bindings.is_empty() {
            let text = format!(
                "policy \"{}\" is never evaluated, because no binding names it: add a binding to the files",
                policy.name
            );
            remarks.push(Remark::Warning(text));
        } else if policy.failure_policy == FailurePolicy::Fail.as_str() {
            remarks.extend(vital(policy).map(Remark::Warning));
        }
    }
    remarks
}

/// Returns a policy's resources, operations, actions and failurePolicy in one line.
fn summary(policy: &Policy, bindings: &[Binding]) -> String {
    let set = |items: &mut dyn Iterator<Item = String>| {
        items.collect::<BTreeSet<String>>().into_iter().collect::<Vec<_>>().join(", ")
    };
    let resources = set(&mut rules_of(policy).flat_map(|rule| {
        rule.resources.iter().map(|resource| match rule.api_groups.as_slice() {
            [group] if group.is_empty() => resource.clone(),
            groups => format!("{resource}.{}", groups.join("|")),
        })
    }));
    let operations = set(&mut rules_of(policy).flat_map(|rule| rule.operations.iter().cloned()));
    let actions = set(&mut bindings.iter().flat_map(|binding| binding.validation_actions.iter().cloned()));
    let actions = if actions.is_empty() { "none".to_owned() } else { actions };
    format!(
        "policy \"{}\": {operations} of {resources}; actions {actions}; failurePolicy {}",
        policy.name, policy.failure_policy
    )
}

/// Returns a warning if a policy with `Fail` reaches what a cluster needs while Durward is down. The entry has no selectors of policies,
/// so they don't matter.
fn vital(policy: &Policy) -> Option<String> {
    let (index, resource, consequence) = rules_of(policy).enumerate().find_map(|(index, rule)| {
        let is_reached = |(group, resource, _): &&(&str, &str, &str)| {
            contains(&rule.api_groups, group)
                && rule.resources.iter().any(|entry| entry == resource || entry == ANY || entry == "*/*")
                && ["CREATE", "UPDATE"].iter().any(|operation| contains(&rule.operations, operation))
        };
        VITAL.iter().find(is_reached).map(|(_, resource, consequence)| (index, resource, consequence))
    })?;
    Some(format!(
        "policy \"{}\" has failurePolicy: Fail, and spec.matchConstraints.resourceRules[{index}] matches {resource}: while Durward is down, {consequence}; narrow the rule, or set failurePolicy: Ignore",
        policy.name
    ))
}
