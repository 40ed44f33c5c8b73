//! Documents are read as `kubectl` reads them, or refused: the answers in `data/documents/kubectl.jsonl` are those of its Go libraries. Durward
//! also reads a few texts that `kubectl` refuses, such as tabs as indentation.

use policy::document::{Document, read};
use policy::field::Path;
use policy::value::{Arena, Value};
use serde_json::Value as Json;

fn text(value: Value<'_>, out: &mut String) {
    match value {
        Value::List(items) => {
            out.push('[');
            for (index, item) in items.iter().enumerate() {
                out.push_str(if index > 0 { "," } else { "" });
                text(*item, out);
            }
            out.push(']');
        }
        Value::Object(entries) => {
            out.push('{');
            for (index, (key, value)) in entries.iter().enumerate() {
                out.push_str(if index > 0 { "," } else { "" });
                out.push_str(&Json::from(*key).to_string());
                out.push(':');
                text(*value, out);
            }
            out.push('}');
        }
        Value::Double(number) => {
            let number = format!("{number:?}");
            let exponent = number.contains('e') && !number.contains("e-");
            out.push_str(&if exponent { number.replace('e', "e+") } else { number });
        }
        Value::Int(number) => out.push_str(&number.to_string()),
        Value::Bool(value) => out.push_str(&value.to_string()),
        Value::String(value) => out.push_str(&Json::from(value).to_string()),
        _ => out.push_str("null"),
    }
}

#[test]
fn reads_documents_as_kubectl_does() {
    let cases = include_str!("data/documents/kubectl.jsonl");
    let (mut equal, mut wrong) = (0, Vec::new());
    for line in cases.lines() {
        let case: Json = serde_json::from_str(line).unwrap();
        let source = case["text"].as_str().unwrap();
        let arena = Arena::new();
        let ours = match read(source) {
            Ok(documents) => {
                let mut all = String::new();
                for document in &documents {
                    text(document.value(&arena), &mut all);
                }
                all
            }
            Err(error) => format!("error: {error}"),
        };
        let theirs = match (case.get("error"), case.get("values").and_then(Json::as_array)) {
            (Some(error), _) => format!("error: {error}"),
            (None, values) => values.unwrap().iter().map(Json::to_string).collect(),
        };
        let fails = |answer: &str| answer.starts_with("error: ");
        let same = ours == theirs || fails(&ours) || fails(&theirs);
        equal += usize::from(ours == theirs);
        if !same {
            wrong.push(format!("{source:?}\n  go   {theirs} {}\n  ours {ours}", case["strict"]));
        }
    }
    assert!(wrong.is_empty(), "{} differ:\n{}", wrong.len(), wrong.join("\n"));
    assert!(equal > 300, "{equal} have the same value");
}

/// Asserts that the places of a value and all values in it exist in the text.
fn check_places(document: &Document, text: &str, value: Value<'_>, path: &Path) -> usize {
    // A carriage return ends a line of YAML.
    let unix = text.replace("\r\n", "\n").replace('\r', "\n");
    for place in [document.place(path), document.value_place(path)] {
        let exists = [text, &unix].iter().any(|text| {
            let line = text.split('\n').nth(place.line - 1);
            line.is_some_and(|line| place.column <= line.chars().count() + 1)
        });
        assert!(exists, "{place} of {path} in {text:?}");
    }
    let inner = match value {
        Value::List(items) => items.iter().enumerate().map(|(at, item)| (path.index(at), *item)).collect(),
        Value::Object(entries) => entries.iter().map(|(key, item)| (path.child(key), *item)).collect(),
        _ => Vec::new(),
    };
    1 + inner.iter().map(|(path, item)| check_places(document, text, *item, path)).sum::<usize>()
}

#[test]
fn every_value_has_a_place_and_no_part_of_a_text_is_a_panic() {
    let mut found = 0;
    for line in include_str!("data/documents/kubectl.jsonl").lines() {
        let case: Json = serde_json::from_str(line).unwrap();
        let whole = case["text"].as_str().unwrap();
        let ends = whole.char_indices().map(|(at, _)| at).filter(|_| whole.len() < 200).chain([whole.len()]);
        for text in ends.map(|end| &whole[..end]) {
            let arena = Arena::new();
            for document in read(text).unwrap_or_default() {
                found += check_places(&document, text, document.value(&arena), &Path::default());
            }
        }
    }
    assert!(found > 5_000, "{found}");
}
