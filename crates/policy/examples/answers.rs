//! Answers expressions as JSON lines, for comparison with a program that runs the API server's code.
//!
//! Arguments: the server's minor and a file with the values of the variables. Each line of the input has `Env` (such as `1.34`)
//! and `Expr`; each line of the output has `phase`, `value`, `type` and `cost`.

use std::io::{BufRead, Write};

use policy::Decision;
use policy::expression::{Check, Expression, Failure, Variables};
use policy::release::Release;
use policy::value::{Arena, read_json};

#[path = "../tests/show/mod.rs"]
mod show;

use show::show;

fn answer(source: &str, release: Release, variables: &str) -> serde_json::Value {
    let expression = match Expression::compile(source, release) {
        Ok(expression) => expression,
        Err(refused) => {
            return serde_json::json!({"phase": "compile-error", "value": refused.message, "cost": 0});
        }
    };
    let arena = Arena::new();
    let Ok(variables) = read_json(variables, &arena) else { return serde_json::Value::Null };
    let variable = |name: &str| variables.field(name).unwrap_or_default();
    let variables = Variables {
        object: variable("object"),
        old_object: variable("oldObject"),
        params: Some(variable("params")),
        request: variable("request"),
        namespace_object: Some(variable("namespaceObject")),
        ..Variables::default()
    };
    let of = expression.output_type();
    let allow = |_: &Check| Some(Decision { allowed: true, reason: "because".to_owned(), error: None });
    let (result, cost) = expression.evaluate(&variables, &allow, &arena);
    let (phase, value) = match result {
        Ok(value) => ("ok", show(&value)),
        Err(Failure::Error(message)) => ("eval-error", message),
        Err(Failure::TooExpensive) => {
            ("eval-error", "operation cancelled: actual cost limit exceeded".to_owned())
        }
        Err(other) => ("eval-error", format!("{other:?}")),
    };
    let value =
        if phase == "ok" { value } else { format!("expression '{source}' resulted in error: {value}") };
    serde_json::json!({"phase": phase, "value": value, "type": of, "cost": cost})
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut arguments = std::env::args().skip(1);
    let server: u8 = arguments.next().ok_or("the server's minor")?.parse()?;
    let variables = std::fs::read_to_string(arguments.next().ok_or("a file with variables")?)?;
    let mut out = std::io::stdout().lock();
    for line in std::io::stdin().lock().lines() {
        let question: serde_json::Value = serde_json::from_str(&line?)?;
        let environment = question["Env"].as_str().unwrap_or_default().trim_start_matches("1.").parse()?;
        let source = question["Expr"].as_str().unwrap_or_default();
        writeln!(out, "{}", answer(source, Release { server, environment }, &variables))?;
    }
    Ok(())
}
