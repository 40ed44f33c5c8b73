//! Where a pod with the files may go: to nodes that carry the label which is kept there while LXCFS is well.
//!
//! `require` is one key of `spec.nodeSelector`, which holds beside whatever affinity the pod has. Of required affinity terms any
//! one is enough: one more of them would let the pod go where its author forbade it. `prefer` is one preferred term of the
//! greatest weight.
//!
//! Never for pods of a `DaemonSet`: their controller has chosen the node by the template, and there is no other to which they
//! could go instead. Nor for pods with a `nodeName`: the kubelet fails those whose selector its node does not match, for good
//! (`AdmissionCheck` in `pkg/scheduler`, called by `pkg/kubelet/lifecycle/predicate.go`). Both wait for the files on their node.

use admission::{Raw, Scanner, Shape};
use serde::Serialize;

use super::config::NodeReadiness;
use super::inject::Injection;
use super::pod::{AFFINITY, NODE_NAME, NODE_SELECTOR, OWNERS, Pod, Presence, Unreadable, entries};
use super::slot::{Slot, Target};

/// The label of a node on which LXCFS is well.
pub(super) const READY: &str = "durward.dev/lxcfs-ready";
/// Its value; the label is taken away, not changed, where LXCFS is not well.
const TRUE: &str = "true";
/// The greatest there is (`ValidatePreferredSchedulingTerms`): which node is the nearest matters less than that it can serve.
const WEIGHT: u8 = 100;

/// The part of the affinity that is about nodes.
pub(super) const NODE_AFFINITY: &str = "nodeAffinity";
/// Those of its terms that only weigh.
pub(super) const PREFERRED: &str = "preferredDuringSchedulingIgnoredDuringExecution";

/// One preferred term, as it is written into a pod.
#[derive(Debug, Serialize)]
struct Term {
    weight: u8,
    preference: Preference,
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct Preference {
    match_expressions: [Expression; 1],
}

#[derive(Debug, Serialize)]
struct Expression {
    key: &'static str,
    operator: &'static str,
    values: [&'static str; 1],
}

const TERM: Term = Term {
    weight: WEIGHT,
    preference: Preference { match_expressions: [Expression { key: READY, operator: "In", values: [TRUE] }] },
};

/// What the pod's own selector says of the label, if that is anything else than what would be added: its author sends it where
/// LXCFS is not.
pub(super) fn other_selector(pod: Pod<'_>) -> Result<Option<String>, Unreadable> {
    Ok(selected(pod)?.filter(|value| value != TRUE))
}

/// The value that the pod's own selector has for the label.
fn selected(pod: Pod<'_>) -> Result<Option<String>, Unreadable> {
    const NAME: &str = "spec.nodeSelector";
    let mut found = None;
    entries(pod.field(NODE_SELECTOR), NAME, |key, value| {
        if key != READY {
            return Ok(());
        }
        let value =
            value.text().ok_or_else(|| Unreadable::new(format!("{NAME} {READY}"), "is not a text"))?;
        match found.replace(value.into_owned()) {
            None => Ok(()),
            Some(_) => Err(Unreadable::new(format!("{NAME} {READY}"), "stands twice")),
        }
    })?;
    Ok(found)
}

impl Injection {
    /// Has the pod go where LXCFS is ready, as the configuration wants it.
    pub(super) fn readiness(&mut self, wanted: NodeReadiness, pod: Pod<'_>) -> Result<(), Unreadable> {
        if wanted == NodeReadiness::Ignore || has_its_node(pod)? {
            return Ok(());
        }
        match wanted {
            NodeReadiness::Ignore => Ok(()),
            NodeReadiness::Require => self.select(pod),
            NodeReadiness::Prefer => self.prefer(pod),
        }
    }

    fn select(&mut self, pod: Pod<'_>) -> Result<(), Unreadable> {
        if selected(pod)?.is_some() {
            return Ok(());
        }
        let slot = slot(Target::NodeSelector, pod.field(NODE_SELECTOR), "spec.nodeSelector")?;
        self.whereto = ", on nodes with durward.dev/lxcfs-ready only";
        self.add_entry(slot, READY, &TRUE)
    }

    fn prefer(&mut self, pod: Pod<'_>) -> Result<(), Unreadable> {
        const WHERETO: &str = ", rather on nodes with durward.dev/lxcfs-ready";
        let affinity = pod.field(AFFINITY);
        let whole = slot(Target::Affinity, affinity, "spec.affinity")?;
        if whole.is_missing() {
            self.whereto = WHERETO;
            return self.add_whole(whole, &map(NODE_AFFINITY, map(PREFERRED, [TERM])));
        }
        let of_nodes = member(affinity, NODE_AFFINITY, "spec.affinity")?;
        let whole = slot(Target::NodeAffinity, of_nodes, "spec.affinity.nodeAffinity")?;
        if whole.is_missing() {
            self.whereto = WHERETO;
            return self.add_whole(whole, &map(PREFERRED, [TERM]));
        }
        let terms = member(of_nodes, PREFERRED, "spec.affinity.nodeAffinity")?;
        let slot = slot(Target::Preferred, terms, "the preferred node affinity")?;
        if has_term(terms)? {
            return Ok(());
        }
        self.whereto = WHERETO;
        self.add_all(slot, [TERM].into_iter(), 1)
    }
}

fn map<T: Serialize>(key: &'static str, value: T) -> impl Serialize {
    std::collections::BTreeMap::from([(key, value)])
}

fn slot(target: Target, value: Option<Raw<'_>>, name: &str) -> Result<Slot, Unreadable> {
    let why = if target == Target::Preferred { "is not an array" } else { "is not an object" };
    Slot::read(target, value).ok_or_else(|| Unreadable::new(name, why))
}

/// Whether somebody else than the scheduler says on which node the pod runs.
fn has_its_node(pod: Pod<'_>) -> Result<bool, Unreadable> {
    if pod.text(NODE_NAME).is_some_and(|node| !node.is_empty()) {
        return Ok(true);
    }
    let owners = pod.field(OWNERS);
    let mut found = false;
    let presence = Presence::of(owners, Shape::Array)
        .ok_or_else(|| Unreadable::new("metadata.ownerReferences", "is not an array"))?;
    if presence == Presence::Present
        && let Some(owners) = owners
    {
        owners.scan().array(|scanner, index| {
            found |= is_daemon_set(scanner, index)?;
            Ok::<_, Unreadable>(())
        })?;
    }
    Ok(found)
}

/// Whether the entry at the scanner is the `DaemonSet` that made the pod.
fn is_daemon_set(scanner: &mut Scanner<'_>, index: usize) -> Result<bool, Unreadable> {
    let name = format!("metadata.ownerReferences[{index}]");
    let (mut is_kind, mut is_group, mut controls) = (false, false, false);
    entries(Some(scanner.value()?), &name, |key, value| {
        let text = || value.text().unwrap_or_default();
        match key {
            "kind" => is_kind = text() == "DaemonSet",
            "apiVersion" => is_group = text().starts_with("apps/"),
            "controller" => controls = value.is_true(),
            _ => {}
        }
        Ok(())
    })?;
    Ok(is_kind && is_group && controls)
}

/// Whether one of the preferred terms is about the label and nothing else: ours, or its author's word on the matter.
fn has_term(terms: Option<Raw<'_>>) -> Result<bool, Unreadable> {
    let mut found = false;
    if let Some(terms) = terms.filter(|terms| terms.shape() == Shape::Array) {
        terms.scan().array(|scanner, _| {
            found |= is_about_readiness(scanner.value()?).unwrap_or(false);
            Ok::<_, Unreadable>(())
        })?;
    }
    Ok(found)
}

/// What is of another shape is no term about anything, as the API server says; nor is one in which a key stands twice, as nobody
/// knows which of them counts.
fn is_about_readiness(term: Raw<'_>) -> Result<bool, Unreadable> {
    let preference = member(Some(term), "preference", PREFERRED)?;
    let (mut keys, mut about) = (0, 0);
    for list in ["matchExpressions", "matchFields"] {
        let Some(named) = member(preference, list, "preference")?.filter(|list| list.shape() == Shape::Array)
        else {
            continue;
        };
        named.scan().array(|scanner, _| {
            let key = member(Some(scanner.value()?), "key", list)?;
            let is_ours = list == "matchExpressions" && key.and_then(Raw::text).as_deref() == Some(READY);
            keys += 1;
            about += usize::from(is_ours);
            Ok::<_, Unreadable>(())
        })?;
    }
    Ok(keys == 1 && about == 1)
}

/// The one value that stands under `wanted` in an object, if any does.
fn member<'a>(object: Option<Raw<'a>>, wanted: &str, name: &str) -> Result<Option<Raw<'a>>, Unreadable> {
    let Some(object) = object else { return Ok(None) };
    let mut found = None;
    object.scan().object(|scanner, key| {
        let value = scanner.value()?;
        if key == wanted && found.replace(value).is_some() {
            return Err(Unreadable::new(format!("{name}.{wanted}"), "stands twice"));
        }
        Ok(())
    })?;
    Ok(found)
}
