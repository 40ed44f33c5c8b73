//! Help, versions, completions, man pages, and the demo.

use std::io::{BufRead as _, BufReader};
use std::process::Child;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};

use crate::harness::{durward, durward_in};

#[test]
fn prints_help_to_stdout_and_problems_to_stderr() {
    let help = durward(&["--help"]);
    assert_eq!((help.code, help.err.as_str()), (0, ""));
    assert!(help.out.contains("durward demo"));
    let wrong = durward(&["srve"]);
    assert_eq!((wrong.code, wrong.out.as_str()), (2, ""));
    assert!(wrong.err.starts_with("error: unknown command \"srve\": did you mean serve?"), "{}", wrong.err);
    for later in ["register", "export"] {
        let run = durward(&[later]);
        assert_eq!(run.code, 2, "{later}");
        assert!(run.err.contains(&format!("unknown command {later:?}")), "{later} exists: {}", run.err);
    }
    let delete = durward(&["delete"]).err;
    assert!(delete.ends_with("to preview a deletion: durward impact ns/NAME\n"), "{delete}");
    let nothing = durward(&[]);
    assert_eq!((nothing.code, nothing.out.as_str()), (2, ""));
    assert!(nothing.err.contains("Usage") && nothing.err.contains("\nSetup:\n  demo "), "{}", nothing.err);
}

#[test]
fn runs_the_first_steps_of_the_help() {
    let directory = tempfile::tempdir().unwrap();
    let help = durward(&["--help"]).out;
    let (_, then) = help.split_once("Run it without a cluster:\n").unwrap();
    let mut lines: Vec<_> = then.lines().map(str::trim).filter(|line| !line.is_empty()).collect();
    assert_eq!(lines.pop(), Some("durward serve --config durward.yaml"), "{help}");
    assert_eq!(lines.len(), 3, "{help}");
    for line in lines {
        let (command, file) = line.split_once(" > ").unwrap_or((line, ""));
        let words: Vec<_> = command.split(' ').collect();
        assert_eq!(words[0], "durward");
        let run = durward_in(directory.path(), &words[1..], "");
        assert_eq!(run.code, 0, "{line}: {}", run.err);
        if !file.is_empty() {
            std::fs::write(directory.path().join(file), run.out).unwrap();
        }
    }
}

#[test]
fn every_command_has_an_example() {
    for command in [
        &["demo"][..],
        &["serve"],
        &["review"],
        &["inject"],
        &["manifests"],
        &["config", "init"],
        &["config", "schema"],
        &["config", "check"],
        &["config", "defaults"],
        &["certs", "new"],
        &["certs", "csr"],
        &["impact"],
        &["snapshot"],
        &["doctor"],
        &["completions"],
        &["man"],
        &["version"],
    ] {
        let run = durward(&[command, &["--help"]].concat());
        assert_eq!(run.code, 0);
        assert!(run.out.contains("Example"), "{command:?}: {}", run.out);
    }
}

#[test]
fn prints_the_version_and_refuses_what_was_removed() {
    assert!(durward(&["version"]).out.starts_with("durward "));
    let version = durward(&["version", "-o", "json"]).json();
    assert_eq!(version["guards"], serde_json::json!(["deletion", "lxcfs", "etcd", "resources"]));
    assert_eq!(version["reviewVersions"][1], "v1beta1");
    let removed = durward(&["guards"]);
    assert_eq!(removed.code, 2);
    assert!(removed.err.contains("command \"guards\" was removed"), "{}", removed.err);
    assert!(removed.err.contains("durward config check FILE"), "{}", removed.err);
    for (command, text) in [
        (&["certs", "show", "tls"][..], "command \"certs show\" was removed"),
        (&["unregister", "--delete"], "flag \"--delete\" was removed"),
    ] {
        let removed = durward(command);
        assert!(removed.err.contains(text), "{}", removed.err);
    }
}

#[test]
fn generates_completions_and_man_pages() {
    assert!(durward(&["completions", "bash"]).out.contains("certs"));
    assert!(durward(&["completions", "fish"]).out.contains("review"));
    let script = durward(&["completions", "--kubectl"]).out;
    assert!(
        script.starts_with("#!/bin/sh\n") && script.contains("kubectl-durward __complete \"$@\""),
        "{script}"
    );
    assert!(durward(&["__complete", "rev"]).out.starts_with("review\t"));
    assert_eq!(durward(&["completions"]).code, 2);
    assert!(durward(&["man"]).out.contains(".TH durward"));
    let directory = tempfile::tempdir().unwrap();
    let man = durward_in(directory.path(), &["man", "--out", "man1"], "");
    assert_eq!(man.code, 0);
    assert!(directory.path().join("man1/durward-certs-new.1").is_file(), "{}", man.out);
    assert!(!man.out.contains("__complete"));
}

#[test]
fn runs_the_demo_and_removes_its_directory() {
    let directory = tempfile::tempdir().unwrap();
    let run = std::process::Command::new(env!("CARGO_BIN_EXE_durward"))
        .arg("demo")
        .env("TMPDIR", directory.path())
        .output();
    let run = run.unwrap();
    let out = String::from_utf8(run.stdout).unwrap();
    assert_eq!(run.status.code(), Some(0), "{out}");
    assert!(out.contains("every verdict as expected"));
    for verdict in [
        "allowed (",
        "allowed, with changes",
        "denied (",
        "allowed: could not check",
        "denied: could not check",
    ] {
        assert!(out.contains(&format!("\n    {verdict}")), "{verdict}: {out}");
    }
    assert!(out.lines().count() <= 100, "{} lines: {out}", out.lines().count());
    assert!(!out.contains('\u{1b}'), "colors without a terminal");
    assert_eq!(std::fs::read_dir(directory.path()).unwrap().count(), 0, "something is left behind");
    assert_eq!(durward(&["demo", "--scenario", "lxcfs", "-q"]).err, "");
    let wrong = durward(&["demo", "--scenario", "moon"]);
    assert_eq!(wrong.code, 2);
    assert!(
        wrong.err.contains("invalid value \"moon\" for --scenario <NAME>: must be one of: deletion, lxcfs, etcd, resources\n    see: durward demo --help"),
        "{}",
        wrong.err
    );
    assert!(durward(&["demo", "--help"]).out.contains("[possible values: deletion, lxcfs, etcd, resources]"));
    let notes = String::from_utf8(run.stderr).unwrap();
    let command = format!("  {} impact ", env!("CARGO_BIN_EXE_durward"));
    let next = notes.lines().find(|line| line.starts_with(&command)).expect(&notes);
    let words: Vec<_> = next.split_whitespace().skip(1).collect();
    assert_eq!(durward(&words).code, 1, "the line that it ends with can be run, and shop is in use: {next}");
}

#[test]
fn an_interrupted_demo_removes_its_directory() {
    let directory = tempfile::tempdir().unwrap();
    let entries = || std::fs::read_dir(directory.path()).unwrap().count();
    let start = |arguments: &[&str]| {
        let mut command = std::process::Command::new(env!("CARGO_BIN_EXE_durward"));
        command.args(arguments).env("TMPDIR", directory.path());
        command.stdout(std::process::Stdio::piped()).stderr(std::process::Stdio::piped());
        command.spawn().unwrap()
    };
    let interrupt = |child: &Child| {
        kill_process(Pid::from_raw(i32::try_from(child.id()).unwrap()).unwrap(), Signal::INT).unwrap();
    };

    // The interrupt arrives early, when little more than the directory exists. On a busy machine the demo can end first.
    let was_interrupted = (0..20).any(|_| {
        let child = start(&["demo"]);
        let began = Instant::now();
        while entries() == 0 && began.elapsed() < Duration::from_secs(30) {
            std::thread::yield_now();
        }
        interrupt(&child);
        let ended = child.wait_with_output().unwrap();
        let error = String::from_utf8(ended.stderr).unwrap();
        assert_eq!(entries(), 0, "something is left behind: {error}");
        match ended.status.code() {
            Some(0) => false,
            code => {
                assert_eq!((code, error.as_str()), (Some(1), "error: the demo was interrupted\n"));
                true
            }
        }
    });
    assert!(was_interrupted);

    // The same while it keeps serving.
    let mut child = start(&["demo", "--keep"]);
    let lines = BufReader::new(child.stdout.take().unwrap()).lines();
    assert!(lines.map_while(Result::ok).any(|line| line.starts_with("The server is running.")));
    assert_eq!(entries(), 1);
    interrupt(&child);
    assert_eq!(child.wait().unwrap().code(), Some(0));
    assert_eq!(entries(), 0, "something is left behind");
}

#[test]
fn succeeds_if_standard_output_is_closed() {
    let (reader, writer) = std::io::pipe().unwrap();
    // Closed before the first output, because a small output would fit into the pipe.
    drop(reader);
    let run = std::process::Command::new(env!("CARGO_BIN_EXE_durward"))
        .args(["config", "schema"])
        .stdout(writer)
        .output()
        .unwrap();
    assert_eq!((run.status.code(), String::from_utf8(run.stderr).unwrap().as_str()), (Some(0), ""));

    let full = std::fs::File::options().write(true).open("/dev/full").unwrap();
    let run = std::process::Command::new(env!("CARGO_BIN_EXE_durward"))
        .args(["config", "schema"])
        .stdout(full)
        .output()
        .unwrap();
    assert_eq!(run.status.code(), Some(1), "a full disk is a fault");
    assert!(String::from_utf8(run.stderr).unwrap().contains("error: standard output cannot be written"));
}

#[test]
fn names_kubectl_when_run_as_its_plugin() {
    let directory = tempfile::tempdir().unwrap();
    let plugin = directory.path().join("kubectl-durward");
    std::os::unix::fs::symlink(env!("CARGO_BIN_EXE_durward"), &plugin).unwrap();
    let run = std::process::Command::new(plugin).arg("serve").output().unwrap();
    assert!(String::from_utf8(run.stderr).unwrap().contains("usage: kubectl durward serve"));
    let snapshot = crate::harness::root().join("examples/deletion/healthy");
    let plugin = directory.path().join("kubectl-durward");
    let run = std::process::Command::new(plugin)
        .args(["impact", "ns/docs", "--snapshot"])
        .arg(snapshot)
        .output()
        .unwrap();
    assert_eq!(run.status.code(), Some(0));
    assert!(String::from_utf8(run.stdout).unwrap().starts_with("ns/docs  can be deleted"));
}
