//! Arguments of `check`.

use std::path::PathBuf;
use std::str::FromStr;

use admission::Glob;
use clap::ValueEnum;
use manifests::DEFAULT_MINOR;
use manifests::facts::FieldValidation;
use manifests::load::Unbound;
use policy::release::{NEWEST, OLDEST};

/// `check`
#[derive(Debug, clap::Args)]
#[allow(clippy::struct_excessive_bools, reason = "flags")]
pub struct Args {
    /// Manifests and policies: files, directories, - for standard input
    #[arg(value_name = "PATH|-", required = true)]
    pub(crate) paths: Vec<PathBuf>,
    /// Manifests before the change: check updates and deletions
    #[arg(long, value_name = "PATH")]
    pub(crate) old: Vec<PathBuf>,
    /// Policies, CRDs, Namespaces and params to use but not check
    #[arg(long = "with", value_name = "PATH")]
    pub(crate) with: Vec<PathBuf>,
    /// Ignore files in PATH directories: NAME or DIR/NAME; * matches / too
    #[arg(long, value_name = "PATTERN")]
    pub(crate) ignore: Vec<Glob>,
    /// Namespace for objects without metadata.namespace
    #[arg(long, short, value_name = "NAMESPACE", default_value = "default", value_parser = namespace)]
    pub(crate) namespace: String,
    /// User of the requests, for policies that read request.userInfo
    #[arg(long = "as", value_name = "USER")]
    pub(crate) user: Option<String>,
    /// Permissions, for policies that ask authorizer
    #[arg(long, value_name = "FILE")]
    pub(crate) grants: Option<PathBuf>,
    /// Version of the API server, 1.30 to 1.37
    #[arg(long, value_name = "VERSION", default_value_t)]
    pub(crate) kube_version: KubeVersion,
    /// Weakest finding that ends with exit code 1
    #[arg(long, value_enum, default_value_t, value_name = "VERDICT")]
    pub(crate) fail_on: FailOn,
    /// Handle fields that a kind does not have
    #[arg(long, value_enum, default_value_t, value_name = "MODE")]
    pub(crate) field_validation: FieldValidation,
    /// OpenAPI v3 documents with the fields of built-in kinds
    #[arg(long, value_name = "PATH")]
    pub(crate) openapi: Vec<PathBuf>,
    /// Handle policies without a binding, which no API server evaluates
    #[arg(long, value_enum, default_value_t, value_name = "ACTION")]
    pub(crate) unbound: Unbound,
    /// End with exit code 0 even if something could not be decided
    #[arg(long)]
    pub(crate) allow_unknown: bool,
    /// End with exit code 2 if no policy matches any document
    #[arg(long)]
    pub(crate) require_match: bool,
    /// Write text, json, yaml, junit, sarif or github; can be repeated
    #[arg(long, short, value_name = "FORMAT[=FILE]")]
    pub(crate) output: Vec<OutputTarget>,
}

fn namespace(text: &str) -> Result<String, &'static str> {
    if config::names::is_dns_label(text) {
        Ok(text.to_owned())
    } else {
        Err("must be the name of a namespace")
    }
}

/// Minor version of an API server.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct KubeVersion(pub u8);

impl Default for KubeVersion {
    fn default() -> Self {
        Self(DEFAULT_MINOR)
    }
}

impl std::fmt::Display for KubeVersion {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(formatter, "1.{}", self.0)
    }
}

impl FromStr for KubeVersion {
    type Err = String;

    /// Accepts `1.35`, `v1.35.4` and `35`.
    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let plain = text.strip_prefix('v').unwrap_or(text);
        let mut parts = plain.split('.');
        let minor = match (parts.next(), parts.next()) {
            (Some("1"), Some(minor)) | (Some(minor), None) => minor,
            _ => "",
        };
        let minor: Option<u8> = minor.parse().ok().filter(|minor| (OLDEST..=NEWEST).contains(minor));
        minor.map(Self).ok_or_else(|| format!("must be 1.{OLDEST} to 1.{NEWEST}"))
    }
}

/// The weakest finding that fails a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, ValueEnum)]
pub(crate) enum FailOn {
    /// Denials
    #[default]
    Deny,
    /// Denials and warnings
    Warn,
    /// Denials, warnings and entries of the audit log
    Audit,
}

/// A format and the place of its output.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct OutputTarget {
    /// The format.
    pub(crate) format: OutputFormat,
    /// The file, or standard output.
    pub(crate) file: Option<PathBuf>,
}

/// The format of an output.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) enum OutputFormat {
    /// Text for terminals.
    #[default]
    Text,
    /// The whole report.
    Json,
    /// The same in YAML.
    Yaml,
    /// A test report, for Jenkins and GitLab.
    Junit,
    /// Static analysis results, for GitHub code scanning and editors.
    Sarif,
    /// Annotations of GitHub Actions.
    Github,
}

impl OutputFormat {
    /// The formats by name.
    pub(crate) const ALL: [(&'static str, Self); 6] = [
        ("text", Self::Text),
        ("json", Self::Json),
        ("yaml", Self::Yaml),
        ("junit", Self::Junit),
        ("sarif", Self::Sarif),
        ("github", Self::Github),
    ];
}

impl FromStr for OutputTarget {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let (name, file) = match text.split_once('=') {
            Some((_, "")) => return Err("the file is missing after \"=\"".to_owned()),
            Some((name, file)) => (name, Some(PathBuf::from(file))),
            None => (text, None),
        };
        let names = OutputFormat::ALL.map(|(name, _)| name);
        let format = OutputFormat::ALL.iter().find(|(known, _)| *known == name);
        let format = format.map(|(_, format)| *format).ok_or_else(|| {
            let near = config::nearest(name, names).map(|near| format!("did you mean {near}? "));
            format!("{}formats: {}", near.unwrap_or_default(), names.join(", "))
        })?;
        Ok(Self { format, file })
    }
}
