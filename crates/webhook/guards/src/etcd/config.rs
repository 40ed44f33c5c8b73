//! The guard's section of the configuration. `config/client.rs` reads how members are reached.

mod client;

use std::collections::BTreeMap;
use std::time::Duration;

use crate::common::{CommonConfig, Defaults};
use crate::overrides::Overrides;
use ::config::{Section, Selector, SelectorExt as _, names};
use cluster::Resource;

pub(super) use client::ClientConfig;

/// The configuration of the guard.
#[derive(Debug, Clone)]
pub(super) struct Config {
    pub(super) common_config: CommonConfig,
    pub(super) clusters: Vec<EtcdClusterConfig>,
    /// Whether `StatefulSets` and PVCs of etcd clusters are protected too.
    pub(super) protect_stateful_sets: bool,
    /// Kinds that can own `StatefulSets` and PVCs, besides the owners of pods.
    trusted_owners: Vec<String>,
    /// The timeout for one member.
    pub(super) member_timeout: Duration,
    pub(super) overrides: Overrides,
}

impl Config {
    /// Returns the kinds that can own `StatefulSets` and PVCs.
    pub(super) fn owner_kinds(&self) -> impl Iterator<Item = &str> {
        let of_entries = self.clusters.iter().filter_map(|entry| entry.owner.as_ref());
        of_entries.map(|owner| owner.kind.as_str()).chain(self.trusted_owners.iter().map(String::as_str))
    }
}

/// One entry of `clusters`: the etcd clusters in some namespaces.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct EtcdClusterConfig {
    pub(super) namespaces: NamespaceMatch,
    /// The selector of the pods.
    pub(super) selector: Selector,
    pub(super) group_by: GroupBy,
    /// The kind of the pods' owner, if an operator makes them without a `StatefulSet`.
    pub(super) owner: Option<OwnerKind>,
    pub(super) expected_members: Option<u64>,
    /// The client port of the members.
    pub(super) port: u16,
    pub(super) client: ClientConfig,
    pub(super) member_on_pod_delete: OnPodDelete,
    pub(super) on_leader_delete: LeaderPolicy,
}

/// An operator's kind whose objects own the pods.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct OwnerKind {
    pub(super) kind: String,
    pub(super) resource: Resource,
}

/// The namespaces of an entry.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum NamespaceMatch {
    Named(String),
    Labeled(Selector),
}

impl NamespaceMatch {
    /// Whether it selects a namespace, or does so with the right labels.
    pub(super) fn may_match(&self, name: &str) -> bool {
        matches!(self, Self::Labeled(_)) || matches!(self, Self::Named(own) if own == name)
    }

    /// Whether it selects a namespace with these labels.
    pub(super) fn matches(&self, name: &str, labels: &BTreeMap<String, String>) -> bool {
        match self {
            Self::Named(own) => own == name,
            Self::Labeled(selector) => selector.matches(labels),
        }
    }
}

/// Which selected pods form one etcd cluster.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum GroupBy {
    /// The pods of one `StatefulSet` or object of the configured kind; all pods without an owner together.
    StatefulSet,
    /// All selected pods of a namespace.
    Selector,
}

/// The effect of deleting a pod on its member.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum OnPodDelete {
    /// It stays in the list.
    Keep,
    /// It is removed from the list.
    Remove,
}

/// How the deletion of a leader is handled.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum LeaderPolicy {
    /// It transfers leadership first.
    Transfer,
    /// Users are denied; for controllers it transfers leadership.
    Deny,
    /// It can be deleted while it leads.
    Allow,
}

/// Far above the seven members that etcd recommends at most.
const MAX_MEMBERS: u64 = 99;

/// Members are asked twice, three times for a leader, and each read of Kubernetes takes time too. One member has this part of the
/// webhook's timeout.
const MEMBER_SHARE: u32 = 10;

const LEADER_POLICIES: [(&str, LeaderPolicy); 3] =
    [("transfer", LeaderPolicy::Transfer), ("deny", LeaderPolicy::Deny), ("allow", LeaderPolicy::Allow)];

/// Reads the section.
pub(super) fn read(section: &mut Section<'_>, defaults: Defaults, namespace: &str) -> Config {
    let common_config = CommonConfig::read(section, defaults, namespace);
    let on_leader_delete = section.choice(
        "onLeaderDelete",
        "Deletion of the leader: transfer leadership first, or deny it for users (controllers transfer), or allow it.",
        &LEADER_POLICIES,
        LeaderPolicy::Transfer,
    );
    section.removed(
        "alsoProtect",
        "use protectStatefulSets: true, which protects StatefulSets and PVCs; PDBs are no longer protected",
    );
    let protect_stateful_sets = section.bool(
        "protectStatefulSets",
        "Deny deleting a StatefulSet of an etcd cluster that has replicas, reducing its replicas, and deleting its PVCs.",
        false,
    );
    let trusted_owners = section.texts(
        "trustedOwners",
        "kind",
        "Kinds that can own StatefulSets and PVCs of etcd clusters, besides the kinds in clusters[].owner.",
        &[],
    );
    section.removed(
        "warnings",
        "remove it: Durward warns, and denies only the deletion of the last copy of the data",
    );
    section.removed("maxRaftLag", "remove it: a healthy member is at most 5000 entries behind");
    section.removed("requestTimeout", "remove it: each member has a tenth of webhook.timeoutSeconds");
    section.removed("coordination", "remove it: reservations are Leases in Durward's namespace");
    section.removed("autodetect", "write a selector in each entry of clusters");
    if section.is_written() && common_config.namespace.is_empty() {
        let next = "set namespace to the namespace of Durward".to_owned();
        section.problem("clusters", "needs namespace, because reservations are Leases there", Some(next));
    }
    let clusters = clusters(section, on_leader_delete, &common_config);
    Config {
        member_timeout: Duration::from_secs(common_config.timeout_seconds.into()) / MEMBER_SHARE,
        overrides: Overrides::read(section),
        common_config,
        protect_stateful_sets,
        trusted_owners,
        clusters,
    }
}

fn clusters(
    section: &mut Section<'_>,
    on_leader_delete: LeaderPolicy,
    common_config: &CommonConfig,
) -> Vec<EtcdClusterConfig> {
    const KEY: &str = "clusters";
    let doc = "etcd clusters by the pods of their members. The first entry that selects a pod applies.";
    let clusters = section.sections(KEY, doc, |s| cluster(s, on_leader_delete, &common_config.namespace));
    if let Some((first, second)) = duplicate(&clusters) {
        let why = format!("clusters[{second}] selects the same pods as clusters[{first}], which applies");
        section.problem(KEY, why, Some("remove one of them, or select by another label".to_owned()));
    }
    // An empty list is intended, as in the output of `config defaults`.
    if section.is_written() && !section.has(KEY) {
        let next = "add: clusters: [{namespace: db, selector: app=etcd}]".to_owned();
        section.problem(KEY, "is missing, so the guard protects nothing", Some(next));
    }
    clusters
}

fn cluster(section: &mut Section<'_>, on_leader_delete: LeaderPolicy, install: &str) -> EtcdClusterConfig {
    let namespaces = namespaces(section, install);
    let selector = section.label_requirement("selector", "Selects the pods.").unwrap_or_default();
    if section.is_written() && !section.has("selector") {
        section.problem("selector", "is required", Some("add: selector: app=etcd".to_owned()));
    }
    let group_by = section.choice(
        "groupBy",
        "Which of these pods form one cluster: those of one StatefulSet (or owner), or all in a namespace.",
        &[("statefulset", GroupBy::StatefulSet), ("selector", GroupBy::Selector)],
        GroupBy::StatefulSet,
    );
    let owner = section.section(
        "owner",
        "Kind of the objects that own the pods, if an operator creates pods without a StatefulSet.",
        owner,
    );
    let expected_members = section.optional_number(
        "expectedMembers",
        "Number of members, if neither a StatefulSet nor the owner declares it. Required for clusters of one or two members.",
        (1, MAX_MEMBERS),
    );
    let (port, client) = section.section("client", "Connection to the members.", client::read);
    if client.has_owner_name() && group_by == GroupBy::Selector {
        let next = "remove groupBy: selector, or write the name in full".to_owned();
        section.problem(
            "client",
            "serverName contains {name}, which groupBy: selector does not define",
            Some(next),
        );
    }
    let member_on_pod_delete = section.choice(
        "memberOnPodDelete",
        "Whether the operator removes the member of a deleted pod from etcd's list. Use remove only if the operator's documentation says so.",
        &[("keep", OnPodDelete::Keep), ("remove", OnPodDelete::Remove)],
        OnPodDelete::Keep,
    );
    let own =
        section.optional_choice("onLeaderDelete", "Overrides onLeaderDelete of the guard.", &LEADER_POLICIES);
    EtcdClusterConfig {
        namespaces,
        selector,
        group_by,
        owner,
        expected_members,
        port,
        client,
        member_on_pod_delete,
        on_leader_delete: own.unwrap_or(on_leader_delete),
    }
}

fn namespaces(section: &mut Section<'_>, install: &str) -> NamespaceMatch {
    let name =
        section.optional_name("namespace", names::NAMESPACE, "Namespace of the pods.", names::namespace);
    let selector = section
        .label_requirement("namespaceSelector", "Selects namespaces instead, each with its own clusters.");
    if section.is_written() && section.has("namespace") == section.has("namespaceSelector") {
        let next = "write namespace: NAME, or namespaceSelector: LABEL=VALUE".to_owned();
        section.problem("namespace", "needs exactly one of namespace and namespaceSelector", Some(next));
    }
    if !install.is_empty() && name.as_deref() == Some(install) {
        let next = "Durward does not guard its own namespace; move the etcd cluster or Durward";
        section.problem("namespace", "is the namespace of Durward", Some(next.to_owned()));
    }
    selector.map_or_else(|| NamespaceMatch::Named(name.unwrap_or_default()), NamespaceMatch::Labeled)
}

/// Reads the kind of the pods' owner.
fn owner(section: &mut Section<'_>) -> Option<OwnerKind> {
    let version = section.required_name(
        "apiVersion",
        "group and version, for example etcd.example.org/v1",
        "API group and version.",
        |text| match text.split_once('/') {
            Some((group, version)) if !group.is_empty() && !version.is_empty() && !version.contains('/') => {
                Ok(())
            }
            _ => Err("is not a group and version"),
        },
    );
    let kind = section.required_name("kind", "kind, for example EtcdCluster", "Kind.", |text| {
        let is_kind = text.starts_with(|c: char| c.is_ascii_uppercase())
            && text.bytes().all(|byte| byte.is_ascii_alphanumeric());
        if is_kind { Ok(()) } else { Err("is not a kind") }
    });
    let resource = section.optional_name(
        "resource",
        "plural name, for example etcdclusters",
        "Plural name, as in kubectl api-resources. Default: the kind in lower case with an s.",
        |text| {
            let is_char = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-';
            if !text.is_empty() && text.bytes().all(is_char) { Ok(()) } else { Err("is not a plural name") }
        },
    );
    let (group, version) = version.split_once('/')?;
    let plural = resource.unwrap_or_else(|| format!("{}s", kind.to_lowercase()));
    let resource = Resource {
        group: group.to_owned().into(),
        version: version.to_owned().into(),
        plural: plural.into(),
    };
    (!kind.is_empty()).then_some(OwnerKind { kind, resource })
}

/// Returns two entries with the same namespaces and selector. The second one never applies.
fn duplicate(clusters: &[EtcdClusterConfig]) -> Option<(usize, usize)> {
    // A missing namespace is already a problem; two of them are equal by accident.
    let is_valid = |one: &EtcdClusterConfig| one.namespaces != NamespaceMatch::Named(String::new());
    let is_same = |one: &EtcdClusterConfig, other: &EtcdClusterConfig| {
        is_valid(one) && one.namespaces == other.namespaces && one.selector == other.selector
    };
    clusters.iter().enumerate().find_map(|(at, one)| {
        let first = clusters.iter().take(at).position(|earlier| is_same(earlier, one))?;
        Some((first, at))
    })
}

#[cfg(test)]
mod tests;
