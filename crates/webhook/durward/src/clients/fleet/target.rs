//! Parses the objects that a command names: `ns/shop`, `crd/widgets.example.org`, or all of a kind.

use std::collections::BTreeSet;
use std::str::FromStr;

use cluster::fleet::{Cluster, ListQuery, Object};
use cluster::{Reader, Resource, list_pages};
use config::Selector;
use config::names::is_dns_subdomain;
use config::{Problem, SelectorExt as _, nearest};
use console::exit::Stop;
use guards::deletion::{DeletionKind, DeletionSubject};

use super::{ANSWER_WITHIN, FleetContext, next_for};

/// Returns the kind that a word of the command line names.
fn kind(word: &str) -> Option<DeletionKind> {
    match word.to_ascii_lowercase().as_str() {
        "ns" | "namespace" | "namespaces" => Some(DeletionKind::Namespace),
        "crd"
        | "crds"
        | "customresourcedefinition"
        | "customresourcedefinitions"
        | "customresourcedefinition.apiextensions.k8s.io"
        | "customresourcedefinitions.apiextensions.k8s.io" => Some(DeletionKind::Crd),
        _ => None,
    }
}

/// One argument of the command line.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum SubjectArg {
    /// `ns/shop`
    Named(DeletionSubject),
    /// `ns`
    Kind(DeletionKind),
    /// `shop`, after its kind
    Name(String),
}

impl FromStr for SubjectArg {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (word, name) = text.split_once('/').map_or((text, None), |(word, name)| (word, Some(name)));
        let kind = match kind(word) {
            Some(kind) => kind,
            None if is_dns_subdomain(text) => return Ok(Self::Name(text.to_owned())),
            None => return Err("allowed: ns/NAME, crd/NAME".to_owned()),
        };
        match name {
            None => Ok(Self::Kind(kind)),
            Some(name) if is_dns_subdomain(name) => {
                Ok(Self::Named(DeletionSubject { kind, name: name.to_owned() }))
            }
            Some(_) => {
                Err("allowed: ns/NAME, crd/NAME; names are lower-case letters, digits, - and .".to_owned())
            }
        }
    }
}

/// The objects that the command line selects.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum SubjectArgs {
    Named(Vec<DeletionSubject>),
    All(Vec<DeletionKind>, Selector),
}

impl SubjectArgs {
    /// Checks the arguments. As in kubectl, a kind without a name needs `--all` or a selector. `--all` alone means all kinds.
    pub(crate) fn new(args: &[SubjectArg], all: bool, selector: Option<&Selector>) -> Result<Self, Problem> {
        let (mut named, mut kinds) = (Vec::new(), Vec::new());
        let mut args = args.iter().peekable();
        while let Some(arg) = args.next() {
            match arg {
                SubjectArg::Named(subject) => named.push(subject.clone()),
                SubjectArg::Name(name) => return Err(without_kind(name)),
                SubjectArg::Kind(kind) => {
                    let before = named.len();
                    while let Some(SubjectArg::Name(name)) = args.peek() {
                        named.push(DeletionSubject { kind: *kind, name: name.clone() });
                        args.next();
                    }
                    if named.len() == before {
                        kinds.push(*kind);
                    }
                }
            }
        }
        let mut seen = Vec::new();
        named.retain(|subject| {
            !seen.contains(subject) && {
                seen.push(subject.clone());
                true
            }
        });
        let is_every = all || selector.is_some();
        let problem = match (is_every, named.is_empty(), kinds.is_empty()) {
            (true, true, true) => {
                return Ok(Self::All(ALL_KINDS.to_vec(), selector.cloned().unwrap_or_default()));
            }
            (true, true, false) => return Ok(Self::All(kinds, selector.cloned().unwrap_or_default())),
            (false, false, true) => return Ok(Self::Named(named)),
            (true, false, _) => Problem::new("--all and --selector cannot be combined with a name"),
            (false, _, false) => Problem::new("a kind needs a name, --all or --selector"),
            (false, true, true) => Problem::new("no object is named"),
        };
        Err(problem.next("use ns NAME, crd NAME, ns --all, ns -l app=web, or --all"))
    }

    /// Selects all objects.
    pub(crate) fn everything() -> Self {
        Self::All(ALL_KINDS.to_vec(), Selector::default())
    }

    /// Returns the selected objects in order. If all of a kind are selected, lists them.
    pub(crate) async fn subjects(&self, context: &FleetContext) -> Result<Vec<DeletionSubject>, Stop> {
        let (kinds, selector) = match self {
            Self::Named(named) => return Ok(named.clone()),
            Self::All(kinds, selector) => (kinds, selector),
        };
        let mut subjects = Vec::new();
        for kind in ALL_KINDS.into_iter().filter(|kind| kinds.contains(kind)) {
            let objects = every(context, &kind.resource()).await?.into_iter();
            let selected = objects.filter(|object| selector.matches(&object.metadata.labels));
            let names: BTreeSet<String> = selected.map(|object| object.name).collect();
            subjects.extend(names.into_iter().map(|name| DeletionSubject { kind, name }));
        }
        if subjects.is_empty() && !selector.selects_all() {
            let problem = Problem::new("no object has labels that --selector selects");
            return Err(problem.next("kubectl get ns --show-labels").into());
        }
        Ok(subjects)
    }
}

const ALL_KINDS: [DeletionKind; 2] = [DeletionKind::Namespace, DeletionKind::Crd];

/// Reports a name without a kind. It is usually a namespace. One with a dot can be a CRD.
fn without_kind(name: &str) -> Problem {
    let kind = if name.contains('.') { "crd" } else { "ns" };
    Problem::new(format!("{name} has no kind: did you mean {kind}/{name}?")).next("use ns NAME or crd NAME")
}

/// Lists the metadata of all objects of a kind on the control plane.
async fn every(context: &FleetContext, resource: &Resource) -> Result<Vec<Object>, Stop> {
    all_pages(context.clients.reader.as_ref(), &Cluster::Local, resource).await.map_err(|why| {
        let problem =
            Problem::new(format!("{resource} of {} cannot be listed", context.local_name())).why(why.text);
        let next = next_for(why.code, &context.access, "name the objects, as ns/NAME");
        Stop::fault(problem.next(next))
    })
}

/// Lists the metadata of all objects of a resource in a cluster.
pub(crate) async fn all_pages(
    reader: &dyn Reader,
    of: &Cluster,
    resource: &Resource,
) -> Result<Vec<Object>, admission::Cause> {
    list_pages(reader, of, ListQuery::new(resource), ANSWER_WITHIN).await
}

/// Reports that an object does not exist, with the nearest name.
pub(crate) async fn missing(reader: &dyn Reader, subject: &DeletionSubject) -> Problem {
    let DeletionSubject { kind, name } = subject;
    let word = match kind {
        DeletionKind::Namespace => "namespace",
        DeletionKind::Crd => "CustomResourceDefinition",
    };
    let problem = Problem::new(format!("there is no {word} {name:?}"));
    let objects = all_pages(reader, &Cluster::Local, &kind.resource()).await.unwrap_or_default();
    match nearest(name, objects.iter().map(|object| object.name.as_str())) {
        Some(meant) => problem.next(format!("did you mean {meant}?")),
        None => problem.next("a deletion here does not reach objects of that name in member clusters"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parses_names_as_kubectl_does() {
        let named = |kind, name: &str| SubjectArg::Named(DeletionSubject { kind, name: name.to_owned() });
        let namespace = named(DeletionKind::Namespace, "shop");
        let definition = named(DeletionKind::Crd, "widgets.example.org");
        for (text, expected) in [
            ("ns/shop", Some(&namespace)),
            ("namespaces/shop", Some(&namespace)),
            ("crd/widgets.example.org", Some(&definition)),
            ("customresourcedefinition.apiextensions.k8s.io/widgets.example.org", Some(&definition)),
            ("ns", Some(&SubjectArg::Kind(DeletionKind::Namespace))),
            ("crds", Some(&SubjectArg::Kind(DeletionKind::Crd))),
            ("shop", Some(&SubjectArg::Name("shop".to_owned()))),
            ("pod/web", None),
            ("ns/", None),
            ("ns/a/b", None),
            ("ns/../x", None),
            ("ns/Shop", None),
            ("ns/a%2Fb", None),
        ] {
            assert_eq!(text.parse::<SubjectArg>().ok().as_ref(), expected, "{text}");
        }
    }

    #[test]
    fn suggests_a_kind_for_a_name_without_one() {
        for (text, meant) in [("shop", "ns/shop"), ("widgets.example.org", "crd/widgets.example.org")] {
            let problem = SubjectArgs::new(&[text.parse().unwrap()], false, None).unwrap_err();
            assert_eq!(problem.what, format!("{text} has no kind: did you mean {meant}?"));
        }
        for text in ["Shop!", "pod/web"] {
            assert_eq!(text.parse::<SubjectArg>().unwrap_err(), "allowed: ns/NAME, crd/NAME");
        }
    }

    #[test]
    fn takes_either_names_or_all() {
        let parse = |words: &[&str]| words.iter().map(|w| w.parse().unwrap()).collect::<Vec<SubjectArg>>();
        for (words, all, is_right) in [
            (&["ns/a", "crd/b.c"][..], false, true),
            (&["ns"], true, true),
            (&[], true, true),
            (&[], false, false),
            (&["ns"], false, false),
            (&["ns/a"], true, false),
            (&["ns/a", "crd"], false, false),
            (&["ns", "a", "b", "crd", "b.c"], false, true),
            (&["a", "ns"], false, false),
        ] {
            assert_eq!(SubjectArgs::new(&parse(words), all, None).is_ok(), is_right, "{words:?} {all}");
        }
        let selector = "app=web".parse::<config::Labels>().unwrap().0;
        for (words, is_right) in [(&["ns"][..], true), (&[], true), (&["ns/a"], false)] {
            let selected = SubjectArgs::new(&parse(words), false, Some(&selector));
            assert_eq!(selected.is_ok(), is_right, "{words:?}");
        }
        let spaced = SubjectArgs::new(&parse(&["ns", "a", "b"]), false, None);
        assert_eq!(spaced, SubjectArgs::new(&parse(&["ns/a", "ns/b", "ns/a"]), false, None));
    }
}
