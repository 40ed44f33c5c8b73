//! Scaling down or deleting a `StatefulSet` of members.
//!
//! Scaling to zero is a teardown, so it is denied like a deletion (`alsoProtect: [scale, statefulsets]`). Otherwise etcd's own list
//! counts: members that were removed from it before are not needed, and members whose pods an earlier scaling removed are still in it.
//!
//! PVCs that are deleted with pods or the `StatefulSet` are lost data (`persistentVolumeClaimRetentionPolicy`,
//! `pkg/controller/statefulset/stateful_set_utils.go`).

use std::collections::BTreeSet;

use admission::{Cause, Object, Raw};
use serde::Deserialize;

use super::super::config::{EtcdClusterConfig, OnPodDelete, Related, Severity};
use super::super::facts::{FactReader, MemberView, PodFacts, is_down};
use super::super::group::Group;
use super::super::kube_state::KubeState;
use super::super::pod::Pod;
use super::super::removal::{ReviewedField, malformed};
use super::super::table::{MemberState, Row, Table};
use super::super::wire;
use super::{Input, Objection, Subject, entry_of};
use cluster::cause;

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Options {
    propagation_policy: Option<String>,
    orphan_dependents: Option<bool>,
}

/// Returns the replicas of a `StatefulSet` or a Scale.
pub(super) fn replicas(object: &Object<'_>, default: u64) -> Result<u64, Cause> {
    let Some(raw) = object.field(ReviewedField::Replicas) else { return Ok(default) };
    let number = raw.parse::<Option<u64>>().map_err(|_| malformed("replicas is not a number"))?;
    Ok(number.unwrap_or(default))
}

/// Returns the replicas before and after the request.
fn change(input: Input<'_>) -> Result<(u64, u64), Cause> {
    let new = input.request.object.as_ref().ok_or_else(|| malformed("it has no object"))?;
    // The default is 0 in a Scale and 1 in a StatefulSet.
    let default = u64::from(input.request.subresource.is_empty());
    Ok((replicas(input.old, default)?, replicas(new, default)?))
}

pub(super) fn is_scaled_down(input: Input<'_>) -> Result<bool, Cause> {
    let (before, after) = change(input)?;
    Ok(after < before)
}

/// Returns the configuration entry of the pods that the `StatefulSet` creates or controls. Editors of the `StatefulSet` can change its
/// template, and it can adopt pods that another one created, so its pods count too.
async fn entry_of_set<'i>(
    input: Input<'i>,
    subject: &Subject<'_>,
    set: &mut wire::StatefulSet,
) -> Result<Option<&'i EtcdClusterConfig>, Cause> {
    let template = set.spec.template.take().ok_or_else(|| {
        Cause::new(cause::GARBAGE, "the StatefulSet cannot be read: missing field `template`")
    })?;
    let pod = Pod { namespace: input.request.namespace.to_string(), ..Pod::of(template, 0) };
    if let Some(entry) = entry_of(input, &subject.namespace, &pod) {
        return Ok(Some(entry));
    }
    let pods = input.kube.pods(&input.request.namespace, 0).await?;
    let mut own = pods.iter().filter(|pod| is_controlled_by(pod, &set.metadata.uid));
    Ok(own.find_map(|pod| entry_of(input, &subject.namespace, pod)))
}

fn is_controlled_by(pod: &Pod, uid: &str) -> bool {
    pod.stateful_set().is_some_and(|owner| owner.uid == uid)
}

pub(super) async fn scaled(input: Input<'_>, subject: &Subject<'_>) -> Result<Vec<Objection>, Cause> {
    let (before, after) = change(input)?;
    let mut set: wire::StatefulSet = wire::read(&subject.json, "the StatefulSet")?;
    let Some(entry) = entry_of_set(input, subject, &mut set).await? else {
        return Ok(Vec::new());
    };
    let removes_members = entry.member_on_pod_delete == OnPodDelete::Remove;
    let mut objections = Vec::new();
    if after == 0 {
        let is_denied = input.config.also_protect.contains(&Related::StatefulSets);
        let severity = if is_denied { Severity::Deny } else { Severity::Warn };
        let why = format!("none of its {before} etcd members would be left");
        objections.push(Objection { why, next: String::new(), severity });
    } else if !removes_members {
        objections.extend(too_few(input, subject, entry, &set.metadata.uid, (before, after)).await);
    }
    if set.scaling_deletes_pvcs() {
        let why = "the PVCs of the removed pods would be deleted (persistentVolumeClaimRetentionPolicy.whenScaled: Delete)";
        objections.push(lost_data(why));
    }
    Ok(objections)
}

/// Returns why the remaining replicas are not a quorum of etcd's list.
async fn too_few(
    input: Input<'_>,
    subject: &Subject<'_>,
    entry: &EtcdClusterConfig,
    uid: &str,
    (before, after): (u64, u64),
) -> Option<Objection> {
    let left = format!("{after} of its {before} etcd members would be left");
    let why = match voters(input, subject, entry, uid).await {
        Ok(Voters { all, of_others }) if after + of_others > all / 2 => return None,
        Ok(Voters { all, .. }) => format!("{left}, quorum of the {all} voters is {}", all / 2 + 1),
        Err(why) => format!("{left}; cannot read the member list: {}", why.text),
    };
    Some(Objection::deny(
        why,
        "remove members from the cluster first (etcdctl member remove), then scale again",
    ))
}

/// The voters of an etcd cluster.
struct Voters {
    all: u64,
    /// Those that answer, in pods that the `StatefulSet` does not control.
    of_others: u64,
}

/// Counts the voters in the etcd cluster of this `StatefulSet`.
async fn voters(
    input: Input<'_>,
    subject: &Subject<'_>,
    entry: &EtcdClusterConfig,
    uid: &str,
) -> Result<Voters, Cause> {
    let Input { config, kube, .. } = input;
    let pods = kube.pods(&input.request.namespace, entry.port).await?;
    let Some(group) = pods.iter().find(|pod| is_controlled_by(pod, uid)).map(|own| Group::of(entry, own))
    else {
        return Err(Cause::new(cause::UNCLEAR, "it has no pods"));
    };
    let pods = group.select(entry, pods, "");
    let state = KubeState::of_pods(input.now, subject.namespace.clone(), pods);
    let reader = FactReader { clients: kube.clients, config, group: &group, end: kube.end };
    let mut facts = reader.about("", &state).await;
    // A member that was removed from the list stops, and its pod stays. The others report who votes.
    let is_removed = |facts: &PodFacts| matches!(&facts.view, MemberView::NoResponse(why) if is_down(why, facts.pod.is_stopped()));
    facts.pods.retain(|facts| !is_removed(facts));
    let own: BTreeSet<&str> = facts
        .pods
        .iter()
        .map(|facts| &facts.pod)
        .filter(|pod| is_controlled_by(pod, uid))
        .map(|pod| pod.uid.as_str())
        .collect();
    let table = Table::of(&facts);
    let votes = |row: &&Row| matches!(row.state, MemberState::Healthy | MemberState::Unhealthy(_));
    let of_others = table.rows.iter().filter(votes).filter(|row| !own.contains(row.uid.as_str())).count();
    table.voters.map(|all| Voters { all: all as u64, of_others: of_others as u64 })
}

/// Whether the deletion keeps the pods.
fn is_orphaning(input: Input<'_>) -> Result<bool, Cause> {
    let options = input.request.options.map(Raw::parse::<Option<Options>>).transpose();
    let options =
        options.map_err(|_| malformed("options are not DeleteOptions"))?.flatten().unwrap_or_default();
    Ok(options.propagation_policy.as_deref() == Some("Orphan") || options.orphan_dependents == Some(true))
}

/// Whether this deletion of a `StatefulSet` cancels an earlier one that keeps the pods. The API server computes the finalizers of an
/// object again for each deletion (`deletionFinalizersForGarbageCollection` in apiserver/pkg/registry/generic/registry/store.go).
pub(super) fn stops_orphaning(input: Input<'_>, subject: &Subject<'_>) -> Result<bool, Cause> {
    let set: wire::StatefulSet = wire::read(&subject.json, "the StatefulSet")?;
    Ok(set.metadata.orphans() && !is_orphaning(input)?)
}

pub(super) async fn deleted(input: Input<'_>, subject: &Subject<'_>) -> Result<Vec<Objection>, Cause> {
    let mut set: wire::StatefulSet = wire::read(&subject.json, "the StatefulSet")?;
    if is_orphaning(input)? || entry_of_set(input, subject, &mut set).await?.is_none() {
        return Ok(Vec::new());
    }
    let mut objections = Vec::new();
    let members = match set.spec.replicas.unwrap_or(1) {
        0 => None,
        1 => Some("its etcd member".to_owned()),
        many => Some(format!("its {many} etcd members")),
    };
    if let Some(members) = members {
        // If scaling is guarded too, scaling to 0 is denied like this.
        let is_scale_guarded = input.config.also_protect.contains(&Related::Scale);
        let or_scale = if is_scale_guarded { "" } else { ", or scale it to 0 first" };
        let next = format!("keep the pods with kubectl delete --cascade=orphan{or_scale}");
        objections.push(Objection::deny(format!("{members} would be deleted with it"), &next));
    }
    if set.deletion_deletes_pvcs() {
        let why =
            "its PVCs would be deleted with it (persistentVolumeClaimRetentionPolicy.whenDeleted: Delete)";
        objections.push(lost_data(why));
    }
    Ok(objections)
}

fn lost_data(why: &str) -> Objection {
    let next = "set the retention policy to Retain".to_owned();
    Objection { why: why.to_owned(), next, severity: Severity::Warn }
}
