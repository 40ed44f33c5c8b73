//! Macros: calls that the parser replaces by loops and tests.
//!
//! Nodes that an expansion creates have the position of the call's parenthesis.

use super::ast::{Comprehension, Expr, ExprKind, Literal, MapEntry};
use super::operators;
use crate::release::Release;

/// Expressions after which `optMap` copies no more. cel-go has no limit here and takes minutes instead.
const MAX_IDS: usize = 1_000_000;

/// Name of the accumulator in expansions; no expression can spell it.
pub(super) const ACCUMULATOR: &str = "@result";
/// Variable of loops that run zero times and only bind their accumulator.
const UNUSED: &str = "#unused";
/// Binding of the list that `sortBy` sorts.
const SORT_INPUT: &str = "@__sortBy_input__";
/// Error of a variable that has the accumulator's name.
const OVERWRITES: &str = "iteration variable overwrites accumulator variable";

/// The macros of an environment, and the counter of node ids.
pub(crate) struct Macros {
    pub(crate) next_id: usize,
    release: Release,
}

/// The result of an expansion.
pub(crate) enum Expanded {
    Expr(Expr),
    Error { offset: usize, message: String },
}

type Expansion = Result<ExprKind, (usize, String)>;

/// The names of one or two variables and the remaining arguments of a macro.
type Names = (String, Option<String>, Vec<Expr>);

impl Macros {
    pub(crate) fn new(release: Release) -> Self {
        Self { next_id: 1, release }
    }

    pub(crate) fn id(&mut self) -> usize {
        let id = self.next_id;
        self.next_id += 1;
        id
    }

    pub(crate) fn unspecified(&mut self, offset: usize) -> Expr {
        Expr { id: self.id(), offset, kind: ExprKind::Unspecified }
    }

    /// Builds a call, or what its macro expands to.
    pub(crate) fn expand(
        &mut self,
        name: &str,
        target: Option<Expr>,
        args: Vec<Expr>,
        offset: usize,
    ) -> Expanded {
        let mut build = Build { macros: self, offset };
        let two = build.macros.release.has_two_variables();
        let expansion = match (name, target, args.len()) {
            ("has", None, 1) => build.has(args),
            ("all" | "exists" | "exists_one", Some(target), 2) => build.quantifier(name, target, args, false),
            ("all" | "exists" | "exists_one" | "existsOne", Some(target), 3) if two => {
                build.quantifier(name, target, args, true)
            }
            ("map", Some(target), 2 | 3) => build.map(target, args),
            ("filter", Some(target), 2) => build.filter(target, args),
            ("optMap" | "optFlatMap", Some(target), 2) => build.optional(name, target, args),
            ("transformList" | "transformMap" | "transformMapEntry", Some(target), 3 | 4) if two => {
                build.transform(name, target, args)
            }
            ("sortBy", Some(target), 2) if build.macros.release.has_list_extension() => {
                build.sort_by(target, args)
            }
            (_, target, _) => {
                Ok(ExprKind::Call { function: name.to_owned(), target: target.map(Box::new), args })
            }
        };
        match expansion {
            Ok(kind) => Expanded::Expr(Expr { id: self.id(), offset, kind }),
            Err((offset, message)) => Expanded::Error { offset, message },
        }
    }
}

struct Build<'m> {
    macros: &'m mut Macros,
    offset: usize,
}

impl Build<'_> {
    fn node(&mut self, kind: ExprKind) -> Expr {
        Expr { id: self.macros.id(), offset: self.offset, kind }
    }

    fn literal(&mut self, literal: Literal) -> Expr {
        self.node(ExprKind::Literal(literal))
    }

    fn ident(&mut self, name: &str) -> Expr {
        self.node(ExprKind::Ident(name.to_owned()))
    }

    fn accumulator(&mut self) -> Expr {
        self.ident(ACCUMULATOR)
    }

    fn call(&mut self, function: &str, args: Vec<Expr>) -> Expr {
        self.node(ExprKind::Call { function: function.to_owned(), target: None, args })
    }

    fn member_call(&mut self, function: &str, target: Expr, args: Vec<Expr>) -> Expr {
        self.node(ExprKind::Call { function: function.to_owned(), target: Some(Box::new(target)), args })
    }

    fn list(&mut self, elements: Vec<Expr>) -> Expr {
        let optional = vec![false; elements.len()];
        self.node(ExprKind::List { elements, optional })
    }

    fn has(&mut self, args: Vec<Expr>) -> Expansion {
        let [arg] = <[Expr; 1]>::try_from(args).map_err(|_| (self.offset, String::new()))?;
        match arg.kind {
            ExprKind::Select { operand, field, test_only: false } => {
                Ok(ExprKind::Select { operand, field, test_only: true })
            }
            ExprKind::Unspecified => Ok(ExprKind::Unspecified),
            _ => Err((arg.offset, "invalid argument to has() macro".to_owned())),
        }
    }

    /// The names of one or two variables and the remaining arguments.
    fn variables(args: Vec<Expr>, two: bool, error: &str) -> Result<Names, (usize, String)> {
        let mut args = args.into_iter();
        let mut name = || -> Result<(String, usize), (usize, String)> {
            match args.next() {
                Some(Expr { kind: ExprKind::Ident(name), offset, .. }) => Ok((name, offset)),
                Some(other) => Err((other.offset, error.to_owned())),
                None => Err((0, error.to_owned())),
            }
        };
        let (first, first_offset) = name()?;
        let second = if two { Some(name()?) } else { None };
        if let Some((second, offset)) = &second
            && *second == first
        {
            return Err((*offset, format!("duplicate variable name: {first}")));
        }
        for (name, offset) in
            [Some((&first, first_offset)), second.as_ref().map(|(name, offset)| (name, *offset))]
                .into_iter()
                .flatten()
        {
            if name == ACCUMULATOR || name == "__result__" {
                return Err((offset, OVERWRITES.to_owned()));
            }
        }
        Ok((first, second.map(|(name, _)| name), args.collect()))
    }

    fn loop_over(
        &mut self,
        range: Expr,
        variables: (String, Option<String>),
        init: Expr,
        step: Expr,
        condition: Expr,
    ) -> Comprehension {
        let result = self.accumulator();
        Comprehension {
            range,
            variable: variables.0,
            second_variable: variables.1,
            accumulator: ACCUMULATOR.to_owned(),
            init,
            condition,
            step,
            result,
        }
    }

    fn quantifier(&mut self, name: &str, target: Expr, args: Vec<Expr>, two: bool) -> Expansion {
        let (first, second, rest) = Self::variables(args, two, "argument must be a simple name")?;
        let Some(predicate) = rest.into_iter().next() else { return Err((self.offset, String::new())) };
        let (init, condition, step) = match name {
            "all" => {
                let accumulator = self.accumulator();
                let condition = self.call(operators::NOT_STRICTLY_FALSE, vec![accumulator]);
                let accumulator = self.accumulator();
                (
                    Literal::Bool(true),
                    condition,
                    self.call(operators::LOGICAL_AND, vec![accumulator, predicate]),
                )
            }
            "exists" => {
                let accumulator = self.accumulator();
                let not = self.call(operators::LOGICAL_NOT, vec![accumulator]);
                let condition = self.call(operators::NOT_STRICTLY_FALSE, vec![not]);
                let accumulator = self.accumulator();
                (
                    Literal::Bool(false),
                    condition,
                    self.call(operators::LOGICAL_OR, vec![accumulator, predicate]),
                )
            }
            _ => {
                let condition = self.literal(Literal::Bool(true));
                let (accumulator, one) = (self.accumulator(), self.literal(Literal::Int(1)));
                let sum = self.call(operators::ADD, vec![accumulator, one]);
                let accumulator = self.accumulator();
                (
                    Literal::Int(0),
                    condition,
                    self.call(operators::CONDITIONAL, vec![predicate, sum, accumulator]),
                )
            }
        };
        let init = self.literal(init);
        let mut comprehension = self.loop_over(target, (first, second), init, step, condition);
        if !matches!(name, "all" | "exists") {
            let (accumulator, one) = (self.accumulator(), self.literal(Literal::Int(1)));
            comprehension.result = self.call(operators::EQUALS, vec![accumulator, one]);
        }
        Ok(ExprKind::Comprehension(Box::new(comprehension)))
    }

    /// `accumulator + [element]`, only if a filter is true.
    fn append(&mut self, element: Expr, filter: Option<Expr>) -> Expr {
        let accumulator = self.accumulator();
        let list = self.list(vec![element]);
        let step = self.call(operators::ADD, vec![accumulator, list]);
        self.filtered(step, filter)
    }

    fn filtered(&mut self, step: Expr, filter: Option<Expr>) -> Expr {
        match filter {
            Some(filter) => {
                let accumulator = self.accumulator();
                self.call(operators::CONDITIONAL, vec![filter, step, accumulator])
            }
            None => step,
        }
    }

    fn collect(
        &mut self,
        target: Expr,
        variables: (String, Option<String>),
        init: Expr,
        step: Expr,
    ) -> ExprKind {
        let condition = self.literal(Literal::Bool(true));
        ExprKind::Comprehension(Box::new(self.loop_over(target, variables, init, step, condition)))
    }

    fn map(&mut self, target: Expr, args: Vec<Expr>) -> Expansion {
        let (name, _, mut rest) = Self::variables(args, false, "argument is not an identifier")?;
        let Some(element) = rest.pop() else { return Err((self.offset, String::new())) };
        let step = self.append(element, rest.pop());
        let init = self.list(Vec::new());
        Ok(self.collect(target, (name, None), init, step))
    }

    fn filter(&mut self, target: Expr, args: Vec<Expr>) -> Expansion {
        let element = args.first().cloned();
        let (name, _, mut rest) = Self::variables(args, false, "argument is not an identifier")?;
        let Some(element) = element else { return Err((self.offset, String::new())) };
        let step = self.append(element, rest.pop());
        let init = self.list(Vec::new());
        Ok(self.collect(target, (name, None), init, step))
    }

    fn transform(&mut self, name: &str, target: Expr, args: Vec<Expr>) -> Expansion {
        let (first, second, mut rest) = Self::variables(args, true, "argument must be a simple name")?;
        let Some(transform) = rest.pop() else { return Err((self.offset, String::new())) };
        let filter = rest.pop();
        let (init, step) = if name == "transformList" {
            (self.list(Vec::new()), self.append(transform, filter))
        } else {
            let mut args = vec![self.accumulator()];
            if name == "transformMap" {
                args.push(self.ident(&first));
            }
            args.push(transform);
            let step = self.call(operators::MAP_INSERT, args);
            let init: Vec<MapEntry> = Vec::new();
            (self.node(ExprKind::Map(init)), self.filtered(step, filter))
        };
        Ok(self.collect(target, (first, second), init, step))
    }

    /// A loop over nothing: its accumulator is a variable of its result.
    fn bind(&mut self, name: &str, value: Expr, result: Expr) -> ExprKind {
        let range = self.list(Vec::new());
        let condition = self.literal(Literal::Bool(false));
        let step = self.ident(name);
        ExprKind::Comprehension(Box::new(Comprehension {
            range,
            variable: UNUSED.to_owned(),
            second_variable: None,
            accumulator: name.to_owned(),
            init: value,
            condition,
            step,
            result,
        }))
    }

    fn optional(&mut self, name: &str, target: Expr, args: Vec<Expr>) -> Expansion {
        let mut args = args.into_iter();
        let (Some(variable), Some(body)) = (args.next(), args.next()) else {
            return Err((self.offset, String::new()));
        };
        let ExprKind::Ident(variable_name) = &variable.kind else {
            return Err((variable.offset, format!("{name}() variable name must be a simple identifier")));
        };
        if self.macros.next_id > MAX_IDS {
            return Err((
                target.offset,
                "expression is too large: each optMap() copies what it is called on".to_owned(),
            ));
        }
        let copy = self.copy(&target);
        let value = self.member_call("value", copy, Vec::new());
        let bound = self.bind(variable_name, value, body);
        let bound = self.node(bound);
        let yes = if name == "optMap" { self.call("optional.of", vec![bound]) } else { bound };
        let test = self.member_call("hasValue", target, Vec::new());
        let no = self.call("optional.none", Vec::new());
        Ok(ExprKind::Call {
            function: operators::CONDITIONAL.to_owned(),
            target: None,
            args: vec![test, yes, no],
        })
    }

    fn sort_by(&mut self, target: Expr, args: Vec<Expr>) -> Expansion {
        if matches!(target.kind, ExprKind::Literal(_) | ExprKind::Map(_) | ExprKind::Struct { .. }) {
            let message =
                "sortBy can only be applied to a list, identifier, comprehension, call or select expression";
            return Err((target.offset, message.to_owned()));
        }
        let input = self.ident(SORT_INPUT);
        let keys = self.map(input, args)?;
        let keys = self.node(keys);
        let input = self.ident(SORT_INPUT);
        let sorted = self.member_call(operators::SORT_BY_KEYS, input, vec![keys]);
        Ok(self.bind(SORT_INPUT, target, sorted))
    }

    /// Copies an expression with new ids.
    fn copy(&mut self, expr: &Expr) -> Expr {
        let mut copy = expr.clone();
        self.renumber(&mut copy);
        copy
    }

    fn renumber(&mut self, expr: &mut Expr) {
        expr.id = self.macros.id();
        match &mut expr.kind {
            ExprKind::Unspecified | ExprKind::Literal(_) | ExprKind::Ident(_) => {}
            ExprKind::Select { operand, .. } => self.renumber(operand),
            ExprKind::Call { target, args, .. } => {
                if let Some(target) = target {
                    self.renumber(target);
                }
                for arg in args {
                    self.renumber(arg);
                }
            }
            ExprKind::List { elements, .. } => elements.iter_mut().for_each(|element| self.renumber(element)),
            ExprKind::Map(entries) => {
                for entry in entries {
                    self.renumber(&mut entry.key);
                    self.renumber(&mut entry.value);
                }
            }
            ExprKind::Struct { fields, .. } => {
                for value in fields {
                    self.renumber(value);
                }
            }
            ExprKind::Comprehension(comprehension) => {
                let Comprehension { range, init, condition, step, result, .. } = comprehension.as_mut();
                for child in [range, init, condition, step, result] {
                    self.renumber(child);
                }
            }
        }
    }
}
