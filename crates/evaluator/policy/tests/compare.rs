//! A change of a CRD that breaks no object by its classes breaks none when the objects are written again.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test fails by them")]

use policy::crd::admit::admit;
use policy::crd::compare::{Class, Definition, compare};
use policy::crd::replay::Replay;
use policy::field::{FieldError, Path};
use policy::value::{Arena, read_json};
use serde_json::{Value as Json, json};

mod changed_crds;

/// Pairs of CRDs, and objects of each. `COMPARE_PAIRS` and `COMPARE_SEED` change them.
const PAIRS: usize = 600;
const OBJECTS: usize = 6;

fn number(name: &str) -> Option<u64> {
    std::env::var(name).ok()?.parse().ok()
}

#[test]
fn a_change_without_a_class_breaks_no_object() {
    let seed = number("COMPARE_SEED").unwrap_or(1);
    let pairs = number("COMPARE_PAIRS").map_or(PAIRS, |pairs| usize::try_from(pairs).unwrap());
    let mut rng = fastrand::Rng::with_seed(seed);
    let (mut broken, mut harmless, mut alarms, mut usable, mut known) = (0, 0, 0, 0, 0);
    let mut wrong = Vec::new();
    for index in 0..pairs {
        let (old, new) = changed_crds::pair(&mut rng, "Thing");
        let things: Vec<Json> =
            (0..OBJECTS).map(|number| changed_crds::thing(&mut rng, &old, &format!("t{number}"))).collect();
        let arena = Arena::new();
        let read = |json: &Json| read_json(arena.text(&json.to_string()), &arena).unwrap();
        let (Ok(before), Ok(after)) = (Definition::read(read(&old)), Definition::read(read(&new))) else {
            continue;
        };
        let is_accepted = |of: &Definition<'_>| {
            let found = admit(of.value, of.value, None, 35, &|| true);
            found.errors.is_empty() && found.undecided.is_empty()
        };
        if !is_accepted(&before) || !is_accepted(&after) {
            continue;
        }
        usable += 1;
        let changes = compare(&before, &after);
        let replay = Replay { old: &before.crd, new: &after.crd, server: 35 };
        let mut breaks = false;
        for thing in &things {
            let version = before.crd.stored().unwrap();
            let Ok(effect) = replay.run(version, read(thing), &arena, &|| true) else { continue };
            // An object that the old CRD refuses does not exist.
            let same = Replay { new: &before.crd, ..replay };
            let exists = exists(&same, version, read(thing), &arena);
            if !exists {
                continue;
            }
            known += 1;
            breaks |= effect.is_broken();
            if changes.is_empty() && (effect.is_broken() || !effect.undecided.is_empty()) {
                wrong.push(format!("pair {index} of seed {seed}\n{old}\n{new}\n{thing}\n{effect:?}"));
            }
        }
        assert!(!arena.is_full());
        let is_alarm = changes.iter().any(|change| change.class != Class::NotCompared);
        broken += usize::from(breaks);
        harmless += usize::from(changes.is_empty());
        alarms += usize::from(is_alarm && !breaks);
    }
    let count = wrong.len();
    assert!(
        wrong.is_empty(),
        "{count} wrong:\n{}",
        wrong.into_iter().step_by(1 + count / 4).collect::<Vec<_>>().join("\n")
    );
    println!(
        "{usable} pairs, {known} objects: {broken} pairs break objects, {harmless} have no class, {alarms} have a class and break no object"
    );
    assert!(usable > pairs / 2 && known > usable, "{usable} of {pairs} are usable, with {known} objects");
    assert!(
        broken > usable / 10 && harmless > usable / 10,
        "{broken} break objects, {harmless} have no class"
    );
}

/// Whether the old CRD accepts an object. Without a change, only errors of the old CRD are left, and these are left out.
fn exists<'a>(
    same: &Replay<'a>,
    version: &'a policy::crd::Version,
    thing: policy::value::Value<'a>,
    arena: &'a Arena,
) -> bool {
    let names = (same.old.group.as_str(), same.old.kind.as_str());
    let Ok(decoded) = policy::crd::object::decode(version, names, thing, false, arena) else { return false };
    let crd = (same.old, version);
    let found = policy::crd::object::validate(crd, decoded.object, None, same.server, arena, &|| true);
    found.errors.is_empty() && found.undecided.is_empty()
}

/// A CRD whose objects have this schema in `spec`.
fn crd(versions: &Json) -> Json {
    json!({
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": { "name": "things.example.org" },
        "spec": {
            "group": "example.org",
            "scope": "Namespaced",
            "names": { "plural": "things", "kind": "Thing" },
            "versions": versions,
        },
    })
}

fn version(name: &str, is_stored: bool, spec: &Json) -> Json {
    let schema = json!({ "type": "object", "properties": { "spec": spec } });
    json!({ "name": name, "served": true, "storage": is_stored, "schema": { "openAPIV3Schema": schema } })
}

/// Lost fields, errors of an update and errors of a create.
fn replayed(old: &Json, new: &Json, thing: &Json) -> (Vec<String>, Vec<String>, Vec<String>) {
    let arena = Arena::new();
    let read = |json: &Json| read_json(arena.text(&json.to_string()), &arena).unwrap();
    let (old, new) = (Definition::read(read(old)).ok().unwrap(), Definition::read(read(new)).ok().unwrap());
    let replay = Replay { old: &old.crd, new: &new.crd, server: 35 };
    let api_version = thing["apiVersion"].as_str().unwrap();
    let version = old.crd.version(api_version.split_once('/').unwrap().1).unwrap();
    let effect = replay.run(version, read(thing), &arena, &|| true).unwrap();
    assert!(effect.undecided.is_empty(), "{effect:?}");
    let texts = |errors: &[FieldError]| errors.iter().map(ToString::to_string).collect::<Vec<_>>();
    (effect.lost.iter().map(Path::to_string).collect(), texts(&effect.update), texts(&effect.create))
}

fn thing(version: &str, spec: &Json) -> Json {
    let api_version = format!("example.org/{version}");
    json!({ "apiVersion": api_version, "kind": "Thing", "metadata": { "name": "a" }, "spec": spec })
}

fn none() -> Vec<String> {
    Vec::new()
}

#[test]
fn an_update_keeps_an_invalid_field_that_it_does_not_change() {
    let of = |values: &Json| {
        let spec =
            json!({ "type": "object", "properties": { "size": { "type": "string", "enum": values } } });
        crd(&json!([version("v1", true, &spec)]))
    };
    let (old, new) = (of(&json!(["small", "large"])), of(&json!(["small"])));
    let error = "spec.size: Unsupported value: \"large\": supported values: \"small\"".to_owned();
    let large = thing("v1", &json!({ "size": "large" }));
    assert_eq!(replayed(&old, &new, &large), (none(), none(), vec![error]));
    let small = thing("v1", &json!({ "size": "small" }));
    assert_eq!(replayed(&old, &new, &small), (none(), none(), none()));
}

#[test]
fn a_field_that_is_not_declared_is_lost() {
    let of = |spec: &Json| crd(&json!([version("v1", true, spec)]));
    let old = json!({ "type": "object", "properties": { "a": { "type": "string" }, "b": { "type": "object", "x-kubernetes-preserve-unknown-fields": true } } });
    let new = json!({ "type": "object", "properties": { "b": { "type": "object" } } });
    let object = thing("v1", &json!({ "a": "x", "b": { "c": [1] }, "unknown": true }));
    let lost = vec!["spec.a".to_owned(), "spec.b.c".to_owned()];
    assert_eq!(replayed(&of(&old), &of(&new), &object), (lost, none(), none()));
}

#[test]
fn a_new_stored_version_removes_the_fields_that_it_does_not_have() {
    let both =
        json!({ "type": "object", "properties": { "a": { "type": "string" }, "b": { "type": "string" } } });
    let one = json!({ "type": "object", "properties": { "a": { "type": "string" } } });
    let old = crd(&json!([version("v1", true, &both)]));
    let new = crd(&json!([version("v1", false, &both), version("v2", true, &one)]));
    let object = thing("v1", &json!({ "a": "x", "b": "y" }));
    assert_eq!(replayed(&old, &new, &object), (vec!["spec.b".to_owned()], none(), none()));
    // A version that stored objects never had loses nothing.
    let old = crd(&json!([version("v1", true, &one), version("v2", false, &both)]));
    let object = thing("v2", &json!({ "a": "x", "b": "y" }));
    assert_eq!(replayed(&old, &old, &object), (none(), none(), none()));
}

#[test]
fn a_default_fills_a_field_that_becomes_required() {
    let of = |spec: &Json| crd(&json!([version("v1", true, spec)]));
    let old = of(&json!({ "type": "object", "properties": { "a": { "type": "string" } } }));
    let new = |default: Option<&str>| {
        let mut spec =
            json!({ "type": "object", "required": ["a"], "properties": { "a": { "type": "string" } } });
        if let Some(default) = default {
            spec["properties"]["a"]["default"] = json!(default);
        }
        of(&spec)
    };
    let object = thing("v1", &json!({}));
    assert_eq!(replayed(&old, &new(Some("x")), &object), (none(), none(), none()));
    let error = "spec.a: Required value".to_owned();
    assert_eq!(replayed(&old, &new(None), &object), (none(), none(), vec![error]));
}
