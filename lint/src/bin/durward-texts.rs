//! Checks that no module reads a message of another one. A reason is a field or an enum, and a text is rendered once.
//!
//! A finding is a call of a method of [`METHODS`] in `crates/*/src` outside tests if
//!
//! - its argument is a literal with letters and a space, as in `why.contains("is not")`, or
//! - it reads a field `text`, `message` or `summary`, or the result of `to_string()`, except for a single character.
//!
//! Words of other programs are no finding: a comment in the same top-level item says `words of PROGRAM: FILE`.

use std::collections::BTreeSet;
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};
use std::{env, fs};

/// Methods that read a text. `says` is the one of errors of etcd.
const METHODS: &str = "starts_with ends_with contains find rfind split split_once rsplit_once strip_prefix strip_suffix \
                       trim_start_matches trim_end_matches says";

/// Receivers that are messages.
const MESSAGES: [&str; 4] = [".text", ".message", ".summary", ".to_string()"];

const MARK: &str = "words of ";

const TESTS: &str = "#[cfg(test)]";

fn main() -> ExitCode {
    let (text, code) = match run() {
        Ok(found) if found.is_empty() => return ExitCode::SUCCESS,
        Ok(found) => (found.join("\n"), ExitCode::FAILURE),
        Err(error) => (format!("durward-texts: {error}"), ExitCode::from(2)),
    };
    match writeln!(io::stderr(), "{text}") {
        Ok(()) => code,
        Err(_) => ExitCode::from(2),
    }
}

/// Returns a line for each finding.
fn run() -> Result<Vec<String>, String> {
    let git = |words: &[&str]| -> Result<String, String> {
        let output = Command::new("git").args(words).output().map_err(|error| format!("git: {error}"))?;
        Ok(String::from_utf8_lossy(&output.stdout).trim_end().to_owned())
    };
    env::set_current_dir(git(&["rev-parse", "--show-toplevel"])?).map_err(|error| error.to_string())?;
    let files = git(&["ls-files", "--cached", "--others", "--exclude-standard", "crates/*/src/*.rs"])?;
    let (mut sources, mut tests) = (Vec::new(), BTreeSet::new());
    for file in files.lines().map(PathBuf::from).filter(|file| file.exists()) {
        let text = fs::read_to_string(&file).map_err(|error| format!("{}: {error}", file.display()))?;
        tests.extend(test_modules(&file, &text));
        sources.push((file, text));
    }
    let is_test = |file: &Path| tests.iter().any(|module| file.with_extension("").starts_with(module));
    let of_file = |(file, text): &(PathBuf, String)| {
        let place = |(line, call)| {
            format!(
                "{}:{line}: {call} reads a message: use a field, or write `{MARK}PROGRAM: FILE`",
                file.display()
            )
        };
        findings(text).into_iter().map(place).collect::<Vec<_>>()
    };
    Ok(sources.iter().filter(|(file, _)| !is_test(file)).flat_map(of_file).collect())
}

/// Returns the files and directories of modules that a file declares for tests, without extension.
fn test_modules(file: &Path, text: &str) -> Vec<PathBuf> {
    let is_root = ["mod.rs", "lib.rs", "main.rs"].iter().any(|name| file.ends_with(name));
    let directory = if is_root { file.parent().unwrap_or(file).to_owned() } else { file.with_extension("") };
    let declared = text.split(TESTS).skip(1).filter_map(|rest| {
        let name = rest.trim_start().strip_prefix("mod ")?.split(|c: char| !is_word(c)).next()?;
        Some(directory.join(name))
    });
    declared.collect()
}

fn is_word(c: char) -> bool {
    c.is_alphanumeric() || c == '_'
}

/// Returns the findings of a file, each with its line and its call.
fn findings(text: &str) -> Vec<(usize, String)> {
    let code = text.find(&format!("{TESTS}\nmod tests {{")).map_or(text, |end| &text[..end]);
    let mut found = Vec::new();
    for (at, _) in code.match_indices('.') {
        let (before, after) = (&code[..at], &code[at + 1..]);
        let Some((name, argument)) = after.split_once('(') else { continue };
        let line = before.rsplit('\n').next().unwrap_or_default();
        if !METHODS.split(' ').any(|method| method == name) || line.trim_start().starts_with("//") {
            continue;
        }
        let literal = literal(argument.trim_start_matches(['&', '[', ' ', '\n']));
        let words = literal.unwrap_or_default().replace("\\n", " ").replace("\\t", " ");
        let is_sentence = words.contains(' ') && words.contains(char::is_alphabetic);
        let reads_message = MESSAGES.iter().any(|message| before.trim_end().ends_with(message))
            && !argument.starts_with(['\'', '[', '|', ')']);
        let item = &before[before.rfind("\n}").unwrap_or_default()..];
        if (is_sentence || reads_message) && !item.contains(MARK) && !item.contains(TESTS) {
            let call = format!("{name}({})", literal.unwrap_or("…"));
            found.push((before.matches('\n').count() + 1, call));
        }
    }
    found
}

/// Returns the literal at the beginning of a text, with its quotes.
fn literal(text: &str) -> Option<&str> {
    let inner = text.strip_prefix('"')?;
    let end = inner.char_indices().find(|(at, c)| *c == '"' && !inner[..*at].ends_with('\\'))?.0;
    text.get(..end + 2)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn finds_sentences_and_messages_that_are_read() {
        for (code, calls) in [
            ("fn f() {\n    why.contains(\"is not\")\n}", vec![(2, "contains(\"is not\")")]),
            ("x.split(\n    \"\\nNext\")", vec![(1, "split(\"\\nNext\")")]),
            ("x.starts_with([\"a b\", \"c\"])", vec![(1, "starts_with(\"a b\")")]),
            ("cause.text.starts_with(WHAT)", vec![(1, "starts_with(…)")]),
            ("error.to_string().contains(\"x\")", vec![(1, "contains(\"x\")")]),
            ("name.contains(\"x\")\nname.split(' ')\ncause.text.split('\\n')", vec![]),
            ("/// Words of it, words of etcd: error.go.\nfn f() {\n    a.says(\"is not\")\n}", vec![]),
            (
                "// words of etcd: error.go\nfn f() {\n}\nfn g() { a.says(\"is not\") }",
                vec![(4, "says(\"is not\")")],
            ),
            ("line.split(\" - \")\n#[cfg(test)]\nfn f() { a.contains(\"is not\") }", vec![]),
            ("// why.contains(\"is not\")", vec![]),
            ("#[cfg(test)]\nmod tests {\n    why.contains(\"is not\")", vec![]),
        ] {
            let found = findings(code);
            let found: Vec<(usize, &str)> = found.iter().map(|(line, call)| (*line, call.as_str())).collect();
            assert_eq!(found, calls, "{code}");
        }
    }

    #[test]
    fn skips_modules_for_tests() {
        let text = "mod a;\n#[cfg(test)]\nmod fixture;\n#[cfg(test)]\nmod tests;\n";
        let modules = |file: &str| test_modules(Path::new(file), text);
        assert_eq!(modules("c/src/x/mod.rs"), [PathBuf::from("c/src/x/fixture"), "c/src/x/tests".into()]);
        assert_eq!(modules("c/src/x.rs"), [PathBuf::from("c/src/x/fixture"), "c/src/x/tests".into()]);
    }
}
