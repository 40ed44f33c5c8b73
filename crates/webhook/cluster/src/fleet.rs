//! Clusters, fleets, and requests to one cluster.
//!
//! Requests to member clusters are never answered from a cache, because deletions depend on their answers.

use std::fmt;
use std::sync::Arc;

use admission::Cause;
use serde_json::value::RawValue;

use super::{Address, Metadata, Resource};

/// The label of a Secret with the kubeconfig of a member cluster. Its value is [`MEMBER`].
pub const FLEET: &str = "durward.dev/fleet";

/// The value of [`FLEET`].
pub const MEMBER: &str = "member";

/// The name of the local cluster in values: JSON, labels of metrics, and causes of a denial. No other cluster can have it:
/// names of Clusters and Secrets have no parentheses, and the configuration rejects it as a context.
pub const LOCAL: &str = "(local)";

/// The name of the local cluster in sentences.
pub const THIS_CLUSTER: &str = "this cluster";

/// A cluster, by how it is reached.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Cluster {
    /// The cluster whose API server sends the reviews.
    Local,
    /// A member cluster of the local Karmada control plane, through `clusters/NAME/proxy`.
    Member(Arc<str>),
    /// A context of Durward's kubeconfig.
    Context(Arc<str>),
    /// A kubeconfig in a local Secret: namespace and name.
    Secret(Arc<str>, Arc<str>),
}

impl Cluster {
    /// Returns its name; [`LOCAL`] for the local cluster.
    pub fn name(&self) -> &str {
        match self {
            Self::Local => LOCAL,
            Self::Member(name) | Self::Context(name) | Self::Secret(_, name) => name,
        }
    }
}

impl fmt::Display for Cluster {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if *self == Self::Local { THIS_CLUSTER } else { self.name() })
    }
}

/// The member clusters besides the local one.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Fleet {
    /// No member clusters.
    None,
    /// The Cluster objects of the local Karmada control plane.
    Karmada,
    /// These contexts of Durward's kubeconfig.
    Contexts(Vec<String>),
    /// The Secrets of a namespace with the label `durward.dev/fleet: member`, each with a key `kubeconfig`.
    Secrets {
        /// The namespace.
        namespace: String,
    },
}

/// Returns the text for a fleet without Secrets. It is a failure and not an empty fleet: the label may be misspelled, or the
/// namespace wrong.
pub(super) fn no_secret(namespace: &str) -> String {
    format!("no Secret in namespace {namespace:?} has the label {FLEET}={MEMBER}")
}

/// A member cluster in the list of a fleet.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FleetMember {
    /// The cluster.
    pub cluster: Cluster,
    /// The metadata of its Cluster or Secret; empty for a context.
    pub metadata: Metadata,
}

/// The requested part of an object.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Part {
    /// Its metadata.
    Metadata,
    /// The whole object, as [`Object::raw`].
    Whole,
}

/// A request for one page of a List.
#[derive(Debug, Clone, Copy)]
pub struct ListQuery<'a> {
    /// The resource.
    pub resource: &'a Resource,
    /// The namespace; empty for all, and for cluster-wide resources.
    pub namespace: &'a str,
    /// A field selector like `spec.type=LoadBalancer`, or empty.
    pub field_selector: &'a str,
    /// A label selector like `app=web`, or empty.
    pub label_selector: &'a str,
    /// The part of each object.
    pub part: Part,
    /// The largest number of objects.
    pub limit: u32,
    /// The continue token of the page before.
    pub continue_token: Option<&'a str>,
}

impl<'a> ListQuery<'a> {
    /// The first page of all objects of a resource, in all namespaces, metadata only.
    pub fn new(resource: &'a Resource) -> Self {
        Self {
            resource,
            namespace: "",
            field_selector: "",
            label_selector: "",
            part: Part::Metadata,
            limit: super::PAGE_LIMIT,
            continue_token: None,
        }
    }
}

/// An object of a cluster.
#[derive(Debug, Clone, Default)]
pub struct Object {
    /// Its namespace; empty for cluster-wide resources.
    pub namespace: String,
    /// Its name.
    pub name: String,
    /// Its uid; empty only in a snapshot without it.
    pub uid: String,
    /// Labels, annotations, and whether it is being deleted.
    pub metadata: Metadata,
    /// The whole object, if it was requested.
    pub raw: Option<Box<RawValue>>,
}

/// A page of a List. More pages follow unless `next` is absent.
#[derive(Debug, Clone, Default)]
pub struct Page {
    /// The objects.
    pub objects: Vec<Object>,
    /// The continue token of the next page.
    pub next: Option<String>,
}

/// An object, `None` if it certainly does not exist, or why neither is known. Only a 404 that names the object proves absence.
pub type ObjectResult = Result<Option<Object>, Cause>;

/// A page, or why it could not be read.
pub type PageResult = Result<Page, Cause>;

/// The member clusters of a fleet, or why they could not be listed.
pub type MembersResult = Result<Arc<[FleetMember]>, Cause>;

/// The result of the last probe of a cluster.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ClusterHealth {
    /// The cluster's name.
    pub cluster: String,
    /// Why it could not be read.
    pub failure: Option<admission::Cause>,
}

/// A request for one object of one cluster.
#[derive(Debug, Clone, Copy)]
pub struct GetQuery<'a> {
    /// The object.
    pub address: Address<'a>,
    /// The requested part.
    pub part: Part,
}
