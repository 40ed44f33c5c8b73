//! `doctor lxcfs --local`: checks the files of this machine. A readiness probe can run it, because it needs only the files.

use std::path::Path;

use console::exit::{Exit, Outcome};
use console::output::{self, Format, Style};
use lxcfs::{LxcfsFile, NodeSettings};
use node::{FileState, Mount, NodeAnnotation, ProbeResult, Prober};
use serde::Serialize;

use super::checks::{fix, why};
use super::values::visible_values;
use crate::commands::doctor::finding::{self, Finding};

/// The JSON of `doctor lxcfs --local`.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct LocalReport {
    /// The annotation that the label agent would write.
    #[serde(flatten)]
    report: NodeAnnotation,
    /// The file system type at the LXCFS path.
    #[serde(skip_serializing_if = "Option::is_none")]
    mount: Option<String>,
    /// Values that a pod with the files reads.
    sees: Vec<String>,
    /// Problems and fixes.
    findings: Vec<Finding>,
}

/// `doctor lxcfs --local`
pub(super) async fn run(proc: &Path, format: Format, on_node: &NodeSettings) -> Outcome {
    let result = Prober::new(proc, &on_node.root).probe().await;
    let findings = findings(&result, on_node);
    let is_well = result.serves(&on_node.files);
    let report = LocalReport {
        sees: if is_well { visible_values(on_node) } else { Vec::new() },
        mount: result.mount.as_ref().map(|mount| mount.fs_type.clone()),
        report: NodeAnnotation::new(&result, on_node),
        findings,
    };
    output::report(format, &report, |report, style| text(report, &result, on_node, style))?;
    Ok(if report.findings.is_empty() { Exit::Done } else { Exit::No })
}

fn findings(result: &ProbeResult, on_node: &NodeSettings) -> Vec<Finding> {
    let mut found = Vec::new();
    let root = &on_node.root;
    let mut reported: Vec<FileState> = Vec::new();
    for &file in &on_node.files {
        let seen = result.state(file);
        if seen == FileState::Served || reported.contains(&seen) {
            continue;
        }
        reported.push(seen);
        // Files with the same problem are one finding.
        let alike: Vec<_> =
            on_node.files.iter().filter(|one| result.state(**one) == seen).map(|one| one.name()).collect();
        let what = format!("{root}{} {} (files: {})", file.path(), seen.meaning(), alike.join(", "));
        if matches!(seen, FileState::Missing | FileState::NotLxcfs) && !is_mounted(result.mount.as_ref()) {
            let parent = Path::new(root).parent().unwrap_or(Path::new("/")).display();
            let fix = format!(
                "start LXCFS: systemctl start lxcfs, or kubectl apply -k deploy/lxcfs; then findmnt {root} (it must print fuse.lxcfs). If LXCFS runs and this is a pod, mount {parent} with mountPropagation: HostToContainer"
            );
            found.push(Finding::new(
                None,
                "mount",
                format!("LXCFS is not mounted at {root}: {what}"),
                why(seen.word()),
                fix,
            ));
        } else {
            found.push(Finding::new(None, "files", what, why(seen.word()), fix(seen.word(), root)));
        }
    }
    found
}

fn is_mounted(mount: Option<&Mount>) -> bool {
    mount.is_some_and(Mount::is_lxcfs)
}

fn text(report: &LocalReport, result: &ProbeResult, on_node: &NodeSettings, style: Style) -> String {
    let mount = report.mount.as_deref().unwrap_or("not mounted");
    let mut lines = vec![format!("{}  {mount}", style.bold(&on_node.root))];
    for file in LxcfsFile::ALL {
        let seen = result.state(file);
        let is_promised = on_node.files.contains(&file);
        let word = match seen {
            FileState::Served => style.green(seen.word()),
            _ if is_promised => style.red(seen.word()),
            _ => style.dim(seen.word()),
        };
        let note = if is_promised { String::new() } else { style.dim("  (not in guards.lxcfs.files)") };
        lines.push(format!("  {:<10} {word}{note}", file.name()));
    }
    lines.extend(report.sees.iter().map(|line| format!("a pod reads  {line}")));
    let mut out = output::lines(lines);
    out.push_str(&finding::text(&report.findings, style));
    if report.findings.is_empty() {
        out.push_str(&style.green("no problems found\n"));
    }
    out
}
