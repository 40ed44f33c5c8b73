//! The request layer: every request to an API server is sent here, and every response becomes a body or a named cause.

use std::sync::Arc;

use hyper::header::{ACCEPT, HeaderValue};
use hyper::{Request, Response, StatusCode};
use kube::Client;
use kube::client::Body;
use tokio::sync::watch;
use tokio::time::{Duration, Instant};

use super::answer::{self, ListPage};
use super::body::{BodyReader, Bytes};
use super::client::{self, Connections, SharedClient};
use super::failure::{Failure, SERVER, not_sent};
use super::path;
use crate::fleet::{Cluster, GetQuery, ListQuery, Object, Part};
use crate::metadata::Wire;
use crate::{Address, MetadataResult, Resource, cause, words};
use admission::Cause;
use admission::budget::{Budget, ReservedBytes};

/// 4 MiB: no object is larger than etcd accepts in one request (1.5 MiB, at most 3 MiB by common configuration).
pub(crate) const OBJECT_LIMIT: usize = 4 << 20;

/// 1 MiB: an error is a sentence, or a login page.
const STATUS_LIMIT: usize = 1 << 20;

/// A page of metadata of the local cluster: 64 kB for each of 500 objects.
const LOCAL_PAGE_LIMIT: usize = 32 << 20;

/// To parse a page of the local cluster.
const PARSE_TIMEOUT: Duration = Duration::from_secs(60);

/// Values of the header `Accept`: whole objects, the metadata of one object, the metadata of a List.
pub(crate) const WHOLE: &str = "application/json";
pub(crate) const ONE: &str = "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1,application/json";
pub(crate) const MANY: &str =
    "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1,application/json";

/// One API server. Cloning is cheap.
#[derive(Clone)]
pub(crate) struct ApiServer {
    connections: watch::Receiver<Arc<Connections>>,
    pub(crate) bodies: BodyReader,
}

impl ApiServer {
    /// Sends requests over these connections, which are replaced when the credentials change.
    pub(super) fn new(connections: watch::Receiver<Arc<Connections>>, bodies: BodyReader) -> Self {
        Self { connections, bodies }
    }

    /// Sends requests over connections that are not replaced.
    pub(super) fn fixed(connections: Connections, bodies: BodyReader) -> Self {
        Self::new(watch::channel(Arc::new(connections)).1, bodies)
    }

    /// Returns the present connections.
    pub(super) fn connections(&self) -> Arc<Connections> {
        Arc::clone(&self.connections.borrow())
    }

    /// Returns a client for kube's `Api`, which follows the connections.
    pub(super) fn client(&self) -> Client {
        client::following(self.connections.clone())
    }

    /// Returns the connections, each time they are replaced.
    pub(super) fn replaced(&self) -> watch::Receiver<Arc<Connections>> {
        self.connections.clone()
    }

    pub(crate) fn name(&self) -> Arc<str> {
        Arc::clone(&self.connections.borrow().name)
    }

    /// Reads the metadata of one object.
    pub(crate) async fn get(&self, address: Address<'_>) -> MetadataResult {
        let found = self.get_object(address).await;
        found.map(|object| object.map(|object| Arc::new(object.metadata))).map_err(|failure| {
            let failure = failure.into_garbage();
            words::unread(failure.cause.code, address, &failure.cause.text)
        })
    }

    async fn get_object(&self, address: Address<'_>) -> Result<Option<Object>, Failure> {
        let path = path::object(address)
            .ok_or_else(|| Failure::new(cause::REFUSED, "no object can have this name"))?;
        let (status, body) = self.fetch(&path, ONE, OBJECT_LIMIT).await?;
        answer::object(&Cluster::Local, GetQuery { address, part: Part::Metadata }, status, &body)
    }

    /// Reads one page of metadata of the local cluster. Such a List is read once at a time, so its memory is not counted.
    pub(crate) async fn list<T: Send + 'static>(
        &self,
        query: ListQuery<'_>,
        keep: impl Fn(Wire) -> T + Send + 'static,
    ) -> Result<ListPage<T>, Failure> {
        let path = path::page(&query)
            .ok_or_else(|| Failure::new(cause::REFUSED, "no namespace can have this name"))?;
        let memory = Budget::new(usize::MAX).empty();
        let own = &self.connections().own;
        let (status, body) = self.fetch_over(own, &path, MANY, LOCAL_PAGE_LIMIT, memory).await?;
        let query = OwnedQuery::from(&query);
        let parser =
            move |body: &[u8]| answer::metadata(&Cluster::Local, &query.borrow(), status, body, keep);
        match self.bodies.parse(body, Instant::now() + PARSE_TIMEOUT, parser).await {
            Some(page) => page.map_err(|cause| Failure::new(cause.code, cause.text))?,
            None => Err(Failure::new(cause::TIMEOUT, "its answer was too long to parse in time")),
        }
    }

    /// Sends a GET and reads the response.
    pub(crate) async fn fetch(
        &self,
        path: &str,
        accept: &'static str,
        limit: usize,
    ) -> Result<(StatusCode, Bytes), Failure> {
        self.fetch_over(&self.connections().own, path, accept, limit, self.bodies.memory()).await
    }

    /// Sends a GET over one of the connections and reads the response into `memory`.
    pub(super) async fn fetch_over(
        &self,
        client: &SharedClient,
        path: &str,
        accept: &'static str,
        limit: usize,
        memory: ReservedBytes,
    ) -> Result<(StatusCode, Bytes), Failure> {
        let request = Request::get(path).header(ACCEPT, HeaderValue::from_static(accept)).body(Body::empty());
        let request = request
            .map_err(|error| Failure::new(cause::REFUSED, format!("it cannot be asked for: {error}")))?;
        let response = client.send(request).await.map_err(|error| not_sent(&error, &self.name()))?;
        self.read(response, limit, memory).await
    }

    async fn read(
        &self,
        response: Response<Body>,
        limit: usize,
        memory: ReservedBytes,
    ) -> Result<(StatusCode, Bytes), Failure> {
        let status = response.status();
        let limit = if status == StatusCode::OK { limit } else { limit.min(STATUS_LIMIT) };
        let broken = |error: &(dyn std::error::Error + 'static)| not_sent(error, SERVER);
        let body =
            self.bodies.read(response.into_body(), limit, memory, broken).await.map_err(|failure| {
                // Errors are never long.
                let is_answer = failure.is_too_long && status == StatusCode::OK;
                let code = if is_answer { cause::TOO_LONG } else { failure.cause.code };
                Failure { cause: Cause::new(code, failure.cause.text), ..failure }
            })?;
        Ok((status, body))
    }
}

/// A [`ListQuery`] that owns its parts, for a parser on another thread.
pub(crate) struct OwnedQuery {
    resource: Resource,
    namespace: String,
    continue_token: Option<String>,
    part: Part,
    limit: u32,
}

impl From<&ListQuery<'_>> for OwnedQuery {
    fn from(query: &ListQuery<'_>) -> Self {
        Self {
            resource: query.resource.clone(),
            namespace: query.namespace.to_owned(),
            continue_token: query.continue_token.map(ToOwned::to_owned),
            part: query.part,
            limit: query.limit,
        }
    }
}

impl OwnedQuery {
    /// The query without its selectors, which answers do not repeat.
    pub(crate) fn borrow(&self) -> ListQuery<'_> {
        ListQuery {
            namespace: &self.namespace,
            part: self.part,
            limit: self.limit,
            continue_token: self.continue_token.as_deref(),
            ..ListQuery::new(&self.resource)
        }
    }
}
