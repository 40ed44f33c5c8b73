//! Section to typed configuration. The policies are loaded with it, so that a file with an invalid policy is an invalid configuration.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use manifests::Policies;

use crate::common::{CommonConfig, Defaults};
use ::config::Section;

/// The configuration of the guard.
pub(super) struct Config {
    /// The keys that every guard has.
    pub(super) common_config: CommonConfig,
    /// The policies. Absent if the section names no files, or is invalid.
    pub(super) policies: Option<Arc<Policies>>,
}

impl Config {
    /// Returns whether a review can need the Namespace of the object.
    pub(super) fn depends_on_namespaces(&self) -> bool {
        self.policies.as_ref().is_some_and(|policies| policies.set().needs_namespace())
    }
}

/// Reads the section. Paths are relative to the configuration file.
pub(super) fn read(section: &mut Section<'_>, defaults: Defaults, namespace: &str) -> Config {
    let paths = section.texts(
        "policies",
        "path",
        "Files and directories with ValidatingAdmissionPolicies, their bindings and params. Directories are read with those below them.",
        &[],
    );
    let common_config = CommonConfig::read(section, defaults, namespace);
    let policies = if paths.is_empty() { None } else { load(section, &paths) };
    Config { common_config, policies: policies.map(Arc::new) }
}

/// Loads the policies, or reports why the set is refused.
fn load(section: &mut Section<'_>, paths: &[String]) -> Option<Policies> {
    if paths.iter().any(|path| matches!(path.as_str(), "" | "-")) {
        let next = "name files or directories, for example: policies: [policies]".to_owned();
        section.problem("policies", "names something else than a file or directory", Some(next));
        return None;
    }
    let dir = Path::new(&section.place().file).parent().unwrap_or(Path::new("")).to_owned();
    let paths: Vec<PathBuf> = paths.iter().map(|path| dir.join(path)).collect();
    let (policies, problems) = match Policies::load(paths) {
        Ok(policies) => {
            let problems = super::rules::problems(&policies);
            (Some(policies), problems)
        }
        Err(problems) => (None, problems),
    };
    for problem in problems {
        section.report("policies", problem);
    }
    policies
}
