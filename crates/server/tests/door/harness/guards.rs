//! Guards that do one thing each.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

use admission::{
    BoxFuture, Cause, Denial, Fields, Guard, Patch, Pointer, Request, Ruling, SettlePolicy, Verdict,
};
use tokio::sync::Semaphore;

/// What a guard does with every review.
#[derive(Clone)]
pub(crate) enum Turn {
    Allow,
    LeaveAsItIs,
    Deny,
    Mutate,
    /// A patch of so many letters: the only part of an answer that has no bound.
    MutateAtLength(usize),
    Unknown,
    /// Waits at the gate, then allows.
    Wait(Gate),
    /// Never rules; tells by the flag that it was dropped.
    Hang(Arc<AtomicBool>),
    PanicAtOnce,
    PanicLater,
    /// Panics where nobody expects a guard to.
    PanicInStance,
    /// Hangs, and panics when it is dropped.
    PanicWhenDropped,
}

/// Where reviews wait until they are let through.
#[derive(Clone)]
pub(crate) struct Gate(Arc<Semaphore>);

impl Gate {
    pub(crate) fn new() -> Self {
        Self(Arc::new(Semaphore::new(0)))
    }

    /// Lets so many through.
    pub(crate) fn open(&self, reviews: usize) {
        self.0.add_permits(reviews);
    }
}

/// A guard of a given name that takes one turn, always.
pub(crate) struct Stub {
    name: &'static str,
    turn: Turn,
    fields: Fields,
    settle_policy: SettlePolicy,
    outward: bool,
}

impl Stub {
    pub(crate) fn new(name: &'static str, turn: Turn) -> Self {
        let settle_policy = SettlePolicy::deny_unknown();
        Self { name, turn, fields: Fields::none(), settle_policy, outward: false }
    }

    pub(crate) fn standing(mut self, settle_policy: SettlePolicy) -> Self {
        self.settle_policy = settle_policy;
        self
    }

    pub(crate) fn looking_outward(mut self) -> Self {
        self.outward = true;
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
        assert!(!matches!(self.turn, Turn::PanicInStance), "inner words of a stance");
        &self.settle_policy
    }

    fn logs_every_ruling(&self) -> bool {
        self.outward
    }

    fn review<'a>(&'a self, _: &'a Request<'a>, _: Instant) -> BoxFuture<'a, Ruling> {
        assert!(!matches!(self.turn, Turn::PanicAtOnce), "inner words at once");
        Box::pin(async move {
            match &self.turn {
                Turn::Allow | Turn::PanicAtOnce | Turn::PanicInStance => Ruling::allow(),
                Turn::LeaveAsItIs => Ruling::skipped("spec is not an object"),
                Turn::Deny => Ruling::deny(Denial::forbidden("not on my watch")),
                Turn::Mutate => mutate(&true.into()),
                Turn::MutateAtLength(letters) => mutate(&"x".repeat(*letters).into()),
                Turn::Unknown => Ruling::unknown(Cause::new("unreachable", "m5 does not answer")),
                Turn::Wait(gate) => {
                    gate.0.acquire().await.unwrap().forget();
                    Ruling::allow()
                }
                Turn::Hang(dropped) => {
                    let _flag = Flag(Arc::clone(dropped));
                    std::future::pending().await
                }
                Turn::PanicLater => {
                    tokio::task::yield_now().await;
                    panic!("inner words {}", "later")
                }
                Turn::PanicWhenDropped => {
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
