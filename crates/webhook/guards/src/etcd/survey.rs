//! Reads all configured etcd clusters, for `doctor etcd` and `snapshot`.
//!
//! It sends the same requests as a review, and reports for each pod what a dry run of its deletion by a user would get. It changes
//! nothing. Failed reads are reported with their cause.

mod report;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use admission::{Cause, Ruling, Verdict};
use futures_util::future::{join, join_all};
use tokio::time::Instant;

use super::config::{Config, EtcdClusterConfig, NamespaceMatch};
use super::facts::{FactReader, Facts};
use super::group::{self, Group};
use super::kube_reader::{KubeReader, Namespace, PODS, read_pods};
use super::kube_state::KubeState;
use super::member::Member;
use super::messages;
use super::owners::Owners;
use super::pod::Pod;
use super::removal::{Removal, RemovalKind};
use super::review::Review;
use super::table::{MemberState, Row, Table};
use ::config::SelectorExt as _;
use cluster::fleet::Part;
use cluster::writer::Lease;
use cluster::{Clients, Resource};

pub use report::{
    ClusterReport, DeletionReport, EmptyEntry, EntryOverlap, MemberReport, ReportCause, SurveyReport,
    UnreadScope,
};

/// Time for the reads of one namespace. A user waits longer than an API server.
const TIMEOUT: Duration = Duration::from_secs(10);

/// Namespaces that are read at the same time.
const PARALLEL_NAMESPACES: usize = 16;

/// Reads all configured etcd clusters.
pub struct Survey {
    config: Arc<Config>,
}

/// An etcd cluster: its entry, its group, and the uids of the pods that the entry decides about.
struct FoundCluster<'c> {
    entry: &'c EtcdClusterConfig,
    group: Group,
    own: Vec<String>,
}

impl Survey {
    pub(super) fn new(config: Arc<Config>) -> Self {
        Self { config }
    }

    /// Returns the namespace of Durward.
    pub fn home(&self) -> &str {
        &self.config.common_config.namespace
    }

    /// Reads all etcd clusters. `progress` gets the number of namespaces read and their total.
    pub async fn read(&self, clients: &Clients, progress: &(dyn Fn(usize, usize) + Sync)) -> SurveyReport {
        let mut report = SurveyReport::default();
        let (names, error) = self.namespaces(clients).await;
        report.unread.extend(error.map(|why| UnreadScope { namespace: None, why: ReportCause::from(&why) }));
        for (at, some) in names.chunks(PARALLEL_NAMESPACES).enumerate() {
            progress(at * PARALLEL_NAMESPACES, names.len());
            let reports = join_all(some.iter().map(|name| self.namespace(clients, name))).await;
            for (name, read) in some.iter().zip(reports) {
                match read {
                    Ok(read) => {
                        report.clusters.extend(read.clusters);
                        report.empty.extend(read.empty);
                        report.overlaps.extend(read.overlaps);
                    }
                    Err(why) => {
                        let why = ReportCause::from(&why);
                        report.unread.push(UnreadScope { namespace: Some(name.clone()), why });
                    }
                }
            }
        }
        report
    }

    /// Returns the sorted names of all namespaces with etcd clusters, and why some are unknown.
    async fn namespaces(&self, clients: &Clients) -> (Vec<String>, Option<Cause>) {
        let mut names: Vec<String> = Vec::new();
        let mut selectors = Vec::new();
        for entry in &self.config.clusters {
            match &entry.namespaces {
                NamespaceMatch::Named(name) => names.push(name.clone()),
                NamespaceMatch::Labeled(selector) => selectors.push(selector),
            }
        }
        let mut error = None;
        if !selectors.is_empty() {
            match kube(clients).list(&Resource::NAMESPACES, "", Part::Metadata).await {
                Ok(all) => names.extend(all.into_iter().filter_map(|object| {
                    let is_selected = selectors.iter().any(|one| one.matches(&object.metadata.labels));
                    is_selected.then_some(object.name)
                })),
                Err(why) => error = Some(why),
            }
        }
        names.sort_unstable();
        names.dedup();
        names.retain(|name| name != self.home());
        (names, error)
    }

    async fn namespace(&self, clients: &Clients, name: &str) -> Result<SurveyReport, Cause> {
        let kube = kube(clients);
        let (namespace, objects) = join(kube.namespace(name), kube.list(&PODS, name, Part::Whole)).await;
        let (namespace, objects) = (namespace?, objects?);
        let stored = read_pods(&objects)?;
        let pods: Vec<Pod> = stored.iter().map(|pod| Pod::of(pod, 0)).collect();
        let mut overlaps = BTreeMap::new();
        let found = self.find(&namespace, &pods, &mut overlaps);
        // An entry whose pods all belong to an earlier entry is reported as an overlap, not as empty.
        let is_empty = |at: usize, entry: &EtcdClusterConfig| {
            entry.namespaces.matches(name, &namespace.labels)
                && !found.iter().any(|found| std::ptr::eq(found.entry, entry))
                && !overlaps.keys().any(|(_, second)| *second == at)
        };
        let empty = self.config.clusters.iter().enumerate().filter(|(at, entry)| is_empty(*at, entry));
        let empty = empty.map(|(at, _)| EmptyEntry {
            entry: entry_name(at),
            namespace: name.to_owned(),
            is_deleting: namespace.is_deleting,
            pods: pods.len(),
            etcd_pods: pods.iter().filter(|pod| pod.runs_etcd).map(|pod| pod.name.clone()).collect(),
        });
        let mut report = SurveyReport { empty: empty.collect(), ..SurveyReport::default() };
        report.overlaps = overlaps
            .into_iter()
            .map(|((first, second), pods)| EntryOverlap {
                namespace: name.to_owned(),
                first: entry_name(first),
                second: entry_name(second),
                pods,
            })
            .collect();
        for found in &found {
            // The port may identify the container of etcd.
            let pods = stored.iter().map(|pod| Pod::of(pod, found.entry.port)).collect();
            let pods = found.group.select(found.entry, pods, "");
            report.clusters.push(self.cluster(clients, &namespace, found, pods).await);
        }
        report.clusters.sort_by(|a, b| a.name.cmp(&b.name));
        Ok(report)
    }

    /// Finds the etcd clusters of a namespace as a review would: the first entry that selects a pod counts. `overlaps` gets the pods
    /// that two entries select.
    fn find(
        &self,
        namespace: &Namespace,
        pods: &[Pod],
        overlaps: &mut BTreeMap<(usize, usize), Vec<String>>,
    ) -> Vec<FoundCluster<'_>> {
        let position = |entry: &EtcdClusterConfig| {
            self.config.clusters.iter().position(|one| std::ptr::eq(one, entry)).unwrap_or_default()
        };
        let mut all: Vec<FoundCluster<'_>> = Vec::new();
        for pod in pods.iter().filter(|pod| !pod.has_ended()) {
            let mut entries = group::entries(&self.config, &pod.namespace, &pod.labels)
                .filter(|entry| entry.namespaces.matches(&pod.namespace, &namespace.labels));
            let Some(entry) = entries.next() else { continue };
            for other in entries {
                overlaps.entry((position(entry), position(other))).or_default().push(pod.name.clone());
            }
            let group = Group::of(entry, pod);
            match all.iter_mut().find(|found| found.group == group) {
                Some(found) => found.own.push(pod.uid.clone()),
                None => all.push(FoundCluster { entry, group, own: vec![pod.uid.clone()] }),
            }
        }
        all
    }

    async fn cluster(
        &self,
        clients: &Clients,
        namespace: &Namespace,
        FoundCluster { entry, group, own }: &FoundCluster<'_>,
        pods: Vec<Pod>,
    ) -> ClusterReport {
        let kube = kube(clients);
        let lease = group.lease(self.home());
        let first = pods.first().cloned().unwrap_or_default();
        let nodes = join_all(pods.iter().map(|pod| kube.has_node(&pod.node)));
        let owner = Owners::read_one(kube, entry, &first);
        let (owner, (nodes, stored)) = join(owner, join(nodes, kube.lease(&lease))).await;
        let owners = Owners::read(kube, entry, group, (&first, owner), Some(&pods)).await;
        let state = KubeState::of_pods(clients.context.now(), namespace.clone(), pods.clone());
        let state = KubeState { owners, lease: stored, ..state };
        let facts = FactReader { clients, config: &self.config, group, end: Instant::now() + TIMEOUT };
        let facts = facts.about("", &state).await;
        let table = Table::of(&facts);
        let mut members = Vec::new();
        for row in &table.rows {
            let found = pods.iter().zip(&nodes).find(|(pod, _)| pod.uid == row.uid);
            let deletion = match found.filter(|(pod, _)| own.contains(&pod.uid)) {
                None => None,
                Some((pod, has_node)) => {
                    let member =
                        Member { pod: pod.clone(), entry, group: group.clone(), lease: lease.clone() };
                    let state = KubeState { has_node: has_node.clone(), ..state.clone() };
                    Some(deletion(&self.review(clients, member, state, &facts).await))
                }
            };
            members.push(member_report(&table, row, deletion));
        }
        let Lease { namespace, name } = &lease;
        let voters = table.voters.as_ref().ok().copied();
        ClusterReport {
            name: table.cluster.clone(),
            namespace: first.namespace.clone(),
            voters,
            quorum: voters.map(|voters| voters / 2 + 1),
            healthy: table.healthy_without(""),
            is_leaderless: table.is_leaderless,
            unknown_voters: table.voters.as_ref().err().map(ReportCause::from),
            members,
            changes: table.changes.iter().map(messages::change).collect(),
            notes: table.notes.iter().map(messages::note).collect(),
            lease: format!("{namespace}/{name}"),
            lease_error: facts.reservation_error.as_ref().map(ReportCause::from),
        }
    }

    /// Returns the ruling on a dry run by a user.
    async fn review(&self, clients: &Clients, member: Member<'_>, state: KubeState, facts: &Facts) -> Ruling {
        let pod = &member.pod;
        let removal = Removal {
            kind: RemovalKind::Delete,
            namespace: pod.namespace.clone(),
            name: pod.name.clone(),
            grace: None,
            dry_run: true,
            by_controller: false,
            by_kubelet: false,
            only_uid: None,
            pod: None,
        };
        let review = Review::new(&self.config, clients, &removal, Instant::now() + TIMEOUT);
        messages::ruling(&review.review_read(member, state, facts).await)
    }
}

fn kube(clients: &Clients) -> KubeReader<'_> {
    KubeReader { clients, end: Instant::now() + TIMEOUT }
}

fn entry_name(at: usize) -> String {
    format!("clusters[{at}]")
}

fn member_report(table: &Table, row: &Row, deletion: Option<DeletionReport>) -> MemberReport {
    MemberReport {
        name: row.name.clone(),
        role: messages::role(table, row),
        state: messages::state_name(&row.state),
        health: messages::health(row),
        error: match &row.state {
            MemberState::NoResponse(why) => Some(ReportCause::from(why)),
            _ => None,
        },
        term: row.term,
        lag: row.lag,
        deletion,
    }
}

fn deletion(ruling: &Ruling) -> DeletionReport {
    let audited = |key: &str| {
        let found = ruling.audit.iter().find(|(own, _)| *own == key);
        found.map(|(_, value)| value.to_owned()).unwrap_or_default()
    };
    let (verdict, why) = match &ruling.verdict {
        Verdict::Allow | Verdict::Mutate(_) => ("allow", audited("allowed")),
        Verdict::Deny(_) => ("deny", audited("denied")),
        Verdict::Unknown(causes) => {
            let texts: Vec<&str> = causes.iter().map(|cause| cause.text.as_str()).collect();
            ("unknown", texts.join("; "))
        }
    };
    DeletionReport { verdict, why, warnings: ruling.warnings.iter().map(str::to_owned).collect() }
}
