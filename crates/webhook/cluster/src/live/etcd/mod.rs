//! Requests to etcd members over their own HTTP: reads, and the leadership transfer.
//!
//! Answers are not cached; only the connection, the prefix of the gateway and a token are kept for each pod. Callers share a
//! request by [`SingleFlight`]. Each pod has connections of its own, so a member that hangs delays only its own callers.
//!
//! Only IP addresses from `status.podIP` are dialed.

mod call;
mod connection;
mod credentials;
mod errors;

use std::net::IpAddr;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use admission::{BoxFuture, Cause};
use futures_util::FutureExt as _;
use hyper::StatusCode;
use serde_json::json;
use tokio::time::{Instant, timeout_at};

use super::body::{BodyReader, Bytes};
use super::expiry::Expiry;
use super::fleet_client::FleetClient;
use super::recent_map::RecentMap;
use super::single_flight::SingleFlight;
use super::{brief, short};
use crate::etcd::{Endpoint, EtcdRequest, EtcdResponse, EtcdResult, Id, Material, Read};
use crate::gateway::{self, GatewayError};
use crate::writer::TransferResult;
use crate::{cause, lock};
use call::{Call, CallResult, STATUS, TRANSFER};
use connection::Connection;
use credentials::{Credentials, recently};
use errors::{LoggedIn, refusal_cause, unexpected_answer};

/// The key of a linearizable read, as `etcdctl endpoint health` reads it, in base64 for the gateway.
const HEALTH_KEY: &str = r#"{"key":"aGVhbHRo"}"#;

/// 8 MiB: an etcd with many watched prefixes and clients has some hundred kB of metrics.
const METRICS_LIMIT: usize = 8 << 20;

/// The first version that supports a linearizable member list. Etcd 3.4 ignores the field and returns its local list (measured).
const QUORUM_LIST_SINCE: (u32, u32) = (3, 5);

/// A connection that was not used for this time is closed.
const IDLE_TIMEOUT: Duration = Duration::from_secs(300);

/// Credentials younger than this are not read again because a member refuses them.
const MIN_CREDENTIAL_AGE: Duration = Duration::from_secs(1);

/// To parse a long answer.
const PARSE_TIMEOUT: Duration = Duration::from_secs(5);

/// All members of all configured etcd clusters. Cloning is cheap.
#[derive(Clone)]
pub(crate) struct Members(Arc<Inner>);

struct Inner {
    credentials: Credentials,
    bodies: BodyReader,
    connections: Mutex<RecentMap<Endpoint, Arc<Connection>>>,
    flights: SingleFlight<(Endpoint, EtcdRequest), EtcdResult>,
}

impl Members {
    pub(crate) fn new(fleet: Arc<FleetClient>, bodies: BodyReader) -> Self {
        Self(Arc::new(Inner {
            credentials: Credentials::new(fleet),
            bodies,
            connections: Mutex::new(RecentMap::new(IDLE_TIMEOUT)),
            flights: SingleFlight::default(),
        }))
    }

    /// Reads these sources, and returns the expiries of their client certificates.
    pub(crate) async fn expiries(&self, configured: &[Material]) -> Vec<Expiry> {
        self.0.credentials.expiries(configured).await
    }

    /// Sends a request to a member and returns its answer by the deadline.
    pub(crate) async fn call(
        &self,
        endpoint: &Endpoint,
        request: EtcdRequest,
        deadline: Instant,
    ) -> EtcdResult {
        let began = Instant::now();
        let why = if let Err(why) = address(endpoint) {
            why
        } else if began >= deadline {
            Cause::new(cause::TIMEOUT, "no time was left")
        } else {
            let (inner, of) = (Arc::clone(&self.0), endpoint.clone());
            let flight = self.0.flights.join((endpoint.clone(), request), move || inner.answer(of, request));
            match timeout_at(deadline, flight).await {
                Ok(Ok(answer)) => return Ok(answer),
                Ok(Err(why)) => why,
                Err(_) => {
                    let waited = (deadline - began).as_secs_f64();
                    Cause::new(cause::TIMEOUT, format!("no answer in {waited:.1} s"))
                }
            }
        };
        Err(short(request.failed(&brief(&endpoint.name), &why)))
    }

    /// Sends a leadership transfer. The text of the cause is a sentence.
    pub(crate) async fn transfer_leadership(
        &self,
        endpoint: &Endpoint,
        to: Id,
        deadline: Instant,
    ) -> TransferResult {
        let began = Instant::now();
        let moved =
            timeout_at(deadline, self.0.transfer_leadership(endpoint, to)).await.unwrap_or_else(|_| {
                let waited = deadline.saturating_duration_since(began).as_secs_f64();
                let text = format!("no answer in {waited:.1} s; it may still transfer");
                TransferResult::Unknown(Cause::new(cause::TIMEOUT, text))
            });
        match moved {
            TransferResult::Unknown(why) => {
                let text = format!("{} did not transfer leadership: {}", brief(&endpoint.name), why.text);
                TransferResult::Unknown(short(Cause::new(why.code, text)))
            }
            moved => moved,
        }
    }
}

impl Inner {
    /// Sends the request, and again if the member refuses credentials that have changed since they were read.
    fn answer(self: Arc<Self>, endpoint: Endpoint, request: EtcdRequest) -> BoxFuture<'static, EtcdResult> {
        async move {
            let began = Instant::now();
            let connection = self.connection(&endpoint, recently()).await?;
            let first = self.ask(&endpoint, &connection, request).await;
            let Err(Cause { code: cause::TLS | cause::CREDENTIALS, .. }) = first else { return first };
            let since = began.checked_sub(MIN_CREDENTIAL_AGE).unwrap_or(began);
            let again = self.connection(&endpoint, since).await?;
            let is_other_user = match &endpoint.client.login {
                None => false,
                Some(login) => {
                    let was = self.credentials.user(login, recently()).await?;
                    !Arc::ptr_eq(&was, &self.credentials.user(login, since).await?)
                }
            };
            if Arc::ptr_eq(&connection, &again) && !is_other_user {
                return first;
            }
            if is_other_user {
                again.known().token = None;
            }
            self.ask(&endpoint, &again, request).await
        }
        .boxed()
    }

    /// Returns the connection to a member, with credentials that were read after `since`.
    async fn connection(&self, endpoint: &Endpoint, since: Instant) -> Result<Arc<Connection>, Cause> {
        let address = address(endpoint)?;
        let tls = match &endpoint.client.tls {
            None => None,
            Some(tls) => Some(self.credentials.tls(tls, since).await?),
        };
        let mut connections = lock(&self.connections);
        if let Some(kept) = connections.get(endpoint) {
            let is_same = match (&kept.tls, &tls) {
                (None, None) => true,
                (Some(was), Some(is)) => Arc::ptr_eq(was, is),
                (None, Some(_)) | (Some(_), None) => false,
            };
            if is_same {
                return Ok(Arc::clone(kept));
            }
        }
        let connection = Arc::new(Connection::new(endpoint, address, tls)?);
        connections.insert(endpoint.clone(), Arc::clone(&connection));
        Ok(connection)
    }

    async fn ask(&self, endpoint: &Endpoint, connection: &Connection, request: EtcdRequest) -> EtcdResult {
        let call = Call { endpoint, connection, credentials: &self.credentials, bodies: &self.bodies };
        match request {
            EtcdRequest::Status => self.called(&call, request, STATUS, "{}").await,
            EtcdRequest::Members => self.called(&call, request, "/cluster/member/list", "{}").await,
            EtcdRequest::MembersByQuorum => self.by_quorum(&call).await,
            EtcdRequest::Alarms => self.called(&call, request, "/maintenance/alarm", "{}").await,
            EtcdRequest::Read => self.read(&call).await,
            EtcdRequest::Health => {
                self.plain(&call, request, "/health?exclude=NOSPACE", connection::LIMIT).await
            }
            EtcdRequest::Metrics => self.plain(&call, request, "/metrics", METRICS_LIMIT).await,
        }
    }

    async fn called(&self, call: &Call<'_>, request: EtcdRequest, path: &str, body: &str) -> EtcdResult {
        match call.call(path, body).await? {
            CallResult::Answered(answer) => self.parsed(request, answer.body).await,
            CallResult::Refused(refusal, who) => Err(refusal_cause(&refusal, &who)),
        }
    }

    /// Reads the member list through a quorum. Only the version tells whether the member supports that. The version is read
    /// each time, at the same time, because a restarted container may have another one.
    async fn by_quorum(&self, call: &Call<'_>) -> EtcdResult {
        let list = self.called(
            call,
            EtcdRequest::MembersByQuorum,
            "/cluster/member/list",
            r#"{"linearizable":true}"#,
        );
        let (list, version) =
            tokio::join!(list, call.connection.get("/version", connection::LIMIT, &self.bodies));
        let version = version?;
        match gateway::version_of(&version.body).filter(|_| version.status == StatusCode::OK) {
            Some(version) if version >= QUORUM_LIST_SINCE => list,
            Some((major, minor)) => {
                let text = format!("etcd {major}.{minor} returns only its local member list");
                Err(Cause::new(cause::UNSUPPORTED, text))
            }
            None => {
                list?;
                let text = "it reports no version and may return only its local member list";
                Err(Cause::new(cause::UNSUPPORTED, text))
            }
        }
    }

    /// Sends a linearizable read. A denied read had its quorum too, so no login is needed.
    async fn read(&self, call: &Call<'_>) -> EtcdResult {
        match call.call_as("/kv/range", HEALTH_KEY, false).await? {
            CallResult::Answered(answer) => self.parsed(EtcdRequest::Read, answer.body).await,
            CallResult::Refused(refusal, _) if refusal.needs_user() || refusal.is_denied() => {
                Ok(EtcdResponse::Read(Read::Denied))
            }
            CallResult::Refused(refusal, who) => Err(refusal_cause(&refusal, &who)),
        }
    }

    /// Sends a request outside the gateway, which needs no login.
    async fn plain(&self, call: &Call<'_>, request: EtcdRequest, path: &str, limit: usize) -> EtcdResult {
        let answer = call.connection.get(path, limit, &self.bodies).await?;
        let is_answer = answer.status == StatusCode::OK
            || (request == EtcdRequest::Health && answer.status == StatusCode::SERVICE_UNAVAILABLE);
        if !is_answer {
            return Err(unexpected_answer(answer.status, &answer.body));
        }
        self.parsed(request, answer.body).await
    }

    async fn parsed(&self, request: EtcdRequest, body: Bytes) -> EtcdResult {
        let read = move |body: &[u8]| gateway::read(request, body);
        match self.bodies.parse(body, Instant::now() + PARSE_TIMEOUT, read).await {
            Some(read) => read?,
            None => Err(Cause::new(cause::TIMEOUT, "its answer was too long to parse in time")),
        }
    }

    /// Sends the transfer once. If the member requires a login first, it did not process the first request.
    async fn transfer_leadership(&self, endpoint: &Endpoint, to: Id) -> TransferResult {
        let connection = match self.connection(endpoint, recently()).await {
            Ok(connection) => connection,
            Err(why) => return TransferResult::Unknown(why),
        };
        let call =
            Call { endpoint, connection: &connection, credentials: &self.credentials, bodies: &self.bodies };
        let body = json!({"targetID": to.to_string()}).to_string();
        match call.call(TRANSFER, &body).await {
            Ok(CallResult::Answered(answer)) => transferred(&answer.body),
            Ok(CallResult::Refused(refusal, who)) => not_transferred(&refusal, &who),
            Err(Cause { code: cause::UNSUPPORTED | cause::GATEWAY_OFF, .. }) => TransferResult::Unsupported,
            Err(why) => TransferResult::Unknown(why),
        }
    }
}

/// The answer is an empty object, or one with a header.
fn transferred(body: &[u8]) -> TransferResult {
    if serde_json::from_slice::<serde_json::Map<String, serde_json::Value>>(body).is_ok() {
        return TransferResult::Transferred;
    }
    TransferResult::Unknown(Cause::new(cause::NOT_ETCD, "another program answers there, not etcd"))
}

fn not_transferred(refusal: &GatewayError, who: &LoggedIn) -> TransferResult {
    if refusal.is_not_leader() {
        TransferResult::NotLeader
    } else if refusal.is_bad_target() {
        TransferResult::BadTarget
    } else if refusal.is_unknown_call() {
        TransferResult::Unsupported
    } else {
        TransferResult::Unknown(refusal_cause(refusal, who))
    }
}

/// Returns the pod's address: an IP address of one host. Metadata services of clouds answer at link-local addresses, which no pod has.
fn address(endpoint: &Endpoint) -> Result<IpAddr, Cause> {
    let text = endpoint.address.as_str();
    if text.is_empty() {
        return Err(Cause::new(cause::NO_ADDRESS, "the pod has no address yet"));
    }
    let address: Option<IpAddr> = text.parse().ok();
    let address = address.filter(|address| !address.is_unspecified() && !address.is_multicast());
    let refused =
        |what| Cause::new(cause::NO_ADDRESS, format!("the pod's address {:?} is {what}", brief(text)));
    let address = address.ok_or_else(|| refused("not an IP address of a host"))?;
    let is_link_local = match address.to_canonical() {
        IpAddr::V4(address) => address.is_link_local(),
        IpAddr::V6(address) => address.is_unicast_link_local(),
    };
    if is_link_local { Err(refused("link-local, which no etcd pod has")) } else { Ok(address) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::etcd::ClientOptions;
    use crate::live::recent_map::MAX_ENTRIES;
    use crate::live::tests::fake;

    #[tokio::test]
    async fn keeps_connections_to_a_limited_number_of_pods() {
        let live = fake::live().0;
        let inner = &live.members.0;
        let client = Arc::<ClientOptions>::default();
        for pod in 0..MAX_ENTRIES + 10 {
            let endpoint = Endpoint {
                namespace: "db".to_owned(),
                name: format!("etcd-{pod}"),
                uid: String::new(),
                address: "127.0.0.1".to_owned(),
                port: 2379,
                client: Arc::clone(&client),
            };
            inner.connection(&endpoint, recently()).await.unwrap();
        }
        assert_eq!(lock(&inner.connections).len(), MAX_ENTRIES);
    }
}
