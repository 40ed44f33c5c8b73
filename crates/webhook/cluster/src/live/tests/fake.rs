//! An API server that returns the answers of a test, request by request. It uses no socket. With tokio's paused clock, time
//! advances only when all tasks wait, so tests can wait until all tasks are idle.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures_util::stream;
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt, Full, StreamBody};
use hyper::body::Frame;
use hyper::header::ACCEPT;
use hyper::{Request, Response};
use kube::Client;
use kube::client::Body;
use serde_json::{Value, json};
use tokio::sync::mpsc::{self, UnboundedReceiver, UnboundedSender};
use tokio::sync::oneshot;
use tower::{BoxError, service_fn};

use crate::live::api_server::ApiServer;
use crate::live::body::BodyReader;
use crate::live::client::{Connections, SharedClient, name};
use crate::live::{Access, Live};

type ResponseBody = UnsyncBoxBody<Bytes, BoxError>;
type Answered = Result<Response<ResponseBody>, BoxError>;

/// The API server's side.
pub(in crate::live) struct Fake {
    asked: UnboundedReceiver<Asked>,
}

/// A request that waits for its answer. If it is dropped, its connection breaks. While it is kept, it hangs.
pub(super) struct Asked {
    pub(super) path: String,
    pub(super) accept: String,
    answer: oneshot::Sender<Answered>,
}

/// An open watch. If it is dropped, the response ends regularly.
pub(super) struct Stream {
    frames: UnboundedSender<Result<Frame<Bytes>, BoxError>>,
}

/// Returns a client and its API server.
pub(in crate::live) fn live() -> (Live, Fake) {
    let (sender, asked) = mpsc::unbounded_channel();
    let service = service_fn(move |request: Request<Body>| {
        let sender = sender.clone();
        async move {
            let (answer, answered) = oneshot::channel();
            let accept = request.headers().get(ACCEPT).map_or("", |value| value.to_str().unwrap()).to_owned();
            // kube's requests have an empty parameter.
            let path = request.uri().path_and_query().unwrap().to_string();
            let path = path.replace("?&", "?").trim_end_matches('?').to_owned();
            sender.send(Asked { path, accept, answer }).map_err(|_| "gone")?;
            answered.await.unwrap_or_else(|_| Err("connection reset".into()))
        }
    });
    let connections = Connections {
        url: "https://api".to_owned(),
        own: Arc::new(SharedClient::fixed(Client::new(service, "default"))),
        members: Vec::new(),
        name: name("https://api"),
        expiry: None,
    };
    let server = ApiServer::fixed(connections, BodyReader::default());
    (Live::new(server, Access::default()), Fake { asked })
}

/// Waits until all tasks are idle. The clock is paused, so it advances only when all tasks wait.
pub(super) async fn settled() {
    tokio::time::sleep(Duration::from_millis(1)).await;
}

impl Fake {
    /// Returns the next request. The paused clock skips pauses of the client, up to an hour.
    pub(super) async fn next(&mut self) -> Asked {
        let asked = tokio::time::timeout(Duration::from_secs(3600), self.asked.recv()).await;
        asked.expect("something is asked").expect("the client is there")
    }

    /// Returns the next request, which must have this path.
    pub(super) async fn asked(&mut self, path: &str) -> Asked {
        let asked = self.next().await;
        assert_eq!(asked.path, path);
        asked
    }

    /// Asserts that there was no request.
    pub(super) async fn was_not_asked(&mut self) {
        settled().await;
        if let Ok(asked) = self.asked.try_recv() {
            panic!("asked for {}", asked.path);
        }
    }
}

impl Asked {
    pub(super) fn json(self, status: u16, body: &Value) {
        self.bytes(status, body.to_string());
    }

    pub(super) fn bytes(self, status: u16, body: impl Into<Bytes>) {
        let body = Full::new(body.into()).map_err(BoxError::from).boxed_unsync();
        let response = Response::builder().status(status).body(body).unwrap();
        // The caller may have been dropped.
        let _ = self.answer.send(Ok(response));
    }

    /// Returns whether the caller has given up.
    pub(super) fn is_abandoned(&self) -> bool {
        self.answer.is_closed()
    }

    /// Answers with a stream.
    pub(super) fn stream(self) -> Stream {
        let (frames, received) = mpsc::unbounded_channel();
        let frames_out = stream::unfold(received, |mut received: UnboundedReceiver<_>| async move {
            received.recv().await.map(|frame| (frame, received))
        });
        let body = BodyExt::boxed_unsync(StreamBody::new(frames_out));
        let _ = self.answer.send(Ok(Response::new(body)));
        Stream { frames }
    }
}

impl Stream {
    pub(super) fn event(&self, kind: &str, object: &Value) {
        self.bytes(format!("{}\n", json!({"type": kind, "object": object})));
    }

    pub(super) fn bytes(&self, bytes: impl Into<Bytes>) {
        // The client may have closed the stream.
        let _ = self.frames.send(Ok(Frame::data(bytes.into())));
    }

    pub(super) fn breaks(self) {
        let _ = self.frames.send(Err("connection reset".into()));
    }

    pub(super) fn is_closed(&self) -> bool {
        self.frames.is_closed()
    }
}

/// A namespace as the API server returns its metadata.
pub(super) fn namespace(name: &str, version: u64, team: &str) -> Value {
    json!({
        "kind": "PartialObjectMetadata", "apiVersion": "meta.k8s.io/v1",
        "metadata": {"name": name, "resourceVersion": version.to_string(), "labels": {"team": team}},
    })
}

pub(super) fn bookmark(version: u64) -> Value {
    json!({
        "kind": "PartialObjectMetadata", "apiVersion": "meta.k8s.io/v1",
        "metadata": {"resourceVersion": version.to_string()},
    })
}

pub(super) fn list(version: u64, next: &str, items: &[Value]) -> Value {
    json!({
        "kind": "PartialObjectMetadataList", "apiVersion": "meta.k8s.io/v1",
        "metadata": {"resourceVersion": version.to_string(), "continue": next}, "items": items,
    })
}

/// The answer for a namespace that does not exist.
pub(super) fn not_found(name: &str) -> Value {
    json!({
        "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure",
        "message": format!("namespaces {name:?} not found"), "reason": "NotFound",
        "details": {"name": name, "kind": "namespaces"}, "code": 404,
    })
}

pub(super) fn status(code: u16, reason: &str, message: &str) -> Value {
    json!({
        "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure",
        "message": message, "reason": reason, "details": {}, "code": code,
    })
}
