//! Attacks, each by a client with only the access that it needs.

mod install;
mod overrides;
