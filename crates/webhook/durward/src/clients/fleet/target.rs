//! Parses the objects that a command names: `ns/shop`, `crd/widgets.example.org`, or all of a kind.

use std::collections::BTreeSet;
use std::str::FromStr;
use std::time::Instant;

use cluster::fleet::{Cluster, GetQuery, ListQuery, Object, Part};
use cluster::{Address, Reader, Resource, list_pages};
use config::Selector;
use config::names::is_dns_subdomain;
use config::{Problem, SelectorExt as _, nearest};
use console::exit::Stop;
use guards::deletion::{DeletionKind, DeletionSubject, Survey};
use policy::crd::Crd;
use policy::value::{Arena, read_json};

use super::{ANSWER_WITHIN, FleetContext, next_for};

/// Returns the kind that a word of the command line names.
fn kind(word: &str, kinds: &[DeletionKind]) -> Option<DeletionKind> {
    let word = word.to_ascii_lowercase();
    let is_named = |kind: &&DeletionKind| {
        let resource = kind.resource();
        let (one, many) = (resource.singular(), &resource.plural);
        let group = if resource.group.is_empty() { String::new() } else { format!(".{}", resource.group) };
        word == kind.short_name()
            || [one.as_ref(), many.as_ref()]
                .iter()
                .any(|name| word == *name || word == format!("{name}{group}"))
            || SHORT_NAMES.contains(&(word.as_str(), many.as_ref()))
    };
    kinds.iter().find(is_named).cloned()
}

/// Short names of kubectl for resources of Kubernetes.
const SHORT_NAMES: [(&str, &str); 6] = [
    ("crds", "customresourcedefinitions"),
    ("cm", "configmaps"),
    ("sa", "serviceaccounts"),
    ("sc", "storageclasses"),
    ("pc", "priorityclasses"),
    ("gtw", "gateways"),
];

/// One argument of the command line.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum SubjectArg {
    /// `ns/shop`
    KindAndName(String, String),
    /// `ns`, or `shop` after its kind
    Word(String),
}

impl FromStr for SubjectArg {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let are_names = text.split('/').all(is_dns_subdomain);
        match text.split_once('/') {
            None if are_names => Ok(Self::Word(text.to_owned())),
            Some((kind, name)) if are_names && !name.contains('/') => {
                Ok(Self::KindAndName(kind.to_owned(), name.to_owned()))
            }
            _ => {
                Err("allowed: KIND/NAME, as ns/shop; names are lower-case letters, digits, - and ."
                    .to_owned())
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
    /// Checks the arguments. As in kubectl, a kind without a name needs `--all` or a selector. `--all` alone means namespaces and CRDs.
    pub(crate) fn new(
        args: &[SubjectArg],
        all: bool,
        selector: Option<&Selector>,
        survey: &Survey,
    ) -> Result<Self, Problem> {
        let known = survey.kinds();
        let (mut named, mut found): (Vec<DeletionSubject>, Vec<_>) = (Vec::new(), Vec::new());
        let mut add = |kind: DeletionKind, name: &str| {
            let subject = DeletionSubject::cluster_wide(kind, name);
            if !named.contains(&subject) {
                named.push(subject);
            }
        };
        let mut args = args.iter().peekable();
        while let Some(arg) = args.next() {
            match arg {
                SubjectArg::KindAndName(word, name) => {
                    let of = kind(word, &known).ok_or_else(|| unknown_kind(word, &known))?;
                    add(of, name);
                }
                SubjectArg::Word(word) => {
                    let of = kind(word, &known).ok_or_else(|| without_kind(word))?;
                    let is_name = |arg: &&SubjectArg| matches!(arg, SubjectArg::Word(name) if kind(name, &known).is_none());
                    let mut is_alone = true;
                    while let Some(SubjectArg::Word(name)) = args.next_if(is_name) {
                        add(of.clone(), name);
                        is_alone = false;
                    }
                    if is_alone {
                        found.push(of);
                    }
                }
            }
        }
        let is_every = all || selector.is_some();
        if is_every && named.is_empty() {
            let kinds = if found.is_empty() { ALL_KINDS.to_vec() } else { found };
            return Ok(Self::All(kinds, selector.cloned().unwrap_or_default()));
        }
        let problem = match (is_every, named.is_empty(), found.is_empty()) {
            (false, false, true) => return Ok(Self::Named(named)),
            (true, ..) => Problem::new("--all and --selector cannot be combined with a name"),
            (false, _, false) => Problem::new("a kind needs a name, --all or --selector"),
            (false, true, true) => Problem::new("no object is named"),
        };
        Err(problem.next("use ns NAME, crd NAME, ns --all, ns -l app=web, or --all"))
    }

    /// Selects all namespaces and CRDs.
    pub(crate) fn everything() -> Self {
        Self::All(ALL_KINDS.to_vec(), Selector::default())
    }

    /// Returns the selected objects in order. If all of a kind are selected, lists them. `namespace` is that of kinds that have one.
    pub(crate) async fn subjects(
        &self,
        context: &FleetContext,
        namespace: Option<&str>,
    ) -> Result<Vec<DeletionSubject>, Stop> {
        let (kinds, selector) = match self {
            Self::Named(named) => {
                let mut subjects = named.clone();
                for subject in &mut subjects {
                    if is_namespaced(context, &subject.kind, namespace).await {
                        namespace.unwrap_or("default").clone_into(&mut subject.namespace);
                    }
                }
                return Ok(subjects);
            }
            Self::All(kinds, selector) => (kinds, selector),
        };
        let mut subjects = Vec::new();
        for kind in context.survey.kinds().into_iter().filter(|kind| kinds.contains(kind)) {
            let space = match namespace {
                Some(name) if is_namespaced(context, &kind, namespace).await => name,
                _ => "",
            };
            let objects = every(context, &kind.resource(), space).await?.into_iter();
            let selected = objects.filter(|object| selector.matches(&object.metadata.labels));
            let names: BTreeSet<_> = selected.map(|object| (object.namespace, object.name)).collect();
            subjects.extend(names.into_iter().map(|(namespace, name)| DeletionSubject {
                kind: kind.clone(),
                namespace,
                name,
            }));
        }
        if subjects.is_empty() && !selector.selects_all() {
            let problem = Problem::new("no object has labels that --selector selects");
            return Err(problem.next("kubectl get ns --show-labels").into());
        }
        Ok(subjects)
    }
}

const ALL_KINDS: [DeletionKind; 2] = [DeletionKind::Namespace, DeletionKind::Crd];

/// Whether the objects of a kind are in namespaces. For a custom resource, its CRD tells.
pub(crate) async fn is_namespaced(
    context: &FleetContext,
    kind: &DeletionKind,
    namespace: Option<&str>,
) -> bool {
    if let Some(known) = kind.namespaced() {
        return known;
    }
    // Without the CRD, the user tells.
    let crd = with_crd(context.clients.reader.as_ref(), &kind.resource(), |crd| crd.namespaced).await;
    crd.unwrap_or(namespace.is_some())
}

/// Reads the CRD of a resource on the control plane. Returns none if it is not there or cannot be read.
pub(crate) async fn with_crd<T>(
    reader: &dyn Reader,
    of: &Resource,
    read: impl FnOnce(&Crd) -> T,
) -> Option<T> {
    let (crds, name) = (DeletionKind::Crd.resource(), of.to_string());
    let address = Address { resource: &crds, namespace: "", name: &name };
    let query = GetQuery { address, part: Part::Whole };
    let found = reader.get_object(&Cluster::Local, query, Instant::now() + ANSWER_WITHIN).await;
    let raw = found.ok().flatten().and_then(|object| object.raw)?;
    let arena = Arena::new();
    let crd = Crd::read(read_json(raw.get(), &arena).ok()?).ok()?;
    Some(read(&crd))
}

/// Reports a kind that the guard does not protect.
fn unknown_kind(word: &str, kinds: &[DeletionKind]) -> Problem {
    let names: Vec<_> = kinds.iter().map(|kind| format!("{}/NAME", kind.short_name())).collect();
    let problem = Problem::new(format!("the deletion guard does not protect {word}"));
    problem.next(format!("allowed: {}; in-use rules in --config FILE add kinds", names.join(", ")))
}

/// Reports a name without a kind. It is usually a namespace. One with a dot can be a CRD.
fn without_kind(name: &str) -> Problem {
    let kind = if name.contains('.') { "crd" } else { "ns" };
    Problem::new(format!("{name} has no kind: did you mean {kind}/{name}?")).next("use ns NAME or crd NAME")
}

/// Lists the metadata of all objects of a kind on the control plane.
async fn every(context: &FleetContext, resource: &Resource, namespace: &str) -> Result<Vec<Object>, Stop> {
    let query = ListQuery { namespace, ..ListQuery::new(resource) };
    let reader = context.clients.reader.as_ref();
    list_pages(reader, &Cluster::Local, query, ANSWER_WITHIN).await.map_err(|why| {
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
    let DeletionSubject { kind, namespace, name } = subject;
    let problem = Problem::new(format!("there is no {} {name:?}", kind.word()));
    let resource = kind.resource();
    let query = ListQuery { namespace, ..ListQuery::new(&resource) };
    let objects = list_pages(reader, &Cluster::Local, query, ANSWER_WITHIN).await.unwrap_or_default();
    match nearest(name, objects.iter().map(|object| object.name.as_str())) {
        Some(meant) => problem.next(format!("did you mean {meant}?")),
        None => problem.next("a deletion here does not reach objects of that name in member clusters"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn survey() -> Survey {
        super::super::with_defaults("none\ninUse: {library: [configmaps]}").ok().unwrap().0
    }

    fn selected(words: &[&str], all: bool, selector: Option<&Selector>) -> Result<SubjectArgs, Problem> {
        let args: Vec<SubjectArg> = words.iter().map(|word| word.parse().unwrap()).collect();
        SubjectArgs::new(&args, all, selector, &survey())
    }

    #[test]
    fn parses_names_as_kubectl_does() {
        let configmaps = survey().kinds().pop().unwrap();
        for (text, expected) in [
            ("ns/shop", Some((DeletionKind::Namespace, "shop"))),
            ("namespaces/shop", Some((DeletionKind::Namespace, "shop"))),
            ("crd/widgets.example.org", Some((DeletionKind::Crd, "widgets.example.org"))),
            (
                "customresourcedefinition.apiextensions.k8s.io/widgets.example.org",
                Some((DeletionKind::Crd, "widgets.example.org")),
            ),
            ("configmap/app", Some((configmaps.clone(), "app"))),
            ("cm/app", Some((configmaps, "app"))),
            ("pod/web", None),
        ] {
            let expected = expected
                .map(|(kind, name)| SubjectArgs::Named(vec![DeletionSubject::cluster_wide(kind, name)]));
            assert_eq!(selected(&[text], false, None).ok(), expected, "{text}");
        }
        for text in ["ns/", "ns/a/b", "ns/../x", "ns/Shop", "ns/a%2Fb", "Shop!"] {
            assert!(text.parse::<SubjectArg>().unwrap_err().starts_with("allowed: KIND/NAME"), "{text}");
        }
    }

    #[test]
    fn suggests_a_kind_for_a_name_without_one() {
        for (text, meant) in [("shop", "ns/shop"), ("widgets.example.org", "crd/widgets.example.org")] {
            let problem = selected(&[text], false, None).unwrap_err();
            assert_eq!(problem.what, format!("{text} has no kind: did you mean {meant}?"));
        }
        let problem = selected(&["pod/web"], false, None).unwrap_err();
        assert_eq!(problem.what, "the deletion guard does not protect pod");
    }

    #[test]
    fn takes_either_names_or_all() {
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
            assert_eq!(selected(words, all, None).is_ok(), is_right, "{words:?} {all}");
        }
        let selector = "app=web".parse::<config::Labels>().unwrap().0;
        for (words, is_right) in [(&["ns"][..], true), (&[], true), (&["ns/a"], false)] {
            assert_eq!(selected(words, false, Some(&selector)).is_ok(), is_right, "{words:?}");
        }
        let spaced = selected(&["ns", "a", "b"], false, None);
        assert_eq!(spaced, selected(&["ns/a", "ns/b", "ns/a"], false, None));
    }
}
