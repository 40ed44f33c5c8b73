//! The request layer: every request to an API server is sent here, and every response becomes a body or a named cause.

use std::sync::Arc;

use hyper::header::{ACCEPT, CONTENT_TYPE, HeaderValue};
use hyper::{Method, Request, Response, StatusCode};
use kube::Config;
use kube::client::Body;
use serde_json::Value;
use tokio::time::{Duration, Instant};

use super::answer::{self, ListPage};
use super::body::{BodyReader, Bytes};
use super::expiry::Expiry;
use super::failure::{Failure, SERVER, not_sent, refusal};
use super::path;
use super::pool::{self, ConnectionPool, Permit, RequestLimiter, ResponseBody};
use crate::fleet::{Cluster, GetQuery, ListQuery, Object, Part};
use crate::metadata::Wire;
use crate::{Address, MetadataResult, Resource, cause};
use admission::Cause;
use admission::budget::{Budget, ReservedBytes};
use config::Problem;

/// 4 MiB: no object is larger than etcd accepts in one request (1.5 MiB, at most 3 MiB by common configuration).
pub(crate) const OBJECT_LIMIT: usize = 4 << 20;

/// 1 MiB: an error is a sentence, or a login page.
const STATUS_LIMIT: usize = 1 << 20;

/// A page of metadata of the local cluster: 64 kB for each of 500 objects.
const LOCAL_PAGE_LIMIT: usize = 32 << 20;

/// To parse a page of the local cluster.
const PARSE_TIMEOUT: Duration = Duration::from_secs(60);

/// Five minutes: a watch ends now and then, so that load spreads over the API servers again.
const WATCH_SECONDS: u32 = 300;

/// Values of the header `Accept`: whole objects, the metadata of one object, the metadata of a List.
pub(crate) const WHOLE: &str = "application/json";
pub(crate) const ONE: &str = "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1,application/json";
pub(crate) const MANY: &str =
    "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1,application/json";

/// One API server: its connections and the limit of concurrent requests. Cloning is cheap.
#[derive(Clone)]
pub(crate) struct ApiServer {
    connections: ConnectionPool,
    /// The URL of the server, for instance `https://10.0.0.1:6443`. The path of each request is appended to it.
    base: Arc<str>,
    /// The name in messages: `the API server at https://10.0.0.1:6443`.
    name: Arc<str>,
    pub(crate) bodies: BodyReader,
    pub(crate) limiter: Arc<RequestLimiter>,
    /// The expiry of the client certificate for this server.
    pub(crate) expiry: Option<Arc<Expiry>>,
}

impl ApiServer {
    /// Connects to nothing yet, but blocks while a credential plugin runs.
    pub(crate) fn connect(config: &Config, connections: usize, bodies: BodyReader) -> Result<Self, Problem> {
        let limiter = RequestLimiter::new(connections);
        let connections = pool::connect(config, connections)?;
        Ok(Self::new(connections, &config.cluster_url.to_string(), limiter, bodies))
    }

    /// Sets the expiry of the client certificate.
    pub(crate) fn with_expiry(self, expiry: Option<Expiry>) -> Self {
        Self { expiry: expiry.map(Arc::new), ..self }
    }

    pub(crate) fn new(
        connections: ConnectionPool,
        url: &str,
        limiter: RequestLimiter,
        bodies: BodyReader,
    ) -> Self {
        // A query of the URL is left out, as in client-go.
        let base: Arc<str> = url.split('?').next().unwrap_or(url).trim_end_matches('/').into();
        let name = format!("{SERVER} at {base}").into();
        Self { connections, base, name, bodies, limiter: Arc::new(limiter), expiry: None }
    }

    pub(crate) fn name(&self) -> &str {
        &self.name
    }

    /// Reads the metadata of one object over the shared connection.
    pub(crate) async fn get(&self, address: Address<'_>) -> MetadataResult {
        let found = self.get_object(address).await;
        found.map(|object| object.map(|object| Arc::new(object.metadata))).map_err(|failure| {
            let text = format!("{address} could not be read: {}", failure.cause.text);
            Cause::new(failure.into_garbage().cause.code, text)
        })
    }

    async fn get_object(&self, address: Address<'_>) -> Result<Option<Object>, Failure> {
        let path = path::object(address)
            .ok_or_else(|| Failure::new(cause::REFUSED, "no object can have this name"))?;
        let (status, body) = self.fetch(&path, ONE, None, OBJECT_LIMIT, self.bodies.memory()).await?;
        answer::object(&Cluster::Local, GetQuery { address, part: Part::Metadata }, status, &body)
    }

    /// Reads one page of metadata of the local cluster over the shared connection. Such a List is read once at a time, so its memory
    /// is not counted.
    pub(crate) async fn list<T: Send + 'static>(
        &self,
        query: ListQuery<'_>,
        label_selector: Option<&str>,
        keep: impl Fn(Wire) -> T + Send + 'static,
    ) -> Result<ListPage<T>, Failure> {
        let path = path::page(&query, label_selector)
            .ok_or_else(|| Failure::new(cause::REFUSED, "no namespace can have this name"))?;
        let memory = Budget::new(usize::MAX).empty();
        let (status, body) = self.fetch(&path, MANY, None, LOCAL_PAGE_LIMIT, memory).await?;
        let query = OwnedQuery::from(&query);
        let parser =
            move |body: &[u8]| answer::metadata(&Cluster::Local, &query.borrow(), status, body, keep);
        match self.bodies.parse(body, Instant::now() + PARSE_TIMEOUT, parser).await {
            Some(page) => page.map_err(|cause| Failure::new(cause.code, cause.text))?,
            None => Err(Failure::new(cause::TIMEOUT, "its answer was too long to parse in time")),
        }
    }

    /// Starts a watch of a resource in all namespaces, from `version` on.
    pub(crate) async fn watch(
        &self,
        resource: &Resource,
        version: &str,
    ) -> Result<Response<ResponseBody>, Failure> {
        let path = format!(
            "{}?watch=true&allowWatchBookmarks=true&timeoutSeconds={WATCH_SECONDS}&resourceVersion={}",
            path::collection(resource),
            path::encoded(version)
        );
        let response = self.send(self.request(Method::GET, &path, ONE, Body::empty())?, None).await?;
        if response.status() == StatusCode::OK {
            return Ok(response);
        }
        let (status, body) = self.read(response, OBJECT_LIMIT, self.bodies.memory()).await?;
        Err(refusal(status, &body, "watch", resource))
    }

    /// Sends a GET over the connection of `permit`, or over the shared one, and reads the response.
    pub(crate) async fn fetch(
        &self,
        path: &str,
        accept: &'static str,
        permit: Option<&Permit<'_>>,
        limit: usize,
        memory: ReservedBytes,
    ) -> Result<(StatusCode, Bytes), Failure> {
        let response = self.send(self.request(Method::GET, path, accept, Body::empty())?, permit).await?;
        self.read(response, limit, memory).await
    }

    /// Creates an object, or replaces the version that it names. A dry run stores nothing.
    pub(crate) async fn write(
        &self,
        address: Address<'_>,
        is_new: bool,
        object: &Value,
        is_dry_run: bool,
    ) -> Result<(StatusCode, Bytes), Failure> {
        let (method, path) =
            if is_new { (Method::POST, path::parent(address)) } else { (Method::PUT, path::object(address)) };
        let path = path.ok_or_else(|| Failure::new(cause::REFUSED, "no object can have this name"))?;
        let path = if is_dry_run { format!("{path}?dryRun=All") } else { path };
        let mut request = self.request(method, &path, WHOLE, Body::from(object.to_string().into_bytes()))?;
        request.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(WHOLE));
        let response = self.send(request, None).await?;
        self.read(response, OBJECT_LIMIT, self.bodies.memory()).await.map_err(Failure::into_garbage)
    }

    fn request(
        &self,
        method: Method,
        path: &str,
        accept: &'static str,
        body: Body,
    ) -> Result<Request<Body>, Failure> {
        let what = if method == Method::GET { "asked for" } else { "sent" };
        let uri = [&*self.base, path].concat();
        let request = Request::builder()
            .method(method)
            .uri(uri)
            .header(ACCEPT, HeaderValue::from_static(accept))
            .body(body);
        request.map_err(|error| Failure::new(cause::REFUSED, format!("it cannot be {what}: {error}")))
    }

    async fn send(
        &self,
        request: Request<Body>,
        permit: Option<&Permit<'_>>,
    ) -> Result<Response<ResponseBody>, Failure> {
        let sending = self.connections.of(permit)(request);
        let response = sending.await.map_err(|error| {
            let is_only_http1 = pool::is_only_http1(&*error);
            Failure { is_only_http1, ..not_sent(&*error, &self.name) }
        });
        match (&response, permit) {
            (Ok(response), Some(permit)) => permit.record(response.version()),
            (Err(failure), Some(permit)) if failure.is_only_http1 => permit.record(hyper::Version::HTTP_11),
            _ => {}
        }
        response
    }

    async fn read(
        &self,
        response: Response<ResponseBody>,
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
    /// The query without its field selector, which answers do not repeat.
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
