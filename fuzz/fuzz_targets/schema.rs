//! Feeds any text as the JSON of a schema and of an object. Defaults and pruning are idempotent, and pruning removes nothing that a default added.

#![no_main]

use libfuzzer_sys::fuzz_target;
use policy::crd::Crd;
use policy::crd::object::{decode, validate};
use policy::value::{Arena, Value, read_json, write_json};

/// A CRD around a schema.
const CRD: [&str; 2] = [
    r#"{"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition", "metadata": {"name": "things.example.org"}, "spec": {"group": "example.org", "scope": "Namespaced", "names": {"kind": "Thing", "plural": "things"}, "versions": [{"name": "v1", "served": true, "storage": true, "schema": {"openAPIV3Schema": "#,
    "}}]}}",
];

fuzz_target!(|text: &str| {
    let arena = Arena::new();
    // The object is after the first line that contains only three dashes.
    let (schema, object) = text.split_once("\n---\n").unwrap_or((text, "{}"));
    let (Ok(Value::Object(_)), Ok(Value::Object(fields))) =
        (read_json(schema, &arena), read_json(object, &arena))
    else {
        return;
    };
    let crd = [CRD[0], schema, CRD[1]].concat();
    let Ok(crd) = Crd::read(read_json(&crd, &arena).expect("JSON around JSON")) else { return };
    let version = crd.versions.first().expect("a version");
    let own = ["apiVersion", "kind", "metadata"];
    let mut fields: Vec<_> = fields.iter().filter(|(name, _)| !own.contains(name)).copied().collect();
    fields.push(("apiVersion", Value::String("example.org/v1")));
    fields.push(("kind", Value::String("Thing")));
    fields.push(("metadata", arena.object(&[("name", Value::String("a"))])));
    let decode = |object| decode(version, ("example.org", "Thing"), object, false, &arena);
    let Ok(once) = decode(arena.object(&fields)) else { return };
    if arena.is_full() {
        return;
    }
    for server in [30, 37] {
        validate((&crd, version), once.object, Some(once.object), server, &arena, &|| false);
    }
    // Only a valid default has no unknown fields and no nulls, which the API server requires.
    let Ok(twice) = decode(once.object) else { return };
    let Ok(thrice) = decode(twice.object) else { return };
    assert_eq!(write_json(twice.object), write_json(thrice.object), "defaults and pruning are not idempotent");
});
