//! The program of an expression: attributes with their qualifiers, folded constants and chosen implementations, as cel-go's
//! planner builds them. The cost of a step follows from this form.

use std::sync::Arc;

use super::constant::Constant;
use super::cost::Cost;
use super::library::{Implementation, Singleton};
use super::types::CelType;

/// A step.
pub(crate) enum PlanNode {
    Constant(Constant),
    Attribute(Box<Attribute>),
    And(Vec<PlanNode>),
    Or(Vec<PlanNode>),
    /// `==`, or `!=` if negated.
    Equal {
        args: Box<[PlanNode; 2]>,
        negated: bool,
    },
    Call(Box<CallNode>),
    /// `or()`, or `orValue()` if it unwraps.
    OptionalOr {
        args: Box<[PlanNode; 2]>,
        unwraps: bool,
        strict: bool,
    },
    /// `in` with a list of constants.
    InSet {
        value: Box<PlanNode>,
        set: Vec<Constant>,
    },
    List {
        elements: Vec<PlanNode>,
        optional: Vec<bool>,
    },
    Map {
        entries: Vec<(PlanNode, PlanNode)>,
        optional: Vec<bool>,
    },
    Fold(Box<Fold>),
    /// `cel.@mapInsert` of `transformMap` and `transformMapEntry`: the map that the loop builds is its accumulator.
    MapInsert {
        slot: usize,
        accumulator: Box<PlanNode>,
        key: Option<Box<PlanNode>>,
        value: Box<PlanNode>,
    },
}

/// A variable or value with selections from it.
pub(crate) struct Attribute {
    pub(crate) base: Base,
    pub(crate) qualifiers: Vec<Qualifier>,
    /// Whether only the presence of the last selection is asked.
    pub(crate) test_only: bool,
}

/// The start of selections.
pub(crate) enum Base {
    /// A variable of a loop.
    Local(usize),
    /// A variable of the environment.
    Root(String),
    /// The value of a step.
    Node(PlanNode),
    /// `condition ? yes : no`
    Conditional(Box<[PlanNode; 3]>),
}

/// A selection.
pub(crate) struct Qualifier {
    pub(crate) key: QualifierKey,
    pub(crate) optional: bool,
}

/// A field, key or index.
pub(crate) enum QualifierKey {
    Constant(Constant),
    Node(PlanNode),
}

/// A call.
pub(crate) struct CallNode {
    pub(crate) function: &'static str,
    pub(crate) args: Vec<PlanNode>,
    pub(crate) dispatch: Dispatch,
    pub(crate) cost: Cost,
    /// Whether a failed argument ends the call before the next argument is evaluated.
    pub(crate) variadic: bool,
    /// Whether failed arguments are passed to the implementation.
    pub(crate) non_strict: bool,
    /// The compiled pattern, if it is constant.
    pub(crate) regex: Option<Arc<::regex::Regex>>,
}

/// How the implementation of a call is found.
pub(crate) enum Dispatch {
    /// One implementation that looks at its arguments.
    Singleton(Singleton),
    /// The first of these overloads that accepts the arguments.
    Overloads { candidates: Vec<Candidate>, guarded: bool },
}

/// An overload that a call can have.
pub(crate) struct Candidate {
    pub(crate) args: Vec<CelType>,
    pub(crate) call: Implementation,
}

/// A loop.
pub(crate) struct Fold {
    pub(crate) range: PlanNode,
    pub(crate) slot: usize,
    pub(crate) two: bool,
    pub(crate) init: PlanNode,
    pub(crate) condition: PlanNode,
    pub(crate) step: PlanNode,
    pub(crate) result: PlanNode,
    /// Whether the accumulator is a map that the loop builds.
    pub(crate) builds_map: bool,
}
