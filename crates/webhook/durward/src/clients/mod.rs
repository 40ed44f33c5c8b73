//! Opens the cluster or the snapshot that a command or the server reads.

pub(crate) mod connect;
pub(crate) mod control_planes;
pub(crate) mod etcd_context;
pub(crate) mod fleet;
pub(crate) mod home;
pub(crate) mod leftovers;
pub(crate) mod observe;

use config::Problem;
use console::exit::Stop;

/// Creates a runtime with one thread, which is enough for consecutive requests.
pub(crate) fn runtime() -> Result<tokio::runtime::Runtime, Stop> {
    tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(|error| Stop::fault(Problem::new("the runtime cannot be started").why(error.to_string())))
}
