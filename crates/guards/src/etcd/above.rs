//! One level up, by option: what takes more than one member with it, or what a member stands on. A `StatefulSet` that is scaled below
//! the quorum of what it has, or deleted; the claim of a member that lives; a disruption budget over members.
//!
//! Each pod of it is asked about too when its turn comes, so this is no second quorum rule: it catches deeds whose consequence
//! comes later, or by a way on which a pod cannot be held up any more. It binds people; controllers are warned, as an operator
//! that manages the set knows what it does, and teardown of what owns the set must not be held up.

mod parts;
mod sets;

use std::collections::BTreeMap;
use std::time::SystemTime;

use admission::{Cause, Object, Operation, Raw, Request, Ruling, Shape};

use super::config::{Also, Config, Ensemble, Weight, Within};
use super::glass::{self, Override, Refused};
use super::ground::{Look, Namespace};
use super::group;
use super::pod::Pod;
use super::target::{ANNOTATIONS, DELETION, NAME, broken};
use super::tell;
use ::config::SelectorExt as _;
use cluster::cause;

/// What is to be done.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Deed {
    Scale,
    DeleteSet,
    DeleteClaim,
    DeleteBudget,
}

impl Deed {
    fn of(request: &Request<'_>) -> Option<Self> {
        let is = |group: &str, resource: &str| {
            request.resource.group == group && request.resource.resource == resource
        };
        let sub = request.subresource.as_ref();
        match request.operation {
            Operation::Update if is("apps", "statefulsets") && matches!(sub, "" | "scale") => {
                Some(Self::Scale)
            }
            Operation::Delete if !sub.is_empty() => None,
            Operation::Delete if is("apps", "statefulsets") => Some(Self::DeleteSet),
            Operation::Delete if is("", "persistentvolumeclaims") => Some(Self::DeleteClaim),
            Operation::Delete if is("policy", "poddisruptionbudgets") => Some(Self::DeleteBudget),
            _ => None,
        }
    }

    fn also(self) -> Also {
        match self {
            Self::Scale => Also::Scale,
            Self::DeleteSet => Also::StatefulSets,
            Self::DeleteClaim => Also::Claims,
            Self::DeleteBudget => Also::Budgets,
        }
    }

    /// As kubectl has it.
    fn word(self) -> &'static str {
        match self {
            Self::Scale | Self::DeleteSet => "statefulset",
            Self::DeleteClaim => "persistentvolumeclaim",
            Self::DeleteBudget => "poddisruptionbudget",
        }
    }
}

/// One request.
#[derive(Clone, Copy)]
struct Case<'c> {
    config: &'c Config,
    look: Look<'c>,
    request: &'c Request<'c>,
    old: &'c Object<'c>,
    now: SystemTime,
}

/// What it is about, as it stands.
struct Subject<'s> {
    namespace: Namespace,
    name: String,
    annotations: BTreeMap<String, String>,
    is_going: bool,
    /// In JSON.
    json: std::borrow::Cow<'s, str>,
}

/// What speaks against it.
struct Objection {
    why: String,
    /// Whether people are refused for it.
    weight: Weight,
}

impl Objection {
    fn deny(why: String) -> Self {
        Self { why, weight: Weight::Deny }
    }
}

/// Rules on what is none of a pod's.
pub(super) async fn rule(config: &Config, look: Look<'_>, request: &Request<'_>, now: SystemTime) -> Ruling {
    let Some(deed) = Deed::of(request).filter(|deed| config.also.contains(&deed.also())) else {
        return Ruling::allow();
    };
    if let Some(key) = config.common_config.leave_alone(request, &request.namespace) {
        return Ruling::allow().audit("exempt", key);
    }
    let Some(old) = &request.old_object else { return Ruling::unknown(broken("it has no oldObject")) };
    let own = old.field(NAME).and_then(Raw::text).unwrap_or_default();
    let name = if own.is_empty() { request.name.as_ref() } else { own.as_ref() };
    let told = format!("{} \"{}/{name}\"", deed.word(), request.namespace);
    match judged(Case { config, look, request, old, now }, deed, name, &told).await {
        Ok(ruling) => ruling,
        Err(why) => {
            let way =
                glass::way(config, refused(deed, request), (&request.namespace, name), &Override::None, now);
            tell::above_unseen(config, &told, &why, &way)
        }
    }
}

/// What is refused, for whoever wants it in spite of all.
fn refused(deed: Deed, request: &Request<'_>) -> Refused {
    match deed {
        Deed::Scale => {
            let wanted = request.object.as_ref().and_then(|new| sets::replicas(new, 0).ok());
            Refused::Scaling(wanted.unwrap_or_default())
        }
        Deed::DeleteSet | Deed::DeleteClaim | Deed::DeleteBudget => Refused::Deletion(deed.word()),
    }
}

async fn judged(case: Case<'_>, deed: Deed, name: &str, told: &str) -> Result<Ruling, Cause> {
    let Case { config, request, now, .. } = case;
    if let Some(twice) = case.old.duplicate_key() {
        let text = format!("{twice} stands twice in its oldObject; the API server never sends that");
        return Err(Cause::new(cause::GARBAGE, text));
    }
    if deed == Deed::Scale && !sets::is_less(case)? {
        return Ok(Ruling::allow());
    }
    let Some(subject) = subject(case, deed, name).await? else { return Ok(Ruling::allow()) };
    if subject.is_going {
        return Ok(Ruling::allow().audit("allowed", "it is being deleted already"));
    }
    if subject.namespace.is_going {
        return Ok(Ruling::allow().audit("allowed", "its namespace is being deleted"));
    }
    if config.common_config.exempt.selects(&subject.namespace.labels) {
        return Ok(Ruling::allow().audit("exempt", "exempt.namespaceSelector"));
    }
    let tried = glass::judge(config, name, &subject.annotations, now);
    let of_namespace = glass::judge(config, &request.namespace, &subject.namespace.annotations, now);
    for glass in [&tried, &of_namespace] {
        if let Override::Active { reason, until } = glass {
            return Ok(tell::glass_broken(told, reason, until));
        }
    }
    let objections = match deed {
        Deed::Scale => sets::scaled(case, &subject).await?,
        Deed::DeleteSet => sets::gone(case, &subject)?,
        Deed::DeleteClaim => parts::claim_gone(case, &subject).await?,
        Deed::DeleteBudget => parts::budget_gone(case, &subject).await?,
    };
    let is_controller = config.common_config.settle_policy.is_controller(&request.user);
    let binds = |one: &&Objection| one.weight == Weight::Deny && !is_controller;
    if let Some(Objection { why, .. }) = objections.iter().find(binds) {
        let refused = refused(deed, request);
        let way = glass::way(config, refused, (&request.namespace, name), &tried, now);
        let ruling = tell::above(told, refused, why, &way);
        return Ok(match of_namespace {
            Override::Invalid(wrong) => ruling.warn(tell::of_namespace(&request.namespace, &wrong)),
            Override::None | Override::Active { .. } => ruling,
        });
    }
    let warned = |ruling: Ruling, one: &Objection| {
        ruling.warn(format!("{}{told}: {}", tell::VOICE, one.why)).audit("warned", &one.why)
    };
    Ok(objections.iter().fold(Ruling::allow(), warned))
}

/// What it is about. A Scale has neither the annotations of its set nor the rest of it, so that the set is looked up; none where
/// there is none.
async fn subject<'s>(case: Case<'s>, deed: Deed, name: &str) -> Result<Option<Subject<'s>>, Cause> {
    let Case { look, request, old, .. } = case;
    let name = name.to_owned();
    if deed == Deed::Scale && !request.subresource.is_empty() {
        let Some(set) = sets::find(look, &request.namespace, &name).await? else { return Ok(None) };
        let json = super::ground::whole(&set)?.to_owned().into();
        let namespace = look.namespace(&request.namespace).await?;
        let (annotations, is_going) = (set.metadata.annotations, set.metadata.deleting);
        return Ok(Some(Subject { namespace, name, annotations, is_going, json }));
    }
    let is_going = old.field(DELETION).is_some_and(|raw| raw.shape() != Shape::Null);
    let namespace = look.namespace(&request.namespace).await?;
    Ok(Some(Subject {
        namespace,
        name,
        annotations: annotations(old)?,
        is_going,
        json: old.raw().get().into(),
    }))
}

/// The entry that pods with such a template, or such a pod, are chosen by.
fn entry<'c>(
    case: Case<'c>,
    namespace: &Namespace,
    json: &str,
) -> Result<Option<(&'c Ensemble, Pod)>, Cause> {
    let pod = Pod { namespace: case.request.namespace.to_string(), ..Pod::read(json, 0)? };
    let found = group::entry(case.config, &pod, json).find(|(ensemble, _)| match &ensemble.within {
        Within::Named(_) => true,
        Within::Labelled(selector) => selector.matches(&namespace.labels),
    });
    Ok(found.map(|(ensemble, _)| (ensemble, pod)))
}

/// Its annotations; nothing and null are none.
fn annotations(object: &Object<'_>) -> Result<BTreeMap<String, String>, Cause> {
    let Some(raw) = object.field(ANNOTATIONS) else { return Ok(BTreeMap::new()) };
    let annotations: Option<BTreeMap<String, String>> =
        raw.parse().map_err(|_| broken("annotations in its oldObject are no texts"))?;
    Ok(annotations.unwrap_or_default())
}
