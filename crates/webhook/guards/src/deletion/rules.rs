//! The webhook entry and the permissions that follow from the configuration.
//!
//! The rules for deletions name resources without subresources. The API server evaluates match conditions by itself, also while
//! Durward is down. They exclude break-glass by callers with the verb, objects that are being deleted, and the install namespace. An
//! expression that fails follows failurePolicy without a call, so the expressions check that a map exists before they read it. On a
//! DELETE `object` is null. Tested on kube-apiserver 1.35.4.

use ::config::Expression;
use k8s_openapi::api::admissionregistration::v1::{MatchCondition, RuleWithOperations};

use super::NAME;
use super::config::{ApiGroups, Config, GUARD_LABEL, GUARD_VALUE, GuardScope};
use super::in_use::Rule;
use super::karmada;
use super::target::{CRD_GROUP, CRD_PLURAL, DeletionKind};
use crate::cel;
use crate::common::{NAMESPACE_NAME, Remark};
use crate::kind::{GuardedNamespaces, GuardedObjects, Permission, Permissions};
use crate::overrides;
use crate::webhook::{WebhookEntry, WebhookType, condition, not_terminating, rule};
use cluster::Resource;
use cluster::fleet::Fleet;

/// Returns the webhook entries.
pub(super) fn webhooks(config: &Config) -> Vec<WebhookEntry> {
    let by_rules = config.in_use.each().map(|(protected, rule)| in_use_webhook(config, protected, rule));
    std::iter::once(webhook(config)).chain(by_rules).collect()
}

/// Returns the webhook entry of an in-use rule, with the objects that the rule selects. A review for one rule judges by all rules.
fn in_use_webhook(config: &Config, protected: &Resource, of: &Rule) -> WebhookEntry {
    let Resource { group, plural, .. } = protected;
    let any = Some(vec!["*".to_owned()]);
    let rules = vec![RuleWithOperations { api_versions: any, ..rule("DELETE", group, plural, "*") }];
    let name = format!("{}.in-use", of.name);
    let mut entry = WebhookEntry::new(WebhookType::Validating, name, rules, &config.common_config);
    entry.failure_policy = of.failure_policy;
    // A request for an object without a namespace lacks the field.
    entry.match_conditions =
        conditions(config, |install| format!("!has(request.namespace) || request.namespace != {install}"));
    entry.match_conditions.push(not_a_cascade());
    entry.object_selector.extend(of.selector.clone());
    if !of.namespaces.is_empty() {
        let names = of.namespaces.iter().cloned().collect();
        entry.namespace_selector.extend(Expression::In(NAMESPACE_NAME.to_owned(), names));
    }
    entry
}

/// Returns the match condition that leaves out deletions by the controllers of Kubernetes: the namespace controller and the garbage
/// collector delete what a reviewed deletion takes along.
fn not_a_cascade() -> MatchCondition {
    let user = "request.userInfo.username";
    let expression = format!(
        "!{user}.startsWith(\"system:serviceaccount:kube-system:\") && {user} != \"system:kube-controller-manager\""
    );
    condition("not-by-controllers-of-kubernetes", expression)
}

/// Returns what each in-use rule covers, and what a rule for Secrets means.
pub(super) fn remarks(config: &Config) -> Vec<Remark> {
    let rules = config.in_use.each().map(|(protected, rule)| Remark::Rule(rule.describe(protected)));
    let secrets = config.kinds().any(|kind| kind.is_secret()).then(|| {
        Remark::Note(
            "reviews of Secrets contain their data: Durward keeps it in memory only during the review"
                .to_owned(),
        )
    });
    rules.chain(secrets).collect()
}

/// Returns the webhook entry: every deletion of a namespace or a CRD.
fn webhook(config: &Config) -> WebhookEntry {
    let rules =
        vec![rule("DELETE", "", "namespaces", "Cluster"), rule("DELETE", CRD_GROUP, CRD_PLURAL, "Cluster")];
    let mut entry = WebhookEntry::new(WebhookType::Validating, "deletion", rules, &config.common_config);
    entry.match_conditions =
        conditions(config, |install| format!("!({})", is_namespace("oldObject", &format!(" == {install}"))));
    match (config.scope, config.is_karmada()) {
        (GuardScope::All, _) => {}
        // The API server selects by the label.
        (GuardScope::Labeled, false) => {
            entry.object_selector.extend(Expression::Equal(GUARD_LABEL.to_owned(), GUARD_VALUE.to_owned()));
            entry.limited_to = Some(labeled());
        }
        // Karmada's own parts have no label and must be reviewed too.
        (GuardScope::Labeled, true) => {
            let is_guarded = format!("oldObject == null || {}", labelled_or_karmada_part("oldObject"));
            entry.match_conditions.push(condition("labelled-or-karmadas-own", is_guarded));
            entry.limited_to = Some(format!("{}, and Karmada's own namespaces and CRDs", labeled()));
        }
    }
    entry
}

/// Returns the conditions of all entries. `is_outside` is an expression for objects outside of a namespace.
fn conditions(config: &Config, is_outside: impl FnOnce(&str) -> String) -> Vec<MatchCondition> {
    let mut conditions = vec![overrides::condition(NAME), not_terminating()];
    let install = config.common_config.namespace.as_str();
    if !config.is_karmada() && !install.is_empty() {
        conditions.push(condition("not-the-install-namespace", is_outside(&cel::string(install))));
    }
    conditions
}

/// Returns a CEL expression that is true if the guard protects an object. It is the same as in `decide`.
pub(super) fn is_guarded(config: &Config, object: &str) -> String {
    let scope = match (config.scope, config.is_karmada()) {
        (GuardScope::All, _) => "true".to_owned(),
        (GuardScope::Labeled, false) => has_guard_label(object),
        (GuardScope::Labeled, true) => labelled_or_karmada_part(object),
    };
    let selector = &config.common_config.namespace_selector;
    if selector.selects_all() {
        return scope;
    }
    let of_namespaces = cel::matches(selector, &labels(object));
    format!("({scope}) && (request.resource.resource != \"namespaces\" || ({of_namespaces}))")
}

/// Returns the labels of an object, which can be absent.
fn labels(object: &str) -> String {
    format!("{object}.metadata.?labels")
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
    let selector = Expression::Equal(GUARD_LABEL.to_owned(), GUARD_VALUE.to_owned()).into();
    cel::matches(&selector, &labels(object))
}

fn labelled_or_karmada_part(object: &str) -> String {
    let names = karmada::NAMESPACES.map(cel::string).join(", ");
    let group = cel::string(&format!(".{}", karmada::GROUP));
    format!(
        "({}) || ({}) || ({}) || {object}.metadata.name.endsWith({group})",
        has_guard_label(object),
        is_namespace(object, &format!(" in [{names}]")),
        is_namespace(object, &format!(".startsWith({})", cel::string(karmada::EXECUTION_PREFIX))),
    )
}

/// Returns the permissions: exactly what the guard reads.
pub(super) fn permissions(config: &Config) -> Permissions {
    let members = in_every_cluster(config);
    let mut own = members.clone();
    own.extend(by_rules(config, true).map(list));
    let protected = config.in_use.each().map(|(protected, _)| protected);
    let read = protected.filter(|resource| !resource.is("", "secrets"));
    own.extend(read.map(|resource| Permission::on(&resource.group, &resource.plural, &["get", "list"])));
    let mut own = without_repetition(own);
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
    let own = config.queries.iter().map(|query| &query.resource);
    permissions.extend(own.chain(by_rules(config, false)).map(list));
    if config.api_groups.cover(ApiGroups::ALL) {
        permissions.push(Permission::on(ApiGroups::ALL, "*", &["list"]));
    } else {
        permissions.extend(config.api_groups.0.iter().map(|group| Permission::on(group, "*", &["list"])));
    }
    without_repetition(permissions)
}

fn list(resource: &Resource) -> Permission {
    Permission::on(&resource.group, &resource.plural, &["list"])
}

/// Returns the resources that in-use rules list in every cluster, or those in the local cluster only.
fn by_rules(config: &Config, is_local: bool) -> impl Iterator<Item = &Resource> {
    let used_by = config.in_use.each().flat_map(|(_, rule)| &rule.used_by);
    used_by.filter(move |by| by.is_local == is_local).map(|by| &by.resource)
}

fn without_repetition<T: PartialEq>(all: impl IntoIterator<Item = T>) -> Vec<T> {
    let mut seen = Vec::new();
    for one in all {
        if !seen.contains(&one) {
            seen.push(one);
        }
    }
    seen
}

/// Returns the objects that the guard protects in the cluster that calls it.
pub(super) fn guarded(config: &Config) -> Vec<GuardedObjects> {
    let objects = |kind: DeletionKind| GuardedObjects {
        resource: kind.resource(),
        namespaces: match kind {
            DeletionKind::Namespace | DeletionKind::Crd => GuardedNamespaces::None,
            DeletionKind::InUse(_) => GuardedNamespaces::All,
        },
        overrides: config.overrides,
    };
    config.kinds().filter(|kind| !kind.is_secret()).map(objects).collect()
}

/// Returns the resources that reviews list in each cluster.
pub(super) fn listed(config: &Config) -> Vec<Resource> {
    // Clusters need not serve the custom resources of rules.
    let by_rules = by_rules(config, false).filter(|of| policy::kinds::is_of_kubernetes(&of.group));
    let listed = config.queries.iter().map(|query| &query.resource).chain(by_rules).cloned();
    let own = [DeletionKind::Namespace, DeletionKind::Crd].map(|kind| kind.resource());
    without_repetition(own.into_iter().chain(listed))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::super::fixture::config;
    use super::*;
    use crate::common::FailurePolicy;
    use crate::match_conditions;

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

    const RULES: &str = "inUse: {library: [storageclasses, secrets], rules: [\
        {name: own, protects: {resource: configmaps, namespaces: [shop]}, usedBy: [{resource: pods, version: v1}]}]}";

    #[test]
    fn each_in_use_rule_has_an_entry() {
        let config = config(RULES);
        let entries = webhooks(&config);
        let shown: Vec<_> =
            entries.iter().skip(1).map(|entry| (entry.name.as_str(), entry.failure_policy)).collect();
        let expected = [
            ("storageclasses.in-use", FailurePolicy::Ignore),
            ("secrets.in-use", FailurePolicy::Ignore),
            ("own.in-use", FailurePolicy::Fail),
        ];
        assert_eq!(shown, expected);
        assert_eq!(entries[2].object_selector.to_string(), "owner notin (helm)");
        assert_eq!(entries[3].namespace_selector.to_string(), "kubernetes.io/metadata.name in (shop)");
    }

    #[test]
    fn cascades_and_the_install_namespace_are_not_reviewed_by_in_use_rules() {
        let config = config(&format!("namespace: guards\n{RULES}"));
        let entries = webhooks(&config);
        let object = json!({"metadata": {"name": "a"}});
        let is_sent = |entry: &WebhookEntry, user: &str, namespace: Option<&str>| {
            let mut request =
                json!({"userInfo": {"username": user, "groups": []}, "operation": "DELETE", "resource": {}});
            request["namespace"] = namespace.into();
            if namespace.is_none() {
                request.as_object_mut().unwrap().remove("namespace");
            }
            match_conditions::send(entry, &request, &json!(null), &object)
        };
        let (classes, maps) = (&entries[1], &entries[3]);
        assert!(is_sent(classes, "ann", None) && is_sent(maps, "ann", Some("shop")));
        assert!(!is_sent(maps, "ann", Some("guards")));
        for user in
            ["system:serviceaccount:kube-system:generic-garbage-collector", "system:kube-controller-manager"]
        {
            assert!(!is_sent(classes, user, None) && !is_sent(maps, user, Some("shop")), "{user}");
        }
    }

    #[test]
    fn in_use_rules_ask_for_what_they_list_and_for_no_secret() {
        let config = config(RULES);
        let Permissions { own, .. } = permissions(&config);
        let own = lines(&own);
        for expected in [
            "storage.k8s.io/storageclasses get,list",
            "/configmaps get,list",
            "/persistentvolumes list",
            "/pods list",
        ] {
            assert!(own.iter().any(|line| line == expected), "{expected}: {own:?}");
        }
        assert!(!own.iter().any(|line| line.contains("/secrets")), "{own:?}");
        assert_eq!(own.iter().filter(|line| *line == "/pods list").count(), 1);
        let guarded: Vec<_> = guarded(&config).iter().map(|one| one.resource.to_string()).collect();
        assert!(
            guarded.contains(&"configmaps".to_owned()) && !guarded.contains(&"secrets".to_owned()),
            "{guarded:?}"
        );
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
            r#"oldObject.metadata.?labels[?"durward.dev/guard"].orValue(" ") in ["deletion"]"#,
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
