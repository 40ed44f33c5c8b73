//! Any bytes as a review for the LXCFS guard: it never panics and never refuses, its patch applies and only adds, what was added
//! can be taken out again, and a second pass adds nothing. The patch is the one that these very bytes got, with the order of
//! their keys and those that stand twice.

#![no_main]

use std::sync::{Arc, LazyLock};

use admission::Guard;
use libfuzzer_sys::fuzz_target;

#[path = "../../crates/guards/tests/lxcfs/check.rs"]
mod check;

static GUARDS: LazyLock<[Arc<dyn Guard>; 5]> = LazyLock::new(|| {
    [
        check::guard("{}"),
        check::guard("{onlyIfLimited: true, initContainers: true, files: [meminfo, stat, online]}"),
        check::guard("{nodeReadiness: require}"),
        check::guard("{nodeReadiness: prefer, initContainers: true}"),
        check::guard("{backend: auto, podSecurityDefault: restricted, initContainers: true}"),
    ]
});

fuzz_target!(|body: &[u8]| {
    for guard in GUARDS.iter() {
        if check::check(&**guard, body).is_none() {
            return;
        }
    }
});
