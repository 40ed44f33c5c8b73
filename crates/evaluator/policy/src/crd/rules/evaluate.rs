//! Evaluates the rules of an object.
//!
//! The rules of a value come before those of the values within it. A rule that reads `oldSelf` applies only if there is a value before
//! the update: fields have one, and elements of lists only in lists of type `map`. A rule that is false is a warning if its value did
//! not change.

use super::{CompiledRule, CompiledRules, RuleNode};
use crate::cel::environment::{OLD_SELF, SELF};
use crate::cel::eval::{Activation, EvalInput, Nothing};
use crate::cel::outcome::{Cancel, EvalContext, EvalResult, NoValue};
use crate::cel::program::Program;
use crate::expression::EXPRESSION_LIMIT;
use crate::field::{ErrorKind, FieldError, Path, Validated};
use crate::place::ValuePlace;
use crate::release::Release;
use crate::schema::Schema;
use crate::schema::correlate::Correlation;
use crate::value::format::quote;
use crate::value::typed::view;
use crate::value::{Arena, Opaque, Value, ValueShape};

/// Cost of all rules of an object.
pub(in crate::crd) const BUDGET: u64 = 10_000_000;

/// Bytes of the result of a message expression.
const MAX_MESSAGE: usize = 5 << 10;

/// Errors that are reported of one object. A list of an object can have a million elements.
const MAX_ERRORS: usize = 10_000;

/// Values that comparisons with the old object visit.
const MAX_COMPARED: usize = 1 << 24;

const OUT_OF_BUDGET: &str =
    "validation failed due to running out of cost budget, no further validation rules will be run";

/// The objects that rules see.
#[derive(Clone, Copy, Debug)]
pub(in crate::crd) struct RuleInput<'a> {
    /// The object with defaults and without unknown fields.
    pub(in crate::crd) new: Value<'a>,
    /// The object before an update.
    pub(in crate::crd) old: Option<Value<'a>>,
    /// The object with other metadata, since some of it is known only to the API server. If the verdict of a rule depends on it, the
    /// rule is undecided.
    pub(in crate::crd) other: Option<Value<'a>>,
}

impl CompiledRules {
    /// Evaluates the rules of an object. `schema` is that of the rules.
    pub(in crate::crd) fn validate<'a>(
        &'a self,
        schema: &'a Schema,
        objects: RuleInput<'a>,
        arena: &'a Arena,
        keep_going: &'a dyn Fn() -> bool,
    ) -> Validated {
        let pair = objects.old.map(|old| Correlation::new(objects.new, old, schema));
        self.judge(BUDGET, objects, [pair.as_ref(), pair.as_ref()], arena, keep_going).0
    }

    /// Evaluates the rules of a value within a budget, and returns what is left of it. An error in an unchanged value stays an error.
    pub(crate) fn run<'a>(
        &'a self,
        budget: u64,
        schema: &'a Schema,
        (new, old): (Value<'a>, Option<Value<'a>>),
        arena: &'a Arena,
        keep_going: &'a dyn Fn() -> bool,
    ) -> (Validated, Option<u64>) {
        let pair = old.map(|old| Correlation::new(new, old, schema));
        self.judge(budget, RuleInput { new, old, other: None }, [pair.as_ref(), None], arena, keep_going)
    }

    fn judge<'a>(
        &'a self,
        budget: u64,
        objects: RuleInput<'a>,
        [pair, unchanged]: [Option<&Correlation<'a>>; 2],
        arena: &'a Arena,
        keep_going: &'a dyn Fn() -> bool,
    ) -> (Validated, Option<u64>) {
        let Some(node) = &self.root else { return (Validated::default(), Some(budget)) };
        let context = EvalContext { arena, answers: &Nothing, keep_going };
        let ratchets = unchanged.is_some();
        let other = objects.other.map(|other| arena.store(other));
        let release = self.release;
        let mut run =
            RuleRun { context, release, budget, ratchets, other, compared: 0, found: Validated::default() };
        let at = At { place: &ValuePlace::root(), pair, unchanged };
        // The end of the budget is an error of its own.
        let end = run.value(node, &self.shape, arena.store(objects.new), at);
        let left = end.is_ok().then_some(run.budget);
        (run.found, left)
    }
}

/// State of one object.
struct RuleRun<'a> {
    context: EvalContext<'a>,
    release: Release,
    budget: u64,
    /// Whether errors in unchanged values are only warnings.
    ratchets: bool,
    /// The whole object with other metadata.
    other: Option<&'a Value<'a>>,
    compared: usize,
    found: Validated,
}

/// No more rules are evaluated.
struct RulesEnd;

/// A value that is visited, and the one before the update.
#[derive(Clone, Copy)]
struct At<'p, 'a> {
    place: &'p ValuePlace<'p>,
    pair: Option<&'p Correlation<'a>>,
    /// The pair that decides whether an error is only a warning: that of the value, or else of the nearest value around it.
    unchanged: Option<&'p Correlation<'a>>,
}

/// The variables of a rule.
struct Selves<'a> {
    this: Value<'a>,
    old: Option<Value<'a>>,
}

impl<'a> Activation<'a> for Selves<'a> {
    fn root(&self, name: &str) -> Option<EvalResult<'a>> {
        match name {
            SELF => Some(Ok(self.this)),
            OLD_SELF => self.old.map(Ok),
            _ => None,
        }
    }

    fn variable(&self, _: &str) -> Option<EvalResult<'a>> {
        None
    }
}

impl<'a> RuleRun<'a> {
    fn value(
        &mut self,
        node: &'a RuleNode,
        shape: &'a ValueShape,
        value: &'a Value<'a>,
        at: At<'_, 'a>,
    ) -> Result<(), RulesEnd> {
        if matches!(value, Value::Null) {
            return Ok(());
        }
        self.rules(node, shape, value, at)?;
        match value {
            Value::List(elements) => {
                let (Some(node), Some(shape)) = (&node.items, shape.items()) else { return Ok(()) };
                for (index, element) in elements.iter().enumerate() {
                    let pair = at.pair.and_then(|pair| pair.element(index));
                    let place = at.place.index(index);
                    let unchanged = pair.as_ref().or(at.unchanged);
                    self.value(node, shape, element, At { place: &place, pair: pair.as_ref(), unchanged })?;
                }
            }
            Value::Object(entries) => {
                if let Some(node) = &node.values {
                    for (name, value) in *entries {
                        self.field(node, shape, (name, value), at, at.place.key(name))?;
                    }
                }
                for (name, node) in &node.properties {
                    let Ok(found) = entries.binary_search_by(|(key, _)| (*key).cmp(name)) else { continue };
                    let Some((_, value)) = entries.get(found) else { continue };
                    self.field(node, shape, (name, value), at, at.place.property(name))?;
                }
            }
            _ => {}
        }
        Ok(())
    }

    fn field(
        &mut self,
        node: &'a RuleNode,
        shape: &'a ValueShape,
        (name, value): (&str, &'a Value<'a>),
        at: At<'_, 'a>,
        place: ValuePlace<'_>,
    ) -> Result<(), RulesEnd> {
        let Some(shape) = node.shape.as_ref().or_else(|| shape.property(name)) else { return Ok(()) };
        let pair = at.pair.and_then(|pair| pair.field(name));
        // The API server converts both objects to one version, so it can't see whether these fields changed.
        let is_converted = at.place.is_root() && matches!(name, "apiVersion" | "kind");
        let unchanged = pair.as_ref().or(at.unchanged).filter(|_| !is_converted);
        self.value(node, shape, value, At { place: &place, pair: pair.as_ref(), unchanged })
    }

    fn rules(
        &mut self,
        node: &'a RuleNode,
        shape: &'a ValueShape,
        value: &'a Value<'a>,
        at: At<'_, 'a>,
    ) -> Result<(), RulesEnd> {
        if node.rules.is_empty() {
            return Ok(());
        }
        if self.budget == 0 {
            return self.stop(node, at, OUT_OF_BUDGET);
        }
        let arena = self.context.arena;
        let old = at.pair.map(|pair| pair.old).filter(|old| node.uses_old && !matches!(old, Value::Null));
        let old = old.map(|old| view(arena.store(old), shape));
        let plain = Selves { this: view(value, shape), old };
        let optional =
            Selves { this: plain.this, old: Some(Value::Optional(old.map(|old| self.in_optional(old)))) };
        for rule in &node.rules {
            if rule.program.reads.old_self && old.is_none() && !rule.old_is_optional {
                continue;
            }
            let selves = if rule.old_is_optional && node.uses_old { &optional } else { &plain };
            if old.is_some() && at.place.is_root() && self.depends_on_metadata(rule, selves, shape) {
                self.doubt(
                    rule,
                    at,
                    "the rule compares metadata that only the API server knows, such as managedFields",
                );
                continue;
            }
            self.rule(node, rule, selves, &plain, value, at)?;
        }
        Ok(())
    }

    /// Whether a rule of the whole object that reads the old one has another verdict with other metadata.
    fn depends_on_metadata(
        &self,
        rule: &'a CompiledRule,
        selves: &Selves<'a>,
        shape: &'a ValueShape,
    ) -> bool {
        let Some(other) = self.other.filter(|_| rule.program.reads.old_self) else { return false };
        let verdict = |selves: &Selves<'a>| match self.evaluate(&rule.program, selves).0 {
            Ok(value) => value.as_bool(),
            Err(_) => None,
        };
        verdict(selves) != verdict(&Selves { this: view(other, shape), old: selves.old })
    }

    /// The old value within an optional. One that does not fit its schema fails when it is taken out, up to 1.36 with a text of its own.
    fn in_optional(&self, old: Value<'a>) -> &'a Value<'a> {
        let arena = self.context.arena;
        let Err(NoValue::Error(text)) = self.context.unwrapped(old) else { return arena.store(old) };
        let rewraps = self.release.selection_rewraps();
        let start = if rewraps { "unsupported conversion to ref.Val: " } else { "" };
        let text = format!("{start}{text}");
        arena.store(Value::Opaque(arena.store(Opaque::Failed(arena.text(&text)))))
    }

    fn rule(
        &mut self,
        node: &RuleNode,
        rule: &'a CompiledRule,
        selves: &Selves<'a>,
        plain: &Selves<'a>,
        value: &Value<'a>,
        at: At<'_, 'a>,
    ) -> Result<(), RulesEnd> {
        let (outcome, cost) = self.evaluate(&rule.program, selves);
        if let Err(NoValue::Cancelled(Cancel::Limit(_)) | NoValue::Unknown(_)) = outcome {
            return self.undecided(rule, at);
        }
        let Some(budget) = self.budget.checked_sub(cost) else { return self.stop(node, at, OUT_OF_BUDGET) };
        self.budget = budget;
        let label = &rule.label;
        let is_over_limit = matches!(outcome, Err(NoValue::Cancelled(Cancel::Cost)));
        let text = match outcome {
            Ok(Value::Bool(true)) => return Ok(()),
            Ok(_) => return self.broken(node, rule, plain, value, at),
            Err(NoValue::Error(text)) => text,
            Err(NoValue::Cancelled(cancel)) => cancel.message(),
            Err(NoValue::Unknown(_)) => "",
        };
        if is_over_limit {
            let detail = format!(
                "'{text}': no further validation rules will be run due to call cost exceeds limit for rule: {label}"
            );
            return self.stop(node, at, &detail);
        }
        // The words of cel-go: `common/types/err.go`.
        let detail = if text.starts_with("no such overload") {
            format!(
                "'{text}': call arguments did not match a supported operator, function or macro signature for rule: {label}"
            )
        } else {
            format!("{text} evaluating rule: {label}")
        };
        self.report(FieldError::invalid(&at.place.path(&Path::default()), &node.type_name, &detail));
        Ok(())
    }

    fn evaluate(&self, program: &'a Program, selves: &Selves<'a>) -> (EvalResult<'a>, u64) {
        program.evaluate(EXPRESSION_LIMIT, EvalInput { context: self.context, activation: selves })
    }

    /// A rule is false.
    fn broken(
        &mut self,
        node: &RuleNode,
        rule: &'a CompiledRule,
        selves: &Selves<'a>,
        value: &Value<'a>,
        at: At<'_, 'a>,
    ) -> Result<(), RulesEnd> {
        let place = at.place.path(&Path::default());
        let path = match &rule.field {
            None => place.clone(),
            // The API server adds the whole path as one field.
            Some(field) if field.first_field().is_some() => place.join(field),
            Some(field) => place.child(&field.to_string()),
        };
        let mut stop = Ok(());
        let error = match self.message(rule, selves) {
            Ok(Some(detail)) => self.error(node, rule, value, &path, &detail),
            Ok(None) if rule.has_message => self.error(node, rule, value, &path, &rule.label),
            Ok(None) => self.error(node, rule, value, &path, &format!("failed rule: {}", rule.label)),
            Err(detail) => {
                stop = Err(RulesEnd);
                FieldError::invalid(&path, &node.type_name, &detail)
            }
        };
        if !rule.program.reads.old_self && self.is_unchanged(at) {
            if self.found.unchanged.len() < MAX_ERRORS {
                self.found.unchanged.push(named(error));
            }
        } else {
            self.report(error);
        }
        stop
    }

    /// The result of the message expression, if it has one that can be printed. An error ends the evaluation.
    fn message(&mut self, rule: &'a CompiledRule, selves: &Selves<'a>) -> Result<Option<String>, String> {
        let Some(program) = &rule.message else { return Ok(None) };
        let (outcome, cost) = self.evaluate(program, selves);
        let Some(budget) = self.budget.checked_sub(cost) else {
            return Err("messageExpression evaluation failed due to running out of cost budget, no further validation rules will be run".to_owned());
        };
        if matches!(outcome, Err(NoValue::Cancelled(Cancel::Cost))) {
            let source = quote(&rule.message_source);
            return Err(format!(
                "no further validation rules will be run due to call cost exceeds limit for messageExpression: {source}"
            ));
        }
        self.budget = budget;
        let Ok(Value::String(text)) = outcome else { return Ok(None) };
        let text = text.trim();
        let is_printable = !text.is_empty() && text.len() <= MAX_MESSAGE && !text.contains('\n');
        Ok(is_printable.then(|| text.to_owned()))
    }

    /// The error of a rule that is false.
    fn error(
        &self,
        node: &RuleNode,
        rule: &CompiledRule,
        value: &Value<'a>,
        path: &Path,
        detail: &str,
    ) -> FieldError {
        let is_composed = matches!(&*node.type_name, "object" | "array");
        let value = match (self.release.prints_values_of_rules(), is_composed) {
            (false, _) => Some(Value::String(&node.type_name)),
            (true, false) => Some(*value),
            (true, true) => None,
        };
        match rule.reason.as_deref() {
            Some("FieldValueForbidden") => FieldError::forbidden(path, detail),
            Some("FieldValueRequired") => FieldError::required(path, detail),
            Some("FieldValueDuplicate") => match value {
                Some(value) => FieldError::duplicate_value(path, value),
                None => FieldError::without_value(path, ErrorKind::Duplicate, ""),
            },
            _ => match value {
                Some(value) => FieldError::invalid_value(path, value, detail),
                None => FieldError::without_value(path, ErrorKind::Invalid, detail),
            },
        }
    }

    fn is_unchanged(&mut self, at: At<'_, 'a>) -> bool {
        let compared = &mut self.compared;
        let mut charge = || {
            *compared += 1;
            *compared <= MAX_COMPARED
        };
        self.ratchets && at.unchanged.is_some_and(|pair| pair.is_unchanged(&mut charge))
    }

    fn report(&mut self, error: FieldError) {
        if self.found.errors.len() < MAX_ERRORS {
            self.found.errors.push(named(error));
        }
    }

    fn stop(&mut self, node: &RuleNode, at: At<'_, 'a>, detail: &str) -> Result<(), RulesEnd> {
        self.report(FieldError::invalid(&at.place.path(&Path::default()), &node.type_name, detail));
        Err(RulesEnd)
    }

    fn undecided(&mut self, rule: &CompiledRule, at: At<'_, 'a>) -> Result<(), RulesEnd> {
        self.doubt(rule, at, "the rule needs too much time or memory");
        Err(RulesEnd)
    }

    fn doubt(&mut self, rule: &CompiledRule, at: At<'_, 'a>, why: &str) {
        let detail = format!("{why}: {}", rule.label);
        self.found.undecided.push(FieldError::internal(&at.place.path(&Path::default()), &detail));
    }
}

/// An error of the whole object has no path.
fn named(error: FieldError) -> FieldError {
    FieldError { is_unnamed: error.path.is_empty(), ..error }
}
