//! Guards other objects of an etcd cluster, by option: scaling a `StatefulSet` below the quorum, and deleting a `StatefulSet`, the PVC
//! of a running member, or a PDB of members.
//!
//! The pods are reviewed too when they are deleted, so this is not a second quorum check. It catches changes whose effect comes
//! later, or whose pods cannot be denied any more. It denies users only and warns controllers: an operator manages its `StatefulSet`,
//! and the teardown of an owner must not be blocked.

mod pvcs_and_pdbs;
mod statefulsets;

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::time::SystemTime;

use admission::{Cause, Object, Raw, Request, Ruling, Shape};

use super::config::{Config, EtcdClusterConfig, Related, Severity};
use super::group;
use super::kube_reader::{KubeReader, Namespace, STATEFUL_SETS, json};
use super::messages;
use super::overrides::{self, DeniedRequest, Override};
use super::pod::Pod;
use super::removal::{ANNOTATIONS, DELETION_TIMESTAMP, NAME, malformed};
use crate::exempt::Exemption;
use crate::install_namespace;
use cluster::fleet::Part;

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
    let Some(related) = Related::of(request).filter(|related| config.also_protect.contains(related)) else {
        return Ruling::allow();
    };
    if let Some(key) = config.common_config.exempt_by(request, &request.namespace) {
        return Ruling::allow().audit("exempt", key);
    }
    let Some(old) = &request.old_object else { return Ruling::unknown(malformed("it has no oldObject")) };
    let own = old.field(NAME).and_then(Raw::text).unwrap_or_default();
    let name = if own.is_empty() { request.name.as_ref() } else { own.as_ref() };
    let full_name = format!("{} {}/{name}", related.kind(), request.namespace);
    match decide(Input { config, kube, request, old, now }, related, name, &full_name).await {
        Ok(ruling) => ruling,
        Err(why) => {
            let name = (request.namespace.as_ref(), name);
            messages::unknown_related(config, &full_name, denied(related, request), &why, name, now)
        }
    }
}

/// Reviews the deletion of Durward's namespace.
pub(super) fn review_install_namespace(config: &Config, request: &Request<'_>, now: SystemTime) -> Ruling {
    let common = &config.common_config;
    if let Exemption::By(key) = common.exempt.of(request) {
        return Ruling::allow().audit("exempt", key);
    }
    let Some(old) = &request.old_object else { return Ruling::unknown(malformed("it has no oldObject")) };
    if let Some(key) = old.duplicate_key() {
        return Ruling::unknown(malformed(&format!("duplicate key {key} in oldObject")));
    }
    if old.field(DELETION_TIMESTAMP).is_some_and(|raw| raw.shape() != Shape::Null) {
        return Ruling::allow().audit("allowed", "it is already being deleted");
    }
    match annotations(old) {
        Ok(annotations) => {
            install_namespace::ruling(super::NAME, common, config.break_glass, &annotations, now)
        }
        Err(why) => Ruling::unknown(why),
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

async fn decide(input: Input<'_>, related: Related, name: &str, full_name: &str) -> Result<Ruling, Cause> {
    let Input { config, request, now, .. } = input;
    if let Some(key) = input.old.duplicate_key() {
        return Err(malformed(&format!("duplicate key {key} in oldObject")));
    }
    if related == Related::Scale && !statefulsets::is_scaled_down(input)? {
        return Ok(Ruling::allow());
    }
    let Some(subject) = subject(input, related, name).await? else { return Ok(Ruling::allow()) };
    if subject.is_deleting {
        return Ok(Ruling::allow().audit("allowed", "it is already being deleted"));
    }
    if subject.namespace.is_deleting {
        return Ok(Ruling::allow().audit("allowed", "the namespace is being deleted"));
    }
    if config.common_config.exempt.selects(&subject.namespace.labels) {
        return Ok(Ruling::allow().audit("exempt", "exempt.namespaceSelector"));
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
        Related::StatefulSets => statefulsets::deleted(input, &subject)?,
        Related::Pvcs => pvcs_and_pdbs::pvc_deleted(input, &subject).await?,
        Related::Pdbs => pvcs_and_pdbs::pdb_deleted(input, &subject).await?,
    };
    let is_controller = config.common_config.settle_policy.is_controller(&request.user);
    let binds = |one: &&Objection| one.severity == Severity::Deny && !is_controller;
    if let Some(Objection { why, next, .. }) = objections.iter().find(binds) {
        let denied = denied(related, request);
        let object = ((request.namespace.as_ref(), name), &of_object);
        let ruling = messages::deny_related(config, full_name, denied, (why, next), object, now);
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

/// Returns the object. A Scale contains nothing of its `StatefulSet`, which is read from the API server.
async fn subject<'s>(input: Input<'s>, related: Related, name: &str) -> Result<Option<Subject<'s>>, Cause> {
    let Input { kube, request, old, .. } = input;
    let name = name.to_owned();
    if related == Related::Scale && !request.subresource.is_empty() {
        let set = kube.find(&STATEFUL_SETS, &request.namespace, &name, Part::Whole).await?;
        let Some(set) = set else { return Ok(None) };
        let json = json(&set)?.to_owned().into();
        let namespace = kube.namespace(&request.namespace).await?;
        let (annotations, is_deleting) = (set.metadata.annotations, set.metadata.deleting);
        return Ok(Some(Subject { namespace, name, annotations, is_deleting, json }));
    }
    let namespace = kube.namespace(&request.namespace).await?;
    Ok(Some(Subject {
        namespace,
        name,
        annotations: annotations(old)?,
        is_deleting: old.field(DELETION_TIMESTAMP).is_some_and(|raw| raw.shape() != Shape::Null),
        json: old.raw().get().into(),
    }))
}

/// Returns the configuration entry of a pod.
fn entry_of<'i>(input: Input<'i>, namespace: &Namespace, pod: &Pod) -> Option<&'i EtcdClusterConfig> {
    let mut entries = group::entries(input.config, pod);
    entries.find(|entry| entry.namespaces.matches(&pod.namespace, &namespace.labels))
}

fn annotations(object: &Object<'_>) -> Result<BTreeMap<String, String>, Cause> {
    let Some(raw) = object.field(ANNOTATIONS) else { return Ok(BTreeMap::new()) };
    let annotations: Option<BTreeMap<String, String>> =
        raw.parse().map_err(|_| malformed("annotations in oldObject are not strings"))?;
    Ok(annotations.unwrap_or_default())
}
