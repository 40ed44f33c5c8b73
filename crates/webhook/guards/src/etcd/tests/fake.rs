//! An API server and an etcd cluster in memory, with a writer. Every answer yields first, so that concurrent requests interleave.

use std::collections::BTreeMap;
use std::future::ready;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::{Duration, Instant};

use admission::{BoxFuture, Cause, decode};
use k8s_openapi::api::events::v1::Event;
use serde_json::value::to_raw_value;
use serde_json::{Value, json};
use tokio::task::yield_now;

use super::super::fixture::{config, delete, evict, now, pod};
use super::super::messages;
use super::super::removal::{Removal, RemovalKind, ReviewedField};
use super::super::review::Review;
use super::super::{EtcdGuard, NAME};
use super::expect::Reviewed;
use cluster::etcd::{
    Alarm, AlarmKind, Endpoint, EtcdRequest, EtcdResponse, EtcdResult, Id, Member, MemberList, Read, Status,
};
use cluster::fleet::{Cluster, GetQuery, ListQuery, Object, ObjectResult, Page, PageResult};
use cluster::writer::{Lease, Reservation, StoredLease, TransferResult, WriteResult, Writer};
use cluster::{self, Address, Clients, Context, EtcdClient, Metadata, Reader, cause};

/// The answers of a member.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Reply {
    /// Answers everything.
    Full,
    /// Fails with this cause.
    NoResponse(&'static str),
    /// Never answers.
    Hangs,
    /// Answers everything but linearizable reads.
    ReadHangs,
    /// Denies reads.
    ReadDenied,
}

/// The leader that a member reports.
#[derive(Debug, Clone, Copy)]
pub(super) enum ReportedLeader {
    /// The leader that all members report.
    Consensus,
    /// This one.
    FakeMember(Id),
    /// It knows no leader.
    None,
}

/// One member.
#[derive(Debug, Clone)]
pub(super) struct FakeMember {
    pub(super) id: Id,
    pub(super) reply: Reply,
    pub(super) leader: ReportedLeader,
    pub(super) term: u64,
    pub(super) cluster: Id,
    pub(super) behind: u64,
    pub(super) is_learner: bool,
    /// The ids that it lists, if it is isolated and has an old list.
    pub(super) old_list: Option<Vec<Id>>,
}

/// The state of the API server and the members.
pub(super) struct State {
    pub(super) pods: Vec<Value>,
    pub(super) others: BTreeMap<(&'static str, String), Value>,
    /// Leases with their versions, by name.
    pub(super) leases: BTreeMap<String, (u64, Value)>,
    pub(super) members: BTreeMap<String, FakeMember>,
    pub(super) leader: Option<Id>,
    pub(super) alarms: Vec<Alarm>,
    /// Listed members without pods.
    pub(super) listed: Vec<Member>,
    /// The plurals that the API server denies, with the cause.
    pub(super) errors: BTreeMap<&'static str, &'static str>,
    /// The result of a transfer; `None` lets it succeed.
    pub(super) transfer_result: Option<TransferResult>,
    /// The number of yields until a transfer succeeds.
    pub(super) transfer_turns: usize,
    /// The number of status requests until the others report the new leader, and the previous leader.
    pub(super) unseen_for: usize,
    pub(super) before: Option<Id>,
    /// Whether reads of Leases hang.
    pub(super) leases_hang: bool,
    /// Whether every write conflicts.
    pub(super) writes_conflict: bool,
    /// All changes in their order.
    pub(super) actions: Vec<String>,
    /// The number of requests to members.
    pub(super) asked: usize,
    /// The time since the start of the test.
    pub(super) elapsed: Duration,
}

/// The reader, etcd client and writer of a test.
#[derive(Clone)]
pub(super) struct Fake(Arc<Mutex<State>>);

/// The name of the Lease of `etcd`.
const LEASE: &str = "durward-etcd.db.etcd";

const CLUSTER_ID: Id = 0xcdf8_1818_1818_1818;

impl Fake {
    /// Returns so many healthy members. `etcd-0` leads and has the id 10.
    pub(super) fn of(members: u64) -> Self {
        let name = |at: u64| format!("etcd-{at}");
        let one = |at: u64| FakeMember {
            id: 10 + at,
            reply: Reply::Full,
            leader: ReportedLeader::Consensus,
            term: 4,
            cluster: CLUSTER_ID,
            behind: 0,
            is_learner: false,
            old_list: None,
        };
        let mut others = BTreeMap::new();
        others.insert(("namespaces", "db".to_owned()), json!({"metadata": {"name": "db", "uid": "uid-db"}}));
        let set = json!({"metadata": {"name": "etcd", "namespace": "db", "uid": "uid-etcd"}, "spec": {"replicas": members}, "status": {"updateRevision": "r2"}});
        others.insert(("statefulsets", "etcd".to_owned()), set);
        for at in 0..members {
            others.insert(
                ("nodes", format!("n{at}")),
                json!({"metadata": {"name": format!("n{at}")}, "spec": {}}),
            );
        }
        Self(Arc::new(Mutex::new(State {
            pods: (0..members).map(|at| pod(&name(at))).collect(),
            others,
            leases: BTreeMap::new(),
            members: (0..members).map(|at| (name(at), one(at))).collect(),
            leader: Some(10),
            alarms: Vec::new(),
            listed: Vec::new(),
            errors: BTreeMap::new(),
            transfer_result: None,
            transfer_turns: 0,
            unseen_for: 0,
            before: None,
            leases_hang: false,
            writes_conflict: false,
            actions: Vec::new(),
            asked: 0,
            elapsed: Duration::ZERO,
        })))
    }

    pub(super) fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap()
    }

    /// Applies a change.
    pub(super) fn with(self, change: impl FnOnce(&mut State)) -> Self {
        change(&mut self.state());
        self
    }

    /// Denies access to objects of this plural.
    pub(super) fn with_error(self, plural: &'static str) -> Self {
        self.with(|state| {
            state.errors.insert(plural, cause::FORBIDDEN);
        })
    }

    /// Makes members refuse connections.
    pub(super) fn down(self, names: &[&str]) -> Self {
        self.with(|state| {
            for name in names {
                state.members.get_mut(*name).unwrap().reply = Reply::NoResponse(cause::NOT_LISTENING);
            }
        })
    }

    /// Removes the leader and makes reads hang.
    pub(super) fn leaderless(self) -> Self {
        self.with(|state| {
            state.leader = None;
            for one in state.members.values_mut().filter(|one| one.reply == Reply::Full) {
                one.reply = Reply::ReadHangs;
            }
        })
    }

    /// Returns clients without a writer.
    pub(super) fn clients(&self) -> Clients {
        let context = Context { fixed_time: Some(now() + self.state().elapsed), ..Context::default() };
        Clients { context, ..Clients::new(Arc::new(self.clone())) }
    }

    /// Returns a guard with a writer. Each call returns another replica.
    pub(super) fn guard(&self, yaml: &str) -> EtcdGuard {
        let clients = Clients { writer: Some(Arc::new(self.clone())), ..self.clients() };
        EtcdGuard::new(&Arc::new(config(yaml)), clients)
    }

    /// Returns a guard without a writer.
    pub(super) fn without_writer(&self, yaml: &str) -> EtcdGuard {
        EtcdGuard::new(&Arc::new(config(yaml)), self.clients())
    }

    /// Returns the number of requests to members and of changes.
    pub(super) fn activity(&self) -> (usize, usize) {
        let state = self.state();
        (state.asked, state.actions.len())
    }

    /// Sets the answers of a member.
    pub(super) fn set(&self, name: &str, reply: Reply) {
        self.state().members.get_mut(name).unwrap().reply = reply;
    }

    /// Waits for a reservation.
    pub(super) async fn reserved(&self) {
        while self.state().leases.is_empty() {
            yield_now().await;
        }
    }

    /// Waits for a leadership transfer.
    pub(super) async fn transferring(&self) {
        while !self.state().actions.iter().any(|action| action.contains(" to ")) {
            yield_now().await;
        }
    }

    /// Sets the state of a container: `running`, `waiting`.
    pub(super) fn set_container(&self, name: &str, state: &str) {
        for pod in self.state().pods.iter_mut().filter(|pod| pod["metadata"]["name"] == name) {
            pod["status"]["containerStatuses"][0]["state"] = json!({state: {}});
        }
    }

    /// Returns the reservation in the Lease of `etcd`.
    pub(super) fn reservation(&self) -> Option<Reservation> {
        let of = Lease { namespace: "durward-system".into(), name: LEASE.into() };
        let lease = self.state().stored_lease(LEASE)?;
        StoredLease::read(&of, &to_raw_value(&lease).unwrap()).unwrap().reservation
    }

    /// Sets the Lease of `etcd`.
    pub(super) fn set_lease(&self, lease: Value) {
        self.state().leases.insert(LEASE.to_owned(), (1, lease));
    }

    /// Returns a pod as the API server stores it.
    pub(super) fn pod(&self, name: &str) -> Value {
        self.state().object("pods", name).cloned().unwrap()
    }

    /// Replaces a deleted pod with a healthy one.
    pub(super) fn replace(&self, name: &str) {
        for pod in self.state().pods.iter_mut().filter(|pod| pod["metadata"]["name"] == name) {
            let uid = format!("{}-next", pod["metadata"]["uid"].as_str().unwrap());
            pod["metadata"]["uid"] = uid.into();
            drop(pod["metadata"].as_object_mut().unwrap().remove("deletionTimestamp"));
        }
    }

    /// Sets the deletion timestamp of a pod.
    pub(super) fn mark_deleted(&self, name: &str) {
        for pod in self.state().pods.iter_mut().filter(|pod| pod["metadata"]["name"] == name) {
            pod["metadata"]["deletionTimestamp"] = "2026-11-21T10:00:00Z".into();
        }
    }
}

impl State {
    fn stored_lease(&self, name: &str) -> Option<Value> {
        let (version, mut lease) = self.leases.get(name)?.clone();
        lease["metadata"]["resourceVersion"] = version.to_string().into();
        Some(lease)
    }

    fn object(&self, plural: &str, name: &str) -> Option<&Value> {
        if plural == "pods" {
            return self.pods.iter().find(|pod| pod["metadata"]["name"] == name);
        }
        self.others
            .iter()
            .find(|((kind, called), _)| *kind == plural && called == name)
            .map(|(_, value)| value)
    }

    fn refusal(&self, plural: &str) -> Option<Cause> {
        self.errors.get(plural).map(|code| Cause::new(code, format!("{plural} cannot be read")))
    }

    /// Returns the member list of this etcd cluster.
    fn list(&self, cluster: Id) -> MemberList {
        let member = |(name, one): (&String, &FakeMember)| Member {
            id: one.id,
            name: name.clone(),
            client_urls: vec!["http://x:2379".into()],
            is_learner: one.is_learner,
        };
        let own = self.members.iter().filter(|(_, one)| one.cluster == cluster).map(member);
        let listed = self.listed.iter().filter(|_| cluster == CLUSTER_ID).cloned();
        MemberList { cluster, members: own.chain(listed).collect() }
    }

    fn answer(&self, peer: &Endpoint, question: EtcdRequest) -> Result<EtcdResponse, Option<Cause>> {
        let unsupported = || Err(Some(Cause::new(cause::UNSUPPORTED, "rpc not supported for learner")));
        let Some(one) = self.members.get(&peer.name).filter(|_| peer.address.starts_with("10.0.0.")) else {
            return Err(Some(Cause::new(cause::UNREACHABLE, "no route")));
        };
        match (one.reply, question) {
            (Reply::Hangs, _) | (Reply::ReadHangs, EtcdRequest::Read | EtcdRequest::MembersByQuorum) => {
                return Err(None);
            }
            (Reply::NoResponse(code), _) => return Err(Some(Cause::new(code, format!("{peer}: {code}")))),
            (Reply::ReadDenied, EtcdRequest::Read) => return Ok(EtcdResponse::Read(Read::Denied)),
            _ => {}
        }
        let is_learner = one.is_learner;
        match question {
            EtcdRequest::Status => Ok(EtcdResponse::Status(Box::new(Status {
                cluster: one.cluster,
                member: one.id,
                leader: match one.leader {
                    ReportedLeader::Consensus if self.before.is_some() && self.leader != Some(one.id) => {
                        self.before
                    }
                    ReportedLeader::Consensus => self.leader,
                    ReportedLeader::FakeMember(id) => Some(id),
                    ReportedLeader::None => None,
                },
                term: one.term,
                index: 100_000,
                applied: Some(100_000 - one.behind),
                is_learner,
                version: "3.5.16".to_owned(),
                ..Status::default()
            }))),
            EtcdRequest::Members | EtcdRequest::MembersByQuorum | EtcdRequest::Alarms if is_learner => {
                unsupported()
            }
            EtcdRequest::Members | EtcdRequest::MembersByQuorum => {
                let mut list = self.list(one.cluster);
                if let Some(old) = &one.old_list {
                    list.members.retain(|member| old.contains(&member.id));
                }
                Ok(EtcdResponse::Members(list))
            }
            EtcdRequest::Alarms => Ok(EtcdResponse::Alarms(self.alarms.clone())),
            EtcdRequest::Read => Ok(EtcdResponse::Read(Read::Served)),
        }
    }
}

fn object(json: &Value) -> Object {
    let metadata = &json["metadata"];
    let text = |key: &str| metadata[key].as_str().unwrap_or_default().to_owned();
    let map = |key: &str| serde_json::from_value(metadata[key].clone()).unwrap_or_default();
    Object {
        namespace: text("namespace"),
        name: text("name"),
        uid: text("uid"),
        metadata: Metadata {
            labels: map("labels"),
            annotations: map("annotations"),
            deleting: metadata["deletionTimestamp"].is_string(),
        },
        raw: Some(to_raw_value(json).unwrap()),
    }
}

/// Fails at the deadline, as a reader must.
async fn hang_until<T>(deadline: Instant, text: &str) -> Result<T, Cause> {
    let started = tokio::time::Instant::now();
    tokio::time::sleep_until(deadline.into()).await;
    let seconds = started.elapsed().as_secs_f64();
    Err(Cause::new(cause::TIMEOUT, format!("{text} in {seconds:.1} s")))
}

impl Reader for Fake {
    fn get<'a>(&'a self, address: Address<'a>, deadline: Instant) -> BoxFuture<'a, cluster::MetadataResult> {
        Box::pin(async move {
            let query = GetQuery { address, part: cluster::fleet::Part::Metadata };
            Ok(self
                .get_object(&Cluster::Local, query, deadline)
                .await?
                .map(|object| Arc::new(object.metadata)))
        })
    }

    fn get_object<'a>(
        &'a self,
        _: &'a Cluster,
        query: GetQuery<'a>,
        deadline: Instant,
    ) -> BoxFuture<'a, ObjectResult> {
        Box::pin(async move {
            yield_now().await;
            let plural = query.address.resource.plural.as_ref();
            if plural == "leases" && self.state().leases_hang {
                return hang_until(deadline, "the API server did not answer").await;
            }
            let state = self.state();
            if let Some(why) = state.refusal(plural) {
                return Err(why);
            }
            if plural == "leases" {
                return Ok(state.stored_lease(query.address.name).as_ref().map(object));
            }
            Ok(state.object(plural, query.address.name).map(object))
        })
    }

    fn list<'a>(&'a self, _: &'a Cluster, query: ListQuery<'a>, _: Instant) -> BoxFuture<'a, PageResult> {
        Box::pin(async move {
            yield_now().await;
            let state = self.state();
            if let Some(why) = state.refusal(query.resource.plural.as_ref()) {
                return Err(why);
            }
            // Returns pages of two, so that reading only the first one fails tests.
            let from: usize = query.continue_token.map_or(0, |from| from.parse().unwrap());
            let objects: Vec<Object> = state.pods.iter().skip(from).take(2).map(object).collect();
            let next = (from + 2 < state.pods.len()).then(|| (from + 2).to_string());
            Ok(Page { objects, next })
        })
    }
}

impl EtcdClient for Fake {
    fn call<'a>(
        &'a self,
        peer: &'a Endpoint,
        question: EtcdRequest,
        deadline: Instant,
    ) -> BoxFuture<'a, EtcdResult> {
        Box::pin(async move {
            {
                let mut state = self.state();
                state.asked += 1;
                if state.before.is_some() && question == EtcdRequest::Status {
                    state.unseen_for = state.unseen_for.saturating_sub(1);
                    state.before = state.before.filter(|_| state.unseen_for > 0);
                }
            }
            yield_now().await;
            let answer = self.state().answer(peer, question);
            match answer {
                Ok(answer) => Ok(answer),
                Err(Some(why)) => Err(why),
                Err(None) => hang_until(deadline, &format!("{peer} gave no answer")).await,
            }
        })
    }
}

impl Writer for Fake {
    fn write<'a>(
        &'a self,
        lease: &'a Lease,
        stored: &'a StoredLease,
        _: Instant,
    ) -> BoxFuture<'a, WriteResult> {
        Box::pin(async move {
            yield_now().await;
            if self.state().writes_conflict {
                tokio::time::sleep(Duration::from_millis(50)).await;
                return WriteResult::Conflict;
            }
            let mut state = self.state();
            if let Some(code) = state.errors.get("write") {
                return WriteResult::Failed(Cause::new(code, "leases cannot be written"));
            }
            let version = state.leases.get(&lease.name).map(|(version, _)| *version);
            if version.map(|version| version.to_string()) != stored.version {
                return WriteResult::Conflict;
            }
            state.leases.insert(lease.name.clone(), (version.unwrap_or_default() + 1, stored.body(lease)));
            let pod = stored.reservation.as_ref().map_or("", |reservation| &reservation.pod);
            state.actions.push(format!("reserved {pod}"));
            WriteResult::Written
        })
    }

    fn transfer_leadership<'a>(
        &'a self,
        leader: &'a Endpoint,
        to: Id,
        _: Instant,
    ) -> BoxFuture<'a, TransferResult> {
        Box::pin(async move {
            yield_now().await;
            self.state().actions.push(format!("{} to {to}", leader.name));
            let turns = self.state().transfer_turns;
            for _ in 0..turns {
                yield_now().await;
            }
            let mut state = self.state();
            if let Some(moved) = state.transfer_result.clone() {
                return moved;
            }
            if state.leader != state.members.get(&leader.name).map(|one| one.id) {
                return TransferResult::NotLeader;
            }
            state.before = state.leader.filter(|_| state.unseen_for > 0);
            state.leader = Some(to);
            TransferResult::Transferred
        })
    }

    fn create_event<'a>(&'a self, _: &'a Event, _: Instant) -> BoxFuture<'a, WriteResult> {
        Box::pin(ready(WriteResult::Written))
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
    let stored = fake.state().object("pods", name).cloned().unwrap();
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
