//! A mutating webhook of a third party in the same admission chain.
//!
//! It runs in the test process, answers every review with the patch of the test, and records the requests.

use std::net::{IpAddr, SocketAddr};
use std::sync::{Arc, Mutex, PoisonError};

use anyhow::{Context as _, Result};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use http::{Request, Response};
use http_body_util::{BodyExt as _, Full};
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use serde_json::{Value, json};
use tokio::net::{TcpListener, TcpStream};
use tokio::runtime::Runtime;
use tokio_rustls::TlsAcceptor;

use crate::certificates::Ca;
use crate::fault;

type Patch = dyn Fn(&Value) -> Vec<Value> + Send + Sync;

/// A running webhook. It stops listening when it is dropped.
#[derive(Debug)]
pub struct Webhook {
    address: SocketAddr,
    ca: Ca,
    requests: Arc<Mutex<Vec<Value>>>,
    runtime: Option<Runtime>,
}

impl Webhook {
    /// Listens on a free port of this address, with a certificate for it and for these names. `patch` gets each request
    /// (`review.request`) and returns the operations of a JSON Patch.
    pub fn start(
        host: impl Into<IpAddr>,
        names: &[&str],
        patch: impl Fn(&Value) -> Vec<Value> + Send + Sync + 'static,
    ) -> Result<Self> {
        let host = host.into();
        let ca = Ca::new("third-party")?;
        let tls = fault::acceptor(&ca.server(names, &[host])?, &[])?;
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build()?;
        let listener = runtime.block_on(TcpListener::bind((host, 0)));
        let listener = listener.with_context(|| format!("cannot listen on {host}"))?;
        let address = listener.local_addr()?;
        let (requests, patch): (Arc<Mutex<Vec<Value>>>, Arc<Patch>) = (Arc::default(), Arc::new(patch));
        let recorded = Arc::clone(&requests);
        runtime.spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                tokio::spawn(serve(stream, tls.clone(), Arc::clone(&recorded), Arc::clone(&patch)));
            }
        });
        Ok(Self { address, ca, requests, runtime: Some(runtime) })
    }

    /// Returns its address.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Returns all requests so far, in order of arrival.
    pub fn requests(&self) -> Vec<Value> {
        self.requests.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Returns a webhook configuration for pods created in namespaces with this label, by URL. The API server calls
    /// webhooks in the order of the configurations' names. The webhook itself has the name `NAME.foreign.example`.
    pub fn registration(&self, name: &str, namespaces: (&str, &str)) -> Value {
        let url = format!("https://{}/", self.address);
        self.registration_with(name, namespaces, json!({"url": url}))
    }

    /// Returns the same by a Service.
    pub fn service_registration(&self, name: &str, namespaces: (&str, &str), service: (&str, &str)) -> Value {
        let (namespace, service) = service;
        self.registration_with(
            name,
            namespaces,
            json!({"service": {"namespace": namespace, "name": service}}),
        )
    }

    fn registration_with(&self, name: &str, (key, value): (&str, &str), mut client: Value) -> Value {
        client["caBundle"] = STANDARD.encode(self.ca.pem()).into();
        json!({
            "apiVersion": "admissionregistration.k8s.io/v1",
            "kind": "MutatingWebhookConfiguration",
            "metadata": {"name": name},
            "webhooks": [{
                "name": format!("{name}.foreign.example"),
                "clientConfig": client,
                "admissionReviewVersions": ["v1"],
                "sideEffects": "None",
                "failurePolicy": "Fail",
                "reinvocationPolicy": "Never",
                "namespaceSelector": {"matchLabels": {key: value}},
                "rules": [{"apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["pods"]}],
            }],
        })
    }
}

impl Drop for Webhook {
    fn drop(&mut self) {
        if let Some(runtime) = self.runtime.take() {
            runtime.shutdown_background();
        }
    }
}

/// Answers the reviews of one connection.
async fn serve(
    stream: TcpStream,
    tls: TlsAcceptor,
    requests: Arc<Mutex<Vec<Value>>>,
    patch: Arc<Patch>,
) -> Result<()> {
    let stream = TokioIo::new(tls.accept(stream).await?);
    let service = service_fn(|request| review(request, &requests, patch.as_ref()));
    Ok(http1::Builder::new().serve_connection(stream, service).await?)
}

async fn review(
    request: Request<Incoming>,
    requests: &Mutex<Vec<Value>>,
    patch: &Patch,
) -> Result<Response<Full<Bytes>>> {
    let review: Value = serde_json::from_slice(&request.into_body().collect().await?.to_bytes())?;
    let request = &review["request"];
    requests.lock().unwrap_or_else(PoisonError::into_inner).push(request.clone());
    let mut response = json!({"uid": request["uid"], "allowed": true});
    let operations = patch(request);
    if !operations.is_empty() {
        response["patchType"] = "JSONPatch".into();
        response["patch"] = STANDARD.encode(serde_json::to_vec(&operations)?).into();
    }
    let answer = json!({"apiVersion": review["apiVersion"], "kind": review["kind"], "response": response});
    let answer = Full::new(Bytes::from(answer.to_string()));
    Ok(Response::builder().header("content-type", "application/json").body(answer)?)
}
