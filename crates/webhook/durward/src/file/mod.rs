//! Reads and checks the configuration file.
//!
//! Each section has a reader function on [`Section`]. The keys that it asks for are the keys of `config schema` and `config
//! defaults`. All problems are reported at once, including contradictions between keys and missing files. [`plan`](crate::run::plan)
//! builds objects from the file. JSON is accepted because it is YAML.

mod server;
mod within;

use std::path::{Path, PathBuf};
use std::str::FromStr;

use cluster::live::Access;
use config::{Key, Problem, Section, names, parse, read};
use console::input;
use guards::{Configured, GUARD_KINDS, GuardKind, NAMESPACE};

pub(crate) use server::{Manage, SelfManagedTls, ServerSection, WebhookAddress};
pub(crate) use within::Purpose;

use server::read_server;
use within::Within;

/// The name of Durward's objects: the Deployment, the webhook configurations, the roles. It is also the field manager.
pub(crate) const NAME: &str = "durward";

/// The checked file.
pub(crate) struct File {
    /// The path as the user typed it.
    pub(crate) path: PathBuf,
    /// The text, to detect changes.
    pub(crate) text: String,
    /// `server`
    pub(crate) server: ServerSection,
    /// `kubeconfig` and `context`
    pub(crate) cluster: ClusterSection,
    /// `log`
    pub(crate) log: String,
    /// `events`
    pub(crate) events: bool,
    /// The guards that are on.
    pub(crate) guards: Vec<Guarded>,
    /// The namespace of Durward, which every guard ignores.
    pub(crate) namespace: String,
}

/// The cluster that guards read.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct ClusterSection {
    /// `None` means the cluster of the pod.
    pub(crate) kubeconfig: Option<PathBuf>,
    /// `None` means the current context.
    pub(crate) context: Option<String>,
}

/// A guard that is on.
pub(crate) struct Guarded {
    /// The kind of the guard.
    pub(crate) kind: &'static dyn GuardKind,
    /// The parsed section.
    pub(crate) configured: Box<dyn Configured>,
    /// Access to a control plane of its own. Paths are relative to the file.
    pub(crate) access: Option<Access>,
}

impl File {
    /// Whether a guard needs a cache of namespaces.
    pub(crate) fn watches_namespaces(&self) -> bool {
        self.guards.iter().any(|guard| guard.configured.requirements().watches_namespaces)
    }

    /// Reads and checks the file.
    pub(crate) fn load(path: &Path, purpose: Purpose) -> Result<Self, Vec<Problem>> {
        let text = read_text(path).map_err(|problem| vec![problem])?;
        Self::from_text(path, text, purpose)
    }

    /// Checks a text as the contents of the file `path`.
    pub(crate) fn from_text(path: &Path, text: String, purpose: Purpose) -> Result<Self, Vec<Problem>> {
        let name = path.display().to_string();
        let root = parse(&name, &text)?;
        if root.is_none() {
            let problem = Problem::new(format!("the configuration file {name} is empty"));
            return Err(vec![
                problem.next("create one: durward config init --guard deletion > durward.yaml"),
            ]);
        }
        if read("", root.as_ref(), |root| root.has("config") && !root.has("guards")).0 {
            let problem = Problem::new(format!("{name} has values of the Helm chart, not a configuration"));
            return Err(vec![problem.next("check the keys below `config` in a file of their own")]);
        }
        let dir = path.parent().unwrap_or(Path::new("."));
        let (parts, _, problems) =
            read(&name, root.as_ref(), |section| read_root(section, &Within { dir, purpose }));
        if !problems.is_empty() {
            return Err(problems);
        }
        let FileSections { server, cluster, log, events, guards, namespace } = parts;
        Ok(Self { path: path.to_owned(), text, server, cluster, log, events, guards, namespace })
    }

    /// Returns the policies of the guard that evaluates some, if it is on.
    pub(crate) fn policies(&self) -> Option<&manifests::Policies> {
        self.guards.iter().find_map(|guard| guards::resources::policies(guard.configured.as_ref()))
    }

    /// Returns the guard with this name, if it is on.
    pub(crate) fn guard(&self, name: &str) -> Option<&Guarded> {
        self.guards.iter().find(|guard| guard.kind.name() == name)
    }
}

/// Returns all keys, as the readers declare them.
pub(crate) fn keys() -> Vec<Key> {
    let within = Within { dir: Path::new("."), purpose: Purpose::Guards };
    let (_, keys, _) = read("durward.yaml", None, |section| read_root(section, &within));
    keys
}

/// Reads the text of a configuration file.
pub(crate) fn read_text(path: &Path) -> Result<String, Problem> {
    let text = input::text(path, input::SMALL);
    text.map_err(|problem| Problem {
        what: format!("the configuration file {}", problem.what),
        next: problem
            .next
            .or_else(|| Some("create one: durward config init --guard deletion > durward.yaml".to_owned())),
        ..problem
    })
}

const NAMESPACES: &str = "namespace: lower-case letters, digits and - (at most 63, a letter or digit at both ends), or \"\" if Durward does not run in the cluster";

/// The results of the section readers.
struct FileSections {
    server: ServerSection,
    cluster: ClusterSection,
    log: String,
    events: bool,
    guards: Vec<Guarded>,
    namespace: String,
}

fn read_root(section: &mut Section<'_>, within: &Within<'_>) -> FileSections {
    config::read_header(section);
    let namespace = section.name(
        "namespace",
        NAMESPACES,
        "Namespace in which Durward runs. Every guard ignores it.",
        NAMESPACE,
        |text| if text.is_empty() { Ok(()) } else { names::namespace(text) },
    );
    let serving = matches!(within.purpose, Purpose::Serving { .. });
    let cluster = ClusterSection {
        kubeconfig: within.path(
            section,
            "kubeconfig",
            "Kubeconfig of the cluster that guards read. Not needed in a pod of that cluster.",
            serving,
        ),
        context: section.optional_text(
            "context",
            "name",
            "Context of the kubeconfig, if it is not the current one.",
        ),
    };
    let log = section.parsed(
        "log",
        "log filter",
        "Log filter: error, warn, info, debug or trace, also for a part: info,server=debug. Reloaded without a restart.",
        Some(("info", LogFilter("info".to_owned()))),
    );
    let log = log.map(|filter| filter.0).unwrap_or_default();
    let events = section.bool(
        "events",
        "One Event for each denied deletion and eviction, at most one for an object in five minutes. Guards deletion and etcd.",
        true,
    );
    let server = section.section(
        "server",
        "Addresses, certificate, webhook configurations and limits of the server.",
        |s| read_server(s, within, &namespace),
    );
    let guards =
        section.section("guards", "The guards that are on. A guard without a section is off.", |s| {
            read_guards(s, within.dir, &namespace)
        });
    if section.is_written() && guards.is_empty() {
        let names: Vec<_> = GUARD_KINDS.iter().map(|kind| format!("{}: {{}}", kind.name())).collect();
        section.problem(
            "guards",
            "no guard is on",
            Some(format!("under guards: add {}", names.join(" or "))),
        );
    }
    FileSections { server, cluster, log, events, guards, namespace }
}

/// A valid log filter.
struct LogFilter(String);

impl FromStr for LogFilter {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        logging::parse_filter(text).map(|_| Self(text.to_owned()))
    }
}

fn read_guards(section: &mut Section<'_>, dir: &Path, namespace: &str) -> Vec<Guarded> {
    let mut on = Vec::new();
    for &kind in GUARD_KINDS {
        let name = kind.name();
        if section.is_blank(name) {
            let next = format!("write {name}: {{}} to turn it on with its defaults, or remove the line");
            section.problem(name, "is empty", Some(next));
        }
        let written = section.has(name);
        let configured = section.section(name, kind.summary(), |s| kind.read(s, namespace));
        if written {
            let access = configured
                .requirements()
                .control_plane
                .map(|access| Access { kubeconfig: access.kubeconfig.map(|path| dir.join(path)), ..access });
            on.push(Guarded { kind, configured, access });
        }
    }
    on
}
