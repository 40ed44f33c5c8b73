//! Compilation of an expression in the steps of the API server: parse, check, validate constants, plan.

use super::environment::Environment;
use super::error::Problems;
use super::estimate::{self, Sizes};
use super::eval::{self, EvalInput};
use super::node::PlanNode;
use super::outcome::EvalResult;
use super::plan;
use super::reads::{Reads, Selected, reads, selected};
use super::types::CelType;
use super::{check, literals, parse};
use crate::field::Path;
use crate::release::Release;

/// A compiled expression.
pub(crate) struct Program {
    node: PlanNode,
    slots: usize,
    rewraps: bool,
    pub(crate) output: CelType,
    pub(crate) reads: Reads,
}

/// Why an expression is refused.
#[derive(Debug, Clone)]
pub(crate) enum CompileError {
    /// Errors with positions.
    Problems { problems: Problems, source: String },
    /// The expression has another type than its field needs.
    Output(String),
    /// A constant that cannot be converted; it has no position.
    Instantiation(String),
}

impl CompileError {
    /// The text that the API server prints.
    pub(crate) fn message(&self) -> String {
        match self {
            CompileError::Problems { problems, source } => {
                format!("compilation failed: {}", problems.display(source))
            }
            CompileError::Output(message) => message.clone(),
            CompileError::Instantiation(message) => format!("program instantiation failed: {message}"),
        }
    }

    /// Line, column (from 1) and text of each error.
    pub(crate) fn places(&self) -> Vec<(usize, usize, String)> {
        match self {
            CompileError::Problems { problems, source } => problems.places(source),
            CompileError::Output(message) | CompileError::Instantiation(message) => {
                vec![(1, 1, message.clone())]
            }
        }
    }
}

/// Punctuation characters of an expression that can't be deep.
const SHALLOW: usize = 100;
/// Stack for deep expressions.
const STACK: usize = 64 << 20;

/// Runs a function about an expression, with a stack of its own if the expression can be deep. Returns `None` if that fails.
fn on_deep_stack<T: Send>(source: &str, run: impl FnOnce() -> T + Send) -> Option<T> {
    let can_be_deep = source.bytes().filter(u8::is_ascii_punctuation).count() > SHALLOW;
    if !can_be_deep {
        return Some(run());
    }
    std::thread::scope(|scope| {
        std::thread::Builder::new().stack_size(STACK).spawn_scoped(scope, run).ok()?.join().ok()
    })
}

/// Types that a field accepts; any type if there are none.
pub(crate) type Accepted = &'static [CelType];

impl Program {
    /// Compiles an expression, one that can be deep on a stack of its own.
    pub(crate) fn compile(
        source: &str,
        environment: &Environment,
        accepted: Accepted,
    ) -> Result<Self, CompileError> {
        let failed = || CompileError::Instantiation("no thread for a deep expression".to_owned());
        on_deep_stack(source, || Self::compile_here(source, environment, accepted)).ok_or_else(failed)?
    }

    /// Compiles an expression. Its type is checked before constants are converted, as the API server does.
    fn compile_here(
        source: &str,
        environment: &Environment,
        accepted: Accepted,
    ) -> Result<Self, CompileError> {
        let (expr, checked) = Self::check(source, environment)?;
        let output = checked.type_of(&expr).clone();
        if !accepted.is_empty() && !accepted.contains(&output) {
            let found = output.declared_name();
            let message = match accepted {
                [one] => format!("must evaluate to {} but got {found}", one.declared_name()),
                several => {
                    let names: Vec<String> = several.iter().map(CelType::declared_name).collect();
                    format!("must evaluate to one of [{}] but got {found}", names.join(" "))
                }
            };
            return Err(CompileError::Output(message));
        }
        let (node, slots) = plan::plan(&expr, &checked, environment).map_err(CompileError::Instantiation)?;
        let rewraps = environment.release.selection_rewraps();
        Ok(Self { node, slots, rewraps, output, reads: reads(&expr) })
    }

    /// Returns the fields of a variable that a valid expression reads; the whole value if this is not known.
    pub(crate) fn selected(source: &str, release: Release, variable: &str) -> Selected {
        let find = || selected(&parse::parse(source, release).expr, variable);
        on_deep_stack(source, find).unwrap_or_else(|| vec![Path::default()])
    }

    fn check(
        source: &str,
        environment: &Environment,
    ) -> Result<(super::ast::Expr, check::CheckedExpression), CompileError> {
        let refuse = |problems: Problems| CompileError::Problems { problems, source: source.to_owned() };
        let parsed = parse::parse(source, environment.release);
        if !parsed.problems.is_empty() {
            return Err(refuse(parsed.problems));
        }
        let (checked, problems) = check::check(&parsed.expr, parsed.ids, environment);
        if !problems.is_empty() {
            return Err(refuse(problems));
        }
        let problems = literals::validate(&parsed.expr, &checked);
        if !problems.is_empty() {
            return Err(refuse(problems));
        }
        Ok((parsed.expr, checked))
    }

    /// Estimates the highest cost of an expression for values of the sizes that a schema allows, if the expression is valid.
    pub(crate) fn estimate(source: &str, environment: &Environment, sizes: &Sizes) -> Option<u64> {
        on_deep_stack(source, || {
            let (expr, checked) = Self::check(source, environment).ok()?;
            Some(estimate::estimate(&expr, &checked, sizes, environment.release))
        })
        .flatten()
    }

    /// Evaluates the expression. Returns the result and its cost.
    pub(crate) fn evaluate<'a>(&'a self, limit: u64, shared: EvalInput<'a, '_>) -> (EvalResult<'a>, u64) {
        eval::evaluate(&self.node, self.slots, self.rewraps, limit, shared)
    }
}
