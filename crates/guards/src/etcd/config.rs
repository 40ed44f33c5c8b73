//! The guard's section of the configuration. How members are spoken to is read in `config/client.rs`.

mod client;

use std::time::Duration;

use super::labels;
use crate::common::{CommonConfig, Defaults};
use crate::overrides::BreakGlass;
use ::config::{Section, Selector, names};
use cluster::Resource;

pub(super) use client::ClientConfig;

/// What the section says.
#[derive(Debug, Clone)]
pub(super) struct Config {
    /// The keys that every guard has.
    pub(super) common_config: CommonConfig,
    /// Where it is noted who is on the way out.
    pub(super) reservation: Book,
    /// What becomes of a deletion that loses data.
    pub(super) data_safety: Weight,
    /// What becomes of deletions in ensembles of one or two members, each of which is an outage.
    pub(super) small: Weight,
    /// What becomes of deletions while members are being added.
    pub(super) membership_change: Weight,
    /// What else is guarded beside pods.
    pub(super) also: Vec<Also>,
    /// How a deletion is let through in spite of all.
    pub(super) break_glass: BreakGlass,
    /// How long one member is waited for.
    pub(super) member_deadline: Duration,
    /// How many entries a member may be behind and count as healthy.
    pub(super) lag: u64,
    /// Which pods are members of what.
    pub(super) ensembles: Vec<Ensemble>,
}

/// Where it is noted who is on the way out.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Book {
    /// In a Lease of Durward's namespace: every replica sees it.
    Lease,
    /// In this process only.
    Local,
}

/// Whether something is only told or refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Weight {
    /// A warning.
    Warn,
    /// A denial.
    Deny,
}

const WEIGHTS: [(&str, Weight); 2] = [("warn", Weight::Warn), ("deny", Weight::Deny)];

/// What is guarded beside pods.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Also {
    /// `StatefulSets` that are scaled below the quorum.
    Scale,
    /// Deletions of `StatefulSets`.
    StatefulSets,
    /// Deletions of claims that a member uses.
    Claims,
    /// Deletions of `PodDisruptionBudgets` over members.
    Budgets,
}

impl Also {
    const WORDS: [(&'static str, Self); 4] = [
        ("scale", Self::Scale),
        ("statefulsets", Self::StatefulSets),
        ("persistentvolumeclaims", Self::Claims),
        ("poddisruptionbudgets", Self::Budgets),
    ];
}

/// Pods that are members.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Ensemble {
    /// In which namespaces.
    pub(super) within: Within,
    /// Which pods there; those with a container that runs etcd where none.
    pub(super) selector: Option<Selector>,
    /// Which of them are one ensemble.
    pub(super) group_by: GroupBy,
    /// What they belong to where that is no `StatefulSet`: an operator's own kind.
    pub(super) owner: Option<OwnerKind>,
    /// How many members each is to have, where that is said here.
    pub(super) members: Option<u64>,
    /// How they are spoken to.
    pub(super) port: u16,
    /// The same; Secrets without a namespace are in the pods' own.
    pub(super) client: ClientConfig,
    /// What becomes of a member whose pod is deleted.
    pub(super) membership: Membership,
    /// What becomes of a leader.
    pub(super) leader: Leader,
}

/// A kind whose objects make members' pods by themselves.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct OwnerKind {
    pub(super) kind: String,
    /// Where it is looked for.
    pub(super) resource: Resource,
}

/// In which namespaces.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Within {
    /// In this one.
    Named(String),
    /// In those with these labels.
    Labelled(Selector),
}

/// Which pods are one ensemble.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum GroupBy {
    /// Those of one `StatefulSet`, or of one object of the kind that the entry names; those without any of them together.
    StatefulSet,
    /// All that are chosen in one namespace.
    Selector,
}

/// What becomes of a member whose pod is deleted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Membership {
    /// As its preStop hook says.
    Auto,
    /// It stays in the list: a quorum is one of all.
    Kept,
    /// It leaves the list: a quorum is one of the others.
    Removed,
}

/// What becomes of a leader.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Leader {
    /// It hands over first.
    Transfer,
    /// People are refused, controllers as with transfer.
    Refuse,
    /// It may go.
    Allow,
}

/// Far more than etcd is run with (seven), so that only what is no number of members is refused.
const MOST_MEMBERS: u64 = 99;

const LEADERS: [(&str, Leader); 3] =
    [("transfer", Leader::Transfer), ("refuse", Leader::Refuse), ("allow", Leader::Allow)];

/// Reads the section.
pub(super) fn read(section: &mut Section<'_>, defaults: Defaults) -> Config {
    let common_config = CommonConfig::read(section, defaults);
    let reservation = book(section, &common_config);
    let data_safety = section.choice(
        "dataSafety",
        "Deletions that lose data, as of a member whose data is in an emptyDir: warned of or denied.",
        &WEIGHTS,
        Weight::Warn,
    );
    let small = section.choice(
        "smallEnsembles",
        "Deletions in an ensemble of one or two members, each of which is an outage: warned of or denied.",
        &WEIGHTS,
        Weight::Warn,
    );
    let membership_change = section.choice(
        "membershipChange",
        "Deletions while the ensemble has learners, members that have not started, or a downgrade under way: warned of or denied.",
        &WEIGHTS,
        Weight::Warn,
    );
    let recognise = section.bool(
        "recognise",
        "Whether an ensemble's selector may be left out: its members are then the pods of its namespaces that run etcd.",
        false,
    );
    let leader = section.choice(
        "leader",
        "What becomes of a leader: it hands over first; or people are refused and controllers have it hand over; or it may go.",
        &LEADERS,
        Leader::Transfer,
    );
    let also = section.choices(
        "alsoGuard",
        "What is guarded beside pods: StatefulSets that are scaled below the quorum or deleted, claims of members, disruption budgets.",
        &Also::WORDS,
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
    let ensembles = ensembles(section, recognise, leader, &common_config);
    Config {
        common_config,
        reservation,
        data_safety,
        small,
        membership_change,
        also,
        break_glass,
        member_deadline,
        lag,
        ensembles,
    }
}

fn book(section: &mut Section<'_>, common_config: &CommonConfig) -> Book {
    let reservation = section.choice(
        "reservation",
        "Where it is noted which members are on their way out: in Leases of Durward's namespace, or in this process alone (one replica only).",
        &[("lease", Book::Lease), ("local", Book::Local)],
        Book::Lease,
    );
    if reservation == Book::Lease && common_config.install_namespace.is_empty() {
        let next = "name it in installNamespace, or set reservation: local and run one replica".to_owned();
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

fn ensembles(
    section: &mut Section<'_>,
    recognise: bool,
    leader: Leader,
    common_config: &CommonConfig,
) -> Vec<Ensemble> {
    let ensembles = section.sections(
        "ensembles",
        "Which pods are members of etcd ensembles; the first entry that chooses a pod counts.",
        |s| ensemble(s, recognise, leader, &common_config.install_namespace),
    );
    if let Some((first, second)) = repeated(&ensembles) {
        let why = format!(
            "ensembles[{second}] chooses the pods that ensembles[{first}] chooses, and the first one counts"
        );
        section.problem(
            "ensembles",
            why,
            Some("take one of them out, or choose by another label".to_owned()),
        );
    }
    // Whoever writes an empty list means it, as `config defaults` does.
    if section.is_written() && !section.has("ensembles") {
        let next = "add: ensembles: [{namespace: db, selector: app=etcd}]".to_owned();
        section.problem("ensembles", "names none, so nothing is guarded", Some(next));
    }
    ensembles
}

fn ensemble(section: &mut Section<'_>, recognise: bool, leader: Leader, install: &str) -> Ensemble {
    let within = within(section, install);
    let selector = labels::read(section, "selector", "Its pods; may be left out where recognise is true.");
    if section.is_written() && !section.has("selector") && !recognise {
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
        (1, MOST_MEMBERS),
    );
    let (port, client) = section.section("client", "How the members are spoken to.", client::read);
    if client.wants_owner() && group_by == GroupBy::Selector {
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
        &LEADERS,
    );
    let leader = own.unwrap_or(leader);
    Ensemble { within, selector, group_by, owner, members, port, client, membership, leader }
}

fn within(section: &mut Section<'_>, install: &str) -> Within {
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
        let next =
            "Durward leaves its own namespace alone; name another in installNamespace, or move the ensemble";
        section.problem("namespace", "is Durward's own", Some(next.to_owned()));
    }
    selector.map_or_else(|| Within::Named(name.unwrap_or_default()), Within::Labelled)
}

/// What its pods belong to, where that is no `StatefulSet`.
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

/// Entries that say where and which in the same words: the second one is never asked.
fn repeated(ensembles: &[Ensemble]) -> Option<(usize, usize)> {
    // What is missing or wrong in both is told already, and the same by accident.
    let is_right = |one: &Ensemble| one.within != Within::Named(String::new());
    let is_same = |one: &Ensemble, other: &Ensemble| {
        is_right(one) && one.within == other.within && one.selector == other.selector
    };
    ensembles.iter().enumerate().find_map(|(at, one)| {
        let first = ensembles.iter().take(at).position(|earlier| is_same(earlier, one))?;
        Some((first, at))
    })
}

#[cfg(test)]
mod tests;
