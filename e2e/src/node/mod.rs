//! A one-node cluster of real parts, on a ground of its own.
//!
//! - [`ground`]: the namespaces in which it stands, so that nothing of it reaches the host

pub mod ground;

pub use ground::Ground;
