//! Paths that block or never end: each command reports them and exits.

use std::process::Command;

use rustix::process::Signal;

use crate::harness::{Run, Serving, TestDir, durward_in, example};

/// Longer than any of these commands takes.
const SECONDS: &str = "20";

fn dir() -> TestDir {
    let dir = TestDir::new();
    let made = Command::new("mkfifo").arg(dir.path().join("pipe")).status().unwrap();
    assert!(made.success());
    dir
}

/// Runs a command with limits on time and memory, to protect the machine.
fn bounded(dir: &TestDir, arguments: &[&str]) -> Run {
    let script = format!("ulimit -v 4000000; exec timeout {SECONDS} \"$0\" \"$@\"");
    let output = Command::new("sh")
        .args(["-c", &script, env!("CARGO_BIN_EXE_durward")])
        .args(arguments)
        .current_dir(dir.path())
        .env("HOME", dir.path())
        .env_remove("KUBECONFIG")
        .stdin(std::process::Stdio::null())
        .output()
        .unwrap();
    Run {
        code: output.status.code().unwrap_or(-1),
        out: String::from_utf8(output.stdout).unwrap(),
        err: String::from_utf8(output.stderr).unwrap(),
    }
}

#[test]
fn reports_pipes_devices_and_directories_without_hanging() {
    let dir = dir();
    let files = |cert: &str, key: &str, ca: &str| {
        format!(
            "apiVersion: durward.dev/v1alpha1\nkind: Configuration\nguards: {{lxcfs: {{}}}}\nserver: {{tls: {{files: {{cert: {cert}, key: {key}, ca: {ca}}}}}}}\n"
        )
    };
    dir.write("cert.yaml", &files("pipe", "tls.key", "ca.crt"));
    dir.write("key.yaml", &files("tls.crt", "/dev/zero", "ca.crt"));
    dir.write("ca.yaml", &files("tls.crt", "tls.key", "pipe"));
    dir.write("cluster.yaml", &format!("kubeconfig: pipe\n{}", files("tls.crt", "tls.key", "ca.crt")));
    let note = "write its content to a file and use that file";
    for (arguments, expected, next) in [
        (&["config", "check", "pipe"][..], "the configuration file pipe cannot be read: it is a pipe", note),
        (&["config", "check", "/dev/zero"], "/dev/zero cannot be read: it is a device, not a file", note),
        (&["config", "check", "snapshot"], "snapshot cannot be read: it is a directory", "name a file in it"),
        (
            &["config", "check", "cert.yaml"],
            "cert.yaml:4:30: server.tls.files.cert: pipe: it is a pipe",
            note,
        ),
        (&["config", "check", "key.yaml"], "server.tls.files.key: /dev/zero: it is a device", note),
        (&["config", "check", "cluster.yaml"], "cluster.yaml:1:13: kubeconfig: pipe: it is a pipe", note),
        (&["manifests", "--config", "ca.yaml"], "server.tls.files.ca: pipe: it is a pipe", note),
        (&["review", "pipe", "--config", "durward.yaml"], "pipe cannot be read: it is a pipe", note),
        (&["review", "/dev/zero", "--config", "durward.yaml"], "it is a device", note),
        (&["inject", "pipe", "--config", "durward.yaml"], "pipe cannot be read: it is a pipe", note),
        (&["review", "--config", "durward.yaml", "--snapshot", "pipe"], "pipe", "a snapshot is a directory"),
        (
            &["serve", "--config", "durward.yaml", "--kubeconfig", "pipe"],
            "kubeconfig pipe cannot be read",
            note,
        ),
        (
            &["serve", "--config", "durward.yaml", "--snapshot", "snapshot", "--tls-cert", "pipe"],
            "the serving certificate cannot be used (pipe): cannot be read: it is a pipe",
            "fix pipe",
        ),
    ] {
        let run = bounded(&dir, arguments);
        assert_eq!((run.code, run.out.as_str()), (2, ""), "{arguments:?} {}", run.err);
        assert!(run.err.contains(expected) && run.err.contains(next), "{arguments:?}: {}", run.err);
    }
}

#[test]
fn checks_default_kubeconfigs_too() {
    let dir = dir();
    std::fs::create_dir(dir.path().join(".kube")).unwrap();
    std::fs::rename(dir.path().join("pipe"), dir.path().join(".kube/config")).unwrap();
    let run = bounded(&dir, &["serve", "--config", "durward.yaml"]);
    assert_eq!(run.code, 2, "{}", run.err);
    assert!(run.err.contains(".kube/config cannot be read: it is a pipe"), "{}", run.err);
}

#[test]
fn rejects_files_that_are_too_large() {
    let dir = dir();
    std::fs::File::create(dir.path().join("large.yaml")).unwrap().set_len((1 << 20) + 1).unwrap();
    std::fs::File::create(dir.path().join("larger.json")).unwrap().set_len((64 << 20) + 1).unwrap();
    for (arguments, expected) in [
        (&["config", "check", "large.yaml"][..], "large.yaml cannot be read: it is larger than 1 MiB"),
        (
            &["review", "larger.json", "--config", "durward.yaml"],
            "larger.json cannot be read: it is larger than 64 MiB",
        ),
    ] {
        let run = bounded(&dir, arguments);
        assert_eq!(run.code, 2, "{arguments:?} {}", run.err);
        assert!(run.err.contains(expected), "{}", run.err);
    }
    let input = " ".repeat((64 << 20) + 1);
    let run = durward_in(dir.path(), &["review", "-", "--config", "durward.yaml"], &input);
    assert_eq!(run.code, 2);
    assert!(run.err.contains("standard input cannot be read: it is larger than 64 MiB"), "{}", run.err);
}

#[test]
fn keeps_serving_if_the_configuration_becomes_a_pipe() {
    let dir = dir();
    let mut serving = dir.serve(&[]);
    std::fs::rename(dir.path().join("pipe"), dir.path().join("durward.yaml")).unwrap();
    serving.signal(Signal::HUP);
    let readyz = || Serving::get(serving.metrics, "/readyz?verbose");
    serving.wait_until("readyz tells", || readyz().contains("durward.yaml cannot be read: it is a pipe"));
    assert!(serving.client().ask("/lxcfs", &example("lxcfs-mutate.json")).1["response"]["patch"].is_string());
    serving.signal(Signal::TERM);
    assert_eq!(serving.wait().code(), Some(0));
}
