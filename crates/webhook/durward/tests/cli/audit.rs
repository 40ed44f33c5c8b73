//! `doctor audit` with logs. The other source, metrics, needs a cluster.

use std::fs;

use serde_json::{Value, json};

use crate::harness::{Run, TestDir, durward, durward_in, root};

const LOG: &str = "examples/audit/audit.log";

fn recorded() -> String {
    fs::read_to_string(root().join(LOG)).unwrap()
}

fn audit(dir: &TestDir, log: &str) -> Run {
    dir.run(&["doctor", "audit", "--audit-log", log])
}

#[test]
fn a_log_shows_the_callers_and_the_decisions() {
    let run = durward(&["doctor", "audit", "--audit-log", LOG]);
    assert_eq!((run.code, run.err.as_str()), (1, ""), "{}", run.out);
    for lines in [
        "would be denied: 4, 1 of them because Durward could not check\n",
        "\ndeletion guard, users, would be denied\n      1  ann  delete namespaces\n",
        "Z: namespace \"shop\" is still in use: 1 pod (web)\n",
        "\ndeletion guard, controllers, would be denied\n      1  system:serviceaccount:kube-system:cleaner  delete namespaces\n",
        "\ndeletion guard, native policy durward-deletion-labels, users, would be denied\n      1  ann  patch namespaces\n",
        "\netcd guard, users, could not be checked\n      1  ann  delete pods in db\n",
        "  1. fix the causes of what could not be checked: kubectl -n durward-system exec deploy/durward -- durward doctor etcd\n  2. decide for each caller",
        "  3. enforce one guard at a time: mode: enforce, and webhook.failurePolicy: Fail\n",
    ] {
        assert!(run.out.contains(lines), "{lines}\n{}", run.out);
    }
    let json = durward(&["doctor", "audit", "--audit-log", LOG, "-o", "json"]).json();
    let keys: Vec<_> = json.as_object().unwrap().keys().map(String::as_str).collect();
    assert_eq!(keys, ["sources", "wouldDeny", "unchecked", "findings"]);
    assert_eq!(json["wouldDeny"][1]["isController"], true);
    assert_eq!(json["unchecked"][0]["resource"], "pods");
}

#[test]
fn several_logs_are_added_and_one_can_be_standard_input() {
    let dir = TestDir::new();
    dir.write("host.log", &recorded());
    let arguments = ["doctor", "audit", "-o", "json", "--audit-log", "host.log", "--audit-log", "-"];
    let json = durward_in(dir.path(), &arguments, &recorded()).json();
    assert_eq!(json["sources"][1]["name"], "standard input");
    assert_eq!(json["wouldDeny"][0]["count"], 2);
    let run = dir.run(&["doctor", "audit", "--audit-log", "host.log", "host.log", "-q"]);
    assert!(run.out.contains("would be denied: 8, 2 of them because"), "{}", run.out);
}

#[test]
fn nothing_denied_is_success_and_an_unread_line_is_not() {
    let dir = TestDir::new();
    let mut event: Value = serde_json::from_str(recorded().lines().last().unwrap()).unwrap();
    event["annotations"] = json!({"etcd-pods.durward.dev/members": "3"});
    let one = format!("{event}\n");
    dir.write("allowed.log", &one);
    let run = audit(&dir, "allowed.log");
    assert_eq!(run.code, 0, "{}{}", run.out, run.err);
    assert!(run.out.contains("would be denied: 0\n\nBefore you enforce"), "{}", run.out);

    dir.write("bad.log", &format!("{one}plain text\n{one}"));
    dir.write("gzip.log", "\u{1f}\u{8b}\u{8}\0\0");
    dir.write("empty.log", "");
    for (log, problem) in [
        (
            "bad.log",
            "bad.log: 1 of 3 lines are not audit events; the first is line 2 (column 1) (unreadable)",
        ),
        ("gzip.log", "zcat FILE | durward doctor audit --audit-log -"),
        ("empty.log", "empty.log has no requests (empty)"),
    ] {
        let run = audit(&dir, log);
        assert_eq!(run.code, 3, "{}{}", run.out, run.err);
        assert!(run.out.contains(problem), "{}", run.out);
    }
}

#[test]
fn texts_of_a_log_reach_no_terminal_as_commands() {
    let dir = TestDir::new();
    dir.write("forged.log", &recorded().replace("is still in use", r"\u001b[31m\n::error::is \u202e"));
    let run = audit(&dir, "forged.log");
    assert!(!run.out.contains(['\u{1b}', '\u{202e}']), "{}", run.out);
    assert!(!run.out.lines().any(|line| line.trim_start().starts_with("::")), "{}", run.out);
}

#[test]
fn a_wrong_path_or_part_is_bad_input() {
    let dir = TestDir::new();
    dir.write("audit.log", &recorded());
    for (arguments, problem) in [
        (&["doctor", "audit", "--audit-log", "missing.log"][..], "missing.log cannot be read"),
        (&["doctor", "audit", "--audit-log", "audit.log", "."], "it is a directory, not a file"),
        (&["doctor", "--audit-log", "audit.log"], "--audit-log is only for the part audit"),
        (&["doctor", "etcd", "--audit-log", "audit.log"], "--audit-log is only for the part audit"),
        (&["doctor", "audit"], "the part audit needs the configuration file"),
        (
            &["doctor", "audit", "--config", "durward.yaml", "--snapshot", "snapshot"],
            "a snapshot has no metrics",
        ),
        (&["doctor", "audit", "--local"], "--local checks LXCFS only"),
    ] {
        let run = dir.run(arguments);
        assert_eq!((run.code, run.out.as_str()), (2, ""), "{arguments:?}: {}", run.err);
        assert!(run.err.contains(problem), "{arguments:?}: {}", run.err);
    }
}

#[test]
fn doctor_without_a_part_leaves_audit_out() {
    let dir = TestDir::new();
    dir.configure("  deletion: {fleet: none}\n");
    let json = dir.run(&["doctor", "-c", "durward.yaml", "--snapshot", "snapshot", "-o", "json"]).json();
    assert!(json.get("audit").is_none() && json.get("fleet").is_some(), "{json}");
}
