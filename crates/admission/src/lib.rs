//! crates/admission
