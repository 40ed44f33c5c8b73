//! CEL as the API server has it: parser, checker, planner and evaluator with cost.

pub(crate) mod ast;
mod attribute;
pub(crate) mod check;
mod collections;
pub(crate) mod constant;
pub(crate) mod cost;
pub(crate) mod environment;
pub(crate) mod error;
pub(crate) mod eval;
pub(crate) mod library;
pub(crate) mod literals;
pub(crate) mod macros;
pub(crate) mod outcome;
pub(crate) mod parse;
pub(crate) mod plan;
pub(crate) mod program;
pub(crate) mod re2;
pub(crate) mod reads;
mod recover;
pub(crate) mod select;
pub(crate) mod token;
pub(crate) mod types;
pub(crate) mod unescape;
mod unicode_names;
