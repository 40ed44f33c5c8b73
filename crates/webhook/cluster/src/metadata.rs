//! The metadata of objects and its decoding, for API servers and snapshots.

use std::collections::BTreeMap;
use std::fmt;

use serde::de::{MapAccess, Visitor};
use serde::{Deserialize, Deserializer};
use serde_json::value::RawValue;

use super::fleet::Object;

/// The part of an object's metadata that guards read.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Metadata {
    /// Labels.
    pub labels: BTreeMap<String, String>,
    /// Annotations, without the copy of the whole object that `kubectl apply` leaves there. The cache of
    /// [`Reader::get`](crate::Reader::get) has those of Durward only, because it holds thousands of objects.
    pub annotations: BTreeMap<String, String>,
    /// Whether it is being deleted.
    pub deleting: bool,
}

/// kubectl's copy of what was last applied.
const LAST_APPLIED: &str = "kubectl.kubernetes.io/last-applied-configuration";

/// Whether an annotation is one of Durward's.
pub(super) fn is_own_annotation(key: &str) -> bool {
    key.starts_with("durward.dev/")
}

/// `metadata` of an object on the wire. Other fields of the object are skipped.
#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct Wire {
    pub(super) name: String,
    pub(super) namespace: String,
    pub(super) resource_version: String,
    uid: String,
    #[serde(deserialize_with = "few_pairs")]
    labels: BTreeMap<String, String>,
    #[serde(deserialize_with = "few_pairs")]
    pub(super) annotations: BTreeMap<String, String>,
    deletion_timestamp: Option<String>,
}

/// The rest of a page's limits.
#[derive(Debug)]
pub(super) struct Allowance {
    pairs: usize,
}

impl Default for Allowance {
    /// 200 labels and annotations for each of 500 objects, 13 MB at most.
    fn default() -> Self {
        Self { pairs: 10 * MOST_ENTRIES }
    }
}

impl Allowance {
    /// Counts the metadata of an object. The error names the limit.
    pub(super) fn take(&mut self, wire: &Wire) -> Result<(), String> {
        let pairs = wire.labels.len() + wire.annotations.len();
        self.pairs = self.pairs.checked_sub(pairs).ok_or_else(|| {
            format!("the objects of one page have more than {} labels and annotations", 10 * MOST_ENTRIES)
        })?;
        Ok(())
    }
}

impl Wire {
    /// The object that it is the metadata of.
    pub(super) fn object(mut self, raw: Option<Box<RawValue>>) -> Object {
        Object {
            namespace: std::mem::take(&mut self.namespace),
            name: std::mem::take(&mut self.name),
            uid: std::mem::take(&mut self.uid),
            metadata: self.whole(),
            raw,
        }
    }

    pub(super) fn uid(&self) -> &String {
        &self.uid
    }

    /// Returns the part that guards read of other objects.
    pub(super) fn whole(mut self) -> Metadata {
        self.annotations.remove(LAST_APPLIED);
        Metadata {
            labels: self.labels,
            annotations: self.annotations,
            deleting: self.deletion_timestamp.is_some(),
        }
    }
}

/// 10,000 labels or annotations: more than an object of etcd's 1.5 MiB can have. In memory, each takes up to thirty
/// times its size on the wire, so 4 MiB of them would otherwise take a hundred.
const MOST_ENTRIES: usize = 10_000;

/// Reads null as empty. Files written by hand and old clients contain `labels: null`.
pub(super) fn null_is_empty<'de, D, T>(deserializer: D) -> Result<T, D::Error>
where
    D: Deserializer<'de>,
    T: Default + Deserialize<'de>,
{
    Ok(Option::deserialize(deserializer)?.unwrap_or_default())
}

/// Reads at most [`MOST_ENTRIES`] pairs, or null for none.
fn few_pairs<'de, D: Deserializer<'de>>(deserializer: D) -> Result<BTreeMap<String, String>, D::Error> {
    deserializer.deserialize_any(Few)
}

struct Few;

fn too_many<E: serde::de::Error>() -> E {
    E::custom(format!("an object has more than {MOST_ENTRIES} labels or annotations"))
}

impl<'de> Visitor<'de> for Few {
    type Value = BTreeMap<String, String>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a map of texts")
    }

    fn visit_unit<E>(self) -> Result<Self::Value, E> {
        Ok(BTreeMap::new())
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
        let mut pairs = BTreeMap::new();
        while let Some((key, value)) = map.next_entry()? {
            if pairs.len() == MOST_ENTRIES {
                return Err(too_many());
            }
            pairs.insert(key, value);
        }
        Ok(pairs)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keeps_only_the_fields_that_guards_read() {
        let wire = || -> Wire {
            serde_json::from_str(
                r#"{"name":"shop","uid":"1","labels":{"a":"b"},"deletionTimestamp":"2026-11-21T10:00:00Z","managedFields":[{}],
                   "annotations":{"c":"d","durward.dev/e":"f","kubectl.kubernetes.io/last-applied-configuration":"{}"}}"#,
            )
            .unwrap()
        };
        let pairs = |pairs: &[(&str, &str)]| {
            pairs.iter().map(|&(key, value)| (key.to_owned(), value.to_owned())).collect()
        };
        let metadata = |annotations: &[(&str, &str)]| Metadata {
            labels: pairs(&[("a", "b")]),
            annotations: pairs(annotations),
            deleting: true,
        };
        assert_eq!(wire().name, "shop");
        assert_eq!(wire().object(None).metadata, metadata(&[("c", "d"), ("durward.dev/e", "f")]));
    }

    fn labeled(many: usize) -> String {
        let pairs: Vec<String> = (0..many).map(|at| format!("\"{at}\":\"\"")).collect();
        format!(r#"{{"name":"a","labels":{{{}}}}}"#, pairs.join(","))
    }

    #[test]
    fn more_labels_than_an_object_can_have_are_rejected_while_reading() {
        let of = |many: usize| serde_json::from_str::<Wire>(&labeled(many));
        assert!(of(MOST_ENTRIES).is_ok());
        let error = of(MOST_ENTRIES + 1).unwrap_err().to_string();
        assert!(error.starts_with("an object has more than 10000"), "{error}");
    }

    #[test]
    fn labels_over_the_limit_of_a_page_are_rejected() {
        let wire = |many| serde_json::from_str::<Wire>(&labeled(many)).unwrap();
        let mut page = Allowance::default();
        for _ in 0..10 {
            page.take(&wire(MOST_ENTRIES)).unwrap();
        }
        page.take(&wire(0)).unwrap();
        let error = page.take(&wire(1)).unwrap_err();
        assert_eq!(error, "the objects of one page have more than 100000 labels and annotations");
    }

    #[test]
    fn null_labels_are_no_labels() {
        let wire: Wire =
            serde_json::from_str(r#"{"name":"shop","labels":null,"deletionTimestamp":null}"#).unwrap();
        assert_eq!(wire.whole(), Metadata::default());
    }
}
