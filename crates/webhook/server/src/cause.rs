//! The codes for requests that the server itself could not answer. The guards' codes are in `cluster::cause`.

/// The request took all of its time to arrive, so the guard was not called.
pub(crate) const LATE: &str = "late";
/// The guard did not answer in the time that the API server waits.
pub(crate) const DEADLINE: &str = "deadline";
/// The guard failed by an internal error, which Durward's log contains.
pub(crate) const PANIC: &str = "panic";
