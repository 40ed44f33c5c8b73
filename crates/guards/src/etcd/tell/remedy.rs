//! What to do about what stands in the way: one sentence for each reason, by the state that the members are in, and commands that can
//! be typed as they stand.

use admission::Cause;

use super::super::config::Config;
use super::super::decide::{Case, is_refused, successor};
use super::super::facts::Seen;
use super::super::table::{Row, State, Table};
use super::super::target::Deed;
use cluster::cause;

/// What gives Durward the permissions that its guards need.
const PERMIT: &str = "durward manifests --config durward.yaml --only rbac | kubectl apply -f -";

/// What tells more than a refusal has room for, from where Durward stands.
fn doctor(config: &Config) -> String {
    match config.common_config.install_namespace.as_str() {
        "" => "durward doctor etcd --config durward.yaml".to_owned(),
        home => format!(
            "kubectl -n {home} exec deploy/durward -- durward doctor etcd --config /etc/durward/durward.yaml"
        ),
    }
}

/// What to do where something could not be seen.
pub(super) fn look_into(config: &Config, why: &Cause) -> String {
    match why.code {
        cause::FORBIDDEN => format!("Whoever runs Durward: {PERMIT}"),
        // It may be so for a moment only, or for good.
        cause::UNCLEAR => format!(
            "Try again; where it stays so, whoever runs Durward: {} shows what it sees",
            doctor(config)
        ),
        _ => format!("Try again. Whoever runs Durward: {} says what to mend", doctor(config)),
    }
}

/// What to do where it cannot be noted who leaves.
fn unnoted(config: &Config) -> String {
    format!(
        "Try again. Whoever runs Durward, if the Lease may not be read or written: {PERMIT}; {} says more",
        doctor(config)
    )
}

/// What to do about a refusal for this reason. Of causes only the first is gone into: the others are seldom mended by other means.
pub(super) fn first_step(case: Case<'_>, table: &Table, reason: &str, causes: &[Cause]) -> String {
    let namespace = &case.pod.namespace;
    match reason {
        "SmallEnsemble" => "Add members to the ensemble, or plan the outage".to_owned(),
        "Untold" => untold(table),
        "ScaledAway" => scaled_away(case, table),
        "MembershipChange" => {
            "Wait until the change is through (etcdctl member list), or remove what was left behind (etcdctl member remove)".to_owned()
        }
        "DataLoss" => {
            "Give the member a volume that outlives its pod, or take it out first (etcdctl member remove)".to_owned()
        }
        "KilledLeader" => "Give it time to hand over: leave --grace-period=0 out".to_owned(),
        "LeadershipComes" | "Again" => "Try again in ten seconds".to_owned(),
        "NotReserved" => unnoted(case.config),
        "Unknown" => {
            let seen = Cause::new(cause::UNCLEAR, String::new());
            let step = look_into(case.config, causes.first().unwrap_or(&seen));
            hidden_leader(case, table).map_or_else(|| step.clone(), |way| format!("{step}. {way}"))
        }
        "Leader" => leader(case, table),
        "QuorumLost" => format!(
            "The quorum does not come back by waiting: bring the other members up (kubectl -n {namespace} get pods -o wide), or restore from a snapshot (etcdctl snapshot restore); the data of this one may be the last there is"
        ),
        _ => others(case, table),
    }
}

/// The way on for one that does not answer Durward, and may be the leader that the others follow: who leads no more goes like any
/// other that is silent.
fn hidden_leader(case: Case<'_>, table: &Table) -> Option<String> {
    let me = table.row(&case.pod.uid).filter(|me| matches!(me.state, State::Silent(_)))?;
    if !table.has_hidden_leader() || table.healthy_beside(&me.uid) == 0 {
        return None;
    }
    let exec = format!("kubectl -n {} exec {} -- etcdctl", case.pod.namespace, case.pod.name);
    Some(format!(
        "It may be the leader: hand over by hand, and it may go: {exec} member list, and {exec} move-leader with the id of another one (with its --cacert, --cert and --key)"
    ))
}

/// How a leader is made to hand over by hand.
fn leader(case: Case<'_>, table: &Table) -> String {
    let (namespace, name) = (&case.pod.namespace, &case.pod.name);
    let exec = format!("kubectl -n {namespace} exec {name} -- etcdctl");
    if case.done.is_unmovable || table.is_poor {
        return format!(
            "Hand over by hand: {exec} member list, and {exec} move-leader with the id of another one (etcd 3.3 and later; with its --cacert, --cert and --key); an older etcd hands over by itself when it is given time to end"
        );
    }
    let next = table.row(&case.pod.uid).and_then(|me| successor(table, me, &case.done.refused, &[]));
    match next.and_then(|next| Some((next, next.id?))) {
        Some((next, id)) if is_refused(case) => format!(
            "Hand over to {} first: {exec} move-leader {id:x} (with your --cacert, --cert and --key)",
            next.name
        ),
        _ => "Wait until another member is healthy and caught up, so that it can take over".to_owned(),
    }
}

/// Who says how many members there are to be.
fn untold(table: &Table) -> String {
    let voters = table.voters.as_ref().map_or(0, |voters| *voters);
    format!(
        "Wait until all of its members vote again (etcdctl member list); if it is to have no more, whoever runs Durward says so: members: {voters} in its entry, if all ensembles of that entry have no more"
    )
}

/// How one that is not to be any more leaves the list before it goes.
fn scaled_away(case: Case<'_>, table: &Table) -> String {
    let (namespace, uid) = (&case.pod.namespace, &case.pod.uid);
    let other = table.rows.iter().find(|row| row.uid != *uid && !row.uid.is_empty() && row.answers());
    let alone = "Scale its StatefulSet back, or to 0 where the ensemble is to end";
    let Some(other) = other.filter(|_| table.voters.as_ref().is_ok_and(|voters| *voters > 1)) else {
        return alone.to_owned();
    };
    let exec = format!("kubectl -n {namespace} exec {} -- etcdctl", other.name);
    // Without a gateway ids are only places.
    let id = table.row(uid).and_then(|me| me.id).filter(|_| !table.is_poor);
    let remove = id.map_or_else(
        || format!("{exec} member list, and {exec} member remove with its id"),
        |id| format!("{exec} member remove {id:x}"),
    );
    format!("Take it out of the list first: {remove} (with your --cacert, --cert and --key); then it may go")
}

/// How a set that was scaled up in vain gets back to what votes; none where that would take one that does.
fn scale_back(case: Case<'_>, table: &Table) -> Option<String> {
    let set = case.pod.owner.as_ref()?;
    let voters = *table.voters.as_ref().ok()?;
    case.facts.replicas.filter(|replicas| usize::try_from(*replicas).is_ok_and(|many| many > voters))?;
    let ordinal = |row: &Row| row.name.rsplit_once('-')?.1.parse::<u64>().ok();
    let is_voting = |row: &&Row| {
        !matches!(
            row.state,
            State::Learner | State::Stranger(_) | State::Rival(_) | State::Silent(_) | State::Absent
        )
    };
    let (voting, others): (Vec<&Row>, Vec<&Row>) = table.rows.iter().partition(is_voting);
    let last = voting.iter().filter_map(|row| ordinal(row)).max()?;
    others.iter().all(|row| ordinal(row).is_some_and(|place| place > last)).then(|| {
        format!(
            "if it is to have no more, scale it back: kubectl -n {} scale statefulset {} --replicas={voters}",
            case.pod.namespace, set.name
        )
    })
}

/// What the other members want.
fn others(case: Case<'_>, table: &Table) -> String {
    let Case { config, pod, target, facts, .. } = case;
    let named = |is: &dyn Fn(&&Row) -> bool| {
        let rows = table.rows.iter().filter(|row| row.uid != pod.uid).filter(is);
        rows.map(|row| row.name.as_str()).collect::<Vec<_>>().join(" and ")
    };
    // What is to be done is said with the reason.
    if table.doubt.is_some() {
        return "Then try again".to_owned();
    }
    let mut steps: Vec<String> = Vec::new();
    if table.is_small_for_now() {
        steps.push(format!(
            "wait until {} members vote again (etcdctl member list): a learner is promoted (etcdctl member promote), one that was taken out is added (etcdctl member add)",
            table.meant
        ));
        steps.extend(scale_back(case, table));
    }
    let corrupt = named(&|row| row.state == State::Corrupt);
    if !corrupt.is_empty() {
        steps.push(format!("replace {corrupt} first: its data is corrupt"));
    }
    let behind = named(&|row| row.lag.is_some_and(|lag| lag > config.lag));
    if !behind.is_empty() {
        steps.push(format!("wait until {behind} has caught up (lag: {})", config.lag));
    }
    let leaving =
        facts.seen.iter().filter(|seen| seen.is_reserved && !seen.pod.is_going && !seen.is_stranded());
    let leaving = leaving.map(|seen| seen.pod.name.as_str()).collect::<Vec<_>>().join(" and ");
    let is_gone = |seen: &Seen| seen.pod.is_going || seen.is_stranded();
    let going = named(&|row| facts.seen.iter().any(|seen| seen.pod.uid == row.uid && is_gone(seen)));
    let unmade = named(&|row| facts.seen.iter().any(|seen| seen.pod.uid == row.uid && seen.is_unmade));
    if !unmade.is_empty() {
        steps.push(format!(
            "wait until {unmade} is gone, and back or out of the list (etcdctl member remove): what makes its pod is going"
        ));
    }
    if !going.is_empty() {
        steps.push(format!("wait until {going} is back"));
    }
    if steps.is_empty() && leaving.is_empty() {
        steps.push(match target.deed {
            Deed::Evict => {
                "wait until the others are healthy: kubectl drain tries again by itself".to_owned()
            }
            Deed::Delete => "bring the others up first, or try again when they are".to_owned(),
        });
    }
    if !leaving.is_empty() {
        // Whoever is refused behind this guard and asks again every few seconds holds the others up for as long.
        steps.push(format!(
            "wait until {leaving} is back; it counts again 30 s after nobody asks for it: if a drain tries in vain, stop it"
        ));
    }
    super::sentence(&steps.join("; "))
}
