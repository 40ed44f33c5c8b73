//! The guard's section of the configuration.

use super::containers::ResourceLimits;
use super::files::Files;
use super::lxcfs_path::LxcfsPath;
use crate::common::{CommonConfig, Defaults};
use ::config::Section;
use ::lxcfs::{
    FileScope, MountMethod, NodeAffinity, read_files, read_mount_method, read_path, refuse_removed,
};

/// The configuration of the guard.
#[derive(Debug, Clone)]
pub(super) struct Config {
    /// The keys that every guard has.
    pub(super) common_config: CommonConfig,
    /// The files that a pod gets unless it selects fewer.
    pub(super) files: Files,
    /// Whether init containers get the files too, sidecars among them.
    pub(super) include_init_containers: bool,
    /// Whether a container gets only the files whose limit it has.
    pub(super) only_limited_containers: bool,
    /// Runtime classes that support the mounts.
    pub(super) runtime_classes: Vec<String>,
    /// The directory on the nodes where LXCFS is mounted.
    pub(super) lxcfs_path: LxcfsPath,
    /// The Pod Security level of namespaces without a label.
    pub(super) pod_security_default: PodSecurity,
    /// How files get into a container.
    pub(super) mount_method: MountMethod,
    /// Whether pods with volumes select ready nodes.
    pub(super) node_affinity: NodeAffinity,
}

impl Config {
    /// Returns those of `files` that a container with these limits gets.
    pub(super) fn files_for(&self, files: Files, limits: ResourceLimits) -> Files {
        if !self.only_limited_containers {
            return files;
        }
        files.filter(|file| match file.scope() {
            FileScope::Memory => limits.memory,
            FileScope::Cpu => limits.cpu,
            FileScope::Container => limits.memory || limits.cpu,
        })
    }
}

/// The levels of Pod Security admission.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum PodSecurity {
    /// Allows hostPath volumes.
    Privileged,
    /// Rejects hostPath volumes.
    Baseline,
    /// Rejects hostPath volumes.
    Restricted,
}

impl PodSecurity {
    const WORDS: [(&'static str, Self); 3] =
        [("privileged", Self::Privileged), ("baseline", Self::Baseline), ("restricted", Self::Restricted)];

    /// Returns the level of a label value. An invalid value is the strictest level, as in Pod Security admission
    /// (`ParseLevel` in `k8s.io/pod-security-admission/api`).
    pub(super) fn from_label(value: &str) -> Self {
        Self::WORDS.iter().find(|(word, _)| *word == value).map_or(Self::Restricted, |(_, level)| *level)
    }

    /// Returns the label value of the level.
    pub(super) fn as_str(self) -> &'static str {
        Self::WORDS.iter().find(|(_, level)| *level == self).map_or("", |(word, _)| word)
    }
}

/// Reads the section.
pub(super) fn read(section: &mut Section<'_>, defaults: Defaults, namespace: &str) -> Config {
    let files = read_files(section);
    refuse_removed(section);
    let include_init_containers = section.bool(
        "includeInitContainers",
        "Whether init containers get the files too, sidecars among them.",
        false,
    );
    let only_limited_containers = section.bool(
        "onlyLimitedContainers",
        "Whether a container gets only files that show a limit that it has.",
        false,
    );
    let runtime_classes = section.texts(
        "runtimeClasses",
        "runtime class",
        "RuntimeClasses whose pods get the files. Pods without a RuntimeClass always do.",
        &["runc"],
    );
    let lxcfs_path = read_path(section);
    let pod_security_default = section.choice(
        "podSecurityDefault",
        "Pod Security level of namespaces without the label pod-security.kubernetes.io/enforce, as configured in the API server.",
        &PodSecurity::WORDS,
        PodSecurity::Privileged,
    );
    let (mount_method, node_affinity) = read_mount_method(section);
    Config {
        common_config: CommonConfig::read(section, defaults, namespace),
        files: Files::of(&files),
        include_init_containers,
        only_limited_containers,
        runtime_classes,
        lxcfs_path: LxcfsPath::new(&lxcfs_path),
        pod_security_default,
        mount_method,
        node_affinity,
    }
}

#[cfg(test)]
mod tests {
    use ::lxcfs::LxcfsFile;

    use super::super::fixture::{config, configured};
    use super::*;

    #[test]
    fn an_empty_section_has_six_files() {
        let config = config("{}");
        assert_eq!(config.files, Files::of(&LxcfsFile::DEFAULT));
        assert!(!config.include_init_containers && !config.only_limited_containers);
        assert_eq!(config.runtime_classes, ["runc"]);
        assert_eq!(config.lxcfs_path.as_str(), "/var/lib/lxcfs");
        assert_eq!(config.pod_security_default, PodSecurity::Privileged);
        assert_eq!((config.mount_method, config.node_affinity), (MountMethod::HostPath, NodeAffinity::None));
        assert_eq!(config.common_config.timeout_seconds, 5);
    }

    #[test]
    fn the_agents_on_nodes_know_the_keys_of_the_guard() {
        let (_, all, _) = ::config::read("d.yaml", None, |s| read(s, super::super::DEFAULTS, ""));
        let (_, node, _) = ::config::read("d.yaml", None, ::lxcfs::NodeSettings::read);
        let names = |keys: &[::config::Key]| -> std::collections::BTreeSet<&str> {
            keys.iter().map(|key| key.name).collect()
        };
        let of_guard: Vec<&str> = names(&all).difference(&names(&node)).copied().collect();
        assert_eq!(
            of_guard,
            std::collections::BTreeSet::from(::lxcfs::GUARD_KEYS).into_iter().collect::<Vec<_>>()
        );
    }

    #[test]
    fn rejects_pressure_with_the_reason() {
        let (_, problems) = configured("files: [meminfo, pressure]");
        assert_eq!(problems.len(), 1);
        assert!(
            problems[0].starts_with("d.yaml:1:18: files: invalid value \"pressure\": runc allows no mounts"),
            "{problems:?}"
        );
    }

    #[test]
    fn suggests_a_file_for_an_unknown_name() {
        let (_, problems) = configured("files: [memifo]");
        assert!(problems[0].contains("did you mean meminfo?"), "{problems:?}");
        assert!(configured("files: []").1[0].contains("no pod would get files"));
    }

    #[test]
    fn accepts_only_absolute_clean_paths() {
        for (path, problem) in [
            ("lib/lxcfs", "not absolute"),
            ("/", "root directory"),
            ("/var/lib/lxcfs/", "not clean"),
            ("/var//lxcfs", "not clean"),
            ("/var/../lxcfs", "not clean"),
            ("/a:b", "not allowed in a hostPath"),
        ] {
            let (_, problems) = configured(&format!("lxcfsPath: {path}"));
            assert!(problems.first().is_some_and(|found| found.contains(problem)), "{path}: {problems:?}");
        }
        assert_eq!(
            config("lxcfsPath: /opt/l").lxcfs_path.source(LxcfsFile::Online),
            "/opt/l/sys/devices/system/cpu/online"
        );
        assert_eq!(config("{}").lxcfs_path.file_at("/var/lib/lxcfs/proc/stat"), Some(LxcfsFile::Stat));
        assert_eq!(config("{}").lxcfs_path.file_at("/var/lib/lxcfsproc/stat"), None);
    }

    #[test]
    fn refuses_removed_keys_with_their_successor() {
        let (_, problems) = configured("optIn: {label: false}");
        let [problem] = &problems[..] else { panic!("{problems:?}") };
        assert!(problem.contains("optIn") && problem.contains("durward.dev/lxcfs=disabled"), "{problem}");
    }

    #[test]
    fn rejects_node_affinity_with_the_device_plugin() {
        for affinity in ["preferred", "required"] {
            let (_, problems) = configured(&format!("mountMethod: devicePlugin\nnodeAffinity: {affinity}"));
            let [problem] = &problems[..] else { panic!("{problems:?}") };
            assert!(
                problem
                    .starts_with("d.yaml:2:15: nodeAffinity: has no effect with mountMethod: devicePlugin"),
                "{problem}"
            );
            assert_eq!(configured(&format!("mountMethod: auto\nnodeAffinity: {affinity}")).1, [""; 0]);
        }
        assert_eq!(configured("mountMethod: devicePlugin\nnodeAffinity: none").1, [""; 0]);
        let (_, problems) = configured("mountMethod: devicePlugins\nnodeAffinity: require");
        assert!(problems[0].contains("did you mean devicePlugin?"), "{problems:?}");
        assert!(problems[1].contains("did you mean required?"), "{problems:?}");
    }

    #[test]
    fn limits_the_files_to_the_limits_of_the_container() {
        let (none, memory) = (ResourceLimits::default(), ResourceLimits { memory: true, cpu: false });
        let files = Files::of(&LxcfsFile::DEFAULT);
        assert_eq!(config("{}").files_for(files, none), files);
        let limited = config("onlyLimitedContainers: true");
        assert!(limited.files_for(files, none).is_empty());
        assert_eq!(limited.files_for(files, memory).to_string(), "meminfo,diskstats,swaps,uptime");
    }

    #[test]
    fn an_invalid_pod_security_level_is_restricted() {
        assert_eq!(PodSecurity::from_label("privileged"), PodSecurity::Privileged);
        assert_eq!(PodSecurity::from_label(""), PodSecurity::Restricted);
        assert_eq!(PodSecurity::from_label("Privileged"), PodSecurity::Restricted);
    }
}
