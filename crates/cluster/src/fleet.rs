//! More than one cluster: which there are, by which way each is reached, and what can be asked of one.
//!
//! Questions to clusters are never answered out of a cache: they are asked for verdicts that take something away.

use std::fmt;
use std::sync::Arc;

use admission::Cause;
use serde_json::value::RawValue;

use super::{Address, Metadata, Resource, cause};

/// A Secret with this label, and [`MEMBER`] as its value, holds the kubeconfig of a cluster of the fleet.
pub const FLEET: &str = "durward.dev/fleet";

/// What [`FLEET`] is set to.
pub const MEMBER: &str = "member";

/// One cluster, by the way that leads to it.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Cluster {
    /// The one whose API server sends the reviews.
    Local,
    /// A member of the Karmada fleet whose control plane is here, through `clusters/NAME/proxy`.
    Member(Arc<str>),
    /// A context of the kubeconfig that leads here.
    Context(Arc<str>),
    /// A kubeconfig in a Secret here: namespace, name, and the cluster's own name for people.
    Secret(Arc<str>, Arc<str>),
}

impl Cluster {
    /// What people call it, and its folder's name in a recording.
    pub fn name(&self) -> &str {
        match self {
            Self::Local => super::snapshot::LOCAL,
            Self::Member(name) | Self::Context(name) | Self::Secret(_, name) => name,
        }
    }
}

impl fmt::Display for Cluster {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// Which clusters there are beside the one that asks.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Fleet {
    /// No others.
    None,
    /// The Clusters of the Karmada control plane that is here.
    Karmada,
    /// These contexts of the kubeconfig that leads here.
    Contexts(Vec<String>),
    /// The Secrets of this namespace that carry `durward.dev/fleet: member`, each with a kubeconfig under `kubeconfig`.
    Secrets {
        /// Where they are.
        namespace: String,
    },
}

/// Why a fleet of Secrets without any is not one without clusters: whoever set it up says that there are some. The label may be
/// misspelt, or the namespace another one than was meant.
pub(super) fn no_secret(namespace: &str) -> String {
    format!("no Secret in namespace {namespace:?} has the label {FLEET}={MEMBER}")
}

/// One cluster of a fleet, as the list of the fleet has it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FleetMember {
    /// How it is reached.
    pub cluster: Cluster,
    /// Labels and annotations of its Cluster (or Secret); empty for a context.
    pub metadata: Metadata,
}

/// How much of each object is wanted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Part {
    /// Its metadata.
    Metadata,
    /// All of it, as [`Object::raw`].
    Whole,
}

/// One page of a List of one cluster.
#[derive(Debug, Clone, Copy)]
pub struct ListQuery<'a> {
    /// Objects of what.
    pub resource: &'a Resource,
    /// In which namespace; empty for all, and for what has none.
    pub namespace: &'a str,
    /// A field selector, as `spec.type=LoadBalancer`; empty for none.
    pub field_selector: &'a str,
    /// How much of each.
    pub part: Part,
    /// How many at most.
    pub limit: u32,
    /// Where the page before ended.
    pub continue_token: Option<&'a str>,
}

impl<'a> ListQuery<'a> {
    /// The first page of all objects of a resource, in all namespaces, metadata only.
    pub fn new(resource: &'a Resource) -> Self {
        Self {
            resource,
            namespace: "",
            field_selector: "",
            part: Part::Metadata,
            limit: super::PAGE_LIMIT,
            continue_token: None,
        }
    }
}

/// How many objects a page of a List is asked for. Whoever answers with more than Durward reads is asked again for a tenth of
/// them, down to a single one; it goes on where the page before ended, whatever that one's size was.
#[derive(Debug, Clone, Copy)]
pub struct PageSize {
    limit: u32,
}

impl PageSize {
    /// As many as this, to begin with.
    pub fn of(limit: u32) -> Self {
        Self { limit }
    }

    /// For [`Query::limit`].
    pub fn limit(self) -> u32 {
        self.limit
    }

    /// Whether the page is to be asked for again, and with fewer objects from here on.
    pub fn shrinks_for(&mut self, why: &Cause) -> bool {
        let shrinks = why.code == cause::TOO_LONG && self.limit > 1;
        if shrinks {
            self.limit = (self.limit / 10).max(1);
        }
        shrinks
    }
}

/// One object that was found.
#[derive(Debug, Clone, Default)]
pub struct Object {
    /// Its namespace; empty where it has none.
    pub namespace: String,
    /// Its name.
    pub name: String,
    /// Its uid; empty only in a recording that left it out.
    pub uid: String,
    /// Labels, annotations, and whether it is being deleted.
    pub metadata: Metadata,
    /// What owns it.
    pub owners: Vec<Owner>,
    /// The whole object, where it was asked for.
    pub raw: Option<Box<RawValue>>,
}

/// One entry of `ownerReferences`.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Owner {
    /// As `apps/v1`.
    pub api_version: String,
    /// As `ReplicaSet`.
    pub kind: String,
    /// Its name.
    pub name: String,
    /// Its uid.
    pub uid: String,
}

/// A page of a List. Only one whose `next` is absent says that there is nothing more.
#[derive(Debug, Clone, Default)]
pub struct Page {
    /// The objects.
    pub objects: Vec<Object>,
    /// Where the next page begins.
    pub next: Option<String>,
}

/// Found, certainly not there, or why neither can be said. Absence is believed only from who could know: a 404 that names this
/// very object.
pub type ObjectResult = Result<Option<Object>, Cause>;

/// A page, or why there is none.
pub type PageResult = Result<Page, Cause>;

/// The members of a fleet, or why nobody knows them.
pub type MembersResult = Result<Arc<[FleetMember]>, Cause>;

/// What the world should try now and then at each cluster of a fleet, so that a missing permission is seen before it matters.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ProbeTargets {
    /// Whom to ask.
    pub fleet: Fleet,
    /// What guards read there: each is asked for one object.
    pub resources: Vec<Resource>,
}

/// How the last round went at one cluster.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ClusterHealth {
    /// The cluster's name.
    pub cluster: String,
    /// What could not be read and why; nothing when all is well.
    pub failures: Vec<(Resource, admission::Cause)>,
}

/// A question that names one object of one cluster.
#[derive(Debug, Clone, Copy)]
pub struct GetQuery<'a> {
    /// Which object.
    pub address: Address<'a>,
    /// How much of it.
    pub part: Part,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_page_shrinks_to_one_object_where_it_is_too_long_and_for_nothing_else() {
        let mut size = PageSize::of(500);
        assert!(!size.shrinks_for(&Cause::new(cause::GARBAGE, "")) && size.limit() == 500);
        let too_long = Cause::new(cause::TOO_LONG, "");
        let sizes: Vec<u32> =
            std::iter::from_fn(|| size.shrinks_for(&too_long).then(|| size.limit())).collect();
        assert_eq!(sizes, [50, 5, 1]);
    }
}
