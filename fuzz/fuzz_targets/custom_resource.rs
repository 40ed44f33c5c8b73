//! Feeds any text as YAML with a CRD and objects. The checks of the CRD, and the steps of a create and an update, end without a panic.
//! If the second document is a CRD, it is compared with the first one, and the objects are written again under it.

#![no_main]

use std::cell::Cell;

use libfuzzer_sys::fuzz_target;
use policy::crd::compare::{Definition, compare};
use policy::crd::object::{decode, validate};
use policy::crd::replay::Replay;
use policy::crd::{Crd, admit};
use policy::document;
use policy::normalize::{normalize, with_empty};
use policy::value::Arena;

/// Number of calls of `keep_going` after which rules must stop.
const QUESTIONS: u32 = 1_000;

fuzz_target!(|text: &str| {
    let arena = Arena::new();
    let Ok(documents) = document::read(text) else { return };
    let Some((first, objects)) = documents.split_first() else { return };
    let asked = Cell::new(0);
    let keep_going = || {
        asked.set(asked.get() + 1);
        asked.get() < QUESTIONS
    };
    let kind = ("apiextensions.k8s.io", "v1", "CustomResourceDefinition");
    let (definition, full) =
        (normalize(kind, first.value(&arena), &arena), with_empty(kind, first.value(&arena), &arena));
    if let (Ok(definition), Ok(full)) = (definition, full) {
        let old = objects.first().and_then(|old| normalize(kind, old.value(&arena), &arena).ok());
        for (server, old) in [(30, None), (37, None), (36, old.map(|old| old.object))] {
            let answer = admit::admit(definition.object, full.object, old, server, &keep_going);
            for error in answer.errors {
                assert!(!error.to_string().is_empty());
                assert!(first.place(&admit::document_path(&error.path)).line <= text.lines().count() + 1);
            }
        }
    }
    let Ok(crd) = Crd::read(first.value(&arena)) else { return };
    for version in &crd.versions {
        let mut old = None;
        for object in objects {
            let Ok(decoded) = decode(version, (&crd.group, &crd.kind), object.value(&arena), false, &arena) else {
                continue;
            };
            for server in [30, 35, 37] {
                for error in validate((&crd, version), decoded.object, old, server, &arena, &keep_going).errors {
                    assert!(!error.to_string().is_empty());
                }
            }
            old = Some(decoded.object);
        }
    }
    let Some((second, objects)) = objects.split_first() else { return };
    let (Ok(old), Ok(new)) = (Definition::read(first.value(&arena)), Definition::read(second.value(&arena))) else {
        return;
    };
    assert!(compare(&old, &old).is_empty());
    compare(&old, &new);
    let replay = Replay { old: &old.crd, new: &new.crd, server: 35 };
    for version in &old.crd.versions {
        for object in objects {
            let _ = replay.run(version, object.value(&arena), &arena, &keep_going);
        }
    }
});
