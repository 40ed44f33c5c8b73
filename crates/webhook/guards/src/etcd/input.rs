//! The input of the decision about a member, and what a review has done so far.

use admission::Cause;

use super::config::{Config, EtcdClusterConfig, LeaderPolicy, OnPodDelete};
use super::facts::Facts;
use super::kube_state::KubeState;
use super::pod::Pod;
use super::removal::Removal;
use super::table::{MemberState, Row, Table};
use crate::overrides::Override;
use cluster::etcd::Id;
use cluster::writer::Reservation;

/// A change that is needed before a member can be deleted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Effect {
    /// Reserve the deletion of the pod, or renew the reservation.
    Reserve,
    MoveLeader {
        to: Id,
        /// The name of the successor for users.
        name: String,
    },
}

/// The result of one read of Kubernetes and the members.
pub(super) struct Round {
    pub(super) state: KubeState,
    /// The override annotations of the namespace.
    pub(super) namespace_override: Override,
    pub(super) facts: Facts,
    pub(super) table: Table,
}

impl Round {
    pub(super) fn new(state: KubeState, namespace_override: Override, facts: Facts) -> Self {
        let table = Table::of(&facts);
        Self { state, namespace_override, facts, table }
    }

    /// Returns the input of a decision about a pod.
    pub(super) fn input<'i>(
        &'i self,
        config: &'i Config,
        entry: &'i EtcdClusterConfig,
        removal: &'i Removal,
        pod: &'i Pod,
        progress: &'i Progress,
    ) -> Input<'i> {
        Input { config, entry, removal, pod, facts: &self.facts, table: &self.table, progress }
    }
}

/// The effects of this review so far.
#[derive(Debug, Clone, Default)]
pub(super) struct Progress {
    /// Whether the writer changes nothing, so that no read shows these effects.
    pub(super) is_dry_run: bool,
    pub(super) reservation: Option<Reservation>,
    pub(super) reservation_error: Option<Cause>,
    /// The members that cannot take over leadership.
    pub(super) unable_to_lead: Vec<Id>,
    /// Whether etcd does not support leadership transfers.
    pub(super) cannot_move_leader: bool,
    pub(super) moved_to: Option<String>,
    /// Why transfers failed, or have an unknown outcome.
    pub(super) transfer_errors: Vec<Cause>,
}

impl Progress {
    /// Returns why leadership cannot be transferred, after two attempts.
    pub(super) fn failed_transfer(&self) -> Option<Cause> {
        self.transfer_errors.first().filter(|_| self.transfer_errors.len() > 1).cloned()
    }
}

/// The input of the last step.
#[derive(Clone, Copy)]
pub(super) struct Input<'i> {
    pub(super) config: &'i Config,
    pub(super) entry: &'i EtcdClusterConfig,
    pub(super) removal: &'i Removal,
    pub(super) pod: &'i Pod,
    pub(super) facts: &'i Facts,
    pub(super) table: &'i Table,
    pub(super) progress: &'i Progress,
}

impl Input<'_> {
    /// Returns the reservation in the Lease, of any pod.
    pub(super) fn reservation(&self) -> Option<&Reservation> {
        let assumed = self.progress.reservation.as_ref().filter(|_| self.progress.is_dry_run);
        assumed.or(self.facts.reservation.as_ref())
    }

    /// Returns why the deletion cannot be reserved.
    pub(super) fn reservation_error(&self) -> Option<&Cause> {
        self.facts.reservation_error.as_ref().or(self.progress.reservation_error.as_ref())
    }

    /// Whether the leader is denied. Controllers are not, because a rolling update would never finish.
    pub(super) fn denies_leader(&self) -> bool {
        self.entry.on_leader_delete == LeaderPolicy::Deny && !self.removal.by_controller
    }

    /// Whether deleting the pod removes the member from the list. Without a grace period, no hook runs and no operator has time for it.
    pub(super) fn removes_member(&self) -> bool {
        self.entry.member_on_pod_delete == OnPodDelete::Remove && self.grace() > 0
    }

    /// Returns the grace period of the deletion in seconds.
    pub(super) fn grace(&self) -> i64 {
        self.removal.grace.unwrap_or(self.pod.grace)
    }

    /// Returns the quorum without the pod. An unhealthy member may stay in the list.
    pub(super) fn quorum(&self, me: &Row, voters: usize) -> Quorum {
        Quorum::of(voters, self.removes_member() && me.state == MemberState::Healthy)
    }
}

/// The quorum after a deletion.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Quorum {
    /// The number of voters then.
    pub(super) voters: usize,
    /// How many of them are a quorum.
    pub(super) needed: usize,
    /// Whether the member leaves the list.
    pub(super) removes_member: bool,
}

impl Quorum {
    pub(super) fn of(voters: usize, removes_member: bool) -> Self {
        let voters = if removes_member { voters.saturating_sub(1) } else { voters };
        Self { voters, needed: voters / 2 + 1, removes_member }
    }

    /// Whether even healthy others are not a quorum.
    pub(super) fn is_impossible(self) -> bool {
        let others = if self.removes_member { self.voters } else { self.voters.saturating_sub(1) };
        others < self.needed
    }
}
