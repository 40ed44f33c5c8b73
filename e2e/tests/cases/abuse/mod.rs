//! Attacks, each by a client with only the access that it needs.

mod client_certificates;
mod deletion;
mod install;
mod overrides;
mod server;
