//! The page of reason codes.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs;
use std::path::Path;

use super::{ROOT, page, row};

#[test]
fn reference_of_the_reason_codes() {
    let mut out = "Reason codes are in `details.causes` of an answer. `durward review -o json` and the metric \
                   `durward_unknown_total` have them too. [How to read a denial](../errors/index.md) explains each.\n\n\
                   ## Could not check\n\n| code | meaning |\n|---|---|\n"
        .to_owned();
    let mut doc = String::new();
    let source = include_str!("../../../cluster/src/cause.rs");
    for line in source.lines() {
        if let Some(text) = line.strip_prefix("/// ") {
            let _ = write!(doc, "{text} ");
        } else if let Some((_, code)) = line.split_once(": &str = \"") {
            out.push_str(&row(&[&format!("`{}`", code.trim_end_matches("\";")), doc.trim()]));
            doc.clear();
        } else {
            doc.clear();
        }
    }
    assert!(cluster::cause::ALL.iter().all(|code| out.contains(&format!("| `{code}` |"))));
    for guard in ["deletion", "etcd"] {
        let _ = write!(out, "\n## Guard {guard}\n\n| code | example |\n|---|---|\n");
        for (code, message) in cases(guard) {
            out.push_str(&row(&[&format!("`{code}`"), &message]));
        }
    }
    page("reason-codes.md", "Reason codes", &out);
}

/// Returns each reason code of a guard's cases, with the first line of a denial that has it.
fn cases(guard: &str) -> BTreeMap<String, String> {
    let mut codes: BTreeMap<String, String> = BTreeMap::new();
    let dir = Path::new(ROOT).join("crates/guards/src").join(guard).join("cases");
    let mut files: Vec<_> =
        fs::read_dir(dir).unwrap().map(|entry| entry.unwrap().path().join("ruling.yaml")).collect();
    files.sort();
    for file in files {
        let ruling: serde_json::Value = serde_saphyr::from_str(&fs::read_to_string(&file).unwrap()).unwrap();
        let message = ruling["message"].as_str().and_then(|text| text.lines().next()).unwrap_or_default();
        // The first entry is about the object; the etcd guard adds one for each member.
        let details = ruling["details"].as_array().into_iter().flatten();
        for entry in details.take(if guard == "etcd" { 1 } else { usize::MAX }) {
            let key = entry.as_object().and_then(|entry| entry.keys().next()).map(String::as_str);
            let Some(code) = key.or(entry.as_str()).and_then(|key| key.split(' ').next()) else { continue };
            let example = codes.entry(code.to_owned()).or_default();
            if example.is_empty() {
                message.clone_into(example);
            }
        }
    }
    codes
}
