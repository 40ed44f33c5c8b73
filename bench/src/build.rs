//! The times of builds that a contributor waits for, and the dependencies that take longest.
//!
//! The builds run in a checkout of their own. They use all cores, so nothing else can be measured meanwhile. A cold build runs once,
//! because it takes minutes.

use std::collections::BTreeMap;
use std::fs;
use std::io::{BufRead as _, BufReader, Write as _};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use serde_json::Value as Json;

use crate::figures::{Limit, Row, Samples};
use crate::report::Report;
use crate::servers::Folder;
use crate::{Result, rounds};

/// Limits in seconds.
const COLD: f64 = 90.0;
const COLD_RELEASE: f64 = 180.0;
const GUARD: f64 = 4.0;
const TEST: f64 = 15.0;
/// The file of a guard that changes.
const GUARD_FILE: &str = "crates/webhook/guards/src/lxcfs/decide.rs";
/// Dependencies in the table.
const SHOWN: usize = 10;

/// The purposes of dependencies that take long to build.
const PURPOSES: &[(&str, &str)] = &[
    ("annotate-snippets", "YAML errors with their lines"),
    ("asn1-rs", "reading certificates"),
    ("aws-lc-rs", "cryptography of TLS"),
    ("aws-lc-sys", "cryptography of TLS, in C"),
    ("clap_builder", "command line"),
    ("clap_derive", "command line"),
    ("clap_mangen", "man pages"),
    ("der-parser", "reading certificates"),
    ("granit-parser", "YAML with positions"),
    ("h2", "HTTP/2 to API servers"),
    ("http", "HTTP"),
    ("hyper", "HTTP server and client"),
    ("hyper-util", "HTTP server and client"),
    ("jiff", "times and time zones of policies"),
    ("json-patch", "patches, which kube-core depends on"),
    ("jsonpath-rust", "kube-client depends on it"),
    ("k8s-openapi", "types of Kubernetes objects"),
    ("kube-client", "kubeconfigs and requests to API servers"),
    ("kube-core", "selectors and requests of the Kubernetes API"),
    ("pest", "kube-client depends on it"),
    ("prometheus-client", "metrics"),
    ("prost", "gRPC of the kubelet"),
    ("regex-automata", "regular expressions of policies and log filters"),
    ("regex-syntax", "regular expressions of policies and log filters"),
    ("rustls", "TLS"),
    ("rustls-webpki", "checks of certificates"),
    ("serde", "JSON and YAML of kube"),
    ("serde-saphyr", "kubeconfigs, and YAML that is written"),
    ("serde_core", "JSON and YAML of kube"),
    ("serde_derive", "JSON and YAML of kube"),
    ("serde_json", "JSON of kube, and JSON that is written"),
    ("similar", "unified diffs"),
    ("syn", "macros of other crates"),
    ("thiserror-impl", "error types"),
    ("tokio", "runtime"),
    ("tower", "layers of kube-client"),
    ("tracing-subscriber", "logs"),
    ("x509-parser", "reading certificates"),
    ("zerocopy", "dependency of ahash and others"),
];

pub(crate) fn measure(folder: &Folder, report: &mut Report) -> Result<()> {
    let checkout = Checkout::new(folder.file("checkout"))?;
    checkout.run(&["fetch", "--locked"])?;
    report.section(
        "Builds",
        "The builds that a contributor waits for. They use all cores and a checkout of their own. The crates are downloaded before. A cold build runs once. A \
         changed line is a new constant at the end of a file. A test's first result is the first line of `cargo test -p CRATE` that \
         names a test.",
    );
    let cold = checkout.run(&["build", "--locked", "--timings"])?;
    report.row(Row::seconds("cold cargo build", Samples::times(&[cold])).limit(Limit::AtMost(COLD)));
    let mut guard = Samples::default();
    for _ in 0..rounds() {
        checkout.change(GUARD_FILE)?;
        guard.push_time(checkout.run(&["build", "--locked"])?);
    }
    report.row(Row::seconds("cargo build after one line of a guard", guard).limit(Limit::AtMost(GUARD)));
    let release = checkout.run(&["build", "--locked", "--release"])?;
    report.row(
        Row::seconds("cold cargo build --release", Samples::times(&[release]))
            .limit(Limit::AtMost(COLD_RELEASE)),
    );
    for name in checkout.crates()? {
        let package = format!("durward-{name}").replace("durward-durward", "durward");
        let target = if checkout.root(&name).ends_with("lib.rs") { "--lib" } else { "--bins" };
        checkout.run(&["test", "--locked", "-p", &package, target, "--no-run"])?;
        checkout.change(&checkout.root(&name))?;
        let time = checkout.first_test(&package, target)?;
        let row = Row::seconds(
            format!("first result of a test after one line of {package}"),
            Samples::times(&[time]),
        );
        report.row(row.limit(Limit::AtMost(TEST)));
    }
    report.section(
        "The dependencies that take longest to build",
        "The sum of the times of all compilations of a dependency in the cold build, from `cargo build --timings`. They run side by side.",
    );
    for (name, seconds) in checkout.longest()?.into_iter().take(SHOWN) {
        let crate_name = name.split_once(' ').map_or(name.as_str(), |(name, _)| name);
        let purpose = PURPOSES.iter().find(|(known, _)| *known == crate_name).map(|(_, purpose)| *purpose);
        let purpose = purpose.map_or_else(|| format!("`cargo tree -i {crate_name}`"), str::to_owned);
        report.row(Row::seconds(format!("{name}: {purpose}"), Samples::one(seconds)));
    }
    Ok(())
}

/// A checkout of the present commit, with a target directory of its own. Removed at the end.
struct Checkout(PathBuf);

impl Checkout {
    fn new(directory: PathBuf) -> Result<Self> {
        git(&["worktree", "add", "--quiet", "--detach"], &directory)?;
        Ok(Self(directory))
    }

    fn cargo(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new("cargo");
        command.args(arguments).current_dir(&self.0).env("CARGO_TARGET_DIR", self.0.join("target"));
        command.stdin(Stdio::null());
        command
    }

    /// Runs cargo and returns its time.
    fn run(&self, arguments: &[&str]) -> Result<Duration> {
        let log = fs::File::create(self.0.join("cargo.log"))?;
        let start = Instant::now();
        let status = self.cargo(arguments).stdout(log.try_clone()?).stderr(log).status()?;
        let time = start.elapsed();
        if status.success() {
            return Ok(time);
        }
        let log = fs::read_to_string(self.0.join("cargo.log"))?;
        Err(format!("cargo {} failed:\n{log}", arguments.join(" ")).into())
    }

    /// Returns the time until `cargo test` prints the result of a test.
    fn first_test(&self, package: &str, target: &str) -> Result<Duration> {
        let start = Instant::now();
        let mut command = self.cargo(&["test", "--locked", "-p", package, target]);
        let mut child = command.stdout(Stdio::piped()).stderr(Stdio::null()).spawn()?;
        let mut first = None;
        for line in BufReader::new(child.stdout.take().ok_or("no output")?).lines() {
            if first.is_none() && line?.starts_with("test ") {
                first = Some(start.elapsed());
            }
        }
        child.wait()?;
        first.ok_or_else(|| format!("{package} has no tests").into())
    }

    /// Adds a line to a file.
    fn change(&self, file: &str) -> Result<()> {
        let mut file = fs::OpenOptions::new().append(true).open(self.0.join(file))?;
        Ok(writeln!(file, "const _: () = ();")?)
    }

    /// Returns the directories of the crates.
    fn crates(&self) -> Result<Vec<String>> {
        let entries = fs::read_dir(self.0.join("crates"))?.flatten();
        let mut names: Vec<_> =
            entries.map(|entry| entry.file_name().to_string_lossy().into_owned()).collect();
        names.sort();
        Ok(names)
    }

    /// Returns the root file of a crate.
    fn root(&self, name: &str) -> String {
        let file = |name: &str, file: &str| format!("crates/{name}/src/{file}");
        let library = file(name, "lib.rs");
        if self.0.join(&library).exists() { library } else { file(name, "main.rs") }
    }

    /// Returns the dependencies with their times in the cold build, the longest first.
    fn longest(&self) -> Result<Vec<(String, f64)>> {
        // words of cargo: the data of the page that `--timings` writes
        let page = fs::read_to_string(self.0.join("target/cargo-timings/cargo-timing.html"))?;
        let data = page.split_once("UNIT_DATA = ").and_then(|(_, rest)| rest.split_once(";\n"));
        let units: Vec<Json> = serde_json::from_str(data.ok_or("the page of cargo has no units")?.0)?;
        let mut times: BTreeMap<String, f64> = BTreeMap::new();
        for unit in units {
            let (name, version) =
                (unit["name"].as_str().unwrap_or_default(), unit["version"].as_str().unwrap_or_default());
            if !name.starts_with("durward") {
                *times.entry(format!("{name} {version}")).or_default() +=
                    unit["duration"].as_f64().unwrap_or_default();
            }
        }
        let mut times: Vec<_> = times.into_iter().collect();
        times.sort_unstable_by(|(_, one), (_, other)| other.total_cmp(one));
        Ok(times)
    }
}

impl Drop for Checkout {
    fn drop(&mut self) {
        // The directory is temporary, so a leftover does no harm.
        let _ = git(&["worktree", "remove", "--force"], &self.0);
    }
}

fn git(arguments: &[&str], path: &Path) -> Result<()> {
    let repository = Path::new(env!("CARGO_MANIFEST_DIR"));
    let status = Command::new("git").args(arguments).arg(path).current_dir(repository).status()?;
    if status.success() { Ok(()) } else { Err(format!("git {} failed", arguments.join(" ")).into()) }
}
