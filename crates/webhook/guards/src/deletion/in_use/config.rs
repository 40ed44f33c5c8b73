//! Reads `guards.deletion.inUse`.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use ::config::names::{is_dns_label, namespaces};
use ::config::{Problem, Section, nearest};
use cluster::Resource;
use policy::expression::Refused;
use policy::kinds;
use policy::relation::Relation;

use super::super::config::resource;
use super::super::queries::ListScope;
use super::rule::{Rule, UsedBy};
use super::{InUseKind, library, namespaced};
use crate::common::FailurePolicy;

/// The largest file of rules.
const MAX_FILE: u64 = 1 << 20;

/// The rules of a configuration.
#[derive(Debug, Clone, Default)]
pub(in crate::deletion) struct InUseRules {
    /// The kinds that they protect.
    pub(in crate::deletion) kinds: Vec<Arc<InUseKind>>,
    /// The files with rules.
    pub(in crate::deletion) files: Vec<PathBuf>,
}

impl InUseRules {
    /// Returns each rule, with the resource that it protects.
    pub(in crate::deletion) fn each(&self) -> impl Iterator<Item = (&Resource, &Rule)> {
        self.kinds.iter().flat_map(|kind| kind.rules.iter().map(|rule| (&kind.resource, rule)))
    }
}

/// Reads the section. `is_fleet` is whether objects in member clusters count by default.
pub(in crate::deletion) fn read(section: &mut Section<'_>, is_fleet: bool) -> InUseRules {
    section.section("inUse", "Objects that are not deleted while other objects use them.", |s| {
        let words: Vec<_> = library::FILES.iter().map(|rule| (rule.0, rule)).collect();
        let chosen = s.choices("library", "Rules of Durward.", &words, &[]);
        let (mut rules, mut files) = (Vec::new(), Vec::new());
        rules.extend(chosen.iter().flat_map(|(_, yaml)| read_rules("", yaml, is_fleet).unwrap_or_default()));
        let directory = Path::new(&s.place().file).parent().unwrap_or(Path::new("")).to_owned();
        let own = s.texts_or_sections("rules", "path", "More rules, or files of rules.", |s, file| {
            let Some(file) = file else { return rule(s, is_fleet).into_iter().collect() };
            let path = directory.join(file);
            files.push(path.clone());
            rules_of_file(s, &path, is_fleet)
        });
        rules.extend(own.into_iter().flatten());
        let mut kinds: Vec<InUseKind> = Vec::new();
        let mut names: Vec<Arc<str>> = Vec::new();
        for (resource, rule) in rules {
            if names.contains(&rule.name) {
                let next = Some("give each rule a name of its own".to_owned());
                s.problem("rules", format!("two rules have the name {:?}", rule.name), next);
            }
            names.push(Arc::clone(&rule.name));
            InUseKind::add(&mut kinds, resource, rule);
        }
        InUseRules { kinds: kinds.into_iter().map(Arc::new).collect(), files }
    })
}

/// A rule and the resource that it protects.
pub(super) type ProtectedRule = (Resource, Rule);

fn rules_of_file(section: &mut Section<'_>, path: &Path, is_fleet: bool) -> Vec<ProtectedRule> {
    let file = path.display().to_string();
    let text = admission::file::read_file(path, MAX_FILE).map_err(|error| error.to_string());
    let text = text.and_then(|bytes| String::from_utf8(bytes).map_err(|error| error.to_string()));
    let rules = match text {
        Ok(text) => read_rules(&file, &text, is_fleet),
        Err(why) => Err(vec![Problem::new(format!("{file} cannot be read: {why}"))]),
    };
    rules.unwrap_or_else(|problems| {
        for problem in problems {
            section.report("rules", problem);
        }
        Vec::new()
    })
}

/// Reads a file of rules.
pub(super) fn read_rules(file: &str, text: &str, is_fleet: bool) -> Result<Vec<ProtectedRule>, Vec<Problem>> {
    let root = ::config::parse(file, text)?;
    let (rules, _, problems) =
        ::config::read(file, root.as_ref(), |s| s.sections("rules", "The rules.", |s| rule(s, is_fleet)));
    if problems.is_empty() { Ok(rules.into_iter().flatten().collect()) } else { Err(problems) }
}

/// Reads one rule.
fn rule(section: &mut Section<'_>, is_fleet: bool) -> Option<ProtectedRule> {
    let name = section.required_text("name", "name", "Name in metrics and messages.");
    if section.is_written() && !name.is_empty() && !is_dns_label(&name) {
        section.problem(
            "name",
            format!("{name:?} is not a name"),
            Some("use lower-case letters, digits and -".to_owned()),
        );
    }
    let protected = section.section("protects", "The objects that are not deleted.", protects);
    let of = protected.as_ref().and_then(|(resource, ..)| namespaced(resource));
    let used_by = section.sections("usedBy", "The objects that can use them.", |s| using(s, of, is_fleet));
    let policies = [("Fail", FailurePolicy::Fail), ("Ignore", FailurePolicy::Ignore)];
    let failure_policy = section.choice(
        "failurePolicy",
        "Result of a deletion while Durward does not answer: Fail denies it, Ignore allows it.",
        &policies,
        FailurePolicy::Fail,
    );
    if section.is_written() && used_by.is_empty() {
        section.problem("usedBy", "names no kind, so the rule protects nothing", None);
    }
    let (resource, selector, namespaces) = protected?;
    let used_by = used_by.into_iter().collect::<Option<Vec<_>>>()?;
    Some((resource, Rule { name: name.into(), selector, namespaces, used_by, failure_policy }))
}

fn protects(section: &mut Section<'_>) -> Option<(Resource, ::config::Selector, Vec<String>)> {
    let resource = known_resource(section, Some("v1"));
    let selector = section.selector("selector", "Labels of the objects.").unwrap_or_default();
    let namespaces = section.names(
        "namespaces",
        "namespace",
        "Names of their namespaces; all if there are none.",
        &[],
        namespaces,
    );
    let resource = resource?;
    if let ("", "namespaces") | ("apiextensions.k8s.io", "customresourcedefinitions") =
        (resource.group.as_ref(), resource.plural.as_ref())
    {
        let next = "use guards.deletion.namespaces.extraResources to add kinds that block a namespace";
        section.problem("resource", "is protected by the guard itself", Some(next.to_owned()));
    }
    Some((resource, selector, namespaces))
}

fn using(section: &mut Section<'_>, protected: Option<bool>, is_fleet: bool) -> Option<UsedBy> {
    let resource = known_resource(section, Some(""));
    let clusters = section.optional_choice(
        "clusters",
        "Clusters whose objects count: fleet, or local for the one that sends the review.",
        &[("fleet", false), ("local", true)],
    );
    let namespace = section.optional_choice(
        "namespace",
        "Namespaces whose objects count: same, or any.",
        &[("same", ListScope::OfTarget), ("any", ListScope::All)],
    );
    let label_selector =
        expression(section, "labelSelector", "Label selector, as CEL over object.", Relation::text);
    let field_selector =
        expression(section, "fieldSelector", "Field selector, as CEL over object.", Relation::text);
    let condition = expression(section, "where", "Whether by uses object, as CEL.", Relation::condition);
    let resource = resource?;
    if resource.is("", "secrets") {
        let why = "is secrets, which would let Durward read every Secret of every cluster";
        section.problem("resource", why, Some("name the kind that refers to them".to_owned()));
    }
    let is_namespaced = namespaced(&resource);
    let has_no_namespace = [protected, is_namespaced].contains(&Some(false));
    if namespace == Some(ListScope::OfTarget) && has_no_namespace {
        section.problem(
            "namespace",
            "is same, and one of the kinds has no namespace",
            Some("use any".to_owned()),
        );
    }
    let scope = match namespace {
        None if has_no_namespace => ListScope::All,
        // It is not known whether a custom resource has namespaces.
        None if is_namespaced.is_none() => ListScope::OfTargetOrNone,
        None | Some(ListScope::OfTarget) => ListScope::OfTarget,
        Some(any) => any,
    };
    Some(UsedBy {
        resource,
        is_local: clusters.unwrap_or(!is_fleet),
        scope,
        label_selector,
        field_selector,
        condition,
    })
}

fn expression(
    section: &mut Section<'_>,
    key: &'static str,
    doc: &'static str,
    compile: fn(&str) -> Result<Relation, Refused>,
) -> Option<Arc<Relation>> {
    let source = section.optional_text(key, "CEL", doc)?;
    let report = |refused: Refused| {
        let place = |(line, column, text)| format!("line {line}, column {column}: {text}");
        let places: Vec<_> = refused.places.into_iter().map(place).collect();
        section.problem(key, places.join("; "), None);
    };
    compile(&source).map_err(report).ok().map(Arc::new)
}

/// Reads a resource. A kind of Kubernetes must exist.
fn known_resource(section: &mut Section<'_>, version: Option<&'static str>) -> Option<Resource> {
    let resource = resource(section, version)?;
    if resource.version.is_empty() && kinds::is_of_kubernetes(&resource.group) {
        section.problem(
            "version",
            "is required for a kind of Kubernetes",
            Some("add: version: v1".to_owned()),
        );
        return None;
    }
    if kinds::is_of_kubernetes(&resource.group)
        && kinds::of_resource(&resource.group, &resource.plural).is_none()
    {
        let all = kinds::resources_of(&resource.group);
        let next = match nearest(&resource.plural, all.iter().copied()) {
            Some(near) => format!("did you mean {near}?"),
            None => format!("known: {}", Vec::from_iter(all).join(", ")),
        };
        section.problem("resource", format!("{resource} is not a resource of Kubernetes"), Some(next));
        return None;
    }
    Some(resource)
}

#[cfg(test)]
mod tests;
