//! Writes Leases and Events to the API server of a [`Live`] and sends leadership transfers to etcd members.

use std::borrow::Cow;
use std::time::Instant;

use admission::{BoxFuture, Cause};
use hyper::StatusCode;
use k8s_openapi::api::events::v1::Event;
use serde::Deserialize;
use serde_json::Value;
use tokio::time::timeout_at;

use super::Live;
use super::api_server::ApiServer;
use super::etcd::Members;
use super::failure::{refusal, short};
use crate::etcd::{Endpoint, Id};
use crate::writer::{Lease, StoredLease, TransferResult, WriteResult, Writer};
use crate::{Address, ApiError, Resource, cause};

const EVENTS: Resource = Resource {
    group: Cow::Borrowed("events.k8s.io"),
    version: Cow::Borrowed("v1"),
    plural: Cow::Borrowed("events"),
};

/// A [`Writer`] that shares the connections and credentials of a [`Live`].
#[derive(Clone)]
pub struct LiveWriter {
    server: ApiServer,
    members: Members,
}

/// An object that was not written, or whose outcome is unknown.
#[derive(Debug)]
struct Failed {
    /// The kind of the API server's error, if it answered one.
    kind: Option<ApiError>,
    why: Cause,
}

impl LiveWriter {
    /// Creates the writer of this control plane.
    pub fn new(live: &Live) -> Self {
        Self { server: live.server.clone(), members: live.members.clone() }
    }

    /// Checks with dry-run requests whether the Lease can be created and updated. A conflict is not a failure.
    pub async fn can_write(&self, lease: &Lease, deadline: Instant) -> Result<(), Cause> {
        for is_new in [true, false] {
            let body = StoredLease::default().body(lease);
            match self.send(lease.address(), &body, (is_new, true), deadline).await {
                // These errors show that the request is permitted: the Lease exists already, has another version, or does not exist.
                Ok(()) | Err(Failed { kind: Some(ApiError::Conflict | ApiError::Rejected), .. }) => {}
                Err(Failed { kind: Some(ApiError::NotFound), .. }) if !is_new => {}
                Err(Failed { why, .. }) => return Err(why),
            }
        }
        Ok(())
    }

    async fn put(&self, lease: &Lease, stored: &StoredLease, deadline: Instant) -> WriteResult {
        let is_new = stored.version.is_none();
        match self.send(lease.address(), &stored.body(lease), (is_new, false), deadline).await {
            Ok(()) => WriteResult::Written,
            // Another replica created or changed it.
            Err(Failed { kind: Some(ApiError::Conflict), .. }) => WriteResult::Conflict,
            // Some API servers create a Lease by PUT; others answer 404 if the Lease was deleted meanwhile.
            Err(Failed { kind: Some(ApiError::NotFound), .. }) if !is_new => WriteResult::Conflict,
            Err(Failed { why, .. }) => WriteResult::Failed(why),
        }
    }

    async fn create(&self, event: &Event, deadline: Instant) -> WriteResult {
        let body = match serde_json::to_value(event) {
            Ok(body) => body,
            Err(error) => return WriteResult::Failed(Cause::new(cause::GARBAGE, error.to_string())),
        };
        let (namespace, name) = (event.metadata.namespace.as_deref(), event.metadata.name.as_deref());
        let address = Address {
            resource: &EVENTS,
            namespace: namespace.unwrap_or_default(),
            name: name.unwrap_or_default(),
        };
        match self.send(address, &body, (true, false), deadline).await {
            Ok(()) => WriteResult::Written,
            Err(Failed { kind: Some(ApiError::Conflict), .. }) => WriteResult::Conflict,
            Err(Failed { why, .. }) => WriteResult::Failed(why),
        }
    }

    async fn send(
        &self,
        address: Address<'_>,
        object: &Value,
        (is_new, is_dry_run): (bool, bool),
        deadline: Instant,
    ) -> Result<(), Failed> {
        let failed = |kind: Option<ApiError>, Cause { code, text, .. }: Cause| Failed {
            kind,
            why: short(Cause::new(code, format!("{address} could not be written: {text}"))),
        };
        let began = tokio::time::Instant::now();
        let limit = tokio::time::Instant::from_std(deadline);
        if began >= limit {
            let text = "the deadline passed before the request was sent";
            return Err(failed(None, Cause::new(cause::TIMEOUT, text)));
        }
        let (status, body) = timeout_at(limit, self.server.write(address, is_new, object, is_dry_run))
            .await
            .map_err(|_| {
                let (waited, server) =
                    (limit.saturating_duration_since(began).as_secs_f64(), self.server.name());
                let text = format!("{server} did not answer in {waited:.1} s, and may have written it");
                failed(None, Cause::new(cause::TIMEOUT, text))
            })?
            .map_err(|failure| failed(None, failure.cause))?;
        if !matches!(status, StatusCode::OK | StatusCode::CREATED) {
            let verb = if is_new { "create" } else { "update" };
            let failure = refusal(status, &body, verb, address.resource);
            return Err(failed(failure.kind, failure.cause));
        }
        if is_echo(&body, address) {
            return Ok(());
        }
        let text = format!("{} answered with something else than the object", self.server.name());
        Err(failed(None, Cause::new(cause::GARBAGE, text)))
    }
}

/// Whether the answer is the object that was sent. A proxy may answer 200, too.
fn is_echo(body: &[u8], address: Address<'_>) -> bool {
    #[derive(Deserialize)]
    struct Echo {
        metadata: Metadata,
    }
    #[derive(Deserialize)]
    struct Metadata {
        name: String,
        namespace: String,
    }
    serde_json::from_slice(body).is_ok_and(|Echo { metadata }: Echo| {
        metadata.name == address.name && metadata.namespace == address.namespace
    })
}

impl Writer for LiveWriter {
    fn write<'a>(
        &'a self,
        lease: &'a Lease,
        stored: &'a StoredLease,
        deadline: Instant,
    ) -> BoxFuture<'a, WriteResult> {
        Box::pin(self.put(lease, stored, deadline))
    }

    fn transfer_leadership<'a>(
        &'a self,
        leader: &'a Endpoint,
        to: Id,
        deadline: Instant,
    ) -> BoxFuture<'a, TransferResult> {
        Box::pin(self.members.transfer_leadership(leader, to, deadline.into()))
    }

    fn create_event<'a>(&'a self, event: &'a Event, deadline: Instant) -> BoxFuture<'a, WriteResult> {
        Box::pin(self.create(event, deadline))
    }
}
