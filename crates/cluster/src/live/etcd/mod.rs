//! The members of etcd ensembles, asked over their own HTTP, and the one thing that may be done to them.
//!
//! Nothing that a member says is remembered, only how it is reached: its connections, under which prefix its gateway is, a token.
//! Who asks the same of the same pod at the same time shares an answer if all of them asked before the question was sent
//! (`gather.rs`). A question ends when nobody waits for it any more, and its connection with it; each pod has connections of its
//! own, so one that hangs costs nobody else anything.
//!
//! Only addresses are dialled, those that stand in `status.podIP`.

mod broken;
mod call;
mod line;
mod refused;
mod trust;

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use admission::{BoxFuture, Cause};
use futures_util::FutureExt as _;
use hyper::StatusCode;
use serde_json::json;
use tokio::time::{Instant, timeout_at};

use super::body::Room;
use super::clusters::Clusters;
use super::failure::{brief, short};
use super::gather::{Gathering, Read as Flight};
use super::nearly;
use crate::cause;
use crate::etcd::{Endpoint, EtcdRequest, EtcdResponse, EtcdResult, Id, Read};
use crate::gateway::{self, Refusal};
use crate::writer::TransferResult;
use call::{Call, Called, STATUS, TRANSFER};
use line::Line;
use refused::{LoggedIn, refused, stranger};
use trust::{Keys, recently};

/// The key that a linearizable read is made of: as `etcdctl endpoint health` reads it, in base64 as the gateway wants it.
const HEALTH_KEY: &str = r#"{"key":"aGVhbHRo"}"#;

/// 8 MiB: an etcd with many watched prefixes and clients has some hundred kB of metrics.
const METRICS_LIMIT: usize = 8 << 20;

/// The first version whose members give their list behind a quorum when asked to. 3.4 passes over the wish without a word
/// (measured), and gives the list that it has.
const BY_QUORUM_SINCE: (u32, u32) = (3, 5);

/// What is not asked for so long is taken for gone, and its connections end.
const LINE_KEPT: Duration = Duration::from_secs(300);

/// A credential that was read less than so long ago is not read again because a member refuses it.
const READ_AGAIN: Duration = Duration::from_secs(1);

/// To make sense of an answer that is long.
const READ_WITHIN: Duration = Duration::from_secs(5);

/// All members of all ensembles that are asked.
#[derive(Clone)]
pub(crate) struct Ensembles(Arc<Inner>);

struct Inner {
    keys: Keys,
    room: Room,
    lines: Mutex<HashMap<Endpoint, Kept>>,
    gatherings: Mutex<HashMap<(Endpoint, EtcdRequest), Gathering<(), EtcdResult>>>,
}

struct Kept {
    line: Arc<Line>,
    used: Instant,
}

impl Ensembles {
    pub(super) fn new(clusters: Arc<Clusters>, room: Room) -> Self {
        let keys = Keys::new(clusters);
        Self(Arc::new(Inner { keys, room, lines: Mutex::default(), gatherings: Mutex::default() }))
    }

    /// The answer of a member, before the deadline.
    pub(super) async fn ask(&self, peer: &Endpoint, question: EtcdRequest, deadline: Instant) -> EtcdResult {
        let began = Instant::now();
        let left = deadline.saturating_duration_since(began);
        let why = if let Err(why) = address(peer) {
            why
        } else if left.is_zero() {
            Cause::new(cause::TIMEOUT, "there was no time left")
        } else {
            let limit = nearly(began, left);
            let flight = self.join(peer, question);
            match timeout_at(limit, flight).await {
                Ok(Ok(answer)) => return Ok(answer),
                Ok(Err(why)) => why,
                Err(_) => {
                    let waited = (limit - began).as_secs_f64();
                    Cause::new(cause::TIMEOUT, format!("it did not answer in {waited:.1} s"))
                }
            }
        };
        let text = format!("{} could not be asked for {question}: {}", brief(&peer.name), why.text);
        Err(short(Cause::new(why.code, text)))
    }

    fn join(&self, peer: &Endpoint, question: EtcdRequest) -> Flight<EtcdResult> {
        let mut gatherings = self.0.gatherings.lock().unwrap_or_else(PoisonError::into_inner);
        let key = (peer.clone(), question);
        if !gatherings.contains_key(&key) {
            // There are no more of them than questions were under way at once.
            gatherings.retain(|_, gathering| !gathering.is_idle());
        }
        let (inner, peer) = (Arc::clone(&self.0), peer.clone());
        gatherings.entry(key).or_default().join(&(), move || inner.answer(peer, question))
    }

    /// Has a leader hand over. The cause's text is a sentence.
    pub(super) async fn transfer_leadership(
        &self,
        peer: &Endpoint,
        to: Id,
        deadline: Instant,
    ) -> TransferResult {
        let began = Instant::now();
        let limit = nearly(began, deadline.saturating_duration_since(began));
        let moved = timeout_at(limit, self.0.transfer_leadership(peer, to)).await.unwrap_or_else(|_| {
            let waited = (limit - began).as_secs_f64();
            let text = format!("it did not answer in {waited:.1} s, and may hand over yet");
            TransferResult::Unknown(Cause::new(cause::TIMEOUT, text))
        });
        match moved {
            TransferResult::Unknown(why) => {
                let text = format!("{} could not hand over: {}", brief(&peer.name), why.text);
                TransferResult::Unknown(short(Cause::new(why.code, text)))
            }
            moved => moved,
        }
    }
}

impl Inner {
    /// Asks, and asks once more where credentials have changed since they were read.
    fn answer(self: Arc<Self>, peer: Endpoint, question: EtcdRequest) -> BoxFuture<'static, EtcdResult> {
        async move {
            let began = Instant::now();
            let line = self.line(&peer, recently()).await?;
            let first = self.ask(&peer, &line, question).await;
            let Err(Cause { code: cause::TLS | cause::CREDENTIALS, .. }) = first else { return first };
            let since = began.checked_sub(READ_AGAIN).unwrap_or(began);
            let again = self.line(&peer, since).await?;
            let is_other_user = match &peer.client.login {
                None => false,
                Some(login) => {
                    let was = self.keys.user(login, recently()).await?;
                    !Arc::ptr_eq(&was, &self.keys.user(login, since).await?)
                }
            };
            if Arc::ptr_eq(&line, &again) && !is_other_user {
                return first;
            }
            if is_other_user {
                again.known().token = None;
            }
            self.ask(&peer, &again, question).await
        }
        .boxed()
    }

    /// The way to a member, by what is known of its ensemble `since` then.
    async fn line(&self, peer: &Endpoint, since: Instant) -> Result<Arc<Line>, Cause> {
        let address = address(peer)?;
        let trust = match &peer.client.tls {
            None => None,
            Some(tls) => Some(self.keys.trust(tls, since).await?),
        };
        let now = Instant::now();
        let mut lines = self.lines.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(kept) = lines.get_mut(peer) {
            let is_same = match (&kept.line.trust, &trust) {
                (None, None) => true,
                (Some(was), Some(is)) => Arc::ptr_eq(was, is),
                (None, Some(_)) | (Some(_), None) => false,
            };
            if is_same {
                kept.used = now;
                return Ok(Arc::clone(&kept.line));
            }
        }
        lines.retain(|_, kept| now.saturating_duration_since(kept.used) < LINE_KEPT);
        let line = Arc::new(Line::new(peer, address, trust)?);
        lines.insert(peer.clone(), Kept { line: Arc::clone(&line), used: now });
        Ok(line)
    }

    async fn ask(&self, peer: &Endpoint, line: &Line, question: EtcdRequest) -> EtcdResult {
        let call = Call { peer, line, keys: &self.keys, room: &self.room };
        match question {
            EtcdRequest::Status => self.called(&call, question, STATUS, "{}").await,
            EtcdRequest::Members => self.called(&call, question, "/cluster/member/list", "{}").await,
            EtcdRequest::MembersByQuorum => self.by_quorum(&call).await,
            EtcdRequest::Alarms => self.called(&call, question, "/maintenance/alarm", "{}").await,
            EtcdRequest::Read => self.read(&call).await,
            EtcdRequest::Health => self.plain(&call, question, "/health?exclude=NOSPACE", line::LIMIT).await,
            EtcdRequest::Metrics => self.plain(&call, question, "/metrics", METRICS_LIMIT).await,
        }
    }

    async fn called(&self, call: &Call<'_>, question: EtcdRequest, path: &str, body: &str) -> EtcdResult {
        match call.call(path, body).await? {
            Called::Answered(said) => self.parsed(question, said.body).await,
            Called::Refused(refusal, who) => Err(refused(&refusal, &who)),
        }
    }

    /// The list behind a quorum. Whether the member can do that only its version says, and a container may have been started
    /// anew with another one, so it is asked each time; at the same time, as it costs nothing to wait for.
    async fn by_quorum(&self, call: &Call<'_>) -> EtcdResult {
        let list = self.called(
            call,
            EtcdRequest::MembersByQuorum,
            "/cluster/member/list",
            r#"{"linearizable":true}"#,
        );
        let (list, version) = tokio::join!(list, call.line.get("/version", line::LIMIT, &self.room));
        let version = version?;
        match gateway::version_of(&version.body).filter(|_| version.status == StatusCode::OK) {
            Some(version) if version >= BY_QUORUM_SINCE => list,
            Some((major, minor)) => {
                let text = format!("etcd {major}.{minor} gives only the list that a member has itself");
                Err(Cause::new(cause::UNSUPPORTED, text))
            }
            None => {
                list?;
                let text = "it does not say its version, and may give only the list that it has itself";
                Err(Cause::new(cause::UNSUPPORTED, text))
            }
        }
    }

    /// A read that was denied to who may not read had its quorum too, so nobody has to log in for it.
    async fn read(&self, call: &Call<'_>) -> EtcdResult {
        match call.call_as("/kv/range", HEALTH_KEY, false).await? {
            Called::Answered(said) => self.parsed(EtcdRequest::Read, said.body).await,
            Called::Refused(refusal, _) if refusal.is_nobody() || refusal.is_denied() => {
                Ok(EtcdResponse::Read(Read::Denied))
            }
            Called::Refused(refusal, who) => Err(refused(&refusal, &who)),
        }
    }

    /// What is asked beside the gateway, and needs no login.
    async fn plain(&self, call: &Call<'_>, question: EtcdRequest, path: &str, limit: usize) -> EtcdResult {
        let said = call.line.get(path, limit, &self.room).await?;
        let is_answer = said.status == StatusCode::OK
            || (question == EtcdRequest::Health && said.status == StatusCode::SERVICE_UNAVAILABLE);
        if !is_answer {
            return Err(stranger(said.status, &said.body));
        }
        self.parsed(question, said.body).await
    }

    async fn parsed(&self, question: EtcdRequest, body: super::body::Bytes) -> EtcdResult {
        let read = move |body: &[u8]| gateway::read(question, body);
        match self.room.parsed(body, Instant::now() + READ_WITHIN, read).await {
            Some(read) => read?,
            None => Err(Cause::new(cause::TIMEOUT, "its answer was too long to be read in time")),
        }
    }

    /// Sent once. Who has to log in first was not heard before, and is heard once then.
    async fn transfer_leadership(&self, peer: &Endpoint, to: Id) -> TransferResult {
        let line = match self.line(peer, recently()).await {
            Ok(line) => line,
            Err(why) => return TransferResult::Unknown(why),
        };
        let call = Call { peer, line: &line, keys: &self.keys, room: &self.room };
        let body = json!({"targetID": to.to_string()}).to_string();
        match call.call(TRANSFER, &body).await {
            Ok(Called::Answered(said)) => moved(&said.body),
            Ok(Called::Refused(refusal, who)) => not_moved(&refusal, &who),
            Err(Cause { code: cause::UNSUPPORTED | cause::GATEWAY_OFF, .. }) => TransferResult::Unsupported,
            Err(why) => TransferResult::Unknown(why),
        }
    }
}

/// It answers with an empty object, or with one that has a header.
fn moved(body: &[u8]) -> TransferResult {
    if serde_json::from_slice::<serde_json::Map<String, serde_json::Value>>(body).is_ok() {
        return TransferResult::Transferred;
    }
    TransferResult::Unknown(Cause::new(cause::NOT_ETCD, "what answers there is not etcd"))
}

fn not_moved(refusal: &Refusal, who: &LoggedIn) -> TransferResult {
    if refusal.is_not_leader() {
        TransferResult::NotLeader
    } else if refusal.is_bad_target() {
        TransferResult::BadTarget
    } else if refusal.is_unknown_call() {
        TransferResult::Unsupported
    } else {
        TransferResult::Unknown(refused(refusal, who))
    }
}

/// The pod's address. Nothing that has to be looked up, and none that means everybody.
fn address(peer: &Endpoint) -> Result<IpAddr, Cause> {
    let text = peer.address.as_str();
    if text.is_empty() {
        return Err(Cause::new(cause::NO_ADDRESS, "the pod has no address yet"));
    }
    let address: Option<IpAddr> = text.parse().ok();
    let address = address.filter(|address| !address.is_unspecified() && !address.is_multicast());
    address.ok_or_else(|| {
        let text = format!("the pod's address {:?} is none that could be dialled", brief(text));
        Cause::new(cause::NO_ADDRESS, text)
    })
}
