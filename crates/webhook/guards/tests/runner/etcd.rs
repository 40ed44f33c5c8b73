//! An etcd cluster and its pods: `etcd` of a case.
//!
//! ```yaml
//! pods:                                  # in namespace db, of the StatefulSet etcd, on nodes n0, n1, …
//!   etcd-0: {id: 10, leads: true}
//!   etcd-1: {id: 11, behind: 3}
//!   etcd-2: {unknown: not-listening}     # or read: timeout, learner: true, term: 3, cluster: 7, …
//! quorum: lost                           # no member knows a leader, and no read succeeds
//! alarms: {etcd-1: NOSPACE}
//! unknown: {pods: forbidden}             # failed reads of the API server
//! absent: [nodes/n1]                     # objects that do not exist
//! deleting: [namespaces/db]              # objects with a deletion timestamp
//! reserved: etcd-1                       # the pod with a reservation from ten seconds ago
//! ```

use std::collections::{BTreeMap, BTreeSet};
use std::future::ready;
use std::sync::Arc;
use std::time::Instant;

use admission::{BoxFuture, Cause};
use cluster::etcd::{
    Alarm, AlarmKind, Endpoint, EtcdRequest, EtcdResponse, EtcdResult, Member, MemberList, Read, Status,
};
use cluster::fleet::{Cluster, GetQuery, ListQuery, Object, ObjectResult, Page, PageResult, Part};
use cluster::{self, Address, Clients, EtcdClient, Metadata, Reader, cause};
use libtest_mimic::Failed;
use serde::Deserialize;
use serde_json::value::to_raw_value;
use serde_json::{Value, json};

use super::code;

/// The default cluster id of the members.
const CLUSTER_ID: u64 = 0xcdf8_1818_1818_1818;

/// The facts of a case.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct EtcdFacts {
    pods: BTreeMap<String, MemberFacts>,
    quorum: Option<String>,
    alarms: BTreeMap<String, String>,
    unknown: BTreeMap<String, String>,
    absent: BTreeSet<String>,
    deleting: BTreeSet<String>,
    reserved: Option<String>,
}

// Each flag is independent.
#[allow(clippy::struct_excessive_bools)]
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct MemberFacts {
    id: u64,
    leads: bool,
    term: u64,
    #[serde(rename = "cluster")]
    cluster_id: u64,
    behind: u64,
    learner: bool,
    read: Option<String>,
    unknown: Option<String>,
    version: String,
    volume: String,
    annotations: BTreeMap<String, String>,
    uid: Option<String>,
    hook: Option<String>,
    down: bool,
}

impl Default for MemberFacts {
    fn default() -> Self {
        Self {
            id: 0,
            leads: false,
            term: 4,
            cluster_id: CLUSTER_ID,
            behind: 0,
            learner: false,
            read: None,
            unknown: None,
            version: "3.5.16".to_owned(),
            volume: "persistentVolumeClaim".to_owned(),
            annotations: BTreeMap::new(),
            uid: None,
            hook: None,
            down: false,
        }
    }
}

fn failure(code: &str, what: &str) -> Cause {
    let code = cause::ALL.into_iter().find(|known| *known == code).unwrap_or(cause::GARBAGE);
    Cause::new(code, format!("{what}: {code}"))
}

impl EtcdFacts {
    /// Returns clients of this etcd cluster.
    pub(crate) fn clients(self) -> Result<Clients, Failed> {
        let of_members = self.pods.values().flat_map(|one| one.unknown.iter().chain(&one.read));
        for text in of_members.chain(self.unknown.values()).filter(|code| *code != "denied") {
            code(text)?;
        }
        if self.quorum.as_deref().is_some_and(|quorum| quorum != "lost") {
            return Err("quorum can be lost, and nothing else".into());
        }
        Ok(Clients::new(Arc::new(self)))
    }

    fn pod(&self, name: &str, one: &MemberFacts) -> Value {
        let ordinal = name.rsplit('-').next().unwrap_or_default();
        let state = if one.down { "waiting" } else { "running" };
        let volume = match one.volume.as_str() {
            "persistentVolumeClaim" => json!({"claimName": format!("data-{name}")}),
            _ => json!({}),
        };
        let mut pod = json!({
            "apiVersion": "v1", "kind": "Pod",
            "metadata": {
                "namespace": "db", "name": name, "uid": one.uid.clone().unwrap_or_else(|| format!("uid-{name}")),
                "labels": {"app": "etcd"}, "annotations": one.annotations,
                "ownerReferences": [{"apiVersion": "apps/v1", "kind": "StatefulSet", "name": "etcd", "uid": "uid-etcd", "controller": true}]
            },
            "spec": {
                "nodeName": format!("n{ordinal}"),
                "containers": [{"name": "etcd", "image": "quay.io/coreos/etcd:v3.5.16", "volumeMounts": [{"name": "data", "mountPath": "/data"}]}],
                "volumes": [{"name": "data", one.volume.as_str(): volume}]
            },
            "status": {"phase": "Running", "podIP": format!("10.0.0.{ordinal}"), "containerStatuses": [{"name": "etcd", "state": {state: {}}}]}
        });
        if let Some(hook) = &one.hook {
            pod["spec"]["containers"][0]["lifecycle"] =
                json!({"preStop": {"exec": {"command": ["/bin/sh", "-ec", hook]}}});
        }
        self.with_deletion_timestamp("pods", name, pod)
    }

    fn with_deletion_timestamp(&self, plural: &str, name: &str, mut object: Value) -> Value {
        if self.deleting.contains(&format!("{plural}/{name}")) {
            object["metadata"]["deletionTimestamp"] = "2026-11-21T09:59:00Z".into();
        }
        object
    }

    fn object(&self, plural: &str, name: &str) -> Option<Value> {
        if self.absent.contains(&format!("{plural}/{name}")) {
            return None;
        }
        match plural {
            "pods" => self.pods.get(name).map(|one| self.pod(name, one)),
            "leases" => self.reserved.as_ref().map(|pod| {
                let time = "2026-11-21T09:59:50.000000Z";
                let annotations = json!({"durward.dev/pod": format!("db/{pod}")});
                json!({
                    "metadata": {"namespace": "durward-system", "name": name, "resourceVersion": "7", "annotations": annotations},
                    "spec": {"holderIdentity": format!("uid-{pod}"), "acquireTime": time, "renewTime": time},
                })
            }),
            "statefulsets" => Some(json!({"metadata": {"namespace": "db", "name": name, "uid": "uid-etcd"},
                "spec": {"replicas": self.pods.len()}, "status": {"updateRevision": "r2"}})),
            _ => Some(json!({"metadata": {"name": name, "uid": format!("uid-{name}")}, "spec": {}})),
        }
        .map(|object| if plural == "pods" { object } else { self.with_deletion_timestamp(plural, name, object) })
    }

    fn denial(&self, plural: &str) -> Result<(), Cause> {
        self.unknown.get(plural).map_or(Ok(()), |code| Err(failure(code, plural)))
    }

    fn leader(&self) -> Option<u64> {
        let leader = self.pods.values().find(|one| one.leads).map(|one| one.id);
        leader.filter(|_| self.quorum.is_none())
    }

    fn members(&self, cluster_id: u64) -> MemberList {
        let own = self.pods.iter().filter(|(_, one)| one.cluster_id == cluster_id && one.id != 0);
        let member = |(name, one): (&String, &MemberFacts)| Member {
            id: one.id,
            name: name.clone(),
            client_urls: vec![format!("http://{name}.etcd:2379")],
            is_learner: one.learner,
        };
        MemberList { cluster: cluster_id, members: own.map(member).collect() }
    }

    fn answer(&self, endpoint: &Endpoint, request: EtcdRequest) -> EtcdResult {
        let one = self.pods.get(&endpoint.name).ok_or_else(|| failure("not-recorded", &endpoint.name))?;
        let fail = |code: &str| {
            let why = failure(code, &endpoint.name);
            Err(request.failed(&endpoint.name, &Cause::new(why.code, why.code)))
        };
        if let Some(code) = &one.unknown {
            return fail(code);
        }
        let of_voters =
            matches!(request, EtcdRequest::Members | EtcdRequest::MembersByQuorum | EtcdRequest::Alarms);
        if one.learner && of_voters {
            return fail("unsupported");
        }
        if matches!(request, EtcdRequest::Read | EtcdRequest::MembersByQuorum) {
            match one.read.as_deref() {
                Some("denied") if request == EtcdRequest::Read => {
                    return Ok(EtcdResponse::Read(Read::Denied));
                }
                Some(code) if code != "denied" => return fail(code),
                _ if self.quorum.is_some() => return fail("no-quorum"),
                _ => {}
            }
        }
        Ok(match request {
            EtcdRequest::Status => EtcdResponse::Status(Box::new(Status {
                cluster: one.cluster_id,
                member: one.id,
                leader: self.leader(),
                term: one.term,
                index: 100_000,
                applied: Some(100_000 - one.behind),
                is_learner: one.learner,
                version: one.version.clone(),
                ..Status::default()
            })),
            EtcdRequest::Members | EtcdRequest::MembersByQuorum => {
                EtcdResponse::Members(self.members(one.cluster_id))
            }
            EtcdRequest::Alarms => EtcdResponse::Alarms(self.raised()),
            EtcdRequest::Read => EtcdResponse::Read(Read::Served),
        })
    }

    fn raised(&self) -> Vec<Alarm> {
        let alarm = |(pod, kind): (&String, &String)| Alarm {
            member: self.pods.get(pod).map_or(0, |one| one.id),
            kind: match kind.as_str() {
                "NOSPACE" => AlarmKind::NoSpace,
                "CORRUPT" => AlarmKind::Corrupt,
                other => AlarmKind::Other(other.to_owned()),
            },
        };
        self.alarms.iter().map(alarm).collect()
    }
}

fn object(json: &Value, part: Part) -> Object {
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
        raw: (part == Part::Whole).then(|| to_raw_value(json).unwrap_or_default()),
    }
}

impl Reader for EtcdFacts {
    fn get<'a>(&'a self, address: Address<'a>, _: Instant) -> BoxFuture<'a, cluster::MetadataResult> {
        let query = GetQuery { address, part: Part::Metadata };
        Box::pin(async move {
            let found = self.get_object(&Cluster::Local, query, Instant::now()).await?;
            Ok(found.map(|object| Arc::new(object.metadata)))
        })
    }

    fn get_object<'a>(
        &'a self,
        _: &'a Cluster,
        query: GetQuery<'a>,
        _: Instant,
    ) -> BoxFuture<'a, ObjectResult> {
        let plural = query.address.resource.plural.as_ref();
        let found = self
            .denial(plural)
            .map(|()| self.object(plural, query.address.name).map(|json| object(&json, query.part)));
        Box::pin(ready(found))
    }

    fn list<'a>(&'a self, _: &'a Cluster, query: ListQuery<'a>, _: Instant) -> BoxFuture<'a, PageResult> {
        let pods = self.pods.keys().filter_map(|name| self.object("pods", name));
        let listed = self
            .denial(query.resource.plural.as_ref())
            .map(|()| Page { objects: pods.map(|pod| object(&pod, query.part)).collect(), next: None });
        Box::pin(ready(listed))
    }
}

impl EtcdClient for EtcdFacts {
    fn call<'a>(
        &'a self,
        endpoint: &'a Endpoint,
        request: EtcdRequest,
        _: Instant,
    ) -> BoxFuture<'a, EtcdResult> {
        Box::pin(ready(self.answer(endpoint, request)))
    }
}
