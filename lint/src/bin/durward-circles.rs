//! Checks that the files of a crate don't import each other in a circle.
//!
//! A file imports another one if a path in its code leads to an item of that file: in a `use`, after `crate::` or `super::`, or after
//! the name of a module that the file declares. A file can use the items of the modules that contain it. Tests don't count.

use std::collections::{BTreeMap, BTreeSet};
use std::io::{self, Write as _};
use std::process::{Command, ExitCode};
use std::{env, fs};

/// The path of a module within its crate. The root is empty.
type Module = Vec<String>;

const TESTS: &str = "#[cfg(test)]";

fn main() -> ExitCode {
    let (text, code) = match run() {
        Ok(circles) if circles.is_empty() => return ExitCode::SUCCESS,
        Ok(circles) => (circles.join("\n"), ExitCode::FAILURE),
        Err(error) => (format!("durward-circles: {error}"), ExitCode::from(2)),
    };
    match writeln!(io::stderr(), "{text}") {
        Ok(()) => code,
        Err(_) => ExitCode::from(2),
    }
}

/// Returns a line for each circle.
fn run() -> Result<Vec<String>, String> {
    let git = |words: &[&str]| -> Result<String, String> {
        let output = Command::new("git").args(words).output().map_err(|error| format!("git: {error}"))?;
        Ok(String::from_utf8_lossy(&output.stdout).trim_end().to_owned())
    };
    env::set_current_dir(git(&["rev-parse", "--show-toplevel"])?).map_err(|error| error.to_string())?;
    let files = git(&["ls-files", "--cached", "--others", "--exclude-standard", "crates/*/src/*.rs"])?;
    let mut crates: BTreeMap<&str, BTreeMap<Module, String>> = BTreeMap::new();
    for file in files.lines().filter(|file| fs::exists(file).unwrap_or(true)) {
        let Some((name, path)) = file.split_once("/src/") else {
            continue;
        };
        let text = fs::read_to_string(file).map_err(|error| format!("{file}: {error}"))?;
        crates.entry(name).or_default().insert(module(path), text);
    }
    let of_crate = |(name, sources): (&str, BTreeMap<Module, String>)| {
        let circles = circles(&sources).into_iter();
        let line =
            |circle: Vec<Module>| circle.iter().map(|file| file.join("/")).collect::<Vec<_>>().join(", ");
        circles
            .map(|circle| format!("{name}: files import each other in a circle: {}", line(circle)))
            .collect::<Vec<_>>()
    };
    Ok(crates.into_iter().flat_map(of_crate).collect())
}

/// Returns the module of a file below `src/`.
fn module(path: &str) -> Module {
    let mut parts: Module = path.trim_end_matches(".rs").split('/').map(str::to_owned).collect();
    if matches!(parts.last().map(String::as_str), Some("mod" | "lib" | "main")) {
        parts.pop();
    }
    parts
}

/// Returns the sets of files that can each be reached from the others.
fn circles(sources: &BTreeMap<Module, String>) -> Vec<Vec<Module>> {
    let code: BTreeMap<&Module, String> = sources.iter().map(|(module, text)| (module, code(text))).collect();
    let tests: Vec<Module> = sources.iter().flat_map(|(module, text)| test_modules(module, text)).collect();
    let is_test = |module: &Module| tests.iter().any(|test| module.starts_with(test));
    let imports: BTreeMap<&Module, BTreeSet<Module>> = code
        .iter()
        .filter(|(module, _)| !is_test(module))
        .map(|(module, code)| {
            let found = paths(code).into_iter().filter_map(|path| target(sources, module, &path));
            (*module, found.filter(|target| !module.starts_with(target) && !is_test(target)).collect())
        })
        .collect();
    let reachable = |from: &Module| {
        let (mut seen, mut next) = (BTreeSet::new(), vec![from]);
        while let Some(module) = next.pop() {
            for target in imports.get(module).into_iter().flatten() {
                if seen.insert(target) {
                    next.push(target);
                }
            }
        }
        seen
    };
    let all: BTreeMap<&Module, BTreeSet<&Module>> =
        imports.keys().map(|module| (*module, reachable(module))).collect();
    let mut found = BTreeSet::new();
    for (module, reached) in &all {
        let circle: Vec<Module> = reached
            .iter()
            .filter(|other| all.get(*other).is_some_and(|back| back.contains(module)))
            .map(|other| (*other).clone())
            .collect();
        if circle.len() > 1 {
            found.insert(circle);
        }
    }
    found.into_iter().collect()
}

/// Returns the modules that a file declares for tests.
fn test_modules(module: &Module, text: &str) -> Vec<Module> {
    let declared = text.split(TESTS).skip(1).filter_map(|rest| {
        let name = rest.trim_start().strip_prefix("mod ")?.split(|c: char| !is_word(c)).next()?;
        Some([module.as_slice(), &[name.to_owned()]].concat())
    });
    declared.collect()
}

fn is_word(c: char) -> bool {
    c.is_alphanumeric() || c == '_'
}

/// Returns a file without comments, its module `tests` and the imports of tests.
fn code(text: &str) -> String {
    let text = text.split(&format!("{TESTS}\nmod tests {{")).next().unwrap_or_default();
    let mut lines = Vec::new();
    let mut is_for_tests = false;
    for line in text.lines().map(|line| line.split("//").next().unwrap_or_default().trim()) {
        if !(is_for_tests && line.starts_with("use ")) {
            lines.push(line);
        }
        is_for_tests = line == TESTS;
    }
    lines.join(" ")
}

/// Returns the paths of the code, with those of each `use` in full.
fn paths(code: &str) -> Vec<String> {
    let mut found = Vec::new();
    for part in code.split(';') {
        if let Some((_, tree)) = part.rsplit_once("use ").filter(|(before, _)| !before.ends_with(is_word)) {
            found.extend(expand(tree));
        }
        let words = part.split(|c: char| !is_word(c) && c != ':').filter(|word| word.contains("::"));
        found.extend(words.map(|word| word.trim_matches(':').to_owned()));
    }
    found
}

/// Returns the paths of a tree such as `super::{a::{B, c}, d}`.
fn expand(tree: &str) -> Vec<String> {
    let tree = tree.trim();
    let Some((prefix, rest)) = tree.split_once('{') else {
        return vec![tree.split(" as ").next().unwrap_or_default().trim().to_owned()];
    };
    let inner = rest.rsplit_once('}').map_or(rest, |(inner, _)| inner);
    let (mut depth, mut parts) = (0_usize, vec![String::new()]);
    for c in inner.chars() {
        match c {
            '{' => depth += 1,
            '}' => depth = depth.saturating_sub(1),
            _ => {}
        }
        match parts.last_mut() {
            Some(last) if c != ',' || depth > 0 => last.push(c),
            _ => parts.push(String::new()),
        }
    }
    let parts = parts.iter().filter(|part| !part.trim().is_empty());
    parts.flat_map(|part| expand(part)).map(|part| format!("{}{part}", prefix.trim())).collect()
}

/// Returns the file of the item at the end of a path.
fn target(sources: &BTreeMap<Module, String>, from: &Module, path: &str) -> Option<Module> {
    let mut words = path.split("::").map(str::trim);
    let inner = |module: &Module, word: &str| [module.as_slice(), &[word.to_owned()]].concat();
    let mut module = match words.next()? {
        "crate" => Module::new(),
        "self" => from.clone(),
        "super" => from.split_last()?.1.to_vec(),
        child => Some(inner(from, child)).filter(|module| sources.contains_key(module))?,
    };
    for word in words {
        let next = inner(&module, word);
        if word == "super" {
            module.pop();
        } else if sources.contains_key(&next) {
            module = next;
        } else {
            break;
        }
    }
    Some(module)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(files: &[(&str, &str)]) -> Vec<String> {
        let sources = files.iter().map(|(path, text)| (module(path), (*text).to_owned())).collect();
        let name =
            |circle: Vec<Module>| circle.iter().map(|file| file.join("/")).collect::<Vec<_>>().join(" ");
        circles(&sources).into_iter().map(name).collect()
    }

    #[test]
    fn finds_circles_of_imports_and_paths() {
        for (a, b) in [
            ("use crate::b::Y;", "use crate::a::X;"),
            ("use super::b::{self, Y};", "use super::{\n    a::{X as Z},\n    c,\n};"),
            ("fn f() { crate::b::g(); }", "fn g() -> super::a::X {}"),
            ("pub(crate) use super::b::Y;", "use super::c;\nfn g() { super::a::f(); }"),
        ] {
            assert_eq!(found(&[("a.rs", a), ("b.rs", b), ("c.rs", "")]), ["a b"], "{a} {b}");
        }
        // A module that exports the item of another file leads to it.
        let files = [
            ("m/mod.rs", "mod run;\npub(crate) use run::run;\npub(crate) struct Case;"),
            ("m/run.rs", "use crate::judge::Worker;"),
            ("judge.rs", "use crate::m::Case;"),
        ];
        assert_eq!(found(&files), ["judge m m/run"]);
    }

    #[test]
    fn ignores_parents_tests_comments_and_other_crates() {
        for (a, b) in [
            ("use crate::b::Y;", "use crate::c::X;"),
            ("use crate::b::Y;", "// use crate::a::X;"),
            ("use crate::b::Y;", "#[cfg(test)]\nuse crate::a::X;"),
            ("use crate::b::Y;", "#[cfg(test)]\nmod tests {\n    use crate::a::X;\n}"),
            ("use crate::b::Y;", "use other::a::X;"),
        ] {
            assert_eq!(found(&[("a.rs", a), ("b.rs", b), ("c.rs", "")]), [""; 0], "{a} {b}");
        }
        let parent = [("m/mod.rs", "mod a;\nuse a::X;\nconst NAME: u8 = 1;"), ("m/a.rs", "use super::NAME;")];
        assert_eq!(found(&parent), [""; 0]);
        let tests = [
            ("a.rs", "#[cfg(test)]\nmod fixture;\nuse super::b;"),
            ("a/fixture.rs", "use crate::a::X;"),
            ("b.rs", "fn f() { crate::a::fixture::g(); }"),
        ];
        assert_eq!(found(&tests), [""; 0]);
    }
}
