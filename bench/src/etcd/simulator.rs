//! A simulated API server with pods of etcd clusters (HTTP/2 over TLS), and their members (HTTP/1.1). Every answer is delayed by a
//! round trip. Leases have resource versions as in an API server, and a leader transfers its leadership on request.

use std::convert::Infallible;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};

use admission::lock;
use http_body_util::{BodyExt as _, Full};
use hyper::body::{Bytes, Incoming};
use hyper::header::{ACCEPT, CONTENT_TYPE, HeaderValue};
use hyper::service::service_fn;
use hyper::{Method, Request, Response, StatusCode};
use hyper_util::rt::{TokioExecutor, TokioIo};
use serde_json::{Value, json};
use tokio::net::{TcpListener, TcpStream};
use tokio::runtime::Runtime;
use tokio::time::{Instant, sleep_until};
use tokio_rustls::TlsAcceptor;

use super::MEMBERS;
use crate::Result;
use crate::fleet::{DELAY, acceptor, kubeconfig};
use crate::servers::Folder;

/// Network of the members: each has a loopback address, by cluster and number.
const NETWORK: [u8; 2] = [127, 71];

/// Simulated etcd clusters. They stop when this is dropped.
pub(super) struct Simulator {
    pub(super) kubeconfig: PathBuf,
    pub(super) port: u16,
    state: Arc<State>,
    _runtime: Runtime,
}

/// The state of all clusters.
struct State {
    clusters: usize,
    hangs: Option<usize>,
    kubernetes_requests: AtomicUsize,
    member_requests: AtomicUsize,
    /// By cluster.
    leaders: Vec<AtomicUsize>,
    /// By cluster: resource version and Lease.
    leases: Mutex<Vec<Option<(u64, Value)>>>,
}

impl Simulator {
    pub(super) fn start(clusters: usize, hangs: Option<usize>, folder: &Folder) -> Result<Self> {
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build()?;
        let state = Arc::new(State {
            clusters,
            hangs,
            kubernetes_requests: AtomicUsize::default(),
            member_requests: AtomicUsize::default(),
            leaders: (0..clusters).map(|_| AtomicUsize::default()).collect(),
            leases: Mutex::new(vec![None; clusters]),
        });
        let api = runtime.block_on(TcpListener::bind((Ipv4Addr::LOCALHOST, 0)))?;
        let kubeconfig = kubeconfig(folder, api.local_addr()?)?;
        runtime.spawn(accept(api, acceptor(folder)?, Arc::clone(&state)));
        let mut port = 0;
        for of in 0..clusters {
            for number in 0..MEMBERS {
                let listener =
                    runtime.block_on(TcpListener::bind(SocketAddr::from((address(of, number), port))))?;
                port = listener.local_addr()?.port();
                runtime.spawn(accept_member(listener, of, number, Arc::clone(&state)));
            }
        }
        Ok(Self { kubeconfig, port, state, _runtime: runtime })
    }

    /// Returns the number of requests to Kubernetes, and to members.
    pub(super) fn requests(&self) -> (usize, usize) {
        let State { kubernetes_requests, member_requests, .. } = &*self.state;
        (kubernetes_requests.load(Ordering::Relaxed), member_requests.load(Ordering::Relaxed))
    }
}

fn address(of: usize, number: usize) -> Ipv4Addr {
    let byte = |number: usize| u8::try_from(number).unwrap_or(u8::MAX);
    Ipv4Addr::new(NETWORK[0], NETWORK[1], byte(of), byte(number + 1))
}

/// Returns the pod of a member.
pub(super) fn pod(of: usize, number: usize) -> Value {
    let name = format!("etcd-{of}-{number}");
    json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": {"namespace": "db", "name": name, "uid": format!("uid-{name}"), "labels": {"app": "etcd"}, "ownerReferences": [
            {"apiVersion": "apps/v1", "kind": "StatefulSet", "name": format!("etcd-{of}"), "uid": format!("uid-{of}"), "controller": true}]},
        "spec": {"nodeName": format!("node-{number}"),
            "containers": [{"name": "etcd", "image": "etcd:3.5.16", "volumeMounts": [{"name": "data", "mountPath": "/data"}]}],
            "volumes": [{"name": "data", "persistentVolumeClaim": {"claimName": format!("data-{name}")}}]},
        "status": {"phase": "Running", "podIP": address(of, number).to_string(),
            "containerStatuses": [{"name": "etcd", "state": {"running": {}}}]}
    })
}

async fn accept(listener: TcpListener, tls: TlsAcceptor, state: Arc<State>) {
    while let Ok((stream, _)) = listener.accept().await {
        tokio::spawn(serve_api(stream, tls.clone(), Arc::clone(&state)));
    }
}

/// Serves a connection. Its client can close it at any time.
async fn serve_api(stream: TcpStream, tls: TlsAcceptor, state: Arc<State>) -> Result<()> {
    stream.set_nodelay(true)?;
    let stream = tls.accept(stream).await?;
    let service = service_fn(|request: Request<Incoming>| {
        let due = Instant::now() + DELAY;
        let state = Arc::clone(&state);
        async move {
            state.kubernetes_requests.fetch_add(1, Ordering::Relaxed);
            let (head, body) = request.into_parts();
            let body = body.collect().await.map(http_body_util::Collected::to_bytes).unwrap_or_default();
            let wants_metadata =
                |value: &HeaderValue| value.as_bytes().windows(17).any(|part| part == b"as=PartialObjectM");
            let is_metadata = head.headers.get(ACCEPT).is_some_and(wants_metadata);
            let (code, said) = state.answer(&head.method, head.uri.path(), is_metadata, &body);
            sleep_until(due).await;
            Ok::<_, Infallible>(respond(code, &said))
        }
    });
    let mut server = hyper::server::conn::http2::Builder::new(TokioExecutor::new());
    // The smallest limit that API servers have in practice.
    server.max_concurrent_streams(100);
    Ok(server.serve_connection(TokioIo::new(stream), service).await?)
}

async fn accept_member(listener: TcpListener, of: usize, number: usize, state: Arc<State>) {
    while let Ok((stream, _)) = listener.accept().await {
        tokio::spawn(serve_member(stream, of, number, Arc::clone(&state)));
    }
}

async fn serve_member(stream: TcpStream, of: usize, number: usize, state: Arc<State>) -> Result<()> {
    stream.set_nodelay(true)?;
    let service = service_fn(|request: Request<Incoming>| {
        let due = Instant::now() + DELAY;
        let state = Arc::clone(&state);
        async move {
            state.member_requests.fetch_add(1, Ordering::Relaxed);
            let (head, body) = request.into_parts();
            let body = body.collect().await.map(http_body_util::Collected::to_bytes).unwrap_or_default();
            if state.hangs == Some(number) {
                return std::future::pending().await;
            }
            let (code, said) = state.answer_member(of, number, head.uri.path(), &body);
            sleep_until(due).await;
            Ok::<_, Infallible>(respond(code, &said))
        }
    });
    Ok(hyper::server::conn::http1::Builder::new().serve_connection(TokioIo::new(stream), service).await?)
}

fn respond(code: u16, body: &Value) -> Response<Full<Bytes>> {
    let mut answer = Response::new(Full::new(Bytes::from(body.to_string())));
    *answer.status_mut() = StatusCode::from_u16(code).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    answer.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    answer
}

/// Returns the id of a member.
fn id(number: usize) -> String {
    (10_276_657_743_932_975_437_u64 + u64::try_from(number).unwrap_or_default()).to_string()
}

fn status(code: u16, reason: &str, kind: &str, group: &str, name: &str) -> (u16, Value) {
    let mut details = json!({"name": name, "kind": kind});
    if !group.is_empty() {
        details["group"] = group.into();
    }
    let failure = json!({"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure", "message": reason,
        "reason": reason, "details": details, "code": code});
    (code, failure)
}

impl State {
    fn answer(&self, method: &Method, path: &str, is_metadata: bool, body: &[u8]) -> (u16, Value) {
        let metadata = |name: &str| {
            let metadata = json!({"name": name, "uid": format!("uid-{name}"), "resourceVersion": "1", "labels": {"kubernetes.io/metadata.name": name}});
            json!({"kind": "PartialObjectMetadata", "apiVersion": "meta.k8s.io/v1", "metadata": metadata})
        };
        let name = path.rsplit('/').next().unwrap_or_default();
        match path {
            "/api/v1/namespaces/db" => (200, metadata("db")),
            "/api/v1/namespaces/db/pods" => {
                let all = (0..self.clusters).flat_map(|of| (0..MEMBERS).map(move |number| pod(of, number)));
                let items: Vec<Value> = all.collect();
                (
                    200,
                    json!({"kind": "PodList", "apiVersion": "v1", "metadata": {"resourceVersion": "7"}, "items": items}),
                )
            }
            _ if path.starts_with("/api/v1/namespaces/db/pods/") => {
                let numbers = name.trim_start_matches("etcd-").split_once('-');
                let parsed = numbers.and_then(|(of, number)| Some((of.parse().ok()?, number.parse().ok()?)));
                match parsed {
                    Some((of, number)) => (200, pod(of, number)),
                    None => status(404, "NotFound", "pods", "", name),
                }
            }
            _ if path.starts_with("/api/v1/nodes/") && is_metadata => (200, metadata(name)),
            _ if path.starts_with("/api/v1/nodes/") => (
                200,
                json!({"kind": "Node", "apiVersion": "v1", "metadata": {"name": name, "uid": format!("uid-{name}")}, "spec": {}}),
            ),
            _ if path.starts_with("/apis/apps/v1/namespaces/db/statefulsets/") => {
                let of = name.trim_start_matches("etcd-");
                (
                    200,
                    json!({"kind": "StatefulSet", "apiVersion": "apps/v1", "metadata": {"name": name, "namespace": "db", "uid": format!("uid-{of}")},
                    "spec": {"replicas": MEMBERS}, "status": {}}),
                )
            }
            _ if path.contains("/namespaces/durward-system/leases") => self.lease(method, name, body),
            _ => status(404, "NotFound", "", "", name),
        }
    }

    fn lease(&self, method: &Method, name: &str, body: &[u8]) -> (u16, Value) {
        let sent: Value = serde_json::from_slice(body).unwrap_or_default();
        let name = sent["metadata"]["name"].as_str().unwrap_or(name);
        let of = name.rsplit('-').next().and_then(|of| of.parse::<usize>().ok()).unwrap_or_default();
        let failure = |code: u16, reason: &str| status(code, reason, "leases", "coordination.k8s.io", name);
        let mut leases = self.leases();
        let Some(stored) = leases.get_mut(of) else { return failure(404, "NotFound") };
        let version = stored.as_ref().map(|(version, _)| *version);
        match (method.as_str(), version) {
            ("GET", Some(_)) => (200, stored.as_ref().map(|(_, lease)| lease.clone()).unwrap_or_default()),
            ("GET" | "PUT", None) => failure(404, "NotFound"),
            ("POST", Some(_)) => failure(409, "AlreadyExists"),
            ("PUT", Some(version))
                if sent["metadata"]["resourceVersion"].as_str() != Some(version.to_string().as_str()) =>
            {
                failure(409, "Conflict")
            }
            _ => {
                let (version, mut lease) = (version.unwrap_or_default() + 1, sent.clone());
                lease["metadata"]["resourceVersion"] = version.to_string().into();
                lease["metadata"]["uid"] = "uid-lease".into();
                *stored = Some((version, lease.clone()));
                (if method == Method::POST { 201 } else { 200 }, lease)
            }
        }
    }

    fn leases(&self) -> MutexGuard<'_, Vec<Option<(u64, Value)>>> {
        lock(&self.leases)
    }

    fn answer_member(&self, of: usize, number: usize, path: &str, body: &[u8]) -> (u16, Value) {
        let Some(leader) = self.leaders.get(of) else { return (404, Value::Null) };
        let header = json!({"cluster_id": (77 + of).to_string(), "member_id": id(number), "raft_term": "4"});
        let said = match path {
            "/version" => json!({"etcdserver": "3.5.16", "etcdcluster": "3.5.0"}),
            "/v3/maintenance/status" => json!({"header": header, "version": "3.5.16", "dbSize": "20480",
                "leader": id(leader.load(Ordering::Relaxed)), "raftIndex": "4096", "raftTerm": "4", "raftAppliedIndex": "4096"}),
            "/v3/cluster/member/list" => {
                let member = |number: usize| json!({"ID": id(number), "name": format!("etcd-{of}-{number}"), "clientURLs": [format!("http://etcd-{of}-{number}.db:2379")]});
                json!({"header": header, "members": (0..MEMBERS).map(member).collect::<Vec<_>>()})
            }
            "/v3/maintenance/alarm" | "/v3/kv/range" => json!({"header": header}),
            "/v3/maintenance/transfer-leadership" => {
                let sent: Value = serde_json::from_slice(body).unwrap_or_default();
                let Some(to) = (0..MEMBERS).find(|number| sent["targetID"] == id(*number)) else {
                    return (400, json!({"code": 9, "message": "etcdserver: bad leader transferee"}));
                };
                leader.store(to, Ordering::Relaxed);
                json!({"header": header})
            }
            _ => return (404, Value::Null),
        };
        (200, said)
    }
}
