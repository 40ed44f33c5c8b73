//! The guard's section of the configuration.

use std::str::FromStr;

use serde_json::value::{RawValue, to_raw_value};

use super::addition::{NewMount, NewVolume};
use super::containers::Limits;
use super::files::{Files, LxcfsFile, Shows, why_refused};
use crate::common::{CommonConfig, Defaults};
use ::config::Section;

/// What the section says.
#[derive(Debug, Clone)]
pub(super) struct Config {
    /// The keys that every guard has.
    pub(super) common_config: CommonConfig,
    /// The files that a pod gets unless it asks for fewer.
    pub(super) files: Files,
    /// By what a pod is opted in.
    pub(super) opt_in: OptIn,
    /// Whether what stands under `initContainers` gets the files too, sidecars among them.
    pub(super) init_containers: bool,
    /// Whether a container gets only the files whose limit it has.
    pub(super) only_if_limited: bool,
    /// Names of runtime classes that are known to take the mounts.
    pub(super) runtimes: Vec<String>,
    /// Where LXCFS is mounted on the nodes.
    pub(super) root: Root,
    /// What holds for namespaces without a Pod Security label.
    pub(super) pod_security_default: PodSecurity,
    /// By which way the files come into a pod.
    pub(super) backend: Backend,
    /// Whether pods with volumes go where LXCFS is ready.
    pub(super) node_readiness: NodeReadiness,
}

// === impl Config ===

impl Config {
    /// Whether the labels of namespaces ever matter: to opt in, to exempt, or because Pod Security goes by them.
    pub(super) fn looks_at_namespaces(&self) -> bool {
        self.backend != Backend::Device
            || self.opt_in.namespace_label
            || self.common_config.exempt.depends_on_namespaces()
    }

    /// Those of `files` that a container with these limits gets.
    pub(super) fn limited(&self, files: Files, limits: Limits) -> Files {
        if !self.only_if_limited {
            return files;
        }
        files.filter(|file| match file.shows() {
            Shows::Memory => limits.memory,
            Shows::Cpu => limits.cpu,
            Shows::Container => limits.memory || limits.cpu,
        })
    }
}

/// The ways by which files come into a pod.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Backend {
    /// `hostPath` volumes and mounts of them.
    Volumes,
    /// The extended resource of the device plugin.
    Device,
    /// Volumes where Pod Security lets them in, the device elsewhere.
    Auto,
}

/// What pods with volumes have to do with the label of nodes on which LXCFS is ready.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum NodeReadiness {
    /// Nothing.
    Ignore,
    /// They go there if they can.
    Prefer,
    /// They go nowhere else.
    Require,
}

/// The ways to opt in; each can be turned off. Opting out cannot.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct OptIn {
    /// By the pod's annotation, ours or the older one.
    pub(super) annotation: bool,
    /// By the pod's label.
    pub(super) label: bool,
    /// By the namespace's label.
    pub(super) namespace_label: bool,
}

/// The levels of Pod Security admission.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum PodSecurity {
    /// Lets hostPath volumes in.
    Privileged,
    /// Refuses them.
    Baseline,
    /// Refuses them.
    Restricted,
}

impl PodSecurity {
    const WORDS: [(&'static str, Self); 3] =
        [("privileged", Self::Privileged), ("baseline", Self::Baseline), ("restricted", Self::Restricted)];

    /// The level that a label's value stands for. What is no level counts as the strictest, as in Pod Security admission
    /// itself (`ParseLevel` in `k8s.io/pod-security-admission/api`).
    pub(super) fn from_label(value: &str) -> Self {
        Self::WORDS.iter().find(|(word, _)| *word == value).map_or(Self::Restricted, |(_, level)| *level)
    }

    /// The word for it.
    pub(super) fn as_str(self) -> &'static str {
        Self::WORDS.iter().find(|(_, level)| *level == self).map_or("", |(word, _)| word)
    }
}

/// The folder on the nodes under which LXCFS serves: absolute, and written in the one shortest way, because what a pod mounts
/// is compared with it.
#[derive(Debug, Clone)]
pub(super) struct Root {
    path: String,
    files: Vec<Served>,
}

/// One file of the root, with what is added for it to nearly every pod.
#[derive(Debug, Clone)]
struct Served {
    source: String,
    volume: Box<RawValue>,
    mount: Box<RawValue>,
}

impl Root {
    fn new(path: &str) -> Self {
        let served = |file: &LxcfsFile| {
            let source = format!("{path}{}", file.path());
            // Texts and booleans: there is nothing that could fail.
            let volume = to_raw_value(&NewVolume::of(file.volume(), &source)).unwrap_or_default();
            let mount = to_raw_value(&NewMount::of(file.volume(), *file)).unwrap_or_default();
            Served { source, volume, mount }
        };
        Self { path: path.to_owned(), files: LxcfsFile::ALL.iter().map(served).collect() }
    }

    /// The folder.
    pub(super) fn path(&self) -> &str {
        &self.path
    }

    /// Where `file` stands on the node.
    pub(super) fn source(&self, file: LxcfsFile) -> &str {
        self.files.get(file as usize).map_or("", |served| served.source.as_str())
    }

    /// The volume of `file` under its usual name, written once.
    pub(super) fn usual_volume(&self, file: LxcfsFile) -> Option<&RawValue> {
        self.files.get(file as usize).map(|served| served.volume.as_ref())
    }

    /// The mount of that volume.
    pub(super) fn usual_mount(&self, file: LxcfsFile) -> Option<&RawValue> {
        self.files.get(file as usize).map(|served| served.mount.as_ref())
    }

    /// The file that stands at this path of the node.
    pub(super) fn file_at(&self, path: &str) -> Option<LxcfsFile> {
        let inner = path.strip_prefix(self.path.as_str())?;
        LxcfsFile::ALL.into_iter().find(|file| file.path() == inner)
    }
}

impl FromStr for Root {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let segments = text.strip_prefix('/').ok_or("is not absolute: it must begin with /")?;
        if segments.is_empty() {
            return Err("is the node's whole file system".to_owned());
        }
        if segments.split('/').any(|segment| matches!(segment, "" | "." | "..")) {
            return Err("is not written the shortest way: no //, /./, /../ and no / at the end".to_owned());
        }
        if text.contains(|c: char| c == ':' || c.is_control()) {
            return Err("has a character that no hostPath may have".to_owned());
        }
        Ok(Self::new(text))
    }
}

/// Where LXCFS is mounted unless the configuration says otherwise.
pub(super) const DEFAULT_ROOT: &str = "/var/lib/lxcfs";

/// Reads the section.
pub(super) fn read(section: &mut Section<'_>, defaults: Defaults) -> Config {
    let words = LxcfsFile::ALL.map(|file| (file.name(), file));
    let files = section.choices_except(
        "files",
        "The files of LXCFS that a pod gets; a pod may ask for fewer.",
        &words,
        &LxcfsFile::DEFAULT,
        |word| why_refused(word).map(str::to_owned),
    );
    if section.is_empty_list("files") {
        let next = "name at least one, or leave the lxcfs section out".to_owned();
        section.problem("files", "names no file that LXCFS serves", Some(next));
    }
    let opt_in = section.section("optIn", "By what a pod is opted in. Opting out always works.", |s| {
        let ways = OptIn {
            annotation: s.bool(
                "annotation",
                "By the pod's annotation durward.dev/lxcfs or sidecar-injector.lxcfs/inject.",
                true,
            ),
            label: s.bool("label", "By the pod's label durward.dev/lxcfs.", true),
            namespace_label: s.bool("namespaceLabel", "By the namespace's label durward.dev/lxcfs.", true),
        };
        if s.is_written() && !(ways.annotation || ways.label || ways.namespace_label) {
            let next = "leave one of them true, or leave the lxcfs section out".to_owned();
            s.problem("namespaceLabel", "is false like the others, so no pod could be opted in", Some(next));
        }
        ways
    });
    let init_containers =
        section.bool("initContainers", "Whether init containers, sidecars among them, get the files.", false);
    let only_if_limited = section.bool(
        "onlyIfLimited",
        "Whether a container gets only the files that show a limit which it has.",
        false,
    );
    let runtimes = section.section("runtimes", "Container runtimes that take the mounts.", |s| {
        s.texts(
            "allow",
            "runtime class",
            "RuntimeClasses whose pods get the files; a pod that names none always may.",
            &["runc"],
        )
    });
    let root = section.parsed(
        "root",
        "path",
        "Where LXCFS is mounted on the nodes.",
        Some((DEFAULT_ROOT, Root::new(DEFAULT_ROOT))),
    );
    let pod_security_default = section.choice(
        "podSecurityDefault",
        "What Pod Security admission enforces on this cluster in namespaces without a label of their own.",
        &PodSecurity::WORDS,
        PodSecurity::Privileged,
    );
    let (backend, node_readiness) = ways(section);
    Config {
        common_config: CommonConfig::read(section, defaults),
        files: Files::of(&files),
        opt_in,
        init_containers,
        only_if_limited,
        runtimes,
        root: root.unwrap_or_else(|| Root::new(DEFAULT_ROOT)),
        pod_security_default,
        backend,
        node_readiness,
    }
}

fn ways(section: &mut Section<'_>) -> (Backend, NodeReadiness) {
    let backend = section.choice(
        "backend",
        "By which way the files come: hostPath volumes, the device plugin, or auto: volumes where Pod Security lets them in, else the device.",
        &[("volumes", Backend::Volumes), ("device", Backend::Device), ("auto", Backend::Auto)],
        Backend::Volumes,
    );
    let readiness = section.choice(
        "nodeReadiness",
        "Whether pods with the volumes go only (require) or rather (prefer) to nodes with the label durward.dev/lxcfs-ready.",
        &[
            ("ignore", NodeReadiness::Ignore),
            ("prefer", NodeReadiness::Prefer),
            ("require", NodeReadiness::Require),
        ],
        NodeReadiness::Ignore,
    );
    if backend == Backend::Device && readiness != NodeReadiness::Ignore {
        section.problem(
            "nodeReadiness",
            "has no effect with backend: device, whose pods the scheduler sends only where the device plugin is well",
            Some("leave nodeReadiness out, or take backend: auto, whose volumes it is for".to_owned()),
        );
    }
    (backend, readiness)
}

#[cfg(test)]
mod tests {
    use super::super::fixture::{config, configured};
    use super::*;

    #[test]
    fn an_empty_section_has_the_six_safe_files_and_every_way_to_opt_in() {
        let config = config("{}");
        assert_eq!(config.files, Files::of(&LxcfsFile::DEFAULT));
        assert_eq!(config.opt_in, OptIn { annotation: true, label: true, namespace_label: true });
        assert!(!config.init_containers && !config.only_if_limited);
        assert_eq!(config.runtimes, ["runc"]);
        assert_eq!(config.root.path(), "/var/lib/lxcfs");
        assert_eq!(config.pod_security_default, PodSecurity::Privileged);
        assert_eq!((config.backend, config.node_readiness), (Backend::Volumes, NodeReadiness::Ignore));
        assert_eq!(config.common_config.timeout_seconds, 5);
    }

    #[test]
    fn pressure_is_refused_with_the_reason() {
        let (_, problems) = configured("files: [meminfo, pressure]");
        assert_eq!(problems.len(), 1);
        assert!(
            problems[0].starts_with("d.yaml:1:18: files: \"pressure\": runc lets nothing be mounted"),
            "{problems:?}"
        );
    }

    #[test]
    fn a_file_that_lxcfs_does_not_have_is_told_with_a_suggestion() {
        let (_, problems) = configured("files: [memifo]");
        assert!(problems[0].contains("did you mean meminfo?"), "{problems:?}");
        assert!(configured("files: []").1[0].contains("names no file"));
    }

    #[test]
    fn a_root_is_absolute_and_written_the_shortest_way() {
        for (root, why) in [
            ("lib/lxcfs", "not absolute"),
            ("/", "whole file system"),
            ("/var/lib/lxcfs/", "shortest way"),
            ("/var//lxcfs", "shortest way"),
            ("/var/../lxcfs", "shortest way"),
            ("/a:b", "no hostPath may have"),
        ] {
            let (_, problems) = configured(&format!("root: {root}"));
            assert!(problems.first().is_some_and(|problem| problem.contains(why)), "{root}: {problems:?}");
        }
        assert_eq!(
            config("root: /opt/l").root.source(LxcfsFile::Online),
            "/opt/l/sys/devices/system/cpu/online"
        );
        assert_eq!(config("{}").root.file_at("/var/lib/lxcfs/proc/stat"), Some(LxcfsFile::Stat));
        assert_eq!(config("{}").root.file_at("/var/lib/lxcfsproc/stat"), None);
    }

    #[test]
    fn every_way_to_opt_in_turned_off_is_a_mistake() {
        let (_, problems) = configured("optIn: {annotation: false, label: false, namespaceLabel: false}");
        assert!(problems[0].contains("no pod could be opted in"), "{problems:?}");
    }

    #[test]
    fn a_readiness_that_no_pod_would_be_asked_for_is_a_mistake() {
        for readiness in ["prefer", "require"] {
            let (_, problems) = configured(&format!("backend: device\nnodeReadiness: {readiness}"));
            let [problem] = &problems[..] else { panic!("{problems:?}") };
            assert!(
                problem.starts_with("d.yaml:2:16: nodeReadiness: has no effect with backend: device"),
                "{problem}"
            );
            assert_eq!(configured(&format!("backend: auto\nnodeReadiness: {readiness}")).1, [""; 0]);
        }
        assert_eq!(configured("backend: device\nnodeReadiness: ignore").1, [""; 0]);
        let (_, problems) = configured("backend: devices\nnodeReadiness: required");
        assert!(problems[0].contains("did you mean device?"), "{problems:?}");
        assert!(problems[1].contains("did you mean require?"), "{problems:?}");
    }

    #[test]
    fn only_files_that_show_a_limit_which_is_there_are_for_a_container_if_that_is_asked_for() {
        let (none, memory) = (Limits::default(), Limits { memory: true, cpu: false });
        let files = Files::of(&LxcfsFile::DEFAULT);
        assert_eq!(config("{}").limited(files, none), files);
        let limited = config("onlyIfLimited: true");
        assert!(limited.limited(files, none).is_empty());
        assert_eq!(limited.limited(files, memory).to_string(), "meminfo,diskstats,swaps,uptime");
    }

    #[test]
    fn a_level_that_is_none_is_the_strictest() {
        assert_eq!(PodSecurity::from_label("privileged"), PodSecurity::Privileged);
        assert_eq!(PodSecurity::from_label(""), PodSecurity::Restricted);
        assert_eq!(PodSecurity::from_label("Privileged"), PodSecurity::Restricted);
    }
}
