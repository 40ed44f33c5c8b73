//! What Durward's account must be allowed to do, here and in the members: exactly what is read.

use super::config::{Config, Groups, Unmanaged};
use super::target::{DEFINITIONS, DEFINITIONS_GROUP, Subject};
use crate::kind::Permission;
use cluster::Resource;
use cluster::fleet::Fleet;

/// In every cluster, the one that asks among them. `list` beside `get` is for the rounds, which ask for one of each.
pub(super) fn everywhere(config: &Config) -> Vec<Permission> {
    let mut permissions = vec![
        Permission::on("", "namespaces", &["get", "list"]),
        Permission::on(DEFINITIONS_GROUP, DEFINITIONS, &["get", "list"]),
    ];
    for question in &config.questions {
        permissions.push(Permission::on(&question.resource.group, &question.resource.plural, &["list"]));
    }
    if config.groups.cover(Groups::ALL) {
        permissions.push(Permission::on(Groups::ALL, "*", &["list"]));
    } else {
        permissions.extend(config.groups.0.iter().map(|group| Permission::on(group, "*", &["list"])));
    }
    permissions
}

/// Only where the reviews come from.
pub(super) fn here(config: &Config) -> Vec<Permission> {
    let mut permissions = everywhere(config);
    if config.is_karmada() {
        permissions.push(Permission::on("cluster.karmada.io", "clusters", &["get", "list", "watch"]));
        // Any GET with a name is `get`, also when the path behind the proxy is a List.
        permissions.push(Permission::on("cluster.karmada.io", "clusters/proxy", &["get"]));
        if config.unmanaged == Unmanaged::Ignore {
            permissions.push(Permission::on("work.karmada.io", "clusterresourcebindings", &["get"]));
        }
    }
    permissions
}

/// Within one namespace: that, and what.
pub(super) fn within(config: &Config) -> Vec<(String, Permission)> {
    match &config.fleet {
        Fleet::Secrets { namespace } => {
            vec![(namespace.clone(), Permission::on("", "secrets", &["get", "list", "watch"]))]
        }
        Fleet::None | Fleet::Karmada | Fleet::Contexts(_) => Vec::new(),
    }
}

/// What the rounds try at each cluster.
pub(super) fn resources(config: &Config) -> Vec<Resource> {
    let asked = config.questions.iter().map(|question| question.resource.clone());
    [Subject::Namespace, Subject::Definition].map(Subject::resource).into_iter().chain(asked).collect()
}

#[cfg(test)]
mod tests {
    use super::super::fixture::config;
    use super::*;

    fn told(permissions: &[Permission]) -> Vec<String> {
        let line = |p: &Permission| {
            format!("{}/{} {}", p.api_groups.join(","), p.resources.join(","), p.verbs.join(","))
        };
        permissions.iter().map(line).collect()
    }

    #[test]
    fn members_are_read_and_nothing_more() {
        let config = config("fleet: {karmada: {}}\ncrds: {groups: [example.org]}");
        assert_eq!(
            told(&everywhere(&config)),
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
                "/services list",
                "example.org/* list",
            ]
        );
    }

    #[test]
    fn on_karmada_the_proxy_is_asked_by_get_and_bindings_only_where_they_matter() {
        let here_on = |yaml: &str| told(&here(&config(yaml)));
        let karmada = here_on("fleet: {karmada: {}}");
        assert!(karmada.ends_with(&[
            "cluster.karmada.io/clusters get,list,watch".to_owned(),
            "cluster.karmada.io/clusters/proxy get".to_owned(),
        ]));
        assert!(!here_on("{}").iter().any(|line| line.contains("karmada")));
        let ignoring = here_on("fleet: {karmada: {}}\nunmanaged: ignore");
        assert!(ignoring.contains(&"work.karmada.io/clusterresourcebindings get".to_owned()));
        assert!(ignoring.contains(&"apps/replicasets list".to_owned()));
    }

    #[test]
    fn no_secret_can_be_read_anywhere_unless_every_group_is_named_or_the_fleet_is_of_secrets() {
        for yaml in [
            "{}",
            "fleet: {karmada: {}}\nunmanaged: ignore\ncrds: {groups: [example.org]}",
            "fleet: {contexts: [a]}",
            "namespaces: {more: [{version: v1, resource: replicationcontrollers}]}",
        ] {
            let config = config(yaml);
            let all = [everywhere(&config), here(&config)].concat();
            let reads_secrets = |p: &Permission| {
                let group = p.api_groups.iter().any(|group| group.is_empty() || group == "*");
                group && p.resources.iter().any(|resource| resource == "secrets" || resource == "*")
            };
            assert!(!all.iter().any(reads_secrets), "{yaml}");
            assert!(within(&config).is_empty());
        }
        let secrets = config("fleet: {secrets: {}}\ninstallNamespace: guards");
        let [(namespace, permission)] = within(&secrets).try_into().unwrap();
        assert_eq!((namespace.as_str(), permission.resources), ("guards", vec!["secrets".to_owned()]));
    }
}
