//! What is kept of an object, and how it is read out of JSON: the same for a recording and for an API server's answer.

use std::collections::BTreeMap;

use serde::Deserialize;
use serde_json::value::RawValue;

use super::fleet::{Object, Owner};

/// What is kept of an object: its metadata, as far as guards read it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Metadata {
    /// Labels.
    pub labels: BTreeMap<String, String>,
    /// Annotations, without the copy of the whole object that `kubectl apply` leaves there: no guard reads it, and it would
    /// be most of what a cache holds.
    pub annotations: BTreeMap<String, String>,
    /// Whether it is being deleted.
    pub deleting: bool,
}

/// kubectl's copy of what was last applied.
const LAST_APPLIED: &str = "kubectl.kubernetes.io/last-applied-configuration";

/// `metadata` of an object on the wire, of which the rest is skipped.
#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct Wire {
    pub(super) name: String,
    pub(super) namespace: String,
    pub(super) resource_version: String,
    uid: String,
    #[serde(deserialize_with = "null_is_empty")]
    labels: BTreeMap<String, String>,
    #[serde(deserialize_with = "null_is_empty")]
    pub(super) annotations: BTreeMap<String, String>,
    deletion_timestamp: Option<String>,
    #[serde(deserialize_with = "null_is_empty")]
    owner_references: Vec<Reference>,
}

/// One of `ownerReferences`.
#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Reference {
    api_version: String,
    kind: String,
    name: String,
    uid: String,
}

impl Wire {
    /// The object that it is the metadata of.
    pub(super) fn object(mut self, raw: Option<Box<RawValue>>) -> Object {
        let owner = |Reference { api_version, kind, name, uid }| Owner { api_version, kind, name, uid };
        Object {
            namespace: std::mem::take(&mut self.namespace),
            name: std::mem::take(&mut self.name),
            uid: std::mem::take(&mut self.uid),
            owners: std::mem::take(&mut self.owner_references).into_iter().map(owner).collect(),
            metadata: self.kept(),
            raw,
        }
    }

    /// What is kept of it.
    pub(super) fn kept(mut self) -> Metadata {
        self.annotations.remove(LAST_APPLIED);
        Metadata {
            labels: self.labels,
            annotations: self.annotations,
            deleting: self.deletion_timestamp.is_some(),
        }
    }
}

/// `labels: null` is what hand-written files have, and old clients send.
pub(super) fn null_is_empty<'de, D, T>(deserializer: D) -> Result<T, D::Error>
where
    D: serde::Deserializer<'de>,
    T: Default + Deserialize<'de>,
{
    Ok(Option::deserialize(deserializer)?.unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keeps_what_guards_read_and_no_more() {
        let wire: Wire = serde_json::from_str(
            r#"{"name":"shop","uid":"1","labels":{"a":"b"},"deletionTimestamp":"2026-11-21T10:00:00Z","managedFields":[{}],
               "annotations":{"c":"d","kubectl.kubernetes.io/last-applied-configuration":"{}"}}"#,
        )
        .unwrap();
        let pair = |key: &str, value: &str| BTreeMap::from([(key.to_owned(), value.to_owned())]);
        assert_eq!(wire.name, "shop");
        assert_eq!(
            wire.kept(),
            Metadata { labels: pair("a", "b"), annotations: pair("c", "d"), deleting: true }
        );
    }

    #[test]
    fn an_object_has_its_owners_too() {
        let wire: Wire = serde_json::from_str(
            r#"{"name":"web-0","namespace":"shop","uid":"1","ownerReferences":[
               {"apiVersion":"apps/v1","kind":"ReplicaSet","name":"web","uid":"2","controller":true}]}"#,
        )
        .unwrap();
        let object = wire.object(None);
        assert_eq!(
            (object.namespace.as_str(), object.name.as_str(), object.uid.as_str()),
            ("shop", "web-0", "1")
        );
        let owner = Owner {
            api_version: "apps/v1".into(),
            kind: "ReplicaSet".into(),
            name: "web".into(),
            uid: "2".into(),
        };
        assert_eq!(object.owners, [owner]);
    }

    #[test]
    fn null_labels_are_no_labels() {
        let wire: Wire = serde_json::from_str(
            r#"{"name":"shop","labels":null,"deletionTimestamp":null,"ownerReferences":null}"#,
        )
        .unwrap();
        assert_eq!(wire.kept(), Metadata::default());
    }
}
