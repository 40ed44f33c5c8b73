//! Feeds any text as YAML with a CRD and objects. The steps of a create and an update end without a panic. If the second document is a CRD,
//! it is compared with the first one, and the objects are written again under it.

#![no_main]

use libfuzzer_sys::fuzz_target;
use policy::crd::Crd;
use policy::crd::compare::{Definition, compare};
use policy::crd::object::{Change, decode, validate};
use policy::crd::replay::Replay;
use policy::document;
use policy::value::Arena;

fuzz_target!(|text: &str| {
    let arena = Arena::new();
    let Ok(documents) = document::read(arena.text(text), &arena) else { return };
    let Some((first, objects)) = documents.split_first() else { return };
    let Ok(crd) = Crd::read(first.value()) else { return };
    for version in &crd.versions {
        let mut old = None;
        for object in objects {
            let Ok(decoded) = decode(version, (&crd.group, &crd.kind), object.value(), false, &arena) else {
                continue;
            };
            for server in [30, 35, 37] {
                let change = Change { new: decoded.object, old, namespaced: crd.namespaced, server };
                for error in validate(version, &change, &arena, &|| true).errors {
                    assert!(!error.to_string().is_empty());
                }
            }
            old = Some(decoded.object);
        }
    }
    for (_, error) in crd.schema_errors() {
        assert!(!error.to_string().is_empty());
    }
    let Some((second, objects)) = objects.split_first() else { return };
    let (Ok(old), Ok(new)) = (Definition::read(first.value()), Definition::read(second.value())) else { return };
    assert!(compare(&old, &old).is_empty());
    compare(&old, &new);
    let replay = Replay { old: &old.crd, new: &new.crd, server: 35 };
    for version in &old.crd.versions {
        for object in objects {
            let _ = replay.run(version, object.value(), &arena, &|| true);
        }
    }
});
