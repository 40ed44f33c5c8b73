//! Keeps namespaces and `CustomResourceDefinitions` from being deleted while something in them is in use in any cluster that the
//! deletion reaches.
//!
//! Protects what lives in member clusters, where the object alone tells nothing of it: on a Karmada control plane a namespace
//! goes in every member at once (`pkg/controllers/namespace/namespace_sync_controller.go`), with whatever others have put there;
//! and the objects of a definition are removed straight from storage, where no webhook sees them
//! (`apiextensions-apiserver/pkg/controller/finalizer/crd_finalizer.go`), so that the definition's own DELETE is the only place
//! to stop it.
//!
//! Does not delete, does not change anything, and cannot help where nobody asks: `kubectl delete cluster` goes through the
//! aggregated API, which knows no admission; and what is made between the look and the deletion is not seen.
//!
//! Its stance when blind is *deny*, and so is its failurePolicy, Fail: whatever cannot be seen may be in use.

mod acknowledge;
mod config;
mod decide;
mod facts;
#[cfg(test)]
mod fixture;
mod impact;
mod look;
mod own;
mod owners;
mod permissions;
mod questions;
mod registration;
mod remedy;
mod select;
mod sight;
mod standing;
mod target;
mod tell;
#[cfg(test)]
mod tests;

use std::any::Any;
use std::sync::Arc;
use std::time::Instant;

use admission::{BoxFuture, Fields, Guard, OnUnknown, Request, Ruling, SettlePolicy};

use crate::common::Defaults;
use crate::kind::{Configured, GuardKind, Permissions, Requirements};
use crate::webhook::{FailurePolicy, WebhookEntry};
use ::config::Section;
use cluster::Clients;
use cluster::fleet::ProbeTargets;

use config::Config;
use decide::Step;
use facts::Gathering;
use owners::Room;

pub use facts::Progress;
pub use impact::{Acknowledged, Counted, Impact, Reached, Survey, What, Why};
pub use sight::Finding;
pub use standing::{Acknowledgement, Deed, Holds};

/// The path, the metric label and the key in the configuration.
const NAME: &str = "deletion";

/// Ten seconds, as a fleet is asked meanwhile; a deletion can wait.
const DEFAULTS: Defaults =
    Defaults { when_unknown: OnUnknown::Deny, failure_policy: FailurePolicy::Fail, timeout_seconds: 10 };

/// The kind.
#[derive(Debug)]
pub struct Deletion;

// === impl Deletion ===

impl GuardKind for Deletion {
    fn name(&self) -> &'static str {
        NAME
    }

    fn summary(&self) -> &'static str {
        "Keeps namespaces and CustomResourceDefinitions that are in use in any cluster of the fleet from being deleted."
    }

    fn page(&self) -> &'static str {
        include_str!("README.md")
    }

    fn read(&self, section: &mut Section<'_>) -> Box<dyn Configured> {
        Box::new(config::read(section, DEFAULTS))
    }
}

// === impl Config ===

impl Configured for Config {
    fn webhooks(&self) -> Vec<WebhookEntry> {
        registration::entries(self)
    }

    fn permissions(&self) -> Permissions {
        Permissions {
            own: permissions::here(self),
            members: permissions::everywhere(self),
            namespaced: permissions::within(self),
        }
    }

    fn requirements(&self) -> Requirements {
        let probes = ProbeTargets { fleet: self.fleet.clone(), resources: permissions::resources(self) };
        Requirements {
            reads_cluster: true,
            probes: Some(probes),
            control_plane: self.access.clone(),
            user: self.is_karmada().then(|| self.user.clone()),
            ..Requirements::default()
        }
    }

    fn build(&self, clients: &Clients) -> Arc<dyn Guard> {
        Arc::new(DeletionGuard {
            config: self.clone(),
            clients: clients.clone(),
            fields: Fields::new(&target::POINTERS),
            room: Room::default(),
        })
    }
}

/// Returns what `impact` and `doctor fleet` use, if this is the deletion guard.
pub fn survey(configured: &dyn Configured) -> Option<Survey> {
    let configured: &dyn Any = configured;
    configured.downcast_ref().cloned().map(Survey::new)
}

/// The guard that reviews deletions.
struct DeletionGuard {
    config: Config,
    clients: Clients,
    fields: Fields,
    /// For what all reviews hold of the clusters that are looked at.
    room: Room,
}

// === impl DeletionGuard ===

impl Guard for DeletionGuard {
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
            let (target, only_own) = match decide::open(&self.config, request, self.clients.context.now()) {
                Step::Rule(ruling) => return ruling,
                Step::Look { target, only_own } => (target, only_own),
            };
            let gathering = Gathering {
                clients: &self.clients,
                config: &self.config,
                progress: &|_| {},
                room: &self.room,
            };
            let facts = gathering.about(&target, deadline.into(), only_own).await;
            decide::close(&self.config, &target, &facts)
        })
    }
}
