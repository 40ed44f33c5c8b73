//! The guard answers the recorded requests as the API server answers them with policies of its own.
//!
//! The records are those of `policies::requests_are_answered_as_recorded`. All policies are in one set. Those that the guard refuses
//! when it loads them need the authorizer or params of the cluster.

use std::collections::BTreeSet;

use e2e::prelude::*;

use super::generator::words::comparable;
use super::{exclusive, file, guards};
use crate::cases::policies::{IN_FORCE_WITHIN, collection, name, parallel, read, recorded};

/// Prefix of the message of a native denial.
const DENIED: &str = " denied request: ";

/// Least share of the records that the guard can judge.
const LEAST: usize = 200;

#[e2e::case]
fn recorded_requests_are_answered_as_by_native_policies(context: &'static TestContext) -> Result<()> {
    let cluster = exclusive(context)?;
    let api = cluster.api();
    for fact in read("facts.jsonl")? {
        eventually("a fact to be created", IN_FORCE_WITHIN, || {
            let path = format!("{}/{}", collection(&fact)?, name(&fact));
            Ok(Poll::from(api.apply(&path, "e2e", &fact)?.succeeded()))
        })?;
    }
    let cases = read("requests.jsonl")?;
    let old = parallel(&cases, |_, case| match &case["oldObject"] {
        Value::Null => Ok(Value::Null),
        object => Ok(api.create(&collection(object)?, object)?.succeeded()?.body),
    })?;
    let directory = context.directory("resources-parity")?;
    let mut files = vec![file(&directory, "facts.yaml", &documents(&read("facts.jsonl")?))?];
    for (index, case) in cases.iter().enumerate() {
        let policies = case["policies"].as_array().context("no policies")?;
        files.push(file(&directory, &format!("{index}.yaml"), &documents(policies))?);
    }
    let refused = refused(context, &directory, &files)?;
    files.retain(|path| !refused.contains(path));
    let judged = |index: usize| !refused.iter().any(|path| path.ends_with(&format!("/{index}.yaml")));
    let (_installation, _durward) =
        Installation::start(context, &cluster, &guards(&files, ""), "durward-parity")?;
    let ann = cluster.user("ann", &[])?;
    for path in ["/api/v1/namespaces/shop/configmaps", "/metrics"] {
        ann.await_permitted(path)?;
    }
    let answers = parallel(&cases, |index, case| {
        if !judged(index) {
            return Ok(None);
        }
        let api = if case["user"] == "ann" { &ann.api } else { api };
        request(api, case, &old[index]).map(Some)
    })?;
    let mut differences = Vec::new();
    for (case, answer) in cases.iter().zip(&answers) {
        if let Some(answer) = answer
            && let Some(difference) = difference(case, answer)
        {
            differences.push(format!("{}: {difference}", case["title"]));
        }
    }
    let count = answers.iter().flatten().count();
    ensure!(
        differences.is_empty(),
        "{} of {count} requests are answered in another way:\n{}",
        differences.len(),
        differences.join("\n")
    );
    ensure!(count >= LEAST, "the guard judges only {count} of {} requests", cases.len());
    e2e::console::print(format_args!("the guard answers {count} of {} recorded requests", cases.len()));
    Ok(())
}

pub(super) fn documents(objects: &[Value]) -> String {
    objects.iter().fold(String::new(), |text, object| text + &format!("---\n{object}\n"))
}

/// Returns the files that the guard refuses. A refused file hides the problems of none.
pub(super) fn refused(
    context: &TestContext,
    directory: &std::path::Path,
    files: &[String],
) -> Result<BTreeSet<String>> {
    let mut refused = BTreeSet::new();
    // Policies that conflict with another one are found when the others are gone.
    for _ in 0..3 {
        let left: Vec<String> = files.iter().filter(|path| !refused.contains(*path)).cloned().collect();
        let header =
            "apiVersion: durward.dev/v1alpha1\nkind: Configuration\nserver: {tls: {selfManaged: {}}}\n";
        let config = file(directory, "check.conf", &format!("{header}guards:\n{}\n", guards(&left, "")))?;
        let output = Durward::command(context, &["config", "check", "--config", &config])?;
        if output.is_success() {
            return Ok(refused);
        }
        let named = files.iter().filter(|path| output.stderr.contains(&format!("{path}:")));
        refused.extend(named.cloned());
    }
    bail!("the guard refuses a set without the policies that it names")
}

/// Sends the request of a case as a dry run.
pub(super) fn request(api: &e2e::api::Api, case: &Value, old: &Value) -> Result<Value> {
    let mut object = case["object"].clone();
    // Custom resources can be replaced only with the version of the stored object.
    if !object.is_null() && !old.is_null() {
        object["metadata"]["resourceVersion"] = old["metadata"]["resourceVersion"].clone();
    }
    let subresource = case["subresource"].as_str().map(|name| format!("/{name}")).unwrap_or_default();
    let target = if old.is_null() { &object } else { old };
    let stored = format!("{}/{}{subresource}?dryRun=All", collection(target)?, name(target));
    let answer = match (object.is_null(), old.is_null()) {
        (false, true) => api.create(&format!("{}?dryRun=All", collection(&object)?), &object)?,
        (false, false) => api.replace(&stored, &object)?,
        (true, _) => api.delete(&stored)?,
    };
    Ok(recorded(&answer, &object))
}

/// Returns how an answer of the guard differs from the record of native policies: in the code, the reason, the message of the first
/// denial, or the warnings.
pub(super) fn difference(case: &Value, answer: &Value) -> Option<String> {
    let (native, guard) = (&case["answer"], &answer["answer"]);
    let describe = |what: &str| {
        Some(format!(
            "{what}\n  native {native} {}\n  guard  {guard} {}",
            case["warnings"], answer["warnings"]
        ))
    };
    if native.is_null() != guard.is_null() {
        return describe("verdict");
    }
    let text = |value: &Value| value["message"].as_str().unwrap_or_default().to_owned();
    let is_other_code = native["code"] != guard["code"] || native["reason"] != guard["reason"];
    if is_other_code && is_first(&text(native), &text(guard)) {
        return describe("code");
    }
    let message = text(native);
    let message = message.split_once(DENIED).map_or(message.as_str(), |(_, message)| message);
    // The guard writes a violation on one line.
    let words = |text: &str| text.split_whitespace().map(str::to_owned).collect::<Vec<_>>().join(" ");
    let message = comparable(&words(message));
    if !message.is_empty() && !text(guard).lines().any(|line| comparable(&words(line)).contains(&message)) {
        return describe("message");
    }
    let warnings = |value: &Value| -> Vec<String> {
        value["warnings"]
            .as_array()
            .into_iter()
            .flatten()
            .filter_map(Value::as_str)
            .map(|text| comparable(&words(text)))
            .collect()
    };
    let of_guard = warnings(answer);
    let is_missing = |native: &String| {
        let native = native.split_once("': ").map_or(native.as_str(), |(_, message)| message);
        let native = native.split_once("': ").map_or(native, |(_, message)| message);
        !of_guard.iter().any(|warning| warning.contains(native))
    };
    if warnings(case).iter().any(is_missing) || warnings(case).len() != of_guard.len() {
        return describe("warnings");
    }
    None
}

/// Returns whether a native denial is the first violation that the guard lists. The guard takes the code of that one. The API server
/// evaluates policies and bindings in the random order of a Go map (`policy_source.go`), and reports the first denial only.
fn is_first(native: &str, guard: &str) -> bool {
    let mut quoted = native.split('\'').skip(1).step_by(2);
    let (Some(policy), Some(binding)) = (quoted.next(), quoted.next()) else { return true };
    let first = guard.lines().nth(1).unwrap_or(guard);
    let names_no_binding = !first.contains("\", binding \"");
    first.contains(&format!("policy \"{policy}\""))
        && (names_no_binding || first.contains(&format!("binding \"{binding}\"")))
}
