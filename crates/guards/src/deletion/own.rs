//! Karmada's own parts. They hold no pod and no object that a look into them would find, and without them the fleet is lost:
//! `kubectl delete namespaces --all` must not reach them while there is any Cluster.
//!
//! Facts: `karmada-es-<cluster>` holds every Work of that member, so deleting it deletes whatever Karmada brought there; when a
//! Cluster goes, Karmada deletes the namespace itself (`pkg/controllers/cluster/cluster_controller.go`). `karmada-cluster` holds
//! the members' credentials. None of these namespaces is propagated to members.

use super::config::Config;
use super::target::{Subject, Target};
use cluster::fleet::FleetMember;

/// Which part of Karmada something is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Own<'t> {
    /// `karmada-system`, `karmada-cluster`, and the definitions of its own groups.
    Core,
    /// The execution space of this cluster.
    Space(&'t str),
}

/// Namespaces by name.
pub(super) const NAMESPACES: [&str; 2] = ["karmada-system", "karmada-cluster"];
/// How execution spaces begin.
pub(super) const SPACE: &str = "karmada-es-";
/// Karmada's group, and how those below it end.
pub(super) const GROUP: &str = "karmada.io";

/// What stands in the way.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Standing {
    /// Nothing: it is like everything else.
    Ordinary,
    /// Nothing, and no member has it: its cluster is gone, or going.
    Local,
    /// The fleet needs it.
    Needed,
}

impl<'t> Own<'t> {
    /// Which part of Karmada the target is, by its name.
    pub(super) fn of(config: &Config, target: &'t Target) -> Option<Self> {
        if !config.is_karmada() {
            return None;
        }
        match target.subject {
            Subject::Namespace if NAMESPACES.contains(&target.name.as_str()) => Some(Self::Core),
            Subject::Namespace => target.name.strip_prefix(SPACE).map(Self::Space),
            Subject::Definition => {
                let group = target.group();
                let below =
                    group.strip_suffix(GROUP).is_some_and(|front| front.is_empty() || front.ends_with('.'));
                below.then_some(Self::Core)
            }
        }
    }

    /// What that means, with these members.
    pub(super) fn standing(self, members: &[FleetMember]) -> Standing {
        match self {
            Self::Core if members.is_empty() => Standing::Ordinary,
            Self::Core => Standing::Needed,
            Self::Space(cluster) => {
                let lives =
                    |member: &FleetMember| member.cluster.name() == cluster && !member.metadata.deleting;
                if members.iter().any(lives) { Standing::Needed } else { Standing::Local }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::fixture::{config, definition, member, namespace};
    use super::*;

    #[test]
    fn karmadas_own_parts_are_known_by_their_names() {
        let karmada = config("fleet: {karmada: {}}");
        for (target, expected) in [
            (namespace("karmada-system"), Some(Own::Core)),
            (namespace("karmada-cluster"), Some(Own::Core)),
            (namespace("karmada-es-m1"), Some(Own::Space("m1"))),
            (namespace("karmada-shop"), None),
            (namespace("karmada-esm1"), None),
            (definition("works.work.karmada.io"), Some(Own::Core)),
            (definition("things.karmada.io"), Some(Own::Core)),
            (definition("things.notkarmada.io"), None),
            (definition("widgets.example.org"), None),
        ] {
            assert_eq!(Own::of(&karmada, &target), expected, "{}", target.name);
            assert_eq!(Own::of(&config("{}"), &target), None, "{}", target.name);
        }
    }

    #[test]
    fn they_are_needed_while_there_are_clusters_and_a_space_while_its_own_lives() {
        let (m1, mut going) = (member("m1", &[], &[]), member("m2", &[], &[]));
        going.metadata.deleting = true;
        let members = [m1, going];
        assert_eq!(Own::Core.standing(&members), Standing::Needed);
        assert_eq!(
            Own::Core.standing(members.get(1..).unwrap()),
            Standing::Needed,
            "one that is going needs it to go"
        );
        assert_eq!(Own::Core.standing(&[]), Standing::Ordinary);
        assert_eq!(Own::Space("m1").standing(&members), Standing::Needed);
        assert_eq!(Own::Space("m2").standing(&members), Standing::Local);
        assert_eq!(Own::Space("m9").standing(&members), Standing::Local);
    }
}
