//! Access to API servers and etcd members for guards.
//!
//! A guard reads through [`Reader`] and [`EtcdClient`] and changes things through [`writer::Writer`]. Every failure is a named
//! [`Cause`]: data that could not be read is never reported as empty. There are three implementations:
//!
//! - [`Live`](live::Live): an API server, the fleet behind it, and etcd members,
//! - [`World`](world::World): clusters in memory, of a [`snapshot`] on disk or built by a program,
//! - [`Offline`]: no cluster at all; every answer is Unknown.
//!
//! Clients outlive plans: reloading the configuration empties no cache.

pub mod cause;
pub mod etcd;
pub mod fleet;
pub mod live;
pub mod snapshot;
#[cfg(any(test, feature = "testing"))]
#[allow(clippy::unwrap_used, clippy::missing_panics_doc, reason = "only tests use it")]
#[allow(clippy::needless_pass_by_value, reason = "`insert(json!(…))` needs no reference")]
pub mod testing;
pub mod world;
pub mod writer;

mod api_error;
mod clients;
mod encode;
mod metadata;
mod offline;
mod pages;
mod resource;
mod words;

use std::future::ready;
use std::sync::Arc;
use std::time::Instant;

use admission::{BoxFuture, Cause, lock};

use etcd::{Endpoint, EtcdRequest, EtcdResult};
use fleet::{Cluster, Fleet, GetQuery, ListQuery, MembersResult, ObjectResult, PageResult};

pub use api_error::ApiError;
pub use clients::{Clients, Context};
pub use metadata::Metadata;
pub use offline::Offline;
use offline::no_cluster;
pub use pages::{PAGE_LIMIT, Pages, list_pages};
pub use resource::{Address, Resource};

/// The metadata of an object, `None` if it certainly does not exist, or why neither is known.
pub type MetadataResult = Result<Option<Arc<Metadata>>, Cause>;

/// Reads objects of the local cluster and of the member clusters of a fleet.
///
/// Every method answers by its deadline, with a cause if there is no other answer. Callers need no timeout of their own: the
/// deadline of a review leaves time to decide and to answer. Dropping a future cancels its request. Methods that an implementation does not override report Unknown.
pub trait Reader: Send + Sync {
    /// Reads the metadata of one object of the local cluster. A namespace can come from a cache, which has Durward's annotations only. A
    /// namespace that the cache does not have is requested, because it may be younger than the last watch event.
    ///
    /// `Ok(None)` is certain: the API server answered that this object does not exist.
    fn get<'a>(&'a self, address: Address<'a>, deadline: Instant) -> BoxFuture<'a, MetadataResult>;

    /// Reads the metadata of one object of the local cluster with a request that is sent after this call. For guards that
    /// know something that contradicts the answer of [`get`](Self::get).
    fn get_uncached<'a>(&'a self, address: Address<'a>, deadline: Instant) -> BoxFuture<'a, MetadataResult> {
        self.get(address, deadline)
    }

    /// Reads one object of one cluster, uncached.
    fn get_object<'a>(
        &'a self,
        _of: &'a Cluster,
        query: GetQuery<'a>,
        _deadline: Instant,
    ) -> BoxFuture<'a, ObjectResult> {
        Box::pin(ready(Err(no_cluster(&query.address.to_string()))))
    }

    /// Reads one page of a List of one cluster, uncached.
    fn list<'a>(
        &'a self,
        _of: &'a Cluster,
        query: ListQuery<'a>,
        _deadline: Instant,
    ) -> BoxFuture<'a, PageResult> {
        Box::pin(ready(Err(no_cluster(&query.resource.to_string()))))
    }

    /// Lists the member clusters of a fleet, without the local cluster. The request is sent after this call, so a cluster
    /// that joined a second ago is in the list.
    fn members<'a>(&'a self, _fleet: &'a Fleet, _deadline: Instant) -> BoxFuture<'a, MembersResult> {
        Box::pin(ready(Err(no_cluster("the clusters of the fleet"))))
    }
}

/// Sends requests to single etcd members.
pub trait EtcdClient: Send + Sync {
    /// Sends one request to one etcd member, after this call and uncached. Answers by the deadline. A member that hangs
    /// delays only its own callers.
    fn call<'a>(
        &'a self,
        endpoint: &'a Endpoint,
        request: EtcdRequest,
        deadline: Instant,
    ) -> BoxFuture<'a, EtcdResult>;
}

/// Whether a watched resource is in the cache. `/readyz` has a line for it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Readiness {
    /// The resource: `namespaces`.
    pub name: String,
    /// Whether the resource has been listed once. It stays true when the API server becomes unreachable: every replica
    /// depends on the same API server, and removing all of them from service helps none.
    pub ok: bool,
    /// The present state: `watched, 12 objects`.
    pub reason: String,
}
