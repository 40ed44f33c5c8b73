//! Evaluation of a policy with one set of parameters: match conditions, validations, messages and audit annotations, within
//! the API server's budgets.

use std::cell::{Cell, RefCell};

use super::compiled::{Compiled, CompiledPolicy};
use super::model::Validation;
use crate::cel::eval::{Activation, Shared};
use crate::cel::outcome::{Cancel, Context, Fault, Limit, Outcome, Unknown};
use crate::expression::{EXPRESSION_LIMIT, Need, Roots, needs};
use crate::value::Value;
use crate::value::format::quote;

/// Cost of all validations with their messages, and of all audit annotations.
const BUDGET: u64 = 10_000_000;
/// Cost of all match conditions.
const MATCH_BUDGET: u64 = 2_500_000;
/// Longest message of an expression, in bytes.
const MAX_MESSAGE: usize = 5 * 1024;
/// The error that replaces all decisions.
const OUT_OF_BUDGET: &str =
    "validation failed due to running out of cost budget, no further validation rules will be run";

/// The findings of an evaluation.
#[derive(Default)]
pub(crate) struct Report {
    /// Whether the match conditions exclude the request.
    pub(crate) skipped: bool,
    /// Whether the failure policy ignores an error of a match condition.
    pub(crate) ignored: bool,
    pub(crate) decisions: Vec<Verdict>,
    pub(crate) annotations: Vec<Annotation>,
    pub(crate) needs: Vec<Need>,
    /// Facts that decide whether the match conditions exclude the request.
    pub(crate) condition_needs: Vec<Need>,
    /// The limit that ended the evaluation. The other findings are incomplete: an expression that was not evaluated could exhaust
    /// the cost budget, which replaces all decisions.
    pub(crate) limit: Option<Limit>,
}

/// The verdict of one validation, or an error that replaces all of them.
pub(crate) enum Verdict {
    Admit,
    Deny { message: String, reason: String },
    Error(String),
}

/// An audit annotation.
pub(crate) enum Annotation {
    Publish { key: String, value: String },
    Error(String),
}

/// Inputs of an evaluation.
#[derive(Clone, Copy)]
pub(crate) struct Input<'a> {
    pub(crate) context: Context<'a>,
    /// The variables of validations.
    pub(crate) variables: crate::expression::Variables<'a>,
    /// Set if the API server finds no Namespace.
    pub(crate) namespace_null: bool,
}

/// Evaluates a policy.
pub(crate) fn evaluate<'a>(policy: &'a CompiledPolicy, input: Input<'a>) -> Report {
    let mut report = Report::default();
    let ignore = policy.policy.failure_policy == "Ignore";
    match match_conditions(policy, input, &mut report) {
        Matched::Yes => {}
        Matched::No => {
            report.skipped = true;
            return report;
        }
        Matched::Error(message) => {
            if ignore {
                (report.skipped, report.ignored) = (true, true);
            } else {
                report.decisions.push(Verdict::Error(message));
            }
            return report;
        }
        Matched::Limit(limit) => {
            report.limit = Some(limit);
            return report;
        }
    }
    validations(policy, input, &mut report);
    if report.limit.is_none() {
        audit_annotations(policy, input, ignore, &mut report);
    }
    report
}

enum Matched {
    Yes,
    No,
    Error(String),
    Limit(Limit),
}

fn match_conditions<'a>(policy: &'a CompiledPolicy, input: Input<'a>, report: &mut Report) -> Matched {
    // Match conditions see no Namespace: `namespaceObject` is null.
    let mut variables = input.variables;
    variables.namespace_object = Some(Value::Null);
    let mut group = Group::new(policy, Input { variables, ..input }, MATCH_BUDGET);
    let mut errors: Vec<String> = Vec::new();
    let mut outcomes = Vec::new();
    for condition in &policy.match_conditions {
        match group.evaluate(condition) {
            Ok(outcome) => outcomes.push(outcome),
            Err(Stop::Budget) => return Matched::Error(OUT_OF_BUDGET.to_owned()),
            Err(Stop::Limit(limit)) => return Matched::Limit(limit),
        }
    }
    let is_false = |outcome: &Evaluation<'_>| matches!(outcome, Evaluation::Value(Value::Bool(false)));
    if outcomes.iter().any(is_false) {
        return Matched::No;
    }
    for outcome in outcomes {
        match outcome {
            Evaluation::Error(message) if !errors.contains(&message) => errors.push(message),
            Evaluation::Unknown(unknown) => report.condition_needs.extend(needs(unknown)),
            _ => {}
        }
    }
    match errors.as_slice() {
        [] => Matched::Yes,
        [one] => Matched::Error(one.clone()),
        several => Matched::Error(format!("[{}]", several.join(", "))),
    }
}

fn validations<'a>(policy: &'a CompiledPolicy, input: Input<'a>, report: &mut Report) {
    let mut group = Group::new(policy, input, BUDGET);
    let mut outcomes = Vec::with_capacity(policy.validations.len());
    for validation in &policy.validations {
        match group.evaluate(&validation.expression) {
            Ok(outcome) => outcomes.push(outcome),
            Err(Stop::Budget) => {
                report.decisions.push(Verdict::Error(OUT_OF_BUDGET.to_owned()));
                return;
            }
            Err(Stop::Limit(limit)) => {
                report.limit = Some(limit);
                return;
            }
        }
    }
    // Messages are evaluated for all validations: their cost can change the verdict.
    let mut messages = Group::new(policy, input, group.budget);
    messages.authorizer = false;
    let mut texts: Vec<Option<Evaluation<'a>>> = Vec::with_capacity(policy.validations.len());
    let mut failed = false;
    for validation in &policy.validations {
        let Some(message) = &validation.message else {
            texts.push(None);
            continue;
        };
        match messages.evaluate(message) {
            Ok(outcome) => texts.push(Some(outcome)),
            Err(Stop::Budget) => {
                failed = true;
                break;
            }
            Err(Stop::Limit(limit)) => {
                report.limit = Some(limit);
                return;
            }
        }
    }
    let mut texts = texts.into_iter();
    for (validation, outcome) in policy.validations.iter().zip(outcomes) {
        let text = texts.next().flatten();
        report.decisions.push(match outcome {
            Evaluation::Error(message) => Verdict::Error(message),
            Evaluation::Unknown(unknown) => {
                report.needs.extend(needs(unknown));
                Verdict::Admit
            }
            Evaluation::Value(_) if failed => {
                Verdict::Error(format!("failed messageExpression: {OUT_OF_BUDGET}"))
            }
            Evaluation::Value(Value::Bool(true)) => Verdict::Admit,
            Evaluation::Value(_) => {
                if let Some(Evaluation::Unknown(unknown)) = &text {
                    report.needs.extend(needs(unknown));
                }
                denial(&validation.validation, text.as_ref())
            }
        });
    }
}

/// The denial of a false validation, with the text of its message expression.
fn denial(validation: &Validation, text: Option<&Evaluation<'_>>) -> Verdict {
    let message = match text {
        Some(Evaluation::Value(Value::String(text))) => usable_message(text),
        _ => None,
    };
    let fallback = || {
        let fixed = validation.message.trim();
        if fixed.is_empty() {
            format!("failed expression: {}", validation.expression.trim())
        } else {
            fixed.to_owned()
        }
    };
    let message = message.unwrap_or_else(fallback);
    let reason = validation.reason.clone().unwrap_or_else(|| "Invalid".to_owned());
    Verdict::Deny { message, reason }
}

/// The message of an expression: one line that is not empty and not too long.
fn usable_message(text: &str) -> Option<String> {
    let text = text.trim();
    (!text.is_empty() && text.len() <= MAX_MESSAGE && !text.contains('\n')).then(|| text.to_owned())
}

fn audit_annotations<'a>(policy: &'a CompiledPolicy, input: Input<'a>, ignore: bool, report: &mut Report) {
    let mut group = Group::new(policy, input, BUDGET);
    group.authorizer = false;
    let mut annotations = Vec::new();
    for (key, expression) in &policy.audit_annotations {
        match group.evaluate(expression) {
            Ok(Evaluation::Value(Value::String(text))) if !text.trim().is_empty() => {
                annotations.push(Annotation::Publish { key: key.clone(), value: text.trim().to_owned() });
            }
            Ok(Evaluation::Value(Value::String(_) | Value::Null)) => {}
            Ok(Evaluation::Value(other)) => {
                let source = &expression.source;
                let of = other.type_name();
                annotations.push(Annotation::Error(format!(
                    "valueExpression '{source}' resulted in unsupported return type: {of}. Return type must be either string or null."
                )));
            }
            Ok(Evaluation::Error(message)) => {
                if !ignore {
                    annotations.push(Annotation::Error(message));
                }
            }
            Ok(Evaluation::Unknown(unknown)) => report.needs.extend(needs(unknown)),
            Err(Stop::Budget) => {
                report.decisions = vec![Verdict::Error(OUT_OF_BUDGET.to_owned())];
                return;
            }
            Err(Stop::Limit(limit)) => {
                report.limit = Some(limit);
                return;
            }
        }
    }
    report.annotations = annotations;
}

/// The result of one expression.
enum Evaluation<'a> {
    Value(Value<'a>),
    Error(String),
    Unknown(&'a Unknown<'a>),
}

/// Why no further expression is evaluated.
enum Stop {
    Budget,
    Limit(Limit),
}

/// Expressions that share a budget and the values of variables.
struct Group<'a> {
    policy: &'a CompiledPolicy,
    input: Input<'a>,
    budget: u64,
    values: RefCell<Vec<Option<Outcome<'a>>>>,
    cost: Cell<u64>,
    /// Whether the variables of the authorizer have values. Those of messages and audit annotations have none.
    authorizer: bool,
}

impl<'a> Group<'a> {
    fn new(policy: &'a CompiledPolicy, input: Input<'a>, budget: u64) -> Self {
        let values = RefCell::new(vec![None; policy.variables.len()]);
        Self { policy, input, budget, values, cost: Cell::new(0), authorizer: true }
    }

    fn run(&self, program: &'a crate::cel::program::Program) -> (Outcome<'a>, u64) {
        let activation = Variables { group: self };
        let shared = Shared { context: self.input.context, activation: &activation };
        program.evaluate(EXPRESSION_LIMIT, shared)
    }

    fn evaluate(&mut self, compiled: &'a Compiled) -> Result<Evaluation<'a>, Stop> {
        let program = match &compiled.program {
            Ok(program) => program,
            Err(message) => return Ok(Evaluation::Error(format!("compilation error: {message}"))),
        };
        let (outcome, cost) = self.run(program);
        if let Err(Fault::Cancelled(Cancel::Limit(limit))) = outcome {
            return Err(Stop::Limit(limit));
        }
        for spent in [self.cost.replace(0), cost] {
            self.budget = self.budget.checked_sub(spent).ok_or(Stop::Budget)?;
        }
        let error = |message: &str| {
            Ok(Evaluation::Error(format!("expression '{}' resulted in error: {message}", compiled.source)))
        };
        match outcome {
            Ok(value) => Ok(Evaluation::Value(value)),
            Err(Fault::Error(message)) => error(message),
            Err(Fault::Unknown(unknown)) => Ok(Evaluation::Unknown(unknown)),
            Err(Fault::Cancelled(cancel)) => error(cancel.message()),
        }
    }
}

/// The variables that expressions of a group see.
struct Variables<'g, 'a> {
    group: &'g Group<'a>,
}

impl<'a> Activation<'a> for Variables<'_, 'a> {
    fn root(&self, name: &str) -> Option<Outcome<'a>> {
        let input = &self.group.input;
        if name == "namespaceObject" && input.namespace_null {
            return Some(Ok(Value::Null));
        }
        if !self.group.authorizer && name.starts_with("authorizer") {
            return None;
        }
        Roots { variables: input.variables, arena: input.context.arena }.root(name)
    }

    fn user_is_unknown(&self) -> bool {
        self.group.input.variables.user_is_unknown
    }

    /// Evaluates a variable when it is first used. Later expressions of the group use its value again.
    fn variable(&self, name: &str) -> Option<Outcome<'a>> {
        let group = self.group;
        // The last one of variables with the same name counts.
        let index = group.policy.variables.iter().rposition(|(known, _)| known == name)?;
        let known = group.values.borrow().get(index).copied().flatten();
        if known.is_some() {
            return known;
        }
        let (_, compiled) = group.policy.variables.get(index)?;
        let context = &group.input.context;
        let outcome = match &compiled.program {
            Err(message) => {
                context.error(&format!("composited variable {} fails to compile: {message}", quote(name)))
            }
            Ok(program) => {
                let (outcome, cost) = group.run(program);
                group.cost.set(group.cost.get().saturating_add(cost));
                let wrap = |message: &str| {
                    context
                        .error(&format!("composited variable {} fails to evaluate: {message}", quote(name)))
                };
                match outcome {
                    Err(Fault::Error(message)) => wrap(message),
                    // A limit ends the expression that reads the variable.
                    limit @ Err(Fault::Cancelled(Cancel::Limit(_))) => limit,
                    Err(Fault::Cancelled(cancel)) => wrap(cancel.message()),
                    other => other,
                }
            }
        };
        if let Some(slot) = group.values.borrow_mut().get_mut(index) {
            *slot = Some(outcome);
        }
        Some(outcome)
    }
}
