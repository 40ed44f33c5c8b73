//! The reservations of pods that may leave, in one Lease per namespace, which all replicas of Durward share.
//!
//! The Lease is per namespace and not per etcd cluster: configuration and owners decide which pods form a cluster, and both can change
//! while a pod leaves. An etcd cluster never spans namespaces, so no change spreads it over two Leases.
//!
//! An annotation contains the set, because a Lease has only one holder. Each write requires the version that was read. Fields of later
//! versions of Durward are kept.

use std::collections::BTreeMap;
use std::time::{Duration, SystemTime};

use admission::Cause;
use k8s_openapi::jiff::Timestamp;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use serde_json::{Value, json};

use crate::{Address, Resource, cause};

/// The annotation with the set.
const ANNOTATION: &str = "durward.dev/reservations";

/// Reservations in one Lease at most. Two hundred etcd clusters of five members need four hundred. They take about 100 kB, and
/// annotations can be 256 KiB.
pub(super) const MAX: usize = 512;

/// The label of Durward's own Leases.
const MANAGED_BY: (&str, &str) = ("app.kubernetes.io/managed-by", "durward");

/// The name of a Lease.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Lease {
    /// Durward's own namespace.
    pub namespace: String,
    /// One name per namespace with etcd clusters.
    pub name: String,
}

impl Lease {
    /// The resource of Leases.
    pub const RESOURCE: Resource = Resource {
        group: std::borrow::Cow::Borrowed("coordination.k8s.io"),
        version: std::borrow::Cow::Borrowed("v1"),
        plural: std::borrow::Cow::Borrowed("leases"),
    };

    /// Returns the address of the Lease.
    pub fn address(&self) -> Address<'_> {
        Address { resource: &Self::RESOURCE, namespace: &self.namespace, name: &self.name }
    }
}

/// A pod that may leave.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Reservation {
    /// The pod's uid.
    pub uid: String,
    /// The pod's name, for users.
    pub pod: String,
    /// The end of the review that may allow its deletion.
    pub since: Timestamp,
    /// The time of the first reservation in an uninterrupted series. Earlier versions do not store it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub first: Option<Timestamp>,
    /// How many seconds longer it counts, because the pod stays while its containers stop.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub longer: u64,
    /// The uids of pods that it may transfer leadership to; several if reviews choose different successors.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub to: Vec<String>,
    /// Fields of later versions.
    #[serde(flatten)]
    pub more: BTreeMap<String, Value>,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde passes a reference")]
fn is_zero(seconds: &u64) -> bool {
    *seconds == 0
}

impl Reservation {
    /// Creates a reservation without a successor.
    pub fn new(uid: &str, pod: &str, since: Timestamp) -> Self {
        Self {
            uid: uid.to_owned(),
            pod: pod.to_owned(),
            since,
            first: None,
            longer: 0,
            to: Vec::new(),
            more: BTreeMap::new(),
        }
    }

    /// Returns the time since the end of its review; zero before that.
    pub fn age(&self, now: SystemTime) -> Duration {
        now.duration_since(self.since.into()).unwrap_or_default()
    }
}

/// The set of reservations as it was read.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Reservations {
    /// The Lease's `resourceVersion`; `None` without a Lease.
    pub version: Option<String>,
    /// The reservations, with unique uids.
    pub held: Vec<Reservation>,
}

#[derive(Deserialize)]
struct Wire {
    metadata: WireMetadata,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct WireMetadata {
    resource_version: String,
    labels: Option<BTreeMap<String, Value>>,
    annotations: Option<BTreeMap<String, Value>>,
}

impl Reservations {
    /// Reads a Lease. Unreadable data is an error, because it may contain reservations.
    pub fn read(Lease { name, .. }: &Lease, json: &RawValue) -> Result<Self, Cause> {
        let lease = format!("Lease {name}");
        let garbage = |why: String| Cause::new(cause::GARBAGE, why);
        let wire: Wire = serde_json::from_str(json.get())
            .map_err(|error| garbage(format!("{lease} cannot be read: {error}")))?;
        let version = Some(wire.metadata.resource_version).filter(|version| !version.is_empty());
        let version = version.ok_or_else(|| garbage(format!("{lease} has no resourceVersion")))?;
        let annotation = wire.metadata.annotations.and_then(|mut all| all.remove(ANNOTATION));
        let (label, durward) = MANAGED_BY;
        let is_own = wire.metadata.labels.is_some_and(|labels| labels.get(label) == Some(&durward.into()));
        let held: Vec<Reservation> = match annotation {
            None if is_own => {
                return Err(garbage(format!("the annotation {ANNOTATION} of {lease} was removed")));
            }
            // A user created the Lease in advance.
            None => Vec::new(),
            Some(Value::String(text)) => serde_json::from_str(&text).map_err(|error| {
                garbage(format!("the annotation {ANNOTATION} of {lease} is invalid: {error}"))
            })?,
            Some(_) => {
                return Err(garbage(format!("the annotation {ANNOTATION} of {lease} is not a string")));
            }
        };
        if held.len() > MAX {
            let text = format!("the annotation {ANNOTATION} of {lease} names more than {MAX} pods");
            return Err(garbage(text));
        }
        Ok(Self { version: Some(version), held })
    }

    /// Returns the Lease as JSON.
    pub fn body(&self, lease: &Lease) -> Value {
        // Serializing texts and times cannot fail.
        let held = serde_json::to_string(&self.held).unwrap_or_default();
        let mut body = json!({
            "apiVersion": "coordination.k8s.io/v1",
            "kind": "Lease",
            "metadata": {
                "namespace": lease.namespace,
                "name": lease.name,
                "labels": {MANAGED_BY.0: MANAGED_BY.1},
                "annotations": {ANNOTATION: held},
            },
            "spec": {"holderIdentity": "durward"},
        });
        if let (Some(version), Some(metadata)) =
            (&self.version, body.get_mut("metadata").and_then(Value::as_object_mut))
        {
            metadata.insert("resourceVersion".to_owned(), version.as_str().into());
        }
        body
    }

    /// Whether this pod has a reservation.
    pub fn holds(&self, uid: &str) -> bool {
        self.of(uid).is_some()
    }

    /// Returns the reservation of this pod.
    pub fn of(&self, uid: &str) -> Option<&Reservation> {
        self.held.iter().find(|one| one.uid == uid)
    }

    /// Whether it has too many reservations to be read again.
    pub fn is_too_long(&self) -> bool {
        self.held.len() > MAX
    }
}

#[cfg(test)]
mod tests {
    use serde_json::value::to_raw_value;

    use super::*;

    fn lease() -> Lease {
        Lease { namespace: "durward-system".into(), name: "durward-etcd.db".into() }
    }

    fn reservation(uid: &str) -> Reservation {
        Reservation::new(uid, "etcd-1", Timestamp::from_second(1_795_255_200).unwrap())
    }

    fn read(metadata: &Value) -> Result<Reservations, String> {
        let json = to_raw_value(&json!({"metadata": metadata, "spec": {}})).unwrap();
        Reservations::read(&lease(), &json).map_err(|cause| cause.text)
    }

    fn held(text: &str) -> Result<Vec<Reservation>, String> {
        read(&json!({"resourceVersion": "1", "annotations": {ANNOTATION: text}})).map(|set| set.held)
    }

    #[test]
    fn a_written_set_can_be_read() {
        let set = Reservations { version: Some("7".into()), held: vec![reservation("a"), reservation("b")] };
        let body = set.body(&lease());
        assert_eq!(body["metadata"]["resourceVersion"], "7");
        assert_eq!(Reservations::read(&lease(), &to_raw_value(&body).unwrap()).unwrap(), set);
        assert!(set.holds("b") && !set.holds("c"));
        let first = Reservations { version: None, held: vec![] }.body(&lease());
        assert!(first["metadata"].get("resourceVersion").is_none());
        assert_eq!(first["metadata"]["name"], "durward-etcd.db");
        let first = Some(reservation("a").since);
        let transferring = Reservation { to: vec!["c".into()], first, longer: 30, ..reservation("a") };
        let body =
            Reservations { version: Some("7".into()), held: vec![transferring.clone()] }.body(&lease());
        assert_eq!(Reservations::read(&lease(), &to_raw_value(&body).unwrap()).unwrap().held, [transferring]);
    }

    #[test]
    fn unknown_fields_are_kept_and_required_fields_checked() {
        let text = r#"[{"uid":"a","pod":"etcd-1","since":"2026-11-21T10:00:00Z","by":{"node":"n1"}}]"#;
        let read = held(text).unwrap();
        assert_eq!((read[0].uid.as_str(), read[0].since), ("a", reservation("a").since));
        assert_eq!(serde_json::to_string(&read).unwrap(), text);
        for text in [
            r#"[{"pod":"etcd-1","since":"2026-11-21T10:00:00Z"}]"#,
            r#"[{"uid":"a","pod":"etcd-1"}]"#,
            r#"[{"uid":"a","pod":"etcd-1","since":"soon"}]"#,
        ] {
            assert!(held(text).unwrap_err().contains("is invalid"), "{text}");
        }
    }

    #[test]
    fn an_own_lease_without_the_annotation_is_an_error() {
        let own = json!({"resourceVersion": "1", "labels": {"app.kubernetes.io/managed-by": "durward"}});
        assert!(read(&own).unwrap_err().contains("was removed"));
        let made = json!({"resourceVersion": "1", "labels": {"app.kubernetes.io/managed-by": "helm"}});
        assert_eq!(read(&made).unwrap().held, []);
    }

    #[test]
    fn a_foreign_lease_without_the_annotation_is_empty_and_a_malformed_one_an_error() {
        assert_eq!(read(&json!({"resourceVersion": "1"})).unwrap().held, []);
        assert_eq!(read(&json!({"resourceVersion": "1", "annotations": {"a": "b"}})).unwrap().held, []);
        let many = serde_json::to_string(&vec![reservation("a"); MAX + 1]).unwrap();
        for (metadata, why) in [
            (json!({"annotations": {}}), "cannot be read"),
            (json!({"resourceVersion": ""}), "no resourceVersion"),
            (json!({"resourceVersion": "1", "annotations": {ANNOTATION: 7}}), "is not a string"),
            (json!({"resourceVersion": "1", "annotations": {ANNOTATION: "[{}]"}}), "is invalid"),
            (json!({"resourceVersion": "1", "annotations": {ANNOTATION: many}}), "more than 512"),
        ] {
            let error = read(&metadata).unwrap_err();
            assert!(error.contains(why), "{error}");
        }
    }

    #[test]
    fn a_clock_that_is_behind_makes_nothing_old() {
        let one = reservation("a");
        let at = |seconds| SystemTime::UNIX_EPOCH + Duration::from_secs(seconds);
        assert_eq!(one.age(at(1_795_255_231)), Duration::from_secs(31));
        assert_eq!(one.age(at(1_795_255_100)), Duration::ZERO);
    }
}
