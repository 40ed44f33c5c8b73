//! Properties of defaults and pruning with random schemas and objects.

use fastrand::Rng;

use super::super::{Schema, defaults, list_types, prune, structural, validate};
use crate::field::Path;
use crate::release::Release;
use crate::value::{Arena, Value, identical, read_json, write_json};

const NAMES: [&str; 6] = ["a", "b", "c", "d", "metadata", "kind"];

/// A structural schema as JSON. Defaults are valid and have no unknown fields.
fn schema(random: &mut Rng, depth: usize) -> String {
    let kinds: &[&str] =
        if depth == 0 { &["string"] } else { &["string", "integer", "object", "array", "map"] };
    let kind = kinds[random.usize(..kinds.len())];
    let inner = match kind {
        "object" => {
            let mut properties: Vec<String> = Vec::new();
            for name in &NAMES[..4] {
                if random.bool() {
                    properties.push(format!("\"{name}\":{}", schema(random, depth - 1)));
                }
            }
            format!(r#""type":"object","properties":{{{}}}"#, properties.join(","))
        }
        "map" => {
            let additional = match random.usize(..4) {
                0 => "true".to_owned(),
                _ => schema(random, depth - 1),
            };
            format!(r#""type":"object","additionalProperties":{additional}"#)
        }
        "array" => format!(r#""type":"array","items":{}"#, schema(random, depth - 1)),
        scalar => format!(r#""type":"{scalar}""#),
    };
    let nullable = if random.usize(..4) == 0 { r#","nullable":true"# } else { "" };
    let preserve = match random.usize(..6) {
        0 if kind != "map" => r#","x-kubernetes-preserve-unknown-fields":true"#,
        _ => "",
    };
    let schema = format!("{{{inner}{nullable}{preserve}}}");
    if random.usize(..3) > 0 {
        return schema;
    }
    let arena = Arena::new();
    let parsed = Schema::parse(read_json(&schema, &arena).unwrap(), &Path::default()).unwrap();
    let value = read_json(arena.text(&object(random, &parsed, 0)), &arena).unwrap();
    let (pruned, _) = prune::prune(value, &parsed, false, &arena);
    format!("{{{inner}{nullable}{preserve},\"default\":{}}}", write_json(pruned))
}

/// A value for a schema. One of `wrong` values is another one, and objects have unknown fields.
fn object(random: &mut Rng, schema: &Schema, wrong: usize) -> String {
    if wrong > 0 && random.usize(..wrong) == 0 {
        return ["null", "1", "\"x\"", "{}", "[]", "{\"q\":{\"r\":1}}", "[{\"q\":1},null]"]
            [random.usize(..7)]
        .to_owned();
    }
    match schema.type_name() {
        "object" => {
            let mut entries: Vec<String> = Vec::new();
            for name in NAMES {
                let field = schema.property(name).or_else(|| schema.additional_schema());
                let value = match field {
                    Some(field) if random.bool() => object(random, field, wrong),
                    None if wrong > 0 && random.usize(..5) == 0 => r#"{"q":[{"r":null}]}"#.to_owned(),
                    _ => continue,
                };
                entries.push(format!("\"{name}\":{value}"));
            }
            format!("{{{}}}", entries.join(","))
        }
        "array" => {
            let items: Vec<String> = (0..random.usize(..3))
                .map(|_| object(random, schema.items.as_deref().unwrap(), wrong))
                .collect();
            format!("[{}]", items.join(","))
        }
        "integer" => random.i8(..).to_string(),
        _ => format!("\"{}\"", random.alphabetic()),
    }
}

fn same(left: Value<'_>, right: Value<'_>) -> bool {
    identical(left, right, &mut || true)
}

#[test]
fn defaults_and_pruning_are_idempotent_and_keep_what_the_other_one_made() {
    let seed = fastrand::u64(..);
    let mut random = Rng::with_seed(seed);
    let (mut defaulted, mut pruned_some) = (0, 0);
    for round in 0..1_500 {
        let arena = Arena::new();
        let text = format!(r#"{{"type":"object","properties":{{"spec":{}}}}}"#, schema(&mut random, 4));
        let schema = Schema::parse(read_json(&text, &arena).unwrap(), &Path::default()).unwrap();
        assert_eq!(structural::check(&schema, &Path::default()), [], "{text}");
        let spec = object(&mut random, schema.property("spec").unwrap(), 8);
        let object =
            format!(r#"{{"apiVersion":"v1","extra":{{"a":1}},"metadata":{{"x":null}},"spec":{spec}}}"#);
        let value = read_json(&object, &arena).unwrap();
        let context = || format!("seed {seed}, round {round}: {text} {object}");

        let (pruned, unknown) = prune::prune(value, &schema, true, &arena);
        assert!(unknown.contains(&Path::new("extra")) && pruned.field("metadata").is_some(), "{}", context());
        let (again, none) = prune::prune(pruned, &schema, true, &arena);
        assert!(same(pruned, again) && none.is_empty(), "{}", context());

        let set = defaults::set(pruned, &schema, &arena);
        assert!(same(set, defaults::set(set, &schema, &arena)), "{}", context());
        let (kept, removed) = prune::prune(set, &schema, true, &arena);
        assert!(same(set, kept) && removed.is_empty(), "{}", context());

        let without_nulls = defaults::remove_nulls(set, &schema, &arena);
        let twice = defaults::remove_nulls(without_nulls, &schema, &arena);
        assert!(same(without_nulls, twice), "{}", context());
        defaulted += usize::from(!same(pruned, set));
        pruned_some += usize::from(unknown.len() > 1);
    }
    assert!(defaulted > 50 && pruned_some > 50, "{defaulted} {pruned_some}");
}

/// Replaces some values and keys of a JSON value by others.
fn spoil<'a>(random: &mut Rng, value: Value<'a>, others: &[Value<'a>], arena: &'a Arena) -> Value<'a> {
    if random.usize(..12) == 0 {
        return others[random.usize(..others.len())];
    }
    match value {
        Value::Object(entries) => {
            let mut entries = entries.to_vec();
            for entry in &mut entries {
                entry.1 = spoil(random, entry.1, others, arena);
            }
            if random.usize(..8) == 0 {
                let keys = [
                    "type",
                    "items",
                    "properties",
                    "anyOf",
                    "default",
                    "enum",
                    "pattern",
                    "x-kubernetes-list-map-keys",
                ];
                entries.push((keys[random.usize(..keys.len())], others[random.usize(..others.len())]));
            }
            arena.object(&entries)
        }
        Value::List(items) => {
            let items: Vec<Value<'a>> =
                items.iter().map(|item| spoil(random, *item, others, arena)).collect();
            Value::List(arena.slice(&items))
        }
        scalar => scalar,
    }
}

#[test]
fn reads_and_applies_nonsense_without_a_panic() {
    let seed = fastrand::u64(..);
    let mut random = Rng::with_seed(seed);
    let text = super::data("schemas/server-1.35.4.jsonl");
    let lines: Vec<&str> = text.lines().collect();
    let (mut read, mut refused) = (0, 0);
    for round in 0..500 {
        let arena = Arena::new();
        let case = read_json(lines[random.usize(..lines.len())], &arena).unwrap();
        let source = case.field("schema").unwrap();
        let nonsense = r#"[null, true, -1, 1.5e300, "", "(", "{1001}", "object", "array", [], {}, [{}], [null], {"a":null}, {"type":"map"}]"#;
        let nonsense = read_json(nonsense, &arena).unwrap();
        let mut others: Vec<Value<'_>> = nonsense.elements().collect();
        others.push(source);
        let source = spoil(&mut random, source, &others, &arena);
        let Ok(schema) = Schema::parse(source, &Path::default()) else {
            refused += 1;
            continue;
        };
        read += 1;
        structural::check(&schema, &Path::default());
        for object in case.field("objects").unwrap_or(Value::List(&[])).elements().take(2) {
            let object = spoil(&mut random, object.field("object").unwrap(), &others, &arena);
            let (pruned, _) = prune::prune(object, &schema, round % 2 == 0, &arena);
            let set = defaults::set(defaults::remove_nulls(pruned, &schema, &arena), &schema, &arena);
            let release = Release::for_stored(30 + random.u8(..8));
            let path = Path::new("x");
            let errors = validate::validate(set, &schema, &path, Some(object), release);
            for error in errors.errors.iter().chain(&list_types::validate(set, &schema, &path)) {
                assert!(!error.to_string().is_empty(), "seed {seed}");
            }
        }
    }
    assert!(read > 50 && refused > 50, "{read} {refused}");
}
