//! The part `fleet`: checks every cluster with the reads that a deletion review uses, and reports what would deny the next deletion.
//!
//! Permissions are tested by reading. A `SelfSubjectAccessReview` through Karmada's proxy is a POST, which Durward isn't allowed to
//! send.

mod fixes;

use std::path::Path;
use std::time::{Instant, SystemTime};

use cluster::fleet::{Cluster, Fleet, FleetMember, LOCAL, ListQuery};
use cluster::{Reader, Resource, cause};
use console::exit::Stop;
use console::output::{ProgressLine, Style};
use futures_util::StreamExt as _;
use futures_util::stream;
use guards::deletion::{Survey, Validity};
use serde::Serialize;

use super::finding::{self, Finding, Subject};
use crate::args::ClusterArgs;
use crate::clients::fleet::{self, ANSWER_WITHIN, FleetContext};
use crate::clients::leftovers::{self, FoundLeftover};
use fixes::FleetFixes;

/// Clusters that are checked concurrently, as many as health probes do.
const CONCURRENT_CLUSTERS: usize = 32;

/// The fleet.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct FleetReport {
    /// All clusters that were checked.
    clusters: Vec<CheckedCluster>,
    /// Problems and fixes.
    pub(super) findings: Vec<Finding>,
    /// Whether the list of clusters could be read.
    #[serde(skip)]
    is_listed: bool,
    /// The name of the local cluster in the text.
    #[serde(skip)]
    local: &'static str,
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct CheckedCluster {
    cluster: String,
    /// Whether everything could be read.
    ready: bool,
}

/// Examines the fleet of this file, or the one that is detected.
pub(super) async fn examine(config: Option<&Path>, flags: &ClusterArgs) -> Result<FleetReport, Stop> {
    let context = fleet::open(config, flags).await?;
    Ok(examine_clusters(&context).await)
}

async fn examine_clusters(context: &FleetContext) -> FleetReport {
    let reader = context.clients.reader.as_ref();
    let fleet = context.survey.fleet();
    let listed = context.survey.members(&context.clients, Instant::now() + ANSWER_WITHIN).await;
    let members = listed.as_ref().map(|members| members.to_vec()).unwrap_or_default();
    let clusters = std::iter::once(Cluster::Local).chain(members.iter().map(|member| member.cluster.clone()));
    let resources = context.guard.requirements().listed;
    let total = members.len() + 1;
    let line = ProgressLine::stderr();
    let mut checks = stream::iter(clusters.enumerate().map(async |(index, cluster)| {
        let found = check_cluster(reader, &cluster, &resources, context).await;
        (index, cluster, found)
    }))
    .buffer_unordered(CONCURRENT_CLUSTERS);
    let mut checked = Vec::with_capacity(total);
    while let Some(one) = checks.next().await {
        checked.push(one);
        line.show(&format!("checked {} of {total} clusters", checked.len()));
    }
    drop(line);
    checked.sort_by_key(|(index, ..)| *index);
    // If the control plane does not answer, that is also the reason for the missing list.
    let is_unreachable =
        checked.first().is_some_and(|(_, _, found)| found.iter().any(|one| cause::is_of_cluster(one.code)));
    let fixes = FleetFixes::of(context);
    let mut findings: Vec<Finding> = match &listed {
        Err(why) if !is_unreachable => vec![Finding::new(
            None,
            cause::STALE_FLEET,
            &why.text,
            "Durward does not know the member clusters, so it denies every deletion; an acknowledgement does not help",
            fixes.list(),
        )],
        // This denies nothing, but a configured fleet has clusters.
        Ok(_) if members.is_empty() && *fleet != Fleet::None => vec![Finding::new(
            None,
            "no-clusters",
            "the fleet has no member clusters",
            "Durward checks only the control plane before a deletion",
            fixes.bare(),
        )],
        _ => Vec::new(),
    };
    let mut clusters = Vec::with_capacity(total);
    for (_, cluster, found) in checked {
        clusters.push(CheckedCluster { cluster: cluster.name().to_owned(), ready: found.is_empty() });
        findings.extend(found);
    }
    findings.extend(unreadable_groups(reader, &context.survey).await);
    findings.extend(unknown_fields(reader, &context.survey).await);
    findings.extend(overrides(context, &fixes).await);
    findings.extend(acknowledgements(&context.survey, &members, context.clients.context.now(), &fixes));
    FleetReport { clusters, findings, is_listed: listed.is_ok(), local: context.local_name() }
}

/// Reads one object of each kind from a cluster. Kinds that fail for the same reason are one finding.
async fn check_cluster(
    reader: &dyn Reader,
    of: &Cluster,
    resources: &[Resource],
    context: &FleetContext,
) -> Vec<Finding> {
    let mut found: Vec<(admission::Cause, Vec<String>)> = Vec::new();
    for resource in resources {
        let query = ListQuery { limit: 1, ..ListQuery::new(resource) };
        let Err(why) = reader.list(of, query, Instant::now() + ANSWER_WITHIN).await else { continue };
        // An unreachable cluster does not answer for the next kind either.
        if cause::is_of_cluster(why.code) {
            return vec![unreadable(of, &why, &[], context)];
        }
        match found.iter_mut().find(|(cause, _)| cause.code == why.code) {
            Some((_, kinds)) => kinds.push(resource.to_string()),
            None => found.push((why, vec![resource.to_string()])),
        }
    }
    found.iter().map(|(why, kinds)| unreadable(of, why, kinds, context)).collect()
}

fn unreadable(of: &Cluster, why: &admission::Cause, kinds: &[String], context: &FleetContext) -> Finding {
    let what = match kinds {
        [] | [_] => why.text.clone(),
        [_, others @ ..] => format!("{}; same for {}", why.text, others.join(", ")),
    };
    let matters = match why.code {
        cause::CREDENTIALS => {
            "it rejects the token: Durward denies deletions that reach it, and Karmada cannot reach it either"
        }
        cause::NO_ENDPOINT => {
            "Durward denies deletions that reach it until Karmada has its address and token, or it is acknowledged"
        }
        _ => "Durward cannot check it, so it denies deletions that reach it",
    };
    let fix = FleetFixes::of(context).cluster(of, why.code);
    Finding::new(Some(Subject::Cluster(of.name().to_owned())), why.code, what, matters, fix)
}

/// Reports API groups of local CRDs that the guard does not read. CRDs of member clusters are deleted there, and Karmada's own are
/// never read.
async fn unreadable_groups(reader: &dyn Reader, survey: &Survey) -> Option<Finding> {
    let mut groups = fleet::crd_groups(reader, survey).await.ok()?;
    groups.retain(|group| !survey.reads_group(group));
    if groups.is_empty() {
        return None;
    }
    let lines: Vec<_> = groups.iter().map(|group| format!("  - {group}")).collect();
    let what = match groups.as_slice() {
        [one] => {
            format!("API group {one} has CRDs and is not in guards.deletion.crds.apiGroups")
        }
        many => format!("{} API groups with CRDs are not in guards.deletion.crds.apiGroups", many.len()),
    };
    let fix = format!(
        "add these lines, then apply what `durward manifests` prints (apiGroups: [\"*\"] reads everything, also Secrets):\ncrds:\n  apiGroups:\n{}",
        lines.join("\n")
    );
    let why = "Durward cannot check whether these CRDs are in use, so it denies their deletion";
    Some(Finding::new(None, "groups", what, why, fix))
}

/// Reports fields that in-use rules read and that the CRD on the control plane does not have.
async fn unknown_fields(reader: &dyn Reader, survey: &Survey) -> Vec<Finding> {
    let mut findings = Vec::new();
    for resource in survey.custom_resources() {
        let unknown = fleet::with_crd(reader, &resource, |crd| {
            let version = crd.version(&resource.version).or_else(|| crd.stored());
            let schema = version.and_then(|version| version.schema.as_ref());
            schema.map(|schema| survey.unknown_fields(&resource, schema)).unwrap_or_default()
        });
        // A cluster that cannot be read is already a finding, and not every kind has a CRD here.
        for (rule, field) in unknown.await.unwrap_or_default() {
            let what = format!("the in-use rule {rule} reads {field}, which {resource} does not have");
            let why = "Durward finds no object that uses another by this field, so it can allow a deletion";
            findings.push(Finding::new(None, "unknown-field", what, why, format!("correct the rule {rule}")));
        }
    }
    findings
}

/// Reports namespaces and CRDs that still have annotations of overrides.
async fn overrides(context: &FleetContext, fixes: &FleetFixes<'_>) -> Vec<Finding> {
    let guarded = context.guard.requirements().guarded;
    let clients = &context.clients;
    // A failed list is already a finding of this cluster.
    let (found, _) = leftovers::find(&*clients.reader, &guarded, clients.context.now()).await;
    let fix = |one: &FoundLeftover, off: &str| fixes.annotate(&one.object(), off);
    found.iter().map(|one| finding::leftover(None, one, fix)).collect()
}

/// Reports acknowledgements that are invalid or expire soon.
fn acknowledgements(
    survey: &Survey,
    members: &[FleetMember],
    now: SystemTime,
    fixes: &FleetFixes<'_>,
) -> Vec<Finding> {
    let mut findings = Vec::new();
    for member in members {
        for one in survey.acknowledgements(member, now) {
            let name = &one.cluster;
            let (what, why) = match one.validity {
                Validity::Valid => continue,
                Validity::ExpiresSoon => (
                    format!("the acknowledgement expires within three days ({})", one.text),
                    "after that, Durward denies deletions that reach it while it does not answer",
                ),
                Validity::Invalid => (format!("acknowledgement ignored: {}", one.text), "it has no effect"),
            };
            let fix = if *survey.fleet() == Fleet::Karmada {
                let annotate = |annotations| fixes.annotate(&format!("cluster {name}"), annotations);
                format!(
                    "{}, or remove it: {}",
                    annotate("--overwrite durward.dev/acknowledge-until=<date>"),
                    annotate("durward.dev/acknowledge-unreachable- durward.dev/acknowledge-until-")
                )
            } else {
                "in guards.deletion.unreachableClusters: change until, or remove the entry".to_owned()
            };
            let subject = Some(Subject::Cluster(name.clone()));
            findings.push(Finding::new(subject, "acknowledgement", what, why, fix));
        }
    }
    // Without the list no name could be checked.
    if !members.is_empty() || *survey.fleet() == Fleet::None {
        for name in survey.unknown_acknowledged(members) {
            findings.push(Finding::new(
                Some(Subject::Cluster(name)),
                "acknowledgement",
                "is in guards.deletion.unreachableClusters and not in the fleet",
                "a new cluster with that name would be acknowledged from the start",
                "remove the entry from guards.deletion.unreachableClusters",
            ));
        }
    }
    findings
}

impl FleetReport {
    pub(super) fn text(&self, style: Style) -> String {
        let ready = self.clusters.iter().filter(|one| one.ready).count();
        let mut out = match self.clusters.len() {
            _ if !self.is_listed => "could not read the list of member clusters\n".to_owned(),
            1 => format!("Durward can check {ready} of 1 cluster\n"),
            all => format!("Durward can check {ready} of {all} clusters\n"),
        };
        let of_local = Some(Subject::Cluster(LOCAL.to_owned()));
        let renamed = |finding: &Finding| {
            let mut finding = finding.clone();
            if finding.subject == of_local {
                finding.subject = Some(Subject::Cluster(self.local.to_owned()));
            }
            finding
        };
        out.push_str(&finding::text(&self.findings.iter().map(renamed).collect::<Vec<_>>(), style));
        out
    }
}
