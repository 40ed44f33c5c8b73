//! The content of the world of tests, and its changes.

use std::fmt::Write as _;

use serde_json::Value;
use serde_json::value::to_raw_value;

use super::{FakeEtcd, FaultRule, RequestFault, SentRequest, World, WorldEvent};
use crate::fleet::{LOCAL, Object};
use crate::metadata::Wire;
use crate::world::{ClusterContent, ObjectList, Rest, Scope};
use crate::{Address, Resource};

/// The content of the world, and the log. A cluster has no objects but those that were inserted.
pub struct FakeContent {
    /// The clusters, and the time.
    pub world: World,
    /// The etcd members.
    pub etcd: FakeEtcd,
    /// Rules for faults. A later one overrides.
    pub rules: Vec<FaultRule>,
    /// The largest number of objects on a page. The default is two, so that reading only the first page fails tests.
    pub page_size: usize,
    /// Requests and returned objects, in their order.
    pub events: Vec<WorldEvent>,
    /// Leases that were written and leadership transfers that were tried, in their order: `reserved etcd-1`, `etcd-0 to 11`.
    pub actions: Vec<String>,
    /// The largest number of concurrent requests.
    pub most_in_progress: usize,
    pub(super) in_progress: usize,
}

impl Default for FakeContent {
    fn default() -> Self {
        let mut content = Self {
            world: World::default(),
            etcd: FakeEtcd::default(),
            rules: Vec::new(),
            page_size: 2,
            events: Vec::new(),
            actions: Vec::new(),
            most_in_progress: 0,
            in_progress: 0,
        };
        content.cluster(LOCAL);
        content
    }
}

impl FakeContent {
    /// Returns a cluster by its name. A new one is empty.
    pub fn cluster(&mut self, name: &str) -> &mut ClusterContent {
        let empty = || ClusterContent { rest: Rest::Empty, ..ClusterContent::default() };
        self.world.clusters.entry(name.to_owned()).or_insert_with(empty)
    }

    /// Adds a member cluster of Karmada, with these annotations of its Cluster.
    pub fn add_member_cluster(&mut self, name: &str, annotations: &[(&str, &str)]) {
        let annotations: serde_json::Map<String, Value> =
            annotations.iter().map(|(key, value)| ((*key).to_owned(), Value::from(*value))).collect();
        let metadata = serde_json::json!({"name": name, "annotations": annotations});
        self.insert(&Resource::CLUSTERS.argument(), serde_json::json!({"metadata": metadata}));
        self.cluster(name);
    }

    /// Adds or replaces an object of the local cluster. The resource is like `pods.v1` or `statefulsets.v1.apps`.
    #[track_caller]
    pub fn insert(&mut self, resource: &str, object: Value) {
        self.insert_in(LOCAL, resource, object);
    }

    /// Adds or replaces an object of a cluster.
    #[track_caller]
    pub fn insert_in(&mut self, cluster: &str, resource: &str, object: Value) {
        let resource = Resource::from_argument(resource).unwrap();
        self.cluster(cluster).insert(&resource, read(&object));
    }

    /// Returns the objects of a resource of the local cluster.
    #[track_caller]
    pub fn objects(&mut self, resource: &str) -> Vec<Value> {
        let resource = Resource::from_argument(resource).unwrap();
        let list = self.cluster(LOCAL).lists.get(&resource).and_then(|list| list.as_ref().ok());
        let json = |object: Object| serde_json::from_str(object.raw.unwrap().get()).unwrap();
        list.map(|list| list.iter().map(json).collect()).unwrap_or_default()
    }

    /// Returns an object of the local cluster by its name.
    #[track_caller]
    pub fn object(&mut self, resource: &str, name: &str) -> Option<Value> {
        self.objects(resource).into_iter().find(|object| object["metadata"]["name"] == name)
    }

    /// Changes every object of a resource of the local cluster, and removes those for which `keep` returns false.
    #[track_caller]
    pub fn retain(&mut self, resource: &str, mut keep: impl FnMut(&mut Value) -> bool) {
        let objects = self.objects(resource);
        let mut list = ObjectList::new(Scope { is_whole: true, ..Scope::default() });
        for mut object in objects {
            if keep(&mut object) {
                list.insert(read(&object));
            }
        }
        self.cluster(LOCAL).lists.insert(Resource::from_argument(resource).unwrap(), Ok(list));
    }

    /// Changes every object of a resource of the local cluster.
    #[track_caller]
    pub fn edit_all(&mut self, resource: &str, mut change: impl FnMut(&mut Value)) {
        self.retain(resource, |object| {
            change(object);
            true
        });
    }

    /// Changes an object of the local cluster, which must exist.
    #[track_caller]
    pub fn edit(&mut self, resource: &str, name: &str, change: impl FnOnce(&mut Value)) {
        let mut change = Some(change);
        self.edit_all(resource, |object| {
            if object["metadata"]["name"] == name
                && let Some(change) = change.take()
            {
                change(object);
            }
        });
        assert!(change.is_none(), "there is no {name} of {resource}");
    }

    /// Removes an object of the local cluster.
    #[track_caller]
    pub fn remove(&mut self, resource: &str, name: &str) {
        self.retain(resource, |object| object["metadata"]["name"] != name);
    }

    /// Returns a member of the etcd cluster, which must exist.
    #[track_caller]
    pub fn etcd_member(&mut self, name: &str) -> &mut super::FakeEtcdMember {
        self.etcd.members.get_mut(name).unwrap()
    }

    /// Adds a rule for every request whose text starts with `prefix`.
    pub fn fault(&mut self, prefix: &str, fault: RequestFault) {
        let prefix = prefix.to_owned();
        self.rules.push(Box::new(move |_, request| request.text.starts_with(&prefix).then(|| fault.clone())));
    }

    pub(super) fn begin(&mut self, text: &str) {
        self.events.push(WorldEvent::Sent(text.to_owned()));
        self.in_progress += 1;
        self.most_in_progress = self.most_in_progress.max(self.in_progress);
    }

    /// Returns the faults of a request, in the order of the rules.
    pub(super) fn faults(&mut self, request: SentRequest<'_>) -> Vec<RequestFault> {
        let mut rules = std::mem::take(&mut self.rules);
        let faults = rules.iter_mut().filter_map(|rule| rule(self, request)).collect();
        self.rules.splice(..0, rules);
        faults
    }
}

#[track_caller]
fn read(json: &Value) -> Object {
    let metadata: Wire = serde_json::from_value(json["metadata"].clone()).unwrap();
    metadata.object(Some(to_raw_value(json).unwrap()))
}

/// Returns an address as the log has it.
pub(super) fn path(Address { resource, namespace, name }: Address<'_>) -> String {
    let mut path = format!("{resource} ");
    if !namespace.is_empty() {
        let _ = write!(path, "{namespace}/");
    }
    path + name
}
