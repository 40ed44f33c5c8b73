//! `check` with input that the API server refuses or changes before a policy decides.

use crate::check::{files, policy};
use crate::harness::{Run, durward_in};

const CRD: &str = "apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: things.example.org}
spec:
  group: example.org
  scope: Namespaced
  names: {kind: Thing, plural: things}
  versions:
  - {name: v1, served: true, storage: true, schema: {openAPIV3Schema: {type: object, x-kubernetes-preserve-unknown-fields: true}}, subresources: {status: {}}}
  - {name: v2, served: true, storage: false, schema: {openAPIV3Schema: {type: object, x-kubernetes-preserve-unknown-fields: true}}}
";

const CONFIG_MAP: &str = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: a}\n";

fn check(all: &[(&str, &str)], arguments: &[&str]) -> Run {
    durward_in(files(all).path(), &[&["check"], arguments].concat(), "")
}

/// A policy on things of `example.org`.
fn on_things(expression: &str) -> String {
    policy(expression, "Deny")
        .replace("apiGroups: [''], apiVersions: [v1]", "apiGroups: [example.org], apiVersions: ['*']")
        .replace("[configmaps]", "[things, things/status]")
}

#[test]
fn policies_and_bindings_are_read_as_strictly_as_by_the_api_server() {
    let good = policy("'true'", "Deny");
    for (old, new, errors) in [
        (
            "  validations:",
            "  validation: []\n  validations:",
            &["p.yaml:8:3: ValidatingAdmissionPolicy \"p\": spec.validation: unknown field"][..],
        ),
        (
            "- expression: 'true'",
            "- {expression: 'true', mesage: a}",
            &["spec.validations[0].mesage: unknown field"],
        ),
        ("{name: b}", "{name: b, lables: {}}", &["Binding \"b\": metadata.lables: unknown field"]),
        (
            "validationActions: [Deny]}",
            "validationActions: [Deny], matchResource: {}}",
            &["Binding \"b\": spec.matchResource: unknown field"],
        ),
        (
            "{name: p}",
            "{name: p, labels: {a: 1}}",
            &["Policy \"p\": metadata.labels.a: Invalid type: expected a string, found a number"],
        ),
        (
            "k8s.io/v1\n",
            "k8s.io/v1beta1\n",
            &[
                "p.yaml:1:1: ValidatingAdmissionPolicy \"p\": apiVersion: Kubernetes 1.35 does not serve ValidatingAdmissionPolicy in admissionregistration.k8s.io/v1beta1",
                "apiVersion: Kubernetes 1.35 does not serve ValidatingAdmissionPolicyBinding",
            ],
        ),
    ] {
        let wrong = good.replace(old, new);
        assert_ne!(wrong, good, "{old}");
        let run = check(&[("a.yaml", CONFIG_MAP), ("p.yaml", &wrong)], &["."]);
        assert_eq!(run.code, 2, "{new}: {}{}", run.out, run.err);
        for error in errors {
            assert!(run.err.contains(error), "{error}\n{}", run.err);
        }
        assert_eq!(run.err.matches("error: ").count(), errors.len(), "{}", run.err);
    }
    let old = good.replace("k8s.io/v1\n", "k8s.io/v1beta1\n");
    let run = check(&[("a.yaml", CONFIG_MAP), ("p.yaml", &old)], &[".", "--kube-version", "1.33"]);
    assert_eq!(run.code, 0, "{}", run.err);
    let unknown = good.replace("  validations:", "  validation: []\n  validations:");
    for (mode, is_noted) in [("warn", true), ("ignore", false)] {
        let run = check(&[("a.yaml", CONFIG_MAP), ("p.yaml", &unknown)], &[".", "--field-validation", mode]);
        assert_eq!(run.code, 0, "{}", run.err);
        assert_eq!(run.err.contains("unknown field \"spec.validation\""), is_noted, "{}", run.err);
    }
}

#[test]
fn metadata_of_custom_resources_is_decoded() {
    for (metadata, code, text) in [
        ("{name: a, labels: {t: x}}", 0, "no violations"),
        ("{name: a, lables: {t: x}}", 1, "strict decoding error: unknown field \"metadata.lables\""),
        (
            "{name: a, labels: {t: 1}}",
            1,
            "metadata.labels.t: Invalid type: expected a string, found a number",
        ),
        (
            "{name: a, namespace: 123}",
            2,
            "o.yaml:3:21: Thing \"a\": metadata.namespace: namespace must be a text in quotes",
        ),
    ] {
        let object = format!("apiVersion: example.org/v1\nkind: Thing\nmetadata: {metadata}\n");
        let all = [("c.yaml", CRD), ("o.yaml", object.as_str()), ("p.yaml", &on_things("'true'"))];
        let run = check(&all, &["o.yaml", "--with", "c.yaml", "--with", "p.yaml"]);
        assert_eq!(run.code, code, "{metadata}: {}{}", run.out, run.err);
        assert!(run.out.contains(text) || run.err.contains(text), "{text}\n{}{}", run.out, run.err);
    }
}

#[test]
fn the_status_of_a_custom_resource_is_that_before_the_request() {
    let thing = |version: &str, status: &str| {
        format!("apiVersion: example.org/{version}\nkind: Thing\nmetadata: {{name: a}}\n{status}\n")
    };
    let expression = "\"!has(object.status) || object.status.phase == 'old'\"";
    for (version, is_dropped) in [("v1", true), ("v2", false)] {
        let (new, old) = (thing(version, "status: {phase: new}"), thing(version, "status: {phase: old}"));
        let all =
            [("c.yaml", CRD), ("n/o.yaml", &new), ("old/o.yaml", &old), ("p.yaml", &on_things(expression))];
        for more in [&[][..], &["--old", "old"]] {
            let run = check(&all, &[&["n", "--with", "c.yaml", "--with", "p.yaml"], more].concat());
            assert_eq!(run.code, i32::from(!is_dropped), "{version} {more:?}: {}{}", run.out, run.err);
        }
    }
    // An update by the manifest has the stored status, and one of the subresource that of the request.
    let stored = on_things("\"has(object.status) && object.status.phase == 'old'\"");
    let cases = "apiVersion: durward.dev/v1alpha1\nkind: Cases\ncases:\n";
    let objects = |phase: &str| {
        format!(
            "{{apiVersion: example.org/v1, kind: Thing, metadata: {{name: a}}, status: {{phase: {phase}}}}}"
        )
    };
    for (subresource, verdict) in [("''", "allow"), ("status", "deny")] {
        let (new, old) = (objects("new"), objects("old"));
        let case = format!(
            "{cases}- {{name: a, object: {new}, oldObject: {old}, subresource: {subresource}, expect: {{verdict: {verdict}}}}}\n"
        );
        let all = [("c.yaml", CRD), ("p.yaml", stored.as_str()), ("cases.yaml", &case)];
        let run = check(&all, &["cases.yaml", "--with", "c.yaml", "--with", "p.yaml"]);
        assert_eq!(run.code, 0, "{subresource}: {}{}", run.out, run.err);
    }
}

#[test]
fn a_service_account_that_is_the_user_has_its_grants() {
    let all = [
        ("a.yaml", CONFIG_MAP),
        ("p.yaml", &policy("authorizer.group('').resource('pods').check('get').allowed()", "Deny")),
        (
            "g.yaml",
            "apiVersion: durward.dev/v1alpha1\nkind: Grants\ngrants:\n- {serviceAccount: ci/builder, verbs: [get], apiGroups: [''], resources: [pods]}\n",
        ),
    ];
    for (user, code) in
        [("system:serviceaccount:ci:builder", 0), ("system:serviceaccount:ci:other", 1), ("ann", 1)]
    {
        let run = check(&all, &["a.yaml", "p.yaml", "--grants", "g.yaml", "--as", user]);
        assert_eq!(run.code, code, "{user}: {}{}", run.out, run.err);
    }
}

#[test]
fn an_unknown_field_is_no_match_of_a_policy() {
    let on_pods = policy("'true'", "Deny").replace("[configmaps]", "[pods]");
    let object = format!("{CONFIG_MAP}foo: 1\n");
    let all = [("a.yaml", object.as_str()), ("p.yaml", &on_pods)];
    for mode in ["strict", "warn"] {
        let run = check(&all, &["a.yaml", "p.yaml", "--require-match", "--field-validation", mode]);
        assert_eq!(run.code, 2, "{mode}: {}{}", run.out, run.err);
    }
}

#[test]
fn cases_pass_only_if_a_policy_gives_the_verdict() {
    let denies = policy("object.data.size == 's'", "Deny");
    let map = |rest: &str| {
        format!("object: {{apiVersion: v1, kind: ConfigMap, metadata: {{name: a}}, data: {{size: l}}{rest}}}")
    };
    for (case, text) in [
        (format!("{}, expect: {{verdict: deny}}", map("")), ""),
        (format!("{}, expect: {{verdict: error}}", map(", foo: 1")), ""),
        (format!("{}, expect: {{verdict: error, policy: p}}", map(", foo: 1")), "actual   error: strict decoding error: unknown field \"foo\""),
        (format!("{}, expect: {{verdict: deny}}", map(", foo: 1")), "actual   error: strict decoding error"),
        (format!("{}, expect: {{verdict: skip, policy: p}}", map(", binaryData: 1")), "actual   error: binaryData: Invalid type"),
        (format!("{}, subresource: sttus, expect: {{verdict: skip}}", map("")), "configmaps has no subresource \"sttus\""),
        (format!("{}, expect: {{verdict: deny, messageMatches: ''}}", map("")), "an empty pattern matches all messages"),
        ("object: {apiVersion: flowcontrol.apiserver.k8s.io/v1beta3, kind: FlowSchema, metadata: {name: x}}, expect: {verdict: skip}".to_owned(), "Kubernetes 1.35 does not serve FlowSchema"),
        ("object: {apiVersion: v1, kind: ConfigMap, metadata: {}}, expect: {verdict: error}".to_owned(), "the object has no name"),
    ] {
        let cases = format!("apiVersion: durward.dev/v1alpha1\nkind: Cases\ncases:\n- {{name: a, {case}}}\n");
        let run = check(&[("p.yaml", &denies), ("c.yaml", &cases)], &["c.yaml", "--with", "p.yaml"]);
        assert_eq!(run.code == 0, text.is_empty(), "{case}: {}{}", run.out, run.err);
        assert!(run.out.contains(text) || run.err.contains(text), "{text}\n{}{}", run.out, run.err);
    }
}

#[test]
fn a_crd_of_the_old_state_defines_kinds_of_old_objects_only() {
    let thing =
        |version: &str| format!("apiVersion: example.org/{version}\nkind: Thing\nmetadata: {{name: a}}\n");
    let (v1, v2) = (thing("v1"), thing("v2"));
    let only_v1 = CRD.replace("name: v2, served: true", "name: v2, served: false");
    let allow = on_things("'true'");
    let deny_deletion = on_things("request.operation != 'DELETE'");
    let deny_update = on_things("request.operation != 'UPDATE'");
    let all = [
        ("a.yaml", CONFIG_MAP),
        ("crd.yaml", CRD),
        ("only-v1.yaml", &only_v1),
        ("v1.yaml", &v1),
        ("v2.yaml", &v2),
        ("allow.yaml", &allow),
        ("deletion.yaml", &deny_deletion),
        ("update.yaml", &deny_update),
    ];
    let unknown = "kind: unknown kind Thing in example.org/";
    for (arguments, code, text) in [
        // The change deletes the CRD or a version, and keeps an object.
        (&["v1.yaml", "allow.yaml", "--old", "crd.yaml"][..], 2, unknown),
        (&["v1.yaml", "allow.yaml", "--old", "crd.yaml", "--old", "v1.yaml"], 2, unknown),
        (&["v2.yaml", "only-v1.yaml", "allow.yaml", "--old", "crd.yaml", "--old", "v2.yaml"], 2, unknown),
        // The change deletes both.
        (
            &["a.yaml", "deletion.yaml", "--old", "crd.yaml", "--old", "v1.yaml"],
            1,
            "Thing default/a (delete): denied",
        ),
        (
            &["a.yaml", "only-v1.yaml", "deletion.yaml", "--old", "crd.yaml", "--old", "v2.yaml"],
            1,
            "Thing default/a (delete): denied",
        ),
        // CRDs that the change keeps define the kinds of old objects.
        (&["v1.yaml", "crd.yaml", "update.yaml", "--old", "v1.yaml"], 1, "Thing default/a (update): denied"),
        (
            &["a.yaml", "deletion.yaml", "--with", "crd.yaml", "--old", "v1.yaml"],
            1,
            "Thing default/a (delete): denied",
        ),
    ] {
        let run = check(&all, &[arguments, &["--allow-unknown"]].concat());
        assert_eq!(run.code, code, "{arguments:?}: {}{}", run.out, run.err);
        assert!(run.out.contains(text) || run.err.contains(text), "{arguments:?}: {}{}", run.out, run.err);
    }
}
