//! Feeds any text as YAML with policies, bindings and objects. Loading and the evaluation of a request end without a panic.

#![no_main]

use std::cell::Cell;

use libfuzzer_sys::fuzz_target;
use policy::document;
use policy::facts::Facts;
use policy::release::Release;
use policy::request::{AdmissionRequest, GroupVersion};
use policy::set::PolicySetBuilder;
use policy::value::{Arena, Value};

/// Number of calls of `keep_going` after which the evaluation must stop.
const QUESTIONS: u32 = 1_000;

fuzz_target!(|text: &str| {
    let arena = Arena::new();
    let Ok(documents) = document::read(text) else { return };
    for builder in [PolicySetBuilder::new(Release::for_new(35)), PolicySetBuilder::stored(37)] {
        let mut builder = builder;
        for document in &documents {
            builder.add("fuzz", document.value(&arena));
        }
        let Ok(set) = builder.finish() else { continue };
        let object = documents.last().map_or(Value::Null, |document| document.value(&arena));
        let named = |name| GroupVersion { group: "", version: "v1", name };
        let request = AdmissionRequest {
            operation: "CREATE",
            kind: named("Pod"),
            resource: named("pods"),
            name: "a",
            namespace: "default",
            object,
            ..AdmissionRequest::default()
        };
        let asked = Cell::new(0);
        let keep_going = || {
            asked.set(asked.get() + 1);
            asked.get() < QUESTIONS
        };
        let facts = Facts::default();
        set.evaluate(&request, &facts, &arena, &keep_going);
        assert!(asked.get() <= QUESTIONS, "the evaluation did not stop");
    }
});
