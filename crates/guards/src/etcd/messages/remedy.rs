//! The next step after a denial: one sentence for each reason, with commands that can be run as they are.

use admission::Cause;

use super::super::config::Config;
use super::super::facts::PodFacts;
use super::super::input::Input;
use super::super::removal::RemovalKind;
use super::super::table::{MemberState, Row, Table};
use cluster::cause;

/// Grants Durward the permissions of its guards.
const PERMIT: &str = "durward manifests --config durward.yaml --only rbac | kubectl apply -f -";

/// Returns the command that shows more than a denial.
fn doctor(config: &Config) -> String {
    match config.common_config.namespace.as_str() {
        "" => "durward doctor etcd --config durward.yaml".to_owned(),
        home => format!(
            "kubectl -n {home} exec deploy/durward -- durward doctor etcd --config /etc/durward/durward.yaml"
        ),
    }
}

/// Returns the next step for something that could not be read.
pub(super) fn for_cause(config: &Config, why: &Cause) -> String {
    match why.code {
        cause::FORBIDDEN => format!("Whoever runs Durward: {PERMIT}"),
        // It may be temporary.
        cause::UNCLEAR => format!(
            "Try again; where it stays so, whoever runs Durward: {} shows what it sees",
            doctor(config)
        ),
        _ => format!("Try again. Whoever runs Durward: {} says what to mend", doctor(config)),
    }
}

/// Returns the next step for a deletion that cannot be reserved.
fn not_reserved(config: &Config) -> String {
    format!(
        "Try again. Whoever runs Durward, if the Lease may not be read or written: {PERMIT}; {} says more",
        doctor(config)
    )
}

/// Returns the next step after a denial for this reason. It is about the first cause only; the others rarely need another step.
pub(super) fn remedy(input: Input<'_>, table: &Table, reason: &str, causes: &[Cause]) -> String {
    let namespace = &input.pod.namespace;
    match reason {
        "SmallEnsemble" => "Add members to the ensemble, or plan the outage".to_owned(),
        "Untold" => undeclared_size(table),
        "ScaledAway" => scaled_away(input, table),
        "MembershipChange" => {
            "Wait until the change is through (etcdctl member list), or remove what was left behind (etcdctl member remove)".to_owned()
        }
        "DataLoss" => {
            "Give the member a volume that outlives its pod, or take it out first (etcdctl member remove)".to_owned()
        }
        "KilledLeader" => "Give it time to hand over: leave --grace-period=0 out".to_owned(),
        "LeadershipComes" | "Again" => "Try again in ten seconds".to_owned(),
        "NotReserved" => not_reserved(input.config),
        "Unknown" => {
            let unclear = Cause::new(cause::UNCLEAR, String::new());
            let step = for_cause(input.config, causes.first().unwrap_or(&unclear));
            hidden_leader(input, table).map_or_else(|| step.clone(), |transfer| format!("{step}. {transfer}"))
        }
        "Leader" => leader(input, table),
        "QuorumLost" => format!(
            "The quorum does not come back by waiting: bring the other members up (kubectl -n {namespace} get pods -o wide), or restore from a snapshot (etcdctl snapshot restore); the data of this one may be the last there is"
        ),
        _ => others(input, table),
    }
}

/// Returns the manual transfer for a member that does not answer Durward and may lead. Once another member leads, it can be deleted
/// like any other member without a response.
fn hidden_leader(input: Input<'_>, table: &Table) -> Option<String> {
    let me = table.row(&input.pod.uid).filter(|me| matches!(me.state, MemberState::NoResponse(_)))?;
    if !table.has_hidden_leader() || table.healthy_without(&me.uid) == 0 {
        return None;
    }
    let exec = format!("kubectl -n {} exec {} -- etcdctl", input.pod.namespace, input.pod.name);
    Some(format!(
        "It may be the leader: hand over by hand, and it may go: {exec} member list, and {exec} move-leader with the id of another one (with its --cacert, --cert and --key)"
    ))
}

/// Returns how to transfer leadership by hand.
fn leader(input: Input<'_>, table: &Table) -> String {
    let (namespace, name) = (&input.pod.namespace, &input.pod.name);
    let exec = format!("kubectl -n {namespace} exec {name} -- etcdctl");
    if input.progress.cannot_move_leader || table.is_degraded {
        return format!(
            "Hand over by hand: {exec} member list, and {exec} move-leader with the id of another one (etcd 3.3 and later; with its --cacert, --cert and --key); an older etcd hands over by itself when it is given time to end"
        );
    }
    let next =
        table.row(&input.pod.uid).and_then(|me| table.successor(me, &input.progress.unable_to_lead, &[]));
    match next.and_then(|next| Some((next, next.id?))) {
        Some((next, id)) if input.denies_leader() => format!(
            "Hand over to {} first: {exec} move-leader {id:x} (with your --cacert, --cert and --key)",
            next.name
        ),
        _ => "Wait until another member is healthy and caught up, so that it can take over".to_owned(),
    }
}

/// Returns how to declare the size.
fn undeclared_size(table: &Table) -> String {
    let voters = table.voters.as_ref().map_or(0, |voters| *voters);
    format!(
        "Wait until all of its members vote again (etcdctl member list); if it is to have no more, whoever runs Durward says so: expectedMembers: {voters} in its entry, if all ensembles of that entry have no more"
    )
}

/// Returns how to remove a member that does not come back from the list.
fn scaled_away(input: Input<'_>, table: &Table) -> String {
    let (namespace, uid) = (&input.pod.namespace, &input.pod.uid);
    let other = table.rows.iter().find(|row| row.uid != *uid && !row.uid.is_empty() && row.answers());
    let scale_back = "Scale its StatefulSet back, or to 0 where the ensemble is to end";
    let Some(other) = other.filter(|_| table.voters.as_ref().is_ok_and(|voters| *voters > 1)) else {
        return scale_back.to_owned();
    };
    let exec = format!("kubectl -n {namespace} exec {} -- etcdctl", other.name);
    // Without a gateway an id may be only a position.
    let id = table.row(uid).and_then(|me| me.id).filter(|_| !table.is_degraded);
    let remove = id.map_or_else(
        || format!("{exec} member list, and {exec} member remove with its id"),
        |id| format!("{exec} member remove {id:x}"),
    );
    format!("Take it out of the list first: {remove} (with your --cacert, --cert and --key); then it may go")
}

/// Returns how to scale a `StatefulSet` back to its voters after a failed scale-up; `None` if that would delete a voter.
fn scale_back(input: Input<'_>, table: &Table) -> Option<String> {
    let set = input.pod.stateful_set()?;
    let voters = *table.voters.as_ref().ok()?;
    input
        .facts
        .sizes
        .replicas
        .filter(|replicas| usize::try_from(*replicas).is_ok_and(|many| many > voters))?;
    let ordinal = |row: &Row| row.name.rsplit_once('-')?.1.parse::<u64>().ok();
    let is_voting = |row: &&Row| row.may_vote() && row.answers();
    let (voting, others): (Vec<&Row>, Vec<&Row>) = table.rows.iter().partition(is_voting);
    let last = voting.iter().filter_map(|row| ordinal(row)).max()?;
    others.iter().all(|row| ordinal(row).is_some_and(|ordinal| ordinal > last)).then(|| {
        format!(
            "if it is to have no more, scale it back: kubectl -n {} scale statefulset {} --replicas={voters}",
            input.pod.namespace, set.name
        )
    })
}

/// Returns what must happen to the other members first.
fn others(input: Input<'_>, table: &Table) -> String {
    let Input { config, pod, removal, facts, .. } = input;
    // The reason already contains the step.
    if table.corruption.is_some() {
        return "Then try again".to_owned();
    }
    let rows = |is: &dyn Fn(&Row) -> bool| {
        let rows = table.rows.iter().filter(|row| row.uid != pod.uid && is(row));
        rows.map(|row| row.name.as_str()).collect::<Vec<_>>().join(" and ")
    };
    let pods = |is: &dyn Fn(&PodFacts) -> bool| {
        rows(&|row| facts.pods.iter().any(|facts| facts.pod.uid == row.uid && is(facts)))
    };
    let is_gone = |facts: &PodFacts| facts.pod.is_deleting || facts.has_lost_node();
    let corrupt = rows(&|row| row.state == MemberState::Corrupt);
    let behind = rows(&|row| row.lag.is_some_and(|lag| lag > config.max_raft_lag));
    let without_owner = pods(&|facts| facts.is_without_owner);
    let gone = pods(&is_gone);
    let reserved = pods(&|facts| facts.is_reserved && !is_gone(facts));
    let mut steps: Vec<String> = Vec::new();
    if table.is_temporarily_small() {
        steps.push(format!(
            "wait until {} members vote again (etcdctl member list): a learner is promoted (etcdctl member promote), one that was taken out is added (etcdctl member add)",
            table.expected.members
        ));
        steps.extend(scale_back(input, table));
    }
    if !corrupt.is_empty() {
        steps.push(format!("replace {corrupt} first: its data is corrupt"));
    }
    if !behind.is_empty() {
        steps.push(format!("wait until {behind} has caught up (lag: {})", config.max_raft_lag));
    }
    if !without_owner.is_empty() {
        steps.push(format!(
            "wait until {without_owner} is gone, and back or out of the list (etcdctl member remove): what makes its pod is going"
        ));
    }
    if !gone.is_empty() {
        steps.push(format!("wait until {gone} is back"));
    }
    if !reserved.is_empty() {
        // A client that is denied later and retries every few seconds renews the reservation each time.
        steps.push(format!(
            "wait until {reserved} is back; it counts again 30 s after nobody asks for it: if a drain tries in vain, stop it"
        ));
    }
    if steps.is_empty() {
        steps.push(match removal.kind {
            RemovalKind::Evict => {
                "wait until the others are healthy: kubectl drain tries again by itself".to_owned()
            }
            RemovalKind::Delete => "bring the others up first, or try again when they are".to_owned(),
        });
    }
    super::sentence(&steps.join("; "))
}
