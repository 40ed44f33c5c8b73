//! crates/server
