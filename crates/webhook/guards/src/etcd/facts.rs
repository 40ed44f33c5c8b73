//! Asks all members of an etcd cluster at once and collects everything that a decision depends on.
//!
//! Each member has its own deadline, so one that hangs costs no more than that. No task is spawned, so no request outlives the
//! review. No answer is older than its request. The second read after a reservation depends on that.

use std::collections::BTreeSet;
use std::time::SystemTime;

use admission::Cause;
use futures_util::future::{join, join_all};
use tokio::time::Instant;

use super::config::Config;
use super::group::Group;
use super::kube_reader::{KubeReader, NodeState};
use super::kube_state::KubeState;
use super::owners::{OwnerSet, OwnerState};
use super::pod::Pod;
use super::size::DeclaredSizes;
use cluster::etcd::{Alarm, Endpoint, EtcdRequest, EtcdResponse, MemberList, Read, Status};
use cluster::writer::Reservation;
use cluster::{Clients, cause};

/// Everything that a decision about a member depends on.
#[derive(Debug, Clone)]
pub(super) struct Facts {
    pub(super) now: SystemTime,
    /// The start of the review.
    pub(super) began: SystemTime,
    /// The name of the etcd cluster for users.
    pub(super) cluster: String,
    pub(super) pods: Vec<PodFacts>,
    pub(super) sizes: DeclaredSizes,
    /// The uids of pods that do not come back: they were scaled down, or their owner is deleted.
    pub(super) surplus: BTreeSet<String>,
    /// The uids of pods whose owner is deleted or scaled to zero while others of the etcd cluster stay.
    pub(super) without_owner: BTreeSet<String>,
    /// The uids of pods that were scaled down and whose PVC is deleted with them.
    pub(super) scaled_away: BTreeSet<String>,
    /// The reservation in the Lease, of any pod.
    pub(super) reservation: Option<Reservation>,
    /// Why the Lease could not be read.
    pub(super) reservation_error: Option<Cause>,
}

/// One pod of the etcd cluster. The flags about leaving are never set for the pod under review, and it has no deadline.
#[derive(Debug, Clone)]
pub(super) struct PodFacts {
    pub(super) pod: Pod,
    /// The answers of its member, or why there are none.
    pub(super) view: Result<Box<Answers>, Cause>,
    /// The state of its node, if it is cordoned or deleted.
    pub(super) node: Option<NodeState>,
    /// Whether its owner is deleted while others stay.
    pub(super) is_without_owner: bool,
    /// Whether it has the update revision of its `StatefulSet`.
    pub(super) is_updated: bool,
}

impl PodFacts {
    /// Whether its node is deleted.
    pub(super) fn has_lost_node(&self) -> bool {
        self.node == Some(NodeState::Deleted)
    }

    /// Returns why it may leave, whatever its member answers.
    pub(super) fn leaving(&self) -> Option<Leaving> {
        if self.pod.is_deleting {
            return Some(Leaving::Deleting);
        }
        if self.is_without_owner {
            return Some(Leaving::WithoutOwner);
        }
        // The kubelet ends it then without a request.
        if self.pod.active_deadline.is_some() {
            return Some(Leaving::Deadline);
        }
        self.has_lost_node().then_some(Leaving::NodeDeleted)
    }

    pub(super) fn answers(&self) -> Option<&Answers> {
        self.view.as_deref().ok()
    }
}

/// Why a pod may leave.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Leaving {
    Deleting,
    /// Its owner is deleted or scaled to zero.
    WithoutOwner,
    /// It has `activeDeadlineSeconds`.
    Deadline,
    NodeDeleted,
}

/// The answers of a member that returned its status.
#[derive(Debug, Clone)]
pub(super) struct Answers {
    pub(super) status: Status,
    pub(super) read: Result<Read, Cause>,
    /// The member's own list.
    pub(super) members: Result<MemberList, Cause>,
    /// The list that a quorum confirms.
    pub(super) by_quorum: Result<MemberList, Cause>,
    pub(super) alarms: Result<Vec<Alarm>, Cause>,
}

impl Facts {
    /// Returns these facts for the review of one pod.
    pub(super) fn about(mut self, uid: &str) -> Self {
        for facts in &mut self.pods {
            let is_subject = facts.pod.uid == uid;
            facts.node = facts.node.filter(|_| !is_subject);
            facts.pod.active_deadline = facts.pod.active_deadline.filter(|_| !is_subject);
            // Pods that lose their owner together count for each other: each is reviewed and reserved in turn.
            facts.is_without_owner =
                !self.without_owner.contains(uid) && self.without_owner.contains(&facts.pod.uid);
        }
        self
    }
}

/// Whether the cause means that the member sent no byte. A failed TLS handshake does not: something listens.
pub(super) fn is_silence(why: &Cause) -> bool {
    matches!(why.code, cause::UNREACHABLE | cause::TIMEOUT | cause::NOT_LISTENING | cause::NO_ADDRESS)
}

/// Whether a member certainly serves no client: it refuses connections, or the kubelet and its silence agree that etcd does not run.
pub(super) fn is_down(why: &Cause, is_stopped: bool) -> bool {
    why.code == cause::NOT_LISTENING || is_stopped && is_silence(why)
}

/// Returns a closure that takes this variant of a response.
macro_rules! variant {
    ($name:ident) => {
        |response| match response {
            EtcdResponse::$name(value) => Some(value),
            _ => None,
        }
    };
}

/// Reads the facts of one etcd cluster.
#[derive(Clone, Copy)]
pub(super) struct FactReader<'r> {
    pub(super) clients: &'r Clients,
    pub(super) config: &'r Config,
    pub(super) group: &'r Group,
    pub(super) end: Instant,
}

impl FactReader<'_> {
    /// Asks every pod of the etcd cluster, for the review of the pod `uid`.
    pub(super) async fn about(&self, uid: &str, state: &KubeState) -> Facts {
        let pods = state.pods.as_deref().unwrap_or_default();
        let owner = |pod: &Pod| state.owners.of(pod).as_ref().ok();
        let set = |pod: &Pod| owner(pod).and_then(OwnerState::stateful_set);
        let nodes: BTreeSet<&str> =
            pods.iter().map(|pod| pod.node.as_str()).filter(|node| !node.is_empty()).collect();
        let kube = KubeReader { clients: self.clients, end: self.member_end() };
        let nodes = kube.node_states(nodes.into_iter().map(str::to_owned).collect());
        let (nodes, views) = join(nodes, join_all(pods.iter().map(|pod| self.view(pod)))).await;
        let is_updated = |pod: &Pod, set: &OwnerSet| {
            !set.revision.is_empty() && pod.labels.get("controller-revision-hash") == Some(&set.revision)
        };
        let pod_facts = pods.iter().zip(views).map(|(pod, view)| PodFacts {
            view,
            is_without_owner: false,
            node: nodes.get(&pod.node).copied(),
            is_updated: set(pod).is_some_and(|set| is_updated(pod, set)),
            pod: pod.clone(),
        });
        let uids = |is: &dyn Fn(&&Pod) -> bool| pods.iter().filter(is).map(|pod| pod.uid.clone()).collect();
        let is_without_owner = |pod: &&Pod| owner(pod).is_some_and(OwnerState::has_no_pods_left);
        let is_surplus = |pod: &&Pod| set(pod).is_some_and(|set| set.is_surplus(&pod.name));
        // In a teardown no member is left that could depend on these pods.
        let is_torn_down = matches!(state.owners.own, Ok(OwnerState::Deleted | OwnerState::ScaledToZero));
        let facts = Facts {
            now: state.now,
            began: state.began,
            cluster: self.group.name(),
            pods: pod_facts.collect(),
            sizes: state.owners.sizes.clone(),
            scaled_away: uids(&|pod| set(pod).is_some_and(|set| set.deletes_pvc_of(&pod.name))),
            surplus: uids(&|pod| is_surplus(pod) || is_without_owner(pod)),
            without_owner: if is_torn_down { BTreeSet::new() } else { uids(&is_without_owner) },
            reservation: state.lease.as_ref().ok().and_then(|lease| lease.reservation.clone()),
            reservation_error: state.lease.as_ref().err().cloned(),
        };
        facts.about(uid)
    }

    /// Returns the deadline for a member that is asked now.
    fn member_end(&self) -> Instant {
        self.end.min(Instant::now() + self.config.member_timeout)
    }

    async fn view(&self, pod: &Pod) -> Result<Box<Answers>, Cause> {
        let not_running = |code| Err(Cause::new(code, format!("etcd does not run in {}", pod.name)));
        // Another pod may have its address.
        if pod.has_ended() {
            return not_running(cause::UNREACHABLE);
        }
        if pod.address.is_empty() {
            let text = format!("{} has no address", pod.name);
            return Err(Cause::new(cause::NO_ADDRESS, text));
        }
        let peer = self.group.peer(pod);
        let end = self.member_end();
        let members = |request| self.ask(&peer, request, end, variant!(Members));
        let read = self.ask(&peer, EtcdRequest::Read, end, variant!(Read));
        let alarms = self.ask(&peer, EtcdRequest::Alarms, end, variant!(Alarms));
        let lists = join(members(EtcdRequest::Members), members(EtcdRequest::MembersByQuorum));
        let (status, ((read, (members, by_quorum)), alarms)) =
            join(self.status(pod), join(join(read, lists), alarms)).await;
        match status {
            Ok(status) => Ok(Box::new(Answers { status, read, members, by_quorum, alarms })),
            Err(why) if pod.is_stopped() && is_silence(&why) => not_running(why.code),
            Err(why) => Err(why),
        }
    }

    /// Asks a member for its status.
    pub(super) async fn status(&self, pod: &Pod) -> Result<Status, Cause> {
        let peer = self.group.peer(pod);
        let status = self.ask(&peer, EtcdRequest::Status, self.member_end(), variant!(Status)).await?;
        Ok(*status)
    }

    /// Asks a member, and takes the variant of the response that belongs to the request.
    async fn ask<T>(
        &self,
        peer: &Endpoint,
        request: EtcdRequest,
        end: Instant,
        take: impl FnOnce(EtcdResponse) -> Option<T>,
    ) -> Result<T, Cause> {
        let response = self.clients.etcd.call(peer, request, end.into_std()).await?;
        take(response).ok_or_else(|| {
            let text = format!("{peer} returned something other than {request}");
            Cause::new(cause::GARBAGE, text)
        })
    }
}
