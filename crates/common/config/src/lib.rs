//! Reads configuration files: YAML with positions, and typed values from it.
//!
//! A reader asks a [`Section`] for its keys one by one and always gets a value. Problems are collected, so that users see **all**
//! problems of a file at once, each with file, line, key, a suggestion and the allowed values. The same calls declare the keys:
//! `config schema`, `config defaults` and the documentation are generated from their [`Shape`]s. A key that is not read does not
//! exist, and a key that is read is documented.
//!
//! The binary reads the files and decides which one is the configuration.

mod header;
pub mod names;
mod node;
mod problem;
mod section;
mod selector;
mod shape;
pub mod time;
mod units;

pub use header::read_header;
/// Label selectors as kube has them.
pub use kube_core::{Expression, Selector, SelectorExt};
pub use node::{Node, Value, parse};
pub use problem::{Place, Problem, nearest, with_sources};
pub use section::{Section, read};
pub use selector::{Labels, all_of};
pub use shape::{Key, Shape};
