//! Problems of documents.

use admission::text;
use config::{Place, Problem};
use serde::Serialize;

/// A document that can't be used: a syntax error, an unknown kind, or a policy that the API server refuses.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct LoadProblem {
    /// The place, if the problem is in a file.
    #[serde(flatten)]
    pub position: Option<Place>,
    /// Kind of the object, or empty.
    pub kind: String,
    /// Name of the object, or empty.
    pub name: String,
    /// The field, such as `spec.validations[0].expression`, or empty.
    pub field: String,
    /// The problem.
    pub message: String,
    /// The next step, or empty.
    pub next: String,
}

impl LoadProblem {
    /// Creates the problem of a file or text.
    pub fn unplaced(problem: Problem) -> Self {
        Self {
            position: problem.place,
            kind: String::new(),
            name: String::new(),
            field: String::new(),
            message: match problem.why {
                Some(why) => format!("{}: {why}", problem.what),
                None => problem.what,
            },
            next: problem.next.unwrap_or_default(),
        }
    }

    /// Returns the problem as all commands print it.
    pub fn into_problem(self) -> Problem {
        let Self { position, kind, name, field, message, next } = self;
        let object = match (kind.is_empty(), name.is_empty()) {
            (true, _) => String::new(),
            (false, true) => format!("{kind}: "),
            (false, false) => format!("{kind} \"{name}\": "),
        };
        let field = if field.is_empty() { String::new() } else { format!("{field}: ") };
        Problem {
            what: text::lines(&format!("{object}{field}{message}")),
            place: position,
            why: None,
            next: (!next.is_empty()).then_some(next),
        }
    }
}
