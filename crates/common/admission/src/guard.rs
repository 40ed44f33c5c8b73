//! The interface between the server and guards.

use std::future::Future;
use std::pin::Pin;
use std::time::Instant;

use crate::fields::Fields;
use crate::request::Request;
use crate::settle::{SettlePolicy, Settled};
use crate::verdict::Ruling;

/// A future that can cross threads, boxed because guards are called through `dyn`.
pub type BoxFuture<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;

/// A guard that is configured and connected to its clusters.
pub trait Guard: Send + Sync {
    /// Returns the name: the path without slash, the metric label and the configuration key.
    fn name(&self) -> &'static str;

    /// Returns the fields of object and old object that decoding fills.
    fn fields(&self) -> &Fields;

    /// Returns the policy for [`settle`](crate::settle).
    fn settle_policy(&self) -> &SettlePolicy;

    /// Returns whether allows are logged. They are for guards that read clusters, because the object does not show the reason.
    fn logs_every_ruling(&self) -> bool {
        false
    }

    /// Reviews one request before `deadline`. Data that cannot be read in time is Unknown. Dropping the future must be safe.
    fn review<'a>(&'a self, request: &'a Request<'a>, deadline: Instant) -> BoxFuture<'a, Ruling>;

    /// Takes note of the answer to a request. It must not wait, because the answer is sent after it returns.
    fn answered(&self, _request: &Request<'_>, _settled: &Settled) {}
}
