//! Command `config`: `init`, `check`, `defaults` and `schema`, all derived from the code that reads the configuration. `check`
//! also tests whether the API server accepts the serving certificate, and prints the effective scope of each guard.

pub(crate) mod defaults;
mod init;
pub(crate) mod scope;

use std::net::IpAddr;
use std::path::Path;
use std::path::PathBuf;
use std::time::SystemTime;

use admission::file::check_file;
use config::{Problem, Shape};
use console::exit::{Exit, Outcome, Stop};
use console::input::{self, shown};
use console::output;
use console::output::Format;
use guards::Remark;
use serde::Serialize;

use crate::certificates::{api_server, now};
use crate::file::{self, File, Purpose, WebhookAddress};

/// `config`
#[derive(Debug, clap::Subcommand)]
pub(crate) enum ConfigCommand {
    /// Print a minimal configuration file
    #[command(after_help = INIT_HELP)]
    Init(init::Args),
    /// Validate a configuration file and print what each guard protects
    #[command(after_help = "Example:\n  durward config check durward.yaml\n\nExit code: 0 valid, 2 invalid.")]
    Check {
        /// Configuration file
        #[arg(value_name = "FILE|-", required_unless_present = "config")]
        file: Option<PathBuf>,
        /// Configuration file
        #[arg(long, short, value_name = "FILE", conflicts_with = "file")]
        config: Option<PathBuf>,
        /// Output format
        #[arg(long, short, value_enum, default_value_t, value_name = "FORMAT")]
        output: Format,
    },
    /// Print all keys with their defaults
    #[command(after_help = "Example:\n  durward config defaults")]
    Defaults,
    /// Print the JSON schema of the configuration file, for editors
    #[command(after_help = "Example:\n  durward config schema > durward.schema.json")]
    Schema,
}

const INIT_HELP: &str = "Examples:
  durward config init --guard deletion > durward.yaml
  durward config init --guard lxcfs > durward.yaml
  durward config init --guard etcd --namespace db --selector app=etcd > durward.yaml

With a cluster (--kubeconfig FILE) or a snapshot, the section of the guard deletion has its fleet and the API groups of its CRDs.";

/// `config`
pub(crate) fn run(args: &ConfigCommand) -> Outcome {
    match args {
        ConfigCommand::Init(args) => return init::run(args),
        ConfigCommand::Schema => output::json(&schema())?,
        ConfigCommand::Defaults => output::data(&defaults::text())?,
        ConfigCommand::Check { file, config, output } => {
            check(file.as_ref().or(config.as_ref()).map_or(Path::new(""), |path| path), *output)?;
        }
    }
    Ok(Exit::Done)
}

fn schema() -> serde_json::Value {
    let mut schema = Shape::Section(file::keys()).schema();
    if let Some(object) = schema.as_object_mut() {
        object.insert("$schema".to_owned(), "https://json-schema.org/draft/2020-12/schema".into());
        object.insert("title".to_owned(), "Durward's configuration".into());
        object.insert("required".to_owned(), serde_json::json!(["apiVersion", "kind", "guards"]));
    }
    schema
}

/// The result of `config check` for a valid file.
#[derive(Debug, Serialize)]
struct Checked {
    /// The file.
    file: String,
    /// The guards, and what they protect: one line for each webhook, and one for each policy.
    scopes: Vec<String>,
    /// Parts of the file that are probably mistakes.
    warnings: Vec<String>,
    /// Rules in force that a user can expect to be different.
    notes: Vec<String>,
}

fn check(path: &Path, format: Format) -> Result<(), Stop> {
    let purpose = Purpose::Serving { cert_given: false, key_given: false };
    let file = if path == Path::new("-") {
        File::from_text(Path::new(&shown(path)), input::text_or_stdin(path, input::SMALL)?, purpose)?
    } else {
        File::load(path, purpose)?
    };
    let problems: Vec<Problem> = certificate_problems(&file, file.server.tls.ca.as_deref())
        .into_iter()
        .chain(missing_guard_files(&file))
        .collect();
    if !problems.is_empty() {
        return Err(problems.into());
    }
    let scopes: Vec<_> = file.guards.iter().map(scope::describe).collect();
    let now = SystemTime::now();
    let (mut warnings, mut notes, mut rules): (Vec<String>, Vec<String>, Vec<String>) = Default::default();
    warnings.extend(scopes.iter().filter_map(|(_, warning)| warning.clone()));
    for guard in &file.guards {
        for remark in guard.configured.remarks(now) {
            match remark {
                Remark::Warning(text) => warnings.push(format!("{}: {text}", guard.kind.name())),
                Remark::Rule(text) => rules.push(format!("{}: {text}", guard.kind.name())),
                Remark::Note(text) => notes.push(format!("{}: {text}", guard.kind.name())),
            }
        }
    }
    let scopes = scopes.into_iter().flat_map(|(lines, _)| lines).chain(rules).collect();
    let checked = Checked { file: shown(path), scopes, warnings, notes };
    output::report(format, &checked, |checked, _| {
        let valid = format!("{} is valid", checked.file);
        output::lines(std::iter::once(valid).chain(checked.scopes.iter().cloned()))
    })?;
    for warning in &checked.warnings {
        output::note(format!("{} {warning}", output::Style::stderr().yellow("warning:")));
    }
    for note in &checked.notes {
        output::note(format!("note: {note}"));
    }
    Ok(())
}

/// Reports missing files that guards read. A guard that cannot read its file reports Unknown for every review.
fn missing_guard_files(file: &File) -> Vec<Problem> {
    let mut problems = Vec::new();
    for guard in &file.guards {
        for (key, path) in guard.configured.requirements().files {
            if let Err(fault) = check_file(&path, input::SMALL) {
                let what = format!("guards.{}.{key}: {}", guard.kind.name(), path.display());
                let next = fault
                    .next()
                    .unwrap_or("write the path of an existing file, relative to the configuration");
                problems.push(Problem::new(what).why(fault.to_string()).next(next));
            }
        }
    }
    problems
}

/// Returns reasons why the API server would reject the certificate, or the server its key.
pub(crate) fn certificate_problems(file: &File, ca: Option<&Path>) -> Vec<Problem> {
    let tls = &file.server.tls;
    let Some(cert) = &tls.cert else { return Vec::new() };
    let files = api_server::ServingFiles { cert, key: tls.key.as_deref(), ca };
    let called = file.server.webhook_address.called();
    let names = match &file.server.webhook_address {
        WebhookAddress::Service { name, namespace, .. } => format!("--service {name}.{namespace}"),
        WebhookAddress::Url(_) if called.parse::<IpAddr>().is_ok() => format!("--address {called}"),
        WebhookAddress::Url(_) => format!("--name {called}"),
    };
    let dir = cert.parent().filter(|dir| *dir != Path::new("")).unwrap_or(Path::new("."));
    let make = format!("create another one: durward certs new {names} --out {} --force", dir.display());
    api_server::refusals(files, &called, &make, now())
}
