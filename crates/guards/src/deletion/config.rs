//! The guard's section of the configuration.

use std::path::PathBuf;
use std::str::FromStr;
use std::time::{Duration, SystemTime};

use k8s_openapi::jiff::Timestamp;

use super::questions::{self, Question};
use crate::common::{CommonConfig, Defaults};
use crate::overrides::BreakGlass;
use ::config::{Section, Selector, requires_label};
use cluster::Resource;
use cluster::fleet::Fleet;
use cluster::live::Access;

/// What the section says.
#[derive(Debug, Clone)]
pub(super) struct Config {
    /// The keys that every guard has.
    pub(super) common_config: CommonConfig,
    /// Where the clusters are, beside the one that asks.
    pub(super) fleet: Fleet,
    /// The control plane that is looked at, if it is not the one that every guard looks at.
    pub(super) access: Option<Access>,
    /// As whom a Karmada control plane is asked.
    pub(super) user: String,
    /// Groups whose custom objects may be read.
    pub(super) groups: Groups,
    /// What becomes of objects that Karmada did not bring.
    pub(super) unmanaged: Unmanaged,
    /// Whether objects of members are named.
    pub(super) names: Names,
    /// Clusters that need not answer.
    pub(super) acknowledged: Vec<Acknowledged>,
    /// Which objects are guarded.
    pub(super) select: Select,
    /// How a deletion is let through in spite of all.
    pub(super) break_glass: BreakGlass,
    /// How long one cluster is waited for.
    pub(super) member_deadline: Duration,
    /// What each cluster is asked about a namespace; follows from the rest.
    pub(super) questions: Vec<Question>,
}

impl Config {
    /// Whether the API server that asks is a Karmada control plane.
    pub(super) fn is_karmada(&self) -> bool {
        self.fleet == Fleet::Karmada
    }
}

/// Words for what can be in use in a namespace.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum InUse {
    /// Pods that have not finished.
    Pods,
    /// Persistent volume claims.
    Claims,
    /// `Deployments`, `StatefulSets`, `DaemonSets`, `CronJobs` and unfinished `Jobs`, whatever their replicas.
    Workloads,
    /// Services of type `LoadBalancer`.
    LoadBalancers,
}

impl InUse {
    const WORDS: [(&'static str, Self); 4] = [
        ("pods", Self::Pods),
        ("persistentvolumeclaims", Self::Claims),
        ("workloads", Self::Workloads),
        ("services.loadbalancer", Self::LoadBalancers),
    ];
}

/// What becomes of objects in members that Karmada did not bring and that nothing of Karmada owns.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Unmanaged {
    /// They are in use like all others.
    Deny,
    /// They would stay, so they do not count.
    Ignore,
}

/// Whether objects are named.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Names {
    /// The first few of them.
    Show,
    /// Only counted.
    Count,
}

/// Which objects are guarded.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Select {
    /// Every one.
    All,
    /// Those with the label `durward.dev/guard: deletion`.
    Labelled,
}

/// The API groups whose custom objects may be read: RBAC knows exact names and `*`, and nothing between.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Groups(pub(super) Vec<String>);

impl Groups {
    /// Every group there is.
    pub(super) const ALL: &'static str = "*";

    /// Whether objects of this group may be read.
    pub(super) fn cover(&self, group: &str) -> bool {
        self.0.iter().any(|named| named == group || named == Self::ALL)
    }
}

/// A cluster of which an operator said that it need not answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Acknowledged {
    /// Which.
    pub(super) whom: Whom,
    /// Until when.
    pub(super) until: SystemTime,
    /// Why.
    pub(super) reason: String,
}

/// Which clusters an acknowledgement is about.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Whom {
    /// The one of this name.
    Named(String),
    /// Those whose Cluster object has these labels.
    Labelled(Selector),
}

/// Reads the section.
pub(super) fn read(section: &mut Section<'_>, defaults: Defaults) -> Config {
    let common_config = CommonConfig::read(section, defaults);
    let (fleet, access, user) = fleet(section, &common_config.install_namespace);
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
    let is_labelled = |entry: &Acknowledged| matches!(entry.whom, Whom::Labelled(_));
    if matches!(fleet, Fleet::Contexts(_)) && acknowledged.iter().any(is_labelled) {
        let next = "name each: {cluster: NAME, until: …, reason: …}".to_owned();
        section.problem("acknowledge", "has a clusterSelector, and contexts have no labels", Some(next));
    }
    let every = if fleet == Fleet::None { Select::Labelled } else { Select::All };
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
    let questions = questions::of_namespace(&in_use, &more, unmanaged);
    Config {
        common_config,
        fleet,
        access,
        user,
        groups,
        unmanaged,
        names,
        acknowledged,
        select: select.unwrap_or(every),
        break_glass,
        member_deadline,
        questions,
    }
}

const FLEET: &str =
    "Where the other clusters are: none, or one of {karmada: {}}, {contexts: [a, b]}, {secrets: {}}.";

/// Whom permissions on Karmada are printed for, where nothing else is said.
const USER: &str = "durward";

fn fleet(section: &mut Section<'_>, install_namespace: &str) -> (Fleet, Option<Access>, String) {
    let (fleet, (access, user), is_clear) = section.choice_or_section("fleet", FLEET, &[("none", ())], (), |s, ()| {
        let present = |s: &Section<'_>, key: &str| s.has(key) || s.is_blank(key);
        let ways = ["karmada", "contexts", "secrets"].map(|key| present(s, key));
        let (access, user) = s.section(
            "karmada",
            "The Clusters of a Karmada control plane, through clusters/NAME/proxy.",
            |k| {
                let access = Access {
                kubeconfig: k
                    .optional_text(
                        "kubeconfig",
                        "path",
                        "Leads to the control plane, where that is not the cluster that every guard looks at.",
                    )
                    .map(PathBuf::from),
                context: k.optional_text("context", "context", "Which context of that kubeconfig."),
                };
                let user = k.text(
                    "user",
                    "user",
                    "As whom Durward asks there, by a client certificate without groups (CN); what `manifests` prints permissions for.",
                    USER,
                );
                if user.is_empty() {
                    k.problem("user", "is empty", Some(format!("write the CN of Durward's client certificate, as {USER}")));
                }
                (access, user)
            },
        );
        let contexts =
            s.texts("contexts", "context", "These contexts of the kubeconfig that Durward uses.", &[]);
        s.section(
            "secrets",
            "The Secrets in the install namespace with the label durward.dev/fleet: member, each with a kubeconfig under the key kubeconfig.",
            |_| (),
        );
        let is_clear = !s.is_written() || ways.iter().filter(|&&way| way).count() == 1;
        let fleet = match ways {
            [true, ..] => Fleet::Karmada,
            [_, true, _] => {
                check_contexts(s, &contexts);
                Fleet::Contexts(contexts)
            }
            [.., true] => Fleet::Secrets { namespace: install_namespace.to_owned() },
            _ => Fleet::None,
        };
        (fleet, ((access != Access::default()).then_some(access), user), is_clear)
    });
    if !is_clear {
        let next = "allowed: none, {karmada: {}}, {contexts: [a, b]}, or {secrets: {}}".to_owned();
        section.problem("fleet", "does not name exactly one way to the clusters", Some(next));
    }
    (fleet, access, user)
}

fn check_contexts(section: &mut Section<'_>, contexts: &[String]) {
    if contexts.is_empty() {
        let next = "name at least one, or set fleet: none".to_owned();
        section.problem("contexts", "names no context", Some(next));
    }
    let twice = contexts.iter().enumerate().find(|(at, name)| contexts.iter().take(*at).any(|n| n == *name));
    if let Some((_, name)) = twice {
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
        for (one, why) in more.iter().filter_map(|one| Some((one, questions::is_no_use(one)?))) {
            s.problem("more", format!("{one} {why}"), Some("leave it out".to_owned()));
        }
        for (at, one) in more.iter().enumerate() {
            let same = |other: &Resource| other.group == one.group && other.plural == one.plural;
            if questions::is_known(one) || more.iter().take(at).any(same) {
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
    for group in &groups {
        if group != Groups::ALL && !is_group(group) {
            let next = "allowed: the exact name of a group, as example.org, or \"*\" for all: RBAC knows no other patterns";
            section.problem("groups", format!("{group:?} is no API group"), Some(next.to_owned()));
        }
    }
    Groups(groups)
}

/// Groups of definitions are DNS names with a dot in them (`apiextensions/validation`).
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

fn acknowledged(section: &mut Section<'_>) -> Acknowledged {
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
            section.problem("until", "is missing", Some("add: until: 2026-12-01T00:00:00Z".to_owned()));
        }
        if section.has("reason") && reason.trim().is_empty() {
            section.problem("reason", "is empty", Some("say why, as: link cut, ticket 81".to_owned()));
        }
        if cluster.is_some() == selector.is_some() || cluster.as_deref() == Some("") {
            let next = "write cluster: NAME, or clusterSelector: {matchLabels: …}".to_owned();
            section.problem(
                "cluster",
                "not exactly one of cluster and clusterSelector says which",
                Some(next),
            );
        }
    }
    if selector.as_ref().is_some_and(|selector| !requires_label(selector)) {
        let next = "add matchLabels, or an expression with In or Exists".to_owned();
        section.problem(
            "clusterSelector",
            "asks for no label, so it is about clusters that nobody labelled too",
            Some(next),
        );
    }
    let whom = match (cluster, selector) {
        (None, Some(selector)) => Whom::Labelled(selector),
        (name, _) => Whom::Named(name.unwrap_or_default()),
    };
    let until = until.map_or(SystemTime::UNIX_EPOCH, |until| until.0.into());
    Acknowledged { whom, until, reason }
}

#[cfg(test)]
mod tests;
