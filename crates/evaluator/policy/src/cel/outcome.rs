//! Results of evaluation: a value, or why there is none.

use crate::value::sum::NO_SCALAR;
use crate::value::typed::Equality;
use crate::value::{Arena, Opaque, PathCheck, ResourceCheck, Value, typed, work};

/// Why an expression has no value.
#[derive(Clone, Copy, Debug)]
pub(crate) enum NoValue<'a> {
    /// An error with cel-go's text.
    Error(&'a str),
    /// A fact is unknown. `&&` and `||` absorb it like an error.
    Unknown(&'a Unknown<'a>),
    /// Evaluation ends here; nothing absorbs this.
    Cancelled(Cancel),
}

/// Facts that an expression needs.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Unknown<'a> {
    pub(crate) query: Query<'a>,
    pub(crate) next: Option<&'a Unknown<'a>>,
}

/// A fact that only the cluster knows.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Query<'a> {
    /// An authorization check of a resource with a verb.
    Resource(ResourceCheck<'a>, &'a str),
    /// An authorization check of a path with a verb.
    Path(PathCheck<'a>, &'a str),
    /// A variable of the environment, such as `namespaceObject`.
    Variable(&'a str),
}

/// A limit of the evaluator. An API server has the memory and time that it has, so its result is unknown.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Limit {
    /// Values need more than [`crate::value::MAX_BYTES`], or a function reads too many.
    Memory,
    /// The caller asked to stop.
    Time,
    /// A regular expression is too large for its text.
    Regex,
    /// A quantity has too many digits.
    Digits,
}

/// Why evaluation was cancelled.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Cancel {
    /// The expression cost more than its limit.
    Cost,
    /// A limit of this evaluator, which the API server does not have. The result is neither a value nor an error.
    Limit(Limit),
    /// The API server fails within itself, which ends the evaluation with an error.
    Internal,
}

impl Cancel {
    pub(crate) fn message(self) -> &'static str {
        match self {
            Cancel::Cost => "operation cancelled: actual cost limit exceeded",
            Cancel::Limit(_) => "operation interrupted",
            Cancel::Internal => "internal error: the API server can't evaluate the expression",
        }
    }
}

/// The fault of a function that needs too much memory.
pub(crate) const LIMIT: NoValue<'static> = NoValue::Cancelled(Cancel::Limit(Limit::Memory));

/// The fault of an expression for which the API server fails within itself.
pub(crate) const INTERNAL: NoValue<'static> = NoValue::Cancelled(Cancel::Internal);

/// Returns the fault of a comparison that failed within the API server. Its result here is wrong.
pub(crate) fn comparisons<'a>() -> Result<(), NoValue<'a>> {
    if work::has_failed() { Err(INTERNAL) } else { Ok(()) }
}

/// The value of an expression, or why it has none.
pub(crate) type EvalResult<'a> = Result<Value<'a>, NoValue<'a>>;

/// Answer to an authorization check.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Authorization {
    /// Whether the check was allowed.
    pub allowed: bool,
    /// Reason that the authorizer gave.
    pub reason: String,
    /// Error of the authorizer.
    pub error: Option<String>,
}

/// Source of facts for functions.
pub(crate) trait FactSource {
    /// The answer to an authorization check, if it is known.
    fn decision(&self, query: &Query<'_>) -> Option<Authorization>;
}

/// Facilities of functions besides their arguments.
#[derive(Clone, Copy)]
pub(crate) struct EvalContext<'a> {
    pub(crate) arena: &'a Arena,
    pub(crate) answers: &'a dyn FactSource,
    /// Whether there is time left.
    pub(crate) keep_going: &'a dyn Fn() -> bool,
}

impl<'a> EvalContext<'a> {
    pub(crate) fn text(&self, text: &str) -> Value<'a> {
        Value::String(self.arena.text(text))
    }

    pub(crate) fn error<T>(&self, text: &str) -> Result<T, NoValue<'a>> {
        Err(NoValue::Error(self.arena.text(text)))
    }

    /// Returns a fault unless so many bytes are left. Functions ask before they build a value that can be much larger than their
    /// arguments.
    pub(crate) fn reserve(&self, bytes: usize) -> Result<(), NoValue<'a>> {
        if self.arena.has_room(bytes) { Ok(()) } else { Err(LIMIT) }
    }

    /// The result of a comparison with a value of a document.
    pub(crate) fn equality(&self, left: &Value<'a>, right: &Value<'a>) -> Result<bool, NoValue<'a>> {
        match typed::compare(left, right) {
            Equality::Misfit(value, shape) => self.unwrapped(Value::Typed(value, shape)).map(|_| false),
            Equality::Unhashable => Err(INTERNAL),
            Equality::NoScalar => self.error(NO_SCALAR),
            Equality::Incomparable => Err(no_such_overload()),
            _ if typed::is_incomparable(left, right) => Err(no_such_overload()),
            result => Ok(result.is_equal()),
        }
    }

    /// Returns whether values can be wrong because of a limit or a failed comparison.
    pub(crate) fn has_wrong_values(&self) -> bool {
        self.arena.is_full() || work::is_exceeded()
    }

    pub(crate) fn list(&self, values: &[Value<'a>]) -> Value<'a> {
        Value::List(self.arena.slice(values))
    }

    /// An optional value.
    pub(crate) fn some(&self, value: Value<'a>) -> Value<'a> {
        Value::Optional(Some(self.arena.store(value)))
    }

    /// The sum of the facts that two faults need.
    pub(crate) fn merge(&self, first: &'a Unknown<'a>, second: &'a Unknown<'a>) -> &'a Unknown<'a> {
        let mut merged = first;
        let mut rest = Some(second);
        while let Some(unknown) = rest {
            let mut known = Some(merged);
            let mut found = false;
            while let Some(entry) = known {
                found |= entry.query == unknown.query;
                known = entry.next;
            }
            if !found {
                merged = self.arena.store(Unknown { query: unknown.query, next: Some(merged) });
            }
            rest = unknown.next;
        }
        merged
    }
}

/// The error of an operator without an overload for its arguments.
pub(crate) fn no_such_overload<'a>() -> NoValue<'a> {
    NoValue::Error("no such overload")
}

impl<'a> EvalContext<'a> {
    /// The value of an optional or of a document, which can be an error.
    pub(crate) fn unwrapped(&self, value: Value<'a>) -> EvalResult<'a> {
        match value {
            Value::Opaque(Opaque::Failed(message)) => Err(NoValue::Error(message)),
            Value::Typed(value, shape) => typed::read(value, shape, self.arena).map_err(NoValue::Error),
            value => Ok(value),
        }
    }
}
