//! `review`: verdicts without a server.

use crate::harness::{TestDir, durward, durward_in, example};

const CONFIG: [&str; 2] = ["--config", "examples/lxcfs/durward.yaml"];

fn review(more: &[&str]) -> crate::harness::Run {
    durward(&[&["review"], more, &CONFIG[..]].concat())
}

#[test]
fn prints_verdict_warnings_facts_and_the_patched_object() {
    let run = review(&[
        "examples/lxcfs/reviews/lxcfs-allow.json",
        "examples/lxcfs/reviews/lxcfs-mutate.json",
        "examples/lxcfs/reviews/lxcfs-warn.json",
        "--snapshot",
        "examples/lxcfs/healthy",
        "-v",
        "--show-patch",
        "--show-object",
    ]);
    assert_eq!((run.code, run.err.as_str()), (0, ""));
    for part in [
        "lxcfs-allow.json#1  CREATE Pod shop/plain by ann\n  lxcfs  allow\n",
        "lxcfs  mutate: 3 additions",
        "warning: lxcfs: no files added: namespace \"vault\" enforces Pod Security \"restricted\"",
        "fact      namespace \"vault\" has labels",
        "policy    enforce; unknown is allow for a user",
        "        - name: lxcfs-meminfo\n          mountPath: /proc/meminfo\n          readOnly: true\n",
    ] {
        assert!(run.out.contains(part), "missing: {part}\n{}", run.out);
    }
}

#[test]
fn reports_missing_facts_as_unknown_with_the_flag_to_add() {
    let run = review(&["examples/lxcfs/reviews/lxcfs-mutate.json", "-o", "json"]);
    assert_eq!(run.code, 3);
    let answer = &run.json()[0];
    assert_eq!((&answer["verdict"], &answer["allowed"]), (&"unknown".into(), &true.into()));
    assert_eq!(answer["causes"][0]["code"], "no-cluster");
    assert!(answer["warnings"][0].as_str().unwrap().contains("--snapshot DIR"), "{answer}");
    let note = "note: without --snapshot the guards cannot read a cluster, so some verdicts are unknown\n";
    assert_eq!(run.err, note);
    let fleet = ["--config", "examples/deletion/durward.yaml"];
    let run = durward(&[&["review", "examples/deletion/reviews/deletion-deny.json"], &fleet[..]].concat());
    assert_eq!((run.code, run.err.as_str()), (3, note));
    assert!(!run.out.contains("retry") && run.out.contains("\n    Next: record the clusters"), "{}", run.out);
    let expected = "cannot tell whether namespace \"shop\" is in use: the control plane could not be checked (no cluster to read)";
    assert!(run.out.contains(expected), "{}", run.out);
    assert!(!run.out.contains("--kubeconfig"), "review has no such flag: {}", run.out);
}

#[test]
fn exits_with_three_if_a_guard_could_not_check() {
    let dir = TestDir::new();
    dir.configure("  lxcfs: {onUnknown: deny}\n");
    let run = durward_in(
        dir.path(),
        &["review", "--config", "durward.yaml", "--snapshot", "blind", "-o", "json"],
        &example("lxcfs-unknown.json"),
    );
    assert_eq!(run.code, 3, "{}", run.err);
    let answer = &run.json()[0];
    assert_eq!((&answer["verdict"], &answer["allowed"]), (&"unknown".into(), &false.into()));
    assert_eq!(answer["response"]["response"]["status"]["code"], 403);
    assert!(answer["message"].as_str().unwrap().contains("could not be checked"), "{answer}");
}

#[test]
fn reads_several_reviews_as_stream_list_or_yaml() {
    let one = example("lxcfs-allow.json");
    let yaml = "apiVersion: admission.k8s.io/v1beta1\nkind: AdmissionReview\nrequest:\n  uid: u-1\n  operation: CREATE\n  \
                resource: {group: '', version: v1, resource: pods}\n  kind: {group: '', version: v1, kind: Pod}\n  namespace: shop\n  \
                userInfo: {username: bob}\n  object: {metadata: {name: x}, spec: {containers: []}}\n";
    for (input, count) in [
        (format!("{one}\n{one}"), 2),
        (format!("[{one},{one},{one}]"), 3),
        (format!("---\n{yaml}---\n{yaml}"), 2),
    ] {
        let run = durward_in(
            &crate::harness::root(),
            &[&["review", "-", "--snapshot", "examples/lxcfs/healthy", "-o", "json"], &CONFIG[..]].concat(),
            &input,
        );
        assert_eq!(run.code, 0, "{}", run.err);
        let answers = run.json();
        assert_eq!(answers.as_array().unwrap().len(), count);
        assert!(answers.as_array().unwrap().iter().all(|answer| answer["verdict"] == "allow"));
    }
}

#[test]
fn calls_guards_by_their_rules_or_by_name() {
    let service =
        example("lxcfs-mutate.json").replace("\"pods\"", "\"services\"").replace("\"Pod\"", "\"Service\"");
    let ask = |more: &[&str]| {
        let arguments =
            [&["review", "-", "--snapshot", "examples/lxcfs/healthy", "-o", "json"], more, &CONFIG[..]]
                .concat();
        durward_in(&crate::harness::root(), &arguments, &service)
    };
    let run = ask(&[]);
    assert_eq!((run.code, &run.json()[0]["verdict"]), (0, &"not-called".into()));
    assert_eq!(ask(&["--guard", "lxcfs"]).json()[0]["guard"], "lxcfs");
    let wrong = ask(&["--guard", "moon"]);
    assert_eq!(wrong.code, 2);
    assert!(wrong.err.contains("the guard is not enabled\n    enabled guards: lxcfs"));
}

#[test]
fn skips_guards_that_do_not_select_the_namespace() {
    let dir = TestDir::new();
    let review = |selector: &str, more: &[&str]| {
        dir.configure(&format!("  lxcfs: {{webhook: {{namespaceSelector: {selector}}}}}\n"));
        let arguments = [&["review", "-", "--config", "durward.yaml"], more].concat();
        durward_in(dir.path(), &arguments, &example("lxcfs-mutate.json"))
    };
    let (other, this) = ("{matchLabels: {team: bank}}", "{matchLabels: {kubernetes.io/metadata.name: shop}}");
    let snapshot = ["--snapshot", "snapshot"];
    let json = [&snapshot[..], &["-o", "json"]].concat();

    let run = review(other, &snapshot);
    let expected = "no guard is called  allow; not called: lxcfs: namespaceSelector does not select namespace \"shop\"\n";
    assert_eq!(run.code, 0, "{}", run.err);
    assert!(run.out.contains(expected), "{}", run.out);
    let answer = &review(other, &json).json()[0];
    assert_eq!(
        (&answer["verdict"], &answer["evaluation"]["rules"]),
        (&"not-called".into(), &serde_json::json!([]))
    );
    assert!(answer.get("settlePolicy").is_none(), "the JSON keys are stable: {answer}");
    assert!(
        answer["evaluation"]["notCalled"][0].as_str().unwrap().starts_with("lxcfs: namespaceSelector"),
        "{answer}"
    );
    let by_name = &review(other, &[&json[..], &["--guard", "lxcfs"]].concat()).json()[0];
    assert_eq!(
        (&by_name["verdict"], &by_name["evaluation"]["rules"]),
        (&"mutate".into(), &serde_json::json!([]))
    );

    let answer = &review(this, &json).json()[0];
    assert_eq!(
        (&answer["verdict"], &answer["evaluation"]["rules"]),
        (&"mutate".into(), &serde_json::json!(["lxcfs-pods"]))
    );
    assert_eq!(
        answer["evaluation"]["matchConditions"],
        serde_json::json!(["not-excluded", "pod-opts-in", "not-opted-out"])
    );
    let run = review(this, &[&snapshot[..], &["-v"]].concat());
    assert!(
        run.out.contains(
            "not run   matchConditions not-excluded, pod-opts-in, not-opted-out: only the API server evaluates them"
        ),
        "{}",
        run.out
    );
    assert_eq!(review(this, &["-o", "json"]).json()[0]["verdict"], "unknown");
}

#[test]
fn exits_with_two_on_bad_input_and_answers_the_rest() {
    let good = example("lxcfs-allow.json");
    let run = durward_in(
        &crate::harness::root(),
        &[&["review", "-", "nothing.json", "--snapshot", "examples/lxcfs/healthy"], &CONFIG[..]].concat(),
        &format!("{good}\n{{\"apiVersion\":\"v1\",\"kind\":\"Pod\"}}"),
    );
    assert_eq!(run.code, 2);
    assert!(run.out.contains("standard input#1  CREATE Pod shop/plain"), "{}", run.out);
    assert!(
        run.err.contains("standard input#2 is not a valid AdmissionReview: the body is a \"Pod\""),
        "{}",
        run.err
    );
    assert!(run.err.contains("nothing.json cannot be read"), "{}", run.err);
    let broken =
        durward_in(&crate::harness::root(), &[&["review"], &CONFIG[..]].concat(), "{\n  \"kind\": ]}");
    assert_eq!(broken.code, 2);
    assert!(broken.err.contains("standard input:2:11: this is not JSON"), "{}", broken.err);
}
