//! Rules with the answers that the API server's code gave. `tests/data/README.md` says how they were recorded.

use std::collections::BTreeSet;

use super::Compiled;
use crate::crd::Crd;
use crate::crd::object::{Change, decode, validate};
use crate::field::{FieldError, Path};
use crate::release::Release;
use crate::schema::Schema;
use crate::value::{Arena, Value, read_json};

const CRD: &str = r#"{"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition", "metadata": {"name": "things.example.org"}, "spec": {"group": "example.org", "scope": "Namespaced", "names": {"kind": "Thing", "plural": "things"}, "versions": [{"name": "v1", "served": true, "storage": true, "schema": {"openAPIV3Schema": SCHEMA}}]}}"#;

fn texts(errors: &[FieldError]) -> BTreeSet<String> {
    errors.iter().map(ToString::to_string).collect()
}

fn recorded(answer: Value<'_>, name: &str) -> BTreeSet<String> {
    let texts = answer.field(name).unwrap_or_default();
    let texts = texts.elements().map(|text| text.as_str().unwrap().to_owned());
    texts.filter(|text| !text.starts_with("unknown field")).collect()
}

fn lines() -> String {
    std::fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/data/rules/cases.jsonl")).unwrap()
}

/// A text without the names of types of objects, which are random in the API server.
fn without_types(text: &str) -> String {
    let mut parts = text.split("selfType");
    let first = parts.next().unwrap().to_owned();
    parts.fold(first, |text, part| {
        text + "selfType" + part.trim_start_matches(|c: char| c.is_alphanumeric() || c == '.')
    })
}

#[test]
fn rules_that_do_not_compile_have_the_recorded_errors() {
    let (lines, arena, mut refused) = (lines(), Arena::new(), 0);
    for line in lines.lines() {
        let row = read_json(line, &arena).unwrap();
        let schema = Schema::parse(row.field("schema").unwrap(), &Path::default()).unwrap();
        let found = Compiled::new(&schema, Release::for_stored(35)).err().unwrap_or_default();
        let printed = |text: &String| without_types(text);
        let expected: BTreeSet<String> = recorded(row, "refused").iter().map(printed).collect();
        let path = "spec.validation.openAPIV3Schema.";
        let found: BTreeSet<String> =
            texts(&found).iter().map(|text| path.to_owned() + &printed(text)).collect();
        assert_eq!(found, expected);
        refused += expected.len();
    }
    assert_eq!(refused, 9);
}

#[test]
fn rules_have_the_recorded_answers() {
    let lines = lines();
    let (mut different, mut judged) = (Vec::new(), 0);
    for line in lines.lines() {
        let arena = Arena::new();
        let row = read_json(line, &arena).unwrap();
        let name = row.field("name").unwrap().as_str().unwrap();
        let schema = crate::value::write_json(row.field("schema").unwrap());
        let crd = Crd::read(read_json(arena.text(&CRD.replace("SCHEMA", &schema)), &arena).unwrap()).unwrap();
        let version = crd.served("v1").unwrap();
        for (index, case) in row.field("objects").unwrap_or_default().elements().enumerate() {
            let object = |value, is_stored| {
                decode(version, ("example.org", "Thing"), value, is_stored, &arena).unwrap().object
            };
            let new = object(case.field("object").unwrap(), false);
            let old = case.field("old").map(|old| object(old, true));
            let change = Change { new, old, namespaced: true, server: 35 };
            let judgement = validate(version, &change, &arena, &|| true);
            let found = (texts(&judgement.errors), texts(&judgement.unchanged));
            let answers = case.field("answers").unwrap();
            let expected =
                answers.elements().map(|answer| (recorded(answer, "errors"), recorded(answer, "warnings")));
            let expected: Vec<_> = expected.collect();
            if !expected.contains(&found) || !judgement.undecided.is_empty() {
                let (errors, warnings) = expected.first().cloned().unwrap_or_default();
                let lacks: Vec<_> =
                    errors.difference(&found.0).chain(warnings.difference(&found.1)).collect();
                let adds: Vec<_> = found.0.difference(&errors).chain(found.1.difference(&warnings)).collect();
                different.push(format!(
                    "{name} {index}: {:?}\nlacks {lacks:#?}\nadds {adds:#?}",
                    judgement.undecided
                ));
            }
            judged += 1;
        }
    }
    assert!(different.is_empty(), "{}", different.join("\n"));
    assert!(judged > 100, "{judged}");
}
