//! `check` on files of strangers: no output contains a command of theirs, and limits end the run without a verdict.

use std::fs;
use std::io::Read;
use std::path::Path;
use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};

use crate::check::{files, policy};
use crate::harness::durward_in;

/// Text that every field of the hostile files contains, as escapes of YAML and JSON.
const HOSTILE: &str = r"x\n::stop-commands::t\r::error::r\r\n ##[error]o ##[add-mask]a\u001b[31m\u009b2J\u202e\u2028::error::s\u0085 z";

/// The same text in names of files.
const NAME: &str = "x\n::stop-commands::t\r::error::r ##[error]o\u{1b}[31m\u{9b}2J\u{202e}\u{2028}";

fn run(directory: &Path, arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_durward"))
        .arg("check")
        .args(arguments)
        .current_dir(directory)
        .env("GITHUB_ACTIONS", "true")
        .output()
        .unwrap()
}

/// The commands that the runner of GitHub Actions finds in a text, by its own rules: a line ends with any line break of .NET, `::name`
/// is at its start after white space, and `##[name]` anywhere.
fn commands(text: &str) -> Vec<String> {
    let mut commands = Vec::new();
    for line in text.split(['\n', '\r']) {
        if let Some(rest) = line.trim().strip_prefix("::")
            && let Some((command, _)) = rest.split_once("::")
        {
            commands.push(command.split(' ').next().unwrap_or_default().to_owned());
        } else if let Some((_, rest)) = line.split_once("##[")
            && let Some((command, _)) = rest.split_once(']')
        {
            commands.push(format!("##[{command}]"));
        }
    }
    commands
}

fn hostile() -> tempfile::TempDir {
    let object = format!(
        "{{apiVersion: \"v1\", kind: \"ConfigMap\", metadata: {{name: \"{HOSTILE}\", namespace: \"n{HOSTILE}\"}}, data: {{a: b}}}}\n"
    );
    let denying = policy("'1 == 2'", "Deny")
        .replace("  - expression: '1 == 2'", "  - expression: '1 == 2'\n    messageExpression: '\"m\" + object.metadata.name'\n  - expression: '1 == 3'\n    message: \" ::error::m ##[error]o \\u001b[31m\\u202e\"");
    let annotating = policy("'1 == 2'", "Audit")
        .replace("name: p}", &format!("name: \"q{HOSTILE}\"}}"))
        .replace("policyName: p", &format!("policyName: \"q{HOSTILE}\""))
        .replace("name: b}", &format!("name: \"c{HOSTILE}\"}}"));
    let cases = format!(
        "{{apiVersion: durward.dev/v1alpha1, kind: Cases, cases: [{{name: \"{HOSTILE}\", object: {object}, expect: {{verdict: allow}}}}]}}\n"
    );
    let directory = files(&[
        ("used/a.yaml", &object),
        ("used/policy.yaml", &denying),
        ("refused/annotating.yaml", &annotating),
        ("used/cases.yaml", &cases),
        ("refused/kind.yaml", &object.replace("\"ConfigMap\"", &format!("\"{HOSTILE}\""))),
        ("refused/version.yaml", &object.replace("\"v1\"", &format!("\"v1/{HOSTILE}\""))),
        ("refused/key.yaml", &format!("\"{HOSTILE}\": 1\n\"{HOSTILE}\": 2\n")),
        ("refused/yaml.yaml", &format!("a: \"{HOSTILE}\n  ::error::e\nb: [::set-output::\n")),
        ("refused/json.json", "{\"a\": ::error::x}\n"),
        ("refused/alias.yaml", "a: *x\n::error::\n"),
        ("refused/field.yaml", &object.replace("data: ", &format!("\"{HOSTILE}\": 1, data: "))),
        ("refused/expression.yaml", &policy("\"\\n::error::x == ##[error]\"", "Deny")),
        ("refused/type.yaml", &object.replace("{a: b}", &format!("[\"{HOSTILE}\"]"))),
        ("refused/action.yaml", &policy("'true'", &format!("\"{HOSTILE}\""))),
        (
            "refused/enum.yaml",
            &policy("'true'", "Deny")
                .replace("  validations:", &format!("  failurePolicy: \"{HOSTILE}\"\n  validations:")),
        ),
        ("refused/cases.yaml", &cases.replace("verdict: allow", &format!("verdict: \"{HOSTILE}\""))),
    ]);
    for part in ["used", "refused"] {
        let name = format!("{part}/::error::{NAME}.yaml");
        fs::write(directory.path().join(name), "a: [::error::\n").unwrap();
        fs::write(
            directory.path().join(format!("{part}/{NAME}.json")),
            object.replace("name: \"", "name: \"o"),
        )
        .unwrap();
    }
    fs::remove_file(directory.path().join(format!("used/::error::{NAME}.yaml"))).unwrap();
    directory
}

#[test]
fn writes_no_command_of_a_stranger_in_any_format_and_channel() {
    let directory = hostile();
    for part in ["used", "refused", "used/..", "nowhere\n::error::x", "##[error]"] {
        for format in ["text", "json", "yaml", "junit", "sarif", "github"] {
            let run = run(directory.path(), &[part, "--with", "used/policy.yaml", "-o", format]);
            assert!([1, 2].contains(&run.status.code().unwrap()), "{part} {format}: {run:?}");
            for (channel, bytes) in [("stdout", run.stdout), ("stderr", run.stderr)] {
                let text = String::from_utf8(bytes).unwrap();
                let found = commands(&text);
                let ours = ["error", "warning", "notice"];
                let is_ours = |command: &String| {
                    format == "github" && channel == "stdout" && ours.contains(&command.as_str())
                };
                assert!(found.iter().all(is_ours), "{part} {format} {channel}: {found:?}\n{text}");
                let unprintable = text.chars().find(|c| *c != '\n' && !admission::text::is_printable(*c));
                assert_eq!(unprintable, None, "{part} {format} {channel}");
            }
        }
    }
}

#[test]
fn the_formats_keep_the_text_of_strangers() {
    let directory = hostile();
    let plain: serde_json::Value = serde_json::from_str(&format!("\"{HOSTILE}\"")).unwrap();
    let json = run(directory.path(), &["used", "-o", "json"]);
    let report: serde_json::Value = serde_json::from_slice(&json.stdout).unwrap();
    let names: Vec<_> =
        report["documents"].as_array().unwrap().iter().map(|document| &document["name"]).collect();
    assert!(names.contains(&&plain), "{names:?} {}", String::from_utf8_lossy(&json.stderr));
    // JSON is YAML.
    let yaml = run(directory.path(), &["used", "-o", "yaml"]);
    assert_eq!(json.stdout, yaml.stdout);
}

#[test]
fn reads_and_writes_nothing_through_a_link_that_leads_out_of_the_working_directory() {
    let directory = files(&[("here/a.yaml", ""), ("outside/a.yaml", "secret: text\n")]);
    let here = directory.path().join("here");
    std::os::unix::fs::symlink("../outside", here.join("linked")).unwrap();
    std::os::unix::fs::symlink("../outside/a.yaml", here.join("b.yaml")).unwrap();
    std::os::unix::fs::symlink("../outside/new.json", here.join("report.json")).unwrap();
    for arguments in [
        &["linked"][..],
        &["linked/a.yaml"],
        &["b.yaml"],
        &["."],
        &["a.yaml", "--with", "linked"],
        &["a.yaml", "--old", "b.yaml"],
        &["a.yaml", "--grants", "b.yaml"],
        &["a.yaml", "-o", "json=report.json"],
        &["a.yaml", "-o", "json=linked/report.json"],
    ] {
        let run = durward_in(&here, &[&["check"], arguments].concat(), "");
        assert_eq!(run.code, 2, "{arguments:?}: {}", run.err);
        assert!(run.err.contains("link"), "{arguments:?}: {}", run.err);
        assert!(!run.err.contains("not a Kubernetes object"), "{arguments:?}: {}", run.err);
    }
    assert_eq!(fs::read_dir(directory.path().join("outside")).unwrap().count(), 1);
}

/// Runs `check`, and returns its exit code, its output and its largest memory in MiB.
pub(crate) fn measured(directory: &Path) -> (i32, String, u64) {
    let began = Instant::now();
    let mut child = Command::new(env!("CARGO_BIN_EXE_durward"))
        .args(["check", "."])
        .current_dir(directory)
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let mut stdout = child.stdout.take().unwrap();
    let text = std::thread::spawn(move || {
        let mut text = String::new();
        stdout.read_to_string(&mut text).unwrap();
        text
    });
    let status = format!("/proc/{}/status", child.id());
    let mut peak = 0;
    while child.try_wait().unwrap().is_none() {
        let text = fs::read_to_string(&status).unwrap_or_default();
        let line = text.lines().find_map(|line| line.strip_prefix("VmHWM:"));
        let kib = line.and_then(|line| line.trim().strip_suffix(" kB")?.parse().ok());
        peak = kib.unwrap_or(peak);
        std::thread::sleep(Duration::from_millis(2));
    }
    let status = child.wait().unwrap();
    // The binary is not optimized, and other tests run at the same time.
    assert!(began.elapsed() < Duration::from_secs(60), "{:?}", began.elapsed());
    (status.code().unwrap_or(-1), text.join().unwrap(), peak >> 10)
}

#[test]
fn a_policy_without_bounds_ends_in_bounded_memory_without_a_verdict() {
    let with = |variables: &[(String, String)], expression: &str| {
        let variables: Vec<String> = variables
            .iter()
            .map(|(name, text)| format!("  - {{name: {name}, expression: \"{text}\"}}\n"))
            .collect();
        let variables = variables.concat();
        policy(&format!("\"{expression}\""), "Deny")
            .replace("  validations:", &format!("  variables:\n{variables}  validations:"))
    };
    let chain = |first: String, count: usize, step: &dyn Fn(usize) -> String| -> Vec<(String, String)> {
        (0..=count)
            .map(|index| (format!("v{index}"), if index == 0 { first.clone() } else { step(index - 1) }))
            .collect()
    };
    let doubled = |index: usize| format!("variables.v{index} + variables.v{index}");
    let mut texts = chain(format!("'{}'", "x".repeat(1_000)), 12, &doubled);
    texts.extend((13..=90).map(|index| (format!("v{index}"), "variables.v12 + 'a'".to_owned())));
    let any: Vec<String> = (0..=90).map(|index| format!("variables.v{index} == ''")).collect();
    let nested = |index: usize| format!("dyn([variables.v{index}, variables.v{index}])");
    for policy in [
        with(&texts, &any.join(" || ")),
        with(&chain("['x']".to_owned(), 44, &nested), "variables.v44 == variables.v44"),
        with(&chain(format!("'{}'", "x".repeat(1_000)), 12, &doubled), "variables.v12.split('') == []"),
    ] {
        let object = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: shop}\n";
        let directory = files(&[("policy.yaml", &policy), ("a.yaml", object)]);
        let (code, out, peak) = measured(directory.path());
        assert_eq!(code, 3, "{out}");
        // The limit is that of the memory. A slow machine can reach that of the time first.
        assert!(out.contains("could not decide policy \"p\", binding \"b\": needs too much "), "{out}");
        assert!(peak < 512, "{peak} MiB");
    }
}

#[test]
fn files_without_bounds_end_with_an_error_in_bounded_memory() {
    let aliases: Vec<String> = (0..30)
        .map(|index| {
            format!(
                "apiVersion: v1\nkind: ConfigMap\nmetadata: {{name: a{index}}}\nx: &a {}\nl: [{}]\n---\n",
                "y".repeat(100_000),
                ["*a"; 300].join(",")
            )
        })
        .collect();
    let laughs: Vec<String> = (b'b'..b'k')
        .map(|c| {
            format!("{0}: &{0} [{1}]\n", char::from(c), vec![format!("*{}", char::from(c - 1)); 9].join(","))
        })
        .collect();
    for (name, text, problem) in [
        ("a.yaml", aliases.concat(), "1 problem"),
        ("a.yaml", format!("a: &a [x, x]\n{}", laughs.concat()), "1 problem"),
        ("a.yaml", "- ".repeat(100_000), "1 problem"),
        ("a.json", "[".repeat(100_000), "1 problem"),
        ("a.json", format!("{{\"a\": {}}}", "9".repeat(1_000_000)), "1 problem"),
    ] {
        let directory = files(&[(name, &text)]);
        let (code, out, peak) = measured(directory.path());
        assert_eq!(code, 2, "{out}");
        assert!(out.contains(problem) || out.contains("problems"), "{out}");
        assert!(peak < 512, "{peak} MiB");
    }
}
