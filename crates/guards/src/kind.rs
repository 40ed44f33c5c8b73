//! A guard before it is configured, and between configuration and service.
//!
//! `GuardKind` (there is one, static) → `Configured` (read from a section; tells what it wants registered, permitted and watched)
//! → [`Guard`] (built upon a world; rules). Nothing about registration is static: which namespaces a guard asks about depends
//! on its configuration.

use std::path::PathBuf;
use std::sync::Arc;

use admission::{Guard, WebhookEntry};
use serde::Serialize;

use crate::deletion::Survey;
use crate::etcd::Survey as Ensembles;
use crate::lxcfs::OnNode;
use ::config::Section;
use cluster::fleet::ProbeTargets;
use cluster::live::Access;
use cluster::writer::Writer;
use cluster::{Reader, Resource};

/// One kind of guard. Its name is path, metric label and configuration key.
pub trait GuardKind: Sync {
    /// A word of lower-case letters.
    fn name(&self) -> &'static str;

    /// What it protects, in one sentence.
    fn summary(&self) -> &'static str;

    /// The user's page: the README of its room.
    fn page(&self) -> &'static str;

    /// Reads its section. Called with an empty one too, to learn the keys; problems are the section's to collect, and whoever
    /// finds some throws the result away.
    fn read(&self, section: &mut Section<'_>) -> Box<dyn Configured>;
}

/// A guard that knows what it is to do, before it is connected to anything.
pub trait Configured: Send + Sync {
    /// What it wants to be asked.
    fn webhooks(&self) -> Vec<WebhookEntry>;

    /// What its account must be allowed to do.
    fn permissions(&self) -> Vec<Permission>;

    /// What the world should keep at hand for it.
    fn watches(&self) -> Vec<Resource>;

    /// What its account must be allowed to do in the other clusters of its fleet, if it has one.
    fn member_permissions(&self) -> Vec<Permission> {
        Vec::new()
    }

    /// What its account must be allowed to do within one namespace and nowhere else: that namespace, and what.
    fn permissions_within(&self) -> Vec<(String, Permission)> {
        Vec::new()
    }

    /// What the world should try every minute at each cluster that the guard looks at; none for a guard that asks nobody. Whoever
    /// puts the guard into service hands it to [`Reader::start_probes`].
    fn rounds(&self) -> Option<ProbeTargets> {
        None
    }

    /// The control plane that this guard looks at, where it is not the cluster that all guards look at.
    fn control_plane(&self) -> Option<Access> {
        None
    }

    /// As which user the guard asks the control plane that it looks at, where that knows no service account of Durward's; none
    /// where it is asked by Durward's own.
    fn user(&self) -> Option<String> {
        None
    }

    /// What tells a person beforehand what the guard would find; none for guards that look at no fleet.
    fn survey(&self) -> Option<Survey> {
        None
    }

    /// What tells a person what the guard would find of its etcd ensembles; none for guards that have none.
    fn ensembles(&self) -> Option<Ensembles> {
        None
    }

    /// The files that the guard reads beside its configuration, each with its key in the guard's section.
    fn files(&self) -> Vec<(String, PathBuf)> {
        Vec::new()
    }

    /// Why no more than one replica of Durward may run with it; none where any number may.
    fn single_replica_reason(&self) -> Option<String> {
        None
    }

    /// What Durward's parts on the nodes must know of the guard; none for guards that have no part there.
    fn on_node(&self) -> Option<OnNode> {
        None
    }

    /// The guard itself. Synchronous, and starts nothing: what runs in the background is the world's.
    fn build(&self, world: &Arc<dyn Reader>) -> Arc<dyn Guard>;

    /// The same with hands, for a guard that changes something outside before it lets a request pass. Whoever serves a live
    /// world builds this way; built without hands such a guard tells what it would do. A guard that only looks takes none.
    fn build_with(&self, world: &Arc<dyn Reader>, _hands: &Arc<dyn Writer>) -> Arc<dyn Guard> {
        self.build(world)
    }
}

/// A rule of a Role or `ClusterRole`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Permission {
    /// Empty string for the core group.
    pub api_groups: Vec<String>,
    /// Plural names.
    pub resources: Vec<String>,
    /// Only these objects; all where empty.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub resource_names: Vec<String>,
    /// `get`, `list`, `watch`, …
    pub verbs: Vec<String>,
}

impl Permission {
    /// Verbs on one resource of one group.
    pub fn on(group: &str, resource: &str, verbs: &[&str]) -> Self {
        Self {
            api_groups: vec![group.to_owned()],
            resources: vec![resource.to_owned()],
            resource_names: Vec::new(),
            verbs: verbs.iter().map(|&verb| verb.to_owned()).collect(),
        }
    }
}
