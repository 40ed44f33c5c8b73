//! `doctor`: looks at the live installation and says what is missing, why it matters, and the command that mends it.

mod etcd;
mod finding;
mod fleet;
mod lxcfs;

use crate::cli::{DoctorEtcd, DoctorFleet, DoctorLxcfs};
use crate::exit::Outcome;

/// `doctor fleet`
pub(crate) fn fleet(args: &DoctorFleet) -> Outcome {
    fleet::run(args)
}

/// `doctor etcd`
pub(crate) fn etcd(args: &DoctorEtcd) -> Outcome {
    etcd::run(args)
}

/// `doctor lxcfs`
pub(crate) fn lxcfs(args: &DoctorLxcfs) -> Outcome {
    lxcfs::run(args)
}
