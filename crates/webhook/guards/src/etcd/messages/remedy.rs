//! The next step after a denial, with commands that can be run as they are.

use admission::Cause;

use super::super::config::Config;
use super::super::facts::PodFacts;
use super::super::input::Input;
use super::super::table::{MAX_LAG, MemberState, Row};
use super::ReasonCode;
use crate::message::Message;
use cluster::cause;

/// Grants Durward the permissions of its guards.
const PERMIT: &str = "grant the permission: helm upgrade, or without the chart: durward manifests -c durward.yaml --only rbac | kubectl apply -f -";

/// A note on flags of etcdctl for etcd clusters with TLS.
const WITH_TLS: &str = "(with TLS, add --cacert, --cert, --key)";

/// Adds the next step for something that could not be read.
pub(super) fn add_for_cause(message: Message, config: &Config, why: &Cause) -> Message {
    if why.code == cause::FORBIDDEN {
        return message.admin(PERMIT);
    }
    // A retry repairs neither TLS nor credentials.
    let message = match why.code {
        cause::TLS | cause::CREDENTIALS => message,
        _ => message.next("retry"),
    };
    message.admin(&print_the_fix(config))
}

fn print_the_fix(config: &Config) -> String {
    format!("print the fix: {}", config.common_config.doctor("etcd"))
}

/// Adds the next step after a denial for this reason. It is about the first cause only; the others rarely need another step.
pub(super) fn add(message: Message, input: Input<'_>, reason: ReasonCode, causes: &[Cause]) -> Message {
    let namespace = &input.pod.namespace;
    match reason {
        ReasonCode::UndeclaredSize => {
            let voters = input.table.voters.as_ref().map_or(0, |voters| *voters);
            message.next("wait until all members vote (etcdctl member list), then retry").admin(&format!(
                "if the cluster is meant to have {voters}, set expectedMembers: {voters} in its entry of guards.etcd.clusters"
            ))
        }
        ReasonCode::ScaledAway => message.next(&scaled_away(input)),
        ReasonCode::DataLoss => message.next(&format!(
            "save the data {WITH_TLS}, then override: {} snapshot save FILE",
            exec(input, &input.pod.name)
        )),
        ReasonCode::Backoff | ReasonCode::LeadershipMoved => message.next("retry in ten seconds"),
        ReasonCode::Reserved => {
            message.next("retry when that pod is back, or 45 s after the last attempt to delete it")
        }
        ReasonCode::NotFound => message,
        ReasonCode::Corrupt => message.next(
            "find the member whose data differs (etcdctl endpoint hashkv --cluster), remove it (etcdctl member remove), then delete its pod",
        ),
        ReasonCode::NotReserved => match input.reservation_error() {
            Some(why) => add_for_cause(message, input.config, why),
            None => message.next("retry"),
        },
        ReasonCode::Unknown => {
            let message = match hidden_leader(input) {
                Some(transfer) => message.next(&transfer),
                None => message,
            };
            match causes.first() {
                Some(why) if why.code == cause::MIXED_CLUSTERS => message
                    .next("if the pod does not belong to this etcd cluster, override")
                    .admin("give each etcd cluster its own entry in guards.etcd.clusters"),
                Some(why) => match unreached(input).filter(|_| super::is_unanswered(causes)) {
                    Some(check) => message.next(&check).admin(&print_the_fix(input.config)),
                    None => add_for_cause(message, input.config, why),
                },
                None => message.next("retry"),
            }
        }
        ReasonCode::Leader => message.next(&leader(input)),
        ReasonCode::QuorumLost => message.next(&format!(
            "bring the other members back, or restore a snapshot (etcdctl snapshot restore); waiting does not help. Their pods: kubectl -n {namespace} get pods -o wide"
        )),
        ReasonCode::Quorum => message.next(&others(input)),
    }
}

/// Returns the manual transfer for a member that does not answer Durward and may lead. Once another member leads, it can be deleted
/// like any other member without a response.
fn hidden_leader(input: Input<'_>) -> Option<String> {
    let table = input.table;
    let me = table.row(&input.pod.uid).filter(|me| matches!(me.state, MemberState::NoResponse(_)))?;
    if !table.has_hidden_leader() || table.healthy_without(&me.uid) == 0 {
        return None;
    }
    Some(format!("it may be the leader; {}", transfer_by_hand(input)))
}

/// Returns how to find out whether members that did not answer Durward are healthy.
fn unreached(input: Input<'_>) -> Option<String> {
    let table = input.table;
    let is_silent = |row: &&Row| matches!(row.state, MemberState::NoResponse(_));
    let first = table.rows.iter().find(is_silent)?;
    let from = table.rows.iter().find(|row| row.answers() && !row.uid.is_empty()).unwrap_or(first);
    let exec = exec(input, &from.name);
    Some(format!(
        "retry; if the members are healthy {WITH_TLS}, check the NetworkPolicy to their client port: {exec} endpoint health --cluster"
    ))
}

/// Returns the commands that transfer leadership.
fn transfer_by_hand(input: Input<'_>) -> String {
    let exec = exec(input, &input.pod.name);
    format!(
        "transfer leadership with etcdctl move-leader ID {WITH_TLS}, then retry. IDs of the members: {exec} member list"
    )
}

fn exec(input: Input<'_>, pod: &str) -> String {
    format!("kubectl -n {} exec {pod} -- etcdctl", input.pod.namespace)
}

/// Returns how to transfer leadership by hand.
fn leader(input: Input<'_>) -> String {
    let table = input.table;
    let progress = input.progress;
    if progress.cannot_move_leader {
        return transfer_by_hand(input);
    }
    let me = table.row(&input.pod.uid);
    let next = me.and_then(|me| table.successor(me, &progress.unable_to_lead));
    match next.and_then(|next| Some((next, next.id?))) {
        Some((next, id)) if input.denies_leader() => {
            let exec = exec(input, &input.pod.name);
            format!("transfer leadership to {} {WITH_TLS}, then retry: {exec} move-leader {id:x}", next.name)
        }
        _ => "wait until another member is healthy and has caught up, then retry".to_owned(),
    }
}

/// Returns how to remove a member that does not come back from the list.
fn scaled_away(input: Input<'_>) -> String {
    let table = input.table;
    let uid = &input.pod.uid;
    let other = table.rows.iter().find(|row| row.uid != *uid && !row.uid.is_empty() && row.answers());
    let Some(other) = other.filter(|_| table.voters.as_ref().is_ok_and(|voters| *voters > 1)) else {
        return "scale its StatefulSet back, or to 0 to remove the etcd cluster".to_owned();
    };
    let exec = exec(input, &other.name);
    match table.row(uid).and_then(|me| me.id) {
        Some(id) => format!("remove the member first {WITH_TLS}, then retry: {exec} member remove {id:x}"),
        None => format!(
            "remove the member first with etcdctl member remove ID {WITH_TLS}, then retry. IDs of the members: {exec} member list"
        ),
    }
}

/// Returns the command that scales a `StatefulSet` back to its voters after a failed scale-up; `None` if that would delete a voter.
fn scale_back(input: Input<'_>) -> Option<String> {
    let table = input.table;
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
        format!("kubectl -n {} scale statefulset {} --replicas={voters}", input.pod.namespace, set.name)
    })
}

/// Returns what must happen to the other members first.
fn others(input: Input<'_>) -> String {
    let table = input.table;
    let Input { pod, facts, .. } = input;
    let rows = |is: &dyn Fn(&Row) -> bool| {
        let rows = table.rows.iter().filter(|row| row.uid != pod.uid && is(row));
        rows.map(|row| row.name.as_str()).collect::<Vec<_>>().join(" and ")
    };
    let pods = |is: &dyn Fn(&PodFacts) -> bool| {
        rows(&|row| facts.pods.iter().any(|facts| facts.pod.uid == row.uid && is(facts)))
    };
    let is_gone = |facts: &PodFacts| facts.pod.is_deleting || facts.has_lost_node();
    let mut steps: Vec<String> = Vec::new();
    let mut command = None;
    if table.is_temporarily_small() {
        steps.push(format!(
            "wait until {} members vote (etcdctl member list): promote the learner (etcdctl member promote) or add the missing member (etcdctl member add)",
            table.expected.members
        ));
        command = scale_back(input);
    }
    let undo = command.as_ref().map(|_| "or undo the scale-up".to_owned());
    let mut step = |names: String, text: &dyn Fn(&str) -> String| {
        if !names.is_empty() {
            steps.push(text(&names));
        }
    };
    step(rows(&|row| row.state == MemberState::Corrupt), &|names| {
        format!("replace {names} first, its data is corrupt")
    });
    step(rows(&|row| row.lag.is_some_and(|lag| lag > MAX_LAG)), &|names| {
        format!("wait until {names} has caught up")
    });
    step(pods(&|facts| facts.is_without_owner), &|names| {
        format!("wait until {names} has left the member list (etcdctl member remove); its owner is deleted")
    });
    step(pods(&is_gone), &|names| format!("wait until {names} is back"));
    let down = rows(&|row| matches!(row.state, MemberState::NoResponse(_)));
    if let Some(first) = down.split(' ').next().filter(|name| !name.is_empty()) {
        command.get_or_insert_with(|| format!("kubectl -n {} describe pod {first}", pod.namespace));
    }
    step(down, &|names| format!("bring {names} back"));
    steps.extend(undo);
    if steps.is_empty() {
        steps.push("wait until the other members are healthy".to_owned());
    }
    let command = command.map(|command| format!(": {command}")).unwrap_or_default();
    format!("{}, then retry{command}", steps.join("; "))
}
