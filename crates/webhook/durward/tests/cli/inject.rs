//! `inject`: pods and workloads after the guards.

use crate::harness::{Run, TestDir, durward_in, root};

fn inject(more: &[&str], input: &str) -> Run {
    durward_in(&root(), &[&["inject", "--config", "examples/lxcfs/durward.yaml"], more].concat(), input)
}

const POD: &str = "{\"apiVersion\":\"v1\",\"kind\":\"Pod\",\n  \"metadata\":{\"name\":\"a\",\"annotations\":{\"durward.dev/lxcfs\":\"enabled\"}},\n  \
                   \"spec\":{\"containers\":[{\"name\":\"a\",  \"future\":1.10}]}}\n";

#[test]
fn keeps_every_other_value_and_the_order_of_json() {
    let run = inject(&["--namespace-labels", ""], POD);
    assert_eq!(run.code, 0, "{}", run.err);
    assert!(run.out.contains("/proc/meminfo"));
    let mut pod = run.json();
    let removed = pod["metadata"]["annotations"].as_object_mut().unwrap().remove("durward.dev/lxcfs-status");
    assert!(removed.is_some());
    assert!(pod["spec"].as_object_mut().unwrap().remove("volumes").is_some());
    assert!(pod["spec"]["containers"][0].as_object_mut().unwrap().remove("volumeMounts").is_some());
    let before: serde_json::Value = serde_json::from_str(POD).unwrap();
    assert_eq!(pod.to_string(), before.to_string());
    let again = inject(&["--namespace-labels", ""], &run.out);
    assert_eq!(again.out, run.out, "twice adds nothing");
}

#[test]
fn fails_if_namespace_labels_are_not_given() {
    let run = inject(&[], POD);
    assert_eq!((run.code, run.out.as_str()), (2, ""));
    assert!(run.err.contains("Pod a: the result is unknown"), "{}", run.err);
    assert!(
        run.err.contains("the result is unknown: the labels of namespace default are unknown\n"),
        "{}",
        run.err
    );
    assert!(run.err.contains("pass the labels of namespace default: --namespace-labels"), "{}", run.err);
}

#[test]
fn reads_workloads_lists_and_other_objects_as_kubectl_does() {
    let run = inject(&["examples/lxcfs/pods/deployment.yaml", "--snapshot", "examples/lxcfs/healthy"], "");
    assert_eq!(run.code, 0, "{}", run.err);
    assert!(
        run.out.contains("  selector: {app: worker}\n"),
        "the Service stays as it was written: {}",
        run.out
    );
    assert!(run.out.contains("        durward.dev/lxcfs-status: worker=cpuinfo"), "{}", run.out);
    assert!(run.err.contains("note: comments of changed objects are not kept"), "{}", run.err);

    let job = "{\"apiVersion\":\"batch/v1\",\"kind\":\"Job\",\"metadata\":{\"name\":\"j\",\"namespace\":\"batch\"},\"spec\":{\"template\":{\"spec\":{\"containers\":[{\"name\":\"c\"}]}}}}";
    let list = format!(
        "{{\"apiVersion\":\"v1\",\"kind\":\"List\",\"items\":[{job},{{\"apiVersion\":\"v1\",\"kind\":\"Secret\"}}]}}"
    );
    let run = inject(&["--namespace-labels", "durward.dev/lxcfs=enabled", "--namespace", "batch"], &list);
    assert_eq!(run.code, 0, "{}", run.err);
    let out = run.json();
    let template = &out["items"][0]["spec"]["template"];
    assert_eq!(
        template["metadata"]["annotations"]["durward.dev/lxcfs-status"],
        "c=cpuinfo,meminfo,diskstats,stat,swaps,uptime"
    );
    assert_eq!(template["spec"]["containers"][0]["volumeMounts"].as_array().unwrap().len(), 6);
    assert_eq!(out["items"][1], serde_json::json!({"apiVersion": "v1", "kind": "Secret"}));
}

#[test]
fn shows_pods_of_a_daemon_set_as_their_controller_creates_them() {
    let dir = TestDir::new();
    dir.write(
        "durward.yaml",
        "apiVersion: durward.dev/v1alpha1\nkind: Configuration\nguards: {lxcfs: {nodeAffinity: required}}\n",
    );
    let shown = |api_version: &str, kind: &str, metadata: &str| {
        let template = format!("{{{metadata}\"spec\":{{\"containers\":[{{\"name\":\"c\"}}]}}}}");
        let workload = format!(
            "{{\"apiVersion\":\"{api_version}\",\"kind\":\"{kind}\",\"metadata\":{{\"name\":\"w\"}},\"spec\":{{\"template\":{template}}}}}"
        );
        let flags = ["inject", "--config", "durward.yaml", "--namespace-labels", "durward.dev/lxcfs=enabled"];
        let run = durward_in(dir.path(), &flags, &workload);
        assert_eq!(run.code, 0, "{}", run.err);
        run.json()["spec"]["template"].clone()
    };
    for metadata in ["", "\"metadata\":null,", "\"metadata\":{\"ownerReferences\":null},"] {
        let pod = shown("apps/v1", "DaemonSet", metadata);
        assert!(!pod["spec"]["volumes"].is_null(), "{pod}");
        assert!(pod["spec"]["nodeSelector"].is_null(), "{pod}");
        assert!(pod["metadata"]["ownerReferences"].is_null(), "{pod}");
        let pod = shown("apps/v1", "Deployment", metadata);
        assert_eq!(pod["spec"]["nodeSelector"]["durward.dev/lxcfs-ready"], "true");
    }
}

#[test]
fn shows_the_device() {
    let dir = TestDir::new();
    let guards = "lxcfs: {mountMethod: devicePlugin}";
    dir.write(
        "durward.yaml",
        &format!("apiVersion: durward.dev/v1alpha1\nkind: Configuration\nguards: {{{guards}}}\n"),
    );
    let run = durward_in(dir.path(), &["inject", "--config", "durward.yaml", "--namespace-labels", ""], POD);
    assert_eq!(run.code, 0, "{}", run.err);
    let pod = run.json();
    let one = serde_json::json!({"durward.dev/lxcfs": "1"});
    assert_eq!(
        pod["spec"]["containers"][0]["resources"],
        serde_json::json!({"limits": one.clone(), "requests": one})
    );
    let again = durward_in(dir.path(), &["inject", "--config", "durward.yaml"], &run.out);
    assert_eq!(again.out, run.out, "twice adds nothing");
}

#[test]
fn a_diff_shows_only_the_additions() {
    let run = inject(&["examples/lxcfs/pods/web.yaml", "--snapshot", "examples/lxcfs/healthy", "--diff"], "");
    assert_eq!(run.code, 0);
    assert!(run.out.starts_with("--- examples/lxcfs/pods/web.yaml#1\n+++ "), "{}", run.out);
    assert!(run.out.contains("+    durward.dev/lxcfs-status: app="));
    assert_eq!(
        run.out.lines().filter(|line| line.starts_with('-')).count(),
        1,
        "nothing but the head is taken away"
    );
    let plain = inject(&["--namespace-labels", "", "--diff"], &POD.replace("enabled", "disabled"));
    assert_eq!((plain.code, plain.out.as_str()), (0, ""));
}

#[test]
fn prints_warnings_and_exits_with_two_on_bad_input() {
    let restricted = inject(&["--namespace-labels", "pod-security.kubernetes.io/enforce=restricted"], POD);
    assert_eq!(restricted.code, 0);
    assert!(restricted.err.contains("warning: Pod a: lxcfs: no files added"), "{}", restricted.err);
    for (more, input, expected) in [
        (&["nothing.yaml"][..], "", "nothing.yaml cannot be read"),
        (&[], "", "contains no document"),
        (&[], "a: [", "not YAML"),
        (&[], "{\"spec\":{}}", "no kind or no apiVersion"),
        (
            &[],
            "{\"apiVersion\":\"apps/v1\",\"kind\":\"Deployment\",\"metadata\":{\"name\":\"w\"}}",
            "Deployment w: it has no spec.template",
        ),
        (&["--namespace-labels", "x"], POD, "is not key=value"),
        (&["--namespace-labels", "", "--snapshot", "examples/lxcfs/healthy"], POD, "cannot be used with"),
        (
            &["--namespace-labels", ""],
            "{\"apiVersion\":\"v1\",\"kind\":\"Pod\",\"metadata\":{\"name\":\"a\",\"namespace\":\"x\"}}{\"apiVersion\":\"v1\",\"kind\":\"Pod\",\"metadata\":{\"name\":\"b\"}}",
            "the objects are in several: default, x",
        ),
    ] {
        let run = inject(more, input);
        assert_eq!((run.code, run.out.as_str()), (2, ""), "{more:?} {input} {}", run.err);
        assert!(run.err.contains(expected), "{expected}: {}", run.err);
    }
    let nothing = inject(
        &["--snapshot", "examples/lxcfs/healthy"],
        "apiVersion: v1\nkind: Service\nmetadata: {name: s} # as it is\n",
    );
    assert_eq!(
        (nothing.code, nothing.out.as_str()),
        (0, "apiVersion: v1\nkind: Service\nmetadata: {name: s} # as it is\n")
    );
    assert!(nothing.err.contains("contains no pod"));
}

#[test]
fn skips_namespaces_that_the_webhook_configuration_does_not_select() {
    let dir = TestDir::new();
    dir.configure("  lxcfs: {webhook: {namespaceSelector: {matchLabels: {team: shop}}}}\n");
    let inject = |more: &[&str], input: &str| {
        durward_in(dir.path(), &[&["inject", "--config", "durward.yaml"], more].concat(), input)
    };
    let other = inject(&["--namespace-labels", "team=bank,durward.dev/lxcfs=enabled"], POD);
    assert_eq!((other.code, other.out.as_str()), (0, POD));
    assert!(
        other.err.contains("Pod a: lxcfs is not called: namespaceSelector does not select namespace default"),
        "{}",
        other.err
    );
    let selected = inject(&["--namespace-labels", "team=shop"], POD);
    assert!(selected.out.contains("/proc/meminfo") && selected.err.is_empty(), "{}", selected.err);
    let unknown = inject(&[], POD);
    assert_eq!((unknown.code, unknown.out.as_str()), (2, ""));
    assert!(unknown.err.contains("Pod a: the result is unknown"), "{}", unknown.err);
    // No guard changes this pod.
    let out = POD.replace("enabled", "disabled");
    assert_eq!(inject(&[], &out).out, out);
}
