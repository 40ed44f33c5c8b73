//! What is made of what was found. Pure: a survey in, findings out.

use cluster::cause;
use guards::etcd::{Empty, Ensemble, Member, Overlap, Surveyed, Unseen, Why};

use super::Found;

/// As many names as a person reads.
const SHOWN: usize = 10;

/// The commands that mend, as they can be typed.
pub(super) struct Mends {
    /// With the kubeconfig of the cluster that was looked at.
    pub(super) kubectl: String,
    /// The configuration file.
    pub(super) config: String,
    /// Where Durward runs.
    pub(super) home: String,
}

impl Mends {
    fn apply(&self) -> String {
        format!("durward manifests --config {} --only rbac | {} apply -f -", self.config, self.kubectl)
    }

    /// The same command once more.
    fn again(&self) -> String {
        format!("durward doctor etcd --config {} (again)", self.config)
    }

    fn record(&self) -> String {
        format!("record it: durward snapshot --out FOLDER --config {}", self.config)
    }

    /// The same from where reviews ask.
    fn inside(&self) -> String {
        let Self { kubectl, home, .. } = self;
        format!(
            "{kubectl} -n {home} exec deploy/durward -- durward doctor etcd --config /etc/durward/durward.yaml"
        )
    }

    /// What stands in the way of asking a member.
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

    /// What stands in the way of asking Kubernetes.
    fn cluster(&self, code: &str) -> String {
        match code {
            cause::FORBIDDEN => self.apply(),
            cause::NOT_RECORDED => self.record(),
            cause::BUSY | cause::CROWDED => self.again(),
            _ => format!("{} get --raw /version", self.kubectl),
        }
    }
}

/// Everything that is to be mended.
pub(super) fn all(surveyed: &Surveyed, mends: &Mends) -> Vec<Found> {
    let unseen = surveyed.unseen.iter().map(|unseen| unasked(unseen, mends));
    let empty = surveyed.empty.iter().map(|empty| chooses_nothing(empty, mends));
    let overlaps = surveyed.overlaps.iter().map(overlap);
    let ensembles = surveyed.ensembles.iter().flat_map(|one| of_ensemble(one, mends));
    unseen.chain(empty).chain(overlaps).chain(ensembles).collect()
}

fn unasked(Unseen { namespace, why }: &Unseen, mends: &Mends) -> Found {
    let (whose, matters) = match namespace {
        Some(namespace) => (
            format!("namespace {namespace}: {}", why.text),
            "a review that cannot ask this either is Unknown: members are not deleted, unless whenUnknown says allow",
        ),
        None => (
            format!("which namespaces have the labels of namespaceSelector is not known: {}", why.text),
            "what is in them is not shown here; reviews do not ask this, and guard it all the same",
        ),
    };
    Found::in_some(None, why.cause, whose, matters, mends.cluster(why.cause))
}

fn chooses_nothing(empty: &Empty, mends: &Mends) -> Found {
    let Empty { entry, namespace, is_going, pods, seem_members } = empty;
    let (kubectl, many) = (&mends.kubectl, if *pods == 1 { "1 pod" } else { "pods" });
    let what = match (is_going, pods) {
        (true, _) => format!("{entry}: namespace {namespace} is not there, or is being deleted"),
        (false, 0) => format!("{entry}: namespace {namespace} has no pods"),
        (false, _) => format!(
            "{entry} chooses none of the {}{many} in namespace {namespace}",
            if *pods == 1 { String::new() } else { format!("{pods} ") }
        ),
    };
    let mend = if seem_members.is_empty() {
        format!("guards.etcd.{entry}.selector, and {kubectl} -n {namespace} get pods --show-labels")
    } else {
        format!(
            "guards.etcd.{entry}.selector: these pods seem to run etcd: {}; {kubectl} -n {namespace} get pods --show-labels",
            names(seem_members.iter().map(String::as_str))
        )
    };
    Found::in_some(None, "no-pods", what, "nothing is guarded there", mend)
}

fn overlap(Overlap { namespace, first, second, pods }: &Overlap) -> Found {
    let pods = names(pods.iter().map(String::as_str));
    let what = format!("{first} and {second} both choose {pods} in namespace {namespace}");
    let why = "the first entry that chooses a pod counts; what the other one says of it (client, leader, membership) does not";
    let mend = format!("guards.etcd.{first}.selector and {second}.selector: one entry for each ensemble");
    Found::in_some(None, "overlap", what, why, mend)
}

/// That no ensemble can be in the namespaces that were asked for.
pub(super) fn nowhere(only: &[String]) -> Found {
    let what =
        format!("no entry of the configuration chooses namespace {}", names(only.iter().map(String::as_str)));
    let mend = "guards.etcd.ensembles: namespace, or the labels of namespaceSelector; without --namespace all are shown";
    Found::in_some(None, "no-pods", what, "nothing is guarded there", mend.to_owned())
}

/// Where Durward may write Leases, that of a scheduler must not be.
pub(super) fn shared(namespace: &str) -> Option<Found> {
    (namespace == "kube-system").then(|| {
        let what = "Durward is installed in kube-system and may write Leases there";
        let why = "the control plane's own leaders are elected by Leases of that namespace";
        let mend =
            "install it in a namespace of its own (installNamespace, server.registration.service.namespace)";
        Found::in_some(None, "namespace", what.to_owned(), why, mend.to_owned())
    })
}

fn of_ensemble(one: &Ensemble, mends: &Mends) -> Vec<Found> {
    let mut found = Vec::new();
    found.extend(quorum(one, mends));
    found.extend(silent(one, mends));
    let found_in =
        |code, what: String, why: &str, mend: String| Found::in_some(Some(&one.name), code, what, why, mend);
    // Where it is not clear what the ensemble is, no member of it is healthy, and that is one finding.
    if let Some(why) = one.unclear.as_ref().filter(|why| !one.members.iter().any(|m| is_same(m, why))) {
        found.push(found_in(
            "list",
            format!("who its members are is not known: {}", why.text),
            "no quorum can be counted, so members that answer are not deleted",
            format!(
                "etcdctl member list of each member; {} -n {} get pods -o wide",
                mends.kubectl, one.namespace
            ),
        ));
    }
    found.extend(one.members.iter().filter_map(|member| of_member(one, member, mends)));
    for change in &one.changes {
        found.push(found_in(
            "membership",
            format!("its membership is changing: {change}"),
            "members that do not vote yet are no help to a quorum, and a deletion meanwhile is warned of or refused (membershipChange)",
            "etcdctl member list; etcdctl member promote, or remove what was left behind".to_owned(),
        ));
    }
    for note in &one.notes {
        let (code, why, mend) = if one.by_metrics_only {
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
        found.push(found_in(code, note.clone(), why, mend.to_owned()));
    }
    if let Some(why) = &one.lease_unread {
        found.push(unnoted(Some(one), why, mends));
    }
    for member in &one.members {
        if let Some(value) = &member.left_open {
            found.push(found_in(
                "break-glass",
                format!("pod {} is annotated durward.dev/delete-anyway={value}", member.name),
                if *value == member.name {
                    "whoever has the verb break-glass deletes it, whatever becomes of the quorum"
                } else {
                    "it opens nothing, since it is not the pod's own name, and somebody meant it to"
                },
                format!(
                    "{} -n {} annotate pod {} durward.dev/delete-anyway-",
                    mends.kubectl, one.namespace, member.name
                ),
            ));
        }
    }
    found
}

/// That it cannot be noted who leaves.
pub(super) fn unnoted(ensemble: Option<&Ensemble>, why: &Why, mends: &Mends) -> Found {
    let mend = match (why.cause, ensemble.and_then(|one| one.lease.as_deref()?.split_once('/'))) {
        (cause::FORBIDDEN, _) => mends.apply(),
        (cause::NOT_RECORDED, _) => mends.record(),
        (cause::GARBAGE | cause::NOT_RESERVED, Some((namespace, name))) => {
            format!(
                "{} -n {namespace} get lease {name} -o yaml; while no pod leaves it may be deleted",
                mends.kubectl
            )
        }
        _ => mends.cluster(why.cause),
    };
    Found::in_some(
        ensemble.map(|one| one.name.as_str()),
        "lease",
        format!("it cannot be noted who leaves: {}", why.text),
        "no healthy member is deleted: of two at once nobody could tell the second one",
        mend,
    )
}

fn quorum(one: &Ensemble, mends: &Mends) -> Option<Found> {
    let what = match (one.is_lost, one.quorum) {
        (true, _) => "the quorum is lost: nobody who answers knows a leader".to_owned(),
        (false, Some(quorum)) if one.healthy < quorum => {
            format!("{} of its members can be counted on, and {quorum} are a quorum", one.healthy)
        }
        _ => return None,
    };
    let why = "no member that answers is deleted, and etcd itself may take no writes";
    let mend = format!(
        "bring the others up: {} -n {} get pods -o wide; what is said of each stands below",
        mends.kubectl, one.namespace
    );
    Some(Found::in_some(Some(&one.name), "quorum", what, why, mend))
}

/// Members that could not be asked: what fails for the same reason is one finding.
fn silent(one: &Ensemble, mends: &Mends) -> Vec<Found> {
    let mut by_cause: Vec<(&Why, Vec<&str>)> = Vec::new();
    for member in &one.members {
        let Some(why) = &member.unseen else { continue };
        match by_cause.iter_mut().find(|(first, _)| first.cause == why.cause) {
            Some((_, pods)) => pods.push(&member.name),
            None => by_cause.push((why, vec![&member.name])),
        }
    }
    let told = by_cause.into_iter().map(|(why, pods)| {
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
        Found::in_some(
            Some(&one.name),
            why.cause,
            what,
            matters,
            mends.member(why.cause, &one.namespace, first),
        )
    });
    told.collect()
}

fn of_member(one: &Ensemble, member: &Member, mends: &Mends) -> Option<Found> {
    let Member { name, health, .. } = member;
    let (namespace, kubectl) = (&one.namespace, &mends.kubectl);
    let (code, what, why, mend) = match member.state {
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
    Some(Found::in_some(Some(&one.name), code, what, why, mend))
}

/// Whether that a member does not answer is why nobody knows who votes.
fn is_same(member: &Member, why: &Why) -> bool {
    member.unseen.as_ref().is_some_and(|unseen| unseen == why)
}

fn names<'n>(all: impl Iterator<Item = &'n str>) -> String {
    let all: Vec<&str> = all.collect();
    let shown = all.iter().take(SHOWN).copied().collect::<Vec<_>>().join(", ");
    if all.len() > SHOWN { format!("{shown} and {} more", all.len() - SHOWN) } else { shown }
}
