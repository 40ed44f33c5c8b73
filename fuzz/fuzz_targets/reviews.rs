//! Feeds reviews of strangers to the guards, with a recorded API server. Without the object of the review nothing is written,
//! no etcd member and no member cluster is called, and no other name is shown.

#![no_main]

use libfuzzer_sys::fuzz_target;

#[allow(dead_code, reason = "the property test counts the outcomes")]
#[path = "../../crates/webhook/guards/tests/strangers/check/mod.rs"]
mod check;

thread_local! {
    static BENCH: check::Bench = check::Bench::new(None);
}

fuzz_target!(|bytes: &[u8]| {
    let (unreadable, review) = bytes.split_first().map_or((0, bytes), |(first, rest)| (*first, rest));
    let checked = BENCH.with(|bench| bench.check(&check::body(review), unreadable));
    if let Err(problem) = checked {
        panic!("{problem}");
    }
});
