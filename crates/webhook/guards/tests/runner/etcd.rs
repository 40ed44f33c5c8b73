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

use admission::Cause;
use cluster::etcd::{Alarm, AlarmKind};
use cluster::testing::{FakeContent, FakeEtcdMember, FakeWorld, Reply, RequestFault, etcd_pod};
use cluster::{Clients, cause};
use libtest_mimic::Failed;
use serde::Deserialize;
use serde_json::{Value, json};

use super::code;

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

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct MemberFacts {
    id: u64,
    leads: bool,
    term: Option<u64>,
    cluster: Option<u64>,
    behind: u64,
    learner: bool,
    read: Option<String>,
    unknown: Option<String>,
    version: Option<String>,
    volume: Option<String>,
    annotations: BTreeMap<String, String>,
    uid: Option<String>,
    hook: Option<String>,
    down: bool,
}

impl EtcdFacts {
    /// Returns clients of this etcd cluster, without a writer.
    pub(crate) fn clients(self) -> Result<Clients, Failed> {
        let world = FakeWorld::default();
        self.fill(&mut world.content())?;
        Ok(Clients { writer: None, ..world.clients() })
    }

    fn fill(self, content: &mut FakeContent) -> Result<(), Failed> {
        if self.quorum.as_deref().is_some_and(|quorum| quorum != "lost") {
            return Err("quorum can be lost, and nothing else".into());
        }
        let is_lost = self.quorum.is_some();
        content.add_etcd("etcd", self.pods.len().try_into()?);
        for (name, facts) in &self.pods {
            content.add_etcd_member(facts.pod(name), facts.member(is_lost)?);
        }
        let leader = self.pods.values().find(|facts| facts.leads && !is_lost);
        content.etcd.leader = leader.map(|facts| facts.id);
        let alarm = |(pod, kind): (&String, &String)| Alarm {
            member: self.pods.get(pod).map_or(0, |facts| facts.id),
            kind: match kind.as_str() {
                "NOSPACE" => AlarmKind::NoSpace,
                "CORRUPT" => AlarmKind::Corrupt,
                other => AlarmKind::Other(other.to_owned()),
            },
        };
        content.etcd.alarms = self.alarms.iter().map(alarm).collect();
        for (plural, unknown) in &self.unknown {
            let why = Cause::new(code(unknown)?, format!("{plural}: {unknown}"));
            content.fault(&format!("(local): {plural}"), RequestFault::Fails(why));
        }
        for path in &self.absent {
            let (resource, name) = object(path)?;
            content.remove(&resource, name);
        }
        for path in &self.deleting {
            let (resource, name) = object(path)?;
            let time = Value::from("2026-11-21T09:59:00Z");
            content.edit(&resource, name, |object| object["metadata"]["deletionTimestamp"] = time);
        }
        if let Some(pod) = self.reserved {
            let time = "2026-11-21T09:59:50.000000Z";
            let annotations = json!({"durward.dev/pod": format!("db/{pod}")});
            let spec =
                json!({"holderIdentity": format!("uid-{pod}"), "acquireTime": time, "renewTime": time});
            let lease = json!({"metadata": {"annotations": annotations}, "spec": spec});
            content.set_lease("durward-etcd.db.etcd", lease);
        }
        Ok(())
    }
}

/// Returns the resource and the name of an object like `nodes/n1`.
fn object(path: &str) -> Result<(String, &str), Failed> {
    let (plural, name) = path.split_once('/').ok_or("an object is like nodes/n1")?;
    let group = if plural == "statefulsets" { ".apps" } else { "" };
    Ok((format!("{plural}.v1{group}"), name))
}

impl MemberFacts {
    fn pod(&self, name: &str) -> Value {
        let mut pod = etcd_pod(name);
        pod["metadata"]["annotations"] = json!(self.annotations);
        if let Some(uid) = &self.uid {
            pod["metadata"]["uid"] = uid.as_str().into();
        }
        if let Some(volume) = &self.volume {
            pod["spec"]["volumes"] = json!([{"name": "data", volume.as_str(): {}}]);
        }
        if let Some(hook) = &self.hook {
            let hook = json!({"preStop": {"exec": {"command": ["/bin/sh", "-ec", hook]}}});
            pod["spec"]["containers"][0]["lifecycle"] = hook;
        }
        if self.down {
            pod["status"]["containerStatuses"][0]["state"] = json!({"waiting": {}});
        }
        pod
    }

    fn member(&self, is_quorum_lost: bool) -> Result<FakeEtcdMember, Failed> {
        let one = FakeEtcdMember::new(self.id);
        let reply = match (&self.unknown, self.read.as_deref()) {
            (Some(unknown), _) => Reply::NoResponse(code(unknown)?),
            (None, Some("denied")) => Reply::ReadDenied,
            (None, Some(read)) => Reply::ReadFails(code(read)?),
            (None, None) if is_quorum_lost => Reply::ReadFails(cause::NO_QUORUM),
            (None, None) => Reply::Full,
        };
        Ok(FakeEtcdMember {
            reply,
            term: self.term.unwrap_or(one.term),
            cluster: self.cluster.unwrap_or(one.cluster),
            behind: self.behind,
            is_learner: self.learner,
            version: self.version.clone().unwrap_or(one.version.clone()),
            ..one
        })
    }
}
