//! Deleting the PVC of a member, or a PDB over members.

use admission::Cause;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;
use serde::Deserialize;

use super::super::pod::Pod;
use super::super::wire;
use super::{Input, Objection, Subject, entry_of};
use ::config::{Selector, SelectorExt as _};
use cluster::cause;

#[derive(Default, Deserialize)]
struct PdbSpec {
    selector: Option<LabelSelector>,
}

/// Returns the pods of the namespace that are members and stay.
async fn members(input: Input<'_>, subject: &Subject<'_>) -> Result<Vec<Pod>, Cause> {
    let mut members = input.kube.pods(&input.request.namespace, 0).await?;
    let is_member = |pod: &Pod| entry_of(input, &subject.namespace, pod).is_some();
    members.retain(|pod| !pod.is_deleting && !pod.has_ended() && is_member(pod));
    Ok(members)
}

pub(super) async fn pvc_deleted(input: Input<'_>, subject: &Subject<'_>) -> Result<Vec<Objection>, Cause> {
    let members = members(input, subject).await?;
    let user = members.iter().find(|pod| pod.pvcs.contains(&subject.name));
    let why = |pod: &Pod| format!("it holds the data of etcd member {}", pod.name);
    let next = "remove the member first (etcdctl member remove) and delete its pod";
    Ok(user.map(|pod| Objection::deny(why(pod), next)).into_iter().collect())
}

pub(super) async fn pdb_deleted(input: Input<'_>, subject: &Subject<'_>) -> Result<Vec<Objection>, Cause> {
    let pdb: wire::Object<PdbSpec> = wire::read(&subject.json, "the PodDisruptionBudget")?;
    let Some(selector) = pdb.spec.selector else { return Ok(Vec::new()) };
    let selector = Selector::try_from(selector).map_err(|error| {
        Cause::new(cause::GARBAGE, format!("the PodDisruptionBudget cannot be read: {error}"))
    })?;
    let members = members(input, subject).await?;
    let is_selected = |pod: &&Pod| selector.matches(&pod.labels);
    let members = match members.iter().filter(is_selected).count() {
        0 => return Ok(Vec::new()),
        1 => "1 etcd member".to_owned(),
        count => format!("{count} etcd members"),
    };
    let why = format!("it protects {members} from evictions while Durward is down");
    Ok(vec![Objection::deny(why, "")])
}
