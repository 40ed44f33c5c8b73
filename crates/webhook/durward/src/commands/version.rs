//! Command `version`.

use console::exit::{Exit, Outcome};
use console::output;
use console::output::Format;
use serde::Serialize;

use crate::run::VERSION;

/// `version`
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Output format
    #[arg(long, short, value_enum, default_value_t, value_name = "FORMAT")]
    pub(crate) output: Format,
}

/// The JSON of `version`.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct VersionOutput {
    version: &'static str,
    /// The supported versions of `AdmissionReview`.
    review_versions: [&'static str; 2],
    /// The guards of this binary.
    guards: Vec<&'static str>,
    /// The version of the configuration format.
    configuration: &'static str,
}

/// `version`
pub(crate) fn run(args: &Args) -> Outcome {
    let version = VersionOutput {
        version: VERSION,
        review_versions: ["v1", "v1beta1"],
        guards: guards::GUARD_KINDS.iter().map(|kind| kind.name()).collect(),
        configuration: "durward.dev/v1alpha1",
    };
    output::report(args.output, &version, |version, _| format!("durward {}\n", version.version))?;
    Ok(Exit::Done)
}
