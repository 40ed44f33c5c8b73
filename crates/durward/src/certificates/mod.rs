//! Certificates: reads and writes PEM, prints their fields, checks that keys, certificates and CAs match, and creates them.
//!
//! All keys are on the elliptic curve P-256. A running server loads its certificate files itself.

pub(crate) mod api_server;
mod facts;
mod issue;
mod pem;
mod time;
mod verify;

pub(crate) use facts::CertificateFacts;
pub(crate) use issue::{Authority, Names, failed, names_of_service};
pub(crate) use pem::{Pem, bundle};
pub(crate) use time::{days_until, now, rfc3339};
pub(crate) use verify::{is_for, opens, server_name, signs};
