//! Cases of policies: loading them, and evaluating their request with the facts of the case.

use std::collections::BTreeMap;

use policy::Authorization;
use policy::expression::AccessCheck;
use policy::facts::{Facts, Lookup};
use policy::request::{AdmissionRequest, GroupVersion, RequestUser};
use policy::set::{Missing, PolicySet, PolicySetBuilder};
use policy::value::{Arena, Value, read_json};
use serde_json::{Value as Json, json};

use crate::words::comparable;

/// The elements of a field.
pub(crate) fn items<'j>(json: &'j Json, field: &str) -> &'j [Json] {
    json[field].as_array().map(Vec::as_slice).unwrap_or_default()
}

/// The text of a field, or an empty one.
pub(crate) fn text<'j>(json: &'j Json, field: &str) -> &'j str {
    json[field].as_str().unwrap_or_default()
}

/// Loads the policies and bindings of a case, or returns the errors.
pub(crate) fn load(case: &Json, mut builder: PolicySetBuilder) -> Result<PolicySet, Vec<String>> {
    let arena = Arena::new();
    for document in items(case, "policies").iter().chain(items(case, "bindings")) {
        let text = document.to_string();
        builder.add("case", read_json(arena.text(&text), &arena).expect("a document"));
    }
    builder.finish().map_err(|errors| errors.iter().map(|error| error.error.to_string()).collect())
}

/// The decision of the authorizer: `get` is allowed, `fail` fails and everything else is denied.
pub(crate) fn decide(check: &AccessCheck) -> Authorization {
    let (allowed, reason, error) = match check.verb.as_str() {
        "get" => (true, "rule", None),
        "fail" => (false, "none", Some("broken".to_owned())),
        _ => (false, "denied", None),
    };
    Authorization { allowed, reason: reason.to_owned(), error }
}

/// Answers a lookup from the case.
fn answer(case: &Json, lookup: &Lookup, facts: &mut Facts) {
    let name_of = |object: &Json| text(&object["metadata"], "name").to_owned();
    match lookup {
        Lookup::Namespace(name) => {
            let found = items(case, "namespaces").iter().find(|namespace| name_of(namespace) == *name);
            facts.namespaces.insert(name.clone(), found.map(Json::to_string));
        }
        Lookup::ParamKind(kind) => {
            let scope = match text(&case["paramKinds"], &kind.kind) {
                "namespaced" => Some(true),
                "cluster" => Some(false),
                _ => None,
            };
            facts.param_kinds.insert(kind.clone(), scope);
        }
        Lookup::Params(query) => {
            let found = items(case, "params").iter().filter(|object| {
                text(&object["metadata"], "namespace") == query.namespace
                    && query.name.as_ref().is_none_or(|name| name_of(object) == *name)
            });
            facts.params.insert(query.clone(), found.map(Json::to_string).collect());
        }
        Lookup::Check(check) => {
            facts.decisions.insert(check.clone(), decide(check));
        }
        Lookup::Conversion { .. } => panic!("no case needs conversion"),
        Lookup::Limit(limit) => panic!("no case reaches a limit: {limit:?}"),
        Lookup::User | Lookup::OldObject => panic!("the user and the old object are known"),
    }
}

/// The verdict on the request of a case: message, reason and code of a denial, warnings and audit annotations.
pub(crate) fn evaluate(case: &Json, set: &PolicySet) -> Json {
    let mut facts = Facts::default();
    // The API server reads the namespace even if no expression needs it.
    answer(case, &Lookup::Namespace(text(&case["request"], "namespace").to_owned()), &mut facts);
    loop {
        let arena = Arena::new();
        let outcome = {
            let parse = |json: &Json| {
                let text = json.to_string();
                if json.is_null() { Value::Null } else { read_json(arena.text(&text), &arena).expect("JSON") }
            };
            let input = &case["request"];
            let groups: Vec<&str> = items(&input["user"], "groups").iter().filter_map(Json::as_str).collect();
            let named =
                |name| GroupVersion { group: text(input, "group"), version: text(input, "version"), name };
            let request = AdmissionRequest {
                operation: text(input, "operation"),
                kind: named(text(input, "kind")),
                resource: named(text(input, "resource")),
                subresource: text(input, "subresource"),
                name: text(input, "name"),
                namespace: text(input, "namespace"),
                user: RequestUser {
                    name: text(&input["user"], "name"),
                    uid: text(&input["user"], "uid"),
                    groups: &groups,
                    extra: parse(&input["user"]["extra"]),
                },
                dry_run: input["dryRun"] == true,
                options: parse(&input["options"]),
                object: parse(&input["object"]),
                old_object: parse(&input["oldObject"]),
                ..AdmissionRequest::default()
            };
            let decisions = set.evaluate(&request, &facts, &arena, &|| true);
            if decisions.missing.is_empty() {
                let mut found = BTreeMap::new();
                if let Some(denial) = decisions.denials.first() {
                    let message = denial.status_message(&request.group_resource(), request.object_name());
                    let reason = denial.reason.as_str();
                    found.insert("message", json!(message));
                    found.insert("reason", json!(reason));
                    found.insert("code", json!(denial.code()));
                }
                let mut warnings: Vec<String> =
                    decisions.warnings.iter().map(policy::vap::decision::Objection::warning).collect();
                warnings.sort();
                found.insert("warnings", json!(warnings));
                let annotations: BTreeMap<_, _> = decisions.audit_annotations.into_iter().collect();
                found.insert("annotations", json!(annotations));
                return json!(found);
            }
            decisions.missing
        };
        for Missing { lookup, .. } in &outcome {
            answer(case, lookup, &mut facts);
        }
    }
}

/// The part of an answer that is compared.
pub(crate) fn comparable_texts(answer: &Json) -> Json {
    match answer {
        Json::String(text) => comparable(text).into(),
        Json::Array(items) => items.iter().map(comparable_texts).collect(),
        Json::Object(fields) => {
            fields.iter().map(|(name, value)| (name.clone(), comparable_texts(value))).collect()
        }
        other => other.clone(),
    }
}
