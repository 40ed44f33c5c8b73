//! `check` with input that can't be used: precise errors, all in one run, in bounded time.

use std::fmt::Write as _;
use std::time::{Duration, Instant};

use crate::check::{files, policy};
use crate::harness::{Run, durward_in};

/// Longer than any of these runs takes on a busy machine without optimization.
const BOUND: Duration = Duration::from_secs(60);

const CONFIG_MAP: &str = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: shop}\n";

fn check(all: &[(&str, &str)], arguments: &[&str]) -> Run {
    let began = Instant::now();
    let run = durward_in(files(all).path(), &[&["check"], arguments].concat(), "");
    assert!(began.elapsed() < BOUND, "took {:?}", began.elapsed());
    run
}

/// A policy whose expression is in a block of its own, and its binding.
fn named(name: &str, expression: &str) -> String {
    policy("|\n      EXPRESSION", "Deny")
        .replace("EXPRESSION", expression)
        .replace("{name: p}", &format!("{{name: {name}}}"))
        .replace("policyName: p", &format!("policyName: {name}"))
        .replace("{name: b}", &format!("{{name: {name}}}"))
}

#[test]
fn reports_all_problems_of_all_files_with_their_places() {
    let all = [
        ("01.yaml", "a: [1\nb: 2\n".to_owned()),
        ("02.yaml", policy("'true'", "Deny").replace("k8s.io/v1\nkind: ValidatingAdmissionPolicy\n", "k8s.io/v3\nkind: ValidatingAdmissionPolicy\n")),
        ("03.yaml", policy("'true'", "Deny").split("---\n").nth(1).unwrap().replace("policyName: p", "policyName: nowhere").replace("{name: b}", "{name: lost}")),
        ("04.yaml", named("params", "true").replace("spec:\n  matchC", "spec:\n  paramKind: {apiVersion: example.org/v1, kind: Limit}\n  matchC")),
        ("05.yaml", named("unknown-function", "object.data.size.isLarge()")),
        ("06.yaml", named("wrong-type", "1 + 'a' == 2")),
        ("07.yaml", named("no-bool", "size(object.data)")),
        ("08.yaml", named("bad-regex", "object.data.size.matches('a**')")),
        ("09.yaml", named("cycle", "variables.a == 1").replace("  validations:", "  variables:\n  - {name: a, expression: variables.b}\n  - {name: b, expression: variables.a}\n  validations:")),
        ("10.yaml", named("recursion", "variables.a == 1").replace("  validations:", "  variables:\n  - {name: a, expression: variables.a}\n  validations:")),
        ("11.yaml", "apiVersion: v1\nkind: Pdo\nmetadata: {name: typo}\n".to_owned()),
        ("12.yaml", "just: text\n".to_owned()),
        ("13.yaml", "apiVersion: v1\nkind: Secret\nmetadata: {labels: {}}\n".to_owned()),
    ];
    let all: Vec<(&str, &str)> = all.iter().map(|(name, text)| (*name, text.as_str())).collect();
    let run = check(&all, &["."]);
    assert_eq!(run.code, 2);
    let lines: Vec<&str> = run.err.lines().filter(|line| line.starts_with("error: ")).collect();
    for (start, part) in [
        ("01.yaml:", ""),
        (
            "02.yaml:1:1: ValidatingAdmissionPolicy \"p\": apiVersion: ",
            "Unsupported value: \"admissionregistration.k8s.io/v3\"",
        ),
        ("03.yaml:", "spec.policyName: Invalid value: \"nowhere\": no document defines this policy"),
        (
            "04.yaml:5:3: ValidatingAdmissionPolicy \"params\": spec.paramKind: ",
            "unknown kind Limit in example.org/v1",
        ),
        (
            "05.yaml:10:31: ValidatingAdmissionPolicy \"unknown-function\": spec.validations[0].expression: ",
            "undeclared reference to 'isLarge'",
        ),
        (
            "06.yaml:10:9: ValidatingAdmissionPolicy \"wrong-type\": ",
            "found no matching overload for '_+_' applied to '(int, string)'",
        ),
        ("07.yaml:10:7: ValidatingAdmissionPolicy \"no-bool\": ", "must evaluate to bool"),
        ("08.yaml:10:32: ValidatingAdmissionPolicy \"bad-regex\": ", "invalid matches argument"),
        (
            "09.yaml:9:36: ValidatingAdmissionPolicy \"cycle\": spec.variables[0].expression: ",
            "undefined field 'b'",
        ),
        (
            "10.yaml:9:36: ValidatingAdmissionPolicy \"recursion\": spec.variables[0].expression: ",
            "undefined field 'a'",
        ),
        ("11.yaml:2:1: Pdo \"typo\": kind: ", "unknown kind Pdo in v1"),
        ("12.yaml:1:1: ", "this is not a Kubernetes object: apiVersion is missing"),
        ("13.yaml:3:1: Secret: metadata: ", "the object has no name"),
    ] {
        let found =
            lines.iter().any(|line| line.starts_with(&format!("error: ./{start}")) && line.contains(part));
        assert!(found, "missing: {start}{part}\n{}", run.err);
    }
    let mut sorted = lines.clone();
    sorted.sort_unstable();
    assert_eq!(lines, sorted);
}

#[test]
fn expensive_expressions_end_with_the_error_of_the_api_server() {
    let loops = "[1,2,3,4,5,6,7,8,9,10].all(a, [1,2,3,4,5,6,7,8,9,10].all(b, [1,2,3,4,5,6,7,8,9,10].all(c, [1,2,3,4,5,6,7,8,9,10].all(d, [1,2,3,4,5,6,7,8,9,10].all(e, [1,2,3,4,5,6,7,8,9,10].all(f, [1,2,3,4,5,6,7,8,9,10].all(g, true)))))))";
    let mut doubled = named("doubled", "size(variables.v63) > 0");
    let mut variables = "  variables:\n  - {name: v0, expression: '[1, 2]'}\n".to_owned();
    for index in 1..64 {
        let before = index - 1;
        let _ = writeln!(
            variables,
            "  - {{name: v{index}, expression: 'variables.v{before} + variables.v{before}'}}"
        );
    }
    doubled = doubled.replace("  validations:", &format!("{variables}  validations:"));
    let run = check(
        &[("a.yaml", CONFIG_MAP), ("loops.yaml", &named("loops", loops)), ("doubled.yaml", &doubled)],
        &["."],
    );
    assert_eq!(run.code, 1, "{}", run.err);
    assert!(run.out.contains("actual cost limit exceeded"), "{}", run.out);
}

#[test]
fn deep_and_long_documents_are_refused_or_read_in_bounded_time() {
    let deep = |open: &str, close: &str| format!("{}{}", open.repeat(2_000), close.repeat(2_000));
    let json = format!(
        "{{\"apiVersion\": \"v1\", \"kind\": \"ConfigMap\", \"metadata\": {{\"name\": \"a\"}}, \"data\": {}}}",
        deep("[", "]")
    );
    let yaml = format!("apiVersion: v1\nkind: ConfigMap\nmetadata: {{name: b}}\ndata: {}\n", deep("[", "]"));
    let long = format!(
        "apiVersion: v1\nkind: ConfigMap\nmetadata: {{name: c}}\ndata: {{text: {}}}\n",
        "x".repeat(4 << 20)
    );
    let expression = named("deep", &format!("{}1{} == 1", "(".repeat(1_000), ")".repeat(1_000)));
    let run =
        check(&[("a.json", &json), ("b.yaml", &yaml), ("c.yaml", &long), ("p.yaml", &expression)], &["."]);
    assert_eq!(run.code, 2);
    assert!(
        run.err.contains("./a.json:1:")
            && run.err.contains("./b.yaml:4:")
            && run.err.contains("./p.yaml:10:"),
        "{}",
        run.err
    );
    let long_only =
        check(&[("c.yaml", &long), ("p.yaml", &named("p", "size(object.data.text) < 5"))], &["."]);
    assert_eq!(long_only.code, 1, "{}", long_only.err);
}

#[test]
fn alias_bombs_are_refused() {
    let mut bomb =
        "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: bomb}\na: &a [x, x, x, x, x, x, x, x, x, x]\n"
            .to_owned();
    for (name, before) in ('b'..='k').zip('a'..) {
        let aliases = vec![format!("*{before}"); 10].join(", ");
        let _ = writeln!(bomb, "{name}: &{name} [{aliases}]");
    }
    let run = check(&[("bomb.yaml", &bomb)], &["bomb.yaml"]);
    assert_eq!(run.code, 2, "{}", run.err);
    assert!(run.err.contains("bomb.yaml:"), "{}", run.err);
}

#[test]
fn an_unknown_kind_gets_a_suggestion_that_can_be_true() {
    for (api_version, kind, next) in [
        ("apps/v1", "Deploymnet", "did you mean Deployment?\n"),
        ("policy/v1beta1", "PodDisruptionBudget", "did you mean policy/v1 PodDisruptionBudget?\n"),
        ("apps/v1", "Widget", "fix apiVersion or kind; Kubernetes 1.35 has no such kind in this group\n"),
        ("example.org/v1", "pod", "did you mean v1 Pod? Otherwise add its CRD with --with\n"),
        ("example.org/v1", "Widget", "add its CRD with --with\n"),
        (
            "admissionregistration.k8s.io/v1beta1",
            "ValidatingWebhookConfiguration",
            "did you mean admissionregistration.k8s.io/v1 ValidatingWebhookConfiguration?\n",
        ),
        (
            "admissionregistration.k8s.io/v1beta1",
            "MutatingWebhookConfiguration",
            "did you mean admissionregistration.k8s.io/v1 MutatingWebhookConfiguration?\n",
        ),
        (
            "admissionregistration.k8s.io/v1",
            "ValidatingAdmisionPolicy",
            "did you mean ValidatingAdmissionPolicy?\n",
        ),
        (
            "admissionregistration.k8s.io/v1",
            "ValidatingAdmissionPolicyBindin",
            "did you mean ValidatingAdmissionPolicyBinding?\n",
        ),
    ] {
        let object = format!("apiVersion: {api_version}\nkind: {kind}\nmetadata: {{name: a}}\n");
        let run = check(&[("a.yaml", &object)], &["a.yaml"]);
        let expected = format!(
            "error: a.yaml:2:1: {kind} \"a\": kind: unknown kind {kind} in {api_version}\n    {next}"
        );
        assert_eq!(run.code, 2, "{kind}: {}", run.out);
        assert!(run.err.contains(&expected), "{expected}{}", run.err);
    }
}

#[test]
fn ignores_files_whose_name_matches_a_pattern() {
    let kustomization = "resources: [a.yaml]\n";
    let component = "apiVersion: kustomize.config.k8s.io/v1alpha1\nkind: Component\n";
    let all = [
        ("dir/a.yaml", CONFIG_MAP),
        ("dir/kustomization.yaml", kustomization),
        ("dir/sub/component.yaml", component),
        ("dir/values.yaml", "size: 1\n"),
    ];
    let run = check(&all, &["dir"]);
    assert_eq!(run.code, 2);
    for (file, message, next) in [
        (
            "kustomization.yaml:1:1",
            "a kustomization is not a cluster object",
            "kustomize build DIR | durward check -; or check its directory with --ignore kustomization.yaml",
        ),
        (
            "sub/component.yaml:1:1",
            "Component: a kustomization is not a cluster object",
            "kustomize build DIR | durward check -; or check its directory with --ignore component.yaml",
        ),
        (
            "values.yaml:1:1",
            "this is not a Kubernetes object: apiVersion is missing",
            "remove it, or check its directory with --ignore values.yaml",
        ),
    ] {
        let expected = format!("error: dir/{file}: {message}\n    {next}\n");
        assert!(run.err.contains(&expected), "{expected}{}", run.err);
    }
    let patterns = ["--ignore", "kustomization.yaml", "--ignore", "val*", "--ignore", "dir/sub/*"];
    let run = check(&all, &[&["dir"], &patterns[..]].concat());
    assert_eq!((run.code, run.out.contains("1 document checked")), (0, true), "{}{}", run.out, run.err);
    let run = check(&all, &["dir", "--ignore", "*"]);
    assert_eq!(run.code, 2, "{}", run.out);
    assert!(run.err.contains("error: --ignore leaves no file to check\n"), "{}", run.err);
}

#[test]
fn ignores_no_policies_old_objects_or_files_that_the_command_line_names() {
    let denying = policy("'false'", "Deny");
    let immutable = policy("request.operation == 'CREATE'", "Deny");
    let all = [
        ("dir/a.yaml", CONFIG_MAP),
        ("dir/test.yaml", "size: 1\n"),
        ("tests/policies/p.yaml", &denying),
        ("tests/old/a.yaml", CONFIG_MAP),
        ("tests/immutable.yaml", &immutable),
    ];
    for (arguments, verdict) in [
        (&["dir", "--with", "tests/policies"][..], "denied by policy \"p\""),
        (&["dir", "--with", "tests/policies/p.yaml", "--ignore", "*/p.yaml"], "denied by policy \"p\""),
        (&["dir", "tests/policies/p.yaml", "--ignore", "*/p.yaml"], "denied by policy \"p\""),
        (
            &["dir", "tests/policies", "--with", "tests/policies", "--ignore", "p.yaml"],
            "denied by policy \"p\"",
        ),
        (
            &["dir", "--with", "tests/immutable.yaml", "--old", "tests/old", "--ignore", "tests/*"],
            "ConfigMap default/shop (update): denied by policy \"p\"",
        ),
    ] {
        let run = check(&all, &[arguments, &["--ignore", "test*.yaml"]].concat());
        assert_eq!(run.code, 1, "{arguments:?}: {}{}", run.out, run.err);
        assert!(run.out.contains(verdict), "{arguments:?}: {}", run.out);
    }
    // A pattern without `/` is that of a name.
    let run = check(
        &all,
        &["dir", "tests", "--ignore", "test*.yaml", "--ignore", "tests/old/*", "--ignore", "imm*"],
    );
    assert!(run.out.contains("denied by policy \"p\""), "{}{}", run.out, run.err);
    // The advice works for this use of the file.
    for (option, next) in
        [("--with", "name the other files: --with FILE"), ("--old", "name the other files: --old FILE")]
    {
        let run = check(&all, &["tests/old", option, "dir", "--ignore", "test.yaml"]);
        assert_eq!(run.code, 2, "{option}: {}", run.out);
        let expected = format!(
            "error: dir/test.yaml:1:1: this is not a Kubernetes object: apiVersion is missing\n    remove it, or {next}\n"
        );
        assert!(run.err.contains(&expected), "{expected}{}", run.err);
    }
}

#[test]
fn lists_that_kubectl_does_not_know_are_refused() {
    let item = "{apiVersion: v1, kind: ConfigMap, metadata: {name: a}}";
    for (version, kind) in [("v1", "list"), ("v2", "List"), ("v1", "FooList")] {
        let list = format!("apiVersion: {version}\nkind: {kind}\nmetadata: {{name: a}}\nitems:\n- {item}\n");
        let run = check(&[("a.yaml", &list)], &["a.yaml"]);
        assert_eq!(run.code, 2, "{}", run.err);
        assert!(
            run.err.contains(&format!(
                "a.yaml:2:1: {kind} \"a\": kind: kubectl knows no list of kind {kind} in {version}"
            )),
            "{}",
            run.err
        );
    }
    let nested = format!(
        "apiVersion: v1\nkind: List\nitems:\n- {item}\n- apiVersion: v1\n  kind: List\n  items:\n  - {item}\n"
    );
    let run = check(&[("a.yaml", &nested)], &["a.yaml"]);
    assert_eq!(run.code, 2, "{}", run.err);
    assert!(
        run.err.contains("a.yaml:7:3: List: items: a list in a list is not supported by kubectl"),
        "{}",
        run.err
    );
    let foo = "apiVersion: apiextensions.k8s.io/v1\nkind: CustomResourceDefinition\nmetadata: {name: foolists.a.org}\nspec: {group: a.org, scope: Cluster, names: {kind: FooList, plural: foolists}, versions: [{name: v1, served: true, storage: true, schema: {openAPIV3Schema: {type: object, x-kubernetes-preserve-unknown-fields: true}}}]}\n";
    let run = check(
        &[("crd.yaml", foo), ("a.yaml", "apiVersion: a.org/v1\nkind: FooList\nmetadata: {name: a}\n")],
        &["a.yaml", "--with", "crd.yaml"],
    );
    assert_eq!(run.code, 0, "{}", run.err);
}

#[test]
fn an_object_that_does_not_fit_into_a_request_is_denied() {
    let empty = r#"{"apiVersion":"v1","data":{"a":""},"kind":"ConfigMap","metadata":{"name":"a"}}"#;
    let with_length =
        |length: usize| empty.replace(r#":"""#, &format!(r#":"{}""#, "x".repeat(length - empty.len())));
    let fits = check(&[("a.json", &with_length(3 << 20))], &["a.json"]);
    assert_eq!(fits.code, 0, "{}", fits.out);
    let denied = check(&[("a.json", &with_length((3 << 20) + 1))], &["a.json"]);
    assert_eq!(denied.code, 1, "{}", denied.err);
    let line = "a.json:1:1: ConfigMap default/a: denied by the API server: Request entity too large: limit is 3145728\n";
    assert!(denied.out.contains(line), "{}", denied.out);
}

#[test]
fn a_generated_name_contains_letters_and_digits() {
    let object = "apiVersion: v1\nkind: ConfigMap\nmetadata: {generateName: x}\n";
    for (pattern, code) in [("^[a-z]+$", 1), ("^[0-9]+$", 1), ("^x[a-z0-9]{5}$", 0)] {
        let policy = policy(&format!("object.metadata.name.matches('{pattern}')"), "Deny");
        let run = check(&[("a.yaml", object), ("p.yaml", &policy)], &["a.yaml", "--with", "p.yaml"]);
        assert_eq!(run.code, code, "{pattern}: {}{}", run.out, run.err);
    }
}

#[test]
fn the_label_of_a_namespace_is_its_generated_name() {
    let object = "apiVersion: v1\nkind: Namespace\nmetadata: {generateName: x-}\n";
    let rule = "\"object.metadata.name == request.name && object.metadata.labels['kubernetes.io/metadata.name'] == request.name\"";
    for (rule, code) in [(rule, 0), ("request.name == 'x-'", 1)] {
        let policy = policy(rule, "Deny").replace("resources: [configmaps]", "resources: [namespaces]");
        let run = check(&[("a.yaml", object), ("p.yaml", &policy)], &["a.yaml", "--with", "p.yaml"]);
        assert_eq!(run.code, code, "{rule}: {}{}", run.out, run.err);
    }
}

#[test]
fn a_cluster_scoped_object_is_checked_without_its_namespace() {
    let policy = policy("\"!has(object.metadata.namespace) && request.namespace != 'b'\"", "Deny")
        .replace("resources: [configmaps]", "resources: ['*']");
    for kind in ["Namespace", "PersistentVolume"] {
        let object = format!("apiVersion: v1\nkind: {kind}\nmetadata: {{name: a, namespace: b}}\n");
        let run = check(&[("a.yaml", &object), ("p.yaml", &policy)], &["a.yaml", "--with", "p.yaml"]);
        assert!(run.out.contains("1 document checked by 1 policy"), "{}{}", run.out, run.err);
        assert!(!run.out.contains("denied by policy"), "{}{}", run.out, run.err);
        let note = format!(
            "note: a.yaml:3: the API server ignores metadata.namespace of {kind} \"a\", which is cluster-scoped"
        );
        assert!(run.err.contains(&note), "{}", run.err);
    }
}
