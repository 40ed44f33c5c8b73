//! The planner: builds the program of a checked expression and folds its constants.

use std::sync::Arc;

use super::ast::{Comprehension, Expr, ExprKind, Literal};
use super::check::{CheckedExpression, Declared};
use super::constant::Constant;
use super::cost::Cost;
use super::environment::{Environment, is_undefined};
use super::eval;
use super::library::{Function, Overload, regex};
use super::macros::ACCUMULATOR;
use super::node::{Attribute, Base, CallNode, Candidate, Dispatch, Fold, PlanNode, Qualifier, QualifierKey};
use super::operators;

/// Plans an expression that was checked. Fails if a constant cannot be converted.
pub(crate) fn plan(
    expr: &Expr,
    checked: &CheckedExpression,
    environment: &Environment,
) -> Result<(PlanNode, usize), String> {
    let mut planner = Planner { checked, environment, scopes: Vec::new(), slots: 0 };
    let node = planner.plan(expr)?;
    Ok((node, planner.slots))
}

struct Planner<'e> {
    checked: &'e CheckedExpression,
    environment: &'e Environment,
    /// Names of loop variables with their slots; names that are hidden while a result is computed are absent.
    scopes: Vec<(String, usize)>,
    slots: usize,
}

impl Planner<'_> {
    fn plan(&mut self, expr: &Expr) -> Result<PlanNode, String> {
        match &expr.kind {
            ExprKind::Unspecified | ExprKind::Struct { .. } => Err("unsupported expr".to_owned()),
            ExprKind::Literal(literal) => Ok(PlanNode::Constant(Constant::Literal(literal.clone()))),
            ExprKind::Ident(_) => self.identifier(expr),
            ExprKind::Select { operand, field, test_only } => self.select(expr, operand, field, *test_only),
            ExprKind::Call { function, target, args } => self.call(expr, function, target.as_deref(), args),
            ExprKind::List { elements, optional } => {
                let elements = self.all(elements)?;
                let constant = elements.iter().all(|element| matches!(element, PlanNode::Constant(_)));
                let node = PlanNode::List { elements, optional: optional.clone() };
                Ok(if constant { eval::fold(node) } else { node })
            }
            ExprKind::Map(entries) => {
                let mut planned = Vec::with_capacity(entries.len());
                for entry in entries {
                    planned.push((self.plan(&entry.key)?, self.plan(&entry.value)?));
                }
                let constant = |node: &PlanNode| matches!(node, PlanNode::Constant(_));
                let is_constant = planned.iter().all(|(key, value)| constant(key) && constant(value));
                let optional = entries.iter().map(|entry| entry.optional).collect();
                let node = PlanNode::Map { entries: planned, optional };
                Ok(if is_constant { eval::fold(node) } else { node })
            }
            ExprKind::Comprehension(comprehension) => self.comprehension(comprehension),
        }
    }

    fn all(&mut self, exprs: &[Expr]) -> Result<Vec<PlanNode>, String> {
        exprs.iter().map(|expr| self.plan(expr)).collect()
    }

    fn identifier(&mut self, expr: &Expr) -> Result<PlanNode, String> {
        match self.checked.reference(expr) {
            Some(Declared::Type(name)) => {
                if self.environment.structs.contains_key(name) || is_undefined(name) {
                    return Err(format!("reference to undefined type: {name}"));
                }
                Ok(PlanNode::Constant(Constant::Type(name.clone())))
            }
            Some(Declared::Variable(name)) => {
                let local = self.scopes.iter().rev().find(|(variable, _)| variable == name);
                let root = || Base::Root(name.trim_start_matches('.').to_owned());
                let base = local.map_or_else(root, |(_, slot)| Base::Local(*slot));
                Ok(attribute(base))
            }
            _ => Err("unsupported expr".to_owned()),
        }
    }

    fn select(
        &mut self,
        expr: &Expr,
        operand: &Expr,
        field: &str,
        test_only: bool,
    ) -> Result<PlanNode, String> {
        if self.checked.reference(expr).is_some() {
            return self.identifier(expr);
        }
        let operand = self.plan(operand)?;
        let key = QualifierKey::Constant(Constant::Literal(Literal::String(field.to_owned())));
        let mut attribute = into_attribute(operand);
        attribute.qualifiers.push(Qualifier { key, optional: false });
        attribute.test_only |= test_only;
        Ok(PlanNode::Attribute(Box::new(attribute)))
    }

    fn call(
        &mut self,
        expr: &Expr,
        name: &str,
        target: Option<&Expr>,
        args: &[Expr],
    ) -> Result<PlanNode, String> {
        let (function_name, overloads, namespaced) = match self.checked.reference(expr) {
            Some(Declared::Function { name, overloads, namespaced }) => {
                (*name, overloads.clone(), *namespaced)
            }
            _ => return Err(format!("no such overload: {name}()")),
        };
        let mut planned = Vec::with_capacity(args.len() + 1);
        if let Some(target) = target.filter(|_| !namespaced) {
            planned.push(self.plan(target)?);
        }
        for arg in args {
            planned.push(self.plan(arg)?);
        }
        match function_name {
            operators::LOGICAL_AND => return Ok(PlanNode::And(planned)),
            operators::LOGICAL_OR => return Ok(PlanNode::Or(planned)),
            operators::EQUALS | operators::NOT_EQUALS => {
                let negated = function_name == operators::NOT_EQUALS;
                return pair(planned).map(|args| PlanNode::Equal { args, negated });
            }
            operators::CONDITIONAL => {
                let branches: Box<[PlanNode; 3]> = Box::new(
                    <[PlanNode; 3]>::try_from(planned)
                        .map_err(|_| "no such overload: _?_:_(...)".to_owned())?,
                );
                return Ok(attribute(Base::Conditional(branches)));
            }
            operators::INDEX => return index(*pair(planned)?, false),
            operators::OPT_INDEX | operators::OPT_SELECT => return index(*pair(planned)?, true),
            "or" | "orValue" if planned.len() == 2 => {
                let unwraps = function_name == "orValue";
                let strict = self.environment.release.or_is_strict();
                return pair(planned).map(|args| PlanNode::OptionalOr { args, unwraps, strict });
            }
            operators::MAP_INSERT => return self.map_insert(planned),
            _ => {}
        }
        self.ordinary_call(function_name, &overloads, planned)
    }

    fn map_insert(&mut self, planned: Vec<PlanNode>) -> Result<PlanNode, String> {
        let slot = self.scopes.iter().rev().find(|(name, _)| name == ACCUMULATOR).map(|(_, slot)| *slot);
        let (Some(slot), mut planned) = (slot, planned.into_iter()) else {
            return Err("unsupported expr".to_owned());
        };
        let (Some(accumulator), Some(first)) = (planned.next(), planned.next()) else {
            return Err("unsupported expr".to_owned());
        };
        let (key, value) = match planned.next() {
            Some(value) => (Some(Box::new(first)), value),
            None => (None, first),
        };
        Ok(PlanNode::MapInsert { slot, accumulator: Box::new(accumulator), key, value: Box::new(value) })
    }

    fn ordinary_call(
        &mut self,
        name: &'static str,
        overloads: &[&'static str],
        args: Vec<PlanNode>,
    ) -> Result<PlanNode, String> {
        let environment = self.environment;
        let Some(function) = environment.library.find(name) else {
            return Err(format!("no such overload: {name}()"));
        };
        let resolved = match overloads {
            [id] => Some(*id),
            _ => None,
        };
        if resolved == Some("in_list")
            && let [_, PlanNode::Constant(Constant::List(items))] = args.as_slice()
        {
            if items.is_empty() {
                return Ok(PlanNode::Constant(Constant::Literal(Literal::Bool(false))));
            }
            if items.iter().all(is_hashable) {
                let mut args = args.into_iter();
                if let (Some(value), Some(PlanNode::Constant(Constant::List(set)))) =
                    (args.next(), args.next())
                {
                    return Ok(PlanNode::InSet { value: Box::new(value), set });
                }
                return Err("unsupported expr".to_owned());
            }
        }
        let regex = Self::compile_pattern(name, resolved, &args)?;
        let (dispatch, variadic) = dispatch(function, resolved, args.len())?;
        let variadic = variadic || regex.is_some();
        let cost = Cost::new(name, resolved.unwrap_or(""), environment.release);
        let constant_argument = matches!(args.as_slice(), [PlanNode::Constant(_)]);
        let non_strict = name == operators::NOT_STRICTLY_FALSE;
        let node = PlanNode::Call(Box::new(CallNode {
            function: name,
            args,
            dispatch,
            cost,
            variadic,
            non_strict,
            regex,
        }));
        if constant_argument && is_conversion(name) { eval::fold_call(node) } else { Ok(node) }
    }

    /// Compiles the constant pattern of a regex function. An invalid one is an error of the program.
    fn compile_pattern(
        name: &str,
        overload: Option<&str>,
        args: &[PlanNode],
    ) -> Result<Option<Arc<::regex::Regex>>, String> {
        let is_regex = match name {
            "matches" => true,
            "find" | "findAll" => overload.is_some() || args.len() > 1,
            _ => false,
        };
        match args.get(1) {
            Some(PlanNode::Constant(Constant::Literal(Literal::String(pattern)))) if is_regex => {
                match regex::compile(pattern) {
                    Ok(regex) => Ok(Some(Arc::new(regex))),
                    // The call compiles the pattern again and has no result.
                    Err(regex::PatternError::TooLarge) => Ok(None),
                    Err(regex::PatternError::Invalid(message)) => Err(message),
                }
            }
            _ => Ok(None),
        }
    }

    fn comprehension(&mut self, comprehension: &Comprehension) -> Result<PlanNode, String> {
        let init = self.plan(&comprehension.init)?;
        let range = self.plan(&comprehension.range)?;
        // Three slots: accumulator and two variables. They are not reused, so that a program needs no depth.
        let slot = self.slots;
        self.slots += 3;
        let outer = self.scopes.len();
        self.scopes.push((comprehension.accumulator.clone(), slot));
        let inner = self.scopes.len();
        self.scopes.push((comprehension.variable.clone(), slot + 1));
        if let Some(second) = &comprehension.second_variable {
            self.scopes.push((second.clone(), slot + 2));
        }
        // The accumulator hides variables of the same name.
        let condition = self.plan(&comprehension.condition)?;
        let step = self.plan(&comprehension.step)?;
        self.scopes.truncate(inner);
        let result = self.plan(&comprehension.result)?;
        self.scopes.truncate(outer);
        let builds_map = matches!(&comprehension.init.kind, ExprKind::Map(entries) if entries.is_empty())
            && comprehension.accumulator == ACCUMULATOR;
        let two = comprehension.second_variable.is_some();
        Ok(PlanNode::Fold(Box::new(Fold { range, slot, two, init, condition, step, result, builds_map })))
    }
}

fn attribute(base: Base) -> PlanNode {
    PlanNode::Attribute(Box::new(Attribute { base, qualifiers: Vec::new(), test_only: false }))
}

/// The attribute of a step, to which selections can be added.
fn into_attribute(node: PlanNode) -> Attribute {
    match node {
        PlanNode::Attribute(attribute) if !attribute.test_only => *attribute,
        node => Attribute { base: Base::Node(node), qualifiers: Vec::new(), test_only: false },
    }
}

fn index(args: [PlanNode; 2], optional: bool) -> Result<PlanNode, String> {
    let [operand, index] = args;
    let mut attribute = into_attribute(operand);
    let key = match index {
        PlanNode::Constant(constant) => {
            let refused = match &constant {
                Constant::Literal(Literal::Null) => "types.Null",
                Constant::Literal(Literal::Bytes(_)) => "types.Bytes",
                Constant::List(_) => "*types.baseList",
                // An empty map is an object.
                Constant::Map(_) | Constant::Object(_) => "*types.baseMap",
                Constant::Timestamp(_) => "types.Timestamp",
                Constant::Duration(_) => "types.Duration",
                Constant::Type(_) => "*types.Type",
                _ => "",
            };
            if !refused.is_empty() {
                return Err(format!("invalid qualifier type: {refused}"));
            }
            QualifierKey::Constant(constant)
        }
        node => QualifierKey::Node(node),
    };
    attribute.qualifiers.push(Qualifier { key, optional });
    Ok(PlanNode::Attribute(Box::new(attribute)))
}

fn pair(planned: Vec<PlanNode>) -> Result<Box<[PlanNode; 2]>, String> {
    <[PlanNode; 2]>::try_from(planned).map(Box::new).map_err(|_| "no such overload".to_owned())
}

fn is_hashable(constant: &Constant) -> bool {
    matches!(constant, Constant::Literal(literal) if !matches!(literal, Literal::Null | Literal::Bytes(_)))
}

/// Functions that are evaluated while planning if their argument is constant.
fn is_conversion(name: &str) -> bool {
    matches!(
        name,
        "bool" | "bytes" | "double" | "duration" | "dyn" | "int" | "string" | "timestamp" | "type" | "uint"
    )
}

/// The implementations of a call, and whether cel-go evaluates its arguments one by one.
fn dispatch(function: &Function, resolved: Option<&str>, count: usize) -> Result<(Dispatch, bool), String> {
    if let Some(singleton) = function.singleton {
        return Ok((Dispatch::Singleton(singleton), count > 2));
    }
    let one = resolved.and_then(|id| function.overloads.iter().find(|overload| overload.id == id));
    let candidate =
        |overload: &Overload| Some(Candidate { args: overload.args.clone(), call: overload.call? });
    let (candidates, variadic): (Vec<Candidate>, bool) = if let Some(overload) = one {
        (candidate(overload).into_iter().collect(), overload.variadic || count > 2)
    } else {
        let several = function.overloads.len() > 1;
        (function.overloads.iter().filter_map(candidate).collect(), several || count > 2)
    };
    if candidates.is_empty() {
        return Err(format!("no such overload: {}(...)", function.name));
    }
    Ok((Dispatch::Overloads { candidates, guarded: function.guarded }, variadic))
}
