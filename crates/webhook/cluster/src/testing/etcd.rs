//! An etcd cluster whose members answer each on its own.

use std::collections::BTreeMap;

use admission::Cause;
use serde_json::{Value, json};

use super::{FakeContent, FakeWorld};
use crate::cause;
use crate::etcd::{Alarm, EtcdRequest, EtcdResponse, EtcdResult, Id, Member, MemberList, Read, Status};
use crate::writer::TransferResult;

/// The answers of a member.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reply {
    /// Answers everything.
    Full,
    /// Fails with this cause.
    NoResponse(&'static str),
    /// Never answers.
    Hangs,
    /// Answers everything but linearizable reads, which fail with this cause.
    ReadFails(&'static str),
    /// Answers everything but linearizable reads.
    ReadHangs,
    /// Denies reads.
    ReadDenied,
}

/// The leader that a member reports.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ReportedLeader {
    /// The leader that all members report.
    Consensus,
    /// This one.
    Member(Id),
    /// It knows no leader.
    None,
}

/// One member.
#[derive(Debug, Clone)]
pub struct FakeEtcdMember {
    /// Its id.
    pub id: Id,
    /// The kind of its answers.
    pub reply: Reply,
    /// The leader that it reports.
    pub leader: ReportedLeader,
    /// Its term.
    pub term: u64,
    /// The id of its etcd cluster.
    pub cluster: Id,
    /// The entries that it has not applied.
    pub behind: u64,
    /// Whether it is a learner.
    pub is_learner: bool,
    /// Its version.
    pub version: String,
    /// The ids that it lists, if it is isolated and has an old list.
    pub old_list: Option<Vec<Id>>,
}

impl FakeEtcdMember {
    /// The default id of the etcd cluster.
    pub const CLUSTER: Id = 0xcdf8_1818_1818_1818;

    /// Returns a healthy voter.
    pub fn new(id: Id) -> Self {
        Self {
            id,
            reply: Reply::Full,
            leader: ReportedLeader::Consensus,
            term: 4,
            cluster: Self::CLUSTER,
            behind: 0,
            is_learner: false,
            version: "3.5.16".to_owned(),
            old_list: None,
        }
    }
}

/// The members, by the names of their pods.
#[derive(Debug, Clone, Default)]
pub struct FakeEtcd {
    /// The members that run.
    pub members: BTreeMap<String, FakeEtcdMember>,
    /// The leader that they report.
    pub leader: Option<Id>,
    /// The raised alarms.
    pub alarms: Vec<Alarm>,
    /// Listed members without pods.
    pub listed: Vec<Member>,
    /// The result of a transfer; `None` lets it succeed.
    pub transfer_result: Option<TransferResult>,
}

impl FakeEtcd {
    /// Returns the member list of one etcd cluster.
    fn list(&self, cluster: Id) -> MemberList {
        let member = |(name, one): (&String, &FakeEtcdMember)| Member {
            id: one.id,
            name: name.clone(),
            client_urls: vec![format!("http://{name}.etcd:2379")],
            is_learner: one.is_learner,
        };
        let own = self.members.iter().filter(|(_, one)| one.cluster == cluster && one.id != 0).map(member);
        let listed = self.listed.iter().filter(|_| cluster == FakeEtcdMember::CLUSTER).cloned();
        MemberList { cluster, members: own.chain(listed).collect() }
    }

    /// Returns the answer of the member in a pod, or none if it hangs.
    pub(super) fn answer(&self, name: &str, request: EtcdRequest) -> Option<EtcdResult> {
        let fails = |code| Some(Err(request.failed(name, &Cause::new(code, code))));
        let Some(one) = self.members.get(name) else { return fails(cause::UNREACHABLE) };
        let is_read = matches!(request, EtcdRequest::Read | EtcdRequest::MembersByQuorum);
        let is_of_voters = !matches!(request, EtcdRequest::Status | EtcdRequest::Read);
        Some(Ok(match (one.reply, request) {
            (Reply::Hangs, _) => return None,
            (Reply::NoResponse(code), _) => return fails(code),
            _ if one.is_learner && is_of_voters => return fails(cause::UNSUPPORTED),
            (Reply::ReadHangs, _) if is_read => return None,
            (Reply::ReadFails(code), _) if is_read => return fails(code),
            (Reply::ReadDenied, EtcdRequest::Read) => EtcdResponse::Read(Read::Denied),
            (_, EtcdRequest::Read) => EtcdResponse::Read(Read::Served),
            (_, EtcdRequest::Alarms) => EtcdResponse::Alarms(self.alarms.clone()),
            (_, EtcdRequest::Members | EtcdRequest::MembersByQuorum) => {
                let mut list = self.list(one.cluster);
                if let Some(old) = &one.old_list {
                    list.members.retain(|member| old.contains(&member.id));
                }
                EtcdResponse::Members(list)
            }
            (_, EtcdRequest::Status) => EtcdResponse::Status(Box::new(Status {
                cluster: one.cluster,
                member: one.id,
                leader: match one.leader {
                    ReportedLeader::Consensus => self.leader,
                    ReportedLeader::Member(id) => Some(id),
                    ReportedLeader::None => None,
                },
                term: one.term,
                index: 100_000,
                applied: Some(100_000 - one.behind),
                is_learner: one.is_learner,
                version: one.version.clone(),
                ..Status::default()
            })),
        }))
    }

    /// Moves leadership.
    pub(super) fn transfer(&mut self, leader: &str, to: Id) -> TransferResult {
        if let Some(result) = &self.transfer_result {
            return result.clone();
        }
        if self.leader != self.members.get(leader).map(|one| one.id) {
            return TransferResult::NotLeader;
        }
        self.leader = Some(to);
        TransferResult::Transferred
    }
}

/// Returns a member's pod: in the namespace `db`, of the `StatefulSet` before its ordinal, on the node `n` with its ordinal.
pub fn etcd_pod(name: &str) -> Value {
    let (set, ordinal) = name.rsplit_once('-').unwrap_or((name, ""));
    json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": {
            "namespace": "db", "name": name, "uid": format!("uid-{name}"), "labels": {"app": "etcd"},
            "ownerReferences": [{"apiVersion": "apps/v1", "kind": "StatefulSet", "name": set, "uid": format!("uid-{set}"), "controller": true}]
        },
        "spec": {
            "nodeName": format!("n{ordinal}"),
            "containers": [{"name": "etcd", "image": "etcd:3.5.16", "volumeMounts": [{"name": "data", "mountPath": "/data"}]}],
            "volumes": [{"name": "data", "persistentVolumeClaim": {"claimName": format!("data-{name}")}}]
        },
        "status": {
            "phase": "Running", "podIP": format!("10.0.0.{ordinal}"),
            "containerStatuses": [{"name": "etcd", "state": {"running": {}}}]
        }
    })
}

impl FakeContent {
    /// Adds the namespace `db` and the `StatefulSet` of an etcd cluster with this name.
    pub fn add_etcd(&mut self, set: &str, replicas: u64) {
        self.insert("namespaces.v1", json!({"metadata": {"name": "db", "uid": "uid-db"}}));
        let metadata = json!({"namespace": "db", "name": set, "uid": format!("uid-{set}")});
        let set =
            json!({"metadata": metadata, "spec": {"replicas": replicas}, "status": {"updateRevision": "r2"}});
        self.insert("statefulsets.v1.apps", set);
    }

    /// Adds a member of the etcd cluster, its pod and its node.
    pub fn add_etcd_member(&mut self, pod: Value, member: FakeEtcdMember) {
        let name = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let node = name(&pod["spec"]["nodeName"]);
        let node = json!({"metadata": {"name": node, "uid": format!("uid-{node}")}, "spec": {}});
        self.insert("nodes.v1", node);
        self.etcd.members.insert(name(&pod["metadata"]["name"]), member);
        self.insert("pods.v1", pod);
    }
}

impl FakeWorld {
    /// Returns so many healthy members of the `StatefulSet` `etcd`. The first one leads and has the id 10.
    pub fn of_etcd(members: u64) -> Self {
        Self::default().with(|content| {
            content.add_etcd("etcd", members);
            content.etcd.leader = Some(10);
            for (id, ordinal) in (10..).zip(0..members) {
                content.add_etcd_member(etcd_pod(&format!("etcd-{ordinal}")), FakeEtcdMember::new(id));
            }
        })
    }
}
