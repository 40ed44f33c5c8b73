//! Times of the parts of a review without the network: decode, rule, settle, encode. The pod is that of the server's
//! measurement.
//!
//! `cargo bench -p durward-bench --bench ruling`

#![allow(clippy::print_stdout, reason = "a benchmark's output is its product")]

use std::alloc::System;
use std::future::Future;
use std::hint::black_box;
use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::{Duration, Instant};

use admission::{BoxFuture, Guard, Request, decode, encode, settle};
use cluster::{Address, Clients, Metadata, MetadataResult, Reader};
use guards::GUARD_KINDS;
use stats_alloc::{Region, StatsAlloc};

#[path = "../src/review.rs"]
mod review;

#[global_allocator]
static ALLOCATOR: StatsAlloc<System> = StatsAlloc::system();

/// A reader in which every namespace exists without labels, as fast as a cache.
struct Cached(Arc<Metadata>);

impl Reader for Cached {
    fn get<'a>(&'a self, _: Address<'a>, _: Instant) -> BoxFuture<'a, MetadataResult> {
        Box::pin(std::future::ready(Ok(Some(Arc::clone(&self.0)))))
    }
}

fn main() {
    let body = review::opted_in_pod();
    let clients = Clients::reader_only(Arc::new(Cached(Arc::new(Metadata::default()))));
    // `durward-bench fleet` measures the deletion guard.
    for kind in GUARD_KINDS.iter().filter(|kind| kind.name() != "deletion") {
        let (configured, _, problems) =
            config::read("-", None, |section| kind.read(section, guards::NAMESPACE));
        assert!(problems.is_empty(), "the defaults of {} are not a configuration", kind.name());
        let guard = configured.build(&clients).remove(0);
        let guard = guard.as_ref();
        println!("{}, a review of {} bytes", kind.name(), body.len());
        let whole = |body: &[u8]| {
            let review = decode(body, guard.fields()).ok()?;
            let ruling = ready(rule(guard, &review.request))?;
            Some(encode(&review, &settle(&review.request, ruling, guard.settle_policy())).len())
        };
        let region = Region::new(&ALLOCATOR);
        let length = whole(&body);
        let change = region.change();
        println!(
            "  answer {} bytes, {} allocations, {} bytes",
            length.unwrap_or_default(),
            change.allocations,
            change.bytes_allocated
        );
        println!(
            "  decode          {:>9.1?}",
            time(|| drop(black_box(decode(black_box(&body), guard.fields()))))
        );
        if let Ok(review) = decode(&body, guard.fields()) {
            println!(
                "  rule            {:>9.1?}",
                time(|| drop(black_box(ready(rule(guard, &review.request)))))
            );
        }
        println!("  all, to bytes   {:>9.1?}", time(|| _ = black_box(whole(black_box(&body)))));
    }
}

fn rule<'a>(guard: &'a dyn Guard, request: &'a Request<'a>) -> BoxFuture<'a, admission::Ruling> {
    guard.review(request, Instant::now() + Duration::from_secs(5))
}

/// Returns the output of a future that does not wait.
fn ready<T>(future: impl Future<Output = T>) -> Option<T> {
    match pin!(future).poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(value) => Some(value),
        Poll::Pending => None,
    }
}

/// Returns the best of several rounds, which is the least disturbed one.
fn time(mut run: impl FnMut()) -> Duration {
    let mut best = Duration::MAX;
    let rounds = Instant::now();
    while rounds.elapsed() < Duration::from_millis(600) {
        let start = Instant::now();
        for _ in 0..1000 {
            run();
        }
        best = best.min(start.elapsed() / 1000);
    }
    best
}
