//! An API server and an etcd cluster in memory, and reviews of their pods.

use std::ops::Deref;
use std::sync::Arc;
use std::time::Duration;

use admission::{Cause, decode};
use serde_json::value::to_raw_value;
use serde_json::{Value, json};
use tokio::task::yield_now;

use super::super::fixture::{config, delete, evict, now};
use super::super::messages;
use super::super::removal::{Removal, RemovalKind, ReviewedField};
use super::super::review::Review;
use super::super::{EtcdGuard, NAME};
use super::expect::Reviewed;
use cluster::etcd::{Alarm, AlarmKind, Id};
use cluster::testing::{FakeWorld, RequestFault};
use cluster::writer::{Lease, Reservation, StoredLease};
use cluster::{Clients, cause};

pub(super) use cluster::testing::{FakeContent, FakeEtcdMember, Reply, ReportedLeader};

pub(super) const PODS: &str = "pods.v1";
pub(super) const NODES: &str = "nodes.v1";
pub(super) const NAMESPACES: &str = "namespaces.v1";
pub(super) const STATEFUL_SETS: &str = "statefulsets.v1.apps";
pub(super) const ETCD_CLUSTERS: &str = "etcdclusters.v1.etcd.example.org";
pub(super) const LEASES: &str = "leases.v1.coordination.k8s.io";

/// The world of a test.
#[derive(Clone)]
pub(super) struct Fake(FakeWorld);

impl Deref for Fake {
    type Target = FakeWorld;

    fn deref(&self) -> &FakeWorld {
        &self.0
    }
}

/// The name of the Lease of `etcd`.
pub(super) const LEASE: &str = "durward-etcd.db.etcd";

impl Fake {
    /// Returns so many healthy members. `etcd-0` leads and has the id 10.
    pub(super) fn of(members: u64) -> Self {
        Self(FakeWorld::of_etcd(members)).with(|content| content.world.time = Some(now()))
    }

    /// Applies a change.
    pub(super) fn with(self, change: impl FnOnce(&mut FakeContent)) -> Self {
        Self(self.0.with(change))
    }

    /// Denies access to objects of this plural, or writes of Leases.
    pub(super) fn with_error(self, plural: &str) -> Self {
        let prefix = if plural == "write" { "write: lease".to_owned() } else { format!("(local): {plural}") };
        let why = Cause::new(cause::FORBIDDEN, format!("{plural} is forbidden"));
        self.with(|content| content.fault(&prefix, RequestFault::Fails(why)))
    }

    /// Makes members refuse connections.
    pub(super) fn down(self, names: &[&str]) -> Self {
        for name in names {
            self.set(name, Reply::NoResponse(cause::NOT_LISTENING));
        }
        self
    }

    /// Removes the leader and makes reads hang.
    pub(super) fn leaderless(self) -> Self {
        self.with(|content| {
            content.etcd.leader = None;
            for one in content.etcd.members.values_mut().filter(|one| one.reply == Reply::Full) {
                one.reply = Reply::ReadHangs;
            }
        })
    }

    /// Sets the time since the start of the test.
    pub(super) fn at(&self, seconds: u64) {
        self.content().world.time = Some(now() + Duration::from_secs(seconds));
    }

    /// Returns a guard with a writer. Each call returns another replica.
    pub(super) fn guard(&self, yaml: &str) -> EtcdGuard {
        EtcdGuard::new(&Arc::new(config(yaml)), self.clients())
    }

    /// Returns a guard without a writer.
    pub(super) fn without_writer(&self, yaml: &str) -> EtcdGuard {
        EtcdGuard::new(&Arc::new(config(yaml)), Clients { writer: None, ..self.clients() })
    }

    /// Returns the number of requests to members and of changes.
    pub(super) fn activity(&self) -> (usize, usize) {
        let asked = self.requests().iter().filter(|text| text.starts_with("etcd: ")).count();
        (asked, self.content().actions.len())
    }

    /// Sets the answers of a member.
    pub(super) fn set(&self, name: &str, reply: Reply) {
        self.content().etcd_member(name).reply = reply;
    }

    /// Waits for a reservation.
    pub(super) async fn reserved(&self) {
        while self.content().objects(LEASES).is_empty() {
            yield_now().await;
        }
    }

    /// Waits for a leadership transfer.
    pub(super) async fn transferring(&self) {
        while !self.content().actions.iter().any(|action| action.contains(" to ")) {
            yield_now().await;
        }
    }

    /// Sets the state of a container: `running`, `waiting`.
    pub(super) fn set_container(&self, name: &str, state: &str) {
        let set = |pod: &mut Value| pod["status"]["containerStatuses"][0]["state"] = json!({state: {}});
        self.content().edit(PODS, name, set);
    }

    /// Returns the reservation in the Lease of `etcd`.
    pub(super) fn reservation(&self) -> Option<Reservation> {
        let of = Lease { namespace: "durward-system".into(), name: LEASE.into() };
        let lease = self.content().object(LEASES, LEASE)?;
        StoredLease::read(&of, &to_raw_value(&lease).unwrap()).unwrap().reservation
    }

    /// Sets the Lease of `etcd`.
    pub(super) fn set_lease(&self, lease: Value) {
        self.content().set_lease(LEASE, lease);
    }

    /// Returns a pod as the API server stores it.
    pub(super) fn pod(&self, name: &str) -> Value {
        self.content().object(PODS, name).unwrap()
    }

    /// Replaces a deleted pod with a healthy one.
    pub(super) fn replace(&self, name: &str) {
        self.content().edit(PODS, name, |pod| {
            let uid = format!("{}-next", pod["metadata"]["uid"].as_str().unwrap());
            pod["metadata"]["uid"] = uid.into();
            drop(pod["metadata"].as_object_mut().unwrap().remove("deletionTimestamp"));
        });
    }

    /// Sets the deletion timestamp of a pod.
    pub(super) fn mark_deleted(&self, name: &str) {
        let set = |pod: &mut Value| pod["metadata"]["deletionTimestamp"] = "2026-11-21T10:00:00Z".into();
        self.content().edit(PODS, name, set);
    }
}

/// Returns the ruling on a review, with its outcome if it is about a pod.
pub(super) async fn review(guard: &EtcdGuard, body: &[u8]) -> Reviewed {
    use admission::Guard as _;
    assert_eq!(guard.name(), NAME);
    let review = decode(body, &admission::Fields::new(&ReviewedField::POINTERS)).unwrap();
    let request = &review.request;
    let deadline = tokio::time::Instant::now() + Duration::from_millis(8500);
    let removal = RemovalKind::of(request).and_then(|kind| Removal::read(&guard.config, kind, request).ok());
    let Some(removal) = removal else {
        return Reviewed::without_outcome(guard.review(request, deadline.into_std()).await);
    };
    let reviewed = Review::new(&guard.config, &guard.clients, &removal, deadline).run(request).await;
    let ruling = messages::ruling(&reviewed);
    let rows = reviewed.members.iter().flat_map(|(round, _)| &round.table.rows);
    let states = rows.map(|row| (row.name.clone(), row.state.clone())).collect();
    Reviewed { ruling, outcome: Some(reviewed.decision), states }
}

/// Reviews a deletion by a user.
pub(super) async fn deleted(fake: &Fake, yaml: &str, name: &str) -> Reviewed {
    deleted_by(fake, yaml, name, "ann", |_| {}).await
}

/// Reviews a deletion by the given user with a changed request. The pod is the stored one.
pub(super) async fn deleted_by(
    fake: &Fake,
    yaml: &str,
    name: &str,
    user: &str,
    change: impl FnOnce(&mut Value),
) -> Reviewed {
    let stored = fake.pod(name);
    let body = delete(name, |request| {
        request["oldObject"] = stored;
        request["userInfo"]["username"] = user.into();
        change(request);
    });
    review(&fake.guard(yaml), &body).await
}

/// Reviews an eviction.
pub(super) async fn evicted(fake: &Fake, yaml: &str, name: &str) -> Reviewed {
    review(&fake.guard(yaml), &evict(name, |_| {})).await
}

/// Returns an alarm.
pub(super) fn alarm(member: Id, kind: AlarmKind) -> Alarm {
    Alarm { member, kind }
}
