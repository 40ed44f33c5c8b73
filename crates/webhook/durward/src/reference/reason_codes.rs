//! The page of reason codes, from the doc comments of the enums and constants that define them. A code can't be missing, because the
//! enums are read as a whole.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::fs;
use std::path::Path;

use super::{ROOT, page, row};

const CLUSTER_CAUSES: &str = include_str!("../../../cluster/src/cause.rs");
const SERVER_CAUSES: &str = include_str!("../../../server/src/cause.rs");
const DELETION_REASONS: &str = include_str!("../../../guards/src/deletion/cluster_facts.rs");
const ETCD_REASONS: &str = include_str!("../../../guards/src/etcd/messages.rs");
const ETCD_STATES: &str = include_str!("../../../guards/src/etcd/table/mod.rs");

/// A code, its meaning, and an example beside it.
struct DocumentedCode {
    name: String,
    meaning: String,
    example: Option<String>,
}

impl DocumentedCode {
    fn new(name: &str, doc: &str) -> Self {
        let (meaning, example) = match doc.split_once("Example: ") {
            Some((meaning, example)) => (meaning, Some(example.trim().to_owned())),
            None => (doc, None),
        };
        assert!(!meaning.is_empty(), "the code {name} needs a doc comment");
        Self { name: name.to_owned(), meaning: meaning.trim().to_owned(), example }
    }
}

#[test]
fn reference_of_the_reason_codes() {
    let mut out = "Reason codes are in `details.causes` of an answer. `durward review -o json` and the metric \
                   `durward_unknown_total` have them too. [How to read a denial](../errors/index.md) has causes and next steps.\n\n\
                   ## Could not check\n\n| code | meaning |\n|---|---|\n"
        .to_owned();
    let of_clusters = constants(CLUSTER_CAUSES);
    assert!(of_clusters.iter().map(|(_, code)| code.name.as_str()).eq(cluster::cause::ALL));
    for (_, code) in of_clusters.into_iter().chain(constants(SERVER_CAUSES)) {
        out.push_str(&row(&[&format!("`{}`", code.name), &code.meaning]));
    }
    out.push_str(
        "\nAn example below is the first line of a denial. For `Acknowledged` it is the `message` of the cause.\n",
    );
    reasons("deletion", variants(DELETION_REASONS, "Reason"), &BTreeSet::new(), &mut out);
    let eviction = constants(ETCD_REASONS).into_iter().find(|(name, _)| name == "DISRUPTION_BUDGET");
    let mut of_etcd = variants(ETCD_REASONS, "ReasonCode");
    of_etcd.extend(eviction.map(|(_, code)| code));
    of_etcd.sort_by(|a, b| a.name.cmp(&b.name));
    let mut states = variants(ETCD_STATES, "MemberState");
    states.retain(|state| state.name != "OtherCluster");
    let names: BTreeSet<String> = states.iter().map(|state| state.name.clone()).collect();
    reasons("etcd", of_etcd, &names, &mut out);
    out.push_str(
        "\n## Members of an etcd cluster\n\nThe `field` of these causes is the name of the member.\n\n",
    );
    out.push_str("| code | meaning |\n|---|---|\n");
    for state in states {
        out.push_str(&row(&[&format!("`{}`", state.name), &state.meaning]));
    }
    page("reason-codes.md", "Reason codes", &out);
}

/// Writes the codes of a guard's denials. Its cases have no other codes, except those of members.
fn reasons(guard: &str, codes: Vec<DocumentedCode>, members: &BTreeSet<String>, out: &mut String) {
    let mut examples = cases(guard);
    let _ = write!(out, "\n## Guard {guard}\n\n| code | meaning | example |\n|---|---|---|\n");
    for DocumentedCode { name, meaning, example } in codes {
        let of_cases = examples.remove(&name).filter(|line| !line.is_empty());
        assert!(
            of_cases.is_some() != example.is_some(),
            "{guard}: the code {name} needs an example, either of a case or beside the code"
        );
        let example = of_cases.or(example).unwrap_or_default();
        out.push_str(&row(&[&format!("`{name}`"), &meaning, &example]));
    }
    let unknown: Vec<_> = examples.keys().filter(|name| !members.contains(*name)).collect();
    assert!(unknown.is_empty(), "{guard}: cases have codes that no enum has: {unknown:?}");
}

/// Returns the text constants of a source file with a doc comment, each with its name.
fn constants(source: &str) -> Vec<(String, DocumentedCode)> {
    let mut found = Vec::new();
    let mut doc = String::new();
    for line in source.lines() {
        if let Some(text) = line.strip_prefix("/// ") {
            let _ = write!(doc, "{text} ");
            continue;
        }
        if let Some((before, value)) = line.split_once(": &str = \"") {
            let name = before.rsplit(' ').next().unwrap_or_default();
            found.push((name.to_owned(), DocumentedCode::new(value.trim_end_matches("\";"), &doc)));
        }
        doc.clear();
    }
    found
}

/// Returns the variants of an enum.
fn variants(source: &str, name: &str) -> Vec<DocumentedCode> {
    let (_, rest) = source.split_once(&format!(" enum {name} {{\n")).expect("the file has the enum");
    let (body, _) = rest.split_once("\n}").expect("the enum ends");
    let mut found = Vec::new();
    let mut doc = String::new();
    for line in body.lines().map(str::trim) {
        if let Some(text) = line.strip_prefix("/// ") {
            let _ = write!(doc, "{text} ");
            continue;
        }
        let name = line.split(|c: char| !c.is_alphanumeric()).next().unwrap_or_default();
        found.push(DocumentedCode::new(name, &doc));
        doc.clear();
    }
    found
}

/// Returns each reason code of a guard's cases, with the first line of a denial that has it as the first code about the object.
fn cases(guard: &str) -> BTreeMap<String, String> {
    let mut codes: BTreeMap<String, String> = BTreeMap::new();
    let dir = Path::new(ROOT).join("crates/webhook/guards/tests/cases").join(guard);
    let mut files: Vec<_> = fs::read_dir(dir).unwrap().map(|entry| entry.unwrap().path()).collect();
    files.sort();
    for file in files {
        let text = fs::read_to_string(&file).unwrap();
        let (_, ruling) = text.split_once("\n---\n").unwrap();
        let ruling: serde_json::Value = serde_saphyr::from_str(ruling).unwrap();
        let message = ruling["message"].as_str().and_then(|text| text.lines().next()).unwrap_or_default();
        for (at, entry) in ruling["details"].as_array().into_iter().flatten().enumerate() {
            let key = entry.as_object().and_then(|entry| entry.keys().next()).map(String::as_str);
            let Some(code) = key.or(entry.as_str()).and_then(|key| key.split(' ').next()) else { continue };
            let example = codes.entry(code.to_owned()).or_default();
            // The first code is the reason of the first line.
            if example.is_empty() && at == 0 {
                message.clone_into(example);
            }
        }
    }
    codes
}
