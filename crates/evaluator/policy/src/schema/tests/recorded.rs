//! Answers of the API server to generated schemas and objects.

use super::super::{Schema, defaults, list_types, prune, structural, validate};
use super::{data, recorded, texts};
use crate::field::Path;
use crate::release::Release;
use crate::value::format::go_json;
use crate::value::{Arena, Value, read_json};

/// The differences to the answers in a file, and the number of schemas and objects.
fn differences(file: &str, server: u8) -> (Vec<String>, usize, usize) {
    let release = Release::for_stored(server);
    let path = Path::default();
    let (mut found, mut schemas, mut objects) = (Vec::new(), 0, 0);
    for line in data(file).lines() {
        schemas += 1;
        let arena = Arena::new();
        let case = read_json(line, &arena).unwrap();
        let source = case.field("schema").unwrap();
        let schema = match Schema::parse(source, &Path::new("schema")) {
            Ok(schema) => schema,
            Err(errors) => {
                found.push(format!("{source:?} is not read: {errors:?}"));
                continue;
            }
        };
        let mut compare = |what: &str, object: Value<'_>, ours: String, theirs: String| {
            if ours != theirs {
                let (source, object) = (go_json(source), go_json(object));
                found.push(format!(
                    "{what}\n  schema {source}\n  {object}\n  ours   {ours}\n  theirs {theirs}"
                ));
            }
        };
        if let Some(theirs) = case.field("structural") {
            let ours = texts(&structural::check(&schema, &Path::new("schema")));
            compare("structure", Value::Null, format!("{ours:?}"), format!("{:?}", recorded(Some(theirs))));
        }
        let decode = |value| {
            let (value, _) = prune::prune(value, &schema, true, &arena);
            defaults::set(defaults::remove_nulls(value, &schema, &arena), &schema, &arena)
        };
        for object in case.field("objects").unwrap_or(Value::List(&[])).elements() {
            objects += 1;
            let decoded = decode(object.field("object").unwrap());
            compare("decoded", object, go_json(decoded), go_json(object.field("decoded").unwrap()));
            let old = object.field("old").map(decode);
            let validation = validate::validate(decoded, &schema, &path, old, release);
            compare("undecided", object, format!("{:?}", validation.undecided), "[]".to_owned());
            let theirs = recorded(object.field("errors"));
            compare("errors", object, format!("{:?}", texts(&validation.errors)), format!("{theirs:?}"));
            if let Some(lists) = object.field("lists") {
                let ours = texts(&list_types::validate(decoded, &schema, &path));
                compare("lists", object, format!("{ours:?}"), format!("{:?}", recorded(Some(lists))));
            }
        }
    }
    (found, schemas, objects)
}

#[test]
fn answers_generated_schemas_and_objects_as_the_api_server_does() {
    for (version, server) in [("1.35.4", 35), ("1.37.2", 37)] {
        let (found, schemas, objects) = differences(&format!("schemas/server-{version}.jsonl"), server);
        let some = found[..found.len().min(20)].join("\n");
        assert!(found.is_empty(), "{version}: {} differences:\n{some}", found.len());
        assert!(schemas > 100 && objects > 200, "{version}: {schemas} {objects}");
    }
}

#[test]
fn accepts_the_texts_of_each_format_that_the_api_server_accepts() {
    let release = Release::for_stored(35);
    let mut texts = 0;
    for line in data("schemas/formats-1.35.4.jsonl").lines() {
        let arena = Arena::new();
        let case = read_json(line, &arena).unwrap();
        let format = case.field("format").unwrap().as_str().unwrap();
        let text = format!(r#"{{"type":"string","format":"{format}"}}"#);
        let schema = Schema::parse(read_json(&text, &arena).unwrap(), &Path::default()).unwrap();
        for (list, is_valid) in [("valid", true), ("invalid", false)] {
            for text in case.field(list).unwrap().elements() {
                let found = validate::validate(text, &schema, &Path::default(), None, release);
                assert_eq!(found.errors.is_empty(), is_valid, "{format}: {text:?}");
                texts += 1;
            }
        }
    }
    assert!(texts > 5_000, "{texts}");
}
