//! The facts that a verdict is based on, for `review -v`.

use std::fmt::Display;
use std::sync::Mutex;

use admission::{Cause, lock};
use cluster::etcd::{self, Endpoint, EtcdRequest, EtcdResult};
use cluster::fleet::{Cluster, Fleet, GetQuery, ListQuery, MembersResult, ObjectResult, PageResult};
use cluster::{Address, MetadataResult};

use crate::clients::observe::Observer;

/// The requests of a guard and their answers, one line each.
#[derive(Debug, Default)]
pub(crate) struct FactLog(Mutex<Vec<String>>);

impl FactLog {
    /// Returns and removes the facts since the last call.
    pub(crate) fn take(&self) -> Vec<String> {
        std::mem::take(&mut *lock(&self.0))
    }

    fn add(&self, subject: &dyn Display, answer: Result<String, &Cause>) {
        let answer = answer.unwrap_or_else(|cause| format!("unknown ({}): {}", cause.code, cause.text));
        let mut facts = lock(&self.0);
        let fact = format!("{subject} {answer}");
        // A repeated request with the same answer is one fact.
        if facts.last() != Some(&fact) {
            facts.push(fact);
        }
    }
}

/// The number of cluster names in a fact.
const NAMED: usize = 10;

fn named(members: &MembersResult) -> Result<String, &Cause> {
    let members = members.as_ref()?;
    let names: Vec<_> = members.iter().take(NAMED).map(|member| member.cluster.name()).collect();
    Ok(match (names.is_empty(), members.len().saturating_sub(NAMED)) {
        (true, _) => "has no member clusters".to_owned(),
        (false, 0) => format!("has {}", names.join(", ")),
        (false, more) => format!("has {} and {more} more", names.join(", ")),
    })
}

fn counted(listed: &PageResult) -> Result<String, &Cause> {
    let page = listed.as_ref()?;
    let more = if page.next.is_some() { " and more" } else { "" };
    Ok(format!("are {}{more}", page.objects.len()))
}

/// Names a request to an etcd member.
fn etcd_request(request: EtcdRequest) -> &'static str {
    match request {
        EtcdRequest::Status => "status",
        EtcdRequest::Members => "own list",
        EtcdRequest::MembersByQuorum => "quorum list",
        EtcdRequest::Alarms => "alarms",
        EtcdRequest::Read => "linearizable read",
    }
}

/// Summarizes the answer of an etcd member.
fn etcd_answer(answer: &etcd::EtcdResponse) -> String {
    let number = |of: usize, noun: &str| format!("{of} {noun}{}", if of == 1 { "" } else { "s" });
    match answer {
        etcd::EtcdResponse::Status(status) => {
            let role = match status.leader {
                _ if status.is_learner => format!("learner {:x}", status.member),
                Some(leader) if leader == status.member => format!("leader {leader:x}"),
                Some(leader) => format!("follower {:x} of {leader:x}", status.member),
                None => format!("{:x} without a leader", status.member),
            };
            format!("{role}, term {}", status.term)
        }
        etcd::EtcdResponse::Members(list) => number(list.members.len(), "member"),
        etcd::EtcdResponse::Alarms(alarms) => number(alarms.len(), "alarm"),
        etcd::EtcdResponse::Read(etcd::Read::Served) => "served".to_owned(),
        etcd::EtcdResponse::Read(etcd::Read::Denied) => "denied".to_owned(),
    }
}

impl Observer for FactLog {
    fn metadata(&self, address: Address<'_>, answer: &MetadataResult) {
        let text = answer.as_ref().map(|found| match found {
            None => "does not exist".to_owned(),
            Some(found) if found.labels.is_empty() => "has no labels".to_owned(),
            Some(found) => {
                let labels: Vec<_> =
                    found.labels.iter().map(|(key, value)| format!("{key}={value}")).collect();
                format!("has labels {}", labels.join(", "))
            }
        });
        self.add(&address, text);
    }

    fn object(&self, of: &Cluster, query: GetQuery<'_>, answer: &ObjectResult) {
        let text = answer.as_ref().map(|found| if found.is_some() { "exists" } else { "does not exist" });
        self.add(&format_args!("{of}: {}", query.address), text.map(str::to_owned));
    }

    fn page(&self, of: &Cluster, query: ListQuery<'_>, answer: &PageResult) {
        let ListQuery { resource, namespace, .. } = query;
        let place = if namespace.is_empty() { String::new() } else { format!(" in namespace {namespace:?}") };
        self.add(&format_args!("{of}: {resource}{place}"), counted(answer));
    }

    fn members(&self, _: &Fleet, answer: &MembersResult) {
        self.add(&"the fleet", named(answer));
    }

    fn etcd(&self, endpoint: &Endpoint, request: EtcdRequest, answer: &EtcdResult) {
        let subject = match answer {
            // The answer says what it counts.
            Ok(etcd::EtcdResponse::Alarms(_)) => format!("{endpoint}:"),
            _ => format!("{endpoint}: {}:", etcd_request(request)),
        };
        self.add(&subject, answer.as_ref().map(etcd_answer));
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::time::{Duration, Instant};

    use cluster::fleet::{LOCAL, Part};
    use cluster::testing::{FakeWorld, RequestFault};
    use cluster::{Context, Metadata, Resource, cause};
    use serde_json::json;

    use super::*;
    use crate::clients::observe::observed;

    #[test]
    fn forwards_every_request_and_records_every_answer() {
        let facts = Arc::new(FactLog::default());
        // The cache has a namespace that the List does not have.
        let world = FakeWorld::of_etcd(1).with(|content| {
            content.page_size = 1;
            content.insert("namespaces.v1", json!({"metadata": {"name": "docs"}}));
            let key = (Resource::NAMESPACES, String::new(), "shop".to_owned());
            content.cluster(LOCAL).cached.insert(key, Arc::new(Metadata::default()));
            content.add_member_cluster("m1", &[]);
            content.add_member_cluster("m2", &[]);
            content.insert_in("m1", "namespaces.v1", json!({"metadata": {"name": "shop"}}));
            let fails = |code, text: &str| RequestFault::Fails(Cause::new(code, text));
            content.fault("m1: namespaces/v1", fails(cause::TIMEOUT, "no answer"));
            content.fault("etcd: etcd-0 alarms", fails(cause::NO_QUORUM, "no leader"));
        });
        let clients = observed(&world.clients(), &facts, Context::default());
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        let deadline = Instant::now() + Duration::from_secs(5);
        let address = Address { resource: &Resource::NAMESPACES, namespace: "", name: "shop" };
        let member = Cluster::Member("m1".into());
        let look = GetQuery { address, part: Part::Metadata };
        let query = ListQuery {
            resource: &Resource::NAMESPACES,
            namespace: "",
            field_selector: "",
            label_selector: "",
            part: Part::Metadata,
            limit: 1,
            continue_token: None,
        };
        let peer = Endpoint {
            namespace: "shop".to_owned(),
            name: "etcd-0".to_owned(),
            uid: "u".to_owned(),
            address: "10.0.0.1".to_owned(),
            port: 2379,
            client: Arc::default(),
        };
        runtime.block_on(async {
            assert!(clients.reader.get(address, deadline).await.unwrap().is_some());
            assert!(clients.reader.get_uncached(address, deadline).await.unwrap().is_none());
            assert_eq!(clients.reader.members(&Fleet::Karmada, deadline).await.unwrap().len(), 2);
            assert_eq!(
                clients.reader.get_object(&member, look, deadline).await.unwrap().unwrap().name,
                "shop"
            );
            assert!(clients.reader.list(&Cluster::Local, query, deadline).await.unwrap().next.is_some());
            assert_eq!(clients.reader.list(&member, query, deadline).await.unwrap_err().code, cause::TIMEOUT);
            assert!(clients.etcd.call(&peer, EtcdRequest::Status, deadline).await.is_ok());
            assert!(clients.etcd.call(&peer, EtcdRequest::Read, deadline).await.is_ok());
            let alarms = clients.etcd.call(&peer, EtcdRequest::Alarms, deadline).await;
            assert_eq!(alarms.unwrap_err().code, cause::NO_QUORUM);
        });
        let here = Cluster::Local;
        assert_eq!(
            facts.take(),
            [
                r#"namespace "shop" has no labels"#.to_owned(),
                r#"namespace "shop" does not exist"#.to_owned(),
                "the fleet has m1, m2".to_owned(),
                r#"m1: namespace "shop" exists"#.to_owned(),
                format!("{here}: namespaces are 1 and more"),
                "m1: namespaces unknown (timeout): no answer".to_owned(),
                "etcd-0: status: leader a, term 4".to_owned(),
                "etcd-0: linearizable read: served".to_owned(),
                "etcd-0: alarms: unknown (no-quorum): no leader".to_owned(),
            ]
        );
        assert_eq!(facts.take(), [""; 0]);
    }
}
