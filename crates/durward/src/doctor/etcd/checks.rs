//! Derives findings from a survey of etcd clusters. Pure.

use cluster::cause;
use guards::etcd::{
    ClusterReport, EmptyEntry, EntryOverlap, MemberReport, ReportCause, SurveyReport, UnreadScope,
};

use crate::doctor::finding::{Finding, Subject};

/// The number of names that a message lists.
const SHOWN: usize = 10;

/// Commands that fix a problem.
pub(super) struct Fixes {
    /// kubectl with the kubeconfig of the cluster.
    pub(super) kubectl: String,
    /// The configuration file.
    pub(super) config: String,
    /// The namespace of Durward.
    pub(super) home: String,
}

impl Fixes {
    fn apply(&self) -> String {
        format!("durward manifests --config {} --only rbac | {} apply -f -", self.config, self.kubectl)
    }

    /// Returns the command that repeats the check.
    fn again(&self) -> String {
        format!("durward doctor etcd --config {} (again)", self.config)
    }

    fn record(&self) -> String {
        format!("record it: durward snapshot --out FOLDER --config {}", self.config)
    }

    /// Returns the command that repeats the check in Durward's pod.
    fn inside(&self) -> String {
        let Self { kubectl, home, .. } = self;
        format!(
            "{kubectl} -n {home} exec deploy/durward -- durward doctor etcd --config /etc/durward/durward.yaml"
        )
    }

    /// Returns the fix for an etcd member that could not be read.
    fn member(&self, code: &str, namespace: &str, pod: &str) -> String {
        let kubectl = &self.kubectl;
        match code {
            cause::TLS => "the ensemble's client.tls (ca.crt is the authority of the members' certificates) and client.serverName (a name in them); when they end".to_owned(),
            cause::CREDENTIALS => "the Secrets of client.tls and client.auth: are they there, may Durward read them, and does etcd know the user? (3.6 gives a status only to root)".to_owned(),
            cause::NOT_LISTENING => {
                format!("{kubectl} -n {namespace} logs {pod} --all-containers --tail 50; does etcd serve clients on client.port, and not on 127.0.0.1 alone (--listen-client-urls)?")
            }
            cause::NOT_ETCD | cause::GARBAGE => {
                format!("client.port, and what listens there: {kubectl} -n {namespace} get pod {pod} -o yaml")
            }
            cause::UNREACHABLE | cause::TIMEOUT => {
                format!("{kubectl} -n {namespace} get pod {pod} -o wide: is it well, and do network policies let Durward reach its address on client.port? From Durward's own pod: {}", self.inside())
            }
            cause::NO_ADDRESS => format!("{kubectl} -n {namespace} describe pod {pod}"),
            cause::FORBIDDEN => self.apply(),
            cause::NOT_RECORDED => self.record(),
            _ => self.again(),
        }
    }

    /// Returns the fix for an API server that could not be read.
    fn cluster(&self, code: &str) -> String {
        match code {
            cause::FORBIDDEN => self.apply(),
            cause::NOT_RECORDED => self.record(),
            cause::BUSY | cause::OVERLOADED => self.again(),
            _ => format!("{} get --raw /version", self.kubectl),
        }
    }
}

/// Returns all findings.
pub(super) fn all(surveyed: &SurveyReport, fixes: &Fixes) -> Vec<Finding> {
    let unseen = surveyed.unseen.iter().map(|unseen| unasked(unseen, fixes));
    let empty = surveyed.empty.iter().map(|empty| chooses_nothing(empty, fixes));
    let overlaps = surveyed.overlaps.iter().map(overlap);
    let ensembles = surveyed.ensembles.iter().flat_map(|one| of_ensemble(one, fixes));
    unseen.chain(empty).chain(overlaps).chain(ensembles).collect()
}

fn unasked(UnreadScope { namespace, why }: &UnreadScope, fixes: &Fixes) -> Finding {
    let (whose, matters) = match namespace {
        Some(namespace) => (
            format!("namespace {namespace}: {}", why.text),
            "a review that cannot ask this either is Unknown: members are not deleted, unless onUnknown says allow",
        ),
        None => (
            format!("which namespaces have the labels of namespaceSelector is not known: {}", why.text),
            "what is in them is not shown here; reviews do not ask this, and guard it all the same",
        ),
    };
    Finding::new(None, why.cause, whose, matters, fixes.cluster(why.cause))
}

fn chooses_nothing(empty: &EmptyEntry, fixes: &Fixes) -> Finding {
    let EmptyEntry { entry, namespace, is_going, pods, seem_members } = empty;
    let (kubectl, many) = (&fixes.kubectl, if *pods == 1 { "1 pod" } else { "pods" });
    let what = match (is_going, pods) {
        (true, _) => format!("{entry}: namespace {namespace} is not there, or is being deleted"),
        (false, 0) => format!("{entry}: namespace {namespace} has no pods"),
        (false, _) => format!(
            "{entry} chooses none of the {}{many} in namespace {namespace}",
            if *pods == 1 { String::new() } else { format!("{pods} ") }
        ),
    };
    let fix = if seem_members.is_empty() {
        format!("guards.etcd.{entry}.selector, and {kubectl} -n {namespace} get pods --show-labels")
    } else {
        format!(
            "guards.etcd.{entry}.selector: these pods seem to run etcd: {}; {kubectl} -n {namespace} get pods --show-labels",
            names(seem_members.iter().map(String::as_str))
        )
    };
    Finding::new(None, "no-pods", what, "nothing is guarded there", fix)
}

fn overlap(EntryOverlap { namespace, first, second, pods }: &EntryOverlap) -> Finding {
    let pods = names(pods.iter().map(String::as_str));
    let what = format!("{first} and {second} both choose {pods} in namespace {namespace}");
    let why = "the first entry that chooses a pod counts; what the other one says of it (client, leader, membership) does not";
    let fix = format!("guards.etcd.{first}.selector and {second}.selector: one entry for each ensemble");
    Finding::new(None, "overlap", what, why, fix)
}

/// Reports that no entry selects the given namespaces.
pub(super) fn nowhere(only: &[String]) -> Finding {
    let what =
        format!("no entry of the configuration chooses namespace {}", names(only.iter().map(String::as_str)));
    let fix = "guards.etcd.ensembles: namespace, or the labels of namespaceSelector; without --namespace all are shown";
    Finding::new(None, "no-pods", what, "nothing is guarded there", fix.to_owned())
}

/// Reports an installation in `kube-system`, where Durward could write the Lease of a scheduler.
pub(super) fn shared(namespace: &str) -> Option<Finding> {
    (namespace == "kube-system").then(|| {
        let what = "Durward is installed in kube-system and may write Leases there";
        let why = "the control plane's own leaders are elected by Leases of that namespace";
        let fix = "install it in a namespace of its own (the key namespace)";
        Finding::new(None, "namespace", what.to_owned(), why, fix.to_owned())
    })
}

fn of_ensemble(one: &ClusterReport, fixes: &Fixes) -> Vec<Finding> {
    let mut findings = Vec::new();
    findings.extend(quorum(one, fixes));
    findings.extend(unread_members(one, fixes));
    let found_in =
        |code, what: String, why: &str, fix: String| Finding::new(Some(subject(one)), code, what, why, fix);
    // While the membership is unclear, no member is healthy. That is one finding.
    if let Some(why) = one.unclear.as_ref().filter(|why| !one.members.iter().any(|m| is_same(m, why))) {
        findings.push(found_in(
            "list",
            format!("who its members are is not known: {}", why.text),
            "no quorum can be counted, so members that answer are not deleted",
            format!(
                "etcdctl member list of each member; {} -n {} get pods -o wide",
                fixes.kubectl, one.namespace
            ),
        ));
    }
    findings.extend(one.members.iter().filter_map(|member| of_member(one, member, fixes)));
    for change in &one.changes {
        findings.push(found_in(
            "membership",
            format!("its membership is changing: {change}"),
            "members that do not vote yet are no help to a quorum, and a deletion meanwhile is warned of or refused (membershipChange)",
            "etcdctl member list; etcdctl member promote, or remove what was left behind".to_owned(),
        ));
    }
    for note in &one.notes {
        let (code, why, fix) = if one.by_metrics_only {
            (
                "gateway-off",
                "people are refused the leader, and what is not told there is not known",
                "etcd's --enable-grpc-gateway=true, or client.port where it serves HTTP (--listen-client-http-urls)",
            )
        } else {
            (
                "alarm",
                "etcd refuses writes, or its data is in doubt",
                "etcdctl alarm list; make space (compact, defrag, --quota-backend-bytes), then etcdctl alarm disarm",
            )
        };
        findings.push(found_in(code, note.clone(), why, fix.to_owned()));
    }
    if let Some(why) = &one.lease_unread {
        findings.push(unnoted(Some(one), why, fixes));
    }
    for member in &one.members {
        if let Some(value) = &member.left_open {
            findings.push(found_in(
                "break-glass",
                format!("pod {} is annotated durward.dev/delete-anyway={value}", member.name),
                if *value == member.name {
                    "whoever has the verb break-glass deletes it, whatever becomes of the quorum"
                } else {
                    "it opens nothing, since it is not the pod's own name, and somebody meant it to"
                },
                format!(
                    "{} -n {} annotate pod {} durward.dev/delete-anyway-",
                    fixes.kubectl, one.namespace, member.name
                ),
            ));
        }
    }
    findings
}

/// Reports that deletions can't be recorded in the Lease.
pub(super) fn unnoted(ensemble: Option<&ClusterReport>, why: &ReportCause, fixes: &Fixes) -> Finding {
    let fix = match (why.cause, ensemble.and_then(|one| one.lease.as_deref()?.split_once('/'))) {
        (cause::FORBIDDEN, _) => fixes.apply(),
        (cause::NOT_RECORDED, _) => fixes.record(),
        (cause::GARBAGE | cause::NOT_RESERVED, Some((namespace, name))) => {
            format!(
                "{} -n {namespace} get lease {name} -o yaml; while no pod leaves it may be deleted",
                fixes.kubectl
            )
        }
        _ => fixes.cluster(why.cause),
    };
    Finding::new(
        ensemble.map(subject),
        "lease",
        format!("it cannot be noted who leaves: {}", why.text),
        "no healthy member is deleted: of two at once nobody could tell the second one",
        fix,
    )
}

fn quorum(one: &ClusterReport, fixes: &Fixes) -> Option<Finding> {
    let what = match (one.is_lost, one.quorum) {
        (true, _) => "the quorum is lost: nobody who answers knows a leader".to_owned(),
        (false, Some(quorum)) if one.healthy < quorum => {
            format!("{} of its members can be counted on, and {quorum} are a quorum", one.healthy)
        }
        _ => return None,
    };
    let why = "no member that answers is deleted, and etcd itself may take no writes";
    let fix = format!(
        "bring the others up: {} -n {} get pods -o wide; what is said of each stands below",
        fixes.kubectl, one.namespace
    );
    Some(Finding::new(Some(subject(one)), "quorum", what, why, fix))
}

/// Reports members that could not be read. Members that fail for the same reason are one finding.
fn unread_members(one: &ClusterReport, fixes: &Fixes) -> Vec<Finding> {
    let mut by_cause: Vec<(&ReportCause, Vec<&str>)> = Vec::new();
    for member in &one.members {
        let Some(why) = &member.unseen else { continue };
        match by_cause.iter_mut().find(|(first, _)| first.cause == why.cause) {
            Some((_, pods)) => pods.push(&member.name),
            None => by_cause.push((why, vec![&member.name])),
        }
    }
    let report = by_cause.into_iter().map(|(why, pods)| {
        let what = match pods.as_slice() {
            [] | [_] => why.text.clone(),
            [_, others @ ..] => format!("{}; and the same for {}", why.text, names(others.iter().copied())),
        };
        let matters = match why.cause {
            cause::NOT_LISTENING => "no etcd runs there: it is missing, and may be deleted",
            _ => {
                "it counts neither as healthy nor as gone: where it matters, deletions are refused as Unknown"
            }
        };
        let first = pods.first().copied().unwrap_or_default();
        Finding::new(
            Some(subject(one)),
            why.cause,
            what,
            matters,
            fixes.member(why.cause, &one.namespace, first),
        )
    });
    report.collect()
}

fn of_member(one: &ClusterReport, member: &MemberReport, fixes: &Fixes) -> Option<Finding> {
    let MemberReport { name, health, .. } = member;
    let (namespace, kubectl) = (&one.namespace, &fixes.kubectl);
    let (code, what, why, fix) = match member.state {
        "Unfit" if one.unclear.is_none() && !one.is_lost => (
            "unfit",
            format!("{name} is {health}"),
            "it does not count for the quorum of the others",
            format!(
                "{kubectl} -n {namespace} logs {name} --tail 50; etcdctl endpoint status --cluster -w table"
            ),
        ),
        "Corrupt" => (
            "corrupt",
            format!("{name} is {health}"),
            "its data differs from the others', and it serves nobody",
            format!(
                "etcdctl member remove, and let it join again with empty data; {kubectl} -n {namespace} logs {name}"
            ),
        ),
        "Stranger" => (
            "stranger",
            format!("{name} is {health}"),
            if member.deletion.as_ref().is_some_and(|deletion| deletion.verdict == "allow") {
                "it does not count, and its pod may be deleted"
            } else {
                "it does not count here, and its own ensemble may miss it: its pod is not deleted"
            },
            format!(
                "the selector, if it is another ensemble's; {kubectl} -n {namespace} get pod {name} --show-labels"
            ),
        ),
        "Absent" => (
            "absent",
            format!("{name} is in etcd's list, and no pod answers as it"),
            "it counts as one that is needed for a quorum and is not there",
            "the selector, if its pod is not chosen; etcdctl member remove, if it is gone for good"
                .to_owned(),
        ),
        _ => return None,
    };
    Some(Finding::new(Some(subject(one)), code, what, why, fix))
}

/// Returns whether the failure of this member is the reason why the voters are unknown.
fn is_same(member: &MemberReport, why: &ReportCause) -> bool {
    member.unseen.as_ref().is_some_and(|unseen| unseen == why)
}

fn names<'n>(all: impl Iterator<Item = &'n str>) -> String {
    let all: Vec<&str> = all.collect();
    let shown = all.iter().take(SHOWN).copied().collect::<Vec<_>>().join(", ");
    if all.len() > SHOWN { format!("{shown} and {} more", all.len() - SHOWN) } else { shown }
}

fn subject(one: &ClusterReport) -> Subject {
    Subject::Ensemble(one.name.clone())
}
