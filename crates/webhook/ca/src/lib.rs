//! The CA of self-managed serving certificates: one CA in a Secret, and a certificate that each replica signs for itself and keeps
//! in memory.
//!
//! Replicas elect no leader. Each one reads the Secret and decides by the same rules (`state.rs`). If the Secret can't be read
//! later, the replica keeps its certificate. If it can't be read at the start, the replica is not ready, names the cause, and
//! tries again: the API server may start after Durward.
//!
//! # Why API servers trust each certificate
//!
//! If a caBundle lacks the CA of a served certificate, the calls of its API server fail. These rules keep the CA there:
//!
//! | rule | kept in |
//! |---|---|
//! | A write of the Secret requires the version that was read, so the CAs have one history. | [`Store::write`] |
//! | A new CA becomes the signer after every caBundle has contained it for [`Lifetimes::introduction`]. | `state::step` |
//! | A replaced CA stays in the Secret until the last certificate that it signed has expired, and for half a lifetime more. | `state::step` |
//! | A replica signs with another CA only after it has read this CA in every caBundle. Without a valid certificate it signs at once, because calls fail in any case. | `state::needs_certificate` |
//! | A replica reads the caBundles after the Secret. A signer that they contain now stays there for as long as a certificate lasts. | [`SelfManaged::run`] |
//! | A caBundle is written with the version of the webhook configuration that was read before the Secret. A delayed write can't replace a newer caBundle by an older one. | [`Bundle`], and the manager of the webhook configurations |
//! | API servers verify certificates by their own clock, so times are those of the API server's answers. | [`Stored::server_time`] |
//!
//! `self_managed/tests/rotation.rs` checks this with two replicas, events in any order, and clocks that jump.
//!
//! The design is that of cert-manager's own webhook (`DynamicAuthority` in `pkg/server/tls`).

mod authority;
mod metrics;
pub mod pem;
mod record;
mod self_managed;
mod state;
mod store;

pub use authority::{Authority, AuthorityError, ServingName, SigningRequest, Validity, names_of_service};
pub use self_managed::SelfManaged;
pub use state::Lifetimes;
pub use store::{
    Bundle, CaBundle, Registered, RegisteredBundle, Registrations, Store, StoreError, StoreFault,
    StoreResult, Stored,
};
