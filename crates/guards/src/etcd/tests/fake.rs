//! An API server and an etcd ensemble in memory, with hands that change them. Every answer comes after a pause in which others go
//! on, so that what is asked at once is answered in turns.

use std::collections::BTreeMap;
use std::future::pending;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::{Duration, Instant, SystemTime};

use admission::{BoxFuture, Cause, Ruling, Verdict, decode};
use serde_json::value::to_raw_value;
use serde_json::{Value, json};
use tokio::task::yield_now;

use super::super::fixture::{config, delete, evict, now, pod};
use super::super::target::POINTERS;
use super::super::{Door, NAME};
use cluster::etcd::{
    Alarm, AlarmKind, Endpoint, EtcdRequest, EtcdResponse, EtcdResult, Health, Id, Member, MemberList,
    MemberMetrics, Read, Status,
};
use cluster::fleet::{Cluster, GetQuery, ListQuery, Object, ObjectResult, Page, PageResult};
use cluster::writer::{Lease, Reservation, Reservations, TransferResult, WriteResult, Writer};
use cluster::{self, Address, Clients, Context, EtcdClient, Metadata, Reader, cause};

/// How a member answers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Reply {
    /// Everything.
    Whole,
    /// Nothing, for this reason.
    Silent(&'static str),
    /// Not at all.
    Hangs,
    /// All but linearizable reads, which hang.
    ReadHangs,
    /// That the reader may not read.
    Denies,
    /// Health and metrics only.
    Poor,
}

/// Whom a member takes for the leader.
#[derive(Debug, Clone, Copy)]
pub(super) enum Whom {
    /// The one that all do.
    AsAll,
    /// This one.
    One(Id),
    /// Nobody: it knows of no leader.
    Nobody,
}

/// One member.
#[derive(Debug, Clone)]
pub(super) struct One {
    pub(super) id: Id,
    pub(super) reply: Reply,
    pub(super) leader: Whom,
    pub(super) term: u64,
    pub(super) cluster: Id,
    pub(super) behind: u64,
    pub(super) is_learner: bool,
    pub(super) version: &'static str,
}

/// What there is.
pub(super) struct State {
    pub(super) pods: Vec<Value>,
    pub(super) others: BTreeMap<(&'static str, String), Value>,
    pub(super) lease: Option<(u64, Value)>,
    pub(super) members: BTreeMap<String, One>,
    pub(super) leader: Option<Id>,
    pub(super) alarms: Vec<Alarm>,
    /// Listed beside the members that have pods.
    pub(super) listed: Vec<Member>,
    /// What the API server refuses: a plural, and why.
    pub(super) refuses: BTreeMap<&'static str, &'static str>,
    /// What becomes of a leader that is to hand over; it does where none.
    pub(super) moves: Option<TransferResult>,
    /// In how many turns of others it hands over.
    pub(super) moves_in: usize,
    /// After how many questions for the status the others have seen who leads then, and who led before.
    pub(super) sees_in: usize,
    pub(super) before: Option<Id>,
    /// Whether Leases are neither read nor written in any time.
    pub(super) is_stuck: bool,
    /// Whether somebody else is always faster to write.
    pub(super) is_raced: bool,
    /// Everything that was changed, in order.
    pub(super) deeds: Vec<String>,
    /// How often members were asked.
    pub(super) asked: usize,
    /// How much later than in tests it is.
    pub(super) later: Duration,
}

/// The world and the hands of a test.
#[derive(Clone)]
pub(super) struct Fake(Arc<Mutex<State>>);

const ENSEMBLE: Id = 0xcdf8_1818_1818_1818;

impl Fake {
    /// So many members, `etcd-0` the leader with the id 10, all well.
    pub(super) fn of(members: u64) -> Self {
        let name = |at: u64| format!("etcd-{at}");
        let one = |at: u64| One {
            id: 10 + at,
            reply: Reply::Whole,
            leader: Whom::AsAll,
            term: 4,
            cluster: ENSEMBLE,
            behind: 0,
            is_learner: false,
            version: "3.5.16",
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
            lease: None,
            members: (0..members).map(|at| (name(at), one(at))).collect(),
            leader: Some(10),
            alarms: Vec::new(),
            listed: Vec::new(),
            refuses: BTreeMap::new(),
            moves: None,
            moves_in: 0,
            sees_in: 0,
            before: None,
            is_stuck: false,
            is_raced: false,
            deeds: Vec::new(),
            asked: 0,
            later: Duration::ZERO,
        })))
    }

    pub(super) fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap()
    }

    /// The same with a change.
    pub(super) fn with(self, change: impl FnOnce(&mut State)) -> Self {
        change(&mut self.state());
        self
    }

    /// The same where the API server refuses to show, or to have written, objects of this kind.
    pub(super) fn refusing(self, plural: &'static str) -> Self {
        self.with(|state| {
            state.refuses.insert(plural, cause::FORBIDDEN);
        })
    }

    /// The same with members that do not answer.
    pub(super) fn down(self, names: &[&str]) -> Self {
        self.with(|state| {
            for name in names {
                state.members.get_mut(*name).unwrap().reply = Reply::Silent(cause::NOT_LISTENING);
            }
        })
    }

    /// The same in which nobody knows a leader and no read comes about.
    pub(super) fn lost(self) -> Self {
        self.with(|state| {
            state.leader = None;
            for one in state.members.values_mut().filter(|one| one.reply == Reply::Whole) {
                one.reply = Reply::ReadHangs;
            }
        })
    }

    /// Clients without a writer.
    pub(super) fn clients(&self) -> Clients {
        let context = Context { fixed_time: Some(self.now()), ..Context::default() };
        Clients { context, ..Clients::new(Arc::new(self.clone())) }
    }

    fn now(&self) -> SystemTime {
        now() + self.state().later
    }

    /// A guard with a writer. Each call creates another replica.
    pub(super) fn door(&self, yaml: &str) -> Door {
        let clients = Clients { writer: Some(Arc::new(self.clone())), ..self.clients() };
        Door::new(&Arc::new(config(yaml)), clients)
    }

    /// A guard without a writer.
    pub(super) fn handless(&self, yaml: &str) -> Door {
        Door::new(&Arc::new(config(yaml)), self.clients())
    }

    /// How often members were asked, and how much was changed.
    pub(super) fn untouched(&self) -> (usize, usize) {
        let state = self.state();
        (state.asked, state.deeds.len())
    }

    /// Has a member answer so.
    pub(super) fn set(&self, name: &str, reply: Reply) {
        self.state().members.get_mut(name).unwrap().reply = reply;
    }

    /// Waits until anything is noted.
    pub(super) async fn noted(&self) {
        while self.state().lease.is_none() {
            yield_now().await;
        }
    }

    /// Waits until a leader is told to hand over.
    pub(super) async fn handing_over(&self) {
        while !self.state().deeds.iter().any(|deed| deed.contains(" to ")) {
            yield_now().await;
        }
    }

    /// What stands where a pod says how its container is: `running`, `waiting`.
    pub(super) fn container(&self, name: &str, state: &str) {
        for pod in self.state().pods.iter_mut().filter(|pod| pod["metadata"]["name"] == name) {
            pod["status"]["containerStatuses"][0]["state"] = json!({state: {}});
        }
    }

    /// What is noted, as it stands in the Lease.
    pub(super) fn book(&self) -> Vec<Reservation> {
        let lease = self.state().lease.clone();
        lease.map_or_else(Vec::new, |(version, mut lease)| {
            lease["metadata"]["resourceVersion"] = version.to_string().into();
            let of = Lease { namespace: "durward-system".into(), name: "durward-etcd.db".into() };
            Reservations::read(&of, &to_raw_value(&lease).unwrap()).unwrap().held
        })
    }

    /// A pod as the API server has it.
    pub(super) fn pod(&self, name: &str) -> Value {
        self.state().object("pods", name).cloned().unwrap()
    }

    /// A pod that was deleted is gone, and its `StatefulSet` has made the next one, which is well.
    pub(super) fn replace(&self, name: &str) {
        for pod in self.state().pods.iter_mut().filter(|pod| pod["metadata"]["name"] == name) {
            let uid = format!("{}-next", pod["metadata"]["uid"].as_str().unwrap());
            pod["metadata"]["uid"] = uid.into();
            drop(pod["metadata"].as_object_mut().unwrap().remove("deletionTimestamp"));
        }
    }

    /// Deletes a pod, as the API server's store does.
    pub(super) fn mark(&self, name: &str) {
        for pod in self.state().pods.iter_mut().filter(|pod| pod["metadata"]["name"] == name) {
            pod["metadata"]["deletionTimestamp"] = "2026-11-21T10:00:00Z".into();
        }
    }
}

impl State {
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
        self.refuses.get(plural).map(|code| Cause::new(code, format!("{plural} may not be read")))
    }

    /// What a member of this ensemble has for its list.
    fn list(&self, cluster: Id) -> MemberList {
        let member = |(name, one): (&String, &One)| Member {
            id: one.id,
            name: name.clone(),
            peer_urls: vec![],
            client_urls: vec!["http://x:2379".into()],
            is_learner: one.is_learner,
        };
        let own = self.members.iter().filter(|(_, one)| one.cluster == cluster).map(member);
        let listed = self.listed.iter().filter(|_| cluster == ENSEMBLE).cloned();
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
            (Reply::Silent(code), _) => return Err(Some(Cause::new(code, format!("{peer}: {code}")))),
            (Reply::Denies, EtcdRequest::Read) => return Ok(EtcdResponse::Read(Read::Denied)),
            (Reply::Poor, EtcdRequest::Health) => {
                return Ok(EtcdResponse::Health(Health { is_healthy: true, reason: String::new() }));
            }
            (Reply::Poor, EtcdRequest::Metrics) => {
                return Ok(EtcdResponse::Metrics(MemberMetrics {
                    is_leader: Some(self.leader == Some(one.id)),
                    has_leader: Some(self.leader.is_some()),
                    member: Some(one.id),
                    ..MemberMetrics::default()
                }));
            }
            (Reply::Poor, _) => return Err(Some(Cause::new(cause::GATEWAY_OFF, "no gateway"))),
            _ => {}
        }
        let is_learner = one.is_learner;
        match question {
            EtcdRequest::Status => Ok(EtcdResponse::Status(Box::new(Status {
                cluster: one.cluster,
                member: one.id,
                leader: match one.leader {
                    Whom::AsAll if self.before.is_some() && self.leader != Some(one.id) => self.before,
                    Whom::AsAll => self.leader,
                    Whom::One(id) => Some(id),
                    Whom::Nobody => None,
                },
                term: one.term,
                index: 100_000,
                applied: Some(100_000 - one.behind),
                is_learner,
                version: one.version.to_owned(),
                ..Status::default()
            }))),
            EtcdRequest::Members | EtcdRequest::MembersByQuorum | EtcdRequest::Alarms if is_learner => {
                unsupported()
            }
            EtcdRequest::MembersByQuorum if one.version.starts_with("3.4") => unsupported(),
            EtcdRequest::Members | EtcdRequest::MembersByQuorum => {
                Ok(EtcdResponse::Members(self.list(one.cluster)))
            }
            EtcdRequest::Alarms => Ok(EtcdResponse::Alarms(self.alarms.clone())),
            EtcdRequest::Read => Ok(EtcdResponse::Read(Read::Served)),
            EtcdRequest::Health | EtcdRequest::Metrics => unsupported(),
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
        owners: Vec::new(),
        raw: Some(to_raw_value(json).unwrap()),
    }
}

impl Reader for Fake {
    fn get<'a>(&'a self, address: Address<'a>, deadline: Instant) -> BoxFuture<'a, cluster::MetadataResult> {
        Box::pin(async move {
            let look = GetQuery { address, part: cluster::fleet::Part::Metadata };
            Ok(self
                .get_object(&Cluster::Local, look, deadline)
                .await?
                .map(|object| Arc::new(object.metadata)))
        })
    }

    fn get_object<'a>(
        &'a self,
        _: &'a Cluster,
        look: GetQuery<'a>,
        _: Instant,
    ) -> BoxFuture<'a, ObjectResult> {
        Box::pin(async move {
            yield_now().await;
            let plural = look.address.resource.plural.as_ref();
            if plural == "leases" && self.state().is_stuck {
                return pending().await;
            }
            let state = self.state();
            if let Some(why) = state.refusal(plural) {
                return Err(why);
            }
            if plural == "leases" {
                return Ok(state.lease.as_ref().map(|(version, lease)| {
                    let mut lease = lease.clone();
                    lease["metadata"]["resourceVersion"] = version.to_string().into();
                    object(&lease)
                }));
            }
            Ok(state.object(plural, look.address.name).map(object))
        })
    }

    fn list<'a>(&'a self, _: &'a Cluster, query: ListQuery<'a>, _: Instant) -> BoxFuture<'a, PageResult> {
        Box::pin(async move {
            yield_now().await;
            let state = self.state();
            if let Some(why) = state.refusal(query.resource.plural.as_ref()) {
                return Err(why);
            }
            // In pages of two: whoever reads only the first one does not see all.
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
        _: Instant,
    ) -> BoxFuture<'a, EtcdResult> {
        Box::pin(async move {
            {
                let mut state = self.state();
                state.asked += 1;
                if state.before.is_some() && question == EtcdRequest::Status {
                    state.sees_in = state.sees_in.saturating_sub(1);
                    state.before = state.before.filter(|_| state.sees_in > 0);
                }
            }
            yield_now().await;
            let answer = self.state().answer(peer, question);
            match answer {
                Ok(answer) => Ok(answer),
                Err(Some(why)) => Err(why),
                Err(None) => pending().await,
            }
        })
    }
}

impl Writer for Fake {
    fn write<'a>(
        &'a self,
        lease: &'a Lease,
        set: &'a Reservations,
        _: Instant,
    ) -> BoxFuture<'a, WriteResult> {
        Box::pin(async move {
            yield_now().await;
            if self.state().is_raced {
                tokio::time::sleep(Duration::from_millis(50)).await;
                return WriteResult::Conflict;
            }
            let mut state = self.state();
            if let Some(code) = state.refuses.get("write") {
                return WriteResult::Failed(Cause::new(code, "leases may not be written"));
            }
            let version = state.lease.as_ref().map(|(version, _)| version.to_string());
            if version != set.version {
                return WriteResult::Conflict;
            }
            let next = state.lease.as_ref().map_or(1, |(version, _)| version + 1);
            state.lease = Some((next, set.body(lease)));
            let held: Vec<&str> = set.held.iter().map(|held| held.pod.as_str()).collect();
            state.deeds.push(format!("noted {}", held.join(" ")));
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
            self.state().deeds.push(format!("{} to {to}", leader.name));
            let turns = self.state().moves_in;
            for _ in 0..turns {
                yield_now().await;
            }
            let mut state = self.state();
            if let Some(moved) = state.moves.clone() {
                return moved;
            }
            if state.leader != state.members.get(&leader.name).map(|one| one.id) {
                return TransferResult::NotLeader;
            }
            state.before = state.leader.filter(|_| state.sees_in > 0);
            state.leader = Some(to);
            TransferResult::Transferred
        })
    }
}

/// What a guard says of a review.
pub(super) async fn ruled(door: &Door, body: &[u8]) -> Ruling {
    use admission::Guard as _;
    assert_eq!(door.name(), NAME);
    let review = decode(body, &admission::Fields::new(&POINTERS)).unwrap();
    let deadline = tokio::time::Instant::now() + Duration::from_millis(8500);
    door.review(&review.request, deadline.into_std()).await
}

/// The same of a deletion by a person.
pub(super) async fn deleted(fake: &Fake, yaml: &str, name: &str) -> Ruling {
    deleted_by(fake, yaml, name, "ann", |_| {}).await
}

/// The same by somebody, with a change to the request. The pod is what the API server has.
pub(super) async fn deleted_by(
    fake: &Fake,
    yaml: &str,
    name: &str,
    user: &str,
    change: impl FnOnce(&mut Value),
) -> Ruling {
    let stored = fake.state().object("pods", name).cloned().unwrap();
    let body = delete(name, |request| {
        request["oldObject"] = stored;
        request["userInfo"]["username"] = user.into();
        change(request);
    });
    ruled(&fake.door(yaml), &body).await
}

/// The same of an eviction.
pub(super) async fn evicted(fake: &Fake, yaml: &str, name: &str) -> Ruling {
    ruled(&fake.door(yaml), &evict(name, |_| {})).await
}

/// The ruling in a word.
pub(super) fn word(ruling: &Ruling) -> &'static str {
    match &ruling.verdict {
        Verdict::Allow => "allow",
        Verdict::Deny(_) => "deny",
        Verdict::Unknown(_) => "unknown",
        Verdict::Mutate(_) => "mutate",
    }
}

/// Everything that it says to a person.
pub(super) fn told(ruling: &Ruling) -> String {
    let warnings = ruling.warnings.fitted().join("\n");
    match (&ruling.verdict, &ruling.refusal) {
        (Verdict::Deny(denial), _) | (Verdict::Unknown(_), Some(denial)) => {
            format!("{}\n{warnings}", denial.message)
        }
        (verdict, _) => format!("{verdict:?}\n{warnings}"),
    }
}

/// An alarm.
pub(super) fn alarm(member: Id, kind: AlarmKind) -> Alarm {
    Alarm { member, kind }
}
