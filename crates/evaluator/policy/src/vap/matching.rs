//! Whether a policy or binding matches a request.

use super::model::{MatchResources, ResourceRule};
use crate::facts::{Facts, Lookup};
use crate::request::{AdmissionRequest, GroupVersion};
use crate::value::{Arena, Value};

/// Whether something matches.
#[derive(Clone, Debug, PartialEq, Eq)]
#[allow(clippy::large_enum_variant)] // there is one at a time
pub(crate) enum Matching {
    Yes,
    No,
    /// Facts are missing.
    Unknown(Lookup),
    /// The API server fails to find out.
    Error(String),
}

/// Resources that no policy judges, since a policy could lock everyone out.
pub const EXCLUDED: [(&str, &[&str]); 3] = [
    (
        "admissionregistration.k8s.io",
        &[
            "validatingwebhookconfigurations",
            "mutatingwebhookconfigurations",
            "validatingadmissionpolicies",
            "validatingadmissionpolicybindings",
            "mutatingadmissionpolicies",
            "mutatingadmissionpolicybindings",
        ],
    ),
    ("authentication.k8s.io", &["selfsubjectreviews", "tokenreviews"]),
    (
        "authorization.k8s.io",
        &[
            "localsubjectaccessreviews",
            "selfsubjectaccessreviews",
            "selfsubjectrulesreviews",
            "subjectaccessreviews",
        ],
    ),
];

/// Whether policies judge requests of this resource at all.
pub(crate) fn is_judged(request: &AdmissionRequest<'_>) -> bool {
    !is_excluded(request.resource.group, request.resource.name)
}

/// Whether no policy judges requests of this resource.
fn is_excluded(group: &str, resource: &str) -> bool {
    EXCLUDED.iter().any(|(excluded, resources)| group == *excluded && resources.contains(&resource))
}

/// Whether constraints match. `policy` names the policy in lookups.
pub(crate) fn matches(
    resources: &MatchResources,
    request: &AdmissionRequest<'_>,
    facts: &Facts,
    policy: &str,
    arena: &Arena,
) -> Matching {
    let selector = &resources.object_selector;
    let labels = |object: Value<'_>| -> bool {
        !matches!(object, Value::Null) && {
            let metadata = object.field("metadata").unwrap_or_default();
            selector.matches(metadata.field("labels"))
        }
    };
    if !selector.is_empty() && !labels(request.object) && !labels(request.old_object) {
        return Matching::No;
    }
    match rules(&resources.exclude_resource_rules, resources, request, policy) {
        Matching::Yes => return Matching::No,
        Matching::No => {}
        other => return other,
    }
    if !resources.resource_rules.is_empty() {
        match rules(&resources.resource_rules, resources, request, policy) {
            Matching::Yes => {}
            other => return other,
        }
    }
    namespace(resources, request, facts, arena)
}

fn namespace(
    resources: &MatchResources,
    request: &AdmissionRequest<'_>,
    facts: &Facts,
    arena: &Arena,
) -> Matching {
    let selector = &resources.namespace_selector;
    let is_namespaces = request.resource.name == "namespaces";
    if selector.is_empty() || (request.namespace.is_empty() && !is_namespaces) {
        return Matching::Yes;
    }
    let verdict = |object: Value<'_>| {
        let metadata = object.field("metadata").unwrap_or_default();
        if selector.matches(metadata.field("labels")) { Matching::Yes } else { Matching::No }
    };
    if is_namespaces && request.subresource.is_empty() && matches!(request.operation, "CREATE" | "UPDATE") {
        return verdict(request.object);
    }
    match request.known_namespace(facts, arena) {
        None => match selector.matches_name(request.namespace) {
            Some(true) => Matching::Yes,
            Some(false) => Matching::No,
            None => Matching::Unknown(Lookup::Namespace(request.namespace.to_owned())),
        },
        Some(Ok(None)) => Matching::Error(not_found(request.namespace)),
        Some(Ok(Some(namespace))) => verdict(namespace),
        Some(Err(error)) => Matching::Error(error),
    }
}

/// The API server's error for a Namespace that does not exist.
pub(crate) fn not_found(namespace: &str) -> String {
    format!("namespaces \"{namespace}\" not found")
}

/// Matches rules as the API server does: first the resource that the user addressed, then the same resource in other versions.
/// The request holds the object in one version, so a policy that judges another version is unknown.
fn rules(
    rules: &[ResourceRule],
    resources: &MatchResources,
    request: &AdmissionRequest<'_>,
    policy: &str,
) -> Matching {
    let named = |rule: &ResourceRule| {
        rule.resource_names.is_empty() || rule.resource_names.iter().any(|name| name == request.name)
    };
    let listed = |items: &[String], wanted: &str| items.iter().any(|item| item == "*" || item == wanted);
    let elsewhere = |rule: &ResourceRule| {
        scope(rule, request)
            && rule.operations.iter().any(|operation| operation == "*" || operation == request.operation)
            && resource(rule, request)
            && named(rule)
    };
    let names = |rule: &&ResourceRule, of: &GroupVersion<'_>| {
        listed(&rule.api_groups, of.group) && listed(&rule.api_versions, of.version)
    };
    let unknown = |rule: &ResourceRule| {
        let group = rule.api_groups.first().map_or("", String::as_str);
        let version = rule.api_versions.first().map_or("", String::as_str);
        let rule = format!("{group}/{version} {}", request.resource.name);
        Matching::Unknown(Lookup::Conversion { policy: policy.to_owned(), rule })
    };
    let (addressed, sent) = (request.addressed(), &request.resource);
    let rules = || rules.iter().filter(|rule| elsewhere(rule));
    if let Some(rule) = rules().find(|rule| names(rule, addressed)) {
        return if addressed == sent { Matching::Yes } else { unknown(rule) };
    }
    if resources.match_policy != "Equivalent" {
        return Matching::No;
    }
    if rules().any(|rule| names(&rule, sent)) {
        return Matching::Yes;
    }
    // The same resource in another version is the same object. Whether the cluster serves that version is unknown here.
    let is_same = |rule: &&ResourceRule| listed(&rule.api_groups, sent.group) || moved_group(rule, request);
    rules().find(is_same).map_or(Matching::No, unknown)
}

/// Resources that are served in two groups: the resource, the group of a request, and the group of a rule.
pub const MOVED: [(&str, &str, &str); 2] = [("events", "", "events.k8s.io"), ("events", "events.k8s.io", "")];

/// Whether the rule names the other group of the resource.
fn moved_group(rule: &ResourceRule, request: &AdmissionRequest<'_>) -> bool {
    MOVED.iter().any(|(resource, from, to)| {
        request.resource.name == *resource
            && request.resource.group == *from
            && rule.api_groups.iter().any(|group| group == to)
    })
}

fn scope(rule: &ResourceRule, request: &AdmissionRequest<'_>) -> bool {
    let is_namespace = request.resource.group.is_empty()
        && request.resource.version == "v1"
        && request.resource.name == "namespaces";
    let cluster = is_namespace || request.namespace.is_empty();
    match rule.scope.as_str() {
        "*" => true,
        "Cluster" => cluster,
        "Namespaced" => !cluster,
        _ => false,
    }
}

fn resource(rule: &ResourceRule, request: &AdmissionRequest<'_>) -> bool {
    rule.resources.iter().any(|entry| {
        let (resource, subresource) = entry.split_once('/').unwrap_or((entry, ""));
        (resource == "*" || resource == request.resource.name)
            && (subresource == "*" || subresource == request.subresource)
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::request::Addressed;

    fn resources(match_policy: &str, versions: &[&str]) -> MatchResources {
        let list = |items: &[&str]| items.iter().map(|&item| item.to_owned()).collect::<Vec<_>>();
        let rule = ResourceRule {
            operations: list(&["*"]),
            api_groups: list(&["example.com"]),
            api_versions: list(versions),
            resources: list(&["widgets"]),
            scope: "*".to_owned(),
            ..ResourceRule::default()
        };
        MatchResources {
            match_policy: match_policy.to_owned(),
            resource_rules: vec![rule],
            ..MatchResources::default()
        }
    }

    fn widgets(version: &str) -> GroupVersion<'_> {
        GroupVersion { group: "example.com", version, name: "widgets" }
    }

    /// Matches a request in one version whose object was converted to another.
    fn of(match_policy: &str, versions: &[&str], addressed: &str, sent: &str) -> Matching {
        let addressed = Addressed { resource: widgets(addressed), ..Addressed::default() };
        let request = AdmissionRequest {
            operation: "CREATE",
            resource: widgets(sent),
            addressed: Some(addressed),
            ..AdmissionRequest::default()
        };
        matches(&resources(match_policy, versions), &request, &Facts::default(), "p", &Arena::new())
    }

    #[test]
    fn a_converted_object_is_judged_by_policies_of_its_version() {
        assert_eq!(of("Equivalent", &["v1"], "v2", "v1"), Matching::Yes);
        assert_eq!(of("Exact", &["v1"], "v2", "v1"), Matching::No);
        assert_eq!(of("Exact", &["v1"], "v1", "v1"), Matching::Yes);
    }

    #[test]
    fn a_policy_of_another_version_than_that_of_the_object_is_unknown() {
        for (match_policy, versions) in
            [("Exact", "v2"), ("Equivalent", "v2"), ("Equivalent", "v3"), ("Exact", "*")]
        {
            let matching = of(match_policy, &[versions], "v2", "v1");
            assert!(
                matches!(matching, Matching::Unknown(Lookup::Conversion { .. })),
                "{match_policy} {versions}"
            );
        }
    }
}
