//! Which pod is to go, read out of the review.
//!
//! On a DELETE `oldObject` is the pod, and each one of a deletecollection has no other name than that. An eviction is a CREATE of
//! `pods/eviction` whose object is the Eviction, at policy/v1 or v1beta1, perhaps without a namespace of its own; the pod has to be
//! fetched. That nothing is to be stored may stand only in the Eviction's `deleteOptions` (`kubectl drain --dry-run=server`);
//! decoding looks there.

use admission::{Cause, Operation, Raw, Request, Shape};

use super::config::Config;
use super::glass::Refused;
use cluster::cause;

/// The fields that are found while the review is decoded, in the order of the indices below. Those without an index are read out of
/// the pod as a whole; they stand here so that a review in which one of them stands twice is refused.
pub(super) const POINTERS: [&str; 10] = [
    "/metadata/name",
    "/metadata/namespace",
    "/metadata/uid",
    "/metadata/labels",
    "/metadata/annotations",
    "/metadata/deletionTimestamp",
    "/metadata/ownerReferences",
    "/deleteOptions/gracePeriodSeconds",
    "/spec/replicas",
    "/deleteOptions/preconditions/uid",
];
pub(super) const NAME: usize = 0;
const NAMESPACE: usize = 1;
pub(super) const ANNOTATIONS: usize = 4;
pub(super) const DELETION: usize = 5;
const GRACE: usize = 7;
pub(super) const REPLICAS: usize = 8;
const ONLY: usize = 9;

/// The group whose members are kubelets.
const NODES: &str = "system:nodes";

/// A pod that is to go.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Target {
    /// By which way.
    pub(super) deed: Deed,
    pub(super) namespace: String,
    pub(super) name: String,
    /// How long it is given, where whoever asks says so.
    pub(super) grace: Option<i64>,
    /// Whether nothing will be stored this time.
    pub(super) dry_run: bool,
    /// Whether one of the control plane's controllers asks.
    pub(super) by_controller: bool,
    /// Whether a kubelet asks.
    pub(super) by_kubelet: bool,
    /// The only pod that an eviction is meant for, by its uid: another one of the same name the API server does not delete.
    pub(super) only: Option<String>,
    /// The pod in JSON, where the review brings it.
    pub(super) pod: Option<String>,
}

/// By which way a pod goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Deed {
    /// It is deleted.
    Delete,
    /// It is evicted.
    Evict,
}

impl Deed {
    /// What the request is about; none where it is none of this guard's business.
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

/// What cannot be read of a review.
pub(super) fn broken(what: &str) -> Cause {
    Cause::new(cause::GARBAGE, format!("the review cannot be used: {what}; the API server always sends it"))
}

impl Target {
    /// Reads what is to go. An error is why that cannot be said; it is never a reason to let anything pass.
    pub(super) fn read(config: &Config, deed: Deed, request: &Request<'_>) -> Result<Self, Cause> {
        let (object, called) = match deed {
            Deed::Delete => (&request.old_object, "oldObject"),
            Deed::Evict => (&request.object, "object"),
        };
        let Some(object) = object else { return Err(broken(&format!("it has no {called}"))) };
        if object.raw().shape() != Shape::Object {
            return Err(broken(&format!("its {called} is no object")));
        }
        if let Some(twice) = object.duplicate_key() {
            let text = format!(
                "the review cannot be used: {twice} stands twice in its {called}; the API server never sends that"
            );
            return Err(Cause::new(cause::GARBAGE, text));
        }
        let text = |index: usize| match object.field(index).map(|raw| (raw.shape(), raw.text())) {
            None | Some((Shape::Null, _)) => Ok(String::new()),
            Some((_, Some(text))) => Ok(text.into_owned()),
            Some(_) => Err(broken(&format!("a name in its {called} is no text"))),
        };
        let (own_name, own_namespace) = (text(NAME)?, text(NAMESPACE)?);
        let either = |own: String, given: &str, what: &str| match (own.is_empty(), given.is_empty()) {
            (true, true) => Err(broken(&format!("it has no {what}"))),
            (true, false) => Ok(given.to_owned()),
            (false, false) if own != given => {
                Err(broken(&format!("its {called} has another {what} than the request")))
            }
            (false, _) => Ok(own),
        };
        let grace = match deed {
            Deed::Delete => request.options.map(options).transpose()?.flatten(),
            Deed::Evict => object.field(GRACE).map(number).transpose()?.flatten(),
        };
        Ok(Self {
            deed,
            namespace: either(own_namespace, &request.namespace, "namespace")?,
            name: either(own_name, &request.name, "name")?,
            grace,
            dry_run: request.dry_run,
            by_controller: config.common_config.settle_policy.is_controller(&request.user),
            by_kubelet: request.user.is_in(NODES),
            only: Some(text(ONLY)?).filter(|uid| deed == Deed::Evict && !uid.is_empty()),
            pod: (deed == Deed::Delete).then(|| object.raw().get().to_owned()),
        })
    }

    /// `pod "db/etcd-0"`.
    pub(super) fn told(&self) -> String {
        format!("pod \"{}/{}\"", self.namespace, self.name)
    }

    /// The same, for whoever wants it in spite of all.
    pub(super) fn refused(&self) -> Refused {
        match self.deed {
            Deed::Delete => Refused::Deletion("pod"),
            Deed::Evict => Refused::Eviction,
        }
    }

    /// What it is called that was asked for.
    pub(super) fn verb(&self) -> &'static str {
        match self.deed {
            Deed::Delete => "deleted",
            Deed::Evict => "evicted",
        }
    }
}

fn options(raw: Raw<'_>) -> Result<Option<i64>, Cause> {
    let options: Option<Options> = raw.parse().map_err(|_| broken("its options are none of a deletion"))?;
    Ok(options.and_then(|options| options.grace_period_seconds))
}

fn number(raw: Raw<'_>) -> Result<Option<i64>, Cause> {
    raw.parse().map_err(|_| broken("gracePeriodSeconds is no number"))
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::super::fixture::{LEAST, config, with_delete, with_eviction};
    use super::*;

    fn read(request: &Request<'_>) -> Result<Target, String> {
        let deed = Deed::of(request).ok_or("not ours")?;
        Target::read(&config(LEAST), deed, request).map_err(|cause| cause.text)
    }

    fn deleted(change: impl FnOnce(&mut Value)) -> Result<Target, String> {
        with_delete("etcd-0", change, read)
    }

    fn evicted(change: impl FnOnce(&mut Value)) -> Result<Target, String> {
        with_eviction("etcd-0", change, read)
    }

    #[test]
    fn a_deletion_brings_its_pod_and_one_of_a_collection_its_name() {
        for change in [|_: &mut Value| {}, |r: &mut Value| r["name"] = "".into()] {
            let target = deleted(change).unwrap();
            assert_eq!((target.namespace.as_str(), target.name.as_str()), ("db", "etcd-0"));
            assert!(target.pod.is_some_and(|pod| pod.contains("etcd-0")));
            assert_eq!((target.deed, target.grace, target.dry_run), (Deed::Delete, None, false));
        }
        let forced = deleted(|r| r["options"] = json!({"kind": "DeleteOptions", "gracePeriodSeconds": 0}));
        assert_eq!(forced.unwrap().grace, Some(0));
    }

    #[test]
    fn an_eviction_of_either_version_names_its_pod_also_without_a_namespace_of_its_own() {
        for version in ["policy/v1", "policy/v1beta1"] {
            let target = evicted(|r| {
                r["object"]["apiVersion"] = version.into();
                drop(r["object"]["metadata"].as_object_mut().unwrap().remove("namespace"));
            });
            let target = target.unwrap();
            assert_eq!((target.namespace.as_str(), target.name.as_str()), ("db", "etcd-0"));
            assert_eq!((target.deed, target.pod), (Deed::Evict, None));
        }
        let options = |options: Value| evicted(|r| r["object"]["deleteOptions"] = options).unwrap();
        assert!(options(json!({"dryRun": ["All"]})).dry_run);
        assert_eq!(options(json!({"gracePeriodSeconds": 5})).grace, Some(5));
        let only = options(json!({"preconditions": {"uid": "u-7"}})).only;
        assert_eq!((only.as_deref(), options(json!({"preconditions": null})).only), (Some("u-7"), None));
    }

    #[test]
    fn who_asks_is_told_apart() {
        let by = |user: &str, group: &str| {
            let (user, group) = (user.to_owned(), group.to_owned());
            let target = deleted(|r| r["userInfo"] = json!({"username": user, "groups": [group]})).unwrap();
            (target.by_controller, target.by_kubelet)
        };
        assert_eq!(by("ann", "dev"), (false, false));
        assert_eq!(by("system:serviceaccount:kube-system:statefulset-controller", "x"), (true, false));
        assert_eq!(by("system:node:n1", "system:nodes"), (false, true));
    }

    #[test]
    fn what_cannot_be_read_is_never_taken_for_something_harmless() {
        type Change = fn(&mut Value);
        let broken: [(&str, Change); 6] = [
            ("no oldObject", |r| r["oldObject"] = Value::Null),
            ("no object", |r| r["oldObject"] = 7.into()),
            ("no text", |r| r["oldObject"]["metadata"]["name"] = 7.into()),
            ("another name", |r| r["name"] = "etcd-1".into()),
            ("another namespace", |r| r["namespace"] = "other".into()),
            ("none of a deletion", |r| r["options"] = json!({"gracePeriodSeconds": "soon"})),
        ];
        for (why, change) in broken {
            let told = deleted(change).unwrap_err();
            assert!(told.contains(why), "{why}: {told}");
        }
        assert!(evicted(|r| r["object"] = Value::Null).unwrap_err().contains("it has no object"));
        let soon = |r: &mut Value| r["object"]["deleteOptions"] = json!({"gracePeriodSeconds": "soon"});
        assert!(evicted(soon).unwrap_err().contains("no number"));
        let seven = |r: &mut Value| r["object"]["deleteOptions"] = json!({"preconditions": {"uid": 7}});
        assert!(evicted(seven).unwrap_err().contains("no text"));
        let nobody = |r: &mut Value| {
            r["name"] = "".into();
            r["object"]["metadata"] = json!({});
        };
        assert!(evicted(nobody).unwrap_err().contains("it has no name"));
    }

    #[test]
    fn other_operations_resources_and_subresources_are_none_of_its_business() {
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
