//! The webhook entry and the permissions that follow from the configuration.
//!
//! The rules for deletions name resources without subresources. The API server evaluates match conditions by itself, also while
//! Durward is down. They exclude break-glass by callers with the verb, objects that are being deleted, and the install namespace. An
//! expression that fails follows failurePolicy without a call, so the expressions check that a map exists before they read it. On a
//! DELETE `object` is null. Tested on kube-apiserver 1.35.4.
//!
//! The install namespace has an entry of its own, which fails open. Updates are sent only if they take an object out of the guard by
//! its labels. On an UPDATE, the API server matches a `namespaceSelector` against the new labels of the namespace only. The entry
//! for updates therefore selects all namespaces, and a match condition decides.

use std::collections::BTreeSet;

use ::config::{Expression, Selector};
use k8s_openapi::api::admissionregistration::v1::{MatchCondition, RuleWithOperations};

use super::NAME;
use super::config::{ApiGroups, Config, GUARD_LABEL, GUARD_VALUE, Scope};
use super::karmada;
use super::target::{CRD_GROUP, CRD_PLURAL, DeletionKind};
use crate::kind::{GuardedNamespaces, GuardedObjects, Permission, Permissions};
use crate::webhook::{WebhookEntry, WebhookType, cel_string, condition, not_terminating, rule};
use crate::{install_namespace, overrides};
use cluster::Resource;
use cluster::fleet::Fleet;

/// Returns the webhook entries. On Karmada, Durward's namespace is in another cluster.
pub(super) fn webhooks(config: &Config) -> Vec<WebhookEntry> {
    let install = || install_namespace::entry(NAME, &config.common_config);
    let install = (!config.is_karmada()).then(install).flatten();
    std::iter::once(webhook(config)).chain(label_changes(config)).chain(install).collect()
}

/// Returns the webhook entry: every deletion of a namespace or a CRD.
fn webhook(config: &Config) -> WebhookEntry {
    let rules =
        vec![rule("DELETE", "", "namespaces", "Cluster"), rule("DELETE", CRD_GROUP, CRD_PLURAL, "Cluster")];
    let mut entry = WebhookEntry::new(WebhookType::Validating, "deletion", rules, &config.common_config);
    entry.match_conditions = conditions(config);
    match (config.scope, config.is_karmada()) {
        (Scope::All, _) => {}
        // The API server selects by the label.
        (Scope::Labeled, false) => {
            entry.object_selector.extend(Expression::Equal(GUARD_LABEL.to_owned(), GUARD_VALUE.to_owned()));
            entry.limited_to = Some(labeled());
        }
        // Karmada's own parts have no label and must be reviewed too.
        (Scope::Labeled, true) => {
            let is_guarded = format!("oldObject == null || {}", labelled_or_karmada_part("oldObject"));
            entry.match_conditions.push(condition("labelled-or-karmadas-own", is_guarded));
            entry.limited_to = Some(format!("{}, and Karmada's own namespaces and CRDs", labeled()));
        }
    }
    entry
}

/// Returns the conditions of all entries that fail closed.
fn conditions(config: &Config) -> Vec<MatchCondition> {
    let mut conditions = vec![overrides::condition(NAME), not_terminating()];
    let install = config.common_config.namespace.as_str();
    if !config.is_karmada() && !install.is_empty() {
        let is_install = is_namespace("oldObject", &format!(" == {}", cel_string(install)));
        conditions.push(condition("not-the-install-namespace", format!("!({is_install})")));
    }
    conditions
}

/// Returns the entry for updates of labels, if labels decide which objects are guarded.
fn label_changes(config: &Config) -> Option<WebhookEntry> {
    let rules: Vec<_> = [DeletionKind::Namespace, DeletionKind::Crd]
        .into_iter()
        .filter(|kind| !config.label_keys(*kind).is_empty())
        .map(label_rule)
        .collect();
    if rules.is_empty() {
        return None;
    }
    let leaves = format!("({}) && !({})", is_guarded(config, "oldObject"), is_guarded(config, "object"));
    let mut entry =
        WebhookEntry::new(WebhookType::Validating, "deletion-labels", rules, &config.common_config);
    entry.namespace_selector = Selector::default();
    entry.match_conditions = conditions(config);
    entry.match_conditions.push(condition("leaves-the-guard", leaves));
    Some(entry)
}

/// Returns the rule for all updates of a resource that can change labels.
fn label_rule(kind: DeletionKind) -> RuleWithOperations {
    let Resource { group, plural, .. } = kind.resource();
    let subresources = kind.label_subresources().iter().map(|subresource| format!("{plural}/{subresource}"));
    let resources = std::iter::once(plural.to_string()).chain(subresources).collect();
    RuleWithOperations { resources: Some(resources), ..rule("UPDATE", &group, &plural, "Cluster") }
}

/// Returns a CEL expression that is true if the guard protects an object. It is the same as in `decide`.
fn is_guarded(config: &Config, object: &str) -> String {
    let scope = match (config.scope, config.is_karmada()) {
        (Scope::All, _) => "true".to_owned(),
        (Scope::Labeled, false) => has_guard_label(object),
        (Scope::Labeled, true) => labelled_or_karmada_part(object),
    };
    let selector = &config.common_config.namespace_selector;
    if selector.selects_all() {
        return scope;
    }
    let of_namespaces = matches(selector, object);
    format!("({scope}) && (request.resource.resource != \"namespaces\" || ({of_namespaces}))")
}

/// Returns a CEL expression that is true if a selector matches the labels of an object.
fn matches(selector: &Selector, object: &str) -> String {
    let has = |key: &str| has_label(object, key);
    let is_in = |key: &str, values: BTreeSet<String>| {
        let values: Vec<String> = values.iter().map(|value| cel_string(value)).collect();
        format!("{} && {} in [{}]", has(key), label(object, key), values.join(", "))
    };
    let one = |expression| match expression {
        Expression::In(key, values) => is_in(&key, values),
        Expression::NotIn(key, values) => format!("!({})", is_in(&key, values)),
        Expression::Equal(key, value) => is_in(&key, [value].into()),
        Expression::NotEqual(key, value) => format!("!({})", is_in(&key, [value].into())),
        Expression::Exists(key) => has(&key),
        Expression::DoesNotExist(key) => format!("!({})", has(&key)),
    };
    selector.clone().into_iter().map(one).collect::<Vec<_>>().join(" && ")
}

fn has_label(object: &str, key: &str) -> String {
    format!("has({object}.metadata.labels) && {} in {object}.metadata.labels", cel_string(key))
}

/// Returns the value of a label that the object has.
fn label(object: &str, key: &str) -> String {
    format!("{object}.metadata.labels[{}]", cel_string(key))
}

fn labeled() -> String {
    format!("objects labeled {GUARD_LABEL}={GUARD_VALUE}")
}

fn is_namespace(object: &str, name_matches: &str) -> String {
    format!(
        "request.resource.resource == \"namespaces\" && {object} != null && {object}.metadata.name{name_matches}"
    )
}

fn has_guard_label(object: &str) -> String {
    let value = cel_string(GUARD_VALUE);
    format!("{} && {} == {value}", has_label(object, GUARD_LABEL), label(object, GUARD_LABEL))
}

fn labelled_or_karmada_part(object: &str) -> String {
    let names = karmada::NAMESPACES.map(cel_string).join(", ");
    let group = cel_string(&format!(".{}", karmada::GROUP));
    format!(
        "({}) || ({}) || ({}) || {object}.metadata.name.endsWith({group})",
        has_guard_label(object),
        is_namespace(object, &format!(" in [{names}]")),
        is_namespace(object, &format!(".startsWith({})", cel_string(karmada::EXECUTION_PREFIX))),
    )
}

/// Returns the permissions: exactly what the guard reads.
pub(super) fn permissions(config: &Config) -> Permissions {
    let members = in_every_cluster(config);
    let mut own = members.clone();
    if config.is_karmada() {
        own.push(Permission::on("cluster.karmada.io", "clusters", &["get", "list", "watch"]));
        // A GET with a name is `get`, also if the path behind the proxy is a List.
        own.push(Permission::on("cluster.karmada.io", "clusters/proxy", &["get"]));
    }
    let namespaced = match &config.fleet {
        Fleet::Secrets { namespace } => {
            vec![(namespace.clone(), Permission::on("", "secrets", &["get", "list", "watch"]))]
        }
        Fleet::None | Fleet::Karmada | Fleet::Contexts(_) => Vec::new(),
    };
    Permissions { own, members, namespaced }
}

/// Returns the permissions in each cluster. Probes list one object of each resource, so `list` is there besides `get`.
fn in_every_cluster(config: &Config) -> Vec<Permission> {
    let mut permissions = vec![
        Permission::on("", "namespaces", &["get", "list"]),
        Permission::on(CRD_GROUP, CRD_PLURAL, &["get", "list"]),
    ];
    let listed = config.queries.iter().map(|query| &query.resource);
    permissions.extend(listed.map(|resource| Permission::on(&resource.group, &resource.plural, &["list"])));
    if config.api_groups.cover(ApiGroups::ALL) {
        permissions.push(Permission::on(ApiGroups::ALL, "*", &["list"]));
    } else {
        permissions.extend(config.api_groups.0.iter().map(|group| Permission::on(group, "*", &["list"])));
    }
    permissions
}

/// Returns the objects that the guard protects in the cluster that calls it.
pub(super) fn guarded(config: &Config) -> Vec<GuardedObjects> {
    let objects = |kind: DeletionKind| GuardedObjects {
        resource: kind.resource(),
        namespaces: GuardedNamespaces::None,
        break_glass: config.break_glass,
    };
    [DeletionKind::Namespace, DeletionKind::Crd].map(objects).to_vec()
}

/// Returns the resources that probes read in each cluster.
pub(super) fn probed(config: &Config) -> Vec<Resource> {
    let listed = config.queries.iter().map(|query| query.resource.clone());
    [DeletionKind::Namespace, DeletionKind::Crd]
        .map(DeletionKind::resource)
        .into_iter()
        .chain(listed)
        .collect()
}

#[cfg(test)]
mod match_conditions;

#[cfg(test)]
mod tests {
    use crate::common::FailurePolicy;
    use serde_json::json;

    use super::super::fixture::config;
    use super::*;

    fn entry(yaml: &str) -> WebhookEntry {
        webhook(&config(yaml))
    }

    fn names(entry: &WebhookEntry) -> Vec<&str> {
        entry.match_conditions.iter().map(|c| c.name.as_str()).collect()
    }

    #[test]
    fn registers_deletions_of_namespaces_and_crds_and_fails_closed() {
        let entry = entry("{}");
        assert_eq!(
            serde_json::to_value(&entry.rules).unwrap(),
            json!([
                {"operations": ["DELETE"], "apiGroups": [""], "apiVersions": ["v1"], "resources": ["namespaces"], "scope": "Cluster"},
                {"operations": ["DELETE"], "apiGroups": ["apiextensions.k8s.io"], "apiVersions": ["v1"],
                 "resources": ["customresourcedefinitions"], "scope": "Cluster"},
            ])
        );
        assert_eq!((entry.webhook_type, entry.has_side_effects), (WebhookType::Validating, false));
        assert_eq!((entry.failure_policy, entry.timeout_seconds), (FailurePolicy::Fail, 10));
    }

    #[test]
    fn excludes_the_install_namespace_except_on_karmada() {
        let plain = entry("namespace: guards\n");
        assert_eq!(names(&plain), ["no-break-glass", "not-terminating", "not-the-install-namespace"]);
        assert_eq!(
            plain.match_conditions[2].expression,
            r#"!(request.resource.resource == "namespaces" && oldObject != null && oldObject.metadata.name == "guards")"#
        );
        assert_eq!(names(&entry("fleet: karmada")), ["no-break-glass", "not-terminating"]);
    }

    #[test]
    fn the_install_namespace_has_an_entry_except_on_karmada() {
        let all =
            |yaml: &str| webhooks(&config(yaml)).into_iter().map(|entry| entry.name).collect::<Vec<String>>();
        assert_eq!(all("namespace: guards\n{}"), ["deletion", "install-namespace"]);
        for without in ["namespace: \"\"\nscope: all", "fleet: karmada", "mode: audit\nscope: all"] {
            assert_eq!(all(without), ["deletion"], "{without}");
        }
    }

    #[test]
    fn updates_are_sent_only_if_labels_take_the_object_out_of_the_guard() {
        for without in [
            "scope: all",
            "fleet: karmada",
            "fleet: karmada\nwebhook: {namespaceSelector: {matchExpressions: [{key: kubernetes.io/metadata.name, operator: NotIn, values: [a]}]}}",
        ] {
            assert_eq!(label_changes(&config(without)), None, "{without}");
        }
        let of = |yaml: &str| {
            let entry = label_changes(&config(yaml)).unwrap();
            assert!(entry.namespace_selector.selects_all() && entry.object_selector.selects_all());
            assert_eq!(entry.failure_policy, FailurePolicy::Fail);
            let resources = entry.rules.iter().map(|rule| rule.resources.clone().unwrap().join(" "));
            let condition = entry.match_conditions.last().unwrap().clone();
            assert_eq!(condition.name, "leaves-the-guard");
            (resources.collect::<Vec<_>>(), names(&entry).join(" "), condition.expression)
        };
        let label = |object: &str| {
            format!(
                r#"has({object}.metadata.labels) && "durward.dev/guard" in {object}.metadata.labels && {object}.metadata.labels["durward.dev/guard"] == "deletion""#
            )
        };
        let (resources, names, leaves) = of("scope: labeled");
        assert_eq!(
            resources,
            [
                "namespaces namespaces/status namespaces/finalize",
                "customresourcedefinitions customresourcedefinitions/status"
            ]
        );
        assert_eq!(names, "no-break-glass not-terminating not-the-install-namespace leaves-the-guard");
        assert_eq!(leaves, format!("({}) && !({})", label("oldObject"), label("object")));
        // CRDs are not in a namespace, so only a label of scope takes them out.
        let (resources, _, leaves) =
            of("fleet: karmada\nwebhook: {namespaceSelector: {matchLabels: {tier: prod}}}");
        assert_eq!(resources, ["namespaces namespaces/status namespaces/finalize"]);
        let selected = |object: &str| {
            format!(
                r#"(true) && (request.resource.resource != "namespaces" || (has({object}.metadata.labels) && "tier" in {object}.metadata.labels && {object}.metadata.labels["tier"] in ["prod"]))"#
            )
        };
        assert_eq!(leaves, format!("({}) && !({})", selected("oldObject"), selected("object")));
        let (_, _, leaves) = of("fleet: karmada\nscope: labeled");
        assert!(leaves.contains(r#"request.resource.resource == "namespaces" && object != null && object.metadata.name.startsWith("karmada-es-")"#), "{leaves}");
    }

    #[test]
    fn selects_labelled_objects_and_parts_of_karmada_if_configured() {
        let labels = |yaml: &str| entry(yaml).object_selector.to_string();
        assert_eq!(labels("scope: labeled"), "durward.dev/guard=deletion");
        assert!(labels("{}").is_empty());
        assert!(labels("fleet: {contexts: [a]}").is_empty());
        let karmada = entry("fleet: karmada\nscope: labeled");
        assert!(karmada.object_selector.selects_all());
        assert_eq!(names(&karmada).last(), Some(&"labelled-or-karmadas-own"));
        let expression = &karmada.match_conditions[2].expression;
        for part in [
            r#"oldObject.metadata.labels["durward.dev/guard"] == "deletion""#,
            r#"oldObject.metadata.name in ["karmada-system", "karmada-cluster"]"#,
            r#"oldObject.metadata.name.startsWith("karmada-es-")"#,
            r#"oldObject.metadata.name.endsWith(".karmada.io")"#,
        ] {
            assert!(expression.contains(part), "{expression}");
        }
    }

    fn lines(permissions: &[Permission]) -> Vec<String> {
        let line = |p: &Permission| {
            format!("{}/{} {}", p.api_groups.join(","), p.resources.join(","), p.verbs.join(","))
        };
        permissions.iter().map(line).collect()
    }

    #[test]
    fn asks_for_exactly_what_it_reads_in_members() {
        let config = config("fleet: karmada\ncrds: {apiGroups: [example.org]}");
        assert_eq!(
            lines(&permissions(&config).members),
            [
                "/namespaces get,list",
                "apiextensions.k8s.io/customresourcedefinitions get,list",
                "/pods list",
                "/persistentvolumeclaims list",
                "apps/deployments list",
                "apps/statefulsets list",
                "apps/daemonsets list",
                "batch/jobs list",
                "batch/cronjobs list",
                "apps/replicasets list",
                "/replicationcontrollers list",
                "/services list",
                "example.org/* list",
            ]
        );
    }

    #[test]
    fn asks_on_karmada_for_the_proxy() {
        let own = |yaml: &str| lines(&permissions(&config(yaml)).own);
        let karmada = own("fleet: karmada");
        assert!(karmada.ends_with(&[
            "cluster.karmada.io/clusters get,list,watch".to_owned(),
            "cluster.karmada.io/clusters/proxy get".to_owned(),
        ]));
        assert!(!own("{}").iter().any(|line| line.contains("karmada")));
    }

    #[test]
    fn asks_for_secrets_only_for_all_groups_or_a_fleet_of_secrets() {
        for yaml in [
            "{}",
            "fleet: karmada\ncrds: {apiGroups: [example.org]}",
            "fleet: {contexts: [a]}",
            "namespaces: {extraResources: [{version: v1, resource: endpoints}]}",
        ] {
            let Permissions { own, members, namespaced } = permissions(&config(yaml));
            let all = [own, members].concat();
            let reads_secrets = |p: &Permission| {
                let group = p.api_groups.iter().any(|group| group.is_empty() || group == "*");
                group && p.resources.iter().any(|resource| resource == "secrets" || resource == "*")
            };
            assert!(!all.iter().any(reads_secrets), "{yaml}");
            assert!(namespaced.is_empty());
        }
        let secrets = config("namespace: guards\nfleet: {secrets: {}}");
        let [(namespace, permission)] = permissions(&secrets).namespaced.try_into().unwrap();
        assert_eq!((namespace.as_str(), permission.resources), ("guards", vec!["secrets".to_owned()]));
    }
}
