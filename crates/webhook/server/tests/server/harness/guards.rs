//! Guards with a fixed behavior.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Instant;

use admission::{
    BoxFuture, Cause, Denial, Fields, Guard, Patch, Pointer, Request, Ruling, SettlePolicy, Settled, Verdict,
};
use tokio::sync::Semaphore;

/// The behavior of a guard.
#[derive(Clone)]
pub(crate) enum Behavior {
    Allow,
    /// Allows an object that the configuration leaves out.
    LeaveOut,
    Skip,
    Deny,
    Mutate,
    /// Answers with a patch of this length: the only part of an answer without a limit.
    LongPatch(usize),
    Unknown,
    /// Reserves so many bytes, then allows.
    Charge(usize),
    /// Waits for the gate, then allows.
    Wait(Gate),
    /// Never returns, and sets the flag when it is dropped.
    Hang(Arc<AtomicBool>),
    /// Allows at its deadline.
    UseDeadline,
    PanicAtOnce,
    PanicLater,
    /// Panics outside of the review.
    PanicInPolicy,
    /// Never returns, and panics when it is dropped.
    PanicWhenDropped,
}

/// Makes reviews wait until it is opened.
#[derive(Clone)]
pub(crate) struct Gate(Arc<Semaphore>);

impl Gate {
    pub(crate) fn new() -> Self {
        Self(Arc::new(Semaphore::new(0)))
    }

    /// Lets this many reviews continue.
    pub(crate) fn open(&self, reviews: usize) {
        self.0.add_permits(reviews);
    }
}

/// A guard with a name and a behavior.
pub(crate) struct Stub {
    name: &'static str,
    behavior: Behavior,
    fields: Fields,
    settle_policy: SettlePolicy,
    logs_every_ruling: bool,
    /// The verdicts of answered requests, with their names.
    answered: Arc<Mutex<Vec<String>>>,
}

impl Stub {
    pub(crate) fn new(name: &'static str, behavior: Behavior) -> Self {
        let settle_policy = SettlePolicy::deny_unknown();
        Self {
            name,
            behavior,
            fields: Fields::none(),
            settle_policy,
            logs_every_ruling: false,
            answered: Arc::default(),
        }
    }

    pub(crate) fn with_policy(mut self, settle_policy: SettlePolicy) -> Self {
        self.settle_policy = settle_policy;
        self
    }

    pub(crate) fn answered(&self) -> Arc<Mutex<Vec<String>>> {
        Arc::clone(&self.answered)
    }

    pub(crate) fn logging_every_ruling(mut self) -> Self {
        self.logs_every_ruling = true;
        self
    }
}

impl Guard for Stub {
    fn name(&self) -> &'static str {
        self.name
    }

    fn fields(&self) -> &Fields {
        &self.fields
    }

    fn settle_policy(&self) -> &SettlePolicy {
        assert!(!matches!(self.behavior, Behavior::PanicInPolicy), "inner words of a policy");
        &self.settle_policy
    }

    fn logs_every_ruling(&self) -> bool {
        self.logs_every_ruling
    }

    fn answered(&self, request: &Request<'_>, settled: &Settled) {
        self.answered.lock().unwrap().push(format!("{} {}", request.name, settled.verdict));
    }

    fn review<'a>(&'a self, request: &'a Request<'a>, deadline: Instant) -> BoxFuture<'a, Ruling> {
        assert!(!matches!(self.behavior, Behavior::PanicAtOnce), "inner words at once");
        Box::pin(async move {
            match &self.behavior {
                Behavior::Allow | Behavior::PanicAtOnce | Behavior::PanicInPolicy => Ruling::allow(),
                Behavior::LeaveOut => Ruling::allow().unguarded(),
                Behavior::Skip => Ruling::skipped("spec is not an object"),
                Behavior::Deny => Ruling::deny(Denial::forbidden("not on my watch")),
                Behavior::Mutate => mutate(&true.into()),
                Behavior::LongPatch(length) => mutate(&"x".repeat(*length).into()),
                Behavior::Unknown => Ruling::unknown(Cause::new("unreachable", "m5 does not answer")),
                Behavior::Charge(bytes) => match request.memory.charge(*bytes) {
                    Ok(()) => Ruling::allow(),
                    Err(error) => Ruling::unknown(Cause::new("too-long", format!("{error:?}"))),
                },
                Behavior::Wait(gate) => {
                    gate.0.acquire().await.unwrap().forget();
                    Ruling::allow()
                }
                Behavior::Hang(dropped) => {
                    let _flag = Flag(Arc::clone(dropped));
                    std::future::pending().await
                }
                Behavior::UseDeadline => {
                    tokio::time::sleep_until(deadline.into()).await;
                    Ruling::allow()
                }
                Behavior::PanicLater => {
                    tokio::task::yield_now().await;
                    panic!("inner words {}", "later")
                }
                Behavior::PanicWhenDropped => {
                    let _bomb = Bomb;
                    std::future::pending().await
                }
            }
        })
    }
}

fn mutate(value: &serde_json::Value) -> Ruling {
    let mut patch = Patch::new();
    patch.add(&Pointer::root().key("seen"), value).unwrap();
    Ruling::new(Verdict::Mutate(patch))
}

struct Flag(Arc<AtomicBool>);

impl Drop for Flag {
    fn drop(&mut self) {
        self.0.store(true, Ordering::SeqCst);
    }
}

struct Bomb;

impl Drop for Bomb {
    fn drop(&mut self) {
        panic!("inner words when dropped");
    }
}
