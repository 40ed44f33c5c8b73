//! The object of a review: what is to be deleted.
//!
//! On a DELETE `object` is null, and `oldObject` is the object in etcd (`apiserver/pkg/registry/rest/delete.go`). For each object
//! of a deletecollection the request's name is empty, so the name comes from the old object.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;
use std::time::SystemTime;

use admission::{Cause, Operation, Raw, Request, Shape};

use super::config::Config;
use super::in_use::{InUseKind, UsedObject, namespaced};
use crate::overrides::{self, Override, Overrides};
use cluster::fleet::Object;
use cluster::{Address, Resource, cause};

admission::fields! {
    /// The fields that the decoder reads.
    pub(super) enum TargetField {
        Name = "/metadata/name",
        Labels = "/metadata/labels",
        Annotations = "/metadata/annotations",
        DeletionTimestamp = "/metadata/deletionTimestamp",
        Uid = "/metadata/uid",
    }
}

/// The API group of CRDs.
pub(super) const CRD_GROUP: &str = "apiextensions.k8s.io";
/// The plural of CRDs.
pub(super) const CRD_PLURAL: &str = "customresourcedefinitions";

/// The object to delete.
#[derive(Debug, Clone)]
pub(super) struct Target {
    /// Its kind, namespace and name.
    pub(super) subject: DeletionSubject,
    /// The resource, at the version of the request.
    pub(super) resource: Resource,
    /// The whole object as JSON, if an expression reads more than its name and labels.
    pub(super) whole: Option<UsedObject>,
    /// The uid that the object has in the cluster that sent the review, never empty. Without a review it is `None`: a user named
    /// the object, which perhaps does not exist.
    pub(super) reviewed_uid: Option<String>,
    /// The labels.
    pub(super) labels: BTreeMap<String, String>,
    /// The annotations.
    pub(super) annotations: BTreeMap<String, String>,
    /// Whether the object is being deleted.
    pub(super) deleting: bool,
    /// Whether the request is a dry run.
    pub(super) dry_run: bool,
}

/// The kinds whose deletion the guard reviews.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum DeletionKind {
    /// A namespace, with everything in it.
    Namespace,
    /// A CRD, with all its custom objects.
    Crd,
    /// A kind that in-use rules protect.
    InUse(Arc<InUseKind>),
}

impl DeletionKind {
    /// Returns the kind that a request deletes, if the guard reviews it.
    pub(super) fn of(config: &Config, request: &Request<'_>) -> Option<Self> {
        let (group, plural) = (request.resource.group.as_ref(), request.resource.resource.as_ref());
        let is_reviewed = request.operation == Operation::Delete && request.subresource.is_empty();
        is_reviewed.then(|| config.kinds().find(|kind| kind.resource().is(group, plural))).flatten()
    }

    /// Returns the resource.
    pub fn resource(&self) -> Resource {
        match self {
            Self::Namespace => Resource::NAMESPACES,
            Self::Crd => {
                Resource { group: CRD_GROUP.into(), version: "v1".into(), plural: CRD_PLURAL.into() }
            }
            Self::InUse(kind) => kind.resource.clone(),
        }
    }

    /// Returns the word at the beginning of messages.
    pub fn word(&self) -> Cow<'_, str> {
        match self {
            Self::Namespace => "namespace".into(),
            Self::Crd => "CRD".into(),
            Self::InUse(kind) => kind.resource.singular(),
        }
    }

    /// Returns the name for arguments of kubectl, a short one for namespaces and CRDs.
    pub fn short_name(&self) -> String {
        match self {
            Self::Namespace => "ns".to_owned(),
            Self::Crd => "crd".to_owned(),
            Self::InUse(kind) => kind.to_string(),
        }
    }

    /// Whether its objects are in namespaces; `None` if it is not a kind of Kubernetes.
    pub fn namespaced(&self) -> Option<bool> {
        match self {
            Self::Namespace | Self::Crd => Some(false),
            Self::InUse(kind) => namespaced(&kind.resource),
        }
    }

    /// Whether objects must be read whole, because an expression reads more than names and labels.
    pub fn needs_whole(&self) -> bool {
        matches!(self, Self::InUse(kind) if kind.needs_whole())
    }

    /// Whether Durward reads no object of the kind, because it would read credentials.
    pub fn is_secret(&self) -> bool {
        self.resource().is("", "secrets")
    }
}

/// An object that a user may delete. Its text is that of kubectl: `ns/shop`, `configmaps/app -n shop`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DeletionSubject {
    /// The kind.
    pub kind: DeletionKind,
    /// The namespace; empty if it has none.
    pub namespace: String,
    /// The name.
    pub name: String,
}

impl DeletionSubject {
    /// Returns an object without a namespace.
    pub fn cluster_wide(kind: DeletionKind, name: impl Into<String>) -> Self {
        Self { kind, namespace: String::new(), name: name.into() }
    }

    /// Returns kind and name for kubectl: `ns/shop`, `configmaps/app -n shop`.
    pub(super) fn argument(&self, separator: char) -> String {
        let Self { kind, namespace, name } = self;
        let of = if namespace.is_empty() { String::new() } else { format!(" -n {namespace}") };
        format!("{}{separator}{name}{of}", kind.short_name())
    }

    /// Returns the namespace of the objects that decide: the deleted one, or that of the object; empty for all.
    pub(super) fn space(&self) -> &str {
        if self.kind == DeletionKind::Namespace { &self.name } else { &self.namespace }
    }

    /// Returns the API group of a CRD's objects. The API server requires the name `PLURAL.GROUP`.
    pub(super) fn group(&self) -> &str {
        self.name.split_once('.').map_or("", |(_, group)| group)
    }

    /// Returns kind and name for messages: `namespace "shop"`, `configmap "shop/app"`.
    pub(super) fn text(&self) -> String {
        let Self { kind, namespace, name } = self;
        let slash = if namespace.is_empty() { "" } else { "/" };
        format!("{} {:?}", kind.word(), format!("{namespace}{slash}{name}"))
    }
}

impl fmt::Display for DeletionSubject {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.argument('/'))
    }
}

impl Target {
    /// The target that a command names, of which only the address is known.
    pub(super) fn named(subject: DeletionSubject) -> Self {
        let (labels, annotations) = (BTreeMap::new(), BTreeMap::new());
        let resource = subject.kind.resource();
        let (whole, reviewed_uid, deleting, dry_run) = (None, None, false, false);
        Self { subject, resource, whole, reviewed_uid, labels, annotations, deleting, dry_run }
    }

    /// Reads the target of a review. An error makes the ruling Unknown.
    pub(super) fn read(kind: DeletionKind, request: &Request<'_>) -> Result<Self, Cause> {
        let garbage = |what: String| Cause::new(cause::GARBAGE, format!("invalid admission request: {what}"));
        let missing = |what: &str| garbage(what.to_owned());
        let old = request.old_object.as_ref().ok_or_else(|| missing("oldObject is missing"))?;
        if old.raw().shape() != Shape::Object {
            return Err(missing("oldObject is not an object"));
        }
        if let Some(key) = old.duplicate_key() {
            let text = format!("duplicate key {key} in oldObject");
            return Err(garbage(text));
        }
        let name = old.field(TargetField::Name).and_then(Raw::text).filter(|name| !name.is_empty());
        let name = name.ok_or_else(|| missing("oldObject has no name"))?.into_owned();
        if request.name != name {
            return Err(missing("name and oldObject.metadata.name differ"));
        }
        let labels = texts(old.field(TargetField::Labels))
            .ok_or_else(|| missing("labels of oldObject are not strings"))?;
        let annotations = texts(old.field(TargetField::Annotations))
            .ok_or_else(|| missing("annotations of oldObject are not strings"))?;
        let deleting = match old.field(TargetField::DeletionTimestamp).map(|raw| (raw.shape(), raw.text())) {
            None | Some((Shape::Null, _)) => false,
            Some((_, Some(time))) if !time.is_empty() => true,
            Some(_) => return Err(missing("deletionTimestamp of oldObject is not a time")),
        };
        let uid = match old.field(TargetField::Uid).map(|raw| (raw.shape(), raw.text())) {
            None | Some((Shape::Null, _)) => return Err(missing("oldObject has no uid")),
            Some((_, Some(uid))) if uid.is_empty() => return Err(missing("oldObject has no uid")),
            Some((_, Some(uid))) => uid.into_owned(),
            Some(_) => return Err(missing("uid of oldObject is not a string")),
        };
        let version = request.resource.version.clone().into_owned().into();
        let resource = Resource { version, ..kind.resource() };
        let (namespace, whole) = match &kind {
            // The namespace of a review of a Namespace is its own name.
            DeletionKind::Namespace | DeletionKind::Crd => (String::new(), None),
            DeletionKind::InUse(kind) => {
                let whole = kind.needs_whole().then(|| UsedObject::whole(old.raw().get()));
                (request.namespace.clone().into_owned(), whole)
            }
        };
        let subject = DeletionSubject { kind, namespace, name };
        let (reviewed_uid, dry_run) = (Some(uid), request.dry_run);
        Ok(Self { subject, resource, whole, reviewed_uid, labels, annotations, deleting, dry_run })
    }

    /// Returns the address.
    pub(super) fn address(&self) -> Address<'_> {
        let DeletionSubject { namespace, name, .. } = &self.subject;
        Address { resource: &self.resource, namespace, name }
    }

    /// Returns the object as expressions see it.
    pub(super) fn used_object(&self) -> UsedObject {
        let DeletionSubject { namespace, name, .. } = &self.subject;
        self.whole.clone().unwrap_or_else(|| UsedObject::by_metadata(namespace, name, &self.labels))
    }

    /// Replaces the metadata that decides by that of the stored object.
    pub(super) fn set_metadata(&mut self, stored: Option<Object>) {
        let Some(Object { metadata, raw, .. }) = stored else { return };
        self.whole = self.whole.take().or(raw.map(|raw| UsedObject::whole(raw.get())));
        (self.labels, self.annotations, self.deleting) =
            (metadata.labels, metadata.annotations, metadata.deleting);
    }

    /// Judges the target's override annotations.
    pub(super) fn find_override(&self, allowed: Overrides, now: SystemTime) -> Override {
        overrides::judge(super::NAME, allowed, &self.subject.name, &self.annotations, now)
    }
}

/// Reads a map of strings. A missing field and null are an empty map.
fn texts(raw: Option<Raw<'_>>) -> Option<BTreeMap<String, String>> {
    match raw {
        None => Some(BTreeMap::new()),
        Some(raw) => raw.parse::<Option<BTreeMap<String, String>>>().ok().map(Option::unwrap_or_default),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::super::fixture::{config, with_delete};
    use super::*;

    fn read(change: impl FnOnce(&mut Value)) -> Result<Target, String> {
        with_delete("namespaces", "shop", change, |request| {
            let kind = DeletionKind::of(&config("{}"), request).ok_or("not ours")?;
            Target::read(kind, request).map_err(|cause| cause.text)
        })
    }

    #[test]
    fn reads_what_is_to_be_deleted() {
        let target = read(|request| {
            request["oldObject"]["metadata"] = json!({"name": "shop", "uid": "7", "labels": {"a": "b"}, "annotations": null, "deletionTimestamp": null});
            request["dryRun"] = true.into();
        });
        let target = target.unwrap();
        assert_eq!((target.subject.name.as_str(), target.subject.kind), ("shop", DeletionKind::Namespace));
        assert_eq!((target.deleting, target.dry_run), (false, true));
        assert_eq!(target.labels.get("a").map(String::as_str), Some("b"));
        let deleting =
            read(|r| r["oldObject"]["metadata"]["deletionTimestamp"] = "2026-11-21T10:00:00Z".into());
        assert!(deleting.unwrap().deleting);
    }

    #[test]
    fn rejects_a_review_without_a_uid() {
        assert_eq!(read(|_| {}).unwrap().reviewed_uid.as_deref(), Some("7"));
        for without in [json!(null), json!("")] {
            let text = read(|r| r["oldObject"]["metadata"]["uid"] = without).unwrap_err();
            assert!(text.contains("oldObject has no uid"), "{text}");
        }
        let without = read(|r| drop(r["oldObject"]["metadata"].as_object_mut().unwrap().remove("uid")));
        assert!(without.unwrap_err().contains("oldObject has no uid"));
    }

    #[test]
    fn names_a_duplicate_key() {
        let text = r#"{"apiVersion":"admission.k8s.io/v1","kind":"AdmissionReview","request":{"uid":"u","operation":"DELETE",
            "resource":{"group":"","version":"v1","resource":"namespaces"},"name":"shop",
            "oldObject":{"metadata":{"name":"shop","labels":{},"labels":{}}}}}"#;
        let review =
            admission::decode(text.as_bytes(), &admission::Fields::new(&TargetField::POINTERS)).unwrap();
        let text = Target::read(DeletionKind::Namespace, &review.request).unwrap_err().text;
        assert!(text.contains("duplicate key metadata.labels in oldObject"), "{text}");
    }

    #[test]
    fn reads_the_name_of_each_object_of_a_collection_from_the_old_object() {
        assert_eq!(read(|request| request["name"] = "".into()).unwrap().subject.name, "shop");
    }

    #[test]
    fn rejects_reviews_that_cannot_be_read() {
        type Change = fn(&mut Value);
        let broken: [(&str, Change); 10] = [
            ("oldObject is missing", |r| r["oldObject"] = Value::Null),
            ("oldObject is missing", |r| drop(r.as_object_mut().unwrap().remove("oldObject"))),
            ("not an object", |r| r["oldObject"] = 7.into()),
            ("no name", |r| r["oldObject"] = json!({})),
            ("no name", |r| r["oldObject"]["metadata"]["name"] = 7.into()),
            ("differ", |r| r["name"] = "other".into()),
            ("labels", |r| r["oldObject"]["metadata"]["labels"] = json!({"a": 1})),
            ("annotations", |r| r["oldObject"]["metadata"]["annotations"] = json!([])),
            ("uid", |r| r["oldObject"]["metadata"]["uid"] = 7.into()),
            ("deletionTimestamp", |r| r["oldObject"]["metadata"]["deletionTimestamp"] = false.into()),
        ];
        for (why, change) in broken {
            let text = read(change).unwrap_err();
            assert!(text.contains(why), "{why}: {text}");
        }
    }

    #[test]
    fn ignores_other_operations_resources_and_subresources() {
        let others: [fn(&mut Value); 5] = [
            |r| r["operation"] = "CREATE".into(),
            |r| r["subResource"] = "finalize".into(),
            |r| r["resource"]["resource"] = "pods".into(),
            |r| r["resource"]["group"] = "example.org".into(),
            |r| r["resource"] = json!({"group": "", "version": "v1", "resource": CRD_PLURAL}),
        ];
        for change in others {
            assert_eq!(read(change).unwrap_err(), "not ours");
        }
    }

    #[test]
    fn reads_plural_and_group_from_the_name_of_a_crd() {
        let target = with_delete(
            CRD_PLURAL,
            "widgets.example.org",
            |_| {},
            |request| Target::read(DeletionKind::of(&config("{}"), request).unwrap(), request).unwrap(),
        );
        assert_eq!(target.subject.group(), "example.org");
        assert_eq!(target.subject.text(), "CRD \"widgets.example.org\"");
    }
}
