//! A guard before it serves.
//!
//! [`GuardKind`] (one static value per guard) reads a configuration section into a [`Configured`], which builds a [`Guard`].
//! Webhook entries and permissions depend on the configuration, so only a [`Configured`] has them.

use std::any::Any;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::SystemTime;

use admission::Guard;
use serde::Serialize;

use crate::common::Remark;
use crate::native_policy::NativePolicy;
use crate::overrides::Overrides;
use crate::webhook::WebhookEntry;
use ::config::{Section, Selector};
use cluster::etcd::Material;
use cluster::fleet::Fleet;
use cluster::live::Access;
use cluster::{Clients, Resource};

/// One kind of guard. Its name is the path, the metric label and the configuration key.
pub trait GuardKind: Sync {
    /// Returns the name: one word of lower-case letters.
    fn name(&self) -> &'static str;

    /// Returns the paths of the guard besides its name.
    fn other_paths(&self) -> &'static [&'static str] {
        &[]
    }

    /// Returns one sentence about what the guard protects.
    fn summary(&self) -> &'static str;

    /// Reads the guard's section. `namespace` is the namespace of Durward. The section collects the problems; a caller that
    /// finds some drops the result. Callers pass an empty section to learn the keys.
    fn read(&self, section: &mut Section<'_>, namespace: &str) -> Box<dyn Configured>;
}

/// A guard with its configuration, not yet connected to a cluster.
///
/// Every method concerns every guard. A command of one guard (`impact`, `doctor etcd`) calls a function of that guard, which
/// downcasts this value.
pub trait Configured: Any + Send + Sync {
    /// Returns the webhook entries that the API server must have.
    fn webhooks(&self) -> Vec<WebhookEntry>;

    /// Returns the native policies that the API server must have.
    fn policies(&self) -> Vec<NativePolicy> {
        Vec::new()
    }

    /// Returns the permissions that Durward's account must have.
    fn permissions(&self) -> Permissions;

    /// Returns the other things that the guard needs while it serves.
    fn requirements(&self) -> Requirements;

    /// Returns the key by which every request is exempt, so that the guard protects nothing.
    fn exempts_all(&self) -> Option<&'static str>;

    /// Returns remarks on the configuration at this time, for `config check`.
    fn remarks(&self, now: SystemTime) -> Vec<Remark>;

    /// Builds the guards that review the requests of the webhook entries: one, or one for each path that the entries name. Starts
    /// nothing in the background. A guard that changes things reports the step that it would take if `clients` has no writer.
    fn build(&self, clients: &Clients) -> Vec<Arc<dyn Guard>>;
}

/// Permissions by place.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Permissions {
    /// In the cluster whose API server calls the guard.
    pub own: Vec<Permission>,
    /// In each member cluster of the guard's fleet.
    pub members: Vec<Permission>,
    /// In the named namespace only.
    pub namespaced: Vec<(String, Permission)>,
}

/// The requirements of a guard besides permissions.
#[derive(Debug, Clone, Default)]
pub struct Requirements {
    /// Whether reviews read the cluster, so that a Durward without one cannot serve them.
    pub reads_cluster: bool,
    /// Whether a cache of namespaces is needed.
    pub watches_namespaces: bool,
    /// The clusters to probe every minute, besides the local one.
    pub probes: Option<Fleet>,
    /// The resources that the guard lists in each of these clusters. `doctor` tries each.
    pub listed: Vec<Resource>,
    /// The control plane to read, if it is not the cluster that all guards read.
    pub control_plane: Option<Access>,
    /// The user that Durward is on that control plane, which has no service account of Durward's.
    pub user: Option<String>,
    /// Files that the guard reads, each with its key in the guard's section.
    pub files: Vec<(String, PathBuf)>,
    /// Sources of certificates for etcd members, as far as their namespaces are known.
    pub etcd_certificates: Vec<Material>,
    /// The objects that the guard protects, as far as Durward can list them.
    pub guarded: Vec<GuardedObjects>,
}

/// Objects that a guard protects. `doctor` looks there for annotations of overrides.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GuardedObjects {
    /// The resource.
    pub resource: Resource,
    /// The namespaces.
    pub namespaces: GuardedNamespaces,
    /// The callers that can override a denial.
    pub overrides: Overrides,
}

/// The namespaces of guarded objects.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum GuardedNamespaces {
    /// The objects are cluster-wide.
    None,
    /// All.
    All,
    /// The namespace with this name.
    Named(String),
    /// The namespaces with these labels.
    Labeled(Selector),
}

/// A rule of a Role or `ClusterRole`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Permission {
    /// API groups. The core group is the empty string.
    pub api_groups: Vec<String>,
    /// Plural names.
    pub resources: Vec<String>,
    /// Names of objects. An empty list is all objects.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub resource_names: Vec<String>,
    /// Verbs: `get`, `list`, `watch`, …
    pub verbs: Vec<String>,
}

impl Permission {
    /// Creates a rule for one resource.
    pub fn on(group: &str, resource: &str, verbs: &[&str]) -> Self {
        Self {
            api_groups: vec![group.to_owned()],
            resources: vec![resource.to_owned()],
            resource_names: Vec::new(),
            verbs: verbs.iter().map(|&verb| verb.to_owned()).collect(),
        }
    }
}
