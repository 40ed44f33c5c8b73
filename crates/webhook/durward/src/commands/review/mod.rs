//! Command `review`: answers `AdmissionReview` documents without a server, with the same decoding, settling and encoding.

mod answer;
mod ask;
mod facts;
mod render;
pub(crate) mod rules;
mod selection;

use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::documents::Documents;
use config::Problem;
use console::exit::{Exit, Outcome};
use console::input::{self, shown};
use console::output;
use console::output::Format;
use serde_json::value::RawValue;

pub(crate) use ask::{AskedGuard, TIMEOUT, guards, rule};
pub(crate) use selection::{Selection, selection};

use crate::clients::connect::offline;
use crate::clients::observe::observed;
use crate::clients::runtime;
use crate::file::{File, Purpose};
use answer::Answered;
use facts::FactLog;

/// `review`
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// AdmissionReview files (JSON or YAML) [default: standard input]
    #[arg(value_name = "FILE|-")]
    pub(crate) files: Vec<PathBuf>,
    /// Configuration file
    #[arg(long, short, value_name = "FILE")]
    pub(crate) config: PathBuf,
    /// Snapshot that the guards read
    #[arg(long, value_name = "DIR")]
    pub(crate) snapshot: Option<PathBuf>,
    /// Call this guard, even if its webhook rules do not match
    #[arg(long, value_name = "NAME")]
    pub(crate) guard: Option<String>,
    /// Output format
    #[arg(long, short, value_enum, default_value_t, value_name = "FORMAT")]
    pub(crate) output: Format,
    /// Show matching rules, facts, reason codes and time
    #[arg(long, short)]
    pub(crate) verbose: bool,
    /// Print the JSON Patch
    #[arg(long)]
    pub(crate) show_patch: bool,
    /// Print the object after the patch
    #[arg(long)]
    pub(crate) show_object: bool,
}

/// `review`
pub(crate) fn run(args: &Args) -> Outcome {
    let file = File::load(&args.config, Purpose::Guards)?;
    if let Some(name) = &args.guard
        && file.guard(name).is_none()
    {
        let on: Vec<_> = file.guards.iter().map(|guard| guard.kind.name()).collect();
        let problem = Problem::new(format!("--guard {name:?}")).why("the guard is not enabled");
        return Err(problem.next(format!("enabled guards: {}", on.join(", "))).into());
    }
    let clients = offline(args.snapshot.as_ref())?;
    let facts = Arc::new(FactLog::default());
    let asked = ask::guards(&file, &observed(&clients, &facts, clients.context.clone()));
    let standard_input = [PathBuf::from("-")];
    let files = if args.files.is_empty() { &standard_input[..] } else { &args.files[..] };

    let (mut answered, mut problems) = (Vec::new(), Vec::new());
    let runtime = runtime()?;
    for path in files {
        match documents(path) {
            Ok(documents) => {
                for (index, document) in documents.iter().enumerate() {
                    let source = format!("{}#{}", shown(path), index + 1);
                    let found = runtime.block_on(ask::ask(
                        &asked,
                        args.guard.as_deref(),
                        &source,
                        document,
                        (&facts, clients.reader.as_ref()),
                    ));
                    match found {
                        Ok(all) => answered.extend(all),
                        Err(problem) => problems.push(problem),
                    }
                }
            }
            Err(problem) => problems.push(problem),
        }
    }
    let shown = render::Shown { evaluation: args.verbose, patch: args.show_patch, object: args.show_object };
    output::report(args.output, &answered, |answered, style| {
        answered.iter().map(|one| render::text(one, shown, style)).collect()
    })?;
    if answered.iter().any(Answered::saw_nothing) {
        output::note(
            "note: without --snapshot the guards cannot read a cluster, so some verdicts are unknown",
        );
    }
    if !problems.is_empty() {
        return Err(problems.into());
    }
    Ok(if answered.iter().any(|one| !one.allowed && !one.is_unknown()) {
        Exit::No
    } else if answered.iter().any(Answered::is_unknown) {
        Exit::Unknown
    } else {
        Exit::Done
    })
}

/// Returns the reviews of a file. A list counts as its elements.
fn documents(path: &Path) -> Result<Vec<String>, Problem> {
    let name = shown(path);
    let documents = Documents::parse(&name, input::text_or_stdin(path, input::LARGE)?)?;
    let mut all = Vec::new();
    for document in documents.iter() {
        if document.starts_with('[') {
            let elements: Vec<&RawValue> = serde_json::from_str(document)
                .map_err(|error| Problem::new(name.clone()).why(error.to_string()))?;
            all.extend(elements.into_iter().map(|element| element.get().to_owned()));
        } else {
            all.push(document.to_owned());
        }
    }
    Ok(all)
}
