//! The cases, by what they are about.

pub(crate) mod controlplane;
pub(crate) mod durward;
pub(crate) mod keeper;
pub(crate) mod sentences;
