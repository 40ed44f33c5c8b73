//! Command `diff`: reports which changes of a CRD can break existing objects. `policy::crd::compare` has the classes of changes, and
//! `policy::crd::replay` writes objects again: those of files, or with `--live` all objects in the clusters.

mod live;
mod report;
mod sarif;

use std::collections::BTreeSet;
use std::path::{Path as FilePath, PathBuf};
use std::time::{Duration, Instant};

use check::KubeVersion;
use clap::ValueEnum;
use config::Problem;
use console::exit::{Exit, Outcome, Stop};
use console::output::{self, Style};
use manifests::objects::{self, Manifest};
use policy::crd::Version;
use policy::crd::admit::{admit, document_path};
use policy::crd::compare::{Class, CrdChange, Definition, compare};
use policy::crd::convert::{OLD_VERSION, convert};
use policy::crd::replay::{Replay, ReplayResult};
use policy::document::Document;
use policy::field::{FieldError, Path, Validated};
use policy::normalize::{normalize, with_empty};
use policy::value::{Arena, MAX_BYTES, Value};
use serde::Serialize;

use crate::args::ClusterArgs;
use report::{ComparedCrd, DiffReport, PlacedChange, Replayed};

const GROUP: &str = "apiextensions.k8s.io";
const KIND: &str = "CustomResourceDefinition";
const VERSION: &str = "apiextensions.k8s.io/v1";

/// Time for the rules of one object. An API server decides in less than a second.
const MAX_TIME: Duration = Duration::from_secs(10);

/// `diff`
#[derive(Debug, clap::Subcommand)]
pub(crate) enum DiffCommand {
    /// Show which changes of a CRD can break existing objects
    #[command(
        after_help = "Examples:\n  durward diff crd examples/kubernetesclusters/crd.yaml examples/kubernetesclusters/crd-undeclared.yaml\n  durward diff crd examples/kubernetesclusters/crd.yaml examples/kubernetesclusters/crd-undeclared.yaml --objects examples/kubernetesclusters/sample.yaml\n  kubectl get crd widgets.example.org -o yaml | durward diff crd - crd.yaml\n  durward diff crd crd.yaml --live --kubeconfig karmada-admin.config\n\n--live reads the objects as the API server returns them: pruned, and converted to the stored version if it is served.\n\nExit code: 0 no existing object can break, 1 an existing object can break, 2 bad input, 3 could not compare."
    )]
    Crd(Args),
}

/// `diff crd`
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// CRDs before the change: file, directory or -; with --live alone: NEW
    #[arg(value_name = "OLD")]
    pub(crate) old: PathBuf,
    /// CRDs after the change
    #[arg(value_name = "NEW", required_unless_present = "live")]
    pub(crate) new: Option<PathBuf>,
    /// Existing objects to write again under NEW; can be repeated
    #[arg(long, value_name = "PATH")]
    pub(crate) objects: Vec<PathBuf>,
    /// Judge all objects in the clusters under NEW; nothing is written
    #[arg(long, conflicts_with = "objects")]
    pub(crate) live: bool,
    /// With --live, configuration file [default: detect the fleet]
    #[arg(long, short, value_name = "FILE", requires = "live")]
    pub(crate) config: Option<PathBuf>,
    #[command(flatten)]
    pub(crate) cluster: ClusterArgs,
    /// Version of the API server, 1.30 to 1.37
    #[arg(long, value_name = "VERSION", default_value_t)]
    pub(crate) kube_version: KubeVersion,
    /// Output format
    #[arg(long, short, value_enum, default_value_t, value_name = "FORMAT")]
    pub(crate) output: DiffFormat,
}

/// The format of the result.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, ValueEnum)]
pub(crate) enum DiffFormat {
    /// Text
    #[default]
    Text,
    /// JSON
    Json,
    /// YAML
    Yaml,
    /// SARIF, for code scanning
    Sarif,
}

/// Writes a report in a format.
fn write<T: Serialize>(
    format: DiffFormat,
    report: &T,
    text: impl FnOnce(&T, Style) -> String,
    sarif: impl FnOnce(&T) -> sarif::Log<'_>,
) -> Result<(), Stop> {
    match format {
        DiffFormat::Text => output::print(&text(report, Style::stdout())),
        DiffFormat::Json => output::json(report),
        DiffFormat::Yaml => output::data(&output::yaml(report)?),
        DiffFormat::Sarif => output::json(&sarif(report).finish()),
    }
}

/// `diff`
pub(crate) fn run(command: &DiffCommand) -> Outcome {
    let DiffCommand::Crd(args) = command;
    let mut problems = Vec::new();
    let (old_path, new_path) = match &args.new {
        Some(new) => (Some(&args.old), new),
        None => (None, &args.old),
    };
    let old = old_path.map(|path| crds(path, &mut problems)).unwrap_or_default();
    let new = crds(new_path, &mut problems);
    if args.live {
        return if problems.is_empty() { live::run(args, &old, &new) } else { Err(problems.into()) };
    }
    let (objects, unread) = objects::of_paths(&args.objects);
    problems.extend(unread);
    if !problems.is_empty() {
        return Err(problems.into());
    }
    let mut run =
        Run { server: args.kube_version.0, objects: &objects, used: vec![false; objects.len()], problems };
    let mut crds = Vec::new();
    for (old, new) in pairs(&old, &new) {
        let compared = if let Some(new) = new {
            run.compare(old, new)
        } else {
            run.use_objects(old);
            Some(removed(old, new_path))
        };
        crds.extend(compared);
    }
    let others = run.used.iter().filter(|used| !**used).count();
    if run.problems.is_empty() && !objects.is_empty() && others == objects.len() {
        let kinds: Vec<&str> = old.iter().filter_map(Manifest::given_name).collect();
        let problem = Problem::new(format!("--objects has no object of {}", kinds.join(", ")));
        run.problems.push(problem.next("name files with objects of the CRD"));
    }
    if !run.problems.is_empty() {
        return Err(run.problems.into());
    }
    if others > 0 {
        output::note(format!("note: {others} of {} objects are not of a compared CRD", objects.len()));
    }
    let mut report = DiffReport { kube_version: args.kube_version.to_string(), crds, exit_code: Exit::Done };
    report.exit_code = report.exit();
    write(args.output, &report, DiffReport::text, sarif::of_report)?;
    Ok(report.exit_code)
}

/// Reads the CRDs of a path. Other objects are ignored, since they can be in the same directory.
fn crds(path: &PathBuf, problems: &mut Vec<Problem>) -> Vec<Manifest> {
    let (all, unread) = objects::of_paths(std::slice::from_ref(path));
    let is_read = unread.is_empty();
    problems.extend(unread);
    let mut names = BTreeSet::new();
    let mut crds = Vec::new();
    for manifest in all.into_iter().filter(|manifest| manifest.is(GROUP, KIND)) {
        let Some(name) = manifest.given_name().map(str::to_owned) else {
            problems.push(manifest.problem(&Path::new("metadata"), "the CRD has no name").into_problem());
            continue;
        };
        if !names.insert(name) {
            let path = Path::new("metadata").child("name");
            problems.push(
                manifest.problem(&path, "the CRD is there twice").into_problem().next("remove one of them"),
            );
            continue;
        }
        crds.push(manifest);
    }
    if is_read && crds.is_empty() && problems.is_empty() {
        let problem = Problem::new(format!("{} contains no CRD", console::input::shown(path)));
        problems.push(problem.next("name files with kind: CustomResourceDefinition"));
    }
    crds
}

/// Pairs CRDs by name. A single one on both sides is paired with any name, since the name can be the change.
fn pairs<'m>(old: &'m [Manifest], new: &'m [Manifest]) -> Vec<(&'m Manifest, Option<&'m Manifest>)> {
    if let ([old], [new]) = (old, new) {
        return vec![(old, Some(new))];
    }
    let named = |name| new.iter().find(|manifest| manifest.given_name() == name);
    old.iter().map(|manifest| (manifest, named(manifest.given_name()))).collect()
}

/// The result for a CRD that the new files do not have.
fn removed(old: &Manifest, new: &FilePath) -> ComparedCrd {
    let change = CrdChange {
        class: Class::CrdRemoved,
        version: String::new(),
        stored_as: None,
        field: String::new(),
        path: Path::new("metadata").child("name"),
        detail: format!("not in {}: deleting the CRD deletes all its objects", console::input::shown(new)),
    };
    let place = old.place_of(&change.path);
    let name = old.given_name().unwrap_or_default().to_owned();
    ComparedCrd { name, changes: vec![PlacedChange::new(&change, place)], objects: Vec::new() }
}

/// State of a run.
struct Run<'m> {
    server: u8,
    objects: &'m [Manifest],
    /// Whether an object belongs to a CRD.
    used: Vec<bool>,
    problems: Vec<Problem>,
}

impl Run<'_> {
    /// Compares two CRDs, unless one of them can't be used.
    fn compare(&mut self, old: &Manifest, new: &Manifest) -> Option<ComparedCrd> {
        let arena = Arena::new();
        let before = self.definition(old, true, &arena);
        let after = self.definition(new, false, &arena);
        let (before, after) = (before?, after?);
        let open = self.admitted(new, &before, &after, &arena)?;
        let changes = [open, compare(&before, &after)].concat();
        let placed = |change: &CrdChange| PlacedChange::new(change, new.place_of(&change.path));
        let changes = changes.iter().map(placed).collect();
        let replay = Replay { old: &before.crd, new: &after.crd, server: self.server };
        let objects = self.replay(&replay);
        Some(ComparedCrd { name: old.given_name().unwrap_or_default().to_owned(), changes, objects })
    }

    /// Reads a CRD. The old one can be of v1beta1: it is converted, so it keeps what it kept.
    fn definition<'a>(
        &mut self,
        manifest: &Manifest,
        is_old: bool,
        arena: &'a Arena,
    ) -> Option<Definition<'a>> {
        let value = manifest.value(arena);
        let value = match manifest.api_version.as_str() {
            VERSION => value,
            OLD_VERSION if is_old => self.converted(manifest, value, arena)?,
            OLD_VERSION => {
                let problem = manifest
                    .problem(
                        &Path::new("apiVersion"),
                        format!("no API server since 1.22 accepts {OLD_VERSION}"),
                    )
                    .into_problem();
                self.problems.push(problem.next("convert the CRD to v1: durward convert crd FILE"));
                return None;
            }
            other => {
                let problem = manifest
                    .problem(&Path::new("apiVersion"), format!("{other} is not a version of CRDs"))
                    .into_problem();
                self.problems.push(problem.next(format!("use {VERSION}")));
                return None;
            }
        };
        let definition = Definition::read(value);
        if arena.is_full() {
            self.too_large(manifest);
            return None;
        }
        match definition {
            Ok(definition) => Some(definition),
            Err(errors) => {
                self.report(manifest, &errors);
                None
            }
        }
    }

    fn converted<'a>(
        &mut self,
        manifest: &Manifest,
        value: Value<'a>,
        arena: &'a Arena,
    ) -> Option<Value<'a>> {
        match convert(value, &[], arena) {
            Ok(converted) => {
                let name = manifest.given_name().unwrap_or_default();
                output::note(output::foreign(&format!(
                    "note: {name} of {OLD_VERSION} is compared as durward convert crd prints it"
                )));
                Some(converted.crd)
            }
            Err(errors) => {
                let problem = |error: &FieldError| {
                    let problem = manifest.problem(&error.path, error.body.clone()).into_problem();
                    problem.why("v1 can't express this schema, so it can't be compared")
                };
                self.problems.extend(errors.iter().map(problem));
                None
            }
        }
    }

    /// Reports why an API server refuses the new CRD, and returns what could not be decided, or `None` if it is refused. Errors that the old
    /// CRD has too are not caused by the change.
    fn admitted<'a>(
        &mut self,
        manifest: &Manifest,
        before: &Definition<'a>,
        after: &Definition<'a>,
        arena: &'a Arena,
    ) -> Option<Vec<CrdChange>> {
        let server = self.server;
        let answer = |of: Value<'a>| -> Result<Validated, Vec<FieldError>> {
            let kind = (GROUP, "v1", KIND);
            let (decoded, full) = (normalize(kind, of, arena)?, with_empty(kind, of, arena)?);
            let end = Instant::now() + MAX_TIME;
            Ok(admit(decoded.object, full.object, None, server, &|| Instant::now() < end))
        };
        let (found, known) = (answer(after.value), answer(before.value).unwrap_or_default());
        if arena.is_full() {
            self.too_large(manifest);
            return None;
        }
        let found = match found {
            Ok(found) => found,
            Err(errors) => {
                self.report(manifest, &errors);
                return None;
            }
        };
        let known_errors: Vec<String> = known.errors.iter().map(ToString::to_string).collect();
        let mut is_accepted = true;
        for error in &found.errors {
            if known_errors.contains(&error.to_string()) {
                continue;
            }
            let text = format!("the API server refuses the CRD: {error}");
            let problem = manifest.problem(&document_path(&error.path), text).into_problem();
            let next = if error.hint.is_empty() { "fix the CRD, then compare it" } else { &error.hint };
            self.problems.push(problem.next(next));
            is_accepted = false;
        }
        let open = found.undecided.iter().map(|error| CrdChange {
            class: Class::NotCompared,
            version: String::new(),
            stored_as: None,
            field: String::new(),
            path: error.path.clone(),
            detail: format!("whether the API server accepts the CRD is not known: {}", error.body),
        });
        is_accepted.then(|| open.collect())
    }

    fn too_large(&mut self, manifest: &Manifest) {
        let text = format!("the CRD needs more than {} MiB of memory", MAX_BYTES >> 20);
        self.problems.push(manifest.problem(&Path::default(), text).into_problem());
    }

    /// Marks the objects of a removed CRD, which are not written again.
    fn use_objects(&mut self, crd: &Manifest) {
        let arena = Arena::new();
        let value = crd.value(&arena);
        let spec = value.field("spec").unwrap_or_default();
        let text = |of: Value<'_>, name: &str| {
            of.field(name).and_then(|value| value.as_str().map(str::to_owned)).unwrap_or_default()
        };
        let (group, kind) = (text(spec, "group"), text(spec.field("names").unwrap_or_default(), "kind"));
        for (object, used) in self.objects.iter().zip(&mut self.used) {
            *used |= object.is(&group, &kind);
        }
    }

    fn report(&mut self, manifest: &Manifest, errors: &[FieldError]) {
        self.problems.extend(
            errors.iter().map(|error| manifest.problem(&error.path, error.body.clone()).into_problem()),
        );
    }

    /// Writes the objects of a CRD again.
    fn replay(&mut self, replay: &Replay<'_>) -> Vec<Replayed> {
        let mut replayed = Vec::new();
        for (manifest, used) in self.objects.iter().zip(&mut self.used) {
            if !manifest.is(&replay.old.group, &replay.old.kind) {
                continue;
            }
            *used = true;
            match replay_one(replay, manifest) {
                Ok(object) => replayed.push(object),
                Err(problems) => self.problems.extend(problems),
            }
        }
        replayed
    }
}

/// Writes an object again. Problems are those of an object that can't exist under the old CRD.
fn replay_one(replay: &Replay<'_>, manifest: &Manifest) -> Result<Replayed, Vec<Problem>> {
    let Some(name) = manifest.given_name() else {
        let problem =
            manifest.problem(&Path::new("metadata"), "an existing object has a name").into_problem();
        return Err(vec![problem.next("set metadata.name")]);
    };
    let version = replay.old.version(manifest.version()).filter(|version| version.served || version.storage);
    let Some(version) = version else {
        let names: Vec<&str> = replay.old.versions.iter().map(|version| version.name.as_str()).collect();
        let problem = manifest
            .problem(&Path::new("apiVersion"), format!("the old CRD does not serve {}", manifest.api_version))
            .into_problem();
        return Err(vec![problem.next(format!("its versions: {}", names.join(", ")))]);
    };
    let unaffected =
        Replayed::unaffected(manifest.api_version.clone(), &manifest.kind, &manifest.namespace, name);
    let replayed = Replayed { position: Some(manifest.position()), ..unaffected };
    let problem = |error: &FieldError| manifest.problem(&error.path, error.body.clone()).into_problem();
    judged(replay, version, &manifest.document, replayed)
        .map_err(|errors| errors.iter().map(problem).collect())
}

/// Writes an object again, and completes what is known about it.
fn judged(
    replay: &Replay<'_>,
    version: &Version,
    object: &Document,
    mut replayed: Replayed,
) -> Result<Replayed, Vec<FieldError>> {
    let arena = Arena::new();
    let value = object.value(&arena);
    let end = Instant::now() + MAX_TIME;
    let effect = replay.run(version, value, &arena, &|| Instant::now() < end);
    // Errors can be those of missing values.
    let effect = if arena.is_full() {
        ReplayResult::unknown(&format!("the object needs more than {} MiB of memory", MAX_BYTES >> 20))
    } else {
        effect?
    };
    replayed.set(&effect);
    Ok(replayed)
}
