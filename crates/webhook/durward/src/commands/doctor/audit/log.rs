//! Reads an audit log: JSON lines, each an `Event` of `audit.k8s.io/v1`.
//!
//! Facts: an annotation of a webhook is `<webhook name>/<key>` (`apiserver/pkg/admission/attributes.go`). A native policy writes
//! `validation_failure`, and only the first failure of a request is kept (`pkg/audit/context.go`). A webhook with
//! `failurePolicy: Ignore` that does not answer leaves `failed-open.…` (`pkg/admission/plugin/webhook/validating/dispatcher.go`).
//! Each stage of a request is an event; only `ResponseComplete` has all annotations. Times are in UTC and equally long.

use std::collections::HashMap;
use std::io::{BufRead, Read as _};

use admission::text::excerpt;
use guards::reason_on_one_line;
use serde::Deserialize;

use super::super::finding::Finding;
use super::{AuditReport, CallGroup, Guards, Seen, Source, guard_of};

/// Limit of a line. An event with request and response has two objects of at most 3 MiB as JSON, which can be twice as long.
const MAX_LINE: usize = 16 << 20;

/// Limits of texts in the report.
const MAX_NAME: usize = 253;
const MAX_MESSAGE: usize = 200;

const WOULD_DENY: &str = "/would-deny";
const NATIVE_FAILURE: &str = "validation.policy.admission.k8s.io/validation_failure";
const FAILED_OPEN: &str = "failed-open.validating.webhook.admission.k8s.io/";
const DOMAIN: &str = ".durward.dev";

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Event {
    kind: String,
    api_version: String,
    stage: String,
    verb: String,
    #[serde(rename = "requestURI")]
    request_uri: String,
    user: UserInfo,
    impersonated_user: Option<UserInfo>,
    object_ref: Option<ObjectRef>,
    stage_timestamp: String,
    #[serde(default)]
    annotations: HashMap<String, String>,
}

#[derive(Deserialize)]
struct UserInfo {
    #[serde(default)]
    username: String,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct ObjectRef {
    resource: String,
    namespace: String,
    name: String,
    api_group: String,
    subresource: String,
}

/// An element of [`NATIVE_FAILURE`].
#[derive(Deserialize)]
struct FailedValidation {
    policy: String,
    message: String,
}

/// Adds the denials in a log to the report.
pub(super) fn read(name: &str, mut log: impl BufRead, guards: &Guards, report: &mut AuditReport) {
    report.sources.push(Source { name: name.to_owned(), requests: Some(0), ..Source::default() });
    let (mut line, mut number, mut bad, mut first_bad) = (Vec::new(), 0_u64, 0_u64, String::new());
    loop {
        line.clear();
        let read = log.by_ref().take(MAX_LINE as u64).read_until(b'\n', &mut line);
        let is_complete = line.ends_with(b"\n");
        let is_too_long = !is_complete && line.len() == MAX_LINE;
        let skipped = if is_too_long { log.skip_until(b'\n') } else { Ok(0) };
        if let Err(error) = read.and(skipped) {
            report.findings.push(unreadable(format!("{name} cannot be read after line {number}: {error}")));
            return;
        }
        if line.is_empty() {
            break;
        }
        number += 1;
        let why = match serde_json::from_slice::<Event>(&line) {
            _ if is_too_long => format!("longer than {} MiB", MAX_LINE >> 20),
            Ok(event) if event.kind == "Event" && event.api_version == "audit.k8s.io/v1" => {
                count(&event, guards, report);
                continue;
            }
            Ok(_) => "not an Event of audit.k8s.io/v1".to_owned(),
            // The API server is writing the last line.
            Err(_) if line.trim_ascii().is_empty() || !is_complete && number > 1 => continue,
            Err(error) => format!("column {}", error.column()),
        };
        bad += 1;
        if bad == 1 {
            first_bad = format!("line {number} ({why})");
        }
    }
    if bad > 0 {
        let what = format!("{name}: {bad} of {number} lines are not audit events; the first is {first_bad}");
        report.findings.push(unreadable(what));
    } else if report.sources.last().is_some_and(|source| source.requests == Some(0)) {
        let effect = "an empty log does not show that nothing would be denied";
        let fix = "check --audit-log-path and --audit-policy-file of the API server: deletions need at least the level Metadata";
        report.findings.push(Finding::new(None, "empty", format!("{name} has no requests"), effect, fix));
    }
}

fn unreadable(what: String) -> Finding {
    let fix = "name files that an API server wrote with --audit-log-path; for a compressed one: zcat FILE | durward doctor audit --audit-log -";
    Finding::new(None, "unreadable", what, "requests can be missing below", fix)
}

/// Counts the denials of a request, except a dry run by its URL. Logs seldom have the `DeleteOptions`.
fn count(event: &Event, guards: &Guards, report: &mut AuditReport) {
    let query = event.request_uri.split_once('?').map_or("", |(_, query)| query);
    let is_dry_run = query.split('&').any(|pair| pair == "dryRun=All");
    if event.stage != "ResponseComplete" || is_dry_run {
        return;
    }
    let time = time(&event.stage_timestamp);
    if let Some(source) = report.sources.last_mut() {
        source.requests = source.requests.map(|requests| requests + 1);
        if source.from.is_empty() || time < source.from {
            source.from.clone_from(&time);
        }
        source.to = std::mem::take(&mut source.to).max(time.clone());
    }
    for (key, value) in &event.annotations {
        if key == NATIVE_FAILURE {
            let failures: Vec<FailedValidation> = serde_json::from_str(value).unwrap_or_default();
            for FailedValidation { policy, message } in failures {
                if let Some(guard) = guards.of_policy(&policy) {
                    let group = CallGroup { policy, ..group(event, guard, guards) };
                    report.would_deny.add(group, seen(event, &time, &message));
                }
            }
        } else if let Some(webhook) = key.strip_suffix(WOULD_DENY)
            && let Some(guard) = webhook.strip_suffix(DOMAIN).and_then(guard_of)
        {
            let is_unchecked = event.annotations.contains_key(&format!("{webhook}/unknown"));
            let groups = if is_unchecked { &mut report.unchecked } else { &mut report.would_deny };
            groups.add(group(event, guard, guards), seen(event, &time, value));
        } else if key.starts_with(FAILED_OPEN)
            && let Some(guard) = value.strip_suffix(DOMAIN).and_then(guard_of)
        {
            let message = "Durward did not answer, and failurePolicy is Ignore";
            report.unchecked.add(group(event, guard, guards), seen(event, &time, message));
        }
    }
}

fn group(event: &Event, guard: &'static str, guards: &Guards) -> CallGroup {
    let user = event.impersonated_user.as_ref().unwrap_or(&event.user);
    let no_object = ObjectRef::default();
    let of = event.object_ref.as_ref().unwrap_or(&no_object);
    let after =
        |sign: &str, text: &str| if text.is_empty() { String::new() } else { format!("{sign}{text}") };
    let resource = format!("{}{}{}", of.resource, after(".", &of.api_group), after("/", &of.subresource));
    // The API server sets the namespace of a Namespace to its name.
    let namespace = if of.resource == "namespaces" { "" } else { &of.namespace };
    CallGroup {
        guard,
        is_controller: guards.is_controller(guard, &user.username),
        caller: excerpt(&user.username, MAX_NAME),
        verb: excerpt(&event.verb, MAX_NAME),
        resource: excerpt(&resource, MAX_NAME),
        namespace: excerpt(namespace, MAX_NAME),
        ..CallGroup::default()
    }
}

fn seen(event: &Event, time: &str, message: &str) -> Seen {
    let object = event.object_ref.as_ref().map_or("", |of| &of.name);
    Seen {
        count: 1,
        first: time.to_owned(),
        last: time.to_owned(),
        object: excerpt(object, MAX_NAME),
        message: excerpt(reason_on_one_line(message), MAX_MESSAGE),
    }
}

/// Returns a time without fractions of a second.
fn time(text: &str) -> String {
    let seconds = text.split_once('.').map_or(text.trim_end_matches('Z'), |(seconds, _)| seconds);
    format!("{}Z", excerpt(seconds, 19))
}
