//! Finds the etcd cluster of a pod: the configuration entry that selects it, and the pods that belong to it.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::config::{Config, EtcdClusterConfig, GroupBy, OwnerKind};
use super::pod::Pod;
use ::config::SelectorExt as _;
use cluster::etcd::{ClientOptions, Endpoint};
use cluster::writer::Lease;

/// The labels of a pod without labels.
pub(super) static NO_LABELS: BTreeMap<String, String> = BTreeMap::new();

/// Returns the entries that may apply to a pod, in their order. The first one that also selects the labels of the namespace is the
/// pod's.
pub(super) fn entries<'c>(
    config: &'c Config,
    namespace: &str,
    labels: &BTreeMap<String, String>,
) -> impl Iterator<Item = &'c EtcdClusterConfig> {
    config
        .clusters
        .iter()
        .filter(move |entry| entry.namespaces.may_match(namespace) && entry.selector.matches(labels))
}

/// The pods of one etcd cluster.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Group {
    namespace: String,
    /// The uid and name of their owner, if one owner makes all of them.
    owner: Option<(String, String)>,
    /// Whether each owner has a cluster of its own.
    is_by_owner: bool,
    /// The kind that can be the owner besides `StatefulSet`.
    kind: Option<OwnerKind>,
    client: Arc<ClientOptions>,
    port: u16,
    /// The selector of the entry, which identifies it within the namespace.
    selector: String,
}

impl Group {
    /// Returns the group of a pod.
    pub(super) fn of(entry: &EtcdClusterConfig, pod: &Pod) -> Self {
        let is_by_owner = entry.group_by == GroupBy::StatefulSet;
        let owner = pod.owner(entry.owner.as_ref()).filter(|_| is_by_owner);
        Self {
            namespace: pod.namespace.clone(),
            owner: owner.map(|owner| (owner.uid.clone(), owner.name.clone())),
            is_by_owner,
            kind: entry.owner.clone(),
            client: entry.client.client(&pod.namespace, owner.map(|owner| owner.name.as_str())),
            port: entry.port,
            selector: entry.selector.to_string(),
        }
    }

    /// Whether a selected pod belongs to this group.
    fn contains(&self, pod: &Pod) -> bool {
        let uid = pod.owner(self.kind.as_ref()).map(|owner| owner.uid.as_str());
        let is_same = !self.is_by_owner || uid == self.owner.as_ref().map(|(uid, _)| uid.as_str());
        pod.namespace == self.namespace && is_same
    }

    /// Returns the pods of this group. Pods that have ended are left out, except the one with this uid.
    pub(super) fn select(&self, entry: &EtcdClusterConfig, mut pods: Vec<Pod>, uid: &str) -> Vec<Pod> {
        pods.retain(|pod| {
            (!pod.has_ended() || pod.uid == uid) && entry.selector.matches(&pod.labels) && self.contains(pod)
        });
        pods
    }

    /// Whether one owner makes all of its pods.
    pub(super) fn has_one_owner(&self) -> bool {
        self.owner.is_some()
    }

    /// Returns its name for users: `db/etcd`, or `db (app=etcd)` without a single owner.
    pub(super) fn name(&self) -> String {
        match &self.owner {
            Some((_, name)) => format!("{}/{name}", self.namespace),
            None => format!("{} ({})", self.namespace, self.selector),
        }
    }

    /// Returns how to reach the member in a pod.
    pub(super) fn peer(&self, pod: &Pod) -> Endpoint {
        Endpoint {
            namespace: pod.namespace.clone(),
            name: pod.name.clone(),
            uid: pod.uid.clone(),
            address: pod.address.clone(),
            port: self.port,
            client: Arc::clone(&self.client),
        }
    }

    /// Returns the Lease of its reservation: `durward-etcd.<namespace>.<owner>`. Without a single owner, and if the name would be too
    /// long, its last part is a hash.
    pub(super) fn lease(&self, install_namespace: &str) -> Lease {
        let name = |last: &str| format!("durward-etcd.{}.{last}", self.namespace);
        let last = self.owner.as_ref().map_or_else(|| hash(&self.selector), |(_, owner)| owner.clone());
        let named = name(&last);
        let name = if named.len() > MAX_NAME { name(&hash(&last)) } else { named };
        Lease { namespace: install_namespace.to_owned(), name }
    }
}

/// The longest name of an object.
const MAX_NAME: usize = 253;

/// Returns a hash that is the same in all versions of Durward (FNV-1a).
fn hash(text: &str) -> String {
    let mix = |hash: u64, byte| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
    format!("{:016x}", text.bytes().fold(0xcbf2_9ce4_8422_2325, mix))
}

#[cfg(test)]
mod tests {
    use super::super::fixture::config;
    use super::super::pod::Controller;
    use super::*;

    fn pod(name: &str, set: Option<&str>) -> Pod {
        let controller = |set: &str| Controller {
            group: "apps".into(),
            kind: "StatefulSet".into(),
            name: set.into(),
            uid: format!("uid-of-{set}"),
        };
        Pod {
            namespace: "db".into(),
            name: name.into(),
            labels: [("app".to_owned(), "etcd".to_owned())].into(),
            controller: set.map(controller),
            ..Pod::default()
        }
    }

    fn is_selected(yaml: &str, pod: &Pod) -> bool {
        entries(&config(yaml), &pod.namespace, &pod.labels).next().is_some()
    }

    #[test]
    fn an_entry_selects_pods_by_namespace_and_labels() {
        let etcd = pod("etcd-0", None);
        assert!(is_selected("clusters: [{namespace: db, selector: app=etcd}]", &etcd));
        assert!(!is_selected("clusters: [{namespace: other, selector: app=etcd}]", &etcd));
        assert!(!is_selected("clusters: [{namespace: db, selector: app=web}]", &etcd));
        let labeled = "clusters: [{namespaceSelector: {matchLabels: {t: u}}, selector: app=etcd}]";
        assert!(is_selected(labeled, &etcd));
        let namespaces = &config(labeled).clusters[0].namespaces;
        assert!(namespaces.matches("db", &[("t".to_owned(), "u".to_owned())].into()));
        assert!(!namespaces.matches("db", &BTreeMap::new()));
    }

    #[test]
    fn each_statefulset_is_a_cluster_unless_pods_are_grouped_by_selector() {
        let (a, b, alone) = (pod("a-0", Some("a")), pod("b-0", Some("b")), pod("c", None));
        let group = |yaml: &str, of: &Pod| Group::of(&config(yaml).clusters[0], of);
        let by_set = "clusters: [{namespace: db, selector: app=etcd}]";
        assert!(group(by_set, &a).contains(&pod("a-1", Some("a"))));
        assert!(!group(by_set, &a).contains(&b) && !group(by_set, &a).contains(&alone));
        assert!(group(by_set, &alone).contains(&alone) && !group(by_set, &alone).contains(&a));
        let together = "clusters: [{namespace: db, selector: app=etcd, groupBy: selector}]";
        assert!(group(together, &a).contains(&b) && group(together, &a).contains(&alone));
        let elsewhere = Pod { namespace: "other".into(), ..pod("a-1", Some("a")) };
        assert!(!group(together, &a).contains(&elsewhere));
    }

    #[test]
    fn each_cluster_has_a_lease_of_its_own() {
        let of = |yaml: &str, pod: &Pod| Group::of(&config(yaml).clusters[0], pod).lease("durward-system");
        let by_set = "clusters: [{namespace: db, selector: app=etcd}]";
        let together = "clusters: [{namespace: db, selector: app=etcd, groupBy: selector}]";
        let named = of(by_set, &pod("etcd-0", Some("etcd")));
        assert_eq!((&*named.namespace, &*named.name), ("durward-system", "durward-etcd.db.etcd"));
        // Written out, because it must be the same in all versions.
        let hashed = "durward-etcd.db.13afd4311b00f345";
        assert_eq!(of(together, &pod("etcd-0", Some("etcd"))).name, hashed);
        assert_eq!(of(by_set, &pod("etcd-0", None)).name, hashed);
        let long = of(by_set, &pod("etcd-0", Some(&"x".repeat(250)))).name;
        assert_eq!(long.len(), "durward-etcd.db.".len() + 16);
    }
}
