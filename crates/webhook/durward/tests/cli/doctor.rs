//! `doctor` without a part, and what it refuses.

use std::os::unix::fs::PermissionsExt as _;

use crate::harness::{TestDir, durward, root};

const BOTH: &str = "  deletion: {fleet: karmada, crds: {apiGroups: [example.org]}}\n  etcd: {clusters: [{namespace: db, selector: app=etcd}]}\n";

#[test]
fn doctor_checks_all_parts_of_the_configuration_and_prints_their_state_first() {
    let dir = TestDir::new();
    dir.configure(BOTH);
    let fleet = root().join("examples/deletion/healthy");
    let snapshot = ["--snapshot", fleet.to_str().unwrap()];
    let run = dir.run(&[&["doctor", "--config", "durward.yaml"], &snapshot[..]].concat());
    assert_eq!(run.code, 1, "{}{}", run.out, run.err);
    // That snapshot has no etcd pods.
    assert!(run.out.starts_with("fleet    ok\netcd     "), "{}", run.out);
    assert!(
        run.out.contains("\nfleet\nDurward can check 4 of 4 clusters\nno problems found\n"),
        "{}",
        run.out
    );
    assert!(run.out.contains("\netcd\nno etcd cluster found\n"), "{}", run.out);
    let json = dir.run(&[&["doctor", "-c", "durward.yaml", "-o", "json"], &snapshot[..]].concat()).json();
    assert_eq!(json["fleet"]["clusters"].as_array().unwrap().len(), 4);
    assert_eq!(json["etcd"]["findings"][0]["code"], "no-pods");
    assert!(json.get("install").is_none(), "a snapshot has no webhook configurations");
}

#[test]
fn doctor_exits_with_three_if_a_part_could_not_be_checked() {
    let dir = TestDir::new();
    dir.configure(BOTH);
    let run = dir.run(&["doctor", "--config", "durward.yaml", "--snapshot", "missing"]);
    assert_eq!(run.code, 3, "{}{}", run.out, run.err);
    assert!(
        run.out.starts_with("fleet    could not be checked\netcd     could not be checked\n"),
        "{}",
        run.out
    );
    assert!(run.out.contains("(unchecked)"), "{}", run.out);
}

#[test]
fn doctor_refuses_what_it_cannot_check() {
    let dir = TestDir::new();
    dir.configure("  resources: {policies: []}\n");
    let alone = durward(&["doctor", "etcd"]);
    assert_eq!(alone.code, 2);
    assert!(alone.err.contains("needs the configuration file"), "{}", alone.err);
    for (arguments, problem) in [
        (&["--local"][..], "--local checks LXCFS only"),
        (
            &["install", "--config", "durward.yaml", "--snapshot", "snapshot"],
            "a snapshot has no webhook configurations",
        ),
        (
            &["--config", "durward.yaml", "--snapshot", "snapshot"],
            "turns on no part that a snapshot contains",
        ),
    ] {
        let run = dir.run(&[&["doctor"], arguments].concat());
        assert_eq!(run.code, 2, "{arguments:?}: {}", run.err);
        assert!(run.err.contains(problem), "{arguments:?}: {}", run.err);
    }
}

/// A `kubectl` that prints what it is called with, and the name of one Deployment.
const KUBECTL: &str = "#!/bin/sh
echo \"$@\" >>called
case \"$*\" in *get*) echo deployment.apps/guard ;; *) echo checked; exit 3 ;; esac
";

#[test]
fn doctor_runs_in_the_pod_of_a_namespace() {
    let dir = TestDir::new();
    dir.write("kubectl", KUBECTL);
    let program = dir.path().join("kubectl");
    std::fs::set_permissions(&program, std::fs::Permissions::from_mode(0o755)).unwrap();
    let path = format!("{}:{}", dir.path().display(), std::env::var("PATH").unwrap());
    let output = std::process::Command::new(env!("CARGO_BIN_EXE_durward"))
        .args(["doctor", "etcd", "-n", "system", "--context", "east", "-o", "json"])
        .current_dir(dir.path())
        .env("PATH", path)
        .output()
        .unwrap();
    assert_eq!((output.status.code(), output.stdout.as_slice()), (Some(3), &b"checked\n"[..]));
    let called = std::fs::read_to_string(dir.path().join("called")).unwrap();
    let lines: Vec<&str> = called.lines().collect();
    assert_eq!(
        lines,
        [
            "--namespace system --context east get deployments --selector app.kubernetes.io/name=durward --output name",
            "--namespace system --context east exec deployment.apps/guard -- durward doctor etcd --output json",
        ]
    );
}

#[test]
fn doctor_watches_etcd_only() {
    let run = durward(&["doctor", "--watch"]);
    assert_eq!(run.code, 2);
    assert!(run.err.contains("durward doctor etcd --watch"), "{}", run.err);
}
