//! `durward check` relative to Kyverno's CLI: verdicts, time and memory on generated manifests and policies.
//!
//! Kyverno evaluates a tenth of the manifests, and its time is scaled to all of them. The verdicts on the tenth are compared
//! first. Both programs are separate processes on the same core, start from the same YAML files, and write a JSON report.

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

use crate::Result;
use crate::peer::{self, Snapshot};
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
/// Limit in MiB: 60 MB.
const MEMORY_LIMIT: f64 = 57.2;
/// Runs of Durward and of Kyverno, of which the shortest counts.
const RUNS: usize = 10;
const PEER_RUNS: usize = 2;

/// Measures and prints. Returns whether the verdicts are equal and all figures are within their limits.
pub(crate) fn measure(folder: &Snapshot) -> Result<bool> {
    let seed = match std::env::var(SEED) {
        Ok(seed) => seed.parse().map_err(|error| format!("{SEED}={seed}: {error}"))?,
        Err(_) => fastrand::u64(..1 << 32),
    };
    println!("check, the peer is Kyverno's CLI; {MANIFESTS} manifests, {POLICIES} policies, {SEED}={seed}");
    let mut rng = Rng::with_seed(seed);
    let policies = rules::policies(&mut rng, POLICIES);
    let manifests = manifests::manifests(&mut rng, MANIFESTS);
    let corpus = Corpus::write(&folder.file("check"), &policies, &manifests)?;

    let kyverno = kyverno::program()?;
    corpus.durward("tenth")?.time()?;
    let theirs = corpus.kyverno(&kyverno, "tenth").time()?;
    let equal = verdicts::compare(
        &verdicts::durward(&corpus.report("durward-tenth"))?,
        &kyverno::verdicts(&corpus.report("kyverno-tenth"))?,
    );

    let ours = shortest(&corpus.durward("manifests")?, RUNS)?;
    let theirs = shortest(&corpus.kyverno(&kyverno, "tenth"), PEER_RUNS - 1)?.min(theirs);
    let started = shortest(&corpus.kyverno(&kyverno, "one"), PEER_RUNS)?;
    let scaled = scale(started, theirs)?;
    let ratio = scaled.as_secs_f64() / ours.as_secs_f64();
    println!(
        "  time: Kyverno {theirs:.1?} for a tenth, {scaled:.1?} for all; durward {ours:.1?} for all; \
         {ratio:.0} times as fast (limit {SPEED_LIMIT})"
    );
    let peak = corpus.durward("manifests")?.peak()?;
    let their_peak = corpus.kyverno(&kyverno, "tenth").peak()?;
    println!(
        "  peak memory: Kyverno {their_peak:.0} MiB for a tenth; durward {peak:.1} MiB for all (limit {MEMORY_LIMIT})"
    );
    let grows = matching::measure(&mut rng, &policies, &manifests)?;
    Ok(equal && ratio >= SPEED_LIMIT && peak < MEMORY_LIMIT && grows)
}

/// Returns the time for all manifests, from the times for one and for a tenth. The time of the start counts once.
fn scale(one: Duration, tenth: Duration) -> Result<Duration> {
    let [all, some] = [MANIFESTS, MANIFESTS.div_ceil(TENTH)].map(|manifests| u32::try_from(manifests - 1));
    Ok(one + tenth.saturating_sub(one) * all? / some?)
}

fn shortest(program: &Program, runs: usize) -> Result<Duration> {
    (0..runs).try_fold(Duration::MAX, |best, _| Ok(program.time()?.min(best)))
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
        Ok(Program { path: peer::binary()?, arguments, output: self.report(&format!("durward-{manifests}")) })
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
