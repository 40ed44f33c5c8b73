//! The reservation of a pod that may leave, in one Lease for each etcd cluster, which all replicas of Durward share.
//!
//! The holder of the Lease is the uid of the pod. Each write requires the version that was read. The namespace of the pod owns the
//! Lease, so the garbage collector deletes both together.

use std::collections::BTreeMap;

use admission::Cause;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::MicroTime;
use k8s_openapi::jiff::Timestamp;
use serde::Deserialize;
use serde_json::value::RawValue;
use serde_json::{Value, json};

use crate::{Address, Resource, cause};

/// The annotation with namespace and name of the pod, for messages.
const POD: &str = "durward.dev/pod";

/// The name of a Lease.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Lease {
    /// Durward's own namespace.
    pub namespace: String,
    /// One name for each etcd cluster.
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
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Reservation {
    /// The pod's uid.
    pub uid: String,
    /// The pod's namespace.
    pub namespace: String,
    /// The pod's name.
    pub pod: String,
    /// The uid of the pod's namespace, if it is known.
    pub namespace_uid: Option<String>,
    /// The time of the first reservation in an uninterrupted series.
    pub acquired: Timestamp,
    /// The time of the last reservation.
    pub renewed: Timestamp,
}

/// A Lease as it was read.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct StoredLease {
    /// The `resourceVersion`; `None` without a Lease.
    pub version: Option<String>,
    /// The reservation; `None` if no pod holds the Lease.
    pub reservation: Option<Reservation>,
}

#[derive(Deserialize)]
#[serde(rename = "Lease")]
struct WireLease {
    metadata: WireMetadata,
    #[serde(default)]
    spec: WireSpec,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct WireMetadata {
    resource_version: String,
    annotations: Option<BTreeMap<String, String>>,
    owner_references: Option<Vec<WireOwner>>,
}

#[derive(Deserialize)]
struct WireOwner {
    kind: String,
    uid: String,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct WireSpec {
    holder_identity: Option<String>,
    acquire_time: Option<Timestamp>,
    renew_time: Option<Timestamp>,
}

impl StoredLease {
    /// Reads a Lease. Unreadable data is an error, because it may be a reservation.
    pub fn read(Lease { name, .. }: &Lease, json: &RawValue) -> Result<Self, Cause> {
        let garbage = |why: String| Cause::new(cause::GARBAGE, format!("Lease {name} {why}"));
        let WireLease { metadata, spec } =
            serde_json::from_str(json.get()).map_err(|error| garbage(format!("cannot be read: {error}")))?;
        if metadata.resource_version.is_empty() {
            return Err(garbage("has no resourceVersion".to_owned()));
        }
        let uid = spec.holder_identity.filter(|uid| !uid.is_empty());
        let reservation = uid.map(|uid| {
            let pod = metadata.annotations.as_ref().and_then(|all| all.get(POD)?.split_once('/'));
            let (namespace, pod) = pod.ok_or_else(|| garbage(format!("has no valid annotation {POD}")))?;
            let owner = metadata.owner_references.iter().flatten().find(|owner| owner.kind == "Namespace");
            Ok(Reservation {
                uid,
                namespace: namespace.to_owned(),
                pod: pod.to_owned(),
                namespace_uid: owner.map(|owner| owner.uid.clone()),
                acquired: spec.acquire_time.ok_or_else(|| garbage("has no acquireTime".to_owned()))?,
                renewed: spec.renew_time.ok_or_else(|| garbage("has no renewTime".to_owned()))?,
            })
        });
        Ok(Self { version: Some(metadata.resource_version), reservation: reservation.transpose()? })
    }

    /// Returns the Lease as JSON.
    pub fn body(&self, lease: &Lease) -> Value {
        let mut metadata = json!({
            "namespace": lease.namespace,
            "name": lease.name,
            "labels": {"app.kubernetes.io/managed-by": "durward"},
        });
        if let Some(version) = &self.version {
            metadata["resourceVersion"] = version.as_str().into();
        }
        let mut spec = json!({});
        if let Some(Reservation { uid, namespace, pod, namespace_uid, acquired, renewed }) = &self.reservation
        {
            metadata["annotations"] = json!({POD: format!("{namespace}/{pod}")});
            if let Some(uid) = namespace_uid {
                let owner = json!({"apiVersion": "v1", "kind": "Namespace", "name": namespace, "uid": uid});
                metadata["ownerReferences"] = json!([owner]);
            }
            spec = json!({
                "holderIdentity": uid,
                "acquireTime": MicroTime(*acquired),
                "renewTime": MicroTime(*renewed),
            });
        }
        json!({"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": metadata, "spec": spec})
    }
}

#[cfg(test)]
mod tests {
    use serde_json::value::to_raw_value;

    use super::*;

    fn lease() -> Lease {
        Lease { namespace: "durward-system".into(), name: "durward-etcd.db.etcd".into() }
    }

    fn reservation() -> Reservation {
        let renewed = Timestamp::from_microsecond(1_795_255_200_000_001).unwrap();
        Reservation {
            uid: "a".into(),
            namespace: "db".into(),
            pod: "etcd-1".into(),
            namespace_uid: Some("uid-db".into()),
            acquired: Timestamp::from_second(1_795_255_200).unwrap(),
            renewed,
        }
    }

    fn read(json: &Value) -> Result<StoredLease, String> {
        StoredLease::read(&lease(), &to_raw_value(json).unwrap()).map_err(|cause| cause.text)
    }

    #[test]
    fn a_written_lease_can_be_read() {
        let stored = StoredLease { version: Some("7".into()), reservation: Some(reservation()) };
        let body = stored.body(&lease());
        assert_eq!(body["metadata"]["resourceVersion"], "7");
        assert_eq!(body["spec"]["acquireTime"], "2026-11-21T10:00:00.000000Z");
        assert_eq!(body["spec"]["renewTime"], "2026-11-21T10:00:00.000001Z");
        assert_eq!(body["metadata"]["ownerReferences"][0]["name"], "db");
        assert_eq!(read(&body).unwrap(), stored);
        let first = StoredLease::default().body(&lease());
        assert!(first["metadata"].get("resourceVersion").is_none());
        assert_eq!(first["metadata"]["name"], "durward-etcd.db.etcd");
    }

    #[test]
    fn a_lease_without_a_holder_is_free_and_a_malformed_one_an_error() {
        let free = StoredLease { version: Some("1".into()), reservation: None };
        for spec in [json!({}), json!({"holderIdentity": ""}), json!({"holderIdentity": null})] {
            assert_eq!(read(&json!({"metadata": {"resourceVersion": "1"}, "spec": spec})).unwrap(), free);
        }
        let stored = StoredLease { version: Some("7".into()), reservation: Some(reservation()) };
        let broken = |pointer: &str, value: Value| {
            let mut body = stored.body(&lease());
            *body.pointer_mut(pointer).unwrap() = value;
            read(&body).unwrap_err()
        };
        for (pointer, value, why) in [
            ("/metadata/resourceVersion", json!(""), "no resourceVersion"),
            ("/metadata/annotations", json!({}), "no valid annotation durward.dev/pod"),
            ("/metadata/annotations", json!({POD: "etcd-1"}), "no valid annotation"),
            ("/metadata/annotations", json!(7), "cannot be read"),
            ("/spec/acquireTime", Value::Null, "no acquireTime"),
            ("/spec/renewTime", Value::Null, "no renewTime"),
            ("/spec/renewTime", json!("soon"), "cannot be read"),
        ] {
            let error = broken(pointer, value);
            assert!(error.starts_with("Lease durward-etcd.db.etcd ") && error.contains(why), "{error}");
        }
    }
}
