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

use std::sync::Arc;
use std::time::Instant;

use admission::{
    BoxFuture, FailurePolicy, Fields, Guard, OnUnknown, Request, Ruling, SettlePolicy, WebhookEntry,
};

use crate::common::Defaults;
use crate::kind::{Configured, GuardKind, Permission};
use ::config::Section;
use cluster::fleet::ProbeTargets;
use cluster::live::Access;
use cluster::{Reader, Resource};

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
pub(crate) struct Deletion;

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

    fn permissions(&self) -> Vec<Permission> {
        permissions::here(&self.config)
    }

    fn member_permissions(&self) -> Vec<Permission> {
        permissions::everywhere(&self.config)
    }

    fn permissions_within(&self) -> Vec<(String, Permission)> {
        permissions::within(&self.config)
    }

    fn watches(&self) -> Vec<Resource> {
        // Nothing that was read earlier decides about a deletion.
        Vec::new()
    }

    fn rounds(&self) -> Option<ProbeTargets> {
        Some(ProbeTargets {
            fleet: self.config.fleet.clone(),
            resources: permissions::resources(&self.config),
        })
    }

    fn control_plane(&self) -> Option<Access> {
        self.config.access.clone()
    }

    fn user(&self) -> Option<String> {
        self.config.is_karmada().then(|| self.config.user.clone())
    }

    fn survey(&self) -> Option<Survey> {
        Some(Survey::new(Arc::clone(&self.config)))
    }

    fn build(&self, world: &Arc<dyn Reader>) -> Arc<dyn Guard> {
        Arc::new(Door {
            config: Arc::clone(&self.config),
            world: Arc::clone(world),
            fields: Fields::new(&target::POINTERS),
            room: Room::default(),
        })
    }
}

/// The guard at the door.
struct Door {
    config: Arc<Config>,
    world: Arc<dyn Reader>,
    fields: Fields,
    /// For what all reviews hold of the clusters that are looked at.
    room: Room,
}

// === impl Door ===

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
            let (target, only_own) = match decide::open(&self.config, request, self.world.now()) {
                Step::Rule(ruling) => return ruling,
                Step::Look { target, only_own } => (target, only_own),
            };
            let gathering =
                Gathering { world: &*self.world, config: &self.config, progress: &|_| {}, room: &self.room };
            let facts = gathering.about(&target, deadline.into(), only_own).await;
            decide::close(&self.config, &target, &facts)
        })
    }
}
