//! Clients that report every request and answer to an observer: the facts of `review -v`, and what `snapshot` writes.

use std::sync::Arc;
use std::time::Instant;

use admission::BoxFuture;
use cluster::etcd::{Endpoint, EtcdRequest, EtcdResult};
use cluster::fleet::{Cluster, Fleet, GetQuery, ListQuery, MembersResult, ObjectResult, PageResult};
use cluster::{Address, Clients, Context, EtcdClient, MetadataResult, Reader, Resource};

/// Receives requests and answers.
pub(crate) trait Observer: Send + Sync {
    /// An object or a page is requested. There is no answer if the caller gives up.
    fn requested(&self, _of: &Cluster, _resource: &Resource) {}

    /// Metadata of a local object was read.
    fn metadata(&self, _address: Address<'_>, _answer: &MetadataResult) {}

    /// An object was read.
    fn object(&self, of: &Cluster, query: GetQuery<'_>, answer: &ObjectResult);

    /// A page of a List was read.
    fn page(&self, of: &Cluster, query: ListQuery<'_>, answer: &PageResult);

    /// The member clusters were listed.
    fn members(&self, fleet: &Fleet, answer: &MembersResult);

    /// A request to an etcd member is sent. There is no answer if the caller gives up.
    fn etcd_requested(&self, _endpoint: &Endpoint, _request: EtcdRequest) {}

    /// An etcd member answered.
    fn etcd(&self, endpoint: &Endpoint, request: EtcdRequest, answer: &EtcdResult);
}

/// Returns clients that read through `clients` and report to `observer`.
pub(crate) fn observed<O: Observer + 'static>(
    clients: &Clients,
    observer: &Arc<O>,
    context: Context,
) -> Clients {
    let observed = Observed { clients: clients.clone(), observer: Arc::clone(observer) };
    Clients { context, ..Clients::new(Arc::new(observed)) }
}

struct Observed<O> {
    clients: Clients,
    observer: Arc<O>,
}

impl<O: Observer> Reader for Observed<O> {
    fn get<'a>(&'a self, address: Address<'a>, deadline: Instant) -> BoxFuture<'a, MetadataResult> {
        Box::pin(async move {
            let answer = self.clients.reader.get(address, deadline).await;
            self.observer.metadata(address, &answer);
            answer
        })
    }

    fn get_uncached<'a>(&'a self, address: Address<'a>, deadline: Instant) -> BoxFuture<'a, MetadataResult> {
        Box::pin(async move {
            let answer = self.clients.reader.get_uncached(address, deadline).await;
            self.observer.metadata(address, &answer);
            answer
        })
    }

    fn get_object<'a>(
        &'a self,
        of: &'a Cluster,
        query: GetQuery<'a>,
        deadline: Instant,
    ) -> BoxFuture<'a, ObjectResult> {
        Box::pin(async move {
            self.observer.requested(of, query.address.resource);
            let answer = self.clients.reader.get_object(of, query, deadline).await;
            self.observer.object(of, query, &answer);
            answer
        })
    }

    fn list<'a>(
        &'a self,
        of: &'a Cluster,
        query: ListQuery<'a>,
        deadline: Instant,
    ) -> BoxFuture<'a, PageResult> {
        Box::pin(async move {
            self.observer.requested(of, query.resource);
            let answer = self.clients.reader.list(of, query, deadline).await;
            self.observer.page(of, query, &answer);
            answer
        })
    }

    fn members<'a>(&'a self, fleet: &'a Fleet, deadline: Instant) -> BoxFuture<'a, MembersResult> {
        Box::pin(async move {
            let answer = self.clients.reader.members(fleet, deadline).await;
            self.observer.members(fleet, &answer);
            answer
        })
    }
}

impl<O: Observer> EtcdClient for Observed<O> {
    fn call<'a>(
        &'a self,
        endpoint: &'a Endpoint,
        request: EtcdRequest,
        deadline: Instant,
    ) -> BoxFuture<'a, EtcdResult> {
        Box::pin(async move {
            self.observer.etcd_requested(endpoint, request);
            let answer = self.clients.etcd.call(endpoint, request, deadline).await;
            self.observer.etcd(endpoint, request, &answer);
            answer
        })
    }
}
