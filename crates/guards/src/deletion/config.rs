//! The guard's section of the configuration.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::str::FromStr;
use std::time::{Duration, SystemTime};

use k8s_openapi::jiff::Timestamp;

use super::queries::{self, InUse, ResourceQuery, Unmanaged};
use crate::common::{CommonConfig, Defaults};
use crate::overrides::BreakGlass;
use ::config::{Section, Selector, requires_label};
use cluster::Resource;
use cluster::fleet::Fleet;
use cluster::live::Access;

/// The label that asks for the guard if `select` is `labelled`.
pub(super) const GUARD_LABEL: &str = "durward.dev/guard";
/// The value of [`GUARD_LABEL`].
pub(super) const GUARD_VALUE: &str = "deletion";

/// The configuration of the guard.
#[derive(Debug, Clone)]
pub(super) struct Config {
    /// The keys that every guard has.
    pub(super) common_config: CommonConfig,
    /// The member clusters.
    pub(super) fleet: Fleet,
    /// The control plane to read, if it is not the cluster that every guard reads.
    pub(super) access: Option<Access>,
    /// The user that Durward is on a Karmada control plane.
    pub(super) user: String,
    /// The API groups whose custom objects Durward can read.
    pub(super) groups: Groups,
    /// How objects that Karmada did not bring count.
    pub(super) unmanaged: Unmanaged,
    /// Whether messages name objects.
    pub(super) names: Names,
    /// Clusters that need not answer.
    pub(super) acknowledged: Vec<AcknowledgedClusters>,
    /// The objects that the guard protects.
    pub(super) select: Select,
    /// The callers that can override a denial.
    pub(super) break_glass: BreakGlass,
    /// The time for reading one cluster.
    pub(super) member_deadline: Duration,
    /// The Lists that decide about a namespace, derived from the other fields.
    pub(super) queries: Vec<ResourceQuery>,
}

impl Config {
    /// Whether the API server that sends the reviews is a Karmada control plane.
    pub(super) fn is_karmada(&self) -> bool {
        self.fleet == Fleet::Karmada
    }

    /// Whether the guard protects an object with these labels.
    pub(super) fn selects(&self, labels: &BTreeMap<String, String>) -> bool {
        self.select == Select::All || labels.get(GUARD_LABEL).is_some_and(|value| value == GUARD_VALUE)
    }
}

/// Whether messages name objects.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Names {
    /// The first few.
    Show,
    /// Only their number.
    Count,
}

/// The objects that the guard protects.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Select {
    /// All.
    All,
    /// Those with the label `durward.dev/guard: deletion`.
    Labelled,
}

/// API groups by exact name, or `*`. RBAC has no other patterns.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Groups(pub(super) Vec<String>);

impl Groups {
    /// All groups.
    pub(super) const ALL: &'static str = "*";

    /// Whether the group is one of these.
    pub(super) fn cover(&self, group: &str) -> bool {
        self.0.iter().any(|named| named == group || named == Self::ALL)
    }
}

/// Clusters that need not answer until a time.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct AcknowledgedClusters {
    /// The clusters.
    pub(super) clusters: ClusterMatch,
    /// The end.
    pub(super) until: SystemTime,
    /// The reason.
    pub(super) reason: String,
}

/// The clusters of an acknowledgement.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum ClusterMatch {
    /// One by name.
    Name(String),
    /// Those whose Cluster has matching labels.
    Selector(Selector),
}

/// Reads the section.
pub(super) fn read(section: &mut Section<'_>, defaults: Defaults, namespace: &str) -> Config {
    let common_config = CommonConfig::read(section, defaults, namespace);
    let (fleet, access, user) = fleet(section, &common_config.namespace);
    let (in_use, more) = namespaces(section);
    let groups = section.section("crds", "Deletions of CustomResourceDefinitions.", groups);
    let unmanaged = section.choice(
        "unmanaged",
        "Objects in members that Karmada did not bring: in use like all others, or ignored where they would stay.",
        &[("deny", Unmanaged::Deny), ("ignore", Unmanaged::Ignore)],
        Unmanaged::Deny,
    );
    if unmanaged == Unmanaged::Ignore && fleet != Fleet::Karmada {
        let next = "only Karmada marks what it brought; leave it out, or set fleet: {karmada: {}}".to_owned();
        section.problem("unmanaged", "is ignore, and the fleet is not Karmada's", Some(next));
    }
    let names = section.choice(
        "names",
        "Whether denials name the first few objects, or only count them.",
        &[("show", Names::Show), ("count", Names::Count)],
        Names::Show,
    );
    let acknowledged =
        section.sections("acknowledge", "Clusters that need not answer, until a day.", acknowledged);
    let has_selector = |entry: &AcknowledgedClusters| matches!(entry.clusters, ClusterMatch::Selector(_));
    if matches!(fleet, Fleet::Contexts(_)) && acknowledged.iter().any(has_selector) {
        let next = "name each: {cluster: NAME, until: …, reason: …}".to_owned();
        section.problem("acknowledge", "has a clusterSelector, and contexts have no labels", Some(next));
    }
    let select = section.optional_choice(
        "select",
        "Which objects are guarded: all (default where there is a fleet), or those with the label durward.dev/guard: deletion (default without).",
        &[("all", Select::All), ("labelled", Select::Labelled)],
    );
    let break_glass = BreakGlass::read(section);
    let member_deadline = section.wait(
        "memberDeadline",
        "How long one cluster is waited for, within what the API server gives.",
        "3s",
    );
    Config {
        select: select.unwrap_or(if fleet == Fleet::None { Select::Labelled } else { Select::All }),
        queries: queries::of_namespace(&in_use, &more, unmanaged),
        common_config,
        fleet,
        access,
        user,
        groups,
        unmanaged,
        names,
        acknowledged,
        break_glass,
        member_deadline,
    }
}

const FLEET: &str =
    "Where the other clusters are: none, or one of {karmada: {}}, {contexts: [a, b]}, {secrets: {}}.";

/// The default user on a Karmada control plane.
const USER: &str = "durward";

fn fleet(section: &mut Section<'_>, install_namespace: &str) -> (Fleet, Option<Access>, String) {
    let (fleet, (access, user), is_clear) = section.choice_or_section("fleet", FLEET, &[("none", ())], (), |s, ()| {
        let kinds = ["karmada", "contexts", "secrets"].map(|key| s.has(key) || s.is_blank(key));
        let access =
            s.section("karmada", "The Clusters of a Karmada control plane, through clusters/NAME/proxy.", karmada);
        let contexts =
            s.texts("contexts", "context", "These contexts of the kubeconfig that Durward uses.", &[]);
        s.section(
            "secrets",
            "The Secrets in the install namespace with the label durward.dev/fleet: member, each with a kubeconfig under the key kubeconfig.",
            |_| (),
        );
        let is_clear = !s.is_written() || kinds.iter().filter(|&&is_set| is_set).count() == 1;
        let fleet = match kinds {
            [true, ..] => Fleet::Karmada,
            [_, true, _] => {
                check_contexts(s, &contexts);
                Fleet::Contexts(contexts)
            }
            [.., true] => Fleet::Secrets { namespace: install_namespace.to_owned() },
            _ => Fleet::None,
        };
        (fleet, access, is_clear)
    });
    if !is_clear {
        let next = "allowed: none, {karmada: {}}, {contexts: [a, b]}, or {secrets: {}}".to_owned();
        section.problem("fleet", "does not name exactly one way to the clusters", Some(next));
    }
    (fleet, (access != Access::default()).then_some(access), user)
}

fn karmada(section: &mut Section<'_>) -> (Access, String) {
    let kubeconfig = section.optional_text(
        "kubeconfig",
        "path",
        "Leads to the control plane, where that is not the cluster that every guard looks at.",
    );
    let context = section.optional_text("context", "context", "Which context of that kubeconfig.");
    let user = section.text(
        "user",
        "user",
        "As whom Durward asks there, by a client certificate without groups (CN); what `manifests` prints permissions for.",
        USER,
    );
    if user.is_empty() {
        let next = format!("write the CN of Durward's client certificate, as {USER}");
        section.problem("user", "is empty", Some(next));
    }
    (Access { kubeconfig: kubeconfig.map(PathBuf::from), context }, user)
}

fn check_contexts(section: &mut Section<'_>, contexts: &[String]) {
    if contexts.is_empty() {
        let next = "name at least one, or set fleet: none".to_owned();
        section.problem("contexts", "names no context", Some(next));
    }
    let duplicate =
        contexts.iter().enumerate().find(|(at, name)| contexts.iter().take(*at).any(|n| n == *name));
    if let Some((_, name)) = duplicate {
        section.problem("contexts", format!("{name:?} stands there twice"), None);
    }
    if contexts.iter().any(String::is_empty) {
        section.problem("contexts", "has an empty name", None);
    }
}

fn namespaces(section: &mut Section<'_>) -> (Vec<InUse>, Vec<Resource>) {
    section.section("namespaces", "Deletions of namespaces.", |s| {
        let all = InUse::WORDS.map(|(_, value)| value);
        let in_use = s.choices("inUse", "What keeps a namespace from being deleted.", &InUse::WORDS, &all);
        let more =
            s.sections("more", "Further resources that keep it; every cluster must serve them.", resource);
        let more: Vec<Resource> = more.into_iter().flatten().collect();
        if in_use.is_empty() && more.is_empty() && s.is_empty_list("inUse") {
            let next = "name at least one, or leave the deletion section out".to_owned();
            s.problem("inUse", "names nothing, so no namespace is ever in use", Some(next));
        }
        for (at, one) in more.iter().enumerate() {
            let is_same = |other: &Resource| other.group == one.group && other.plural == one.plural;
            if let Some(why) = queries::unsuitable(one) {
                s.problem("more", format!("{one} {why}"), Some("leave it out".to_owned()));
            }
            if queries::is_built_in(one) || more.iter().take(at).any(is_same) {
                s.problem("more", format!("{one} is counted already"), None);
            }
        }
        (in_use, more)
    })
}

fn resource(section: &mut Section<'_>) -> Option<Resource> {
    let group = section.text("group", "API group", "Its group; empty for the core group.", "");
    let version = section.required_text("version", "version", "The version at which it is read, as v1.");
    let plural = section.required_text("resource", "plural name", "Its plural name, as in a path.");
    if !section.is_written() || version.is_empty() || plural.is_empty() {
        return None;
    }
    let resource = Resource { group: group.into(), version: version.into(), plural: plural.into() };
    if Resource::from_stem(&resource.stem()).as_ref() == Some(&resource) {
        return Some(resource);
    }
    let next = "write as in a path: {group: example.org, version: v1, resource: widgets}".to_owned();
    section.problem("resource", format!("{resource} at {:?} is no resource", resource.version), Some(next));
    None
}

fn groups(section: &mut Section<'_>) -> Groups {
    let groups = section.texts(
        "groups",
        "API group",
        "Groups whose custom objects Durward may read: exact names, or \"*\". It is what RBAC is printed for.",
        &[],
    );
    for group in groups.iter().filter(|group| *group != Groups::ALL && !is_group(group)) {
        let next = "allowed: the exact name of a group, as example.org, or \"*\" for all: RBAC knows no other patterns";
        section.problem("groups", format!("{group:?} is no API group"), Some(next.to_owned()));
    }
    Groups(groups)
}

/// Whether a text is an API group of CRDs: a DNS name with a dot in it (`apiextensions/validation`).
fn is_group(text: &str) -> bool {
    text.contains('.') && Resource::from_stem(&format!("{text}_v1_objects")).is_some()
}

/// A time in RFC 3339.
struct Until(Timestamp);

impl FromStr for Until {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        ::config::time::read(text).map(Self).ok_or_else(|| "is no time in RFC 3339".to_owned())
    }
}

fn acknowledged(section: &mut Section<'_>) -> AcknowledgedClusters {
    let cluster = section.optional_text("cluster", "cluster", "The cluster, by name.");
    let selector = section.selector("clusterSelector", "Or those whose Cluster object has these labels.");
    let until: Option<Until> = section.parsed(
        "until",
        "RFC 3339 time, as 2026-12-01T00:00:00Z",
        "Until when; more than 30 days ahead does not count yet.",
        None,
    );
    let reason =
        section.required_text("reason", "reason", "Why; it is told whenever the acknowledgement is used.");
    if section.is_written() {
        if !section.has("until") {
            section.problem("until", "is required", Some("add: until: 2026-12-01T00:00:00Z".to_owned()));
        }
        if section.has("reason") && reason.trim().is_empty() {
            section.problem("reason", "is empty", Some("say why, as: link cut, ticket 81".to_owned()));
        }
        if cluster.is_some() == selector.is_some() || cluster.as_deref() == Some("") {
            let next = "write cluster: NAME, or clusterSelector: {matchLabels: …}".to_owned();
            let what = "not exactly one of cluster and clusterSelector says which";
            section.problem("cluster", what, Some(next));
        }
    }
    if selector.as_ref().is_some_and(|selector| !requires_label(selector)) {
        let next = "add matchLabels, or an expression with In or Exists".to_owned();
        let what = "asks for no label, so it is about clusters that nobody labelled too";
        section.problem("clusterSelector", what, Some(next));
    }
    let clusters = match (cluster, selector) {
        (None, Some(selector)) => ClusterMatch::Selector(selector),
        (name, _) => ClusterMatch::Name(name.unwrap_or_default()),
    };
    let until = until.map_or(SystemTime::UNIX_EPOCH, |until| until.0.into());
    AcknowledgedClusters { clusters, until, reason }
}

#[cfg(test)]
mod tests;
