//! Section to typed configuration. The policies are loaded with it, so that a file with an invalid policy is an invalid configuration.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use check::Policies;

use crate::common::{CommonConfig, Defaults};
use ::config::Section;

/// A namespace whose objects a cluster needs to start.
const SYSTEM_NAMESPACE: &str = "kube-system";

/// The configuration of the guard.
pub(super) struct Config {
    /// The keys that every guard has.
    pub(super) common_config: CommonConfig,
    /// The policies. None if the section is not written, or invalid.
    pub(super) policies: Option<Arc<Policies>>,
    /// Namespaces whose objects are not evaluated, besides that of Durward.
    pub(super) excluded_namespaces: Vec<String>,
}

impl Config {
    /// Returns whether a review can need the Namespace of the object.
    pub(super) fn depends_on_namespaces(&self) -> bool {
        let set = self.policies.as_ref().map(|policies| policies.set());
        self.common_config.exempt.depends_on_namespaces()
            || set.is_some_and(|set| set.reads_namespace() || set.selects_namespaces())
    }

    /// Returns whether objects in this namespace are not evaluated.
    pub(super) fn excludes(&self, namespace: &str) -> bool {
        !namespace.is_empty()
            && (namespace == self.common_config.namespace
                || self.excluded_namespaces.iter().any(|excluded| excluded == namespace))
    }
}

/// Reads the section. Paths are relative to the configuration file.
pub(super) fn read(section: &mut Section<'_>, defaults: Defaults, namespace: &str) -> Config {
    let paths = section.texts(
        "policies",
        "path",
        "Files and directories with ValidatingAdmissionPolicies, their bindings and params, relative to this file.",
        &[],
    );
    let excluded_namespaces = section.texts(
        "excludedNamespaces",
        "namespace",
        "Namespaces whose objects are not evaluated. The namespace of Durward is excluded too.",
        &[SYSTEM_NAMESPACE],
    );
    let common_config = CommonConfig::without_failure_policy(section, defaults, namespace);
    let mut policies = None;
    if section.is_written() && paths.is_empty() {
        let next = "name files or directories, for example: policies: [policies]".to_owned();
        section.problem("policies", "is empty, so nothing would be evaluated", Some(next));
    } else if section.is_written() {
        let dir = Path::new(&section.place().file).parent().unwrap_or(Path::new("")).to_owned();
        let paths: Vec<PathBuf> = paths.iter().map(|path| dir.join(path)).collect();
        match Policies::load(paths) {
            Ok(loaded) => policies = Some(Arc::new(loaded)),
            Err(problems) => problems.into_iter().for_each(|problem| section.report(problem)),
        }
    }
    if let Some(policies) = &policies {
        for problem in super::rules::problems(policies) {
            section.report(problem);
        }
    }
    Config { common_config, policies, excluded_namespaces }
}
