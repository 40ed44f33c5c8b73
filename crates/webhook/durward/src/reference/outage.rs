//! The tables of denied requests on the page "Durward is down", from the webhook entries of example configurations.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs;
use std::path::Path;

use guards::{FailurePolicy, WebhookEntry};

use super::{ROOT, bless, configuration, row};
use crate::commands::config_command::scope;

const PAGE: &str = "docs/src/runbooks/durward-down.md";
const START: &str = "<!-- generated: what is denied, by `make reference` -->\n";
const END: &str = "<!-- end of the generated text -->\n";

/// A guard, its configuration in words, and the configuration.
const SAMPLES: [(&str, &str, &str); 7] = [
    ("deletion", "`scope: labeled`", "deletion: {scope: labeled}"),
    ("deletion", "`scope: all`, the default", "deletion: {fleet: {karmada: {}}}"),
    ("deletion", "an in-use rule of your own, here for ConfigMaps", IN_USE),
    ("etcd", "always", "etcd: {clusters: [{namespace: db, selector: app=etcd}]}"),
    (
        "etcd",
        "a selector of namespaces by label",
        "etcd: {clusters: [{namespaceSelector: tier=db, selector: app=etcd}]}",
    ),
    ("lxcfs", "always", "lxcfs: {}"),
    ("resources", "a policy with `failurePolicy: Fail`, here for KubernetesClusters", RESOURCES),
];

const IN_USE: &str = "deletion: {fleet: none, inUse: {rules: [{name: name, protects: {resource: configmaps}, usedBy: [{resource: pods, version: v1}]}]}}";

const RESOURCES: &str = "resources: {policies: [examples/kubernetesclusters/policy.yaml]}";

/// The meaning of a match condition for requests while Durward is down.
enum OutageCondition {
    /// Requests that are not affected.
    Unless(&'static str),
    /// The entry describes it as the objects that it is limited to.
    Objects,
}

/// Returns the meaning of a match condition by its name.
fn condition(name: &str) -> OutageCondition {
    match name {
        "no-break-glass" => OutageCondition::Unless(
            "[objects with the annotation](#delete-one-object-anyway), if the caller has the permission `break-glass`",
        ),
        "not-terminating" => OutageCondition::Unless(
            "objects that are already being deleted; for pods, only if the request doesn't set the grace period to 0",
        ),
        "not-the-kubelets-final-delete" => OutageCondition::Unless("the kubelet's last deletion of a pod"),
        "not-the-namespace-controller" => OutageCondition::Unless(
            "deletions by the namespace controller: [namespaces that are being deleted](#namespaces-that-are-being-deleted)",
        ),
        "not-by-controllers-of-kubernetes" => {
            OutageCondition::Unless("[cascades](../deletion/in-use.md#limits)")
        }
        "not-the-install-namespace" => {
            OutageCondition::Unless("Durward's own namespace, in the cluster where Durward runs")
        }
        "judged-by-policies" => {
            OutageCondition::Unless("requests that the API server gives to no policy, such as access reviews")
        }
        "labelled-or-karmadas-own" => OutageCondition::Objects,
        other => panic!("describe the match condition {other} here"),
    }
}

/// Returns the singular of a resource, also for a subresource.
fn noun(resource: &str) -> &str {
    match resource.split(['/', ',']).next().unwrap() {
        "namespaces" => "namespace",
        "customresourcedefinitions" => "CRD",
        "configmaps" => "ConfigMap",
        "pods" => "pod",
        "kubernetesclusters" => "KubernetesCluster",
        other => panic!("name the resource {other} here"),
    }
}

/// Returns the rows of an entry: the entry's name, when it exists, the denied request, and the objects.
fn rows(entry: &WebhookEntry, with: &str) -> Vec<[String; 4]> {
    let name = format!("`{}`", entry.name);
    if entry.failure_policy == FailurePolicy::Ignore {
        let nothing = "nothing: `failurePolicy` is `Ignore`".to_owned();
        return vec![[name, with.to_owned(), nothing, "pods start without the files".to_owned()]];
    }
    let mut rows = Vec::new();
    for rule in &entry.rules {
        let request = scope::request(rule);
        let every = || format!("**every** {}", noun(request.split(' ').next_back().unwrap()));
        let mut objects = scope::objects(entry).unwrap_or_else(every);
        if let Some(namespaces) = scope::namespaces(entry) {
            let _ = write!(objects, " in {namespaces}");
        }
        rows.push([name.clone(), with.to_owned(), format!("`{request}`"), objects]);
    }
    rows
}

#[test]
fn reference_of_the_requests_that_are_denied_while_durward_is_down() {
    let mut denied: Vec<[String; 4]> = Vec::new();
    let mut unaffected: BTreeMap<&str, Vec<String>> = BTreeMap::new();
    for (guard, with, yaml) in SAMPLES {
        let file = configuration(yaml);
        for entry in file.guard(guard).unwrap().configured.webhooks() {
            for row in rows(&entry, with) {
                if !denied.iter().any(|other| (&other[0], &other[2..]) == (&row[0], &row[2..])) {
                    denied.push(row);
                }
            }
            let name = format!("`{}`", entry.name);
            let conditions =
                entry.match_conditions.iter().filter(|_| entry.failure_policy == FailurePolicy::Fail);
            for one in conditions {
                if let OutageCondition::Unless(text) = condition(&one.name) {
                    let names = unaffected.entry(text).or_default();
                    if !names.contains(&name) {
                        names.push(name.clone());
                    }
                }
            }
        }
    }
    let mut tables = "| webhook | with | denied request | objects |\n|---|---|---|---|\n".to_owned();
    for cells in &denied {
        tables.push_str(&row(&cells.each_ref().map(String::as_str)));
    }
    tables.push_str("\n| not affected | webhooks |\n|---|---|\n");
    for (text, names) in unaffected {
        tables.push_str(&row(&[text, &names.join(", ")]));
    }
    let path = Path::new(ROOT).join(PAGE);
    let page = fs::read_to_string(&path).unwrap();
    let (before, rest) = page.split_once(START).expect("the page has the first marker");
    let (_, after) = rest.split_once(END).expect("the page has the second marker");
    bless(&path, &format!("{before}{START}\n{tables}\n{END}{after}"));
}
