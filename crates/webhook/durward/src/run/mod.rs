//! The server as a process: its assembly, reloads of the configuration, and the tasks beside the reviews.

pub(crate) mod events;
pub(crate) mod expiry;
pub(crate) mod log;
pub(crate) mod member_health;
pub(crate) mod plan;
pub(crate) mod policies;
pub(crate) mod reload;
pub(crate) mod serve;
pub(crate) mod unreviewed;

/// The version of the release.
pub(crate) const VERSION: &str = env!("CARGO_PKG_VERSION");
