//! Which objects are guarded.

use super::config::{Config, Select};
use super::target::Target;

/// The label that asks for it.
pub(super) const LABEL: &str = "durward.dev/guard";
/// Its value.
pub(super) const VALUE: &str = "deletion";

/// Whether the target is guarded.
pub(super) fn is_guarded(config: &Config, target: &Target) -> bool {
    config.select == Select::All || target.labels.get(LABEL).is_some_and(|value| value == VALUE)
}
