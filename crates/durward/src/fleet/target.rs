//! Parses the objects that a command names: `ns/shop`, `crd/widgets.example.org`, or all of a kind.

use std::collections::BTreeSet;
use std::str::FromStr;

use cluster::fleet::{Cluster, ListQuery, Object};
use cluster::{Reader, Resource, list_pages};
use config::names::is_dns_subdomain;
use config::{Problem, nearest};
use guards::deletion::DeletionSubject;

use super::{ANSWER_WITHIN, FleetContext, next_for};
use crate::exit::Stop;

/// A kind of object that the deletion guard protects.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Subject {
    Namespace,
    Definition,
}

impl Subject {
    /// All kinds.
    pub(crate) const ALL: [Self; 2] = [Self::Namespace, Self::Definition];

    fn of(word: &str) -> Option<Self> {
        match word.to_ascii_lowercase().as_str() {
            "ns" | "namespace" | "namespaces" => Some(Self::Namespace),
            "crd"
            | "crds"
            | "customresourcedefinition"
            | "customresourcedefinitions"
            | "customresourcedefinition.apiextensions.k8s.io"
            | "customresourcedefinitions.apiextensions.k8s.io" => Some(Self::Definition),
            _ => None,
        }
    }

    fn what(self, name: String) -> DeletionSubject {
        match self {
            Self::Namespace => DeletionSubject::Namespace(name),
            Self::Definition => DeletionSubject::Crd(name),
        }
    }

    /// The resource of this kind.
    pub(crate) fn resource(self) -> Resource {
        match self {
            Self::Namespace => Resource::NAMESPACES,
            Self::Definition => Resource {
                group: "apiextensions.k8s.io".into(),
                version: "v1".into(),
                plural: "customresourcedefinitions".into(),
            },
        }
    }
}

/// One argument of the command line.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Target {
    /// `ns/shop`
    One(DeletionSubject),
    /// `ns`
    Every(Subject),
}

impl FromStr for Target {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (word, name) = text.split_once('/').map_or((text, None), |(word, name)| (word, Some(name)));
        let subject = Subject::of(word).ok_or_else(|| {
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
            None => Ok(Self::Every(subject)),
            Some(name) if is_dns_subdomain(name) => Ok(Self::One(subject.what(name.to_owned()))),
            Some(_) => {
                Err("allowed: ns/NAME, crd/NAME; names are lower-case letters, digits, - and .".to_owned())
            }
        }
    }
}

/// The selected objects.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Asked {
    targets: Vec<Target>,
    all: bool,
}

impl Asked {
    /// Parses the arguments. As in kubectl, a kind without a name needs `--all`. `--all` alone means all kinds.
    pub(crate) fn new(targets: &[Target], all: bool) -> Result<Self, Problem> {
        let one = targets.iter().any(|target| matches!(target, Target::One(_)));
        let every = targets.iter().any(|target| matches!(target, Target::Every(_)));
        let problem = match (all, one, every) {
            (true, true, _) => Problem::new("--all beside a name").why("either those that are named, or all"),
            (false, _, true) => Problem::new("a kind without a name").why("which of them?"),
            (false, false, false) => Problem::new("nothing is named"),
            (true, false, _) | (false, true, false) => {
                return Ok(Self { targets: targets.to_vec(), all });
            }
        };
        Err(problem.next("write ns/NAME, crd/NAME, or: ns --all, crd --all, --all"))
    }

    /// Selects all objects.
    pub(crate) fn everything() -> Self {
        Self { targets: Vec::new(), all: true }
    }

    /// Returns each selected object once, in order. If all of a kind are selected, lists them.
    pub(crate) async fn things(&self, context: &FleetContext) -> Result<Vec<DeletionSubject>, Stop> {
        let mut things = Vec::new();
        let mut put = |thing: DeletionSubject| {
            if !things.contains(&thing) {
                things.push(thing);
            }
        };
        for target in &self.targets {
            if let Target::One(what) = target {
                put(what.clone());
            }
        }
        if self.all {
            let is_meant =
                |subject| self.targets.is_empty() || self.targets.contains(&Target::Every(subject));
            for subject in Subject::ALL.into_iter().filter(|subject| is_meant(*subject)) {
                let names: BTreeSet<String> = every(context, &subject.resource())
                    .await?
                    .into_iter()
                    .map(|object| object.name)
                    .collect();
                for name in names {
                    put(subject.what(name));
                }
            }
        }
        Ok(things)
    }
}

/// Lists the metadata of all objects of a kind on the control plane.
async fn every(context: &FleetContext, resource: &Resource) -> Result<Vec<Object>, Stop> {
    all_pages(context.clients.reader.as_ref(), &Cluster::Local, resource).await.map_err(|why| {
        let problem =
            Problem::new(format!("{resource} of {} cannot be listed", context.local_name())).why(why.text);
        let next = next_for(why.code, &context.access, "name those that you want, as ns/NAME");
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
pub(crate) async fn missing(reader: &dyn Reader, what: &DeletionSubject) -> Problem {
    let (subject, name, kind) = match what {
        DeletionSubject::Namespace(name) => (Subject::Namespace, name, "namespace"),
        DeletionSubject::Crd(name) => (Subject::Definition, name, "CustomResourceDefinition"),
    };
    let problem = Problem::new(format!("there is no {kind} {name:?}"));
    let objects = all_pages(reader, &Cluster::Local, &subject.resource()).await.unwrap_or_default();
    match nearest(name, objects.iter().map(|object| object.name.as_str())) {
        Some(meant) => problem.next(format!("did you mean {meant}?")),
        None => problem.next("what members have under that name is not reached by a deletion here"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parses_names_as_kubectl_does() {
        let namespace = Target::One(DeletionSubject::Namespace("shop".into()));
        let definition = Target::One(DeletionSubject::Crd("widgets.example.org".into()));
        for (text, expected) in [
            ("ns/shop", Some(&namespace)),
            ("namespaces/shop", Some(&namespace)),
            ("crd/widgets.example.org", Some(&definition)),
            ("customresourcedefinition.apiextensions.k8s.io/widgets.example.org", Some(&definition)),
            ("ns", Some(&Target::Every(Subject::Namespace))),
            ("crds", Some(&Target::Every(Subject::Definition))),
            ("shop", None),
            ("pod/web", None),
            ("ns/", None),
            ("ns/a/b", None),
            ("ns/../x", None),
            ("ns/Shop", None),
            ("ns/a%2Fb", None),
        ] {
            assert_eq!(text.parse::<Target>().ok().as_ref(), expected, "{text}");
        }
    }

    #[test]
    fn suggests_a_kind_for_a_name_without_one() {
        for (text, told) in [
            ("shop", "allowed: ns/NAME, crd/NAME; did you mean ns/shop?"),
            ("widgets.example.org", "allowed: ns/NAME, crd/NAME; did you mean crd/widgets.example.org?"),
            ("Shop!", "allowed: ns/NAME, crd/NAME"),
            ("pod/web", "allowed: ns/NAME, crd/NAME"),
        ] {
            assert_eq!(text.parse::<Target>().unwrap_err(), told);
        }
    }

    #[test]
    fn takes_either_names_or_all() {
        let parse = |words: &[&str]| words.iter().map(|w| w.parse().unwrap()).collect::<Vec<Target>>();
        for (words, all, is_right) in [
            (&["ns/a", "crd/b.c"][..], false, true),
            (&["ns"], true, true),
            (&[], true, true),
            (&[], false, false),
            (&["ns"], false, false),
            (&["ns/a"], true, false),
            (&["ns/a", "crd"], false, false),
        ] {
            assert_eq!(Asked::new(&parse(words), all).is_ok(), is_right, "{words:?} {all}");
        }
    }
}
