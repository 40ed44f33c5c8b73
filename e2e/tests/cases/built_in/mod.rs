//! `durward check` judges the structure of objects of built-in kinds as the API server does.
//!
//! OpenAPI of a built-in kind lists required fields that the API server does not demand, and validation is written in Go. So each
//! required field and enum is tried: an accepted object without the field, or with another value, is sent as a dry run.
//! `DURWARD_BLESS=1 make e2e TEST=built_in::` writes `crates/evaluator/policy/src/normalize/demands.tsv` from the answers.

mod demands;
mod mutants;
mod openapi;
mod types;

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;

use e2e::api::Answer;
use e2e::context;
use e2e::prelude::*;

use mutants::{Change, Mutant, Mutants};
use openapi::Schemas;

use super::custom_resources::unknown_fields;
use super::policies::parallel;

const SEEDS: &str = include_str!("seeds.yaml");

/// Objects of users, most of them wrong.
const OBJECTS: &str = include_str!("objects.yaml");

const KINDS: &str = include_str!("../../../../crates/evaluator/policy/src/kinds/builtin.tsv");

/// Objects of one command, which has a minute on a busy machine.
const PART: usize = 500;

#[e2e::case]
fn the_recorded_demands_are_those_of_the_api_server(context: &TestContext) -> Result<()> {
    let run = Run::new(context)?;
    let seeds = seeds()?;
    let answers = run.ask(&seeds)?;
    for (seed, answer) in seeds.iter().zip(answers) {
        answer
            .succeeded()
            .with_context(|| format!("the seed {} {}", seed["kind"], seed["metadata"]["name"]))?;
    }
    let Mutants { all: mutants, entered } = mutants::of(&seeds, &run.documents)?;
    let objects: Vec<Value> = mutants.iter().map(|mutant| mutant.object.clone()).collect();
    let answers = run.ask(&objects)?;
    let demanded = demands::demanded(&mutants, &entered, &answers, &run.documents)?;
    let path = recorded_path();
    if std::env::var_os("DURWARD_BLESS").is_some() {
        std::fs::write(&path, &demanded).context("cannot write demands.tsv")?;
        return Ok(());
    }
    let recorded = std::fs::read_to_string(&path).context("cannot read demands.tsv")?;
    let lines = |text: &str| text.lines().map(str::to_owned).collect::<BTreeSet<_>>();
    let (recorded, demanded) = (lines(&recorded), lines(&demanded));
    let missing: Vec<_> = demanded.difference(&recorded).collect();
    let surplus: Vec<_> = recorded.difference(&demanded).collect();
    ensure!(missing.is_empty() && surplus.is_empty(), "missing {missing:#?}, surplus {surplus:#?}");
    let reports = run.check("mutants", &objects, &[])?;
    let mut counts = Counts::default();
    let mut wrong = Vec::new();
    for ((mutant, answer), report) in mutants.iter().zip(&answers).zip(&reports) {
        let problem = counts.add(mutant, answer, report);
        wrong.extend(problem.map(|problem| format!("{}: {problem}\n  {}", mutant.title, answer.message())));
    }
    print(format_args!("{} objects of {} seeds: {counts:?}", mutants.len(), seeds.len()));
    ensure!(wrong.is_empty(), "{} of {}:\n{}", wrong.len(), mutants.len(), wrong.join("\n"));
    ensure!(counts.unknown > 100 && counts.types > 300 && counts.demands > 500, "{counts:?}");
    // The documents of the same server say the same.
    let given = run.check("mutants", &objects, &["--openapi", &run.directory.display().to_string()])?;
    let differ = |(own, given): &(&Value, &Value)| said(own) != said(given);
    let differing: Vec<_> = reports.iter().zip(&given).filter(differ).take(5).collect();
    ensure!(differing.is_empty(), "--openapi: {differing:#?}");
    Ok(())
}

#[e2e::case]
fn objects_of_users_are_answered_as_check_says(context: &TestContext) -> Result<()> {
    let run = Run::new(context)?;
    let objects: Vec<Value> = read(OBJECTS)?;
    let kinds: BTreeSet<String> = objects.iter().map(|object| object["kind"].to_string()).collect();
    ensure!(objects.len() >= 60 && kinds.len() >= 12, "{} objects of {} kinds", objects.len(), kinds.len());
    let answers = run.ask(&objects)?;
    let directory = run.directory.display().to_string();
    for arguments in [&[][..], &["--openapi", &directory]] {
        let reports = run.check("objects", &objects, arguments)?;
        let (mut wrong, mut refused, mut open) = (Vec::new(), 0, 0);
        for ((object, answer), report) in objects.iter().zip(&answers).zip(&reports) {
            let (code, texts) = of_check(report);
            let is_structural = answer.status == 400 || !texts.is_empty();
            refused += usize::from(is_structural);
            // Other rules of validation are not those of the structure.
            open += usize::from(!answer.is_success() && !is_structural);
            let is_same = match answer.status {
                400 => {
                    code == Some(400) && unknown_fields(answer.message()) == unknown_fields(&texts.join("\n"))
                }
                422 => code.is_none_or(|code| code == 422),
                _ => code.is_none() && answer.is_success(),
            };
            if !is_same {
                wrong.push(format!(
                    "{object}\n  API server {} {}\n  check {texts:?}",
                    answer.status,
                    answer.message()
                ));
            }
        }
        ensure!(wrong.is_empty(), "{} of {}:\n{}", wrong.len(), objects.len(), wrong.join("\n"));
        ensure!(refused > 40 && open < 8, "{refused} refused, {open} refused for other reasons");
    }
    Ok(())
}

/// JSON has duplicate keys that no map has. Other modes of field validation accept the object.
#[e2e::case]
fn duplicate_fields_are_refused(context: &TestContext) -> Result<()> {
    let run = Run::new(context)?;
    let text = r#"{"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "twice"}, "data": {"a": "b", "a": "c"}}"#;
    let arguments = ["create", "--validate=false", "--dry-run=server", "-f", "-"];
    let path = context::write(&run.directory_of("duplicates")?, "twice.json", text)?;
    let raw =
        ["create", "--raw", "/api/v1/namespaces/default/configmaps?dryRun=All&fieldValidation=Strict", "-f"];
    let file = path.display().to_string();
    let output = run.cluster.kubectl().run(&[&raw[..], &[&file]].concat())?;
    ensure!(output.stderr.contains("duplicate field \"data.a\""), "{}", output.stderr);
    run.cluster.kubectl().run_with(&arguments, text)?.succeeded()?;
    let checked = Durward::command(context, &["check", &file])?;
    checked.exited_with(2)?;
    ensure!(checked.stderr.contains("data.a") || checked.stderr.contains("\"a\""), "{}", checked.stderr);
    Ok(())
}

/// A cluster with its documents.
struct Run<'c> {
    context: &'c TestContext,
    cluster: std::sync::Arc<Cluster>,
    documents: BTreeMap<String, Schemas>,
    /// The documents as files.
    directory: PathBuf,
}

impl<'c> Run<'c> {
    fn new(context: &'c TestContext) -> Result<Self> {
        let cluster = context.cluster(&Options::named("built-in"))?;
        let directory = context.directory("openapi")?;
        let documents = openapi::documents(cluster.api(), Some(&directory))?;
        Ok(Self { context, cluster, documents, directory })
    }

    fn directory_of(&self, name: &str) -> Result<PathBuf> {
        self.context.directory(name)
    }

    /// Sends dry runs with strict field validation, as kubectl does.
    fn ask(&self, objects: &[Value]) -> Result<Vec<Answer>> {
        let create = |object: &Value| {
            let path = format!("{}?dryRun=All&fieldValidation=Strict", collection(object)?);
            self.cluster.api().create(&path, object)
        };
        parallel(objects, |_, object| create(object))
    }

    /// Returns the document of `durward check` on each object.
    fn check(&self, name: &str, objects: &[Value], arguments: &[&str]) -> Result<Vec<Value>> {
        let mut documents = Vec::with_capacity(objects.len());
        for part in objects.chunks(PART) {
            documents.extend(self.check_part(name, part, arguments)?);
        }
        Ok(documents)
    }

    /// Does this with one command. Each object has a file and a name of its own.
    fn check_part(&self, name: &str, objects: &[Value], arguments: &[&str]) -> Result<Vec<Value>> {
        let directory = self.directory_of(name)?;
        for (index, object) in objects.iter().enumerate() {
            let mut object = object.clone();
            if object["metadata"]["name"].as_str().is_some_and(|name| !name.is_empty()) {
                object["metadata"]["name"] = format!("o-{index}").into();
            }
            context::write(&directory, &format!("{index:05}.json"), &object.to_string())?;
        }
        let path = directory.display().to_string();
        let output = Durward::command(self.context, &[&["check", &path, "-o", "json"], arguments].concat())?;
        let report: Value = serde_json::from_str(&output.stdout).with_context(|| output.stderr.clone())?;
        ensure!(report["problems"] == json!([]), "{}", output.stderr);
        let documents = report["documents"].as_array().context("no documents")?;
        ensure!(documents.len() == objects.len(), "{} documents", documents.len());
        ensure!(documents.iter().all(|document| document["structureOnly"] == true), "not structure only");
        Ok(documents.clone())
    }
}

/// Answers by change.
#[derive(Debug, Default)]
struct Counts {
    accepted: usize,
    unknown: usize,
    types: usize,
    /// Absent fields and wrong values that both refuse.
    demands: usize,
    /// Those that only the API server refuses.
    not_recorded: usize,
}

impl Counts {
    /// Counts an answer. Returns a wrong verdict of `check`.
    fn add(&mut self, mutant: &Mutant, answer: &Answer, report: &Value) -> Option<String> {
        let (code, texts) = of_check(report);
        if answer.is_success() {
            self.accepted += 1;
            return code.map(|_| format!("accepted, and check says {texts:?}"));
        }
        match &mutant.change {
            Change::Unknown(path) => {
                self.unknown += 1;
                let expected = format!("strict decoding error: unknown field \"{path}\"");
                let is_same = answer.message().ends_with(&expected) && texts == [expected];
                (!is_same).then(|| format!("check says {texts:?}"))
            }
            Change::Type => {
                self.types += 1;
                (answer.status != 400 || code != Some(400)).then(|| format!("check says {texts:?}"))
            }
            Change::Required | Change::Enum => {
                let causes = causes(answer);
                self.demands += usize::from(code.is_some());
                self.not_recorded += usize::from(code.is_none());
                let is_known = |text: &String| {
                    causes.iter().any(|(field, body)| *text == format!("{field}: {body}"))
                        || text.ends_with(demands::ABSENT)
                        || mutant.change == Change::Enum
                };
                let is_right =
                    code.is_none_or(|code| code == u64::from(answer.status)) && texts.iter().all(is_known);
                (!is_right).then(|| format!("check says {texts:?}"))
            }
        }
    }
}

/// Returns field and message of each cause of an answer.
fn causes(answer: &Answer) -> Vec<(String, String)> {
    let causes = answer.body["details"]["causes"].as_array().into_iter().flatten();
    let text = |cause: &Value, name: &str| cause[name].as_str().unwrap_or_default().to_owned();
    causes.map(|cause| (text(cause, "field"), text(cause, "message"))).collect()
}

/// Returns verdict, code and text of each finding. Their files differ between two commands.
fn said(report: &Value) -> Vec<[&Value; 3]> {
    let findings = report["findings"].as_array().into_iter().flatten();
    findings.map(|finding| [&finding["verdict"], &finding["code"], &finding["message"]]).collect()
}

/// Returns the code and the texts of the first response that `check` expects.
fn of_check(report: &Value) -> (Option<u64>, Vec<String>) {
    let findings = report["findings"].as_array().into_iter().flatten();
    let first: Vec<&Value> = findings.filter(|finding| finding["serverOrder"] == 0).collect();
    let code = first.first().and_then(|finding| finding["code"].as_u64());
    let texts = first.iter().filter_map(|finding| finding["message"].as_str());
    (code, texts.map(str::to_owned).collect())
}

/// Returns the path of an object's collection.
fn collection(object: &Value) -> Result<String> {
    let text = |name: &str| object[name].as_str().with_context(|| format!("no {name}: {object}"));
    let (api_version, kind) = (text("apiVersion")?, text("kind")?);
    let (group, version) = api_version.split_once('/').unwrap_or(("", api_version));
    let row = KINDS.lines().map(|line| line.split('\t').collect::<Vec<_>>());
    let row = row.into_iter().find(|row| row.starts_with(&[group, version, kind]));
    let row = row.with_context(|| format!("no kind {kind} in {api_version}"))?;
    let root = if group.is_empty() { "/api".to_owned() } else { format!("/apis/{group}") };
    let namespace = object["metadata"]["namespace"].as_str().unwrap_or("default");
    let namespace = if row[4] == "Namespaced" { format!("/namespaces/{namespace}") } else { String::new() };
    Ok(format!("{root}/{version}{namespace}/{}", row[3]))
}

fn read<T: serde::de::DeserializeOwned>(text: &str) -> Result<T> {
    serde_saphyr::from_str(text).map_err(|error| anyhow::anyhow!("{error}"))
}

/// Returns the seeds, with the pod in all places.
fn seeds() -> Result<Vec<Value>> {
    let mut seeds: Value = read(SEEDS)?;
    let pod = seeds["pod"].take();
    let Value::Array(mut objects) = seeds["objects"].take() else { bail!("no objects") };
    for object in &mut objects {
        let is_job = object["kind"] == "Job" || object["kind"] == "CronJob";
        for place in
            ["/spec", "/spec/template/spec", "/template/spec", "/spec/jobTemplate/spec/template/spec"]
        {
            if let Some(spec) = object.pointer_mut(place).filter(|spec| **spec == "POD") {
                *spec = pod.clone();
                spec["restartPolicy"] = if is_job { "Never" } else { "Always" }.into();
            }
        }
    }
    Ok(objects)
}

fn recorded_path() -> PathBuf {
    std::path::Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../crates/evaluator/policy/src/normalize/demands.tsv")
}
