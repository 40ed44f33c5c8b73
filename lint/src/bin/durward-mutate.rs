//! Changes the code in small ways and expects that a test fails for each: `durward-mutate [--check] [--only WORD] FILE...`
//!
//! A file of mutants starts with the commands that run the tests, the narrowest first. A mutant has a name, the file that
//! it changes, and a hunk of a diff without line numbers. The lines of the hunk are compared without their indentation,
//! and must occur in the file exactly once. A mutant can have commands of its own:
//!
//! ```text
//! test cargo test -p durward-guards --lib etcd
//!
//! mutant a quorum is half of the voters
//! in crates/webhook/guards/src/etcd/quorum.rs
//! -voters / 2 + 1
//! +voters / 2
//! ```
//!
//! The tests run on a copy of the working tree under target/mutants, which has a build directory of its own. A mutant that
//! does not apply or compile is an error, and so is one whose tests do not end in time.

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};
use std::{env, fs};

/// Seconds that the tests of a mutant can take. They take a few, and more on a busy machine.
const TEST_SECONDS: &str = "300";

/// Exit code of `timeout` for a command that took too long.
const TIMED_OUT: i32 = 124;

const USAGE: &str = "usage: durward-mutate [--check] [--only WORD] FILE...
  --check      only checks that every mutant applies
  --only WORD  tries only mutants whose name contains WORD";

/// A change of one file that a test must notice.
#[derive(Debug, Default, PartialEq)]
struct Mutant {
    name: String,
    /// Commands for this mutant instead of those of its file.
    tests: Vec<String>,
    file: String,
    old: Vec<String>,
    new: Vec<String>,
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
    let mut mutants = Vec::new();
    for file in &files {
        mutants.extend(parse(&read(Path::new(file))?).map_err(|error| format!("{file}:{error}"))?);
    }
    mutants.retain(|mutant| mutant.name.contains(&only));
    let broken: Vec<String> =
        mutants.iter().filter_map(|mutant| changed(Path::new("."), mutant).err()).collect();
    if !broken.is_empty() {
        return Err(broken.join("\n"));
    }
    if mutants.is_empty() {
        return Err("no mutants".to_owned());
    }
    if check {
        say(&format!("{} mutants apply", mutants.len()));
        return Ok(true);
    }

    let tree = copy_tree()?;
    let tests: BTreeSet<&String> = mutants.iter().flat_map(|mutant| &mutant.tests).collect();
    if let Some(failure) = failing_test(&tree, tests)? {
        return Err(format!("the tests fail without a mutant: {failure}"));
    }
    let mut caught = 0;
    for mutant in &mutants {
        match try_mutant(&tree, mutant) {
            Ok(Some(failure)) => {
                caught += 1;
                say(&format!("caught: {} ({failure})", mutant.name));
            }
            Ok(None) => say(&format!("NOT CAUGHT: {} ({})", mutant.name, mutant.file)),
            Err(error) => say(&format!("ERROR: {}: {error}", mutant.name)),
        }
    }
    say(&format!("{caught} of {} mutants caught", mutants.len()));
    Ok(caught == mutants.len())
}

/// Applies a mutant, runs its tests, and restores the file. Returns the name of a test that failed.
fn try_mutant(tree: &Path, mutant: &Mutant) -> Result<Option<String>, String> {
    let path = tree.join(&mutant.file);
    let original = read(&path)?;
    write(&path, &changed(tree, mutant)?)?;
    let failure = failing_test(tree, &mutant.tests);
    write(&path, &original)?;
    failure
}

/// Reads a file of mutants. An error starts with the number of its line.
fn parse(text: &str) -> Result<Vec<Mutant>, String> {
    let (mut mutants, mut common): (Vec<Mutant>, Vec<String>) = (Vec::new(), Vec::new());
    for (number, line) in (1..).zip(text.lines()).filter(|(_, line)| !line.trim().is_empty()) {
        if let Some(name) = line.strip_prefix("mutant ") {
            mutants.push(Mutant { name: name.to_owned(), ..Mutant::default() });
        } else if let Some(command) = line.strip_prefix("test ") {
            mutants.last_mut().map_or(&mut common, |mutant| &mut mutant.tests).push(command.to_owned());
        } else if let (false, Some(mutant)) = (line.starts_with('#'), mutants.last_mut()) {
            let (mark, text) = line.split_at_checked(1).unwrap_or_default();
            match (mark, line.strip_prefix("in ")) {
                (_, Some(file)) => file.clone_into(&mut mutant.file),
                ("-", _) => mutant.old.push(text.to_owned()),
                ("+", _) => mutant.new.push(text.to_owned()),
                (" ", _) => {
                    mutant.old.push(text.to_owned());
                    mutant.new.push(text.to_owned());
                }
                _ => {
                    return Err(format!("{number}: a line starts with test, mutant, in, -, +, # or a space"));
                }
            }
        } else if !line.starts_with('#') {
            return Err(format!("{number}: this line is before the first mutant"));
        }
    }
    for mutant in &mut mutants {
        if mutant.tests.is_empty() {
            mutant.tests.clone_from(&common);
        }
        let is_empty = mutant.file.is_empty() || mutant.tests.is_empty() || mutant.old.is_empty();
        if is_empty || mutant.old == mutant.new {
            return Err(format!(" {}: needs a test command, a file and lines that change", mutant.name));
        }
    }
    Ok(mutants)
}

/// Returns the text of the mutant's file in a tree with the change.
fn changed(tree: &Path, mutant: &Mutant) -> Result<String, String> {
    apply(mutant, &read(&tree.join(&mutant.file))?)
}

/// Applies a mutant to the text of its file.
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
fn failing_test<'t>(
    tree: &Path,
    tests: impl IntoIterator<Item = &'t String>,
) -> Result<Option<String>, String> {
    for test in tests {
        let (cargo, filter) = test.split_once(" -- ").unwrap_or((test, ""));
        let build = output(tree, &format!("{cargo} --no-run"))?;
        if build.0 != 0 {
            return Err(format!("it does not compile:\n{}", build.1));
        }
        let filter = if filter.is_empty() { String::new() } else { format!(" -- {filter}") };
        let (code, text) = output(tree, &format!("timeout {TEST_SECONDS} {cargo}{filter}"))?;
        if code == TIMED_OUT {
            return Err(format!("no test failed, but the tests ran for {TEST_SECONDS} s"));
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
        parse(SET).unwrap().remove(0)
    }

    #[test]
    fn reads_a_file_of_mutants() {
        let lines = |lines: &[&str]| lines.iter().map(|line| (*line).to_owned()).collect::<Vec<_>>();
        let expected = Mutant {
            name: "a name".to_owned(),
            tests: lines(&["cargo test"]),
            file: "src/a.rs".to_owned(),
            old: lines(&["let a;", "  let b = 1;"]),
            new: lines(&["let a;", "let b = 2;"]),
        };
        assert_eq!(parse(SET).unwrap(), [expected]);
    }

    #[test]
    fn a_mutant_can_have_commands_of_its_own() {
        let set = parse("mutant a\ntest cargo a\nin b\n-c\n").unwrap();
        assert_eq!(set[0].tests, ["cargo a"]);
    }

    #[test]
    fn rejects_incomplete_mutants() {
        for set in [
            "mutant b\nin c\n-d\n",
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
