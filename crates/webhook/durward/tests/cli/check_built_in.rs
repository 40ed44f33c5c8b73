//! `check` on objects of built-in kinds.

use crate::check::{files, policy};
use crate::harness::{Run, durward_in};

/// An OpenAPI document of another version, in which a `ConfigMap` has the field `extra`.
const DOCUMENT: &str = r##"{"openapi": "3.0.0", "info": {"title": "Kubernetes", "version": "1.37"}, "components": {"schemas": {
"io.k8s.api.core.v1.ConfigMap": {"properties": {
  "apiVersion": {"type": "string"}, "kind": {"type": "string"},
  "metadata": {"$ref": "#/components/schemas/io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta"},
  "data": {"type": "object", "additionalProperties": {"type": "string"}}, "extra": {"type": "boolean"}},
  "x-kubernetes-group-version-kind": [{"group": "", "version": "v1", "kind": "ConfigMap"}]},
"io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta": {"properties": {"name": {"type": "string"}}}}}}"##;

const SERVICE: &str = "apiVersion: v1\nkind: Service\nmetadata: {name: a}\nspec: {ports: [{port: 80}]}\n";

fn check(all: &[(&str, &str)], arguments: &[&str]) -> Run {
    durward_in(files(all).path(), &[&["check"], arguments].concat(), "")
}

fn config_map(rest: &str) -> String {
    format!("apiVersion: v1\nkind: ConfigMap\nmetadata: {{name: a}}\n{rest}")
}

#[test]
fn an_object_without_a_finding_is_structure_only() {
    let run = check(&[("a.yaml", SERVICE)], &["a.yaml"]);
    assert_eq!(run.code, 0, "{}", run.err);
    assert!(run.out.ends_with("namespace default: no policy matched, 1 structure only\n"), "{}", run.out);
    let run = check(&[("a.yaml", SERVICE)], &["a.yaml", "-o", "json"]);
    let report: serde_json::Value = serde_json::from_str(&run.out).unwrap();
    assert_eq!(report["documents"][0]["structureOnly"], true);
    assert_eq!(report["documents"][0]["schemaChecked"], false);
    let deleted = check(&[("a.yaml", SERVICE), ("b.yaml", &config_map(""))], &["b.yaml", "--old", "a.yaml"]);
    assert!(deleted.out.contains("1 structure only"), "{}", deleted.out);
}

#[test]
fn policies_see_the_status_before_the_request() {
    let pod = "apiVersion: v1\nkind: Pod\nmetadata: {name: a}\nspec: {containers: [{name: a, image: b}]}\n";
    let node = "apiVersion: v1\nkind: Node\nmetadata: {name: a}\n";
    let with = |object: &str, phase: &str| format!("{object}status: {{phase: {phase}}}\n");
    let (running, failed) = (with(pod, "Running"), with(pod, "Failed"));
    let (ready, lost) = (with(node, "Running"), with(node, "Terminated"));
    for (new, old, phase) in [
        (running.as_str(), "", "none"),
        (&running, &failed, "Failed"),
        (&running, pod, "none"),
        (pod, &failed, "Failed"),
        (&ready, "", "Running"),
        (&ready, &lost, "Terminated"),
    ] {
        let policy = policy(&format!("object.status.?phase.orValue('none') == '{phase}'"), "Deny")
            .replace("[configmaps]", "[pods, nodes]");
        let all = [("new/a.yaml", new), ("old/a.yaml", old), ("p.yaml", &policy)];
        let old: &[&str] = if old.is_empty() { &[] } else { &["--old", "old"] };
        let run = check(&all, &[&["new", "--with", "p.yaml"], old].concat());
        assert_eq!(run.code, 0, "{new}{old:?}: {}{}", run.out, run.err);
    }
}

#[test]
fn a_text_of_another_form_is_shown_but_never_a_secret() {
    let limits = "spec: {containers: [{name: a, image: b, resources: {limits: {memory: 1Gib}}}]}";
    let pod = format!("apiVersion: v1\nkind: Pod\nmetadata: {{name: a}}\n{limits}\n");
    let run = check(&[("a.yaml", &pod)], &["a.yaml"]);
    assert!(
        run.out.contains("expected a quantity (") && run.out.contains("), found \"1Gib\"\n"),
        "{}",
        run.out
    );
    let secret = "apiVersion: v1\nkind: Secret\nmetadata: {name: a}\ndata: {a: 'hunter 2'}\n";
    let run = check(&[("a.yaml", secret)], &["a.yaml"]);
    assert!(run.out.contains("data.a: Invalid type: expected base64, found other text\n"), "{}", run.out);
    assert!(!run.out.contains("hunter"), "{}", run.out);
}

#[test]
fn structural_errors_deny_the_object_in_the_order_of_the_api_server() {
    let service = SERVICE.replace("{port: 80}", "{protocol: tcp, port: 80}, {}");
    let run = check(&[("a.yaml", &service)], &["a.yaml"]);
    assert_eq!(run.code, 1, "{}", run.err);
    for line in [
        "a.yaml:4:17: Service default/a: denied by the API server: spec.ports[0].protocol: Unsupported value: \"tcp\": supported values: \"SCTP\", \"TCP\", \"UDP\"\n",
        "denied by the API server: spec.ports[1].port: Invalid value: 0: must be between 1 and 65535, inclusive\n",
        "1 denied, 1 structure only\n",
    ] {
        assert!(run.out.contains(line), "{line}{}", run.out);
    }
    let service = service.replace("spec:", "specs: {}\nspec:");
    let run = check(&[("a.yaml", &service)], &["a.yaml"]);
    assert!(
        run.out.contains(
            "denied by the API server, which can't decode it: strict decoding error: unknown field \"specs\""
        ),
        "{}",
        run.out
    );
    assert!(run.out.contains("then denied by the API server: spec.ports[0].protocol"), "{}", run.out);
}

#[test]
fn an_update_keeps_what_the_old_object_has() {
    let new = SERVICE.replace("{port: 80}", "{protocol: tcp, port: 80}, {protocol: udp, port: 81}");
    let old = SERVICE.replace("{port: 80}", "{protocol: tcp, port: 80}");
    let run = check(&[("a.yaml", &new), ("old/a.yaml", &old)], &["a.yaml", "--old", "old"]);
    assert_eq!(run.code, 1, "{}{}", run.out, run.err);
    assert!(run.out.contains("spec.ports[1].protocol") && !run.out.contains("spec.ports[0]"), "{}", run.out);
}

#[test]
fn the_structure_of_another_version_is_open_without_its_documents() {
    let object = config_map("extra: true\n");
    for (mode, code, text) in [
        (
            "strict",
            3,
            "could not decide: unknown field \"extra\" in Kubernetes 1.35, and the types of 1.37 are not recorded",
        ),
        ("warn", 0, "warning by the API server: unknown field \"extra\""),
        ("ignore", 0, "no policy matched"),
    ] {
        let run =
            check(&[("a.yaml", &object)], &["a.yaml", "--kube-version", "1.37", "--field-validation", mode]);
        assert_eq!(run.code, code, "{mode}: {}{}", run.out, run.err);
        assert!(run.out.contains(text), "{text}\n{}", run.out);
        let note = "note: the types of Kubernetes 1.37 are not recorded: those of 1.35 were used for ConfigMap; give the OpenAPI documents";
        assert!(run.err.contains(note), "{}", run.err);
    }
    let service = SERVICE.replace("{port: 80}", "{port: 80, protocol: QUIC}");
    let run = check(&[("a.yaml", &service)], &["a.yaml", "--kube-version", "1.37"]);
    assert_eq!(run.code, 3, "{}{}", run.out, run.err);
    assert!(
        run.out.contains("could not decide: spec.ports[0].protocol: Unsupported value: \"QUIC\""),
        "{}",
        run.out
    );
    // No version has a number where 1.35 has a text.
    let run = check(&[("a.yaml", &config_map("data: {a: 1}\n"))], &["a.yaml", "--kube-version", "1.37"]);
    assert_eq!(run.code, 1, "{}{}", run.out, run.err);
}

#[test]
fn documents_replace_the_recorded_types() {
    let all = [
        ("a.yaml", &*config_map("extra: true\n")),
        ("b.yaml", &*config_map("exra: true\n")),
        ("o/a.json", DOCUMENT),
    ];
    let given = ["--kube-version", "1.37", "--openapi", "o"];
    let run = check(&all, &[&["a.yaml"][..], &given].concat());
    assert_eq!((run.code, run.err.as_str()), (0, ""), "{}", run.out);
    let run = check(&all, &[&["b.yaml"][..], &given].concat());
    assert_eq!(run.code, 1, "{}{}", run.out, run.err);
    assert!(run.out.contains("strict decoding error: unknown field \"exra\""), "{}", run.out);
}

#[test]
fn documents_that_cannot_be_used_are_errors() {
    let index = r#"{"paths": {"api/v1": {"serverRelativeURL": "/openapi/v3/api/v1"}}}"#;
    let all = [
        ("a.yaml", SERVICE),
        ("o/a.json", DOCUMENT),
        ("i.json", index),
        ("e/a.txt", ""),
        ("y.yaml", SERVICE),
        ("u.json", &DOCUMENT.replace("\"1.37\"", "\"unversioned\"")),
        ("n.json", &DOCUMENT.replace(", \"version\": \"1.37\"}", "}")),
    ];
    for (path, texts) in [
        (
            "o",
            &[
                "o/a.json is of Kubernetes 1.37, and check is for 1.35",
                "use --kube-version 1.37, or the documents of 1.35",
            ][..],
        ),
        (
            "i.json",
            &[
                "i.json is not an OpenAPI document",
                "this is the list of OpenAPI documents",
                "kubectl get --raw /openapi/v3/apis/apps/v1",
            ],
        ),
        (
            "u.json",
            &[
                "u.json is of Kubernetes \"unversioned\", so its minor is not known",
                "of an API server of 1.35",
            ],
        ),
        ("n.json", &["n.json is of Kubernetes \"\", so its minor is not known"]),
        ("y.yaml", &["y.yaml is not an OpenAPI document"]),
        ("e", &["e contains no YAML or JSON file"]),
        ("missing.json", &["missing.json"]),
    ] {
        let run = check(&all, &["a.yaml", "--openapi", path]);
        assert_eq!(run.code, 2, "{path}: {}{}", run.out, run.err);
        assert!(texts.iter().all(|text| run.err.contains(text)), "{path}: {}", run.err);
    }
}
