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

use k8s_openapi::api::admissionregistration::v1::{MatchCondition, RuleWithOperations};

use super::NAME;
use super::config::{Also, Config, Within};
use crate::overrides;
use crate::webhook::{WebhookEntry, WebhookType, cel_string, condition, rule};
use ::config::{Expression, Selector};

/// The label that every namespace bears with its own name (1.21 and later).
const NAMESPACE_NAME: &str = "kubernetes.io/metadata.name";

/// Namespaces that one selector chooses, and those of their pods that one selector chooses, if there is one.
struct Place<'c> {
    namespaces: Selector,
    pods: Option<&'c Selector>,
}

/// All entries.
pub(super) fn entries(config: &Config) -> Vec<WebhookEntry> {
    let install = not_the_install_namespace(config);
    let mut of_pods = vec![overrides::condition(NAME), not_the_nodes_last_word(), not_terminating()];
    of_pods.extend(install.clone());
    let deletions = numbered(places(config).into_iter()).map(|(number, Place { namespaces, pods })| {
        let name = format!("etcd-pods{number}");
        let rules = vec![rule("DELETE", "", "pods", "Namespaced")];
        entry(config, name, rules, &namespaces, pods, of_pods.clone())
    });
    let evictions = numbered(everywhere(config).into_iter()).map(|(number, namespaces)| {
        let name = format!("etcd-evictions{number}");
        let rules = vec![rule("CREATE", "", "pods/eviction", "Namespaced")];
        entry(config, name, rules, &namespaces, None, install.iter().cloned().collect())
    });
    let rules: Vec<RuleWithOperations> = config.also.iter().flat_map(|also| above(*also)).collect();
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
    rules: Vec<RuleWithOperations>,
    namespaces: &Selector,
    pods: Option<&Selector>,
    conditions: Vec<MatchCondition>,
) -> WebhookEntry {
    let common = &config.common_config;
    WebhookEntry {
        namespace_selector: both(&common.namespace_selector, namespaces),
        object_selector: pods.cloned().unwrap_or_default(),
        match_conditions: conditions,
        has_side_effects: true,
        ..WebhookEntry::new(WebhookType::Validating, name, rules, common)
    }
}

/// Where pods are chosen by the same selector: all named namespaces together, and each selector of namespaces by itself. An entry
/// that recognises its pods has no selector, and then the guard chooses.
fn places(config: &Config) -> Vec<Place<'_>> {
    let mut named: Vec<(Option<&Selector>, Vec<&str>)> = Vec::new();
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
fn everywhere(config: &Config) -> Vec<Selector> {
    let mut names: Vec<&str> = Vec::new();
    let mut labelled: Vec<Selector> = Vec::new();
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
fn called(names: Vec<&str>) -> Selector {
    let names = names.into_iter().map(str::to_owned).collect();
    Expression::In(NAMESPACE_NAME.to_owned(), names).into()
}

/// Returns the selector of objects that both select. A second value for the same label becomes an expression, because a map has
/// one value for a key.
fn both(one: &Selector, other: &Selector) -> Selector {
    let mut both: Vec<Expression> = other.clone().into_iter().collect();
    for expression in one.clone() {
        both.push(match expression {
            Expression::Equal(key, value)
                if both.iter().any(|e| matches!(e, Expression::Equal(other, _) if *other == key)) =>
            {
                Expression::In(key, [value].into())
            }
            other => other,
        });
    }
    both.into_iter().collect()
}

fn above(also: Also) -> Vec<RuleWithOperations> {
    match also {
        Also::Scale => {
            let update = |resource| rule("UPDATE", "apps", resource, "Namespaced");
            vec![update("statefulsets"), update("statefulsets/scale")]
        }
        Also::StatefulSets => vec![rule("DELETE", "apps", "statefulsets", "Namespaced")],
        Also::Claims => vec![rule("DELETE", "", "persistentvolumeclaims", "Namespaced")],
        Also::Budgets => vec![rule("DELETE", "policy", "poddisruptionbudgets", "Namespaced")],
    }
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
        .then(|| condition("not-the-install-namespace", format!("request.namespace != {}", cel_string(name))))
}

#[cfg(test)]
mod tests {
    use crate::webhook::FailurePolicy;
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
            assert!(entry.has_side_effects);
            assert_eq!(entry.namespace_selector.to_string(), "kubernetes.io/metadata.name in (db)");
        }
        assert_eq!(entries[0].object_selector.to_string(), "app=etcd");
        assert!(entries[1].object_selector.selects_all());
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
        assert_eq!(entries[0].namespace_selector.to_string(), "kubernetes.io/metadata.name in (a,b)");
        assert_eq!(entries[0].object_selector.to_string(), "app=etcd");
        for at in [1, 2, 4] {
            assert_eq!(entries[at].namespace_selector.to_string(), "t=u");
        }
        assert_eq!(entries[3].namespace_selector.to_string(), "kubernetes.io/metadata.name in (a,b)");
        assert_eq!(entries[1].object_selector.to_string(), "x=y");
        assert_eq!(entries[2].object_selector.to_string(), "z=y");
        let recognised = all("recognise: true\nensembles: [{namespace: db}]");
        assert!(recognised[0].object_selector.selects_all());
    }

    #[test]
    fn namespaces_whose_pods_are_chosen_otherwise_keep_their_selectors() {
        let entries = all(
            "ensembles: [{namespace: a, selector: app=etcd}, {namespace: b, selector: app=db}, {namespace: c, selector: app=etcd}]",
        );
        assert_eq!(names(&entries), ["etcd-pods", "etcd-pods-2", "etcd-evictions"]);
        assert_eq!(entries[0].namespace_selector.to_string(), "kubernetes.io/metadata.name in (a,c)");
        assert_eq!(entries[1].namespace_selector.to_string(), "kubernetes.io/metadata.name in (b)");
        assert_eq!(entries[1].object_selector.to_string(), "app=db");
        assert_eq!(entries[2].namespace_selector.to_string(), "kubernetes.io/metadata.name in (a,b,c)");
    }

    #[test]
    fn what_the_section_selects_beside_is_selected_too() {
        let yaml = "webhook: {namespaceSelector: {matchLabels: {t: v, w: x}}}\nensembles: [{namespaceSelector: {matchLabels: {t: u}}, selector: x=y}]";
        let selector = all(yaml).remove(0).namespace_selector;
        assert_eq!(selector.to_string(), "t=u,t in (v),w=x");
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
        let resources: Vec<&str> = entries[2]
            .rules
            .iter()
            .flat_map(|rule| rule.resources.iter().flatten())
            .map(String::as_str)
            .collect();
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
