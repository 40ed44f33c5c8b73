//! Reserves memory for what guards parse from a review.

use admission::budget::NoMemory;
use admission::{Cause, Raw, Request};

use cluster::cause;

/// Reserves memory for typed values of this JSON.
pub(crate) fn charge_parsed<'a>(
    request: &Request<'a>,
    json: impl IntoIterator<Item = Raw<'a>>,
) -> Result<(), Cause> {
    json.into_iter().try_for_each(|raw| request.memory.charge_parsed(raw)).map_err(no_memory)
}

/// Returns the cause of a review that needs more memory than there is.
pub(crate) fn no_memory(error: NoMemory) -> Cause {
    match error {
        NoMemory::TooLarge => Cause::new(
            cause::TOO_LONG,
            "the request needs more memory than Durward has for requests (server.limits.maxTotalBytes)",
        ),
        NoMemory::Busy => Cause::new(cause::OVERLOADED, "other requests use the memory for requests; retry"),
    }
}
