//! Admission policies as a Kubernetes API server evaluates them, without I/O and without a clock.
//!
//! The crate contains an own implementation of CEL. The verdict and its cost depend on details of the API server's evaluator:
//! the checked types, the chosen overloads, and the cost of each step.

mod cel;
pub mod crd;
pub mod document;
pub mod expression;
pub mod facts;
pub mod field;
pub mod kinds;
mod meta;
pub mod normalize;
mod place;
pub mod release;
pub mod request;
pub mod schema;
pub mod set;
pub mod value;
pub mod vap;

pub use cel::outcome::Decision;
