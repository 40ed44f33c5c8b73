//! Tests of the steps with recorded verdicts and with random objects.

mod random;
mod recorded;
mod texts;

use std::collections::BTreeSet;
use std::path::PathBuf;

use super::{Schema, defaults, list_types, prune, structural, validate};
use crate::crd::rules::CompiledRules;
use crate::document;
use crate::field::{FieldError, Path};
use crate::release::Release;
use crate::value::{Arena, Value, read_json};

const RELEASE: Release = Release { server: 35, environment: 35 };

fn data(name: &str) -> String {
    let path = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/data").join(name);
    std::fs::read_to_string(path).unwrap()
}

/// The schema of a version of a CRD.
fn schema_of(crd: Value<'_>, version: &str) -> Schema {
    let versions = crd.field("spec").unwrap().field("versions").unwrap();
    let version = versions.elements().find(|item| item.field("name").unwrap().as_str() == Some(version));
    let value = version.unwrap().field("schema").unwrap().field("openAPIV3Schema").unwrap();
    let schema = Schema::parse(value, &Path::default()).unwrap();
    assert_eq!(structural::check(&schema, &Path::new("schema")), []);
    schema
}

fn prepare<'a>(value: Value<'a>, schema: &'a Schema, arena: &'a Arena) -> Value<'a> {
    let (value, _) = prune::prune(value, schema, true, arena);
    let value = defaults::remove_nulls(value, schema, arena);
    defaults::set(value, schema, arena)
}

fn texts(errors: &[FieldError]) -> BTreeSet<String> {
    errors.iter().map(ToString::to_string).collect()
}

fn recorded(value: Option<Value<'_>>) -> BTreeSet<String> {
    value.into_iter().flat_map(|list| list.elements()).map(|text| text.as_str().unwrap().to_owned()).collect()
}

#[test]
fn validates_the_objects_of_gateway_api_as_the_api_server_does() {
    let arena = Arena::new();
    let lines = data("gateway-api/cases.jsonl");
    let mut crds: Vec<(String, Value<'_>)> = Vec::new();
    let mut tested = 0;
    for line in lines.lines() {
        let case = read_json(line, &arena).unwrap();
        let text = |name: &str| case.field(name).unwrap().as_str().unwrap();
        let file = text("crd");
        if !crds.iter().any(|(name, _)| name == file) {
            let read = document::read(&data(&format!("gateway-api/{file}"))).unwrap();
            crds.push((file.to_owned(), read.first().unwrap().value(&arena)));
        }
        let crd = crds.iter().find(|(name, _)| name == file).unwrap().1;
        let schema = schema_of(crd, text("version"));
        let arena = Arena::new();
        let object = prepare(case.field("object").unwrap(), &schema, &arena);
        let validation = validate::validate(object, &schema, &Path::default(), None, RELEASE);
        assert_eq!(validation.undecided, []);
        assert_eq!(texts(&validation.errors), recorded(case.field("schema")), "{}", text("id"));
        let lists = list_types::validate(object, &schema, &Path::default());
        assert_eq!(texts(&lists), recorded(case.field("list")), "{}", text("id"));
        let rules = CompiledRules::new(&schema, RELEASE).map_err(|errors| texts(&errors));
        let judged = rules.as_ref().unwrap().run(10_000_000, &schema, (object, None), &arena, &|| true).0;
        assert_eq!(judged.undecided, []);
        assert_eq!(texts(&judged.errors), recorded(case.field("cel")), "{}", text("id"));
        tested += 1;
    }
    assert_eq!(tested, 142);
}

#[test]
fn finds_the_recorded_errors_of_a_cluster_and_no_others() {
    let arena = Arena::new();
    let read = |name: &str| {
        let text = data(&format!("kubernetesclusters/{name}"));
        document::read(&text).unwrap().first().unwrap().value(&arena)
    };
    let schema = schema_of(read("crd-v1-faithful.yaml"), "v1");
    let errors = |name: &str| {
        let object = prepare(read(name), &schema, &arena);
        let validation = validate::validate(object, &schema, &Path::default(), None, RELEASE);
        assert_eq!(validation.undecided, []);
        texts(&validation.errors)
    };
    let recorded = data("kubernetesclusters/bad.errors.txt");
    let recorded = recorded.lines().filter_map(|line| line.strip_prefix("* ")).map(str::to_owned);
    assert_eq!(errors("bad.yaml"), recorded.collect());
    assert_eq!(errors("sample.yaml"), BTreeSet::new());
    assert_eq!(errors("with-key.yaml"), BTreeSet::new());
}
