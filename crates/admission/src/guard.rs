//! The one trait between the door and whoever decides.

use std::future::Future;
use std::pin::Pin;
use std::time::Instant;

use crate::fields::Fields;
use crate::request::Request;
use crate::settle::SettlePolicy;
use crate::verdict::Ruling;

/// A future that can cross threads, boxed because guards are called through `dyn`.
pub type BoxFuture<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;

/// A guard that is ready to rule: configured, and connected to what it looks at.
pub trait Guard: Send + Sync {
    /// The path it answers on without the slash, its metric label and its key in the configuration.
    fn name(&self) -> &'static str;

    /// The fields of object and old object that decoding fills for it.
    fn fields(&self) -> &Fields;

    /// What Unknown becomes, and whether denials bind at all.
    fn settle_policy(&self) -> &SettlePolicy;

    /// Whether allows are logged too. Guards that look outward to decide say yes: such an allow must be accounted for later. A
    /// guard that only adds what was asked for says no.
    fn logs_every_ruling(&self) -> bool;

    /// Rules on one request, before `deadline`. What cannot be found out in time is Unknown; dropping the future must be safe.
    fn review<'a>(&'a self, request: &'a Request<'a>, deadline: Instant) -> BoxFuture<'a, Ruling>;
}
