//! `doctor fleet`: every cluster by the very questions that a deletion asks of it, and what stands in the way of the next one.
//!
//! A permission is tried, not looked up: a `SelfSubjectAccessReview` through Karmada's proxy is a POST, which Durward may not.

use std::time::Instant;

use futures_util::StreamExt as _;
use futures_util::stream;
use guards::deletion::{Holds, Survey};
use guards::world::fleet::{Cluster, Fleet, Member, Object, Part, Query};
use guards::world::{Resource, World, cause};
use serde::Serialize;

use super::finding::Finding;
use crate::cli::{DoctorFleet, Format};
use crate::exit::{Exit, Outcome};
use crate::fleet::{self, ANSWER_WITHIN, Eyes, Subject, all_pages};
use crate::output::{self, Live, Style};
use crate::review::runtime;

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
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct Asked {
    cluster: String,
    ready: bool,
}

/// `doctor fleet`
pub(super) fn run(args: &DoctorFleet) -> Outcome {
    runtime()?.block_on(async {
        let eyes = fleet::open(args.config.as_deref(), &args.world).await?;
        let told = look(&eyes).await;
        match args.output {
            Format::Json => output::json(&told)?,
            Format::Text => output::data(&text(&told, Style::of_stdout()))?,
        }
        Ok(if told.findings.is_empty() { Exit::Done } else { Exit::No })
    })
}

async fn look(eyes: &Eyes) -> Told {
    let world = eyes.world.as_ref();
    let fleet = eyes.survey.fleet();
    let mut findings = Vec::new();
    let members = match world.members(fleet, Instant::now() + ANSWER_WITHIN).await {
        Ok(members) => members.to_vec(),
        Err(why) => {
            findings.push(unlisted(&why.text, eyes));
            Vec::new()
        }
    };
    let whom = std::iter::once(Cluster::Here).chain(members.iter().map(|member| member.cluster.clone()));
    let resources = eyes.guard.rounds().map(|rounds| rounds.resources).unwrap_or_default();
    let of = members.len() + 1;
    let line = Live::on_terminal();
    let mut asked = stream::iter(whom.enumerate().map(async |(at, cluster)| {
        let found = visit(world, &cluster, &resources, eyes).await;
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
    let mut clusters = Vec::with_capacity(of);
    for (_, cluster, found) in visited {
        clusters.push(Asked { cluster: cluster.name().to_owned(), ready: found.is_empty() });
        findings.extend(found);
    }
    findings.extend(definitions(world, &eyes.survey).await);
    findings.extend(left_open(world).await);
    findings.extend(acknowledgements(&eyes.survey, &members, world, fleet));
    Told { clusters, findings }
}

fn unlisted(text: &str, eyes: &Eyes) -> Finding {
    Finding {
        cluster: None,
        code: cause::STALE_FLEET,
        what: text.to_owned(),
        why: "nobody knows whom to ask, so every deletion is refused, and no acknowledgement helps".to_owned(),
        mend: match eyes.survey.fleet() {
            Fleet::Karmada => "kubectl get --raw /apis/cluster.karmada.io/v1alpha1/clusters (and see karmada-aggregated-apiserver)".to_owned(),
            Fleet::Contexts(_) => "kubectl config get-contexts".to_owned(),
            Fleet::Alone | Fleet::Secrets { .. } => format!("{} | kubectl apply -f -", manifests(eyes, "")),
        },
    }
}

/// One cluster by one object of each kind; what fails for the same reason is one finding.
async fn visit(world: &dyn World, of: &Cluster, resources: &[Resource], eyes: &Eyes) -> Vec<Finding> {
    let mut found: Vec<(admission::Cause, Vec<String>)> = Vec::new();
    for resource in resources {
        let query = Query { resource, namespace: "", fields: "", part: Part::Metadata, limit: 1, from: None };
        let Err(why) = world.list(of, query, Instant::now() + ANSWER_WITHIN).await else { continue };
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
    let is_member = matches!(of, Cluster::Member(_));
    let mend = match (why.code, of) {
        (cause::FORBIDDEN, Cluster::Here) if *eyes.survey.fleet() == Fleet::Karmada => {
            format!(
                "{} | kubectl --kubeconfig karmada-admin.config apply -f -",
                manifests(eyes, " --only karmada,rbac")
            )
        }
        (cause::FORBIDDEN, Cluster::Here) => {
            format!("{} | kubectl apply -f -", manifests(eyes, " --only rbac"))
        }
        (cause::FORBIDDEN, Cluster::Member(_)) => {
            format!(
                "{} | kubectl --kubeconfig karmada-admin.config apply -f -",
                manifests(eyes, " --only members")
            )
        }
        (cause::FORBIDDEN, _) => {
            format!("{} | kubectl --context {name} apply -f -", manifests(eyes, " --only members"))
        }
        (cause::CREDENTIALS, Cluster::Member(_)) => format!(
            "put a valid token into the Secret that is named above (spec.impersonatorSecretRef of: kubectl get cluster {name} -o yaml); {}",
            or_else(name)
        ),
        (cause::NO_ENDPOINT, Cluster::Member(_)) => format!(
            "put right what is missing: kubectl get cluster {name} -o yaml (spec.apiEndpoint, and the Secret of spec.impersonatorSecretRef with a valid token); {}",
            or_else(name)
        ),
        (cause::UNREACHABLE | cause::TIMEOUT, _) if is_member => format!(
            "kubectl get cluster {name} -o yaml (spec.apiEndpoint, status.conditions); or for a while: {}",
            acknowledge(name)
        ),
        (cause::UNREACHABLE | cause::TIMEOUT | cause::CREDENTIALS, Cluster::Context(_)) => {
            format!("kubectl --context {name} get namespaces")
        }
        (_, Cluster::Secret(namespace, _)) => {
            format!("kubectl -n {namespace} get secret {name} (its key kubeconfig)")
        }
        (cause::NOT_RECORDED, _) => {
            format!("record it: durward snapshot, or kubectl get … -o json into the folder of {name}")
        }
        (cause::BUSY | cause::CROWDED | cause::VANISHED, _) => "durward doctor fleet (again)".to_owned(),
        (_, Cluster::Member(_)) => {
            format!("kubectl get --raw /apis/cluster.karmada.io/v1alpha1/clusters/{name}/proxy/version")
        }
        _ => "kubectl get --raw /version".to_owned(),
    };
    Finding { cluster: Some(name.to_owned()), code: why.code, what, why: matters.to_owned(), mend }
}

fn acknowledge(name: &str) -> String {
    format!(
        "kubectl annotate cluster {name} durward.dev/acknowledge-unreachable='why' durward.dev/acknowledge-until=<RFC 3339, at most 30 days ahead>"
    )
}

/// What is left where a member's credentials cannot be put right; the last of it takes workloads along.
fn or_else(name: &str) -> String {
    format!(
        "or for a while: {}; or last: karmadactl unjoin {name} (unregister, if it is a pull member), and join it again, but unjoining a cluster that is Ready deletes there what Karmada brought, and all that is in the namespaces that it brought",
        acknowledge(name)
    )
}

fn manifests(eyes: &Eyes, only: &str) -> String {
    let config = eyes.config.as_deref().unwrap_or("durward.yaml");
    format!("durward manifests --config {config}{only}")
}

/// Definitions here whose objects may not be read. Those in members alone are deleted there, and not here; Karmada's own are
/// never looked into.
async fn definitions(world: &dyn World, survey: &Survey) -> Option<Finding> {
    let objects = all_pages(world, &Cluster::Here, &Subject::Definition.resource()).await.ok()?;
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
        what: format!(
            "{} groups with CustomResourceDefinitions are not in guards.deletion.crds.groups",
            groups.len()
        ),
        why: "whether objects of them are in use is unknown, so their definitions cannot be deleted"
            .to_owned(),
        mend: format!(
            "add these lines, and apply what durward manifests prints then (groups: [\"*\"] reads everything, Secrets too):\ncrds:\n  groups:\n{}",
            lines.join("\n")
        ),
    })
}

/// Namespaces and definitions here on which the way through in spite of all was left open.
async fn left_open(world: &dyn World) -> Vec<Finding> {
    let mut findings = Vec::new();
    for (subject, word) in [(Subject::Namespace, "ns"), (Subject::Definition, "crd")] {
        // What cannot be listed is among the findings of this cluster already.
        let objects: Vec<Object> =
            all_pages(world, &Cluster::Here, &subject.resource()).await.unwrap_or_default();
        for object in objects.iter().filter(|object| !object.metadata.deleting) {
            let Some(deed) = Survey::deed(&object.metadata) else { continue };
            let name = &object.name;
            let off: Vec<_> = deed.annotations.iter().map(|key| format!("{key}-")).collect();
            findings.push(Finding {
                cluster: None,
                code: "break-glass",
                what: format!("{word}/{name} is annotated durward.dev/delete-anyway={}", deed.value),
                why: if deed.value == *name {
                    "whoever has the verb break-glass deletes it, whatever is in use".to_owned()
                } else {
                    "it opens nothing, since it is not the object's own name, and somebody meant it to"
                        .to_owned()
                },
                mend: format!("kubectl annotate {word} {name} {}", off.join(" ")),
            });
        }
    }
    findings
}

/// Acknowledgements that do not hold, or not for long.
fn acknowledgements(survey: &Survey, members: &[Member], world: &dyn World, fleet: &Fleet) -> Vec<Finding> {
    let mut findings = Vec::new();
    for member in members {
        for one in survey.acknowledgements(member, world.now()) {
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
                format!(
                    "kubectl annotate cluster {name} --overwrite durward.dev/acknowledge-until=<RFC 3339>, or take it off: kubectl annotate cluster {name} durward.dev/acknowledge-unreachable- durward.dev/acknowledge-until-"
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
    if !members.is_empty() || *fleet == Fleet::Alone {
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

fn text(told: &Told, style: Style) -> String {
    let ready = told.clusters.iter().filter(|one| one.ready).count();
    let all = told.clusters.len();
    let mut out = format!("{ready} of {all} clusters can be read as guards need\n");
    for finding in &told.findings {
        out.push('\n');
        out.push_str(&finding.text(style));
    }
    if told.findings.is_empty() {
        out.push_str(&style.green("nothing to mend\n"));
    }
    out
}
