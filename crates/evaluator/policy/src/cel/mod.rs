//! CEL as the API server has it: parser, checker, planner and evaluator with cost.
//!
//! An expression passes the phases from top to bottom, and [`program`] calls them. The right column names the files of cel-go that
//! do the same; a path that begins with `k8s` is below `pkg/cel` of `k8s.io/apiserver`.
//!
//! | phase | modules | cel-go |
//! |---|---|---|
//! | all | `program` | `cel/env.go`, `cel/program.go` |
//! | parse: text to tree | `token`, `unescape`, `parse`, `collections` | `parser/parser.go`, `parser/unescape.go` |
//! | the tree | `ast`, `operators` | `common/ast/expr.go`, `common/operators/operators.go` |
//! | macros: calls to loops | `macros` | `parser/macro.go`, `ext/comprehensions.go`, `ext/lists.go`, `cel/library.go` |
//! | check: types and overloads | `check`, `types` | `checker/checker.go`, `checker/types.go`, `checker/mapping.go` |
//! | names that it knows | `environment` | `checker/env.go`, `k8s/environment/base.go` |
//! | names of properties | `escape` | `k8s/escaping.go` |
//! | constants of the checked tree | `literals` | `cel/validator.go`, `ext/formatting_v2.go` |
//! | plan: tree to program | `plan`, `node`, `constant` | `interpreter/planner.go`, `interpreter/decorators.go` |
//! | eval: program to value | `eval` | `interpreter/interpretable.go`, `interpreter/activation.go` |
//! | variables and selections | `attribute`, `select` | `interpreter/attributes.go` |
//! | cost at run time | `cost`, and charges in `eval` | `interpreter/runtimecost.go`, `k8s/library/cost.go` |
//! | estimated cost | `estimate` | `checker/cost.go`, `k8s/library/cost.go` |
//! | results and errors | `outcome`, `error` | `common/types/err.go`, `common/types/unknown.go`, `common/errors.go` |
//! | functions | `library` | `common/stdlib/standard.go`, `common/types/*.go`, `ext/*.go`, `k8s/library/*.go` |
//! | regular expressions | `re2`, `unicode_names` | Go's `regexp/syntax` |
//!
//! `reads` has no counterpart: it finds the fields that an expression reads, for positions in messages.

pub(crate) mod program;

mod collections;
pub(crate) mod parse;
pub(crate) mod token;
pub(crate) mod unescape;

pub(crate) mod ast;
pub(crate) mod operators;

pub(crate) mod macros;

pub(crate) mod check;
pub(crate) mod environment;
pub(crate) mod escape;
pub(crate) mod types;

pub(crate) mod literals;

pub(crate) mod constant;
pub(crate) mod node;
pub(crate) mod plan;

mod attribute;
pub(crate) mod cost;
pub(crate) mod eval;
pub(crate) mod select;

pub(crate) mod error;
pub(crate) mod estimate;
pub(crate) mod outcome;

pub(crate) mod library;
pub(crate) mod re2;
mod unicode_names;

pub(crate) mod reads;
