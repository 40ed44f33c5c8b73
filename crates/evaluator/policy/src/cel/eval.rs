//! The evaluator, with run-time cost.
//!
//! The cost of a step follows cel-go's cost tracker. An attribute costs 1 and each selection 1, a new list 10 and a new map 30.
//! Constants are free. The cost of a call depends on its overload. A call with one or two arguments costs as much if an argument failed,
//! since cel-go evaluates both arguments first.

use std::collections::BTreeMap;

use super::constant::Constant;
use super::cost::Cost;
use super::library::Singleton;
use super::node::{CallNode, Dispatch, Fold, PlanNode};
use super::outcome::{
    Authorization, Cancel, EvalContext, EvalResult, FactSource, INTERNAL, LIMIT, Limit, NoValue, Query,
    Unknown, comparisons, no_such_overload,
};
use super::select;
use crate::value::{Arena, Value, equal, format, work};

/// Cost of a list that is built.
const NEW_LIST: u64 = 10;
/// Cost of a map that is built.
const NEW_MAP: u64 = 30;
/// Cost units between two questions whether to go on.
const INTERVAL: u64 = 4_096;

/// Values of the variables of an environment.
pub(crate) trait Activation<'a> {
    /// The value of a variable; `None` if the environment has none.
    fn root(&self, name: &str) -> Option<EvalResult<'a>>;
    /// The value of a field of `variables`, evaluated when it is first used. Its cost is counted by the activation.
    fn variable(&self, name: &str) -> Option<EvalResult<'a>>;
    /// Whether the caller of the request is unknown.
    fn user_is_unknown(&self) -> bool {
        false
    }
}

/// State that the expressions of one evaluation share.
#[derive(Clone, Copy)]
pub(crate) struct EvalInput<'a, 's> {
    pub(crate) context: EvalContext<'a>,
    pub(crate) activation: &'s dyn Activation<'a>,
}

/// Evaluates a program with a limit of cost. Returns the result and the cost.
pub(crate) fn evaluate<'a>(
    node: &'a PlanNode,
    slots: usize,
    rewraps: bool,
    limit: u64,
    shared: EvalInput<'a, '_>,
) -> (EvalResult<'a>, u64) {
    let outer = work::start();
    let mut evaluator = Evaluator {
        shared,
        rewraps,
        cost: 0,
        limit,
        next_question: INTERVAL,
        slots: vec![LoopVariable::Lazy; slots],
        builders: BTreeMap::new(),
        unknown: None,
    };
    let mut outcome = evaluator.eval(node);
    if !matches!(outcome, Err(NoValue::Cancelled(_))) {
        let context = &evaluator.shared.context;
        if context.has_wrong_values() {
            outcome = comparisons().and(Err(LIMIT));
        }
    }
    work::end(outer);
    // An unknown fact ends no loop and absorbs no cost, so the cost with the fact can be lower.
    if let (Err(NoValue::Cancelled(Cancel::Cost)), Some(unknown)) = (&outcome, evaluator.unknown) {
        outcome = Err(NoValue::Unknown(unknown));
    }
    (outcome, evaluator.cost)
}

/// Evaluates a list or map of constants.
pub(crate) fn fold(node: PlanNode) -> PlanNode {
    let constant = {
        let arena = Arena::new();
        constant(&node, &arena)
    };
    match constant {
        Some(constant) => PlanNode::Constant(constant),
        None => node,
    }
}

/// Evaluates a conversion of a constant. Its error is an error of the program.
pub(crate) fn fold_call(node: PlanNode) -> Result<PlanNode, String> {
    let constant = {
        let arena = Arena::new();
        constant(&node, &arena)
    };
    match constant {
        Some(Constant::Error(message)) => Err(message),
        Some(constant) => Ok(PlanNode::Constant(constant)),
        None => Ok(node),
    }
}

fn constant(node: &PlanNode, arena: &Arena) -> Option<Constant> {
    let context = EvalContext { arena, answers: &Nothing, keep_going: &|| true };
    let shared = EvalInput { context, activation: &Nothing };
    match evaluate(node, 0, false, u64::MAX, shared).0 {
        Ok(value) => Constant::from_value(&value),
        Err(NoValue::Error(message)) => Some(Constant::Error(message.to_owned())),
        Err(_) => None,
    }
}

/// Facts and variables of constants and of rules that have no cluster: there are none.
pub(crate) struct Nothing;

impl FactSource for Nothing {
    fn decision(&self, _: &Query<'_>) -> Option<Authorization> {
        None
    }
}

impl<'a> Activation<'a> for Nothing {
    fn root(&self, _: &str) -> Option<EvalResult<'a>> {
        None
    }

    fn variable(&self, _: &str) -> Option<EvalResult<'a>> {
        None
    }
}

/// A variable of a loop. Accumulators are evaluated when they are first used.
#[derive(Clone, Copy)]
pub(super) enum LoopVariable<'a> {
    Lazy,
    Init(&'a PlanNode),
    Ready(EvalResult<'a>),
}

pub(super) struct Evaluator<'a, 's> {
    pub(super) shared: EvalInput<'a, 's>,
    /// Whether an optional value of an attribute takes the way through its plain form, as in cel-go before 0.29.
    pub(super) rewraps: bool,
    pub(super) cost: u64,
    limit: u64,
    next_question: u64,
    pub(super) slots: Vec<LoopVariable<'a>>,
    /// Maps that loops build, by the slot of their accumulator.
    builders: BTreeMap<usize, BTreeMap<MapKey<'a>, Value<'a>>>,
    /// The first unknown fact that was read.
    unknown: Option<&'a Unknown<'a>>,
}

impl<'a> Evaluator<'a, '_> {
    pub(super) fn charge(&mut self, cost: u64) -> Result<(), NoValue<'a>> {
        self.cost = self.cost.saturating_add(cost);
        let is_wrong = self.shared.context.has_wrong_values();
        if is_wrong {
            comparisons()?;
        }
        if self.cost > self.limit {
            return Err(NoValue::Cancelled(Cancel::Cost));
        }
        if is_wrong {
            return Err(LIMIT);
        }
        if self.cost >= self.next_question {
            self.next_question = self.cost.saturating_add(INTERVAL);
            if !(self.shared.context.keep_going)() {
                return Err(NoValue::Cancelled(Cancel::Limit(Limit::Time)));
            }
        }
        Ok(())
    }

    pub(super) fn error(&self, message: &str) -> EvalResult<'a> {
        self.shared.context.error(message)
    }

    pub(super) fn eval(&mut self, node: &'a PlanNode) -> EvalResult<'a> {
        match node {
            PlanNode::Constant(Constant::Error(message)) => Err(NoValue::Error(message)),
            PlanNode::Constant(constant) => Ok(constant.value(self.shared.context.arena)),
            PlanNode::Attribute(attribute) => {
                let outcome = self.attribute(attribute);
                self.note_unknown(outcome)
            }
            PlanNode::And(terms) => self.logic(terms, false),
            PlanNode::Or(terms) => self.logic(terms, true),
            PlanNode::Equal { args, negated } => self.equal(args, *negated),
            PlanNode::Call(call) => self.call(call),
            PlanNode::OptionalOr { args, unwraps, strict } => self.optional_or(args, *unwraps, *strict),
            PlanNode::InSet { value, set } => {
                let value = self.eval(value)?;
                select::hash(&value)?;
                let arena = self.shared.context.arena;
                Ok(Value::Bool(set.iter().any(|element| equal(&element.value(arena), &value))))
            }
            PlanNode::List { elements, optional } => {
                let result = self.list(elements, optional);
                self.unless_cancelled(result, NEW_LIST)
            }
            PlanNode::Map { entries, optional } => {
                let result = self.map(entries, optional);
                self.unless_cancelled(result, NEW_MAP)
            }
            PlanNode::Fold(fold) => self.fold(fold),
            PlanNode::MapInsert { slot, accumulator, key, value } => {
                self.map_insert(*slot, accumulator, key.as_deref(), value)
            }
        }
    }

    fn note_unknown(&mut self, outcome: EvalResult<'a>) -> EvalResult<'a> {
        if let Err(NoValue::Unknown(found)) = outcome {
            self.unknown.get_or_insert(found);
        }
        outcome
    }

    fn unless_cancelled(&mut self, result: EvalResult<'a>, cost: u64) -> EvalResult<'a> {
        if !matches!(result, Err(NoValue::Cancelled(_))) {
            self.charge(cost)?;
        }
        result
    }

    /// `&&`, or `||` if `absorbing` is true: one term with that value decides, whatever the others are.
    fn logic(&mut self, terms: &'a [PlanNode], absorbing: bool) -> EvalResult<'a> {
        let mut error: Option<NoValue<'a>> = None;
        let mut unknown: Option<&'a Unknown<'a>> = None;
        for term in terms {
            match self.eval(term) {
                Ok(Value::Bool(value)) if value == absorbing => return Ok(Value::Bool(absorbing)),
                Ok(Value::Bool(_)) => {}
                Ok(_) => error = error.or(Some(no_such_overload())),
                Err(fault @ NoValue::Error(_)) => error = error.or(Some(fault)),
                Err(NoValue::Unknown(found)) => {
                    unknown = Some(unknown.map_or(found, |known| self.shared.context.merge(known, found)));
                }
                Err(cancelled @ NoValue::Cancelled(_)) => return Err(cancelled),
            }
        }
        match (unknown, error) {
            (Some(unknown), _) => Err(NoValue::Unknown(unknown)),
            (None, Some(error)) => Err(error),
            (None, None) => Ok(Value::Bool(!absorbing)),
        }
    }

    /// Evaluates both arguments, even if the first one fails.
    fn both(&mut self, args: &'a [PlanNode; 2]) -> Result<[EvalResult<'a>; 2], NoValue<'a>> {
        let [left, right] = args;
        let left = cancelled(self.eval(left))?;
        let right = cancelled(self.eval(right))?;
        Ok([left, right])
    }

    fn equal(&mut self, args: &'a [PlanNode; 2], negated: bool) -> EvalResult<'a> {
        let args = self.both(args)?;
        let result = match &args {
            [Err(fault), _] | [_, Err(fault)] => Err(*fault),
            [Ok(left), Ok(right)] => match (left, right) {
                (Value::Opaque(opaque), other)
                    if !matches!(other, Value::Null) && !opaque.comparable(other) =>
                {
                    // An error is not true, so `!=` of such values is true.
                    if negated { Ok(Value::Bool(true)) } else { Err(no_such_overload()) }
                }
                (Value::Typed(..), _) => self.equal_typed(left, right, negated),
                _ => Ok(Value::Bool(equal(left, right) != negated)),
            },
        };
        let cost = Cost::Compare;
        let cost = if negated { Cost::of_inequality(&args) } else { cost.of_call(&args, &result) };
        self.charge(cost)?;
        result
    }

    /// Compares a value of a document. An error is not true, so `!=` is true then.
    fn equal_typed(&self, left: &Value<'a>, right: &Value<'a>, negated: bool) -> EvalResult<'a> {
        match self.shared.context.equality(left, right) {
            Err(NoValue::Error(_)) if negated => Ok(Value::Bool(true)),
            result => result.map(|is_equal| Value::Bool(is_equal != negated)),
        }
    }

    fn call(&mut self, call: &'a CallNode) -> EvalResult<'a> {
        let mut args: [EvalResult<'a>; 4] = [Ok(Value::Null); 4];
        let count = call.args.len().min(args.len());
        for (index, (slot, node)) in args.iter_mut().zip(&call.args).enumerate() {
            *slot = cancelled(self.eval(node))?;
            if call.variadic && slot.is_err() {
                let fault = *slot;
                if index + 1 == count {
                    let cost = call.cost.of_call(args.get(..count).unwrap_or_default(), &fault);
                    self.charge(cost)?;
                }
                return fault;
            }
        }
        let args = args.get(..count).unwrap_or_default();
        let result = self.invoke(call, args);
        let result = self.note_unknown(result);
        if let Err(NoValue::Cancelled(cancel)) = result {
            // The cost of the arguments alone can be above the limit of the API server.
            if matches!(cancel, Cancel::Limit(_)) {
                self.charge(call.cost.of_call(args, &result))?;
            }
            return result;
        }
        internal_failure(call.cost, args)?;
        // A pattern can take much more time than its cost suggests.
        if call.cost == Cost::Regex {
            self.next_question = 0;
        }
        self.charge(call.cost.of_call(args, &result))?;
        result
    }

    fn invoke(&mut self, call: &'a CallNode, args: &[EvalResult<'a>]) -> EvalResult<'a> {
        if call.non_strict {
            return match args.first() {
                Some(Ok(value @ Value::Bool(_))) => Ok(*value),
                _ => Ok(Value::Bool(true)),
            };
        }
        let mut values = [Value::Null; 4];
        for (value, arg) in values.iter_mut().zip(args) {
            *value = (*arg)?;
        }
        let values = values.get(..args.len()).unwrap_or_default();
        let context = &self.shared.context;
        if let Some(regex) = &call.regex {
            return super::library::regex::with_compiled(context, call.function, regex, values);
        }
        match &call.dispatch {
            Dispatch::Singleton(Singleton { call: implementation, accepts }) => match values.first() {
                Some(first) if !accepts(first) => {
                    // Strings and times have methods of their own, of which this is none.
                    if matches!(first, Value::String(_) | Value::Timestamp(_) | Value::Duration(_)) {
                        return Err(no_such_overload());
                    }
                    self.error(&format!("no such overload: {}", call.function))
                }
                _ => implementation(context, values),
            },
            Dispatch::Overloads { candidates, guarded } => {
                let accepts = |types: &[super::types::CelType]| {
                    types.len() == values.len()
                        && (!guarded
                            || types.iter().zip(values).all(|(expected, value)| expected.accepts(value)))
                };
                if let Some(candidate) = candidates.iter().find(|candidate| accepts(&candidate.args)) {
                    return (candidate.call)(context, values);
                }
                let types: Vec<&str> = values.iter().map(Value::type_name).collect();
                self.error(&format!("no such overload: {}({})", call.function, types.join(", ")))
            }
        }
    }

    fn optional_or(&mut self, args: &'a [PlanNode; 2], unwraps: bool, strict: bool) -> EvalResult<'a> {
        let [left, right] = args;
        match self.eval(left)? {
            Value::Optional(None) => self.eval(right),
            Value::Optional(Some(value)) if unwraps => self.shared.context.unwrapped(*value),
            other if strict && !matches!(other, Value::Optional(_)) => Err(no_such_overload()),
            other => Ok(other),
        }
    }

    fn list(&mut self, elements: &'a [PlanNode], optional: &[bool]) -> EvalResult<'a> {
        let mut values = Vec::with_capacity(elements.len());
        for (index, element) in elements.iter().enumerate() {
            let value = self.eval(element)?;
            match (optional.get(index).copied().unwrap_or(false), value) {
                (false, value) => values.push(value),
                (true, Value::Optional(None)) => {}
                (true, Value::Optional(Some(value))) => values.push(*value),
                (true, other) => {
                    let text = format::plain(&other);
                    return self.error(&format!(
                        "cannot initialize optional list element from non-optional value {text}"
                    ));
                }
            }
        }
        Ok(self.shared.context.list(&values))
    }

    fn map(&mut self, entries: &'a [(PlanNode, PlanNode)], optional: &[bool]) -> EvalResult<'a> {
        let mut built: BTreeMap<MapKey<'a>, Value<'a>> = BTreeMap::new();
        for (index, (key, value)) in entries.iter().enumerate() {
            let key = MapKey(self.eval(key)?);
            let value = self.eval(value)?;
            select::hash(&key.0)?;
            match (optional.get(index).copied().unwrap_or(false), value) {
                (false, value) => {
                    built.insert(key, value);
                }
                (true, Value::Optional(None)) => {
                    built.remove(&key);
                }
                (true, Value::Optional(Some(value))) => {
                    built.insert(key, *value);
                }
                (true, other) => {
                    let (key, text) = (format::plain(&key.0), format::plain(&other));
                    return self.error(&format!(
                        "cannot initialize optional entry '{key}' from non-optional value {text}"
                    ));
                }
            }
        }
        let entries = built.into_iter().map(|(key, value)| (key.0, value)).collect();
        Ok(Value::map(self.shared.context.arena, entries))
    }

    fn fold(&mut self, fold: &'a Fold) -> EvalResult<'a> {
        let range = self.eval(&fold.range)?;
        if let Some(slot) = self.slots.get_mut(fold.slot) {
            *slot = LoopVariable::Init(&fold.init);
        }
        let outer = if fold.builds_map { self.builders.insert(fold.slot, BTreeMap::new()) } else { None };
        if let Some(entries) = range.entries() {
            for (key, value) in entries.iter() {
                if !self.iterate(fold, key, value)? {
                    break;
                }
            }
        } else if range.is_list() {
            for (index, element) in range.all_elements().enumerate() {
                let index = Value::Int(i64::try_from(index).unwrap_or(i64::MAX));
                let (first, second) = if fold.two { (index, element) } else { (element, Value::Null) };
                if !self.iterate(fold, first, second)? {
                    break;
                }
            }
        } else if fold.two {
            return self.error(&format!("unsupported comprehension range type: {}", range.type_name()));
        } else {
            return self.error(&format!("got '{}', expected iterable type", range.type_name()));
        }
        let result = self.eval(&fold.result);
        if !fold.builds_map {
            return result.map(|value| value.flatten(self.shared.context.arena));
        }
        let built = self.builders.remove(&fold.slot).unwrap_or_default();
        if let Some(outer) = outer {
            self.builders.insert(fold.slot, outer);
        }
        result.map(|_| {
            Value::map(
                self.shared.context.arena,
                built.into_iter().map(|(key, value)| (key.0, value)).collect(),
            )
        })
    }

    /// One round of a loop. Returns whether the loop goes on.
    fn iterate(&mut self, fold: &'a Fold, first: Value<'a>, second: Value<'a>) -> Result<bool, NoValue<'a>> {
        self.set(fold.slot + 1, Ok(first));
        self.set(fold.slot + 2, Ok(second));
        if let Ok(Value::Bool(false)) = cancelled(self.eval(&fold.condition))? {
            return Ok(false);
        }
        let step = cancelled(self.eval(&fold.step))?;
        self.set(fold.slot, step);
        Ok(true)
    }

    fn map_insert(
        &mut self,
        slot: usize,
        accumulator: &'a PlanNode,
        key: Option<&'a PlanNode>,
        value: &'a PlanNode,
    ) -> EvalResult<'a> {
        let entries: Vec<(Value<'a>, Value<'a>)> = if let Some(key) = key {
            self.eval(accumulator)?;
            let key = self.eval(key)?;
            let value = cancelled(self.eval(value))?;
            if value.is_err() {
                self.charge(1)?;
            }
            vec![(key, value?)]
        } else {
            let accumulator = cancelled(self.eval(accumulator))?;
            let value = cancelled(self.eval(value))?;
            if let Some(fault) = accumulator.err().or(value.err()) {
                self.charge(1)?;
                return Err(fault);
            }
            value?.entries().map(|entries| entries.iter().collect()).unwrap_or_default()
        };
        self.charge(1)?;
        for (key, value) in entries {
            select::hash(&key)?;
            let builder = self.builders.entry(slot).or_default();
            if builder.contains_key(&MapKey(key)) {
                let text = format::plain(&key);
                return self.error(&format!("insert failed: key {text} already exists"));
            }
            builder.insert(MapKey(key), value);
        }
        Ok(Value::Object(&[]))
    }
}

/// cel-go fails within itself where it counts the cost of some calls with arguments that are no list or number.
fn internal_failure<'a>(cost: Cost, args: &[EvalResult<'a>]) -> Result<(), NoValue<'a>> {
    let fails = match cost {
        Cost::CompareAll(index) => args.get(index).is_some_and(|arg| match arg {
            Ok(value) => !value.is_list(),
            Err(fault) => matches!(fault, NoValue::Error(_)),
        }),
        Cost::Flatten { .. } => args.get(1).is_some_and(|arg| match arg {
            Ok(value) => !matches!(value, Value::Int(_)),
            Err(fault) => matches!(fault, NoValue::Error(_)),
        }),
        _ => false,
    };
    if fails { Err(INTERNAL) } else { Ok(()) }
}

/// Passes faults on as values, except that evaluation ends.
pub(super) fn cancelled(outcome: EvalResult<'_>) -> Result<EvalResult<'_>, NoValue<'_>> {
    match outcome {
        Err(cancelled @ NoValue::Cancelled(_)) => Err(cancelled),
        outcome => Ok(outcome),
    }
}

/// A key of a map that is built, in the order of maps.
struct MapKey<'a>(Value<'a>);

impl Ord for MapKey<'_> {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        crate::value::key_order(&self.0, &other.0)
    }
}

impl PartialOrd for MapKey<'_> {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for MapKey<'_> {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other).is_eq()
    }
}

impl Eq for MapKey<'_> {}
