//! Compares the objects of CRDs: defaults, pruning, warnings and errors.

use fastrand::Rng;
use serde_json::{Value as Json, json};

use crate::case::items;
use crate::compare_definitions::{compare_definitions, compare_updates};
use crate::custom_resources::{Judge, is_unreadable, texts};
use crate::objects::{Object, Objects};
use crate::schemas::Schemas;
use crate::server::{Server, servers};
use crate::{PRINTED, assert_share, both, count, rng};

/// The start of the body of each kind of error that a run must contain.
const KINDS: [&str; 11] = [
    ": failed rule: ",
    " evaluating rule: ",
    ": Invalid value: ",
    ": Required value",
    ": Unsupported value: ",
    ": Too long: ",
    ": Too many: ",
    ": Duplicate value: ",
    "must be of type",
    "must validate one and only one schema",
    "should match",
];

/// Repetitions of a question whose answer differs.
const TRIES: usize = 20;

#[test]
#[ignore = "needs Go: make parity"]
fn judges_generated_custom_resources_as_the_api_server_does() {
    let mut rng = rng();
    let mut schemas = Schemas::new(rng.fork());
    let crds: Vec<Json> = (0..count("PARITY_CRDS", 1_000)).map(|_| schemas.crd()).collect();
    let updates: Vec<(Json, Json)> = crds.iter().map(|crd| schemas.update(crd)).collect();
    let mut different = 0;
    for server in &servers() {
        let accepted = compare_definitions(server, &crds, &mut different);
        compare_updates(server, &updates, &mut different);
        compare_objects(server, &accepted, rng.fork(), &mut different);
    }
    assert_eq!(different, 0, "{different} answers differ");
}

pub(crate) fn print(different: &mut usize, server: &Server, lines: &[(&str, &dyn std::fmt::Display)]) {
    *different += 1;
    if *different <= PRINTED {
        println!("\n1.{}", server.minor);
        for (name, value) in lines {
            println!("  {name} {value}");
        }
    }
}

/// Compares what happens to objects of accepted CRDs.
fn compare_objects(server: &Server, crds: &[&Json], rng: Rng, different: &mut usize) {
    let mut generator = Objects::new(rng);
    let each = count("PARITY_OBJECTS", 10_000).div_ceil(crds.len());
    let objects: Vec<Vec<Object>> =
        crds.iter().map(|crd| (0..each).map(|_| generator.object(crd)).collect()).collect();
    let question = |(crd, objects): (&&Json, &Vec<Object>)| {
        let objects: Vec<Json> = objects.iter().map(Object::question).collect();
        json!({ "crdCase": { "crd": crd, "objects": objects } })
    };
    let questions: Vec<Json> = crds.iter().zip(&objects).map(question).collect();
    let (theirs, ours) = both(server, &questions, |index, _| {
        let judge = Judge::new(crds[index], server.minor);
        objects[index].iter().map(|object| judge.process(object)).collect::<Vec<Json>>()
    });
    let mut tally = Tally::default();
    for (((crd, objects), theirs), ours) in crds.iter().zip(&objects).zip(&theirs).zip(&ours) {
        for ((object, wants), have) in objects.iter().zip(items(theirs, "objects")).zip(ours) {
            let wants = wants.as_array().expect("answers");
            tally.add(object, &wants[0], have);
            let is_given = |wants: &[Json]| wants.iter().any(|want| is_equal(object, want, have));
            if !is_given(wants) && !ask_again(server, crd, object).iter().any(|wants| is_given(wants)) {
                let version = &crd["spec"]["versions"][0];
                let (want, have) = differences(&wants[0], have);
                print(
                    different,
                    server,
                    &[("version", version), ("object", &object.question()), ("want", &want), ("have", &have)],
                );
            }
        }
    }
    tally.check(server);
}

/// Asks about one object again. The API server compares fields in random order and stops at the first that differs or has an error, so
/// with many fields it gives some answers rarely.
fn ask_again(server: &Server, crd: &Json, object: &Object) -> Vec<Vec<Json>> {
    let question = json!({ "crdCase": { "crd": crd, "objects": [object.question()] } });
    let answers = server.ask(&vec![question; TRIES]);
    answers.iter().filter_map(|answer| items(answer, "objects")[0].as_array().cloned()).collect()
}

/// Compares two answers to an object.
fn is_equal(object: &Object, want: &Json, have: &Json) -> bool {
    let warnings = || items(want, "warnings").iter().filter_map(Json::as_str);
    let is_duplicate = |text: &&str| text.starts_with("duplicate field ");
    let refused = want["refused"].as_str();
    // The reader of manifests refuses what the API server reports.
    if refused.is_some_and(|text| text.contains("duplicate field "))
        || warnings().any(|text| is_duplicate(&text))
    {
        if !is_unreadable(&object.text) {
            return false;
        }
        if refused.is_some() {
            return true;
        }
    }
    if let Some(text) = refused {
        return match text.strip_prefix("strict decoding error: ") {
            Some(list) => {
                let mut texts: Vec<&str> = list.split(", unknown field ").collect();
                let mut found: Vec<&str> = items(have, "refused").iter().filter_map(Json::as_str).collect();
                for text in texts.iter_mut().chain(&mut found) {
                    *text = text.trim_start_matches("unknown field ");
                }
                texts.sort_unstable();
                found.sort_unstable();
                texts == found
            }
            None => have["refused"].is_array(),
        };
    }
    if !items(have, "undecided").is_empty() {
        return true;
    }
    let want_warnings = warnings().filter(|text| !is_duplicate(text));
    texts(items(want, "errors").iter().filter_map(Json::as_str)) == have["errors"]
        && texts(want_warnings) == have["warnings"]
        && doubles(&want["decoded"]) == doubles(&have["decoded"])
}

/// The fields that differ in two answers.
fn differences(want: &Json, have: &Json) -> (Json, Json) {
    let fields = ["refused", "errors", "warnings", "decoded"];
    let differs = |field: &str| doubles(&want[field]) != doubles(&have[field]);
    let fields: Vec<&str> = fields.into_iter().filter(|field| differs(field)).collect();
    let pick =
        |answer: &Json| fields.iter().map(|field| ((*field).to_owned(), answer[*field].clone())).collect();
    (pick(want), pick(have))
}

/// A value whose numbers are doubles: JSON text does not tell 1.0 from 1.
fn doubles(value: &Json) -> Json {
    match value {
        Json::Object(fields) => fields.iter().map(|(name, value)| (name.clone(), doubles(value))).collect(),
        Json::Array(items) => items.iter().map(doubles).collect(),
        Json::Number(number) => json!(number.as_f64()),
        other => other.clone(),
    }
}

/// Counts of objects.
#[derive(Default)]
struct Tally {
    all: usize,
    updates: usize,
    refused: usize,
    valid: usize,
    invalid: usize,
    unknown: usize,
    undecided: usize,
    changed: usize,
    kinds: [usize; KINDS.len()],
}

impl Tally {
    fn add(&mut self, object: &Object, want: &Json, have: &Json) {
        let errors = items(want, "errors");
        self.all += 1;
        self.updates += usize::from(object.old.is_some());
        self.refused += usize::from(want["refused"].is_string());
        self.valid += usize::from(want["errors"] == json!([]));
        self.invalid += usize::from(!errors.is_empty());
        self.unknown += usize::from(!items(want, "warnings").is_empty());
        self.undecided += usize::from(!items(have, "undecided").is_empty());
        let sent: Json = serde_json::from_str(&object.text).expect("JSON");
        self.changed +=
            usize::from(doubles(&sent) != doubles(&want["decoded"]) && want["decoded"].is_object());
        for (kind, count) in KINDS.iter().zip(&mut self.kinds) {
            *count += usize::from(errors.iter().filter_map(Json::as_str).any(|error| error.contains(kind)));
        }
    }

    fn check(&self, server: &Server) {
        println!("1.{}: {} objects", server.minor, self.all);
        assert_share("updates", self.updates, self.all, 30.0);
        assert_share("refused", self.refused, self.all, 1.0);
        assert_share("valid", self.valid, self.all, 25.0);
        assert_share("invalid", self.invalid, self.all, 30.0);
        assert_share("changed by defaults and pruning", self.changed, self.all, 15.0);
        assert_share("with warnings", self.unknown, self.all, 8.0);
        for (kind, count) in KINDS.iter().zip(self.kinds) {
            assert_share(&format!("{kind:?}"), count, self.all, 0.05);
        }
        assert_share("decided", self.all - self.undecided, self.all, 98.0);
    }
}
