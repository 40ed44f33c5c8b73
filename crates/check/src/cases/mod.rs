//! Cases: tests of policies. A document of kind `Cases` names requests and the verdicts that are expected.
//!
//! `read` turns a document into cases and finds all mistakes in it. `run` judges the requests with the policies of the command
//! line and compares. The facts of a case (namespace labels, parameters, permissions, user) come before those of the command
//! line, so that cases need no other files.

mod expect;
mod fields;
mod read;
mod run;

pub(crate) use expect::Expect;
pub(crate) use read::read;
pub(crate) use run::run;

use std::collections::BTreeMap;

use crate::grants::Grants;
use crate::objects::Object;
use crate::report::Position;

/// The API version of documents with cases.
pub(crate) const API_VERSION: &str = "durward.dev/v1alpha1";

/// A request and its expected verdict.
#[derive(Debug)]
pub(crate) struct Case {
    pub(crate) name: String,
    /// Place of the case.
    pub(crate) position: Position,
    /// The object, unless it is deleted.
    pub(crate) new: Option<Object>,
    /// The object before the change, unless it is created.
    pub(crate) old: Option<Object>,
    /// The subresource, or empty.
    pub(crate) subresource: String,
    /// The user, if the case names one.
    pub(crate) user: Option<User>,
    /// Labels of the object's namespace, if the case has them.
    pub(crate) namespace_labels: Option<BTreeMap<String, String>>,
    /// All parameters, if the case has them.
    pub(crate) params: Option<Vec<Object>>,
    /// Permissions, if the case has them.
    pub(crate) grants: Option<Grants>,
    pub(crate) expect: Expect,
}

/// The user of a request.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct User {
    pub(crate) name: String,
    /// Groups besides those that every user of the name has.
    pub(crate) groups: Vec<String>,
}
