//! Configuration as a tree that knows where everything stands, and the readers that turn it into values.
//!
//! A reader asks for its keys one by one and gets a value in any case; what is wrong is collected, so that a person sees
//! **all** problems of a file at once, each with file, line, key, a suggestion and what is allowed. The same calls tell which
//! keys there are: [`Shape`] is what `config schema`, `config defaults` and the documentation are made from. A key that is
//! not read does not exist, and a key that is read cannot be missing from the documentation.
//!
//! Reading files and deciding which file is the configuration is the binary's.

pub mod names;
mod node;
mod problem;
mod section;
mod selector;
mod shape;
pub mod time;
mod units;

/// Label selectors as kube has them.
pub use kube_core::{Expression, Selector, SelectorExt};
pub use node::{Node, Value, parse};
pub use problem::nearest;
pub use problem::{Place, Problem};
pub use section::{Section, read};
pub use selector::requires_label;
pub use shape::{Key, Shape};
