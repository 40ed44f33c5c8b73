//! Requests to etcd members by gRPC: reads, and the leadership transfer.
//!
//! Answers are not cached; only the connection and a token are kept for each pod. Callers share a request by [`SingleFlight`]. Each
//! pod has a connection of its own, so a member that hangs delays only its own callers.
//!
//! Only IP addresses from `status.podIP` are dialed.

mod answer;
mod body;
mod call;
mod connection;
mod credentials;
mod errors;
// Code of prost.
#[allow(clippy::pedantic, missing_docs, unreachable_pub, dead_code)]
pub(super) mod generated;

use std::net::IpAddr;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use admission::{BoxFuture, Cause};
use futures_util::FutureExt as _;
use tokio::time::{Instant, timeout_at};

use super::body::BodyReader;
use super::expiry::Expiry;
use super::fleet_client::FleetClient;
use super::recent_map::RecentMap;
use super::single_flight::SingleFlight;
use super::{brief, short};
use crate::etcd::{Endpoint, EtcdRequest, EtcdResponse, EtcdResult, Id, Material, Read};
use crate::writer::TransferResult;
use crate::{cause, lock};
use call::Call;
use connection::MemberConnection;
use credentials::{Credentials, recently};
use errors::{CallError, CallRefusal};
use generated::{
    AlarmRequest, MemberListRequest, MoveLeaderRequest, MoveLeaderResponse, RangeRequest, RangeResponse,
    StatusRequest,
};

/// A connection that was not used for this time is closed.
const IDLE_TIMEOUT: Duration = Duration::from_secs(300);

/// Credentials younger than this are not read again because a member refuses them.
const MIN_CREDENTIAL_AGE: Duration = Duration::from_secs(1);

/// The key of a linearizable read, as `etcdctl endpoint health` reads it.
const HEALTH_KEY: &[u8] = b"health";

/// All members of all configured etcd clusters. Cloning is cheap.
#[derive(Clone)]
pub(crate) struct Members(Arc<Inner>);

struct Inner {
    credentials: Credentials,
    bodies: BodyReader,
    connections: Mutex<RecentMap<Endpoint, Arc<MemberConnection>>>,
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

    /// Reserves all memory of responses.
    #[cfg(test)]
    pub(crate) async fn memory(&self) -> admission::budget::ReservedBytes {
        self.0.bodies.wait_for_memory(64 << 20).await
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
    async fn connection(&self, endpoint: &Endpoint, since: Instant) -> Result<Arc<MemberConnection>, Cause> {
        let address = address(endpoint)?;
        let tls = match &endpoint.client.tls {
            None => None,
            Some(tls) => Some(self.credentials.tls(tls, since).await?),
        };
        let mut connections = lock(&self.connections);
        connections.drop_idle();
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
        let connection = Arc::new(MemberConnection::new(endpoint, address, tls)?);
        connections.insert(endpoint.clone(), Arc::clone(&connection));
        Ok(connection)
    }

    fn call<'c>(&'c self, endpoint: &'c Endpoint, connection: &'c MemberConnection) -> Call<'c> {
        let (credentials, bodies) = (&self.credentials, &self.bodies);
        Call { endpoint, connection, credentials, bodies, may_log_in: true }
    }

    async fn ask(
        &self,
        endpoint: &Endpoint,
        connection: &MemberConnection,
        request: EtcdRequest,
    ) -> EtcdResult {
        let call = self.call(endpoint, connection);
        let answer = match request {
            EtcdRequest::Status => {
                call.send("/etcdserverpb.Maintenance/Status", StatusRequest {}).await.map(answer::status)
            }
            EtcdRequest::Members => members(call, false).await,
            EtcdRequest::MembersByQuorum => members_by_quorum(call).await,
            EtcdRequest::Alarms => {
                call.send("/etcdserverpb.Maintenance/Alarm", AlarmRequest {}).await.map(answer::alarms)
            }
            EtcdRequest::Read => read(call).await.map(EtcdResponse::Read),
        };
        answer::checked(answer.map_err(|error| error.cause())?)
    }

    /// Sends the transfer once. If the member requires a login first, it did not process the first request.
    async fn transfer_leadership(&self, endpoint: &Endpoint, to: Id) -> TransferResult {
        let connection = match self.connection(endpoint, recently()).await {
            Ok(connection) => connection,
            Err(why) => return TransferResult::Unknown(why),
        };
        let call = self.call(endpoint, &connection);
        let message = MoveLeaderRequest { target_id: to };
        match call.send("/etcdserverpb.Maintenance/MoveLeader", message).await {
            Ok(MoveLeaderResponse { .. }) => TransferResult::Transferred,
            Err(CallError::Refused(refusal)) => not_transferred(&refusal),
            Err(CallError::Failed(why)) => TransferResult::Unknown(why),
        }
    }
}

async fn members(call: Call<'_>, linearizable: bool) -> Result<EtcdResponse, CallError> {
    let message = MemberListRequest { linearizable };
    call.send("/etcdserverpb.Cluster/MemberList", message).await.map(answer::members)
}

/// Reads the member list behind a quorum. From 3.5 on, `linearizable: true` makes the member wait for a quorum, and then return its
/// own list. Earlier versions ignore the field, so the same is done in two calls, with every version: a linearizable read, then the
/// list.
///
/// Both are equal: with the field, `MemberList` calls `LinearizableReadNotify`, and a linearizable `Range` does the same
/// (`etcdserver/v3_server.go`). It returns when the member has applied all entries that were committed when it was called. Membership
/// changes are such entries, and the list is the member's own (`api/v3rpc/member.go`). A member that restarts between the calls serves
/// no client before an entry of its own is committed and applied (`publish` in `etcdserver/server.go`, `ReadyNotify` in
/// `embed/serve.go`).
async fn members_by_quorum(call: Call<'_>) -> Result<EtcdResponse, CallError> {
    read(call).await?;
    members(call, true).await
}

/// Sends a linearizable read. A denied read had its quorum too, so no login is needed.
async fn read(call: Call<'_>) -> Result<Read, CallError> {
    let message = RangeRequest { key: HEALTH_KEY.to_vec() };
    match (Call { may_log_in: false, ..call }).send("/etcdserverpb.KV/Range", message).await {
        Ok(RangeResponse { header: Some(_) }) => Ok(Read::Served),
        Ok(RangeResponse { header: None }) => {
            Err(CallError::Failed(Cause::new(cause::GARBAGE, "the answer has no header")))
        }
        Err(CallError::Refused(refusal)) if refusal.needs_user() || refusal.is_denied() => Ok(Read::Denied),
        Err(error) => Err(error),
    }
}

fn not_transferred(refusal: &CallRefusal) -> TransferResult {
    if refusal.is_not_leader() {
        TransferResult::NotLeader
    } else if refusal.is_bad_target() {
        TransferResult::BadTarget
    } else if refusal.is_unknown_call() {
        TransferResult::Unsupported
    } else {
        TransferResult::Unknown(refusal.cause())
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
