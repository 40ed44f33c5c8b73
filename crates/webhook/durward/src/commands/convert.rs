//! Command `convert`: writes CRDs of `v1beta1` as `v1`. `policy::crd::convert` has the rules.

use std::path::{Path, PathBuf};

use config::{Place, Problem};
use console::exit::{Exit, Outcome, Stop};
use console::input::{self, shown};
use console::output;
use console::yaml;
use policy::crd::convert::{Converted, OLD_VERSION, convert};
use policy::document::{self, Document};
use policy::field::{ErrorKind, FieldError, Path as FieldPath};
use policy::value::{Arena, Value, write_json};

/// `convert`
#[derive(Debug, clap::Subcommand)]
pub(crate) enum ConvertCommand {
    /// Convert CRDs from apiextensions.k8s.io/v1beta1 to v1
    #[command(
        after_help = "Examples:\n  durward convert crd examples/kubernetesclusters/crd-v1beta1.yaml\n  durward convert crd examples/kubernetesclusters/crd-v1beta1.yaml --declare examples/kubernetesclusters/sample.yaml\n\nThe result keeps the unknown fields that v1beta1 kept. With --declare, it declares the fields of the samples instead. The API server then removes fields that neither the CRD nor a sample has.\n\nExit code: 0 converted, 1 refused: v1 can't express the CRD, 2 bad input."
    )]
    Crd(Args),
}

/// `convert crd`
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// File with CRDs of v1beta1 (YAML or JSON); - is standard input
    #[arg(value_name = "FILE|-", default_value = "-")]
    pub(crate) file: PathBuf,
    /// File with objects whose fields are declared; can be repeated
    #[arg(long, value_name = "FILE")]
    pub(crate) declare: Vec<PathBuf>,
}

/// `convert`
pub(crate) fn run(command: &ConvertCommand) -> Outcome {
    let ConvertCommand::Crd(args) = command;
    let arena = Arena::new();
    let mut samples = Vec::new();
    for path in &args.declare {
        samples.extend(read(path)?.iter().map(|sample| sample.value(&arena)));
    }
    let name = shown(&args.file);
    let documents: Vec<_> = read(&args.file)?.into_iter().map(|read| (read.value(&arena), read)).collect();
    let (crds, others): (Vec<_>, Vec<_>) = documents.iter().partition(|(value, _)| is_convertible(*value));
    if crds.is_empty() {
        let problem = Problem::new(format!("{name} contains no CRD of {OLD_VERSION}"));
        return Err(problem.next("CRDs of apiextensions.k8s.io/v1 need no conversion").into());
    }
    let (mut converted, mut problems, mut exit) = (Vec::new(), Vec::new(), Exit::No);
    for (value, document) in crds {
        match convert(*value, &samples, &arena) {
            Ok(crd) => {
                print_notes(*value, &crd, &samples);
                converted.push(json(crd.crd)?);
            }
            Err(errors) => {
                if errors.iter().any(|error| error.kind == ErrorKind::Undecodable) {
                    exit = Exit::Bad;
                }
                problems.extend(errors.iter().map(|error| problem(&name, document, error)));
            }
        }
    }
    if !problems.is_empty() {
        return Err(Stop { exit, problems });
    }
    if !others.is_empty() {
        let count = if others.len() == 1 {
            "1 other document".to_owned()
        } else {
            format!("{} other documents", others.len())
        };
        output::note(format!("note: not printed: {count} of {name}"));
    }
    output::data(&yaml::stream(&converted)?)?;
    Ok(Exit::Done)
}

/// Reads the objects of a file.
fn read(path: &Path) -> Result<Vec<Document>, Problem> {
    let text = input::text_or_stdin(path, input::LARGE)?;
    document::read(&text).map_err(|error| {
        let place = Place { file: shown(path), line: error.place.line, column: error.place.column };
        Problem::new(error.message).at(place).next(error.next)
    })
}

fn text<'a>(value: Value<'a>, field: &str) -> &'a str {
    value.field(field).and_then(|value| value.as_str()).unwrap_or_default()
}

fn is_convertible(value: Value<'_>) -> bool {
    text(value, "apiVersion") == OLD_VERSION && text(value, "kind") == "CustomResourceDefinition"
}

fn json(value: Value<'_>) -> Result<serde_json::Value, Problem> {
    serde_json::from_str(&write_json(value))
        .map_err(|error| Problem::new("the CRD could not be written").why(error.to_string()))
}

/// Returns an error as a problem. A loss has the API server's text, which says what `v1` does not allow.
fn problem(file: &str, document: &Document, error: &FieldError) -> Problem {
    let place = document.place(&error.path);
    let place = Place { file: file.to_owned(), line: place.line, column: place.column };
    let problem = Problem::new(error.to_string()).at(place);
    match error.kind {
        ErrorKind::Undecodable => problem,
        _ => problem.why("v1 can't express this schema, so the conversion would lose it"),
    }
}

/// Says on standard error what a reader of the result has to know.
fn print_notes(crd: Value<'_>, converted: &Converted<'_>, samples: &[Value<'_>]) {
    let names = crd.field("spec").and_then(|spec| spec.field("names")).unwrap_or_default();
    let kind = text(names, "kind");
    let note = |text: &str| output::note(output::foreign(&format!("note: {kind}: {text}")));
    let list = |paths: &mut dyn Iterator<Item = &FieldPath>| {
        let paths: Vec<String> = paths.map(ToString::to_string).collect();
        (!paths.is_empty()).then(|| paths.join(", "))
    };
    if let Some(paths) = list(&mut converted.unknown.iter()) {
        note(&format!("the result lacks fields that no API server knows: {paths}"));
    }
    let undeclared = |is_kept: bool| {
        let undeclared = converted.undeclared.iter().filter(move |field| field.is_kept == is_kept);
        list(&mut undeclared.map(|field| &field.path))
    };
    if let Some(paths) = undeclared(true) {
        note(&format!("required but not declared, so the result keeps them as unknown fields: {paths}"));
    }
    if let Some(paths) = undeclared(false) {
        note(&format!(
            "required but not declared, so the API server removes them and refuses every object: {paths}"
        ));
    }
    if !samples.is_empty() && !samples.iter().any(|sample| text(*sample, "kind") == kind) {
        note("no sample has this kind");
    }
}
