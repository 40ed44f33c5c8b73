//! Three questions to an API server: get, list a page, watch. Metadata only. And what hands write, which is one object.

use std::sync::Arc;

use http_body_util::{BodyExt as _, Limited};
use hyper::header::{ACCEPT, CONTENT_TYPE};
use hyper::{Method, Request, Response, StatusCode};
use kube::Client;
use kube::client::Body;
use serde::Deserialize;

use super::body::{Bytes, Room};
use super::events::Events;
use super::failure::{Failure, SERVER, brief, is_about, not_sent, not_understood, refusal};
use super::path;
use super::transport::{self, Lane};
use crate::metadata::Wire;
use crate::{Address, Metadata, MetadataResult, Resource, cause};
use admission::Cause;

/// 4 MiB: no object is larger than etcd takes in one request (1.5 MiB, at most 3 MiB by common configuration).
pub(super) const OBJECT_LIMIT: usize = 4 << 20;

/// 1 MiB: what stands in place of an answer is a sentence, or a login page.
const STATUS_LIMIT: usize = 1 << 20;

/// 256 MiB, for the watches of the API server here: a page of 500 objects, each with as many annotations as are allowed (256 KiB) and labels and owners beside them.
pub(super) const PAGE_LIMIT: usize = 256 << 20;

/// As many as client-go asks for.
pub(super) const PAGE_ITEMS: usize = 500;

/// Five minutes: a watch ends by itself now and then, so that load spreads again over the API servers.
const WATCH_SECONDS: u32 = 300;

/// What is accepted: whole objects; the metadata of one, and of many, from whoever can give that.
pub(super) const WHOLE: &str = "application/json";
pub(super) const ONE: &str = "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1,application/json";
pub(super) const MANY: &str =
    "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1,application/json";

/// An API server that can be asked. Cloning is cheap.
#[derive(Clone)]
pub(super) struct Api {
    client: Client,
    /// What it is called where it cannot be reached: `the API server at https://10.0.0.1:6443`.
    called: Arc<str>,
    /// For the answers to questions; the Lists of watches, of which there are few and from here, have their own limit.
    pub(super) room: Room,
}

/// A page of a List.
#[derive(Debug, Default)]
pub(super) struct Page {
    pub(super) version: String,
    pub(super) r#continue: Option<String>,
    pub(super) objects: Vec<Wire>,
}

impl Api {
    pub(super) fn new(client: Client, url: &str, room: Room) -> Self {
        Self { client, called: format!("{SERVER} at {}", url.trim_end_matches('/')).into(), room }
    }

    /// Which API server it is, as part of a sentence.
    pub(super) fn called(&self) -> &str {
        &self.called
    }

    /// One object, or the certainty that there is none.
    pub(super) async fn get(&self, address: Address<'_>) -> MetadataResult {
        self.look_up(address).await.map_err(|failure| {
            Cause::new(
                failure.cause.code,
                format!("{address} could not be looked up: {}", failure.cause.text),
            )
        })
    }

    async fn look_up(&self, address: Address<'_>) -> Result<Option<Arc<Metadata>>, Failure> {
        let resource = address.resource;
        let path = path::object(address)
            .ok_or_else(|| Failure::new(cause::REFUSED, "there can be no object of that name"))?;
        let response = self.send(&path, ONE).await?;
        let status = response.status();
        let body = self.room.body(response, OBJECT_LIMIT).await?;
        if status == StatusCode::NOT_FOUND && is_about(&body, address) {
            return Ok(None);
        }
        if status != StatusCode::OK {
            return Err(refusal(status, &body, "get", resource));
        }
        let object: Object = serde_json::from_slice(&body).map_err(|error| not_understood(&error, &body))?;
        let is_of_kind = object.is_of(resource);
        let is_the_one =
            object.metadata.name == address.name && object.metadata.namespace == address.namespace;
        if !is_of_kind || !is_the_one {
            let what = format!("{} {} {:?}", object.api_version, object.kind, object.metadata.name);
            return Err(Failure::new(
                cause::GARBAGE,
                format!("the API server answered with something else ({})", brief(&what)),
            ));
        }
        Ok(Some(Arc::new(object.metadata.kept())))
    }

    /// A page of all objects of a resource, in all namespaces.
    pub(super) async fn list(&self, resource: &Resource, r#continue: Option<&str>) -> Result<Page, Failure> {
        // No resourceVersion: the newest state, not what a cache of the API server's happens to hold.
        let mut path = format!("{}?limit={PAGE_ITEMS}", path::collection(resource));
        if let Some(token) = r#continue {
            path.push_str("&continue=");
            path.push_str(&path::encoded(token));
        }
        let response = self.send(&path, MANY).await?;
        let status = response.status();
        let body = body(response, PAGE_LIMIT).await?;
        if status != StatusCode::OK {
            return Err(refusal(status, &body, "list", resource));
        }
        let list: List = serde_json::from_slice(&body).map_err(|error| not_understood(&error, &body))?;
        if !list.kind.ends_with("List") || list.metadata.resource_version.is_empty() {
            return Err(Failure::new(
                cause::GARBAGE,
                format!("the API server answered with {} in place of a List", brief(&list.kind)),
            ));
        }
        let r#continue = list.metadata.r#continue.filter(|token| !token.is_empty());
        let objects: Vec<Wire> =
            list.items.unwrap_or_default().into_iter().map(|item| item.metadata).collect();
        if objects.iter().any(|object| object.name.is_empty()) {
            return Err(Failure::new(cause::GARBAGE, "the API server's List holds objects without names"));
        }
        Ok(Page { version: list.metadata.resource_version, r#continue, objects })
    }

    /// Opens a watch of a resource in all namespaces, from `version` on.
    pub(super) async fn watch(&self, resource: &Resource, version: &str) -> Result<Events, Failure> {
        let path = format!(
            "{}?watch=true&allowWatchBookmarks=true&timeoutSeconds={WATCH_SECONDS}&resourceVersion={}",
            path::collection(resource),
            path::encoded(version)
        );
        let response = self.send(&path, ONE).await?;
        let status = response.status();
        if status != StatusCode::OK {
            return Err(refusal(status, &body(response, OBJECT_LIMIT).await?, "watch", resource));
        }
        Ok(Events::over(response.into_body(), resource.clone()))
    }

    /// Status and body of the answer to a question that goes by `lane`, or by the connection of look-ups.
    pub(super) async fn fetch(
        &self,
        path: &str,
        accept: &'static str,
        lane: Option<Lane>,
        limit: usize,
    ) -> Result<(StatusCode, Bytes), Failure> {
        let mut request = question(path, accept)?;
        if let Some(lane) = lane {
            request.extensions_mut().insert(lane);
        }
        let response = self.client.send(request).await.map_err(|error| {
            let is_only_http1 = transport::is_only_http1(&error);
            Failure { is_only_http1, ..not_sent(&error, &self.called) }
        })?;
        let status = response.status();
        let limit = if status == StatusCode::OK { limit } else { limit.min(STATUS_LIMIT) };
        let body = self.room.body(response, limit).await.map_err(|failure| {
            // What stands in place of an answer is never long.
            let is_answer = failure.is_too_long && status == StatusCode::OK;
            let code = if is_answer { cause::TOO_LONG } else { failure.cause.code };
            Failure { cause: Cause::new(code, failure.cause.text), ..failure }
        })?;
        Ok((status, body))
    }

    /// Status and body of the answer to an object that is sent: made where there was none, or put over the one of its version. A
    /// trial goes all the way and stores nothing.
    pub(super) async fn write(
        &self,
        address: Address<'_>,
        is_new: bool,
        object: &serde_json::Value,
        is_trial: bool,
    ) -> Result<(StatusCode, Bytes), Failure> {
        let (method, path) =
            if is_new { (Method::POST, path::made(address)) } else { (Method::PUT, path::object(address)) };
        let path = path.ok_or_else(|| Failure::new(cause::REFUSED, "there can be no object of that name"))?;
        let path = if is_trial { format!("{path}?dryRun=All") } else { path };
        let request = Request::builder().method(method).uri(path).header(ACCEPT, WHOLE);
        let request = request.header(CONTENT_TYPE, WHOLE).body(Body::from(object.to_string().into_bytes()));
        let request =
            request.map_err(|error| Failure::new(cause::REFUSED, format!("it cannot be sent: {error}")))?;
        let response = self.client.send(request).await.map_err(|error| not_sent(&error, &self.called))?;
        let status = response.status();
        Ok((status, self.room.body(response, OBJECT_LIMIT).await?))
    }

    async fn send(&self, path: &str, accept: &'static str) -> Result<Response<Body>, Failure> {
        let request = question(path, accept)?;
        self.client.send(request).await.map_err(|error| not_sent(&error, &self.called))
    }
}

fn question(path: &str, accept: &'static str) -> Result<Request<Body>, Failure> {
    let request = Request::get(path).header(ACCEPT, accept).body(Body::empty());
    request.map_err(|error| Failure::new(cause::REFUSED, format!("it cannot be asked for: {error}")))
}

#[derive(Deserialize)]
struct List {
    kind: String,
    metadata: ListMetadata,
    items: Option<Vec<Item>>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", default)]
#[derive(Default)]
struct ListMetadata {
    resource_version: String,
    r#continue: Option<String>,
}

#[derive(Deserialize)]
struct Item {
    metadata: Wire,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Object {
    #[serde(default)]
    pub(super) api_version: String,
    #[serde(default)]
    pub(super) kind: String,
    pub(super) metadata: Wire,
}

impl Object {
    /// Whether it is one of `resource`: as the metadata that was asked for, or whole, from an API server that cannot do that.
    pub(super) fn is_of(&self, resource: &Resource) -> bool {
        let is_list = self.kind.ends_with("List");
        match self.kind.as_str() {
            "PartialObjectMetadata" => self.api_version == "meta.k8s.io/v1",
            "" | "Status" => false,
            _ => self.api_version == resource.api_version() && !is_list,
        }
    }
}

async fn body(response: Response<Body>, limit: usize) -> Result<Vec<u8>, Failure> {
    match Limited::new(response.into_body(), limit).collect().await {
        Ok(body) => Ok(body.to_bytes().into()),
        Err(error) if error.is::<http_body_util::LengthLimitError>() => Err(Failure::new(
            cause::GARBAGE,
            format!("the API server's answer is larger than {} MiB", limit >> 20),
        )),
        Err(error) => Err(not_sent(&*error, SERVER)),
    }
}
