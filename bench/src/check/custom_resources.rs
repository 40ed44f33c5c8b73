//! `durward check` relative to kubectl-validate, on the objects of Gateway API ten times over.
//!
//! The experimental CRDs have the names of the standard ones, so there are two runs, and their times are added.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde_json::{Value as Json, json};

use super::process::Program;
use super::yaml;
use crate::figures::{Limit, Row, Samples};
use crate::peers::Peer;
use crate::report::Report;
use crate::servers::{Folder, binary};
use crate::steps::{GATEWAY_API, repository};
use crate::{Result, is_short, rounds};

const CHANNELS: [&str; 2] = ["standard", "experimental"];
const COPIES: usize = 10;
/// Limit of kubectl-validate's time over Durward's time.
const LIMIT: f64 = 150.0;
/// A version of Kubernetes that kubectl-validate has built in. Custom resources don't depend on it.
const BUILT_IN: &str = "1.30";
const PEER: &str = "kubectl-validate";

/// Whether an object is accepted, by its file.
type Verdicts = BTreeMap<String, bool>;

pub(super) fn measure(folder: &Folder, report: &mut Report) -> Result<()> {
    let corpus = Corpus { directory: folder.file("gateway-api") };
    let objects = corpus.write()?;
    let peer = Peer::KubectlValidate.program()?;
    let [mut ours, mut theirs] = [const { Samples::NONE }; 2];
    for round in 0..rounds() {
        ours.push_time(total(|channel| corpus.durward(channel)?.time())?);
        theirs.push_time(total(|channel| corpus.kubectl_validate(&peer, channel).time())?);
        if round == 0 {
            corpus.compare(objects)?;
        }
    }
    report.section(
        "durward check beside kubectl-validate",
        &format!(
            "{PEER} {}, {objects} files: the objects of Gateway API {} times, each in a YAML file of its own, with its 14 CRDs. Both \
             programs accept and refuse the same objects. A time is that of two whole processes on one core: one with the standard CRDs, \
             one with the experimental CRDs.",
            Peer::KubectlValidate.version("sigs.k8s.io/kubectl-validate")?,
            copies(),
        ),
    );
    report.row(Row::seconds("all objects", ours).against(PEER, theirs).limit(Limit::TimesAtLeast(LIMIT)));
    Ok(())
}

fn copies() -> usize {
    if is_short() { 1 } else { COPIES }
}

fn total(time: impl Fn(&str) -> Result<Duration>) -> Result<Duration> {
    CHANNELS.iter().try_fold(Duration::ZERO, |sum, channel| Ok(sum + time(channel)?))
}

/// The directories with CRDs and objects of each channel.
struct Corpus {
    directory: PathBuf,
}

impl Corpus {
    /// Writes all files, and returns the number of objects.
    fn write(&self) -> Result<usize> {
        let data = repository().join(GATEWAY_API);
        for channel in CHANNELS {
            fs::create_dir_all(self.crds(channel))?;
            fs::create_dir_all(self.objects(channel))?;
        }
        for entry in fs::read_dir(&data)? {
            let path = entry?.path();
            let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
            if let Some((channel, crd)) = name.split_once('-')
                && CHANNELS.contains(&channel)
            {
                fs::copy(&path, self.crds(channel).join(crd))?;
            }
        }
        let mut count = 0;
        for (number, line) in fs::read_to_string(data.join("cases.jsonl"))?.lines().enumerate() {
            let case: Json = serde_json::from_str(line)?;
            let channel = case["crd"].as_str().and_then(|crd| crd.split_once('-')).ok_or("no CRD")?.0;
            for copy in 0..copies() {
                let mut object = case["object"].clone();
                if let Some(name) = object["metadata"]["name"].as_str() {
                    object["metadata"]["name"] = json!(format!("{name}-{number}-{copy}"));
                }
                fs::write(self.objects(channel).join(format!("{number:03}-{copy}.yaml")), yaml(&object)?)?;
                count += 1;
            }
        }
        Ok(count)
    }

    fn crds(&self, channel: &str) -> PathBuf {
        self.directory.join(format!("crds-{channel}"))
    }

    fn objects(&self, channel: &str) -> PathBuf {
        self.directory.join(channel)
    }

    fn output(&self, program: &str, channel: &str) -> PathBuf {
        self.directory.join(format!("{program}-{channel}.json"))
    }

    fn durward(&self, channel: &str) -> Result<Program> {
        let arguments = vec![
            "check".into(),
            self.objects(channel).into(),
            "--with".into(),
            self.crds(channel).into(),
            "--output".into(),
            "json".into(),
        ];
        Ok(Program { path: binary()?, arguments, output: self.output("durward", channel) })
    }

    fn kubectl_validate(&self, program: &Path, channel: &str) -> Program {
        let arguments = vec![
            self.objects(channel).into(),
            "--local-crds".into(),
            self.crds(channel).into(),
            "--version".into(),
            BUILT_IN.into(),
            "--output".into(),
            "json".into(),
        ];
        Program { path: program.to_owned(), arguments, output: self.output(PEER, channel) }
    }

    /// Fails unless both programs accept and refuse the same objects.
    fn compare(&self, objects: usize) -> Result<()> {
        let [mut ours, mut theirs] = [Verdicts::new(), Verdicts::new()];
        for channel in CHANNELS {
            ours.extend(durward(&self.output("durward", channel))?);
            theirs.extend(kubectl_validate(&self.output(PEER, channel))?);
        }
        let differing: Vec<_> =
            ours.iter().filter(|(file, verdict)| theirs.get(*file) != Some(verdict)).collect();
        let accepted = ours.values().filter(|accepted| **accepted).count();
        println!(
            "Durward and {PEER}: {accepted} of {objects} objects accepted, {} differences",
            differing.len()
        );
        if differing.is_empty() && ours.len() == objects && theirs.len() == objects && accepted < objects {
            return Ok(());
        }
        let shown: Vec<_> = differing.iter().take(10).collect();
        Err(format!(
            "{} and {} verdicts for {objects} objects; these differ: {shown:?}",
            ours.len(),
            theirs.len()
        )
        .into())
    }
}

/// Reads the report of `durward check`.
fn durward(report: &Path) -> Result<Verdicts> {
    let report: Json = serde_json::from_str(&fs::read_to_string(report)?)?;
    if report["problems"].as_array().is_none_or(|problems| !problems.is_empty()) {
        return Err(format!("durward reports problems: {}", report["problems"]).into());
    }
    let documents = report["documents"].as_array().ok_or("durward's report has no documents")?;
    let verdict = |document: &Json| {
        let findings = document["findings"].as_array().map(Vec::as_slice).unwrap_or_default();
        (file(&document["file"]), findings.iter().all(|finding| finding["verdict"] == "warn"))
    };
    Ok(documents.iter().map(verdict).collect())
}

/// Reads the report of kubectl-validate: by file, the status of each document.
fn kubectl_validate(report: &Path) -> Result<Verdicts> {
    let report: Json = serde_json::from_str(&fs::read_to_string(report)?)?;
    let files = report.as_object().ok_or("the report is not an object")?;
    let verdict = |(path, statuses): (&String, &Json)| {
        let statuses = statuses.as_array().map(Vec::as_slice).unwrap_or_default();
        (file(&json!(path)), statuses.iter().all(|status| status["status"] == "Success"))
    };
    Ok(files.iter().map(verdict).collect())
}

/// Returns the name of a file without its directory.
fn file(path: &Json) -> String {
    let path = Path::new(path.as_str().unwrap_or_default());
    path.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default()
}
