//! The verdicts of both programs, by object and policy.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;

use serde_json::Value as Json;

use crate::Result;

/// Differences that are printed.
const PRINTED: usize = 10;

/// The verdict of a policy on an object. The message is that of the first violation.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Verdict {
    Pass,
    Deny(String),
    Error(String),
}

/// Verdicts by object and policy. A policy that does not match the object has none.
pub(crate) type Verdicts = BTreeMap<(String, String), Verdict>;

/// Returns the key of an object.
pub(crate) fn object_name(kind: &str, namespace: &str, name: &str) -> String {
    format!("{kind} {namespace}/{name}")
}

/// Reads the report of `durward check -o json`.
pub(crate) fn durward(report: &Path) -> Result<Verdicts> {
    let report: Json = serde_json::from_str(&fs::read_to_string(report)?)?;
    if report["problems"].as_array().is_none_or(|problems| !problems.is_empty()) {
        return Err(format!("durward reports problems: {}", report["problems"]).into());
    }
    let mut verdicts = Verdicts::new();
    for document in report["documents"].as_array().ok_or("durward's report has no documents")? {
        let text = |value: &Json| value.as_str().unwrap_or_default().to_owned();
        let list = |field: &str| document[field].as_array().map(Vec::as_slice).unwrap_or_default();
        let object =
            object_name(&text(&document["kind"]), &text(&document["namespace"]), &text(&document["name"]));
        // The first violation is the one that the API server reports, so later ones are not written over it.
        for finding in list("findings") {
            let verdict = match finding["verdict"].as_str() {
                Some("deny") => Verdict::Deny(text(&finding["message"])),
                Some("error") => Verdict::Error(text(&finding["message"])),
                other => return Err(format!("durward reports {other:?} for {object}: {finding}").into()),
            };
            verdicts.entry((object.clone(), text(&finding["policy"]))).or_insert(verdict);
        }
        for judge in list("policies") {
            verdicts.entry((object.clone(), text(&judge["policy"]))).or_insert(Verdict::Pass);
        }
    }
    Ok(verdicts)
}

/// Prints differences and numbers. Fails if there are differences, or no verdicts of a kind.
pub(crate) fn compare(durward: &Verdicts, kyverno: &Verdicts) -> Result<()> {
    let keys: BTreeSet<_> = durward.keys().chain(kyverno.keys()).collect();
    let differing: Vec<_> = keys.into_iter().filter(|key| durward.get(*key) != kyverno.get(*key)).collect();
    for key in differing.iter().take(PRINTED) {
        let (object, policy) = key;
        println!("  {object}, {policy}: durward {:?}, Kyverno {:?}", durward.get(*key), kyverno.get(*key));
    }
    let count = |is: fn(&Verdict) -> bool| durward.values().filter(|verdict| is(verdict)).count();
    let passed = count(|verdict| matches!(verdict, Verdict::Pass));
    let denied = count(|verdict| matches!(verdict, Verdict::Deny(_)));
    let failed = count(|verdict| matches!(verdict, Verdict::Error(_)));
    println!(
        "Durward and Kyverno: {passed} pass, {denied} deny, {failed} errors; {} differences",
        differing.len()
    );
    if differing.is_empty() && passed > 0 && denied > 0 {
        return Ok(());
    }
    Err("the verdicts of Durward and Kyverno differ, or there are none of a kind".into())
}
