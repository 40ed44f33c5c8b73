//! Checks the relative links of all pages: the file exists, and so does the heading that an anchor names. Links to other sites
//! aren't followed, because checks need no internet.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs;
use std::path::{Component, Path, PathBuf};

use pulldown_cmark::{Event, Tag, TagEnd};

use crate::markdown::events;

/// Returns a line for each link that leads nowhere.
pub(crate) fn dead(pages: &BTreeMap<PathBuf, String>) -> Result<String, String> {
    let mut dead = String::new();
    for (page, text) in pages {
        for (line, link) in links(text) {
            let (path, anchor) = link.split_once('#').unwrap_or((&link, ""));
            let target = if path.is_empty() { page.clone() } else { normal(page, path) };
            let place = format!("{}:{line}: the link to {link}", page.display());
            if !target.exists() {
                let _ = writeln!(dead, "{place} leads nowhere");
            } else if !anchor.is_empty() && target.extension().is_some_and(|extension| extension == "md") {
                let text =
                    fs::read_to_string(&target).map_err(|error| format!("{}: {error}", target.display()))?;
                if !anchors(&text).iter().any(|known| known == anchor) {
                    let _ = writeln!(dead, "{place} names a heading that does not exist");
                }
            }
        }
    }
    Ok(dead)
}

/// Returns the relative links of a page, each with its line.
fn links(text: &str) -> Vec<(usize, String)> {
    let link = |(event, line)| match event {
        Event::Start(Tag::Link { dest_url, .. } | Tag::Image { dest_url, .. }) => {
            let is_relative = !dest_url.contains("://") && !dest_url.starts_with("mailto:");
            is_relative.then(|| (line + 1, dest_url.into_string()))
        }
        _ => None,
    };
    events(text).filter_map(link).collect()
}

/// Returns the anchors of the headings, as GitHub and mdBook make them.
fn anchors(text: &str) -> Vec<String> {
    let mut anchors = Vec::new();
    let mut counts = BTreeMap::<String, usize>::new();
    let mut heading = None::<String>;
    for (event, _) in events(text) {
        match (event, &mut heading) {
            (Event::Start(Tag::Heading { .. }), _) => heading = Some(String::new()),
            (Event::Text(text) | Event::Code(text), Some(heading)) => {
                let kept = text.chars().filter(|c| c.is_alphanumeric() || " -_".contains(*c));
                heading.extend(kept.map(|c| if c == ' ' { '-' } else { c.to_ascii_lowercase() }));
            }
            (Event::End(TagEnd::Heading(_)), _) => {
                let anchor = heading.take().unwrap_or_default();
                let count = counts.entry(anchor.clone()).or_default();
                anchors.push(if *count == 0 { anchor } else { format!("{anchor}-{count}") });
                *count += 1;
            }
            _ => {}
        }
    }
    anchors
}

/// Returns the path of a link, relative to the repository.
fn normal(page: &Path, link: &str) -> PathBuf {
    let mut path = PathBuf::from(".");
    for part in page.parent().unwrap_or(Path::new("")).join(link).components() {
        match part {
            Component::ParentDir => drop(path.pop()),
            part => path.push(part),
        }
    }
    path
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn finds_relative_links_outside_of_code() {
        let text =
            "See [a](a.md#x), [b](https://h/b) and `[c](c.md)`.\n```\n[d](d.md)\n```\n![e](../e.svg)\n";
        assert_eq!(links(text), [(1, "a.md#x".to_owned()), (5, "../e.svg".to_owned())]);
    }

    #[test]
    fn makes_anchors_of_headings() {
        let text = "# One and two\n## `config check`: 3 steps\n```\n# no heading\n```\n## One and two\n";
        assert_eq!(anchors(text), ["one-and-two", "config-check-3-steps", "one-and-two-1"]);
    }

    #[test]
    fn reports_a_missing_file() {
        let page = |text: &str| BTreeMap::from([(PathBuf::from("tests/page.md"), text.to_owned())]);
        assert_eq!(dead(&page("[a](../src/main.rs)")).unwrap(), "");
        assert_eq!(
            dead(&page("[a](main.rs)")).unwrap(),
            "tests/page.md:1: the link to main.rs leads nowhere\n"
        );
    }
}
