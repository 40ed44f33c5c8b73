//! What Durward's account must be allowed to do: exactly what is read, where it is read, and its own Leases.

use std::collections::BTreeSet;

use super::config::{Book, Config, Ensemble, OwnerKind, Within};
use super::group;
use crate::kind::Permission;

/// What is read of an ensemble.
fn of_ensemble(ensemble: &Ensemble) -> Vec<Permission> {
    let mut permissions =
        vec![Permission::on("", "pods", &["get", "list"]), Permission::on("apps", "statefulsets", &["get"])];
    if let Some(OwnerKind { resource, .. }) = &ensemble.owner {
        permissions.push(Permission::on(&resource.group, &resource.plural, &["get"]));
    }
    let secrets = ensemble.client.secrets();
    if !secrets.is_empty() {
        let names = secrets.into_iter().map(str::to_owned).collect();
        permissions.push(Permission { resource_names: names, ..Permission::on("", "secrets", &["get"]) });
    }
    permissions
}

/// In every namespace: what has none, and ensembles whose namespaces nobody knows beforehand.
pub(super) fn everywhere(config: &Config) -> Vec<Permission> {
    if config.ensembles.is_empty() {
        return Vec::new();
    }
    let is_labelled = |ensemble: &&Ensemble| matches!(ensemble.within, Within::Labelled(_));
    // A review knows its namespace; which ones have the labels, `doctor` and `snapshot` have to find out.
    let of_namespaces: &[&str] =
        if config.ensembles.iter().any(|one| is_labelled(&one)) { &["get", "list"] } else { &["get"] };
    let mut permissions =
        vec![Permission::on("", "namespaces", of_namespaces), Permission::on("", "nodes", &["get"])];
    for permission in config.ensembles.iter().filter(is_labelled).flat_map(of_ensemble) {
        if !permissions.contains(&permission) {
            permissions.push(permission);
        }
    }
    permissions
}

/// Within one namespace: that, and what.
pub(super) fn within(config: &Config) -> Vec<(String, Permission)> {
    let mut permissions = Vec::new();
    if config.reservation == Book::Lease && !config.ensembles.is_empty() {
        let home = || config.common_config.install_namespace.clone();
        permissions.extend(leases(config).into_iter().map(|leases| (home(), leases)));
    }
    for ensemble in &config.ensembles {
        if let Within::Named(namespace) = &ensemble.within {
            for permission in of_ensemble(ensemble) {
                let pair = (namespace.clone(), permission);
                if !permissions.contains(&pair) {
                    permissions.push(pair);
                }
            }
        }
    }
    permissions
}

/// The Leases in which it is noted who leaves. They are made when they are needed, and RBAC cannot name what is not there yet; what is
/// there is named wherever the namespaces are, so that nobody else's Lease can be taken.
fn leases(config: &Config) -> Vec<Permission> {
    let leases = |verbs: &[&str]| Permission::on("coordination.k8s.io", "leases", verbs);
    let called = config.ensembles.iter().map(|ensemble| match &ensemble.within {
        Within::Named(namespace) => Some(group::lease_of(namespace)),
        Within::Labelled(_) => None,
    });
    let Some(names) = called.collect::<Option<BTreeSet<String>>>() else {
        return vec![leases(&["get", "create", "update"])];
    };
    let known = Permission { resource_names: names.into_iter().collect(), ..leases(&["get", "update"]) };
    vec![leases(&["create"]), known]
}

#[cfg(test)]
mod tests {
    use super::super::fixture::config;
    use super::*;

    fn told(p: &Permission) -> String {
        format!(
            "{}/{} {:?} {}",
            p.api_groups.join(","),
            p.resources.join(","),
            p.resource_names,
            p.verbs.join(",")
        )
    }

    #[test]
    fn a_named_namespace_is_read_and_no_other() {
        let yaml = "ensembles: [{namespace: db, selector: a=b, client: {tls: {secret: etcd-client}}}, {namespace: db, selector: c=d}]";
        let config = config(yaml);
        assert_eq!(
            everywhere(&config).iter().map(told).collect::<Vec<_>>(),
            ["/namespaces [] get", "/nodes [] get"]
        );
        let within: Vec<String> =
            within(&config).iter().map(|(namespace, p)| format!("{namespace} {}", told(p))).collect();
        assert_eq!(
            within,
            [
                "durward-system coordination.k8s.io/leases [] create",
                "durward-system coordination.k8s.io/leases [\"durward-etcd.db\"] get,update",
                "db /pods [] get,list",
                "db apps/statefulsets [] get",
                "db /secrets [\"etcd-client\"] get",
            ]
        );
    }

    #[test]
    fn without_ensembles_nothing_is_read() {
        let config = config("ensembles: []");
        assert!(everywhere(&config).is_empty() && within(&config).is_empty());
    }

    #[test]
    fn namespaces_that_are_chosen_by_labels_are_read_everywhere_and_only_the_named_secrets() {
        let yaml = "reservation: local\nensembles: [{namespaceSelector: {matchLabels: {t: u}}, selector: a=b, client: {tls: {secret: s}, auth: {secret: u}}}]";
        let config = config(yaml);
        assert!(within(&config).is_empty());
        assert_eq!(told(&everywhere(&config)[0]), "/namespaces [] get,list");
        assert_eq!(told(&everywhere(&config)[4]), "/secrets [\"s\", \"u\"] get");
        let yaml = "ensembles: [{namespaceSelector: t=u, selector: a=b}, {namespace: db, selector: a=b}]";
        assert_eq!(
            told(&within(&self::config(yaml))[0].1),
            "coordination.k8s.io/leases [] get,create,update"
        );
    }

    #[test]
    fn what_owns_members_may_be_read_where_it_is_named() {
        let yaml = "ensembles: [{namespace: db, selector: a=b, owner: {apiVersion: etcd.example.org/v1, kind: EtcdCluster}}]";
        let within: Vec<String> = within(&config(yaml)).iter().map(|(_, p)| told(p)).collect();
        assert!(within.contains(&"etcd.example.org/etcdclusters [] get".to_owned()), "{within:?}");
    }
}
