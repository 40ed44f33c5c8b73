//! The way of a review, in one direction, and where each failure leaves:
//!
//! ```text
//! path = guard's name ──404   POST ──405   Content-Length ──411   ≤ body_bytes ──413   JSON ──415   ?timeout= ──400
//!   -> body, charged as it arrives ──503 (bytes)  ──408 (slow)
//!   -> in-flight permit ──503
//!   -> decode, one pass ──400 with line and column
//!   -> guard, within budget ──panic: Unknown  ──deadline: Unknown  ──late (the body took the budget): Unknown
//!   -> settle by the guard's stance -> encode: always 200, same uid, same version
//!   -> the charge is now the answer's, until the peer has taken it ──503 (bytes)
//!   -> numbers, one log line
//! ```
//!
//! The permit is taken when the body is there: a sender that is slow holds the bytes that it sent, and nothing else. No lock
//! is held anywhere on this way, and the request is borrowed from the body from end to end.

mod record;
mod refusal;

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use admission::{Cause, Request as Asked, Ruling, Settled, decode, encode, settle};
use bytes::Bytes;
use http_body_util::Full;
use hyper::body::{Body as _, Incoming};
use hyper::header::{CONNECTION, CONTENT_LENGTH, CONTENT_TYPE, HeaderValue};
use hyper::{Method, Request, Response};

use crate::body::{self, Missing};
use crate::caught::{Caught, Panicked};
use crate::deadline;
use crate::drain::Leaving;
use crate::limits::Meter;
use crate::metrics::{Door, Metrics};
use crate::plan::{PlanCell, Route};
use crate::settings::{Limits, Timeouts};
use crate::shortened::{self, in_line};
use record::Record;
use refusal::Refusal;

/// Everything that a request meets between the connection and its answer.
pub(crate) struct Pipeline {
    plan: PlanCell,
    reviews: Arc<Meter>,
    bytes: Arc<Meter>,
    limits: Limits,
    body_time: Duration,
    leaving: Arc<Leaving>,
    numbers: Door,
}

/// What the head of a good request says.
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
        leaving: Arc<Leaving>,
        metrics: &Metrics,
    ) -> Self {
        let numbers = metrics.door().clone();
        Self {
            plan,
            reviews: Meter::new(limits.in_flight, numbers.in_flight.clone()),
            bytes: Meter::new(limits.bytes_in_flight, numbers.bytes_in_flight.clone()),
            limits,
            body_time: timeouts.body,
            leaving,
            numbers,
        }
    }

    /// Answers one request.
    pub(crate) async fn answer(&self, request: Request<Incoming>, peer: SocketAddr) -> Response<Full<Bytes>> {
        let began = Instant::now();
        let mut response = match self.review(request, began).await {
            Ok(answer) => {
                let mut response = Response::new(Full::new(answer));
                response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
                response
            }
            Err(refusal) => self.refused(&refusal, peer),
        };
        // The API server keeps to connections that it has: while leaving, each answer ends one.
        if self.leaving.closes_connections() {
            response.headers_mut().insert(CONNECTION, HeaderValue::from_static("close"));
        }
        response
    }

    async fn review(&self, request: Request<Incoming>, began: Instant) -> Result<Bytes, Refusal> {
        let Head { route, length, budget } = self.head(&request)?;
        let mut charge = self.bytes.share();
        let body = body::read(request.into_body(), length, &mut charge, self.body_time).await;
        let body = body.map_err(|missing| match missing {
            Missing::Full => Refusal::TooManyBytes,
            Missing::Slow(arrived) => Refusal::Slow { length, arrived, time: self.body_time },
            Missing::Broken(arrived) => Refusal::Broken { length, arrived },
        })?;
        let mut permit = self.reviews.share();
        if !permit.grow(1) {
            return Err(Refusal::TooManyReviews);
        }
        let review = decode(body.bytes(), route.guard.fields())?;
        let record = Record::begin(&route, &review.request, began, body.bytes().len());
        let settled = settled(&route, &review.request, began, budget).await;
        let answer = encode(&review, &settled);
        if !charge.become_of(Limits::BODY_COST + answer.len()) {
            record.shed();
            return Err(Refusal::TooManyBytes);
        }
        record.answered(&settled);
        Ok(charge.with(answer))
    }

    /// What can be said before a byte of the body is read.
    fn head(&self, request: &Request<Incoming>) -> Result<Head, Refusal> {
        let path = request.uri().path();
        let route = self.plan.route(path).ok_or_else(|| self.unknown_path(path))?;
        if request.method() != Method::POST {
            return Err(Refusal::Method { method: shortened(request.method().as_str()) });
        }
        // A request without a body has an exact size of none; only the header says that the length was given.
        let given = request.headers().contains_key(CONTENT_LENGTH);
        let length = request.body().size_hint().exact().filter(|_| given).ok_or(Refusal::NoLength)?;
        let length = match usize::try_from(length) {
            Ok(fits) if fits <= self.limits.body_bytes => fits,
            _ => return Err(Refusal::TooLarge { length, most: self.limits.body_bytes }),
        };
        check_content_type(request.headers().get(CONTENT_TYPE))?;
        let timeout = deadline::timeout(request.uri().query(), self.limits.deadline)?;
        if self.reviews.is_full() {
            return Err(Refusal::TooManyReviews);
        }
        Ok(Head { route, length, budget: deadline::budget(timeout) })
    }

    fn unknown_path(&self, path: &str) -> Refusal {
        let plan = self.plan.current();
        let known: Vec<String> = plan.names().map(|name| format!("/{name}")).collect();
        let known = if known.is_empty() { "none".to_owned() } else { known.join(", ") };
        Refusal::UnknownPath { path: shortened(path), known }
    }

    fn refused(&self, refusal: &Refusal, peer: SocketAddr) -> Response<Full<Bytes>> {
        self.numbers.count_refused(refusal.reason());
        if let Some(cause) = refusal.shed() {
            self.numbers.count_shed(cause);
        }
        tracing::info!(
            target: "durward::refused",
            peer = %peer,
            status = refusal.status().as_u16(),
            reason = refusal.reason(),
            text = in_line(&refusal.to_string()).as_ref(),
            "request refused"
        );
        refusal.response()
    }
}

/// Asks the guard, and makes of whatever comes back something that can be answered.
async fn settled(route: &Route, request: &Asked<'_>, began: Instant, budget: Duration) -> Settled {
    let guard = route.guard.as_ref();
    let deadline = began + budget;
    let over_time = || {
        route.numbers.deadlines.inc();
        let text = format!("the {} guard did not rule within {}", guard.name(), deadline::told(budget));
        Ruling::unknown(Cause::new("deadline", text))
    };
    let ruling = if Instant::now() >= deadline {
        // The guard had no part in it: a body that came slowly, or a caller that waits for nothing.
        let text =
            format!("the review was not here whole within {}, too late to ask", deadline::told(budget));
        Ruling::unknown(Cause::new("late", text))
    } else {
        match tokio::time::timeout_at(deadline.into(), Caught::review(guard, request, deadline)).await {
            Ok(Ok(ruling)) => ruling,
            Ok(Err(Panicked(panic))) => {
                route.numbers.panics.inc();
                let (uid, guard) = (request.uid.as_ref(), guard.name());
                let (uid, panic) = (in_line(uid), in_line(&panic));
                let (uid, panic) = (uid.as_ref(), panic.as_ref());
                tracing::error!(target: "durward::review", uid, guard, panic, "a guard panicked");
                let text =
                    format!("the {guard} guard failed in itself; its log has the reason under uid {uid}");
                Ruling::unknown(Cause::new("panic", text))
            }
            Err(_) => over_time(),
        }
    };
    settle(request, ruling, guard.settle_policy())
}

/// The API server always says `application/json`. Anything else is a caller that will get nothing useful out of the 400 that
/// decoding would end in.
fn check_content_type(header: Option<&HeaderValue>) -> Result<(), Refusal> {
    let text = header.map(|value| String::from_utf8_lossy(value.as_bytes())).unwrap_or_default();
    let media_type = text.split(';').next().unwrap_or_default().trim();
    if media_type.eq_ignore_ascii_case("application/json") {
        return Ok(());
    }
    Err(Refusal::ContentType { got: shortened(&text) })
}

/// A foreign text in an answer.
fn shortened(text: &str) -> String {
    shortened::to(120, text).into_owned()
}
