//! The Lists that decide about a namespace, and the objects in them that are in use.
//!
//! Metadata-only Lists contain neither a pod's phase nor a Service's type, so field selectors choose those on the API server.
//! There is no field selector for a Job's conditions, so Jobs are read in full.

use std::borrow::Cow;
use std::sync::Arc;
use std::time::Instant;

use k8s_openapi::api::batch::v1::JobStatus;
use serde::Deserialize;

use super::in_use::UsePredicate;
use cluster::Resource;
use cluster::fleet::{Object, Part};

/// Kinds of objects that can keep a namespace in use.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum BlockingResource {
    /// Pods that have not finished.
    Pods,
    /// PVCs.
    Pvcs,
    /// `Deployments`, `StatefulSets`, `DaemonSets`, `CronJobs`, `ReplicaSets` and `ReplicationControllers` with any number of
    /// replicas, and unfinished `Jobs`.
    Workloads,
    /// Services of type `LoadBalancer`.
    LoadBalancers,
}

impl BlockingResource {
    /// The values in the configuration.
    pub(super) const WORDS: [(&'static str, Self); 4] = [
        ("pods", Self::Pods),
        ("persistentvolumeclaims", Self::Pvcs),
        ("workloads", Self::Workloads),
        ("services.loadbalancer", Self::LoadBalancers),
    ];
}

/// One List, and the objects in it that are in use.
#[derive(Debug, Clone)]
pub(super) struct ResourceQuery {
    /// The resource to list.
    pub(super) resource: Resource,
    /// The field selector, or the empty string.
    pub(super) field_selector: Cow<'static, str>,
    /// The label selector, or the empty string.
    pub(super) label_selector: Cow<'static, str>,
    /// The namespaces.
    pub(super) scope: ListScope,
    /// Whether only the cluster that sends the review is read.
    pub(super) is_local: bool,
    /// How much of each object is needed.
    pub(super) part: Part,
    /// The name of the objects in messages.
    pub(super) noun: Noun,
    /// The rule by which an object is in use.
    pub(super) rule: InUseRule,
}

/// The namespaces of a List.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ListScope {
    /// The deleted namespace, or that of the deleted object.
    OfTarget,
    /// The same, and objects without a namespace. All are listed.
    OfTargetOrNone,
    /// All, or the objects have none.
    All,
}

/// A rule by which an object of a List is in use.
#[derive(Debug, Clone)]
pub(super) enum InUseRule {
    /// It is not being deleted.
    NotDeleting,
    /// It is a Job that is not being deleted and has neither completed nor failed.
    Unfinished,
    /// Always: a custom object that is being deleted waits for a controller that must clean up.
    Always,
    /// It uses the deleted object, by a rule of the configuration.
    Uses(Arc<UsePredicate>),
}

/// The name of one object and of several in messages.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Noun {
    /// Singular.
    pub(super) one: Cow<'static, str>,
    /// Plural.
    pub(super) many: Cow<'static, str>,
}

impl Noun {
    /// Custom objects.
    pub(super) const OBJECT: Self = Self { one: Cow::Borrowed("object"), many: Cow::Borrowed("objects") };
}

const fn v1(group: &'static str, plural: &'static str) -> Resource {
    Resource { group: Cow::Borrowed(group), version: Cow::Borrowed("v1"), plural: Cow::Borrowed(plural) }
}

/// The field selector of pods that have not ended.
pub(super) const NOT_ENDED: &str = "status.phase!=Succeeded,status.phase!=Failed";

const PODS: Resource = v1("", "pods");
const PVCS: Resource = v1("", "persistentvolumeclaims");

/// Workloads: group, plural, singular noun, plural noun.
const WORKLOADS: [(&str, &str, &str, &str); 7] = [
    ("apps", "deployments", "Deployment", "Deployments"),
    ("apps", "statefulsets", "StatefulSet", "StatefulSets"),
    ("apps", "daemonsets", "DaemonSet", "DaemonSets"),
    ("batch", "jobs", "Job", "Jobs"),
    ("batch", "cronjobs", "CronJob", "CronJobs"),
    ("apps", "replicasets", "ReplicaSet", "ReplicaSets"),
    ("", "replicationcontrollers", "ReplicationController", "ReplicationControllers"),
];

/// Whether the guard lists this resource by itself, so that `namespaces.extraResources` would count it twice.
pub(super) fn is_built_in(resource: &Resource) -> bool {
    let is = |group: &str, plural: &str| resource.group == group && resource.plural == plural;
    [PODS, PVCS].iter().any(|known| is(&known.group, &known.plural))
        || WORKLOADS.iter().any(|(group, plural, ..)| is(group, plural))
}

/// Returns the reason why a resource cannot tell whether a namespace is in use, if there is one.
pub(super) fn unsuitable(resource: &Resource) -> Option<&'static str> {
    match (resource.group.as_ref(), resource.plural.as_ref()) {
        ("", "secrets") => {
            Some("would let Durward read every Secret of every cluster, including credentials")
        }
        ("", "configmaps") => {
            Some("is in every namespace (kube-root-ca.crt), so no namespace could be deleted")
        }
        ("", "serviceaccounts") => Some("is in every namespace (default), so no namespace could be deleted"),
        ("" | "events.k8s.io", "events") => {
            Some("is a log of past changes, so it does not show that a namespace is in use")
        }
        _ => None,
    }
}

/// Returns the Lists that decide about a namespace.
pub(super) fn of_namespace(in_use: &[BlockingResource], more: &[Resource]) -> Vec<ResourceQuery> {
    let counts = |what: BlockingResource| in_use.contains(&what);
    let mut queries = Vec::new();
    if counts(BlockingResource::Pods) {
        let pods = query(PODS, ("pod", "pods"), InUseRule::NotDeleting);
        queries.push(ResourceQuery { field_selector: NOT_ENDED.into(), ..pods });
    }
    if counts(BlockingResource::Pvcs) {
        queries.push(query(PVCS, ("PVC", "PVCs"), InUseRule::NotDeleting));
    }
    if counts(BlockingResource::Workloads) {
        queries.extend(WORKLOADS.map(|(group, plural, one, many)| {
            let rule = if plural == "jobs" { InUseRule::Unfinished } else { InUseRule::NotDeleting };
            query(v1(group, plural), (one, many), rule)
        }));
    }
    if counts(BlockingResource::LoadBalancers) {
        let services = query(
            v1("", "services"),
            ("LoadBalancer Service", "LoadBalancer Services"),
            InUseRule::NotDeleting,
        );
        queries.push(ResourceQuery { field_selector: "spec.type=LoadBalancer".into(), ..services });
    }
    queries.extend(more.iter().map(|resource| {
        let name: Cow<'static, str> = resource.to_string().into();
        let noun = Noun { one: name.clone(), many: name };
        ResourceQuery { noun, ..query(resource.clone(), ("", ""), InUseRule::Always) }
    }));
    queries
}

fn query(resource: Resource, (one, many): (&'static str, &'static str), rule: InUseRule) -> ResourceQuery {
    let part = if matches!(rule, InUseRule::Unfinished) { Part::Whole } else { Part::Metadata };
    let noun = Noun { one: one.into(), many: many.into() };
    let (field_selector, label_selector) = (Cow::Borrowed(""), Cow::Borrowed(""));
    let (scope, is_local) = (ListScope::OfTarget, false);
    ResourceQuery { resource, field_selector, label_selector, scope, is_local, part, noun, rule }
}

/// Returns the List of all objects of a CRD.
pub(super) fn of_crd(resource: Resource) -> ResourceQuery {
    ResourceQuery {
        noun: Noun::OBJECT,
        scope: ListScope::All,
        ..query(resource, ("", ""), InUseRule::Always)
    }
}

/// Whether it is the resource of pods.
pub(super) fn is_pods(resource: &Resource) -> bool {
    *resource == PODS
}

/// Returns the names of objects in messages, if they differ from those of the resource.
pub(super) fn known_noun(resource: &Resource) -> Option<(&'static str, &'static str)> {
    let is = |group: &str, plural: &str| resource.group == group && resource.plural == plural;
    let workload = WORKLOADS.iter().find(|(group, plural, ..)| is(group, plural));
    let pvc = is("", "persistentvolumeclaims").then_some(("PVC", "PVCs"));
    workload.map(|&(_, _, one, many)| (one, many)).or(pvc)
}

impl InUseRule {
    /// Calls `each` for every object, with whether it is in use. An error describes what is wrong with the object.
    pub(super) fn apply(
        &self,
        objects: &[Object],
        deadline: Instant,
        mut each: impl FnMut(&Object, Result<bool, String>),
    ) {
        let one = |object: &Object| match self {
            Self::Unfinished if object.metadata.deleting => Ok(false),
            Self::Unfinished => is_finished(object).map(|finished| !finished),
            Self::NotDeleting => Ok(!object.metadata.deleting),
            Self::Always | Self::Uses(_) => Ok(true),
        };
        match self {
            Self::Uses(usage) => usage.apply(objects, deadline, each),
            _ => objects.iter().for_each(|object| each(object, one(object))),
        }
    }
}

/// The part of a Job that tells whether it has finished.
#[derive(Default, Deserialize)]
#[serde(default)]
struct Job {
    status: Option<JobStatus>,
}

fn is_finished(object: &Object) -> Result<bool, String> {
    let Some(raw) = &object.raw else { return Err(format!("Job {:?} has no status", object.name)) };
    // serde reads a struct out of a list too.
    if !raw.get().trim_start().starts_with('{') {
        return Err(format!("Job {:?} is not an object", object.name));
    }
    let job: Job = serde_json::from_str(raw.get())
        .map_err(|error| format!("Job {:?} is not valid: {error}", object.name))?;
    let conditions = job.status.and_then(|status| status.conditions).unwrap_or_default();
    Ok(conditions.iter().any(|c| c.status == "True" && matches!(c.type_.as_str(), "Complete" | "Failed")))
}

#[cfg(test)]
mod tests {
    use serde_json::value::RawValue;

    use super::*;
    use cluster::Metadata;

    fn job(raw: &str, deleting: bool) -> Object {
        Object {
            name: "j".into(),
            metadata: Metadata { deleting, ..Metadata::default() },
            raw: Some(RawValue::from_string(raw.to_owned()).unwrap()),
            ..Object::default()
        }
    }

    fn applies(rule: &InUseRule, object: &Object) -> Result<bool, String> {
        let mut found = Ok(false);
        let soon = Instant::now() + std::time::Duration::from_secs(5);
        rule.apply(std::slice::from_ref(object), soon, |_, result| found = result);
        found
    }

    #[test]
    fn a_job_is_in_use_until_it_is_complete_or_failed() {
        for (raw, expected) in [
            (r#"{"status":{"conditions":[{"type":"Complete","status":"True"}]}}"#, Ok(false)),
            (r#"{"status":{"conditions":[{"type":"Failed","status":"True"}]}}"#, Ok(false)),
            (r#"{"status":{"conditions":[{"type":"Complete","status":"False"}]}}"#, Ok(true)),
            (r#"{"status":{"conditions":[{"type":"FailureTarget","status":"True"}]}}"#, Ok(true)),
            (r#"{"status":{"conditions":[{"type":"Suspended","status":"True"}]}}"#, Ok(true)),
            (r#"{"status":{"conditions":null}}"#, Ok(true)),
            (r#"{"status":{}}"#, Ok(true)),
            (r#"{"status":null}"#, Ok(true)),
            ("{}", Ok(true)),
        ] {
            assert_eq!(applies(&InUseRule::Unfinished, &job(raw, false)), expected, "{raw}");
        }
        assert_eq!(applies(&InUseRule::Unfinished, &job("{}", true)), Ok(false));
        assert!(applies(&InUseRule::Unfinished, &job("[]", false)).is_err());
        assert!(applies(&InUseRule::Unfinished, &job(r#"{"status":{"conditions":{}}}"#, false)).is_err());
        assert!(applies(&InUseRule::Unfinished, &Object::default()).is_err());
    }

    #[test]
    fn objects_that_are_being_deleted_are_not_in_use_except_custom_objects() {
        let deleting = job("{}", true);
        assert_eq!(applies(&InUseRule::NotDeleting, &deleting), Ok(false));
        assert_eq!(applies(&InUseRule::Always, &deleting), Ok(true));
    }
}
