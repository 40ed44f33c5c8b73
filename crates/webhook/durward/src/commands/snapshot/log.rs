//! Groups recorded answers as a snapshot stores them: a List for each resource of each cluster, or the cause why there is none.

use std::collections::{BTreeMap, BTreeSet};

use admission::Cause;
use cluster::etcd::{Endpoint, EtcdRequest, EtcdResult};
use cluster::fleet::{Cluster, GetQuery, ListQuery, Object, ObjectResult, Part};
use cluster::world::{ClusterContent, EtcdAnswers, ObjectList, Scope, World};
use cluster::{Resource, cause};

/// The selection of a List.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct ListSelection {
    /// The namespace; empty for all.
    pub(super) namespace: String,
    pub(super) fields: String,
    pub(super) labels: String,
    pub(super) part: Part,
}

impl ListSelection {
    /// The metadata of all objects in a namespace; empty for all.
    pub(super) fn all_in(namespace: &str) -> Self {
        let (fields, labels) = (String::new(), String::new());
        Self { namespace: namespace.to_owned(), fields, labels, part: Part::Metadata }
    }

    pub(super) fn of(query: &ListQuery<'_>) -> Self {
        Self {
            namespace: query.namespace.to_owned(),
            fields: query.field_selector.to_owned(),
            labels: query.label_selector.to_owned(),
            part: query.part,
        }
    }

    pub(super) fn query<'q>(
        &'q self,
        resource: &'q Resource,
        limit: u32,
        from: Option<&'q str>,
    ) -> ListQuery<'q> {
        let Self { namespace, fields, labels, part } = self;
        ListQuery {
            resource,
            namespace,
            field_selector: fields,
            label_selector: labels,
            part: *part,
            limit,
            continue_token: from,
        }
    }
}

/// All recorded answers.
#[derive(Debug, Default)]
pub(super) struct Log {
    clusters: BTreeMap<Cluster, BTreeMap<Resource, RecordedResource>>,
    /// Etcd members by namespace and name. If several pods have one name, the last one counts.
    pods: BTreeMap<(String, String), EtcdAnswers>,
}

/// The answers for one resource of one cluster.
#[derive(Debug, Default)]
struct RecordedResource {
    objects: BTreeMap<(String, String), Object>,
    /// Names with a certain answer.
    names: BTreeSet<String>,
    /// Namespaces that were listed completely; the empty name means all.
    namespaces: BTreeSet<String>,
    /// The field selector. A snapshot has one List per resource.
    fields: String,
    /// Whether whole objects were requested.
    is_whole: bool,
    /// All requested Lists.
    lists: BTreeSet<ListSelection>,
    /// Lists with unread pages.
    open: BTreeSet<ListSelection>,
    pending: usize,
    failure: Option<Cause>,
}

impl Log {
    /// Records that a cluster exists.
    pub(super) fn is_there(&mut self, of: &Cluster) {
        self.clusters.entry(of.clone()).or_default();
    }

    /// Counts a request. Without an answer it stays pending.
    pub(super) fn requested(&mut self, of: &Cluster, resource: &Resource) {
        self.read(of, resource).pending += 1;
    }

    /// Counts an answer.
    pub(super) fn answered(&mut self, of: &Cluster, resource: &Resource) {
        self.read(of, resource).pending -= 1;
    }

    /// Records the answer to a request for one object.
    pub(super) fn object(&mut self, of: &Cluster, look: GetQuery<'_>, found: &ObjectResult) {
        self.answered(of, look.address.resource);
        let read = self.read(of, look.address.resource);
        read.is_whole |= look.part == Part::Whole;
        match found {
            Ok(object) => {
                read.names.insert(look.address.name.to_owned());
                if let Some(object) = object {
                    read.put(object.clone());
                }
            }
            Err(why) => read.failure = Some(why.clone()),
        }
    }

    /// Records objects of a List.
    pub(super) fn listed(
        &mut self,
        of: &Cluster,
        resource: &Resource,
        list: &ListSelection,
        objects: Vec<Object>,
    ) {
        let read = self.read(of, resource);
        read.lists.insert(list.clone());
        read.fields.clone_from(&list.fields);
        read.is_whole |= list.part == Part::Whole;
        for object in objects {
            read.put(object);
        }
    }

    /// Records that a List has more pages.
    pub(super) fn begun(&mut self, of: &Cluster, resource: &Resource, list: &ListSelection) {
        self.read(of, resource).open.insert(list.clone());
    }

    /// Records the end of a List: its last page or a failure.
    pub(super) fn ended(
        &mut self,
        of: &Cluster,
        resource: &Resource,
        list: &ListSelection,
        end: Result<(), Cause>,
    ) {
        let read = self.read(of, resource);
        read.open.remove(list);
        match end {
            Ok(()) => drop(read.namespaces.insert(list.namespace.clone())),
            Err(why) => read.failure = Some(why),
        }
    }

    /// Records a request to an etcd member as unanswered.
    pub(super) fn asked_of(&mut self, peer: &Endpoint, question: EtcdRequest) {
        let unanswered = question.failed(&peer.name, &Cause::new(cause::TIMEOUT, "no answer in time"));
        self.pod(peer).answers.entry(question).or_insert(Err(unanswered));
    }

    /// Records the answer of an etcd member.
    pub(super) fn answered_by(&mut self, peer: &Endpoint, question: EtcdRequest, answer: EtcdResult) {
        self.pod(peer).answers.insert(question, answer);
    }

    fn pod(&mut self, peer: &Endpoint) -> &mut EtcdAnswers {
        let new = || EtcdAnswers { uid: peer.uid.clone(), ..EtcdAnswers::default() };
        let pod = self.pods.entry((peer.namespace.clone(), peer.name.clone())).or_insert_with(new);
        if pod.uid != peer.uid {
            *pod = new();
        }
        pod
    }

    /// Returns and clears resources of which guards requested different selections, for example all pods and unfinished pods. A
    /// snapshot has one List per resource, so they are read again in a form that answers all requests. Single objects stay.
    pub(super) fn take_mixed(&mut self) -> Vec<(Cluster, Resource, ListSelection)> {
        let mut again = Vec::new();
        for (of, resources) in &mut self.clusters {
            for (resource, read) in resources {
                let asked: BTreeSet<_> = read.lists.iter().map(|list| (&list.fields, list.part)).collect();
                // A snapshot has no Lists by labels.
                let is_by_labels = read.lists.iter().any(|list| !list.labels.is_empty());
                let is_partial = read.is_whole && read.lists.iter().any(|list| list.part == Part::Metadata);
                if asked.len() < 2 && !is_partial && !is_by_labels {
                    continue;
                }
                let namespaces: BTreeSet<String> =
                    read.lists.iter().map(|list| list.namespace.clone()).collect();
                let is_all = namespaces.contains("");
                read.objects.retain(|(namespace, _), _| !is_all && !namespaces.contains(namespace));
                read.lists.clear();
                read.open.clear();
                read.namespaces.clear();
                let namespaces = if is_all { BTreeSet::from([String::new()]) } else { namespaces };
                again.extend(namespaces.into_iter().map(|namespace| {
                    let list = ListSelection { part: Part::Whole, ..ListSelection::all_in(&namespace) };
                    (of.clone(), resource.clone(), list)
                }));
            }
        }
        again
    }

    /// Returns Lists with unread pages.
    pub(super) fn open(&self) -> Vec<(Cluster, Resource, ListSelection)> {
        let of_cluster = |(of, resources): (&Cluster, &BTreeMap<Resource, RecordedResource>)| {
            let of = of.clone();
            let lists = resources.iter().flat_map(|(resource, read)| {
                read.open.iter().map(|list| (resource.clone(), list.clone())).collect::<Vec<_>>()
            });
            lists.map(move |(resource, list)| (of.clone(), resource, list)).collect::<Vec<_>>()
        };
        self.clusters.iter().flat_map(of_cluster).collect()
    }

    /// Returns what was read, and the failures of partly read Lists. A snapshot can't contain such a failure. The unread objects
    /// are missing in it, which means Unknown.
    pub(super) fn into_world(mut self) -> (World, Vec<String>) {
        self.is_there(&Cluster::Local);
        let mut world = World { etcd: self.pods, ..World::default() };
        let mut extra_failures = Vec::new();
        for (of, resources) in self.clusters {
            let content = content(&of, resources, &mut extra_failures);
            world.clusters.insert(of.name().to_owned(), content);
        }
        (world, extra_failures)
    }

    fn read(&mut self, of: &Cluster, resource: &Resource) -> &mut RecordedResource {
        self.clusters.entry(of.clone()).or_default().entry(resource.clone()).or_default()
    }
}

fn content(
    of: &Cluster,
    resources: BTreeMap<Resource, RecordedResource>,
    extra_failures: &mut Vec<String>,
) -> ClusterContent {
    let mut content = ClusterContent::default();
    for (resource, mut read) in resources {
        let unanswered = || Cause::new(cause::TIMEOUT, format!("{resource}: no answer in time"));
        let failure = read.failure.take().or_else(|| (read.pending > 0).then(unanswered));
        match (read.list(), failure) {
            (Some(list), failure) => {
                extra_failures
                    .extend(failure.map(|cause| format!("part of {resource} of {of}: {}", cause.text)));
                content.lists.insert(resource, Ok(list));
            }
            (None, Some(cause)) => drop(content.lists.insert(resource, Err(cause))),
            (None, None) => {}
        }
    }
    content
}

impl RecordedResource {
    /// Adds an object, unless the whole object is recorded already.
    fn put(&mut self, object: Object) {
        let key = (object.namespace.clone(), object.name.clone());
        match self.objects.get_mut(&key) {
            Some(kept) if object.raw.is_none() && kept.raw.is_some() => {}
            Some(kept) => *kept = object,
            None => drop(self.objects.insert(key, object)),
        }
    }

    /// Returns the List if something about it is certain: all objects, all of some namespaces, or some names.
    fn list(self) -> Option<ObjectList> {
        let Self { objects, names, namespaces, fields, is_whole, .. } = self;
        // Listed objects can be metadata only. A List has whole objects or none.
        let is_mixed = is_whole && !names.is_empty() && objects.values().any(|object| object.raw.is_none());
        let namespaces = if is_mixed { BTreeSet::new() } else { namespaces };
        let is_all = namespaces.contains("");
        let (namespaces, names) = match (is_all, namespaces.is_empty(), names.is_empty()) {
            (true, ..) => (None, None),
            (false, false, _) => (Some(namespaces), None),
            (false, true, false) => (None, Some(names)),
            (false, true, true) => return None,
        };
        let is_told = |object: &Object| {
            namespaces.as_ref().is_none_or(|some| some.contains(&object.namespace))
                && names.as_ref().is_none_or(|some| some.contains(&object.name))
        };
        let objects: Vec<Object> = objects.into_values().filter(is_told).collect();
        let is_whole = is_whole && objects.iter().all(|object| object.raw.is_some());
        let mut list = ObjectList::new(Scope { is_whole, fields, namespaces, names });
        for object in objects {
            list.insert(object);
        }
        Some(list)
    }
}
