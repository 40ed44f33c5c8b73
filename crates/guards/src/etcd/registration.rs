//! When the guard wants to be called: for deletions of pods, for evictions, and by option for what is one level up.
//!
//! Two entries, as an objectSelector is matched against the Eviction and never against its pod (kubernetes/kubernetes#110169): the
//! one for deletions selects the pods, the other only the namespaces. Both select exactly the namespaces of the ensembles, so that
//! a Durward that is down holds up nothing elsewhere. Names of namespaces can stand in one selector together; label selectors
//! cannot, so each of them has entries of its own, and so has each selector of pods. A pod that two entries select is asked about
//! twice, which changes nothing.
//!
//! What a node has begun never comes: a kubelet's last delete of a pod that is going, and whatever else is about a pod that is
//! going, unless its time is made shorter to nothing.

use std::collections::BTreeMap;

use admission::{
    LabelSelector, MatchCondition, Reinvocation, Rule, Scope, SelectorOperator, SideEffects, WebhookEntry,
    WebhookType,
};

use super::NAME;
use super::config::{Also, Config, Within};
use crate::overrides;

/// The label that every namespace bears with its own name (1.21 and later).
const NAMESPACE_NAME: &str = "kubernetes.io/metadata.name";

/// Namespaces that one selector chooses, and those of their pods that one selector chooses, if there is one.
struct Place<'c> {
    namespaces: LabelSelector,
    pods: Option<&'c LabelSelector>,
}

/// All entries.
pub(super) fn entries(config: &Config) -> Vec<WebhookEntry> {
    let install = not_the_install_namespace(config);
    let mut of_pods = vec![overrides::condition(NAME), not_the_nodes_last_word(), not_terminating()];
    of_pods.extend(install.clone());
    let deletions = numbered(places(config).into_iter()).map(|(number, Place { namespaces, pods })| {
        let name = format!("etcd-pods{number}");
        let rules = vec![rule("", "pods", "DELETE")];
        entry(config, name, rules, &namespaces, pods, of_pods.clone())
    });
    let evictions = numbered(everywhere(config).into_iter()).map(|(number, namespaces)| {
        let name = format!("etcd-evictions{number}");
        let rules = vec![rule("", "pods/eviction", "CREATE")];
        entry(config, name, rules, &namespaces, None, install.iter().cloned().collect())
    });
    let rules: Vec<Rule> = config.also.iter().flat_map(|also| above(*also)).collect();
    let above = everywhere(config).into_iter().filter(|_| !rules.is_empty());
    let mut of_above = vec![overrides::condition(NAME)];
    of_above.extend(config.also.contains(&Also::Scale).then(fewer_replicas));
    of_above.extend(install.clone());
    let above = numbered(above).map(|(number, namespaces)| {
        entry(config, format!("etcd-above{number}"), rules.clone(), &namespaces, None, of_above.clone())
    });
    deletions.chain(evictions).chain(above).collect()
}

/// Each with what its name has at its end: nothing for the first, -2 for the second.
fn numbered<T>(all: impl Iterator<Item = T>) -> impl Iterator<Item = (String, T)> {
    all.enumerate().map(|(at, one)| (if at == 0 { String::new() } else { format!("-{}", at + 1) }, one))
}

fn entry(
    config: &Config,
    name: String,
    rules: Vec<Rule>,
    namespaces: &LabelSelector,
    pods: Option<&LabelSelector>,
    conditions: Vec<MatchCondition>,
) -> WebhookEntry {
    WebhookEntry {
        webhook_type: WebhookType::Validating,
        name,
        rules,
        namespace_selector: both(&config.common_config.namespace_selector, namespaces),
        object_selector: pods.cloned().unwrap_or_default(),
        match_conditions: conditions,
        failure_policy: config.common_config.failure_policy,
        side_effects: SideEffects::NoneOnDryRun,
        timeout_seconds: config.common_config.timeout_seconds,
        reinvocation: Reinvocation::Never,
        review_versions: config.common_config.review_versions.clone(),
    }
}

/// Where pods are chosen by the same selector: all named namespaces together, and each selector of namespaces by itself. An entry
/// that recognises its pods has no selector, and then the guard chooses.
fn places(config: &Config) -> Vec<Place<'_>> {
    let mut named: Vec<(Option<&LabelSelector>, Vec<&str>)> = Vec::new();
    let mut labelled: Vec<Place<'_>> = Vec::new();
    for ensemble in &config.ensembles {
        let pods = ensemble.selector.as_ref();
        match &ensemble.within {
            Within::Named(name) => match named.iter_mut().find(|(other, _)| *other == pods) {
                Some((_, all)) => all.push(name),
                None => named.push((pods, vec![name])),
            },
            Within::Labelled(namespaces) => {
                let is_known = |place: &Place<'_>| place.namespaces == *namespaces && place.pods == pods;
                if !labelled.iter().any(is_known) {
                    labelled.push(Place { namespaces: namespaces.clone(), pods });
                }
            }
        }
    }
    let named = named.into_iter().map(|(pods, all)| Place { namespaces: called(all), pods });
    named.chain(labelled).collect()
}

/// The same, whatever pods are chosen there.
fn everywhere(config: &Config) -> Vec<LabelSelector> {
    let mut names: Vec<&str> = Vec::new();
    let mut labelled: Vec<LabelSelector> = Vec::new();
    for ensemble in &config.ensembles {
        match &ensemble.within {
            Within::Named(name) => names.push(name),
            Within::Labelled(namespaces) if !labelled.contains(namespaces) => {
                labelled.push(namespaces.clone());
            }
            Within::Labelled(_) => {}
        }
    }
    let by_name = (!names.is_empty()).then(|| called(names));
    by_name.into_iter().chain(labelled).collect()
}

/// The namespaces with these names.
fn called(mut names: Vec<&str>) -> LabelSelector {
    names.sort_unstable();
    names.dedup();
    LabelSelector::default().and(NAMESPACE_NAME, SelectorOperator::In, &names)
}

/// What both select. The same label with two values is written out, as a map has room for one.
fn both(one: &LabelSelector, other: &LabelSelector) -> LabelSelector {
    let mut both = other.clone();
    both.match_expressions.extend(one.match_expressions.iter().cloned());
    let mut labels: BTreeMap<String, String> = std::mem::take(&mut both.match_labels);
    for (key, value) in &one.match_labels {
        if labels.contains_key(key) {
            both = both.and(key, SelectorOperator::In, &[value]);
        } else {
            labels.insert(key.clone(), value.clone());
        }
    }
    both.match_labels = labels;
    both
}

fn rule(group: &str, resource: &str, operation: &str) -> Rule {
    Rule {
        operations: vec![operation.to_owned()],
        api_groups: vec![group.to_owned()],
        api_versions: vec!["v1".to_owned()],
        resources: vec![resource.to_owned()],
        scope: Scope::Namespaced,
    }
}

fn above(also: Also) -> Vec<Rule> {
    match also {
        Also::Scale => {
            vec![rule("apps", "statefulsets", "UPDATE"), rule("apps", "statefulsets/scale", "UPDATE")]
        }
        Also::StatefulSets => vec![rule("apps", "statefulsets", "DELETE")],
        Also::Claims => vec![rule("", "persistentvolumeclaims", "DELETE")],
        Also::Budgets => vec![rule("policy", "poddisruptionbudgets", "DELETE")],
    }
}

fn condition(name: &str, expression: String) -> MatchCondition {
    MatchCondition { name: name.to_owned(), expression }
}

/// Of changes of a `StatefulSet` only those come that take replicas away, so that the rest is held up by nobody. In a Scale 0 is left
/// out.
fn fewer_replicas() -> MatchCondition {
    let replicas = |object: &str| {
        format!("(has({object}.spec) && has({object}.spec.replicas) ? {object}.spec.replicas : 0)")
    };
    let expression =
        format!("request.operation != \"UPDATE\" || {} < {}", replicas("object"), replicas("oldObject"));
    condition("fewer-replicas", expression)
}

const GOING: &str = "oldObject != null && has(oldObject.metadata.deletionTimestamp)";

fn not_the_nodes_last_word() -> MatchCondition {
    let nodes = "has(request.userInfo.groups) && \"system:nodes\" in request.userInfo.groups";
    condition("not-the-nodes-last-word", format!("!({nodes} && {GOING})"))
}

fn not_terminating() -> MatchCondition {
    let at_once = "has(request.options) && request.options != null && has(request.options.gracePeriodSeconds) && \
                   request.options.gracePeriodSeconds == 0";
    condition("not-terminating", format!("!({GOING}) || ({at_once})"))
}

fn not_the_install_namespace(config: &Config) -> Option<MatchCondition> {
    let name = config.common_config.install_namespace.as_str();
    (!name.is_empty())
        .then(|| condition("not-the-install-namespace", format!("request.namespace != {}", text(name))))
}

/// A CEL string; JSON's escapes are CEL's too.
fn text(value: &str) -> String {
    serde_json::Value::from(value).to_string()
}

#[cfg(test)]
mod tests {
    use admission::FailurePolicy;
    use serde_json::json;

    use super::super::fixture::{LEAST, config};
    use super::*;

    fn all(yaml: &str) -> Vec<WebhookEntry> {
        entries(&config(yaml))
    }

    fn names(entries: &[WebhookEntry]) -> Vec<&str> {
        entries.iter().map(|entry| entry.name.as_str()).collect()
    }

    #[test]
    fn deletions_and_evictions_come_by_two_entries_that_refuse_while_it_is_down() {
        let entries = all(LEAST);
        assert_eq!(names(&entries), ["etcd-pods", "etcd-evictions"]);
        for (entry, operation, resource) in
            [(&entries[0], "DELETE", "pods"), (&entries[1], "CREATE", "pods/eviction")]
        {
            assert_eq!(
                serde_json::to_value(&entry.rules).unwrap(),
                json!([{"operations": [operation], "apiGroups": [""], "apiVersions": ["v1"], "resources": [resource], "scope": "Namespaced"}])
            );
            assert_eq!((entry.failure_policy, entry.timeout_seconds), (FailurePolicy::Fail, 10));
            assert_eq!(entry.side_effects, SideEffects::NoneOnDryRun);
            assert_eq!(
                serde_json::to_value(&entry.namespace_selector).unwrap(),
                json!({"matchExpressions": [{"key": "kubernetes.io/metadata.name", "operator": "In", "values": ["db"]}]})
            );
        }
        assert_eq!(entries[0].object_selector.match_labels, [("app".to_owned(), "etcd".to_owned())].into());
        assert!(entries[1].object_selector.is_empty());
    }

    #[test]
    fn names_share_an_entry_and_each_selector_of_namespaces_has_its_own() {
        let entries = all(
            "ensembles: [{namespace: b, selector: app=etcd}, {namespace: a, selector: app=etcd}, {namespaceSelector: {matchLabels: {t: u}}, selector: x=y}, {namespaceSelector: {matchLabels: {t: u}}, selector: z=y}]",
        );
        assert_eq!(
            names(&entries),
            ["etcd-pods", "etcd-pods-2", "etcd-pods-3", "etcd-evictions", "etcd-evictions-2"]
        );
        assert_eq!(entries[0].namespace_selector.match_expressions[0].values, ["a", "b"]);
        assert_eq!(entries[0].object_selector.match_labels.len(), 1);
        for at in [1, 2, 4] {
            assert_eq!(
                entries[at].namespace_selector.match_labels,
                [("t".to_owned(), "u".to_owned())].into()
            );
        }
        assert_eq!(entries[3].namespace_selector.match_expressions[0].values, ["a", "b"]);
        assert_eq!(entries[1].object_selector.match_labels, [("x".to_owned(), "y".to_owned())].into());
        assert_eq!(entries[2].object_selector.match_labels, [("z".to_owned(), "y".to_owned())].into());
        let recognised = all("recognise: true\nensembles: [{namespace: db}]");
        assert!(recognised[0].object_selector.is_empty());
    }

    #[test]
    fn namespaces_whose_pods_are_chosen_otherwise_keep_their_selectors() {
        let entries = all(
            "ensembles: [{namespace: a, selector: app=etcd}, {namespace: b, selector: app=db}, {namespace: c, selector: app=etcd}]",
        );
        assert_eq!(names(&entries), ["etcd-pods", "etcd-pods-2", "etcd-evictions"]);
        assert_eq!(entries[0].namespace_selector.match_expressions[0].values, ["a", "c"]);
        assert_eq!(entries[1].namespace_selector.match_expressions[0].values, ["b"]);
        assert_eq!(entries[1].object_selector.match_labels, [("app".to_owned(), "db".to_owned())].into());
        assert_eq!(entries[2].namespace_selector.match_expressions[0].values, ["a", "b", "c"]);
    }

    #[test]
    fn what_the_section_selects_beside_is_selected_too() {
        let yaml = "webhook: {namespaceSelector: {matchLabels: {t: v, w: x}}}\nensembles: [{namespaceSelector: {matchLabels: {t: u}}, selector: x=y}]";
        let selector = all(yaml).remove(0).namespace_selector;
        let label = |t: &'static str| {
            move |key: &str| match key {
                "t" => Some(t),
                "w" => Some("x"),
                _ => None,
            }
        };
        assert!(!selector.matches(label("u")) && !selector.matches(label("v")));
        assert_eq!(selector.match_labels.len(), 2);
    }

    #[test]
    fn what_a_node_has_begun_never_comes() {
        let entries = all(LEAST);
        let conditions: Vec<(&str, &str)> =
            entries[0].match_conditions.iter().map(|c| (c.name.as_str(), c.expression.as_str())).collect();
        assert_eq!(
            conditions[1..],
            [
                (
                    "not-the-nodes-last-word",
                    r#"!(has(request.userInfo.groups) && "system:nodes" in request.userInfo.groups && oldObject != null && has(oldObject.metadata.deletionTimestamp))"#
                ),
                (
                    "not-terminating",
                    "!(oldObject != null && has(oldObject.metadata.deletionTimestamp)) || (has(request.options) && request.options != null && has(request.options.gracePeriodSeconds) && request.options.gracePeriodSeconds == 0)"
                ),
                ("not-the-install-namespace", r#"request.namespace != "durward-system""#),
            ]
        );
        assert_eq!(entries[1].match_conditions.len(), 1);
    }

    #[test]
    fn what_is_one_level_up_comes_only_where_it_is_asked_for() {
        let yaml = format!(
            "{LEAST}\nalsoGuard: [scale, statefulsets, persistentvolumeclaims, poddisruptionbudgets]"
        );
        let entries = all(&yaml);
        assert_eq!(names(&entries), ["etcd-pods", "etcd-evictions", "etcd-above"]);
        let conditions = |entry: &WebhookEntry| -> Vec<String> {
            entry.match_conditions.iter().map(|condition| condition.name.clone()).collect()
        };
        assert_eq!(
            conditions(&entries[2]),
            ["no-break-glass", "fewer-replicas", "not-the-install-namespace"]
        );
        assert_eq!(
            entries[2].match_conditions[1].expression,
            "request.operation != \"UPDATE\" || (has(object.spec) && has(object.spec.replicas) ? object.spec.replicas : 0) < (has(oldObject.spec) && has(oldObject.spec.replicas) ? oldObject.spec.replicas : 0)"
        );
        let without = all(&format!("{LEAST}\nalsoGuard: [statefulsets]"));
        assert_eq!(conditions(&without[2]), ["no-break-glass", "not-the-install-namespace"]);
        let resources: Vec<&str> =
            entries[2].rules.iter().flat_map(|rule| &rule.resources).map(String::as_str).collect();
        assert_eq!(
            resources,
            [
                "statefulsets",
                "statefulsets/scale",
                "statefulsets",
                "persistentvolumeclaims",
                "poddisruptionbudgets"
            ]
        );
    }
}
