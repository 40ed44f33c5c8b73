//! `-o github`: an annotation at each removed object that is in use or could not be checked.

use console::output::push_annotation;

use super::report::RemovalReport;

/// Returns the workflow commands.
pub(super) fn write(report: &RemovalReport) -> String {
    let mut lines = String::new();
    for one in &report.removed {
        let level = match one.verdict {
            "deny" => "error",
            "unknown" => "warning",
            _ => continue,
        };
        let title = format!("{} is {}", one.object.short(), one.word());
        let via =
            if one.via.is_empty() { String::new() } else { format!(" (goes with {})", one.via.join(", ")) };
        push_annotation(&mut lines, level, one.place.as_ref(), &title, &format!("{}{via}", one.summary));
    }
    lines
}
