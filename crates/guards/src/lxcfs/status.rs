//! What is said of an injection: the status annotation, and warnings. Bounded, because a hostile pod may have as many
//! containers as fit into a review.

use std::fmt::Write as _;

use super::files::Files;
use super::inject::Share;
use super::skip::Skip;

/// So many containers are warned about one by one.
const WARNED: usize = 8;
/// So long a summary may become; beyond it the containers are counted.
const SUMMARY: usize = 4096;

/// What each container shows after the patch. The same for the same mounts, whoever added them, so that a second pass has
/// nothing to write.
pub(super) fn summary(shares: &[Share<'_>]) -> String {
    let mut text = String::with_capacity(64);
    for (index, Share { container, wanted, adds }) in shares.iter().enumerate() {
        if text.len() > SUMMARY {
            // Writing to a String cannot fail.
            let _ = write!(text, "; and {} more containers", shares.len() - index);
            break;
        }
        if index > 0 {
            text.push_str("; ");
        }
        text.push_str(&container.name);
        text.push('=');
        let shown = container.shown.and(*adds);
        if shown.is_empty() {
            text.push_str("none");
        }
        shown.write(&mut text);
        let kept = wanted.without(shown);
        if !kept.is_empty() {
            text.push_str(" (mounted by the pod: ");
            kept.write(&mut text);
            text.push(')');
        }
    }
    if text.is_empty() {
        text.push_str("none");
    }
    text
}

/// The summary of a pod that is left without the files.
pub(super) fn skipped(skips: &[Skip]) -> String {
    format!("skipped: {}", reasons(skips))
}

/// The reasons as one text.
pub(super) fn reasons(skips: &[Skip]) -> String {
    skips.iter().map(ToString::to_string).collect::<Vec<_>>().join("; ")
}

/// One warning for each container that keeps a mount of its own where a file would go.
pub(super) fn conflicts(shares: &[Share<'_>]) -> Vec<String> {
    let mut told = Vec::new();
    let mut more = 0;
    for Share { container, wanted, .. } in shares {
        let kept: Vec<_> = container.kept.iter().filter(|(file, _)| wanted.has(*file)).collect();
        let Some((_, path)) = kept.first() else { continue };
        if told.len() == WARNED {
            more += 1;
            continue;
        }
        let files = kept.iter().fold(Files::default(), |files, (file, _)| files.with(*file));
        told.push(format!(
            "container {:?} keeps the pod's own mount at {path}, so it does not get {files} of LXCFS",
            container.name
        ));
    }
    if more > 0 {
        told.push(format!(
            "{more} more containers keep mounts of the pod's own in the place of LXCFS's files"
        ));
    }
    told
}

/// A warning if no container gets anything, for a reason that was not told otherwise.
pub(super) fn nothing(shares: &[Share<'_>], files: Files) -> Option<String> {
    if shares.is_empty() {
        return Some("this pod gets no files: none of its containers is chosen".to_owned());
    }
    let no_limits = shares.iter().all(|share| share.wanted.is_empty() && share.container.shown.is_empty());
    (no_limits && !files.is_empty())
        .then(|| "this pod gets no files: its containers have no limits, and onlyIfLimited is set".to_owned())
}
