//! `-o html`: one page without scripts and without outside resources. Clusters are columns; objects, or the kinds of a single object,
//! are rows.

use std::collections::HashSet;
use std::fmt::Write as _;

use guards::deletion::{ClusterImpact, Impact, ObjectCount, UsageState};

/// Names of objects are shown for this many clusters of an object. The others have only numbers.
const NAMED_CLUSTERS: usize = 5;
/// Characters of the reason in a cell.
const MAX_REASON: usize = 80;

const STYLE: &str = include_str!("page.css");

/// One object on the page.
pub(super) struct PageObject<'a> {
    /// `ns/shop`
    pub(super) name: String,
    /// `allow`, `deny` or `unknown`.
    pub(super) verdict: &'static str,
    pub(super) summary: String,
    /// Further sentences: where it was removed, and with what it goes.
    pub(super) notes: Vec<String>,
    pub(super) impact: Option<&'a Impact>,
}

/// The page.
pub(super) struct Page<'a> {
    pub(super) headline: String,
    /// The sentence under the headline.
    pub(super) facts: Option<String>,
    /// The objects, the worst first.
    pub(super) objects: Vec<PageObject<'a>>,
    /// Sentences at the end.
    pub(super) notes: Vec<String>,
    /// The name of the local cluster.
    pub(super) here: &'a str,
}

impl Page<'_> {
    /// Returns the page as HTML.
    pub(super) fn write(&self) -> String {
        let title = format!("Durward: {}", self.headline);
        let mut out = format!(
            "<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n<meta name=\"viewport\" content=\"width=device-width\">\n\
             <meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src 'unsafe-inline'\">\n\
             <title>{}</title>\n<style>\n{STYLE}</style>\n</head>\n<body>\n<header>\n<h1 class=\"{}\">{}</h1>\n",
            text(&title),
            self.objects.first().map_or("allow", |worst| worst.verdict),
            text(&self.headline)
        );
        if let Some(fact) = &self.facts {
            let _ = writeln!(out, "<p class=\"dim\">{}</p>", text(fact));
        }
        out.push_str("</header>\n<main>\n");
        if self.objects.iter().any(|object| object.impact.is_some()) {
            out.push_str(
                "<p class=\"legend\"><span><i class=\"u\"></i>in use, with the number of objects</span>\
                 <span><i class=\"q\"></i>not checked</span><span><i></i>nothing in use</span></p>\n",
            );
        }
        if self.objects.len() > 1 {
            self.overview(&mut out);
        }
        for (at, object) in self.objects.iter().enumerate() {
            if self.objects.len() == 1 || object.verdict != "allow" || !object.notes.is_empty() {
                self.section(&mut out, at, object);
            }
        }
        if !self.notes.is_empty() {
            out.push_str("<h2>Not deleted, or not checked</h2>\n");
            list(&mut out, self.notes.iter().map(|note| text(note)));
        }
        out.push_str("</main>\n</body>\n</html>\n");
        out
    }

    /// Adds the table of all objects.
    fn overview(&self, out: &mut String) {
        let all = self.objects.iter().filter_map(|object| object.impact).flat_map(|impact| &impact.clusters);
        let clusters = distinct(all.map(|cluster| cluster.cluster.as_str()));
        self.table(out, "Objects in use by cluster", &clusters, |out| {
            for (at, object) in self.objects.iter().enumerate() {
                let has_section = object.verdict != "allow" || !object.notes.is_empty();
                let name = text(&object.name);
                let link = if has_section { format!("<a href=\"#o{at}\">{name}</a>") } else { name };
                let _ = write!(
                    out,
                    "<tr><th scope=\"row\"><span class=\"{}\">{link}</span></th>",
                    object.verdict
                );
                for cluster in &clusters {
                    let found = object.impact.iter().flat_map(|impact| &impact.clusters);
                    out.push_str(&cell(found.into_iter().find(|one| one.cluster == *cluster)));
                }
                out.push_str("</tr>\n");
            }
        });
    }

    /// Adds a table with a column for each cluster.
    fn table(&self, out: &mut String, caption: &str, clusters: &[&str], rows: impl FnOnce(&mut String)) {
        if clusters.is_empty() {
            return;
        }
        let _ = write!(
            out,
            "<div class=\"scroll\" tabindex=\"0\" role=\"region\" aria-label=\"{0}\">\n<table aria-label=\"{0}\">\n<thead><tr><th></th>",
            text(caption)
        );
        let turned = if clusters.len() > 8 { " class=\"turned\"" } else { "" };
        for cluster in clusters {
            let _ = write!(out, "<th scope=\"col\"{turned}><span>{}</span></th>", text(self.called(cluster)));
        }
        out.push_str("</tr></thead>\n<tbody>\n");
        rows(out);
        out.push_str("</tbody>\n</table>\n</div>\n");
    }

    /// Adds what is known about one object.
    fn section(&self, out: &mut String, at: usize, object: &PageObject<'_>) {
        let (name, verdict) = (text(&object.name), object.verdict);
        let _ = writeln!(out, "<section id=\"o{at}\">\n<h2><span class=\"{verdict}\">{name}</span></h2>");
        for note in &object.notes {
            let _ = writeln!(out, "<p class=\"dim\">{}</p>", text(note));
        }
        let clusters = object.impact.map(|impact| impact.clusters.as_slice()).unwrap_or_default();
        let shown: Vec<&ClusterImpact> =
            clusters.iter().filter(|one| self.objects.len() == 1 || one.state != UsageState::Empty).collect();
        if shown.iter().all(|one| one.state == UsageState::Empty) {
            let _ = writeln!(out, "<p>{}</p>", text(&object.summary));
        }
        self.kinds(out, &object.name, &shown);
        let named = shown.iter().filter(|one| one.state == UsageState::InUse);
        list(
            out,
            named
                .take(NAMED_CLUSTERS)
                .map(|one| format!("{}: {}", text(self.called(&one.cluster)), text(&one.summary))),
        );
        let mut reasons: Vec<(&str, Vec<&str>)> = Vec::new();
        for one in &shown {
            for why in &one.unchecked {
                match reasons.iter_mut().find(|(text, _)| *text == why.text) {
                    Some((_, clusters)) => clusters.push(self.called(&one.cluster)),
                    None => reasons.push((&why.text, vec![self.called(&one.cluster)])),
                }
            }
        }
        list(
            out,
            reasons
                .iter()
                .map(|(why, of)| format!("<b>not checked</b> in {}: {}", text(&of.join(", ")), text(why))),
        );
        let incomplete = object.impact.iter().flat_map(|impact| &impact.incomplete);
        list(out, incomplete.map(|why| format!("<b>not checked</b>: {}", text(&why.text))));
        out.push_str("</section>\n");
    }

    /// Adds the table of the kinds of one object.
    fn kinds(&self, out: &mut String, name: &str, shown: &[&ClusterImpact]) {
        let mut kinds = distinct(shown.iter().flat_map(|one| &one.in_use).map(ObjectCount::what));
        if kinds.is_empty() {
            kinds.push("objects");
        }
        let clusters: Vec<&str> = shown.iter().map(|one| one.cluster.as_str()).collect();
        self.table(out, &format!("{name} by kind and cluster"), &clusters, |out| {
            for kind in kinds {
                let _ = write!(out, "<tr><th scope=\"row\">{}</th>", text(kind));
                for one in shown {
                    let count = one.in_use.iter().find(|count| count.what() == kind);
                    let is_unknown = one.state == UsageState::Unknown;
                    let number = count.map(|count| format!("<td class=\"u\">{}</td>", count.number()));
                    out.push_str(&number.unwrap_or_else(|| cell(Some(*one).filter(|_| is_unknown))));
                }
                out.push_str("</tr>\n");
            }
        });
    }

    fn called<'c>(&'c self, cluster: &'c str) -> &'c str {
        if cluster == cluster::fleet::LOCAL { self.here } else { cluster }
    }
}

/// Returns the cell of a cluster.
fn cell(found: Option<&ClusterImpact>) -> String {
    let Some(found) = found else { return "<td></td>".to_owned() };
    match found.state {
        UsageState::Empty => "<td></td>".to_owned(),
        UsageState::InUse => {
            let is_open = found.in_use.iter().any(|count| count.number().ends_with('+'));
            let sum: usize = found.in_use.iter().map(ObjectCount::objects).sum();
            format!("<td class=\"u\">{sum}{}</td>", if is_open { "+" } else { "" })
        }
        UsageState::Unknown => {
            let reason: String = found.summary.chars().take(MAX_REASON).collect();
            format!("<td class=\"q\" title=\"{}\">?</td>", text(&reason))
        }
    }
}

/// Returns texts in the order in which they first occur.
fn distinct<'t>(texts: impl Iterator<Item = &'t str>) -> Vec<&'t str> {
    let mut seen = HashSet::new();
    texts.filter(|text| seen.insert(*text)).collect()
}

fn list(out: &mut String, lines: impl Iterator<Item = String>) {
    let mut lines = lines.peekable();
    if lines.peek().is_none() {
        return;
    }
    out.push_str("<ul>\n");
    for line in lines {
        let _ = writeln!(out, "<li>{line}</li>");
    }
    out.push_str("</ul>\n");
}

/// Returns a text of a cluster as text of a page.
fn text(text: &str) -> String {
    let text = admission::text::one_line(text);
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}
