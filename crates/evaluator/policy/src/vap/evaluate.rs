//! Evaluation of a policy with one set of parameters: match conditions, validations, messages and audit annotations, within
//! the API server's budgets.

use std::cell::{Cell, RefCell};

use super::compiled::{CompiledExpression, CompiledPolicy};
use super::decision::{Decisions, Evaluated, INVALID, Missing, Objection};
use super::model::{Binding, Validation};
use crate::cel::eval::{Activation, EvalInput};
use crate::cel::outcome::{Cancel, EvalContext, EvalResult, Limit, NoValue, Unknown};
use crate::expression::{EXPRESSION_LIMIT, Need, Roots, needs};
use crate::facts::Lookup;
use crate::value::Value;
use crate::value::format::quote;

/// Cost of all validations with their messages, and of all audit annotations.
const BUDGET: u64 = 10_000_000;
/// Cost of all match conditions.
const MATCH_BUDGET: u64 = 2_500_000;
/// Longest message of an expression, in bytes.
const MAX_MESSAGE: usize = 5 * 1024;
/// The error that replaces all objections.
const OUT_OF_BUDGET: &str =
    "validation failed due to running out of cost budget, no further validation rules will be run";

/// Inputs of an evaluation.
#[derive(Clone, Copy)]
pub(crate) struct Input<'a> {
    pub(crate) context: EvalContext<'a>,
    /// The variables of validations.
    pub(crate) variables: crate::expression::Variables<'a>,
    /// Set if the API server finds no Namespace.
    pub(crate) namespace_null: bool,
}

/// Evaluates a policy for a binding. `lookup` is the lookup of a fact that expressions need. Returns the decisions, in which the keys of
/// audit annotations are those of the policy, and the facts that decide whether the match conditions exclude the request.
pub(crate) fn evaluate<'a>(
    policy: &'a CompiledPolicy,
    binding: &Binding,
    input: Input<'a>,
    lookup: &dyn Fn(Need) -> Option<Lookup>,
) -> (Decisions, Vec<Lookup>) {
    let ignores = policy.policy.failure_policy == "Ignore";
    let mut validator = PolicyValidator {
        policy,
        binding,
        input,
        lookup,
        ignores,
        ignored: false,
        objections: Vec::new(),
        found: Decisions::default(),
        pending: Vec::new(),
    };
    let skipped = match validator.steps() {
        Ok(skipped) => skipped,
        Err(limit) => {
            let missing = vec![validator.missing(Lookup::Limit(limit))];
            return (Decisions { missing, ..Decisions::default() }, validator.pending);
        }
    };
    validator.finish(skipped)
}

/// State of an evaluation.
struct PolicyValidator<'a, 'b> {
    policy: &'a CompiledPolicy,
    binding: &'b Binding,
    input: Input<'a>,
    lookup: &'b dyn Fn(Need) -> Option<Lookup>,
    /// Whether the failure policy ignores errors.
    ignores: bool,
    /// Whether there was an error that it ignores.
    ignored: bool,
    /// Failed validations, and errors in their place.
    objections: Vec<Objection>,
    found: Decisions,
    pending: Vec<Lookup>,
}

enum Matched {
    Yes,
    No,
    Error(String),
}

impl<'a> PolicyValidator<'a, '_> {
    /// Returns whether the match conditions exclude the request. A limit ends the evaluation: an expression that was not evaluated
    /// could exhaust the cost budget, which replaces all objections.
    fn steps(&mut self) -> Result<bool, Limit> {
        match self.match_conditions()? {
            Matched::Yes => {}
            Matched::No => return Ok(true),
            Matched::Error(message) => {
                self.replace(message);
                return Ok(self.ignores);
            }
        }
        self.validations()?;
        self.audit_annotations()?;
        Ok(false)
    }

    fn match_conditions(&mut self) -> Result<Matched, Limit> {
        // Match conditions see no Namespace: `namespaceObject` is null.
        let mut variables = self.input.variables;
        variables.namespace_object = Some(Value::Null);
        let mut group = ExpressionGroup::new(self.policy, Input { variables, ..self.input }, MATCH_BUDGET);
        let mut outcomes = Vec::new();
        for condition in &self.policy.match_conditions {
            match group.evaluate(condition) {
                Ok(outcome) => outcomes.push(outcome),
                Err(GroupEnd::Budget) => return Ok(Matched::Error(OUT_OF_BUDGET.to_owned())),
                Err(GroupEnd::Limit(limit)) => return Err(limit),
            }
        }
        if outcomes.iter().any(|outcome| matches!(outcome, Ok(Value::Bool(false)))) {
            return Ok(Matched::No);
        }
        let mut errors: Vec<&str> = Vec::new();
        for outcome in outcomes {
            match outcome {
                Err(NoValue::Error(message)) if !errors.contains(&message) => errors.push(message),
                Err(NoValue::Unknown(unknown)) => {
                    self.pending.extend(needs(unknown).into_iter().filter_map(self.lookup));
                }
                _ => {}
            }
        }
        Ok(match errors.as_slice() {
            [] => Matched::Yes,
            [one] => Matched::Error((*one).to_owned()),
            several => Matched::Error(format!("[{}]", several.join(", "))),
        })
    }

    fn validations(&mut self) -> Result<(), Limit> {
        let mut group = ExpressionGroup::new(self.policy, self.input, BUDGET);
        let mut outcomes = Vec::with_capacity(self.policy.validations.len());
        for validation in &self.policy.validations {
            match group.evaluate(&validation.expression) {
                Ok(outcome) => outcomes.push(outcome),
                Err(GroupEnd::Budget) => {
                    self.replace(OUT_OF_BUDGET.to_owned());
                    return Ok(());
                }
                Err(GroupEnd::Limit(limit)) => return Err(limit),
            }
        }
        // Messages are evaluated for all validations: their cost can change the verdict.
        let mut messages = ExpressionGroup::new(self.policy, self.input, group.budget);
        messages.authorizer = false;
        let mut texts: Vec<Option<EvalResult<'a>>> = Vec::with_capacity(self.policy.validations.len());
        let mut failed = false;
        for validation in &self.policy.validations {
            let Some(message) = &validation.message else {
                texts.push(None);
                continue;
            };
            match messages.evaluate(message) {
                Ok(outcome) => texts.push(Some(outcome)),
                Err(GroupEnd::Budget) => {
                    failed = true;
                    break;
                }
                Err(GroupEnd::Limit(limit)) => return Err(limit),
            }
        }
        let mut texts = texts.into_iter();
        for (index, (validation, outcome)) in self.policy.validations.iter().zip(outcomes).enumerate() {
            let text = texts.next().flatten();
            match outcome {
                Ok(Value::Bool(true)) if !failed => {}
                Ok(_) if failed => {
                    self.error(index, Some(index), format!("failed messageExpression: {OUT_OF_BUDGET}"));
                }
                Ok(_) => self.denial(index, &validation.validation, text),
                Err(NoValue::Unknown(unknown)) => self.need(unknown),
                Err(NoValue::Error(message)) => self.error(index, Some(index), message.to_owned()),
                Err(NoValue::Cancelled(cancel)) => {
                    self.error(index, Some(index), cancel.message().to_owned());
                }
            }
        }
        Ok(())
    }

    /// Adds the objection of a false validation, with the text of its message expression.
    fn denial(&mut self, index: usize, validation: &Validation, text: Option<EvalResult<'a>>) {
        let message = match text {
            Some(Ok(Value::String(text))) => usable_message(text),
            Some(Err(NoValue::Unknown(unknown))) => {
                self.need(unknown);
                None
            }
            _ => None,
        };
        let fallback = || match validation.message.trim() {
            "" => format!("failed expression: {}", validation.expression.trim()),
            fixed => fixed.to_owned(),
        };
        let message = message.unwrap_or_else(fallback);
        let reason = validation.reason.clone().unwrap_or_else(|| INVALID.to_owned());
        let error = Objection { validation: Some(index), ..self.objection(index, message) };
        self.objections.push(Objection { error: false, reason, ..error });
    }

    fn audit_annotations(&mut self) -> Result<(), Limit> {
        let mut group = ExpressionGroup::new(self.policy, self.input, BUDGET);
        group.authorizer = false;
        let (mut annotations, mut errors) = (Vec::new(), Vec::new());
        for (key, expression) in &self.policy.audit_annotations {
            match group.evaluate(expression) {
                Ok(Ok(Value::String(text))) if !text.trim().is_empty() => {
                    annotations.push((key.clone(), text.trim().to_owned()));
                }
                Ok(Ok(Value::String(_) | Value::Null)) => {}
                Ok(Ok(other)) => {
                    let source = &expression.source;
                    let of = other.type_name();
                    errors.push(format!(
                        "valueExpression '{source}' resulted in unsupported return type: {of}. Return type must be either string or null."
                    ));
                }
                Ok(Err(NoValue::Unknown(unknown))) => self.need(unknown),
                Ok(Err(_)) if self.ignores => {}
                Ok(Err(NoValue::Error(message))) => errors.push(message.to_owned()),
                Ok(Err(NoValue::Cancelled(cancel))) => errors.push(cancel.message().to_owned()),
                Err(GroupEnd::Budget) => {
                    self.replace(OUT_OF_BUDGET.to_owned());
                    return Ok(());
                }
                Err(GroupEnd::Limit(limit)) => return Err(limit),
            }
        }
        self.found.audit_annotations = annotations;
        // These deny the request whatever the actions of the binding are.
        self.found.denials = errors.into_iter().map(|message| self.objection(0, message)).collect();
        Ok(())
    }

    /// Adds an error, which the failure policy can ignore.
    fn error(&mut self, index: usize, validation: Option<usize>, message: String) {
        if self.ignores {
            self.ignored = true;
        } else {
            self.objections.push(Objection { validation, ..self.objection(index, message) });
        }
    }

    /// Replaces all objections by an error. It counts as that of the validation if there is only one.
    fn replace(&mut self, message: String) {
        self.objections.clear();
        self.error(0, (self.policy.validations.len() == 1).then_some(0), message);
    }

    fn objection(&self, index: usize, message: String) -> Objection {
        let actions = self.binding.validation_actions.clone();
        let error = Objection::error(&self.policy.policy.name, Some(&self.binding.name), message);
        Objection { index, actions, ..error }
    }

    /// Adds the facts of an unknown result.
    fn need(&mut self, unknown: &Unknown<'_>) {
        let lookups = needs(unknown).into_iter().filter_map(self.lookup);
        let missing: Vec<Missing> = lookups.map(|lookup| self.missing(lookup)).collect();
        self.found.missing.extend(missing);
    }

    fn missing(&self, lookup: Lookup) -> Missing {
        let binding = Some(self.binding.name.clone());
        Missing { policy: self.policy.policy.name.clone(), binding, lookup }
    }

    /// Applies the actions of the binding to the objections.
    fn finish(self, skipped: bool) -> (Decisions, Vec<Lookup>) {
        let mut found = self.found;
        found.evaluated.push(Evaluated {
            policy: self.policy.policy.name.clone(),
            binding: self.binding.name.clone(),
            skipped,
            ignored: self.ignored,
        });
        let mut denials = Vec::new();
        for objection in self.objections {
            for action in &self.binding.validation_actions {
                let of_action = match action.as_str() {
                    "Deny" => &mut denials,
                    "Warn" => &mut found.warnings,
                    _ => &mut found.failures,
                };
                of_action.push(objection.clone());
            }
        }
        found.denials.splice(..0, denials);
        (found, self.pending)
    }
}

/// The message of an expression: one line that is not empty and not too long.
fn usable_message(text: &str) -> Option<String> {
    let text = text.trim();
    (!text.is_empty() && text.len() <= MAX_MESSAGE && !text.contains('\n')).then(|| text.to_owned())
}

/// Why no further expression is evaluated.
enum GroupEnd {
    Budget,
    Limit(Limit),
}

/// Expressions that share a budget and the values of variables.
struct ExpressionGroup<'a> {
    policy: &'a CompiledPolicy,
    input: Input<'a>,
    budget: u64,
    values: RefCell<Vec<Option<EvalResult<'a>>>>,
    cost: Cell<u64>,
    /// Whether the variables of the authorizer have values. Those of messages and audit annotations have none.
    authorizer: bool,
}

impl<'a> ExpressionGroup<'a> {
    fn new(policy: &'a CompiledPolicy, input: Input<'a>, budget: u64) -> Self {
        let values = RefCell::new(vec![None; policy.variables.len()]);
        Self { policy, input, budget, values, cost: Cell::new(0), authorizer: true }
    }

    fn run(&self, program: &'a crate::cel::program::Program) -> (EvalResult<'a>, u64) {
        let activation = GroupVariables { group: self };
        let shared = EvalInput { context: self.input.context, activation: &activation };
        program.evaluate(EXPRESSION_LIMIT, shared)
    }

    /// Returns the outcome of an expression, whose errors name it.
    fn evaluate(&mut self, compiled: &'a CompiledExpression) -> Result<EvalResult<'a>, GroupEnd> {
        let context = self.input.context;
        let program = match &compiled.program {
            Ok(program) => program,
            Err(message) => return Ok(context.error(&format!("compilation error: {message}"))),
        };
        let (outcome, cost) = self.run(program);
        if let Err(NoValue::Cancelled(Cancel::Limit(limit))) = outcome {
            return Err(GroupEnd::Limit(limit));
        }
        for spent in [self.cost.replace(0), cost] {
            self.budget = self.budget.checked_sub(spent).ok_or(GroupEnd::Budget)?;
        }
        let error = |message: &str| {
            context.error(&format!("expression '{}' resulted in error: {message}", compiled.source))
        };
        Ok(match outcome {
            Err(NoValue::Error(message)) => error(message),
            Err(NoValue::Cancelled(cancel)) => error(cancel.message()),
            value_or_unknown => value_or_unknown,
        })
    }
}

/// The variables that expressions of a group see.
struct GroupVariables<'g, 'a> {
    group: &'g ExpressionGroup<'a>,
}

impl<'a> Activation<'a> for GroupVariables<'_, 'a> {
    fn root(&self, name: &str) -> Option<EvalResult<'a>> {
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
    fn variable(&self, name: &str) -> Option<EvalResult<'a>> {
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
                    Err(NoValue::Error(message)) => wrap(message),
                    // A limit ends the expression that reads the variable.
                    limit @ Err(NoValue::Cancelled(Cancel::Limit(_))) => limit,
                    Err(NoValue::Cancelled(cancel)) => wrap(cancel.message()),
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
