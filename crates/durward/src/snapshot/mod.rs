//! `snapshot`: what guards see of the clusters, written to disk, so that a verdict can be replayed later and elsewhere.
//!
//! What is to be read is not typed twice: the guard's own survey is made through a [`Recorder`], which keeps every question and
//! every answer. Lists of which the guard read only a page, because that was enough to refuse, are then read to their end.

mod recorder;
mod recording;

use std::time::Instant;

use guards::config::Problem;
use guards::deletion::What;
use guards::world::fleet::Part;
use guards::world::folder::{self, HERE};

use crate::cli::Snapshot;
use crate::exit::{Exit, Outcome};
use crate::fleet::{self, Asked, Subject};
use crate::impact::PATIENCE;
use crate::output::{self, Live};
use crate::review::runtime;
use recorder::Recorder;

/// `snapshot`
pub(crate) fn run(args: &Snapshot) -> Outcome {
    let asked = if args.targets.is_empty() { Asked::everything() } else { Asked::new(&args.targets, false)? };
    // Told at the end too, by then for nothing.
    if std::fs::read_dir(&args.out).is_ok_and(|mut entries| entries.next().is_some()) {
        let problem = Problem::new(args.out.display().to_string());
        let problem = problem.why("is not empty, and nothing is written over");
        return Err(problem.next("give a folder that is not there yet").into());
    }
    runtime()?.block_on(async {
        let eyes = fleet::open(args.config.as_deref(), &args.world).await?;
        let things = asked.things(&eyes).await?;
        let recorder = Recorder::over(eyes.world.as_ref());
        let mut problems = Vec::new();
        for (number, what) in things.iter().enumerate() {
            let line = Live::on_terminal();
            line.show(&format!("{} of {}", number + 1, things.len()));
            let progress = |at: guards::deletion::Progress<'_>| {
                let which = format!("{} of {}", number + 1, things.len());
                line.show(&format!("{which}: {} of {} clusters have answered", at.done, at.of));
            };
            let deadline = Instant::now() + PATIENCE;
            let impact = eyes.survey.impact(&recorder, what.clone(), deadline, &progress).await;
            // One of all there are may be deleted meanwhile; one that was named is a slip.
            if impact.exists == Some(false) && !args.targets.is_empty() {
                problems.push(fleet::missing(eyes.world.as_ref(), what).await);
            }
        }
        if args.targets.is_empty() {
            // So that `--all` can be replayed too. Definitions were looked up whole, and one List is of one kind.
            recorder.read_all(&Subject::Namespace.resource(), Part::Metadata).await;
            recorder.read_all(&Subject::Definition.resource(), Part::Whole).await;
        }
        for resource in &eyes.watches {
            recorder.read_all(resource, Part::Metadata).await;
        }
        recorder.read_to_the_end().await;
        let (recording, beside) = recorder.recording();
        folder::write(&args.out, &recording)?;
        let mut unread = beside.len();
        for what in &beside {
            output::note(format!("unread: {what}"));
        }
        for cluster in &recording.clusters {
            unread += cluster.unread.len();
            for unseen in &cluster.unread {
                let what = unseen.what.as_ref().map_or_else(|| "everything".to_owned(), ToString::to_string);
                let whose =
                    if cluster.name == HERE { HERE.to_owned() } else { format!("of {}", cluster.name) };
                output::note(format!("unread: {what} {whose}: {}", unseen.cause.text));
            }
        }
        let all = recording.clusters.len();
        output::note(format!(
            "{}: {all} {}; replay with: {}",
            args.out.display(),
            if all == 1 { "cluster" } else { "clusters" },
            replay(args, &things),
        ));
        if !problems.is_empty() {
            return Err(problems.into());
        }
        Ok(if unread == 0 { Exit::Done } else { Exit::No })
    })
}

/// The command that tells the same out of the recording.
fn replay(args: &Snapshot, things: &[What]) -> String {
    let named = |what: &What| match what {
        What::Namespace(name) => format!("ns/{name}"),
        What::Definition(name) => format!("crd/{name}"),
    };
    let what = match args.targets.as_slice() {
        [] => "--all".to_owned(),
        _ => things.iter().map(named).collect::<Vec<_>>().join(" "),
    };
    let config =
        args.config.as_ref().map_or_else(String::new, |file| format!(" --config {}", file.display()));
    format!("durward impact {what} --world {}{config}", args.out.display())
}
