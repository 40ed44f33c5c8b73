//! In-use rules: an object of a kind isn't deleted while an object of another kind uses it, in any cluster of the fleet.
//!
//! A rule adds a kind to those whose deletion the guard reviews, beside namespaces and CRDs. It says which Lists to read and which of
//! their objects count. Everything else is the same for all kinds.
//!
//! | file | purpose |
//! |---|---|
//! | `rule` | a rule, and the Lists that it needs for an object |
//! | `expression` | the expressions of a rule: selectors, and whether one object uses another |
//! | `config` | reads `guards.deletion.inUse` |
//! | `library` | the rules in the binary, one file each |

mod config;
mod expression;
mod library;
mod rule;

use std::fmt;

use cluster::Resource;
use policy::kinds;

pub(super) use config::{InUseRules, read};
pub(super) use expression::UsedObject;
pub(super) use rule::{Rule, UsePredicate};

/// A kind of objects that rules protect.
#[derive(Debug)]
pub struct InUseKind {
    /// The resource, at the version at which commands read it. A review has the version of its request.
    pub(super) resource: Resource,
    /// The rules, in the order of the configuration.
    pub(super) rules: Vec<Rule>,
}

/// Kinds are compared by their resource: a configuration has one entry for each.
impl PartialEq for InUseKind {
    fn eq(&self, other: &Self) -> bool {
        self.resource == other.resource
    }
}

impl Eq for InUseKind {}

impl fmt::Display for InUseKind {
    /// As in an argument of kubectl: `configmaps`, `gateways.gateway.networking.k8s.io`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.resource.fmt(f)
    }
}

impl InUseKind {
    /// Whether objects must be read whole, because an expression reads more than names and labels.
    pub(super) fn needs_whole(&self) -> bool {
        self.rules.iter().any(Rule::needs_whole)
    }

    /// Adds a rule to the kinds. Rules for one kind are an entry together.
    pub(super) fn add(kinds: &mut Vec<Self>, resource: Resource, rule: Rule) {
        let is_same = |kind: &&mut Self| kind.resource.is(&resource.group, &resource.plural);
        if let Some(kind) = kinds.iter_mut().find(is_same) {
            return kind.rules.push(rule);
        }
        kinds.push(Self { resource, rules: vec![rule] });
    }
}

/// Whether objects of a resource are in namespaces; `None` if it is not one of Kubernetes.
pub(super) fn namespaced(resource: &Resource) -> Option<bool> {
    kinds::of_resource(&resource.group, &resource.plural).map(|kind| kind.namespaced)
}
