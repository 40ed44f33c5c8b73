//! `check`: admission policies on manifests.

use std::fs;
use std::path::Path;

use serde_json::Value;

use crate::harness::{Run, durward, durward_in, root};
use crate::schema;

const EXAMPLE: &str = "examples/kubernetesclusters";

/// A directory with files.
pub(crate) fn files(files: &[(&str, &str)]) -> tempfile::TempDir {
    let dir = tempfile::tempdir().unwrap();
    for (name, text) in files {
        let path = dir.path().join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }
    dir
}

fn check_in(dir: &Path, arguments: &[&str]) -> Run {
    durward_in(dir, &[&["check"], arguments].concat(), "")
}

/// Runs `check` on files of the example with its CRD and policy.
fn example(paths: &[&str], more: &[&str]) -> Run {
    let path = |name: &&str| format!("{EXAMPLE}/{name}");
    let paths: Vec<String> = paths.iter().map(path).collect();
    let mut line = vec!["check"];
    line.extend(paths.iter().map(String::as_str));
    line.extend(more);
    line.extend([
        "--with",
        "examples/kubernetesclusters/crd.yaml",
        "--with",
        "examples/kubernetesclusters/policy.yaml",
    ]);
    durward(&line)
}

/// A policy on `ConfigMaps` with this validation, and its binding with this action.
pub(crate) fn policy(expression: &str, action: &str) -> String {
    format!(
        "apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicy
metadata: {{name: p}}
spec:
  matchConstraints:
    resourceRules:
    - {{apiGroups: [''], apiVersions: [v1], operations: ['*'], resources: [configmaps]}}
  validations:
  - expression: {expression}
---
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicyBinding
metadata: {{name: b}}
spec: {{policyName: p, validationActions: [{action}]}}
"
    )
}

const CONFIG_MAP: &str = "apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: shop\ndata:\n  size: large\n";

#[test]
fn denies_the_sample_of_the_example_because_its_key_is_empty() {
    let run = example(&["sample.yaml"], &[]);
    assert_eq!(run.code, 1, "{}", run.err);
    assert_eq!(
        run.out,
        "examples/kubernetesclusters/sample.yaml:5:1: KubernetesCluster default/test-cluster: denied by policy \"kubernetesclusters\": \
         spec.privateSSHKey and spec.rootPassword are both empty; set one of them\n\
         1 document checked by 1 policy for Kubernetes 1.35, namespace default: 1 denied\n"
    );
    assert_eq!(run.err, "");
}

#[test]
fn allows_a_custom_resource_that_fits_its_schema_and_that_no_policy_denies() {
    let run = example(&["with-key.yaml"], &[]);
    assert_eq!((run.code, run.err.as_str()), (0, ""));
    assert_eq!(
        run.out,
        "1 document checked by 1 policy for Kubernetes 1.35, namespace default: no violations\n"
    );
}

#[test]
fn an_object_whose_kind_has_no_recorded_type_is_not_decided_unless_it_is_deleted() {
    let karmada = "apiVersion: policy.karmada.io/v1alpha1\nkind: PropagationPolicy\nmetadata: {name: a}\n";
    let crd = fs::read_to_string(root().join(EXAMPLE).join("crd.yaml")).unwrap();
    let dir = files(&[("a.yaml", CONFIG_MAP), ("k.yaml", karmada), ("crd.yaml", &crd)]);
    for (arguments, code, text) in [
        (&["k.yaml"][..], 3, "the schema of PropagationPolicy is not evaluated"),
        (&["crd.yaml"], 0, "no violations"),
        (&["a.yaml", "--with", "crd.yaml"], 0, "no policy matched"),
        (&["a.yaml", "--old", "k.yaml"], 0, "no policy matched"),
    ] {
        let run = check_in(dir.path(), arguments);
        assert_eq!(run.code, code, "{arguments:?}: {}{}", run.out, run.err);
        assert!(run.out.contains(text), "{arguments:?}: {}", run.out);
    }
}

#[test]
fn reports_all_violations_of_an_object_at_once_without_evaluation_errors() {
    let empty = "apiVersion: ecs.yun.com/v1\nkind: KubernetesCluster\nmetadata: {name: empty}\nspec: {masterList: [], nodeList: null}\n---\n\
                 apiVersion: ecs.yun.com/v1\nkind: KubernetesCluster\nmetadata: {name: bare}\n---\n\
                 apiVersion: ecs.yun.com/v1\nkind: KubernetesCluster\nmetadata: {name: nameless}\n\
                 spec: {masterList: [{ip: ''}, {ip: 1.2.3.4}], nodeList: [{}], privateSSHKey: null, rootPassword: ''}\n";
    let dir = files(&[("clusters.yaml", empty)]);
    let example = |name: &str| root().join(EXAMPLE).join(name).display().to_string();
    for version in ["1.30", "1.35", "1.37"] {
        let run = check_in(
            dir.path(),
            &[
                "clusters.yaml",
                "-o",
                "json",
                "--kube-version",
                version,
                "--with",
                &example("crd.yaml"),
                "--with",
                &example("policy.yaml"),
            ],
        );
        assert_eq!(run.code, 1, "{}", run.err);
        let report = run.json();
        assert_eq!(report["totals"]["denied"], 3);
        for document in report["documents"].as_array().unwrap() {
            let findings = document["findings"].as_array().unwrap();
            let of_policy = findings.iter().filter(|finding| finding["policy"] != "");
            let texts: Vec<_> = of_policy.map(|finding| finding["message"].as_str().unwrap()).collect();
            assert_eq!(
                texts,
                [
                    "spec.masterList must begin with a master that has an ip or a hostname",
                    "spec.nodeList must begin with a node that has an ip or a hostname",
                    "spec.privateSSHKey and spec.rootPassword are both empty; set one of them",
                ],
                "{document}"
            );
            assert!(findings.iter().all(|finding| finding["verdict"] == "deny"), "{document}");
        }
    }
}

#[test]
fn compares_masters_of_an_update_as_a_multiset() {
    let run = example(&["after"], &["--old", "examples/kubernetesclusters/before", "-o", "json"]);
    assert_eq!(run.code, 1, "{}", run.err);
    let report = run.json();
    let findings = |index: usize| report["documents"][index]["findings"].as_array().unwrap().clone();
    assert_eq!(report["documents"][0]["operation"], "UPDATE");
    assert_eq!((findings(0).len(), findings(1).len()), (0, 1), "{report}");
    assert_eq!(findings(1)[0]["message"], "spec.masterList can't be changed, except for its order");
    assert_eq!((&findings(1)[0]["field"], &findings(1)[0]["line"]), (&"spec.masterList".into(), &23.into()));
}

#[test]
fn pairs_old_and_new_objects_as_create_update_and_delete() {
    let old = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: gone, namespace: default}\n---\n".to_owned()
        + CONFIG_MAP;
    let generated = "---\napiVersion: v1\nkind: ConfigMap\nmetadata: {generateName: some-}\n";
    let old = old + generated;
    let new =
        CONFIG_MAP.to_owned() + "---\napiVersion: v1\nkind: ConfigMap\nmetadata: {name: fresh}\n" + generated;
    let dir = files(&[
        ("new/all.yaml", &new),
        ("old/all.yaml", &old),
        ("policy.yaml", &policy("request.operation == 'X'", "Deny")),
    ]);
    let run = check_in(dir.path(), &["new", "--old", "old", "--with", "policy.yaml", "-o", "json"]);
    let report = run.json();
    let found: Vec<(&str, &str)> = report["documents"]
        .as_array()
        .unwrap()
        .iter()
        .map(|document| (document["name"].as_str().unwrap(), document["operation"].as_str().unwrap()))
        .collect();
    assert_eq!(found, [("shop", "UPDATE"), ("fresh", "CREATE"), ("some-", "CREATE"), ("gone", "DELETE")]);
    assert_eq!(report["totals"]["denied"], 4);
}

#[test]
fn points_at_the_field_that_a_rule_reads() {
    let dir = files(&[
        ("shop.yaml", &format!("# the shop\n{CONFIG_MAP}")),
        ("policy.yaml", &policy("object.data.size == 'small'", "Deny")),
    ]);
    let run = check_in(dir.path(), &["shop.yaml", "--with", "policy.yaml"]);
    assert!(run.out.starts_with("shop.yaml:7:3: ConfigMap default/shop: denied by policy"), "{}", run.out);
}

#[test]
fn reads_standard_input_and_sets_the_namespace() {
    let dir = files(&[("policy.yaml", &policy("object.metadata.namespace == 'prod'", "Deny"))]);
    let run = |namespace: &str| {
        durward_in(dir.path(), &["check", "-", "-n", namespace, "--with", "policy.yaml"], CONFIG_MAP)
    };
    assert_eq!(run("prod").code, 0);
    assert_eq!(run("Not_A_Name").code, 2);
    let empty = durward_in(dir.path(), &["check", "-", "--with", "policy.yaml"], "");
    assert_eq!(empty.code, 2);
    assert!(empty.err.contains("error: standard input contains no document\n"), "{}", empty.err);
    let run = run("stage");
    assert_eq!(run.code, 1);
    assert!(run.out.starts_with("standard input:3:1: ConfigMap stage/shop: denied"), "{}", run.out);
}

#[test]
fn paths_without_documents_are_bad_input() {
    let list = "apiVersion: v1\nkind: List\nitems: []\n";
    let dir = files(&[
        ("empty.yaml", ""),
        ("comment.yaml", "# a\n---\n"),
        ("list.yaml", list),
        ("a.yaml", CONFIG_MAP),
    ]);
    for arguments in [
        &["empty.yaml"][..],
        &["empty.yaml", "comment.yaml"],
        &["list.yaml"],
        &["empty.yaml", "--with", "a.yaml"],
    ] {
        let run = durward_in(dir.path(), &[&["check"], arguments].concat(), "");
        assert_eq!(run.code, 2, "{arguments:?}: {}", run.err);
        assert!(run.err.contains("error: PATH contains no document\n"), "{}", run.err);
    }
    let run = durward_in(dir.path(), &["check", "empty.yaml", "a.yaml"], "");
    assert_eq!(run.code, 0, "{}", run.err);
}

#[test]
fn warnings_and_audit_entries_fail_only_if_asked() {
    for (action, strictest) in [("Warn", "warn"), ("Audit", "audit")] {
        let dir = files(&[("a.yaml", CONFIG_MAP), ("policy.yaml", &policy("'false'", action))]);
        let run =
            |fail_on: &str| check_in(dir.path(), &["a.yaml", "--with", "policy.yaml", "--fail-on", fail_on]);
        assert_eq!(run("deny").code, 0);
        assert_eq!(run(strictest).code, 1);
        assert!(run("deny").out.contains("failed expression: false"), "{}", run("deny").out);
    }
}

#[test]
fn a_missing_fact_makes_the_verdict_unknown_and_names_the_option() {
    for (expression, next) in [
        ("namespaceObject.metadata.labels.team == 'a'", "Next: add the Namespace to PATH or --with"),
        ("request.userInfo.username == 'ann'", "Next: name the user: --as USER"),
        (
            "authorizer.group('').resource('pods').check('get').allowed()",
            "Next: write the permissions to a file: --grants FILE",
        ),
    ] {
        let dir = files(&[("a.yaml", CONFIG_MAP), ("policy.yaml", &policy(expression, "Deny"))]);
        let run = check_in(dir.path(), &["a.yaml", "--with", "policy.yaml"]);
        assert_eq!(run.code, 3, "{expression}: {}", run.err);
        assert!(run.out.contains(next) && run.out.contains("1 not decided"), "{}", run.out);
        assert_eq!(check_in(dir.path(), &["a.yaml", "--with", "policy.yaml", "--allow-unknown"]).code, 0);
    }
}

#[test]
fn facts_of_the_command_line_decide() {
    let namespace = "apiVersion: v1\nkind: Namespace\nmetadata: {name: default, labels: {team: a}}\n";
    let grants = "apiVersion: durward.dev/v1alpha1\nkind: Grants\ngrants:\n- {verbs: [get], apiGroups: [''], resources: [pods]}\n";
    let of = |expression: &str, more: &[&str]| {
        let policy = policy(expression, "Deny");
        let dir = files(&[
            ("a.yaml", CONFIG_MAP),
            ("with/p.yaml", &policy),
            ("with/ns.yaml", namespace),
            ("grants.yaml", grants),
        ]);
        check_in(dir.path(), &[&["a.yaml", "--with", "with"], more].concat()).code
    };
    assert_eq!(of("namespaceObject.metadata.labels.team == 'a'", &[]), 0);
    assert_eq!(of("namespaceObject.metadata.labels.team == 'b'", &[]), 1);
    assert_eq!(of("request.userInfo.username == 'ann'", &["--as", "ann"]), 0);
    assert_eq!(
        of(
            "request.userInfo.groups.exists(group, group == 'system:serviceaccounts:ci')",
            &["--as", "system:serviceaccount:ci:bot"]
        ),
        0
    );
    assert_eq!(
        of("authorizer.group('').resource('pods').check('get').allowed()", &["--grants", "grants.yaml"]),
        0
    );
    assert_eq!(
        of("authorizer.group('').resource('pods').check('list').allowed()", &["--grants", "grants.yaml"]),
        1
    );
}

#[test]
fn a_missing_fact_that_does_not_matter_leaves_the_verdict_known() {
    let with_selector = |expression: &str| {
        policy(expression, "Deny").replace(
            "  matchConstraints:\n",
            "  matchConstraints:\n    namespaceSelector: {matchLabels: {team: a}}\n",
        )
    };
    let code = |policy: &str| {
        let dir = files(&[("a.yaml", CONFIG_MAP), ("policy.yaml", policy)]);
        check_in(dir.path(), &["a.yaml", "--with", "policy.yaml"]).code
    };
    assert_eq!(code(&with_selector("1 == 1")), 0, "the object passes in any namespace");
    assert_eq!(code(&with_selector("1 == 2")), 3);
    assert_eq!(
        code(&policy("request.userInfo.username == 'ann' || object.metadata.name == 'shop'", "Deny")),
        0
    );
    let by_name = with_selector("1 == 2").replace("team: a", "kubernetes.io/metadata.name: default");
    assert_eq!(code(&by_name), 1, "the name of a namespace is known");
}

#[test]
fn params_are_objects_of_the_input() {
    let policy = policy("object.data.size in params.data.sizes.split(' ')", "Deny")
        .replace(
            "spec:\n  matchConstraints",
            "spec:\n  paramKind: {apiVersion: v1, kind: ConfigMap}\n  matchConstraints",
        )
        .replace(
            "validationActions",
            "paramRef: {name: sizes, parameterNotFoundAction: Deny}, validationActions",
        );
    let sizes = |sizes: &str| {
        format!("apiVersion: v1\nkind: ConfigMap\nmetadata: {{name: sizes}}\ndata: {{sizes: {sizes}}}\n")
    };
    let run = |sizes: &str| {
        let dir = files(&[("a.yaml", CONFIG_MAP), ("with/p.yaml", &policy), ("with/sizes.yaml", sizes)]);
        check_in(dir.path(), &["a.yaml", "--with", "with"])
    };
    assert_eq!(run(&sizes("small large")).code, 0);
    assert_eq!(run(&sizes("small")).code, 1);
    let unknown = run("# none\n");
    assert_eq!(unknown.code, 3, "{}", unknown.err);
    assert!(
        unknown.out.contains("needs the params ConfigMap \"sizes\" in namespace \"default\""),
        "{}",
        unknown.out
    );
}

#[test]
fn handles_policies_without_a_binding_as_asked() {
    let policy = policy("'false'", "Deny");
    let policy = policy.split("---\n").next().unwrap();
    let dir = files(&[("a.yaml", CONFIG_MAP), ("policy.yaml", policy)]);
    let run = |more: &[&str]| check_in(dir.path(), &[&["a.yaml", "policy.yaml"], more].concat());
    let error = run(&[]);
    assert_eq!(error.code, 2);
    let expected = "error: policy.yaml:3:12: ValidatingAdmissionPolicy \"p\": metadata.name: no binding names this policy, so the API server never evaluates it";
    assert!(error.err.contains(expected), "{}", error.err);
    assert_eq!(run(&["--unbound", "skip"]).code, 0);
    assert_eq!(run(&["--unbound", "deny"]).code, 1);
}

#[test]
fn nothing_that_matches_is_a_note_or_an_error() {
    let dir = files(&[
        ("a.yaml", "apiVersion: v1\nkind: Secret\nmetadata: {name: s}\n"),
        ("p.yaml", &policy("'false'", "Deny")),
    ]);
    let run = check_in(dir.path(), &["a.yaml", "p.yaml"]);
    assert_eq!(run.code, 0);
    assert!(
        run.err.contains("note: no policy was evaluated: no policy matches any document\n"),
        "{}",
        run.err
    );
    assert_eq!(check_in(dir.path(), &["a.yaml", "p.yaml", "--require-match"]).code, 2);
}

#[test]
fn reports_unknown_kinds_and_names_policies_that_are_not_evaluated() {
    let widget = "apiVersion: example.org/v1\nkind: Widget\nmetadata: {name: w}\n";
    let mutating =
        "apiVersion: admissionregistration.k8s.io/v1\nkind: MutatingAdmissionPolicy\nmetadata: {name: m}\n";
    let dir = files(&[("a.yaml", widget), ("m.yaml", mutating)]);
    let run = check_in(dir.path(), &["."]);
    assert_eq!(run.code, 2);
    assert!(run.err.contains("a.yaml:2:1: Widget \"w\": kind: unknown kind Widget in example.org/v1\n    add its CRD with --with\n"), "{}", run.err);
    let note = "m.yaml:1: MutatingAdmissionPolicy \"m\" is not evaluated: the verdict is before mutation\n";
    assert!(run.err.contains(note), "{}", run.err);
}

#[test]
fn notes_absent_fields_only_if_a_policy_reads_them() {
    for (expression, is_noted) in [
        ("object.metadata.name == 'shop'", false),
        ("object.?metadata.?uid.orValue('') == ''", true),
        ("object['metadata'].size() > 0", true),
        ("\"!has(object.metadata.creationTimestamp)\"", true),
        ("object.data.size == 'large' && oldObject == null", true),
    ] {
        let dir = files(&[("a.yaml", CONFIG_MAP), ("p.yaml", &policy(expression, "Deny"))]);
        let run = check_in(dir.path(), &["a.yaml", "p.yaml"]);
        assert_eq!(run.code, 0, "{expression}: {}{}", run.out, run.err);
        let note = "note: a policy reads fields that the API server sets";
        assert_eq!(run.err.contains(note), is_noted, "{expression}: {}", run.err);
    }
}

/// A policy on `ConfigMaps` with this match condition, which denies all of them.
fn denies_if(condition: &str) -> String {
    let conditions = format!("  matchConditions: [{{name: c, expression: \"{condition}\"}}]\n  validations:");
    policy("\"false\"", "Deny").replace("  validations:", &conditions)
}

#[test]
fn a_create_ignores_metadata_that_the_api_server_wipes() {
    for (field, value) in [
        ("deletionTimestamp", "'2020-01-01T00:00:00Z'"),
        ("deletionGracePeriodSeconds", "3"),
        ("generation", "7"),
        ("managedFields", "[{manager: a}]"),
        ("selfLink", "/a"),
    ] {
        let object = CONFIG_MAP.replace("  name", &format!("  {field}: {value}\n  name"));
        let policy = denies_if(&format!("!has(object.metadata.{field})"));
        let dir = files(&[("a.yaml", &object), ("p.yaml", &policy)]);
        assert_eq!(check_in(dir.path(), &["a.yaml", "--with", "p.yaml"]).code, 1, "{field}");
    }
}

#[test]
fn a_new_object_has_a_uid_and_is_created_now() {
    let object =
        CONFIG_MAP.replace("  name", "  creationTimestamp: '2020-01-01T00:00:00Z'\n  uid: a\n  name");
    for condition in [
        "has(object.metadata.uid)",
        "has(object.metadata.creationTimestamp)",
        "timestamp(object.metadata.creationTimestamp) > timestamp('2024-01-01T00:00:00Z')",
    ] {
        let dir = files(&[("a.yaml", &object), ("p.yaml", &denies_if(condition))]);
        assert_eq!(check_in(dir.path(), &["a.yaml", "--with", "p.yaml"]).code, 1, "{condition}");
    }
}

#[test]
fn an_update_keeps_metadata_of_the_old_object() {
    let with = |fields: &str| CONFIG_MAP.replace("  name", &format!("{fields}  name"));
    let terminating = "  deletionTimestamp: '2020-01-01T00:00:00Z'\n  deletionGracePeriodSeconds: 3\n  uid: a\n  creationTimestamp: '2020-01-01T00:00:00Z'\n";
    let old = with(terminating);
    let policy = policy("object.metadata == oldObject.metadata", "Deny");
    for new in [
        "",
        "  creationTimestamp: '2021-01-01T00:00:00Z'\n  deletionTimestamp: '2021-01-01T00:00:00Z'\n  uid: a\n",
    ] {
        let all = [("new/a.yaml", with(new)), ("old/a.yaml", old.clone()), ("p.yaml", policy.clone())];
        let dir = files(&all.each_ref().map(|(name, text)| (*name, text.as_str())));
        let run = check_in(dir.path(), &["new", "--old", "old", "--with", "p.yaml"]);
        assert_eq!(run.code, 0, "{new}: {}{}", run.out, run.err);
    }
}

#[test]
fn an_update_can_not_begin_a_deletion() {
    let new = CONFIG_MAP.replace("  name", "  deletionTimestamp: '2020-01-01T00:00:00Z'\n  name");
    let policy = denies_if("!has(object.metadata.deletionTimestamp)");
    let dir = files(&[("new/a.yaml", &new), ("old/a.yaml", CONFIG_MAP), ("p.yaml", &policy)]);
    let run = check_in(dir.path(), &["new", "--old", "old", "--with", "p.yaml"]);
    assert_eq!(run.code, 1, "{}{}", run.out, run.err);
}

#[test]
fn notes_absent_fields_that_a_match_condition_reads() {
    let policy = denies_if("has(object.metadata.creationTimestamp)");
    let dir = files(&[("a.yaml", CONFIG_MAP), ("p.yaml", &policy)]);
    let run = check_in(dir.path(), &["a.yaml", "--with", "p.yaml"]);
    assert_eq!(run.code, 0, "the policy is skipped: {}", run.out);
    assert!(run.err.contains("note: a policy reads fields that the API server sets"), "{}", run.err);
}

#[test]
fn an_expression_for_a_newer_server_names_the_version() {
    let dir = files(&[("a.yaml", CONFIG_MAP), ("p.yaml", &policy("\"[3, 1].sort() == [1, 3]\"", "Deny"))]);
    let run = |version: &str| check_in(dir.path(), &["a.yaml", "p.yaml", "--kube-version", version]);
    assert_eq!(run("1.35").code, 0, "{}", run("1.35").err);
    let old = run("1.33");
    assert_eq!(old.code, 2);
    assert!(old.err.contains("p.yaml:9:29: ValidatingAdmissionPolicy \"p\": spec.validations[0].expression: undeclared reference to 'sort'"), "{}", old.err);
    assert!(old.err.contains("accepted from Kubernetes 1.35 on: --kube-version 1.35"), "{}", old.err);
}

#[test]
fn the_json_report_fits_to_its_schema() {
    let text = fs::read_to_string(root().join("docs/src/reference/check.schema.json")).unwrap();
    let schema: Value = serde_json::from_str(&text).unwrap();
    let dir = files(&[
        ("a.yaml", CONFIG_MAP),
        ("bad.yaml", "a: [1\n"),
        ("widget.yaml", "apiVersion: example.org/v1\nkind: Widget\nmetadata: {name: w}\n"),
        ("deny.yaml", &policy("object.data.size == 'small'", "Deny")),
        ("unknown.yaml", &policy("namespaceObject.metadata.name == 'x'", "Warn")),
        ("error.yaml", &policy("object.nope == 1", "Deny")),
        ("warn.yaml", &policy("'false'", "Warn")),
        ("audit.yaml", &policy("'false'", "Audit")),
    ]);
    for paths in [
        &["a.yaml", "bad.yaml", "widget.yaml", "missing.yaml"][..],
        &["a.yaml", "deny.yaml"],
        &["a.yaml", "unknown.yaml"],
        &["a.yaml", "error.yaml"],
        &["a.yaml", "warn.yaml"],
        &["a.yaml", "audit.yaml"],
    ] {
        let run = check_in(dir.path(), &[paths, &["-o", "json"]].concat());
        let errors = schema::errors(&schema, &run.json());
        assert!(errors.is_empty(), "{paths:?}: {errors:#?}\n{}", run.out);
    }
}

#[test]
fn writes_several_formats_at_once() {
    let dir = files(&[("a.yaml", CONFIG_MAP), ("p.yaml", &policy("'false'", "Deny"))]);
    let run = check_in(dir.path(), &["a.yaml", "p.yaml", "-o", "text", "-o", "json=report.json"]);
    assert_eq!(run.code, 1);
    assert!(run.out.contains("1 denied"), "{}", run.out);
    let report: Value =
        serde_json::from_str(&fs::read_to_string(dir.path().join("report.json")).unwrap()).unwrap();
    assert_eq!(report["exitCode"], 1);
    let yaml = check_in(dir.path(), &["a.yaml", "p.yaml", "-o", "yaml"]);
    assert!(yaml.out.contains("\nexitCode: 1\n"), "{}", yaml.out);
    let twice = check_in(dir.path(), &["a.yaml", "-o", "text", "-o", "json"]);
    assert_eq!(twice.code, 2);
    assert!(twice.err.contains("two formats go to standard output"), "{}", twice.err);
}

#[test]
fn built_in_kinds_have_the_form_that_policies_see() {
    let pod = "apiVersion: v1\nkind: Pod\nmetadata: {name: web}\nspec:\n  hostNetwork: false\n  containers: [{name: a, image: b}]\n";
    let policy = |expression: &str| policy(expression, "Deny").replace("configmaps", "pods");
    let run = |pod: &str, expression: &str| {
        let dir = files(&[("pod.yaml", pod), ("p.yaml", &policy(expression))]);
        check_in(dir.path(), &["pod.yaml", "--with", "p.yaml"])
    };
    assert_eq!(run(pod, "object.spec.containers.all(c, has(c.resources))").code, 0);
    assert_eq!(run(pod, "'!has(object.spec.hostNetwork)'").code, 0);
    let wrong = run(&pod.replace("[{name: a, image: b}]", "a"), "1 == 1");
    assert_eq!(wrong.code, 1);
    let expected =
        "pod.yaml:6:3: Pod default/web: denied by the API server, which can't decode it: spec.containers: ";
    assert!(wrong.out.starts_with(expected), "{}", wrong.out);
}

#[test]
fn a_file_in_path_and_with_is_used_once() {
    let dir = files(&[("a.yaml", CONFIG_MAP), ("policies/p.yaml", &policy("'false'", "Deny"))]);
    let run = check_in(dir.path(), &[".", "--with", "policies"]);
    assert_eq!(run.code, 1, "{}", run.err);
    assert!(run.out.contains("1 document checked by 1 policy"), "{}", run.out);
}

#[test]
fn points_into_folded_and_quoted_expressions() {
    for (expression, place) in [
        (">-\n      object.data.size ==\n      nothing", "p.yaml:11:7"),
        ("|\n\n      object.data.size ==\n      nothing", "p.yaml:12:7"),
        ("\"object.data.size == nothing\"", "p.yaml:9:38"),
        ("object.data.size == nothing", "p.yaml:9:37"),
    ] {
        let dir = files(&[("p.yaml", &policy(expression, "Deny"))]);
        let run = check_in(dir.path(), &["p.yaml"]);
        assert_eq!(run.code, 2);
        assert!(run.err.starts_with(&format!("error: {place}: ")), "{expression}: {}", run.err);
    }
}

#[test]
fn text_from_files_cannot_control_the_terminal() {
    let shop = CONFIG_MAP.replace("size: large", "size: \"\\e[2J\"");
    let policy = policy("object.data.size == ''", "Deny").replace(
        "object.data.size == ''",
        "object.data.size == ''\n    messageExpression: string(object.data.size)",
    );
    let dir = files(&[("a.yaml", &shop), ("p.yaml", &policy)]);
    let run = check_in(dir.path(), &["a.yaml", "p.yaml"]);
    assert_eq!(run.code, 1);
    assert!(!run.out.contains('\u{1b}') && run.out.contains("[2J"), "{:?}", run.out);
}

#[test]
fn unknown_fields_of_built_in_kinds_are_treated_as_field_validation_says() {
    let object = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: shop}\ndat:\n  size: large\n";
    let dir = files(&[("a.yaml", object), ("p.yaml", &policy("'true'", "Deny"))]);
    let strict = check_in(dir.path(), &["a.yaml", "p.yaml"]);
    assert_eq!(strict.code, 1, "{}", strict.err);
    let line = "a.yaml:4:1: ConfigMap default/shop: denied by the API server, which can't decode it: \
                strict decoding error: unknown field \"dat\"";
    assert_eq!(strict.out.lines().next(), Some(line));
    let warn = check_in(dir.path(), &["a.yaml", "p.yaml", "--field-validation", "warn"]);
    assert_eq!(warn.code, 0, "{}", warn.err);
    let line = "a.yaml:4:1: ConfigMap default/shop: warning by the API server: unknown field \"dat\"";
    assert_eq!(warn.out.lines().next(), Some(line));
    let ignore = check_in(dir.path(), &["a.yaml", "p.yaml", "--field-validation", "ignore"]);
    assert_eq!(ignore.code, 0, "{}", ignore.err);
    assert!(!ignore.out.contains("unknown field"), "{}", ignore.out);
}

#[test]
fn lines_for_people_and_for_github_can_share_standard_output() {
    let dir = files(&[("a.yaml", CONFIG_MAP), ("p.yaml", &policy("'false'", "Deny"))]);
    let arguments =
        ["a.yaml", "p.yaml", "-o", "text", "-o", "github", "-o", "junit=out.xml", "-o", "sarif=out.sarif"];
    let run = check_in(dir.path(), &arguments);
    assert_eq!(run.code, 1, "{}", run.err);
    assert!(
        run.out.contains("1 denied, 1 structure only\n::error file=a.yaml,line=1,col=1,title="),
        "{}",
        run.out
    );
    assert!(fs::read_to_string(dir.path().join("out.xml")).unwrap().contains("failures=\"1\""));
    let sarif: Value =
        serde_json::from_str(&fs::read_to_string(dir.path().join("out.sarif")).unwrap()).unwrap();
    assert_eq!(sarif["runs"][0]["results"][0]["ruleId"], "p/validations[0]");
    for second in ["sarif", "junit", "json", "github"] {
        let refused = check_in(dir.path(), &["a.yaml", "-o", "github", "-o", second]);
        assert!(refused.err.contains("two formats go to standard output"), "{second}: {}", refused.err);
    }
}
