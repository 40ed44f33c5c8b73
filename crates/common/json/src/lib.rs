//! A scanner over JSON text that checks the grammar and returns spans without building a tree.
//!
//! The scanner is the only JSON reader on the path of a review. It accepts what Go's `encoding/json` accepts, so that an
//! object which an API server stores is never rejected here.

mod json_error;
mod scanner;
mod skip;
mod text;

pub use json_error::JsonError;
pub use scanner::{Raw, Scanner, Shape};
