//! The guard's section of the configuration. `config/client.rs` reads how members are reached.

mod client;

use std::collections::BTreeMap;
use std::time::Duration;

use admission::{Operation, Request};

use super::labels;
use crate::common::{CommonConfig, Defaults};
use crate::overrides::BreakGlass;
use ::config::{Section, Selector, SelectorExt as _, names};
use cluster::Resource;

pub(super) use client::ClientConfig;

/// The configuration of the guard.
#[derive(Debug, Clone)]
pub(super) struct Config {
    pub(super) common_config: CommonConfig,
    pub(super) reservation: ReservationStore,
    /// How deletions that lose data are handled.
    pub(super) data_safety: Severity,
    /// How deletions in etcd clusters of one or two members are handled. Each of them interrupts etcd.
    pub(super) small: Severity,
    /// How deletions during a membership change are handled.
    pub(super) membership_change: Severity,
    /// The other objects that are guarded besides pods.
    pub(super) related: Vec<Related>,
    pub(super) break_glass: BreakGlass,
    /// The timeout for one member.
    pub(super) member_deadline: Duration,
    /// How many log entries a healthy member can be behind.
    pub(super) lag: u64,
    pub(super) clusters: Vec<EtcdClusterConfig>,
}

/// The store of reservations.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ReservationStore {
    /// In a Lease in Durward's namespace, for all replicas.
    Lease,
    /// In this process.
    Local,
}

/// Whether a problem is a warning or a denial.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Severity {
    Warn,
    Deny,
}

const SEVERITIES: [(&str, Severity); 2] = [("warn", Severity::Warn), ("deny", Severity::Deny)];

/// A request about another object that is guarded besides pods.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Related {
    /// Scaling a `StatefulSet` below the quorum.
    Scale,
    /// Deleting a `StatefulSet`.
    StatefulSets,
    /// Deleting the PVC of a member.
    Pvcs,
    /// Deleting a PDB over members.
    Pdbs,
}

impl Related {
    const WORDS: [(&'static str, Self); 4] = [
        ("scale", Self::Scale),
        ("statefulsets", Self::StatefulSets),
        ("persistentvolumeclaims", Self::Pvcs),
        ("poddisruptionbudgets", Self::Pdbs),
    ];

    /// Returns API group, plural, operation and subresources of its requests.
    pub(super) fn requests(self) -> (&'static str, &'static str, Operation, &'static [&'static str]) {
        match self {
            Self::Scale => ("apps", "statefulsets", Operation::Update, &["", "scale"]),
            Self::StatefulSets => ("apps", "statefulsets", Operation::Delete, &[""]),
            Self::Pvcs => ("", "persistentvolumeclaims", Operation::Delete, &[""]),
            Self::Pdbs => ("policy", "poddisruptionbudgets", Operation::Delete, &[""]),
        }
    }

    /// Returns the kind of its objects as kubectl writes it.
    pub(super) fn kind(self) -> &'static str {
        self.requests().1.trim_end_matches('s')
    }

    /// Returns what a request is about.
    pub(super) fn of(request: &Request<'_>) -> Option<Self> {
        let resource = (request.resource.group.as_ref(), request.resource.resource.as_ref());
        Self::WORDS.into_iter().map(|(_, related)| related).find(|related| {
            let (group, plural, operation, subresources) = related.requests();
            resource == (group, plural)
                && request.operation == operation
                && subresources.contains(&request.subresource.as_ref())
        })
    }
}

/// One entry of `ensembles`: the etcd clusters in some namespaces.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct EtcdClusterConfig {
    pub(super) namespaces: NamespaceMatch,
    /// The selector of the pods; `None` selects pods with an etcd container.
    pub(super) selector: Option<Selector>,
    pub(super) group_by: GroupBy,
    /// The kind of the pods' owner, if an operator makes them without a `StatefulSet`.
    pub(super) owner: Option<OwnerKind>,
    /// The number of members that each etcd cluster is meant to have.
    pub(super) members: Option<u64>,
    /// The client port of the members.
    pub(super) port: u16,
    pub(super) client: ClientConfig,
    pub(super) membership: Membership,
    pub(super) leader: LeaderPolicy,
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
pub(super) enum Membership {
    /// As its preStop hook says.
    Auto,
    /// It stays in the list.
    Kept,
    /// It is removed from the list.
    Removed,
}

/// How the deletion of a leader is handled.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum LeaderPolicy {
    /// It transfers leadership first.
    Transfer,
    /// Users are denied; for controllers it transfers leadership.
    Refuse,
    /// It can be deleted while it leads.
    Allow,
}

/// Far above the seven members that etcd recommends at most.
const MAX_MEMBERS: u64 = 99;

const LEADER_POLICIES: [(&str, LeaderPolicy); 3] =
    [("transfer", LeaderPolicy::Transfer), ("refuse", LeaderPolicy::Refuse), ("allow", LeaderPolicy::Allow)];

/// Reads the section.
pub(super) fn read(section: &mut Section<'_>, defaults: Defaults, namespace: &str) -> Config {
    let common_config = CommonConfig::read(section, defaults, namespace);
    let reservation = reservation_store(section, &common_config);
    let data_safety = section.choice(
        "dataSafety",
        "Deletions that lose data, as of a member whose data is in an emptyDir: warned of or denied.",
        &SEVERITIES,
        Severity::Warn,
    );
    let small = section.choice(
        "smallEnsembles",
        "Deletions in an ensemble of one or two members, each of which is an outage: warned of or denied.",
        &SEVERITIES,
        Severity::Warn,
    );
    let membership_change = section.choice(
        "membershipChange",
        "Deletions while the ensemble has learners, members that have not started, or a downgrade under way: warned of or denied.",
        &SEVERITIES,
        Severity::Warn,
    );
    let autodetect = section.bool(
        "recognise",
        "Whether an ensemble's selector may be left out: its members are then the pods of its namespaces that run etcd.",
        false,
    );
    let leader = section.choice(
        "leader",
        "What becomes of a leader: it hands over first; or people are refused and controllers have it hand over; or it may go.",
        &LEADER_POLICIES,
        LeaderPolicy::Transfer,
    );
    let related = section.choices(
        "alsoGuard",
        "What is guarded beside pods: StatefulSets that are scaled below the quorum or deleted, claims of members, disruption budgets.",
        &Related::WORDS,
        &[],
    );
    let break_glass = BreakGlass::read(section);
    let member_deadline = member_deadline(section, &common_config);
    let lag = section.number(
        "lag",
        "How many entries of the log a member may be behind its leader and count as healthy.",
        5000,
        (1, 1_000_000),
    );
    let clusters = clusters(section, autodetect, leader, &common_config);
    Config {
        common_config,
        reservation,
        data_safety,
        small,
        membership_change,
        related,
        break_glass,
        member_deadline,
        lag,
        clusters,
    }
}

fn reservation_store(section: &mut Section<'_>, common_config: &CommonConfig) -> ReservationStore {
    let reservation = section.choice(
        "reservation",
        "Where it is noted which members are on their way out: in Leases of Durward's namespace, or in this process alone (one replica only).",
        &[("lease", ReservationStore::Lease), ("local", ReservationStore::Local)],
        ReservationStore::Lease,
    );
    if reservation == ReservationStore::Lease && common_config.namespace.is_empty() {
        let next = "name it in the key namespace of the file, or set reservation: local and run one replica"
            .to_owned();
        section.problem(
            "reservation",
            "is lease, and Durward runs in no namespace to keep one in",
            Some(next),
        );
    }
    reservation
}

fn member_deadline(section: &mut Section<'_>, common_config: &CommonConfig) -> Duration {
    let member_deadline = section.wait(
        "memberDeadline",
        "How long one member is waited for; one that hangs costs no more than this.",
        "1s",
    );
    let given = Duration::from_secs(common_config.timeout_seconds.into());
    if member_deadline * 2 >= given {
        let least = member_deadline.as_secs() * 2 + 1;
        let why = format!(
            "is {member_deadline:?}, and members are asked twice within webhook.timeoutSeconds, {}",
            given.as_secs()
        );
        let longer = (least <= 30).then(|| format!("; or webhook: {{timeoutSeconds: {least}}}"));
        let next = format!("allowed: less than {:?}{}", given / 2, longer.unwrap_or_default());
        section.problem("memberDeadline", why, Some(next));
    }
    member_deadline
}

fn clusters(
    section: &mut Section<'_>,
    autodetect: bool,
    leader: LeaderPolicy,
    common_config: &CommonConfig,
) -> Vec<EtcdClusterConfig> {
    let clusters = section.sections(
        "ensembles",
        "Which pods are members of etcd ensembles; the first entry that chooses a pod counts.",
        |s| cluster(s, autodetect, leader, &common_config.namespace),
    );
    if let Some((first, second)) = duplicate(&clusters) {
        let why = format!(
            "ensembles[{second}] chooses the pods that ensembles[{first}] chooses, and the first one counts"
        );
        section.problem(
            "ensembles",
            why,
            Some("take one of them out, or choose by another label".to_owned()),
        );
    }
    // An empty list is intended, as in the output of `config defaults`.
    if section.is_written() && !section.has("ensembles") {
        let next = "add: ensembles: [{namespace: db, selector: app=etcd}]".to_owned();
        section.problem("ensembles", "names none, so nothing is guarded", Some(next));
    }
    clusters
}

fn cluster(
    section: &mut Section<'_>,
    autodetect: bool,
    leader: LeaderPolicy,
    install: &str,
) -> EtcdClusterConfig {
    let namespaces = namespaces(section, install);
    let selector = labels::read(section, "selector", "Its pods; may be left out where recognise is true.");
    if section.is_written() && !section.has("selector") && !autodetect {
        let next = "add: selector: app=etcd; or set recognise: true".to_owned();
        section.problem("selector", "is missing", Some(next));
    }
    let group_by = section.choice(
        "groupBy",
        "Which of them are one ensemble: those of one StatefulSet (or of one object of the kind in owner), or all that the selector chooses in a namespace.",
        &[("statefulset", GroupBy::StatefulSet), ("selector", GroupBy::Selector)],
        GroupBy::StatefulSet,
    );
    let owner = section.section(
        "owner",
        "The kind whose objects make the pods, where that is an operator's own and no StatefulSet; may be read then, and when such an object goes, its pods go.",
        owner,
    );
    let members = section.optional_number(
        "members",
        "How many members each ensemble is to have, where neither a StatefulSet nor the owner says so. With one or two each deletion is an outage, which is let pass only where that is said.",
        (1, MAX_MEMBERS),
    );
    let (port, client) = section.section("client", "How the members are spoken to.", client::read);
    if client.has_owner_name() && group_by == GroupBy::Selector {
        let next = "take groupBy: selector out, or write the name itself".to_owned();
        section.problem(
            "client",
            "serverName has {name}, and with groupBy: selector an ensemble has no StatefulSet",
            Some(next),
        );
    }
    let membership = section.choice(
        "membership",
        "What becomes of a member whose pod is deleted: it stays in etcd's list, or is removed from it (auto: removed if the preStop hook says etcdctl member remove).",
        &[("auto", Membership::Auto), ("kept", Membership::Kept), ("removed", Membership::Removed)],
        Membership::Auto,
    );
    let own = section.optional_choice(
        "leader",
        "What becomes of its leader; as the guard's own key where absent.",
        &LEADER_POLICIES,
    );
    let leader = own.unwrap_or(leader);
    EtcdClusterConfig { namespaces, selector, group_by, owner, members, port, client, membership, leader }
}

fn namespaces(section: &mut Section<'_>, install: &str) -> NamespaceMatch {
    let name = section.optional_name("namespace", names::NAMESPACE, "Its namespace.", names::namespace);
    let selector = labels::read(
        section,
        "namespaceSelector",
        "Or those with these labels: an ensemble, or several, in each.",
    );
    if section.is_written() && section.has("namespace") == section.has("namespaceSelector") {
        let next = "write namespace: NAME, or namespaceSelector: LABEL=VALUE".to_owned();
        let why = "not exactly one of namespace and namespaceSelector says where";
        section.problem("namespace", why, Some(next));
    }
    if !install.is_empty() && name.as_deref() == Some(install) {
        let next = "Durward leaves its own namespace alone; name another in the key namespace of the file, or move the ensemble";
        section.problem("namespace", "is Durward's own", Some(next.to_owned()));
    }
    selector.map_or_else(|| NamespaceMatch::Named(name.unwrap_or_default()), NamespaceMatch::Labeled)
}

/// Reads the kind of the pods' owner.
fn owner(section: &mut Section<'_>) -> Option<OwnerKind> {
    const VERSION: &str = "group and version, as etcd.example.org/v1";
    let version = section.required_name("apiVersion", VERSION, "Its group and version.", |text| {
        match text.split_once('/') {
            Some((group, version)) if !group.is_empty() && !version.is_empty() && !version.contains('/') => {
                Ok(())
            }
            _ => Err("is no group with a version"),
        }
    });
    let kind = section.required_name("kind", "kind, as EtcdCluster", "Its kind.", |text| {
        let is_kind = text.starts_with(|c: char| c.is_ascii_uppercase())
            && text.bytes().all(|byte| byte.is_ascii_alphanumeric());
        if is_kind { Ok(()) } else { Err("is no kind") }
    });
    let plural = section.optional_name(
        "plural",
        "plural, as etcdclusters",
        "Its plural as kubectl api-resources has it; the kind in lower case with an s where absent.",
        |text| {
            let is_plural = !text.is_empty()
                && text
                    .bytes()
                    .all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-');
            if is_plural { Ok(()) } else { Err("is no plural") }
        },
    );
    let (group, version) = version.split_once('/')?;
    let plural = plural.unwrap_or_else(|| format!("{}s", kind.to_lowercase()));
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
