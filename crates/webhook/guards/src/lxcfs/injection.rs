//! The result of an injection, which `inject`, `device` and `readiness` fill.

use admission::Patch;

/// The patch of a pod and texts about it.
#[derive(Debug, Default)]
pub(super) struct Injection {
    /// The patch. It is empty if the pod needs no change.
    pub(super) patch: Patch,
    /// The status of the pod after the patch.
    pub(super) status: String,
    /// How the patch restricts nodes, as the end of a sentence. It is empty without a restriction.
    pub(super) node_note: &'static str,
    /// Warnings for the client.
    pub(super) warnings: Vec<String>,
}
