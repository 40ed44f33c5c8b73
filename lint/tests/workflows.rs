//! The workflows of `.github/workflows`, which can't run here. Each of their steps is known, and a test runs each command of this
//! repository. Substitutes stand in for programs that need the internet or hours.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test fails by them")]

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::{env, fs};

/// Commands of this repository in `run:`, and the file and the text that show what runs them.
const OURS: [(&str, &str, &str); 12] = [
    ("make lint", ".ci/run", "exec make lint test"),
    ("make test", ".ci/run", "exec make lint test"),
    ("make dist dist-check", "Makefile", "\tIMAGES= scripts/dist.sh\n"),
    ("make docs", HERE, "fn the_book_is_built_by_the_pinned_mdbook"),
    ("make advisories", HERE, "fn advisories_are_checked"),
    ("make fuzz FUZZ_SECONDS=1200 NIGHTLY=nightly-2026-05-20", HERE, "fn every_fuzz_target_is_run"),
    (
        "target/dist/durward check examples/kubernetesclusters/cases.yaml --with examples/kubernetesclusters/crd.yaml --with examples/kubernetesclusters/policy.yaml",
        "docs/src/check/index.md",
        "$ durward check examples/kubernetesclusters/cases.yaml --with examples/kubernetesclusters/crd.yaml --with examples/kubernetesclusters/policy.yaml\n0 documents",
    ),
    ("scripts/dist.sh index dist cli", HERE, "fn a_release_has_the_images_of_both_architectures"),
    ("scripts/release.sh tag", HERE, "fn a_tag_that_is_not_the_version_or_not_on_main_is_refused"),
    ("scripts/release.sh images dist", HERE, "fn images_are_pushed_and_signed_by_digest"),
    ("scripts/release.sh chart dist", HERE, "fn the_chart_is_pushed_and_signed_by_digest"),
    ("scripts/release.sh publish dist", HERE, "fn the_release_contains_the_signature_of_the_checksums"),
];

/// Commands of other programs.
const OTHERS: [&str; 4] = [
    "cargo check --locked -p durward",
    "cargo build --locked --profile dist -p durward",
    "git config --global --add safe.directory \"$GITHUB_WORKSPACE\"",
    "rustup toolchain install nightly-2026-05-20 --profile minimal",
];

const HERE: &str = "lint/tests/workflows.rs";

const VERSION: &str = env!("CARGO_PKG_VERSION");

const IMAGES: &str = "ghcr.example.com/team";

const NAMES: [&str; 2] = ["durward", "durward-node"];

const ARCHITECTURES: [&str; 2] = ["amd64", "arm64"];

/// The systems that only have the command line, and its file there.
const SYSTEMS: [(&str, &str); 3] =
    [("darwin-amd64", "durward"), ("darwin-arm64", "durward"), ("windows-amd64", "durward.exe")];

#[test]
fn a_test_runs_each_command_of_a_workflow() {
    let mut used = BTreeSet::new();
    for (file, line) in workflow_lines() {
        let Some(command) = step(&line, "run: ") else { continue };
        used.insert(command.to_owned());
        let is_known = OURS.iter().any(|(ours, ..)| *ours == command) || OTHERS.contains(&command);
        assert!(is_known, "{file}: a test must run `{command}`, and OURS must name it");
    }
    for (command, file, text) in OURS {
        assert!(used.remove(command), "no workflow runs `{command}`");
        let content = fs::read_to_string(root().join(file)).unwrap();
        assert!(content.contains(text), "{file} does not contain {text:?}, which runs `{command}`");
    }
    for command in OTHERS {
        assert!(used.remove(command), "no workflow runs `{command}`");
    }
    assert!(used.is_empty(), "{used:?}");
}

#[test]
fn actions_and_containers_are_pinned_and_tokens_are_not_kept() {
    for (file, line) in workflow_lines() {
        if let Some(action) = step(&line, "uses: ") {
            let (name, version) =
                action.split_once(" # v").unwrap_or_else(|| panic!("{file}: {action} has no version"));
            let commit = name.split_once('@').map_or("", |(_, commit)| commit);
            assert!(commit.len() == 40 && is_hex(commit), "{file}: {action} is not pinned by a commit");
            assert!(version.split('.').count() == 3, "{file}: {action}");
        }
        if let Some(image) = line.trim().strip_prefix("image: ").or(line.trim().strip_prefix("container: ")) {
            let digest = image.split_once("@sha256:").map_or("", |(_, digest)| digest);
            assert!(digest.len() == 64 && is_hex(digest), "{file}: {image} is not pinned by a digest");
        }
    }
    for path in workflows() {
        let text = fs::read_to_string(&path).unwrap();
        assert!(text.contains("\npermissions: {}\n"), "{}: jobs inherit permissions", path.display());
        let (checkouts, without) =
            (text.matches("actions/checkout@"), text.matches("persist-credentials: false"));
        assert_eq!(checkouts.count(), without.count(), "{}: a checkout keeps its token", path.display());
    }
}

/// A release is built only from a commit whose tests pass, and published only with the environment's approval.
#[test]
fn a_release_needs_green_tests_and_the_environment() {
    let text = fs::read_to_string(root().join(".github/workflows/release.yaml")).unwrap();
    let job = |name: &str| {
        let start = text.find(&format!("\n  {name}:\n")).unwrap() + 1;
        let end = text[start..].find("\n\n").map_or(text.len(), |length| start + length);
        &text[start..end]
    };
    assert!(job("test").contains("- run: scripts/release.sh tag\n    - run: make test"));
    assert!(job("build").contains("\n    needs: test\n") && job("cli").contains("\n    needs: test\n"));
    assert!(
        job("publish").contains("\n    needs: [build, cli]\n")
            && job("publish").contains("\n    environment: release\n")
    );
}

/// Dependabot has the directory of each Go module and of each workspace of Rust.
#[test]
fn dependabot_reads_every_module() {
    let text = fs::read_to_string(root().join(".github/dependabot.yml")).unwrap();
    let output = Command::new("git")
        .args(["ls-files", "*go.mod", "*Cargo.lock"])
        .current_dir(root())
        .output()
        .unwrap();
    for file in String::from_utf8(output.stdout).unwrap().lines() {
        let directory = Path::new(file).parent().unwrap().display().to_string();
        let parent = Path::new(&directory).parent().map(|parent| format!("/{}/*", parent.display()));
        let is_listed =
            |entry: &str| text.contains(&format!("{entry},")) || text.contains(&format!("{entry}]"));
        assert!(
            is_listed(&format!("/{directory}")) || parent.is_some_and(|parent| is_listed(&parent)),
            "{file}"
        );
    }
}

#[test]
fn advisories_are_checked() {
    let programs = Programs::new("advisories");
    programs.add(
        "cargo",
        "if [ \"$*\" = 'deny --version' ]; then sed -n 's/^CARGO_DENY := /cargo-deny /p' Makefile; fi",
    );
    programs.run("make", &["advisories"]);
    assert_eq!(programs.calls(), ["cargo deny --version", "cargo deny check advisories"]);
}

#[test]
fn the_book_is_built_by_the_pinned_mdbook() {
    let programs = Programs::new("docs");
    programs.add("mdbook", "[ $1 = build ]");
    programs.add("cargo", "");
    programs.run("make", &["docs"]);
    let calls = programs.calls();
    let makefile = fs::read_to_string(root().join("Makefile")).unwrap();
    let version = makefile.split("MDBOOK := ").nth(1).unwrap().lines().next().unwrap();
    assert_eq!(calls[0], "mdbook --version");
    assert!(calls[1].starts_with("cargo install mdbook ") && calls[1].ends_with(version), "{calls:?}");
    assert_eq!(calls[2..], ["mdbook build docs"]);
}

#[test]
fn every_fuzz_target_is_run() {
    let programs = Programs::new("fuzz");
    programs.add("cargo", "");
    programs.add("cargo-fuzz", "");
    programs.run("make", &["fuzz", "FUZZ_SECONDS=1200", "NIGHTLY=nightly-2026-05-20"]);
    let calls = programs.calls();
    let manifest = fs::read_to_string(root().join("fuzz/Cargo.toml")).unwrap();
    let targets: Vec<&str> =
        manifest.split("[[bin]]\nname = \"").skip(1).filter_map(|rest| rest.split('"').next()).collect();
    assert!(targets.len() > 1, "{targets:?}");
    for target in targets {
        let run = format!("cargo +nightly-2026-05-20 fuzz run {target} ");
        let is_run = |call: &String| call.starts_with(&run) && call.ends_with(" -max_total_time=1200");
        assert!(calls.iter().any(is_run), "{target} is not run: {calls:?}");
    }
}

#[test]
fn a_release_has_the_images_of_both_architectures() {
    let programs = Programs::new("index");
    let dist = programs.distribution();
    let (images, yaml) = (programs.file("dist/images.txt"), programs.file("dist/install-deletion.yaml"));
    let chart = programs.unpacked(&dist.join(format!("durward-chart-{VERSION}.tgz")));
    let values = fs::read_to_string(chart.join("durward/values.yaml")).unwrap();
    for name in NAMES {
        let blobs = programs.unpacked(&dist.join(format!("{name}-{VERSION}-image.tar"))).join("blobs/sha256");
        let digest = |platform: &str| {
            let line = images
                .lines()
                .find(|line| line.starts_with(&format!("{IMAGES}/{name}@")) && line.ends_with(platform));
            line.unwrap().split(['@', ' ']).nth(1).unwrap().strip_prefix("sha256:").unwrap()
        };
        let index = fs::read_to_string(blobs.join(digest(" all"))).unwrap();
        assert_eq!(sha256(&blobs.join(digest(" all"))), digest(" all"));
        for arch in ARCHITECTURES {
            let manifest = digest(&format!(" {arch}"));
            assert_eq!(sha256(&blobs.join(manifest)), manifest);
            let listed = format!(
                "\"digest\":\"sha256:{manifest}\",\"size\":9,\"platform\":{{\"architecture\":\"{arch}\""
            );
            assert!(index.contains(&listed), "{index}");
        }
        let (repository, digest) = (format!("{IMAGES}/{name}"), digest(" all"));
        assert!(values.contains(&format!("  repository: {repository}\n")), "{values}");
        assert!(values.contains(&format!("  digest: sha256:{digest}\n")), "{values}");
        assert!(yaml.contains(&format!("image: {repository}@sha256:{digest}\n")), "{yaml}");
    }
    assert!(values.contains("  repository: \"\"\n"), "the image of LXCFS is not ours: {values}");
    let sums = programs.file("dist/SHA256SUMS");
    for file in ["images.txt", "install-deletion.yaml", &format!("durward-chart-{VERSION}.tgz")] {
        assert!(sums.contains(&format!("{}  {file}\n", sha256(&dist.join(file)))), "{sums}");
    }
}

/// krew installs each archive, whose checksum the release signs.
#[test]
fn the_command_line_is_packed_for_every_system() {
    let programs = Programs::new("systems");
    let dist = programs.distribution();
    let (krew, sums) = (programs.file("dist/krew.yaml"), programs.file("dist/SHA256SUMS"));
    let workflow = fs::read_to_string(root().join(".github/workflows/release.yaml")).unwrap();
    let linux = ARCHITECTURES.map(|arch| (format!("linux-{arch}"), "durward"));
    let others = SYSTEMS.map(|(platform, file)| (platform.to_owned(), file));
    for (platform, file) in linux.iter().chain(&others) {
        let archive = dist.join(format!("durward-{VERSION}-{platform}.tar.gz"));
        let (name, sum) = (archive.file_name().unwrap().display(), sha256(&archive));
        assert!(sums.contains(&format!("{sum}  {name}\n")), "{sums}");
        let (os, arch) = platform.split_once('-').unwrap();
        let listed = format!(
            "  - selector: {{matchLabels: {{os: {os}, arch: {arch}}}}}\n    uri: https://github.com/durward/durward/releases/download/v{VERSION}/{name}\n    sha256: {sum}\n    bin: {file}\n"
        );
        assert!(krew.contains(&listed), "{krew}");
    }
    assert_eq!(krew.matches("selector:").count(), ARCHITECTURES.len() + SYSTEMS.len());
    for (platform, file) in SYSTEMS {
        let unpacked = programs.unpacked(&dist.join(format!("durward-{VERSION}-{platform}.tar.gz")));
        assert_eq!(fs::read_to_string(unpacked.join(file)).unwrap(), platform);
        assert!(unpacked.join("LICENSE").is_file());
        assert!(workflow.contains(&format!("- {{platform: {platform}, runner: ")), "{platform}");
    }
}

#[test]
fn a_tag_that_is_not_the_version_or_not_on_main_is_refused() {
    let programs = Programs::new("tag");
    programs.add("git", "[ \"$*\" = 'merge-base --is-ancestor on-main origin/main' ]");
    let run = |tag: String, commit: &str| {
        let mut command = programs.command("scripts/release.sh", &["tag"]);
        command.env("GITHUB_REF_NAME", tag).env("GITHUB_SHA", commit).output().unwrap()
    };
    let tag = |tag: String| run(tag, "on-main");
    assert!(tag(format!("v{VERSION}")).status.success());
    let output = run(format!("v{VERSION}"), "elsewhere");
    assert!(!output.status.success() && text(&output).contains("elsewhere of the tag is not on main"));
    for other in ["v0.0.0".to_owned(), VERSION.to_owned(), format!("v{VERSION}-rc.1")] {
        let output = tag(other);
        assert!(!output.status.success() && text(&output).contains(VERSION), "{output:?}");
    }
}

#[test]
fn images_are_pushed_and_signed_by_digest() {
    let programs = Programs::new("images");
    let dist = programs.distribution();
    for (name, body) in [("docker", "cat >&2"), ("skopeo", ""), ("cosign", "cat >/dev/null")] {
        programs.add(name, body);
    }
    let output =
        programs.command("scripts/release.sh", &["images", dist.to_str().unwrap()]).output().unwrap();
    assert!(output.status.success(), "{}", text(&output));
    let calls = programs.calls();
    assert_eq!(calls[0], "docker login ghcr.example.com --username octocat --password-stdin");
    assert!(text(&output).contains("the-token"), "the token is not given on standard input");
    let mut expected = Vec::new();
    let mut outputs = String::new();
    for name in NAMES {
        let archive = format!("oci-archive:{name}-{VERSION}-image.tar docker://{IMAGES}/{name}:{VERSION}");
        expected.push(format!("skopeo copy --all --preserve-digests {archive}"));
    }
    for line in programs.file("dist/images.txt").lines() {
        let (image, platform) = line.split_once(' ').unwrap();
        if platform == "all" {
            expected.push(format!("cosign sign --yes --recursive {image}"));
            let (name, digest) = image.rsplit_once('/').unwrap().1.split_once('@').unwrap();
            writeln!(outputs, "{name}={digest}").unwrap();
        } else {
            let predicate = format!("--predicate durward-{VERSION}-linux-{platform}.cdx.json");
            expected.push(format!("cosign attest --yes --type cyclonedx {predicate} {image}"));
        }
    }
    assert_eq!(calls[1..], expected);
    assert_eq!(calls.len(), 1 + NAMES.len() * (2 + ARCHITECTURES.len()));
    assert_eq!(programs.file("output"), outputs);
}

#[test]
fn the_chart_is_pushed_and_signed_by_digest() {
    let programs = Programs::new("chart");
    let dist = programs.distribution();
    // Helm prints this to standard error.
    programs.add("helm", "[ $1 = registry ] || printf 'Pushed: x\nDigest: sha256:0123\n' >&2");
    programs.add("cosign", "");
    programs.run("scripts/release.sh", &["chart", dist.to_str().unwrap()]);
    let expected = [
        "helm registry login ghcr.example.com --username octocat --password-stdin".to_owned(),
        format!("helm push {}/durward-chart-{VERSION}.tgz oci://{IMAGES}/charts", dist.display()),
        format!("cosign sign --yes {IMAGES}/charts/durward@sha256:0123"),
    ];
    assert_eq!(programs.calls(), expected);
    programs.add("helm", "");
    let output = programs.command("scripts/release.sh", &["chart", dist.to_str().unwrap()]).output().unwrap();
    assert!(!output.status.success() && text(&output).contains("no digest"), "{}", text(&output));
}

#[test]
fn the_release_contains_the_signature_of_the_checksums() {
    let programs = Programs::new("publish");
    let dist = programs.distribution();
    programs.add("cosign", "touch \"$4\"");
    programs.add("gh", "");
    programs.run("scripts/release.sh", &["publish", dist.to_str().unwrap()]);
    let dist = dist.display();
    let calls = programs.calls();
    assert_eq!(
        calls[0],
        format!("cosign sign-blob --yes --bundle {dist}/SHA256SUMS.sigstore.json {dist}/SHA256SUMS")
    );
    assert!(
        calls[1].starts_with(&format!(
            "gh release create v{VERSION} --verify-tag --notes-file CHANGELOG.md {dist}/"
        )),
        "{calls:?}"
    );
    for file in ["SHA256SUMS", "SHA256SUMS.sigstore.json", "krew.yaml", "images.txt"] {
        assert!(
            format!("{} ", calls[1]).contains(&format!(" {dist}/{file} ")),
            "{file} is missing: {calls:?}"
        );
    }
}

/// A directory for a test, with substitutes for programs. Each writes its calls to a file.
struct Programs {
    directory: PathBuf,
}

impl Programs {
    fn new(test: &str) -> Self {
        let directory = Path::new(env!("CARGO_TARGET_TMPDIR")).join(test);
        drop(fs::remove_dir_all(&directory));
        fs::create_dir_all(directory.join("bin")).unwrap();
        Self { directory }
    }

    /// Adds a program that runs `body` in `bash`.
    fn add(&self, name: &str, body: &str) {
        let (path, log) = (self.directory.join("bin").join(name), self.directory.join("calls"));
        fs::write(&path, format!("#!/bin/bash\necho \"{name} $*\" >>'{}'\n{body}\n", log.display())).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
    }

    /// Returns a command in the root of the repository, with the environment of a workflow.
    fn command(&self, program: &str, arguments: &[&str]) -> Command {
        let path = format!("{}:{}", self.directory.join("bin").display(), env::var("PATH").unwrap());
        let mut command = Command::new(program);
        command.args(arguments).current_dir(root()).env("PATH", path);
        // The test can run below `make`.
        command.env_remove("MAKEFLAGS").env_remove("MAKELEVEL").env_remove("MFLAGS");
        command.env("IMAGES", IMAGES).env("GITHUB_REF_NAME", format!("v{VERSION}"));
        command.env("GITHUB_ACTOR", "octocat").env("GH_TOKEN", "the-token");
        command.env("GITHUB_OUTPUT", self.directory.join("output"));
        command
    }

    fn run(&self, program: &str, arguments: &[&str]) {
        let output = self.command(program, arguments).output().unwrap();
        assert!(output.status.success(), "{}", text(&output));
    }

    fn calls(&self) -> Vec<String> {
        self.file("calls").lines().map(ToOwned::to_owned).collect()
    }

    fn file(&self, name: &str) -> String {
        fs::read_to_string(self.directory.join(name)).unwrap()
    }

    /// Writes what `scripts/dist.sh package` writes for two architectures, runs `index`, and returns the directory.
    fn distribution(&self) -> PathBuf {
        let dist = self.directory.join("dist");
        fs::create_dir(&dist).unwrap();
        for arch in ARCHITECTURES {
            for name in NAMES {
                self.image(name, arch, &dist.join(format!("{name}-{VERSION}-image-{arch}.tar")));
            }
            fs::write(dist.join(format!("durward-{VERSION}-linux-{arch}.tar.gz")), arch).unwrap();
            fs::write(dist.join(format!("durward-{VERSION}-linux-{arch}.cdx.json")), "{}").unwrap();
        }
        let cli = self.directory.join("cli");
        for (platform, file) in SYSTEMS {
            fs::create_dir_all(cli.join(format!("cli-{platform}"))).unwrap();
            fs::write(cli.join(format!("cli-{platform}/{file}")), platform).unwrap();
        }
        let images = NAMES.map(|name| format!("image: {IMAGES}/{name}:{VERSION}\n"));
        fs::write(dist.join("install-deletion.yaml"), images.concat()).unwrap();
        let chart = dist.join(format!("durward-chart-{VERSION}.tgz"));
        self.run(
            "tar",
            &["--create", "--gzip", "--directory", "charts", "--file", chart.to_str().unwrap(), "durward"],
        );
        // A release runs it once for each architecture, and once for both.
        for _ in 0..2 {
            self.run("scripts/dist.sh", &["index", dist.to_str().unwrap(), cli.to_str().unwrap()]);
        }
        dist
    }

    /// Writes an OCI archive with a manifest, in the lines that `scripts/dist.sh` writes.
    fn image(&self, name: &str, arch: &str, archive: &Path) {
        let layout = self.directory.join(format!("{name}-{arch}"));
        let blobs = layout.join("blobs/sha256");
        fs::create_dir_all(&blobs).unwrap();
        fs::write(layout.join("manifest"), format!("{}{:>6}", &name[name.len() - 3..], arch)).unwrap();
        let digest = sha256(&layout.join("manifest"));
        fs::rename(layout.join("manifest"), blobs.join(&digest)).unwrap();
        let platform = format!("\"platform\":{{\"architecture\":\"{arch}\",\"os\":\"linux\"}}");
        let index =
            format!("{{\"manifests\":[\n{{\"digest\":\"sha256:{digest}\",\"size\":9,{platform}\n}}]}}\n");
        fs::write(layout.join("index.json"), index).unwrap();
        let (layout, archive) = (layout.to_str().unwrap(), archive.to_str().unwrap());
        self.run("tar", &["--create", "--directory", layout, "--file", archive, "index.json", "blobs"]);
    }

    fn unpacked(&self, archive: &Path) -> PathBuf {
        let directory = self.directory.join(format!("unpacked-{}", archive.file_name().unwrap().display()));
        fs::create_dir(&directory).unwrap();
        self.run(
            "tar",
            &["--extract", "--file", archive.to_str().unwrap(), "--directory", directory.to_str().unwrap()],
        );
        directory
    }
}

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap()
}

fn workflows() -> Vec<PathBuf> {
    let directory = fs::read_dir(root().join(".github/workflows")).unwrap();
    directory.map(|entry| entry.unwrap().path()).collect()
}

/// Returns the lines of all workflows, with the names of their files.
fn workflow_lines() -> Vec<(String, String)> {
    let lines_of = |path: PathBuf| {
        let text = fs::read_to_string(&path).unwrap();
        text.lines().map(|line| (path.display().to_string(), line.to_owned())).collect::<Vec<_>>()
    };
    workflows().into_iter().flat_map(lines_of).collect()
}

/// Returns the value of a key of a step, if the line has this key.
fn step<'a>(line: &'a str, key: &str) -> Option<&'a str> {
    let line = line.trim();
    line.strip_prefix("- ").unwrap_or(line).strip_prefix(key)
}

fn is_hex(text: &str) -> bool {
    text.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'))
}

fn sha256(file: &Path) -> String {
    let output = Command::new("sha256sum").arg(file).output().unwrap();
    text(&output).split(' ').next().unwrap().to_owned()
}

fn text(output: &Output) -> String {
    String::from_utf8_lossy(&[&output.stdout[..], &output.stderr[..]].concat()).into_owned()
}
