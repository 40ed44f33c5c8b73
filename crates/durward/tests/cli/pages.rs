//! Runs each command line of the documentation that needs no cluster.
//!
//! The lines of a page run one after another in a directory of their own, through `bash`. The directory contains the files that
//! pages mention without creating them. `kubectl` is a program that reads its input and does nothing.

use std::fs;
use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Mutex;
use std::{iter, thread};

use crate::harness::{TestDir, copy, root};

/// A configuration with all guards. `FLEET` depends on the line.
const CONFIGURATION: &str = "apiVersion: durward.dev/v1alpha1
kind: Configuration
server: {tls: {files: {cert: tls/tls.crt, key: tls/tls.key, ca: tls/ca.crt}}}
guards:
  deletion: {fleet: FLEET}
  etcd: {clusters: [{namespace: db, selector: app=etcd}]}
  lxcfs: {}
";

/// Commands that read or change a cluster, unless they read a snapshot or are a dry run.
const NEED_A_CLUSTER: [&str; 6] = ["snapshot", "impact", "doctor", "override", "acknowledge", "unregister"];

/// Commands that serve until they are stopped. Tests of these commands exist elsewhere.
const SERVERS: [&str; 2] = ["serve", "demo"];

/// Directories outside the test's own, and their substitutes.
const OUTSIDE: [(&str, &str); 3] =
    [("/etc/bash_completion.d/", "./"), ("/usr/local/bin/", "./"), ("/usr/local/share/man/man1", "./man1")];

/// Number of pages that run at the same time.
const THREADS: usize = 4;

#[test]
fn runs_the_command_lines_of_the_documentation() {
    let mut pages = vec![root().join("README.md"), root().join("examples/README.md")];
    collect(&root().join("docs/src"), &mut pages);
    let pages = Mutex::new(pages.into_iter());
    let run_pages = || {
        let next_page = || pages.lock().unwrap().next();
        iter::from_fn(next_page).map(|page| run_page(&page)).collect::<Vec<_>>()
    };
    let results: Vec<(usize, Vec<String>)> = thread::scope(|scope| {
        let threads = [(); THREADS].map(|()| scope.spawn(run_pages));
        threads.into_iter().flat_map(|thread| thread.join().unwrap()).collect()
    });
    let problems: Vec<String> = results.iter().flat_map(|(_, problems)| problems.clone()).collect();
    assert!(problems.is_empty(), "{}", problems.join("\n"));
    let count: usize = results.iter().map(|(count, _)| count).sum();
    assert!(count > 60, "only {count} command lines were run");
}

/// Runs the lines of a page. Returns their number and the problems.
fn run_page(page: &Path) -> (usize, Vec<String>) {
    let lines = commands(&fs::read_to_string(page).unwrap());
    if lines.is_empty() {
        return (0, Vec::new());
    }
    let files = TestDir::new();
    let directory = files.path().join("project");
    prepare(&directory, files.path());
    let problems = lines.iter().filter_map(|line| run(&directory, line, page)).collect();
    (lines.len(), problems)
}

fn collect(directory: &Path, pages: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(directory).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            collect(&path, pages);
        } else if path.extension().is_some_and(|extension| extension == "md") {
            pages.push(path);
        }
    }
}

/// Returns the lines of console blocks that call `durward` and need no cluster.
fn commands(page: &str) -> Vec<String> {
    let mut found = Vec::new();
    let mut is_console = false;
    for line in page.lines().map(str::trim_start) {
        if let Some(fence) = line.strip_prefix("```") {
            is_console = fence.starts_with("console");
        }
        let Some(call) = line.strip_prefix("$ ").filter(|_| is_console) else { continue };
        let Some(arguments) = call.strip_prefix("durward ") else { continue };
        let is_one_of = |names: &[&str]| names.iter().any(|name| arguments.starts_with(name));
        let is_offline = arguments.contains("--snapshot ") || arguments.contains(" --dry-run");
        if !is_one_of(&SERVERS) && (is_offline || !is_one_of(&NEED_A_CLUSTER)) {
            found.push(call.to_owned());
        }
    }
    found
}

/// Makes the directory of a page. `files` contains certificates.
fn prepare(directory: &Path, files: &Path) {
    let bin = directory.join("bin");
    fs::create_dir_all(&bin).unwrap();
    symlink(env!("CARGO_BIN_EXE_durward"), bin.join("durward")).unwrap();
    fs::write(bin.join("kubectl"), "#!/bin/sh\ncat > /dev/null\n").unwrap();
    fs::set_permissions(bin.join("kubectl"), fs::Permissions::from_mode(0o755)).unwrap();
    configure(directory, "none");
    for (file, example) in [
        ("examples", "examples"),
        ("incident", "examples/deletion/healthy"),
        ("manifests", "examples/kubernetesclusters/after"),
        ("../main/manifests", "examples/kubernetesclusters/before"),
    ] {
        copy(&root().join(example), &directory.join(file));
    }
    for certificates in ["tls", "certs"] {
        fs::create_dir(directory.join(certificates)).unwrap();
        for file in ["ca.crt", "ca.key", "tls.crt", "tls.key"] {
            fs::copy(files.join(file), directory.join(certificates).join(file)).unwrap();
        }
    }
    fs::create_dir(directory.join("policies")).unwrap();
    for file in ["policy.yaml", "crd.yaml"] {
        let from = root().join("examples/kubernetesclusters").join(file);
        fs::copy(from, directory.join("policies").join(file)).unwrap();
    }
    for file in ["pod.yaml", "deployment.yaml"] {
        fs::copy(root().join("examples/lxcfs/pods/web.yaml"), directory.join(file)).unwrap();
    }
}

fn configure(directory: &Path, fleet: &str) {
    fs::write(directory.join("durward.yaml"), CONFIGURATION.replace("FLEET", fleet)).unwrap();
}

/// Runs a line and returns the problem, if there is one.
fn run(directory: &Path, line: &str, page: &Path) -> Option<String> {
    // A page that makes its own directory replaces the prepared one.
    if let Some((_, after)) = line.split_once("--out ") {
        let _ = fs::remove_dir_all(directory.join(after.split(' ').next().unwrap_or_default()));
    }
    if ["--target karmada", ",members", "--only members"].iter().any(|part| line.contains(part)) {
        configure(directory, "karmada");
    }
    let line = OUTSIDE.iter().fold(line.to_owned(), |line, (path, own)| line.replace(path, own));
    let path = format!("{}:{}", directory.join("bin").display(), std::env::var("PATH").unwrap());
    let output = Command::new("bash")
        .args(["-o", "pipefail", "-c", &line])
        .current_dir(directory)
        .env("PATH", path)
        .env("HOME", directory)
        .env_remove("KUBECONFIG")
        .output()
        .unwrap();
    let error = String::from_utf8(output.stderr).unwrap();
    // Exit codes 1 and 3 are verdicts. Exit code 2 is bad input.
    let is_good = matches!(output.status.code(), Some(0 | 1 | 3)) && !error.contains("error:");
    (!is_good).then(|| format!("{}: {line}: {:?}: {error}", page.display(), output.status.code()))
}
