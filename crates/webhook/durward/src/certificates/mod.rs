//! Certificates: prints their fields, and checks that keys, certificates, CAs and names match.
//!
//! A running server loads its certificate files itself. The crate `ca` creates certificates.

pub(crate) mod api_server;
mod facts;
mod time;
mod verify;

pub(crate) use facts::CertificateFacts;
pub(crate) use time::{days_until, now, rfc3339};
pub(crate) use verify::{is_for, server_name, signs};
