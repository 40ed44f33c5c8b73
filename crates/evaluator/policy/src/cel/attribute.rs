//! Evaluation of variables and selections, with their cost.

use super::ast::Literal;
use super::constant::Constant;
use super::environment::USER;
use super::eval::{Evaluator, LoopVariable, cancelled};
use super::node::{Attribute, Base, PlanNode, Qualifier, QualifierKey};
use super::outcome::{EvalResult, NoValue, Query, Unknown, no_such_overload};
use super::select;
use crate::value::{Value, native};

/// Whether an attribute reads the caller of the request, or the whole request.
fn reads_user(root: &str, attribute: &Attribute) -> bool {
    root == "request"
        && match attribute.qualifiers.first().map(|qualifier| &qualifier.key) {
            Some(QualifierKey::Constant(Constant::Literal(Literal::String(field)))) => field == "userInfo",
            _ => true,
        }
}

impl<'a> Evaluator<'a, '_> {
    /// An attribute as a step: the variable costs 1, unless only presence is asked or a condition chooses it.
    pub(super) fn attribute(&mut self, attribute: &'a Attribute) -> EvalResult<'a> {
        let result = self.resolve(attribute);
        if matches!(result, Err(NoValue::Cancelled(_))) {
            return result;
        }
        let conditional = matches!(attribute.base, Base::Conditional(_));
        match (conditional, attribute.test_only) {
            (false, false) => self.charge(1)?,
            (true, true) => self.cost = self.cost.saturating_sub(1),
            _ => {}
        }
        match result {
            Ok(Value::Optional(value)) if attribute.test_only => Ok(Value::Bool(value.is_some())),
            other => other,
        }
    }

    /// The value of an attribute without the cost of its variable.
    fn resolve(&mut self, attribute: &'a Attribute) -> EvalResult<'a> {
        self.resolve_with(attribute, &[], attribute.test_only)
    }

    /// The same with more qualifiers. Those of a conditional are added to the branch that it takes, as in cel-go.
    fn resolve_with(
        &mut self,
        attribute: &'a Attribute,
        more: &[&'a Qualifier],
        test_only: bool,
    ) -> EvalResult<'a> {
        let base = match &attribute.base {
            Base::Local(slot) => self.local(*slot)?,
            Base::Root(name) if reads_user(name, attribute) && self.shared.activation.user_is_unknown() => {
                return Err(NoValue::Unknown(self.unknown_user()));
            }
            Base::Root(name) => match self.shared.activation.root(name) {
                Some(outcome) => outcome?,
                None => return self.error(&format!("no such attribute(s): {name}")),
            },
            Base::Node(node) => self.eval(node)?,
            Base::Conditional(branches) => {
                let [condition, yes, no] = &**branches;
                let branch = match self.eval(condition)? {
                    Value::Bool(true) => yes,
                    Value::Bool(false) => no,
                    _ => return Err(no_such_overload()),
                };
                match branch {
                    PlanNode::Attribute(inner) if !inner.test_only => {
                        let all: Vec<_> = attribute.qualifiers.iter().chain(more.iter().copied()).collect();
                        return self.resolve_with(inner, &all, test_only);
                    }
                    node => self.branch(node)?,
                }
            }
        };
        self.qualify(base, attribute, more, test_only)
    }

    fn unknown_user(&self) -> &'a Unknown<'a> {
        self.shared.context.arena.store(Unknown { query: Query::Variable(USER), next: None })
    }

    fn branch(&mut self, node: &'a PlanNode) -> EvalResult<'a> {
        match node {
            PlanNode::Attribute(attribute) => {
                let result = self.resolve(attribute)?;
                Ok(match result {
                    Value::Optional(value) => Value::Bool(value.is_some()),
                    other => other,
                })
            }
            node => self.eval(node),
        }
    }

    fn local(&mut self, slot: usize) -> EvalResult<'a> {
        match self.slots.get(slot).copied() {
            Some(LoopVariable::Ready(outcome)) => outcome,
            Some(LoopVariable::Init(node)) => {
                let outcome = cancelled(self.eval(node))?;
                self.set(slot, outcome);
                outcome
            }
            _ => self.error("no such attribute(s)"),
        }
    }

    pub(super) fn set(&mut self, slot: usize, outcome: EvalResult<'a>) {
        if let Some(place) = self.slots.get_mut(slot) {
            *place = LoopVariable::Ready(outcome);
        }
    }

    fn qualify(
        &mut self,
        base: Value<'a>,
        attribute: &'a Attribute,
        more: &[&'a Qualifier],
        test_only: bool,
    ) -> EvalResult<'a> {
        let mut object = base;
        let mut optional = false;
        if let Value::Optional(inner) = base {
            let Some(inner) = inner else { return Ok(base) };
            object = if self.rewraps { native::rewrap(self.shared.context.arena, *inner) } else { *inner };
            optional = true;
        }
        let last = (attribute.qualifiers.len() + more.len()).wrapping_sub(1);
        for (index, qualifier) in attribute.qualifiers.iter().chain(more.iter().copied()).enumerate() {
            optional |= qualifier.optional;
            let test = test_only && index == last;
            let key = match &qualifier.key {
                QualifierKey::Constant(constant) => Ok(constant.value(self.shared.context.arena)),
                QualifierKey::Node(PlanNode::Attribute(attribute)) => cancelled(self.resolve(attribute))?,
                QualifierKey::Node(node) => cancelled(self.eval(node))?,
            };
            let found = match key {
                Ok(key) => self.select(object, key, optional || test),
                Err(fault) => Err(fault),
            };
            let present = matches!(found, Ok(Some(_)));
            if let Err(cancelled @ NoValue::Cancelled(_)) = found {
                return Err(cancelled);
            }
            if !optional || present {
                self.charge(1)?;
            }
            let found = found?;
            object = match (found, optional, test) {
                (None, true, _) => return Ok(Value::Optional(None)),
                (found, false, true) => Value::Bool(found.is_some()),
                (Some(value), ..) => value,
                (None, false, false) => return self.error("no such key"),
            };
        }
        if optional { Ok(self.shared.context.some(object)) } else { self.shared.context.unwrapped(object) }
    }

    /// Selects from a value. Absent keys are `None` if presence is asked, and errors otherwise.
    fn select(
        &mut self,
        object: Value<'a>,
        key: Value<'a>,
        presence: bool,
    ) -> Result<Option<Value<'a>>, NoValue<'a>> {
        let object = self.shared.context.unwrapped(object)?;
        if let (Value::Variables, Value::String(name)) = (object, key) {
            return match self.shared.activation.variable(name) {
                Some(outcome) => outcome.map(Some),
                None if presence => Ok(None),
                None => self.shared.context.error(&format!("no such key: {name}")),
            };
        }
        match select::select(&self.shared.context, object, key, presence)? {
            // A value of a document that does not fit its schema is an error even if only its presence is asked.
            Some(value @ Value::Typed(..)) => self.shared.context.unwrapped(value).map(Some),
            found => Ok(found),
        }
    }
}
