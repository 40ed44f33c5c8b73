//! Texts about a pod: the status annotation and warnings. They are bounded, because a hostile pod can have as many containers as
//! fit into a review.

use std::fmt::Write as _;

use super::files::Files;
use super::mount_plan::MountPlan;
use super::skip_reason::SkipReason;

/// Bound of the containers with a warning each.
const MAX_WARNINGS: usize = 8;
/// Length of a status from which the remaining containers are counted.
const MAX_STATUS: usize = 4096;

/// Returns the status: what each container shows after the patch.
pub(super) fn status(plans: &[MountPlan<'_>]) -> String {
    let mut text = String::with_capacity(64);
    for (index, plan) in plans.iter().enumerate() {
        if text.len() > MAX_STATUS {
            // Writing to a String cannot fail.
            let _ = write!(text, "; and {} more containers", plans.len() - index);
            break;
        }
        if index > 0 {
            text.push_str("; ");
        }
        plan.describe(&mut text);
    }
    if text.is_empty() {
        text.push_str("none");
    }
    text
}

/// Returns the status of a pod that gets no files.
pub(super) fn skipped_status(skips: &[SkipReason]) -> String {
    format!("skipped: {}", reasons(skips))
}

/// Returns the reasons as one text.
pub(super) fn reasons(skips: &[SkipReason]) -> String {
    skips.iter().map(ToString::to_string).collect::<Vec<_>>().join("; ")
}

/// Returns a warning for each of the first containers with a conflict, and one for the number of the others.
pub(super) fn conflicts(plans: &[MountPlan<'_>], by_device: bool) -> Vec<String> {
    let mut conflicts = plans.iter().filter_map(|plan| plan.conflict(by_device));
    let mut warnings: Vec<String> = conflicts.by_ref().take(MAX_WARNINGS).collect();
    let more = conflicts.count();
    if more > 0 {
        warnings.push(if by_device {
            format!("{more} more containers have conflicting mounts and get no LXCFS files")
        } else {
            format!("{more} more containers have conflicting mounts and do not get all LXCFS files")
        });
    }
    warnings
}

/// Returns a warning if no container of a new pod gets any of `files`, because none is selected or none has limits.
pub(super) fn no_files(plans: &[MountPlan<'_>], files: Files) -> Option<&'static str> {
    if plans.is_empty() {
        Some("no files added: the pod selects none of its containers")
    } else if !files.is_empty() && plans.iter().all(MountPlan::lacks_limits) {
        Some("no files added: no container has limits, and onlyLimitedContainers is true")
    } else {
        None
    }
}
