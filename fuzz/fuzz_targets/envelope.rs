//! Feeds any bytes as the body of a review. Decoding never panics and accepts as JSON what `serde_json` accepts. The answer to a
//! decoded review is JSON with the same uid.

#![no_main]

use admission::{Cause, Denial, Fields, Raw, Ruling, SettlePolicy, decode, encode, settle};
use libfuzzer_sys::fuzz_target;
use serde_json::Value;
use serde_json::value::RawValue;

fuzz_target!(|body: &[u8]| {
    if let Ok(text) = std::str::from_utf8(body) {
        let ours = Raw::from_text(text);
        let theirs = serde_json::from_str::<&RawValue>(text);
        let too_deep = ours.as_ref().is_err_and(|error| error.what.contains("nested deeper"));
        assert!(too_deep || ours.is_ok() == theirs.is_ok(), "{ours:?} {theirs:?}");
    }
    let wanted = ["/metadata", "/metadata/labels", "/spec", "/spec/containers", "/spec/a~1b/c"];
    let Ok(review) = decode(body, &Fields::new(&wanted)) else { return };
    let request = &review.request;
    let _ = request.user.groups();
    for ruling in [
        Ruling::allow().warn(&request.name).audit(&request.namespace, &request.name),
        Ruling::deny(Denial::forbidden(request.name.as_ref())),
        Ruling::unknown(Cause::new("fuzz", request.namespace.as_ref())),
    ] {
        let answer = encode(&review, &settle(request, ruling, &SettlePolicy::deny_unknown()));
        let answer: Value = serde_json::from_slice(&answer).expect("an answer is JSON");
        assert_eq!(answer["response"]["uid"], request.uid.as_ref());
    }
});
