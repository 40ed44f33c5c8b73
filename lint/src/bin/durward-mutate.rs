//! Changes the code in small ways and expects that a test fails for each: `durward-mutate [--check] [--only WORD] FILE...`
//!
//! A file of mutants starts with the commands that run the tests, the narrowest first. A mutant has a name, the file that
//! it changes, and a hunk of a diff without line numbers. The lines of the hunk are compared without their indentation,
//! and must occur in the file exactly once:
//!
//! ```text
//! test cargo test -p durward-guards --lib etcd
//!
//! mutant a quorum is half of the voters
//! in crates/guards/src/etcd/quorum.rs
//! -voters / 2 + 1
//! +voters / 2
//! ```
//!
//! The tests run on a copy of the working tree under target/mutants, which has a build directory of its own. A mutant that
//! does not apply or does not compile is an error. One whose tests do not end in time counts as caught.

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};
use std::{env, fs};

/// Seconds that the tests of a mutant can take. They take a few, so a test that takes this long waits forever.
const TEST_SECONDS: &str = "180";

/// Exit code of `timeout` for a command that took too long.
const TIMED_OUT: i32 = 124;

const USAGE: &str = "usage: durward-mutate [--check] [--only WORD] FILE...
  --check      only checks that every mutant applies
  --only WORD  tries only mutants whose name contains WORD";

/// A change of one file that a test must notice.
#[derive(Debug, Default, PartialEq)]
struct Mutant {
    name: String,
    file: String,
    old: Vec<String>,
    new: Vec<String>,
}

/// The mutants of one file, and the commands that run their tests.
#[derive(Debug, Default, PartialEq)]
struct Mutants {
    tests: Vec<String>,
    mutants: Vec<Mutant>,
}

fn main() -> ExitCode {
    match run() {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            let _ = writeln!(io::stderr(), "durward-mutate: {error}");
            ExitCode::from(2)
        }
    }
}

fn run() -> Result<bool, String> {
    let (mut check, mut only, mut files) = (false, String::new(), Vec::new());
    let mut words = env::args().skip(1);
    while let Some(word) = words.next() {
        match word.as_str() {
            "--check" => check = true,
            "--only" => only = words.next().ok_or(USAGE)?,
            _ if word.starts_with('-') => return Err(USAGE.to_owned()),
            _ => files.push(word),
        }
    }
    let mut sets = Vec::new();
    for file in &files {
        let mut set = parse(&read(Path::new(file))?).map_err(|error| format!("{file}:{error}"))?;
        set.mutants.retain(|mutant| mutant.name.contains(&only));
        for mutant in &set.mutants {
            apply(mutant, &read(Path::new(&mutant.file))?)?;
        }
        sets.push(set);
    }
    let total: usize = sets.iter().map(|set| set.mutants.len()).sum();
    if check {
        say(&format!("{total} mutants apply"));
        return Ok(total > 0);
    }

    let tree = copy_tree()?;
    let mut caught = 0;
    for set in &sets {
        if let Some(failure) = failing_test(&tree, &set.tests)? {
            return Err(format!("the tests fail without a mutant: {failure}"));
        }
        for mutant in &set.mutants {
            let path = tree.join(&mutant.file);
            let original = read(&path)?;
            write(&path, &apply(mutant, &original)?)?;
            let result = failing_test(&tree, &set.tests);
            write(&path, &original)?;
            if let Some(failure) = result.map_err(|error| format!("{}: {error}", mutant.name))? {
                caught += 1;
                say(&format!("caught: {} ({failure})", mutant.name));
            } else {
                say(&format!("NOT CAUGHT: {} ({})", mutant.name, mutant.file));
            }
        }
    }
    say(&format!("{caught} of {total} mutants caught"));
    Ok(total > 0 && caught == total)
}

/// Reads a file of mutants. An error starts with the number of its line.
fn parse(text: &str) -> Result<Mutants, String> {
    let mut set = Mutants::default();
    for (number, line) in (1..).zip(text.lines()) {
        let error = |what: &str| Err(format!("{number}: {what}"));
        if let Some(name) = line.strip_prefix("mutant ") {
            set.mutants.push(Mutant { name: name.to_owned(), ..Mutant::default() });
            continue;
        }
        if let Some(command) = line.strip_prefix("test ") {
            set.tests.push(command.to_owned());
            continue;
        }
        if line.trim().is_empty() || line.starts_with('#') {
            continue;
        }
        let Some(mutant) = set.mutants.last_mut() else {
            return error("this line is before the first mutant");
        };
        let (mark, text) = line.split_at_checked(1).unwrap_or_default();
        match mark {
            _ if line.starts_with("in ") => line[3..].clone_into(&mut mutant.file),
            "-" => mutant.old.push(text.to_owned()),
            "+" => mutant.new.push(text.to_owned()),
            " " => {
                mutant.old.push(text.to_owned());
                mutant.new.push(text.to_owned());
            }
            _ => return error("a line starts with `test`, `mutant`, `in`, `-`, `+`, a space or `#`"),
        }
    }
    let incomplete =
        |mutant: &&Mutant| mutant.file.is_empty() || mutant.old.is_empty() || mutant.old == mutant.new;
    if let Some(mutant) = set.mutants.iter().find(incomplete) {
        return Err(format!(" {}: a mutant has a file and lines that change", mutant.name));
    }
    if set.tests.is_empty() {
        return Err(" no test command".to_owned());
    }
    Ok(set)
}

/// Returns the text of the mutant's file with the change.
fn apply(mutant: &Mutant, text: &str) -> Result<String, String> {
    let lines: Vec<&str> = text.lines().collect();
    let is_match =
        |window: &&[&str]| window.iter().zip(&mutant.old).all(|(line, old)| line.trim() == old.trim());
    let found = lines.windows(mutant.old.len()).filter(is_match).count();
    let at = lines.windows(mutant.old.len()).position(|window| is_match(&window)).filter(|_| found == 1);
    let Some(at) = at else {
        return Err(format!("{}: {}: the lines occur {found} times, not once", mutant.file, mutant.name));
    };
    let mut changed = String::new();
    for (number, line) in lines.iter().enumerate() {
        if number == at {
            mutant.new.iter().for_each(|new| changed.extend([new, "\n"]));
        }
        if !(at..at + mutant.old.len()).contains(&number) {
            changed.extend([line, "\n"]);
        }
    }
    Ok(changed)
}

/// Runs the test commands until one fails. Returns the name of a test that failed.
fn failing_test(tree: &Path, tests: &[String]) -> Result<Option<String>, String> {
    for test in tests {
        let (cargo, filter) = test.split_once(" -- ").unwrap_or((test, ""));
        let build = output(tree, &format!("{cargo} --no-run"))?;
        if build.0 != 0 {
            return Err(format!("it does not compile:\n{}", build.1));
        }
        let filter = if filter.is_empty() { String::new() } else { format!(" -- {filter}") };
        let (code, text) = output(tree, &format!("timeout {TEST_SECONDS} {cargo}{filter}"))?;
        if code == TIMED_OUT {
            return Ok(Some(format!("not done after {TEST_SECONDS} s")));
        }
        if code != 0 {
            let failed =
                text.lines().find_map(|line| line.strip_prefix("test ")?.strip_suffix(" ... FAILED"));
            return Ok(Some(failed.unwrap_or(test).to_owned()));
        }
    }
    Ok(None)
}

/// Runs a command in the copy. Returns its exit code and all that it printed.
fn output(tree: &Path, command: &str) -> Result<(i32, String), String> {
    let mut words = command.split_whitespace();
    let output = Command::new(words.next().unwrap_or_default())
        .args(words)
        .current_dir(tree)
        .env("CARGO_TARGET_DIR", "../build")
        .env("CARGO_PROFILE_DEV_DEBUG", "0")
        .env("PROPTEST_DISABLE_FAILURE_PERSISTENCE", "true")
        .output()
        .map_err(|error| format!("{command}: {error}"))?;
    let mut text = String::from_utf8_lossy(&output.stdout).into_owned();
    let _ = write!(text, "{}", String::from_utf8_lossy(&output.stderr));
    Ok((output.status.code().unwrap_or(-1), text))
}

/// Copies the working tree to target/mutants/tree. Files that did not change keep their times, so that cargo rebuilds little.
fn copy_tree() -> Result<PathBuf, String> {
    let tree = env::current_dir().map_err(|error| error.to_string())?.join("target/mutants/tree");
    fs::create_dir_all(&tree).map_err(|error| format!("{}: {error}", tree.display()))?;
    let (code, files) = output(Path::new("."), "git ls-files --cached --others --exclude-standard")?;
    if code != 0 {
        return Err(files);
    }
    let files: BTreeSet<PathBuf> =
        files.lines().filter(|file| Path::new(file).is_file()).map(|file| tree.join(file)).collect();
    remove_others(&tree, &files).map_err(|error| format!("{}: {error}", tree.display()))?;
    for copy in &files {
        let original = copy.strip_prefix(&tree).unwrap_or(copy);
        let is_same = fs::read(original).ok() == fs::read(copy).ok();
        let directory = copy.parent().unwrap_or(&tree);
        if !is_same {
            let copied = fs::create_dir_all(directory).and_then(|()| fs::copy(original, copy));
            copied.map_err(|error| format!("{}: {error}", copy.display()))?;
        }
    }
    Ok(tree)
}

/// Removes the files under `directory` that are not in `files`.
fn remove_others(directory: &Path, files: &BTreeSet<PathBuf>) -> io::Result<()> {
    for entry in fs::read_dir(directory)? {
        let path = entry?.path();
        if path.is_dir() {
            remove_others(&path, files)?;
        } else if !files.contains(&path) {
            fs::remove_file(&path)?;
        }
    }
    Ok(())
}

fn read(path: &Path) -> Result<String, String> {
    fs::read_to_string(path).map_err(|error| format!("{}: {error}", path.display()))
}

fn write(path: &Path, text: &str) -> Result<(), String> {
    fs::write(path, text).map_err(|error| format!("{}: {error}", path.display()))
}

fn say(line: &str) {
    let _ = writeln!(io::stdout(), "{line}");
}

#[cfg(test)]
mod tests {
    use super::*;

    const SET: &str =
        "# Comment\ntest cargo test\n\nmutant a name\nin src/a.rs\n let a;\n-  let b = 1;\n+let b = 2;\n";

    fn mutant() -> Mutant {
        parse(SET).unwrap().mutants.remove(0)
    }

    #[test]
    fn reads_a_file_of_mutants() {
        let lines = |lines: &[&str]| lines.iter().map(|line| (*line).to_owned()).collect::<Vec<_>>();
        let expected = Mutant {
            name: "a name".to_owned(),
            file: "src/a.rs".to_owned(),
            old: lines(&["let a;", "  let b = 1;"]),
            new: lines(&["let a;", "let b = 2;"]),
        };
        assert_eq!(parse(SET).unwrap(), Mutants { tests: lines(&["cargo test"]), mutants: vec![expected] });
    }

    #[test]
    fn rejects_incomplete_mutants() {
        for set in [
            "",
            "test a\nmutant b\nin c\n",
            "test a\nmutant b\n-c\n",
            "test a\nmutant b\nin c\n-d\n+d\n",
            "-a\n",
            "test a\nmutant b\n?\n",
        ] {
            assert!(parse(set).is_err(), "{set}");
        }
    }

    #[test]
    fn applies_a_mutant_whatever_the_indentation() {
        let changed = apply(&mutant(), "fn f() {\n    let a;\n    let b = 1;\n}\n").unwrap();
        assert_eq!(changed, "fn f() {\nlet a;\nlet b = 2;\n}\n");
    }

    #[test]
    fn rejects_lines_that_do_not_occur_exactly_once() {
        for text in ["", "let b = 1;\n", "let a;\nlet b = 1;\nlet a;\nlet b = 1;\n"] {
            assert!(apply(&mutant(), text).is_err(), "{text}");
        }
    }
}
