//! The caller of a request.

use std::borrow::Cow;
use std::net::SocketAddr;

use crate::text::for_log;

/// The caller of a request.
pub(crate) struct Caller {
    /// Its address.
    pub(crate) peer: SocketAddr,
    /// The names of its client certificate, if the CA for client certificates issued it.
    pub(crate) certificate: Option<String>,
}

impl Caller {
    /// Returns the names of the client certificate for a log line.
    pub(crate) fn certificate(&self) -> Option<Cow<'_, str>> {
        self.certificate.as_deref().map(for_log)
    }
}
