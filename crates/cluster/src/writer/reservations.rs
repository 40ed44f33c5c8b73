//! The set of pods that may be on their way out, kept in one Lease for each namespace, where every replica of Durward sees it.
//!
//! For each namespace, not for each ensemble: which pods are one ensemble is a matter of configuration and of owners, and both may
//! change while a pod leaves. An ensemble never spans namespaces, so that no change splits it over two Leases.
//!
//! The set stands in an annotation, as a Lease has one holder and this is several. Who has changed it last does not matter: it is
//! written only over the version that was read. What a later version of Durward writes beside is kept.

use std::collections::BTreeMap;
use std::time::{Duration, SystemTime};

use admission::Cause;
use k8s_openapi::jiff::Timestamp;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use serde_json::{Value, json};

use crate::{Address, Resource, cause};

/// Under which the set stands.
const ANNOTATION: &str = "durward.dev/reservations";

/// More than this many pods are never on their way out of one namespace at once: of two hundred ensembles of five members each, four
/// hundred. They are about 100 kB then, and annotations may be 256 KiB.
pub(super) const MOST: usize = 512;

/// By which Durward's own Leases are known.
const MANAGED_BY: (&str, &str) = ("app.kubernetes.io/managed-by", "durward");

/// Which Lease.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Lease {
    /// Durward's own namespace.
    pub namespace: String,
    /// One for each namespace that has ensembles.
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
pub struct Reservation {
    /// The pod's uid.
    pub uid: String,
    /// The pod's name, for people.
    pub pod: String,
    /// When the review that may let it go has ended: from then on it is waited for.
    pub since: Timestamp,
    /// When it was noted for the first time of those that followed each other; none by a version that did not say so.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub first: Option<Timestamp>,
    /// The uids of pods to which it may be about to hand leadership over: one, or more where reviews differ in whom they choose.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub to: Vec<String>,
    /// What a later version knows of it.
    #[serde(flatten)]
    pub more: BTreeMap<String, Value>,
}

impl Reservation {
    /// One that says no more than that.
    pub fn new(uid: &str, pod: &str, since: Timestamp) -> Self {
        Self {
            uid: uid.to_owned(),
            pod: pod.to_owned(),
            since,
            first: None,
            to: Vec::new(),
            more: BTreeMap::new(),
        }
    }

    /// How long ago its review ended; nothing where it has not yet.
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
    labels: Option<BTreeMap<String, Value>>,
    annotations: Option<BTreeMap<String, Value>>,
}

impl Reservations {
    /// Reads a whole Lease. What cannot be read is no empty set: somebody's reservation may be in it.
    pub fn read(Lease { namespace, name }: &Lease, json: &RawValue) -> Result<Self, Cause> {
        let lease = format!("the Lease {name} in namespace {namespace}");
        let next = "delete it when no pod leaves";
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
                return Err(garbage(format!(
                    "somebody took the annotation {ANNOTATION} off {lease}, so that nobody knows who leaves; {next}"
                )));
            }
            // Somebody made it beforehand.
            None => Vec::new(),
            Some(Value::String(text)) => serde_json::from_str(&text).map_err(|error| {
                garbage(format!("the annotation {ANNOTATION} of {lease} cannot be read: {error}; {next}"))
            })?,
            Some(_) => {
                return Err(garbage(format!("the annotation {ANNOTATION} of {lease} is no text; {next}")));
            }
        };
        if held.len() > MOST {
            let text = format!("the annotation {ANNOTATION} of {lease} names more than {MOST} pods; {next}");
            return Err(garbage(text));
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

    /// Whether this pod is in it.
    pub fn holds(&self, uid: &str) -> bool {
        self.of(uid).is_some()
    }

    /// What is said of this pod.
    pub fn of(&self, uid: &str) -> Option<&Reservation> {
        self.held.iter().find(|one| one.uid == uid)
    }

    /// Whether there are more in it than anybody reads.
    pub fn is_too_long(&self) -> bool {
        self.held.len() > MOST
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
    fn what_is_written_is_read_back() {
        let set = Reservations { version: Some("7".into()), held: vec![reservation("a"), reservation("b")] };
        let body = set.body(&lease());
        assert_eq!(body["metadata"]["resourceVersion"], "7");
        assert_eq!(Reservations::read(&lease(), &to_raw_value(&body).unwrap()).unwrap(), set);
        assert!(set.holds("b") && !set.holds("c"));
        let first = Reservations { version: None, held: vec![] }.body(&lease());
        assert!(first["metadata"].get("resourceVersion").is_none());
        assert_eq!(first["metadata"]["name"], "durward-etcd.db");
        let first = Some(reservation("a").since);
        let heir = Reservation { to: vec!["c".into()], first, ..reservation("a") };
        let body = Reservations { version: Some("7".into()), held: vec![heir.clone()] }.body(&lease());
        assert_eq!(Reservations::read(&lease(), &to_raw_value(&body).unwrap()).unwrap().held, [heir]);
    }

    #[test]
    fn what_a_later_version_says_of_a_pod_is_kept_and_what_has_to_be_said_is_missed() {
        let text = r#"[{"uid":"a","pod":"etcd-1","since":"2026-11-21T10:00:00Z","by":{"node":"n1"}}]"#;
        let read = held(text).unwrap();
        assert_eq!((read[0].uid.as_str(), read[0].since), ("a", reservation("a").since));
        assert_eq!(serde_json::to_string(&read).unwrap(), text);
        for text in [
            r#"[{"pod":"etcd-1","since":"2026-11-21T10:00:00Z"}]"#,
            r#"[{"uid":"a","pod":"etcd-1"}]"#,
            r#"[{"uid":"a","pod":"etcd-1","since":"soon"}]"#,
        ] {
            assert!(held(text).unwrap_err().contains("cannot be read"), "{text}");
        }
    }

    #[test]
    fn a_lease_of_durwards_whose_set_was_taken_off_is_not_an_empty_one() {
        let own = json!({"resourceVersion": "1", "labels": {"app.kubernetes.io/managed-by": "durward"}});
        assert!(read(&own).unwrap_err().contains("took the annotation durward.dev/reservations off"));
        let made = json!({"resourceVersion": "1", "labels": {"app.kubernetes.io/managed-by": "helm"}});
        assert_eq!(read(&made).unwrap().held, []);
    }

    #[test]
    fn a_lease_that_holds_no_set_is_an_empty_one_and_one_that_cannot_be_read_is_none() {
        assert_eq!(read(&json!({"resourceVersion": "1"})).unwrap().held, []);
        assert_eq!(read(&json!({"resourceVersion": "1", "annotations": {"a": "b"}})).unwrap().held, []);
        let many = serde_json::to_string(&vec![reservation("a"); MOST + 1]).unwrap();
        for (metadata, why) in [
            (json!({"annotations": {}}), "cannot be read"),
            (json!({"resourceVersion": ""}), "no resourceVersion"),
            (json!({"resourceVersion": "1", "annotations": {ANNOTATION: 7}}), "is no text"),
            (json!({"resourceVersion": "1", "annotations": {ANNOTATION: "[{}]"}}), "cannot be read"),
            (json!({"resourceVersion": "1", "annotations": {ANNOTATION: many}}), "more than 512"),
        ] {
            let told = read(&metadata).unwrap_err();
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
