//! crates/guards
