//! Certificates: made for a start ([`new`]), and read wherever they stand ([`show()`]).
//!
//! Elliptic curve P-256 throughout. A running server reads its files itself; this is for people.

pub(crate) mod door;
mod facts;
mod fit;
mod make;
mod pem;
mod show;
mod sources;
mod time;

pub(crate) use facts::Facts;
pub(crate) use fit::{is_for, server_name, signs};
pub(crate) use make::{Authority, Names, new};
pub(crate) use pem::{Pem, bundle};
pub(crate) use show::show;
pub(crate) use time::{days_until, now};
