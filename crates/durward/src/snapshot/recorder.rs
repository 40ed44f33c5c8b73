//! A world that keeps what was asked of another one, and what came of it.

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Instant, SystemTime};

use admission::{BoxFuture, Cause};
use cluster::etcd::{Answered, Peer, Question};
use cluster::fleet::{Cluster, Fleet, Found, Listed, Look, Member, Members, Object, PageSize, Part, Query};
use cluster::snapshot::Recording;
use cluster::{Address, Answer, Reader, Resource, cause};

use super::recording::{List, Log};
use crate::fleet::ANSWER_WITHIN;

/// As many as the guard asks for in one page.
const PAGE: u32 = 500;

/// Another world, and what it told.
pub(super) struct Recorder<'w> {
    world: &'w dyn Reader,
    time: SystemTime,
    log: Mutex<Log>,
}

impl<'w> Recorder<'w> {
    /// Nothing is recorded yet.
    pub(super) fn over(world: &'w dyn Reader) -> Self {
        Self { world, time: world.now(), log: Mutex::default() }
    }

    /// Lists a resource of the control plane, all of it.
    pub(super) async fn read_all(&self, resource: &Resource, part: Part) {
        let list = List { namespace: String::new(), fields: String::new(), part };
        self.read(&Cluster::Here, resource, &list).await;
    }

    /// Reads to their last page the Lists of which only the beginning was looked at: a recording must not say that there is no
    /// more where nobody turned the page. And anew what guards wanted in different forms.
    pub(super) async fn read_to_the_end(&self) {
        let mixed = self.log().take_mixed();
        for (of, resource, list) in mixed {
            self.read(&of, &resource, &list).await;
        }
        let open = self.log().open();
        for (of, resource, list) in open {
            self.read(&of, &resource, &list).await;
        }
    }

    /// What is to be written, and what could be read in part only.
    pub(super) fn recording(self) -> (Recording, Vec<String>) {
        let mut log = self.log.into_inner().unwrap_or_else(PoisonError::into_inner);
        let pods = log.pods();
        let (clusters, beside) = log.clusters();
        (Recording { time: self.time, clusters, pods }, beside)
    }

    async fn read(&self, of: &Cluster, resource: &Resource, list: &List) {
        let (mut objects, mut from, mut size) = (Vec::new(), None::<String>, PageSize::of(PAGE));
        let end: Result<(), Cause> = loop {
            let query = list.query(resource, size.limit(), from.as_deref());
            let page = match self.world.list(of, query, Instant::now() + ANSWER_WITHIN).await {
                Ok(page) => page,
                Err(why) if size.shrinks_for(&why) => continue,
                Err(why) => break Err(why),
            };
            objects.extend(page.objects);
            match page.next {
                None => break Ok(()),
                Some(next) if from.as_ref() == Some(&next) => {
                    let text = format!("it gives the same page of {resource} again and again");
                    break Err(Cause::new(cause::GARBAGE, text));
                }
                next => from = next,
            }
        };
        let mut log = self.log();
        log.listed(of, resource, list, objects);
        log.ended(of, resource, list, end);
    }

    fn log(&self) -> MutexGuard<'_, Log> {
        self.log.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The list of the fleet is itself a List of the control plane's; that of contexts is not of any cluster's.
    fn fleet(&self, fleet: &Fleet, members: &Members) {
        let (stem, namespace) = match fleet {
            Fleet::Karmada => ("cluster.karmada.io_v1alpha1_clusters", ""),
            Fleet::Secrets { namespace } => ("core_v1_secrets", namespace.as_str()),
            Fleet::Alone | Fleet::Contexts(_) => ("", ""),
        };
        let mut log = self.log();
        log.is_there(&Cluster::Here);
        for member in members.iter().flat_map(|members| members.iter()) {
            log.is_there(&member.cluster);
        }
        let Some(resource) = Resource::from_stem(stem) else { return };
        let list = List { namespace: namespace.to_owned(), fields: String::new(), part: Part::Metadata };
        let object = |member: &Member| Object {
            namespace: namespace.to_owned(),
            name: member.cluster.name().to_owned(),
            metadata: member.metadata.clone(),
            ..Object::default()
        };
        let objects = members.iter().flat_map(|members| members.iter()).map(object).collect();
        log.listed(&Cluster::Here, &resource, &list, objects);
        log.ended(&Cluster::Here, &resource, &list, members.as_ref().map(drop).map_err(Clone::clone));
    }
}

impl Reader for Recorder<'_> {
    fn get<'a>(&'a self, address: Address<'a>, deadline: Instant) -> BoxFuture<'a, Answer> {
        self.world.get(address, deadline)
    }

    fn ask<'a>(&'a self, address: Address<'a>, deadline: Instant) -> BoxFuture<'a, Answer> {
        self.world.ask(address, deadline)
    }

    fn members<'a>(&'a self, fleet: &'a Fleet, deadline: Instant) -> BoxFuture<'a, Members> {
        Box::pin(async move {
            let members = self.world.members(fleet, deadline).await;
            self.fleet(fleet, &members);
            members
        })
    }

    fn find<'a>(&'a self, of: &'a Cluster, look: Look<'a>, deadline: Instant) -> BoxFuture<'a, Found> {
        Box::pin(async move {
            let asked = self.log().asked(of, look.address.resource);
            let found = self.world.find(of, look, deadline).await;
            self.log().found(asked, look, &found);
            found
        })
    }

    fn list<'a>(&'a self, of: &'a Cluster, query: Query<'a>, deadline: Instant) -> BoxFuture<'a, Listed> {
        Box::pin(async move {
            let list = List::of(&query);
            let asked = self.log().asked(of, query.resource);
            let listed = self.world.list(of, query, deadline).await;
            let mut log = self.log();
            log.answered(asked);
            match &listed {
                Ok(page) => {
                    log.listed(of, query.resource, &list, page.objects.clone());
                    match page.next {
                        Some(_) => log.begun(of, query.resource, &list),
                        None => log.ended(of, query.resource, &list, Ok(())),
                    }
                }
                // It is asked for again in smaller pages.
                Err(why) if why.code == cause::TOO_LONG && query.limit > 1 => {}
                // Its beginning is there: whether the rest can be read shows when there is time for it.
                Err(_) if query.from.is_some() => log.begun(of, query.resource, &list),
                Err(why) => log.ended(of, query.resource, &list, Err(why.clone())),
            }
            drop(log);
            listed
        })
    }

    fn etcd<'a>(&'a self, peer: &'a Peer, question: Question, deadline: Instant) -> BoxFuture<'a, Answered> {
        Box::pin(async move {
            self.log().asked_of(peer, question);
            let answer = self.world.etcd(peer, question, deadline).await;
            self.log().answered_by(peer, question, answer.clone());
            answer
        })
    }

    fn here(&self) -> Option<&str> {
        self.world.here()
    }

    fn is_recorded(&self) -> bool {
        self.world.is_recorded()
    }

    fn now(&self) -> SystemTime {
        self.time
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;
    use std::future::ready;
    use std::time::Duration;

    use cluster::fleet::Page;
    use cluster::{Metadata, Offline, etcd};

    use super::*;

    /// One member with a namespace and three pods, one a page; the pages of another end half way.
    struct Fake;

    fn named(name: &str) -> Object {
        Object { namespace: "shop".to_owned(), name: name.to_owned(), ..Object::default() }
    }

    impl Reader for Fake {
        fn get<'a>(&'a self, address: Address<'a>, deadline: Instant) -> BoxFuture<'a, Answer> {
            Offline.get(address, deadline)
        }

        fn members<'a>(&'a self, _: &'a Fleet, _: Instant) -> BoxFuture<'a, Members> {
            let member =
                |name: &str| Member { cluster: Cluster::Member(name.into()), metadata: Metadata::default() };
            Box::pin(ready(Ok([member("m1"), member("m2")].into())))
        }

        fn find<'a>(&'a self, of: &'a Cluster, look: Look<'a>, _: Instant) -> BoxFuture<'a, Found> {
            let object = Object { namespace: String::new(), ..named(look.address.name) };
            Box::pin(ready(match of.name() {
                "here" => Ok(None),
                _ => Ok(Some(object)),
            }))
        }

        fn list<'a>(&'a self, of: &'a Cluster, query: Query<'a>, _: Instant) -> BoxFuture<'a, Listed> {
            let page = match (of.name(), query.from) {
                (_, None) => Ok(Page { objects: vec![named("a")], next: Some("1".to_owned()) }),
                ("m2", Some(_)) => Err(Cause::new(cause::BUSY, "the page expired")),
                (_, Some("1")) => Ok(Page { objects: vec![named("b")], next: Some("2".to_owned()) }),
                (_, Some(_)) => Ok(Page { objects: vec![named("c")], next: None }),
            };
            Box::pin(ready(page))
        }
    }

    fn names(objects: &[Object]) -> BTreeSet<&str> {
        objects.iter().map(|object| object.name.as_str()).collect()
    }

    fn soon() -> Instant {
        Instant::now() + Duration::from_secs(5)
    }

    #[tokio::test]
    async fn a_list_of_which_one_page_was_looked_at_is_recorded_to_its_end_or_not_at_all() {
        let recorder = Recorder::over(&Fake);
        let pods = Resource::from_stem("core_v1_pods").unwrap();
        let query = Query {
            resource: &pods,
            namespace: "shop",
            fields: "status.phase!=Failed",
            part: Part::Metadata,
            limit: 1,
            from: None,
        };
        let members = recorder.members(&Fleet::Karmada, soon()).await.unwrap();
        for member in members.iter() {
            recorder.list(&member.cluster, query, soon()).await.unwrap();
        }
        recorder.read_to_the_end().await;
        let (recording, beside) = recorder.recording();
        let [here, m1, m2] = &recording.clusters[..] else { panic!("{:?}", recording.clusters) };
        assert_eq!(names(&here.lists[0].objects), ["m1", "m2"].into());
        assert_eq!((here.lists[0].names.as_ref(), here.lists[0].namespaces.as_ref()), (None, None));
        assert_eq!(names(&m1.lists[0].objects), ["a", "b", "c"].into());
        assert_eq!(m1.lists[0].fields, "status.phase!=Failed");
        assert_eq!(m1.lists[0].namespaces.clone().unwrap(), ["shop".to_owned()].into());
        assert!(m2.lists.is_empty() && beside.is_empty(), "half a List looks like a whole one");
        assert_eq!((m2.unread[0].what.as_ref(), m2.unread[0].cause.code), (Some(&pods), cause::BUSY));
    }

    #[tokio::test]
    async fn what_comes_in_smaller_pages_or_later_is_recorded_and_not_that_it_first_did_not() {
        struct Long(std::sync::atomic::AtomicBool);
        impl Reader for Long {
            fn get<'a>(&'a self, address: Address<'a>, deadline: Instant) -> BoxFuture<'a, Answer> {
                Offline.get(address, deadline)
            }
            fn list<'a>(&'a self, _: &'a Cluster, query: Query<'a>, _: Instant) -> BoxFuture<'a, Listed> {
                Box::pin(ready(match (query.limit, query.from) {
                    (51.., _) => Err(Cause::new(cause::TOO_LONG, "longer than 8 MiB")),
                    (_, None) => Ok(Page { objects: vec![named("a")], next: Some("1".to_owned()) }),
                    _ if !self.0.swap(true, std::sync::atomic::Ordering::Relaxed) => {
                        Err(Cause::new(cause::TIMEOUT, "no answer"))
                    }
                    _ => Ok(Page { objects: vec![named("b")], next: None }),
                }))
            }
        }
        let world = Long(false.into());
        let recorder = Recorder::over(&world);
        let pods = Resource::from_stem("core_v1_pods").unwrap();
        let query = |limit, from| Query {
            resource: &pods,
            namespace: "shop",
            fields: "",
            part: Part::Metadata,
            limit,
            from,
        };
        for (limit, from) in [(500, None), (50, None), (50, Some("1"))] {
            drop(recorder.list(&Cluster::Here, query(limit, from), soon()).await);
        }
        recorder.read_to_the_end().await;
        let (recording, beside) = recorder.recording();
        assert_eq!(names(&recording.clusters[0].lists[0].objects), ["a", "b"].into());
        assert!(beside.is_empty() && recording.clusters[0].unread.is_empty(), "{beside:?}");
    }

    #[tokio::test]
    async fn what_was_looked_up_says_which_names() {
        let recorder = Recorder::over(&Fake);
        let look = |name| Look {
            address: Address { resource: &Resource::NAMESPACES, namespace: "", name },
            part: Part::Metadata,
        };
        let m1 = Cluster::Member("m1".into());
        for (of, name) in [(&Cluster::Here, "shop"), (&m1, "shop"), (&m1, "docs")] {
            recorder.find(of, look(name), soon()).await.unwrap();
        }
        let (recording, beside) = recorder.recording();
        let [here, m1] = &recording.clusters[..] else { panic!("{:?}", recording.clusters) };
        assert_eq!(here.lists[0].names.clone().unwrap(), ["shop".to_owned()].into());
        assert!(here.lists[0].objects.is_empty());
        assert!(beside.is_empty());
        assert_eq!(names(&m1.lists[0].objects), ["docs", "shop"].into());
    }

    #[tokio::test]
    async fn a_question_that_was_given_up_is_recorded_as_unanswered() {
        struct Silent;
        impl Reader for Silent {
            fn get<'a>(&'a self, address: Address<'a>, deadline: Instant) -> BoxFuture<'a, Answer> {
                Offline.get(address, deadline)
            }
            fn find<'a>(&'a self, _: &'a Cluster, _: Look<'a>, _: Instant) -> BoxFuture<'a, Found> {
                Box::pin(std::future::pending())
            }
        }
        let recorder = Recorder::over(&Silent);
        let look = Look {
            address: Address { resource: &Resource::NAMESPACES, namespace: "", name: "shop" },
            part: Part::Metadata,
        };
        let asked = recorder.find(&Cluster::Here, look, soon());
        assert!(tokio::time::timeout(Duration::from_millis(1), asked).await.is_err());
        let (recording, beside) = recorder.recording();
        assert_eq!(recording.clusters[0].unread[0].cause.code, cause::TIMEOUT);
        assert!(beside.is_empty());
    }

    #[tokio::test]
    async fn what_members_of_an_ensemble_answered_is_recorded_and_what_they_did_not() {
        struct Etcd;
        impl Reader for Etcd {
            fn get<'a>(&'a self, address: Address<'a>, deadline: Instant) -> BoxFuture<'a, Answer> {
                Offline.get(address, deadline)
            }
            fn etcd<'a>(&'a self, _: &'a Peer, question: Question, _: Instant) -> BoxFuture<'a, Answered> {
                match question {
                    Question::Read => Box::pin(ready(Ok(etcd::Answer::Read(etcd::Read::Served)))),
                    _ => Box::pin(std::future::pending()),
                }
            }
        }
        let peer = Peer {
            namespace: "shop".to_owned(),
            name: "etcd-0".to_owned(),
            uid: "u".to_owned(),
            address: "10.0.0.1".to_owned(),
            port: 2379,
            client: std::sync::Arc::default(),
        };
        let recorder = Recorder::over(&Etcd);
        recorder.etcd(&peer, Question::Read, soon()).await.unwrap();
        let given_up = recorder.etcd(&peer, Question::Status, soon());
        assert!(tokio::time::timeout(Duration::from_millis(1), given_up).await.is_err());
        let (recording, _) = recorder.recording();
        let [pod] = &recording.pods[..] else { panic!("{:?}", recording.pods) };
        assert_eq!((pod.namespace.as_str(), pod.name.as_str(), pod.uid.as_str()), ("shop", "etcd-0", "u"));
        assert_eq!(pod.answers[&Question::Read], Ok(etcd::Answer::Read(etcd::Read::Served)));
        assert_eq!(pod.answers[&Question::Status].as_ref().unwrap_err().code, cause::TIMEOUT);
    }

    #[tokio::test]
    async fn what_failed_beside_something_certain_is_told() {
        struct Once(std::sync::atomic::AtomicBool);
        impl Reader for Once {
            fn get<'a>(&'a self, address: Address<'a>, deadline: Instant) -> BoxFuture<'a, Answer> {
                Offline.get(address, deadline)
            }
            fn find<'a>(&'a self, _: &'a Cluster, _: Look<'a>, _: Instant) -> BoxFuture<'a, Found> {
                let was_asked = self.0.swap(true, std::sync::atomic::Ordering::Relaxed);
                Box::pin(ready(if was_asked { Err(Cause::new(cause::BUSY, "later")) } else { Ok(None) }))
            }
        }
        let world = Once(false.into());
        let recorder = Recorder::over(&world);
        for name in ["shop", "docs"] {
            let address = Address { resource: &Resource::NAMESPACES, namespace: "", name };
            drop(recorder.find(&Cluster::Here, Look { address, part: Part::Metadata }, soon()).await);
        }
        let (recording, beside) = recorder.recording();
        assert_eq!(recording.clusters[0].lists[0].names.clone().unwrap(), ["shop".to_owned()].into());
        assert_eq!(beside, ["part of namespaces of here: later"]);
    }
}
