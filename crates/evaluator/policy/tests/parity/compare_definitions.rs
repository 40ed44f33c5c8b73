//! Compares CRDs that are created and updated: all errors and warnings.

use std::fs::OpenOptions;
use std::io::Write as _;

use serde_json::{Value as Json, json};

use crate::case::items;
use crate::compare_crds::print;
use crate::definition::{Admitted, admit, shown};
use crate::server::Server;
use crate::{assert_share, both};

/// Compares CRDs that are created. Returns those that the API server accepts.
pub(crate) fn compare_definitions<'c>(
    server: &Server,
    crds: &'c [Json],
    different: &mut usize,
) -> Vec<&'c Json> {
    let questions: Vec<Json> = crds.iter().map(|crd| json!({ "crdCase": { "crd": crd } })).collect();
    let (theirs, ours) = both(server, &questions, |index, _| admit(&crds[index], None, server.minor));
    let mut accepted = Vec::new();
    let mut counts = [0; 6];
    for ((crd, theirs), ours) in crds.iter().zip(&theirs).zip(&ours) {
        let wants = items(theirs, "crd");
        let want = &wants[0];
        let errors = items(want, "all");
        let has = |field: &str| !items(want, field).is_empty();
        let found = [
            want["decode"].is_string(),
            has("unsupported"),
            has("structural"),
            has("defaults"),
            errors.iter().any(is_of_rule),
            errors.iter().any(|error| !is_of_schema(error)),
        ];
        for (count, is_found) in counts.iter_mut().zip(found) {
            *count += usize::from(is_found);
        }
        if want["all"] == json!([]) {
            accepted.push(crd);
        }
        record(server, (crd, &Json::Null), wants);
        report(server, (crd, &Json::Null), wants, ours, different);
    }
    println!("1.{}: {} CRDs", server.minor, crds.len());
    assert_share("accepted", accepted.len(), crds.len(), 25.0);
    assert_share("refused", crds.len() - accepted.len(), crds.len(), 40.0);
    let names =
        ["not decoded", "unsupported", "not structural", "wrong defaults", "wrong rules", "wrong elsewhere"];
    for ((name, count), least) in names.iter().zip(counts).zip([0.5, 2.0, 15.0, 1.0, 2.0, 5.0]) {
        assert_share(name, count, crds.len(), least);
    }
    accepted
}

/// Compares updates of CRDs, some of which have errors already.
pub(crate) fn compare_updates(server: &Server, updates: &[(Json, Json)], different: &mut usize) {
    let question = |(new, old): &(Json, Json)| json!({ "crdCase": { "crd": new, "old": old } });
    let questions: Vec<Json> = updates.iter().map(question).collect();
    let (theirs, ours) = both(server, &questions, |index, _| {
        let (new, old) = &updates[index];
        admit(new, Some(old), server.minor)
    });
    let (mut accepted, mut immutable, mut stored, mut undecided) = (0, 0, 0, 0);
    for (((new, old), theirs), ours) in updates.iter().zip(&theirs).zip(&ours) {
        let wants = items(theirs, "crd");
        let has = |part: &str| {
            items(&wants[0], "all").iter().filter_map(Json::as_str).any(|error| error.contains(part))
        };
        accepted += usize::from(wants[0]["all"] == json!([]));
        immutable += usize::from(has("field is immutable"));
        stored += usize::from(has("status.storedVersions"));
        undecided += usize::from(ours.as_ref().is_ok_and(|ours| !ours.undecided.is_empty()));
        record(server, (new, old), wants);
        report(server, (new, old), wants, ours, different);
    }
    println!("1.{}: {} updates of CRDs", server.minor, updates.len());
    assert_share("accepted", accepted, updates.len(), 12.0);
    assert_share("immutable field", immutable, updates.len(), 1.0);
    assert_share("stored version", stored, updates.len(), 1.0);
    assert_share("decided", updates.len() - undecided, updates.len(), 95.0);
}

/// Appends the answer of a server to the file of `PARITY_RECORD`.
fn record(server: &Server, (new, old): (&Json, &Json), wants: &[Json]) {
    let Ok(path) = std::env::var("PARITY_RECORD") else { return };
    let file = OpenOptions::new().create(true).append(true).open(path).expect("a file");
    let mut answer = json!({ "crd": new, "server": server.minor, "answer": wants[0] });
    if !old.is_null() {
        answer["old"] = old.clone();
    }
    writeln!(&file, "{answer}").expect("a line");
}

/// Prints the answers if they differ.
fn report(
    server: &Server,
    (new, old): (&Json, &Json),
    wants: &[Json],
    ours: &Result<Admitted, Vec<String>>,
    different: &mut usize,
) {
    if wants.iter().any(|want| is_equal(want, ours)) {
        return;
    }
    let (lacks, adds) = match ours {
        Ok(ours) => {
            let (want, have) = (texts(&wants[0], "all"), ours.errors.clone());
            let without = |all: &[String], others: &[String]| {
                all.iter().filter(|text| !others.contains(text)).cloned().collect::<Vec<_>>()
            };
            (without(&want, &have), without(&have, &want))
        }
        Err(errors) => (Vec::new(), errors.clone()),
    };
    let changed = if old.is_null() { "" } else { "update " };
    let (lacks, adds) = (lacks.join("\n    "), adds.join("\n    "));
    let warnings = &wants[0]["warnings"];
    print(
        different,
        server,
        &[
            (changed, new),
            ("from", old),
            ("lacks", &lacks),
            ("adds", &adds),
            ("decode", &wants[0]["decode"]),
            ("warnings", warnings),
            ("have", &format!("{:?}", ours.as_ref().map(|ours| &ours.warnings))),
        ],
    );
}

fn is_equal(want: &Json, ours: &Result<Admitted, Vec<String>>) -> bool {
    let ours = match ours {
        _ if want["phase"] == "panic" => return true,
        Err(_) => return want["decode"].is_string(),
        Ok(_) if want["decode"].is_string() => return false,
        Ok(ours) if !ours.undecided.is_empty() => return true,
        Ok(ours) => ours,
    };
    let want_errors = texts(want, "all");
    // A rule that does not compile is an error of a default that it judges. Here it is an error of the rule in any case.
    let of_default = ["rule compile error: ", "rule compiler initialization error: "];
    if want_errors.iter().any(|text| of_default.iter().any(|part| text.contains(part))) {
        return !ours.errors.is_empty();
    }
    want_errors == ours.errors && (!want_errors.is_empty() || texts(want, "warnings") == ours.warnings)
}

/// Whether an error is about a rule.
fn is_of_rule(error: &Json) -> bool {
    error.as_str().is_some_and(|text| {
        let path = text.split(": ").next().unwrap_or_default();
        path.contains("x-kubernetes-validations") || text.contains("estimated rule cost total for entire")
    })
}

fn is_of_schema(error: &Json) -> bool {
    error.as_str().is_some_and(|text| text.contains("openAPIV3Schema"))
}

/// The texts of a field, in order, without what differs between runs.
fn texts(answer: &Json, field: &str) -> Vec<String> {
    let texts: Vec<String> =
        items(answer, field).iter().filter_map(Json::as_str).map(str::to_owned).collect();
    shown(&texts)
}
