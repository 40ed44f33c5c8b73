//! Reads from a review which pod is deleted or evicted.
//!
//! On DELETE, `oldObject` is the pod; with deletecollection only that contains its name. An eviction is a CREATE of `pods/eviction`
//! with an Eviction (policy/v1 or v1beta1), which may have no namespace. Its pod must be read from the API server. A dry run may be
//! set only in the `deleteOptions` of the Eviction (`kubectl drain --dry-run=server`), which the decoder reads.

use std::collections::BTreeMap;

use admission::{Cause, Operation, Raw, Request, Shape};

use super::config::Config;
use super::pod::{Pod, Process};
use cluster::cause;

admission::fields! {
    /// The fields that the decoder finds.
    pub(super) enum ReviewedField {
        Name = "/metadata/name",
        Namespace = "/metadata/namespace",
        Uid = "/metadata/uid",
        Labels = "/metadata/labels",
        Annotations = "/metadata/annotations",
        DeletionTimestamp = "/metadata/deletionTimestamp",
        Phase = "/status/phase",
        GracePeriod = "/deleteOptions/gracePeriodSeconds",
        PreconditionUid = "/deleteOptions/preconditions/uid",
    }
}

/// The group of all kubelets.
const NODES: &str = "system:nodes";

/// The deletion or eviction of a pod.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Removal {
    pub(super) kind: RemovalKind,
    pub(super) namespace: String,
    pub(super) name: String,
    /// The grace period of the request in seconds.
    pub(super) grace: Option<i64>,
    pub(super) dry_run: bool,
    pub(super) by_controller: bool,
    pub(super) by_kubelet: bool,
    /// The only uid that an eviction is meant for. The API server rejects it for another pod of the same name.
    pub(super) only_uid: Option<String>,
    /// The pod that the review of a deletion contains, with the parts that decide if the stored pod cannot be read: metadata, and
    /// whether it has ended.
    pub(super) pod: Option<Pod>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum RemovalKind {
    Delete,
    Evict,
}

impl RemovalKind {
    /// Returns the kind of a request; `None` for requests about other objects.
    pub(super) fn of(request: &Request<'_>) -> Option<Self> {
        let is_pods = request.resource.group.is_empty() && request.resource.resource == "pods";
        match (is_pods, request.operation, request.subresource.as_ref()) {
            (true, Operation::Delete, "") => Some(Self::Delete),
            (true, Operation::Create, "eviction") => Some(Self::Evict),
            _ => None,
        }
    }
}

/// Options of a deletion.
#[derive(Default, serde::Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Options {
    grace_period_seconds: Option<i64>,
}

/// Returns the cause for a review that the API server would not send.
pub(super) fn malformed(what: &str) -> Cause {
    Cause::new(cause::GARBAGE, format!("invalid AdmissionReview: {what}"))
}

impl Removal {
    /// Reads a review. A review that cannot be read is Unknown, never allowed.
    pub(super) fn read(config: &Config, kind: RemovalKind, request: &Request<'_>) -> Result<Self, Cause> {
        let (object, field) = match kind {
            RemovalKind::Delete => (&request.old_object, "oldObject"),
            RemovalKind::Evict => (&request.object, "object"),
        };
        let Some(object) = object else { return Err(malformed(&format!("it has no {field}"))) };
        if object.raw().shape() != Shape::Object {
            return Err(malformed(&format!("{field} is not an object")));
        }
        if let Some(key) = object.duplicate_key() {
            return Err(malformed(&format!("duplicate key {key} in {field}")));
        }
        let text = |wanted: ReviewedField| match object.field(wanted).map(|raw| (raw.shape(), raw.text())) {
            None | Some((Shape::Null, _)) => Ok(String::new()),
            Some((_, Some(text))) => Ok(text.into_owned()),
            Some(_) => Err(malformed(&format!("a text in {field} is not a string"))),
        };
        let either = |own: String, given: &str, what: &str| match (own.is_empty(), given.is_empty()) {
            (true, true) => Err(malformed(&format!("it has no {what}"))),
            (true, false) => Ok(given.to_owned()),
            (false, false) if own != given => {
                Err(malformed(&format!("{field} has another {what} than the request")))
            }
            (false, _) => Ok(own),
        };
        let grace = match kind {
            RemovalKind::Delete => request.options.map(grace_period).transpose()?.flatten(),
            RemovalKind::Evict => object.field(ReviewedField::GracePeriod).map(number).transpose()?.flatten(),
        };
        let (namespace, name) = (
            either(text(ReviewedField::Namespace)?, &request.namespace, "namespace")?,
            either(text(ReviewedField::Name)?, &request.name, "name")?,
        );
        let strings = |field: ReviewedField, what: &str| {
            let read = object.field(field).map(|raw| strings(raw, what)).transpose()?;
            Ok(read.flatten().unwrap_or_default())
        };
        let pod = match kind {
            RemovalKind::Evict => None,
            RemovalKind::Delete => Some(Pod {
                namespace: namespace.clone(),
                name: name.clone(),
                uid: Some(text(ReviewedField::Uid)?)
                    .filter(|uid| !uid.is_empty())
                    .ok_or_else(|| malformed(&format!("{field} has no uid")))?,
                labels: strings(ReviewedField::Labels, "labels")?,
                annotations: strings(ReviewedField::Annotations, "annotations")?,
                is_deleting: !text(ReviewedField::DeletionTimestamp)?.is_empty(),
                process: match text(ReviewedField::Phase)?.as_str() {
                    "Succeeded" | "Failed" => Process::Ended,
                    _ => Process::Unknown,
                },
                ..Pod::default()
            }),
        };
        Ok(Self {
            kind,
            namespace,
            name,
            grace,
            dry_run: request.dry_run,
            by_controller: config.common_config.settle_policy.is_controller(&request.user),
            by_kubelet: request.user.is_in(NODES),
            only_uid: Some(text(ReviewedField::PreconditionUid)?)
                .filter(|uid| kind == RemovalKind::Evict && !uid.is_empty()),
            pod,
        })
    }

    /// Returns `pod db/etcd-0`.
    pub(super) fn full_name(&self) -> String {
        format!("pod {}/{}", self.namespace, self.name)
    }

    /// Returns `deleting pod db/etcd-0`.
    pub(super) fn doing(&self) -> String {
        match self.kind {
            RemovalKind::Evict => format!("evicting {}", self.full_name()),
            RemovalKind::Delete => format!("deleting {}", self.full_name()),
        }
    }

    /// Returns the start of a denial: `cannot delete pod db/etcd-0`, followed by `adverb`.
    pub(super) fn denied_effect(&self, adverb: &str) -> String {
        match self.kind {
            RemovalKind::Delete => format!("cannot delete {}{adverb}", self.full_name()),
            RemovalKind::Evict => format!("cannot evict {}{adverb}", self.full_name()),
        }
    }
}

fn grace_period(options: Raw<'_>) -> Result<Option<i64>, Cause> {
    let options: Option<Options> = options.parse().map_err(|_| malformed("options are not DeleteOptions"))?;
    Ok(options.and_then(|options| options.grace_period_seconds))
}

fn strings(raw: Raw<'_>, what: &str) -> Result<Option<BTreeMap<String, String>>, Cause> {
    raw.parse().map_err(|_| malformed(&format!("the {what} of oldObject are not strings")))
}

fn number(raw: Raw<'_>) -> Result<Option<i64>, Cause> {
    raw.parse().map_err(|_| malformed("gracePeriodSeconds is not a number"))
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::super::fixture::{LEAST, config, with_delete, with_eviction};
    use super::*;

    fn read(request: &Request<'_>) -> Result<Removal, String> {
        let kind = RemovalKind::of(request).ok_or("not ours")?;
        Removal::read(&config(LEAST), kind, request).map_err(|cause| cause.text)
    }

    fn deleted(change: impl FnOnce(&mut Value)) -> Result<Removal, String> {
        with_delete("etcd-0", change, read)
    }

    fn evicted(change: impl FnOnce(&mut Value)) -> Result<Removal, String> {
        with_eviction("etcd-0", change, read)
    }

    #[test]
    fn a_deletion_contains_its_pod_and_a_collection_its_name() {
        for change in [|_: &mut Value| {}, |r: &mut Value| r["name"] = "".into()] {
            let removal = deleted(change).unwrap();
            assert_eq!((removal.namespace.as_str(), removal.name.as_str()), ("db", "etcd-0"));
            assert!(removal.pod.is_some_and(|pod| pod.name == "etcd-0"));
            assert_eq!((removal.kind, removal.grace, removal.dry_run), (RemovalKind::Delete, None, false));
        }
        let forced = deleted(|r| r["options"] = json!({"kind": "DeleteOptions", "gracePeriodSeconds": 0}));
        assert_eq!(forced.unwrap().grace, Some(0));
    }

    #[test]
    fn an_eviction_of_either_version_names_its_pod_even_without_a_namespace() {
        for version in ["policy/v1", "policy/v1beta1"] {
            let removal = evicted(|r| {
                r["object"]["apiVersion"] = version.into();
                drop(r["object"]["metadata"].as_object_mut().unwrap().remove("namespace"));
            });
            let removal = removal.unwrap();
            assert_eq!((removal.namespace.as_str(), removal.name.as_str()), ("db", "etcd-0"));
            assert_eq!((removal.kind, removal.pod), (RemovalKind::Evict, None));
        }
        let options = |options: Value| evicted(|r| r["object"]["deleteOptions"] = options).unwrap();
        assert!(options(json!({"dryRun": ["All"]})).dry_run);
        assert_eq!(options(json!({"gracePeriodSeconds": 5})).grace, Some(5));
        let only = options(json!({"preconditions": {"uid": "u-7"}})).only_uid;
        assert_eq!((only.as_deref(), options(json!({"preconditions": null})).only_uid), (Some("u-7"), None));
    }

    #[test]
    fn distinguishes_users_controllers_and_kubelets() {
        let by = |user: &str, group: &str| {
            let (user, group) = (user.to_owned(), group.to_owned());
            let removal = deleted(|r| r["userInfo"] = json!({"username": user, "groups": [group]})).unwrap();
            (removal.by_controller, removal.by_kubelet)
        };
        assert_eq!(by("ann", "dev"), (false, false));
        assert_eq!(by("system:serviceaccount:kube-system:statefulset-controller", "x"), (true, false));
        assert_eq!(by("system:node:n1", "system:nodes"), (false, true));
    }

    #[test]
    fn a_malformed_review_is_an_error() {
        type Change = fn(&mut Value);
        let broken: [(&str, Change); 8] = [
            ("no uid", |r| r["oldObject"]["metadata"]["uid"] = Value::Null),
            ("no oldObject", |r| r["oldObject"] = Value::Null),
            ("not an object", |r| r["oldObject"] = 7.into()),
            ("not a string", |r| r["oldObject"]["metadata"]["name"] = 7.into()),
            ("not strings", |r| r["oldObject"]["metadata"]["labels"]["app"] = 7.into()),
            ("another name", |r| r["name"] = "etcd-1".into()),
            ("another namespace", |r| r["namespace"] = "other".into()),
            ("not DeleteOptions", |r| r["options"] = json!({"gracePeriodSeconds": "soon"})),
        ];
        for (why, change) in broken {
            let error = deleted(change).unwrap_err();
            assert!(error.contains(why), "{why}: {error}");
        }
        assert!(evicted(|r| r["object"] = Value::Null).unwrap_err().contains("it has no object"));
        let soon = |r: &mut Value| r["object"]["deleteOptions"] = json!({"gracePeriodSeconds": "soon"});
        assert!(evicted(soon).unwrap_err().contains("not a number"));
        let seven = |r: &mut Value| r["object"]["deleteOptions"] = json!({"preconditions": {"uid": 7}});
        assert!(evicted(seven).unwrap_err().contains("not a string"));
        let unnamed = |r: &mut Value| {
            r["name"] = "".into();
            r["object"]["metadata"] = json!({});
        };
        assert!(evicted(unnamed).unwrap_err().contains("it has no name"));
    }

    #[test]
    fn ignores_other_operations_resources_and_subresources() {
        let others: [fn(&mut Value); 4] = [
            |r| r["operation"] = "CREATE".into(),
            |r| r["subResource"] = "status".into(),
            |r| r["resource"]["resource"] = "services".into(),
            |r| r["resource"]["group"] = "metrics.k8s.io".into(),
        ];
        for change in others {
            assert_eq!(deleted(change).unwrap_err(), "not ours");
        }
    }
}
