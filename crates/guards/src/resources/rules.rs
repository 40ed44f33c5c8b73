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
use check::Policies;
use k8s_openapi::api::admissionregistration::v1::RuleWithOperations;
use policy::vap::matching::EXCLUDED;
use policy::vap::model::{Binding, Policy, Rule};

use super::config::Config;
use super::{NAME, Part};
use crate::common::NAMESPACE_NAME;
use crate::kind::Remark;
use crate::webhook::{WebhookEntry, WebhookType, cel_string, condition};

/// All groups, versions, resources or operations.
const ANY: &str = "*";

/// Resources that a cluster needs to live, by group. A webhook that does not answer must not deny their changes.
const VITAL: [(&str, &str, &str); 6] = [
    ("coordination.k8s.io", "leases", "nodes and controllers lose their leases"),
    ("", "nodes", "nodes can't report their state"),
    ("", "events", "no event is recorded"),
    ("events.k8s.io", "events", "no event is recorded"),
    ("", "pods", "no pod starts, those of Durward in other namespaces included"),
    ("", "configmaps", "controllers can't store their state"),
];

/// Returns the entries.
pub(super) fn entries(config: &Config) -> Vec<WebhookEntry> {
    let entry = |part: Part| {
        let rules = join(bound(config.policies.as_ref()?, part).flat_map(rules_of));
        if rules.is_empty() {
            return None;
        }
        let mut entry = WebhookEntry::new(
            WebhookType::Validating,
            format!("{NAME}-{}", part.path()),
            rules.clone(),
            &config.common_config,
        );
        entry.part = Some(part.path());
        entry.failure_policy = part.failure_policy();
        let mut excluded: BTreeSet<String> = config.excluded_namespaces.iter().cloned().collect();
        excluded.insert(config.common_config.namespace.clone());
        excluded.remove("");
        if !excluded.is_empty() {
            entry.namespace_selector.extend(Expression::NotIn(NAMESPACE_NAME.to_owned(), excluded));
        }
        if rules.iter().any(covers_excluded) {
            entry.match_conditions.push(condition("judged-by-policies", not_excluded()));
        }
        Some(entry)
    };
    Part::ALL.into_iter().filter_map(entry).collect()
}

/// Returns the policies of a part that have bindings. The API server evaluates no others.
fn bound(policies: &Policies, part: Part) -> impl Iterator<Item = &Policy> {
    let is_of_part = move |policy: &Policy| policy.failure_policy == part.failure_policy().as_str();
    let all = policies.set().policies();
    all.filter(move |(policy, bindings)| !bindings.is_empty() && is_of_part(policy)).map(|(policy, _)| policy)
}

fn rules_of(policy: &Policy) -> impl Iterator<Item = &Rule> {
    policy.match_constraints.iter().flat_map(|constraints| &constraints.resource_rules)
}

/// Joins rules: those that differ only in their operations become one.
fn join<'r>(rules: impl Iterator<Item = &'r Rule>) -> Vec<RuleWithOperations> {
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
fn is_excluded(rule: &Rule, resource: &str) -> bool {
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
        let resources: Vec<String> = resources.iter().map(|resource| cel_string(resource)).collect();
        format!(
            "(request.resource.group == {} && request.resource.resource in [{}])",
            cel_string(group),
            resources.join(", ")
        )
    });
    format!("!({})", groups.collect::<Vec<_>>().join(" || "))
}

/// Returns the problems of policies that one entry can't have together: they get an object in one version only.
pub(super) fn problems(policies: &Policies) -> Vec<Problem> {
    let mut problems = Vec::new();
    for part in Part::ALL {
        let rules: Vec<(&Policy, &Rule)> = bound(policies, part)
            .flat_map(|policy| rules_of(policy).map(move |rule| (policy, rule)))
            .collect();
        for (index, (policy, rule)) in rules.iter().enumerate() {
            let other = rules.iter().enumerate().find(|(other, (_, rule_of_other))| {
                *other != index && has_other_version(policies, policy, rule, rule_of_other)
            });
            if let Some((_, (other, rule_of_other))) = other {
                let versions = |rule: &Rule| rule.api_versions.join(", ");
                let what = format!(
                    "policy \"{}\" judges version {} of {} and policy \"{}\" version {}, but a webhook gets each object in one version",
                    policy.name,
                    versions(rule),
                    rule.resources.join(", "),
                    other.name,
                    versions(rule_of_other)
                );
                let next = "name the same apiVersions in both, set matchPolicy: Exact in both, or add the CRD to the files if it has one version";
                let place = policies.place(&policy.name).cloned();
                problems.push(Problem { place, ..Problem::new(what).next(next) });
            }
        }
    }
    problems
}

/// Returns whether an object can arrive in a version that a policy can't judge, because another rule names that version.
fn has_other_version(policies: &Policies, policy: &Policy, rule: &Rule, other: &Rule) -> bool {
    let constraints = policy.match_constraints.as_ref();
    let is_equivalent = constraints.is_some_and(|constraints| constraints.match_policy == "Equivalent");
    let covers = |rule: &Rule| {
        other
            .api_versions
            .iter()
            .all(|version| rule.api_versions.iter().any(|own| own == version || own == ANY))
    };
    if !is_equivalent || covers(rule) {
        return false;
    }
    let groups = common(&rule.api_groups, &other.api_groups);
    let resources = common(&plurals(rule), &plurals(other));
    let has_one_version =
        |group: &String| resources.iter().all(|plural| policies.kinds().has_one_version(group, plural));
    !resources.is_empty() && !groups.iter().all(has_one_version)
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
fn plurals(rule: &Rule) -> Vec<String> {
    rule.resources.iter().filter_map(|name| name.split('/').next().map(str::to_owned)).collect()
}

/// Returns the remarks on the policies.
pub(super) fn remarks(config: &Config) -> Vec<Remark> {
    let mut remarks: Vec<Remark> = config.common_config.webhook_note().into_iter().collect();
    let Some(policies) = &config.policies else { return remarks };
    for (policy, bindings) in policies.set().policies() {
        remarks.push(Remark::Note(summary(policy, bindings)));
        if bindings.is_empty() {
            let text = format!("policy \"{}\" is never evaluated, because no binding names it", policy.name);
            remarks.push(Remark::Warning(text));
        } else if policy.failure_policy == "Fail" {
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

/// Returns a warning if a policy with `Fail` reaches what a cluster needs while Durward is down.
fn vital(policy: &Policy) -> Option<String> {
    let has = |items: &[String], wanted: &str| items.iter().any(|item| item == wanted || item == ANY);
    let reached = VITAL.iter().find(|(group, resource, _)| {
        rules_of(policy).any(|rule| {
            has(&rule.api_groups, group)
                && rule.resources.iter().any(|entry| entry == resource || entry == ANY || entry == "*/*")
                && !rule.operations.iter().all(|operation| operation == "DELETE" || operation == "CONNECT")
        })
    });
    reached.map(|(_, resource, consequence)| {
        format!(
            "policy \"{}\" has failurePolicy: Fail and matches {resource}; while Durward is down, {consequence}",
            policy.name
        )
    })
}
