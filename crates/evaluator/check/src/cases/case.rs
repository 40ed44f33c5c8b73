//! A case of a document.

use std::collections::BTreeMap;

use config::Place;
use manifests::objects::Manifest;

use super::expect::Expect;
use crate::grants::Grants;

/// The API version of documents with cases.
pub(super) const API_VERSION: &str = "durward.dev/v1alpha1";

/// A request and its expected verdict.
#[derive(Debug)]
pub(crate) struct PolicyCase {
    pub(crate) name: String,
    /// Place of the case.
    pub(crate) position: Place,
    /// The object, unless it is deleted.
    pub(crate) new: Option<Manifest>,
    /// The object before the change, unless it is created.
    pub(crate) old: Option<Manifest>,
    /// The subresource, or empty.
    pub(crate) subresource: String,
    /// The name of the user, if the case has one, and its groups besides those that every user of the name has.
    pub(crate) user: Option<(String, Vec<String>)>,
    /// Labels of the object's namespace, if the case has them.
    pub(crate) namespace_labels: Option<BTreeMap<String, String>>,
    /// All parameters, if the case has them.
    pub(crate) params: Option<Vec<Manifest>>,
    /// Permissions, if the case has them.
    pub(crate) grants: Option<Grants>,
    pub(crate) expect: Expect,
}
