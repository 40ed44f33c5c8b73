//! Checks of constants after the type check: durations, times, patterns, format strings, and lists of one type.

use super::ast::{Expr, ExprKind, Literal};
use super::check::{CheckedExpression, Declared};
use super::error::Problems;
use super::library::format::{self, Clause};
use super::library::regex;
use super::outcome::Cancel;
use super::types::CelType;
use crate::value::number;

/// Checks the constants of a checked expression.
pub(crate) fn validate(expr: &Expr, checked: &CheckedExpression) -> Problems {
    let mut problems = Problems::default();
    let mut exempt = Vec::new();
    expr.walk(&mut |node| {
        if let ExprKind::Call { function, target, args } = &node.kind {
            if function == "format" {
                for part in target.iter().map(AsRef::as_ref).chain(args) {
                    part.walk(&mut |inner| exempt.push(inner.id));
                }
            }
            argument(function, args, &mut problems);
            if let (Some(target), "format") = (target, function.as_str()) {
                format_call(node, target, args, checked, &mut problems);
            }
        }
    });
    expr.walk(&mut |node| {
        if !exempt.contains(&node.id) {
            aggregate(node, checked, &mut problems);
        }
    });
    problems
}

/// A constant that is the first argument of a conversion or of `matches`.
fn argument(function: &str, args: &[Expr], problems: &mut Problems) {
    let Some(Expr { kind: ExprKind::Literal(literal), offset, .. }) = args.first() else { return };
    let function = function.strip_prefix('.').unwrap_or(function);
    let valid = match (function, literal) {
        ("duration", Literal::String(text)) => number::parse_duration(text).is_some(),
        ("timestamp", Literal::String(text)) => number::parse_timestamp(text)
            .is_some_and(|time| (number::YEAR_ONE..=number::YEAR_9999).contains(&time.seconds)),
        ("timestamp", Literal::Int(seconds)) => (number::YEAR_ONE..=number::YEAR_9999).contains(seconds),
        ("matches", Literal::String(pattern)) => {
            !matches!(regex::compile(pattern), Err(regex::PatternError::Invalid(_)))
        }
        ("duration" | "timestamp", _) => false,
        _ => true,
    };
    if !valid {
        problems.report(*offset, format!("invalid {function} argument"));
    }
}

fn parameterless(expr: &Expr, checked: &CheckedExpression) -> bool {
    checked.type_of(expr).parameters().is_empty()
}

/// An optional element whose type is not known. The API server fails within itself for one.
fn without_type<'e>(node: &'e Expr, checked: &CheckedExpression) -> Option<&'e Expr> {
    match &node.kind {
        ExprKind::List { elements, optional } => elements
            .iter()
            .zip(optional)
            .find(|(element, optional)| **optional && parameterless(element, checked))
            .map(|(element, _)| element),
        ExprKind::Map(entries) => entries
            .iter()
            .map(|entry| (&entry.value, entry.optional))
            .find(|(value, optional)| *optional && parameterless(value, checked))
            .map(|(value, _)| value),
        _ => None,
    }
}

/// Elements of a list and entries of a map have one type.
fn aggregate(node: &Expr, checked: &CheckedExpression, problems: &mut Problems) {
    let type_of = |expr: &Expr, optional: bool| {
        let of = checked.type_of(expr);
        let unwrapped = if optional { of.parameters().first().map(|inner| (*inner).clone()) } else { None };
        unwrapped.unwrap_or_else(|| of.clone())
    };
    if let Some(expr) = without_type(node, checked) {
        problems.report(expr.offset, Cancel::Internal.message().to_owned());
        return;
    }
    let mut mismatch = |expr: &Expr, expected: &CelType, found: &CelType| {
        problems.report(expr.offset, format!("expected type '{expected}' but found '{found}'"));
    };
    match &node.kind {
        ExprKind::List { elements, optional } => {
            let mut expected: Option<CelType> = None;
            for (index, element) in elements.iter().enumerate() {
                let found = type_of(element, optional.get(index).copied().unwrap_or(false));
                match &expected {
                    None => expected = Some(found),
                    Some(expected) if *expected != found => {
                        mismatch(element, expected, &found);
                        break;
                    }
                    Some(_) => {}
                }
            }
        }
        ExprKind::Map(entries) => {
            let mut expected: Option<(CelType, CelType)> = None;
            for entry in entries {
                let found = (type_of(&entry.key, false), type_of(&entry.value, entry.optional));
                match &expected {
                    None => expected = Some(found),
                    Some((key, value)) => {
                        if *key != found.0 {
                            mismatch(&entry.key, key, &found.0);
                        }
                        if *value != found.1 {
                            mismatch(&entry.value, value, &found.1);
                        }
                    }
                }
            }
        }
        _ => {}
    }
}

/// A constant format string with a list of arguments.
fn format_call(
    node: &Expr,
    target: &Expr,
    args: &[Expr],
    checked: &CheckedExpression,
    problems: &mut Problems,
) {
    let (ExprKind::Literal(Literal::String(text)), [Expr { kind: ExprKind::List { elements, .. }, .. }]) =
        (&target.kind, args)
    else {
        return;
    };
    if !matches!(checked.reference(node), Some(Declared::Function { .. })) {
        return;
    }
    let mut place = node.offset;
    let used = format::parse(text, true, elements.len(), &mut String::new(), |index, clause| {
        let Some(element) = elements.get(index) else { return Ok(String::new()) };
        match refused(clause, element, checked) {
            None => Ok(String::new()),
            Some(culprit) => {
                place = culprit.offset;
                Err(format::type_error(clause, checked.type_of(culprit).runtime_name()))
            }
        }
    });
    match used {
        Err(message) => problems.report(place, message),
        Ok(used) if elements.len() > used => {
            let given = elements.len();
            let message =
                format!("too many arguments supplied to string.format (expected {used}, got {given})");
            problems.report(node.offset, message);
        }
        Ok(_) => {}
    }
}

/// The node that a clause can't format.
fn refused<'e>(clause: Clause, element: &'e Expr, checked: &CheckedExpression) -> Option<&'e Expr> {
    let of = checked.type_of(element);
    let accepted = match clause {
        _ if of.is_dyn() => true,
        Clause::String => matches!(
            of,
            CelType::List(_)
                | CelType::Map(_)
                | CelType::Int
                | CelType::Uint
                | CelType::Double
                | CelType::Bool
                | CelType::String
                | CelType::Timestamp
                | CelType::Bytes
                | CelType::Duration
                | CelType::Type(_)
                | CelType::Null
        ),
        Clause::Decimal | Clause::Octal => matches!(of, CelType::Int | CelType::Uint),
        Clause::Fixed(_) | Clause::Scientific(_) => matches!(of, CelType::Double | CelType::String),
        Clause::Binary => matches!(of, CelType::Int | CelType::Uint | CelType::Bool),
        Clause::Hex(_) => matches!(of, CelType::Int | CelType::Uint | CelType::String | CelType::Bytes),
    };
    if !accepted {
        return Some(element);
    }
    match (&element.kind, clause) {
        (ExprKind::List { elements, .. }, Clause::String) => {
            elements.iter().find_map(|inner| refused(clause, inner, checked))
        }
        (ExprKind::Map(entries), Clause::String) => entries.iter().find_map(|entry| {
            refused(clause, &entry.key, checked).or_else(|| refused(clause, &entry.value, checked))
        }),
        _ => None,
    }
}
