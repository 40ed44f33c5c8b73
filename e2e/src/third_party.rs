//! A mutating webhook of a third party in the same admission chain.
//!
//! It runs in the test process, answers every review with the patch of the test, and records the requests.

use std::io::{BufReader, Write as _};
use std::net::{IpAddr, SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use anyhow::{Context as _, Result};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::{ServerConfig, ServerConnection, StreamOwned};
use serde_json::{Value, json};

use crate::certificates::Ca;

/// The API server has left a connection that is silent for this time.
const IDLE: Duration = Duration::from_secs(30);

type Patch = dyn Fn(&Value) -> Vec<Value> + Send + Sync;

/// A running webhook. It stops listening when it is dropped.
#[derive(Debug)]
pub struct Webhook {
    address: SocketAddr,
    ca: Ca,
    reviews: Arc<Mutex<Vec<Value>>>,
    stopped: Arc<AtomicBool>,
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
        let ca = Ca::new("foreign")?;
        let leaf = ca.server(names, &[host])?;
        let chain = vec![CertificateDer::from_pem_slice(leaf.certificate.as_bytes())?];
        let key = PrivateKeyDer::from_pem_slice(leaf.key.as_bytes())?;
        let tls = Arc::new(ServerConfig::builder().with_no_client_auth().with_single_cert(chain, key)?);
        let listener = TcpListener::bind((host, 0)).with_context(|| format!("cannot listen on {host}"))?;
        let address = listener.local_addr()?;
        let reviews = Arc::new(Mutex::new(Vec::new()));
        let stopped = Arc::new(AtomicBool::new(false));
        let patch: Arc<Patch> = Arc::new(patch);
        let (seen, stop) = (Arc::clone(&reviews), Arc::clone(&stopped));
        std::thread::spawn(move || {
            for stream in listener.incoming().map_while(Result::ok) {
                if stop.load(Ordering::Relaxed) {
                    return;
                }
                let (tls, seen, patch) = (Arc::clone(&tls), Arc::clone(&seen), Arc::clone(&patch));
                // The API server handles a broken connection, and the test sees the effect.
                std::thread::spawn(move || converse(stream, tls, &seen, patch.as_ref()));
            }
        });
        Ok(Self { address, ca, reviews, stopped })
    }

    /// Returns its address.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Returns all requests so far, in order of arrival.
    pub fn requests(&self) -> Vec<Value> {
        self.reviews.lock().unwrap_or_else(PoisonError::into_inner).clone()
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
        self.stopped.store(true, Ordering::Relaxed);
        // Wakes the listener.
        let _ = TcpStream::connect(self.address);
    }
}

/// Answers the reviews of one connection.
fn converse(
    stream: TcpStream,
    tls: Arc<ServerConfig>,
    seen: &Mutex<Vec<Value>>,
    patch: &Patch,
) -> Result<()> {
    stream.set_read_timeout(Some(IDLE))?;
    let mut stream = BufReader::new(StreamOwned::new(ServerConnection::new(tls)?, stream));
    while let Some(body) = request_body(&mut stream)? {
        let review: Value = serde_json::from_slice(&body)?;
        let request = &review["request"];
        seen.lock().unwrap_or_else(PoisonError::into_inner).push(request.clone());
        let operations = patch(request);
        let mut response = json!({"uid": request["uid"], "allowed": true});
        if !operations.is_empty() {
            response["patchType"] = "JSONPatch".into();
            response["patch"] = STANDARD.encode(serde_json::to_vec(&operations)?).into();
        }
        let answer =
            json!({"apiVersion": review["apiVersion"], "kind": review["kind"], "response": response})
                .to_string();
        let head = format!(
            "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: {}\r\n\r\n",
            answer.len()
        );
        stream.get_mut().write_all((head + &answer).as_bytes())?;
        stream.get_mut().flush()?;
    }
    Ok(())
}

/// Returns the body of the next request, or none at the end of the connection. The API server always sends a
/// `Content-Length`.
fn request_body(stream: &mut impl std::io::BufRead) -> Result<Option<Vec<u8>>> {
    let mut length = 0;
    let mut lines = 0;
    loop {
        let mut line = String::new();
        if stream.read_line(&mut line)? == 0 {
            return Ok(None);
        }
        let line = line.trim_end();
        if line.is_empty() && lines > 0 {
            break;
        }
        lines += 1;
        if let Some((name, value)) = line.split_once(':')
            && name.eq_ignore_ascii_case("content-length")
        {
            length = value.trim().parse().context("a Content-Length that is no number")?;
        }
    }
    let mut body = vec![0; length];
    stream.read_exact(&mut body)?;
    Ok(Some(body))
}
