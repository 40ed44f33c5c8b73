//! The type checker: gives each node a type and each call its overloads.

use super::ast::{Comprehension, Expr, ExprKind, Literal};
use super::environment::{Environment, Identifier};
use super::error::Problems;
use super::library::Function;
use super::operators;
use super::types::{CelType, Mapping, most_general};

/// The declaration that a node refers to.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Declared {
    /// A variable of the environment or of a loop; with a leading dot only of the environment.
    Variable(String),
    /// A type as a value.
    Type(String),
    /// A function by its full name, with the overloads that its arguments allow. The target of a namespaced function is no
    /// argument.
    Function { name: &'static str, overloads: Vec<&'static str>, namespaced: bool },
}

/// Types and references by the ids of nodes.
#[derive(Debug, Default)]
pub(crate) struct CheckedExpression {
    types: Vec<Option<CelType>>,
    references: Vec<Option<Declared>>,
}

impl CheckedExpression {
    pub(crate) fn type_of(&self, expr: &Expr) -> &CelType {
        self.types.get(expr.id).and_then(Option::as_ref).unwrap_or(&CelType::Dyn)
    }

    pub(crate) fn reference(&self, expr: &Expr) -> Option<&Declared> {
        self.references.get(expr.id)?.as_ref()
    }
}

/// Checks an expression with `ids` node ids.
pub(crate) fn check(expr: &Expr, ids: usize, environment: &Environment) -> (CheckedExpression, Problems) {
    let mut checker = TypeChecker {
        environment,
        checked: CheckedExpression { types: vec![None; ids], references: vec![None; ids] },
        problems: Problems::default(),
        mapping: Mapping::default(),
        scopes: Vec::new(),
    };
    checker.check(expr);
    let TypeChecker { mut checked, problems, mapping, .. } = checker;
    for of in checked.types.iter_mut().flatten() {
        *of = mapping.substitute(of, true);
    }
    (checked, problems)
}

struct TypeChecker<'e> {
    environment: &'e Environment,
    checked: CheckedExpression,
    problems: Problems,
    mapping: Mapping,
    scopes: Vec<(String, CelType)>,
}

impl TypeChecker<'_> {
    fn set_type(&mut self, expr: &Expr, of: CelType) {
        if let Some(slot) = self.checked.types.get_mut(expr.id) {
            *slot = Some(of);
        }
    }

    fn type_of(&self, expr: &Expr) -> CelType {
        self.checked.type_of(expr).clone()
    }

    fn set_reference(&mut self, expr: &Expr, reference: Declared) {
        if let Some(slot) = self.checked.references.get_mut(expr.id) {
            *slot = Some(reference);
        }
    }

    fn mismatch(&mut self, expr: &Expr, expected: &CelType, found: &CelType) {
        self.problems.report(expr.offset, format!("expected type '{expected}' but found '{found}'"));
    }

    fn undeclared(&mut self, expr: &Expr, name: &str) {
        self.problems.report(expr.offset, format!("undeclared reference to '{name}' (in container '')"));
        self.set_type(expr, CelType::Error);
    }

    fn check(&mut self, expr: &Expr) {
        match &expr.kind {
            ExprKind::Unspecified => self.set_type(expr, CelType::Error),
            ExprKind::Literal(literal) => self.set_type(expr, literal_type(literal)),
            ExprKind::Ident(name) => {
                if !self.resolve(expr, name) {
                    self.undeclared(expr, name);
                }
            }
            ExprKind::Select { operand, field, test_only } => self.select(expr, operand, field, *test_only),
            ExprKind::Call { function, target, args } => self.call(expr, function, target.as_deref(), args),
            ExprKind::List { elements, optional } => self.list(expr, elements, optional),
            ExprKind::Map(_) => self.map(expr),
            ExprKind::Struct { name, fields } => {
                self.structure(expr, name, fields.iter().collect());
            }
            ExprKind::Comprehension(comprehension) => self.comprehension(expr, comprehension),
        }
    }

    /// Resolves a name to a variable or type.
    fn resolve(&mut self, expr: &Expr, name: &str) -> bool {
        let plain = name.strip_prefix('.').unwrap_or(name);
        let global = plain.len() < name.len() && self.environment.release.leading_dot_is_global();
        let local = self.scopes.iter().rev().find(|(variable, _)| variable == plain && !global);
        if let Some((_, of)) = local {
            let of = of.clone();
            self.set_type(expr, of);
            self.set_reference(expr, Declared::Variable(plain.to_owned()));
            return true;
        }
        match self.environment.identifier(name) {
            Some(Identifier::Variable(of)) => {
                self.set_type(expr, of);
                let name = if global { format!(".{plain}") } else { plain.to_owned() };
                self.set_reference(expr, Declared::Variable(name));
            }
            Some(Identifier::Type(of)) => {
                self.set_reference(expr, Declared::Type(of.runtime_name().to_owned()));
                self.set_type(expr, CelType::Type(Some(std::sync::Arc::new(of))));
            }
            None => return false,
        }
        true
    }

    /// Whether a dotted name starts with the variable of a loop that hides it.
    fn is_local(&self, name: &str) -> bool {
        let first = name.split('.').next().unwrap_or_default();
        self.environment.release.loop_variable_hides_dotted_names()
            && self.scopes.iter().any(|(variable, _)| variable == first)
    }

    fn select(&mut self, expr: &Expr, operand: &Expr, field: &str, test_only: bool) {
        if let Some(name) = expr.qualified_name()
            && !self.is_local(&name)
            && self.resolve(expr, &name)
        {
            return;
        }
        let selected = self.field(expr, operand, field, false);
        let result = if test_only { CelType::Bool } else { self.mapping.substitute(&selected, false) };
        self.set_type(expr, result);
    }

    fn field(&mut self, expr: &Expr, operand: &Expr, field: &str, optional: bool) -> CelType {
        self.check(operand);
        let operand_type = self.mapping.substitute(&self.type_of(operand), false);
        let inner = operand_type.unwrap_optional();
        let is_optional = optional || inner.is_some();
        let target = inner.unwrap_or(&operand_type);
        let result = match target {
            CelType::Map(entry) => entry.1.clone(),
            CelType::Struct(name) => match self.environment.field(name, field) {
                Some(Some(found)) => found.clone(),
                Some(None) => {
                    self.problems.report(expr.offset, format!("undefined field '{field}'"));
                    CelType::Error
                }
                None => {
                    self.problems.report(expr.offset, format!("unexpected failed resolution of '{name}'"));
                    CelType::Error
                }
            },
            CelType::Parameter(_) => {
                self.mapping.assignable(&CelType::Dyn, target);
                CelType::Dyn
            }
            other => {
                if !other.is_dyn_or_error() {
                    self.problems
                        .report(expr.offset, format!("type '{other}' does not support field selection"));
                }
                CelType::Dyn
            }
        };
        if is_optional { CelType::optional(result) } else { result }
    }

    fn call(&mut self, expr: &Expr, name: &str, target: Option<&Expr>, args: &[Expr]) {
        if name == operators::OPT_SELECT {
            if let [operand, Expr { kind: ExprKind::Literal(Literal::String(field)), .. }] = args {
                let selected = self.field(expr, operand, field, true);
                let result = self.mapping.substitute(&selected, false);
                self.set_type(expr, result);
                let overloads = vec!["select_optional_field"];
                self.set_reference(
                    expr,
                    Declared::Function { name: operators::OPT_SELECT, overloads, namespaced: false },
                );
            }
            return;
        }
        for arg in args {
            self.check(arg);
        }
        let environment = self.environment;
        let Some(target) = target else {
            match environment.library.find(name) {
                Some(function) => self.overloads(expr, function, None, args, false),
                None => self.undeclared(expr, name),
            }
            return;
        };
        if let Some(prefix) = target.qualified_name()
            && let Some(function) = environment.library.find(&format!("{prefix}.{name}"))
        {
            self.overloads(expr, function, None, args, true);
            return;
        }
        self.check(target);
        match environment.library.find(name) {
            Some(function) => self.overloads(expr, function, Some(target), args, false),
            None => self.undeclared(expr, name),
        }
    }

    fn overloads(
        &mut self,
        expr: &Expr,
        function: &Function,
        target: Option<&Expr>,
        args: &[Expr],
        namespaced: bool,
    ) {
        let arg_types: Vec<CelType> = target.into_iter().chain(args).map(|arg| self.type_of(arg)).collect();
        if matches!(function.name, operators::LOGICAL_AND | operators::LOGICAL_OR) {
            self.logic(expr, function, args, &arg_types);
            return;
        }
        let mut result: Option<CelType> = None;
        let mut found = Vec::new();
        for overload in function.overloads.iter().filter(|overload| overload.member == target.is_some()) {
            let variables: Vec<CelType> = (0..overload.parameters).map(|_| self.mapping.fresh()).collect();
            let candidate: Vec<CelType> =
                overload.args.iter().map(|arg| instantiate(arg, &variables)).collect();
            if !self.mapping.assignable_list(&arg_types, &candidate) {
                continue;
            }
            found.push(overload.id);
            let overload_result = self.mapping.substitute(&instantiate(&overload.result, &variables), false);
            result = Some(match result {
                None => overload_result,
                Some(result) if !result.is_dyn() && overload_result != result => CelType::Dyn,
                Some(result) => result,
            });
        }
        let Some(result) = result else {
            let types: Vec<String> =
                arg_types.iter().map(|arg| self.mapping.substitute(arg, true).to_string()).collect();
            let signature = match (target, types.split_first()) {
                (Some(_), Some((receiver, rest))) => format!("{receiver}.({})", rest.join(", ")),
                _ => format!("({})", types.join(", ")),
            };
            let message =
                format!("found no matching overload for '{}' applied to '{signature}'", function.name);
            self.problems.report(expr.offset, message);
            self.set_type(expr, CelType::Error);
            return;
        };
        self.set_type(expr, result);
        self.set_reference(expr, Declared::Function { name: function.name, overloads: found, namespaced });
    }

    /// `&&` and `||` with all their terms.
    fn logic(&mut self, expr: &Expr, function: &Function, args: &[Expr], types: &[CelType]) {
        let mut valid = true;
        for (arg, of) in args.iter().zip(types) {
            if !self.mapping.assignable(of, &CelType::Bool) {
                self.mismatch(arg, &CelType::Bool, of);
                valid = false;
            }
        }
        self.set_type(expr, if valid { CelType::Bool } else { CelType::Error });
        if valid {
            let overloads = function.overloads.iter().map(|overload| overload.id).collect();
            self.set_reference(
                expr,
                Declared::Function { name: function.name, overloads, namespaced: false },
            );
        }
    }

    /// The type of an optional element or entry without its optional.
    fn unwrapped(&mut self, expr: &Expr) -> CelType {
        let of = self.type_of(expr);
        if let Some(inner) = of.unwrap_optional() {
            return inner.clone();
        }
        if !of.is_dyn() {
            self.mismatch(expr, &CelType::optional(of.clone()), &of);
        }
        of
    }

    fn list(&mut self, expr: &Expr, elements: &[Expr], optional: &[bool]) {
        let mut joined: Option<CelType> = None;
        for (index, element) in elements.iter().enumerate() {
            self.check(element);
            let is_optional = optional.get(index).copied().unwrap_or(false);
            let of = if is_optional { self.unwrapped(element) } else { self.type_of(element) };
            joined = Some(self.join(joined, of));
        }
        let element = joined.unwrap_or_else(|| self.mapping.fresh());
        self.set_type(expr, CelType::list(element));
    }

    /// The common type of elements. Elements of different types make it dyn; a later check refuses most of them.
    fn join(&mut self, previous: Option<CelType>, current: CelType) -> CelType {
        match previous {
            None => current,
            Some(previous) if self.mapping.assignable(&previous, &current) => {
                most_general(&previous, &current).clone()
            }
            Some(_) => CelType::Dyn,
        }
    }

    fn map(&mut self, expr: &Expr) {
        let ExprKind::Map(entries) = &expr.kind else { return };
        let (mut key, mut value) = (None, None);
        for entry in entries {
            self.check(&entry.key);
            let of = self.type_of(&entry.key);
            key = Some(self.join(key, of));
            self.check(&entry.value);
            let of = if entry.optional { self.unwrapped(&entry.value) } else { self.type_of(&entry.value) };
            value = Some(self.join(value, of));
        }
        let key = key.unwrap_or_else(|| self.mapping.fresh());
        let value = value.unwrap_or_else(|| self.mapping.fresh());
        self.set_type(expr, CelType::map(key, value));
    }

    /// No type of these environments can be built, so this always ends with an error.
    fn structure(&mut self, expr: &Expr, name: &str, values: Vec<&Expr>) {
        match self.environment.identifier(name) {
            None => {
                self.undeclared(expr, name);
                return;
            }
            Some(Identifier::Variable(_)) if self.environment.release.message_name_skips_variables() => {
                self.undeclared(expr, name);
                return;
            }
            Some(Identifier::Variable(of)) => {
                self.problems.report(expr.offset, format!("'{}' is not a type", of.runtime_name()));
            }
            Some(Identifier::Type(of)) => {
                self.problems.report(expr.offset, format!("'{}' is not a message type", of.runtime_name()));
            }
        }
        self.set_type(expr, CelType::Error);
        for value in values {
            self.check(value);
        }
    }

    fn comprehension(&mut self, expr: &Expr, comprehension: &Comprehension) {
        self.check(&comprehension.range);
        self.check(&comprehension.init);
        let range = self.mapping.substitute(&self.type_of(&comprehension.range), false);
        let accumulator = self.type_of(&comprehension.init);
        let outer = self.scopes.len();
        self.scopes.push((comprehension.accumulator.clone(), accumulator.clone()));
        let two = comprehension.second_variable.is_some();
        let (first, second) = match &range {
            CelType::List(element) if two => (CelType::Int, (**element).clone()),
            CelType::List(element) => ((**element).clone(), CelType::Dyn),
            CelType::Map(entry) => (entry.0.clone(), entry.1.clone()),
            CelType::Dyn | CelType::Error | CelType::Parameter(_) => {
                self.mapping.assignable(&CelType::Dyn, &range);
                (CelType::Dyn, CelType::Dyn)
            }
            other => {
                let message = format!(
                    "expression of type '{other}' cannot be range of a comprehension (must be list, map, or dynamic)"
                );
                self.problems.report(comprehension.range.offset, message);
                (CelType::Error, CelType::Error)
            }
        };
        let inner = self.scopes.len();
        self.scopes.push((comprehension.variable.clone(), first));
        if let Some(name) = &comprehension.second_variable {
            self.scopes.push((name.clone(), second));
        }
        self.check(&comprehension.condition);
        self.assert(&comprehension.condition, &CelType::Bool);
        self.check(&comprehension.step);
        self.assert(&comprehension.step, &accumulator);
        self.scopes.truncate(inner);
        self.check(&comprehension.result);
        self.scopes.truncate(outer);
        let result = self.mapping.substitute(&self.type_of(&comprehension.result), false);
        self.set_type(expr, result);
    }

    fn assert(&mut self, expr: &Expr, expected: &CelType) {
        let found = self.type_of(expr);
        if !self.mapping.assignable(expected, &found) {
            self.mismatch(expr, expected, &found);
        }
    }
}

fn instantiate(of: &CelType, variables: &[CelType]) -> CelType {
    match of {
        CelType::Parameter(index) => variables.get(*index).cloned().unwrap_or(CelType::Dyn),
        other => other.map_parameters(&mut |inner| instantiate(inner, variables)),
    }
}

fn literal_type(literal: &Literal) -> CelType {
    match literal {
        Literal::Null => CelType::Null,
        Literal::Bool(_) => CelType::Bool,
        Literal::Int(_) => CelType::Int,
        Literal::Uint(_) => CelType::Uint,
        Literal::Double(_) => CelType::Double,
        Literal::String(_) => CelType::String,
        Literal::Bytes(_) => CelType::Bytes,
    }
}
