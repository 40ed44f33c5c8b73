//! Records requests and answers for a snapshot.

use std::sync::{Arc, Mutex, MutexGuard};
use std::time::SystemTime;

use admission::lock;
use cluster::etcd::{Endpoint, EtcdRequest, EtcdResult};
use cluster::fleet::{
    Cluster, Fleet, FleetMember, GetQuery, ListQuery, MembersResult, Object, ObjectResult, PageResult, Part,
};
use cluster::world::World;
use cluster::{Clients, Context, PAGE_LIMIT, Pages, Resource, cause};

use super::log::{ListSelection, Log};
use crate::clients::fleet::ANSWER_WITHIN;
use crate::clients::observe::{Observer, observed};

/// Recorded requests and answers.
pub(super) struct Recorder {
    inner: Clients,
    time: SystemTime,
    log: Mutex<Log>,
}

impl Recorder {
    /// Records what is read through these clients.
    pub(super) fn over(inner: Clients) -> Arc<Self> {
        let time = inner.context.now();
        Arc::new(Self { inner, time, log: Mutex::default() })
    }

    /// Returns clients whose reads are recorded.
    pub(super) fn clients(self: &Arc<Self>) -> Clients {
        let context = Context { fixed_time: Some(self.time), ..self.inner.context.clone() };
        observed(&self.inner, self, context)
    }

    /// Lists all objects of a resource of the control plane.
    pub(super) async fn read_all(&self, resource: &Resource, part: Part) {
        let list = ListSelection { part, ..ListSelection::all_in("") };
        self.read(&Cluster::Local, resource, &list).await;
    }

    /// Reads Lists with unread pages completely, because a snapshot must not turn unread pages into an end. Also repeats Lists
    /// that guards requested with different selections.
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

    /// Returns the snapshot and the failures that it can't contain.
    pub(super) fn world(&self) -> (World, Vec<String>) {
        let (world, extra_failures) = std::mem::take(&mut *self.log()).into_world();
        (World { time: Some(self.time), ..world }, extra_failures)
    }

    async fn read(&self, of: &Cluster, resource: &Resource, list: &ListSelection) {
        let (query, reader) = (list.query(resource, PAGE_LIMIT, None), self.inner.reader.as_ref());
        let mut pages = Pages::with_page_timeout(reader, of, query, ANSWER_WITHIN);
        let mut objects = Vec::new();
        let end = loop {
            match pages.next().await {
                Ok(Some(page)) => objects.extend(page.objects),
                Ok(None) => break Ok(()),
                Err(why) => break Err(why),
            }
        };
        let mut log = self.log();
        log.listed(of, resource, list, objects);
        log.ended(of, resource, list, end);
    }

    fn log(&self) -> MutexGuard<'_, Log> {
        lock(&self.log)
    }

    /// Records the member clusters, which are a List of the control plane, except for contexts.
    fn fleet(&self, fleet: &Fleet, members: &MembersResult) {
        let (resource, namespace) = match fleet {
            Fleet::Karmada => ("clusters.v1alpha1.cluster.karmada.io", ""),
            Fleet::Secrets { namespace } => ("secrets.v1", namespace.as_str()),
            Fleet::None | Fleet::Contexts(_) => ("", ""),
        };
        let mut log = self.log();
        log.is_there(&Cluster::Local);
        for member in members.iter().flat_map(|members| members.iter()) {
            log.is_there(&member.cluster);
        }
        let Some(resource) = Resource::from_argument(resource) else { return };
        let list = ListSelection::all_in(namespace);
        let object = |member: &FleetMember| Object {
            namespace: namespace.to_owned(),
            name: member.cluster.name().to_owned(),
            metadata: member.metadata.clone(),
            ..Object::default()
        };
        let objects = members.iter().flat_map(|members| members.iter()).map(object).collect();
        log.listed(&Cluster::Local, &resource, &list, objects);
        log.ended(&Cluster::Local, &resource, &list, members.as_ref().map(drop).map_err(Clone::clone));
    }
}

impl Observer for Recorder {
    fn requested(&self, of: &Cluster, resource: &Resource) {
        self.log().requested(of, resource);
    }

    fn object(&self, of: &Cluster, query: GetQuery<'_>, answer: &ObjectResult) {
        self.log().object(of, query, answer);
    }

    fn page(&self, of: &Cluster, query: ListQuery<'_>, answer: &PageResult) {
        let list = ListSelection::of(&query);
        let mut log = self.log();
        log.answered(of, query.resource);
        match answer {
            Ok(page) => {
                log.listed(of, query.resource, &list, page.objects.clone());
                match page.next {
                    Some(_) => log.begun(of, query.resource, &list),
                    None => log.ended(of, query.resource, &list, Ok(())),
                }
            }
            // The caller repeats the request with smaller pages.
            Err(why) if why.code == cause::TOO_LONG && query.limit > 1 => {}
            // The first pages were read. `read_to_the_end` reads the rest.
            Err(_) if query.continue_token.is_some() => log.begun(of, query.resource, &list),
            Err(why) => log.ended(of, query.resource, &list, Err(why.clone())),
        }
    }

    fn members(&self, fleet: &Fleet, answer: &MembersResult) {
        self.fleet(fleet, answer);
    }

    fn etcd_requested(&self, endpoint: &Endpoint, request: EtcdRequest) {
        self.log().asked_of(endpoint, request);
    }

    fn etcd(&self, endpoint: &Endpoint, request: EtcdRequest, answer: &EtcdResult) {
        self.log().answered_by(endpoint, request, answer.clone());
    }
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, Instant};

    use admission::Cause;
    use cluster::fleet::LOCAL;
    use cluster::testing::{FakeContent, FakeWorld, RequestFault};
    use cluster::world::ObjectList;
    use cluster::{Address, etcd};
    use serde_json::json;

    use super::*;

    /// Adds a cluster with these pods in the namespace `shop`, one on each page.
    fn add_pods(content: &mut FakeContent, cluster: &str, pods: &[&str]) {
        content.page_size = 1;
        for name in pods {
            content.insert_in(cluster, "pods.v1", json!({"metadata": {"namespace": "shop", "name": name}}));
        }
    }

    fn fails(code: &'static str, text: &str) -> RequestFault {
        RequestFault::Fails(Cause::new(code, text))
    }

    /// Returns the List of a resource that was recorded completely.
    fn list<'w>(world: &'w World, cluster: &str, resource: &Resource) -> &'w ObjectList {
        world.clusters[cluster].lists[resource].as_ref().unwrap()
    }

    fn names(list: &ObjectList) -> Vec<String> {
        list.iter().map(|object| object.name).collect()
    }

    /// Returns the code of a recorded failure.
    fn failure(world: &World, cluster: &str, resource: &Resource) -> &'static str {
        world.clusters[cluster].lists[resource].as_ref().unwrap_err().code
    }

    fn soon() -> Instant {
        Instant::now() + Duration::from_secs(5)
    }

    #[tokio::test]
    async fn records_a_list_completely_or_not_at_all() {
        // Three pods on three pages, and pages that end after the first one.
        let world = FakeWorld::default().with(|content| {
            for name in ["m1", "m2"] {
                content.add_member_cluster(name, &[]);
                add_pods(content, name, &["a", "b", "c"]);
            }
            content.fault("m2: pods/v1 in \"shop\" from", fails(cause::BUSY, "the page expired"));
        });
        let recorder = Recorder::over(world.clients());
        let pods = Resource::from_argument("pods.v1").unwrap();
        let query = ListQuery {
            resource: &pods,
            namespace: "shop",
            field_selector: "status.phase!=Failed",
            label_selector: "",
            part: Part::Metadata,
            limit: 1,
            continue_token: None,
        };
        let members = recorder.clients().reader.members(&Fleet::Karmada, soon()).await.unwrap();
        for member in members.iter() {
            recorder.clients().reader.list(&member.cluster, query, soon()).await.unwrap();
        }
        recorder.read_to_the_end().await;
        let (world, extra_failures) = recorder.world();
        let clusters = Resource::from_argument("clusters.v1alpha1.cluster.karmada.io").unwrap();
        let here = list(&world, LOCAL, &clusters);
        assert_eq!(names(here), ["m1", "m2"]);
        assert_eq!((here.scope.names.as_ref(), here.scope.namespaces.as_ref()), (None, None));
        let m1 = list(&world, "m1", &pods);
        assert_eq!(names(m1), ["a", "b", "c"]);
        assert_eq!(m1.scope.fields, "status.phase!=Failed");
        assert_eq!(m1.scope.namespaces.clone().unwrap(), ["shop".to_owned()].into());
        assert_eq!(failure(&world, "m2", &pods), cause::BUSY, "half a List looks like a whole one");
        assert!(extra_failures.is_empty());
    }

    #[tokio::test]
    async fn records_pages_that_were_read_on_a_second_try() {
        let mut fails_once = Some(fails(cause::TIMEOUT, "no answer"));
        let world = FakeWorld::default().with(|content| {
            add_pods(content, LOCAL, &["a", "b"]);
            content.rules.push(Box::new(move |_, request| match request.list {
                Some(query) if query.limit > 50 => Some(fails(cause::TOO_LONG, "longer than 8 MiB")),
                Some(query) if query.continue_token.is_some() => fails_once.take(),
                _ => None,
            }));
        });
        let recorder = Recorder::over(world.clients());
        let pods = Resource::from_argument("pods.v1").unwrap();
        let query = |limit, from| ListQuery {
            resource: &pods,
            namespace: "shop",
            field_selector: "",
            label_selector: "",
            part: Part::Metadata,
            limit,
            continue_token: from,
        };
        for (limit, from) in [(500, None), (50, None), (50, Some("1"))] {
            drop(recorder.clients().reader.list(&Cluster::Local, query(limit, from), soon()).await);
        }
        recorder.read_to_the_end().await;
        let (world, extra_failures) = recorder.world();
        assert_eq!(names(list(&world, LOCAL, &pods)), ["a", "b"]);
        assert!(extra_failures.is_empty(), "{extra_failures:?}");
    }

    #[tokio::test]
    async fn records_the_names_of_requested_objects() {
        let world = FakeWorld::default().with(|content| {
            for name in ["docs", "shop"] {
                content.insert_in("m1", "namespaces.v1", json!({"metadata": {"name": name}}));
            }
        });
        let recorder = Recorder::over(world.clients());
        let look = |name| GetQuery {
            address: Address { resource: &Resource::NAMESPACES, namespace: "", name },
            part: Part::Metadata,
        };
        let m1 = Cluster::Member("m1".into());
        for (of, name) in [(&Cluster::Local, "shop"), (&m1, "shop"), (&m1, "docs")] {
            recorder.clients().reader.get_object(of, look(name), soon()).await.unwrap();
        }
        let (world, extra_failures) = recorder.world();
        let here = list(&world, LOCAL, &Resource::NAMESPACES);
        assert_eq!(here.scope.names.clone().unwrap(), ["shop".to_owned()].into());
        assert_eq!(here.len(), 0);
        assert!(extra_failures.is_empty());
        assert_eq!(names(list(&world, "m1", &Resource::NAMESPACES)), ["docs", "shop"]);
    }

    #[tokio::test]
    async fn records_an_abandoned_request_as_unanswered() {
        let world = FakeWorld::default().with(|content| content.fault("(local): ", RequestFault::Hangs));
        let recorder = Recorder::over(world.clients());
        let look = GetQuery {
            address: Address { resource: &Resource::NAMESPACES, namespace: "", name: "shop" },
            part: Part::Metadata,
        };
        let clients = recorder.clients();
        let asked = clients.reader.get_object(&Cluster::Local, look, soon());
        assert!(tokio::time::timeout(Duration::from_millis(1), asked).await.is_err());
        let (world, extra_failures) = recorder.world();
        assert_eq!(failure(&world, LOCAL, &Resource::NAMESPACES), cause::TIMEOUT);
        assert!(extra_failures.is_empty());
    }

    #[tokio::test]
    async fn records_answers_of_etcd_members_and_missing_ones() {
        let world =
            FakeWorld::of_etcd(1).with(|content| content.fault("etcd: etcd-0 status", RequestFault::Hangs));
        let peer = Endpoint {
            namespace: "shop".to_owned(),
            name: "etcd-0".to_owned(),
            uid: "u".to_owned(),
            address: "10.0.0.1".to_owned(),
            port: 2379,
            client: Arc::default(),
        };
        let recorder = Recorder::over(world.clients());
        recorder.clients().etcd.call(&peer, EtcdRequest::Read, soon()).await.unwrap();
        let clients = recorder.clients();
        let given_up = clients.etcd.call(&peer, EtcdRequest::Status, soon());
        assert!(tokio::time::timeout(Duration::from_millis(1), given_up).await.is_err());
        let (world, _) = recorder.world();
        let pod = &world.etcd[&("shop".to_owned(), "etcd-0".to_owned())];
        assert_eq!(pod.uid, "u");
        assert_eq!(pod.answers[&EtcdRequest::Read], Ok(etcd::EtcdResponse::Read(etcd::Read::Served)));
        assert_eq!(pod.answers[&EtcdRequest::Status].as_ref().unwrap_err().code, cause::TIMEOUT);
    }

    #[tokio::test]
    async fn reports_failures_in_addition_to_recorded_answers() {
        let world = FakeWorld::default()
            .with(|content| content.fault("(local): namespaces docs", fails(cause::BUSY, "later")));
        let recorder = Recorder::over(world.clients());
        for name in ["shop", "docs"] {
            let address = Address { resource: &Resource::NAMESPACES, namespace: "", name };
            drop(
                recorder
                    .clients()
                    .reader
                    .get_object(&Cluster::Local, GetQuery { address, part: Part::Metadata }, soon())
                    .await,
            );
        }
        let (world, extra_failures) = recorder.world();
        let here = list(&world, LOCAL, &Resource::NAMESPACES);
        assert_eq!(here.scope.names.clone().unwrap(), ["shop".to_owned()].into());
        assert_eq!(extra_failures, ["part of namespaces of this cluster: later"]);
    }
}
