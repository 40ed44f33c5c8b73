//! Registers Durward in API servers: webhook configurations, the Secret of its CA, and the permissions for both.
//!
//! The server keeps them up to date. `durward manifests` prints them, `durward doctor install` checks them, and `durward unregister`
//! removes the webhooks.
//!
//! | file | contents |
//! |---|---|
//! | `names.rs` | the names of the objects |
//! | `api_servers.rs` | the API servers that call the guards of a file |
//! | `permissions.rs` | the permissions of guards, for Events, and in Durward's own cluster |
//! | `entries.rs` | the webhook entries of an API server |
//! | `targets.rs` | the webhook configurations that a file needs, with the clients of their API servers |
//! | `api.rs` | requests |
//! | `webhooks/` | keeps the webhook configurations up to date |
//! | `secret.rs`, `self_managed.rs` | the Secret of the CA |

pub(crate) mod api;
pub(crate) mod api_servers;
pub(crate) mod entries;
#[cfg(test)]
pub(crate) mod fake;
pub(crate) mod names;
pub(crate) mod permissions;
pub(crate) mod secret;
pub(crate) mod self_managed;
pub(crate) mod targets;
pub(crate) mod webhooks;
