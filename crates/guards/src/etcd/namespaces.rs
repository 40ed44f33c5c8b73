//! Guards the labels of namespaces that decide which etcd pods are guarded.
//!
//! Entries of `clusters` and `webhook.namespaceSelector` select namespaces by their labels. If an update takes a namespace out of the selection, its etcd pods are no longer guarded. If another entry becomes the first one that selects a pod,
//! the pod gets its rules. Both updates are denied unless there is an override.
//!
//! The deletion of Durward's own namespace is reviewed here too.

use std::collections::{BTreeMap, BTreeSet};
use std::time::SystemTime;

use admission::{Cause, Object as ReviewedObject, Operation, Raw, Request, Ruling, Shape};

use super::config::{Config, EtcdClusterConfig, NamespaceMatch};
use super::group;
use super::kube_reader::KubeReader;
use super::messages;
use super::overrides::{self, DeniedRequest, Override};
use super::pod::Pod;
use super::removal::{ReviewedField, malformed};
use crate::common::{self, NAMESPACE_NAME};
use crate::{exempt, identity, install_namespace};
use ::config::SelectorExt as _;
use cluster::fleet::Part;
use cluster::{Resource, cause};

type Strings = BTreeMap<String, String>;

/// Returns the keys of the labels by which namespaces are selected. The API server keeps the label with the name.
pub(super) fn label_keys(config: &Config) -> BTreeSet<String> {
    let labeled = config.clusters.iter().filter_map(|entry| match &entry.namespaces {
        NamespaceMatch::Labeled(selector) => Some(selector),
        NamespaceMatch::Named(_) => None,
    });
    let common = &config.common_config;
    labeled
        .chain([&common.namespace_selector])
        .flat_map(common::label_keys)
        .filter(|key| key != NAMESPACE_NAME)
        .collect()
}

/// Whether the pods of an entry are guarded in a namespace with these labels.
fn is_guarded(config: &Config, entry: &EtcdClusterConfig, name: &str, labels: &Strings) -> bool {
    entry.namespaces.matches(name, labels) && config.common_config.namespace_selector.matches(labels)
}

/// Whether a request updates a namespace. Its subresources also write labels.
pub(super) fn is_update(request: &Request<'_>) -> bool {
    request.operation == Operation::Update
        && (request.resource.group.as_ref(), request.resource.resource.as_ref()) == ("", "namespaces")
}

/// Reviews an update of a namespace.
pub(super) async fn review(
    config: &Config,
    kube: KubeReader<'_>,
    request: &Request<'_>,
    now: SystemTime,
) -> Ruling {
    let name = request.name.as_ref();
    if let Some(key) = config.common_config.exempt_by(request, name) {
        return exempt::ruling(key);
    }
    match decide(config, kube, request, now).await {
        Ok(ruling) => ruling,
        Err(why) => {
            let denied = DeniedRequest::Change("namespace");
            messages::unknown_related(config, &format!("namespace {name}"), denied, &why, ("", name), now)
        }
    }
}

async fn decide(
    config: &Config,
    kube: KubeReader<'_>,
    request: &Request<'_>,
    now: SystemTime,
) -> Result<Ruling, Cause> {
    let name = request.name.as_ref();
    let (Some(old), Some(new)) = (&request.old_object, &request.object) else {
        return Err(malformed("it has no object or no oldObject"));
    };
    let (before, after) = (strings(old, ReviewedField::Labels)?, strings(new, ReviewedField::Labels)?);
    let entries = |labels: &Strings| -> Vec<&EtcdClusterConfig> {
        config.clusters.iter().filter(|entry| is_guarded(config, entry, name, labels)).collect()
    };
    let (old_entries, new_entries) = (entries(&before), entries(&after));
    if old_entries.is_empty() || old_entries == new_entries {
        return Ok(Ruling::allow().audit("allowed", "the namespace stays in the guard"));
    }
    let stored = kube.find(&Resource::NAMESPACES, "", name, Part::Metadata).await?;
    let uid = old.field(ReviewedField::Uid).and_then(Raw::text).unwrap_or_default();
    let Some(stored) = identity::reviewed(stored, Some(&uid)) else {
        let text = "the cluster that Durward reads does not have this namespace";
        return Err(Cause::new(cause::UNCLEAR, text));
    };
    if stored.metadata.deleting {
        return Ok(Ruling::allow().audit("allowed", "the namespace is being deleted"));
    }
    let current = overrides::judge(config, name, &stored.metadata.annotations, now);
    if let Override::Active { reason, until } = &current {
        return Ok(messages::overridden(&format!("namespace {name}"), reason, until));
    }
    let mut pods = kube.pods(name, 0).await?;
    pods.retain(|pod| {
        let entry = first_entry(&old_entries, pod);
        !pod.has_ended() && entry.is_some() && entry != first_entry(&new_entries, pod)
    });
    let is_unguarded = |pod: &Pod| first_entry(&new_entries, pod).is_none();
    let mut change = "be guarded by another entry of clusters";
    if pods.iter().any(is_unguarded) {
        pods.retain(is_unguarded);
        change = "no longer be guarded";
    }
    let why = match pods.as_slice() {
        [] => return Ok(Ruling::allow().audit("allowed", "no etcd pod gets another entry of clusters")),
        [pod] => format!("etcd pod {} would {change}", pod.name),
        [first, ..] => format!("{} etcd pods would {change}, such as {}", pods.len(), first.name),
    };
    let key = label_keys(config).into_iter().find(|key| before.get(key) != after.get(key));
    let effect = format!("cannot change label {} of namespace {name}", key.unwrap_or_default());
    let denied = DeniedRequest::Change("namespace");
    Ok(messages::deny_related(config, &effect, denied, (&why, ""), (("", name), &current), now))
}

/// The first of these entries that selects the pod.
fn first_entry<'c>(entries: &[&'c EtcdClusterConfig], pod: &Pod) -> Option<&'c EtcdClusterConfig> {
    entries.iter().copied().find(|entry| group::selects_pod(entry, pod))
}

/// Reviews the deletion of Durward's namespace.
pub(super) fn review_install(config: &Config, request: &Request<'_>, now: SystemTime) -> Ruling {
    let common = &config.common_config;
    if let Some(key) = common.exempt_by(request, "") {
        return exempt::logged_ruling(key);
    }
    let Some(old) = &request.old_object else { return Ruling::unknown(malformed("it has no oldObject")) };
    if old.field(ReviewedField::DeletionTimestamp).is_some_and(|raw| raw.shape() != Shape::Null) {
        return Ruling::allow().audit("allowed", "it is already being deleted");
    }
    match strings(old, ReviewedField::Annotations) {
        Ok(annotations) => {
            install_namespace::ruling(super::NAME, common, config.break_glass, &annotations, now)
        }
        Err(why) => Ruling::unknown(why),
    }
}

/// Returns the labels or annotations of an object.
fn strings(object: &ReviewedObject<'_>, field: ReviewedField) -> Result<Strings, Cause> {
    if let Some(key) = object.duplicate_key() {
        return Err(malformed(&format!("duplicate key {key}")));
    }
    if object.field(ReviewedField::Name).is_none() {
        return Err(malformed("the object has no name"));
    }
    let Some(raw) = object.field(field) else { return Ok(Strings::new()) };
    let strings: Option<Strings> =
        raw.parse().map_err(|_| malformed("labels or annotations are not strings"))?;
    Ok(strings.unwrap_or_default())
}
