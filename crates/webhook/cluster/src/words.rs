//! The texts that all readers use for what they could not read.

use std::fmt;
use std::time::Duration;

use admission::Cause;

/// The name of the list of member clusters in texts.
pub(crate) const FLEET_LIST: &str = "the list of the fleet's clusters";

/// The reason when no time is left for a request.
pub(crate) const NOT_SENT: &str = "the deadline passed before the request was sent";

/// Returns the cause for a subject that could not be read.
pub(crate) fn unread(code: &'static str, subject: impl fmt::Display, why: impl fmt::Display) -> Cause {
    Cause::new(code, format!("{subject} could not be read: {why}"))
}

/// Returns the reason when a server did not answer in time.
pub(crate) fn no_answer(server: impl fmt::Display, waited: Duration) -> String {
    format!("{server} did not answer in {:.1} s", waited.as_secs_f64())
}
