//! The context of the section readers: the purpose, and the directory of the file.

use std::path::{Path, PathBuf};

use admission::file::check_file;
use config::Section;
use console::input;

/// The purpose of reading, which decides which of the named files must exist. `manifests` on a laptop has no key, for example.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Purpose {
    /// Only the guards. No named file is opened.
    Guards,
    /// Webhook configurations: the CA certificate must exist.
    Registration,
    /// Serving, unless flags name the files.
    Serving {
        /// `--tls-cert`
        cert_given: bool,
        /// `--tls-key`
        key_given: bool,
    },
}

/// Context of the section readers.
#[derive(Debug, Clone, Copy)]
pub(super) struct Within<'p> {
    pub(super) dir: &'p Path,
    pub(super) purpose: Purpose,
}

impl Within<'_> {
    /// Reads the path at `key`, relative to the file. If `needed`, the file must exist.
    pub(super) fn path(
        &self,
        section: &mut Section<'_>,
        key: &'static str,
        doc: &'static str,
        needed: bool,
    ) -> Option<PathBuf> {
        self.path_or(section, key, doc, needed, |_| None)
    }

    /// Reads the path of a file that `certs new` can create.
    pub(super) fn certificate(
        &self,
        section: &mut Section<'_>,
        key: &'static str,
        doc: &'static str,
        needed: bool,
    ) -> Option<PathBuf> {
        self.path_or(section, key, doc, needed, |path| {
            let dir = path.parent().filter(|dir| *dir != Path::new("")).unwrap_or(Path::new("."));
            let command = format!("durward certs new --service NAME.NAMESPACE --out {}", dir.display());
            let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
            Some(match name {
                "tls.crt" | "tls.key" | "ca.crt" => format!("create it: {command}"),
                _ => format!("write the path of an existing file, or create tls.crt, tls.key and ca.crt and name them: {command}"),
            })
        })
    }

    /// Reads a path. `otherwise` is the next step if the file is missing.
    fn path_or(
        &self,
        section: &mut Section<'_>,
        key: &'static str,
        doc: &'static str,
        needed: bool,
        otherwise: impl Fn(&Path) -> Option<String>,
    ) -> Option<PathBuf> {
        let text = section.optional_text(key, "path", doc)?;
        if text.is_empty() {
            section.problem(key, "is empty", Some("allowed: a path".to_owned()));
            return None;
        }
        let path = self.dir.join(text);
        if needed && let Err(fault) = check_file(&path, input::SMALL) {
            let next = fault.next().map(str::to_owned).or_else(|| otherwise(&path));
            section.problem(key, format!("{}: {fault}", path.display()), next);
        }
        Some(path)
    }
}
