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

/// Whether the fleet needs a part of Karmada.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Protection {
    /// The fleet does not need it; it is checked like any other object.
    None,
    /// The fleet does not need it, and no member cluster has it: its cluster is deleted or being deleted.
    LocalOnly,
    /// The fleet needs it.
    Required,
}

impl<'t> KarmadaPart<'t> {
    /// Returns the part of Karmada that the target's name names, if Karmada is the fleet.
    pub(super) fn of(config: &Config, target: &'t Target) -> Option<Self> {
        if !config.is_karmada() {
            return None;
        }
        match target.kind {
            DeletionKind::Namespace if NAMESPACES.contains(&target.name.as_str()) => Some(Self::Core),
            DeletionKind::Namespace => target.name.strip_prefix(EXECUTION_PREFIX).map(Self::ExecutionSpace),
            DeletionKind::Crd => {
                let group = target.group();
                let is_own =
                    group.strip_suffix(GROUP).is_some_and(|front| front.is_empty() || front.ends_with('.'));
                is_own.then_some(Self::Core)
            }
        }
    }

    /// Returns whether the fleet needs this part.
    pub(super) fn protection(self, members: &[FleetMember]) -> Protection {
        match self {
            Self::Core if members.is_empty() => Protection::None,
            Self::Core => Protection::Required,
            Self::ExecutionSpace(cluster) => {
                let is_joined =
                    |member: &FleetMember| member.cluster.name() == cluster && !member.metadata.deleting;
                if members.iter().any(is_joined) { Protection::Required } else { Protection::LocalOnly }
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
            assert_eq!(KarmadaPart::of(&karmada, &target), expected, "{}", target.name);
            assert_eq!(KarmadaPart::of(&config("{}"), &target), None, "{}", target.name);
        }
    }

    #[test]
    fn protects_the_core_while_there_are_clusters_and_a_namespace_while_its_cluster_is_joined() {
        let (m1, mut deleting) = (member("m1", &[]), member("m2", &[]));
        deleting.metadata.deleting = true;
        let members = [m1, deleting];
        assert_eq!(KarmadaPart::Core.protection(&members), Protection::Required);
        assert_eq!(
            KarmadaPart::Core.protection(members.get(1..).unwrap()),
            Protection::Required,
            "a cluster that is being unjoined needs it"
        );
        assert_eq!(KarmadaPart::Core.protection(&[]), Protection::None);
        assert_eq!(KarmadaPart::ExecutionSpace("m1").protection(&members), Protection::Required);
        assert_eq!(KarmadaPart::ExecutionSpace("m2").protection(&members), Protection::LocalOnly);
        assert_eq!(KarmadaPart::ExecutionSpace("m9").protection(&members), Protection::LocalOnly);
    }
}
