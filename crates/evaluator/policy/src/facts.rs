//! Facts that only the cluster knows, and the questions for them.

use std::collections::HashMap;

pub use crate::cel::outcome::Limit;
use crate::cel::outcome::{Authorization, FactSource, Query};
use crate::expression::{AccessCheck, check_of};

/// Answers to lookups.
#[derive(Clone, Debug, Default)]
pub struct Facts {
    /// Namespaces as JSON, by name; `None` if the namespace does not exist.
    pub namespaces: HashMap<String, Option<String>>,
    /// Whether kinds of parameters are namespaced; `None` if the cluster does not know the kind.
    pub param_kinds: HashMap<ParamKind, Option<bool>>,
    /// Parameters as JSON.
    pub params: HashMap<ParamQuery, Vec<String>>,
    /// Whether the cluster can have more parameters than these. A selector that matches none of them is then unknown.
    pub params_are_partial: bool,
    /// Whether parameters that are not listed do not exist.
    pub params_are_complete: bool,
    /// Answers to authorization checks.
    pub decisions: HashMap<AccessCheck, Authorization>,
}

/// The kind of parameters.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct ParamKind {
    /// Group and version.
    pub api_version: String,
    /// Kind.
    pub kind: String,
}

impl ParamKind {
    /// Group, version and kind as Go prints them.
    pub(crate) fn display(&self) -> String {
        let (group, version) = self.api_version.split_once('/').unwrap_or(("", &self.api_version));
        format!("{group}/{version}, Kind={}", self.kind)
    }
}

/// Which parameters are needed.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct ParamQuery {
    /// Their kind.
    pub kind: ParamKind,
    /// Their namespace, or empty for cluster-scoped ones.
    pub namespace: String,
    /// Their name; all of them if absent.
    pub name: Option<String>,
}

/// A fact that an evaluation needs.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Lookup {
    /// A Namespace.
    Namespace(String),
    /// Whether a kind of parameters exists and is namespaced.
    ParamKind(ParamKind),
    /// Parameters.
    Params(ParamQuery),
    /// An authorization check.
    Check(AccessCheck),
    /// The caller of the request.
    User,
    /// The object before the request in the version of the request. It is always unknown.
    OldObject,
    /// More than a limit of the evaluator. This can't be answered.
    Limit(Limit),
    /// The object in another version, which a policy with `matchPolicy: Equivalent` names. This can't be answered.
    Conversion {
        /// The policy.
        policy: String,
        /// Group, version and resource of the rule.
        rule: String,
    },
}

impl FactSource for Facts {
    fn decision(&self, query: &Query<'_>) -> Option<Authorization> {
        self.decisions.get(&check_of(query)?).cloned()
    }
}
