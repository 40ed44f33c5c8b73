//! Command `snapshot`: writes what guards read to disk, so that a verdict can be repeated later and elsewhere.
//!
//! It runs the surveys of the deletion guard and of the etcd guard through a [`Recorder`], which keeps every request and
//! answer. A List of which a guard needed only the first page is then read completely.

mod log;
mod recorder;

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Instant;

use cluster::Resource;
use cluster::fleet::{Cluster, LOCAL, ListQuery, Part, THIS_CLUSTER};
use config::Problem;
use console::exit::{Exit, Outcome};
use console::output::{self, ProgressLine};
use guards::deletion::{self, DeletionKind, DeletionSubject};
use guards::etcd::Survey;

use crate::args::ClusterArgs;
use crate::clients::connect::access;
use crate::clients::etcd_context;
use crate::clients::fleet::{self, ANSWER_WITHIN, FleetContext, SubjectArg, SubjectArgs};
use crate::clients::runtime;
use crate::commands::impact::TIMEOUT;
use crate::commands::impact::removal::argo_cd::APPLICATIONS;
use crate::file::{File, Purpose};
use recorder::Recorder;

/// `snapshot`
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Object to record a deletion of [default: all namespaces and CRDs]
    #[arg(value_name = "KIND/NAME")]
    pub(crate) targets: Vec<SubjectArg>,
    /// Namespace of the object [default: default]
    #[arg(long, short, value_name = "NAME")]
    pub(crate) namespace: Option<String>,
    /// Output directory (must be empty or not exist)
    #[arg(long, value_name = "DIR")]
    pub(crate) out: PathBuf,
    /// Configuration file [default: detect the fleet]
    #[arg(long, short, value_name = "FILE")]
    pub(crate) config: Option<PathBuf>,
    #[command(flatten)]
    pub(crate) cluster: ClusterArgs,
}

/// `snapshot`
pub(crate) fn run(args: &Args) -> Outcome {
    // The write at the end checks this again, after the work.
    if std::fs::read_dir(&args.out).is_ok_and(|mut entries| entries.next().is_some()) {
        let problem = Problem::new(args.out.display().to_string());
        let problem = problem.why("the directory is not empty");
        return Err(problem.next("use a new directory").into());
    }
    let file = args.config.as_deref().map(|path| File::load(path, Purpose::Guards)).transpose()?;
    // A file without a fleet concerns only its etcd clusters.
    let has_fleet = file.as_ref().is_none_or(|file| {
        file.guards.iter().any(|guard| deletion::survey(guard.configured.as_ref()).is_some())
    });
    let etcd_survey = file.as_ref().and_then(etcd_context::survey);
    runtime()?.block_on(async {
        match (&etcd_survey, file) {
            (Some(_), Some(file)) if !has_fleet && args.targets.is_empty() => {
                let context = etcd_context::open(&file, &args.cluster).await?;
                let recorder = Recorder::over(context.clients.clone());
                if file.watches_namespaces() {
                    recorder.read_all(&Resource::NAMESPACES, Part::Metadata).await;
                }
                let unread = of_members(&recorder, &context.survey).await;
                written(args, recorder, unread, &replay_etcd(args)).await
            }
            (_, file) => of_fleet(args, etcd_survey.as_ref(), file.as_ref()).await,
        }
    })
}

/// Records a fleet and the etcd clusters of the same control plane.
async fn of_fleet(args: &Args, etcd_survey: Option<&Survey>, file: Option<&File>) -> Outcome {
    let context = fleet::open(args.config.as_deref(), &args.cluster).await?;
    let asked = if args.targets.is_empty() {
        SubjectArgs::everything()
    } else {
        SubjectArgs::new(&args.targets, false, None, &context.survey)?
    };
    let subjects = asked.subjects(&context, args.namespace.as_deref()).await?;
    let recorder = Recorder::over(context.clients.clone());
    let problems = impacts(args, &context, &subjects, &recorder).await;
    if context.watches_namespaces {
        recorder.read_all(&Resource::NAMESPACES, Part::Metadata).await;
    }
    let (mut unread, mut replays) = (0, vec![replay(args, &subjects)]);
    if let (Some(survey), Some(file)) = (etcd_survey, file) {
        if args.cluster.snapshot.is_some() || access(&args.cluster, &file.cluster) == context.access {
            unread = of_members(&recorder, survey).await;
            replays.push(replay_etcd(args));
        } else {
            // A snapshot has one local cluster.
            output::note(
                "unread: the etcd clusters are not on the control plane of the fleet; record them with a file without the deletion guard",
            );
            unread = 1;
        }
    }
    let outcome = written(args, recorder, unread, &replays.join("; ")).await?;
    if problems.is_empty() { Ok(outcome) } else { Err(problems.into()) }
}

/// Records what deletions would remove. Returns problems with the named objects.
async fn impacts(
    args: &Args,
    context: &FleetContext,
    subjects: &[DeletionSubject],
    recorder: &Arc<Recorder>,
) -> Vec<Problem> {
    let mut problems = Vec::new();
    for (number, subject) in subjects.iter().enumerate() {
        let line = ProgressLine::stderr();
        line.show(&format!("{} of {}", number + 1, subjects.len()));
        let progress = |at: guards::deletion::ReadProgress<'_>| {
            let which = format!("{} of {}", number + 1, subjects.len());
            line.show(&format!("{which}: {} of {} clusters have answered", at.done, at.of));
        };
        let deadline = Instant::now() + TIMEOUT;
        let impact = context.survey.impact(&recorder.clients(), subject.clone(), deadline, &progress).await;
        // An object of `--all` can be deleted meanwhile. A named object that is missing is a mistake.
        if impact.exists == Some(false) && !args.targets.is_empty() {
            problems.push(fleet::missing(context.clients.reader.as_ref(), subject).await);
        }
    }
    if args.targets.is_empty() {
        // `--all` needs complete Lists. CRDs were read whole, and a List has one form.
        recorder.read_all(&DeletionKind::Namespace.resource(), Part::Metadata).await;
        recorder.read_all(&DeletionKind::Crd.resource(), Part::Whole).await;
        for kind in context.survey.kinds() {
            if let (DeletionKind::InUse(_), false) = (&kind, kind.is_secret()) {
                let part = if kind.needs_whole() { Part::Whole } else { Part::Metadata };
                recorder.read_all(&kind.resource(), part).await;
            }
        }
        context.survey.read_uses(&recorder.clients(), TIMEOUT).await;
        // `impact --diff` follows Argo CD's Applications, if the cluster has any.
        let first = ListQuery { limit: 1, ..ListQuery::new(&APPLICATIONS) };
        let found = context.clients.reader.list(&Cluster::Local, first, Instant::now() + ANSWER_WITHIN).await;
        if found.is_ok_and(|page| !page.objects.is_empty()) {
            recorder.read_all(&APPLICATIONS, Part::Whole).await;
        }
    }
    problems
}

/// Records all etcd clusters with the requests of a review. Returns the number of members without an answer.
async fn of_members(recorder: &Arc<Recorder>, survey: &Survey) -> usize {
    let line = ProgressLine::stderr();
    let progress =
        |done: usize, of: usize| line.show(&format!("{done} of {of} namespaces with etcd clusters"));
    let found = survey.read(&recorder.clients(), &progress).await;
    drop(line);
    let members = found.clusters.iter().flat_map(|one| &one.members);
    let unanswered: Vec<_> = members.filter_map(|member| member.error.as_ref()).collect();
    for why in &unanswered {
        output::note(format!("unread: {}", output::foreign(&why.text)));
    }
    unanswered.len()
}

/// Writes the snapshot, and prints what is missing in it and how to use it.
async fn written(args: &Args, recorder: Arc<Recorder>, unread: usize, replay: &str) -> Outcome {
    recorder.read_to_the_end().await;
    let (world, extra_failures) = recorder.world();
    cluster::snapshot::write(&args.out, &world)?;
    let mut unread = unread + extra_failures.len();
    for what in &extra_failures {
        output::note(format!("unread: {}", output::foreign(what)));
    }
    for (name, content) in &world.clusters {
        let whose = if name == LOCAL { THIS_CLUSTER } else { name };
        for (resource, list) in &content.lists {
            let Err(cause) = list else { continue };
            unread += 1;
            output::note(output::foreign(&format!("unread: {resource} of {whose}: {}", cause.text)));
        }
    }
    let all = world.clusters.len();
    output::note(format!(
        "{}: {all} {}; replay with: {replay}",
        args.out.display(),
        if all == 1 { "cluster" } else { "clusters" },
    ));
    Ok(if unread == 0 { Exit::Done } else { Exit::No })
}

/// Returns the command that reads the snapshot.
fn replay(args: &Args, subjects: &[DeletionSubject]) -> String {
    let subjects = match args.targets.as_slice() {
        [] => "--all".to_owned(),
        _ => subjects.iter().map(ToString::to_string).collect::<Vec<_>>().join(" "),
    };
    format!("durward impact {subjects} --snapshot {}{}", args.out.display(), config(args))
}

/// Returns the same for etcd clusters.
fn replay_etcd(args: &Args) -> String {
    format!("durward doctor etcd --snapshot {}{}", args.out.display(), config(args))
}

fn config(args: &Args) -> String {
    args.config.as_ref().map_or_else(String::new, |file| format!(" --config {}", file.display()))
}
