//! How a command ends: the exit code, and what is told.
//!
//! 0 is done and nothing to object, 1 is a "no" (denied, does not fit, a fault while serving), 2 is bad input.

use config::Problem;

/// What a command that ran to its end found.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Exit {
    /// 0
    Done,
    /// 1
    No,
    /// 2
    Bad,
}

impl Exit {
    /// The process's exit code.
    pub(crate) fn code(self) -> u8 {
        match self {
            Self::Done => 0,
            Self::No => 1,
            Self::Bad => 2,
        }
    }
}

/// Why a command could not go on.
#[derive(Debug)]
pub(crate) struct Stop {
    /// The code to leave with.
    pub(crate) exit: Exit,
    /// Everything that is wrong, all at once; none where nobody is left to tell (a closed pipe).
    pub(crate) problems: Vec<Problem>,
}

/// How a command ends.
pub(crate) type Outcome = Result<Exit, Stop>;

impl Stop {
    /// Something outside failed that is no mistake in the input.
    pub(crate) fn fault(problem: Problem) -> Self {
        Self { exit: Exit::No, problems: vec![problem] }
    }

    /// Whoever read our output has gone: nothing more to do, and nothing wrong.
    pub(crate) fn unheard() -> Self {
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
