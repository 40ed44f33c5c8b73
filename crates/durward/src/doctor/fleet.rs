//! `doctor fleet`: every cluster by the very questions that a deletion asks of it, and what stands in the way of the next one.
//!
//! A permission is tried, not looked up: a `SelfSubjectAccessReview` through Karmada's proxy is a POST, which Durward may not.

mod mend;

use crate::args::ClusterArgs;
use std::path::PathBuf;
use std::time::{Instant, SystemTime};

use cluster::fleet::{Cluster, Fleet, FleetMember, ListQuery, Object, Part};
use cluster::snapshot::LOCAL;
use cluster::{Reader, Resource, cause};
use futures_util::StreamExt as _;
use futures_util::stream;
use guards::deletion::{Holds, Survey};
use serde::Serialize;

use super::finding::Finding;
use crate::args::Format;
use crate::exit::{Exit, Outcome};
use crate::fleet::{self, ANSWER_WITHIN, Eyes, Subject, all_pages};
use crate::output::{self, ProgressLine, Style};
use crate::review::runtime;
use mend::Mends;

/// `doctor fleet`
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// The configuration file: whose fleet, groups and acknowledgements are looked at
    #[arg(long, short, value_name = "FILE")]
    pub(crate) config: Option<PathBuf>,
    #[command(flatten)]
    pub(crate) world: ClusterArgs,
    /// Text for people or JSON for programs
    #[arg(long, short, value_enum, default_value_t, value_name = "FORMAT")]
    pub(crate) output: Format,
}

/// Clusters that are asked at once: as many as rounds do.
const AT_ONCE: usize = 32;

/// What the command tells programs.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct Told {
    /// Every cluster that was asked, and whether all of it could be read.
    clusters: Vec<Asked>,
    /// What is to be mended.
    findings: Vec<Finding>,
    /// Whether these are all clusters.
    #[serde(skip)]
    is_listed: bool,
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct Asked {
    cluster: String,
    ready: bool,
}

/// `doctor fleet`
pub(super) fn run(args: &Args) -> Outcome {
    runtime()?.block_on(async {
        let eyes = fleet::open(args.config.as_deref(), &args.world).await?;
        let told = look(&eyes).await;
        match args.output {
            Format::Json => output::json(&told)?,
            Format::Text => output::data(&text(&told, eyes.here(), Style::stdout()))?,
        }
        Ok(if told.findings.is_empty() { Exit::Done } else { Exit::No })
    })
}

async fn look(eyes: &Eyes) -> Told {
    let reader = eyes.clients.reader.as_ref();
    let fleet = eyes.survey.fleet();
    let listed = reader.members(fleet, Instant::now() + ANSWER_WITHIN).await;
    let members = listed.as_ref().map(|members| members.to_vec()).unwrap_or_default();
    let whom = std::iter::once(Cluster::Local).chain(members.iter().map(|member| member.cluster.clone()));
    let resources = eyes.guard.requirements().probes.map(|probes| probes.resources).unwrap_or_default();
    let of = members.len() + 1;
    let line = ProgressLine::new();
    let mut asked = stream::iter(whom.enumerate().map(async |(at, cluster)| {
        let found = visit(reader, &cluster, &resources, eyes).await;
        (at, cluster, found)
    }))
    .buffer_unordered(AT_ONCE);
    let mut visited = Vec::with_capacity(of);
    while let Some(one) = asked.next().await {
        visited.push(one);
        line.show(&format!("{} of {of} clusters have answered", visited.len()));
    }
    drop(line);
    visited.sort_by_key(|(at, ..)| *at);
    // Where the control plane itself gives no answer, that is why there is no list.
    let is_away =
        visited.first().is_some_and(|(_, _, found)| found.iter().any(|one| is_of_cluster(one.code)));
    let mends = Mends::of(eyes);
    let mut findings: Vec<Finding> = match &listed {
        Err(why) if !is_away => vec![unlisted(&why.text, &mends)],
        Ok(_) if members.is_empty() && *fleet != Fleet::None => vec![bare(&mends)],
        _ => Vec::new(),
    };
    let mut clusters = Vec::with_capacity(of);
    for (_, cluster, found) in visited {
        clusters.push(Asked { cluster: cluster.name().to_owned(), ready: found.is_empty() });
        findings.extend(found);
    }
    findings.extend(definitions(reader, &eyes.survey).await);
    findings.extend(left_open(reader, &mends).await);
    findings.extend(acknowledgements(&eyes.survey, &members, eyes.clients.context.now(), &mends));
    Told { clusters, findings, is_listed: listed.is_ok() }
}

fn unlisted(text: &str, mends: &Mends<'_>) -> Finding {
    Finding {
        cluster: None,
        code: cause::STALE_FLEET,
        what: text.to_owned(),
        why: "nobody knows whom to ask, so every deletion is refused, and no acknowledgement helps"
            .to_owned(),
        mend: mends.list(),
    }
}

/// Nothing is refused for that; but whoever configured a fleet has one.
fn bare(mends: &Mends<'_>) -> Finding {
    Finding {
        cluster: None,
        code: "no-clusters",
        what: "the fleet has no clusters".to_owned(),
        why: "a deletion is judged by what is in use here alone".to_owned(),
        mend: mends.bare(),
    }
}

/// One cluster by one object of each kind; what fails for the same reason is one finding.
async fn visit(reader: &dyn Reader, of: &Cluster, resources: &[Resource], eyes: &Eyes) -> Vec<Finding> {
    let mut found: Vec<(admission::Cause, Vec<String>)> = Vec::new();
    for resource in resources {
        let query = ListQuery {
            resource,
            namespace: "",
            field_selector: "",
            part: Part::Metadata,
            limit: 1,
            continue_token: None,
        };
        let Err(why) = reader.list(of, query, Instant::now() + ANSWER_WITHIN).await else { continue };
        // A cluster that is not there is not there for the next kind either.
        if is_of_cluster(why.code) {
            return vec![finding(of, &why, &[], eyes)];
        }
        match found.iter_mut().find(|(cause, _)| cause.code == why.code) {
            Some((_, kinds)) => kinds.push(resource.to_string()),
            None => found.push((why, vec![resource.to_string()])),
        }
    }
    found.iter().map(|(why, kinds)| finding(of, why, kinds, eyes)).collect()
}

fn is_of_cluster(code: &str) -> bool {
    matches!(
        code,
        cause::UNREACHABLE | cause::TIMEOUT | cause::CREDENTIALS | cause::NO_ENDPOINT | cause::VANISHED
    )
}

fn finding(of: &Cluster, why: &admission::Cause, kinds: &[String], eyes: &Eyes) -> Finding {
    let name = of.name();
    let what = match kinds {
        [] | [_] => why.text.clone(),
        [_, others @ ..] => format!("{}; and the same for {}", why.text, others.join(", ")),
    };
    let refused = "it is unknown what it holds, so deletions that reach it are refused";
    let matters = match why.code {
        cause::CREDENTIALS => {
            "it refuses the token that it is asked with: a deletion that reaches it is refused, and Karmada cannot reach it either"
        }
        cause::NO_ENDPOINT => {
            "nobody can ask it, so deletions that reach it are refused until Karmada has its address and its token, or it is acknowledged"
        }
        _ => refused,
    };
    let mend = Mends::of(eyes).cluster(of, why.code);
    Finding { cluster: Some(name.to_owned()), code: why.code, what, why: matters.to_owned(), mend }
}

/// Definitions here whose objects may not be read. Those in members alone are deleted there, and not here; Karmada's own are
/// never looked into.
async fn definitions(reader: &dyn Reader, survey: &Survey) -> Option<Finding> {
    let objects = all_pages(reader, &Cluster::Local, &Subject::Definition.resource()).await.ok()?;
    let is_karmadas = |group: &str| {
        *survey.fleet() == Fleet::Karmada && (group == "karmada.io" || group.ends_with(".karmada.io"))
    };
    let mut groups: Vec<&str> =
        objects.iter().filter_map(|object| object.name.split_once('.').map(|(_, group)| group)).collect();
    groups.sort_unstable();
    groups.dedup();
    groups.retain(|group| !survey.reads_group(group) && !is_karmadas(group));
    if groups.is_empty() {
        return None;
    }
    let lines: Vec<_> = groups.iter().map(|group| format!("  - {group}")).collect();
    Some(Finding {
        cluster: None,
        code: "groups",
        what: match groups.as_slice() {
            [one] => format!(
                "the group {one} has CustomResourceDefinitions and is not in guards.deletion.crds.groups"
            ),
            many => format!(
                "{} groups with CustomResourceDefinitions are not in guards.deletion.crds.groups",
                many.len()
            ),
        },
        why: "whether objects of them are in use is unknown, so their definitions cannot be deleted"
            .to_owned(),
        mend: format!(
            "add these lines, and apply what durward manifests prints then (groups: [\"*\"] reads everything, Secrets too):\ncrds:\n  groups:\n{}",
            lines.join("\n")
        ),
    })
}

/// Namespaces and definitions here on which the way through in spite of all was left open.
async fn left_open(reader: &dyn Reader, mends: &Mends<'_>) -> Vec<Finding> {
    let mut findings = Vec::new();
    for (subject, word) in [(Subject::Namespace, "ns"), (Subject::Definition, "crd")] {
        // What cannot be listed is among the findings of this cluster already.
        let objects: Vec<Object> =
            all_pages(reader, &Cluster::Local, &subject.resource()).await.unwrap_or_default();
        for object in objects.iter().filter(|object| !object.metadata.deleting) {
            let Some(deed) = Survey::deed(&object.metadata) else { continue };
            let name = &object.name;
            let off: Vec<_> = deed.annotations.iter().map(|key| format!("{key}-")).collect();
            findings.push(Finding {
                cluster: None,
                code: "break-glass",
                what: format!("{word}/{name} is annotated durward.dev/delete-anyway={}", deed.value),
                why: if deed.value == *name && deed.annotations.len() > 1 {
                    "whoever has the verb break-glass deletes it, whatever is in use; and with a reason and an end that holds, whoever may delete it"
                        .to_owned()
                } else if deed.value == *name {
                    "whoever has the verb break-glass deletes it, whatever is in use".to_owned()
                } else {
                    "it opens nothing, since it is not the object's own name, and somebody meant it to"
                        .to_owned()
                },
                mend: mends.annotate(&format!("{word} {name}"), &off.join(" ")),
            });
        }
    }
    findings
}

/// Acknowledgements that do not hold, or not for long.
fn acknowledgements(
    survey: &Survey,
    members: &[FleetMember],
    now: SystemTime,
    mends: &Mends<'_>,
) -> Vec<Finding> {
    let mut findings = Vec::new();
    for member in members {
        for one in survey.acknowledgements(member, now) {
            let name = &one.cluster;
            let (what, why) = match one.holds {
                Holds::Yes => continue,
                Holds::Soon => (
                    format!("the acknowledgement {} ends within three days ({})", one.by, one.text),
                    "from then on deletions that reach it are refused while it does not answer",
                ),
                Holds::No => (one.text, "it does not count"),
            };
            let mend = if one.by == "on its Cluster" {
                let annotate = |annotations| mends.annotate(&format!("cluster {name}"), annotations);
                format!(
                    "{}, or take it off: {}",
                    annotate("--overwrite durward.dev/acknowledge-until=<RFC 3339>"),
                    annotate("durward.dev/acknowledge-unreachable- durward.dev/acknowledge-until-")
                )
            } else {
                "guards.deletion.acknowledge in the configuration: another end, or take the entry out"
                    .to_owned()
            };
            findings.push(Finding {
                cluster: Some(name.clone()),
                code: "acknowledgement",
                what,
                why: why.to_owned(),
                mend,
            });
        }
    }
    // Without the list every name would be a stranger's.
    if !members.is_empty() || *survey.fleet() == Fleet::None {
        for name in survey.acknowledged_strangers(members) {
            findings.push(Finding {
                cluster: Some(name),
                code: "acknowledgement",
                what: "is acknowledged in the configuration and is not in the fleet".to_owned(),
                why: "a cluster of that name that joins would be acknowledged unseen".to_owned(),
                mend: "take the entry out of guards.deletion.acknowledge".to_owned(),
            });
        }
    }
    findings
}

/// For people, who call the cluster that asks `here`.
fn text(told: &Told, here: &str, style: Style) -> String {
    let ready = told.clusters.iter().filter(|one| one.ready).count();
    let mut out = match told.clusters.len() {
        _ if !told.is_listed => "which clusters there are could not be read\n".to_owned(),
        1 => format!("{ready} of 1 cluster can be read as guards need\n"),
        all => format!("{ready} of {all} clusters can be read as guards need\n"),
    };
    // A member may be called like it; then it is left as it is.
    let is_here = told.clusters.iter().filter(|one| one.cluster == LOCAL).count() == 1;
    for finding in &told.findings {
        let of_here = is_here && finding.cluster.as_deref() == Some(LOCAL);
        let cluster = if of_here { Some(here.to_owned()) } else { finding.cluster.clone() };
        out.push('\n');
        out.push_str(&Finding { cluster, ..finding.clone() }.text(style));
    }
    if told.findings.is_empty() {
        out.push_str(&style.green("nothing to mend\n"));
    }
    out
}
