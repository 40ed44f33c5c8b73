//! Three questions to an API server (get, list a page, watch), metadata only, and what each answer means.
//!
//! This is where certainty is made: absence is believed only from a 404 that carries a `Status` of reason `NotFound` about the
//! very object. A path that is not served, a proxy on the way, a mistyped server all answer 404 too, as plain text.

use http_body_util::{BodyExt as _, Limited};
use hyper::header::ACCEPT;
use hyper::{Request, Response, StatusCode};
use kube::Client;
use kube::client::Body;
use serde::Deserialize;
use serde_json::value::RawValue;

use super::access::with_sources;
use crate::world::metadata::Wire;
use crate::world::{Address, Answer, Resource, cause};
use admission::Cause;

/// 4 MiB: no object is larger than etcd takes in one request (1.5 MiB, at most 3 MiB by common configuration).
const OBJECT_LIMIT: usize = 4 << 20;

/// 256 MiB: a page of 500 objects, each with as many annotations as are allowed (256 KiB) and labels and owners beside them.
const PAGE_LIMIT: usize = 256 << 20;

/// As many as client-go asks for.
const PAGE_ITEMS: usize = 500;

/// Five minutes: a watch ends by itself now and then, so that load spreads again over the API servers.
const WATCH_SECONDS: u32 = 300;

const ONE: &str = "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1,application/json";
const MANY: &str = "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1,application/json";

/// An API server that can be asked. Cloning is cheap.
#[derive(Clone)]
pub(super) struct Api {
    client: Client,
}

/// A question that came to nothing. The cause's text is the end of a sentence: `no connection: refused`.
#[derive(Debug)]
pub(super) struct Failure {
    pub(super) cause: Cause,
    /// 410: the version that was asked from is too old, and only a new List helps.
    pub(super) is_expired: bool,
}

/// A page of a List.
#[derive(Debug, Default)]
pub(super) struct Page {
    pub(super) version: String,
    pub(super) r#continue: Option<String>,
    pub(super) objects: Vec<Wire>,
}

/// One event of a watch.
#[derive(Debug)]
pub(super) enum Event {
    /// Added or modified: it looks like this now.
    Is(Wire),
    /// Deleted.
    Gone(Wire),
    /// Nothing happened until this version.
    Bookmark(String),
}

impl Api {
    pub(super) fn new(client: Client) -> Self {
        Self { client }
    }

    /// One object, or the certainty that there is none.
    pub(super) async fn get(&self, address: Address<'_>) -> Answer {
        self.look_up(address).await.map_err(|failure| {
            Cause::new(
                failure.cause.code,
                format!("{address} could not be looked up: {}", failure.cause.text),
            )
        })
    }

    async fn look_up(
        &self,
        address: Address<'_>,
    ) -> Result<Option<std::sync::Arc<crate::world::Metadata>>, Failure> {
        let resource = address.resource;
        let path =
            path_of(address).ok_or_else(|| failure(cause::REFUSED, "there can be no object of that name"))?;
        let response = self.send(&path, ONE).await?;
        let status = response.status();
        let body = body(response, OBJECT_LIMIT).await?;
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
            return Err(failure(
                cause::GARBAGE,
                format!("the API server answered with something else ({})", brief(&what)),
            ));
        }
        Ok(Some(std::sync::Arc::new(object.metadata.kept())))
    }

    /// A page of all objects of a resource, in all namespaces.
    pub(super) async fn list(&self, resource: &Resource, r#continue: Option<&str>) -> Result<Page, Failure> {
        // No resourceVersion: the newest state, not what a cache of the API server's happens to hold.
        let mut path = format!("{}?limit={PAGE_ITEMS}", collection(resource));
        if let Some(token) = r#continue {
            path.push_str("&continue=");
            path.push_str(&encoded(token));
        }
        let response = self.send(&path, MANY).await?;
        let status = response.status();
        let body = body(response, PAGE_LIMIT).await?;
        if status != StatusCode::OK {
            return Err(refusal(status, &body, "list", resource));
        }
        let list: List = serde_json::from_slice(&body).map_err(|error| not_understood(&error, &body))?;
        if !list.kind.ends_with("List") || list.metadata.resource_version.is_empty() {
            return Err(failure(
                cause::GARBAGE,
                format!("the API server answered with {} in place of a List", brief(&list.kind)),
            ));
        }
        let r#continue = list.metadata.r#continue.filter(|token| !token.is_empty());
        let objects: Vec<Wire> =
            list.items.unwrap_or_default().into_iter().map(|item| item.metadata).collect();
        if objects.iter().any(|object| object.name.is_empty()) {
            return Err(failure(cause::GARBAGE, "the API server's List holds objects without names"));
        }
        Ok(Page { version: list.metadata.resource_version, r#continue, objects })
    }

    /// Opens a watch of a resource in all namespaces, from `version` on.
    pub(super) async fn watch(&self, resource: &Resource, version: &str) -> Result<Events, Failure> {
        let path = format!(
            "{}?watch=true&allowWatchBookmarks=true&timeoutSeconds={WATCH_SECONDS}&resourceVersion={}",
            collection(resource),
            encoded(version)
        );
        let response = self.send(&path, ONE).await?;
        let status = response.status();
        if status != StatusCode::OK {
            return Err(refusal(status, &body(response, OBJECT_LIMIT).await?, "watch", resource));
        }
        Ok(Events { body: response.into_body(), buffer: Vec::new(), read: 0, resource: resource.clone() })
    }

    async fn send(&self, path: &str, accept: &'static str) -> Result<Response<Body>, Failure> {
        let request = Request::get(path).header(ACCEPT, accept).body(Body::empty());
        let request =
            request.map_err(|error| failure(cause::REFUSED, format!("it cannot be asked for: {error}")))?;
        self.client.send(request).await.map_err(|error| not_sent(&error))
    }
}

/// The events of an open watch, one JSON document a line.
pub(super) struct Events {
    body: Body,
    buffer: Vec<u8>,
    /// How much of the buffer has been given out.
    read: usize,
    resource: Resource,
}

impl Events {
    /// The next event; none when the API server ends the watch, as it does after a while. Must not be called again after it
    /// was dropped half way.
    pub(super) async fn next(&mut self) -> Option<Result<Event, Failure>> {
        let line = match self.line().await? {
            Ok(line) => line,
            Err(failure) => return Some(Err(failure)),
        };
        Some(event(&line, &self.resource))
    }

    async fn line(&mut self) -> Option<Result<Vec<u8>, Failure>> {
        let mut searched = self.read;
        loop {
            let unsearched = self.buffer.get(searched..).unwrap_or_default();
            if let Some(at) = unsearched.iter().position(|&byte| byte == b'\n') {
                let end = searched + at;
                let line = self.buffer.get(self.read..end).unwrap_or_default().to_vec();
                self.read = end + 1;
                return Some(Ok(line));
            }
            self.buffer.drain(..self.read);
            self.read = 0;
            searched = self.buffer.len();
            if searched > OBJECT_LIMIT {
                return Some(Err(failure(cause::GARBAGE, "the API server sends an event that does not end")));
            }
            match self.body.frame().await? {
                Ok(frame) => self.buffer.extend_from_slice(frame.data_ref().map_or(&[], |data| data)),
                Err(error) => return Some(Err(not_sent(&error))),
            }
        }
    }
}

fn event(line: &[u8], resource: &Resource) -> Result<Event, Failure> {
    #[derive(Deserialize)]
    struct Line<'l> {
        r#type: &'l str,
        #[serde(borrow)]
        object: &'l RawValue,
    }
    let Line { r#type, object } =
        serde_json::from_slice(line).map_err(|error| not_understood(&error, line))?;
    if r#type == "ERROR" {
        let code = serde_json::from_str::<Status>(object.get()).ok().and_then(|status| status.code);
        let status = code
            .and_then(|code| StatusCode::from_u16(code).ok())
            .unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
        return Err(refusal(status, object.get().as_bytes(), "watch", resource));
    }
    let object: Object = serde_json::from_str(object.get()).map_err(|error| not_understood(&error, line))?;
    match r#type {
        "BOOKMARK" if !object.metadata.resource_version.is_empty() => {
            Ok(Event::Bookmark(object.metadata.resource_version))
        }
        "ADDED" | "MODIFIED" | "DELETED"
            if object.metadata.name.is_empty()
                || object.metadata.resource_version.is_empty()
                || !object.is_of(resource) =>
        {
            Err(failure(
                cause::GARBAGE,
                format!("the API server reports on something else ({})", brief(&object.kind)),
            ))
        }
        "ADDED" | "MODIFIED" => Ok(Event::Is(object.metadata)),
        "DELETED" => Ok(Event::Gone(object.metadata)),
        other => {
            Err(failure(cause::GARBAGE, format!("the API server reports an event of type {}", brief(other))))
        }
    }
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Object {
    #[serde(default)]
    api_version: String,
    #[serde(default)]
    kind: String,
    metadata: Wire,
}

impl Object {
    /// Whether it is one of `resource`: as the metadata that was asked for, or whole, from an API server that cannot do that.
    fn is_of(&self, resource: &Resource) -> bool {
        let is_list = self.kind.ends_with("List");
        match self.kind.as_str() {
            "PartialObjectMetadata" => self.api_version == "meta.k8s.io/v1",
            "" | "Status" => false,
            _ => self.api_version == resource.api_version() && !is_list,
        }
    }
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

/// What an API server says in place of what was asked for.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Status {
    kind: String,
    reason: String,
    message: String,
    code: Option<u16>,
    details: Option<Details>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Details {
    name: String,
    group: String,
    kind: String,
}

/// Whether a 404 is about this very object. `details.kind` holds the plural name in truth.
fn is_about(body: &[u8], address: Address<'_>) -> bool {
    let Ok(Status { kind, reason, details: Some(details), .. }) = serde_json::from_slice(body) else {
        return false;
    };
    kind == "Status"
        && reason == "NotFound"
        && details.name == address.name
        && details.group == address.resource.group
        && details.kind == address.resource.plural
}

/// The cause of an answer other than 200.
fn refusal(status: StatusCode, body: &[u8], verb: &str, resource: &Resource) -> Failure {
    let told: Status = serde_json::from_slice(body).unwrap_or_default();
    let number = status.as_u16();
    let (code, text) = match number {
        401 => (cause::CREDENTIALS, "the API server does not accept Durward's credentials".to_owned()),
        403 => {
            (cause::FORBIDDEN, format!("Durward is not permitted to {verb} {resource} (RBAC: verb {verb})"))
        }
        404 => {
            let known = format!("the API server does not know {resource} in {}", resource.api_version());
            (
                cause::GARBAGE,
                if told.kind == "Status" {
                    known
                } else {
                    format!("{known}, or it is none (404 without a Status)")
                },
            )
        }
        410 => (cause::BUSY, "the API server has forgotten the version that was asked from".to_owned()),
        429 | 500..=599 => {
            (cause::BUSY, format!("the API server cannot answer now ({number}{})", said(&told)))
        }
        _ => (cause::REFUSED, format!("the API server answers {number}{}", said(&told))),
    };
    let is_expired = number == 410 || matches!(told.reason.as_str(), "Expired" | "Gone");
    Failure { cause: Cause::new(code, text), is_expired }
}

fn said(status: &Status) -> String {
    if status.message.is_empty() { String::new() } else { format!(": {}", brief(&status.message)) }
}

/// A request without an answer.
fn not_sent(error: &(dyn std::error::Error + 'static)) -> Failure {
    let mut innermost = error;
    while let Some(source) = innermost.source() {
        if source.is::<kube::client::AuthError>() {
            return failure(
                cause::CREDENTIALS,
                format!("there are no credentials: {}", brief(&with_sources(source))),
            );
        }
        innermost = source;
    }
    if innermost.downcast_ref::<std::io::Error>().is_some_and(|io| io.kind() == std::io::ErrorKind::TimedOut)
    {
        return failure(cause::TIMEOUT, "the API server takes no connection in time");
    }
    failure(cause::UNREACHABLE, format!("no connection to the API server: {}", brief(&innermost.to_string())))
}

async fn body(response: Response<Body>, limit: usize) -> Result<Vec<u8>, Failure> {
    match Limited::new(response.into_body(), limit).collect().await {
        Ok(body) => Ok(body.to_bytes().into()),
        Err(error) if error.is::<http_body_util::LengthLimitError>() => Err(failure(
            cause::GARBAGE,
            format!("the API server's answer is larger than {} MiB", limit >> 20),
        )),
        Err(error) => Err(not_sent(&*error)),
    }
}

fn not_understood(error: &serde_json::Error, body: &[u8]) -> Failure {
    let begins = String::from_utf8_lossy(body.get(..40).unwrap_or(body)).into_owned();
    failure(
        cause::GARBAGE,
        format!("the answer cannot be understood: {error}; it begins {:?}", brief(&begins)),
    )
}

fn failure(code: &'static str, text: impl Into<String>) -> Failure {
    Failure { cause: Cause::new(code, text), is_expired: false }
}

/// Text from outside, cut so that a sentence around it stays one.
fn brief(text: &str) -> String {
    const MOST: usize = 160;
    let line: String = text.chars().map(|c| if c.is_control() { ' ' } else { c }).collect();
    match line.char_indices().nth(MOST) {
        Some((end, _)) => format!("{}…", line.get(..end).unwrap_or_default()),
        None => line,
    }
}

/// `/api/v1/namespaces`, `/apis/apps/v1/deployments`.
fn collection(resource: &Resource) -> String {
    root(resource) + "/" + &encoded(&resource.plural)
}

fn root(resource: &Resource) -> String {
    if resource.group.is_empty() {
        format!("/api/{}", encoded(&resource.version))
    } else {
        format!("/apis/{}/{}", encoded(&resource.group), encoded(&resource.version))
    }
}

/// The path of one object; none where a part of it would lead elsewhere: an empty name is the whole collection.
fn path_of(address: Address<'_>) -> Option<String> {
    let Address { resource, namespace, name } = address;
    let leads_elsewhere = |part: &str| matches!(part, "" | "." | "..");
    if leads_elsewhere(name) || matches!(namespace, "." | "..") {
        return None;
    }
    let (plural, name) = (encoded(&resource.plural), encoded(name));
    Some(if namespace.is_empty() {
        format!("{}/{plural}/{name}", root(resource))
    } else {
        format!("{}/namespaces/{}/{plural}/{name}", root(resource), encoded(namespace))
    })
}

/// Percent-encodes everything that has a meaning in a URL.
fn encoded(text: &str) -> String {
    use std::fmt::Write as _;
    let mut out = String::with_capacity(text.len());
    for byte in text.bytes() {
        if byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'.' | b'_' | b'~') {
            out.push(char::from(byte));
        } else {
            // Writing to a String cannot fail.
            let _ = write!(out, "%{byte:02X}");
        }
    }
    out
}
