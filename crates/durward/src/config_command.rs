//! Command `config`: `schema`, `check` and `defaults`, all derived from the code that reads the configuration. `check` also
//! tests whether the API server accepts the serving certificate.

use std::net::IpAddr;
use std::path::Path;
use std::path::PathBuf;

use admission::file::check_file;
use config::{Key, Problem, Shape};

use crate::certs::{api_server, now};
use crate::exit::{Exit, Outcome, Stop};
use crate::file::{self, File, Purpose, WebhookAddress};
use crate::input;
use crate::manifests::called;
use crate::output;

/// `config`
#[derive(Debug, clap::Subcommand)]
pub(crate) enum Command {
    /// Prints the JSON schema of the configuration file, for editors
    #[command(after_help = "Example:\n  durward config schema > durward.schema.json")]
    Schema,
    /// Tells every problem of a configuration file at once
    #[command(after_help = "Example:\n  durward config check durward.yaml")]
    Check {
        /// The configuration file
        #[arg(value_name = "FILE")]
        file: PathBuf,
    },
    /// Prints every key with its default and what it does
    #[command(after_help = "Example:\n  durward config defaults > durward.yaml")]
    Defaults,
}

/// `config`
pub(crate) fn run(args: &Command) -> Outcome {
    match args {
        Command::Schema => output::json(&schema())?,
        Command::Defaults => output::data(&defaults())?,
        Command::Check { file } => check(file)?,
    }
    Ok(Exit::Done)
}

fn schema() -> serde_json::Value {
    let mut schema = Shape::Section(file::keys()).schema();
    if let Some(object) = schema.as_object_mut() {
        object.insert("$schema".to_owned(), "https://json-schema.org/draft/2020-12/schema".into());
        object.insert("title".to_owned(), "Durward's configuration".into());
        object.insert("required".to_owned(), serde_json::json!(["version", "guards"]));
    }
    schema
}

/// Values for `server.tls.files`, which has no default. With them the printed file is complete.
const CERTIFICATE: [(&str, &str); 3] =
    [("cert", "tls/tls.crt"), ("key", "tls/tls.key"), ("ca", "tls/ca.crt")];

fn defaults() -> String {
    let mut keys = file::keys();
    for (name, path) in CERTIFICATE {
        if let Some(key) = find(&mut keys, &["server", "tls", "files", name]) {
            key.default = Some(path.to_owned());
        }
    }
    format!(
        "# Durward's configuration: every key with its default. Keys without one are commented out. The certificate's files\n\
         # are those that this writes: durward certs new --service durward.durward-system --out tls\n{}",
        Key::defaults(&keys)
    )
}

/// Returns the key at a path.
fn find<'k>(keys: &'k mut [Key], path: &[&str]) -> Option<&'k mut Key> {
    let (first, rest) = path.split_first()?;
    let key = keys.iter_mut().find(|key| key.name == *first)?;
    if rest.is_empty() {
        return Some(key);
    }
    match &mut key.shape {
        Shape::Section(inner) => find(inner, rest),
        _ => None,
    }
}

fn check(path: &Path) -> Result<(), Stop> {
    let purpose = Purpose::Serving { cert_given: false, key_given: false };
    let file = File::load(path, purpose)?;
    let problems: Vec<Problem> =
        certificate_problems(&file).into_iter().chain(missing_guard_files(&file)).collect();
    if !problems.is_empty() {
        return Err(problems.into());
    }
    let on: Vec<_> = file.guards.iter().map(|guard| guard.kind.name()).collect();
    output::data(&format!("{} is right; guards: {}\n", path.display(), on.join(", ")))
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
                    .unwrap_or("write the path of a file that is there, relative to the configuration");
                problems.push(Problem::new(what).why(fault.to_string()).next(next));
            }
        }
    }
    problems
}

/// Returns reasons why the API server would reject the certificate, or the server its key.
fn certificate_problems(file: &File) -> Vec<Problem> {
    let tls = &file.server.tls;
    let Some(cert) = &tls.cert else { return Vec::new() };
    let files = api_server::Files { cert, key: tls.key.as_deref(), ca: tls.ca.as_deref() };
    let called = called(&file.server.webhook_address);
    let names = match &file.server.webhook_address {
        WebhookAddress::Service { name, namespace, .. } => format!("--service {name}.{namespace}"),
        WebhookAddress::Url(_) if called.parse::<IpAddr>().is_ok() => format!("--address {called}"),
        WebhookAddress::Url(_) => format!("--name {called}"),
    };
    let dir = cert.parent().filter(|dir| *dir != Path::new("")).unwrap_or(Path::new("."));
    let make = format!("create another one: durward certs new {names} --out {} --force", dir.display());
    api_server::refusals(files, &called, &make, now())
}
