//! Types of expressions and their assignability, as cel-go's checker has them.

use std::fmt::{self, Display};
use std::sync::Arc;

use crate::value::Value;

/// The type of an expression or of an argument.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Type {
    Dyn,
    Error,
    Null,
    Bool,
    Int,
    Uint,
    Double,
    String,
    Bytes,
    Duration,
    Timestamp,
    /// A type as a value, with the type itself if it is known.
    #[allow(clippy::enum_variant_names)] // CEL's own word
    Type(Option<Arc<Type>>),
    List(Arc<Type>),
    Map(Arc<(Type, Type)>),
    /// A named type with parameters, such as an optional.
    Opaque(&'static str, Arc<[Type]>),
    /// A named type that can have fields.
    Struct(Arc<str>),
    /// A type parameter of a signature, or a variable of the checker.
    Parameter(usize),
}

const OPTIONAL: &str = "optional_type";

impl Type {
    pub(crate) fn list(element: Type) -> Type {
        Type::List(Arc::new(element))
    }

    pub(crate) fn map(key: Type, value: Type) -> Type {
        Type::Map(Arc::new((key, value)))
    }

    pub(crate) fn optional(value: Type) -> Type {
        Type::Opaque(OPTIONAL, Arc::new([value]))
    }

    pub(crate) fn structure(name: &str) -> Type {
        Type::Struct(Arc::from(name))
    }

    pub(crate) fn is_dyn(&self) -> bool {
        matches!(self, Type::Dyn)
    }

    pub(crate) fn is_dyn_or_error(&self) -> bool {
        matches!(self, Type::Dyn | Type::Error)
    }

    /// The type within an optional.
    pub(crate) fn unwrap_optional(&self) -> Option<&Type> {
        match self {
            Type::Opaque(OPTIONAL, parameters) => parameters.first(),
            _ => None,
        }
    }

    /// The types that this type consists of.
    pub(crate) fn parameters(&self) -> Vec<&Type> {
        match self {
            Type::Type(Some(inner)) => vec![inner],
            Type::List(element) => vec![element],
            Type::Map(entry) => vec![&entry.0, &entry.1],
            Type::Opaque(_, parameters) => parameters.iter().collect(),
            _ => Vec::new(),
        }
    }

    /// The type with its parameters replaced.
    pub(crate) fn map_parameters(&self, replace: &mut dyn FnMut(&Type) -> Type) -> Type {
        match self {
            Type::Type(Some(inner)) => Type::Type(Some(Arc::new(replace(inner)))),
            Type::List(element) => Type::list(replace(element)),
            Type::Map(entry) => Type::map(replace(&entry.0), replace(&entry.1)),
            Type::Opaque(name, parameters) => Type::Opaque(name, parameters.iter().map(replace).collect()),
            other => other.clone(),
        }
    }

    /// The type as cel-go's `String` prints it: with the names of run time.
    pub(crate) fn declared_name(&self) -> String {
        let parameters: Vec<String> = self.parameters().into_iter().map(Type::declared_name).collect();
        let name = self.runtime_name();
        if parameters.is_empty() { name.to_owned() } else { format!("{name}({})", parameters.join(", ")) }
    }

    /// The type of a variable of a policy with this type: types of libraries become dyn.
    pub(crate) fn of_variable(&self) -> Type {
        match self {
            Type::List(element) => Type::list(element.of_variable()),
            Type::Map(entry) => Type::map(entry.0.of_variable(), entry.1.of_variable()),
            Type::Bool
            | Type::Bytes
            | Type::Double
            | Type::Duration
            | Type::Int
            | Type::Null
            | Type::String
            | Type::Timestamp
            | Type::Uint => self.clone(),
            _ => Type::Dyn,
        }
    }

    /// Name at run time, which `type()` returns.
    pub(crate) fn runtime_name(&self) -> &str {
        match self {
            Type::Dyn => "dyn",
            Type::Error => "error",
            Type::Null => "null_type",
            Type::Bool => "bool",
            Type::Int => "int",
            Type::Uint => "uint",
            Type::Double => "double",
            Type::String => "string",
            Type::Bytes => "bytes",
            Type::Duration => "google.protobuf.Duration",
            Type::Timestamp => "google.protobuf.Timestamp",
            Type::Type(_) => "type",
            Type::List(_) => "list",
            Type::Map(_) => "map",
            Type::Opaque(name, _) => name,
            Type::Struct(name) => name,
            Type::Parameter(_) => "",
        }
    }

    /// Whether a value can be passed at run time. Only the first entry of lists and maps counts.
    pub(crate) fn accepts(&self, value: &Value<'_>) -> bool {
        match self {
            Type::Dyn | Type::Parameter(_) => true,
            Type::List(element) => {
                value.is_list() && value.element(0).is_none_or(|first| element.accepts(&first))
            }
            Type::Map(entry) => match value.entries() {
                Some(entries) => {
                    entries.at(0).is_none_or(|(key, value)| entry.0.accepts(&key) && entry.1.accepts(&value))
                }
                None => matches!(value, Value::Variables),
            },
            other => other.runtime_name() == value.type_name(),
        }
    }
}

impl Display for Type {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Type::Error => formatter.write_str("!error!"),
            Type::Null => formatter.write_str("null"),
            Type::Duration => formatter.write_str("duration"),
            Type::Timestamp => formatter.write_str("timestamp"),
            Type::Parameter(index) => write!(formatter, "_var{index}"),
            other => {
                formatter.write_str(other.runtime_name())?;
                let parameters = other.parameters();
                for (index, parameter) in parameters.iter().enumerate() {
                    write!(formatter, "{}{parameter}", if index == 0 { "(" } else { ", " })?;
                }
                formatter.write_str(if parameters.is_empty() { "" } else { ")" })
            }
        }
    }
}

/// The checker's knowledge of type variables.
#[derive(Clone, Debug, Default)]
pub(crate) struct Mapping {
    bound: Vec<Option<Type>>,
    /// Former bindings, so that a failed attempt can be undone.
    trail: Vec<(usize, Option<Type>)>,
}

impl Mapping {
    pub(crate) fn fresh(&mut self) -> Type {
        self.bound.push(None);
        Type::Parameter(self.bound.len() - 1)
    }

    fn find(&self, parameter: &Type) -> Option<&Type> {
        match parameter {
            Type::Parameter(index) => self.bound.get(*index)?.as_ref(),
            _ => None,
        }
    }

    fn bind(&mut self, parameter: &Type, to: Type) {
        if let Type::Parameter(index) = parameter
            && let Some(slot) = self.bound.get_mut(*index)
        {
            self.trail.push((*index, slot.take()));
            *slot = Some(to);
        }
    }

    /// Whether one type can be assigned to another; binds variables if so.
    pub(crate) fn assignable(&mut self, from: &Type, to: &Type) -> bool {
        self.attempt(|mapping| mapping.assign(from, to))
    }

    /// Whether types can be assigned one by one.
    pub(crate) fn assignable_list(&mut self, from: &[Type], to: &[Type]) -> bool {
        self.attempt(|mapping| {
            from.len() == to.len() && from.iter().zip(to).all(|(from, to)| mapping.assign(from, to))
        })
    }

    fn attempt(&mut self, run: impl FnOnce(&mut Self) -> bool) -> bool {
        self.trail.clear();
        let assigned = run(self);
        if !assigned {
            while let Some((index, former)) = self.trail.pop() {
                if let Some(slot) = self.bound.get_mut(index) {
                    *slot = former;
                }
            }
        }
        assigned
    }

    fn assign(&mut self, first: &Type, second: &Type) -> bool {
        if let Type::Parameter(_) = second {
            match self.substitutes(first, second) {
                (true, _) => return true,
                (false, true) => return false,
                (false, false) => {}
            }
        }
        if let Type::Parameter(_) = first {
            return self.substitutes(second, first).0;
        }
        if first.is_dyn_or_error() || second.is_dyn_or_error() {
            return true;
        }
        let nullable = |other: &Type| {
            matches!(
                other,
                Type::Null | Type::Opaque(..) | Type::Struct(_) | Type::Duration | Type::Timestamp
            )
        };
        match (first, second) {
            (Type::Null, other) | (other, Type::Null) => nullable(other),
            (Type::Type(_), Type::Type(_)) => true,
            (Type::List(first), Type::List(second)) => self.assign(first, second),
            (Type::Map(first), Type::Map(second)) => {
                self.assign(&first.0, &second.0) && self.assign(&first.1, &second.1)
            }
            (Type::Opaque(first, left), Type::Opaque(second, right)) => {
                first == second
                    && left.len() == right.len()
                    && left.iter().zip(right.iter()).all(|(left, right)| self.assign(left, right))
            }
            (first, second) => first == second,
        }
    }

    /// Whether `parameter` can stand for `other`, and whether it was bound already.
    fn substitutes(&mut self, other: &Type, parameter: &Type) -> (bool, bool) {
        if other == parameter {
            return (true, true);
        }
        if let Some(bound) = self.find(parameter).cloned() {
            if *other == bound {
                return (true, true);
            }
            if self.assign(other, &bound) {
                let general = most_general(other, &bound).clone();
                if self.not_within(parameter, &general) {
                    self.bind(parameter, general);
                }
                return (true, true);
            }
            return (false, true);
        }
        if self.not_within(parameter, other) {
            self.bind(parameter, other.clone());
            return (true, false);
        }
        (false, false)
    }

    fn not_within(&self, parameter: &Type, within: &Type) -> bool {
        if parameter == within {
            return false;
        }
        match within {
            Type::Parameter(_) => self.find(within).is_none_or(|bound| self.not_within(parameter, bound)),
            other => other.parameters().iter().all(|inner| self.not_within(parameter, inner)),
        }
    }

    /// Replaces bound variables; unbound ones become dyn if `to_dyn`.
    pub(crate) fn substitute(&self, of: &Type, to_dyn: bool) -> Type {
        if let Some(bound) = self.find(of) {
            return self.substitute(bound, to_dyn);
        }
        match of {
            Type::Parameter(_) if to_dyn => Type::Dyn,
            other => other.map_parameters(&mut |inner| self.substitute(inner, to_dyn)),
        }
    }
}

/// The more general of two types that unify.
pub(crate) fn most_general<'t>(first: &'t Type, second: &'t Type) -> &'t Type {
    if less_specific(first, second) { first } else { second }
}

fn less_specific(first: &Type, second: &Type) -> bool {
    match (first, second) {
        (Type::Dyn | Type::Parameter(_), _) | (Type::Type(_), Type::Type(_)) => true,
        (_, Type::Dyn | Type::Parameter(_)) => false,
        (Type::List(first), Type::List(second)) => less_specific(first, second),
        (Type::Map(first), Type::Map(second)) => {
            less_specific(&first.0, &second.0) && less_specific(&first.1, &second.1)
        }
        (Type::Opaque(first, left), Type::Opaque(second, right)) => {
            first == second
                && left.len() == right.len()
                && left.iter().zip(right.iter()).all(|(left, right)| less_specific(left, right))
        }
        (first, second) => first == second,
    }
}
