//! What is to be deleted, read out of the review.
//!
//! On a DELETE `object` is null and `oldObject` is what stands in etcd (`apiserver/pkg/registry/rest/delete.go`). The name in
//! the request is empty for each object of a deletecollection, so the old object's own name is what counts.

use std::collections::BTreeMap;
use std::time::SystemTime;

use admission::{Cause, Operation, Raw, Request, Shape};

use crate::overrides::{self, BreakGlass, Override};
use cluster::{Resource, cause};

/// The fields that are read while the review is decoded, in the order of the indices below.
pub(super) const POINTERS: [&str; 5] = [
    "/metadata/name",
    "/metadata/labels",
    "/metadata/annotations",
    "/metadata/deletionTimestamp",
    "/metadata/uid",
];
const NAME: usize = 0;
const LABELS: usize = 1;
const ANNOTATIONS: usize = 2;
const DELETION: usize = 3;
const UID: usize = 4;

/// The group of definitions.
pub(super) const DEFINITIONS_GROUP: &str = "apiextensions.k8s.io";
/// Their plural.
pub(super) const DEFINITIONS: &str = "customresourcedefinitions";

/// What is to be deleted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Target {
    /// Of which kind.
    pub(super) subject: Subject,
    /// Its name.
    pub(super) name: String,
    /// The uid that the review proves it to have where the review comes from; empty in one that was written by hand. None where
    /// nobody but a person says that there is such a thing.
    pub(super) proven: Option<String>,
    /// Its labels.
    pub(super) labels: BTreeMap<String, String>,
    /// Its annotations.
    pub(super) annotations: BTreeMap<String, String>,
    /// Whether it is being deleted already.
    pub(super) deleting: bool,
    /// Whether nothing will be deleted this time.
    pub(super) dry_run: bool,
}

/// The two kinds of things whose deletion takes others with it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Subject {
    /// With everything in it.
    Namespace,
    /// With every custom object of it.
    Definition,
}

impl Subject {
    /// What the request is about; none where it is none of this guard's business.
    pub(super) fn of(request: &Request<'_>) -> Option<Self> {
        if request.operation != Operation::Delete {
            return None;
        }
        if request.is_for("", "namespaces") {
            Some(Self::Namespace)
        } else if request.is_for(DEFINITIONS_GROUP, DEFINITIONS) {
            Some(Self::Definition)
        } else {
            None
        }
    }

    /// Where it stands.
    pub(super) fn resource(self) -> Resource {
        match self {
            Self::Namespace => Resource::NAMESPACES,
            Self::Definition => {
                Resource { group: DEFINITIONS_GROUP.into(), version: "v1".into(), plural: DEFINITIONS.into() }
            }
        }
    }

    /// As messages begin.
    pub(super) fn word(self) -> &'static str {
        match self {
            Self::Namespace => "namespace",
            Self::Definition => "customresourcedefinition",
        }
    }

    /// As kubectl has it for short: `ns`, `crd`.
    pub(super) fn short(self) -> &'static str {
        match self {
            Self::Namespace => "ns",
            Self::Definition => "crd",
        }
    }
}

impl Target {
    /// Reads what is to be deleted. An error is why that cannot be said; it is never a reason to let anything pass.
    pub(super) fn read(subject: Subject, request: &Request<'_>) -> Result<Self, Cause> {
        let broken = |what: &str| {
            Err(Cause::new(
                cause::GARBAGE,
                format!("the review cannot be used: {what}; the API server always sends it"),
            ))
        };
        let Some(old) = &request.old_object else { return broken("it has no oldObject") };
        if old.raw().shape() != Shape::Object {
            return broken("its oldObject is no object");
        }
        if let Some(twice) = old.duplicate_key() {
            let text = format!(
                "the review cannot be used: {twice} stands twice in its oldObject; the API server never sends that"
            );
            return Err(Cause::new(cause::GARBAGE, text));
        }
        let name = match old.field(NAME).and_then(Raw::text) {
            Some(name) if !name.is_empty() => name.into_owned(),
            _ => return broken("its oldObject has no name"),
        };
        if request.name != name {
            return broken("it names another object than its oldObject is");
        }
        let Some(labels) = texts(old.field(LABELS)) else {
            return broken("labels in its oldObject are no texts");
        };
        let Some(annotations) = texts(old.field(ANNOTATIONS)) else {
            return broken("annotations in its oldObject are no texts");
        };
        let deleting = match old.field(DELETION).map(|raw| (raw.shape(), raw.text())) {
            None | Some((Shape::Null, _)) => false,
            Some((_, Some(time))) if !time.is_empty() => true,
            Some(_) => return broken("deletionTimestamp in its oldObject is no time"),
        };
        let uid = match old.field(UID).map(|raw| (raw.shape(), raw.text())) {
            None | Some((Shape::Null, _)) => String::new(),
            Some((_, Some(uid))) => uid.into_owned(),
            Some(_) => return broken("uid in its oldObject is no text"),
        };
        Ok(Self { subject, name, proven: Some(uid), labels, annotations, deleting, dry_run: request.dry_run })
    }

    /// What its annotations come to, for whoever wants it deleted in spite of all.
    pub(super) fn glass(&self, who: BreakGlass, now: SystemTime) -> Override {
        overrides::judge(super::NAME, who, &self.name, &self.annotations, now)
    }

    /// The group of a definition's objects: what follows the plural in its name, which the API server holds it to.
    pub(super) fn group(&self) -> &str {
        self.name.split_once('.').map_or("", |(_, group)| group)
    }

    /// The plural of a definition's objects.
    pub(super) fn plural(&self) -> &str {
        self.name.split_once('.').map_or(self.name.as_str(), |(plural, _)| plural)
    }

    /// `namespace "shop"`.
    pub(super) fn told(&self) -> String {
        format!("{} {:?}", self.subject.word(), self.name)
    }
}

/// A map of texts; nothing and null are an empty one.
fn texts(raw: Option<Raw<'_>>) -> Option<BTreeMap<String, String>> {
    match raw {
        None => Some(BTreeMap::new()),
        Some(raw) => raw.parse::<Option<BTreeMap<String, String>>>().ok().map(Option::unwrap_or_default),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::super::fixture::with_delete;
    use super::*;

    fn read(change: impl FnOnce(&mut Value)) -> Result<Target, String> {
        with_delete("namespaces", "shop", change, |request| {
            let subject = Subject::of(request).ok_or("not ours")?;
            Target::read(subject, request).map_err(|cause| cause.text)
        })
    }

    #[test]
    fn reads_what_is_to_be_deleted() {
        let target = read(|request| {
            request["oldObject"]["metadata"] =
                json!({"name": "shop", "labels": {"a": "b"}, "annotations": null, "deletionTimestamp": null});
            request["dryRun"] = true.into();
        });
        let target = target.unwrap();
        assert_eq!((target.name.as_str(), target.subject), ("shop", Subject::Namespace));
        assert_eq!((target.deleting, target.dry_run), (false, true));
        assert_eq!(target.labels.get("a").map(String::as_str), Some("b"));
        let going = read(|r| r["oldObject"]["metadata"]["deletionTimestamp"] = "2026-11-21T10:00:00Z".into());
        assert!(going.unwrap().deleting);
    }

    #[test]
    fn its_uid_is_what_the_review_says_and_empty_where_it_says_none() {
        assert_eq!(read(|_| {}).unwrap().proven.as_deref(), Some("7"));
        for without in [json!(null), json!("")] {
            let proven = read(|r| r["oldObject"]["metadata"]["uid"] = without).unwrap().proven;
            assert_eq!(proven.as_deref(), Some(""));
        }
    }

    #[test]
    fn a_key_that_stands_twice_is_named() {
        let text = r#"{"apiVersion":"admission.k8s.io/v1","kind":"AdmissionReview","request":{"uid":"u","operation":"DELETE",
            "resource":{"group":"","version":"v1","resource":"namespaces"},"name":"shop",
            "oldObject":{"metadata":{"name":"shop","labels":{},"labels":{}}}}}"#;
        let review = admission::decode(text.as_bytes(), &admission::Fields::new(&POINTERS)).unwrap();
        let told = Target::read(Subject::Namespace, &review.request).unwrap_err().text;
        assert!(told.contains("metadata.labels stands twice in its oldObject"), "{told}");
    }

    #[test]
    fn a_collection_names_each_object_by_its_old_self() {
        assert_eq!(read(|request| request["name"] = "".into()).unwrap().name, "shop");
    }

    #[test]
    fn what_cannot_be_read_is_never_taken_for_something_harmless() {
        type Change = fn(&mut Value);
        let broken: [(&str, Change); 10] = [
            ("no oldObject", |r| r["oldObject"] = Value::Null),
            ("no oldObject", |r| drop(r.as_object_mut().unwrap().remove("oldObject"))),
            ("no object", |r| r["oldObject"] = 7.into()),
            ("no name", |r| r["oldObject"] = json!({})),
            ("no name", |r| r["oldObject"]["metadata"]["name"] = 7.into()),
            ("another object", |r| r["name"] = "other".into()),
            ("labels", |r| r["oldObject"]["metadata"]["labels"] = json!({"a": 1})),
            ("annotations", |r| r["oldObject"]["metadata"]["annotations"] = json!([])),
            ("uid", |r| r["oldObject"]["metadata"]["uid"] = 7.into()),
            ("deletionTimestamp", |r| r["oldObject"]["metadata"]["deletionTimestamp"] = false.into()),
        ];
        for (why, change) in broken {
            let told = read(change).unwrap_err();
            assert!(told.contains(why), "{why}: {told}");
        }
    }

    #[test]
    fn other_operations_resources_and_subresources_are_none_of_its_business() {
        let others: [fn(&mut Value); 5] = [
            |r| r["operation"] = "UPDATE".into(),
            |r| r["subResource"] = "finalize".into(),
            |r| r["resource"]["resource"] = "pods".into(),
            |r| r["resource"]["group"] = "example.org".into(),
            |r| r["resource"] = json!({"group": "", "version": "v1", "resource": DEFINITIONS}),
        ];
        for change in others {
            assert_eq!(read(change).unwrap_err(), "not ours");
        }
    }

    #[test]
    fn a_definitions_name_tells_plural_and_group() {
        let target = with_delete(
            DEFINITIONS,
            "widgets.example.org",
            |_| {},
            |request| Target::read(Subject::of(request).unwrap(), request).unwrap(),
        );
        assert_eq!((target.plural(), target.group()), ("widgets", "example.org"));
        assert_eq!(target.told(), "customresourcedefinition \"widgets.example.org\"");
    }
}
