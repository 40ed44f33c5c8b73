//! The clients of one API server: kube's authentication over HTTP/2, and their replacement when the kubeconfig changes.
//!
//! kube's own connector (`kube-client` 5.0, `client/builder.rs`) offers HTTP/1.1 only, so each request would need a connection. Its
//! retries (15 on 429, 503 and 504) are left out: a review has a deadline, and a watch its own backoff.
//!
//! API servers accept 100 requests on a connection at once (`--http2-max-streams-per-connection`), so a fleet behind one API server is
//! read by several clients. Gets, writes and the watch have a client of their own, which those requests can't delay.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use http_body_util::{BodyExt as _, Limited};
use hyper::{Request, Response};
use hyper_rustls::{FixedServerNameResolver, HttpsConnectorBuilder};
use hyper_timeout::TimeoutConnector;
use hyper_util::client::legacy::Client as HttpClient;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::{TokioExecutor, TokioTimer};
use kube::client::{Body, ConfigExt as _};
use kube::{Client, Config};
use rustls::pki_types::ServerName;
use tokio::sync::{OnceCell, watch};
use tokio::time::{Instant, sleep, timeout};
use tower::{BoxError, ServiceBuilder, service_fn};

use super::access::Access;
use super::expiry::{CredentialKind, Expiry};
use super::failure::SERVER;
use crate::lock;
use config::{Problem, with_sources};

/// Clients for the member clusters behind one API server.
pub(super) const MEMBER_CLIENTS: usize = 4;

/// Requests of a client at once: what every API server accepts.
pub(super) const REQUESTS_PER_CLIENT: usize = 100;

/// TCP and TLS together. On one continent a handshake takes well under a second; a review has some seconds in all.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);

/// A connection whose peer vanished without a FIN (power loss, a firewall that forgot it) closes 20 s after the last byte.
const PING_INTERVAL: Duration = Duration::from_secs(10);

/// The interval of TCP keepalives, as in client-go.
const KEEPALIVE: Duration = Duration::from_secs(30);

/// Time until the answer to a request of kube's `Api` begins, for callers without a deadline of their own.
const HEADERS_TIMEOUT: Duration = Duration::from_secs(60);

/// Credential plugins send requests to a cloud. One that waits for input cannot be used by a server.
pub(super) const CREDENTIALS_TIMEOUT: Duration = Duration::from_secs(30);

/// The answer to the first request has some hundred bytes.
const BODY_LIMIT: usize = 64 << 10;

/// The age at which a client gets new connections. By then, the name of an API server can lead to another cluster, while the old one
/// still answers.
const MAX_AGE: Duration = Duration::from_secs(300);

/// Time between two reads of a kubeconfig and its files.
const RENEW_INTERVAL: Duration = Duration::from_secs(30);

/// A client that many requests use at once.
///
/// hyper-util opens a connection for each waiting request until one has negotiated HTTP/2. So the first request is sent alone.
pub(super) struct SharedClient {
    namespace: String,
    make: MakeClient,
    current: Mutex<Arc<AgedClient>>,
    /// The age at which `current` is replaced.
    max_age: Duration,
}

type MakeClient = Arc<dyn Fn() -> Client + Send + Sync>;

struct AgedClient {
    client: Client,
    since: Instant,
    is_open: OnceCell<()>,
}

/// The clients of one API server.
pub(super) struct Connections {
    /// The URL of the API server.
    pub(super) url: String,
    /// For gets, writes and the watch.
    pub(super) own: Arc<SharedClient>,
    /// For requests to the clusters behind the API server. Without these, they use the other one.
    pub(super) members: Vec<Arc<SharedClient>>,
    /// The name in messages: `the API server at https://10.0.0.1:6443`.
    pub(super) name: Arc<str>,
    /// The expiry of the client certificate.
    pub(super) expiry: Option<Expiry>,
}

impl SharedClient {
    /// Sends requests over the clients that `make` returns, each for a limited time.
    fn new(make: MakeClient) -> Self {
        let client = make();
        let namespace = client.default_namespace().to_owned();
        let current = Mutex::new(Arc::new(AgedClient::new(client, false)));
        Self { namespace, make, current, max_age: MAX_AGE }
    }

    /// Sends all requests over one client, without a first one.
    #[cfg(test)]
    pub(super) fn fixed(client: Client) -> Self {
        let current = Mutex::new(Arc::new(AgedClient::new(client.clone(), true)));
        let make = Arc::new(move || client.clone());
        Self { namespace: "default".to_owned(), make, current, max_age: Duration::MAX }
    }

    /// Sends a request.
    pub(super) async fn send(&self, request: Request<Body>) -> Result<Response<Body>, kube::Error> {
        let current = self.current();
        current.is_open.get_or_try_init(|| current.open()).await?;
        current.client.send(request).await
    }

    fn current(&self) -> Arc<AgedClient> {
        let mut current = lock(&self.current);
        if current.since.elapsed() >= self.max_age {
            *current = Arc::new(AgedClient::new((self.make)(), false));
        }
        Arc::clone(&current)
    }
}

impl AgedClient {
    fn new(client: Client, is_open: bool) -> Self {
        Self { client, since: Instant::now(), is_open: OnceCell::new_with(is_open.then_some(())) }
    }

    /// Opens the connection by a request that every API server answers by itself. Any answer is enough.
    async fn open(&self) -> Result<(), kube::Error> {
        let request = Request::get("/version").body(Body::empty()).map_err(kube::Error::HttpError)?;
        let response = self.client.send(request).await?;
        // An HTTP/1.1 connection can be used again after its body was read.
        let _ = Limited::new(response.into_body(), BODY_LIMIT).collect().await;
        Ok(())
    }
}

impl Connections {
    /// Creates the clients for `config`, with this number of them for member clusters. Blocks while a credential plugin runs.
    pub(super) fn new(
        config: &Config,
        members: usize,
        kind: CredentialKind,
        source: &str,
    ) -> Result<Self, Problem> {
        let client = factory(config)?;
        let url = config.cluster_url.to_string();
        Ok(Self {
            name: name(&url),
            url,
            own: Arc::new(SharedClient::new(Arc::clone(&client))),
            members: (0..members).map(|_| Arc::new(SharedClient::new(Arc::clone(&client)))).collect(),
            expiry: Expiry::of_config(config, kind, source),
        })
    }

    /// Returns the client with the fewest requests for member clusters. A request is counted while it holds the client.
    pub(super) fn of_members(&self) -> Arc<SharedClient> {
        let least_used = self.members.iter().min_by_key(|client| Arc::strong_count(client));
        Arc::clone(least_used.unwrap_or(&self.own))
    }
}

/// Returns the name of an API server in messages.
pub(super) fn name(url: &str) -> Arc<str> {
    // A query of the URL is left out, as in client-go.
    format!("{SERVER} at {}", url.split('?').next().unwrap_or(url).trim_end_matches('/')).into()
}

/// Returns a function that creates a client for `config`.
fn factory(config: &Config) -> Result<MakeClient, Problem> {
    let problem = |error: kube::Error| {
        let why = with_sources(&error);
        // These are words of rustls-webpki: src/error.rs, Error::UnsupportedCertVersion.
        let is_version_1 = why.contains("UnsupportedCertVersion");
        let problem = Problem::new(format!("the credentials for {}", config.cluster_url)).why(why);
        // OpenSSL 3.0 signs a request without extensions in this way, and other clients accept it.
        let next = "the client certificate has X.509 version 1; sign it with an extension, which makes it version 3: openssl x509 -req -extfile <(echo extendedKeyUsage=clientAuth)";
        if is_version_1 { problem.next(next) } else { problem }
    };
    if rustls::crypto::CryptoProvider::get_default().is_none() {
        // An error means that another thread installed it first.
        let _ = rustls::crypto::aws_lc_rs::default_provider().install_default();
    }
    let tls = config.rustls_client_config().map_err(problem)?;
    let mut tcp = HttpConnector::new();
    tcp.enforce_http(false);
    tcp.set_nodelay(true);
    // For HTTP/1.1, which has no pings.
    tcp.set_keepalive(Some(KEEPALIVE));
    let https = HttpsConnectorBuilder::new().with_tls_config(tls).https_or_http();
    let https = match &config.tls_server_name {
        None => https,
        Some(name) => {
            let name = ServerName::try_from(name.clone())
                .map_err(|error| Problem::new(format!("tls-server-name {name:?}")).why(error.to_string()))?;
            https.with_server_name_resolver(FixedServerNameResolver::new(name))
        }
    };
    let mut connector = TimeoutConnector::new(https.enable_all_versions().wrap_connector(tcp));
    connector.set_connect_timeout(Some(CONNECT_TIMEOUT));

    let layers = ServiceBuilder::new()
        .layer(config.base_uri_layer())
        .option_layer(config.auth_layer().map_err(problem)?)
        .layer(config.extra_headers_layer().map_err(problem)?)
        .map_err(BoxError::from);
    let namespace = config.default_namespace.clone();
    Ok(Arc::new(move || {
        let http = HttpClient::builder(TokioExecutor::new())
            .timer(TokioTimer::new())
            .pool_timer(TokioTimer::new())
            // An idle connection stays open, so that the next verdict over a fleet opens none.
            .pool_idle_timeout(MAX_AGE)
            .http2_keep_alive_interval(PING_INTERVAL)
            .http2_keep_alive_timeout(PING_INTERVAL)
            .http2_keep_alive_while_idle(true)
            .build(connector.clone());
        Client::new(layers.service(http), namespace.clone())
    }))
}

/// Creates the clients that `access` names. Replaces them when the kubeconfig or its files change, while a receiver exists.
pub(super) async fn follow(
    access: &Access,
    members: usize,
) -> Result<watch::Receiver<Arc<Connections>>, Problem> {
    let version = access.version().ok();
    let (sender, receiver) = watch::channel(connect(access, members).await?);
    tokio::spawn(renew(access.clone(), members, version, sender));
    Ok(receiver)
}

async fn renew(
    access: Access,
    members: usize,
    mut version: Option<u64>,
    sender: watch::Sender<Arc<Connections>>,
) {
    loop {
        tokio::select! {
            () = sender.closed() => return,
            () = sleep(RENEW_INTERVAL) => {}
        }
        let read = access.clone();
        let found = tokio::task::spawn_blocking(move || read.version().ok()).await.ok().flatten();
        // A file that can't be read now may be half written.
        if found.is_none() || found == version {
            continue;
        }
        match connect(&access, members).await {
            Ok(connections) => {
                tracing::info!(cluster = connections.url, "the kubeconfig changed, new connections are used");
                sender.send_replace(connections);
                version = found;
            }
            Err(problem) => tracing::warn!("the kubeconfig changed, and the old one stays in use: {problem}"),
        }
    }
}

/// Creates the clients on a blocking thread, since a credential plugin may run.
async fn connect(access: &Access, members: usize) -> Result<Arc<Connections>, Problem> {
    let (config, source) = access.config().await?;
    let problem = format!("the credentials for {}", config.cluster_url);
    let kind = CredentialKind::ApiServerClient;
    let connecting = tokio::task::spawn_blocking(move || Connections::new(&config, members, kind, &source));
    match timeout(CREDENTIALS_TIMEOUT, connecting).await {
        Ok(Ok(connected)) => connected.map(Arc::new),
        Ok(Err(error)) => Err(Problem::new(problem).why(error.to_string())),
        Err(_) => Err(Problem::new(problem)
            .why(format!("the credential plugin did not finish in {} s", CREDENTIALS_TIMEOUT.as_secs()))
            .next("run it by hand; it must not wait for input")),
    }
}

/// Returns a client that sends each request over the present connections.
pub(super) fn following(connections: watch::Receiver<Arc<Connections>>) -> Client {
    let namespace = connections.borrow().own.namespace.clone();
    let send = move |request: Request<Body>| {
        let own = Arc::clone(&connections.borrow().own);
        async move {
            let response = timeout(HEADERS_TIMEOUT, own.send(request)).await;
            let late = || format!("no answer in {} s", HEADERS_TIMEOUT.as_secs());
            response.unwrap_or_else(|_| Err(kube::Error::Service(late().into())))
        }
    };
    Client::new(service_fn(send), namespace)
}
