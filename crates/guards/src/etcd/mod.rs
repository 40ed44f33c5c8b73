//! Keeps etcd ensembles that run in pods above their quorum: a member goes only if the others are a quorum without it, and a leader
//! hands over before it goes.
//!
//! Protects against deletions and evictions that nobody else holds against each other: a disruption budget knows readiness and
//! not raft, and a plain delete asks no budget. Does not protect members that nobody asks about: nodes that go down, the kubelet
//! that evicts for want of memory, static pods. It never holds up teardown and repair: what a node has begun, namespaces and
//! owners that go, members that are down anyway.
//!
//! etcd hands over by itself on a clean SIGTERM (`etcdserver/server.go`, `Stop`), so that the rule of the leader matters where there
//! is none: grace period 0, an entrypoint that swallows signals, a slow member. The quorum is the real protection.
//!
//! Its stance when blind is *deny*, and so is its failurePolicy, Fail.
//!
//! The room, along a review: `target` (which pod is to go) → `way` (the order of things and the time they have) → `ground` (what
//! Kubernetes says: namespace, owner, node, pods, who leaves) → `group` (which pods are one ensemble) and `pod` (what is read of each)
//! → `facts` (what the members say) → `table`, or `poor` without a JSON gateway (what each member is worth) → `decide` (pure: what may
//! be done) → `act` (what is done: `notes` says how long what is noted counts) → `tell` (what is said). Beside it: `above` (sets,
//! claims, budgets), `glass` (to delete in spite of all), `survey` (the same told beforehand); `config`, `labels`, `registration` and
//! `permissions` are what is configured, and what is asked for.

mod above;
mod act;
mod config;
mod decide;
mod facts;
#[cfg(test)]
mod fixture;
mod glass;
mod ground;
mod group;
mod labels;
mod makers;
mod notes;
mod permissions;
mod pod;
mod poor;
mod registration;
mod survey;
mod table;
mod target;
mod tell;
#[cfg(test)]
mod tests;
mod way;

use std::any::Any;
use std::path::Path;
use std::sync::Arc;
use std::time::Instant;

use admission::{BoxFuture, Fields, Guard, OnUnknown, Request, Ruling, SettlePolicy};

use crate::common::Defaults;
use crate::kind::{Configured, GuardKind, Permissions, Requirements};
use crate::webhook::{FailurePolicy, WebhookEntry};
use ::config::Section;
use cluster::Clients;

pub use survey::{Deletion, Empty, Ensemble, Member, Overlap, Survey, Surveyed, Unseen, Why};

use config::{Book, Config};
use target::Deed;
use way::Way;

/// The path, the metric label and the key in the configuration.
const NAME: &str = "etcd";

/// Ten seconds: a leader needs time to hand over, and a drain can wait.
const DEFAULTS: Defaults =
    Defaults { when_unknown: OnUnknown::Deny, failure_policy: FailurePolicy::Fail, timeout_seconds: 10 };

/// The kind.
#[derive(Debug)]
pub struct Etcd;

// === impl Etcd ===

impl GuardKind for Etcd {
    fn name(&self) -> &'static str {
        NAME
    }

    fn summary(&self) -> &'static str {
        "Keeps pods of an etcd ensemble from being deleted or evicted below its quorum, and has a leader hand over first."
    }

    fn page(&self) -> &'static str {
        include_str!("README.md")
    }

    fn read(&self, section: &mut Section<'_>) -> Box<dyn Configured> {
        Box::new(Keeper { config: Arc::new(config::read(section, DEFAULTS)) })
    }
}

/// The guard between configuration and service.
struct Keeper {
    config: Arc<Config>,
}

// === impl Keeper ===

impl Configured for Keeper {
    fn webhooks(&self) -> Vec<WebhookEntry> {
        registration::entries(&self.config)
    }

    fn permissions(&self) -> Permissions {
        Permissions {
            own: permissions::everywhere(&self.config),
            namespaced: permissions::within(&self.config),
            ..Permissions::default()
        }
    }

    fn requirements(&self) -> Requirements {
        let ensembles = &self.config.ensembles;
        let files = ensembles.iter().enumerate().flat_map(|(at, ensemble)| {
            let keyed =
                move |(key, path): (&str, &Path)| (format!("ensembles[{at}].client.{key}"), path.to_owned());
            ensemble.client.files().into_iter().map(keyed)
        });
        let is_local = self.config.reservation == Book::Local && !ensembles.is_empty();
        Requirements {
            reads_cluster: !ensembles.is_empty(),
            files: files.collect(),
            single_replica_reason: is_local.then(|| "reservation is local: each replica notes for itself who leaves, and knows nothing of what another one lets go".to_owned()),
            ..Requirements::default()
        }
    }

    fn build(&self, clients: &Clients) -> Arc<dyn Guard> {
        Arc::new(Door::new(&self.config, clients.clone()))
    }
}

/// Returns what `doctor etcd` and `snapshot` read of the etcd clusters, if this is the etcd guard and it names some.
pub fn survey(configured: &dyn Configured) -> Option<Survey> {
    let configured: &dyn Any = configured;
    let Keeper { config } = configured.downcast_ref()?;
    (!config.ensembles.is_empty()).then(|| Survey::new(Arc::clone(config)))
}

/// The guard at the door.
struct Door {
    config: Arc<Config>,
    clients: Clients,
    fields: Fields,
}

// === impl Door ===

impl Door {
    fn new(config: &Arc<Config>, clients: Clients) -> Self {
        Self { config: Arc::clone(config), clients, fields: Fields::new(&target::POINTERS) }
    }
}

impl Guard for Door {
    fn name(&self) -> &'static str {
        NAME
    }

    fn fields(&self) -> &Fields {
        &self.fields
    }

    fn settle_policy(&self) -> &SettlePolicy {
        &self.config.common_config.settle_policy
    }

    fn logs_every_ruling(&self) -> bool {
        true
    }

    fn review<'a>(&'a self, request: &'a Request<'a>, deadline: Instant) -> BoxFuture<'a, Ruling> {
        Box::pin(async move {
            let way = Way::new(&self.config, &self.clients, deadline.into());
            match Deed::of(request) {
                Some(deed) => way.of_pod(deed, request).await,
                None => way.of_others(request).await,
            }
        })
    }
}
