//! Runs a guard within its time, and catches its panics.
//!
//! A guard reads until its deadline, and decides after it. So its deadline is earlier than the end of its time: by a tenth of the
//! time, at most 200 ms. A container that uses up its CPU limit waits for the next period of the kernel's quota, 100 ms in
//! Kubernetes. The margin contains two such waits: one until the guard notices that its reads are over, one while it decides. This
//! is the only margin besides that of `deadline` for the way back: readers, writers and guards use their deadlines up.

use std::any::Any;
use std::future::Future;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use admission::{BoxFuture, Cause, Request, Ruling, Settled, settle};
use futures_util::FutureExt as _;

use super::long::LongBodies;
use crate::cause;
use crate::deadline::format_duration;
use crate::plan::Route;
use crate::text::for_log;

/// The margin between the deadline of a guard and the end of its time.
const MAX_MARGIN: Duration = Duration::from_millis(200);

/// Calls the guard and settles its ruling. A panic and a passed deadline are Unknown. `length` is that of the body.
pub(super) async fn run(
    route: &Route,
    request: &Request<'_>,
    (began, budget): (Instant, Duration),
    (long_bodies, length): (&LongBodies, usize),
) -> Settled {
    let guard = route.guard.as_ref();
    let name = guard.name();
    let end = began + budget;
    let now = Instant::now();
    let left = end.saturating_duration_since(now);
    let ruling = if left.is_zero() {
        // The guard has no part in this: the body came slowly, or the caller's timeout is too short.
        let limit = format_duration(budget);
        let text = format!("the request took longer than {limit} to arrive, so the guard was not called");
        Ruling::unknown(Cause::new(cause::LATE, text))
    } else {
        let deadline = now + left.saturating_sub(MAX_MARGIN.min(left / 10));
        // `async`, so that a panic before the guard returns its future is caught too.
        let review = AssertUnwindSafe(async { guard.review(request, deadline).await }).catch_unwind();
        let review = long_bodies.run(length, CatchDrop(Some(review.boxed())));
        match tokio::time::timeout_at(end.into(), review).await {
            Ok(Ok(ruling)) => ruling,
            Ok(Err(panic)) => {
                route.metrics.panics.inc();
                let message = panic_message(panic.as_ref());
                let (uid, panic) = (for_log(&request.uid), for_log(&message));
                let (uid, panic) = (uid.as_ref(), panic.as_ref());
                tracing::error!(target: "durward::review", uid, guard = name, panic, "a guard panicked");
                let text =
                    format!("the {name} guard failed (internal error); see Durward's log for uid {uid}");
                Ruling::unknown(Cause::new(cause::PANIC, text))
            }
            Err(_) => {
                route.metrics.deadlines.inc();
                let text = format!("the {name} guard did not answer within {}", format_duration(budget));
                Ruling::unknown(Cause::new(cause::DEADLINE, text))
            }
        }
    };
    settle(request, ruling, guard.settle_policy())
}

/// A future that logs a panic of its drop: a review is dropped at its deadline, or when the caller hangs up.
struct CatchDrop<'a, T>(Option<BoxFuture<'a, T>>);

impl<T> Future for CatchDrop<'_, T> {
    type Output = T;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<T> {
        self.0.as_mut().map_or(Poll::Pending, |future| future.as_mut().poll(cx))
    }
}

impl<T> Drop for CatchDrop<'_, T> {
    fn drop(&mut self) {
        if let Err(panic) = catch_unwind(AssertUnwindSafe(|| drop(self.0.take()))) {
            tracing::error!(panic = panic_message(panic.as_ref()), "a guard panicked when it was cancelled");
        }
    }
}

/// Returns the message of a panic.
pub(crate) fn panic_message(panic: &(dyn Any + Send)) -> String {
    let text = panic.downcast_ref::<&str>().map(|text| (*text).to_owned());
    text.or_else(|| panic.downcast_ref::<String>().cloned())
        .unwrap_or_else(|| "a panic without a message".to_owned())
}
