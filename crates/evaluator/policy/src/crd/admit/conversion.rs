//! The conversion between versions of a CRD. Webhooks are not called.

use std::collections::HashSet;

use super::spec::{DefinitionSpec, text};
use crate::cel::library::{formats, url};
use crate::field::{FieldError, Path};
use crate::release::Release;
use crate::value::Value;

/// Versions of reviews that API servers send.
const REVIEWS: [&str; 2] = ["v1", "v1beta1"];
const FORM: &str = "; desired format: https://host[/path]";

/// Adds the errors of the conversion. `old` is that of the CRD before an update, and returns a field that could not be checked.
pub(super) fn check(
    spec: &DefinitionSpec<'_>,
    old: Option<&DefinitionSpec<'_>>,
    is_established: bool,
    release: Release,
    errors: &mut Vec<FieldError>,
) -> Option<FieldError> {
    let conversion = conversion_of(spec)?;
    let path = spec.path.child("conversion");
    let strategy = text(conversion, "strategy");
    let webhook = conversion.field("webhook").unwrap_or_default();
    let client = webhook.field("clientConfig").unwrap_or_default();
    let reviews = webhook.field("conversionReviewVersions").unwrap_or_default();
    let strategies = ["None", "Webhook"];
    match strategy {
        "" => errors.push(FieldError::required(&path.child("strategy"), "")),
        _ if strategies.contains(&strategy) => {}
        _ => errors.push(FieldError::not_supported(&path.child("strategy"), strategy, &strategies)),
    }
    let keeps = matches!(spec.value.field("preserveUnknownFields"), Some(Value::Bool(true)));
    if strategy != "None" && keeps {
        let detail = "must be None if spec.preserveUnknownFields is true";
        errors.push(FieldError::invalid(&path.child("strategy"), strategy, detail));
    }
    let client_path = path.child("webhookClientConfig");
    let reviews_path = path.child("conversionReviewVersions");
    if strategy != "Webhook" {
        let detail = "should not be set when strategy is not set to Webhook";
        if matches!(client, Value::Object(_)) {
            errors.push(FieldError::forbidden(&client_path, detail));
        }
        if reviews.list_len().is_some_and(|len| len > 0) {
            errors.push(FieldError::forbidden(&reviews_path, detail));
        }
        return None;
    }
    let old = old.and_then(conversion_of).and_then(|conversion| conversion.field("webhook"));
    let mut unchecked = None;
    if matches!(client, Value::Object(_)) {
        client_config(client, &client_path, release, errors);
        let bundle = |client: Value<'_>| text(client, "caBundle").to_owned();
        let before = old.and_then(|webhook| webhook.field("clientConfig")).map(bundle).unwrap_or_default();
        let now = bundle(client);
        if is_established && release.checks_ca_bundles() && !now.is_empty() && now != before {
            let detail = "the certificates of the webhook are not read";
            unchecked = Some(FieldError::internal(&client_path.child("caBundle"), detail));
        }
    } else {
        errors.push(FieldError::required(&client_path, "required when strategy is set to Webhook"));
    }
    let before: Vec<&str> = old
        .and_then(|webhook| webhook.field("conversionReviewVersions"))
        .unwrap_or_default()
        .all_elements()
        .filter_map(|version| version.as_str())
        .collect();
    let was_recognized = before.is_empty() || before.iter().any(|version| REVIEWS.contains(version));
    review_versions(reviews, was_recognized, &reviews_path, errors);
    unchecked
}

fn conversion_of<'a>(spec: &DefinitionSpec<'a>) -> Option<Value<'a>> {
    spec.value.field("conversion").filter(|conversion| matches!(conversion, Value::Object(_)))
}

fn review_versions(reviews: Value<'_>, must_be_recognized: bool, path: &Path, errors: &mut Vec<FieldError>) {
    let names: Vec<&str> = reviews.all_elements().map(|name| name.as_str().unwrap_or_default()).collect();
    if names.is_empty() {
        return errors.push(FieldError::required(path, ""));
    }
    let mut seen = HashSet::new();
    for (index, name) in names.iter().enumerate() {
        let path = path.index(index);
        if !seen.insert(name) {
            errors.push(FieldError::invalid(&path, name, "duplicate version"));
            continue;
        }
        errors.extend(formats::label_1035(name).iter().map(|text| FieldError::invalid(&path, name, text)));
    }
    if must_be_recognized && !names.iter().any(|name| REVIEWS.contains(name)) {
        let texts: Vec<Box<str>> = names.iter().map(|name| Box::from(*name)).collect();
        let detail = format!("must include at least one of {}", REVIEWS.join(", "));
        errors.push(FieldError::invalid_list(path, &texts, &detail));
    }
}

fn client_config(client: Value<'_>, path: &Path, release: Release, errors: &mut Vec<FieldError>) {
    let service = client.field("service").filter(|service| matches!(service, Value::Object(_)));
    match (client.field("url").and_then(|url| url.as_str()), service) {
        (Some(text), None) => url_of(text, &path.child("url"), release, errors),
        (None, Some(service)) => service_of(service, &path.child("service"), release, errors),
        _ => errors.push(FieldError::required(path, "exactly one of url or service is required")),
    }
}

fn url_of(text: &str, path: &Path, release: Release, errors: &mut Vec<FieldError>) {
    let parts = match url::split(text, release.url_host_is_strict()) {
        Ok(parts) => parts,
        Err(why) => {
            let detail = format!("url must be a valid URL: {why}{FORM}");
            return errors.push(FieldError::required(path, &detail));
        }
    };
    let mut invalid = |value: &str, detail: &str| errors.push(FieldError::invalid(path, value, detail));
    if parts.scheme != "https" {
        invalid(&parts.scheme, &format!("'https' is the only allowed URL scheme{FORM}"));
    }
    if parts.host.is_empty() {
        let what = if release.repeats_required() { "provided" } else { "specified" };
        invalid("", &format!("host must be {what}{FORM}"));
    }
    if let Some(user) = &parts.user {
        invalid(user, "user information is not permitted in the URL");
    }
    if !parts.fragment.is_empty() {
        invalid(parts.fragment, "fragments are not permitted in the URL");
    }
    if !parts.query.is_empty() {
        invalid(&parts.query, "query parameters are not permitted in the URL");
    }
}

fn service_of(service: Value<'_>, path: &Path, release: Release, errors: &mut Vec<FieldError>) {
    // The API server exchanges both names.
    for (field, missing) in [("namespace", "name"), ("name", "namespace")] {
        if text(service, field).is_empty() {
            let detail = if release.repeats_required() {
                format!("service {missing} is required")
            } else {
                String::new()
            };
            errors.push(FieldError::required(&path.child(missing), &detail));
        }
    }
    if let Some(Value::Int(port)) =
        service.field("port").filter(|port| matches!(port, Value::Int(port) if !(1..=65_535).contains(port)))
    {
        let detail = "port is not valid: must be between 1 and 65535, inclusive";
        errors.push(FieldError::invalid_json(&path.child("port"), &port.to_string(), detail));
    }
    let url = text(service, "path");
    let path = path.child("path");
    let mut invalid = |detail: &str| errors.push(FieldError::invalid(&path, url, detail));
    let empty = |index: usize| format!(r"segment[{index}] may not be empty"); // a text of the API server
    match url {
        "" | "/" => return,
        "//" => return invalid(&empty(0)),
        _ => {}
    }
    if !url.starts_with('/') {
        invalid("must start with a '/'");
    }
    // The API server skips the first byte, whatever it is.
    let mut rest = url.chars();
    rest.next();
    let rest = rest.as_str();
    for (index, segment) in rest.strip_suffix('/').unwrap_or(rest).split('/').enumerate() {
        if segment.is_empty() {
            invalid(&empty(index));
        }
        for problem in formats::subdomain(segment).iter().filter(|_| !segment.is_empty()) {
            invalid(&format!("segment[{index}]: {problem}"));
        }
    }
}
