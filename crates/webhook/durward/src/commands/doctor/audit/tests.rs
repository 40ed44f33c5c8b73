//! Logs and metrics, and the groups that they give. The log of the example is recorded from a kube-apiserver.

use std::path::Path;

use console::exit::Exit;
use console::output::Style;
use serde_json::{Value, json};

use super::{AuditReport, CallGroup, Groups, Guards, Seen, log, metrics};
use crate::file::{File, Purpose};

const RECORDED: &str = include_str!("../../../../../../../examples/audit/audit.log");

fn read_with(guards: &Guards, log: &[u8]) -> AuditReport {
    let mut report = AuditReport::default();
    log::read("audit.log", log, guards, &mut report);
    report
}

fn read(log: impl AsRef<[u8]>) -> AuditReport {
    read_with(&Guards::of(None), log.as_ref())
}

/// Returns the recorded request with this user and annotation, as an event that a test can change.
fn recorded(user: &str, annotation: &str) -> Value {
    let mut events = RECORDED.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
    let is_it = |event: &Value| {
        event["impersonatedUser"]["username"] == user
            && !event["annotations"][annotation].is_null()
            && !event["requestURI"].as_str().unwrap().contains('?')
    };
    events.find(is_it).unwrap()
}

fn denied() -> Value {
    recorded("ann", "deletion.durward.dev/would-deny")
}

fn changed(change: impl FnOnce(&mut Value)) -> String {
    let mut event = denied();
    change(&mut event);
    format!("{event}\n")
}

/// Returns guard, policy, caller, request and number of each group.
fn rows(groups: &Groups) -> Vec<String> {
    let row = |(group, seen): (&CallGroup, &Seen)| {
        let CallGroup { guard, policy, caller, verb, resource, namespace, cause, is_controller } = group;
        let kind = if *is_controller { "controller" } else { "user" };
        let text = [*guard, policy, kind, caller, verb, resource, namespace, cause].join(" ");
        format!("{} {}", text.split_whitespace().collect::<Vec<_>>().join(" "), seen.count)
    };
    groups.0.iter().map(row).collect()
}

fn codes(report: &AuditReport) -> Vec<&'static str> {
    report.findings.iter().map(|finding| finding.code).collect()
}

#[test]
fn a_recorded_log_names_the_callers() {
    let report = read(RECORDED);
    assert_eq!(
        rows(&report.would_deny),
        [
            "deletion user ann delete namespaces 1",
            "deletion controller system:serviceaccount:kube-system:cleaner delete namespaces 1",
            "deletion durward-deletion-labels user ann patch namespaces 1",
        ]
    );
    assert_eq!(rows(&report.unchecked), ["etcd user ann delete pods db 1"]);
    assert_eq!((codes(&report), report.exit()), (vec![], Exit::No));
    let (_, seen) = report.would_deny.0.first_key_value().unwrap();
    assert!(seen.object == "shop", "{seen:?}");
    assert!(seen.message.ends_with("1 pod (web)"), "without the next steps: {seen:?}");
}

#[test]
fn a_request_counts_once_and_a_dry_run_does_not_count() {
    let log = [
        changed(|_| {}),
        changed(|event| event["stage"] = "RequestReceived".into()),
        changed(|event| event["stage"] = "Panic".into()),
        changed(|event| event["requestURI"] = "/api/v1/namespaces/shop?force=x&dryRun=All".into()),
    ];
    let report = read(log.concat());
    assert_eq!(rows(&report.would_deny), ["deletion user ann delete namespaces 1"]);
    assert_eq!((report.sources[0].requests, report.exit()), (Some(1), Exit::No));
}

#[test]
fn a_group_has_its_first_and_last_time_in_any_order_of_lines() {
    let at = |time: &str| changed(|event| event["stageTimestamp"] = time.into());
    let log = ["2026-11-21T10:00:02.000001Z", "2026-11-20T09:00:00.999999Z", "2026-11-21T10:00:01.5Z"]
        .map(at)
        .concat();
    let report = read(log);
    let (_, seen) = report.would_deny.0.first_key_value().unwrap();
    assert_eq!((seen.first.as_str(), seen.last.as_str()), ("2026-11-20T09:00:00Z", "2026-11-21T10:00:02Z"));
    assert_eq!((&report.sources[0].from, &report.sources[0].to), (&seen.first, &seen.last));
}

#[test]
fn the_caller_is_the_impersonated_user() {
    let log = [changed(|_| {}), changed(|event| event["impersonatedUser"] = Value::Null)].concat();
    let expected = ["deletion user admin delete namespaces 1", "deletion user ann delete namespaces 1"];
    assert_eq!(rows(&read(log).would_deny), expected);
}

#[test]
fn a_request_without_an_answer_of_durward_could_not_be_checked() {
    let annotation = "failed-open.validating.webhook.admission.k8s.io/round_0_index_1";
    let log = |webhook: &str| changed(|event| event["annotations"] = json!({annotation: webhook}));
    assert_eq!(rows(&read(log("deletion.durward.dev")).unchecked), ["deletion user ann delete namespaces 1"]);
    assert_eq!(read(log("deletion.example.org")).exit(), Exit::Done);
}

#[test]
fn other_webhooks_and_policies_are_not_durwards() {
    let failure = json!([{"policy": "durward-mine", "binding": "b", "message": "m"}]).to_string();
    for annotations in [
        json!({"deletion.example.org/would-deny": "x"}),
        json!({"would-deny": "x"}),
        json!({"deletions.durward.dev/would-deny": "x"}),
        json!({"validation.policy.admission.k8s.io/validation_failure": failure}),
        json!({"validation.policy.admission.k8s.io/validation_failure": "{"}),
    ] {
        let report = read(changed(|event| event["annotations"] = annotations));
        assert_eq!((report.sources[0].requests, report.exit()), (Some(1), Exit::Done));
    }
    let report =
        read(changed(|event| event["annotations"] = json!({"resources-ignore.durward.dev/would-deny": "x"})));
    assert_eq!(rows(&report.would_deny), ["resources user ann delete namespaces 1"]);
}

#[test]
fn bad_lines_are_counted_with_the_first_and_do_not_end_the_log() {
    let good = changed(|_| {});
    for bad in [
        &b"plain text"[..],
        b"{\"kind\": \"Event\"}",
        b"[]",
        b"null",
        b"\0\0\0",
        b"\xff\xfe",
        &good.as_bytes()[..good.len() / 2],
        good.replace("audit.k8s.io/v1", "audit.k8s.io/v1beta1").trim_end().as_bytes(),
    ] {
        let log = [good.as_bytes(), b"\n", bad, b"\n", bad, b"\n", good.as_bytes()].concat();
        let report = read(log);
        assert_eq!(rows(&report.would_deny), ["deletion user ann delete namespaces 2"]);
        let [finding] = report.findings.as_slice() else { panic!("{:?}", report.findings) };
        let start = "audit.log: 2 of 5 lines are not audit events; the first is line 3 (";
        assert!(finding.what.starts_with(start), "{}", finding.what);
        assert_eq!(report.exit(), Exit::Unknown);
    }
}

#[test]
fn the_last_line_can_be_incomplete_because_the_api_server_is_writing_it() {
    let good = changed(|_| {});
    let report = read([good.as_str(), &good[..good.len() / 2]].concat());
    assert_eq!((codes(&report), report.exit()), (vec![], Exit::No));
    assert_eq!(codes(&read(&good[..good.len() / 2])), ["unreadable"], "the only line");
    assert_eq!(rows(&read(good.trim_end()).would_deny).len(), 1, "a complete event without a line break");
}

#[test]
fn a_line_above_the_limit_is_skipped() {
    let long = changed(|event| event["requestObject"] = json!({"data": "x".repeat(17 << 20)}));
    let report = read([long, changed(|_| {})].concat());
    assert_eq!(rows(&report.would_deny), ["deletion user ann delete namespaces 1"]);
    assert!(
        report.findings[0].what.ends_with("the first is line 1 (longer than 16 MiB)"),
        "{:?}",
        report.findings
    );
}

#[test]
fn a_log_without_requests_shows_nothing() {
    for log in [String::new(), "\n\n".to_owned(), changed(|event| event["stage"] = "RequestReceived".into())]
    {
        let report = read(log);
        assert_eq!((codes(&report), report.exit()), (vec!["empty"], Exit::Unknown));
    }
}

#[test]
fn many_callers_need_bounded_memory() {
    let mut groups = Groups::default();
    for number in 0..super::MAX_GROUPS + 5 {
        let caller = number.to_string();
        groups.add(
            CallGroup { guard: "deletion", caller, ..CallGroup::default() },
            Seen { count: 1, ..Seen::default() },
        );
    }
    assert_eq!(groups.0.len(), super::MAX_GROUPS + 1);
    assert_eq!(groups.0[&CallGroup { guard: "deletion", ..CallGroup::default() }].count, 5);
    let report = read(changed(|event| event["impersonatedUser"]["username"] = "x".repeat(1 << 20).into()));
    assert!(rows(&report.would_deny)[0].len() < 400);
}

#[test]
fn controllers_are_those_of_the_guard() {
    let guards = "guards: {deletion: {fleet: none, controllerUsers: ['ann']}}";
    let text = format!("apiVersion: durward.dev/v1alpha1\nkind: Configuration\n{guards}\n");
    let file = File::from_text(Path::new("durward.yaml"), text, Purpose::Guards).unwrap();
    let guards = Guards::of(Some(&file));
    let report = read_with(&guards, changed(|_| {}).as_bytes());
    assert_eq!(rows(&report.would_deny), ["deletion controller ann delete namespaces 1"]);
    assert!(!guards.is_controller("etcd", "ann"));
}

#[test]
fn a_policy_of_several_guards_belongs_to_one_that_is_on() {
    let guards = "guards: {etcd: {clusters: [{namespace: db, selector: app=etcd}]}}";
    let text = format!("apiVersion: durward.dev/v1alpha1\nkind: Configuration\n{guards}\n");
    let file = File::from_text(Path::new("durward.yaml"), text, Purpose::Guards).unwrap();
    assert_eq!(Guards::of(Some(&file)).of_policy("durward-install-namespace"), Some("etcd"));
    assert_eq!(Guards::of(None).of_policy("durward-install-namespace"), Some("deletion"));
}

#[test]
fn metrics_have_numbers_and_no_callers() {
    let mut report = AuditReport::default();
    let page = "# HELP durward_would_deny_total Requests.\n\
        durward_would_deny_total{guard=\"deletion\"} 3\ndurward_would_deny_total{guard=\"etcd\"} 0\n\
        durward_would_deny_total{guard=\"resources-ignore\"} 1\ndurward_would_deny_totals 9\n\
        durward_unknown_total{guard=\"deletion\",cause=\"timeout\"} 2\ndurward_unknown_total{guard=\"x\"} nonsense\n";
    metrics::count(page, &mut report);
    metrics::count(page, &mut report);
    let policies = "apiserver_validating_admission_policy_check_total";
    let page = format!(
        "{policies}{{enforcement_action=\"audit\",error_type=\"no_error\",policy=\"durward-etcd-sets\",policy_binding=\"durward-etcd-sets\"}} 1.2e+06\n\
         {policies}{{enforcement_action=\"warn\",error_type=\"no_error\",policy=\"durward-etcd-sets\",policy_binding=\"durward-etcd-sets\"}} 7\n\
         {policies}{{enforcement_action=\"audit\",error_type=\"no_error\",policy=\"mine\",policy_binding=\"mine\"}} 7\n\
         process_start_time_seconds 1.79521920045e+09\n"
    );
    metrics::count_policies(&page, "cluster", &Guards::of(None), &mut report);
    assert_eq!(
        rows(&report.would_deny),
        ["deletion user 6", "etcd durward-etcd-sets user 1200000", "resources user 2"]
    );
    assert_eq!(rows(&report.unchecked), ["deletion user timeout 4"]);
    assert_eq!((report.sources[0].from.as_str(), report.exit()), ("2026-11-21T00:00:00Z", Exit::No));
    let text = report.text(Style::plain());
    assert!(text.contains("\ndeletion guard, would be denied\n      6  requests\n"), "{text}");
    assert!(text.contains("would be denied: 1200008, some of them because"), "{text}");
    assert!(text.contains("\n  2. find the callers: durward doctor audit --audit-log FILE\n"), "{text}");
}

#[test]
fn the_exemption_of_any_caller_is_valid_yaml() {
    let names = ["ann", "oidc:a, b]\"'", "system:serviceaccount:ci:runner", "system:node:n1"];
    let log = names.map(|name| changed(|event| event["impersonatedUser"]["username"] = name.into())).concat();
    let text = read(log).text(Style::plain());
    let lines = "     guards.deletion.exempt:  serviceAccounts: [\"ci/runner\"]\n     \
                 guards.deletion.exempt:  users: [\"ann\", \"oidc:a, b]\\\"'\", \"system:node:n1\"]\n";
    assert!(text.contains(lines), "{text}");
}
