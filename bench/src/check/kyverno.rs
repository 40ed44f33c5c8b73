//! The report of Kyverno's CLI.

use std::fs;
use std::path::Path;

use serde_json::Value as Json;

use super::verdicts::{Verdict, Verdicts, object_name};
use crate::Result;

/// Reads the policy report of `kyverno apply --policy-report --output-format json`.
pub(crate) fn verdicts(report: &Path) -> Result<Verdicts> {
    let text = fs::read_to_string(report)?;
    let report: Json = serde_json::from_str(&text).map_err(|error| format!("Kyverno's report: {error}"))?;
    let mut verdicts = Verdicts::new();
    for result in report["results"].as_array().ok_or("Kyverno's report has no results")? {
        let text = |value: &Json| value.as_str().unwrap_or_default().to_owned();
        let verdict = match result["result"].as_str() {
            Some("pass") => Verdict::Pass,
            Some("fail") => Verdict::Deny(text(&result["message"])),
            Some("error") => Verdict::Error(text(&result["message"])),
            // A match condition excludes the object. Durward's report does not name such policies.
            Some("skip") => continue,
            other => return Err(format!("Kyverno's report has the result {other:?}").into()),
        };
        let object = &result["resources"][0];
        let name = object_name(&text(&object["kind"]), &text(&object["namespace"]), &text(&object["name"]));
        verdicts.insert((name, text(&result["policy"])), verdict);
    }
    Ok(verdicts)
}
