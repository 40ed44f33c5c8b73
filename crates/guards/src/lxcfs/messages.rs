//! What is said of an injection: the status annotation, and warnings. Bounded, because a hostile pod may have as many
//! containers as fit into a review.

use std::fmt::Write as _;

use super::inject::Share;
use super::opt_in::shortened;
use super::skip_reason::SkipReason;

/// So many containers are warned about one by one.
const WARNED: usize = 8;
/// So long a summary may become; beyond it the containers are counted.
const SUMMARY: usize = 4096;

/// Returns what each container shows after the patch. It depends only on the mounts, so that a second pass has nothing to write.
pub(super) fn summary(shares: &[Share<'_>]) -> String {
    each(shares, |Share { container, wanted, adds }, text| {
        text.push_str(&container.name);
        text.push('=');
        let shown = container.shown.and(*adds);
        if shown.is_empty() {
            text.push_str("none");
        }
        shown.write(text);
        let kept = wanted.without(shown);
        if !kept.is_empty() {
            text.push_str(" (mounted by the pod: ");
            kept.write(text);
            text.push(')');
        }
    })
}

/// What `write` says of each container, as long as there is room.
pub(super) fn each<T>(shares: &[T], write: impl Fn(&T, &mut String)) -> String {
    let mut text = String::with_capacity(64);
    for (index, share) in shares.iter().enumerate() {
        if text.len() > SUMMARY {
            // Writing to a String cannot fail.
            let _ = write!(text, "; and {} more containers", shares.len() - index);
            break;
        }
        if index > 0 {
            text.push_str("; ");
        }
        write(share, &mut text);
    }
    if text.is_empty() {
        text.push_str("none");
    }
    text
}

/// The summary of a pod that is left without the files.
pub(super) fn skipped(skips: &[SkipReason]) -> String {
    format!("skipped: {}", reasons(skips))
}

/// The reasons as one text.
pub(super) fn reasons(skips: &[SkipReason]) -> String {
    skips.iter().map(ToString::to_string).collect::<Vec<_>>().join("; ")
}

/// One warning for each container that keeps a mount of its own where a file would go.
pub(super) fn conflicts(shares: &[Share<'_>]) -> Vec<String> {
    let kept = shares.iter().filter_map(|Share { container, wanted, .. }| {
        let path = &container.kept.iter().find(|kept| !kept.files.filter(|f| wanted.has(f)).is_empty())?.path;
        Some((container, path, container.kept_files().filter(|file| wanted.has(file))))
    });
    few(
        kept,
        |(container, path, files)| {
            format!(
                "container {:?} keeps the pod's own mount at {}, so it does not get {files} of LXCFS",
                shortened(&container.name),
                shortened(path)
            )
        },
        |more| format!("{more} more containers keep mounts of the pod's own in the place of LXCFS's files"),
    )
}

/// One text for each of the first few, and one for how many more there are.
pub(super) fn few<T>(
    items: impl Iterator<Item = T>,
    one: impl FnMut(T) -> String,
    rest: impl FnOnce(usize) -> String,
) -> Vec<String> {
    let mut items = items;
    let mut told: Vec<String> = items.by_ref().take(WARNED).map(one).collect();
    let more = items.count();
    if more > 0 {
        told.push(rest(more));
    }
    told
}

/// A warning if no container gets anything, for a reason that was not told otherwise: how many are chosen, and whether none of
/// them has a limit that would be shown.
pub(super) fn nothing(chosen: usize, has_no_limits: bool) -> Option<String> {
    if chosen == 0 {
        return Some("this pod gets no files: none of its containers is chosen".to_owned());
    }
    has_no_limits
        .then(|| "this pod gets no files: its containers have no limits, and onlyIfLimited is set".to_owned())
}
