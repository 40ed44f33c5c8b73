//! `durward check` relative to Kyverno's CLI and kubectl-validate: verdicts, time and memory.
//!
//! Kyverno evaluates a tenth of the generated manifests, and its time is scaled to all of them. The verdicts on the tenth are compared
//! first. All programs are processes on the same core, start from the same YAML files, and write a JSON report.

mod custom_resources;
mod kyverno;
mod manifests;
mod matching;
mod process;
mod rules;
mod verdicts;

use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use fastrand::Rng;
use serde_json::Value as Json;

use crate::figures::{Limit, Row, Samples};
use crate::peers::Peer;
use crate::report::Report;
use crate::servers::{Folder, binary};
use crate::{Result, is_short, rounds};
use process::Program;

/// Variable with the seed of a run to repeat.
const SEED: &str = "BENCH_SEED";
const MANIFESTS: usize = 1_256;
const POLICIES: usize = 60;
/// Minor of the API server.
const MINOR: u8 = 35;
/// One of so many manifests is for Kyverno.
const TENTH: usize = 10;
/// Limit of Kyverno's scaled time over Durward's time.
const SPEED_LIMIT: f64 = 300.0;
/// Limit: 60 MB.
const MEMORY_LIMIT: f64 = 60e6;
const KYVERNO: &str = "Kyverno";

/// Measures both comparisons.
pub(crate) fn measure(folder: &Folder, report: &mut Report) -> Result<()> {
    policies(folder, report)?;
    custom_resources::measure(folder, report)
}

fn policies(folder: &Folder, report: &mut Report) -> Result<()> {
    let seed = match std::env::var(SEED) {
        Ok(seed) => seed.parse().map_err(|error| format!("{SEED}={seed}: {error}"))?,
        Err(_) => fastrand::u64(..1 << 32),
    };
    let mut rng = Rng::with_seed(seed);
    let policies = rules::policies(&mut rng, POLICIES);
    let manifests = manifests::manifests(&mut rng, if is_short() { MANIFESTS / 20 } else { MANIFESTS });
    let corpus = Corpus::write(&folder.file("check"), &policies, &manifests)?;
    let kyverno = Peer::Kyverno.program()?;

    corpus.durward("tenth")?.time()?;
    let [mut all, mut tenth, mut scaled, mut theirs] = [const { Samples::NONE }; 4];
    for round in 0..rounds() {
        let some = corpus.kyverno(&kyverno, "tenth").time()?;
        if round == 0 {
            verdicts::compare(
                &verdicts::durward(&corpus.report("durward-tenth"))?,
                &kyverno::verdicts(&corpus.report("kyverno-tenth"))?,
            )?;
        }
        let one = corpus.kyverno(&kyverno, "one").time()?;
        theirs.push_time(some);
        scaled.push_time(scale(one, some, manifests.len())?);
        tenth.push_time(corpus.durward("tenth")?.time()?);
        all.push_time(corpus.durward("manifests")?.time()?);
    }
    let peak = corpus.durward("manifests")?.peak()?;
    let their_peak = corpus.kyverno(&kyverno, "tenth").peak()?;
    report.section(
        "durward check beside Kyverno's CLI",
        &format!(
            "Kyverno's CLI {}, {} generated manifests, {POLICIES} policies with bindings, {SEED}={seed}. A time is that of the whole process on \
             one core. All verdicts and messages for a tenth of the manifests are equal. Kyverno's time for all of them is extrapolated \
             from those for one and for a tenth, so its start counts once.",
            Peer::Kyverno.version("github.com/kyverno/kyverno")?,
            manifests.len(),
        ),
    );
    report.row(Row::seconds("a tenth of the manifests", tenth).against(KYVERNO, theirs));
    let row = Row::seconds("all manifests, Kyverno's time extrapolated", all).against(KYVERNO, scaled);
    report.row(row.limit(Limit::TimesAtLeast(SPEED_LIMIT)));
    let row = Row::bytes("peak memory for all manifests, Kyverno's for a tenth", Samples::one(peak));
    report.row(row.against(KYVERNO, Samples::one(their_peak)).limit(Limit::AtMost(MEMORY_LIMIT)));
    matching::measure(&mut rng, &policies, &manifests, report)
}

/// Returns the time for all manifests, from the times for one and for a tenth. The time of the start counts once.
fn scale(one: Duration, tenth: Duration, manifests: usize) -> Result<Duration> {
    let [all, some] = [manifests, manifests.div_ceil(TENTH)].map(|manifests| u32::try_from(manifests - 1));
    Ok(one + tenth.saturating_sub(one) * all? / some?)
}

/// The files: policies, and manifests in the directories `manifests`, `tenth` and `one`.
struct Corpus {
    directory: PathBuf,
}

impl Corpus {
    fn write(directory: &Path, policies: &[rules::Policy], manifests: &[Json]) -> Result<Self> {
        let corpus = Self { directory: directory.to_owned() };
        for name in ["policies", "manifests", "tenth", "one"] {
            fs::create_dir_all(directory.join(name))?;
        }
        for (number, rules::Policy { policy, binding }) in policies.iter().enumerate() {
            let text = format!("{}---\n{}", yaml(policy)?, yaml(binding)?);
            fs::write(corpus.path("policies", number), text)?;
        }
        for (number, manifest) in manifests.iter().enumerate() {
            let text = yaml(manifest)?;
            fs::write(corpus.path("manifests", number), &text)?;
            if number % TENTH == 0 {
                fs::write(corpus.path("tenth", number), &text)?;
            }
            if number == 0 {
                fs::write(corpus.path("one", number), &text)?;
            }
        }
        Ok(corpus)
    }

    fn path(&self, directory: &str, number: usize) -> PathBuf {
        self.directory.join(directory).join(format!("{number:04}.yaml"))
    }

    fn report(&self, name: &str) -> PathBuf {
        self.directory.join(format!("{name}.json"))
    }

    /// `durward check` of a directory.
    fn durward(&self, manifests: &str) -> Result<Program> {
        let directory = |name: &str| self.directory.join(name).into_os_string();
        let arguments: Vec<OsString> = vec![
            "check".into(),
            directory(manifests),
            "--with".into(),
            directory("policies"),
            "--kube-version".into(),
            format!("1.{MINOR}").into(),
            "-o".into(),
            "json".into(),
        ];
        Ok(Program { path: binary()?, arguments, output: self.report(&format!("durward-{manifests}")) })
    }

    /// `kyverno apply` on a directory.
    fn kyverno(&self, program: &Path, manifests: &str) -> Program {
        let directory = |name: &str| self.directory.join(name).into_os_string();
        let arguments: Vec<OsString> = vec![
            "apply".into(),
            directory("policies"),
            "--resource".into(),
            directory(manifests),
            "--policy-report".into(),
            "--output-format".into(),
            "json".into(),
        ];
        Program { path: program.to_owned(), arguments, output: self.report(&format!("kyverno-{manifests}")) }
    }
}

fn yaml(value: &Json) -> Result<String> {
    let text = serde_saphyr::to_string(value)?;
    Ok(if text.ends_with('\n') { text } else { text + "\n" })
}
