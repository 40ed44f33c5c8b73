#![doc = include_str!("../README.md")]

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
pub mod relation;
pub mod release;
pub mod request;
pub mod schema;
pub mod set;
pub mod value;
pub mod vap;

pub use cel::outcome::Authorization;
