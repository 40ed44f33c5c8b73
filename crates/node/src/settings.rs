//! The part of durward.yaml that holds on nodes: the section `guards.lxcfs` without [`GUARD_KEYS`]. The webhook server checks the values
//! of these keys, and the other sections.
//!
//! On nodes the file comes from a `ConfigMap`, so it can change while an agent runs.

use std::fs;
use std::io::Read as _;
use std::path::{Path, PathBuf};

use config::{Node, Problem, Value, parse, read, read_header};
use lxcfs::{GUARD_KEYS, NodeSettings};

/// The API server's limit for a `ConfigMap`.
const MAX_BYTES: u64 = 1 << 20;

/// The configuration file of an agent.
#[derive(Debug)]
pub struct NodeConfig {
    path: PathBuf,
    text: String,
    /// The settings in effect.
    pub(crate) settings: NodeSettings,
}

impl NodeConfig {
    /// Reads the file. Files that it names are not opened.
    pub(crate) fn load(path: &Path) -> Result<Self, Vec<Problem>> {
        let text = read_text(path).map_err(|problem| vec![problem])?;
        let settings = read_settings(path, &text)?;
        Ok(Self { path: path.to_owned(), text, settings })
    }

    /// Reads the file again if it has changed. Returns whether other settings are in effect. Logs the problems of a bad file
    /// once and keeps the old settings.
    pub(crate) fn refresh(&mut self) -> bool {
        let text = match read_text(&self.path) {
            Ok(text) if text == self.text => return false,
            Ok(text) => text,
            // The kubelet replaces a ConfigMap's files; for a moment there is none.
            Err(problem) => {
                tracing::debug!(why = %problem, "could not read the configuration, retrying");
                return false;
            }
        };
        let settings = read_settings(&self.path, &text);
        self.text = text;
        match settings {
            Ok(settings) if settings == self.settings => false,
            Ok(settings) => {
                tracing::info!(root = settings.root, "configuration reloaded");
                self.settings = settings;
                true
            }
            Err(problems) => {
                for problem in problems {
                    tracing::error!(why = %problem, "the changed configuration is not valid, keeping the old one");
                }
                false
            }
        }
    }
}

/// Returns the settings in a configuration file's text. `path` is only for messages.
pub fn read_settings(path: &Path, text: &str) -> Result<NodeSettings, Vec<Problem>> {
    let name = path.display().to_string();
    let mut root = parse(&name, text)?;
    if let Some(root) = &mut root {
        retain(root, |key| ["apiVersion", "kind", "guards"].contains(&key));
        if let Some(guards) = entry(root, "guards") {
            retain(guards, |key| key == "lxcfs");
            if let Some(lxcfs) = entry(guards, "lxcfs") {
                retain(lxcfs, |key| !GUARD_KEYS.contains(&key));
            }
        }
    }
    let (settings, _, problems) = read(&name, root.as_ref(), |section| {
        read_header(section);
        section.section("guards", "The guards that are on.", |guards| {
            let is_on = guards.has("lxcfs");
            let settings = guards.section("lxcfs", "The lxcfs guard.", NodeSettings::read);
            is_on.then_some(settings)
        })
    });
    match settings {
        _ if !problems.is_empty() => Err(problems),
        Some(settings) => Ok(settings),
        None => {
            let problem = Problem::new(format!("{name}: the lxcfs guard is off"));
            Err(vec![problem.next("add lxcfs: {} under guards")])
        }
    }
}

fn retain(node: &mut Node, keep: impl Fn(&str) -> bool) {
    if let Value::Map(entries) = &mut node.value {
        entries.retain(|(name, ..)| keep(name));
    }
}

fn entry<'n>(node: &'n mut Node, key: &str) -> Option<&'n mut Node> {
    let Value::Map(entries) = &mut node.value else { return None };
    entries.iter_mut().find(|(name, ..)| name == key).map(|(.., node)| node)
}

fn read_text(path: &Path) -> Result<String, Problem> {
    let problem = |why: String| {
        Problem::new(format!("could not read the configuration file {}", path.display())).why(why)
    };
    // Opening a pipe would block.
    if !fs::metadata(path).map_err(|error| problem(error.to_string()))?.is_file() {
        return Err(problem("it is not a file".to_owned()));
    }
    let mut text = String::new();
    let file = fs::File::open(path).map_err(|error| problem(error.to_string()))?;
    let bytes = file.take(MAX_BYTES + 1).read_to_string(&mut text);
    match bytes.map_err(|error| problem(error.to_string()))? as u64 {
        0..=MAX_BYTES => Ok(text),
        _ => Err(problem(format!("it is larger than {MAX_BYTES} bytes"))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn takes_over_a_change_and_rejects_a_mistake() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("durward.yaml");
        let write = |guards: &str| {
            fs::write(
                &path,
                format!("apiVersion: durward.dev/v1alpha1\nkind: Configuration\nguards:\n{guards}"),
            )
            .unwrap();
        };
        write("  lxcfs: {}\n");
        let mut config = NodeConfig::load(&path).unwrap();
        assert_eq!(config.settings.root, "/var/lib/lxcfs");
        assert!(!config.refresh());
        write("  lxcfs: {lxcfsPath: /opt/lxcfs}\n");
        assert!(config.refresh());
        assert_eq!(config.settings.root, "/opt/lxcfs");
        for mistake in ["{rot: /x}", "{lxcfsPath: x}"] {
            write(&format!("  lxcfs: {mistake}\n"));
            assert!(!config.refresh());
        }
        fs::remove_file(&path).unwrap();
        assert!(!config.refresh());
        assert_eq!(config.settings.root, "/opt/lxcfs");
    }

    #[test]
    fn reads_only_the_section_of_the_lxcfs_guard() {
        let text = "apiVersion: durward.dev/v1alpha1\nkind: Configuration\nserver: {listen: nonsense}\nguards: {etcd: {}, lxcfs: {lxcfsPath: /l, mode: nonsense}}\n";
        assert_eq!(read_settings(Path::new("durward.yaml"), text).unwrap().root, "/l");
        let text = "apiVersion: durward.dev/v1alpha1\nkind: Configuration\nguards: {lxcfs: {rot: /l}}\n";
        let problems = read_settings(Path::new("durward.yaml"), text).unwrap_err();
        assert!(problems[0].to_string().contains("guards.lxcfs.rot"), "{problems:?}");
    }

    #[test]
    fn rejects_a_file_without_the_guard() {
        for text in ["apiVersion: durward.dev/v1alpha1\nkind: Configuration\nguards: {deletion: {}}\n", ""] {
            let problems = read_settings(Path::new("durward.yaml"), text).unwrap_err();
            assert!(problems[0].to_string().contains("the lxcfs guard is off"), "{problems:?}");
        }
    }
}
