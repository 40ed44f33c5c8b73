//! The one seam between guards and everything outside.
//!
//! A guard asks the world and gets an answer or a named [`Cause`]; nothing a guard cannot see is reported as empty. There are
//! two worlds: live (an API server, watched and asked) and a folder on disk ([`folder`]), out of which a verdict can be replayed.
//! The world outlives plans: a configuration reload empties no cache and makes nothing unknown.
//!
//! The world only looks. What changes something goes another way.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Instant;

use admission::{BoxFuture, Cause};

/// What a question is about: objects of one resource.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Resource {
    /// Empty for the core group.
    pub group: Cow<'static, str>,
    /// The version to ask at.
    pub version: Cow<'static, str>,
    /// The plural name, as in a path.
    pub plural: Cow<'static, str>,
}

impl Resource {
    /// Namespaces, which most guards ask about.
    pub const NAMESPACES: Self =
        Self { group: Cow::Borrowed(""), version: Cow::Borrowed("v1"), plural: Cow::Borrowed("namespaces") };
}

/// One object's address.
#[derive(Debug, Clone, Copy)]
pub struct Address<'a> {
    /// What it is one of.
    pub resource: &'a Resource,
    /// Empty where the resource has none.
    pub namespace: &'a str,
    /// Its name.
    pub name: &'a str,
}

/// What is kept of an object: its metadata, as far as guards read it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Metadata {
    /// Labels.
    pub labels: BTreeMap<String, String>,
    /// Annotations.
    pub annotations: BTreeMap<String, String>,
    /// Whether it is being deleted.
    pub deleting: bool,
}

/// An answer: the object, the certainty that there is none, or why neither can be said.
pub type Answer = Result<Option<Arc<Metadata>>, Cause>;

/// Everything outside, as a guard sees it.
pub trait World: Send + Sync {
    /// The metadata of one object of the API server that asks. What is watched and known to be fresh is answered at once;
    /// what is not in the cache is fetched, because a namespace may be younger than the watch's last word.
    fn get<'a>(&'a self, address: Address<'a>, deadline: Instant) -> BoxFuture<'a, Answer>;
}
