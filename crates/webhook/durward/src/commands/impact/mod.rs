//! Command `impact`: shows what a deletion would remove in each cluster. It uses the reads and the decision of the guard and
//! deletes nothing. With `--diff` the deletions are those of a change of manifests.

mod html;
pub(crate) mod removal;
mod text;

use std::path::PathBuf;
use std::time::{Duration, Instant};

use clap::ValueEnum;
use cluster::fleet::LOCAL;
use config::{Labels, Problem};
use console::exit::{Exit, Outcome, Stop};
use console::output::{self, ProgressLine, Style};
use guards::deletion::{DeletionSubject, Impact as Found, ReadProgress};

use crate::args::ClusterArgs;
use crate::clients::fleet::{self, FleetContext, SubjectArg, SubjectArgs};
use crate::clients::runtime;
use html::{Page, PageObject};
use text::Detail;

/// `impact`
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Object to delete; with --all a kind, or nothing
    #[arg(value_name = "KIND/NAME|KIND NAME")]
    pub(crate) targets: Vec<SubjectArg>,
    /// All namespaces and CRDs, or all objects of the given kind
    #[arg(long)]
    pub(crate) all: bool,
    /// Objects with these labels, for example app=web
    #[arg(long, short = 'l', value_name = "SELECTOR", conflicts_with = "all")]
    pub(crate) selector: Option<Labels>,
    /// Namespace of the object [default: default, or all with --all]
    #[arg(long, short, value_name = "NAME")]
    pub(crate) namespace: Option<String>,
    /// Objects that NEW no longer has: directories, files, - for one
    #[arg(long, num_args = 2, value_names = ["OLD", "NEW"], conflicts_with_all = ["targets", "all", "selector"])]
    pub(crate) diff: Option<Vec<PathBuf>>,
    /// Configuration file [default: detect the fleet]
    #[arg(long, short, value_name = "FILE")]
    pub(crate) config: Option<PathBuf>,
    #[command(flatten)]
    pub(crate) cluster: ClusterArgs,
    /// Output format
    #[arg(long, short, value_enum, default_value_t, value_name = "FORMAT")]
    pub(crate) output: ImpactFormat,
}

/// The format of the result.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, ValueEnum)]
pub(crate) enum ImpactFormat {
    /// Text
    #[default]
    Text,
    /// Text with a line for each cluster
    Wide,
    /// Only the names of objects that could not be deleted
    Name,
    /// JSON
    Json,
    /// YAML
    Yaml,
    /// One HTML page
    Html,
    /// With --diff: a comment on a pull request
    Markdown,
    /// With --diff: annotations in GitHub Actions
    Github,
}

/// Timeout of one object in the whole fleet: about that of a review, so that a slow cluster has as much time as in a review.
pub(crate) const TIMEOUT: Duration = Duration::from_secs(10);

/// `impact`. A fault outside means that the clusters could not be checked.
pub(crate) fn run(args: &Args) -> Outcome {
    show(args).map_err(Stop::not_checked)
}

fn show(args: &Args) -> Outcome {
    if let Some([old, new]) = args.diff.as_deref() {
        return removal::run(args, old, new);
    }
    if matches!(args.output, ImpactFormat::Markdown | ImpactFormat::Github) {
        let problem = Problem::new("-o markdown and -o github are for --diff OLD NEW");
        return Err(problem.next("use -o text, wide, name, json, yaml or html").into());
    }
    let selector = args.selector.as_ref().map(|Labels(selector)| selector);
    runtime()?.block_on(async {
        let context = fleet::open(args.config.as_deref(), &args.cluster).await?;
        let subjects = SubjectArgs::new(&args.targets, args.all, selector, &context.survey)?;
        let subjects = subjects.subjects(&context, args.namespace.as_deref()).await?;
        let (mut found, mut problems) = (Vec::new(), Vec::new());
        let style = Style::stdout();
        for (number, subject) in subjects.iter().enumerate() {
            let line = ProgressLine::stderr();
            let progress = |at: ReadProgress<'_>| {
                line.show(&format_progress(subject, (number, subjects.len()), at, context.local_name()));
            };
            let deadline = Instant::now() + TIMEOUT;
            let impact = context.survey.impact(&context.clients, subject.clone(), deadline, &progress).await;
            drop(line);
            if impact.exists == Some(false) {
                problems.push(fleet::missing(context.clients.reader.as_ref(), subject).await);
            }
            let is_one_of_many = subjects.len() > 1;
            let format = |detail| text::format_impact(&impact, detail, context.local_name(), style);
            match args.output {
                ImpactFormat::Text if is_one_of_many => output::print(&format(Detail::OneOfMany))?,
                ImpactFormat::Text => output::print(&format(Detail::Alone))?,
                ImpactFormat::Wide => output::print(&format(Detail::Wide))?,
                ImpactFormat::Name if impact.verdict != "allow" => output::print(&text::name(&impact))?,
                _ => {}
            }
            found.push(impact);
        }
        match args.output {
            ImpactFormat::Json => output::json(&found)?,
            ImpactFormat::Yaml => output::data(&output::yaml(&found)?)?,
            ImpactFormat::Html => output::data(&page(&found, &context).write())?,
            _ => {}
        }
        if !problems.is_empty() {
            return Err(problems.into());
        }
        Ok(exit(found.iter().map(verdict)))
    })
}

/// Returns the impacts as a page, the worst first.
fn page<'f>(found: &'f [Found], context: &FleetContext) -> Page<'f> {
    let mut ranked: Vec<&Found> = found.iter().collect();
    ranked.sort_by_key(|one| rank(verdict(one)));
    let object = |impact: &'f Found| PageObject {
        name: text::short_name(impact),
        verdict: verdict(impact),
        summary: text::summary(impact, context.local_name()),
        notes: Vec::new(),
        impact: Some(impact),
    };
    let objects: Vec<_> = ranked.into_iter().map(object).collect();
    let of = |verdict: &str| objects.iter().filter(|one| one.verdict == verdict).count();
    let (in_use, unknown) = (of("deny"), of("unknown"));
    let headline = match (objects.as_slice(), in_use, unknown) {
        ([only], 1, _) => format!("{} is in use", only.name),
        ([only], _, 1) => format!("{} could not be checked", only.name),
        ([only], ..) => format!("nothing in {} is in use", only.name),
        (all, _, 0) => format!("{in_use} of {} objects are in use", all.len()),
        (all, ..) => format!("{in_use} of {} objects are in use, {unknown} could not be checked", all.len()),
    };
    let facts = found.first().map(|one| format!("facts of {}", one.time));
    Page { headline, facts, objects, notes: Vec::new(), here: context.local_name() }
}

/// Returns the verdict. A cluster that could not be checked counts even if it is acknowledged.
fn verdict(impact: &Found) -> &'static str {
    let is_unchecked = impact.clusters.iter().any(|cluster| !cluster.unchecked.is_empty());
    if impact.verdict == "allow" && is_unchecked { "unknown" } else { impact.verdict }
}

/// Returns the rank of a verdict, the worst first.
fn rank(verdict: &str) -> u8 {
    match verdict {
        "deny" => 0,
        "unknown" => 1,
        _ => 2,
    }
}

/// Returns the exit code for the worst verdict.
fn exit(verdicts: impl Iterator<Item = &'static str>) -> Exit {
    match verdicts.map(rank).min() {
        Some(0) => Exit::No,
        Some(1) => Exit::Unknown,
        _ => Exit::Done,
    }
}

fn format_progress(
    subject: &DeletionSubject,
    (number, of): (usize, usize),
    at: ReadProgress<'_>,
    here: &str,
) -> String {
    let DeletionSubject { name, .. } = subject;
    let which = if of > 1 { format!("{} of {of}, ", number + 1) } else { String::new() };
    let last = if at.cluster == LOCAL { here } else { at.cluster };
    format!("{which}{name}: checked {} of {} member clusters, {last} last", at.done, at.of)
}
