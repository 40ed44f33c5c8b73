//! What the configuration says of LXCFS on nodes, and goes on saying: the file is a `ConfigMap`, which changes while we run.

use std::path::{Path, PathBuf};

use config::Problem;
use guards::lxcfs::{self, OnNode};

use crate::exit::Stop;
use crate::file::{File, Purpose, read_text};

/// The part of the file that matters on nodes.
#[derive(Debug)]
pub(crate) struct Settings {
    path: PathBuf,
    text: String,
    /// What holds now.
    pub(crate) on_node: OnNode,
}

impl Settings {
    /// Reads the file; nothing else that it names is opened.
    pub(crate) fn load(path: &Path) -> Result<Self, Stop> {
        let file = File::load(path, Purpose::Guards)?;
        let on_node = on_node(&file)?;
        Ok(Self { path: file.path, text: file.text, on_node })
    }

    /// Looks whether the file has changed, and takes over what it says now: whether something else holds than before. What is
    /// wrong with it is told once, and what held before goes on to hold.
    pub(crate) fn refresh(&mut self) -> bool {
        let text = match read_text(&self.path) {
            Ok(text) if text == self.text => return false,
            Ok(text) => text,
            // While a ConfigMap is exchanged there is a moment without it, and whoever deleted it has not configured anything else.
            Err(problem) => {
                tracing::debug!(why = %problem, "the configuration cannot be read now");
                return false;
            }
        };
        self.text.clone_from(&text);
        let read = File::from_text(&self.path, text, Purpose::Guards)
            .and_then(|file| on_node(&file).map_err(|problem| vec![problem]));
        match read {
            Ok(on_node) if on_node == self.on_node => false,
            Ok(on_node) => {
                tracing::info!(root = on_node.root, "the configuration has changed");
                self.on_node = on_node;
                true
            }
            Err(problems) => {
                for problem in problems {
                    tracing::error!(why = %problem, "the configuration has changed and cannot be used; what held before still holds");
                }
                false
            }
        }
    }
}

/// What the guard of the file says.
pub(crate) fn on_node(file: &File) -> Result<OnNode, Problem> {
    file.guards.iter().find_map(|guard| lxcfs::node_settings(guard.configured.as_ref())).ok_or_else(|| {
        Problem::new(format!("{}: the lxcfs guard is not on", file.path.display()))
            .next("under guards: add lxcfs: {}")
    })
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn a_change_is_taken_over_and_a_mistake_is_not() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("durward.yaml");
        let write = |guards: &str| fs::write(&path, format!("version: 1\nguards:\n{guards}")).unwrap();
        write("  lxcfs: {}\n");
        let mut settings = Settings::load(&path).unwrap();
        assert_eq!(settings.on_node.root, "/var/lib/lxcfs");
        assert!(!settings.refresh());
        write("  lxcfs: {root: /opt/lxcfs}\n");
        assert!(settings.refresh());
        assert_eq!(settings.on_node.root, "/opt/lxcfs");
        write("  lxcfs: {rot: /x}\n");
        assert!(!settings.refresh());
        fs::remove_file(&path).unwrap();
        assert!(!settings.refresh());
        assert_eq!(settings.on_node.root, "/opt/lxcfs");
    }

    #[test]
    fn a_file_without_the_guard_is_bad_input() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("durward.yaml");
        fs::write(&path, "version: 1\nguards: {deletion: {}}\n").unwrap();
        let stop = Settings::load(&path).unwrap_err();
        assert!(stop.problems[0].to_string().contains("the lxcfs guard is not on"), "{stop:?}");
    }
}
