//! Guards other objects of an etcd cluster, by option: scaling a `StatefulSet` below the quorum, and deleting a `StatefulSet`, the PVC
//! of a running member, or a PDB of members.
//!
//! An owner reference hands an object to the garbage collector, which counts as a controller. Adding one is therefore reviewed like a
//! deletion.
//!
//! The pods are reviewed too when they are deleted, so this is not a second quorum check. It catches changes whose effect comes
//! later, or whose pods cannot be denied any more. It denies users only and warns controllers: an operator manages its `StatefulSet`,
//! and the teardown of an owner must not be blocked.

mod owners;
mod pvcs_and_pdbs;
mod statefulsets;

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::time::SystemTime;

use admission::{Cause, Object, Raw, Request, Ruling, Verdict};
use futures_util::future::join;

use super::config::{Config, EtcdClusterConfig, Related, Severity};
use super::group;
use super::kube_reader::{KubeReader, Namespace, json};
use super::messages;
use super::overrides::{self, DeniedRequest, Override};
use super::pod::Pod;
use super::removal::{ReviewedField, malformed};
use crate::{exempt, identity};
use cluster::fleet::Part;
use cluster::{Resource, cause};

/// One request.
#[derive(Clone, Copy)]
struct Input<'i> {
    config: &'i Config,
    kube: KubeReader<'i>,
    request: &'i Request<'i>,
    old: &'i Object<'i>,
    now: SystemTime,
}

/// The object of a request.
struct Subject<'s> {
    namespace: Namespace,
    name: String,
    annotations: BTreeMap<String, String>,
    is_deleting: bool,
    json: Cow<'s, str>,
}

/// A reason against a request.
struct Objection {
    why: String,
    /// The alternative for the user, or empty.
    next: String,
    /// Whether users are denied or warned.
    severity: Severity,
}

impl Objection {
    fn deny(why: String, next: &str) -> Self {
        Self { why, next: next.to_owned(), severity: Severity::Deny }
    }
}

/// Reviews a request that is not about a pod.
pub(super) async fn review(
    config: &Config,
    kube: KubeReader<'_>,
    request: &Request<'_>,
    now: SystemTime,
) -> Ruling {
    let Some(old) = &request.old_object else {
        return match Related::of(request).or_else(|| Related::of_update(request)) {
            Some(_) => Ruling::unknown(malformed("it has no oldObject")),
            None => Ruling::allow(),
        };
    };
    let input = Input { config, kube, request, old, now };
    let is_guarded = |related: &Related| config.also_protect.contains(related);
    if let Some(related) = Related::of_update(request).filter(is_guarded) {
        let ruling = match owners::are_added(input) {
            Ok(false) => Ruling::allow(),
            Ok(true) => rule(input, related, DeniedRequest::Change(related.short_name())).await,
            Err(why) => Ruling::unknown(why),
        };
        if ruling.verdict != Verdict::Allow || !ruling.warnings.is_empty() {
            return ruling;
        }
    }
    match Related::of(request).filter(is_guarded) {
        Some(related) => rule(input, related, denied(related, request)).await,
        None => Ruling::allow(),
    }
}

async fn rule(input: Input<'_>, related: Related, denied: DeniedRequest) -> Ruling {
    let Input { config, request, old, now, .. } = input;
    if let Some(key) = config.common_config.exempt_by(request, &request.namespace) {
        return exempt::ruling(key);
    }
    let own = old.field(ReviewedField::Name).and_then(Raw::text).unwrap_or_default();
    let name = if own.is_empty() { request.name.as_ref() } else { own.as_ref() };
    let full_name = format!("{} {}/{name}", related.kind(), request.namespace);
    match decide(input, related, denied, name, &full_name).await {
        Ok(ruling) => ruling,
        Err(why) => {
            let name = (request.namespace.as_ref(), name);
            messages::unknown_related(config, &full_name, denied, &why, name, now)
        }
    }
}

/// Returns the denied request.
fn denied(related: Related, request: &Request<'_>) -> DeniedRequest {
    match related {
        Related::Scale => {
            let wanted = request.object.as_ref().and_then(|new| statefulsets::replicas(new, 0).ok());
            DeniedRequest::Scaling(wanted.unwrap_or_default())
        }
        Related::StatefulSets | Related::Pvcs | Related::Pdbs => {
            DeniedRequest::Deletion(related.short_name())
        }
    }
}

async fn decide(
    input: Input<'_>,
    related: Related,
    denied: DeniedRequest,
    name: &str,
    full_name: &str,
) -> Result<Ruling, Cause> {
    let Input { config, request, now, .. } = input;
    if let Some(key) = input.old.duplicate_key() {
        return Err(malformed(&format!("duplicate key {key} in oldObject")));
    }
    if related == Related::Scale && !statefulsets::is_scaled_down(input)? {
        return Ok(Ruling::allow());
    }
    let subject = subject(input, related, name).await?;
    let is_set = related == Related::StatefulSets;
    if subject.is_deleting && !(is_set && statefulsets::stops_orphaning(input, &subject)?) {
        return Ok(Ruling::allow().audit("allowed", "it is already being deleted"));
    }
    if subject.namespace.is_deleting {
        return Ok(Ruling::allow().audit("allowed", "the namespace is being deleted"));
    }
    let of_object = overrides::judge(config, name, &subject.annotations, now);
    let of_namespace = overrides::judge(config, &request.namespace, &subject.namespace.annotations, now);
    for judged in [&of_object, &of_namespace] {
        if let Override::Active { reason, until } = judged {
            return Ok(messages::overridden(full_name, reason, until));
        }
    }
    let objections = match related {
        Related::Scale => statefulsets::scaled(input, &subject).await?,
        Related::StatefulSets => statefulsets::deleted(input, &subject).await?,
        Related::Pvcs => pvcs_and_pdbs::pvc_deleted(input, &subject).await?,
        Related::Pdbs => pvcs_and_pdbs::pdb_deleted(input, &subject).await?,
    };
    let is_controller = config.common_config.settle_policy.is_controller(&request.user);
    let binds = |one: &&Objection| one.severity == Severity::Deny && !is_controller;
    if let Some(Objection { why, next, .. }) = objections.iter().find(binds) {
        let effect = match denied {
            DeniedRequest::Scaling(_) => format!("cannot scale {full_name}"),
            DeniedRequest::Change(_) => format!("adding an owner to {full_name} can delete it"),
            DeniedRequest::Deletion(_) | DeniedRequest::Eviction => format!("cannot delete {full_name}"),
        };
        let next = if matches!(denied, DeniedRequest::Change(_)) { owners::NEXT } else { next };
        let object = ((request.namespace.as_ref(), name), &of_object);
        let ruling = messages::deny_related(config, &effect, denied, (why, next), object, now);
        return Ok(match of_namespace {
            Override::Invalid(wrong) => ruling.warn(messages::namespace_override(&request.namespace, &wrong)),
            Override::None | Override::Active { .. } => ruling,
        });
    }
    let warn = |ruling: Ruling, one: &Objection| {
        ruling.warn(format!("{}{full_name}: {}", messages::PREFIX, one.why)).audit("warned", &one.why)
    };
    Ok(objections.iter().fold(Ruling::allow(), warn))
}

/// Returns the object, if the API server has it with the uid of the review. A Scale contains nothing of its `StatefulSet`, but has its
/// uid.
async fn subject<'s>(input: Input<'s>, related: Related, name: &str) -> Result<Subject<'s>, Cause> {
    let Input { kube, request, old, .. } = input;
    let (group, plural, ..) = related.requests();
    let is_scale = related == Related::Scale && !request.subresource.is_empty();
    let part = if is_scale { Part::Whole } else { Part::Metadata };
    let resource = Resource { group: group.into(), version: "v1".into(), plural: plural.into() };
    let (stored, namespace) =
        join(kube.find(&resource, &request.namespace, name, part), kube.namespace(&request.namespace)).await;
    let uid = old.field(ReviewedField::Uid).and_then(Raw::text).unwrap_or_default();
    let Some(stored) = identity::reviewed(stored?, Some(&uid)) else {
        let text = format!("the cluster that Durward reads does not have this {}", related.kind());
        return Err(Cause::new(cause::UNCLEAR, text));
    };
    let json = if is_scale { json(&stored)?.to_owned().into() } else { old.raw().get().into() };
    Ok(Subject {
        namespace: namespace?,
        name: name.to_owned(),
        annotations: stored.metadata.annotations,
        is_deleting: stored.metadata.deleting,
        json,
    })
}

/// Returns the configuration entry of a pod.
fn entry_of<'i>(input: Input<'i>, namespace: &Namespace, pod: &Pod) -> Option<&'i EtcdClusterConfig> {
    let mut entries = group::entries(input.config, pod);
    entries.find(|entry| entry.namespaces.matches(&pod.namespace, &namespace.labels))
}
