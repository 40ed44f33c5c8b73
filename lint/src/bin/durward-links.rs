//! Checks the relative links of all Markdown pages: the file exists, and so does the heading that an anchor names. Links to other
//! sites are not followed, because checks need no internet.

use std::collections::HashMap;
use std::io::{self, Write as _};
use std::path::{Component, Path, PathBuf};
use std::process::{Command, ExitCode};
use std::{env, fs};

fn main() -> ExitCode {
    let (text, code) = match dead_links() {
        Ok(dead) if dead.is_empty() => return ExitCode::SUCCESS,
        Ok(dead) => (dead.join("\n"), ExitCode::FAILURE),
        Err(error) => (format!("durward-links: {error}"), ExitCode::from(2)),
    };
    match writeln!(io::stderr(), "{text}") {
        Ok(()) => code,
        Err(_) => ExitCode::from(2),
    }
}

/// Returns a line for each link without a target.
fn dead_links() -> Result<Vec<String>, String> {
    let git = |words: &[&str]| -> Result<String, String> {
        let output = Command::new("git").args(words).output().map_err(|error| format!("git: {error}"))?;
        Ok(String::from_utf8_lossy(&output.stdout).trim_end().to_owned())
    };
    env::set_current_dir(git(&["rev-parse", "--show-toplevel"])?).map_err(|error| error.to_string())?;
    let pages = git(&["ls-files", "--cached", "--others", "--exclude-standard", "*.md"])?;
    let mut texts = HashMap::new();
    for page in pages.lines().map(PathBuf::from).filter(|page| page.exists()) {
        let text = fs::read_to_string(&page).map_err(|error| format!("{}: {error}", page.display()))?;
        texts.insert(page, text);
    }
    let mut dead = Vec::new();
    for (page, text) in &texts {
        for (number, link) in links(text) {
            let (path, anchor) = link.split_once('#').unwrap_or((link, ""));
            let target = if path.is_empty() { page.clone() } else { normal(page, path) };
            let place = format!("{}:{number}: the link to {link}", page.display());
            if !target.exists() {
                dead.push(format!("{place} leads nowhere"));
            } else if !anchor.is_empty()
                && texts.get(&target).is_some_and(|text| !anchors(text).contains(&anchor.to_owned()))
            {
                dead.push(format!("{place} names a heading that does not exist"));
            }
        }
    }
    dead.sort();
    Ok(dead)
}

/// Returns the relative links of a page outside of code, each with its line.
fn links(text: &str) -> Vec<(usize, &str)> {
    let mut found = Vec::new();
    for (number, line) in prose(text) {
        for (at, _) in line.match_indices("](") {
            let is_code = line[..at].matches('`').count() % 2 == 1;
            let link = line[at + 2..].split([')', ' ']).next().unwrap_or_default();
            let is_relative = !link.contains("://") && !link.starts_with("mailto:") && !link.is_empty();
            if is_relative && !is_code {
                found.push((number, link));
            }
        }
    }
    found
}

/// Returns the lines outside of fenced code blocks.
fn prose(text: &str) -> impl Iterator<Item = (usize, &str)> {
    let mut is_fenced = false;
    (1..).zip(text.lines()).filter(move |(_, line)| {
        let is_fence = line.trim_start().starts_with("```");
        is_fenced ^= is_fence;
        !is_fenced && !is_fence
    })
}

/// Returns the anchors of the headings, as GitHub and mdBook make them.
fn anchors(text: &str) -> Vec<String> {
    let mut anchors: Vec<String> = Vec::new();
    for (_, line) in prose(text) {
        let title = line.trim_start_matches('#');
        if title.len() == line.len() || !title.starts_with(' ') {
            continue;
        }
        let kept = |c: char| match c {
            ' ' => Some('-'),
            '-' | '_' => Some(c),
            c if c.is_alphanumeric() => Some(c.to_ascii_lowercase()),
            _ => None,
        };
        let anchor: String = title.trim().chars().filter_map(kept).collect();
        let is_same = |known: &&String| {
            known.strip_prefix(&anchor).is_some_and(|rest| {
                rest.is_empty()
                    || rest.strip_prefix('-').is_some_and(|number| number.parse::<usize>().is_ok())
            })
        };
        let count = anchors.iter().filter(is_same).count();
        anchors.push(if count == 0 { anchor } else { format!("{anchor}-{count}") });
    }
    anchors
}

/// Returns the path of a link, relative to the repository.
fn normal(page: &Path, link: &str) -> PathBuf {
    let mut path = PathBuf::new();
    for part in page.parent().unwrap_or(Path::new("")).join(link).components() {
        match part {
            Component::ParentDir => drop(path.pop()),
            Component::CurDir => {}
            part => path.push(part),
        }
    }
    if path.as_os_str().is_empty() { PathBuf::from(".") } else { path }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn finds_relative_links_outside_of_code() {
        let text = "See [a](a.md#x), [b](https://h/b) and `[c](c.md)`.\n```\n[d](d.md)\n```\n[e](../e.md)\n";
        assert_eq!(links(text), [(1, "a.md#x"), (5, "../e.md")]);
    }

    #[test]
    fn makes_anchors_of_headings() {
        let text = "# One and two\n## `config check`: 3 steps\n```\n# no heading\n```\n## One and two\n";
        assert_eq!(anchors(text), ["one-and-two", "config-check-3-steps", "one-and-two-1"]);
    }
}
