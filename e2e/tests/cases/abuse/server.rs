//! A pod that reaches Durward's port and has no permission: half-sent requests, and reviews with huge names.

use std::io::{Read as _, Write as _};
use std::net::{IpAddr, SocketAddr, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Instant;

use e2e::api::Answer;
use e2e::certificates::Ca;
use e2e::prelude::*;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::{ClientConfig, ClientConnection, RootCertStore, StreamOwned};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpSocket;
use tokio::runtime::Runtime;

use crate::cases::environment::{eventually_ok, scratch};

/// The default of `server.limits.maxConnections`.
const LIMIT: usize = 512;

/// Connections above the limit, so that each place is taken again at once.
const MANY_MORE: usize = 32;

/// As many as the server can tell from the API server's if all have the same address.
const SOME_MORE: usize = 8;

/// Pause before a closed connection is opened again.
const PAUSE: Duration = Duration::from_millis(250);

/// The timeout of the deletion guard's webhook.
const TIMEOUT: Duration = Duration::from_secs(10);

/// Deletions at once, so that the API server opens connections.
const DELETIONS: usize = 6;

const GUARDS: &str = "  deletion: {fleet: none, scope: all}";

const BOTH_GUARDS: &str = "  deletion: {fleet: none, scope: all}
  etcd: {clusters: [{namespaceSelector: {matchLabels: {guarded: huge}}, selector: app=etcd}]}";

/// The part of a request after which the attacker is silent.
#[derive(Debug, Clone, Copy)]
enum Part {
    Handshake,
    Head,
    Body,
}

/// Connections that are opened again whenever the server closes them. They end when this is dropped.
struct Attack {
    runtime: Option<Runtime>,
    /// Connections on which the whole part is sent.
    silent: Arc<AtomicUsize>,
}

impl Attack {
    fn start(durward: &Durward, ca: &Ca, part: Part, addresses: &[[u8; 4]], more: usize) -> Result<Self> {
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
        let silent = Arc::<AtomicUsize>::default();
        let connector = tokio_rustls::TlsConnector::from(Arc::new(client(ca)?));
        for number in 0..LIMIT + more {
            let from =
                addresses.get(number % addresses.len()).copied().context("an attacker has no address")?;
            let (to, connector, silent) = (durward.reviews(), connector.clone(), Arc::clone(&silent));
            runtime.spawn(async move {
                loop {
                    // Each error is the end of a connection.
                    let _ = hold(from.into(), to, part, &connector, &silent).await;
                    tokio::time::sleep(PAUSE).await;
                }
            });
        }
        Ok(Self { runtime: Some(runtime), silent })
    }
}

impl Drop for Attack {
    fn drop(&mut self) {
        if let Some(runtime) = self.runtime.take() {
            runtime.shutdown_background();
        }
    }
}

/// Sends a part of a request, and waits until the server closes the connection.
async fn hold(
    from: IpAddr,
    to: SocketAddr,
    part: Part,
    connector: &tokio_rustls::TlsConnector,
    silent: &AtomicUsize,
) -> std::io::Result<()> {
    let socket = TcpSocket::new_v4()?;
    socket.bind((from, 0).into())?;
    let mut tcp = socket.connect(to).await?;
    let mut rest = Vec::new();
    let request: &[u8] = match part {
        Part::Handshake => {
            // The head of a TLS record with a ClientHello.
            tcp.write_all(&[0x16, 3, 1, 2, 0, 1]).await?;
            silent.fetch_add(1, Ordering::Relaxed);
            let closed = tcp.read_to_end(&mut rest).await.map(drop);
            silent.fetch_sub(1, Ordering::Relaxed);
            return closed;
        }
        Part::Head => b"POST /deletion?timeout=10s HTTP/1.1\r\nHost: durw",
        Part::Body => {
            b"POST /deletion?timeout=10s HTTP/1.1\r\nHost: durward\r\nContent-Type: application/json\r\nContent-Length: 2000\r\n\r\n{\"kind\":"
        }
    };
    let mut stream = connector.connect(ServerName::from(to.ip()), tcp).await?;
    stream.write_all(request).await?;
    stream.flush().await?;
    silent.fetch_add(1, Ordering::Relaxed);
    let closed = stream.read_to_end(&mut rest).await.map(drop);
    silent.fetch_sub(1, Ordering::Relaxed);
    closed
}

fn client(ca: &Ca) -> Result<ClientConfig> {
    let mut roots = RootCertStore::empty();
    roots.add(CertificateDer::from_pem_slice(ca.pem().as_bytes())?)?;
    Ok(ClientConfig::builder().with_root_certificates(roots).with_no_client_auth())
}

/// Deletes namespaces while all connections of Durward are held, with kubectl and several at once.
fn deletions_are_answered(
    context: &'static TestContext,
    part: Part,
    addresses: &[[u8; 4]],
    more: usize,
) -> Result<()> {
    let cluster = context.cluster(&scratch())?;
    let (installation, durward) = Installation::start(context, &cluster, GUARDS, "durward-attacked")?;
    await_deletion_guard(&cluster, &durward)?;
    let attack = Attack::start(&durward, installation.ca(), part, addresses, more)?;
    until("all connections to be held", || {
        let held = durward.metrics()?.value("durward_connections", &[])?;
        let silent = attack.silent.load(Ordering::Relaxed);
        let are_held = held > LIMIT as f64 - 0.5 && silent >= LIMIT - SOME_MORE;
        Ok((are_held, format!("{held} connections, {silent} of them silent")))
    })?;
    let namespaces = (0..=DELETIONS).map(|_| cluster.namespace("attacked")).collect::<Result<Vec<_>>>()?;
    let (first, others) = namespaces.split_first().context("no namespace")?;
    let before = reviews(&durward)?;
    eventually_ok("a deletion with kubectl", || {
        let began = Instant::now();
        let deleted = cluster.kubectl().run(&["delete", "namespace", first.name(), "--wait=false"])?;
        ensure!(began.elapsed() < TIMEOUT, "kubectl delete took {:?}", began.elapsed());
        deleted.succeeded().map(drop)
    })?;
    let began = Instant::now();
    std::thread::scope(|scope| {
        let deletions: Vec<_> = others
            .iter()
            .map(|namespace| {
                let path = format!("/api/v1/namespaces/{}", namespace.name());
                let api = cluster.api();
                scope.spawn(move || is_answered(&api.delete(&path)?))
            })
            .collect();
        deletions.into_iter().try_for_each(|deletion| {
            deletion.join().map_err(|_| anyhow::Error::msg("a deletion panicked"))?
        })
    })?;
    ensure!(began.elapsed() < TIMEOUT, "{DELETIONS} deletions took {:?}", began.elapsed());
    let reviewed = reviews(&durward)? - before;
    ensure!(reviewed > DELETIONS as f64 + 0.5, "only {reviewed} deletions were reviewed");
    Ok(())
}

/// Checks that Durward answered. On a machine that is busy with the attack, its own read of the API server can take too long.
fn is_answered(response: &Answer) -> Result<()> {
    let text = response.body.to_string();
    ensure!(
        response.status == 200 || text.contains("Next: retry in a few seconds"),
        "{}: {text}",
        response.status
    );
    Ok(())
}

fn await_deletion_guard(cluster: &Cluster, durward: &Durward) -> Result<()> {
    let probe = cluster.namespace("probe")?;
    let path = format!("/api/v1/namespaces/{}?dryRun=All", probe.name());
    eventually_ok("a deletion to be reviewed", || {
        let before = reviews(durward)?;
        cluster.api().delete(&path)?.succeeded()?;
        ensure!(reviews(durward)? > before + 0.5, "the deletion was not reviewed");
        Ok(())
    })
}

fn reviews(durward: &Durward) -> Result<f64> {
    Ok(durward.metrics()?.sum("durward_reviews_total", &[("guard", "deletion")]))
}

#[e2e::case]
fn half_sent_bodies_of_one_address_do_not_keep_the_api_server_out(
    context: &'static TestContext,
) -> Result<()> {
    deletions_are_answered(context, Part::Body, &[[127, 0, 0, 2]], SOME_MORE)
}

/// As behind SNAT: all callers have the address of the API server.
#[e2e::case]
fn half_sent_bodies_of_the_same_address_do_not_keep_the_api_server_out(
    context: &'static TestContext,
) -> Result<()> {
    deletions_are_answered(context, Part::Body, &[[127, 0, 0, 1]], SOME_MORE)
}

#[e2e::case]
fn half_sent_bodies_of_several_addresses_do_not_keep_the_api_server_out(
    context: &'static TestContext,
) -> Result<()> {
    let addresses: Vec<[u8; 4]> = (2..10).map(|last| [127, 0, 0, last]).collect();
    deletions_are_answered(context, Part::Body, &addresses, MANY_MORE)
}

#[e2e::case]
fn half_sent_heads_do_not_keep_the_api_server_out(context: &'static TestContext) -> Result<()> {
    deletions_are_answered(context, Part::Head, &[[127, 0, 0, 2]], MANY_MORE)
}

#[e2e::case]
fn half_done_handshakes_do_not_keep_the_api_server_out(context: &'static TestContext) -> Result<()> {
    deletions_are_answered(context, Part::Handshake, &[[127, 0, 0, 2]], MANY_MORE)
}

/// Hostile reviews, half of them to each guard that reads a cluster. They have six times the limit of the memory.
const REVIEWS: usize = 60;

/// Length of a value, so that the body has almost 10 MiB, the limit.
const LENGTH: usize = (10 << 20) - 4_096;

/// Limit of the resident memory, in KiB.
const MEMORY: u64 = 100 << 10;

/// The places of the long value in the old object, and the status of the answer.
const PLACES: [(&str, &str); 4] = [
    ("/metadata/name", "400"),
    ("/metadata/uid", "400"),
    ("/metadata/labels/app", "200"),
    ("/metadata/ownerReferences/0/name", "200"),
];

#[e2e::case(Slow)]
fn reviews_of_ten_mebibytes_leave_no_memory_behind(context: &'static TestContext) -> Result<()> {
    let cluster = context.cluster(&scratch())?;
    let (installation, durward) = Installation::start(context, &cluster, BOTH_GUARDS, "durward-filled")?;
    await_deletion_guard(&cluster, &durward)?;
    let db = cluster.labelled_namespace("db", &[("guarded", "huge")])?;
    let before = resident(&durward)?;
    let mut attacker = Attacker::connect(&durward, installation.ca())?;
    let (pod, namespace, long) = (pod(db.name()), namespace(), "a".repeat(LENGTH));
    for (number, (pointer, status)) in PLACES.iter().cycle().take(REVIEWS / 2).enumerate() {
        let pod = review("pods", "Pod", db.name(), &pod, pointer)?;
        let namespace = review("namespaces", "Namespace", "", &namespace, pointer)?;
        for (path, review) in [("/etcd", pod), ("/deletion", namespace)] {
            // Each value is another one.
            let short = format!("x{number}");
            let body = review.replace(LONG, &format!("{short}-{long}")).replace(SHORT, &short);
            let answer = attacker.post(path, &body)?;
            ensure!(answer.starts_with(&format!("HTTP/1.1 {status} ")), "{path} {pointer}: {answer}");
        }
    }
    // The server can free memory after its answer.
    until("the memory to be free", || {
        let now = resident(&durward)?;
        Ok((now < MEMORY, format!("{now} KiB are resident after {REVIEWS} reviews, and {before} before")))
    })?;
    let path = format!("/api/v1/namespaces/{}", cluster.namespace("after")?.name());
    cluster.api().delete(&path)?.succeeded().map(drop)
}

/// Returns the resident memory in KiB.
pub(in crate::cases) fn resident(durward: &Durward) -> Result<u64> {
    let status = std::fs::read_to_string(format!("/proc/{}/status", durward.pid()))?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).context("no VmRSS")?;
    Ok(line.trim().trim_end_matches("kB").trim().parse()?)
}

/// The places of a long value and of short ones in a review.
const LONG: &str = "LONG";
const SHORT: &str = "SHORT";

/// Returns a review of the deletion of this object, with the place of a long value. The request has no name, as in a deletion of a
/// collection, so the body has a long name once.
fn review(resource: &str, kind: &str, namespace: &str, old: &Value, pointer: &str) -> Result<String> {
    let mut old = old.clone();
    *old.pointer_mut(pointer).with_context(|| format!("no {pointer}"))? = LONG.into();
    let review = json!({
        "apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview",
        "request": {
            "uid": "0ddba11", "operation": "DELETE", "namespace": namespace, "name": "",
            "kind": {"group": "", "version": "v1", "kind": kind},
            "resource": {"group": "", "version": "v1", "resource": resource},
            "userInfo": {"username": "mallory"}, "options": {"gracePeriodSeconds": 0},
            "oldObject": old,
        },
    });
    Ok(review.to_string())
}

fn owner() -> Value {
    json!([{"apiVersion": "apps/v1", "kind": "StatefulSet", "name": "etcd", "uid": SHORT, "controller": true}])
}

/// A pod that is being deleted: the guard asks its member, and needs no reservation for it.
fn pod(namespace: &str) -> Value {
    let ready = json!([{"name": "etcd", "ready": true, "state": {"running": {}}}]);
    json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": {
            "name": SHORT, "namespace": namespace, "uid": SHORT, "labels": {"app": "etcd"},
            "deletionTimestamp": "2026-01-01T00:00:00Z", "deletionGracePeriodSeconds": 30, "ownerReferences": owner(),
        },
        "spec": {"containers": [{"name": "etcd", "image": "etcd:3.6"}]},
        "status": {"phase": "Running", "podIP": "127.0.0.1", "containerStatuses": ready},
    })
}

fn namespace() -> Value {
    json!({
        "apiVersion": "v1", "kind": "Namespace",
        "metadata": {"name": SHORT, "uid": SHORT, "labels": {"app": "etcd"}, "ownerReferences": owner()},
    })
}

/// A client that posts reviews on one connection.
pub(in crate::cases) struct Attacker(StreamOwned<ClientConnection, TcpStream>);

impl Attacker {
    pub(in crate::cases) fn connect(durward: &Durward, ca: &Ca) -> Result<Self> {
        let to = durward.reviews();
        let connection = ClientConnection::new(Arc::new(client(ca)?), ServerName::from(to.ip()))?;
        let tcp = TcpStream::connect(to)?;
        tcp.set_nodelay(true)?;
        tcp.set_read_timeout(Some(Duration::from_secs(60)))?;
        Ok(Self(StreamOwned::new(connection, tcp)))
    }

    /// Posts a body and returns the answer.
    pub(in crate::cases) fn post(&mut self, path: &str, body: &str) -> Result<String> {
        let length = body.len();
        let head = format!(
            "POST {path}?timeout=10s HTTP/1.1\r\nHost: durward\r\nContent-Type: application/json\r\nContent-Length: {length}\r\n\r\n"
        );
        self.0.write_all(head.as_bytes())?;
        self.0.write_all(body.as_bytes())?;
        self.0.flush()?;
        let mut answer = Vec::new();
        let mut piece = [0; 16 << 10];
        loop {
            let read = self.0.read(&mut piece)?;
            ensure!(read > 0, "the connection ended after {} bytes of an answer", answer.len());
            answer.extend_from_slice(piece.get(..read).unwrap_or_default());
            let text = String::from_utf8_lossy(&answer);
            let Some((head, rest)) = text.split_once("\r\n\r\n") else { continue };
            let length = head.lines().find_map(|line| {
                line.to_ascii_lowercase().strip_prefix("content-length: ")?.parse::<usize>().ok()
            });
            if rest.len() >= length.context("an answer without a length")? {
                return Ok(text.into_owned());
            }
        }
    }
}
