//! Runs the cases of every guard: each folder `src/<guard>/cases/<name>/` is one test, named `<guard>::<name>`.
//!
//! | file | what it holds |
//! |---|---|
//! | `review.json` | the `AdmissionReview` that the API server would send |
//! | `config.yaml` | the guard's section of the configuration; all defaults where it is missing |
//! | `facts.yaml` | what the world holds; what is not listed is unknown to the guard, not absent |
//! | `fleet.yaml` | in place of it: what several clusters hold; see [`fleet`] |
//! | `ensemble.yaml` | in place of it: an etcd ensemble and its pods; see [`ensemble`] |
//! | `ruling.yaml` | what has to come out: verdict, answer, details of a denial, warnings, audit annotations, patch |
//!
//! `facts.yaml` lists objects by the plural of their resource, and namespaced ones as `namespace/name`:
//!
//! ```yaml
//! namespaces:
//!   shop: {labels: {team: a}}
//!   gone: {absent: true}
//!   dark: {unknown: timeout}
//!   late: {labels: {team: b}, remembered: {team: a}}
//! ```
//!
//! `remembered` are the labels that memory has; the rest is what whoever asks past it hears.
//!
//! Beside what the file says, every patch is held to the rule of the house: only `add`, applied by a library without an error,
//! and a second review of the patched object changes nothing.
//!
//! `DURWARD_BLESS=1 cargo test -p durward-guards --test cases` writes what comes out into the files; read the diff before you
//! commit it.

mod ensemble;
mod fleet;

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use admission::{Answer, BoxFuture, Cause, DenialCause, Guard, Settled, decode, settle};
use cluster::{self, Address, Metadata, Reader, cause};
use guards::{GUARD_KINDS, GuardKind};
use libtest_mimic::{Arguments, Failed, Trial};
use serde::Deserialize;
use serde_json::Value;

fn main() {
    let arguments = Arguments::from_args();
    let trials = GUARD_KINDS.iter().flat_map(|kind| trials(*kind)).collect();
    libtest_mimic::run(&arguments, trials).exit();
}

fn trials(kind: &'static dyn GuardKind) -> Vec<Trial> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("src").join(kind.name()).join("cases");
    let entries = fs::read_dir(&folder).into_iter().flatten().flatten();
    let mut cases: Vec<PathBuf> = entries.map(|entry| entry.path()).filter(|path| path.is_dir()).collect();
    cases.sort();
    if cases.is_empty() {
        let why = format!("{} holds no case", folder.display());
        return vec![Trial::test(format!("{}::has_cases", kind.name()), move || Err(why.into()))];
    }
    cases
        .into_iter()
        .map(|case| {
            let name = case.file_name().unwrap_or_default().to_string_lossy().into_owned();
            Trial::test(format!("{}::{name}", kind.name()), move || run(kind, &case))
        })
        .collect()
}

/// What a case may hold. Under another name a file would be passed over, and the case would show something else than it says.
const FILES: [&str; 6] =
    ["review.json", "config.yaml", "facts.yaml", "fleet.yaml", "ensemble.yaml", "ruling.yaml"];

fn run(kind: &'static dyn GuardKind, case: &Path) -> Result<(), Failed> {
    for entry in fs::read_dir(case)? {
        let name = entry?.file_name();
        if !FILES.iter().any(|file| name == *file) {
            return Err(format!("{} is none of {}", name.display(), FILES.join(", ")).into());
        }
    }
    let body = fs::read(case.join("review.json")).map_err(|error| format!("review.json: {error}"))?;
    let clusters = case.join("fleet.yaml");
    let members = case.join("ensemble.yaml");
    let world: Arc<dyn Reader> = match (fs::read_to_string(&clusters), fs::read_to_string(&members)) {
        (Ok(text), _) => Arc::new(fleet::Told::read(&text, &clusters)?),
        (_, Ok(text)) => Arc::new(ensemble::Told::read(&text, &members)?),
        _ => Arc::new(Facts::read(&case.join("facts.yaml"))?),
    };
    let guard = guard(kind, &case.join("config.yaml"), &world)?;
    let settled = reviewed(&*guard, &body)?;
    let told = told(&settled);

    let file = case.join("ruling.yaml");
    if std::env::var_os("DURWARD_BLESS").is_some() {
        fs::write(&file, &told).map_err(|error| format!("ruling.yaml: {error}"))?;
    }
    let expected = fs::read_to_string(&file).map_err(|error| format!("ruling.yaml: {error}"))?;
    if expected != told {
        return Err(format!("expected\n{expected}\nbut it is\n{told}").into());
    }
    if let Answer::Mutate(patch) = &settled.answer {
        let again = reviewed(&*guard, &patched(&body, &patch.to_json())?)?;
        if let Answer::Mutate(more) = again.answer {
            return Err(format!("a second review adds {}", String::from_utf8_lossy(&more.to_json())).into());
        }
    }
    Ok(())
}

fn guard(kind: &dyn GuardKind, file: &Path, world: &Arc<dyn Reader>) -> Result<Arc<dyn Guard>, Failed> {
    let text = fs::read_to_string(file).unwrap_or_default();
    let problems = |problems: Vec<config::Problem>| {
        problems.iter().map(ToString::to_string).collect::<Vec<_>>().join("\n")
    };
    let root = config::parse("config.yaml", &text).map_err(problems)?;
    let (configured, _, wrong) = config::read("config.yaml", root.as_ref(), |section| kind.read(section));
    if wrong.is_empty() { Ok(configured.build(world)) } else { Err(problems(wrong).into()) }
}

fn reviewed(guard: &dyn Guard, body: &[u8]) -> Result<Settled, Failed> {
    let review = decode(body, guard.fields()).map_err(|error| error.to_string())?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let deadline = Instant::now() + Duration::from_secs(5);
    let ruling = runtime.block_on(guard.review(&review.request, deadline));
    Ok(settle(&review.request, ruling, guard.settle_policy()))
}

/// The review of the object that the patch makes of this one's.
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

/// What came out, one fact a line.
fn told(settled: &Settled) -> String {
    let quoted = |text: &str| Value::from(text).to_string();
    let mut out = format!("verdict: {}\n", settled.verdict);
    let (answer, patch) = match &settled.answer {
        Answer::Allow => ("allow".to_owned(), None),
        Answer::Mutate(patch) => ("allow, changed".to_owned(), Some(patch.to_json())),
        Answer::Deny(denial) => (format!("deny with {}: {}", denial.code.number(), denial.message), None),
    };
    let details: &[_] = match &settled.answer {
        Answer::Deny(denial) => &denial.causes,
        Answer::Allow | Answer::Mutate(_) => &[],
    };
    // Writing to a String cannot fail.
    let _ = writeln!(out, "answer: {}", quoted(&answer));
    let mut list = |name: &str, lines: Vec<String>| {
        if !lines.is_empty() {
            let _ = writeln!(out, "{name}:\n- {}", lines.join("\n- "));
        }
    };
    let detail =
        |cause: &DenialCause| quoted(&format!("{} {}: {}", cause.reason, cause.field, cause.message));
    list("details", details.iter().map(detail).collect());
    list("warnings", settled.warnings.fitted().iter().map(|warning| quoted(warning)).collect());
    list("audit", settled.audit.iter().map(|(key, value)| quoted(&format!("{key}: {value}"))).collect());
    let operations: Vec<Value> =
        patch.and_then(|patch| serde_json::from_slice(&patch).ok()).unwrap_or_default();
    let line = |operation: &Value| {
        let word = |key: &str| operation[key].as_str().unwrap_or_default().to_owned();
        quoted(&format!("{} {} {}", word("op"), word("path"), operation["value"]))
    };
    list("patch", operations.iter().map(line).collect());
    out
}

/// The world of a case.
struct Facts(BTreeMap<String, BTreeMap<String, Fact>>);

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct Fact {
    labels: BTreeMap<String, String>,
    annotations: BTreeMap<String, String>,
    deleting: bool,
    absent: bool,
    unknown: Option<String>,
    remembered: Option<BTreeMap<String, String>>,
}

impl Facts {
    fn read(file: &Path) -> Result<Self, Failed> {
        let Ok(text) = fs::read_to_string(file) else { return Ok(Self(BTreeMap::new())) };
        let facts: BTreeMap<String, BTreeMap<String, Fact>> =
            serde_saphyr::from_str(&text).map_err(|error| format!("facts.yaml: {error}"))?;
        let whys = facts.values().flat_map(BTreeMap::values).filter_map(|fact| fact.unknown.as_deref());
        match whys.into_iter().find(|why| !cause::ALL.contains(why)) {
            Some(why) => Err(format!("facts.yaml: {why:?} is none of {}", cause::ALL.join(", ")).into()),
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

    fn remembered(&self, address: Address<'_>) -> cluster::Answer {
        match &self.fact(address)?.remembered {
            Some(labels) => Ok(Some(Arc::new(Metadata { labels: labels.clone(), ..Metadata::default() }))),
            None => self.answer(address),
        }
    }

    fn answer(&self, address: Address<'_>) -> cluster::Answer {
        let fact = self.fact(address)?;
        if let Some(why) = &fact.unknown {
            // Reading has seen to it that it is one of them.
            let code = cause::ALL.into_iter().find(|code| code == why).unwrap_or(cause::GARBAGE);
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
    fn get<'a>(&'a self, address: Address<'a>, _deadline: Instant) -> BoxFuture<'a, cluster::Answer> {
        Box::pin(std::future::ready(self.remembered(address)))
    }

    fn ask<'a>(&'a self, address: Address<'a>, _deadline: Instant) -> BoxFuture<'a, cluster::Answer> {
        Box::pin(std::future::ready(self.answer(address)))
    }
}
