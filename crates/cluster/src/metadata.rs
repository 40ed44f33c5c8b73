//! The metadata of objects and its decoding, for API servers and snapshots.

use std::collections::BTreeMap;
use std::fmt;

use serde::de::{MapAccess, SeqAccess, Visitor};
use serde::{Deserialize, Deserializer};
use serde_json::value::RawValue;

use super::fleet::{Object, Owner};

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

/// The beginning of Durward's annotations.
const OWN: &str = "durward.dev/";

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
    #[serde(deserialize_with = "few_owners")]
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

/// The rest of a page's limits.
#[derive(Debug)]
pub(super) struct Allowance {
    pairs: usize,
    owners: usize,
}

impl Default for Allowance {
    /// 200 labels and annotations and 40 owners for each of 500 objects, 15 MB at most. An object alone never has more of either than
    /// a page may have.
    fn default() -> Self {
        Self { pairs: 10 * MOST_ENTRIES, owners: 2 * MOST_ENTRIES }
    }
}

impl Allowance {
    /// Counts the metadata of an object. Owners over the limit become one unknown owner, so that guards that need no owners can
    /// use the page. The error names the limit.
    pub(super) fn take(&mut self, wire: &mut Wire) -> Result<(), String> {
        let pairs = wire.labels.len() + wire.annotations.len();
        self.pairs = self.pairs.checked_sub(pairs).ok_or_else(|| {
            format!("the objects of one page have more than {} labels and annotations", 10 * MOST_ENTRIES)
        })?;
        match self.owners.checked_sub(wire.owner_references.len()) {
            Some(left) => self.owners = left,
            None => wire.owner_references = vec![Reference::default()],
        }
        Ok(())
    }
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
            metadata: self.whole(),
            raw,
        }
    }

    pub(super) fn uid(&self) -> &String {
        &self.uid
    }

    /// Returns the part that the cache keeps.
    pub(super) fn kept(mut self) -> Metadata {
        self.annotations.retain(|key, _| key.starts_with(OWN));
        self.whole()
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

/// 10,000 labels, annotations or owners: more than an object of etcd's 1.5 MiB can have. In memory, each takes up to thirty
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

/// Reads owners with the same limit. Owners without a uid count as one unknown owner.
fn few_owners<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<Reference>, D::Error> {
    null_is_empty(deserializer).map(|Owners(owners)| owners)
}

struct Few;

#[derive(Default)]
struct Owners(Vec<Reference>);

fn too_many<E: serde::de::Error>() -> E {
    E::custom(format!("an object has more than {MOST_ENTRIES} labels, annotations or owners"))
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

impl<'de> Deserialize<'de> for Owners {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Each;
        impl<'de> Visitor<'de> for Each {
            type Value = Owners;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a list of owners")
            }

            fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<Owners, A::Error> {
                let mut owners: Vec<Reference> = Vec::new();
                let mut is_first_unknown = true;
                while let Some(mut owner) = seq.next_element::<Reference>()? {
                    if owner.uid.is_empty() {
                        if !std::mem::take(&mut is_first_unknown) {
                            continue;
                        }
                        owner = Reference::default();
                    }
                    if owners.len() == MOST_ENTRIES {
                        return Err(too_many());
                    }
                    owners.push(owner);
                }
                Ok(Owners(owners))
            }
        }
        deserializer.deserialize_seq(Each)
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
        assert_eq!(wire().kept(), metadata(&[("durward.dev/e", "f")]));
        assert_eq!(wire().object(None).metadata, metadata(&[("c", "d"), ("durward.dev/e", "f")]));
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
    fn more_labels_or_owners_than_an_object_can_have_are_rejected_while_reading() {
        let of = |many: usize| {
            let pairs: Vec<String> = (0..many).map(|at| format!("\"{at}\":\"\"")).collect();
            let pairs = format!(r#"{{"name":"a","labels":{{{}}}}}"#, pairs.join(","));
            let owners =
                format!(r#"{{"name":"a","ownerReferences":[{}]}}"#, vec![r#"{"uid":"b"}"#; many].join(","));
            [pairs, owners].map(|json| serde_json::from_str::<Wire>(&json))
        };
        assert!(of(MOST_ENTRIES).iter().all(Result::is_ok));
        for refused in of(MOST_ENTRIES + 1) {
            assert!(refused.unwrap_err().to_string().starts_with("an object has more than 10000"));
        }
    }

    #[test]
    fn owners_without_a_uid_count_as_one_unknown_owner() {
        let nameless = vec![r#"{"kind":"X"},{}"#; 50_000].join(",");
        let json = format!(r#"{{"name":"a","ownerReferences":[{nameless},{{"uid":"b"}},{nameless}]}}"#);
        let object = serde_json::from_str::<Wire>(&json).unwrap().object(None);
        let known = Owner { uid: "b".into(), ..Owner::default() };
        assert_eq!(object.owners, [Owner::default(), known]);
    }

    fn wire(labels: usize, owners: usize) -> Wire {
        Wire {
            labels: (0..labels).map(|at| (at.to_string(), String::new())).collect(),
            owner_references: (0..owners)
                .map(|at| Reference { uid: at.to_string(), ..Reference::default() })
                .collect(),
            ..Wire::default()
        }
    }

    #[test]
    fn owners_over_the_limit_of_a_page_become_one_unknown_owner() {
        let mut page = Allowance::default();
        let mut of = |many: usize| {
            let mut wire = wire(0, many);
            page.take(&mut wire).unwrap();
            wire.object(None).owners
        };
        assert_eq!([of(MOST_ENTRIES).len(), of(MOST_ENTRIES - 1).len()], [MOST_ENTRIES, MOST_ENTRIES - 1]);
        assert_eq!(of(2), [Owner::default()], "there is room for one");
        assert_eq!(of(1)[0].uid, "0");
        assert_eq!(of(0), []);
        assert_eq!(of(1), [Owner::default()]);
    }

    #[test]
    fn labels_over_the_limit_of_a_page_are_rejected() {
        let mut page = Allowance::default();
        for _ in 0..10 {
            page.take(&mut wire(MOST_ENTRIES, 0)).unwrap();
        }
        page.take(&mut wire(0, 1)).unwrap();
        let error = page.take(&mut wire(1, 0)).unwrap_err();
        assert_eq!(error, "the objects of one page have more than 100000 labels and annotations");
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
