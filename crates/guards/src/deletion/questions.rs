//! What each cluster is asked about a namespace, and which of the answers count.
//!
//! Facts: metadata-only Lists show neither a pod's phase nor a Service's type, so those two are chosen by the API server itself
//! (field selectors); it has none for a Job's conditions, so Jobs are read whole.

use std::borrow::Cow;

use serde::Deserialize;

use super::config::{InUse, Unmanaged};
use cluster::Resource;
use cluster::fleet::{Object, Part};

/// One List.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Question {
    /// Of what.
    pub(super) resource: Resource,
    /// Which of them the API server is to choose.
    pub(super) fields: &'static str,
    /// How much of each is needed.
    pub(super) part: Part,
    /// What people call one and several.
    pub(super) noun: Noun,
    /// Which of them are in use.
    pub(super) rule: Rule,
}

/// Which objects of a List are in use.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Rule {
    /// Those that are not being deleted: the others go anyway.
    Living,
    /// Of those, Jobs that are neither complete nor failed.
    Unfinished,
    /// Each of them: a custom object that is being deleted waits for whoever has to clean up behind it.
    All,
    /// None: they are only read to see what owns what.
    None,
}

/// What people call one thing, and several.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Noun {
    /// One.
    pub(super) one: Cow<'static, str>,
    /// Several.
    pub(super) many: Cow<'static, str>,
}

impl Noun {
    /// Custom objects.
    pub(super) const OBJECT: Self = Self { one: Cow::Borrowed("object"), many: Cow::Borrowed("objects") };
}

const fn known(group: &'static str, plural: &'static str) -> Resource {
    Resource { group: Cow::Borrowed(group), version: Cow::Borrowed("v1"), plural: Cow::Borrowed(plural) }
}

/// What is in use by its kind: group, plural, and what people call one and several.
const WORKLOADS: [(&str, &str, &str, &str); 5] = [
    ("apps", "deployments", "deployment", "deployments"),
    ("apps", "statefulsets", "stateful set", "stateful sets"),
    ("apps", "daemonsets", "daemon set", "daemon sets"),
    ("batch", "jobs", "job", "jobs"),
    ("batch", "cronjobs", "cron job", "cron jobs"),
];

/// What this guard reads of itself; to name one of them as a further resource is to count it twice.
pub(super) fn is_known(resource: &Resource) -> bool {
    let is = |group: &str, plural: &str| resource.group == group && resource.plural == plural;
    is("", "pods")
        || is("", "persistentvolumeclaims")
        || WORKLOADS.iter().any(|(group, plural, ..)| is(group, plural))
}

/// Why a further resource cannot tell whether a namespace is in use, if it cannot.
pub(super) fn is_no_use(resource: &Resource) -> Option<&'static str> {
    match (resource.group.as_ref(), resource.plural.as_ref()) {
        ("", "secrets") => {
            Some("would let Durward read every Secret of every cluster, credentials of members among them")
        }
        ("", "configmaps") => Some("is in every namespace (kube-root-ca.crt), so none could be deleted"),
        ("", "serviceaccounts") => Some("is in every namespace (default), so none could be deleted"),
        ("" | "events.k8s.io", "events") => Some("is left behind by whatever was there, and holds nothing"),
        _ => None,
    }
}

/// The Lists that decide about a namespace. Under `unmanaged: ignore` the workloads are read even where they do not count
/// themselves: a pod is Karmada's if what made it is.
pub(super) fn of_namespace(in_use: &[InUse], more: &[Resource], unmanaged: Unmanaged) -> Vec<Question> {
    let counts = |what: InUse| in_use.contains(&what);
    let mut questions = Vec::new();
    if counts(InUse::Pods) {
        let fields = "status.phase!=Succeeded,status.phase!=Failed";
        questions.push(question(known("", "pods"), fields, ("pod", "pods"), Rule::Living));
    }
    if counts(InUse::Claims) {
        let claims = known("", "persistentvolumeclaims");
        questions.push(question(claims, "", ("claim", "claims"), Rule::Living));
    }
    for (group, plural, one, many) in WORKLOADS {
        let rule = match (counts(InUse::Workloads), plural) {
            (true, "jobs") => Rule::Unfinished,
            (true, _) => Rule::Living,
            (false, _) if unmanaged == Unmanaged::Ignore => Rule::None,
            (false, _) => continue,
        };
        questions.push(question(known(group, plural), "", (one, many), rule));
    }
    if unmanaged == Unmanaged::Ignore {
        let sets = known("apps", "replicasets");
        questions.push(question(sets, "", ("replica set", "replica sets"), Rule::None));
    }
    if counts(InUse::LoadBalancers) {
        let noun = ("load balancer", "load balancers");
        questions.push(question(known("", "services"), "spec.type=LoadBalancer", noun, Rule::Living));
    }
    questions.extend(more.iter().map(|resource| {
        let name: Cow<'static, str> = resource.to_string().into();
        Question {
            noun: Noun { one: name.clone(), many: name },
            ..question(resource.clone(), "", ("", ""), Rule::All)
        }
    }));
    questions
}

fn question(
    resource: Resource,
    fields: &'static str,
    (one, many): (&'static str, &'static str),
    rule: Rule,
) -> Question {
    let part = if rule == Rule::Unfinished { Part::Whole } else { Part::Metadata };
    Question { resource, fields, part, noun: Noun { one: one.into(), many: many.into() }, rule }
}

impl Rule {
    /// Whether an object is in use; an error says what is wrong with it.
    pub(super) fn counts(self, object: &Object) -> Result<bool, String> {
        match self {
            Self::Living => Ok(!object.metadata.deleting),
            Self::Unfinished if object.metadata.deleting => Ok(false),
            Self::Unfinished => is_finished(object).map(|finished| !finished),
            Self::All => Ok(true),
            Self::None => Ok(false),
        }
    }
}

/// A Job, as far as it tells whether it is done.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Job {
    status: Option<Status>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Status {
    conditions: Option<Vec<Condition>>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Condition {
    r#type: String,
    status: String,
}

fn is_finished(object: &Object) -> Result<bool, String> {
    let Some(raw) = &object.raw else { return Err(format!("job {:?} came without its status", object.name)) };
    // serde reads a struct out of a list too.
    if !raw.get().trim_start().starts_with('{') {
        return Err(format!("job {:?} is no object", object.name));
    }
    let job: Job = serde_json::from_str(raw.get())
        .map_err(|error| format!("job {:?} cannot be understood: {error}", object.name))?;
    let conditions = job.status.unwrap_or_default().conditions.unwrap_or_default();
    Ok(conditions.iter().any(|c| c.status == "True" && matches!(c.r#type.as_str(), "Complete" | "Failed")))
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
            assert_eq!(Rule::Unfinished.counts(&job(raw, false)), expected, "{raw}");
        }
        assert_eq!(Rule::Unfinished.counts(&job("{}", true)), Ok(false));
        assert!(Rule::Unfinished.counts(&job("[]", false)).is_err());
        assert!(Rule::Unfinished.counts(&job(r#"{"status":{"conditions":{}}}"#, false)).is_err());
        assert!(Rule::Unfinished.counts(&Object::default()).is_err());
    }

    #[test]
    fn what_is_being_deleted_goes_anyway_unless_it_is_a_custom_object() {
        let going = job("{}", true);
        assert_eq!(Rule::Living.counts(&going), Ok(false));
        assert_eq!(Rule::All.counts(&going), Ok(true));
        assert_eq!(Rule::None.counts(&job("{}", false)), Ok(false));
    }

    #[test]
    fn owners_are_read_where_unmanaged_objects_are_told_from_managed_ones() {
        let asked = |in_use: &[InUse], unmanaged| {
            of_namespace(in_use, &[], unmanaged).iter().map(|q| q.resource.to_string()).collect::<Vec<_>>()
        };
        assert_eq!(asked(&[InUse::Pods], Unmanaged::Deny), ["pods"]);
        assert_eq!(
            asked(&[InUse::Pods], Unmanaged::Ignore),
            [
                "pods",
                "deployments.apps",
                "statefulsets.apps",
                "daemonsets.apps",
                "jobs.batch",
                "cronjobs.batch",
                "replicasets.apps"
            ]
        );
        let ignoring = of_namespace(&[InUse::Pods], &[], Unmanaged::Ignore);
        assert!(ignoring.iter().skip(1).all(|question| question.rule == Rule::None));
    }
}
