//! Finds certificates in PEM files, directories of them, and Kubernetes objects.

use std::fs;
use std::path::{Path, PathBuf};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use ca::pem::Pem;
use config::Problem;
use console::documents::Documents;
use console::exit::Stop;
use console::input::{self, shown};
use serde_json::Value;

/// A PEM text and its origin.
pub(super) struct Source {
    /// The origin in messages.
    pub(super) name: String,
    /// The parsed text.
    pub(super) pem: Pem,
    /// Whether all its certificates are trusted CAs, because it is a caBundle.
    pub(super) trusted: bool,
}

/// Reads all certificates and keys at `path`.
pub(super) fn at(path: &Path) -> Result<Vec<Source>, Stop> {
    if path.is_dir() {
        return read_directory(path);
    }
    let name = shown(path);
    let text = input::text_or_stdin(path, input::LARGE)?;
    // PEM begins with words of RFC 7468: section 2.
    if text.contains("-----BEGIN ") && !looks_like_an_object(&text) {
        return Ok(vec![Source { pem: Pem::read(&name, text.as_bytes())?, name, trusted: false }]);
    }
    let mut sources = Vec::new();
    for json in Documents::parse(&name, text)?.iter() {
        let value = serde_json::from_str(json)
            .map_err(|error| Problem::new(format!("{name} cannot be read")).why(error.to_string()))?;
        object(&value, &mut sources)?;
    }
    if sources.is_empty() {
        let problem = Problem::new(format!("{name} contains no certificate"));
        return Err(problem.next("use PEM, a Secret, or a webhook configuration with a caBundle").into());
    }
    Ok(sources)
}

fn looks_like_an_object(text: &str) -> bool {
    text.lines().any(|line| line.starts_with("kind:") || line.trim_start().starts_with("\"kind\""))
}

/// Reads the certificate and key files of a directory. A mounted Secret keeps its versions in hidden directories, which are
/// skipped.
fn read_directory(path: &Path) -> Result<Vec<Source>, Stop> {
    let cannot = |error: std::io::Error| {
        Problem::new(format!("{} cannot be read", path.display())).why(error.to_string())
    };
    let mut files: Vec<PathBuf> = Vec::new();
    for entry in fs::read_dir(path).map_err(cannot)? {
        let file = entry.map_err(cannot)?.path();
        let ending = file.extension().and_then(|ending| ending.to_str()).unwrap_or_default();
        let hidden = file.file_name().is_some_and(|name| name.to_string_lossy().starts_with('.'));
        if !hidden && matches!(ending, "crt" | "pem" | "key" | "cer") && file.is_file() {
            files.push(file);
        }
    }
    files.sort();
    if files.is_empty() {
        let problem = Problem::new(format!("{} contains no certificate", path.display()));
        return Err(problem.next("expected files: *.crt, *.pem, *.cer, *.key").into());
    }
    let (mut sources, mut problems) = (Vec::new(), Vec::new());
    for file in files {
        match at(&file) {
            Ok(found) => sources.extend(found),
            Err(found) => problems.extend(found.problems),
        }
    }
    if problems.is_empty() { Ok(sources) } else { Err(problems.into()) }
}

/// Reads the certificates of a Secret or a webhook configuration, or of the items of a List.
fn object(value: &Value, sources: &mut Vec<Source>) -> Result<(), Problem> {
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let list = |value: &Value| value.as_array().cloned().unwrap_or_default();
    let (kind, name) = (text(&value["kind"]), text(&value["metadata"]["name"]));
    for item in list(&value["items"]) {
        object(&item, sources)?;
    }
    if kind == "Secret" {
        for (key, value) in value["data"].as_object().into_iter().flatten() {
            let bytes = STANDARD.decode(text(value)).unwrap_or_default();
            if bytes.starts_with(b"-----BEGIN ") {
                let name = format!("Secret {name}, {key}");
                sources.push(Source { pem: Pem::read(&name, &bytes)?, name, trusted: false });
            }
        }
    }
    for webhook in list(&value["webhooks"]) {
        let Some(bundle) = webhook["clientConfig"]["caBundle"].as_str() else { continue };
        let name = format!("{kind} {name}, caBundle of {}", text(&webhook["name"]));
        let bytes = STANDARD
            .decode(bundle)
            .map_err(|error| Problem::new(format!("{name}: is not base64")).why(error.to_string()))?;
        sources.push(Source { pem: Pem::read(&name, &bytes)?, name, trusted: true });
    }
    Ok(())
}
