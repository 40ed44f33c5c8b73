//! Types of expressions and their assignability, as cel-go's checker has them.

use std::fmt::{self, Display};
use std::sync::Arc;

use crate::value::Value;

/// The type of an expression or of an argument.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum CelType {
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
    Type(Option<Arc<CelType>>),
    List(Arc<CelType>),
    Map(Arc<(CelType, CelType)>),
    /// A named type with parameters, such as an optional.
    Opaque(&'static str, Arc<[CelType]>),
    /// A named type that can have fields.
    Struct(Arc<str>),
    /// A type parameter of a signature, or a variable of the checker.
    Parameter(usize),
}

const OPTIONAL: &str = "optional_type";

impl CelType {
    pub(crate) fn list(element: CelType) -> CelType {
        CelType::List(Arc::new(element))
    }

    pub(crate) fn map(key: CelType, value: CelType) -> CelType {
        CelType::Map(Arc::new((key, value)))
    }

    pub(crate) fn optional(value: CelType) -> CelType {
        CelType::Opaque(OPTIONAL, Arc::new([value]))
    }

    pub(crate) fn structure(name: &str) -> CelType {
        CelType::Struct(Arc::from(name))
    }

    pub(crate) fn is_dyn(&self) -> bool {
        matches!(self, CelType::Dyn)
    }

    pub(crate) fn is_dyn_or_error(&self) -> bool {
        matches!(self, CelType::Dyn | CelType::Error)
    }

    /// The type within an optional.
    pub(crate) fn unwrap_optional(&self) -> Option<&CelType> {
        match self {
            CelType::Opaque(OPTIONAL, parameters) => parameters.first(),
            _ => None,
        }
    }

    /// The types that this type consists of.
    pub(crate) fn parameters(&self) -> Vec<&CelType> {
        match self {
            CelType::Type(Some(inner)) => vec![inner],
            CelType::List(element) => vec![element],
            CelType::Map(entry) => vec![&entry.0, &entry.1],
            CelType::Opaque(_, parameters) => parameters.iter().collect(),
            _ => Vec::new(),
        }
    }

    /// The type with its parameters replaced.
    pub(crate) fn map_parameters(&self, replace: &mut dyn FnMut(&CelType) -> CelType) -> CelType {
        match self {
            CelType::Type(Some(inner)) => CelType::Type(Some(Arc::new(replace(inner)))),
            CelType::List(element) => CelType::list(replace(element)),
            CelType::Map(entry) => CelType::map(replace(&entry.0), replace(&entry.1)),
            CelType::Opaque(name, parameters) => {
                CelType::Opaque(name, parameters.iter().map(replace).collect())
            }
            other => other.clone(),
        }
    }

    /// The type as cel-go's `String` prints it: with the names of run time.
    pub(crate) fn declared_name(&self) -> String {
        let parameters: Vec<String> = self.parameters().into_iter().map(CelType::declared_name).collect();
        let name = self.runtime_name();
        if parameters.is_empty() { name.to_owned() } else { format!("{name}({})", parameters.join(", ")) }
    }

    /// The type of a variable of a policy with this type: types of libraries become dyn.
    pub(crate) fn of_variable(&self) -> CelType {
        match self {
            CelType::List(element) => CelType::list(element.of_variable()),
            CelType::Map(entry) => CelType::map(entry.0.of_variable(), entry.1.of_variable()),
            CelType::Bool
            | CelType::Bytes
            | CelType::Double
            | CelType::Duration
            | CelType::Int
            | CelType::Null
            | CelType::String
            | CelType::Timestamp
            | CelType::Uint => self.clone(),
            _ => CelType::Dyn,
        }
    }

    /// Name at run time, which `type()` returns.
    pub(crate) fn runtime_name(&self) -> &str {
        match self {
            CelType::Dyn => "dyn",
            CelType::Error => "error",
            CelType::Null => "null_type",
            CelType::Bool => "bool",
            CelType::Int => "int",
            CelType::Uint => "uint",
            CelType::Double => "double",
            CelType::String => "string",
            CelType::Bytes => "bytes",
            CelType::Duration => "google.protobuf.Duration",
            CelType::Timestamp => "google.protobuf.Timestamp",
            CelType::Type(_) => "type",
            CelType::List(_) => "list",
            CelType::Map(_) => "map",
            CelType::Opaque(name, _) => name,
            CelType::Struct(name) => name,
            CelType::Parameter(_) => "",
        }
    }

    /// Whether a value can be passed at run time. Only the first entry of lists and maps counts.
    pub(crate) fn accepts(&self, value: &Value<'_>) -> bool {
        match self {
            CelType::Dyn | CelType::Parameter(_) => true,
            CelType::List(element) => {
                value.is_list() && value.element(0).is_none_or(|first| element.accepts(&first))
            }
            CelType::Map(entry) => match value.entries() {
                Some(entries) => {
                    entries.at(0).is_none_or(|(key, value)| entry.0.accepts(&key) && entry.1.accepts(&value))
                }
                None => matches!(value, Value::Variables),
            },
            other => other.runtime_name() == value.type_name(),
        }
    }
}

impl Display for CelType {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            CelType::Error => formatter.write_str("!error!"),
            CelType::Null => formatter.write_str("null"),
            CelType::Duration => formatter.write_str("duration"),
            CelType::Timestamp => formatter.write_str("timestamp"),
            CelType::Parameter(index) => write!(formatter, "_var{index}"),
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
    bound: Vec<Option<CelType>>,
    /// Former bindings, so that a failed attempt can be undone.
    trail: Vec<(usize, Option<CelType>)>,
}

impl Mapping {
    pub(crate) fn fresh(&mut self) -> CelType {
        self.bound.push(None);
        CelType::Parameter(self.bound.len() - 1)
    }

    fn find(&self, parameter: &CelType) -> Option<&CelType> {
        match parameter {
            CelType::Parameter(index) => self.bound.get(*index)?.as_ref(),
            _ => None,
        }
    }

    fn bind(&mut self, parameter: &CelType, to: CelType) {
        if let CelType::Parameter(index) = parameter
            && let Some(slot) = self.bound.get_mut(*index)
        {
            self.trail.push((*index, slot.take()));
            *slot = Some(to);
        }
    }

    /// Whether one type can be assigned to another; binds variables if so.
    pub(crate) fn assignable(&mut self, from: &CelType, to: &CelType) -> bool {
        self.attempt(|mapping| mapping.assign(from, to))
    }

    /// Whether types can be assigned one by one.
    pub(crate) fn assignable_list(&mut self, from: &[CelType], to: &[CelType]) -> bool {
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

    fn assign(&mut self, first: &CelType, second: &CelType) -> bool {
        if let CelType::Parameter(_) = second {
            match self.substitutes(first, second) {
                (true, _) => return true,
                (false, true) => return false,
                (false, false) => {}
            }
        }
        if let CelType::Parameter(_) = first {
            return self.substitutes(second, first).0;
        }
        if first.is_dyn_or_error() || second.is_dyn_or_error() {
            return true;
        }
        let nullable = |other: &CelType| {
            matches!(
                other,
                CelType::Null
                    | CelType::Opaque(..)
                    | CelType::Struct(_)
                    | CelType::Duration
                    | CelType::Timestamp
            )
        };
        match (first, second) {
            (CelType::Null, other) | (other, CelType::Null) => nullable(other),
            (CelType::Type(_), CelType::Type(_)) => true,
            (CelType::List(first), CelType::List(second)) => self.assign(first, second),
            (CelType::Map(first), CelType::Map(second)) => {
                self.assign(&first.0, &second.0) && self.assign(&first.1, &second.1)
            }
            (CelType::Opaque(first, left), CelType::Opaque(second, right)) => {
                first == second
                    && left.len() == right.len()
                    && left.iter().zip(right.iter()).all(|(left, right)| self.assign(left, right))
            }
            (first, second) => first == second,
        }
    }

    /// Whether `parameter` can stand for `other`, and whether it was bound already.
    fn substitutes(&mut self, other: &CelType, parameter: &CelType) -> (bool, bool) {
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

    fn not_within(&self, parameter: &CelType, within: &CelType) -> bool {
        if parameter == within {
            return false;
        }
        match within {
            CelType::Parameter(_) => self.find(within).is_none_or(|bound| self.not_within(parameter, bound)),
            other => other.parameters().iter().all(|inner| self.not_within(parameter, inner)),
        }
    }

    /// Replaces bound variables; unbound ones become dyn if `to_dyn`.
    pub(crate) fn substitute(&self, of: &CelType, to_dyn: bool) -> CelType {
        if let Some(bound) = self.find(of) {
            return self.substitute(bound, to_dyn);
        }
        match of {
            CelType::Parameter(_) if to_dyn => CelType::Dyn,
            other => other.map_parameters(&mut |inner| self.substitute(inner, to_dyn)),
        }
    }
}

/// The more general of two types that unify.
pub(crate) fn most_general<'t>(first: &'t CelType, second: &'t CelType) -> &'t CelType {
    if less_specific(first, second) { first } else { second }
}

fn less_specific(first: &CelType, second: &CelType) -> bool {
    match (first, second) {
        (CelType::Dyn | CelType::Parameter(_), _) | (CelType::Type(_), CelType::Type(_)) => true,
        (_, CelType::Dyn | CelType::Parameter(_)) => false,
        (CelType::List(first), CelType::List(second)) => less_specific(first, second),
        (CelType::Map(first), CelType::Map(second)) => {
            less_specific(&first.0, &second.0) && less_specific(&first.1, &second.1)
        }
        (CelType::Opaque(first, left), CelType::Opaque(second, right)) => {
            first == second
                && left.len() == right.len()
                && left.iter().zip(right.iter()).all(|(left, right)| less_specific(left, right))
        }
        (first, second) => first == second,
    }
}
