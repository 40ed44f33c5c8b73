//! `check` with policies, facts and old objects that the API server would not have, or has in another version.

use std::fs;
use std::path::Path;

use crate::check::{files, policy};
use crate::harness::{Run, durward_in};

const CONFIG_MAP: &str = "apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: shop\ndata:\n  size: large\n";

fn check_in(dir: &Path, arguments: &[&str]) -> Run {
    durward_in(dir, &[&["check"], arguments].concat(), "")
}

/// A verdict that depends on no fact, of a custom resource. Its CRD has no schema, so the exit code is 3.
const NO_SCHEMA: i32 = 30;

/// A policy on `ConfigMaps` whose binding selects parameters of this kind.
fn selecting(api_version: &str, kind: &str, selector: &str, expression: &str) -> String {
    policy(expression, "Deny")
        .replace(
            "spec:\n  matchConstraints",
            &format!("spec:\n  paramKind: {{apiVersion: {api_version}, kind: {kind}}}\n  matchConstraints"),
        )
        .replace(
            "validationActions",
            &format!("paramRef: {{selector: {selector}, parameterNotFoundAction: Allow}}, validationActions"),
        )
}

/// A CRD with two versions and this conversion strategy.
fn two_versions(strategy: &str) -> String {
    format!(
        "apiVersion: apiextensions.k8s.io/v1\nkind: CustomResourceDefinition\nmetadata: {{name: foos.example.com}}\nspec:\n  group: example.com\n  \
         names: {{kind: Foo, plural: foos}}\n  scope: Namespaced\n  conversion: {{strategy: {strategy}}}\n  versions: [{{name: v1, served: true}}, {{name: v1beta1, served: true}}]\n"
    )
}

#[test]
fn binds_an_unbound_policy_whose_name_a_binding_has() {
    let bound = policy("'true'", "Deny").replace("name: b}", "name: q}");
    let unbound = policy("'false'", "Deny").replace("{name: p}", "{name: q}");
    let dir = files(&[
        ("a.yaml", CONFIG_MAP),
        ("p.yaml", &bound),
        ("q.yaml", unbound.split("---\n").next().unwrap()),
    ]);
    let run = check_in(dir.path(), &["a.yaml", "p.yaml", "q.yaml", "--unbound", "deny"]);
    assert_eq!(run.code, 1, "{}{}", run.out, run.err);
    assert!(run.out.contains("denied by policy \"q\""), "{}", run.out);
}

#[test]
fn an_old_object_in_another_version_is_unknown_unless_only_the_name_of_the_version_differs() {
    let object = |api_version: &str, kind: &str| {
        format!("apiVersion: {api_version}\nkind: {kind}\nmetadata: {{name: x}}\nspec: {{maxReplicas: 3}}\n")
    };
    let built_in = ("autoscaling", "HorizontalPodAutoscaler", "horizontalpodautoscalers", "v2");
    let custom = ("example.com", "Foo", "foos", "v1beta1");
    for ((group, kind, resource, new), strategy, expression, code) in [
        (built_in, "None", "object.spec == oldObject.spec", 3),
        (built_in, "None", "\"!has(oldObject.spec.metrics)\"", 3),
        (built_in, "None", "object.spec.maxReplicas == 3", 0),
        (built_in, "None", "object.spec.maxReplicas == 4", 1),
        (
            custom,
            "None",
            "object.spec == oldObject.spec && oldObject.apiVersion == object.apiVersion",
            NO_SCHEMA,
        ),
        (custom, "None", "object.spec != oldObject.spec", 1),
        (custom, "Webhook", "object.spec == oldObject.spec", 3),
    ] {
        let policy = policy(expression, "Deny")
            .replace("[configmaps]", &format!("[{resource}]"))
            .replace("apiGroups: ['']", &format!("apiGroups: ['{group}']"))
            .replace("apiVersions: [v1]", "apiVersions: ['*']");
        let dir = files(&[
            ("new.yaml", &object(&format!("{group}/{new}"), kind)),
            ("old.yaml", &object(&format!("{group}/v1"), kind)),
            ("with/p.yaml", &policy),
            ("with/crd.yaml", &two_versions(strategy)),
        ]);
        let run = check_in(dir.path(), &["new.yaml", "--old", "old.yaml", "--with", "with"]);
        let needs = "needs the old object in the version of the new one";
        let expected = if code == NO_SCHEMA { (3, false) } else { (code, code == 3) };
        assert_eq!(
            (run.code, run.out.contains(needs)),
            expected,
            "{kind} {strategy} {expression}: {}{}",
            run.out,
            run.err
        );
    }
}

#[test]
fn refuses_policies_that_the_api_server_cannot_decode_or_does_not_serve() {
    let good = policy("'true'", "Deny");
    let unserved = |version: &str| {
        good.replace("admissionregistration.k8s.io/v1", &format!("admissionregistration.k8s.io/{version}"))
    };
    for (text, version, part) in [
        (
            good.replace("  validations:", "  validation: []\n  validations:"),
            "1.35",
            "p.yaml:8:3: ValidatingAdmissionPolicy \"p\": spec.validation: unknown field",
        ),
        (good.replace("name: b}", "name: b, label: {}}"), "1.35", "metadata.label: unknown field"),
        (
            good.replace("name: p}", "name: p, labels: {a: 1}}"),
            "1.35",
            "metadata.labels.a: Invalid type: expected a string",
        ),
        (
            unserved("v1beta1"),
            "1.35",
            "apiVersion: Kubernetes 1.35 does not serve ValidatingAdmissionPolicy in admissionregistration.k8s.io/v1beta1",
        ),
        (
            unserved("v1alpha1"),
            "1.37",
            "does not serve ValidatingAdmissionPolicyBinding in admissionregistration.k8s.io/v1alpha1",
        ),
        (
            selecting("flowcontrol.apiserver.k8s.io/v1beta3", "FlowSchema", "{}", "'true'"),
            "1.35",
            "spec.paramKind: Kubernetes 1.35 does not serve FlowSchema in flowcontrol.apiserver.k8s.io/v1beta3",
        ),
    ] {
        let dir = files(&[("a.yaml", CONFIG_MAP), ("p.yaml", &text)]);
        let run = check_in(dir.path(), &["a.yaml", "p.yaml", "--kube-version", version]);
        assert_eq!(run.code, 2, "{part}: {}", run.out);
        assert!(run.err.contains(part), "{part}: {}", run.err);
    }
    let dir = files(&[("a.yaml", CONFIG_MAP), ("p.yaml", &unserved("v1beta1"))]);
    assert_eq!(check_in(dir.path(), &["a.yaml", "p.yaml", "--kube-version", "1.33"]).code, 0);
}

#[test]
fn a_selector_that_matches_no_given_params_or_some_in_another_version_is_unknown() {
    let param = |api_version: &str, kind: &str, name: &str, labels: &str| {
        format!(
            "apiVersion: {api_version}\nkind: {kind}\nmetadata: {{name: {name}, labels: {labels}}}\ndata: {{size: large}}\n---\n"
        )
    };
    let limits = "{matchLabels: {policy: limits}}";
    let unrelated = param("v1", "ConfigMap", "other", "{}");
    let both = unrelated.clone() + &param("v1", "ConfigMap", "limits", "{policy: limits}");
    let foos =
        param("example.com/v1", "Foo", "one", "{}") + &param("example.com/v1beta1", "Foo", "two", "{}");
    let compares = "object.data.size == params.data.size && params.apiVersion == 'example.com/v1'";
    for (api_version, kind, selector, expression, params, strategy, code) in [
        ("v1", "ConfigMap", limits, "'false'", &unrelated, "None", 3),
        ("v1", "ConfigMap", limits, "'false'", &both, "None", 1),
        ("v1", "ConfigMap", "{}", "'false'", &unrelated, "None", 1),
        ("example.com/v1", "Foo", "{}", compares, &foos, "None", 0),
        ("example.com/v1", "Foo", "{}", compares, &foos, "Webhook", 3),
    ] {
        let dir = files(&[
            ("a.yaml", CONFIG_MAP),
            ("with/p.yaml", &selecting(api_version, kind, selector, expression)),
            ("with/params.yaml", params),
            ("with/crd.yaml", &two_versions(strategy)),
        ]);
        let run = check_in(dir.path(), &["a.yaml", "--with", "with"]);
        assert_eq!(run.code, code, "{kind} {selector} {strategy}: {}{}", run.out, run.err);
    }
    let object = "{apiVersion: v1, kind: ConfigMap, metadata: {name: a}}";
    let case = format!(
        "apiVersion: durward.dev/v1alpha1\nkind: Cases\ncases:\n- {{name: all, object: {object}, params: [{object}], expect: {{verdict: skip}}}}\n"
    );
    let dir = files(&[("cases.yaml", &case), ("p.yaml", &selecting("v1", "ConfigMap", limits, "'false'"))]);
    let run = check_in(dir.path(), &["cases.yaml", "p.yaml"]);
    assert_eq!(run.code, 0, "a case has all params: {}{}", run.out, run.err);
}

#[test]
fn refuses_facts_and_old_objects_that_no_cluster_can_store() {
    let namespace = "apiVersion: v1\nkind: Namespace\nmetadata: {name: default}\n".to_owned();
    let twice = format!("{namespace}---\n{namespace}");
    let params = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: a}\n---\napiVersion: v1\nkind: ConfigMap\nmetadata: {name: a}\n";
    for (option, text, part) in [
        (
            "--with",
            twice.as_str(),
            "facts/f.yaml:7:12: Namespace \"default\": metadata.name: the object is in facts/f.yaml:1 too",
        ),
        ("--with", params, "ConfigMap \"a\": metadata.name: the object is in facts/f.yaml:1 too"),
        (
            "--with",
            &namespace.replace("default", "default, labels: {env: 1}"),
            "metadata.labels.env: Invalid type",
        ),
        ("--with", &namespace.replace("default", "default, lables: {}"), "metadata.lables: unknown field"),
        ("--with", &namespace.replace("name:", "generateName:"), "metadata: the object has no name"),
        ("--old", params, "ConfigMap \"a\": metadata.name: the object is in facts/f.yaml:1 too"),
        ("--old", &CONFIG_MAP.replace("large", "1"), "data.size: Invalid type"),
        ("--old", &CONFIG_MAP.replace("\ndata:", "\ndat:"), "dat: unknown field"),
    ] {
        let policy = selecting("v1", "ConfigMap", "{}", "'true'");
        let dir = files(&[("a.yaml", CONFIG_MAP), ("p.yaml", &policy), ("facts/f.yaml", text)]);
        let run = check_in(dir.path(), &["a.yaml", "p.yaml", option, "facts"]);
        assert_eq!(run.code, 2, "{part}: {}", run.out);
        assert!(run.err.contains(part), "{part}: {}", run.err);
    }
    let dir = files(&[("a.yaml", CONFIG_MAP), ("p.yaml", &policy("'true'", "Deny"))]);
    fs::create_dir(dir.path().join("empty")).unwrap();
    for option in ["--old", "--with"] {
        let run = check_in(dir.path(), &["a.yaml", "p.yaml", option, "empty"]);
        assert_eq!(run.code, 2, "{option}: {}", run.out);
        assert!(run.err.contains("empty contains no YAML or JSON file"), "{option}: {}", run.err);
    }
}
