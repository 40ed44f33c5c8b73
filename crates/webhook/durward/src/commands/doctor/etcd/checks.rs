//! Derives findings from a survey of etcd clusters. Pure.

use admission::Cause;
use cluster::cause;
use guards::etcd::{
    ClusterReport, EmptyEntry, EntryOverlap, MemberReport, ReportCause, SurveyReport, UnreadScope,
};

use crate::clients::leftovers::FoundLeftover;
use crate::commands::doctor::finding::{self, Finding, Subject};

/// The number of names that a message lists.
const SHOWN: usize = 10;

/// Commands that fix a problem.
pub(super) struct Fixes {
    /// kubectl with the kubeconfig of the cluster.
    pub(super) kubectl: String,
    /// The configuration file.
    pub(super) config: String,
    /// The command that prints the manifests.
    pub(super) manifests: String,
    /// The namespace of Durward.
    pub(super) home: String,
}

impl Fixes {
    fn apply(&self) -> String {
        format!("{} --only rbac | {} apply -f -", self.manifests, self.kubectl)
    }

    /// Returns the command that repeats the check.
    fn again(&self) -> String {
        format!("retry: durward doctor etcd --config {}", self.config)
    }

    fn record(&self) -> String {
        format!("record it: durward snapshot --out DIR --config {}", self.config)
    }

    /// Returns the command that repeats the check in Durward's pod.
    fn inside(&self) -> String {
        let Self { kubectl, home, .. } = self;
        format!("{kubectl} -n {home} exec deploy/durward -- durward doctor etcd")
    }

    /// Returns the fix for an etcd member that could not be read.
    fn member(&self, code: &str, namespace: &str, pod: &str) -> String {
        let kubectl = &self.kubectl;
        match code {
            cause::TLS => "check client.tls (ca.crt must be the CA of the members' certificates), client.serverName (a name in them), and whether they have expired".to_owned(),
            cause::CREDENTIALS => "check the Secrets of client.tls and client.auth: they exist, Durward can read them, and etcd knows the user (etcd 3.6 reports its status only to root)".to_owned(),
            cause::NOT_LISTENING => {
                format!("{kubectl} -n {namespace} logs {pod} --all-containers --tail 50; check that etcd serves clients on client.port of the pod's address (--listen-client-urls)")
            }
            cause::NOT_ETCD | cause::GARBAGE => {
                format!("check client.port, and which process listens there: {kubectl} -n {namespace} get pod {pod} -o yaml")
            }
            cause::UNREACHABLE | cause::TIMEOUT => {
                format!("{kubectl} -n {namespace} get pod {pod} -o wide; check network policies between Durward and client.port. From Durward's own pod: {}", self.inside())
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
    let unread = surveyed.unread.iter().map(|unread| unread_scope(unread, fixes));
    let empty = surveyed.empty.iter().map(|empty| empty_entry(empty, fixes));
    let overlaps = surveyed.overlaps.iter().map(overlap);
    let clusters = surveyed.clusters.iter().flat_map(|one| of_cluster(one, fixes));
    unread.chain(empty).chain(overlaps).chain(clusters).collect()
}

fn unread_scope(UnreadScope { namespace, why }: &UnreadScope, fixes: &Fixes) -> Finding {
    let (what, matters) = match namespace {
        Some(namespace) => (
            format!("cannot read namespace {namespace}: {}", why.text),
            "requests about its etcd pods are denied as unknown, unless onUnknown is allow",
        ),
        None => (
            format!("cannot list the namespaces of namespaceSelector: {}", why.text),
            "their etcd clusters are not shown here; Durward still guards them",
        ),
    };
    Finding::new(None, why.cause, what, matters, fixes.cluster(why.cause))
}

fn empty_entry(empty: &EmptyEntry, fixes: &Fixes) -> Finding {
    let EmptyEntry { entry, namespace, is_deleting, pods, etcd_pods } = empty;
    let kubectl = &fixes.kubectl;
    let what = match (is_deleting, pods) {
        (true, _) => format!("{entry}: namespace {namespace} does not exist or is being deleted"),
        (false, 0) => format!("{entry}: namespace {namespace} has no pods"),
        (false, 1) => format!("{entry} does not select the pod in namespace {namespace}"),
        (false, _) => format!("{entry} selects none of the {pods} pods in namespace {namespace}"),
    };
    let found = match etcd_pods.as_slice() {
        [] => String::new(),
        pods => format!(" these pods run etcd: {};", names(pods.iter().map(String::as_str))),
    };
    let fix =
        format!("check guards.etcd.{entry}.selector;{found} {kubectl} -n {namespace} get pods --show-labels");
    Finding::new(None, "no-pods", what, "this entry protects nothing", fix)
}

fn overlap(EntryOverlap { namespace, first, second, pods }: &EntryOverlap) -> Finding {
    let pods = names(pods.iter().map(String::as_str));
    let what = format!("{first} and {second} both select {pods} in namespace {namespace}");
    let why = format!("{first} applies to these pods; client and onLeaderDelete of {second} do not");
    let fix = format!("change guards.etcd.{first}.selector or {second}.selector: one entry per etcd cluster");
    Finding::new(None, "overlap", what, &why, fix)
}

/// Reports an installation in `kube-system`, where Durward could write the Lease of a scheduler.
pub(super) fn shared_namespace(namespace: &str) -> Option<Finding> {
    (namespace == "kube-system").then(|| {
        let what = "Durward runs in kube-system and can write the Leases there";
        let why = "the control plane elects its leaders by Leases of that namespace";
        Finding::new(None, "namespace", what, why, "install Durward in its own namespace (key namespace)")
    })
}

fn of_cluster(one: &ClusterReport, fixes: &Fixes) -> Vec<Finding> {
    let mut findings = Vec::new();
    findings.extend(quorum(one, fixes));
    findings.extend(unread_members(one, fixes));
    let finding =
        |code, what: String, why: &str, fix: String| Finding::new(Some(subject(one)), code, what, why, fix);
    // While the membership is unknown, no member is healthy. That is one finding.
    if let Some(why) = one.unknown_voters.as_ref().filter(|why| !one.members.iter().any(|m| is_same(m, why)))
    {
        findings.push(finding(
            "members",
            format!("its members are unknown: {}", why.text),
            "without them there is no quorum, so Durward denies deleting members that answer",
            format!(
                "run etcdctl member list on each member; {} -n {} get pods -o wide",
                fixes.kubectl, one.namespace
            ),
        ));
    }
    findings.extend(one.members.iter().filter_map(|member| of_member(one, member, fixes)));
    for change in &one.changes {
        findings.push(finding(
            "membership-change",
            format!("its membership is changing: {change}"),
            "such members do not vote, and Durward warns about deletions",
            "etcdctl member list; then etcdctl member promote or etcdctl member remove".to_owned(),
        ));
    }
    for note in &one.notes {
        findings.push(finding(
            "alarm",
            note.clone(),
            "etcd rejects writes, or its data is in doubt",
            "etcdctl alarm list; free space (compact, defrag, --quota-backend-bytes), then etcdctl alarm disarm".to_owned(),
        ));
    }
    if let Some(why) = &one.lease_error {
        findings.push(lease(Some(one), why, fixes));
    }
    findings
}

/// Reports annotations of overrides on pods and other guarded objects.
pub(super) fn leftover(one: &FoundLeftover, fixes: &Fixes) -> Finding {
    finding::leftover(None, one, |one, off| {
        format!("{} -n {} annotate {} {off}", fixes.kubectl, one.namespace, one.object())
    })
}

/// Reports that guarded objects could not be listed.
pub(super) fn unlisted(why: &Cause, fixes: &Fixes) -> Finding {
    let what = format!("cannot look for annotations of overrides: {}", why.text);
    let why_it_matters = "objects that can be deleted without a quorum check may be missing here";
    Finding::new(None, why.code, what, why_it_matters, fixes.cluster(why.code))
}

/// Reports that deletions can't be recorded in the Lease.
pub(super) fn lease(cluster: Option<&ClusterReport>, why: &ReportCause, fixes: &Fixes) -> Finding {
    let fix = match (why.cause, cluster.and_then(|one| one.lease.split_once('/'))) {
        (cause::FORBIDDEN, _) => fixes.apply(),
        (cause::NOT_RECORDED, _) => fixes.record(),
        (cause::GARBAGE | cause::NOT_RESERVED, Some((namespace, name))) => {
            format!(
                "{} -n {namespace} get lease {name} -o yaml; delete it while no etcd pod is being deleted",
                fixes.kubectl
            )
        }
        _ => fixes.cluster(why.cause),
    };
    Finding::new(
        cluster.map(subject),
        "lease",
        format!("Durward cannot record deletions in its Lease: {}", why.text),
        "Durward denies deleting healthy members, because parallel deletions would not see each other",
        fix,
    )
}

fn quorum(one: &ClusterReport, fixes: &Fixes) -> Option<Finding> {
    let what = match (one.is_leaderless, one.quorum) {
        (true, _) => "it has lost quorum: no member that answers knows a leader".to_owned(),
        (false, Some(quorum)) if one.healthy < quorum => {
            format!("only {} of its members are healthy, quorum is {quorum}", one.healthy)
        }
        _ => return None,
    };
    let why = "Durward denies deleting members that answer, and etcd may reject writes";
    let fix = format!("repair the other members: {} -n {} get pods -o wide", fixes.kubectl, one.namespace);
    Some(Finding::new(Some(subject(one)), "quorum", what, why, fix))
}

/// Reports members that could not be read. Members that fail for the same reason are one finding.
fn unread_members(one: &ClusterReport, fixes: &Fixes) -> Vec<Finding> {
    let mut by_cause: Vec<(&ReportCause, Vec<&str>)> = Vec::new();
    for member in &one.members {
        let Some(why) = &member.error else { continue };
        match by_cause.iter_mut().find(|(first, _)| first.cause == why.cause) {
            Some((_, pods)) => pods.push(&member.name),
            None => by_cause.push((why, vec![&member.name])),
        }
    }
    let report = by_cause.into_iter().map(|(why, pods)| {
        let what = match pods.as_slice() {
            [] | [_] => why.text.clone(),
            [_, others @ ..] => format!("{}; same for {}", why.text, names(others.iter().copied())),
        };
        let matters = match why.cause {
            cause::NOT_LISTENING => "etcd does not run there; its pod can be deleted",
            _ => "it counts neither as healthy nor as down; Durward denies deletions that depend on it",
        };
        let first = pods.first().copied().unwrap_or_default();
        let fix = fixes.member(why.cause, &one.namespace, first);
        Finding::new(Some(subject(one)), why.cause, what, matters, fix)
    });
    report.collect()
}

fn of_member(one: &ClusterReport, member: &MemberReport, fixes: &Fixes) -> Option<Finding> {
    let MemberReport { name, health, .. } = member;
    let (namespace, kubectl) = (&one.namespace, &fixes.kubectl);
    let (code, what, why, fix) = match member.state {
        "Unhealthy" if one.unknown_voters.is_none() && !one.is_leaderless => (
            "unhealthy",
            format!("{name} is {health}"),
            "it does not count towards quorum",
            format!(
                "{kubectl} -n {namespace} logs {name} --tail 50; etcdctl endpoint status --cluster -w table"
            ),
        ),
        "Corrupt" => (
            "corrupt",
            format!("{name} is {health}"),
            "its data differs from the other members, and it does not count towards quorum",
            format!(
                "etcdctl member remove, then add it again with empty data; {kubectl} -n {namespace} logs {name}"
            ),
        ),
        "NotMember" => (
            "not-member",
            format!("{name} is {health}"),
            if member.deletion.as_ref().is_some_and(|deletion| deletion.verdict == "allow") {
                "it does not count towards quorum, and its pod can be deleted"
            } else {
                "it may belong to another etcd cluster, so Durward denies deleting its pod"
            },
            format!(
                "if it belongs to another etcd cluster, change the selector; {kubectl} -n {namespace} get pod {name} --show-labels"
            ),
        ),
        "NoPod" => (
            "no-pod",
            format!("{name} is in etcd's member list, but no pod answers as this member"),
            "it counts towards the size of the quorum, but is down",
            "if the selector misses its pod, change the selector; if it is gone for good, run etcdctl member remove"
                .to_owned(),
        ),
        _ => return None,
    };
    Some(Finding::new(Some(subject(one)), code, what, why, fix))
}

/// Returns whether the failure of this member is the reason why the voters are unknown.
fn is_same(member: &MemberReport, why: &ReportCause) -> bool {
    member.error.as_ref().is_some_and(|error| error == why)
}

fn names<'n>(all: impl Iterator<Item = &'n str>) -> String {
    let all: Vec<&str> = all.collect();
    let shown = all.iter().take(SHOWN).copied().collect::<Vec<_>>().join(", ");
    if all.len() > SHOWN { format!("{shown} and {} more", all.len() - SHOWN) } else { shown }
}

fn subject(one: &ClusterReport) -> Subject {
    Subject::EtcdCluster(one.name.clone())
}
