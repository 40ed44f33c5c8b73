//! `-o markdown`: a comment on a pull request. One table, then the details of each object, folded.

use std::fmt::Write as _;

use console::output;
use guards::deletion::{ClusterImpact, UsageState};

use super::report::{RemovalReport, RemovedObject};

/// GitHub accepts 65,536 characters in a comment, and GitLab a million.
const MAX_BYTES: usize = 60_000;

/// Characters of one cell.
const MAX_CELL: usize = 300;

/// Returns the comment. Rows and details that do not fit are counted.
pub(super) fn write(report: &RemovalReport) -> String {
    let mut out = format!("### Durward: {}\n\n", report.headline());
    let mut end: Vec<String> = report.others().iter().map(|line| format!("- {}", plain(line))).collect();
    end.extend(report.facts().map(|facts| format!("\n<sub>{facts}</sub>")));
    let end = cut(output::lines(end), MAX_BYTES / 4);
    let room = |out: &String, more: &str| out.len() + end.len() + more.len() + 200 < MAX_BYTES;
    if !report.removed.is_empty() {
        out.push_str("| removed | | what goes with it |\n|---|---|---|\n");
    }
    let mut shown = 0;
    for one in &report.removed {
        let row = row(one);
        // Half of the room is for rows.
        if out.len() + row.len() > MAX_BYTES / 2 {
            break;
        }
        out.push_str(&row);
        shown += 1;
    }
    let hidden = report.removed.len() - shown;
    if hidden > 0 {
        let _ = writeln!(out, "\n{hidden} more removed objects are not shown.");
    }
    out.push('\n');
    for one in report.removed.iter().filter(|one| one.verdict != "allow" || !one.via.is_empty()) {
        let details = details(one, report.here);
        if !room(&out, &details) {
            out.push_str("More details: run the command with `-o html`.\n\n");
            break;
        }
        out.push_str(&details);
    }
    out + &end
}

fn row(one: &RemovedObject) -> String {
    let mark = match one.verdict {
        "deny" => "🔴",
        "unknown" => "🟡",
        _ => "🟢",
    };
    let summary = plain(&cut(one.summary.clone(), MAX_CELL));
    format!("| {} | {mark} {} | {summary} |\n", code(&one.object.short()), one.word())
}

/// Returns a folded list: the clusters, the place, and the objects with which it goes.
fn details(one: &RemovedObject, here: &str) -> String {
    let mut found = Vec::new();
    if let Some(place) = &one.place {
        found.push(format!("removed at {}", code(&format!("{}:{}", place.file, place.line))));
    }
    found.extend(one.note.map(str::to_owned));
    if !one.via.is_empty() {
        let via: Vec<String> = one.via.iter().map(|of| code(of)).collect();
        found.push(format!("goes with {}", via.join(", which goes with ")));
    }
    let clusters = one.impact.iter().flat_map(|impact| &impact.clusters).enumerate();
    found.extend(
        clusters.filter(|(_, of)| of.state != UsageState::Empty).map(|(at, of)| cluster(at, of, here)),
    );
    let incomplete = one.impact.iter().flat_map(|impact| &impact.incomplete);
    found.extend(incomplete.map(|why| format!("not checked: {}", plain(&why.text))));
    if found.is_empty() {
        return String::new();
    }
    let list = output::lines(found.into_iter().map(|line| format!("- {line}")));
    // Mentions are not searched in code.
    let name = escape(&admission::text::one_line(&one.object.short()));
    format!("<details><summary><code>{name}</code></summary>\n\n{list}\n</details>\n\n")
}

fn cluster(at: usize, of: &ClusterImpact, here: &str) -> String {
    let name = if at == 0 { here.to_owned() } else { code(&of.cluster) };
    let word = if of.state == UsageState::InUse { "in use" } else { "not checked" };
    format!("{name}: {word}: {}", plain(&of.summary))
}

/// Returns a text as code. Names have no backticks, except in files that are no valid manifests.
fn code(text: &str) -> String {
    format!("`{}`", text.replace(['`', '|', '\n', '\r'], " "))
}

/// Returns a text of a cluster so that it shows as it is: no link, mention, HTML or table. GitHub searches mentions in the finished page,
/// so an escape does not prevent them, and a space of no width does.
fn plain(text: &str) -> String {
    let mut plain = String::with_capacity(text.len());
    for c in escape(text).chars() {
        match c {
            '\n' | '\r' => plain.push(' '),
            '@' | '#' => {
                plain.push(c);
                plain.push_str("&#8203;");
            }
            '|' | '\\' | '`' | '*' | '_' | '[' | ']' | '~' => plain.extend(['\\', c]),
            _ => plain.push(c),
        }
    }
    plain.replace("://", "&#58;//")
}

fn escape(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}

fn cut(text: String, most: usize) -> String {
    if text.len() <= most {
        return text;
    }
    let end = (0..most).rev().find(|at| text.is_char_boundary(*at)).unwrap_or(0);
    format!("{} …", text.get(..end).unwrap_or_default())
}
