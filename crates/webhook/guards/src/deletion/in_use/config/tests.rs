//! Valid rules, and the problems of invalid ones.

use super::super::super::fixture::{config, configured};
use super::super::library;

fn rule(yaml: &str) -> String {
    format!("inUse: {{rules: [{{name: a, protects: {{resource: configmaps}}, usedBy: [{yaml}]}}]}}")
}

fn described(yaml: &str) -> Vec<String> {
    let config = config(yaml);
    let kinds = config.in_use.kinds.iter();
    kinds.flat_map(|kind| kind.rules.iter().map(|rule| rule.describe(&kind.resource))).collect()
}

#[test]
fn each_rule_of_the_library_is_valid() {
    for (name, yaml) in library::FILES {
        let rules =
            super::read_rules(name, yaml, true).unwrap_or_else(|problems| panic!("{name}: {problems:?}"));
        assert!(!rules.is_empty(), "{name}");
        let names: Vec<_> = library::FILES.iter().map(|(name, _)| *name).collect();
        assert_eq!(described(&format!("inUse: {{library: [{}]}}", names.join(", "))).len(), names.len() + 2);
    }
}

#[test]
fn a_description_says_what_is_read() {
    for (using, expected) in [
        (
            "{resource: pods, version: v1, where: by.spec.a == object.metadata.name}",
            "pods.v1 (whole objects, same namespace, this cluster)",
        ),
        (
            "{resource: pods, version: v1, where: by.metadata.?labels.?a.orValue('') == object.metadata.name}",
            "pods.v1 (metadata, same namespace, this cluster)",
        ),
        (
            "{resource: pods, version: v1, namespace: any, clusters: fleet}",
            "pods.v1 (metadata, all namespaces, the fleet)",
        ),
        (
            "{resource: persistentvolumes, version: v1}",
            "persistentvolumes.v1 (metadata, all namespaces, this cluster)",
        ),
    ] {
        assert_eq!(
            described(&rule(using)),
            [format!("rule a: configmaps, used by {expected}; failurePolicy: Fail")]
        );
    }
    let on_karmada = format!("fleet: karmada\n{}", rule("{resource: pods, version: v1}"));
    assert!(described(&on_karmada)[0].contains("the fleet"));
}

#[test]
fn invalid_rules_are_reported_with_their_place() {
    for (yaml, expected) in [
        (rule("{resource: podz, version: v1}"), "podz is not a resource of Kubernetes\n    did you mean pods?"),
        (rule("{resource: pods}"), "version"),
        (rule("{resource: secrets, version: v1}"), "would let Durward read every Secret"),
        (rule(""), "usedBy: names no kind"),
        (rule("{resource: pods, version: v1, where: by.spec.a}"), "must evaluate to bool but got dyn"),
        (rule("{resource: pods, version: v1, where: 'by.spec.a =='}"), "line 1, column"),
        (rule("{resource: pods, version: v1, where: \"1 + 'a' == 2\"}"), "line 1, column 3: found no matching overload"),
        (rule("{resource: pods, version: v1, where: pod.spec == object}"), "undeclared reference to 'pod'"),
        (rule("{resource: pods, version: v1, labelSelector: by.metadata.name}"), "undeclared reference to 'by'"),
        (rule("{resource: persistentvolumes, version: v1, namespace: same}"), "one of the kinds has no namespace"),
        (rule("{resource: pods, version: v1, wher: 'true'}"), "wher"),
        (
            "inUse: {rules: [{name: a, protects: {resource: namespaces}, usedBy: [{resource: pods, version: v1}]}]}".to_owned(),
            "is protected by the guard itself",
        ),
        (
            "inUse: {library: [configmaps], rules: [{name: configmaps, protects: {resource: secrets}, usedBy: [{resource: pods, version: v1}]}]}".to_owned(),
            "two rules have the name \"configmaps\"",
        ),
        ("inUse: {library: [config-maps]}".to_owned(), "configmaps"),
        ("inUse: {rules: [missing.yaml]}".to_owned(), "missing.yaml cannot be read"),
        ("inUse: {rules: {}}".to_owned(), "is not a list"),
    ] {
        let (_, problems) = configured(&yaml);
        let text = problems.join("\n");
        assert!(text.contains(expected) && text.contains("d.yaml:"), "{yaml}: {text}");
    }
}

#[test]
fn a_file_has_rules_and_its_problems_have_their_lines() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("rules.yaml");
    let section = format!("inUse: {{rules: [{}]}}", path.display());
    std::fs::write(&path, "rules:\n  - name: mine\n    protects: {resource: configmaps}\n    usedBy: [{resource: pods, version: v1}]\n").unwrap();
    assert_eq!(described(&section).len(), 1);
    assert_eq!(config(&section).in_use.files, std::slice::from_ref(&path));
    std::fs::write(&path, "rules:\n  - name: mine\n    protects: {resource: configmapz}\n").unwrap();
    let (_, problems) = configured(&section);
    assert!(problems.join("\n").contains("rules.yaml:3:"), "{problems:?}");
}
