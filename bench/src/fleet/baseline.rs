//! The peers: the same requests with hyper and rustls only, over as many connections, or one after another over one. They read bodies
//! without parsing them.

use std::path::Path;
use std::sync::Arc;
use std::time::Instant;

use futures_util::StreamExt as _;
use futures_util::stream::FuturesUnordered;
use http_body_util::{BodyExt as _, Empty};
use hyper::Request;
use hyper::body::Bytes;
use hyper::client::conn::http2::{self, SendRequest};
use hyper::header::{ACCEPT, AUTHORIZATION};
use hyper_util::rt::{TokioExecutor, TokioIo};
use rustls::pki_types::ServerName;
use serde_json::Value;
use tokio::net::TcpStream;
use tokio::sync::Semaphore;
use tokio_rustls::TlsConnector;

use super::Shape;
use super::answers::{CLUSTERS, NAMESPACE, member};
use super::times::Times;
use crate::{Result, kernel, load};

/// Connections and streams of the live reader.
const CONNECTIONS: usize = 10;
const STREAMS: usize = 96;
const METADATA: &str = "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1,application/json";

/// Lists that the guard reads of a namespace: group, resource, field selector.
pub(super) const LISTS: [(&str, &str, &str); 10] = [
    ("", "pods", "status.phase!=Succeeded,status.phase!=Failed"),
    ("", "persistentvolumeclaims", ""),
    ("apps", "deployments", ""),
    ("apps", "statefulsets", ""),
    ("apps", "daemonsets", ""),
    ("batch", "jobs", ""),
    ("batch", "cronjobs", ""),
    ("apps", "replicasets", ""),
    ("", "replicationcontrollers", ""),
    ("", "services", "spec.type=LoadBalancer"),
];

/// A connection with a limit of streams.
struct Stream {
    sender: SendRequest<Empty<Bytes>>,
    permits: Semaphore,
}

/// Sends all requests several times, at once or one after another.
pub(super) async fn rounds(
    kubeconfig: &Path,
    shape: Shape,
    rounds: usize,
    at_once: bool,
    times: &mut Times,
) -> Result<()> {
    let config: Value = serde_json::from_slice(&std::fs::read(kubeconfig)?)?;
    let cluster = &config["clusters"][0]["cluster"];
    let server = cluster["server"].as_str().ok_or("no server")?.to_owned();
    let token = config["users"][0]["user"]["token"].as_str().ok_or("no token")?.to_owned();
    let certificate = Path::new(cluster["certificate-authority"].as_str().ok_or("no authority")?).to_owned();
    let mut tls = (*load::trusting(&certificate)?).clone();
    tls.alpn_protocols = vec![b"h2".to_vec()];
    let tls = TlsConnector::from(Arc::new(tls));
    let mut connections = Vec::new();
    for _ in 0..if at_once { CONNECTIONS } else { 1 } {
        connections.push(connect(&server, &tls).await?);
    }
    let bearer = format!("Bearer {token}");
    for _ in 0..rounds {
        let (since, ran) = (Instant::now(), kernel::cpu("self")?);
        for paths in [vec![format!("{CLUSTERS}?limit=500")], namespaces(shape), contents(shape)] {
            if at_once {
                send_all(&connections, &server, &bearer, paths).await?;
                continue;
            }
            for (path, connection) in paths.into_iter().zip(connections.iter().cycle()) {
                get(connection, format!("{server}{path}"), &bearer).await?;
            }
        }
        times.note(since, ran)?;
    }
    Ok(())
}

fn namespaces(shape: Shape) -> Vec<String> {
    let roots = (0..shape.members).map(|index| format!("{CLUSTERS}/{}/proxy", member(index)));
    roots.chain([String::new()]).map(|root| format!("{root}/api/v1/namespaces/{NAMESPACE}")).collect()
}

/// Returns the paths of the Lists of every member that has the namespace, and of the control plane.
fn contents(shape: Shape) -> Vec<String> {
    let having = (0..shape.members).filter(|&index| shape.has(index));
    let roots = having.map(|index| format!("{CLUSTERS}/{}/proxy", member(index))).chain([String::new()]);
    roots.flat_map(|root| LISTS.map(|list| path(&root, list))).collect()
}

fn path(root: &str, (group, plural, fields): (&str, &str, &str)) -> String {
    let group = if group.is_empty() { "api/v1".to_owned() } else { format!("apis/{group}/v1") };
    let mut path = format!("{root}/{group}/namespaces/{NAMESPACE}/{plural}?limit=500");
    if !fields.is_empty() {
        path.push_str("&fieldSelector=");
        path.push_str(&fields.replace('!', "%21").replace('=', "%3D").replace(',', "%2C"));
    }
    path
}

async fn connect(server: &str, tls: &TlsConnector) -> Result<Stream> {
    let stream = TcpStream::connect(server.trim_start_matches("https://")).await?;
    stream.set_nodelay(true)?;
    let stream = tls.connect(ServerName::try_from("localhost")?, stream).await?;
    let (sender, connection) = http2::handshake(TokioExecutor::new(), TokioIo::new(stream)).await?;
    // The task ends when the sender is dropped.
    tokio::spawn(connection);
    Ok(Stream { sender, permits: Semaphore::new(STREAMS) })
}

/// Sends all requests at once, within the limit of streams.
async fn send_all(connections: &[Stream], server: &str, bearer: &str, paths: Vec<String>) -> Result<()> {
    let mut requests: FuturesUnordered<_> = paths
        .into_iter()
        .zip(connections.iter().cycle())
        .map(|(path, connection)| get(connection, format!("{server}{path}"), bearer))
        .collect();
    while let Some(done) = requests.next().await {
        done?;
    }
    Ok(())
}

async fn get(connection: &Stream, url: String, bearer: &str) -> Result<()> {
    let _permit = connection.permits.acquire().await?;
    let request =
        Request::get(&url).header(ACCEPT, METADATA).header(AUTHORIZATION, bearer).body(Empty::new())?;
    let answer = connection.sender.clone().send_request(request).await?;
    if !matches!(answer.status().as_u16(), 200 | 404) {
        return Err(format!("{url}: {}", answer.status()).into());
    }
    answer.into_body().collect().await?;
    Ok(())
}
