//! Any bytes as a review for the LXCFS guard: it never panics and never refuses, its patch applies and only adds, what was added
//! can be taken out again, and a second pass adds nothing.

#![no_main]

use std::sync::{Arc, LazyLock};

use admission::Guard;
use libfuzzer_sys::fuzz_target;
use serde_json::Value;

#[path = "../../crates/guards/tests/lxcfs/check.rs"]
mod check;

static GUARDS: LazyLock<[Arc<dyn Guard>; 2]> = LazyLock::new(|| {
    [
        check::guard("{}"),
        check::guard("{onlyIfLimited: true, initContainers: true, files: [meminfo, stat, online]}"),
    ]
});

fuzz_target!(|body: &[u8]| {
    for guard in GUARDS.iter() {
        if check::ruled(&**guard, body).is_none() {
            return;
        }
        // What only our reader takes (numbers beyond a float, halves of surrogate pairs) has been ruled on, and that is all.
        if let Ok(review) = serde_json::from_slice::<Value>(body) {
            check::check(&**guard, &review);
        }
    }
});
