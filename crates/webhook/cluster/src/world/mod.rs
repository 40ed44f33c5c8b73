//! Clusters and etcd members in memory: what a snapshot contains, and what tests and the demo build.
//!
//! A [`World`] answers as a live control plane does. **Missing data is Unknown, and only a List proves absence.** A failure
//! that it contains is returned at each read.

mod answers;
mod list;
mod selector;

use std::collections::BTreeMap;
use std::future::ready;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Instant, SystemTime};

use admission::{BoxFuture, Cause};

use crate::etcd::{Endpoint, EtcdRequest, EtcdResult};
use crate::fleet::{
    Cluster, Fleet, GetQuery, LOCAL, ListQuery, MembersResult, Object, ObjectResult, PageResult, Part,
};
use crate::{Address, EtcdClient, Metadata, MetadataResult, Reader, Readiness, Resource, cause};

pub use list::{ObjectList, Scope};

/// Clusters and etcd members in memory.
#[derive(Debug, Default)]
pub struct World {
    /// The directory of a snapshot, which messages name.
    pub path: Option<PathBuf>,
    /// The time at which the clusters were read.
    pub time: Option<SystemTime>,
    /// The clusters by [`Cluster::name`].
    pub clusters: BTreeMap<String, ClusterContent>,
    /// The answers of etcd members, by namespace and name of the pod.
    pub etcd: BTreeMap<(String, String), EtcdAnswers>,
}

/// Resource, namespace and name of an object.
pub type ObjectKey = (Resource, String, String);

/// The content of one cluster.
#[derive(Debug, Default)]
pub struct ClusterContent {
    /// Its Kubernetes version, like `v1.35.4`.
    pub kubernetes: Option<String>,
    /// Lists, and failures to read them.
    pub lists: BTreeMap<Resource, Result<ObjectList, Cause>>,
    /// The answer for all other resources.
    pub rest: Rest,
    /// The state of objects in the cache of [`Reader::get`], where it is older than the List.
    pub cached: BTreeMap<ObjectKey, Arc<Metadata>>,
    /// Failures to read single objects.
    pub failures: BTreeMap<ObjectKey, Cause>,
}

/// The answer of a cluster for a resource without a List.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub enum Rest {
    /// It was not recorded, so it is Unknown.
    #[default]
    NotRecorded,
    /// There are no objects.
    Empty,
    /// The read fails.
    Failed(Cause),
}

/// The answers of one pod as an etcd member.
#[derive(Debug, Clone, Default)]
pub struct EtcdAnswers {
    /// The pod's uid.
    pub uid: String,
    /// Requests and their results.
    pub answers: BTreeMap<EtcdRequest, EtcdResult>,
}

impl World {
    /// Returns the content of a cluster, which is created if it isn't there.
    pub fn cluster(&mut self, of: &Cluster) -> &mut ClusterContent {
        self.clusters.entry(of.name().to_owned()).or_default()
    }

    /// Returns the names of the member clusters.
    pub fn others(&self) -> impl Iterator<Item = &str> {
        self.clusters.keys().map(String::as_str).filter(|name| *name != LOCAL)
    }

    /// Returns the recorded Kubernetes version of a cluster.
    pub fn kubernetes(&self, of: &Cluster) -> Option<&str> {
        self.clusters.get(of.name())?.kubernetes.as_deref()
    }

    /// Returns a line for `/readyz` for each List of the local cluster.
    pub fn readiness(&self) -> Vec<Readiness> {
        let lists = self.clusters.get(LOCAL).into_iter().flat_map(|cluster| &cluster.lists);
        let line = |(resource, list): (&Resource, &Result<ObjectList, Cause>)| {
            let objects = list.as_ref().ok()?.len();
            Some(Readiness {
                name: resource.to_string(),
                ok: true,
                reason: format!("snapshot, {objects} objects"),
            })
        };
        lists.filter_map(line).collect()
    }
}

impl ClusterContent {
    /// Adds an object to the List of a resource, and creates a List of all objects if there is none.
    pub fn insert(&mut self, resource: &Resource, object: Object) {
        let is_whole = object.raw.is_some();
        let all = || Ok(ObjectList::new(Scope { is_whole, ..Scope::default() }));
        if let Ok(list) = self.lists.entry(resource.clone()).or_insert_with(all) {
            list.insert(object);
        }
    }

    /// Returns the List of a resource, `None` if there are no objects, or the failure.
    fn read(&self, resource: &Resource) -> Result<Option<&ObjectList>, Option<&Cause>> {
        match (self.lists.get(resource), &self.rest) {
            (Some(Ok(list)), _) => Ok(Some(list)),
            (Some(Err(why)), _) | (None, Rest::Failed(why)) => Err(Some(why)),
            (None, Rest::Empty) => Ok(None),
            (None, Rest::NotRecorded) => Err(None),
        }
    }
}

impl Reader for World {
    fn get<'a>(&'a self, address: Address<'a>, deadline: Instant) -> BoxFuture<'a, MetadataResult> {
        let cached = self.clusters.get(LOCAL).and_then(|local| local.cached.get(&key(address)));
        match cached {
            Some(metadata) => Box::pin(ready(Ok(Some(Arc::clone(metadata))))),
            None => self.get_uncached(address, deadline),
        }
    }

    fn get_uncached<'a>(&'a self, address: Address<'a>, _: Instant) -> BoxFuture<'a, MetadataResult> {
        Box::pin(ready(self.metadata(address)))
    }

    fn get_object<'a>(
        &'a self,
        of: &'a Cluster,
        query: GetQuery<'a>,
        _deadline: Instant,
    ) -> BoxFuture<'a, ObjectResult> {
        Box::pin(ready(self.object(of, query)))
    }

    fn list<'a>(
        &'a self,
        of: &'a Cluster,
        query: ListQuery<'a>,
        _deadline: Instant,
    ) -> BoxFuture<'a, PageResult> {
        Box::pin(ready(self.page(of, &query)))
    }

    fn members<'a>(&'a self, fleet: &'a Fleet, _deadline: Instant) -> BoxFuture<'a, MembersResult> {
        Box::pin(ready(self.members_of(fleet)))
    }
}

impl EtcdClient for World {
    fn call<'a>(
        &'a self,
        endpoint: &'a Endpoint,
        request: EtcdRequest,
        _deadline: Instant,
    ) -> BoxFuture<'a, EtcdResult> {
        Box::pin(ready(self.etcd_answer(endpoint, request)))
    }
}

fn key(address: Address<'_>) -> ObjectKey {
    (address.resource.clone(), address.namespace.to_owned(), address.name.to_owned())
}

/// Returns a query for all objects of a resource in a namespace, metadata only.
fn all_in<'a>(resource: &'a Resource, namespace: &'a str) -> ListQuery<'a> {
    ListQuery { namespace, part: Part::Metadata, ..ListQuery::new(resource) }
}

/// Error: it is not in the world.
fn not_recorded(text: String) -> Cause {
    Cause::new(cause::NOT_RECORDED, text)
}
