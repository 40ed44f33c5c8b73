//! Tests of connections over real sockets: TLS, HTTP/2 by ALPN, one connection, credentials, and the errors of failed
//! connections. Tests use the clock only for deadlines.

use std::convert::Infallible;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt as _, Full, StreamBody};
use hyper::body::{Frame, Incoming};
use hyper::header::AUTHORIZATION;
use hyper::{Request, Response, Version};
use hyper_util::rt::{TokioExecutor, TokioIo};
use rustls::pki_types::{PrivateKeyDer, PrivatePkcs8KeyDer};
use tempfile::TempDir;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Notify;
use tokio::sync::mpsc::{self, UnboundedReceiver, UnboundedSender};
use tokio_rustls::TlsAcceptor;

use super::fake::{list, namespace, not_found};
use super::{get, shop, team};
use crate::live::{Access, Live};
use crate::{Address, Reader as _, Resource, cause};

/// A request that the server received.
#[derive(Debug, PartialEq, Eq)]
enum Seen {
    Connection { alpn: String, name: Option<String> },
    Request { version: Version, path: String, authorization: String, impersonated: String },
    Closed,
}

/// A path before all others, as Rancher has it in the URLs of its clusters.
const PREFIX: &str = "/k8s/clusters/c-1";

/// An API server on a loopback port, with namespaces of every name but `absent`.
struct Server {
    address: SocketAddr,
    certificate: String,
    seen: UnboundedReceiver<Seen>,
}

impl Server {
    /// Starts a server with these protocols, the preferred one first, and a certificate for these names.
    async fn start(protocols: &[&str], names: &[&str]) -> Self {
        let _ = rustls::crypto::aws_lc_rs::default_provider().install_default();
        let names: Vec<String> = names.iter().map(|&name| name.to_owned()).collect();
        let pair = rcgen::generate_simple_self_signed(names).unwrap();
        let key = PrivateKeyDer::Pkcs8(PrivatePkcs8KeyDer::from(pair.signing_key.serialize_der()));
        let mut tls = rustls::ServerConfig::builder()
            .with_no_client_auth()
            .with_single_cert(vec![pair.cert.der().clone()], key)
            .unwrap();
        tls.alpn_protocols = protocols.iter().map(|protocol| protocol.as_bytes().to_vec()).collect();
        let acceptor = TlsAcceptor::from(Arc::new(tls));
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let (sender, seen) = mpsc::unbounded_channel();
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                tokio::spawn(serve(stream, acceptor.clone(), sender.clone()));
            }
        });
        Self { address, certificate: pair.cert.pem(), seen }
    }

    /// Returns what the server saw next, without the first request of each client.
    async fn next(&mut self) -> Seen {
        loop {
            match self.seen.recv().await.unwrap() {
                Seen::Request { path, .. } if path.ends_with("/version") => {}
                seen => return seen,
            }
        }
    }

    /// Returns the path of the next request, which must have the token and this HTTP version.
    async fn request(&mut self, expected: Version) -> String {
        match self.next().await {
            Seen::Request { version, path, authorization, .. } => {
                assert_eq!((version, authorization.as_str()), (expected, "Bearer secret"));
                path
            }
            other => panic!("{other:?}"),
        }
    }

    fn kubeconfig(&self) -> Kubeconfig {
        kubeconfig(&format!("https://{}", self.address), &self.certificate, "", "token: secret")
    }
}

async fn serve(stream: TcpStream, acceptor: TlsAcceptor, seen: UnboundedSender<Seen>) {
    let Ok(stream) = acceptor.accept(stream).await else { return };
    let alpn = stream.get_ref().1.alpn_protocol().unwrap_or_default();
    let alpn = String::from_utf8(alpn.to_vec()).unwrap();
    let is_h2 = alpn == "h2";
    let name = stream.get_ref().1.server_name().map(ToOwned::to_owned);
    let _ = seen.send(Seen::Connection { alpn, name });
    let (sender, last) = (seen.clone(), Arc::new(Notify::new()));
    let ends = Arc::clone(&last);
    let service = hyper::service::service_fn(move |request: Request<Incoming>| {
        let header =
            |name: &str| request.headers().get(name).map_or("", |value| value.to_str().unwrap()).to_owned();
        let (authorization, impersonated) = (header(AUTHORIZATION.as_str()), header("impersonate-user"));
        let path = request.uri().path_and_query().unwrap().to_string().replace("?&", "?");
        let (response, is_silent) = (answer(&path), path.contains("/silent"));
        if path.contains("/last/") {
            last.notify_one();
        }
        let _ = sender.send(Seen::Request { version: request.version(), path, authorization, impersonated });
        async move {
            if is_silent {
                std::future::pending::<()>().await;
            }
            Ok::<_, Infallible>(response)
        }
    });
    let io = TokioIo::new(stream);
    if is_h2 {
        let http = hyper::server::conn::http2::Builder::new(TokioExecutor::new());
        let mut connection = pin!(http.serve_connection(io, service));
        tokio::select! {
            _ = connection.as_mut() => {}
            () = ends.notified() => {
                connection.as_mut().graceful_shutdown();
                let _ = connection.await;
            }
        }
    } else {
        let _ = hyper::server::conn::http1::Builder::new().serve_connection(io, service).await;
    }
    let _ = seen.send(Seen::Closed);
}

fn answer(path: &str) -> Response<UnsyncBoxBody<Bytes, Infallible>> {
    if path.contains("watch=true") {
        // The response stays open without data.
        let frames = futures_util::stream::pending::<Result<Frame<Bytes>, Infallible>>();
        return Response::new(StreamBody::new(frames).boxed_unsync());
    }
    let path = path.strip_prefix(PREFIX).unwrap_or(path);
    let (status, body) = match path.strip_prefix("/api/v1/namespaces/") {
        Some("absent") => (404, not_found("absent")),
        Some("last") => (200, namespace("last", 1, "z")),
        Some(name) => (200, namespace(name, 1, "a")),
        None => (200, list(1, "", &[])),
    };
    let mut response = Response::builder().status(status);
    if path.ends_with("/last") {
        response = response.header("connection", "close");
    }
    response.body(Full::new(Bytes::from(body.to_string())).boxed_unsync()).unwrap()
}

/// A kubeconfig on disk.
pub(super) struct Kubeconfig {
    _folder: TempDir,
    pub(super) path: PathBuf,
}

impl Kubeconfig {
    pub(super) fn access(&self) -> Access {
        Access { kubeconfig: Some(self.path.clone()), context: None }
    }
}

/// Returns a kubeconfig with a cluster at `url` and these fields of the cluster and the user.
pub(super) fn kubeconfig(url: &str, certificate: &str, cluster: &str, user: &str) -> Kubeconfig {
    let authority = match certificate {
        "" => String::new(),
        certificate => format!("certificate-authority-data: {}, ", STANDARD.encode(certificate)),
    };
    let text = format!(
        "apiVersion: v1\nkind: Config\ncurrent-context: test\n\
         contexts: [{{name: test, context: {{cluster: test, user: test}}}}]\n\
         clusters: [{{name: test, cluster: {{{authority}server: \"{url}\"{cluster}}}}}]\n\
         users: [{{name: test, user: {{{user}}}}}]\n"
    );
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("config");
    std::fs::write(&path, text).unwrap();
    Kubeconfig { _folder: folder, path }
}

async fn connected(kubeconfig: &Kubeconfig) -> Live {
    Live::connect(&kubeconfig.access()).await.unwrap()
}

fn named(name: &str) -> Address<'_> {
    Address { resource: &Resource::NAMESPACES, namespace: "", name }
}

#[tokio::test]
async fn everything_is_streams_of_one_http2_connection() {
    let mut server = Server::start(&["h2", "http/1.1"], &["127.0.0.1"]).await;
    let live = connected(&server.kubeconfig()).await;
    live.watch_namespaces();
    assert_eq!(server.next().await, Seen::Connection { alpn: "h2".to_owned(), name: None });
    assert_eq!(server.request(Version::HTTP_2).await, super::LIST);
    assert_eq!(server.request(Version::HTTP_2).await, super::from(1));
    // The watch stays open during all these requests. A second connection would be seen next.
    let names = ["a", "b", "c"].map(named);
    let (a, b, c, absent) = tokio::join!(
        get(&live, names[0]),
        get(&live, names[1]),
        get(&live, names[2]),
        get(&live, named("absent"))
    );
    assert!([a, b, c].into_iter().all(|answer| team(answer).as_deref() == Some("a")));
    assert_eq!(absent, Ok(None));
    for _ in 0..4 {
        server.request(Version::HTTP_2).await;
    }
    assert!(server.seen.try_recv().is_err());
    assert_eq!(live.readiness().unwrap().name, "namespaces");
}

#[tokio::test]
async fn dropping_live_closes_its_connection() {
    let mut server = Server::start(&["h2"], &["127.0.0.1"]).await;
    let live = connected(&server.kubeconfig()).await;
    live.watch_namespaces();
    server.next().await;
    server.request(Version::HTTP_2).await;
    server.request(Version::HTTP_2).await;
    drop(live);
    assert_eq!(server.next().await, Seen::Closed);
}

#[tokio::test]
async fn a_server_that_speaks_only_http1_is_asked_in_http1() {
    let mut server = Server::start(&["http/1.1"], &["127.0.0.1"]).await;
    let live = connected(&server.kubeconfig()).await;
    assert_eq!(team(get(&live, shop()).await).as_deref(), Some("a"));
    assert_eq!(server.next().await, Seen::Connection { alpn: "http/1.1".to_owned(), name: None });
    assert_eq!(server.request(Version::HTTP_11).await, "/api/v1/namespaces/shop");
}

#[tokio::test]
async fn the_path_of_the_server_precedes_every_path_and_each_request_names_the_impersonated_user() {
    let mut server = Server::start(&["http/1.1"], &["127.0.0.1"]).await;
    for end in ["", "/", "/?x=1"] {
        let url = format!("https://{}{PREFIX}{end}", server.address);
        let live = connected(&kubeconfig(&url, &server.certificate, "", "token: secret, as: reader")).await;
        assert_eq!(team(get(&live, shop()).await).as_deref(), Some("a"), "{end}");
        assert!(matches!(server.next().await, Seen::Connection { .. }));
        let path = format!("{PREFIX}/api/v1/namespaces/shop");
        let (authorization, impersonated) = ("Bearer secret".to_owned(), "reader".to_owned());
        let expected = Seen::Request { version: Version::HTTP_11, path, authorization, impersonated };
        assert_eq!(server.next().await, expected, "{end}");
        drop(live);
        assert_eq!(server.next().await, Seen::Closed);
    }
}

#[tokio::test]
async fn a_closed_connection_is_opened_again() {
    let mut server = Server::start(&["http/1.1"], &["127.0.0.1"]).await;
    let live = connected(&server.kubeconfig()).await;
    assert_eq!(team(get(&live, named("last")).await).as_deref(), Some("z"));
    assert!(matches!(server.next().await, Seen::Connection { .. }));
    server.request(Version::HTTP_11).await;
    assert_eq!(server.next().await, Seen::Closed);
    assert_eq!(team(get(&live, shop()).await).as_deref(), Some("a"));
}

#[tokio::test]
async fn the_name_in_the_certificate_can_be_configured() {
    let mut server = Server::start(&["h2"], &["kubernetes.example"]).await;
    let url = format!("https://{}", server.address);
    let config =
        kubeconfig(&url, &server.certificate, ", tls-server-name: kubernetes.example", "token: secret");
    let live = connected(&config).await;
    assert_eq!(team(get(&live, shop()).await).as_deref(), Some("a"));
    let name = Some("kubernetes.example".to_owned());
    assert_eq!(server.next().await, Seen::Connection { alpn: "h2".to_owned(), name });

    let live = connected(&server.kubeconfig()).await;
    let found = get(&live, shop()).await.unwrap_err();
    assert_eq!(found.code, cause::UNREACHABLE);
    assert!(found.text.contains("certificate not valid for name"), "{}", found.text);
}

#[tokio::test]
async fn a_certificate_of_another_server_fails_the_connection() {
    let server = Server::start(&["h2"], &["127.0.0.1"]).await;
    let other = Server::start(&["h2"], &["127.0.0.1"]).await;
    let wrong = kubeconfig(&format!("https://{}", server.address), &other.certificate, "", "token: secret");
    let found = get(&connected(&wrong).await, shop()).await.unwrap_err();
    assert_eq!(found.code, cause::UNREACHABLE);
    let expected =
        format!("no connection to the API server at https://{}: invalid peer certificate", server.address);
    assert!(found.text.contains(&expected), "{}", found.text);
}

#[tokio::test]
async fn a_closed_port_is_unreachable_and_does_not_fail_the_start() {
    let free = TcpListener::bind("127.0.0.1:0").await.unwrap().local_addr().unwrap();
    let live = connected(&kubeconfig(&format!("https://{free}"), "", "", "token: secret")).await;
    let found = get(&live, shop()).await.unwrap_err();
    assert_eq!(found.code, cause::UNREACHABLE);
    assert!(found.text.contains("refused"), "{}", found.text);
}

#[tokio::test]
async fn a_silent_server_is_a_timeout_at_the_deadline() {
    let silent = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("https://{}", silent.local_addr().unwrap());
    let live = connected(&kubeconfig(&url, "", "", "token: secret")).await;
    let deadline = std::time::Instant::now() + Duration::from_millis(200);
    let found = live.get(shop(), deadline).await.unwrap_err();
    assert_eq!(found.code, cause::TIMEOUT);
    assert!(
        found.text.ends_with(&format!("the API server at {url} did not answer in 0.2 s")),
        "{}",
        found.text
    );
}

#[tokio::test]
async fn a_server_without_tls_is_unreachable() {
    let plain = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("https://{}", plain.local_addr().unwrap());
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = plain.accept().await {
            let _ =
                tokio::io::AsyncWriteExt::write_all(&mut stream, b"HTTP/1.1 400 Bad Request\r\n\r\n").await;
        }
    });
    let found = get(&connected(&kubeconfig(&url, "", "", "token: secret")).await, shop()).await.unwrap_err();
    assert_eq!(found.code, cause::UNREACHABLE, "{}", found.text);
}

#[tokio::test]
async fn a_credential_plugin_is_run() {
    let mut server = Server::start(&["h2"], &["127.0.0.1"]).await;
    let credential = r#"{"apiVersion":"client.authentication.k8s.io/v1","kind":"ExecCredential","status":{"token":"secret"}}"#;
    let user = format!(
        "exec: {{apiVersion: client.authentication.k8s.io/v1, interactiveMode: Never, command: sh, args: [-c, 'echo ''{credential}''']}}"
    );
    let plugin = kubeconfig(&format!("https://{}", server.address), &server.certificate, "", &user);
    let live = connected(&plugin).await;
    assert_eq!(team(get(&live, shop()).await).as_deref(), Some("a"));
    server.next().await;
    server.request(Version::HTTP_2).await;
}

/// Requests a page of `count` members at once. Returns the number of connections that the server has seen, and the HTTP
/// version.
async fn crowd(server: &mut Server, live: &Live, count: usize) -> (usize, Version) {
    use crate::fleet::Cluster;
    let members: Vec<_> = (0..count).map(|at| Cluster::Member(format!("m{at}").into())).collect();
    let resource = Resource::NAMESPACES;
    let deadline = (tokio::time::Instant::now() + Duration::from_secs(30)).into_std();
    let query = super::member_requests::query(&resource, "");
    let answers =
        futures_util::future::join_all(members.iter().map(|member| live.list(member, query, deadline))).await;
    for answer in answers {
        answer.unwrap();
    }
    let (mut connections, mut asked, mut spoken) = (0, 0, Version::HTTP_09);
    while asked < count {
        match server.next().await {
            Seen::Connection { .. } => connections += 1,
            Seen::Request { version, authorization, .. } => {
                assert_eq!(authorization, "Bearer secret");
                spoken = version;
                asked += 1;
            }
            Seen::Closed => {}
        }
    }
    (connections, spoken)
}

#[tokio::test]
async fn many_requests_share_four_connections_and_single_gets_use_another() {
    let mut server = Server::start(&["h2", "http/1.1"], &["127.0.0.1"]).await;
    let live = connected(&server.kubeconfig()).await;
    assert_eq!(crowd(&mut server, &live, 1000).await, (crate::live::MEMBER_CLIENTS, Version::HTTP_2));
    assert_eq!(crowd(&mut server, &live, 1000).await, (0, Version::HTTP_2));
    assert_eq!(team(get(&live, shop()).await).as_deref(), Some("a"));
    assert_eq!(server.next().await, Seen::Connection { alpn: "h2".to_owned(), name: None });
}

#[tokio::test]
async fn a_single_request_opens_a_single_connection() {
    let mut server = Server::start(&["h2"], &["127.0.0.1"]).await;
    let live = connected(&server.kubeconfig()).await;
    for expected in [1, 0, 0] {
        assert_eq!(crowd(&mut server, &live, 1).await, (expected, Version::HTTP_2));
    }
}

/// Requests a page of a member cluster.
async fn ask_member(live: &Live, name: &str) -> crate::fleet::PageResult {
    let member = crate::fleet::Cluster::Member(name.into());
    let deadline = (tokio::time::Instant::now() + Duration::from_secs(30)).into_std();
    live.list(&member, super::member_requests::query(&Resource::NAMESPACES, ""), deadline).await
}

#[tokio::test]
async fn a_closed_connection_to_member_clusters_is_opened_again() {
    let mut server = Server::start(&["h2"], &["127.0.0.1"]).await;
    let live = connected(&server.kubeconfig()).await;
    for _ in 0..3 {
        // A request that is sent before the client has read the end of the last connection is lost.
        if ask_member(&live, "last").await.is_err() {
            ask_member(&live, "last").await.unwrap();
        }
        assert!(matches!(server.next().await, Seen::Connection { .. }));
        server.request(Version::HTTP_2).await;
        assert_eq!(server.next().await, Seen::Closed);
    }
}

/// Lists the fleet, and then requests a page of the only context of a kubeconfig.
async fn ask_context(live: &Live) -> crate::fleet::PageResult {
    use crate::fleet::Fleet;
    let deadline = (tokio::time::Instant::now() + Duration::from_secs(30)).into_std();
    let members = live.members(&Fleet::Contexts(vec!["test".to_owned()]), deadline).await.unwrap();
    let resource = Resource::NAMESPACES;
    live.list(&members[0].cluster, super::member_requests::query(&resource, ""), deadline).await
}

#[tokio::test]
async fn a_changed_context_gets_a_new_connection_and_an_unchanged_one_keeps_its_own() {
    let mut old = Server::start(&["h2"], &["127.0.0.1"]).await;
    let mut new = Server::start(&["h2"], &["127.0.0.1"]).await;
    let config = old.kubeconfig();
    let live = connected(&config).await;
    ask_context(&live).await.unwrap();
    assert!(matches!(old.next().await, Seen::Connection { .. }));
    old.request(Version::HTTP_2).await;
    ask_context(&live).await.unwrap();
    old.request(Version::HTTP_2).await;
    std::fs::copy(new.kubeconfig().path, &config.path).unwrap();
    ask_context(&live).await.unwrap();
    assert!(matches!(new.next().await, Seen::Connection { .. }));
    new.request(Version::HTTP_2).await;
    assert!(!matches!(old.seen.try_recv(), Ok(Seen::Request { .. })));
}

#[tokio::test]
async fn a_certificate_that_is_replaced_in_its_file_makes_a_new_client() {
    let server = Server::start(&["h2"], &["127.0.0.1"]).await;
    let other = Server::start(&["h2"], &["127.0.0.1"]).await;
    let folder = tempfile::tempdir().unwrap();
    let authority = folder.path().join("ca.crt");
    std::fs::write(&authority, &other.certificate).unwrap();
    let cluster = format!(", certificate-authority: '{}'", authority.display());
    let config = kubeconfig(&format!("https://{}", server.address), "", &cluster, "token: secret");
    let live = connected(&config).await;
    assert_eq!(ask_context(&live).await.unwrap_err().code, cause::UNREACHABLE);
    // Its length differs, in case the clock has only seconds.
    std::fs::write(&authority, format!("# new\n{}", server.certificate)).unwrap();
    ask_context(&live).await.unwrap();
}

#[tokio::test]
async fn a_plugin_that_fails_is_not_run_again_at_once_unless_the_context_changes() {
    let server = Server::start(&["h2"], &["127.0.0.1"]).await;
    let folder = tempfile::tempdir().unwrap();
    let runs = folder.path().join("runs");
    let user = |word: &str| {
        format!(
            "exec: {{apiVersion: client.authentication.k8s.io/v1, interactiveMode: Never, command: sh, args: [-c, 'echo {word} >> {}; exit 1']}}",
            runs.display()
        )
    };
    let url = format!("https://{}", server.address);
    let config = server.kubeconfig();
    let live = connected(&config).await;
    let mut seen = Vec::new();
    for word in ["a", "a", "b"] {
        std::fs::copy(kubeconfig(&url, &server.certificate, "", &user(word)).path, &config.path).unwrap();
        assert_eq!(ask_context(&live).await.unwrap_err().code, cause::CREDENTIALS);
        seen.push(std::fs::read_to_string(&runs).unwrap());
    }
    // kube runs it once for a certificate and once for a token.
    assert_eq!(seen, ["a\na\n", "a\na\n", "a\na\nb\nb\n"]);
}

#[tokio::test]
async fn the_clients_of_the_control_plane_are_replaced_when_its_kubeconfig_changes() {
    let mut old = Server::start(&["h2"], &["127.0.0.1"]).await;
    let mut new = Server::start(&["h2"], &["127.0.0.1"]).await;
    let config = old.kubeconfig();
    let live = connected(&config).await;
    assert_eq!(team(get(&live, shop()).await).as_deref(), Some("a"));
    assert!(matches!(old.next().await, Seen::Connection { .. }));
    old.request(Version::HTTP_2).await;
    std::fs::copy(new.kubeconfig().path, &config.path).unwrap();
    tokio::time::pause();
    tokio::time::advance(Duration::from_secs(31)).await;
    tokio::time::resume();
    while !live.server().ends_with(&format!("{}/", new.address)) {
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    assert_eq!(team(get(&live, shop()).await).as_deref(), Some("a"));
    assert!(matches!(new.next().await, Seen::Connection { .. }));
    new.request(Version::HTTP_2).await;
    assert!(!matches!(old.seen.try_recv(), Ok(Seen::Request { .. })));
}

#[tokio::test]
async fn connections_are_replaced_at_their_maximum_age_although_the_server_answers() {
    let mut server = Server::start(&["h2"], &["127.0.0.1"]).await;
    let config = server.kubeconfig();
    let live = connected(&config).await;
    for _ in 0..2 {
        for expected in [1, 0] {
            assert_eq!(crowd(&mut server, &live, 1).await, (expected, Version::HTTP_2));
        }
        // A context has a client of its own.
        for expected in [1, 0] {
            ask_context(&live).await.unwrap();
            let mut connections = 0;
            loop {
                match server.next().await {
                    Seen::Connection { .. } => connections += 1,
                    Seen::Request { .. } => break,
                    Seen::Closed => {}
                }
            }
            assert_eq!(connections, expected);
        }
        tokio::time::pause();
        tokio::time::advance(Duration::from_secs(301)).await;
        tokio::time::resume();
    }
}
