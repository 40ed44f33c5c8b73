//! The guard's section of the configuration.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::str::FromStr;
use std::time::SystemTime;

use k8s_openapi::jiff::Timestamp;

use super::in_use;
use super::queries::{self, BlockingResource, ResourceQuery};
use super::target::DeletionKind;
use crate::common::{CommonConfig, Defaults, NAMESPACE_NAME, label_keys};
use crate::overrides::Overrides;
use ::config::Section;
use cluster::Resource;
use cluster::fleet::{Fleet, LOCAL};
use cluster::live::Access;

/// The label of protected objects if `scope` is `labeled`.
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
    pub(super) api_groups: ApiGroups,
    /// Whether messages name the first few objects, or only count them.
    pub(super) show_object_names: bool,
    /// Clusters that need not answer, in a fleet without Karmada.
    pub(super) acknowledged: Vec<AcknowledgedCluster>,
    /// The objects that the guard protects.
    pub(super) scope: GuardScope,
    /// The callers that can override a denial.
    pub(super) overrides: Overrides,
    /// The Lists that decide about a namespace, derived from the other fields.
    pub(super) queries: Vec<ResourceQuery>,
    /// The in-use rules.
    pub(super) in_use: in_use::InUseRules,
}

impl Config {
    /// Whether the API server that sends the reviews is a Karmada control plane.
    pub(super) fn is_karmada(&self) -> bool {
        self.fleet == Fleet::Karmada
    }

    /// Returns the table of the kinds whose deletion the guard reviews.
    pub(super) fn kinds(&self) -> impl Iterator<Item = DeletionKind> {
        let by_rules = self.in_use.kinds.iter().cloned().map(DeletionKind::InUse);
        [DeletionKind::Namespace, DeletionKind::Crd].into_iter().chain(by_rules)
    }

    /// Whether the guard protects a namespace or a CRD with these labels.
    pub(super) fn selects(&self, labels: &BTreeMap<String, String>) -> bool {
        self.scope == GuardScope::All || labels.get(GUARD_LABEL).is_some_and(|value| value == GUARD_VALUE)
    }
}

impl Config {
    /// Returns the keys of the labels that decide whether the guard protects an object. The API server keeps the label with the name.
    pub(super) fn label_keys(&self, kind: &DeletionKind) -> BTreeSet<String> {
        let common = &self.common_config;
        let selector = matches!(kind, DeletionKind::Namespace).then_some(&common.namespace_selector);
        let of_namespaces = selector.into_iter().flat_map(label_keys);
        let scope = (self.scope == GuardScope::Labeled).then(|| GUARD_LABEL.to_owned());
        of_namespaces.chain(scope).filter(|key| key != NAMESPACE_NAME).collect()
    }
}

/// The objects that the guard protects.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum GuardScope {
    /// All.
    All,
    /// Those with the label `durward.dev/guard: deletion`.
    Labeled,
}

/// API groups by exact name, or `*`. RBAC has no other patterns.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct ApiGroups(pub(super) Vec<String>);

impl ApiGroups {
    /// All groups.
    pub(super) const ALL: &'static str = "*";

    /// Whether the group is one of these.
    pub(super) fn cover(&self, group: &str) -> bool {
        self.0.iter().any(|named| named == group || named == Self::ALL)
    }
}

/// A cluster that need not answer until a time.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct AcknowledgedCluster {
    /// Its name.
    pub(super) cluster: String,
    /// The end.
    pub(super) until: SystemTime,
    /// The reason.
    pub(super) reason: String,
}

/// Reads the section.
pub(super) fn read(section: &mut Section<'_>, defaults: Defaults, namespace: &str) -> Config {
    let common_config = CommonConfig::read(section, defaults, namespace);
    let (fleet, access, user) = fleet(section, &common_config.namespace);
    let (in_use, more) = namespaces(section);
    let api_groups = section.section("crds", "Deletions of CRDs.", api_groups);
    section.removed("unmanagedResources", "remove it: all objects block a deletion");
    let show_object_names = section.bool(
        "showObjectNames",
        "Name the first few objects in denials, not only their number.",
        true,
    );
    let acknowledged = section.sections(
        "unreachableClusters",
        "Member clusters that don't block deletions while they are unreachable, until a date. On Karmada, annotate the Cluster instead.",
        acknowledged,
    );
    if fleet == Fleet::Karmada && !acknowledged.is_empty() {
        let next = "annotate the Cluster with durward.dev/acknowledge-unreachable and durward.dev/acknowledge-until: durward acknowledge NAME --reason TEXT --for 7d";
        section.problem("unreachableClusters", "is for fleets without Karmada", Some(next.to_owned()));
    }
    let scope = section.choice(
        "scope",
        "Protected objects: all, or only those labeled durward.dev/guard=deletion.",
        &[("all", GuardScope::All), ("labeled", GuardScope::Labeled)],
        GuardScope::All,
    );
    let overrides = Overrides::read(section);
    let in_use_rules = in_use::read(section, fleet == Fleet::Karmada);
    section.removed("clusterTimeout", "remove it: each cluster gets a third of webhook.timeoutSeconds");
    Config {
        scope,
        queries: queries::of_namespace(&in_use, &more),
        common_config,
        fleet,
        access,
        user,
        api_groups,
        show_object_names,
        acknowledged,
        overrides,
        in_use: in_use_rules,
    }
}

const FLEET: &str =
    "The member clusters: none, karmada, or one of {karmada: {…}}, {contexts: [a, b]}, {secrets: {}}.";

/// The default user on a Karmada control plane.
const USER: &str = "durward";

fn fleet(section: &mut Section<'_>, namespace: &str) -> (Fleet, Option<Access>, String) {
    let (fleet, (access, user), is_clear) = section.choice_or_section("fleet", FLEET, &[("none", false), ("karmada", true)], false, |s, is_karmada| {
        let kinds = ["karmada", "contexts", "secrets"].map(|key| s.has(key) || s.is_blank(key));
        let access = s.section("karmada", "The member clusters of a Karmada control plane.", karmada);
        let contexts = s.texts("contexts", "context", "Contexts of the kubeconfig that Durward uses.", &[]);
        s.section(
            "secrets",
            "Secrets in Durward's namespace with the label durward.dev/fleet=member, each with a kubeconfig in the key kubeconfig.",
            |_| (),
        );
        let is_clear = !s.is_written() || kinds.iter().filter(|&&is_set| is_set).count() == 1;
        let fleet = match kinds {
            [true, ..] => Fleet::Karmada,
            [_, true, _] => {
                check_contexts(s, &contexts);
                Fleet::Contexts(contexts)
            }
            [.., true] => Fleet::Secrets { namespace: namespace.to_owned() },
            _ if is_karmada => Fleet::Karmada,
            _ => Fleet::None,
        };
        (fleet, access, is_clear)
    });
    if !is_clear {
        let next = "allowed: none, karmada, {karmada: {…}}, {contexts: [a, b]}, or {secrets: {}}".to_owned();
        section.problem("fleet", "does not name exactly one fleet", Some(next));
    }
    (fleet, (access != Access::default()).then_some(access), user)
}

fn karmada(section: &mut Section<'_>) -> (Access, String) {
    let kubeconfig = section.optional_text(
        "kubeconfig",
        "path",
        "Kubeconfig of the control plane, if it is not the cluster that all guards use.",
    );
    let context = section.optional_text("context", "context", "Context of that kubeconfig.");
    let user = section.text(
        "user",
        "user",
        "Durward's user there: the CN of its client certificate, without groups. `manifests` prints permissions for it.",
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
        let next = "add a context, or set fleet: none".to_owned();
        section.problem("contexts", "is empty", Some(next));
    }
    let duplicate =
        contexts.iter().enumerate().find(|(at, name)| contexts.iter().take(*at).any(|n| n == *name));
    if let Some((_, name)) = duplicate {
        section.problem("contexts", format!("duplicate context {name:?}"), None);
    }
    if contexts.iter().any(String::is_empty) {
        section.problem("contexts", "has an empty name", None);
    }
    if contexts.iter().any(|name| name == LOCAL) {
        let next = "rename the context".to_owned();
        section.problem("contexts", format!("{LOCAL:?} is the name of the calling cluster"), Some(next));
    }
}

fn namespaces(section: &mut Section<'_>) -> (Vec<BlockingResource>, Vec<Resource>) {
    section.section("namespaces", "Deletions of namespaces.", |s| {
        let all = BlockingResource::WORDS.map(|(_, value)| value);
        let in_use = s.choices(
            "blockingResources",
            "Resources that block the deletion of a namespace.",
            &BlockingResource::WORDS,
            &all,
        );
        let extra = s.sections(
            "extraResources",
            "Further resources that block it. Every cluster must serve them.",
            |section| resource(section, None),
        );
        let extra: Vec<Resource> = extra.into_iter().flatten().collect();
        if in_use.is_empty() && extra.is_empty() && s.is_empty_list("blockingResources") {
            let next = "name at least one, or remove the deletion section".to_owned();
            s.problem("blockingResources", "is empty, so no namespace is ever in use", Some(next));
        }
        for (at, one) in extra.iter().enumerate() {
            let is_same = |other: &Resource| other.group == one.group && other.plural == one.plural;
            if let Some(why) = queries::unsuitable(one) {
                s.problem("extraResources", format!("{one} {why}"), Some("remove it".to_owned()));
            }
            if queries::is_built_in(one) || extra.iter().take(at).any(is_same) {
                s.problem("extraResources", format!("duplicate resource {one}"), None);
            }
        }
        (in_use, extra)
    })
}

/// Reads a resource. Without a default, its version is required.
pub(super) fn resource(section: &mut Section<'_>, default: Option<&'static str>) -> Option<Resource> {
    const VERSION: &str = "Version at which Durward reads it, as v1.";
    let group = section.text("group", "API group", "API group; empty for the core group.", "");
    let version = match default {
        None => section.required_text("version", "version", VERSION),
        Some(default) => section.text("version", "version", VERSION, default),
    };
    let plural = section.required_text("resource", "plural name", "Plural name, as in an API path.");
    let needs_version = default != Some("");
    if !section.is_written() || (version.is_empty() && needs_version) || plural.is_empty() {
        return None;
    }
    let resource = Resource { group: group.into(), version: version.into(), plural: plural.into() };
    let version = if resource.version.is_empty() { "v1".into() } else { resource.version.clone() };
    let complete = Resource { version, ..resource.clone() };
    if Resource::from_argument(&complete.argument()).as_ref() == Some(&complete) {
        return Some(resource);
    }
    let next = "write as in a path: {group: example.org, version: v1, resource: widgets}".to_owned();
    section.problem(
        "resource",
        format!("{resource} at {:?} is not a resource", resource.version),
        Some(next),
    );
    None
}

fn api_groups(section: &mut Section<'_>) -> ApiGroups {
    let groups = section.texts(
        "apiGroups",
        "API group",
        "Groups whose custom resources Durward can list, or \"*\". `manifests` prints permissions for them.",
        &[],
    );
    for group in groups.iter().filter(|group| *group != ApiGroups::ALL && !is_group(group)) {
        let next = "allowed: the exact name of a group, as example.org, or \"*\" for all. RBAC has no other patterns";
        section.problem("apiGroups", format!("{group:?} is not an API group of CRDs"), Some(next.to_owned()));
    }
    ApiGroups(groups)
}

/// Whether a text is an API group of CRDs: a DNS name with a dot in it (`apiextensions/validation`).
fn is_group(text: &str) -> bool {
    text.contains('.') && Resource::from_argument(&format!("objects.v1.{text}")).is_some()
}

/// A time in RFC 3339, or a date.
struct Until(Timestamp);

impl FromStr for Until {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        ::config::time::read_end(text).map(Self).ok_or_else(|| "is not a time or a date".to_owned())
    }
}

fn acknowledged(section: &mut Section<'_>) -> AcknowledgedCluster {
    let cluster = section.required_text("cluster", "cluster", "Name of the cluster.");
    section.removed("clusterSelector", "name each cluster: {cluster: NAME, until: …, reason: …}");
    let until: Option<Until> = section.parsed(
        "until",
        "date or RFC 3339 time, as 2026-12-01",
        "End of the acknowledgement, at most 30 days ahead.",
        None,
    );
    let reason =
        section.required_text("reason", "reason", "The reason. Warnings and audit annotations contain it.");
    if section.is_written() {
        if !section.has("until") {
            section.problem("until", "is required", Some("add: until: 2026-12-01".to_owned()));
        }
        if section.has("reason") && reason.trim().is_empty() {
            section.problem("reason", "is empty", Some("add a reason, as: link cut, ticket 81".to_owned()));
        }
    }
    let until = until.map_or(SystemTime::UNIX_EPOCH, |until| until.0.into());
    AcknowledgedCluster { cluster, until, reason }
}

#[cfg(test)]
mod tests;
