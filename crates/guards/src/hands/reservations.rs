//! The set of pods that may be on their way out, kept in one Lease for each ensemble, where every replica of Durward sees it.
//!
//! The set stands in an annotation, as a Lease has one holder and this is several. Who has changed it last does not matter: it is
//! written only over the version that was read.

use std::time::{Duration, SystemTime};

use admission::Cause;
use k8s_openapi::jiff::Timestamp;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use serde_json::{Value, json};

use crate::world::{Address, Resource, cause};

/// Under which the set stands.
const ANNOTATION: &str = "durward.dev/reservations";

/// More than this many pods are never on their way out of one ensemble: etcd advises seven members, and a Lease is small.
pub(super) const MOST: usize = 64;

/// Which Lease.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Lease {
    /// Durward's own namespace.
    pub namespace: String,
    /// One for each ensemble.
    pub name: String,
}

impl Lease {
    /// What it is one of.
    pub const RESOURCE: Resource = Resource {
        group: std::borrow::Cow::Borrowed("coordination.k8s.io"),
        version: std::borrow::Cow::Borrowed("v1"),
        plural: std::borrow::Cow::Borrowed("leases"),
    };

    /// Where it is.
    pub fn address(&self) -> Address<'_> {
        Address { resource: &Self::RESOURCE, namespace: &self.namespace, name: &self.name }
    }
}

/// One pod that may be on its way out.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Reservation {
    /// The pod's uid.
    pub uid: String,
    /// The pod's name, for people.
    pub pod: String,
    /// When it was let go.
    pub since: Timestamp,
}

impl Reservation {
    /// How long ago it was let go; nothing where a clock that is ahead says that it will be.
    pub fn age(&self, now: SystemTime) -> Duration {
        now.duration_since(self.since.into()).unwrap_or_default()
    }
}

/// The set, as it was read.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Reservations {
    /// The Lease's `resourceVersion`; none where there is no Lease yet.
    pub version: Option<String>,
    /// The pods. No uid twice.
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
    annotations: Option<std::collections::BTreeMap<String, Value>>,
}

impl Reservations {
    /// Reads a whole Lease. What cannot be read is no empty set: somebody's reservation may be in it.
    pub fn read(lease: &RawValue) -> Result<Self, Cause> {
        let garbage = |why: String| Cause::new(cause::GARBAGE, why);
        let wire: Wire = serde_json::from_str(lease.get())
            .map_err(|error| garbage(format!("the Lease cannot be read: {error}")))?;
        let version = Some(wire.metadata.resource_version).filter(|version| !version.is_empty());
        let version = version.ok_or_else(|| garbage("the Lease has no resourceVersion".to_owned()))?;
        let annotation = wire.metadata.annotations.and_then(|mut all| all.remove(ANNOTATION));
        let held: Vec<Reservation> = match annotation {
            None => Vec::new(),
            Some(Value::String(text)) => serde_json::from_str(&text).map_err(|error| {
                garbage(format!("the Lease's annotation {ANNOTATION} cannot be read: {error}"))
            })?,
            Some(_) => return Err(garbage(format!("the Lease's annotation {ANNOTATION} is no text"))),
        };
        if held.len() > MOST {
            return Err(garbage(format!("the Lease's annotation {ANNOTATION} names more than {MOST} pods")));
        }
        Ok(Self { version: Some(version), held })
    }

    /// The Lease to be written.
    pub fn body(&self, lease: &Lease) -> Value {
        // Reservations are texts and times: there is nothing that could fail.
        let held = serde_json::to_string(&self.held).unwrap_or_default();
        let mut body = json!({
            "apiVersion": "coordination.k8s.io/v1",
            "kind": "Lease",
            "metadata": {
                "namespace": lease.namespace,
                "name": lease.name,
                "labels": {"app.kubernetes.io/managed-by": "durward"},
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

    /// Whether this pod is in it.
    pub fn holds(&self, uid: &str) -> bool {
        self.held.iter().any(|one| one.uid == uid)
    }
}

#[cfg(test)]
mod tests {
    use serde_json::value::to_raw_value;

    use super::*;

    fn lease() -> Lease {
        Lease { namespace: "durward-system".into(), name: "durward-etcd.db.etcd".into() }
    }

    fn reservation(uid: &str) -> Reservation {
        Reservation {
            uid: uid.into(),
            pod: "etcd-1".into(),
            since: Timestamp::from_second(1_795_255_200).unwrap(),
        }
    }

    #[test]
    fn what_is_written_is_read_back() {
        let set = Reservations { version: Some("7".into()), held: vec![reservation("a"), reservation("b")] };
        let body = set.body(&lease());
        assert_eq!(body["metadata"]["resourceVersion"], "7");
        assert_eq!(Reservations::read(&to_raw_value(&body).unwrap()).unwrap(), set);
        assert!(set.holds("b") && !set.holds("c"));
        let first = Reservations { version: None, held: vec![] }.body(&lease());
        assert!(first["metadata"].get("resourceVersion").is_none());
        assert_eq!(first["metadata"]["name"], "durward-etcd.db.etcd");
    }

    #[test]
    fn a_lease_that_holds_no_set_is_an_empty_one_and_one_that_cannot_be_read_is_none() {
        let read = |metadata: Value| {
            let lease = to_raw_value(&json!({"metadata": metadata, "spec": {}})).unwrap();
            Reservations::read(&lease).map_err(|cause| cause.text)
        };
        assert_eq!(read(json!({"resourceVersion": "1"})).unwrap().held, []);
        assert_eq!(read(json!({"resourceVersion": "1", "annotations": {"a": "b"}})).unwrap().held, []);
        let many = serde_json::to_string(&vec![reservation("a"); MOST + 1]).unwrap();
        for (metadata, why) in [
            (json!({"annotations": {}}), "cannot be read"),
            (json!({"resourceVersion": ""}), "no resourceVersion"),
            (json!({"resourceVersion": "1", "annotations": {ANNOTATION: 7}}), "is no text"),
            (json!({"resourceVersion": "1", "annotations": {ANNOTATION: "[{}]"}}), "cannot be read"),
            (json!({"resourceVersion": "1", "annotations": {ANNOTATION: many}}), "more than 64"),
        ] {
            let told = read(metadata).unwrap_err();
            assert!(told.contains(why), "{told}");
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
