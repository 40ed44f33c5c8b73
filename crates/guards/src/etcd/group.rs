//! Which ensemble a pod is of: which entry of the configuration chooses it, and which pods are in it together.

use std::sync::Arc;

use super::config::{Config, Ensemble, GroupBy, OwnerKind, Within};
use super::pod::{self, Pod};
use ::config::{Selector, SelectorExt as _};
use cluster::etcd::{ClientOptions, Endpoint};
use cluster::writer::Lease;

/// Whether an entry of the configuration may be about a pod.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Chosen {
    /// It is.
    Yes,
    /// If the namespace has the labels that it asks for.
    IfLabelled,
}

/// The first entry that may be about the pod, and whether it is.
pub(super) fn entry<'c>(
    config: &'c Config,
    pod: &Pod,
    json: &str,
) -> impl Iterator<Item = (&'c Ensemble, Chosen)> {
    config.ensembles.iter().filter_map(move |ensemble| {
        let chosen = match &ensemble.within {
            Within::Named(name) if *name == pod.namespace => Chosen::Yes,
            Within::Named(_) => return None,
            Within::Labelled(_) => Chosen::IfLabelled,
        };
        chooses(ensemble, pod, json).then_some((ensemble, chosen))
    })
}

/// Whether the entry's selector chooses the pod, in whatever namespace it is.
pub(super) fn chooses(ensemble: &Ensemble, pod: &Pod, json: &str) -> bool {
    match &ensemble.selector {
        Some(selector) => is_selected(selector, pod),
        None => pod::is_recognised(json),
    }
}

fn is_selected(selector: &Selector, pod: &Pod) -> bool {
    selector.matches(&pod.labels)
}

/// The pods that are one ensemble.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Group {
    namespace: String,
    /// The uid and name of their `StatefulSet`; none where they are all that an entry chooses, or all of them that have none.
    set: Option<(String, String)>,
    /// Whether pods with a `StatefulSet` are others.
    is_by_set: bool,
    /// The kind that may stand in for it.
    kind: Option<OwnerKind>,
    client: Arc<ClientOptions>,
    port: u16,
    /// What tells this entry from others in the same namespace.
    selector: String,
}

impl Group {
    /// The group of a pod.
    pub(super) fn of(ensemble: &Ensemble, pod: &Pod) -> Self {
        let is_by_set = ensemble.group_by == GroupBy::StatefulSet;
        let set = pod.made_by(ensemble.owner.as_ref()).filter(|_| is_by_set);
        // Maps of a selector are sorted, so the same selector is always written the same.
        let selector =
            ensemble.selector.as_ref().map_or_else(|| "recognised".to_owned(), ToString::to_string);
        Self {
            namespace: pod.namespace.clone(),
            set: set.map(|owner| (owner.uid.clone(), owner.name.clone())),
            is_by_set,
            kind: ensemble.owner.clone(),
            client: ensemble.client.client(&pod.namespace, set.map(|owner| owner.name.as_str())),
            port: ensemble.port,
            selector,
        }
    }

    /// Whether a pod that the entry chooses is of this group.
    pub(super) fn holds(&self, pod: &Pod) -> bool {
        let uid = pod.made_by(self.kind.as_ref()).map(|owner| owner.uid.as_str());
        let is_same = !self.is_by_set || uid == self.set.as_ref().map(|(uid, _)| uid.as_str());
        pod.namespace == self.namespace && is_same
    }

    /// Whether one `StatefulSet` makes all of its pods.
    pub(super) fn is_of_one_set(&self) -> bool {
        self.set.is_some()
    }

    /// Whether the certificates of its members are verified.
    pub(super) fn is_verified(&self) -> bool {
        self.client.tls.as_ref().is_some_and(|tls| !tls.insecure)
    }

    /// What people call it: `db/etcd`, or `db (app=etcd)` where no one set makes it.
    pub(super) fn told(&self) -> String {
        match &self.set {
            Some((_, name)) => format!("{}/{name}", self.namespace),
            None => format!("{} ({})", self.namespace, self.selector),
        }
    }

    /// How a pod of it is asked.
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

    /// Where it is noted who leaves.
    pub(super) fn lease(&self, install_namespace: &str) -> Lease {
        Lease { namespace: install_namespace.to_owned(), name: lease_of(&self.namespace) }
    }
}

/// The name of the Lease in which it is noted who leaves a namespace. The same for every replica and every version of Durward, and
/// nothing in it comes from configuration or from owners: while those change, an ensemble has one Lease all the same. Names of
/// namespaces are short enough for it.
pub(super) fn lease_of(namespace: &str) -> String {
    format!("durward-etcd.{namespace}")
}

#[cfg(test)]
mod tests {
    use super::super::fixture::config;
    use super::super::pod::Owner;
    use super::*;

    fn pod(name: &str, set: Option<&str>) -> Pod {
        Pod {
            namespace: "db".into(),
            name: name.into(),
            labels: [("app".to_owned(), "etcd".to_owned())].into(),
            owner: set.map(|set| Owner { name: set.into(), uid: format!("uid-of-{set}") }),
            ..Pod::default()
        }
    }

    fn first(yaml: &str, pod: &Pod) -> Option<Chosen> {
        entry(&config(yaml), pod, "{}").next().map(|(_, chosen)| chosen)
    }

    #[test]
    fn a_pod_is_chosen_by_namespace_and_labels_together() {
        let etcd = pod("etcd-0", None);
        assert_eq!(first("ensembles: [{namespace: db, selector: app=etcd}]", &etcd), Some(Chosen::Yes));
        assert_eq!(first("ensembles: [{namespace: other, selector: app=etcd}]", &etcd), None);
        assert_eq!(first("ensembles: [{namespace: db, selector: app=web}]", &etcd), None);
        let labelled = "ensembles: [{namespaceSelector: {matchLabels: {t: u}}, selector: app=etcd}]";
        assert_eq!(first(labelled, &etcd), Some(Chosen::IfLabelled));
        let recognised = config("recognise: true\nensembles: [{namespace: db}]");
        let json = r#"{"metadata":{},"spec":{"containers":[{"image":"etcd:3"}]}}"#;
        assert!(entry(&recognised, &etcd, json).next().is_some());
        assert!(entry(&recognised, &etcd, "{}").next().is_none());
    }

    #[test]
    fn each_statefulset_is_an_ensemble_unless_the_selector_is_to_be_one() {
        let (a, b, alone) = (pod("a-0", Some("a")), pod("b-0", Some("b")), pod("c", None));
        let group = |yaml: &str, of: &Pod| Group::of(&config(yaml).ensembles[0], of);
        let by_set = "ensembles: [{namespace: db, selector: app=etcd}]";
        assert!(group(by_set, &a).holds(&pod("a-1", Some("a"))));
        assert!(!group(by_set, &a).holds(&b) && !group(by_set, &a).holds(&alone));
        assert!(group(by_set, &alone).holds(&alone) && !group(by_set, &alone).holds(&a));
        let together = "ensembles: [{namespace: db, selector: app=etcd, groupBy: selector}]";
        assert!(group(together, &a).holds(&b) && group(together, &a).holds(&alone));
        let elsewhere = Pod { namespace: "other".into(), ..pod("a-1", Some("a")) };
        assert!(!group(together, &a).holds(&elsewhere));
    }

    #[test]
    fn however_pods_are_grouped_those_of_a_namespace_have_one_lease() {
        let of = |yaml: &str, pod: &Pod| Group::of(&config(yaml).ensembles[0], pod).lease("durward-system");
        let by_set = "ensembles: [{namespace: db, selector: app=etcd}]";
        let together = "ensembles: [{namespace: db, selector: 'app in (etcd)', groupBy: selector}]";
        for yaml in [by_set, together] {
            for set in [Some("etcd"), None] {
                let lease = of(yaml, &pod("etcd-0", set));
                // Written down, as it must never change from one version to the next.
                assert_eq!(
                    (lease.namespace.as_str(), lease.name.as_str()),
                    ("durward-system", "durward-etcd.db")
                );
            }
        }
        let elsewhere = Pod { namespace: "other".into(), ..pod("etcd-0", Some("etcd")) };
        assert_eq!(of(by_set, &elsewhere).name, "durward-etcd.other");
    }
}
