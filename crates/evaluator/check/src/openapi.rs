//! The types of built-in kinds in the OpenAPI documents of `--openapi`.

use std::path::PathBuf;

use config::Problem;
use console::input;
use policy::kinds::Kinds;
use policy::normalize::openapi::{OpenApiError, TypesBuilder};
use policy::value::{Arena, read_json};

use manifests::files::{self, InputFile, Use};

const ONE_DOCUMENT: &str = "write one document: kubectl get --raw /openapi/v3/apis/apps/v1 > apps-v1.json";

/// Returns the built-in kinds with the types of all documents, or the problems of the documents. `minor` is that of the API server.
pub(crate) fn kinds(paths: &[PathBuf], minor: u8) -> Result<Kinds, Vec<Problem>> {
    if paths.is_empty() {
        return Ok(Kinds::new());
    }
    let (found, mut problems) = files::find(&[(paths, Use::Fact)], &[]);
    let (mut builder, mut arena) = (TypesBuilder::default(), Arena::new());
    for file in &found {
        problems.extend(add(&mut builder, file, minor, &arena).err());
        arena.reset();
    }
    if problems.is_empty() { Ok(Kinds::with_types(builder.finish())) } else { Err(problems) }
}

/// Adds the document of a file.
fn add(builder: &mut TypesBuilder, file: &InputFile, minor: u8, arena: &Arena) -> Result<(), Problem> {
    let text = input::text_or_stdin(&file.path, input::LARGE)?;
    let name = input::shown(&file.path);
    let problem = |why: String| Problem::new(format!("{name} is not an OpenAPI document")).why(why);
    let value = read_json(&text, arena).map_err(|error| problem(error.to_string()).next(ONE_DOCUMENT))?;
    let version = builder.add(value).map_err(|error| {
        let next = match error {
            OpenApiError::Schema { .. } => "write the whole document of the API server",
            _ => ONE_DOCUMENT,
        };
        problem(error.to_string()).next(next)
    })?;
    let Some(version) = version else { return Ok(()) };
    let plain = version.strip_prefix('v').unwrap_or(&version);
    let own = plain.strip_prefix("1.").and_then(|rest| rest.split('.').next());
    match own {
        Some(own) if own == minor.to_string() => Ok(()),
        Some(own) => {
            let what = format!("{name} is of Kubernetes {version}, and check is for 1.{minor}");
            Err(Problem::new(what).next(format!("use --kube-version 1.{own}, or the documents of 1.{minor}")))
        }
        None => {
            let what = format!("{name} is of Kubernetes {version:?}, so its minor is not known");
            Err(Problem::new(what).next(format!("write the document of an API server of 1.{minor}")))
        }
    }
}
