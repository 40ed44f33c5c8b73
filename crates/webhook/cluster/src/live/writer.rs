//! Writes Leases and Events to the API server of a [`Live`] and sends leadership transfers to etcd members.

use std::borrow::Cow;
use std::fmt;
use std::time::Instant;

use admission::{BoxFuture, Cause};
use k8s_openapi::api::coordination;
use k8s_openapi::api::events::v1::Event;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::Api;
use kube::api::PostParams;
use serde::Serialize;
use serde::de::DeserializeOwned;
use tokio::time::timeout_at;

use super::Live;
use super::api_server::ApiServer;
use super::etcd::Members;
use super::failure::{of_error, short};
use super::path;
use super::request::{Written, write};
use crate::etcd::{Endpoint, Id};
use crate::writer::{Lease, StoredLease, TransferResult, WriteResult, Writer};
use crate::{Address, Resource, cause, words};

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

impl LiveWriter {
    /// Creates the writer of this control plane.
    pub fn new(live: &Live) -> Self {
        Self { server: live.server.clone(), members: live.members.clone() }
    }

    /// Checks with dry-run requests whether the Lease can be created and updated. A conflict is not a failure.
    pub async fn can_write(&self, lease: &Lease, deadline: Instant) -> Result<(), Cause> {
        let parameters = PostParams { dry_run: true, ..PostParams::default() };
        for version in [None, Some("1".to_owned())] {
            let stored = StoredLease { version, ..StoredLease::default() };
            if let WriteResult::Failed(why) = self.put(lease, &stored, &parameters, deadline).await {
                return Err(why);
            }
        }
        Ok(())
    }

    async fn put(
        &self,
        lease: &Lease,
        stored: &StoredLease,
        parameters: &PostParams,
        deadline: Instant,
    ) -> WriteResult {
        let api: Api<coordination::v1::Lease> = Api::namespaced(self.server.client(), &lease.namespace);
        match serde_json::from_value(stored.body(lease)) {
            Ok(object) => self.send(&api, &object, parameters, lease.address(), deadline).await,
            Err(error) => WriteResult::Failed(Cause::new(cause::GARBAGE, error.to_string())),
        }
    }

    async fn send<K>(
        &self,
        api: &Api<K>,
        object: &K,
        parameters: &PostParams,
        address: Address<'_>,
        deadline: Instant,
    ) -> WriteResult
    where
        K: kube::Resource + Clone + fmt::Debug + Serialize + DeserializeOwned,
    {
        let failed = |Cause { code, text, .. }: Cause| {
            WriteResult::Failed(short(Cause::new(code, format!("{address} could not be written: {text}"))))
        };
        let (began, end) = (tokio::time::Instant::now(), deadline.into());
        if began >= end {
            return failed(Cause::new(cause::TIMEOUT, words::NOT_SENT));
        }
        if path::object(address).is_none() {
            return failed(Cause::new(cause::REFUSED, "no object can have this name"));
        }
        let verb = if object.meta().resource_version.is_none() { "create" } else { "update" };
        match timeout_at(end, write(api, object, parameters)).await {
            Ok(Ok(Written::Done)) => WriteResult::Written,
            Ok(Ok(Written::Conflict)) => WriteResult::Conflict,
            Ok(Err(error)) => failed(of_error(&error, &self.server.name(), verb, address.resource).cause),
            Err(_) => {
                let why = words::no_answer(self.server.name(), end - began);
                failed(Cause::new(cause::TIMEOUT, format!("{why}, and may have written it")))
            }
        }
    }
}

impl Writer for LiveWriter {
    fn write<'a>(
        &'a self,
        lease: &'a Lease,
        stored: &'a StoredLease,
        deadline: Instant,
    ) -> BoxFuture<'a, WriteResult> {
        Box::pin(async move { self.put(lease, stored, &PostParams::default(), deadline).await })
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
        Box::pin(async move {
            let ObjectMeta { namespace, name, .. } = &event.metadata;
            let (namespace, name) =
                (namespace.as_deref().unwrap_or_default(), name.as_deref().unwrap_or_default());
            let api: Api<Event> = Api::namespaced(self.server.client(), namespace);
            let address = Address { resource: &EVENTS, namespace, name };
            self.send(&api, event, &PostParams::default(), address, deadline).await
        })
    }
}
