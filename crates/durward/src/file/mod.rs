//! The configuration file: what was typed, checked as far as it can be checked without acting on it.
//!
//! One reader function per section, on [`Section`]: what they ask for is what `config schema` and `config defaults` list. All
//! problems of the file are told at once, relations between keys and files that do not exist included. What the file means as
//! ready objects is [`plan`](crate::plan)'s. JSON is read too: it is YAML.

mod server;

use std::path::{Path, PathBuf};

use admission::file::check_file;
use cluster::live::Access;
use config::{Key, Problem, Section, names, parse, read};
use guards::{Configured, GUARD_KINDS, GuardKind, INSTALL_NAMESPACE, INSTALL_NAMESPACE_KEY};

pub(crate) use server::{Reach, ServerSection};

use crate::input;
use server::read_server;

/// What the file is read for: which of the files that it names must be there. Who writes manifests on a laptop has no key there.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Purpose {
    /// Only the guards: nothing that it names is opened.
    Guards,
    /// Registration: the authority's certificate.
    Registration,
    /// Serving, with what the flags bring already.
    Serving {
        /// `--tls-cert`
        cert_given: bool,
        /// `--tls-key`
        key_given: bool,
    },
}

/// The file, read.
pub(crate) struct File {
    /// As the person named it.
    pub(crate) path: PathBuf,
    /// What stood in it, by which a change is seen.
    pub(crate) text: String,
    /// `server`
    pub(crate) server: ServerSection,
    /// `kubeconfig` and `context`
    pub(crate) cluster: Cluster,
    /// `guards`, those that are on.
    pub(crate) guards: Vec<Guarded>,
    /// The namespace in which Durward runs: every guard leaves it alone, and its account lives there.
    pub(crate) home: String,
}

/// The cluster that guards look at.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Cluster {
    /// None: the one that Durward runs in.
    pub(crate) kubeconfig: Option<PathBuf>,
    /// None: the kubeconfig's current one.
    pub(crate) context: Option<String>,
}

/// A guard that is on.
pub(crate) struct Guarded {
    /// Which one.
    pub(crate) kind: &'static dyn GuardKind,
    /// What its section says.
    pub(crate) configured: Box<dyn Configured>,
    /// The way to the control plane that it names for itself; paths are relative to the file, as all are.
    pub(crate) access: Option<Access>,
}

impl File {
    /// Reads and checks the file.
    pub(crate) fn load(path: &Path, purpose: Purpose) -> Result<Self, Vec<Problem>> {
        let text = read_text(path).map_err(|problem| vec![problem])?;
        Self::from_text(path, text, purpose)
    }

    /// Checks a text as if it stood in the file `path`.
    pub(crate) fn from_text(path: &Path, text: String, purpose: Purpose) -> Result<Self, Vec<Problem>> {
        let name = path.display().to_string();
        let root = parse(&name, &text)?;
        if root.is_none() {
            let problem = Problem::new(format!("the configuration file {name} is empty"));
            return Err(vec![problem.next("begin with: durward config defaults > durward.yaml")]);
        }
        let folder = path.parent().unwrap_or(Path::new("."));
        let (parts, _, problems) =
            read(&name, root.as_ref(), |section| read_root(section, &Within { folder, purpose }));
        if !problems.is_empty() {
            return Err(problems);
        }
        let Parts { server, cluster, guards, home } = parts;
        Ok(Self { path: path.to_owned(), text, server, cluster, guards, home })
    }

    /// The guard of that name, if it is on.
    pub(crate) fn guard(&self, name: &str) -> Option<&Guarded> {
        self.guards.iter().find(|guard| guard.kind.name() == name)
    }
}

/// Every key that there is, told by the readers.
pub(crate) fn keys() -> Vec<Key> {
    let within = Within { folder: Path::new("."), purpose: Purpose::Guards };
    let (_, keys, _) = read("durward.yaml", None, |section| read_root(section, &within));
    keys
}

/// What a reader must know beside its section.
#[derive(Debug, Clone, Copy)]
struct Within<'p> {
    folder: &'p Path,
    purpose: Purpose,
}

impl Within<'_> {
    /// The path at `key`, relative to the file; must be there as a file where `needed`.
    fn path(
        &self,
        section: &mut Section<'_>,
        key: &'static str,
        doc: &'static str,
        needed: bool,
    ) -> Option<PathBuf> {
        self.path_or(section, key, doc, needed, |_| None)
    }

    /// The same of a file that Durward itself can make.
    fn certificate(
        &self,
        section: &mut Section<'_>,
        key: &'static str,
        doc: &'static str,
        needed: bool,
    ) -> Option<PathBuf> {
        self.path_or(section, key, doc, needed, |path| {
            let folder = path.parent().filter(|folder| *folder != Path::new("")).unwrap_or(Path::new("."));
            Some(format!("make it: durward certs new --service NAME.NAMESPACE --out {}", folder.display()))
        })
    }

    /// `otherwise` is what to do where nothing stands at the path.
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
        let path = self.folder.join(text);
        if needed && let Err(fault) = check_file(&path, input::SMALL) {
            let next = fault.next().map(str::to_owned).or_else(|| otherwise(&path));
            section.problem(key, format!("{}: {fault}", path.display()), next);
        }
        Some(path)
    }
}

/// The text of a configuration file.
pub(crate) fn read_text(path: &Path) -> Result<String, Problem> {
    let text = input::text(path, input::SMALL);
    text.map_err(|problem| Problem {
        what: format!("the configuration file {}", problem.what),
        next: problem.next.or_else(|| Some("begin with: durward config defaults > durward.yaml".to_owned())),
        ..problem
    })
}

/// What the readers of the root give.
struct Parts {
    server: ServerSection,
    cluster: Cluster,
    guards: Vec<Guarded>,
    home: String,
}

fn read_root(section: &mut Section<'_>, within: &Within<'_>) -> Parts {
    section.number("version", "The version of this format.", 1, (1, 1));
    if section.is_written() && !section.has("version") {
        section.problem("version", "is missing", Some("add: version: 1".to_owned()));
    }
    let server = section
        .section("server", "How Durward is reached, and how it is registered.", |s| read_server(s, within));
    let serving = matches!(within.purpose, Purpose::Serving { .. });
    let cluster = Cluster {
        kubeconfig: within.path(
            section,
            "kubeconfig",
            "The cluster that guards look at, from outside of it; within a pod its own needs no key.",
            serving,
        ),
        context: section.optional_text(
            "context",
            "name",
            "Another context of the kubeconfig than its current one.",
        ),
    };
    let mut home = Home::of(&server.registration.reach);
    let guards = section.section("guards", "The guards that are on; one without a section is off.", |s| {
        read_guards(s, within.folder, &mut home)
    });
    if section.is_written() && guards.is_empty() {
        let names: Vec<_> = GUARD_KINDS.iter().map(|kind| format!("{}: {{}}", kind.name())).collect();
        section.problem(
            "guards",
            "no guard is on",
            Some(format!("under guards: add {}", names.join(" or "))),
        );
    }
    let home = home.0.map_or_else(|| INSTALL_NAMESPACE.to_owned(), |(namespace, _)| namespace);
    Parts { server, cluster, guards, home }
}

/// The namespace in which Durward runs, as soon as some key tells, and that key. There is one, whatever part of the file tells
/// it: a guard that left another one alone would have to be asked before its own server may start.
struct Home(Option<(String, String)>);

impl Home {
    /// A Service leads to pods of its own namespace; a URL says nothing.
    fn of(reach: &Reach) -> Self {
        Self(match reach {
            Reach::Service { namespace, .. } => {
                Some((namespace.clone(), "server.registration.service.namespace".to_owned()))
            }
            Reach::Url(_) => None,
        })
    }

    /// Before a guard reads its section: what is known already is what holds there by default.
    fn preset(&self, section: &mut Section<'_>) {
        if let Some((namespace, _)) = &self.0 {
            section.preset(INSTALL_NAMESPACE_KEY, namespace);
        }
    }

    /// What the guard's section says must be that, or is from now on. That it runs in none is no answer to where it runs.
    fn compare(&mut self, section: &mut Section<'_>, guard: &str) {
        let Some(given) = section.given(INSTALL_NAMESPACE_KEY) else { return };
        match &self.0 {
            Some((namespace, _)) if namespace == given => {}
            // Told already, by the guard's own reader.
            _ if !given.is_empty() && names::namespace(given).is_err() => {}
            Some((namespace, key)) => {
                let why =
                    format!("is {given:?}, but {key} is {namespace:?}, and Durward runs in one namespace");
                let next =
                    format!("write the same at both, or take {INSTALL_NAMESPACE_KEY} out: it follows {key}");
                section.problem(INSTALL_NAMESPACE_KEY, why, Some(next));
            }
            None if given.is_empty() => {}
            None => self.0 = Some((given.to_owned(), format!("guards.{guard}.{INSTALL_NAMESPACE_KEY}"))),
        }
    }
}

fn read_guards(section: &mut Section<'_>, folder: &Path, home: &mut Home) -> Vec<Guarded> {
    let mut on = Vec::new();
    for &kind in GUARD_KINDS {
        let name = kind.name();
        if section.is_blank(name) {
            let next = format!("write {name}: {{}} to turn it on with its defaults, or take the line out");
            section.problem(name, "nothing stands here", Some(next));
        }
        let written = section.has(name);
        let configured = section.section(name, kind.summary(), |s| {
            home.preset(s);
            let configured = kind.read(s);
            home.compare(s, name);
            configured
        });
        if written {
            let access = configured.requirements().control_plane.map(|access| Access {
                kubeconfig: access.kubeconfig.map(|path| folder.join(path)),
                ..access
            });
            on.push(Guarded { kind, configured, access });
        }
    }
    on
}
