//! `config schema|check|defaults`: all three from what the readers of the file ask for.

use std::path::Path;

use guards::config::{Key, Shape};

use crate::cli::Config;
use crate::exit::{Exit, Outcome};
use crate::file::{self, File, Purpose};
use crate::output;

/// `config`
pub(crate) fn run(args: &Config) -> Outcome {
    match args {
        Config::Schema => output::json(&schema())?,
        Config::Defaults => output::data(&defaults())?,
        Config::Check { file } => check(file)?,
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

fn defaults() -> String {
    format!(
        "# Durward's configuration: every key with its default. Keys without one are commented out.\n{}",
        Key::defaults(&file::keys())
    )
}

fn check(path: &Path) -> Result<(), crate::exit::Stop> {
    let purpose = Purpose::Serving { cert_given: false, key_given: false };
    let file = File::load(path, purpose)?;
    let on: Vec<_> = file.guards.iter().map(|guard| guard.kind.name()).collect();
    output::data(&format!("{} is right; guards: {}\n", path.display(), on.join(", ")))
}
