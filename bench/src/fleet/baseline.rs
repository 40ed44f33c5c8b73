//! The peer: a webhook that reads its member clusters in a loop. It sends the requests of a verdict one after another over one
//! connection, and reads the bodies without parsing them.

use std::path::Path;
use std::sync::Arc;
use std::time::Instant;

use http_body_util::{BodyExt as _, Empty};
use hyper::Request;
use hyper::body::Bytes;
use hyper::client::conn::http2;
use hyper::header::{ACCEPT, AUTHORIZATION};
use hyper_util::rt::{TokioExecutor, TokioIo};
use rustls::pki_types::ServerName;
use serde_json::Value;
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;

use super::answers::{CLUSTERS, NAMESPACE, member};
use super::{Answer, Shape};
use crate::{Result, kernel, load};

const METADATA: &str = "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1,application/json";

/// Lists that the guard reads of a namespace.
pub(super) const LISTS: [&str; 10] = [
    "api/v1/namespaces/shop/pods?limit=500&fieldSelector=status.phase%21%3DSucceeded%2Cstatus.phase%21%3DFailed",
    "api/v1/namespaces/shop/persistentvolumeclaims?limit=500",
    "apis/apps/v1/namespaces/shop/deployments?limit=500",
    "apis/apps/v1/namespaces/shop/statefulsets?limit=500",
    "apis/apps/v1/namespaces/shop/daemonsets?limit=500",
    "apis/batch/v1/namespaces/shop/jobs?limit=500",
    "apis/batch/v1/namespaces/shop/cronjobs?limit=500",
    "apis/apps/v1/namespaces/shop/replicasets?limit=500",
    "api/v1/namespaces/shop/replicationcontrollers?limit=500",
    "api/v1/namespaces/shop/services?limit=500&fieldSelector=spec.type%3DLoadBalancer",
];

/// Sends all requests several times.
pub(super) async fn rounds(kubeconfig: &Path, shape: Shape, rounds: usize) -> Result<Answer> {
    let config: Value = serde_json::from_slice(&std::fs::read(kubeconfig)?)?;
    let cluster = &config["clusters"][0]["cluster"];
    let server = cluster["server"].as_str().ok_or("no server")?;
    let bearer = format!("Bearer {}", config["users"][0]["user"]["token"].as_str().ok_or("no token")?);
    let certificate = cluster["certificate-authority"].as_str().ok_or("no authority")?;
    let mut tls = (*load::trusting(Path::new(certificate))?).clone();
    tls.alpn_protocols = vec![b"h2".to_vec()];
    let stream = TcpStream::connect(server.trim_start_matches("https://")).await?;
    stream.set_nodelay(true)?;
    let stream =
        TlsConnector::from(Arc::new(tls)).connect(ServerName::try_from("localhost")?, stream).await?;
    let (mut sender, connection) = http2::handshake(TokioExecutor::new(), TokioIo::new(stream)).await?;
    // The task ends when the sender is dropped.
    tokio::spawn(connection);
    let mut answer = Answer::default();
    for _ in 0..rounds {
        let (since, cpu) = (Instant::now(), kernel::cpu("self")?);
        for path in paths(shape) {
            let request = Request::get(format!("{server}{path}"))
                .header(ACCEPT, METADATA)
                .header(AUTHORIZATION, &bearer)
                .body(Empty::<Bytes>::new())?;
            let response = sender.send_request(request).await?;
            if !matches!(response.status().as_u16(), 200 | 404) {
                return Err(format!("{path}: {}", response.status()).into());
            }
            response.into_body().collect().await?;
        }
        answer.note(since, cpu)?;
    }
    Ok(answer)
}

/// Returns the Clusters, the namespace of each cluster and of the control plane, and the Lists of those that have it.
fn paths(shape: Shape) -> Vec<String> {
    let root = |index| format!("{CLUSTERS}/{}/proxy", member(index));
    let mut paths = vec![format!("{CLUSTERS}?limit=500")];
    let roots = (0..shape.members).map(root).chain([String::new()]);
    paths.extend(roots.map(|root| format!("{root}/api/v1/namespaces/{NAMESPACE}")));
    let roots = (0..shape.members).filter(|&index| shape.has(index)).map(root).chain([String::new()]);
    paths.extend(roots.flat_map(|root| LISTS.map(|list| format!("{root}/{list}"))));
    paths
}
