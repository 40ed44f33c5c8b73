//! Reader, etcd client and writer.

use std::net::IpAddr;
use std::sync::Arc;
use std::time::Instant;

use admission::{BoxFuture, Cause};
use k8s_openapi::api::events::v1::Event;
use serde_json::Value;

use super::content::path;
use super::{FakeContent, FakeWorld, WorldEvent, at_once, no_answer};
use crate::etcd::{Endpoint, EtcdRequest, EtcdResult, Id};
use crate::fleet::{
    Cluster, Fleet, GetQuery, ListQuery, MembersResult, ObjectResult, Page, PageResult, Part,
};
use crate::writer::{Lease, StoredLease, TransferResult, WriteResult, Writer};
use crate::{Address, EtcdClient, MetadataResult, Reader, cause};

const LEASES: &str = "leases.v1.coordination.k8s.io";
const EVENTS: &str = "events.v1.events.k8s.io";

impl Reader for FakeWorld {
    fn get<'a>(&'a self, address: Address<'a>, deadline: Instant) -> BoxFuture<'a, MetadataResult> {
        Box::pin(async move {
            self.begin(&format!("{}: cached {}", Cluster::Local.name(), path(address)), None, deadline)
                .await?;
            at_once(self.content().world.get(address, deadline))
        })
    }

    fn get_uncached<'a>(&'a self, address: Address<'a>, deadline: Instant) -> BoxFuture<'a, MetadataResult> {
        Box::pin(async move {
            let query = GetQuery { address, part: Part::Metadata };
            let found = self.get_object(&Cluster::Local, query, deadline).await?;
            Ok(found.map(|object| Arc::new(object.metadata)))
        })
    }

    fn get_object<'a>(
        &'a self,
        of: &'a Cluster,
        query: GetQuery<'a>,
        deadline: Instant,
    ) -> BoxFuture<'a, ObjectResult> {
        Box::pin(async move {
            let text = format!("{}: {}", of.name(), path(query.address));
            self.begin(&text, None, deadline).await?;
            let mut content = self.content();
            let found = at_once(content.world.get_object(of, query, deadline))?;
            content
                .events
                .extend(found.iter().map(|object| WorldEvent::Returned(text.clone(), object.uid.clone())));
            Ok(found)
        })
    }

    fn list<'a>(
        &'a self,
        of: &'a Cluster,
        query: ListQuery<'a>,
        deadline: Instant,
    ) -> BoxFuture<'a, PageResult> {
        Box::pin(async move {
            let ListQuery { resource, namespace, continue_token, .. } = query;
            let from = continue_token.map_or_else(String::new, |from| format!(" from {from}"));
            let text = format!("{}: {resource}/{} in {namespace:?}{from}", of.name(), resource.version);
            if let Some(page) = self.begin(&text, Some(&query), deadline).await? {
                return Ok(page);
            }
            let content = self.content();
            let all = at_once(content.world.list(of, query, deadline))?.objects;
            let from: usize = continue_token.map_or(0, |from| from.parse().unwrap());
            let end = from + content.page_size.min(query.limit.try_into().unwrap());
            let next = (end < all.len()).then(|| end.to_string());
            Ok(Page { objects: all.into_iter().take(end).skip(from).collect(), next })
        })
    }

    fn members<'a>(&'a self, fleet: &'a Fleet, deadline: Instant) -> BoxFuture<'a, MembersResult> {
        Box::pin(async move {
            self.begin("fleet", None, deadline).await?;
            at_once(self.content().world.members(fleet, deadline))
        })
    }
}

impl EtcdClient for FakeWorld {
    fn call<'a>(
        &'a self,
        peer: &'a Endpoint,
        request: EtcdRequest,
        deadline: Instant,
    ) -> BoxFuture<'a, EtcdResult> {
        Box::pin(async move {
            self.begin(&format!("etcd: {} {}", peer.name, request.word()), None, deadline).await?;
            if peer.address.parse::<IpAddr>().is_err() {
                return Err(Cause::new(cause::NO_ADDRESS, format!("{:?} is not an address", peer.address)));
            }
            let answer = self.content().etcd.answer(&peer.name, request);
            match answer {
                Some(answer) => answer,
                None => Err(no_answer(deadline).await),
            }
        })
    }
}

impl Writer for FakeWorld {
    fn write<'a>(
        &'a self,
        lease: &'a Lease,
        stored: &'a StoredLease,
        deadline: Instant,
    ) -> BoxFuture<'a, WriteResult> {
        Box::pin(async move {
            match self.begin(&format!("write: lease {}", lease.name), None, deadline).await {
                Ok(_) => self.content().store(lease, stored),
                Err(why) => WriteResult::Failed(why),
            }
        })
    }

    fn transfer_leadership<'a>(
        &'a self,
        leader: &'a Endpoint,
        to: Id,
        deadline: Instant,
    ) -> BoxFuture<'a, TransferResult> {
        Box::pin(async move {
            self.content().actions.push(format!("{} to {to}", leader.name));
            match self.begin(&format!("write: leader {} to {to}", leader.name), None, deadline).await {
                Ok(_) => self.content().etcd.transfer(&leader.name, to),
                Err(why) => TransferResult::Unknown(why),
            }
        })
    }

    fn create_event<'a>(&'a self, event: &'a Event, deadline: Instant) -> BoxFuture<'a, WriteResult> {
        Box::pin(async move {
            let name = event.metadata.name.as_deref().unwrap_or_default();
            if let Err(why) = self.begin(&format!("write: event {name}"), None, deadline).await {
                return WriteResult::Failed(why);
            }
            let mut content = self.content();
            if content.object(EVENTS, name).is_some() {
                return WriteResult::Conflict;
            }
            content.insert(EVENTS, serde_json::to_value(event).unwrap());
            WriteResult::Written
        })
    }
}

impl FakeContent {
    /// Sets a Lease of Durward, with the next version.
    pub fn set_lease(&mut self, name: &str, mut lease: Value) {
        let version = self.lease_version(name).map_or(0, |version| version.parse::<u64>().unwrap());
        let metadata = &mut lease["metadata"];
        metadata["namespace"] = "durward-system".into();
        metadata["name"] = name.into();
        metadata["resourceVersion"] = (version + 1).to_string().into();
        self.insert(LEASES, lease);
    }

    fn lease_version(&mut self, name: &str) -> Option<String> {
        let lease = self.object(LEASES, name)?;
        lease["metadata"]["resourceVersion"].as_str().map(str::to_owned)
    }

    /// Compares the version and writes a Lease.
    fn store(&mut self, lease: &Lease, stored: &StoredLease) -> WriteResult {
        if self.lease_version(&lease.name) != stored.version {
            return WriteResult::Conflict;
        }
        self.set_lease(&lease.name, stored.body(lease));
        let pod = stored.reservation.as_ref().map_or("", |reservation| &reservation.pod);
        self.actions.push(format!("reserved {pod}"));
        WriteResult::Written
    }
}
