//! A world that remembers what was asked of it, so that `-v` can tell which facts a verdict stands on.

use std::fmt::Display;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Instant, SystemTime};

use admission::{BoxFuture, Cause};
use cluster::etcd::{self, Answered, Peer, Question};
use cluster::fleet::{Cluster, Fleet, Found, Health, Listed, Look, Members, ProbeTargets, Query};
use cluster::{Address, Answer, Reader, Readiness, Resource};

/// Another world, and what it was asked.
pub(crate) struct Witness {
    world: Arc<dyn Reader>,
    facts: Mutex<Vec<String>>,
}

impl Witness {
    /// Over this world.
    pub(crate) fn over(world: Arc<dyn Reader>) -> Self {
        Self { world, facts: Mutex::default() }
    }

    /// What was asked since the last call, and what the answer was.
    pub(crate) fn facts(&self) -> Vec<String> {
        std::mem::take(&mut *self.facts.lock().unwrap_or_else(PoisonError::into_inner))
    }

    fn note(&self, about: &dyn Display, told: Result<String, &Cause>) {
        let told = told.unwrap_or_else(|cause| format!("unknown ({}): {}", cause.code, cause.text));
        let mut facts = self.facts.lock().unwrap_or_else(PoisonError::into_inner);
        let fact = format!("{about} {told}");
        // Asked again and told the same: one fact.
        if facts.last() != Some(&fact) {
            facts.push(fact);
        }
    }

    fn note_labels(&self, address: Address<'_>, answer: &Answer) {
        let told = answer.as_ref().map(|found| match found {
            None => "is not there".to_owned(),
            Some(found) if found.labels.is_empty() => "has no labels".to_owned(),
            Some(found) => {
                let labels: Vec<_> =
                    found.labels.iter().map(|(key, value)| format!("{key}={value}")).collect();
                format!("has labels {}", labels.join(", "))
            }
        });
        self.note(&address, told);
    }
}

/// So many names of clusters are told.
const NAMED: usize = 10;

fn named(members: &Members) -> Result<String, &Cause> {
    let members = members.as_ref()?;
    let names: Vec<_> = members.iter().take(NAMED).map(|member| member.cluster.name()).collect();
    Ok(match (names.is_empty(), members.len().saturating_sub(NAMED)) {
        (true, _) => "has no clusters beside this one".to_owned(),
        (false, 0) => format!("has {}", names.join(", ")),
        (false, more) => format!("has {} and {more} more", names.join(", ")),
    })
}

fn counted(listed: &Listed) -> Result<String, &Cause> {
    let page = listed.as_ref()?;
    let more = if page.next.is_some() { " and more" } else { "" };
    Ok(format!("are {}{more}", page.objects.len()))
}

/// What is worth knowing of a member's answer, in a few words.
fn in_short(answer: &etcd::Answer) -> String {
    match answer {
        etcd::Answer::Status(status) => {
            let role = match status.leader {
                _ if status.is_learner => "is a learner".to_owned(),
                Some(leader) if leader == status.member => "leads".to_owned(),
                Some(leader) => format!("follows {leader:x}"),
                None => "knows no leader".to_owned(),
            };
            format!("is {:x}, {role} in term {}", status.member, status.term)
        }
        etcd::Answer::Members(list) => format!("has {} members", list.members.len()),
        etcd::Answer::Alarms(alarms) => format!("are {}", alarms.len()),
        etcd::Answer::Read(etcd::Read::Served) => "was served".to_owned(),
        etcd::Answer::Read(etcd::Read::Denied) => "was denied to who asks".to_owned(),
        etcd::Answer::Health(health) if health.is_healthy => "is good".to_owned(),
        etcd::Answer::Health(health) => format!("is not good: {}", health.reason),
        etcd::Answer::Metrics(metrics) => match metrics.is_leader {
            Some(true) => "say that it leads".to_owned(),
            Some(false) => "say that it does not lead".to_owned(),
            None => "say nothing of its role".to_owned(),
        },
    }
}

impl Reader for Witness {
    fn get<'a>(&'a self, address: Address<'a>, deadline: Instant) -> BoxFuture<'a, Answer> {
        Box::pin(async move {
            let answer = self.world.get(address, deadline).await;
            self.note_labels(address, &answer);
            answer
        })
    }

    fn ask<'a>(&'a self, address: Address<'a>, deadline: Instant) -> BoxFuture<'a, Answer> {
        Box::pin(async move {
            let answer = self.world.ask(address, deadline).await;
            self.note_labels(address, &answer);
            answer
        })
    }

    fn watch(&self, resource: &Resource) {
        self.world.watch(resource);
    }

    fn members<'a>(&'a self, fleet: &'a Fleet, deadline: Instant) -> BoxFuture<'a, Members> {
        Box::pin(async move {
            let members = self.world.members(fleet, deadline).await;
            self.note(&"the fleet", named(&members));
            members
        })
    }

    fn find<'a>(&'a self, of: &'a Cluster, look: Look<'a>, deadline: Instant) -> BoxFuture<'a, Found> {
        Box::pin(async move {
            let found = self.world.find(of, look, deadline).await;
            let told = found.as_ref().map(|found| if found.is_some() { "is there" } else { "is not there" });
            self.note(&format_args!("{of}: {}", look.address), told.map(str::to_owned));
            found
        })
    }

    fn list<'a>(&'a self, of: &'a Cluster, query: Query<'a>, deadline: Instant) -> BoxFuture<'a, Listed> {
        Box::pin(async move {
            let listed = self.world.list(of, query, deadline).await;
            let Query { resource, namespace, .. } = query;
            let place =
                if namespace.is_empty() { String::new() } else { format!(" in namespace {namespace:?}") };
            self.note(&format_args!("{of}: {resource}{place}"), counted(&listed));
            listed
        })
    }

    fn etcd<'a>(&'a self, peer: &'a Peer, question: Question, deadline: Instant) -> BoxFuture<'a, Answered> {
        Box::pin(async move {
            let answer = self.world.etcd(peer, question, deadline).await;
            self.note(&format_args!("{peer}: {question}"), answer.as_ref().map(in_short));
            answer
        })
    }

    fn start_probes(&self, rounds: ProbeTargets) {
        self.world.start_probes(rounds);
    }

    fn health(&self) -> Vec<Health> {
        self.world.health()
    }

    fn here(&self) -> Option<&str> {
        self.world.here()
    }

    fn is_recorded(&self) -> bool {
        self.world.is_recorded()
    }

    fn now(&self) -> SystemTime {
        self.world.now()
    }

    fn readiness(&self) -> Vec<Readiness> {
        self.world.readiness()
    }
}

#[cfg(test)]
mod tests {
    use std::future::ready;
    use std::time::Duration;

    use cluster::fleet::{Member, Object, Page, Part};
    use cluster::{Metadata, cause};

    use super::*;

    /// Says something of its own to every question, and remembers what it was asked to do.
    #[derive(Default)]
    struct Odd {
        done: Mutex<Vec<&'static str>>,
    }

    impl Odd {
        fn did(&self, what: &'static str) {
            self.done.lock().unwrap().push(what);
        }
    }

    impl Reader for Odd {
        fn get<'a>(&'a self, _: Address<'a>, _: Instant) -> BoxFuture<'a, Answer> {
            Box::pin(ready(Ok(Some(Arc::new(Metadata::default())))))
        }

        fn ask<'a>(&'a self, _: Address<'a>, _: Instant) -> BoxFuture<'a, Answer> {
            Box::pin(ready(Ok(None)))
        }

        fn watch(&self, _: &Resource) {
            self.did("watch");
        }

        fn members<'a>(&'a self, _: &'a Fleet, _: Instant) -> BoxFuture<'a, Members> {
            let member =
                |name: &str| Member { cluster: Cluster::Member(name.into()), metadata: Metadata::default() };
            Box::pin(ready(Ok([member("m1"), member("m2")].into())))
        }

        fn find<'a>(&'a self, _: &'a Cluster, _: Look<'a>, _: Instant) -> BoxFuture<'a, Found> {
            Box::pin(ready(Ok(Some(Object { name: "web".to_owned(), ..Object::default() }))))
        }

        fn list<'a>(&'a self, of: &'a Cluster, _: Query<'a>, _: Instant) -> BoxFuture<'a, Listed> {
            let page = Page { objects: vec![Object::default()], next: Some("2".to_owned()) };
            let gone = Cause::new(cause::TIMEOUT, "no answer");
            Box::pin(ready(if *of == Cluster::Here { Ok(page) } else { Err(gone) }))
        }

        fn etcd<'a>(&'a self, _: &'a Peer, question: Question, _: Instant) -> BoxFuture<'a, Answered> {
            Box::pin(ready(match question {
                Question::Status => {
                    let status = etcd::Status { member: 10, leader: Some(10), term: 2, ..Default::default() };
                    Ok(etcd::Answer::Status(Box::new(status)))
                }
                Question::Read => Ok(etcd::Answer::Read(etcd::Read::Served)),
                _ => Err(Cause::new(cause::NO_QUORUM, "no leader")),
            }))
        }

        fn start_probes(&self, _: ProbeTargets) {
            self.did("go_rounds");
        }

        fn health(&self) -> Vec<Health> {
            vec![Health { cluster: "m1".to_owned(), failures: Vec::new() }]
        }

        fn now(&self) -> SystemTime {
            SystemTime::UNIX_EPOCH + Duration::from_secs(7)
        }

        fn readiness(&self) -> Vec<Readiness> {
            vec![Readiness { name: "pods".to_owned(), ok: true, reason: String::new() }]
        }
    }

    #[test]
    fn forwards_every_request_and_records_every_answer() {
        let odd = Arc::new(Odd::default());
        let witness = Witness::over(Arc::clone(&odd) as Arc<dyn Reader>);
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        let deadline = Instant::now() + Duration::from_secs(5);
        let address = Address { resource: &Resource::NAMESPACES, namespace: "", name: "shop" };
        let member = Cluster::Member("m1".into());
        let look = Look { address, part: Part::Metadata };
        let query = Query {
            resource: &Resource::NAMESPACES,
            namespace: "",
            fields: "",
            part: Part::Metadata,
            limit: 1,
            from: None,
        };
        let peer = Peer {
            namespace: "shop".to_owned(),
            name: "etcd-0".to_owned(),
            uid: "u".to_owned(),
            address: "10.0.0.1".to_owned(),
            port: 2379,
            client: Arc::default(),
        };
        runtime.block_on(async {
            assert!(witness.get(address, deadline).await.unwrap().is_some());
            assert!(witness.ask(address, deadline).await.unwrap().is_none());
            assert_eq!(witness.members(&Fleet::Karmada, deadline).await.unwrap().len(), 2);
            assert_eq!(witness.find(&member, look, deadline).await.unwrap().unwrap().name, "web");
            assert!(witness.list(&Cluster::Here, query, deadline).await.unwrap().next.is_some());
            assert_eq!(witness.list(&member, query, deadline).await.unwrap_err().code, cause::TIMEOUT);
            assert!(witness.etcd(&peer, Question::Status, deadline).await.is_ok());
            assert!(witness.etcd(&peer, Question::Read, deadline).await.is_ok());
            let alarms = witness.etcd(&peer, Question::Alarms, deadline).await;
            assert_eq!(alarms.unwrap_err().code, cause::NO_QUORUM);
        });
        witness.watch(&Resource::NAMESPACES);
        witness.start_probes(ProbeTargets { fleet: Fleet::Karmada, resources: Vec::new() });
        assert_eq!(*odd.done.lock().unwrap(), ["watch", "go_rounds"]);
        assert_eq!((witness.health(), witness.now()), (odd.health(), odd.now()));
        assert_eq!(witness.readiness(), odd.readiness());
        let here = Cluster::Here;
        assert_eq!(
            witness.facts(),
            [
                r#"namespaces "shop" has no labels"#.to_owned(),
                r#"namespaces "shop" is not there"#.to_owned(),
                "the fleet has m1, m2".to_owned(),
                r#"m1: namespaces "shop" is there"#.to_owned(),
                format!("{here}: namespaces are 1 and more"),
                "m1: namespaces unknown (timeout): no answer".to_owned(),
                "etcd-0: its status is a, leads in term 2".to_owned(),
                "etcd-0: a linearizable read was served".to_owned(),
                "etcd-0: the alarms unknown (no-quorum): no leader".to_owned(),
            ]
        );
        assert_eq!(witness.facts(), [""; 0]);
    }
}
