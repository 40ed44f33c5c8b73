//! The conformance tests of google/cel-spec that need no protobuf messages.
//!
//! A case that the environment of admission policies accepts has the result that cel-spec names. `deviations.tsv` lists the
//! other cases by file with the reason. Nearly all of them are refused at load, with the error that the list names.

#![allow(clippy::expect_used, clippy::print_stderr, reason = "a test fails by them and says why")]

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use policy::expression::{AccessCheck, Expression, ExpressionError, Variables};
use policy::release::Release;
use policy::value::{Arena, read_json};
use serde_json::Value as Json;
use show::show;

mod show;

/// The newest server, which accepts the most.
const RELEASE: Release = Release { server: 37, environment: 37 };

fn data(name: &str) -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/cel-spec").join(name);
    std::fs::read_to_string(path).expect("test data")
}

fn text<'j>(case: &'j Json, field: &str) -> &'j str {
    case[field].as_str().unwrap_or_default()
}

/// The expression of a case. A variable of the case becomes the variable of a loop over one field of `object`.
fn source(case: &Json) -> String {
    let mut source = text(case, "expr").to_owned();
    for (name, value) in bindings(case) {
        let reserved = matches!(name, "true" | "false" | "null");
        if !name.contains('.') && !reserved {
            let field =
                if value.ends_with('u') { format!("uint(object.{name})") } else { format!("object.{name}") };
            source = format!("[dyn({field})].map({name}, {source})[0]");
        }
    }
    source
}

fn bindings(case: &Json) -> impl Iterator<Item = (&str, &str)> {
    let bindings = case["bindings"].as_object().into_iter().flatten();
    bindings.map(|(name, value)| (name.as_str(), value.as_str().expect("a value")))
}

/// An object with the values of the case's variables as fields.
fn object(case: &Json) -> String {
    let fields =
        bindings(case).map(|(name, value)| format!("{}:{}", Json::from(name), value.trim_end_matches('u')));
    format!("{{{}}}", fields.collect::<Vec<_>>().join(","))
}

/// The result of a case: `refused` at load, `error` or `value`, and its text.
fn answer(case: &Json) -> (&'static str, String) {
    let expression = match Expression::compile(&source(case), RELEASE) {
        Ok(expression) => expression,
        Err(refused) => return ("refused", refused.message),
    };
    let arena = Arena::new();
    let object = object(case);
    let object = read_json(arena.text(&object), &arena).expect("JSON");
    let variables = Variables { object, ..Variables::default() };
    match expression.evaluate(&variables, &|_: &AccessCheck| None, &arena).0 {
        Ok(value) => ("value", show(&value)),
        Err(ExpressionError::Error(message)) => ("error", message),
        Err(failure) => ("error", format!("{failure:?}")),
    }
}

/// The results that differ from those of cel-spec, with a part of their text, by file/section/name.
fn deviations() -> BTreeMap<String, (String, String)> {
    let line = |line: &str| {
        let mut columns = line.split('\t').map(str::to_owned);
        let mut column = || columns.next().expect("three columns");
        (column(), (column(), column()))
    };
    let text = data("deviations.tsv");
    text.lines().filter(|line| !line.is_empty() && !line.starts_with('#')).map(line).collect()
}

#[test]
fn evaluates_every_case_of_cel_spec_that_kubernetes_accepts() {
    let deviations = deviations();
    let mut used = BTreeSet::new();
    let (mut as_specified, mut wrong) = (0, 0);
    for line in data("cases.jsonl").lines() {
        let case: Json = serde_json::from_str(line).expect("a case");
        let (file, section, name) = (text(&case, "file"), text(&case, "section"), text(&case, "name"));
        let keys = [format!("{file}/{section}/{name}"), format!("{file}/{section}/*"), format!("{file}/*")];
        let listed = keys.iter().find_map(|key| deviations.get_key_value(key));
        let (kind, found) = answer(&case);
        let is_right = match listed {
            Some((key, (wanted, part))) => {
                used.insert(key);
                kind == wanted && found.contains(part.as_str())
            }
            None if text(&case, "want") == "error" => kind != "value",
            None => kind == "value" && found == text(&case, "value"),
        };
        as_specified += usize::from(is_right && listed.is_none());
        if !is_right {
            wrong += 1;
            eprintln!("{file}/{section}/{name} {}\n  {kind} {found}", text(&case, "expr"));
        }
    }
    let unused: Vec<_> = deviations.keys().filter(|key| !used.contains(key)).collect();
    eprintln!("{as_specified} cases as cel-spec has them");
    assert_eq!(wrong, 0);
    assert!(unused.is_empty(), "listed, but no case: {unused:?}");
    assert!(as_specified > 1_300);
}
