//! Parses the objects that a command names: `ns/shop`, `crd/widgets.example.org`, or all of a kind.

use std::collections::BTreeSet;
use std::str::FromStr;

use cluster::fleet::{Cluster, ListQuery, Object};
use cluster::{Reader, Resource, list_pages};
use config::names::is_dns_subdomain;
use config::{Problem, nearest};
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
    All(DeletionKind),
}

impl FromStr for SubjectArg {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (word, name) = text.split_once('/').map_or((text, None), |(word, name)| (word, Some(name)));
        let kind = kind(word).ok_or_else(|| {
            // A name without a kind is usually a namespace. One with a dot can be a CRD.
            let meant = match name {
                None if !is_dns_subdomain(text) => String::new(),
                None if text.contains('.') => format!("; did you mean crd/{text}?"),
                None => format!("; did you mean ns/{text}?"),
                Some(_) => String::new(),
            };
            format!("allowed: ns/NAME, crd/NAME{meant}")
        })?;
        match name {
            None => Ok(Self::All(kind)),
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
    All(Vec<DeletionKind>),
}

impl SubjectArgs {
    /// Checks the arguments. As in kubectl, a kind without a name needs `--all`. `--all` alone means all kinds.
    pub(crate) fn new(args: &[SubjectArg], all: bool) -> Result<Self, Problem> {
        let (mut named, mut kinds) = (Vec::new(), Vec::new());
        for arg in args {
            match arg {
                SubjectArg::Named(subject) if named.contains(subject) => {}
                SubjectArg::Named(subject) => named.push(subject.clone()),
                SubjectArg::All(kind) => kinds.push(*kind),
            }
        }
        let problem = match (all, named.is_empty(), kinds.is_empty()) {
            (true, true, true) => return Ok(Self::everything()),
            (true, true, false) => return Ok(Self::All(kinds)),
            (false, false, true) => return Ok(Self::Named(named)),
            (true, false, _) => Problem::new("--all cannot be combined with a name"),
            (false, _, false) => Problem::new("a kind needs a name or --all"),
            (false, true, true) => Problem::new("no object is named"),
        };
        Err(problem.next("use ns/NAME, crd/NAME, ns --all, crd --all, or --all"))
    }

    /// Selects all objects.
    pub(crate) fn everything() -> Self {
        Self::All(vec![DeletionKind::Namespace, DeletionKind::Crd])
    }

    /// Returns the selected objects in order. If all of a kind are selected, lists them.
    pub(crate) async fn subjects(&self, context: &FleetContext) -> Result<Vec<DeletionSubject>, Stop> {
        let kinds = match self {
            Self::Named(named) => return Ok(named.clone()),
            Self::All(kinds) => kinds,
        };
        let mut subjects = Vec::new();
        for kind in
            [DeletionKind::Namespace, DeletionKind::Crd].into_iter().filter(|kind| kinds.contains(kind))
        {
            let objects = every(context, &kind.resource()).await?.into_iter();
            let names: BTreeSet<String> = objects.map(|object| object.name).collect();
            subjects.extend(names.into_iter().map(|name| DeletionSubject { kind, name }));
        }
        Ok(subjects)
    }
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
            ("ns", Some(&SubjectArg::All(DeletionKind::Namespace))),
            ("crds", Some(&SubjectArg::All(DeletionKind::Crd))),
            ("shop", None),
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
        for (text, message) in [
            ("shop", "allowed: ns/NAME, crd/NAME; did you mean ns/shop?"),
            ("widgets.example.org", "allowed: ns/NAME, crd/NAME; did you mean crd/widgets.example.org?"),
            ("Shop!", "allowed: ns/NAME, crd/NAME"),
            ("pod/web", "allowed: ns/NAME, crd/NAME"),
        ] {
            assert_eq!(text.parse::<SubjectArg>().unwrap_err(), message);
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
        ] {
            assert_eq!(SubjectArgs::new(&parse(words), all).is_ok(), is_right, "{words:?} {all}");
        }
    }
}
