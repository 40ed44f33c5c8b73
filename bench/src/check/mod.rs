//! `durward check` relative to Kyverno's CLI: verdicts, time and memory.
//!
//! Kyverno evaluates a tenth of the manifests, and its time is scaled to all of them. The verdicts on the tenth are compared first.
//! Both programs are processes on the same core, start from the same YAML files, and write a JSON report.

mod corpus;
mod kyverno;
mod process;
mod verdicts;

use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::figures::{Limit, Row, Samples};
use crate::peers::Peer;
use crate::report::Report;
use crate::servers::{Folder, binary};
use crate::{Result, is_short, rounds};
use process::Program;

const MANIFESTS: usize = 1_300;
/// One of so many manifests is for Kyverno.
const TENTH: usize = 10;
/// Limit of Kyverno's scaled time over Durward's time.
const SPEED_LIMIT: f64 = 300.0;
/// Limit: 60 MB.
const MEMORY_LIMIT: f64 = 60e6;
const KYVERNO: &str = "Kyverno";
/// Objects in each of two trees, and in a file.
const OBJECTS: usize = 5_000;
const PER_FILE: usize = 100;
/// Limit of a comparison of the trees, in seconds.
const REMOVALS_LIMIT: f64 = 2.0;

/// Measures the comparison.
pub(crate) fn measure(folder: &Folder, report: &mut Report) -> Result<()> {
    let policies = corpus::policies()?;
    let manifests = corpus::manifests(if is_short() { MANIFESTS / 20 } else { MANIFESTS });
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
            "Kyverno's CLI as in peers/kyverno/go.mod, {} manifests of 13 kinds, {} policies with bindings. A time is that of the whole process on one core. All \
             verdicts and messages for a tenth of the manifests are equal. Kyverno's time for all of them is extrapolated from those for \
             one and for a tenth, so its start counts once.",
            manifests.len(),
            policies.len(),
        ),
    );
    report.row(Row::seconds("a tenth of the manifests", tenth).against(KYVERNO, theirs));
    let row = Row::seconds("all manifests, Kyverno's time extrapolated", all).against(KYVERNO, scaled);
    report.row(row.limit(Limit::TimesAtLeast(SPEED_LIMIT)));
    let row = Row::bytes("peak memory for all manifests, Kyverno's for a tenth", Samples::one(peak));
    report.row(row.against(KYVERNO, Samples::one(their_peak)).limit(Limit::AtMost(MEMORY_LIMIT)));
    removals(folder, report)
}

/// Compares two trees of manifests, of which the second one lacks an object that needs no cluster.
fn removals(folder: &Folder, report: &mut Report) -> Result<()> {
    let objects = if is_short() { OBJECTS / 20 } else { OBJECTS };
    let directory = folder.file("trees");
    for (tree, removed) in [("old", 0), ("new", 1)] {
        fs::create_dir_all(directory.join(tree))?;
        for file in 0..objects / PER_FILE {
            let first = file * PER_FILE + if file == 0 { removed } else { 0 };
            let texts = (first..(file + 1) * PER_FILE).map(|number| {
                format!(
                    "---\napiVersion: apps/v1\nkind: Deployment\nmetadata: {{name: web-{number}, namespace: shop}}\nspec:\n  replicas: 3\n  \
                     selector: {{matchLabels: {{app: web-{number}}}}}\n  template:\n    metadata: {{labels: {{app: web-{number}}}}}\n    \
                     spec:\n      containers:\n      - name: app\n        image: registry.example.com/app:1\n"
                )
            });
            fs::write(directory.join(tree).join(format!("{file:04}.yaml")), texts.collect::<String>())?;
        }
    }
    let tree = |name: &str| directory.join(name).into_os_string();
    let arguments = vec!["impact".into(), "--diff".into(), tree("old"), tree("new")];
    let program = || -> Result<Program> {
        Ok(Program { path: binary()?, arguments: arguments.clone(), output: folder.file("removals") })
    };
    let mut times = Samples::NONE;
    for _ in 0..rounds() {
        times.push_time(program()?.time()?);
    }
    report.section(
        "durward impact --diff",
        &format!("{objects} objects in each tree, {PER_FILE} in a file, one removed. No cluster is read, because it is a Deployment."),
    );
    let row = Row::seconds("the whole process on one core", times);
    report.row(row.limit(Limit::AtMost(REMOVALS_LIMIT)));
    Ok(())
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
    fn write(directory: &Path, policies: &[String], manifests: &[String]) -> Result<Self> {
        let corpus = Self { directory: directory.to_owned() };
        for (name, texts, step) in [
            ("policies", policies, 1),
            ("manifests", manifests, 1),
            ("tenth", manifests, TENTH),
            ("one", manifests, MANIFESTS),
        ] {
            fs::create_dir_all(directory.join(name))?;
            for (number, text) in texts.iter().enumerate().step_by(step) {
                fs::write(directory.join(name).join(format!("{number:04}.yaml")), text)?;
            }
        }
        Ok(corpus)
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
