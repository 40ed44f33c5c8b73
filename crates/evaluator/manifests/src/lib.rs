//! Manifests: the objects of files with their places, and what they give an evaluation: policies, kinds and facts.
//!
//! A text is read once. Its objects stay trees with positions, and become values when they are judged.

pub mod decode;
pub mod expression;
pub mod facts;
pub mod files;
pub mod kind;
pub mod load;
pub mod objects;
pub mod parallel;
mod policies;
mod problem;
pub mod words;

pub use policies::Policies;
pub use problem::LoadProblem;

/// The newest minor whose answers are compared with a running API server.
pub const DEFAULT_MINOR: u8 = 35;
