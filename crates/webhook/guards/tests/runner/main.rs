//! Runs the cases of every guard. Each file `tests/cases/GUARD/NAME.yaml` is one test, named `GUARD::NAME`.
//!
//! A case has two documents. The first one is what the guard gets:
//!
//! | key | content |
//! |---|---|
//! | `review` | the `AdmissionReview` that the API server would send, in JSON |
//! | `config` | the guard's section of the configuration; without it, all defaults |
//! | `policies` | the file `policies.yaml` that `config` names |
//! | `facts`, `fleet` or `etcd` | what it reads: see [`facts`], [`fleet`] and [`etcd`] |
//!
//! The second one is the expected ruling; see [`expected`].
//!
//! The runner also checks every patch: it contains only `add` operations, a library applies it without an error, and a second
//! review of the patched object changes nothing.
//!
//! `DURWARD_BLESS=1 cargo test -p durward-guards --test cases` writes the actual rulings into the files. A text in full stays in
//! full; of a list of words, those that still occur stay. Read the diff before you commit it. About 40 cases, with examples of
//! each kind of message, keep their texts in full; write words in all others.

mod etcd;
mod expected;
mod facts;
mod fleet;
mod limits;

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

use admission::{Answer, Guard, Settled, decode, settle};
use cluster::{Clients, cause};
use guards::{GUARD_KINDS, GuardKind};
use libtest_mimic::{Arguments, Failed, Trial};
use serde::Deserialize;
use serde_json::Value;

use etcd::EtcdFacts;
use expected::Ruling;
use facts::Facts;
use fleet::FleetFacts;

/// 2026-11-21T10:00:00Z, the time of all cases.
const NOW: Duration = Duration::from_secs(1_795_255_200);

/// Separates the two documents of a case.
const SEPARATOR: &str = "\n---\n";

fn main() {
    let arguments = Arguments::from_args();
    let trials = GUARD_KINDS.iter().flat_map(|kind| trials(*kind)).collect();
    libtest_mimic::run(&arguments, trials).exit();
}

fn trials(kind: &'static dyn GuardKind) -> Vec<Trial> {
    let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/cases").join(kind.name());
    let entries = fs::read_dir(&directory).into_iter().flatten().flatten();
    let mut cases: Vec<PathBuf> = entries.map(|entry| entry.path()).collect();
    cases.sort();
    if cases.is_empty() {
        let why = format!("{} has no case", directory.display());
        return vec![Trial::test(format!("{}::has_cases", kind.name()), move || Err(why.into()))];
    }
    let limited = limits::GUARDS.contains(&kind.name()).then(|| {
        let cases = cases.clone();
        Trial::test(format!("{}::denials_are_short", kind.name()), move || check_limits(kind, &cases))
    });
    let each = cases
        .into_iter()
        .map(|case| Trial::test(format!("{}::{}", kind.name(), name_of(&case)), move || run(kind, &case)));
    each.chain(limited).collect()
}

fn name_of(case: &Path) -> String {
    case.file_stem().unwrap_or_default().to_string_lossy().into_owned()
}

/// The input of a case.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Case {
    review: String,
    #[serde(default)]
    config: String,
    policies: Option<String>,
    facts: Option<Facts>,
    fleet: Option<FleetFacts>,
    etcd: Option<EtcdFacts>,
}

impl Case {
    /// Returns the case and the text of its ruling.
    fn read(file: &Path) -> Result<(Self, String), Failed> {
        let text = fs::read_to_string(file)?;
        let (case, ruling) = text.split_once(SEPARATOR).ok_or("the case has no second document")?;
        Ok((serde_saphyr::from_str(case)?, ruling.to_owned()))
    }

    fn clients(self) -> Result<Clients, Failed> {
        let mut clients = match (self.facts, self.fleet, self.etcd) {
            (facts, None, None) => Clients::world(facts.unwrap_or_default().world()?),
            (None, Some(fleet), None) => Clients::world(fleet.world()?),
            (None, None, Some(etcd)) => etcd.clients()?,
            _ => return Err("a case has one of facts, fleet and etcd".into()),
        };
        clients.context.fixed_time = Some(SystemTime::UNIX_EPOCH + NOW);
        Ok(clients)
    }
}

/// Returns a known code.
fn code(text: &str) -> Result<&'static str, Failed> {
    let known = cause::ALL.into_iter().find(|code| *code == text);
    known.ok_or_else(|| format!("{text:?} is not one of {}", cause::ALL.join(", ")).into())
}

/// Checks the lengths of the denials of all cases.
fn check_limits(kind: &'static dyn GuardKind, cases: &[PathBuf]) -> Result<(), Failed> {
    let mut answers = Vec::with_capacity(cases.len());
    for file in cases {
        let (case, _) = Case::read(file)?;
        let body = case.review.clone();
        answers.push((name_of(file), reviewed(&guards(kind, case)?, body.as_bytes())?.answer));
    }
    let problems = limits::problems(&answers);
    if problems.is_empty() { Ok(()) } else { Err(problems.join("\n").into()) }
}

fn run(kind: &'static dyn GuardKind, file: &Path) -> Result<(), Failed> {
    let (case, ruling) = Case::read(file)?;
    let body = case.review.clone().into_bytes();
    let guards = guards(kind, case)?;
    let settled = reviewed(&guards, &body)?;
    compare(Ruling::of(&settled), &ruling, file)?;
    if let Answer::Mutate(patch) = &settled.answer {
        let again = reviewed(&guards, &patched(&body, patch.as_json())?)?;
        if let Answer::Mutate(more) = again.answer {
            return Err(format!("a second review adds {}", String::from_utf8_lossy(more.as_json())).into());
        }
    }
    Ok(())
}

/// The guards of a section.
type Guards = Vec<Arc<dyn Guard>>;

fn compare(actual: Ruling, expected: &str, file: &Path) -> Result<(), Failed> {
    let expected: Ruling =
        serde_saphyr::from_str(expected).map_err(|error| format!("the ruling: {error}"))?;
    if std::env::var_os("DURWARD_BLESS").is_some() {
        let text = fs::read_to_string(file)?;
        let case = text.split_once(SEPARATOR).map_or(text.as_str(), |(case, _)| case);
        fs::write(file, format!("{case}{SEPARATOR}{}", actual.loosened(&expected).to_yaml()))?;
        return Ok(());
    }
    match expected.differences(&actual) {
        none if none.is_empty() => Ok(()),
        found => Err(format!("{}\n\nthe ruling is\n{}", found.join("\n"), actual.to_yaml()).into()),
    }
}

/// Returns the guards of a case.
fn guards(kind: &dyn GuardKind, case: Case) -> Result<Guards, Failed> {
    let directory = tempfile::tempdir()?;
    if let Some(policies) = &case.policies {
        fs::write(directory.path().join("policies.yaml"), policies)?;
    }
    let problems = |problems: Vec<config::Problem>| {
        problems.iter().map(ToString::to_string).collect::<Vec<_>>().join("\n")
    };
    let name = directory.path().join("config.yaml").display().to_string();
    let root = config::parse(&name, &case.config).map_err(problems)?;
    let (configured, _, wrong) =
        config::read(&name, root.as_ref(), |section| kind.read(section, guards::NAMESPACE));
    if wrong.is_empty() { Ok(configured.build(&case.clients()?)) } else { Err(problems(wrong).into()) }
}

/// Returns the answer of the first guard that denies or says anything, or else of the first guard.
fn reviewed(guards: &[Arc<dyn Guard>], body: &[u8]) -> Result<Settled, Failed> {
    let mut all = Vec::with_capacity(guards.len());
    for guard in guards {
        let review = decode(body, guard.fields()).map_err(|error| error.to_string())?;
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        let deadline = Instant::now() + Duration::from_secs(5);
        let ruling = runtime.block_on(guard.review(&review.request, deadline));
        all.push(settle(&review.request, ruling, guard.settle_policy()));
    }
    let is_silent = |settled: &Settled| {
        settled.answer == Answer::Allow && settled.warnings.is_empty() && settled.audit.is_empty()
    };
    let at = all.iter().position(|settled| !is_silent(settled)).unwrap_or_default();
    Ok(all.swap_remove(at))
}

/// Returns the review of the patched object.
fn patched(body: &[u8], patch: &[u8]) -> Result<Vec<u8>, Failed> {
    let operations: Vec<Value> = serde_json::from_slice(patch)?;
    if let Some(other) = operations.iter().find(|operation| operation["op"] != "add") {
        return Err(format!("{other} is not an add").into());
    }
    let mut review: Value = serde_json::from_slice(body)?;
    let patch: json_patch::Patch = serde_json::from_slice(patch)?;
    json_patch::patch(&mut review["request"]["object"], &patch)
        .map_err(|error| format!("the patch does not apply: {error}"))?;
    Ok(serde_json::to_vec(&review)?)
}
