//! The commands `override` and `acknowledge`.

use crate::harness::durward;

#[test]
fn dry_runs_print_the_command_of_kubectl() {
    let run = durward(&["override", "ns/shop", "--reason", "moved to m9", "--for", "2h", "--dry-run"]);
    assert_eq!((run.code, run.err.as_str()), (0, ""));
    let start = "kubectl annotate --overwrite ns shop durward.dev/delete-anyway=shop durward.dev/delete-reason='moved to m9' durward.dev/delete-until=20";
    assert!(run.out.starts_with(start) && run.out.ends_with("Z\n"), "{}", run.out);
    let pod =
        durward(&["override", "pod/etcd-1", "-n", "db", "--reason", "disk", "--for", "30m", "--dry-run"]);
    assert!(pod.out.starts_with("kubectl -n db annotate --overwrite pod etcd-1 "), "{}", pod.out);
    for (object, start) in [
        (
            "configmaps/app",
            "kubectl -n db annotate --overwrite configmaps app durward.dev/delete-anyway=app ",
        ),
        ("gateways.example.org/edge", "kubectl -n db annotate --overwrite gateways.example.org edge "),
        ("sts/etcd", "kubectl -n db annotate --overwrite statefulset etcd "),
        ("pvc/data-etcd-1", "kubectl -n db annotate --overwrite pvc data-etcd-1 "),
    ] {
        let run = durward(&["override", object, "-n", "db", "--reason", "disk", "--for", "30m", "--dry-run"]);
        assert!(run.out.starts_with(start), "{}{}", run.out, run.err);
    }
    let clusters =
        durward(&["acknowledge", "cluster/m5", "m7", "--reason", "link cut", "--for", "7d", "--dry-run"]);
    for (line, name) in clusters.out.lines().zip(["m5", "m7"]) {
        let start = format!(
            "kubectl annotate --overwrite cluster {name} durward.dev/acknowledge-unreachable='link cut' durward.dev/acknowledge-until=20"
        );
        assert!(line.starts_with(&start), "{line}");
    }
    assert_eq!(clusters.out.lines().count(), 2, "{}", clusters.out);
}

#[test]
fn annotations_can_be_removed() {
    let run = durward(&["override", "pod/etcd-1", "-n", "db", "--remove", "--dry-run=client"]);
    let expected = "kubectl -n db annotate --overwrite pod etcd-1 durward.dev/delete-anyway- durward.dev/delete-reason- durward.dev/delete-until- durward.dev/break-glass-\n";
    assert_eq!((run.code, run.out.as_str()), (0, expected), "{}", run.err);
    let run =
        durward(&["override", "ns/shop", "--remove", "--dry-run", "--kubeconfig", "k", "--context", "east"]);
    assert!(run.out.starts_with("kubectl --kubeconfig k --context east annotate "), "{}", run.out);
    let run = durward(&["acknowledge", "m3", "m7", "--remove", "--dry-run"]);
    for (line, name) in run.out.lines().zip(["m3", "m7"]) {
        let expected = format!(
            "kubectl annotate --overwrite cluster {name} durward.dev/acknowledge-unreachable- durward.dev/acknowledge-until-"
        );
        assert_eq!(line, expected);
    }
}

#[test]
fn a_reason_and_a_time_are_required_to_annotate_only() {
    for (arguments, error) in [
        (&["override", "ns/shop"][..], "--for <DURATION>, --reason <TEXT> are required"),
        (&["override", "--reason", "moved", "--for", "1h"], "<KIND/NAME> is required"),
        (&["override", "ns/shop", "--remove", "--for", "1h"], "cannot be used with"),
        (&["override", "--list", "--dry-run"], "cannot be used with"),
        (&["acknowledge", "--remove"], "<CLUSTER>... is required"),
        // It must not count as a removal.
        (&["override", "ns/shop", "--list"], "cannot be used with"),
        (&["acknowledge", "m3", "--list"], "cannot be used with"),
    ] {
        let run = durward(arguments);
        assert_eq!((run.code, run.out.as_str()), (2, ""), "{arguments:?}");
        assert!(run.err.contains(error), "{arguments:?}: {}", run.err);
    }
}

#[test]
fn annotations_that_a_guard_would_ignore_are_refused() {
    for (arguments, why) in [
        (["override", "ns/shop", "--reason", "<reason>", "--for", "2h"], "the reason is the placeholder"),
        (["override", "ns/shop", "--reason", " ", "--for", "2h"], "the reason is empty"),
        (["override", "ns/shop", "--reason", "moved", "--for", "25h"], "more than 24 hours ahead"),
        (["override", "ns/shop", "--reason", "moved", "--for", "0h"], "is in the past"),
        (["override", "ns/shop", "--reason", "moved", "--for", "soon"], "must be a duration"),
        (
            ["override", "Secret/shop", "--reason", "moved", "--for", "2h"],
            "must be one of ns/NAME, crd/NAME, pod/NAME, statefulset/NAME, pvc/NAME, RESOURCE.GROUP/NAME",
        ),
        (["acknowledge", "cluster/m5", "--reason", "cut", "--for", "31d"], "more than 30 days ahead"),
        (["acknowledge", "ns/m5", "--reason", "cut", "--for", "7d"], "\"ns/m5\" is not a valid name"),
        (["override", "etcd-1", "--reason", "moved", "--for", "2h"], "did you mean ns/etcd-1 or pod/etcd-1?"),
    ] {
        let run = durward(&arguments);
        assert_eq!((run.code, run.out.as_str()), (2, ""), "{arguments:?}: {}", run.err);
        assert!(run.err.contains(why), "{arguments:?}: {}", run.err);
    }
}

#[test]
fn a_kind_and_a_name_with_a_space_get_a_suggestion() {
    for (arguments, error) in [
        (
            &["override", "pod", "etcd-1", "--reason", "disk", "--for", "2h"][..],
            "error: unexpected argument \"etcd-1\": did you mean pod/etcd-1?\n",
        ),
        (
            &["acknowledge", "cluster", "m5", "--reason", "cut", "--for", "7d"],
            "error: invalid value \"cluster\" for [CLUSTER]...: is a kind: write only the names of clusters\n",
        ),
        (
            &["certs", "new", "--out", "x", "--name", "a.b", "--days", "-5"],
            "error: invalid value \"-5\" for --days <DAYS>: -5 is not in 1..=36500\n",
        ),
    ] {
        let run = durward(arguments);
        assert_eq!(run.code, 2);
        assert!(run.err.starts_with(error), "{}", run.err);
    }
}

#[test]
fn an_unreachable_api_server_is_a_fault_with_the_command_to_try() {
    let run = durward(&[
        "override",
        "ns/shop",
        "--reason",
        "moved",
        "--for",
        "2h",
        "--kubeconfig",
        "/nonexistent/config",
    ]);
    assert!(run.code != 0 && run.out.is_empty(), "{}", run.err);
}
