//! The estimated cost of an expression, which limits the rules of a CRD.
//!
//! The estimate is the highest cost for values of the sizes that a schema allows. It follows `checker/cost.go` of cel-go, and
//! [`estimate_call`] has the functions of `pkg/cel/library/cost.go` of `k8s.io/apiserver`. The lowest cost, which cel-go estimates as
//! well, limits nothing and is left out. A size has both bounds, since the size of a replaced text depends on both.

mod calls;

use std::collections::HashMap;

use self::calls::estimate_call;
use super::ast::{Comprehension, Expr, ExprKind, Literal};
use super::check::{CheckedExpression, Declared};
use super::operators;
use super::types::CelType;
use crate::release::Release;

/// Cost of a text's character, and of a pattern's.
const TRAVERSAL: f64 = 0.1;
const PATTERN: f64 = 0.25;
const NEW_LIST: u64 = 10;
const NEW_MAP: u64 = 30;

/// The sizes of the values of a type.
#[derive(Debug)]
pub(crate) struct Sizes {
    /// Most characters, bytes, elements or entries. Other values have 0.
    pub(crate) max: u64,
    /// Bytes of the smallest value as JSON.
    pub(crate) min_bytes: u64,
    pub(crate) within: InnerSizes,
}

/// The sizes of the values within a value.
#[derive(Debug)]
pub(crate) enum InnerSizes {
    Nothing,
    Elements(Box<Sizes>),
    /// The values of a map. Its keys have no known size.
    Values(Box<Sizes>),
    /// By escaped name.
    Fields(HashMap<String, Sizes>),
}

impl Sizes {
    /// The sizes at a path below a variable.
    fn at(&self, path: &[SizeStep]) -> Option<u64> {
        let mut sizes = self;
        for step in path {
            sizes = match (step, &sizes.within) {
                (SizeStep::Element, InnerSizes::Elements(of) | InnerSizes::Values(of)) => of,
                (SizeStep::Key, InnerSizes::Values(_)) => return Some(0),
                (SizeStep::Field(name), InnerSizes::Fields(fields)) => fields.get(name)?,
                _ => return None,
            };
        }
        Some(sizes.max)
    }
}

/// A step of a path.
#[derive(Clone, Debug, PartialEq)]
enum SizeStep {
    Field(String),
    Element,
    Key,
    Index,
}

/// The path of a value. The first step stands for the variable and is not looked up, as in the API server: elements of a list
/// that is not a field have therefore the size of the variable.
type SizePath = Vec<SizeStep>;

/// The bounds of a size.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Size {
    min: u64,
    max: u64,
}

impl Size {
    const UNKNOWN: Self = Self { min: 0, max: u64::MAX };

    fn exactly(size: u64) -> Self {
        Self { min: size, max: size }
    }

    fn union(self, other: Self) -> Self {
        Self { min: self.min.min(other.min), max: self.max.max(other.max) }
    }

    fn add(self, other: Self) -> Self {
        Self { min: self.min.saturating_add(other.min), max: self.max.saturating_add(other.max) }
    }

    fn multiply(self, other: Self) -> Self {
        Self { min: self.min.saturating_mul(other.min), max: self.max.saturating_mul(other.max) }
    }

    /// The cost of a value with the highest size.
    fn times(self, factor: f64) -> u64 {
        times(self.max, factor)
    }
}

/// A product, rounded up.
#[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)] // a cast saturates
fn times(number: u64, factor: f64) -> u64 {
    (number as f64 * factor).ceil() as u64
}

/// The sizes of the keys and values of a list or map.
#[derive(Clone, Copy, Debug)]
struct EntrySizes {
    is_list: bool,
    key: Size,
    value: Size,
}

fn union(left: Option<EntrySizes>, right: Option<EntrySizes>) -> Option<EntrySizes> {
    let (left, right) = (left?, right?);
    let (key, value) = (left.key.union(right.key), left.value.union(right.value));
    Some(EntrySizes { is_list: left.is_list, key, value })
}

/// A variable of a loop.
#[derive(Clone, Debug)]
struct Local {
    name: String,
    path: SizePath,
    size: Option<Size>,
    entries: Option<EntrySizes>,
}

/// An argument of a call.
struct Argument<'e> {
    expr: Option<&'e Expr>,
    of: CelType,
    path: SizePath,
    size: Option<Size>,
}

/// The cost of a call without its arguments, and the size of its result.
struct Estimate {
    cost: u64,
    size: Option<Size>,
}

/// Estimates the highest cost of a checked expression. `sizes` are those of `self` and `oldSelf`.
pub(crate) fn estimate(expr: &Expr, checked: &CheckedExpression, sizes: &Sizes, release: Release) -> u64 {
    let mut estimator = Estimator {
        checked,
        sizes,
        release,
        paths: HashMap::new(),
        computed: HashMap::new(),
        entries: HashMap::new(),
        locals: Vec::new(),
    };
    estimator.cost(expr)
}

struct Estimator<'e> {
    checked: &'e CheckedExpression,
    sizes: &'e Sizes,
    release: Release,
    /// By the ids of nodes.
    paths: HashMap<usize, SizePath>,
    computed: HashMap<usize, Size>,
    entries: HashMap<usize, EntrySizes>,
    locals: Vec<Local>,
}

impl<'e> Estimator<'e> {
    fn cost(&mut self, expr: &'e Expr) -> u64 {
        match &expr.kind {
            ExprKind::Unspecified | ExprKind::Literal(_) | ExprKind::Struct { .. } => 0,
            ExprKind::Ident(name) => {
                let path = self.local(name).map(|local| local.path.clone());
                self.paths.insert(expr.id, path.unwrap_or_else(|| vec![SizeStep::Field(name.clone())]));
                1
            }
            ExprKind::Select { operand, field, test_only } => {
                let cost = self.cost(operand);
                if *test_only {
                    return cost;
                }
                let is_counted =
                    matches!(self.checked.type_of(operand), CelType::Map(_) | CelType::Struct(_));
                self.extend_path(expr, operand, SizeStep::Field(field.clone()));
                cost.saturating_add(u64::from(is_counted))
            }
            ExprKind::Call { function, target, args } => self.call(expr, function, target.as_deref(), args),
            ExprKind::List { elements, .. } => {
                let mut value = Size { min: if elements.is_empty() { 0 } else { u64::MAX }, max: 0 };
                let mut cost = NEW_LIST;
                for element in elements {
                    cost = cost.saturating_add(self.cost(element));
                    value = value.union(self.size_or_unknown(element));
                }
                self.entries.insert(expr.id, EntrySizes { is_list: true, key: Size::exactly(1), value });
                cost
            }
            ExprKind::Map(entries) => {
                let none = Size { min: if entries.is_empty() { 0 } else { u64::MAX }, max: 0 };
                let (mut key, mut value, mut cost) = (none, none, NEW_MAP);
                for entry in entries {
                    cost = cost.saturating_add(self.cost(&entry.key)).saturating_add(self.cost(&entry.value));
                    key = key.union(self.size_or_unknown(&entry.key));
                    value = value.union(self.size_or_unknown(&entry.value));
                }
                self.entries.insert(expr.id, EntrySizes { is_list: false, key, value });
                cost
            }
            ExprKind::Comprehension(comprehension) if is_binding(comprehension) => {
                self.binding(expr, comprehension)
            }
            ExprKind::Comprehension(comprehension) => self.comprehension(expr, comprehension),
        }
    }

    fn call(&mut self, expr: &'e Expr, name: &'e str, target: Option<&'e Expr>, args: &'e [Expr]) -> u64 {
        if let ("dyn", [arg]) = (name, args) {
            let cost = self.cost(arg);
            self.copy_sizes(expr, arg);
            return cost.saturating_add(1);
        }
        let mut cost = 0u64;
        let mut costs = Vec::with_capacity(args.len());
        let mut arguments = Vec::with_capacity(args.len());
        for arg in args {
            costs.push(self.cost(arg));
            arguments.push(self.argument(arg));
        }
        let checked = self.checked;
        let Some(Declared::Function { name, overloads, namespaced }) = checked.reference(expr) else {
            return 0;
        };
        let target = target.filter(|_| !namespaced).map(|target| {
            cost = self.cost(target);
            self.argument(target)
        });
        let arguments_cost = match (*name, costs.as_slice()) {
            (operators::CONDITIONAL, [condition, yes, no]) => condition.saturating_add(*yes.max(no)),
            _ => costs.iter().fold(0, |sum: u64, cost| sum.saturating_add(*cost)),
        };
        let (mut highest, mut size) = (0, None);
        for overload in overloads {
            let estimate = self.overload(expr, name, overload, target.as_ref(), &arguments);
            highest = highest.max(estimate.cost.saturating_add(arguments_cost));
            size = match (size, estimate.size) {
                (Some(left), Some(right)) => Some(Size::union(left, right)),
                (left, right) => left.or(right),
            };
            if let ("index_list" | "index_map", [list, ..]) = (*overload, args) {
                size = self.entries_of(list).map(|entries| entries.value);
                self.extend_path(expr, list, SizeStep::Element);
            }
            size = size.or_else(|| self.size(expr));
        }
        if let Some(size) = size {
            self.computed.insert(expr.id, size);
        }
        cost.saturating_add(highest)
    }

    /// The cost of an overload without its arguments.
    fn overload(
        &mut self,
        expr: &Expr,
        name: &str,
        overload: &str,
        target: Option<&Argument<'e>>,
        args: &[Argument<'e>],
    ) -> Estimate {
        if let Some(estimate) = estimate_call(self, name, overload, target, args) {
            return estimate;
        }
        let size = |argument: &Argument<'_>| argument.size.unwrap_or(Size::UNKNOWN);
        let plain = |cost| Estimate { cost, size: None };
        match (overload, target, args) {
            ("string_format", Some(text), _) | ("starts_with_string" | "ends_with_string", _, [text]) => {
                plain(size(text).times(TRAVERSAL))
            }
            ("string_to_bytes", _, [text]) => {
                let text = size(text);
                let bytes = Size { min: text.min, max: text.max.wrapping_mul(4) };
                Estimate { cost: text.times(TRAVERSAL), size: Some(bytes) }
            }
            ("bytes_to_string", _, [bytes]) => {
                let bytes = size(bytes);
                let text = Size { min: bytes.min / 4, max: bytes.max };
                Estimate { cost: bytes.times(TRAVERSAL), size: Some(text) }
            }
            ("strings_quote", _, [text]) => {
                let text = size(text);
                let max = text.max.wrapping_mul(2).wrapping_add(2);
                let quoted = Size { min: text.min.wrapping_add(2), max };
                Estimate { cost: text.times(TRAVERSAL), size: Some(quoted) }
            }
            ("in_list", _, [_, list]) => plain(size(list).times(1.0)),
            ("matches_string", Some(text), [pattern]) => plain(matches(size(text), size(pattern))),
            ("matches", None, [text, pattern]) if self.release.global_matches_costs_by_pattern() => {
                plain(matches(size(text), size(pattern)))
            }
            ("contains_string", Some(text), [part]) => {
                plain(size(text).times(TRAVERSAL).saturating_mul(size(part).times(TRAVERSAL)))
            }
            ("logical_or" | "logical_and", ..) => plain(0),
            ("conditional", _, [_, yes, no]) => {
                let entries = |argument: &Argument<'_>| self.entries_of(argument.expr?);
                if let Some(entries) = union(entries(yes), entries(no)) {
                    self.entries.insert(expr.id, entries);
                }
                Estimate { cost: 0, size: Some(size(yes).union(size(no))) }
            }
            ("add_string" | "add_bytes" | "add_list", _, [left, right]) => {
                let entries = |argument: &Argument<'_>| self.entries_of(argument.expr?);
                if let Some(entries) = union(entries(left), entries(right)) {
                    self.entries.insert(expr.id, entries);
                }
                let sum = size(left).add(size(right));
                Estimate {
                    cost: if overload == "add_list" { 1 } else { sum.times(TRAVERSAL) },
                    size: Some(sum),
                }
            }
            (
                "less_string"
                | "greater_string"
                | "less_equals_string"
                | "greater_equals_string"
                | "less_bytes"
                | "greater_bytes"
                | "less_equals_bytes"
                | "greater_equals_bytes"
                | "equals"
                | "not_equals",
                _,
                [left, right],
            ) => plain(times(size(left).max.min(size(right).max), TRAVERSAL)),
            _ => plain(1),
        }
    }

    fn comprehension(&mut self, expr: &'e Expr, comprehension: &'e Comprehension) -> u64 {
        let Comprehension { range, init, .. } = comprehension;
        let before = self.cost(range).saturating_add(self.cost(init));
        let outer = self.locals.len();
        self.bind(&comprehension.accumulator, init);
        let inner = self.locals.len();
        let entries = self.entries_of(range);
        let is_list = match (entries, self.checked.type_of(range)) {
            (Some(entries), _) => entries.is_list,
            (None, of) => matches!(of, CelType::List(_)),
        };
        let keys =
            (if is_list { SizeStep::Index } else { SizeStep::Key }, entries.map(|entries| entries.key));
        let values = (SizeStep::Element, entries.map(|entries| entries.value));
        if let Some(second) = &comprehension.second_variable {
            self.iterate(&comprehension.variable, range, keys);
            self.iterate(second, range, values);
        } else {
            self.iterate(&comprehension.variable, range, if is_list { values } else { keys });
        }
        let round = self.cost(&comprehension.condition).saturating_add(self.cost(&comprehension.step));
        self.locals.truncate(inner);
        let result = self.cost(&comprehension.result);
        self.locals.truncate(outer);
        let count = self.size_or_unknown(range);
        match &init.kind {
            ExprKind::Literal(_) => {
                if let Some(size) = self.size(init) {
                    self.computed.insert(expr.id, size);
                }
            }
            ExprKind::List { .. } | ExprKind::Map(_) => {
                self.computed.insert(expr.id, count);
                if let Some(entries) = self.entries_of(&comprehension.step) {
                    self.entries.insert(expr.id, entries);
                }
            }
            _ => {}
        }
        before.saturating_add(result).saturating_add(count.max.saturating_mul(round))
    }

    /// A variable that is bound to a value.
    fn binding(&mut self, expr: &'e Expr, comprehension: &'e Comprehension) -> u64 {
        let before = self.cost(&comprehension.range).saturating_add(self.cost(&comprehension.init));
        let outer = self.locals.len();
        self.bind(&comprehension.accumulator, &comprehension.init);
        let result = self.cost(&comprehension.result);
        self.locals.truncate(outer);
        self.copy_sizes(expr, &comprehension.result);
        before.saturating_add(result)
    }

    fn bind(&mut self, name: &str, to: &Expr) {
        let (path, entries, size) = (self.path(to), self.entries_of(to), self.size(to));
        self.locals.push(Local { name: name.to_owned(), path, size, entries });
    }

    fn iterate(&mut self, name: &str, range: &Expr, (step, size): (SizeStep, Option<Size>)) {
        let mut path = self.path(range);
        path.push(step);
        self.locals.push(Local { name: name.to_owned(), path, size, entries: None });
    }

    fn local(&self, name: &str) -> Option<&Local> {
        self.locals.iter().rev().find(|local| local.name == name)
    }

    fn local_of(&self, expr: &Expr) -> Option<&Local> {
        match &expr.kind {
            ExprKind::Ident(name) => self.local(name),
            _ => None,
        }
    }

    fn path(&self, expr: &Expr) -> SizePath {
        match self.local_of(expr) {
            Some(local) => local.path.clone(),
            None => self.paths.get(&expr.id).cloned().unwrap_or_default(),
        }
    }

    fn extend_path(&mut self, expr: &Expr, operand: &Expr, step: SizeStep) {
        let mut path = self.path(operand);
        path.push(step);
        self.paths.insert(expr.id, path);
    }

    fn argument(&mut self, expr: &'e Expr) -> Argument<'e> {
        let mut path = self.path(expr);
        if matches!(path.first(), Some(SizeStep::Field(name)) if matches!(name.as_str(), "@result" | "__result__"))
        {
            path.clear();
        }
        Argument { expr: Some(expr), of: self.checked.type_of(expr).clone(), path, size: self.size(expr) }
    }

    /// The size that the schema gives a path.
    fn declared(&self, path: &[SizeStep]) -> Option<Size> {
        let (_, below) = path.split_first()?;
        self.sizes.at(below).map(|max| Size { min: 0, max })
    }

    fn size(&mut self, expr: &Expr) -> Option<Size> {
        if let Some(size) = self.computed.get(&expr.id) {
            return Some(*size);
        }
        let written = match &expr.kind {
            ExprKind::Literal(Literal::String(text)) => Some(text.chars().count()),
            ExprKind::Literal(Literal::Bytes(bytes)) => Some(bytes.len()),
            ExprKind::Literal(_) => Some(1),
            ExprKind::List { elements, .. } => Some(elements.len()),
            ExprKind::Map(entries) => Some(entries.len()),
            _ => None,
        };
        if let Some(size) = written {
            return Some(Size::exactly(size as u64));
        }
        if let Some(size) = self.declared(&self.path(expr)) {
            self.computed.insert(expr.id, size);
            return Some(size);
        }
        if is_scalar(self.checked.type_of(expr)) {
            return Some(Size::exactly(1));
        }
        self.local_of(expr)?.size
    }

    fn size_or_unknown(&mut self, expr: &Expr) -> Size {
        self.size(expr).unwrap_or(Size::UNKNOWN)
    }

    fn entries_of(&self, expr: &Expr) -> Option<EntrySizes> {
        match self.entries.get(&expr.id) {
            Some(entries) => Some(*entries),
            None => self.local_of(expr)?.entries,
        }
    }

    fn copy_sizes(&mut self, to: &Expr, from: &Expr) {
        if let Some(size) = self.size(from) {
            self.computed.insert(to.id, size);
        }
        if let Some(entries) = self.entries_of(from) {
            self.entries.insert(to.id, entries);
        }
    }
}

/// The cost of a text that is compared with a pattern.
fn matches(text: Size, pattern: Size) -> u64 {
    text.add(Size::exactly(1)).times(TRAVERSAL).saturating_mul(pattern.times(PATTERN))
}

/// Whether a loop has no rounds and only binds a variable.
fn is_binding(comprehension: &Comprehension) -> bool {
    matches!(&comprehension.range.kind, ExprKind::List { elements, .. } if elements.is_empty())
        && matches!(comprehension.condition.kind, ExprKind::Literal(Literal::Bool(false)))
}

fn is_scalar(of: &CelType) -> bool {
    match of {
        CelType::Bool
        | CelType::Double
        | CelType::Duration
        | CelType::Int
        | CelType::Timestamp
        | CelType::Uint => true,
        other => other.unwrap_optional().is_some_and(is_scalar),
    }
}
