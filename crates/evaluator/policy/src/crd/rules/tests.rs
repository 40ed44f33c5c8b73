//! Rules with the answers that the API server's code gave. `tests/data/README.md` says how they were recorded.

use std::collections::BTreeSet;

use super::admit;
use crate::crd::Crd;
use crate::crd::object::{decode, validate};
use crate::field::{FieldError, Path};
use crate::release::Release;
use crate::schema::Schema;
use crate::value::{Arena, Value, read_json};

#[path = "../../../tests/words/mod.rs"]
mod words;

use words::comparable;

const CRD: &str = r#"{"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition", "metadata": {"name": "things.example.org"}, "spec": {"group": "example.org", "scope": "Namespaced", "names": {"kind": "Thing", "plural": "things"}, "versions": [{"name": "v1", "served": true, "storage": true, "schema": {"openAPIV3Schema": SCHEMA}}]}}"#;

fn texts(errors: &[FieldError]) -> BTreeSet<String> {
    errors.iter().map(|error| comparable(&error.to_string())).collect()
}

fn recorded(answer: Value<'_>, name: &str) -> BTreeSet<String> {
    let texts = answer.field(name).unwrap_or_default();
    texts.elements().map(|text| comparable(text.as_str().unwrap())).collect()
}

fn lines(name: &str) -> String {
    let path = format!(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/data/rules/{}.jsonl"), name);
    std::fs::read_to_string(path).unwrap()
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
fn rules_of_new_crds_have_the_recorded_errors() {
    let arena = Arena::new();
    let (mut different, mut refused) = (Vec::new(), 0);
    for line in lines("refused").lines() {
        let row = read_json(line, &arena).unwrap();
        let schema = crate::value::write_json(row.field("schema").unwrap());
        let crd = read_json(arena.text(&CRD.replace("SCHEMA", &schema)), &arena).unwrap();
        let kind = ("apiextensions.k8s.io", "v1", "CustomResourceDefinition");
        let crd = crate::normalize::normalize(kind, crd, &arena).unwrap().object;
        for server in [35u8, 37] {
            let minor =
                row.field(&server.to_string()).map_or("35", |_| if server == 37 { "37" } else { "35" });
            let expected: BTreeSet<String> =
                recorded(row, minor).iter().map(|text| without_types(text)).collect();
            let validated = crate::crd::admit::admit(crd, crd, None, server, &|| true);
            let found = texts(&validated.errors).iter().map(|text| without_types(text)).collect();
            if found != expected {
                let lacks: Vec<_> = expected.difference(&found).collect();
                let adds: Vec<_> = found.difference(&expected).collect();
                different
                    .push(format!("{:?} 1.{server}: lacks {lacks:#?} adds {adds:#?}", row.field("name")));
            }
            refused += expected.len();
        }
    }
    assert!(different.is_empty(), "{}", different.join("\n"));
    assert!(refused > 100, "{refused}");
}

/// Judges the recorded objects as an API server of a minor does. Returns the differences.
fn differences(server: u8) -> Vec<String> {
    let lines = lines("cases");
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
            let validated = validate((&crd, version), new, old, server, &arena, &|| true);
            let found = (texts(&validated.errors), texts(&validated.unchanged));
            let answers = case.field(&server.to_string()).or_else(|| case.field("35")).unwrap();
            let expected: Vec<_> = answers
                .elements()
                .map(|answer| (recorded(answer, "errors"), recorded(answer, "warnings")))
                .collect();
            if !expected.contains(&found) || !validated.undecided.is_empty() {
                different
                    .push(format!("{name} {index}: {found:#?} instead of {expected:#?}, {validated:#?}"));
            }
            judged += 1;
        }
    }
    assert!(judged > 100, "{judged}");
    different
}

#[test]
fn rules_have_the_recorded_answers() {
    for server in [35, 37] {
        let different = differences(server);
        assert!(different.is_empty(), "1.{server}: {}", different.join("\n"));
    }
}

#[test]
fn estimated_costs_of_rules_are_those_of_the_api_server() {
    let lines = lines("costs");
    let mut compared = 0;
    for line in lines.lines() {
        let arena = Arena::new();
        let row = read_json(line, &arena).unwrap();
        let schema = row.field("schema").unwrap_or_else(|| gateway_schema(row, &arena));
        let schema = Schema::parse(schema, &Path::default()).unwrap();
        let costs = row.field("costs").unwrap();
        for server in [35u8, 37] {
            let found = admit::costs(&schema, Release::for_new(server));
            let (first, later) = (costs.field("35").unwrap(), costs.field("37").filter(|_| server == 37));
            for (path, cost) in found {
                let path = path.to_string();
                let expected = later.and_then(|costs| costs.field(&path)).or_else(|| first.field(&path));
                assert_eq!(
                    Some(&*cost.to_string()),
                    expected.unwrap().as_str(),
                    "1.{server}: {path} {}",
                    crate::value::write_json_up_to(row, 200)
                );
                compared += 1;
            }
        }
    }
    assert!(compared > 1_000, "{compared}");
}

/// The schema of a version of a CRD of Gateway API.
fn gateway_schema<'a>(row: Value<'a>, arena: &'a Arena) -> Value<'a> {
    let text = |name: &str| row.field(name).unwrap().as_str().unwrap();
    let path = format!(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/data/gateway-api/{}"), text("crd"));
    let content = std::fs::read_to_string(path).unwrap();
    let crd = crate::document::read(&content).unwrap().first().unwrap().value(arena);
    let versions = crd.field("spec").unwrap().field("versions").unwrap();
    let version =
        versions.elements().find(|item| item.field("name").unwrap().as_str() == Some(text("version")));
    version.unwrap().field("schema").unwrap().field("openAPIV3Schema").unwrap()
}
