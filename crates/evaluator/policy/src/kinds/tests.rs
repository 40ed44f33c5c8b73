use super::*;
use crate::value::{Arena, read_json};

fn crd(text: &str) -> Result<Kinds, Vec<String>> {
    let arena = Arena::new();
    let crd = Crd::read(read_json(text, &arena).unwrap());
    let crd = crd.map_err(|errors| errors.iter().map(ToString::to_string).collect::<Vec<_>>())?;
    let mut kinds = Kinds::new();
    kinds.with_crd(crd);
    Ok(kinds)
}

const CLUSTERS: &str = r#"{"spec": {"group": "ecs.yun.com", "scope": "Namespaced",
    "names": {"kind": "KubernetesCluster", "plural": "kubernetesclusters"},
    "versions": [{"name": "v1", "served": true}, {"name": "v1alpha1", "served": false}]}}"#;

#[test]
fn every_line_of_the_table_is_a_kind() {
    let lines = TABLES.iter().flat_map(|table| table.lines()).filter(|line| !line.starts_with('#')).count();
    assert_eq!(TABLE.len(), lines, "a line without five columns, or two lines of one kind");
    assert!(lines > 80, "{lines} kinds");
}

#[test]
fn knows_resource_and_scope_of_built_in_kinds() {
    let found =
        |group, version, kind| lookup(group, version, kind).map(|found| (found.plural, found.namespaced));
    assert_eq!(found("apps", "v1", "Deployment"), Some(("deployments".into(), true)));
    assert_eq!(found("", "v1", "Endpoints"), Some(("endpoints".into(), true)));
    assert_eq!(found("", "v1", "Namespace"), Some(("namespaces".into(), false)));
    assert_eq!(found("networking.k8s.io", "v1", "Ingress"), Some(("ingresses".into(), true)));
    assert_eq!(found("cluster.karmada.io", "v1alpha1", "Cluster"), Some(("clusters".into(), false)));
    assert_eq!(found("apps", "v1beta1", "Deployment"), None);
    assert_eq!(found("", "v1", "Deployment"), None);
    assert_eq!(found("", "v1", "Eviction"), None, "a subresource is not a kind of manifests");
}

#[test]
fn a_crd_adds_its_kind_in_served_versions() {
    let kinds = crd(CLUSTERS).unwrap();
    let found = kinds.lookup("ecs.yun.com", "v1", "KubernetesCluster").unwrap();
    let plural = "kubernetesclusters".into();
    let expected = KindResource { plural, namespaced: true, has_status: false, minors: 30..=37 };
    assert_eq!(found, expected);
    assert_eq!(kinds.lookup("ecs.yun.com", "v1alpha1", "KubernetesCluster"), None);
    assert!(kinds.lookup("apps", "v1", "Deployment").is_some());
}

#[test]
fn a_version_has_the_subresource_status_if_the_crd_says_so() {
    for (of, has_status) in [
        (r#""served": true"#, r#""served": true, "subresources": {"status": {}}"#, true),
        (r#""served": true"#, r#""served": true, "subresources": {"status": null, "scale": {}}"#, false),
        (r#""scope""#, r#""subresources": {"status": {}}, "scope""#, true),
    ]
    .map(|(old, new, has_status)| (CLUSTERS.replacen(old, new, 1), has_status))
    {
        let kinds = crd(&of).unwrap();
        let found = kinds.lookup("ecs.yun.com", "v1", "KubernetesCluster").unwrap();
        assert_eq!(found.has_status, has_status, "{of}");
    }
}

#[test]
fn reads_the_single_version_of_a_v1beta1_crd() {
    let text = r#"{"apiVersion": "apiextensions.k8s.io/v1beta1", "spec": {"group": "example.org", "version": "v2",
        "names": {"kind": "Thing", "plural": "things"}}}"#;
    let found = crd(text).unwrap().lookup("example.org", "v2", "Thing").map(|found| found.namespaced);
    assert_eq!(found, Some(true), "the default of the scope is Namespaced");
}

#[test]
fn a_v1_crd_needs_a_scope() {
    let errors = crd(&CLUSTERS.replace(r#""scope": "Namespaced","#, "")).unwrap_err();
    assert_eq!(errors, ["spec.scope: Required value"]);
}

#[test]
fn reports_all_fields_that_a_crd_lacks() {
    let errors = crd(r#"{"spec": {"scope": "cluster", "names": {"kind": 3}}}"#).unwrap_err();
    let expected = [
        "spec.group: Required value",
        "spec.names.kind: Invalid type: expected a string",
        "spec.names.plural: Required value",
        "spec.scope: Unsupported value: \"cluster\": supported values: \"Cluster\", \"Namespaced\"",
        "spec.versions: Required value",
    ];
    assert_eq!(errors, expected);
}

#[test]
fn suggests_kinds_that_a_minor_serves() {
    let kinds = crd(CLUSTERS).unwrap();
    assert_eq!(kinds.like("deployment", 35), ["apps/v1 Deployment"]);
    assert_eq!(kinds.like("Event", 35), ["v1 Event", "events.k8s.io/v1 Event"]);
    assert_eq!(kinds.like("kubernetescluster", 35), ["ecs.yun.com/v1 KubernetesCluster"]);
    assert!(kinds.like("Nope", 35).is_empty());
}

#[test]
fn knows_the_minors_that_serve_a_kind() {
    let minors = |group, version, kind| lookup(group, version, kind).map(|found| found.minors);
    assert_eq!(minors("apps", "v1", "Deployment"), Some(30..=37));
    assert_eq!(minors("flowcontrol.apiserver.k8s.io", "v1beta3", "FlowSchema"), Some(30..=31));
    assert_eq!(minors("admissionregistration.k8s.io", "v1", "MutatingAdmissionPolicy"), Some(36..=37));
}
