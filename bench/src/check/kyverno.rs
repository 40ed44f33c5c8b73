//! Kyverno's CLI: built from the module `bench/kyverno`, and its report.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::Value as Json;
use sha2::{Digest as _, Sha256};

use super::verdicts::{Verdict, Verdicts, object_name};
use crate::Result;

const PACKAGE: &str = "github.com/kyverno/kyverno/cmd/cli/kubectl-kyverno";

/// Returns the path of the program. It is built first if it is not in the cache, which takes minutes.
pub(crate) fn program() -> Result<PathBuf> {
    let module = Path::new(env!("CARGO_MANIFEST_DIR")).join("kyverno");
    let version = Command::new("go").arg("version").output().map_err(|error| no_go(&error))?.stdout;
    let mut hash = Sha256::new();
    for ingredient in [fs::read(module.join("go.mod"))?, fs::read(module.join("go.sum"))?, version] {
        hash.update(ingredient.len().to_le_bytes());
        hash.update(ingredient);
    }
    let key = hash.finalize().iter().take(8).fold(String::new(), |key, byte| key + &format!("{byte:02x}"));
    let directory = cache()?.join("parts").join(format!("kyverno-{key}"));
    let program = directory.join("kyverno");
    if program.is_file() {
        return Ok(program);
    }
    fs::create_dir_all(&directory)?;
    println!("  building Kyverno's CLI into {} (once; takes minutes)", directory.display());
    // A second run must not find a program that is only half written.
    let unfinished = directory.join(format!("unfinished-{}", std::process::id()));
    let status = Command::new("go")
        .current_dir(&module)
        .env("CGO_ENABLED", "0")
        .args(["build", "-trimpath", "-buildvcs=false", "-ldflags", "-s -w", "-o"])
        .arg(&unfinished)
        .arg(PACKAGE)
        .status()
        .map_err(|error| no_go(&error))?;
    if !status.success() {
        return Err(format!("go build failed in {}", module.display()).into());
    }
    fs::rename(&unfinished, &program)?;
    Ok(program)
}

fn no_go(error: &std::io::Error) -> String {
    format!("Kyverno's CLI is built from source and needs Go 1.26 or newer (https://go.dev/dl): {error}")
}

/// Returns the cache directory of the end-to-end tests, which outlives runs.
fn cache() -> Result<PathBuf> {
    let from =
        |variable: &str| std::env::var_os(variable).filter(|value| !value.is_empty()).map(PathBuf::from);
    from("DURWARD_E2E_CACHE")
        .or_else(|| from("XDG_CACHE_HOME").map(|cache| cache.join("durward")))
        .or_else(|| from("HOME").map(|home| home.join(".cache/durward")))
        .ok_or_else(|| "there is no cache directory: set DURWARD_E2E_CACHE".into())
}

/// Reads the policy report of `kyverno apply --policy-report --output-format json`.
pub(crate) fn verdicts(report: &Path) -> Result<Verdicts> {
    let text = fs::read_to_string(report)?;
    let report: Json = serde_json::from_str(&text).map_err(|error| format!("Kyverno's report: {error}"))?;
    let mut verdicts = Verdicts::new();
    for result in report["results"].as_array().ok_or("Kyverno's report has no results")? {
        let text = |value: &Json| value.as_str().unwrap_or_default().to_owned();
        let verdict = match result["result"].as_str() {
            Some("pass") => Verdict::Pass,
            Some("fail") => Verdict::Deny(text(&result["message"])),
            Some("error") => Verdict::Error(text(&result["message"])),
            // A match condition excludes the object. Durward's report does not name such policies.
            Some("skip") => continue,
            other => return Err(format!("Kyverno's report has the result {other:?}").into()),
        };
        let object = &result["resources"][0];
        let name = object_name(&text(&object["kind"]), &text(&object["namespace"]), &text(&object["name"]));
        verdicts.insert((name, text(&result["policy"])), verdict);
    }
    Ok(verdicts)
}
