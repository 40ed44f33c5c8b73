//! The answer to an expression, with the fields of the records.

use policy::Authorization;
use policy::expression::{AccessCheck, Expression, ExpressionError, Variables};
use policy::release::Release;
use policy::value::{Arena, read_json};

use crate::show::show;

/// Phase, value or error text, type and cost.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Answer {
    pub(crate) phase: &'static str,
    pub(crate) value: String,
    pub(crate) of: String,
    pub(crate) cost: u64,
}

/// Answers an expression. `variables` is an object with the values of the variables.
pub(crate) fn answer(
    source: &str,
    release: Release,
    variables: &str,
    decide: &dyn Fn(&AccessCheck) -> Option<Authorization>,
) -> Answer {
    let expression = match Expression::compile(source, release) {
        Ok(expression) => expression,
        Err(refused) => {
            return Answer { phase: "compile-error", value: refused.message, of: String::new(), cost: 0 };
        }
    };
    let arena = Arena::new();
    let variables = read_json(variables, &arena).expect("variables");
    let variable = |name: &str| variables.field(name).expect("a variable");
    let variables = Variables {
        object: variable("object"),
        old_object: variable("oldObject"),
        params: Some(variable("params")),
        request: variable("request"),
        namespace_object: Some(variable("namespaceObject")),
        ..Variables::default()
    };
    let (result, cost) = expression.evaluate(&variables, decide, &arena);
    let (phase, value) = match result {
        Ok(value) => ("ok", show(&value)),
        Err(ExpressionError::Error(message)) => ("eval-error", message),
        Err(ExpressionError::TooExpensive) => {
            ("eval-error", "operation cancelled: actual cost limit exceeded".to_owned())
        }
        Err(other) => ("eval-error", format!("{other:?}")),
    };
    Answer { phase, value, of: expression.output_type(), cost }
}
