//! `doctor etcd`, `snapshot` and `review` with recorded etcd clusters.

use std::fs;

use serde_json::{Value, json};

use crate::harness::{TestDir, copy, root};

const GUARD: &str = "  etcd: {clusters: [{namespace: db, selector: app=etcd}]}\n";

/// A directory with the etcd clusters of the examples and a configuration for them.
fn dir() -> TestDir {
    let dir = TestDir::new();
    copy(&root().join("examples/etcd"), &dir.path().join("etcd"));
    dir.configure(GUARD);
    dir
}

fn doctor(dir: &TestDir, snapshot: &str, more: &[&str]) -> crate::harness::Run {
    let arguments = ["doctor", "etcd", "--config", "durward.yaml", "--snapshot", snapshot];
    dir.run(&[&arguments[..], more].concat())
}

fn codes(report: &Value) -> Vec<&str> {
    report["findings"].as_array().unwrap().iter().map(|finding| finding["code"].as_str().unwrap()).collect()
}

#[test]
fn reports_members_roles_and_the_verdict_for_each_pod() {
    let dir = dir();
    let run = doctor(&dir, "etcd/healthy", &[]);
    assert_eq!((run.code, run.err.as_str()), (0, ""), "{}", run.out);
    for line in [
        "etcd clusters with all members healthy: 1 of 1",
        "db/etcd  3 of 3 healthy, quorum is 2",
        "  etcd-0  leader    term 4  0 behind  healthy",
        "    can be deleted now: the other members have quorum",
        "    etcd: pod db/etcd-0: it is the leader and would transfer leadership to etcd-1 first",
        "no problems found",
    ] {
        assert!(run.out.lines().any(|printed| printed == line), "{line}\n{}", run.out);
    }
    let report = doctor(&dir, "etcd/healthy", &["-o", "json"]).json();
    assert_eq!(report["clusters"][0]["lease"], "durward-system/durward-etcd.db.etcd");
    assert_eq!(report["clusters"][0]["members"][2]["lag"], 2);
    assert_eq!(codes(&report), [""; 0]);
}

#[test]
fn reports_a_member_that_is_down_and_denied_deletions() {
    let dir = dir();
    let run = doctor(&dir, "etcd/one-down", &[]);
    assert_eq!(run.code, 1);
    assert!(run.out.contains("db/etcd  2 of 3 healthy, quorum is 2"), "{}", run.out);
    assert!(run.out.contains("cannot be deleted now: "), "{}", run.out);
    assert!(run.out.contains("kubectl -n db logs etcd-2"), "{}", run.out);
    let report = doctor(&dir, "etcd/one-down", &["-o", "json"]).json();
    assert_eq!(codes(&report), ["not-listening"]);
    let members = report["clusters"][0]["members"].as_array().unwrap();
    let verdicts: Vec<_> = members.iter().map(|one| one["deletion"]["verdict"].as_str().unwrap()).collect();
    assert_eq!(verdicts, ["deny", "deny", "allow"]);
}

#[test]
fn reports_members_that_could_not_be_read() {
    let dir = dir();
    let report = doctor(&dir, "etcd/unreachable", &["-o", "json"]).json();
    assert_eq!(codes(&report), ["timeout", "members"]);
    let what = report["findings"][0]["what"].as_str().unwrap();
    assert!(
        what.starts_with("etcd-0 did not return its status") && what.ends_with("; same for etcd-2"),
        "{what}"
    );
    // A List that was not recorded is unknown.
    fs::remove_file(dir.path().join("etcd/healthy/here/pods.v1.yaml")).unwrap();
    fs::remove_file(dir.path().join("etcd/one-down/here/leases.v1.coordination.k8s.io.yaml")).unwrap();
    let report = doctor(&dir, "etcd/healthy", &["-o", "json"]).json();
    assert_eq!((codes(&report), &report["clusters"]), (vec!["not-recorded"], &json!([])));
    let report = doctor(&dir, "etcd/one-down", &["-o", "json"]).json();
    assert_eq!(codes(&report), ["not-listening", "lease"]);
    assert_eq!(report["clusters"][0]["members"][0]["deletion"]["verdict"], "deny", "by the quorum alone");
}

#[test]
fn reports_namespaces_without_selected_pods() {
    let dir = dir();
    dir.configure("  etcd: {clusters: [{namespace: db, selector: app=etdc}]}\n");
    let run = doctor(&dir, "etcd/healthy", &[]);
    assert_eq!(run.code, 1);
    assert!(run.out.starts_with("no etcd cluster found\n"), "{}", run.out);
    assert!(
        run.out.contains("clusters[0] selects none of the 3 pods in namespace db (no-pods)"),
        "{}",
        run.out
    );
    assert!(run.out.contains("these pods run etcd: etcd-0, etcd-1, etcd-2"), "{}", run.out);
    dir.configure("  etcd: {clusters: []}\n");
    let run = doctor(&dir, "etcd/healthy", &[]);
    assert_eq!((run.code, run.out.as_str()), (2, ""));
    assert!(run.err.contains("no etcd clusters are configured"), "{}", run.err);
}

#[test]
fn reports_entries_that_select_the_same_pods() {
    let dir = dir();
    dir.configure("  etcd: {onLeaderDelete: deny, clusters: [{namespace: db, selector: 'statefulset.kubernetes.io/pod-name in (etcd-0,etcd-1)'}, {namespace: db, selector: app=etcd}]}\n");
    let report = doctor(&dir, "etcd/healthy", &["-o", "json"]).json();
    let overlap = &report["findings"][0];
    assert_eq!(overlap["code"], "overlap", "{report:#}");
    assert_eq!(overlap["what"], "clusters[0] and clusters[1] both select etcd-0, etcd-1 in namespace db");
    // Each pod belongs to one entry and has one verdict.
    let mut ruled: Vec<&str> = Vec::new();
    for cluster in report["clusters"].as_array().unwrap() {
        for member in cluster["members"].as_array().unwrap() {
            if member["deletion"].is_object() {
                ruled.push(member["name"].as_str().unwrap());
            }
        }
    }
    ruled.sort_unstable();
    assert_eq!(ruled, ["etcd-0", "etcd-1", "etcd-2"]);
}

#[test]
fn prints_findings_first_with_complete_commands() {
    let dir = dir();
    let run = doctor(&dir, "etcd/one-down", &[]);
    let (finding, table) = (run.out.find("not-listening"), run.out.find("db/etcd  2 of 3 healthy"));
    assert!(finding.unwrap() < table.unwrap(), "findings come first\n{}", run.out);
    let cut = doctor(&dir, "etcd/unreachable", &[]).out;
    assert!(cut.contains("exec deploy/durward -- durward doctor etcd"), "{cut}");
    fs::remove_file(dir.path().join("etcd/one-down/here/leases.v1.coordination.k8s.io.yaml")).unwrap();
    let unrecorded = doctor(&dir, "etcd/one-down", &[]).out;
    assert!(unrecorded.contains("durward snapshot --out DIR --config durward.yaml"), "{unrecorded}");
    assert!(!unrecorded.contains("manifests"), "{unrecorded}");
}

/// Returns the guard's answer to a review as JSON.
fn review(dir: &TestDir, name: &str, snapshot: &str) -> Value {
    let file = format!("etcd/reviews/{name}.json");
    let run = dir.run(&["review", &file, "--config", "durward.yaml", "--snapshot", snapshot, "-o", "json"]);
    let mut report = run.json();
    // The time varies.
    report[0]["evaluation"]["microseconds"] = 0.into();
    report
}

#[test]
fn a_snapshot_of_etcd_clusters_gives_the_same_verdicts() {
    let dir = dir();
    for (snapshot, code) in [("healthy", 0), ("one-down", 1), ("unreachable", 1)] {
        let (from, out) = (format!("etcd/{snapshot}"), format!("snap-{snapshot}"));
        let run = dir.run(&["snapshot", "--out", &out, "--snapshot", &from, "--config", "durward.yaml"]);
        assert_eq!(run.code, code, "{}", run.err);
        let again = format!("replay with: durward doctor etcd --snapshot {out} --config durward.yaml\n");
        assert!(run.err.ends_with(&again), "{}", run.err);
        assert_eq!(doctor(&dir, &from, &[]).out, doctor(&dir, &out, &[]).out);
        for name in ["etcd-allow", "etcd-leader", "etcd-deny", "etcd-drain", "etcd-dead", "etcd-unknown"] {
            let (first, second) = (review(&dir, name, &from), review(&dir, name, &out));
            assert_eq!(first.to_string(), second.to_string(), "{snapshot} {name}");
            assert!(!first.to_string().contains("not-recorded"), "{first}");
        }
    }
    // Without a fleet, no object of a fleet can be named.
    let run = dir.run(&[
        "snapshot",
        "--out",
        "x",
        "ns/db",
        "--snapshot",
        "etcd/healthy",
        "--config",
        "durward.yaml",
    ]);
    assert_eq!(run.code, 2, "{}", run.err);
}

/// A `StatefulSet` after the one of Kubernetes' own end-to-end tests. Its preStop hook removes the member under a condition.
const MANIFEST: &str = include_str!("../data/etcd-statefulset.yaml");

/// Puts the container of the manifest with this hook into the pods, the `StatefulSet` and the reviews of the examples.
fn apply_manifest(dir: &TestDir, hook: Option<&Value>) {
    let manifest: Value = serde_saphyr::from_str(MANIFEST).unwrap();
    let mut template = manifest["spec"]["template"].clone();
    if let Some(command) = hook {
        template["spec"]["containers"][0]["lifecycle"]["preStop"]["exec"]["command"] = command.clone();
    }
    let container = template["spec"]["containers"][0].clone();
    let edit = |file: &str, change: &dyn Fn(&mut Value)| {
        let text = fs::read_to_string(dir.path().join(file)).unwrap();
        let mut json: Value = serde_saphyr::from_str(&text).unwrap();
        change(&mut json);
        dir.write(file, &json.to_string());
    };
    let use_container = |pod: &mut Value| {
        pod["spec"]["containers"] = json!([container]);
        pod["spec"]["volumes"][0]["name"] = "datadir".into();
    };
    for snapshot in ["healthy", "one-down"] {
        edit(&format!("etcd/{snapshot}/here/pods.v1.yaml"), &|list| {
            list["items"].as_array_mut().unwrap().iter_mut().for_each(use_container);
        });
        edit(&format!("etcd/{snapshot}/here/statefulsets.v1.apps.yaml"), &|list| {
            list["items"][0]["spec"]["template"] = template.clone();
        });
    }
    edit("etcd/reviews/etcd-deny.json", &|review| use_container(&mut review["request"]["oldObject"]));
}

#[test]
fn the_upstream_manifest_has_the_same_verdict_with_every_hook() {
    let shell = |script: &str| json!(["/bin/sh", "-ec", script]);
    let hooks = [
        None,
        Some(json!(["etcdctl", "member", "remove", "8e9e05c52164694d"])),
        Some(shell("etcdctl member remove $(id)")),
        Some(shell("if [ \"$(replicas)\" -lt 3 ]; then etcdctl member remove $(id); fi")),
        Some(shell("# etcdctl member remove is for an administrator\nsleep 5")),
        Some(json!(["/bin/sh", "/scripts/pre-stop.sh"])),
    ];
    let answers = hooks.map(|hook| {
        let dir = dir();
        apply_manifest(&dir, hook.as_ref());
        ["one-down", "healthy"].map(|snapshot| {
            let report = review(&dir, "etcd-deny", &format!("etcd/{snapshot}"));
            (report[0]["verdict"].to_string(), report[0]["message"].to_string())
        })
    });
    let [(one_down, text), (healthy, _)] = &answers[0];
    assert_eq!((one_down.as_str(), healthy.as_str()), ("\"deny\"", "\"allow\""), "{text}");
    assert!(text.contains("1 of 3 members would be left, 2 are needed"), "{text}");
    for other in &answers[1..] {
        assert_eq!(other, &answers[0]);
    }
}

#[test]
fn words_in_a_hook_are_not_a_value() {
    let dir = dir();
    dir.configure("  etcd: {clusters: [{namespace: db, selector: app=etcd, memberOnPodDelete: auto}]}\n");
    let run = dir.run(&["config", "check", "durward.yaml"]);
    assert_eq!(run.code, 2, "{}", run.out);
    assert!(run.err.contains("memberOnPodDelete") && run.err.contains("keep, remove"), "{}", run.err);
}

/// A control plane whose own cluster contains an etcd cluster.
fn both() -> TestDir {
    let dir = dir();
    copy(&root().join("examples/deletion/healthy"), &dir.path().join("both"));
    copy(&dir.path().join("etcd/healthy/here/etcd"), &dir.path().join("both/here/etcd"));
    for name in
        ["pods.v1", "namespaces.v1", "nodes.v1", "statefulsets.v1.apps", "leases.v1.coordination.k8s.io"]
    {
        let read = |directory: &str| -> Option<Value> {
            let text =
                fs::read_to_string(dir.path().join(directory).join(format!("here/{name}.yaml"))).ok()?;
            Some(serde_saphyr::from_str(&text).unwrap())
        };
        let mut list = read("etcd/healthy").unwrap();
        let more = read("both").map(|list| list["items"].as_array().unwrap().clone()).unwrap_or_default();
        list["items"].as_array_mut().unwrap().extend(more);
        for key in ["names", "namespaces"] {
            list.as_object_mut().unwrap().remove(key);
        }
        dir.write(&format!("both/here/{name}.yaml"), &list.to_string());
    }
    dir.configure(&format!("  deletion: {{fleet: karmada, crds: {{apiGroups: [example.org]}}}}\n{GUARD}"));
    dir
}

#[test]
fn a_snapshot_contains_a_fleet_and_its_etcd_clusters() {
    let dir = both();
    for (out, targets) in [("snap-all", &[][..]), ("snap-shop", &["ns/shop", "ns/db"])] {
        let arguments = ["snapshot", "--out", out, "--snapshot", "both", "--config", "durward.yaml"];
        let run = dir.run(&[&arguments[..], targets].concat());
        assert_eq!(run.code, 0, "{}", run.err);
        assert!(run.err.contains("; durward doctor etcd --snapshot"), "{}", run.err);
        let impact = |snapshot: &str, what: &str| {
            dir.run(&["impact", what, "--snapshot", snapshot, "--config", "durward.yaml", "-o", "json"]).out
        };
        for what in ["ns/shop", "ns/db"] {
            assert_eq!(impact("both", what), impact(out, what), "{what}");
        }
        assert_eq!(doctor(&dir, "both", &[]).out, doctor(&dir, out, &[]).out);
        assert_eq!(
            review(&dir, "etcd-leader", "both").to_string(),
            review(&dir, "etcd-leader", out).to_string()
        );
    }
}

#[test]
fn the_etcd_guard_does_not_start_without_a_cluster() {
    let dir = dir();
    let run = dir.run(&["serve", "--config", "durward.yaml"]);
    assert_eq!(run.code, 2, "{}", run.err);
    assert!(run.err.contains("kubeconfig"), "{}", run.err);
}
