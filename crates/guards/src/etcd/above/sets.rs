//! A `StatefulSet` of members that gets fewer replicas, or goes.
//!
//! To have none is to be taken down, however it is brought about: to scale to 0 is refused where to delete is
//! (`alsoGuard: [scale, statefulsets]`). Short of that, what counts is etcd's own list: who was taken out of it before is not missed.
//! It is asked only where the number of replicas alone is no answer.
//!
//! Claims that go with pods or set (`persistentVolumeClaimRetentionPolicy`, `pkg/controller/statefulset/stateful_set_utils.go`) are
//! data that is lost, and weighed as such.

use admission::{Cause, Object, Raw};
use serde::Deserialize;
use serde_json::value::RawValue;

use super::super::config::{Also, Ensemble, Membership, Weight};
use super::super::facts::{Gathering, View};
use super::super::ground::{DELETE, Ground, Look, PODS, SETS, Standing, whole};
use super::super::group::{self, Group};
use super::super::makers::Makers;
use super::super::pod::{Etcd, Pod};
use super::super::table::Table;
use super::super::target::{REPLICAS, broken};
use super::{Case, Objection, Subject, entry};
use cluster::cause;
use cluster::fleet::{self, Part};
use cluster::writer::Reservations;

/// What a `StatefulSet` makes.
#[derive(Deserialize)]
struct Set<'s> {
    metadata: SetMetadata,
    #[serde(borrow)]
    spec: SetSpec<'s>,
}

#[derive(Deserialize)]
struct SetMetadata {
    #[serde(default)]
    uid: String,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct SetSpec<'s> {
    replicas: Option<u64>,
    #[serde(borrow)]
    template: &'s RawValue,
    #[serde(default)]
    persistent_volume_claim_retention_policy: Retention,
}

/// What becomes of claims; `Retain` where nothing stands.
#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Retention {
    when_scaled: String,
    when_deleted: String,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Options {
    propagation_policy: Option<String>,
    orphan_dependents: Option<bool>,
}

fn set(json: &str) -> Result<Set<'_>, Cause> {
    serde_json::from_str(json)
        .map_err(|error| Cause::new(cause::GARBAGE, format!("the StatefulSet cannot be read: {error}")))
}

/// The set as it is stored.
pub(super) async fn find(
    look: Look<'_>,
    namespace: &str,
    name: &str,
) -> Result<Option<fleet::Object>, Cause> {
    look.find(&SETS, namespace, name, Part::Whole).await
}

/// How many replicas it is to have.
pub(super) fn replicas(object: &Object<'_>, absent: u64) -> Result<u64, Cause> {
    let Some(raw) = object.field(REPLICAS) else { return Ok(absent) };
    let number = raw.parse::<Option<u64>>().map_err(|_| broken("replicas is no number"))?;
    Ok(number.unwrap_or(absent))
}

/// How many it has, and is to have.
fn change(case: Case<'_>) -> Result<(u64, u64), Cause> {
    let new = case.request.object.as_ref().ok_or_else(|| broken("it has no object"))?;
    // In a Scale nothing is zero; in a StatefulSet it is one.
    let absent = u64::from(case.request.subresource.is_empty());
    Ok((replicas(case.old, absent)?, replicas(new, absent)?))
}

/// Whether there are to be fewer.
pub(super) fn is_less(case: Case<'_>) -> Result<bool, Cause> {
    let (before, after) = change(case)?;
    Ok(after < before)
}

pub(super) async fn scaled(case: Case<'_>, subject: &Subject<'_>) -> Result<Vec<Objection>, Cause> {
    let (before, after) = change(case)?;
    let set = set(&subject.json)?;
    let template = set.spec.template.get();
    let Some((ensemble, pod)) = entry(case, &subject.namespace, template)? else { return Ok(Vec::new()) };
    let mut against = Vec::new();
    if after == 0 {
        let is_refused = case.config.also.contains(&Also::StatefulSets);
        let weight = if is_refused { Weight::Deny } else { Weight::Warn };
        against.push(Objection { why: format!("none of its {before} members would be left"), weight });
    } else if after <= before / 2 && !leaves(ensemble, &pod) {
        against.extend(short(case, subject, ensemble, &set.metadata.uid, (before, after)).await);
    }
    if set.spec.persistent_volume_claim_retention_policy.when_scaled == DELETE {
        let why = "the claims of the pods that go are deleted with them (persistentVolumeClaimRetentionPolicy.whenScaled: Delete)";
        against.push(Objection { why: why.to_owned(), weight: case.config.data_safety });
    }
    Ok(against)
}

/// Whether members leave the list by themselves when their pods go, so that those that stay are always a quorum.
fn leaves(ensemble: &Ensemble, pod: &Pod) -> bool {
    match ensemble.membership {
        Membership::Auto => pod.leaves,
        Membership::Kept => false,
        Membership::Removed => true,
    }
}

/// Why so few are not enough, if they are not: by etcd's own list, which others may have left before.
async fn short(
    case: Case<'_>,
    subject: &Subject<'_>,
    ensemble: &Ensemble,
    uid: &str,
    (before, after): (u64, u64),
) -> Option<Objection> {
    let left = format!("{after} of its {before} members would be left");
    let why = match voters(case, subject, ensemble, uid).await {
        Ok(voters) if after > voters / 2 => return None,
        Ok(voters) => format!(
            "{left}, and {} of the {voters} that vote are a quorum; take others out of the ensemble first (etcdctl member remove), then scale",
            voters / 2 + 1
        ),
        Err(why) => format!(
            "{left}, and {} are a quorum; whether others have left the ensemble before cannot be seen: {}",
            before / 2 + 1,
            why.text
        ),
    };
    Some(Objection::deny(why))
}

/// How many vote in the ensemble of this set.
async fn voters(case: Case<'_>, subject: &Subject<'_>, ensemble: &Ensemble, uid: &str) -> Result<u64, Cause> {
    let Case { config, look, .. } = case;
    let mut pods = Vec::new();
    for object in look.all(&PODS, &case.request.namespace).await? {
        let json = whole(&object)?;
        let pod = Pod::read(json, ensemble.port)?;
        if !pod.has_ended() && group::chooses(ensemble, &pod, json) {
            pods.push(pod);
        }
    }
    let is_own = |pod: &&Pod| pod.owner.as_ref().is_some_and(|owner| owner.uid == uid);
    let Some(own) = pods.iter().find(is_own) else {
        return Err(Cause::new(cause::UNCLEAR, "none of its pods is there"));
    };
    let group = Group::of(ensemble, own);
    pods.retain(|pod| group.holds(pod));
    let ground = Ground {
        now: case.now,
        namespace: Ok(subject.namespace.clone()),
        owner: Ok(Standing::None),
        makers: Makers::default(),
        has_node: Ok(true),
        pods: Ok(pods.clone()),
        book: Ok(Reservations::default()),
    };
    let gathering = Gathering { clients: look.clients, config, group: &group, end: look.end };
    let mut facts = gathering.about("", &ground, &pods).await;
    // Who was taken out ends, and its pod stays: those that are left tell who votes.
    let is_out = |view: &View| matches!(view, View::Silent(why) if why.code == cause::NOT_LISTENING);
    facts.seen.retain(|seen| seen.pod.etcd != Etcd::Down && !is_out(&seen.view));
    Table::of(config, &facts).voters.map(|voters| voters as u64)
}

pub(super) fn gone(case: Case<'_>, subject: &Subject<'_>) -> Result<Vec<Objection>, Cause> {
    let set = set(&subject.json)?;
    let options = case.request.options.map(Raw::parse::<Option<Options>>).transpose();
    let options =
        options.map_err(|_| broken("its options are none of a deletion"))?.flatten().unwrap_or_default();
    let is_orphaning =
        options.propagation_policy.as_deref() == Some("Orphan") || options.orphan_dependents == Some(true);
    if is_orphaning || entry(case, &subject.namespace, set.spec.template.get())?.is_none() {
        return Ok(Vec::new());
    }
    let mut against = Vec::new();
    let members = match set.spec.replicas.unwrap_or(1) {
        0 => None,
        1 => Some("its member goes".to_owned()),
        many => Some(format!("its {many} members go")),
    };
    if let Some(members) = members {
        // Where scaling is guarded too, to scale to 0 is refused like this.
        let is_guarded = case.config.also.contains(&Also::Scale);
        let way = if is_guarded { "" } else { ", or scale it to 0 where that is meant" };
        against.push(Objection::deny(format!("{members} with it; keep the pods with --cascade=orphan{way}")));
    }
    if set.spec.persistent_volume_claim_retention_policy.when_deleted == DELETE {
        let why = "its claims are deleted with it (persistentVolumeClaimRetentionPolicy.whenDeleted: Delete)";
        against.push(Objection { why: why.to_owned(), weight: case.config.data_safety });
    }
    Ok(against)
}
