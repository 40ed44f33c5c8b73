//! Recognizes the namespaces and CRDs that Karmada itself needs. They contain nothing that counts as in use, and the fleet is lost
//! without them, so `kubectl delete namespaces --all` must not delete them while the fleet has clusters.
//!
//! `karmada-es-CLUSTER` contains all Works of that member cluster: deleting it deletes everything that Karmada deployed there. When
//! a Cluster is unjoined, Karmada deletes this namespace (`pkg/controllers/cluster/cluster_controller.go`). `karmada-cluster`
//! contains the credentials of the member clusters. Karmada does not propagate these namespaces.

use super::config::Config;
use super::target::{DeletionKind, Target};
use cluster::fleet::FleetMember;

/// A part of Karmada that can be deleted by mistake.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum KarmadaPart<'t> {
    /// `karmada-system`, `karmada-cluster`, or a CRD of one of Karmada's groups.
    Core,
    /// The execution namespace of the named member cluster.
    ExecutionSpace(&'t str),
}

/// The namespaces that Karmada needs, besides execution namespaces.
pub(super) const NAMESPACES: [&str; 2] = ["karmada-system", "karmada-cluster"];
/// The prefix of execution namespaces.
pub(super) const EXECUTION_PREFIX: &str = "karmada-es-";
/// Karmada's API group. Its other groups end with it.
pub(super) const GROUP: &str = "karmada.io";

impl<'t> KarmadaPart<'t> {
    /// Returns the part of Karmada that the target's name names, if Karmada is the fleet.
    pub(super) fn of(config: &Config, target: &'t Target) -> Option<Self> {
        if !config.is_karmada() {
            return None;
        }
        match &target.subject.kind {
            DeletionKind::InUse(_) => None,
            DeletionKind::Namespace if NAMESPACES.contains(&target.subject.name.as_str()) => Some(Self::Core),
            DeletionKind::Namespace => {
                target.subject.name.strip_prefix(EXECUTION_PREFIX).map(Self::ExecutionSpace)
            }
            DeletionKind::Crd => {
                let group = target.subject.group();
                let is_own =
                    group.strip_suffix(GROUP).is_some_and(|front| front.is_empty() || front.ends_with('.'));
                is_own.then_some(Self::Core)
            }
        }
    }

    /// Whether the fleet needs this part: the core while it has clusters, and an execution namespace while its cluster is joined.
    pub(super) fn is_needed(self, members: &[FleetMember]) -> bool {
        match self {
            Self::Core => !members.is_empty(),
            Self::ExecutionSpace(cluster) => {
                members.iter().any(|member| member.cluster.name() == cluster && !member.metadata.deleting)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::fixture::{config, crd, member, namespace};
    use super::*;

    #[test]
    fn recognizes_parts_of_karmada_by_their_names() {
        let karmada = config("fleet: karmada");
        for (target, expected) in [
            (namespace("karmada-system"), Some(KarmadaPart::Core)),
            (namespace("karmada-cluster"), Some(KarmadaPart::Core)),
            (namespace("karmada-es-m1"), Some(KarmadaPart::ExecutionSpace("m1"))),
            (namespace("karmada-shop"), None),
            (namespace("karmada-esm1"), None),
            (crd("works.work.karmada.io"), Some(KarmadaPart::Core)),
            (crd("things.karmada.io"), Some(KarmadaPart::Core)),
            (crd("things.notkarmada.io"), None),
            (crd("widgets.example.org"), None),
        ] {
            assert_eq!(KarmadaPart::of(&karmada, &target), expected, "{}", target.subject.name);
            assert_eq!(KarmadaPart::of(&config("{}"), &target), None, "{}", target.subject.name);
        }
    }

    #[test]
    fn protects_the_core_while_there_are_clusters_and_a_namespace_while_its_cluster_is_joined() {
        let (m1, mut deleting) = (member("m1", &[]), member("m2", &[]));
        deleting.metadata.deleting = true;
        let members = [m1, deleting];
        assert!(KarmadaPart::Core.is_needed(&members));
        let unjoined = members.get(1..).unwrap();
        assert!(KarmadaPart::Core.is_needed(unjoined), "a cluster that is being unjoined needs it");
        assert!(!KarmadaPart::Core.is_needed(&[]));
        for (cluster, expected) in [("m1", true), ("m2", false), ("m9", false)] {
            assert_eq!(KarmadaPart::ExecutionSpace(cluster).is_needed(&members), expected, "{cluster}");
        }
    }
}
