//! How a command ends: exit code and problems.
//!
//! Exit code 0 means success, 1 a negative result (denied, in use, a fault while serving), 2 bad input, 3 that something could not be
//! checked.

use config::Problem;
use serde::{Serialize, Serializer};

/// The result of a command that completed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Exit {
    /// 0
    #[default]
    Done,
    /// 1
    No,
    /// 2
    Bad,
    /// 3
    Unknown,
}

impl Exit {
    /// Returns the exit code of the process.
    pub fn code(self) -> u8 {
        match self {
            Self::Done => 0,
            Self::No => 1,
            Self::Bad => 2,
            Self::Unknown => 3,
        }
    }
}

impl Serialize for Exit {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_u8(self.code())
    }
}

/// The reason why a command stopped early.
#[derive(Debug)]
pub struct Stop {
    /// The exit code.
    pub exit: Exit,
    /// All problems at once. Empty if standard output is closed, because there is no reader left.
    pub problems: Vec<Problem>,
}

/// The outcome of a command.
pub type Outcome = Result<Exit, Stop>;

impl Stop {
    /// Creates a fault of something outside, as opposed to bad input.
    pub fn fault(problem: Problem) -> Self {
        Self { exit: Exit::No, problems: vec![problem] }
    }

    /// Returns the same for a command whose exit code 1 is a verdict: a fault means that it could not be checked.
    #[must_use]
    pub fn not_checked(self) -> Self {
        let exit = if self.exit == Exit::No { Exit::Unknown } else { self.exit };
        Self { exit, ..self }
    }

    /// Stops quietly because the reader of standard output has closed it.
    pub fn broken_pipe() -> Self {
        Self { exit: Exit::Done, problems: Vec::new() }
    }
}

impl From<Problem> for Stop {
    fn from(problem: Problem) -> Self {
        vec![problem].into()
    }
}

impl From<Vec<Problem>> for Stop {
    fn from(problems: Vec<Problem>) -> Self {
        Self { exit: Exit::Bad, problems }
    }
}
