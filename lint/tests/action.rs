//! The GitHub Action of this repository: its steps install a local archive instead of a release, and call a substitute for `durward`.
#![allow(clippy::unwrap_used, reason = "a test fails by it")]

use std::collections::BTreeMap;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::{env, fs};

const VERSION: &str = env!("CARGO_PKG_VERSION");

/// Copies the files of a URL from the directory `release`. The arguments are those of scripts/action.sh.
const CURL: &str = "#!/bin/bash
while [ $# -gt 0 ]; do case $1 in --remote-name) cp \"$RELEASE/${2##*/}\" . || exit 22; echo \"$2\" >>\"$RELEASE/urls\"; shift ;; esac; shift; done";

/// Prints its arguments, one a line.
const DURWARD: &str = "#!/bin/bash\nprintf '%s\\n' \"$@\"";

#[test]
fn installs_a_release_and_checks_with_the_inputs() {
    let action = Action::new("action");
    let installed = action.run(0, &[("VERSION", "")]);
    assert!(installed.status.success(), "{}", text(&installed));
    let urls = fs::read_to_string(action.0.join("release/urls")).unwrap();
    let url = format!("https://github.com/durward/durward/releases/download/v{VERSION}");
    assert_eq!(urls, format!("{url}/SHA256SUMS\n{url}/durward-{VERSION}-linux-amd64.tar.gz\n"));

    let inputs =
        [("PATHS", "manifests/ a$(b).yaml"), ("POLICIES", "policies/\ncrds/"), ("ARGUMENTS", "-o github")];
    let checked = action.run(1, &inputs);
    assert!(checked.status.success(), "{}", text(&checked));
    let expected = "check manifests/ a$(b).yaml --with policies/ --with crds/ -o github";
    assert_eq!(text(&checked).lines().collect::<Vec<_>>(), expected.split(' ').collect::<Vec<_>>());
    let checked = action.run(1, &[("PATHS", "."), ("POLICIES", ""), ("ARGUMENTS", "")]);
    assert_eq!(text(&checked), "check\n.\n");
}

#[test]
fn a_damaged_archive_and_an_unknown_release_are_errors() {
    let action = Action::new("damaged");
    let archive = action.0.join(format!("release/durward-{VERSION}-linux-amd64.tar.gz"));
    fs::write(archive, "other bytes").unwrap();
    for (version, expected) in [(VERSION, "is damaged"), ("v0.0.1", "is 0.0.1 a release?")] {
        let output = action.run(0, &[("VERSION", version)]);
        assert!(!output.status.success() && text(&output).contains(expected), "{}", text(&output));
        assert!(!action.0.join("path").exists(), "the program is in the PATH");
    }
}

/// A directory with a release, and with what a runner gives to a step.
struct Action(PathBuf);

impl Action {
    fn new(test: &str) -> Self {
        let directory = Path::new(env!("CARGO_TARGET_TMPDIR")).join(test);
        drop(fs::remove_dir_all(&directory));
        for name in ["bin", "release", "temp"] {
            fs::create_dir_all(directory.join(name)).unwrap();
        }
        for (path, program) in [("bin/curl", CURL), ("release/durward", DURWARD)] {
            fs::write(directory.join(path), program).unwrap();
            fs::set_permissions(directory.join(path), fs::Permissions::from_mode(0o755)).unwrap();
        }
        let archive = format!("durward-{VERSION}-linux-amd64.tar.gz");
        let pack = format!("tar -czf {archive} durward && sha256sum {archive} >SHA256SUMS");
        let release = directory.join("release");
        let output = Command::new("bash").args(["-c", &pack]).current_dir(release).output().unwrap();
        assert!(output.status.success(), "{}", text(&output));
        Self(directory)
    }

    /// Runs a step of `action.yml` with inputs, as a runner with Linux does.
    fn run(&self, step: usize, inputs: &[(&str, &str)]) -> Output {
        let action = fs::read_to_string(root().join("action.yml")).unwrap();
        let (command, variables) = steps(&action).swap_remove(step);
        let mut path = format!("{}:{}", self.0.join("bin").display(), env::var("PATH").unwrap());
        if let Ok(added) = fs::read_to_string(self.0.join("path")) {
            path = format!("{}:{path}", added.trim_end());
        }
        let mut command_of = Command::new("bash");
        command_of.args(["-eo", "pipefail", "-c", &command]).current_dir(&self.0).env("PATH", path);
        command_of.env("GITHUB_ACTION_PATH", root()).env("GITHUB_PATH", self.0.join("path"));
        command_of
            .env("RUNNER_OS", "Linux")
            .env("RUNNER_ARCH", "X64")
            .env("RUNNER_TEMP", self.0.join("temp"));
        command_of.env("RELEASE", self.0.join("release"));
        assert_eq!(variables.len(), inputs.len(), "{variables:?}");
        for (name, value) in inputs {
            assert_eq!(variables[*name], format!("${{{{ inputs.{} }}}}", name.to_lowercase()));
            command_of.env(name, value);
        }
        command_of.output().unwrap()
    }
}

/// Returns the command and the environment of each step.
fn steps(action: &str) -> Vec<(String, BTreeMap<String, String>)> {
    let mut steps = Vec::new();
    for line in action.lines() {
        if let Some(command) = line.trim().strip_prefix("run: ") {
            steps.push((command.to_owned(), BTreeMap::new()));
        } else if let (Some((_, variables)), Some((name, value))) =
            (steps.last_mut(), line.trim().split_once(": "))
            && line.contains("${{")
        {
            variables.insert(name.to_owned(), value.to_owned());
        }
    }
    steps
}

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap()
}

fn text(output: &Output) -> String {
    String::from_utf8_lossy(&[&output.stdout[..], &output.stderr[..]].concat()).into_owned()
}
