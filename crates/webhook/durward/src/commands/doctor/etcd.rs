//! The part `etcd`: reports problems of etcd clusters with the reads that a review uses, and the verdict for each pod.
//!
//! The codes of findings are a closed set. The causes of `cluster` mean that something could not be read. The others are:
//!
//! | code | problem |
//! |---|---|
//! | `quorum` | quorum is lost, or too few members count |
//! | `unhealthy`, `corrupt`, `not-member`, `no-pod` | a member, or a pod that is not one |
//! | `members` | the members are unknown |
//! | `membership-change` | the membership is changing |
//! | `alarm` | a member raised an alarm |
//! | `lease` | deletions can't be recorded |
//! | `no-pods`, `overlap` | an entry selects no pods, or pods of another entry |
//! | `namespace` | Durward shares its namespace with the control plane |
//! | `override`, `break-glass` | a guarded object has annotations of an override, or the break-glass annotation |

mod checks;

use std::time::Instant;

use cluster::cause;
use cluster::writer::Lease;
use console::exit::Stop;
use console::output::{self, ProgressLine, Style};
use futures_util::future::join_all;
use guards::etcd::{ClusterReport, MemberReport, ReportCause, SurveyReport};
use serde::Serialize;

use super::finding::{self, Finding};
use crate::args::ClusterArgs;
use crate::clients::etcd_context::{self, EtcdContext};
use crate::clients::fleet::{self, ANSWER_WITHIN};
use crate::clients::leftovers;
use crate::file::File;
use checks::Fixes;

/// With more etcd clusters than this, only those with problems are printed member by member.
const SHOWN_IN_FULL: usize = 3;

/// Concurrent dry-run writes of Leases.
const CONCURRENT_LEASES: usize = 16;

/// The etcd clusters.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct EtcdReport {
    /// All etcd clusters with their members.
    clusters: Vec<ClusterReport>,
    /// Problems and fixes.
    pub(super) findings: Vec<Finding>,
}

/// Examines the etcd clusters of this file.
pub(super) async fn examine(file: &File, flags: &ClusterArgs) -> Result<EtcdReport, Stop> {
    let context = &etcd_context::open(file, flags).await?;
    let line = ProgressLine::stderr();
    let progress = |done: usize, of: usize| line.show(&format!("{done} of {of} namespaces read"));
    let surveyed = context.survey.read(&context.clients, &progress).await;
    drop(line);
    let fixes = Fixes {
        kubectl: fleet::kubectl(&context.access),
        config: context.config.clone(),
        manifests: context.manifests.clone(),
        home: context.survey.home().to_owned(),
    };
    let mut findings = checks::all(&surveyed, &fixes);
    findings.extend(checks::shared_namespace(context.survey.home()));
    findings.extend(check_leases(context, &surveyed, &fixes).await);
    findings.extend(overrides(context, &fixes).await);
    Ok(EtcdReport { clusters: surveyed.clusters, findings })
}

/// Reports annotations of overrides. A snapshot contains only pods.
async fn overrides(context: &EtcdContext, fixes: &Fixes) -> Vec<Finding> {
    let EtcdContext { clients, guarded, .. } = context;
    let (found, failures) = leftovers::find(&*clients.reader, guarded, clients.context.now()).await;
    let found = found.iter().map(|one| checks::leftover(one, fixes));
    let failed = failures.iter().find(|why| why.code != cause::NOT_RECORDED);
    found.chain(failed.map(|why| checks::unlisted(why, fixes))).collect()
}

/// Checks by a dry run whether Leases can be written. A snapshot can't be checked. Leases that fail for the same reason are one
/// finding.
async fn check_leases(context: &EtcdContext, surveyed: &SurveyReport, fixes: &Fixes) -> Option<Finding> {
    let writer = context.writer.as_ref()?;
    // A Lease that could not be read is a finding already.
    let readable = surveyed.clusters.iter().filter(|one| one.lease_error.is_none());
    let mut leases: Vec<(&str, &str)> = readable.filter_map(|one| one.lease.split_once('/')).collect();
    leases.sort_unstable();
    leases.dedup();
    for some in leases.chunks(CONCURRENT_LEASES) {
        let tried = some.iter().map(async |(namespace, name)| {
            let lease = Lease { namespace: (*namespace).to_owned(), name: (*name).to_owned() };
            writer.can_write(&lease, Instant::now() + ANSWER_WITHIN).await.err()
        });
        if let Some(why) = join_all(tried).await.into_iter().flatten().next() {
            return Some(checks::lease(None, &ReportCause::from(&why), fixes));
        }
    }
    None
}

impl EtcdReport {
    pub(super) fn text(&self, style: Style) -> String {
        let is_healthy = |one: &&ClusterReport| one.members.iter().all(|member| member.state == "Healthy");
        let healthy = self.clusters.iter().filter(is_healthy).count();
        let mut out = match self.clusters.len() {
            0 => "no etcd cluster found\n".to_owned(),
            all => format!("etcd clusters with all members healthy: {healthy} of {all}\n"),
        };
        out.push_str(&finding::text(&self.findings, style));
        let is_shown_in_full = |one: &&ClusterReport| self.clusters.len() <= SHOWN_IN_FULL || !is_quiet(one);
        for one in self.clusters.iter().filter(is_shown_in_full) {
            out.push('\n');
            out.push_str(&cluster(one, style));
        }
        let quiet: Vec<&str> =
            self.clusters.iter().filter(|one| !is_shown_in_full(one)).map(|one| one.name.as_str()).collect();
        if !quiet.is_empty() {
            out.push_str("\nno problems (-o json shows details): ");
            out.push_str(&quiet.join(", "));
            out.push('\n');
        }
        out
    }
}

/// Returns whether all members are healthy and can be deleted.
fn is_quiet(one: &ClusterReport) -> bool {
    let deletion = |member: &MemberReport| member.deletion.as_ref().map(|deletion| deletion.verdict);
    one.members.iter().all(|member| member.state == "Healthy" && deletion(member) == Some("allow"))
}

fn cluster(one: &ClusterReport, style: Style) -> String {
    let quorum = match (one.voters, one.quorum) {
        (Some(voters), Some(quorum)) => format!("{} of {voters} healthy, quorum is {quorum}", one.healthy),
        _ => "voters unknown".to_owned(),
    };
    let mut lines = vec![format!("{}  {quorum}", style.bold(&one.name))];
    let width = one.members.iter().map(|member| member.name.chars().count()).max().unwrap_or_default();
    for member in &one.members {
        lines.push(row(member, width, style));
        if let Some(deletion) = &member.deletion {
            let verdict = match deletion.verdict {
                "allow" => style.green("can be deleted now"),
                "deny" => style.red("cannot be deleted now"),
                _ => style.yellow("could not check whether it can be deleted now"),
            };
            let why = if deletion.why.is_empty() { String::new() } else { format!(": {}", deletion.why) };
            lines.push(format!("    {verdict}{why}"));
            lines.extend(deletion.warnings.iter().map(|warning| format!("    {}", style.dim(warning))));
        }
    }
    output::lines(lines)
}

fn row(member: &MemberReport, width: usize, style: Style) -> String {
    let term = member.term.map(|term| format!("  term {term}")).unwrap_or_default();
    let lag = member.lag.map(|lag| format!("  {lag} behind")).unwrap_or_default();
    let health = match member.state {
        "Healthy" => style.green(&member.health),
        "Learner" | "Leaving" => style.yellow(&member.health),
        _ => style.red(&member.health),
    };
    format!("  {:width$}  {:8}{term}{lag}  {health}", member.name, member.role)
}
