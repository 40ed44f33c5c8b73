//! Feeds any text as YAML with a CRD of `v1beta1` and samples. The converter ends without a panic, and its result is a CRD whose schemas are structural.

#![no_main]

use libfuzzer_sys::fuzz_target;
use policy::crd::Crd;
use policy::crd::convert::convert;
use policy::document;
use policy::value::{Arena, Value};

fuzz_target!(|text: &str| {
    let arena = Arena::new();
    let Ok(documents) = document::read(text) else { return };
    let Some((first, samples)) = documents.split_first() else { return };
    let samples: Vec<Value<'_>> = samples.iter().map(|sample| sample.value(&arena)).collect();
    for samples in [&[][..], &samples] {
        match convert(first.value(&arena), samples, &arena) {
            Ok(converted) => {
                let Ok(crd) = Crd::read(converted.crd) else { continue };
                for version in &crd.versions {
                    assert_eq!(version.not_structural, [], "the result is not structural");
                }
            }
            Err(errors) => {
                for error in errors {
                    assert!(!error.to_string().is_empty());
                    let place = first.place(&error.path);
                    assert!(place.line <= text.lines().count() + 1, "{place} is not in the text");
                }
            }
        }
    }
});
