//! Measures resident memory of `durward serve` while it watches many namespaces.
//!
//! The API server is simulated. It has up to 10,000 namespaces with the metadata that platforms write. After the first List, it sends a
//! change of each of them and ends the watch with 410. Durward lists all of them again, with their changes.

use std::convert::Infallible;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use futures_util::stream;
use http_body_util::combinators::BoxBody;
use http_body_util::{BodyExt as _, Full, StreamBody};
use hyper::body::{Bytes, Frame, Incoming};
use hyper::header::{CONTENT_TYPE, HeaderValue};
use hyper::service::service_fn;
use hyper::{Request, Response};
use hyper_util::rt::{TokioExecutor, TokioIo};
use serde_json::{Value, json};
use tokio::net::{TcpListener, TcpStream};
use tokio::runtime::Runtime;
use tokio_rustls::TlsAcceptor;

use crate::figures::{Curve, Limit, Row, Samples, Unit};
use crate::fleet::{acceptor, kubeconfig};
use crate::report::Report;
use crate::server::settled;
use crate::servers::{Folder, Server};
use crate::{Result, is_short, rounds};

/// Numbers of namespaces. The last one has a limit.
const NAMESPACES: [usize; 4] = [1_000, 2_000, 5_000, 10_000];
/// Limit of peak resident memory: 60 MB.
const LIMIT: f64 = 60e6;
/// Limit of the time until all events are read. It only ends a run that hangs.
const WITHIN: Duration = Duration::from_secs(60);

/// Measures the memory for each number of namespaces.
pub(crate) fn measure(folder: &Folder, report: &mut Report) -> Result<()> {
    const DURWARD: &str = "Durward";
    let [mut resident, mut peak] = [const { Samples::NONE }; 2];
    let y = ("peak resident memory", Unit::Bytes);
    let mut curve = Curve::new("namespaces", "Memory by watched namespaces", "namespaces", y, &[DURWARD]);
    for _ in 0..rounds() {
        for count in NAMESPACES {
            let (now, most) = watch_all(folder, count)?;
            curve.add(DURWARD, count as f64, most);
            if Some(&count) == NAMESPACES.last() {
                resident.push(now);
                peak.push(most);
            }
        }
    }
    report.section(
        "Memory while namespaces are watched",
        &format!(
            "The lxcfs guard watches the labels of namespaces. The simulated API server has namespaces with {} B of metadata: ten labels, \
             six annotations and the fields of three managers. `durward serve` lists them, reads a change of each of them, and lists them \
             again, as after an expired watch.",
            namespace(0, 1).to_string().len()
        ),
    );
    let most = NAMESPACES.last().copied().unwrap_or_default();
    report.row(Row::bytes(format!("{most} namespaces, peak"), peak).limit(Limit::AtMost(LIMIT)));
    report.row(Row::bytes(format!("{most} namespaces, afterwards"), resident));
    report.curve(curve);
    Ok(())
}

/// Returns the resident memory after two lists and a change of each namespace, and its peak.
fn watch_all(folder: &Folder, count: usize) -> Result<(f64, f64)> {
    let server = Simulator::start(folder, count)?;
    let durward = Server::watching(folder, &server.kubeconfig)?;
    let began = Instant::now();
    // The second watch begins after two lists and all changes.
    while server.state.watches.load(Ordering::Relaxed) < 2 {
        if began.elapsed() > WITHIN {
            return Err(format!("durward did not read all events within {WITHIN:?}").into());
        }
        std::thread::sleep(Duration::from_millis(if is_short() { 5 } else { 50 }));
    }
    Ok((settled(&durward)?, durward.peak()?))
}

/// A simulated API server. It stops when this is dropped.
struct Simulator {
    kubeconfig: PathBuf,
    state: Arc<State>,
    _runtime: Runtime,
}

struct State {
    namespaces: usize,
    watches: AtomicUsize,
}

type Answer = Response<BoxBody<Bytes, Infallible>>;

impl Simulator {
    fn start(folder: &Folder, namespaces: usize) -> Result<Self> {
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build()?;
        let listener = runtime.block_on(TcpListener::bind(SocketAddr::from((Ipv4Addr::LOCALHOST, 0))))?;
        let kubeconfig = kubeconfig(folder, listener.local_addr()?)?;
        let state = Arc::new(State { namespaces, watches: AtomicUsize::new(0) });
        runtime.spawn(accept(listener, acceptor(folder)?, Arc::clone(&state)));
        Ok(Self { kubeconfig, state, _runtime: runtime })
    }
}

async fn accept(listener: TcpListener, tls: TlsAcceptor, state: Arc<State>) {
    while let Ok((stream, _)) = listener.accept().await {
        tokio::spawn(serve(stream, tls.clone(), Arc::clone(&state)));
    }
}

/// Serves a connection. Its client can close it at any time.
async fn serve(stream: TcpStream, tls: TlsAcceptor, state: Arc<State>) -> Result<()> {
    let stream = tls.accept(stream).await?;
    let service = service_fn(|request: Request<Incoming>| {
        let answer = state.answer(request.uri().path(), request.uri().query().unwrap_or_default());
        async move { Ok::<_, Infallible>(answer) }
    });
    let server = hyper::server::conn::http2::Builder::new(TokioExecutor::new());
    Ok(server.serve_connection(TokioIo::new(stream), service).await?)
}

impl State {
    fn answer(&self, path: &str, query: &str) -> Answer {
        let parameter =
            |key: &str| query.split('&').find_map(|pair| pair.strip_prefix(key)?.strip_prefix('='));
        if path != "/api/v1/namespaces" {
            return respond(
                404,
                &json!({"kind": "Status", "apiVersion": "v1", "status": "Failure", "code": 404}),
            );
        }
        if parameter("watch").is_some() {
            let number = self.watches.fetch_add(1, Ordering::Relaxed);
            return watch(number, self.namespaces);
        }
        let number = |key: &str| parameter(key).and_then(|text| text.parse::<usize>().ok());
        let start = number("continue").unwrap_or_default();
        let end = self.namespaces.min(start + number("limit").unwrap_or(self.namespaces));
        let version = 1 + self.watches.load(Ordering::Relaxed);
        let items: Vec<_> = (start..end).map(|index| namespace(index, version)).collect();
        let mut metadata = json!({"resourceVersion": "1"});
        if end < self.namespaces {
            metadata["continue"] = end.to_string().into();
        }
        respond(
            200,
            &json!({"kind": "PartialObjectMetadataList", "apiVersion": "meta.k8s.io/v1", "metadata": metadata, "items": items}),
        )
    }
}

fn respond(code: u16, body: &Value) -> Answer {
    let mut answer = Response::new(Full::new(Bytes::from(body.to_string())).boxed());
    *answer.status_mut() = hyper::StatusCode::from_u16(code).unwrap_or_default();
    answer.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    answer
}

/// Returns a watch. The first one sends a change of each namespace and expires; a later one stays open.
fn watch(number: usize, namespaces: usize) -> Answer {
    let event = |kind: &str, object: &Value| {
        let line = format!("{}\n", json!({"type": kind, "object": object}));
        Ok(Frame::data(Bytes::from(line)))
    };
    let changes = (0..namespaces).map(move |index| event("MODIFIED", &namespace(index, 2)));
    let expired = json!({"kind": "Status", "apiVersion": "v1", "status": "Failure", "reason": "Expired", "code": 410, "message": "too old resource version"});
    let events = changes.chain([event("ERROR", &expired)]);
    let body = if number == 0 {
        StreamBody::new(stream::iter(events)).boxed()
    } else {
        StreamBody::new(stream::pending()).boxed()
    };
    let mut answer = Response::new(body);
    answer.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    answer
}

/// Returns the metadata of a namespace as a platform makes it: ten labels, six annotations, three field managers.
fn namespace(index: usize, version: usize) -> Value {
    let name = format!("team-{:03}-service-{index:05}", index % 250);
    let keys = |count: usize| (0..count).map(|number| format!("platform.example.org/key-{number}"));
    let mut labels: serde_json::Map<_, _> =
        keys(9).map(|key| (key, json!(format!("value-{index}-{version}")))).collect();
    labels.insert("kubernetes.io/metadata.name".to_owned(), json!(name));
    let mut annotations: serde_json::Map<_, _> =
        keys(5).map(|key| (key, json!(format!("a longer text about namespace {index}")))).collect();
    let applied =
        json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name, "labels": labels}});
    annotations
        .insert("kubectl.kubernetes.io/last-applied-configuration".to_owned(), json!(applied.to_string()));
    let fields = |part: &str, count| {
        let owned: serde_json::Map<_, _> = keys(count).map(|key| (format!("f:{key}"), json!({}))).collect();
        json!({"f:metadata": {part: owned}})
    };
    let managed = |manager: &str, fields: Value| {
        json!({"manager": manager, "operation": "Update", "apiVersion": "v1", "time": "2026-11-22T10:00:00Z",
            "fieldsType": "FieldsV1", "fieldsV1": fields})
    };
    json!({"kind": "PartialObjectMetadata", "apiVersion": "meta.k8s.io/v1", "metadata": {
        "name": name, "uid": format!("3c5b3f1d-52b1-4b8e-bb5a-{index:012x}"), "resourceVersion": version.to_string(),
        "creationTimestamp": "2026-11-22T10:00:00Z", "labels": labels, "annotations": annotations,
        "managedFields": [managed("kubectl-client-side-apply", fields("f:labels", 9)),
            managed("platform-controller", fields("f:annotations", 5)), managed("rancher", fields("f:labels", 2))]}})
}
