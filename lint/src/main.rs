//! Checks the language of Rust comments, texts for users and Markdown pages: `durward-lint [--only DIR]... [--list] [PAGE.md]...`
//!
//! The rules are in CONTRIBUTING.md. It reads every Rust file that git does not ignore, and the string literals of the
//! product's crates. It fails if more than 1 % of the sentences open with a word that rule L2 forbids, or if more than 2 % are
//! longer than rule L7 allows. It also fails if a forbidden phrase occurs, or if too many lines have a `lint: allow(REASON)`.

mod markdown;
mod rules;
mod rust;
mod sentences;

use std::fmt::Write as _;
use std::io::{self, Write as _};
use std::path::Path;
use std::process::{Command, ExitCode};
use std::{env, fs};

use markdown::Line;
use rules::{Finding, Results};

/// One of so many sentences can open with a word of rule L2.
const SENTENCES_PER_OPENING: usize = 100;

/// One of so many sentences can be longer than rule L7 allows.
const SENTENCES_PER_LONG: usize = 50;

/// Lines of the workspace that can have a `lint: allow(REASON)`.
const MOST_ALLOWED: usize = 20;

const USAGE: &str = "usage: durward-lint [--only DIR]... [--list] [PAGE.md]...
  --only DIR  reads only files under DIR, relative to the root of the repository
  --list      prints the sentences of rules L2 and L7 even if they are few enough";

#[derive(Default)]
struct Args {
    only: Vec<String>,
    list: bool,
    pages: Vec<String>,
}

fn main() -> ExitCode {
    let (text, code) = match args().and_then(|args| run(&args)) {
        Ok((report, true)) => (report, ExitCode::SUCCESS),
        Ok((report, false)) => (report, ExitCode::FAILURE),
        Err(error) => (format!("durward-lint: {error}\n"), ExitCode::from(2)),
    };
    match io::stdout().write_all(text.as_bytes()) {
        Ok(()) => code,
        Err(_) => ExitCode::from(2),
    }
}

fn args() -> Result<Args, String> {
    let mut args = Args::default();
    let mut words = env::args().skip(1);
    while let Some(word) = words.next() {
        match word.as_str() {
            "--list" => args.list = true,
            "--only" => args.only.push(words.next().ok_or(USAGE)?.trim_matches(['.', '/']).to_owned()),
            page if !page.starts_with('-') => args.pages.push(word),
            _ => return Err(USAGE.to_owned()),
        }
    }
    Ok(args)
}

/// Checks all files. Returns the report, and whether the language is good enough.
fn run(args: &Args) -> Result<(String, bool), String> {
    let git = |words: &[&str]| -> Result<String, String> {
        let output = Command::new("git").args(words).output().map_err(|error| format!("git: {error}"))?;
        if !output.status.success() {
            return Err(String::from_utf8_lossy(&output.stderr).trim().to_owned());
        }
        Ok(String::from_utf8_lossy(&output.stdout).trim_end().to_owned())
    };
    env::set_current_dir(git(&["rev-parse", "--show-toplevel"])?).map_err(|error| error.to_string())?;
    let sources = git(&["ls-files", "--cached", "--others", "--exclude-standard", "*.rs"])?;
    let sources = sources.lines().filter(|file| Path::new(file).exists());
    let is_chosen = |file: &&str| {
        let is_under = |dir: &String| {
            file.strip_prefix(dir.as_str()).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
        };
        args.only.is_empty() || args.only.iter().any(is_under)
    };

    let (mut total, mut lists) = (Results::default(), Lists::default());
    for file in sources.chain(args.pages.iter().map(String::as_str)).filter(is_chosen) {
        let text = fs::read_to_string(file).map_err(|error| format!("{file}: {error}"))?;
        let results = check(file, &text);
        list(&mut lists.openings, file, &results.openings);
        list(&mut lists.long, file, &results.long);
        list(&mut lists.phrases, file, &results.phrases);
        total.sentences += results.sentences;
        total.allowed += results.allowed;
        total.openings.extend(results.openings);
        total.long.extend(results.long);
        total.phrases.extend(results.phrases);
    }
    Ok(report(&total, &lists, args.list))
}

/// The findings of each rule as text.
#[derive(Default)]
struct Lists {
    openings: String,
    long: String,
    phrases: String,
}

/// Checks the comments and texts of a Rust file, or a whole page.
fn check(file: &str, text: &str) -> Results {
    let mut results = Results::default();
    if Path::new(file).extension().is_some_and(|extension| extension == "rs") {
        for lines in rust::comments(text) {
            rules::check(&lines, &mut results);
        }
        let has_texts =
            file.starts_with("crates/") && !file.contains("/tests") && !file.contains("/benches/");
        for (number, text) in rust::texts(text).into_iter().filter(|_| has_texts) {
            let lines: Vec<_> = text.lines().map(|text| Line { number, text }).collect();
            rules::check(&lines, &mut results);
        }
    } else {
        let lines: Vec<_> = (1..).zip(text.lines()).map(|(number, text)| Line { number, text }).collect();
        rules::check(&lines, &mut results);
    }
    results
}

fn list(text: &mut String, file: &str, findings: &[Finding]) {
    for Finding { line, rule, sentence } in findings {
        let _ = writeln!(text, "{file}:{line}: {rule}: {sentence}");
    }
}

fn report(total: &Results, lists: &Lists, list: bool) -> (String, bool) {
    let few_long = total.long.len() * SENTENCES_PER_LONG <= total.sentences;
    let few_openings = total.openings.len() * SENTENCES_PER_OPENING <= total.sentences;
    let few_allowed = total.allowed <= MOST_ALLOWED;
    let share = |findings: &[Finding]| 100.0 * findings.len() as f64 / total.sentences.max(1) as f64;
    let report = format!(
        "{}{}{}language: of {} sentences {} ({:.1} %, limit 1 %) open with a word of rule L2, and {} ({:.1} %, limit 2 %) have over 30 \
         words; {} forbidden phrases; {} of at most {MOST_ALLOWED} lines with lint: allow\n",
        if list || !few_openings { &lists.openings } else { "" },
        if list || !few_long { &lists.long } else { "" },
        lists.phrases,
        total.sentences,
        total.openings.len(),
        share(&total.openings),
        total.long.len(),
        share(&total.long),
        total.phrases.len(),
        total.allowed,
    );
    (report, few_openings && few_long && few_allowed && total.phrases.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn results(sentences: usize, openings: usize, phrases: usize, allowed: usize) -> Results {
        let findings = |count| {
            let finding = || Finding { line: 1, rule: "L2", sentence: "None is.".to_owned() };
            std::iter::repeat_with(finding).take(count).collect::<Vec<_>>()
        };
        Results {
            sentences,
            allowed,
            openings: findings(openings),
            long: Vec::new(),
            phrases: findings(phrases),
        }
    }

    #[test]
    fn fails_on_a_planted_sentence() {
        let passes = |file, text: &str| report(&check(file, text), &Lists::default(), false).1;
        assert!(passes("a.rs", "/// Reads what is there.\nlet a = \"// What is this?\";\n"));
        assert!(!passes("a.rs", "let a = 1; // What is left is read.\n"));
        assert!(passes("a.md", "It reads all.\n\n```\nWhat is left is read.\n```\n"));
        assert!(!passes("a.md", "It reads all.\nIt may not.\n"));
    }

    #[test]
    fn passes_up_to_each_limit_and_fails_above() {
        let passes = |results| report(&results, &Lists::default(), false).1;
        assert!(passes(results(200, 2, 0, 20)));
        assert!(!passes(results(200, 3, 0, 0)));
        assert!(!passes(results(200, 0, 1, 0)));
        assert!(!passes(results(200, 0, 0, 21)));
    }

    #[test]
    fn lists_the_openings_on_failure_or_on_request() {
        let lists = |openings, list| {
            let texts = Lists { openings: "a.rs:1\n".to_owned(), ..Lists::default() };
            report(&results(100, openings, 0, 0), &texts, list).0.contains("a.rs:1")
        };
        assert!(!lists(1, false));
        assert!(lists(1, true));
        assert!(lists(2, false));
    }
}
