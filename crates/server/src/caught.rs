//! A guard's ruling with its panics caught: while the future is made, while it runs, and while it is dropped because the time
//! is up. What a panic says is for the log, not for the caller.

use std::any::Any;
use std::future::Future;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Instant;

use admission::{BoxFuture, Guard, Request, Ruling};

/// What a panic said.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Panicked(pub(crate) String);

/// A guard at work.
pub(crate) struct Caught<'a>(State<'a>);

enum State<'a> {
    Asked(&'a dyn Guard, &'a Request<'a>, Instant),
    Ruling(BoxFuture<'a, Ruling>),
    Done,
}

impl<'a> Caught<'a> {
    pub(crate) fn review(guard: &'a dyn Guard, request: &'a Request<'a>, deadline: Instant) -> Self {
        Self(State::Asked(guard, request, deadline))
    }
}

impl Future for Caught<'_> {
    type Output = Result<Ruling, Panicked>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let state = std::mem::replace(&mut self.0, State::Done);
        // Unwind safe: after a panic the future is dropped and never polled again; what the guard shares between reviews is its
        // own to keep whole.
        let polled = catch_unwind(AssertUnwindSafe(|| {
            let mut future = match state {
                State::Asked(guard, request, deadline) => guard.review(request, deadline),
                State::Ruling(future) => future,
                State::Done => return None,
            };
            match future.as_mut().poll(cx) {
                Poll::Ready(ruling) => Some(Ok(ruling)),
                Poll::Pending => Some(Err(future)),
            }
        }));
        match polled {
            Ok(Some(Ok(ruling))) => Poll::Ready(Ok(ruling)),
            Ok(Some(Err(future))) => {
                self.0 = State::Ruling(future);
                Poll::Pending
            }
            // Polled after its end, which no caller does: it has nothing more to say.
            Ok(None) => Poll::Pending,
            Err(panic) => Poll::Ready(Err(Panicked(said(panic.as_ref())))),
        }
    }
}

impl Drop for Caught<'_> {
    fn drop(&mut self) {
        let state = std::mem::replace(&mut self.0, State::Done);
        if let Err(panic) = catch_unwind(AssertUnwindSafe(|| drop(state))) {
            tracing::error!(panic = said(panic.as_ref()), "a guard panicked while it was stopped");
        }
    }
}

/// The words of a panic.
pub(crate) fn said(panic: &(dyn Any + Send)) -> String {
    let text = panic.downcast_ref::<&str>().map(|text| (*text).to_owned());
    text.or_else(|| panic.downcast_ref::<String>().cloned())
        .unwrap_or_else(|| "a panic without a text".to_owned())
}
