//! `doctor`: looks at the live installation and says what is missing, why it matters, and the command that mends it.

mod finding;
mod fleet;

use crate::cli::DoctorFleet;
use crate::exit::Outcome;

/// `doctor fleet`
pub(crate) fn fleet(args: &DoctorFleet) -> Outcome {
    fleet::run(args)
}
