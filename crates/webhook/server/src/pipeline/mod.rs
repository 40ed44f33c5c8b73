//! The path of a review, with the status of each failure:
//!
//! ```text
//! path = guard's name ──404   POST ──405   Content-Length ──411   ≤ body_bytes ──413   JSON ──415   ?timeout= ──400
//!   -> body, reserved as it arrives ──503 (bytes)  ──408 (slow)
//!   -> in-flight permit ──503
//!   -> decode, one pass ──400 with line and column
//!   -> guard, within its budget ──panic: Unknown  ──deadline: Unknown  ──late (the body took the budget): Unknown  ──503 (bytes)
//!   -> settle by the guard's policy -> encode: always 200, same uid, same version
//!   -> the reservation is now the answer's, until the peer has taken it ──503 (bytes)
//!   -> metrics, one log line
//! ```
//!
//! The permit is taken after the body has arrived, so a slow sender holds only the bytes that it sent. The pipeline holds no
//! lock, and the request borrows from the body. A guard reserves the memory of what it parses; if other reviews have it, the answer
//! is 503 too.

mod caller;
mod guard;
mod long;
mod record;
mod refusal;

use std::sync::Arc;
use std::time::{Duration, Instant};

use admission::budget::{Budget, ReviewMemory};
use admission::text::truncate;
use admission::{decode, encode};
use bytes::Bytes;
use http_body_util::Full;
use hyper::body::{Body as _, Incoming};
use hyper::header::{CONNECTION, CONTENT_LENGTH, CONTENT_TYPE, HeaderValue};
use hyper::{Method, Request, Response};

use crate::body::{self, BodyError};
use crate::connection_state::ConnectionState;
use crate::deadline;
use crate::drain::DrainWatch;
use crate::metrics::{Metrics, ServerMetrics};
use crate::plan::{PlanCell, Route};
use crate::settings::{Limits, Timeouts};
use crate::text::for_log;
pub(crate) use caller::Caller;
pub(crate) use guard::panic_message;
use long::LongBodies;
use record::ReviewLog;
use refusal::Refusal;

/// Limit of foreign text in an answer.
const MAX_TEXT_CHARS: usize = 120;

/// Answers requests.
pub(crate) struct Pipeline {
    plan: PlanCell,
    reviews: Arc<Budget>,
    bytes: Arc<Budget>,
    /// The part of `bytes` for large bodies.
    large_bytes: Arc<Budget>,
    long_bodies: LongBodies,
    limits: Limits,
    body_timeout: Duration,
    drain: DrainWatch,
    metrics: ServerMetrics,
}

/// The parts of a request's head that the pipeline needs.
struct Head {
    route: Arc<Route>,
    length: usize,
    budget: Duration,
}

impl Pipeline {
    pub(crate) fn new(
        plan: PlanCell,
        limits: Limits,
        timeouts: &Timeouts,
        drain: DrainWatch,
        metrics: &Metrics,
    ) -> Self {
        let metrics = metrics.server().clone();
        let (reviews, bytes) = (metrics.in_flight.clone(), metrics.bytes_in_flight.clone());
        let bytes = Budget::observed(limits.max_total_bytes, move |change| _ = bytes.inc_by(change));
        Self {
            plan,
            reviews: Budget::observed(limits.max_concurrent_requests, move |change| {
                _ = reviews.inc_by(change);
            }),
            large_bytes: bytes.part(Limits::for_large_bodies(limits.max_total_bytes)),
            bytes,
            long_bodies: LongBodies::new(),
            limits,
            body_timeout: timeouts.body,
            drain,
            metrics,
        }
    }

    /// Answers one request.
    pub(crate) async fn answer(
        &self,
        request: Request<Incoming>,
        caller: &Caller,
        connection: &ConnectionState,
    ) -> Response<Full<Bytes>> {
        let began = Instant::now();
        let mut response = match self.review(request, caller, began, connection).await {
            Ok(answer) => {
                let mut response = Response::new(Full::new(answer));
                response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
                response
            }
            Err(refusal) => self.refuse(&refusal, caller),
        };
        // The API server reuses its connections, so a server that stops closes each with an answer.
        if self.drain.closes_connections() {
            response.headers_mut().insert(CONNECTION, HeaderValue::from_static("close"));
        }
        response
    }

    async fn review(
        &self,
        request: Request<Incoming>,
        caller: &Caller,
        began: Instant,
        connection: &ConnectionState,
    ) -> Result<Bytes, Refusal> {
        let Head { route, length, budget } = self.read_head(&request)?;
        let is_small = length <= Limits::SMALL_BODY;
        let mut reservation = if is_small { &self.bytes } else { &self.large_bytes }.empty();
        let body = body::read(request.into_body(), length, &mut reservation, self.body_timeout).await;
        let body = body.map_err(|error| match error {
            BodyError::NoMemory => Refusal::TooManyBytes,
            BodyError::Timeout { arrived } => Refusal::Slow { length, arrived, time: self.body_timeout },
            BodyError::Disconnected { arrived } => Refusal::Broken { length, arrived },
        })?;
        connection.end_body();
        let Some(_permit) = self.reviews.reserve(1) else { return Err(Refusal::TooManyReviews) };
        let memory = ReviewMemory::new(reservation);
        let bodies = &self.long_bodies;
        let mut review = bodies.run(length, async { decode(body.bytes(), route.guard.fields()) }).await?;
        review.request.memory = memory.clone();
        let record = ReviewLog::begin(&route, &review.request, caller, began, length);
        let settled = guard::run(&route, &review.request, (began, budget), (bodies, length)).await;
        let answer = encode(&review, &settled);
        if memory.lacks_memory() || !memory.resize(Limits::BODY_COST + answer.len()) {
            record.shed();
            return Err(Refusal::TooManyBytes);
        }
        record.answered(&settled);
        Ok(body::reserved(answer, memory))
    }

    /// Checks the head before a byte of the body is read.
    fn read_head(&self, request: &Request<Incoming>) -> Result<Head, Refusal> {
        let path = request.uri().path();
        let route = self.plan.route(path).ok_or_else(|| self.unknown_path(path))?;
        if request.method() != Method::POST {
            return Err(Refusal::Method { method: cut(request.method().as_str()) });
        }
        // hyper reports an exact size of 0 for a request without a body, so only the header shows that a length was sent.
        let has_length = request.headers().contains_key(CONTENT_LENGTH);
        let length = request.body().size_hint().exact().filter(|_| has_length).ok_or(Refusal::NoLength)?;
        let length = match usize::try_from(length) {
            Ok(fits) if fits <= self.limits.max_request_bytes => fits,
            _ => return Err(Refusal::TooLarge { length, most: self.limits.max_request_bytes }),
        };
        check_content_type(request.headers().get(CONTENT_TYPE))?;
        let timeout = deadline::timeout(request.uri().query(), self.limits.request_timeout)?;
        if self.reviews.is_exhausted() {
            return Err(Refusal::TooManyReviews);
        }
        Ok(Head { route, length, budget: deadline::budget(timeout) })
    }

    fn unknown_path(&self, path: &str) -> Refusal {
        let plan = self.plan.current();
        let known: Vec<String> = plan.names().map(|name| format!("/{name}")).collect();
        let known = if known.is_empty() { "none".to_owned() } else { known.join(", ") };
        Refusal::UnknownPath { path: cut(path), known }
    }

    fn refuse(&self, refusal: &Refusal, caller: &Caller) -> Response<Full<Bytes>> {
        self.metrics.count_refused(refusal.reason());
        if let Some(cause) = refusal.shed() {
            self.metrics.count_shed(cause);
        }
        tracing::info!(
            target: "durward::refused",
            peer = %caller.peer,
            client = caller.certificate().as_deref(),
            status = refusal.status().as_u16(),
            reason = refusal.reason(),
            text = for_log(&refusal.to_string()).as_ref(),
            "request refused"
        );
        refusal.response()
    }
}

/// Checks that the body is JSON. The API server always sends `application/json`.
fn check_content_type(header: Option<&HeaderValue>) -> Result<(), Refusal> {
    let text = header.map(|value| String::from_utf8_lossy(value.as_bytes())).unwrap_or_default();
    let media_type = text.split(';').next().unwrap_or_default().trim();
    if media_type.eq_ignore_ascii_case("application/json") {
        return Ok(());
    }
    Err(Refusal::ContentType { got: cut(&text) })
}

fn cut(text: &str) -> String {
    truncate(text, MAX_TEXT_CHARS).into_owned()
}
