//! The one seam between guards and everything outside.
//!
//! A guard asks the world and gets an answer or a named [`Cause`]; nothing a guard cannot see is reported as empty. There are
//! three worlds: [`Live`](live::Live), an API server that is watched and asked; [`Snapshot`](snapshot::Snapshot), a recording on
//! disk out of which a verdict can be replayed (its format is in the README here); and [`Offline`], for a Durward that was
//! given neither. The world outlives plans: a configuration reload empties no cache and makes nothing unknown.
//!
//! The world only looks. What changes something goes another way.

pub mod cause;
pub mod etcd;
pub mod fleet;
pub mod live;
pub mod snapshot;
pub mod writer;

mod encode;
mod gateway;
mod metadata;
mod objects;
mod offline;
mod resource;

use std::sync::Arc;
use std::time::{Instant, SystemTime};

use admission::{BoxFuture, Cause};
use std::future::ready;

use fleet::{Cluster, Fleet, Found, Health, Listed, Look, Members, ProbeTargets, Query};
pub use metadata::Metadata;
pub use offline::Offline;
use offline::nowhere;
pub use resource::{Address, Resource};

/// An answer: the object, the certainty that there is none, or why neither can be said.
pub type Answer = Result<Option<Arc<Metadata>>, Cause>;

/// Everything outside, as a guard sees it.
pub trait Reader: Send + Sync {
    /// The metadata of one object of the API server that asks. What is watched and known to be fresh is answered at once;
    /// what is not in the cache is fetched, because a namespace may be younger than the watch's last word.
    ///
    /// `Ok(None)` is certainty: whoever could have known was asked and said that there is no such object. The answer comes
    /// before `deadline`, early enough to be made use of; dropping the future is safe. The code of a [`Cause`] is one of
    /// [`cause::ALL`].
    fn get<'a>(&'a self, address: Address<'a>, deadline: Instant) -> BoxFuture<'a, Answer>;

    /// The same, asked for now: never out of memory, and never the answer to a question that is older than this one. For a
    /// guard that knows something which contradicts what [`get`](Self::get) said. It costs a request to the API server, so it
    /// has no place where every review passes. A world that has no memory of its own answers as `get` does.
    fn ask<'a>(&'a self, address: Address<'a>, deadline: Instant) -> BoxFuture<'a, Answer> {
        self.get(address, deadline)
    }

    /// Asks the world to keep the objects of a resource at hand from now on. Asking twice is asking once. A world that has
    /// everything at hand (or nothing) has nothing to do.
    fn watch(&self, _resource: &Resource) {}

    /// The clusters of a fleet, as they are now: read for this question, or for several that all began before it was read. Never
    /// an older one: a cluster that joined a second ago counts. Without the one that asks.
    fn members<'a>(&'a self, _fleet: &'a Fleet, _deadline: Instant) -> BoxFuture<'a, Members> {
        Box::pin(ready(Err(nowhere("the clusters of the fleet"))))
    }

    /// One object of one cluster, asked for now.
    fn find<'a>(&'a self, _of: &'a Cluster, look: Look<'a>, _deadline: Instant) -> BoxFuture<'a, Found> {
        Box::pin(ready(Err(nowhere(&look.address.to_string()))))
    }

    /// One page of a List of one cluster, asked for now.
    fn list<'a>(&'a self, _of: &'a Cluster, query: Query<'a>, _deadline: Instant) -> BoxFuture<'a, Listed> {
        Box::pin(ready(Err(nowhere(&query.resource.to_string()))))
    }

    /// Asks one member of an etcd ensemble, now: never out of memory. Who asks the same of the same peer at the same time may share
    /// an answer only if all of them asked before the question was sent, so that no answer is older than what somebody did
    /// before asking. The answer comes before `deadline`; a member that hangs costs nobody else anything.
    fn etcd<'a>(
        &'a self,
        peer: &'a etcd::Peer,
        question: etcd::Question,
        _deadline: Instant,
    ) -> BoxFuture<'a, etcd::Answered> {
        Box::pin(ready(Err(nowhere(&format!("{question} of {}/{}", peer.namespace, peer.name)))))
    }

    /// Asks the world to try what guards read at each cluster, every minute from now on, in place of what it was told before.
    fn start_probes(&self, _rounds: ProbeTargets) {}

    /// How the last round went, cluster by cluster; nothing before the first one.
    fn health(&self) -> Vec<Health> {
        Vec::new()
    }

    /// The API server that is looked at as the one that asks, for people; none where it is none, as a recording.
    fn here(&self) -> Option<&str> {
        None
    }

    /// What time it is: a recording's is when it was made.
    fn now(&self) -> SystemTime {
        SystemTime::now()
    }

    /// Whether all answers were given long ago, so that the same question gets the same answer however often it is asked.
    fn is_recorded(&self) -> bool {
        false
    }

    /// What `/readyz` says of the world: one line for each thing that it keeps at hand.
    fn readiness(&self) -> Vec<Readiness> {
        Vec::new()
    }
}

/// Whether one thing that the world keeps at hand is there, and how fresh it is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Readiness {
    /// What it is: `namespaces`, `deployments.apps`.
    pub name: String,
    /// Whether it has been read at all. It stays so when the API server cannot be reached later: every replica sees the same
    /// API server, and none would be better off if all of them took themselves out of service.
    pub ok: bool,
    /// How it stands right now: `watched, last word 3 s ago`.
    pub reason: String,
}
