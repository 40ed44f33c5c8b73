//! Feeds any bytes as a review to the LXCFS guard. It never panics and never denies. Its patch applies to these bytes, including
//! their order of keys and duplicate keys, only adds, and can be reverted. A second pass adds nothing.

#![no_main]

use std::sync::{Arc, LazyLock};

use admission::Guard;
use libfuzzer_sys::fuzz_target;

#[path = "../../crates/webhook/guards/tests/lxcfs/check.rs"]
mod check;

static GUARDS: LazyLock<[Arc<dyn Guard>; 5]> = LazyLock::new(|| {
    [
        check::guard("{}"),
        check::guard(
            "{onlyLimitedContainers: true, includeInitContainers: true, files: [meminfo, stat, online]}",
        ),
        check::guard("{nodeAffinity: required}"),
        check::guard("{nodeAffinity: preferred, includeInitContainers: true}"),
        check::guard("{mountMethod: auto, podSecurityDefault: restricted, includeInitContainers: true}"),
    ]
});

fuzz_target!(|body: &[u8]| {
    for guard in GUARDS.iter() {
        if check::check(&**guard, body).is_none() {
            return;
        }
    }
});
