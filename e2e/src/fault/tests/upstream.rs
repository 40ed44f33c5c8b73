//! A small API server and a client.

use std::convert::Infallible;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::{Arc, Mutex};

use anyhow::Result;
use bytes::Bytes;
use http::header::{AUTHORIZATION, CONTENT_TYPE};
use http::{HeaderMap, Method, Request, Response, StatusCode, Version};
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt as _, Full, StreamBody};
use hyper::body::{Frame, Incoming};
use hyper_rustls::{HttpsConnector, HttpsConnectorBuilder};
use hyper_util::client::legacy;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::{TokioExecutor, TokioIo};
use rustls::RootCertStore;
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject as _;
use serde_json::json;
use tokio::net::TcpListener;

use crate::certificates::Ca;
use crate::fault::{Proxy, connection};

/// A received request.
#[derive(Debug, Clone)]
pub(super) struct Received {
    pub(super) line: String,
    pub(super) headers: HeaderMap,
    pub(super) body: Bytes,
}

/// A proxy with an API server behind it.
pub(super) struct Server {
    pub(super) proxy: Proxy,
    pub(super) ca: Ca,
    pub(super) seen: Arc<Mutex<Vec<Received>>>,
}

impl Server {
    pub(super) async fn new() -> Self {
        let _ = rustls::crypto::aws_lc_rs::default_provider().install_default();
        let ca = Ca::new("member").unwrap();
        let seen = Arc::default();
        let address = serve(&ca, Arc::clone(&seen)).await;
        // A proxy has its own runtime, which cannot be made within another.
        let (proxy, ca) = tokio::task::spawn_blocking(move || {
            (Proxy::before(&format!("https://{address}"), &ca).unwrap(), ca)
        })
        .await
        .unwrap();
        Self { proxy, ca, seen }
    }

    pub(super) fn client(&self, version: Version) -> Client {
        let mut roots = RootCertStore::empty();
        roots.add(CertificateDer::from_pem_slice(self.ca.pem().as_bytes()).unwrap()).unwrap();
        let tls = rustls::ClientConfig::builder().with_root_certificates(roots).with_no_client_auth();
        let builder = HttpsConnectorBuilder::new().with_tls_config(tls).https_only();
        let connector = match version {
            Version::HTTP_2 => builder.enable_http2().build(),
            _ => builder.enable_http1().build(),
        };
        Client {
            http: legacy::Client::builder(TokioExecutor::new()).build(connector),
            url: self.proxy.url(),
            version,
        }
    }
}

/// A client with a token that impersonates a user, as Karmada does.
#[derive(Clone)]
pub(super) struct Client {
    http: legacy::Client<HttpsConnector<HttpConnector>, Full<Bytes>>,
    url: String,
    version: Version,
}

impl Client {
    pub(super) async fn get(&self, path: &str) -> Result<(StatusCode, HeaderMap, Bytes)> {
        let answer = self.send(Method::GET, path, "").await?;
        let (head, body) = answer.into_parts();
        Ok((head.status, head.headers, body.collect().await?.to_bytes()))
    }

    pub(super) async fn send(&self, method: Method, path: &str, body: &str) -> Result<Response<Incoming>> {
        let request = Request::builder()
            .method(method)
            .uri(format!("{}{path}", self.url))
            .version(self.version)
            .header(AUTHORIZATION, "Bearer impersonator")
            .header("Impersonate-User", "durward")
            .header("Impersonate-Group", "one")
            .header("Impersonate-Group", "two")
            .body(Full::new(body.to_owned().into()))?;
        Ok(self.http.request(request).await?)
    }
}

async fn serve(ca: &Ca, seen: Arc<Mutex<Vec<Received>>>) -> SocketAddr {
    let leaf = ca.server(&["localhost"], &[Ipv4Addr::LOCALHOST.into()]).unwrap();
    let tls = connection::acceptor(&leaf, &[]).unwrap();
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            let (tls, seen) = (tls.clone(), Arc::clone(&seen));
            tokio::spawn(async move {
                let Ok(stream) = tls.accept(stream).await else { return };
                let service = hyper::service::service_fn(|request| answer(request, &seen));
                let served = hyper::server::conn::http1::Builder::new();
                let _ = served.serve_connection(TokioIo::new(stream), service).await;
            });
        }
    });
    address
}

async fn answer(
    request: Request<Incoming>,
    seen: &Mutex<Vec<Received>>,
) -> Result<Response<UnsyncBoxBody<Bytes, Infallible>>, Infallible> {
    let (head, body) = request.into_parts();
    let line = format!("{} {}", head.method, head.uri);
    let body = body.collect().await.unwrap().to_bytes();
    seen.lock().unwrap().push(Received { line, headers: head.headers, body });
    if head.uri.query().is_some_and(|query| query.contains("watch=true")) {
        // One event; then the watch stays open.
        let first = futures_util::stream::iter([Ok(Frame::data(Bytes::from("{\"type\":\"ADDED\"}\n")))]);
        let stream = futures_util::StreamExt::chain(first, futures_util::stream::pending());
        return Ok(Response::new(StreamBody::new(stream).boxed_unsync()));
    }
    let (status, object) = if head.uri.path().ends_with("/absent") {
        (404, json!({"kind": "Status", "apiVersion": "v1", "reason": "NotFound", "code": 404}))
    } else {
        let pods = json!([{"metadata": {"name": "web-0"}}, {"metadata": {"name": "web-1"}}]);
        (
            200,
            json!({"kind": "PodList", "apiVersion": "v1", "metadata": {"resourceVersion": "7"}, "items": pods}),
        )
    };
    let body = Full::new(Bytes::from(object.to_string())).boxed_unsync();
    Ok(Response::builder().status(status).header(CONTENT_TYPE, "application/json").body(body).unwrap())
}
