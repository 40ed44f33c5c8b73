//! Runs the commands of the documentation that need no cluster, and compares their output with the lines below them.
//!
//! A command of a `console` block needs no cluster, or a case of `e2e` runs the block. All other blocks have `<!-- example -->` on
//! the line before them. A command with output below it ends with exit code 0, unless the page says otherwise: by `$ echo $?` after the
//! command, or by `<!-- exit 3 -->` on the line before the block, for its last command.
//!
//! The commands of a page run one after another through `bash`, in a directory of their own with the files that pages mention
//! without creating them. `kubectl`, `helm`, `git` and `cargo` are small substitutes.

use std::fs;
use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{LazyLock, Mutex};
use std::{iter, thread};

use regex::Regex;

use crate::harness::{TestDir, copy, root};

/// A configuration with all guards. `FLEET` depends on the command.
const CONFIGURATION: &str = "apiVersion: durward.dev/v1alpha1
kind: Configuration
server: {tls: {files: {cert: tls/tls.crt, key: tls/tls.key, ca: tls/ca.crt}}}
guards:
  deletion: {fleet: FLEET}
  etcd: {clusters: [{namespace: db, selector: app=etcd}]}
  lxcfs: {}
  resources: {policies: [policies]}
";

/// Calls of `durward` that read or change a cluster, unless they read a snapshot or are a dry run.
const NEED_A_CLUSTER: [&str; 7] =
    ["snapshot", "impact", "doctor", "override", "acknowledge", "unregister", "diff crd crd.yaml --live"];

/// Calls of `durward` that serve until they are stopped. Tests of these commands exist elsewhere.
const SERVERS: [&str; 2] = ["serve", "demo --keep"];

/// Commands without a call of `durward` that need no cluster.
const LOCAL: [&str; 7] = ["cat ", "mkdir ", "printf ", "echo $?", "cd ", "git clone ", "cargo run "];

/// Commands before a pipe whose output the substitutes print.
const PRINTED: [&str; 2] = ["helm template ", "kubectl apply --dry-run=server "];

/// Substitutes for other programs. The plugin's name is `kubectl-durward`.
const PROGRAMS: [(&str, &str); 4] = [
    (
        "kubectl",
        "case \"$*\" in\n\
         durward*) shift; exec kubectl-durward \"$@\" ;;\n\
         apply\\ --dry-run=server*) exec cat manifests/*.yaml ;;\n\
         *) exec cat > /dev/null ;;\n\
         esac",
    ),
    ("helm", "exec cat manifests/*.yaml"),
    ("git", "mkdir -p durward"),
    ("cargo", "while [ \"$1\" != -- ]; do shift; done; shift; exec durward \"$@\""),
];

/// Directories outside the test's own, and their substitutes.
const OUTSIDE: [(&str, &str); 3] =
    [("/etc/bash_completion.d/", "./"), ("/usr/local/bin/", "./"), ("/usr/local/share/man/man1", "./man1")];

/// Pages that cases of `e2e` follow with `run_page`, and the headings that they follow. Without headings it is the whole page.
const FOLLOWED: [(&str, &[&str]); 18] = [
    ("deletion/in-use.md", &[]),
    ("get-started/custom-resources.md", &[]),
    ("get-started/deletion.md", &[]),
    ("get-started/etcd.md", &[]),
    ("get-started/karmada.md", &[]),
    ("get-started/lxcfs.md", &[]),
    ("operate/binary.md", &[]),
    ("operate/credentials.md", &["1. Create a CA and a client certificate"]),
    ("operate/certificates.md", &["Renew the serving certificate"]),
    ("operate/uninstall.md", &["From a Karmada control plane"]),
    ("operate/upgrade.md", &["Upgrade Durward", "Upgrade Durward on Karmada"]),
    ("runbooks/certificate-expired.md", &["Find the source of the certificate", "From Durward"]),
    ("runbooks/drain.md", &[]),
    ("runbooks/durward-down.md", &[]),
    ("runbooks/index.md", &[]),
    ("runbooks/lxcfs-nodes.md", &[]),
    ("runbooks/lxcfs-pods.md", &[]),
    ("runbooks/override.md", &[]),
];

/// A page with the examples of `--help`. Those that need no cluster are run.
const EXAMPLES: &str = "reference/commands.md";

/// Number of pages that run at the same time.
const THREADS: usize = 4;

/// A block of commands.
struct Block {
    line: usize,
    heading: String,
    is_console: bool,
    /// Whether the line before it is `<!-- example -->`.
    is_example: bool,
    calls: Vec<Call>,
}

/// A command, and the lines below it.
struct Call {
    command: String,
    shown: Vec<String>,
    /// The exit code that the page says. None if `echo $?` follows and shows it, or if the page shows neither output nor a code.
    code: Option<i32>,
}

impl Call {
    fn needs_no_cluster(&self) -> bool {
        let is_one_of = |text: &str, names: &[&str]| names.iter().any(|name| text.starts_with(name));
        let line = self.command.as_str();
        if is_one_of(line, &LOCAL) {
            return true;
        }
        let durward = |part: &'_ str| -> Option<String> {
            let part = part.strip_prefix("kubectl ").unwrap_or(part);
            part.strip_prefix("durward ").map(ToOwned::to_owned)
        };
        let mut parts = line.split(" | ");
        let first = parts.next().unwrap_or_default();
        let call = durward(first).or_else(|| parts.find_map(durward).filter(|_| is_one_of(first, &PRINTED)));
        let is_dry = ["--snapshot ", " --dry-run", "--audit-log "].iter().any(|flag| line.contains(flag));
        call.is_some_and(|call| !is_one_of(&call, &SERVERS) && (is_dry || !is_one_of(&call, &NEED_A_CLUSTER)))
    }
}

#[test]
fn the_commands_of_the_documentation_print_what_it_shows() {
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
    assert!(count > 60, "only {count} commands were run");
}

/// Pages that `make reference` writes.
const GENERATED: [&str; 6] = [
    "reference/commands.md",
    "reference/configuration.md",
    "reference/etcd-decisions.md",
    "reference/metrics.md",
    "reference/permissions.md",
    "reference/reason-codes.md",
];

/// Counts the words outside of code, comments and the targets of links.
fn words(page: &str) -> usize {
    let prose: String = page.split("```").step_by(2).collect();
    let visible: String =
        prose.split("<!--").map(|part| part.split_once("-->").map_or(part, |(_, rest)| rest)).collect();
    let unlinked: String = visible
        .split("](")
        .enumerate()
        .map(|(at, part)| if at == 0 { part } else { part.split_once(')').map_or(part, |(_, rest)| rest) })
        .collect();
    unlinked.split([' ', '\n', '|']).filter(|word| word.chars().any(char::is_alphanumeric)).count()
}

#[test]
fn the_book_stays_short() {
    let mut pages = Vec::new();
    collect(&root().join("docs/src"), &mut pages);
    pages.retain(|page| !page.ends_with("SUMMARY.md"));
    let is_generated = |page: &&PathBuf| GENERATED.iter().any(|name| page.ends_with(name));
    let count = |pages: Vec<&PathBuf>| -> usize {
        pages.into_iter().map(|page| words(&fs::read_to_string(page).unwrap())).sum()
    };
    let (generated, written): (Vec<_>, Vec<_>) = pages.iter().partition(is_generated);
    assert!(written.len() <= 46, "{} pages", written.len());
    let (generated, written) = (count(generated), count(written));
    assert!(written <= 24_000 && generated <= 11_000, "{written} words, and {generated} generated");
}

#[test]
fn the_readme_has_the_measured_cpu_of_a_review() {
    let read = |name: &str| fs::read_to_string(root().join(name)).unwrap();
    let results = read("bench/RESULTS.md");
    let is_it =
        |line: &&str| line.starts_with("| pod that gets LXCFS files") && line.contains("controller-runtime");
    let ratio = results.lines().find(is_it).unwrap().split('|').nth(4).unwrap();
    let figures =
        ratio.split([' ', '(', ')']).filter_map(|word| word.parse::<f64>().ok()).collect::<Vec<_>>();
    let [median, lowest, highest] = figures.try_into().unwrap();
    let (part, least, most) = (1.0 / median, 100.0 * lowest, 100.0 * highest);
    for (page, to) in [("README.md", "to"), ("README.zh-CN.md", "到")] {
        let page = read(page);
        assert!(page.contains(&format!("1/{part:.0}")), "{part:.0}");
        assert!(page.contains(&format!("{least:.1} {to} {most:.1} %")), "{least:.1} {most:.1}");
    }
}

#[test]
fn the_readme_is_short_and_its_translation_has_the_same_blocks() {
    let read = |name: &str| fs::read_to_string(root().join(name)).unwrap();
    let (english, chinese) = (read("README.md"), read("README.zh-CN.md"));
    assert!(english.lines().count() <= 112);
    let fenced =
        |text: &str| -> Vec<String> { text.split("```").skip(1).step_by(2).map(str::to_owned).collect() };
    assert_eq!(fenced(&english), fenced(&chinese));
    let links = |text: &str| {
        let mut links: Vec<String> =
            text.split("](").skip(1).map(|rest| rest.split(')').next().unwrap().to_owned()).collect();
        links.retain(|link| !link.starts_with("README"));
        links.sort_unstable();
        links
    };
    assert_eq!(links(&english), links(&chinese));
}

#[test]
fn cases_of_e2e_follow_the_pages_that_this_test_leaves_to_them() {
    let mut files = Vec::new();
    collect_files(&root().join("e2e/tests/cases"), "rs", &mut files);
    let sources: String = files.iter().map(|file| fs::read_to_string(file).unwrap()).collect();
    for (page, headings) in FOLLOWED {
        assert!(sources.contains(&format!("\"{page}\"")), "no case of e2e follows {page}");
        let text = fs::read_to_string(root().join("docs/src").join(page)).unwrap();
        for heading in headings {
            let has_block = blocks(&text).iter().any(|block| block.heading == *heading && !block.is_example);
            assert!(has_block, "{page} has no block to follow below {heading:?}");
            assert!(
                sources.contains(&format!("\"{heading}\"")),
                "no case of e2e follows {heading:?} of {page}"
            );
        }
    }
}

#[test]
fn an_ellipsis_stands_for_text_or_for_lines() {
    let is_shown = |page: &[&str], output: &str| {
        shows(&page.iter().map(|&line| line.to_owned()).collect::<Vec<_>>(), output)
    };
    assert!(is_shown(&["a", "…", "d"], "a\nb\nc\nd\n"));
    assert!(is_shown(&["a …", "took 3.1 ms"], "a b\ntook 12 ms\n"));
    assert!(is_shown(
        &["until 2026-11-21T12:00:00Z (364 days left)"],
        "until 2027-01-01T00:00:00Z (9 days left)"
    ));
    assert!(!is_shown(&["a", "c"], "a\nb\nc\n"));
    assert!(!is_shown(&["a …z"], "a b\n"));
    assert!(!is_shown(&["3 pods"], "2 pods\n"));
}

#[test]
fn a_page_can_show_the_exit_code_of_the_command_before() {
    let mut shell = Shell::new();
    let mut run = |block: &str, exit| calls(block, exit).iter().find_map(|call| shell.run(call));
    let impact = "$ durward impact ns/shop --snapshot examples/deletion/healthy\n";
    let with_output = format!("{impact}…\n");
    assert_eq!(run(&format!("{impact}$ echo $?\n1\n"), None), None);
    assert_eq!(run(&format!("{with_output}$ echo $?\n1\n"), None), None);
    assert_eq!(run(&with_output, Some(1)), None);
    assert!(run(&with_output, None).is_some());
    assert!(run(&with_output, Some(3)).is_some());
    assert!(run("$ durward version\n$ echo $?\n1\n", None).is_some());
}

fn collect(directory: &Path, pages: &mut Vec<PathBuf>) {
    collect_files(directory, "md", pages);
}

fn collect_files(directory: &Path, extension: &str, files: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(directory).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            collect_files(&path, extension, files);
        } else if path.extension().is_some_and(|own| own == extension) {
            files.push(path);
        }
    }
}

/// Runs the commands of a page. Returns their number and the problems.
fn run_page(page: &Path) -> (usize, Vec<String>) {
    let name = page.strip_prefix(root()).unwrap().display().to_string();
    let in_book = name.strip_prefix("docs/src/").unwrap_or(&name);
    let is_followed = |block: &Block| {
        let found = FOLLOWED.iter().find(|(page, _)| *page == in_book);
        found.is_some_and(|(_, headings)| headings.is_empty() || headings.contains(&block.heading.as_str()))
    };
    let (mut count, mut problems, mut shell) = (0, Vec::new(), None);
    for block in blocks(&fs::read_to_string(page).unwrap()) {
        let is_local = block.calls.iter().all(Call::needs_no_cluster);
        let has_test = is_local || is_followed(&block) || in_book == EXAMPLES;
        let problem = match block.is_example {
            _ if !block.is_console => Some("the language of a block of commands is console"),
            true if is_local => {
                Some("the commands need no cluster: remove <!-- example --> before the block")
            }
            false if !has_test => Some(
                "no test runs this block: add it to FOLLOWED, or write <!-- example --> on the line before it",
            ),
            _ => None,
        };
        problems.extend(problem.map(|problem| format!("{name}:{}: {problem}", block.line)));
        if block.is_example || problem.is_some() {
            continue;
        }
        for call in block.calls.iter().filter(|call| call.needs_no_cluster()) {
            count += 1;
            let problem = shell.get_or_insert_with(Shell::new).run(call);
            problems
                .extend(problem.map(|problem| format!("{name}:{}: {}: {problem}", block.line, call.command)));
        }
    }
    (count, problems)
}

/// Returns the blocks of a page that contain commands. In a list, blocks are indented.
fn blocks(page: &str) -> Vec<Block> {
    let (mut blocks, mut heading, mut previous) = (Vec::new(), String::new(), "");
    let mut lines = (1..).zip(page.lines());
    while let Some((line, text)) = lines.next() {
        let indent = text.len() - text.trim_start().len();
        if let Some(language) = text.trim_start().strip_prefix("```") {
            let block = lines.by_ref().map(|(_, text)| text).take_while(|text| text.trim() != "```");
            let body: String = block.flat_map(|text| [text.get(indent..).unwrap_or(""), "\n"]).collect();
            let is_console = language == "console";
            if is_console || body.starts_with("$ ") {
                let mark = previous.trim().strip_prefix("<!-- ").and_then(|mark| mark.strip_suffix(" -->"));
                let exit = mark.and_then(|mark| mark.strip_prefix("exit ")?.parse().ok());
                blocks.push(Block {
                    line,
                    heading: heading.clone(),
                    is_console,
                    is_example: mark == Some("example"),
                    calls: calls(&body, exit),
                });
            }
        } else if text.starts_with('#') {
            text.trim_start_matches(['#', ' ']).clone_into(&mut heading);
        }
        previous = text;
    }
    blocks
}

/// Returns the commands of a block, the last of which ends with the exit code `exit`. A line that ends in a backslash continues in
/// the next line.
fn calls(block: &str, exit: Option<i32>) -> Vec<Call> {
    let mut calls: Vec<Call> = Vec::new();
    for line in block.replace("\\\n", " ").lines() {
        if let Some(command) = line.strip_prefix("$ ") {
            if let Some(before) = calls.last_mut().filter(|_| command == "echo $?") {
                before.code = None;
            }
            calls.push(Call { command: command.to_owned(), shown: Vec::new(), code: None });
        } else if let Some(call) = calls.last_mut() {
            call.shown.push(line.to_owned());
            call.code = Some(0);
        }
    }
    if let Some(last) = calls.last_mut() {
        last.code = exit.or(last.code);
    }
    calls
}

/// The directory of a page.
struct Shell {
    /// Contains certificates and `project`, where the commands run.
    files: TestDir,
    /// Exit code of the last command.
    code: i32,
}

impl Shell {
    fn new() -> Self {
        let shell = Self { files: TestDir::new(), code: 0 };
        prepare(&shell.directory(), shell.files.path());
        shell
    }

    fn directory(&self) -> PathBuf {
        self.files.path().join("project")
    }

    /// Runs a command and returns the problem, if there is one.
    fn run(&mut self, call: &Call) -> Option<String> {
        let (directory, line) = (self.directory(), &call.command);
        // A page that makes its own directory replaces the prepared one.
        if let Some((_, after)) = line.split_once("--out ") {
            let _ = fs::remove_dir_all(directory.join(after.split(' ').next().unwrap_or_default()));
        }
        if ["--target karmada", ",members", "--only members"].iter().any(|part| line.contains(part)) {
            configure(&directory, "karmada");
        }
        let line = OUTSIDE.iter().fold(line.clone(), |line, (path, own)| line.replace(path, own));
        let path = format!("{}:{}", directory.join("bin").display(), std::env::var("PATH").unwrap());
        let output = Command::new("timeout")
            .args(["60", "bash", "-o", "pipefail", "-c", &format!("(exit {}); {line}", self.code)])
            .current_dir(&directory)
            .env("PATH", path)
            .env("HOME", &directory)
            .env_remove("KUBECONFIG")
            .output()
            .unwrap();
        self.code = output.status.code().unwrap_or(-1);
        let [out, err] = [output.stdout, output.stderr].map(|text| String::from_utf8(text).unwrap());
        let all = format!("{err}{out}");
        let is_expected = match call.code {
            Some(code) => self.code == code,
            // Exit codes 1 and 3 are verdicts, and 2 is bad input.
            None => matches!(self.code, 0 | 1 | 3) && (!call.shown.is_empty() || !err.contains("error:")),
        };
        // A page shows standard output with or without the messages.
        let is_shown = call.shown.is_empty() || shows(&call.shown, &out) || shows(&call.shown, &all);
        match (is_shown, is_expected) {
            (false, _) => Some(format!("the output differs from the page:\n{all}")),
            (_, false) => Some(format!("exit code {}, expected {:?}: {all}", self.code, call.code)),
            _ => None,
        }
    }
}

/// Returns whether a page shows this output. `…` stands for text in a line, or for any number of lines. Times differ.
fn shows(page: &[String], output: &str) -> bool {
    static TIMES: LazyLock<Regex> =
        LazyLock::new(|| Regex::new(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ|\d+(\.\d+)? ms\b|\d+ days\b").unwrap());
    let line = |text: &str| TIMES.replace_all(text.trim_end(), "TIME").into_owned();
    let page: Vec<String> = page.iter().map(|text| line(text)).collect();
    let output: Vec<String> = output.lines().map(line).collect();
    is_shown(&page, &output)
}

fn is_shown(page: &[String], output: &[String]) -> bool {
    match page.split_first() {
        None => output.is_empty(),
        Some((first, rest)) if first.trim() == "…" => {
            (0..=output.len()).any(|skipped| is_shown(rest, &output[skipped..]))
        }
        Some((first, rest)) => {
            output.split_first().is_some_and(|(line, others)| is_like(first, line) && is_shown(rest, others))
        }
    }
}

/// Returns whether a line of the output is the line of the page, in which `…` stands for any text.
fn is_like(shown: &str, line: &str) -> bool {
    let mut parts = shown.split('…');
    let Some(mut rest) = line.strip_prefix(parts.next().unwrap_or_default()) else { return false };
    let mut parts = parts.peekable();
    if parts.peek().is_none() {
        return rest.is_empty();
    }
    while let Some(part) = parts.next() {
        if parts.peek().is_none() {
            return rest.ends_with(part);
        }
        let Some((_, after)) = rest.split_once(part) else { return false };
        rest = after;
    }
    false
}

/// Makes the directory of a page. `files` contains certificates.
fn prepare(directory: &Path, files: &Path) {
    let bin = directory.join("bin");
    fs::create_dir_all(&bin).unwrap();
    for name in ["durward", "kubectl-durward"] {
        symlink(env!("CARGO_BIN_EXE_durward"), bin.join(name)).unwrap();
    }
    for (name, script) in PROGRAMS {
        fs::write(bin.join(name), format!("#!/bin/sh\n{script}\n")).unwrap();
        fs::set_permissions(bin.join(name), fs::Permissions::from_mode(0o755)).unwrap();
    }
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
