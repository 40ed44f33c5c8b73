//! Runs the cases of every guard. Each directory `src/GUARD/cases/NAME/` is one test, named `GUARD::NAME`.
//!
//! | file | content |
//! |---|---|
//! | `review.json` | the `AdmissionReview` that the API server would send |
//! | `config.yaml` | the guard's section of the configuration; without the file, all defaults |
//! | `policies.yaml` | policies that `config.yaml` names |
//! | `facts.yaml` | the objects of the cluster; an object that is not listed is unknown to the guard, not absent |
//! | `fleet.yaml` | instead of `facts.yaml`: the objects of several clusters; see [`fleet`] |
//! | `etcd.yaml` | instead of `facts.yaml`: an etcd cluster and its pods; see [`etcd_cluster`] |
//! | `ruling.yaml` | the expected ruling; see [`expected`] |
//!
//! `facts.yaml` lists objects by the plural of their resource, and namespaced ones as `namespace/name`:
//!
//! ```yaml
//! namespaces:
//!   shop: {labels: {team: a}}
//!   gone: {absent: true}
//!   dark: {unknown: timeout}
//!   late: {labels: {team: b}, cached: {team: a}}
//! ```
//!
//! `cached` are the labels in the cache; an uncached read returns the others.
//!
//! The runner also checks every patch: it contains only `add` operations, a library applies it without an error, and a second
//! review of the patched object changes nothing.
//!
//! `DURWARD_BLESS=1 cargo test -p durward-guards --test cases` writes the actual rulings into the files. A text in full stays in
//! full; of a list of words, those that still occur stay. Read the diff before you commit it. About 40 cases, with examples of
//! each kind of message, keep their texts in full; write words in all others.

mod etcd_cluster;
mod expected;
mod fleet;
mod limits;

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use admission::{Answer, BoxFuture, Cause, Guard, Settled, decode, settle};
use cluster::{self, Address, Clients, Metadata, Reader, cause};
use guards::{GUARD_KINDS, GuardKind};
use libtest_mimic::{Arguments, Failed, Trial};
use serde::Deserialize;
use serde_json::Value;

use expected::Ruling;

fn main() {
    let arguments = Arguments::from_args();
    let trials = GUARD_KINDS.iter().flat_map(|kind| trials(*kind)).collect();
    libtest_mimic::run(&arguments, trials).exit();
}

fn trials(kind: &'static dyn GuardKind) -> Vec<Trial> {
    let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("src").join(kind.name()).join("cases");
    let entries = fs::read_dir(&directory).into_iter().flatten().flatten();
    let mut cases: Vec<PathBuf> = entries.map(|entry| entry.path()).filter(|path| path.is_dir()).collect();
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
    case.file_name().unwrap_or_default().to_string_lossy().into_owned()
}

/// Checks the lengths of the denials of all cases.
fn check_limits(kind: &'static dyn GuardKind, cases: &[PathBuf]) -> Result<(), Failed> {
    let mut answers = Vec::with_capacity(cases.len());
    for case in cases {
        let (guards, body) = open(kind, case)?;
        answers.push((name_of(case), reviewed(&guards, &body)?.answer));
    }
    let problems = limits::problems(&answers);
    if problems.is_empty() { Ok(()) } else { Err(problems.join("\n").into()) }
}

/// The files of a case. Another name is an error, since the runner would ignore the file.
const FILES: [&str; 7] =
    ["review.json", "config.yaml", "policies.yaml", "facts.yaml", "fleet.yaml", "etcd.yaml", "ruling.yaml"];

fn run(kind: &'static dyn GuardKind, case: &Path) -> Result<(), Failed> {
    for entry in fs::read_dir(case)? {
        let name = entry?.file_name();
        if !FILES.iter().any(|file| name == *file) {
            return Err(format!("{} is not one of {}", name.display(), FILES.join(", ")).into());
        }
    }
    let (guards, body) = open(kind, case)?;
    let settled = reviewed(&guards, &body)?;
    compare(Ruling::of(&settled), &case.join("ruling.yaml"))?;
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

/// Returns the guards and the review of a case.
fn open(kind: &'static dyn GuardKind, case: &Path) -> Result<(Guards, Vec<u8>), Failed> {
    let body = fs::read(case.join("review.json")).map_err(|error| format!("review.json: {error}"))?;
    let clusters = case.join("fleet.yaml");
    let members = case.join("etcd.yaml");
    let clients = match (fs::read_to_string(&clusters), fs::read_to_string(&members)) {
        (Ok(text), _) => fleet::FleetFile::read(&text, &clusters)?.clients(),
        (_, Ok(text)) => etcd_cluster::EtcdFacts::read(&text, &members)?.clients(),
        _ => Clients::reader_only(Arc::new(Facts::read(&case.join("facts.yaml"))?)),
    };
    Ok((guards(kind, &case.join("config.yaml"), &clients)?, body))
}

fn compare(actual: Ruling, file: &Path) -> Result<(), Failed> {
    let is_blessed = std::env::var_os("DURWARD_BLESS").is_some();
    let expected = match fs::read_to_string(file) {
        Err(_) if is_blessed => Ruling::default(),
        Err(error) => return Err(format!("ruling.yaml: {error}").into()),
        Ok(text) => serde_saphyr::from_str(&text).map_err(|error| format!("ruling.yaml: {error}"))?,
    };
    if is_blessed {
        fs::write(file, actual.loosened(&expected).to_yaml())?;
        return Ok(());
    }
    match expected.differences(&actual) {
        none if none.is_empty() => Ok(()),
        found => Err(format!("{}\n\nthe ruling is\n{}", found.join("\n"), actual.to_yaml()).into()),
    }
}

fn guards(kind: &dyn GuardKind, file: &Path, clients: &Clients) -> Result<Guards, Failed> {
    let text = fs::read_to_string(file).unwrap_or_default();
    let problems = |problems: Vec<config::Problem>| {
        problems.iter().map(ToString::to_string).collect::<Vec<_>>().join("\n")
    };
    let name = file.display().to_string();
    let root = config::parse(&name, &text).map_err(problems)?;
    let (configured, _, wrong) =
        config::read(&name, root.as_ref(), |section| kind.read(section, guards::NAMESPACE));
    if wrong.is_empty() { Ok(configured.build(clients)) } else { Err(problems(wrong).into()) }
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

/// The objects of `facts.yaml`.
struct Facts(BTreeMap<String, BTreeMap<String, Fact>>);

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct Fact {
    labels: BTreeMap<String, String>,
    annotations: BTreeMap<String, String>,
    deleting: bool,
    absent: bool,
    unknown: Option<String>,
    cached: Option<BTreeMap<String, String>>,
}

impl Facts {
    fn read(file: &Path) -> Result<Self, Failed> {
        let Ok(text) = fs::read_to_string(file) else { return Ok(Self(BTreeMap::new())) };
        let facts: BTreeMap<String, BTreeMap<String, Fact>> =
            serde_saphyr::from_str(&text).map_err(|error| format!("facts.yaml: {error}"))?;
        let codes = facts.values().flat_map(BTreeMap::values).filter_map(|fact| fact.unknown.as_deref());
        match codes.into_iter().find(|code| !cause::ALL.contains(code)) {
            Some(code) => Err(format!("facts.yaml: {code:?} is not one of {}", cause::ALL.join(", ")).into()),
            None => Ok(Self(facts)),
        }
    }

    fn fact(&self, address: Address<'_>) -> Result<&Fact, Cause> {
        let name = match address.namespace {
            "" => address.name.to_owned(),
            namespace => format!("{namespace}/{}", address.name),
        };
        let fact = self.0.get(address.resource.plural.as_ref()).and_then(|objects| objects.get(&name));
        fact.ok_or_else(|| {
            let text = format!("{} {name:?} is not in facts.yaml", address.resource.plural);
            Cause::new(cause::NOT_RECORDED, text)
        })
    }

    fn cached(&self, address: Address<'_>) -> cluster::MetadataResult {
        match &self.fact(address)?.cached {
            Some(labels) => Ok(Some(Arc::new(Metadata { labels: labels.clone(), ..Metadata::default() }))),
            None => self.answer(address),
        }
    }

    fn answer(&self, address: Address<'_>) -> cluster::MetadataResult {
        let fact = self.fact(address)?;
        if let Some(unknown) = &fact.unknown {
            // `read` accepts these codes only.
            let code = cause::ALL.into_iter().find(|code| code == unknown).unwrap_or(cause::GARBAGE);
            return Err(Cause::new(code, format!("{address} could not be read")));
        }
        Ok((!fact.absent).then(|| {
            Arc::new(Metadata {
                labels: fact.labels.clone(),
                annotations: fact.annotations.clone(),
                deleting: fact.deleting,
            })
        }))
    }
}

impl Reader for Facts {
    fn get<'a>(&'a self, address: Address<'a>, _deadline: Instant) -> BoxFuture<'a, cluster::MetadataResult> {
        Box::pin(std::future::ready(self.cached(address)))
    }

    fn get_uncached<'a>(
        &'a self,
        address: Address<'a>,
        _deadline: Instant,
    ) -> BoxFuture<'a, cluster::MetadataResult> {
        Box::pin(std::future::ready(self.answer(address)))
    }
}
