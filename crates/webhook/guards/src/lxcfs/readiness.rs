//! Sends pods with the files to nodes with a label, which a node has while LXCFS is ready on it.
//!
//! `required` adds a key to `spec.nodeSelector`, which holds in addition to any affinity. A further required affinity term would be an
//! alternative to those of the author, and could allow nodes that the author excluded. `preferred` adds a preferred term with the
//! maximum weight.
//!
//! Pods of a `DaemonSet` are not changed: their controller selected the node by the template. Pods with a `nodeName` are not changed
//! either: if the node does not match the selector, the kubelet fails the pod permanently (`AdmissionCheck` in `pkg/scheduler`, called
//! by `pkg/kubelet/lifecycle/predicate.go`). Both wait for the files on their node.

use admission::{Raw, Shape};
use k8s_openapi::api::core::v1 as core;

use super::injection::Injection;
use super::pod::{Pod, PodField, Unreadable, elements, entries, members};
use super::slot::{NODE_AFFINITY, PREFERRED, Slot, SlotPath};
use ::lxcfs::NodeAffinity;

/// The label of a node on which LXCFS is ready. If LXCFS is not ready, the label is absent.
pub(super) const READY: &str = ::lxcfs::READY_LABEL;
/// The value of the label.
const TRUE: &str = "true";
/// The maximum (`ValidatePreferredSchedulingTerms`): a node that serves the files is better than a near one.
const WEIGHT: i32 = 100;

const NODE_SELECTOR: &str = "spec.nodeSelector";

/// Returns the value of the label in the pod's node selector, if it is another than the guard would add.
pub(super) fn other_selector(pod: Pod<'_>) -> Result<Option<String>, Unreadable> {
    Ok(selected_value(pod)?.filter(|value| value != TRUE))
}

fn selected_value(pod: Pod<'_>) -> Result<Option<String>, Unreadable> {
    let unreadable = |problem| Unreadable::new(format!("{NODE_SELECTOR} {READY}"), problem);
    let mut found = None;
    entries(pod.field(PodField::NodeSelector), NODE_SELECTOR, |key, value| {
        if key != READY {
            return Ok(());
        }
        let value = value.text().ok_or_else(|| unreadable("is not a string"))?;
        match found.replace(value.into_owned()) {
            None => Ok(()),
            Some(_) => Err(unreadable("is duplicate")),
        }
    })?;
    Ok(found)
}

impl Injection {
    /// Adds the node selection of the configuration.
    pub(super) fn select_nodes(&mut self, affinity: NodeAffinity, pod: Pod<'_>) -> Result<(), Unreadable> {
        if affinity == NodeAffinity::None || has_node(pod)? {
            return Ok(());
        }
        if affinity == NodeAffinity::Required { self.require(pod) } else { self.prefer(pod) }
    }

    fn require(&mut self, pod: Pod<'_>) -> Result<(), Unreadable> {
        if selected_value(pod)?.is_some() {
            return Ok(());
        }
        let slot = map_slot(SlotPath::NodeSelector, pod.field(PodField::NodeSelector), NODE_SELECTOR)?;
        self.node_note = ", on nodes with durward.dev/lxcfs-ready only";
        self.add_entry(slot, READY, &TRUE)
    }

    fn prefer(&mut self, pod: Pod<'_>) -> Result<(), Unreadable> {
        let affinity = pod.field(PodField::Affinity);
        let slot = map_slot(SlotPath::Affinity, affinity, "spec.affinity")?;
        let node_affinity = child(affinity, NODE_AFFINITY, "spec.affinity")?;
        let node_slot = map_slot(SlotPath::NodeAffinity, node_affinity, "spec.affinity.nodeAffinity")?;
        let terms = child(node_affinity, PREFERRED, "spec.affinity.nodeAffinity")?;
        let terms_slot = Slot::read(SlotPath::Preferred, terms)
            .ok_or_else(|| Unreadable::new("the preferred node affinity", "is not an array"))?;
        if has_term(terms)? {
            return Ok(());
        }
        self.node_note = ", preferably on nodes with durward.dev/lxcfs-ready";
        if slot.is_missing() {
            let node_affinity = Some(node_affinity_with(term()));
            self.add(&slot.pointer(), &core::Affinity { node_affinity, ..core::Affinity::default() })
        } else if node_slot.is_missing() {
            self.add(&node_slot.pointer(), &node_affinity_with(term()))
        } else {
            self.add_all(terms_slot, [term()].into_iter())
        }
    }
}

fn term() -> core::PreferredSchedulingTerm {
    let values = Some(vec![TRUE.to_owned()]);
    let expression =
        core::NodeSelectorRequirement { key: READY.to_owned(), operator: "In".to_owned(), values };
    let preference = core::NodeSelectorTerm { match_expressions: Some(vec![expression]), match_fields: None };
    core::PreferredSchedulingTerm { weight: WEIGHT, preference }
}

fn node_affinity_with(term: core::PreferredSchedulingTerm) -> core::NodeAffinity {
    let preferred_during_scheduling_ignored_during_execution = Some(vec![term]);
    core::NodeAffinity {
        preferred_during_scheduling_ignored_during_execution,
        ..core::NodeAffinity::default()
    }
}

fn map_slot(path: SlotPath, value: Option<Raw<'_>>, name: &str) -> Result<Slot, Unreadable> {
    Slot::read(path, value).ok_or_else(|| Unreadable::new(name, "is not an object"))
}

/// Returns whether the pod has its node already: by name, or because a `DaemonSet` controls it.
fn has_node(pod: Pod<'_>) -> Result<bool, Unreadable> {
    const OWNERS: &str = "metadata.ownerReferences";
    if pod.node_name().is_some() {
        return Ok(true);
    }
    let mut found = false;
    elements(pod.field(PodField::Owners), OWNERS, |scanner, index| {
        let (mut is_kind, mut is_group, mut is_controller) = (false, false, false);
        entries(Some(scanner.value()?), &format!("{OWNERS}[{index}]"), |key, value| {
            let text = || value.text().unwrap_or_default();
            match key {
                "kind" => is_kind = text() == "DaemonSet",
                "apiVersion" => is_group = text().starts_with("apps/"),
                "controller" => is_controller = value.is_true(),
                _ => {}
            }
            Ok(())
        })?;
        found |= is_kind && is_group && is_controller;
        Ok(())
    })?;
    Ok(found)
}

/// Returns whether a preferred term is about the label only: an earlier addition, or the author's decision.
fn has_term(terms: Option<Raw<'_>>) -> Result<bool, Unreadable> {
    let mut found = false;
    elements(terms, PREFERRED, |scanner, _| {
        found |= is_about_readiness(scanner.value()?).unwrap_or(false);
        Ok(())
    })?;
    Ok(found)
}

/// Returns whether a term is about the label only. A value of another type is about nothing, as in the API server. An object with a
/// duplicate key counts as nothing too, because readers differ in the value that they take.
fn is_about_readiness(term: Raw<'_>) -> Result<bool, Unreadable> {
    let preference = child(Some(term), "preference", PREFERRED)?;
    let (mut keys, mut ready_keys) = (0, 0);
    for list in ["matchExpressions", "matchFields"] {
        let Some(requirements) = child(preference, list, "preference")?.filter(|l| l.shape() == Shape::Array)
        else {
            continue;
        };
        requirements.scan().array(|scanner, _| {
            let key = child(Some(scanner.value()?), "key", list)?;
            keys += 1;
            ready_keys +=
                i32::from(list == "matchExpressions" && key.and_then(Raw::text).as_deref() == Some(READY));
            Ok::<_, Unreadable>(())
        })?;
    }
    Ok(keys == 1 && ready_keys == 1)
}

/// Returns the value of a key in an object that can be absent or null. `name` is the name of the object in an error.
fn child<'a>(object: Option<Raw<'a>>, key: &str, name: &str) -> Result<Option<Raw<'a>>, Unreadable> {
    let Some(object) = object.filter(|object| object.shape() != Shape::Null) else { return Ok(None) };
    match members(&mut object.scan(), [key])? {
        ([value], false) => Ok(value),
        (_, true) => Err(Unreadable::new(format!("{name}.{key}"), "is duplicate")),
    }
}
