//! What Durward's account must be allowed to do: exactly what is read, where it is read, and its own Leases.

use super::config::{Book, Config, Within};
use crate::kind::Permission;

/// What is read of an ensemble.
fn of_ensemble(secrets: &[&str]) -> Vec<Permission> {
    let mut permissions =
        vec![Permission::on("", "pods", &["get", "list"]), Permission::on("apps", "statefulsets", &["get"])];
    if !secrets.is_empty() {
        let names = secrets.iter().map(|&name| name.to_owned()).collect();
        permissions.push(Permission { resource_names: names, ..Permission::on("", "secrets", &["get"]) });
    }
    permissions
}

/// In every namespace: what has none, and ensembles whose namespaces nobody knows beforehand.
pub(super) fn everywhere(config: &Config) -> Vec<Permission> {
    if config.ensembles.is_empty() {
        return Vec::new();
    }
    let mut permissions =
        vec![Permission::on("", "namespaces", &["get"]), Permission::on("", "nodes", &["get"])];
    for ensemble in &config.ensembles {
        if matches!(ensemble.within, Within::Labelled(_)) {
            for permission in of_ensemble(&ensemble.client.secrets()) {
                if !permissions.contains(&permission) {
                    permissions.push(permission);
                }
            }
        }
    }
    permissions
}

/// Within one namespace: that, and what.
pub(super) fn within(config: &Config) -> Vec<(String, Permission)> {
    let mut permissions = Vec::new();
    if config.reservation == Book::Lease && !config.ensembles.is_empty() {
        // Leases are made when they are needed, and RBAC cannot name what is not there yet.
        let leases = Permission::on("coordination.k8s.io", "leases", &["get", "create", "update"]);
        permissions.push((config.terms.install_namespace.clone(), leases));
    }
    for ensemble in &config.ensembles {
        if let Within::Named(namespace) = &ensemble.within {
            for permission in of_ensemble(&ensemble.client.secrets()) {
                let pair = (namespace.clone(), permission);
                if !permissions.contains(&pair) {
                    permissions.push(pair);
                }
            }
        }
    }
    permissions
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
                "durward-system coordination.k8s.io/leases [] get,create,update",
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
        assert_eq!(told(&everywhere(&config)[4]), "/secrets [\"s\", \"u\"] get");
    }
}
