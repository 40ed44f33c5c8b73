//! Compares the entries of a webhook configuration with the entries that this replica needs. Pure.
//!
//! The API server adds defaults to an entry. [`essential`] and [`rule_key`] make defaults equal to absent fields.

use std::collections::BTreeSet;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ManagedFieldsEntry;
use serde_json::{Value, json};

use crate::file::NAME;

/// Suffix of the names of Durward's entries. Entries of others in the same object stay as they are.
const SUFFIX: &str = ".durward.dev";

/// Returns the name of an entry.
pub(super) fn name(entry: &Value) -> &str {
    entry["name"].as_str().unwrap_or_default()
}

/// Returns whether an entry of Durward has this first part of its name.
pub(super) fn is_named(entry: &Value, name: &str) -> bool {
    self::name(entry).strip_suffix(SUFFIX) == Some(name)
}

/// Returns whether an entry is Durward's: it has Durward's suffix, and a guard here needs it or it calls the same server as a needed one.
pub(super) fn is_ours(entry: &Value, needed: &[Value]) -> bool {
    let is_same = |other: &Value| name(other) == name(entry) || server(other) == server(entry);
    name(entry).ends_with(SUFFIX) && needed.iter().any(is_same)
}

/// Returns the server that an entry calls: the Service, or the URL without the name of the guard.
fn server(entry: &Value) -> Value {
    let client = &entry["clientConfig"];
    if let Some(url) = client["url"].as_str() {
        return url.rsplit_once('/').map_or(url, |(server, _)| server).into();
    }
    let service = &client["service"];
    json!([service["namespace"], service["name"], service["port"].as_i64().unwrap_or(443)])
}

/// Returns the decoded caBundle of an entry, empty if there is none.
pub(super) fn ca_bundle(entry: &Value) -> Vec<u8> {
    let text = entry["clientConfig"]["caBundle"].as_str().unwrap_or_default();
    STANDARD.decode(text).unwrap_or_default()
}

/// Sets the caBundle of an entry.
pub(super) fn set_ca_bundle(entry: &mut Value, certificates: &[Vec<u8>]) {
    entry["clientConfig"]["caBundle"] = STANDARD.encode(ca::pem::bundle(certificates)).into();
}

/// Returns the needed entries that are missing or lack a rule.
pub(super) fn missing<'a>(existing: &[Value], needed: &'a [Value]) -> Vec<&'a str> {
    let keys = |entry: &Value| -> BTreeSet<String> {
        entry["rules"].as_array().into_iter().flatten().map(rule_key).collect()
    };
    let is_there = |entry: &Value| {
        let found = existing.iter().find(|other| name(other) == name(entry));
        found.is_some_and(|found| keys(found).is_superset(&keys(entry)))
    };
    needed.iter().filter(|entry| !is_there(entry)).map(name).collect()
}

/// Returns the fields of an entry that differ, except the rules and the caBundle.
pub(super) fn differing_fields<'a>(entry: &Value, needed: &'a Value) -> Vec<&'a str> {
    let fields = differences(entry, needed).into_iter();
    fields.filter(|field| *field != "rules").collect()
}

/// Returns whether an entry has all fields that are applied, and no match condition besides them. Only a caBundle that is applied is
/// compared.
pub(super) fn is_applied(entry: &Value, applied: &Value) -> bool {
    let bundle = &applied["clientConfig"]["caBundle"];
    (bundle.is_null() || entry["clientConfig"]["caBundle"] == *bundle)
        && differences(entry, applied).is_empty()
}

/// Returns the fields that differ, of those that are needed. A caBundle is not compared.
pub(super) fn differences<'a>(entry: &Value, needed: &'a Value) -> Vec<&'a str> {
    let without_bundle = |value: &Value| {
        let mut value = value.clone();
        value.as_object_mut().map(|fields| fields.remove("caBundle"));
        value
    };
    let differs = |field: &str, value: &Value| match field {
        "clientConfig" => essential(&without_bundle(&entry[field])) != essential(&without_bundle(value)),
        // The API server stores no empty list of match conditions.
        _ => essential(&json!({ field: entry[field] })) != essential(&json!({ field: value })),
    };
    let fields = needed.as_object().into_iter().flatten();
    fields.filter(|(field, value)| differs(field, value)).map(|(field, _)| field.as_str()).collect()
}

/// Returns the other field managers that own one of these fields of an entry.
pub(super) fn other_managers(managed: &[ManagedFieldsEntry], entry: &str, fields: &[&str]) -> Vec<String> {
    let key = format!("k:{}", json!({ "name": entry }));
    let owns = |manager: &&ManagedFieldsEntry| {
        let owned = manager.fields_v1.as_ref().map(|owned| &owned.0["f:webhooks"][&key]);
        owned.is_some_and(|owned| fields.iter().any(|field| !owned[format!("f:{field}")].is_null()))
    };
    let names = managed.iter().filter(owns).filter_map(|manager| manager.manager.clone());
    let names: BTreeSet<String> = names.filter(|name| name != NAME).collect();
    names.into_iter().collect()
}

/// Returns a text that is equal for rules that match the same requests.
fn rule_key(rule: &Value) -> String {
    let list = |field: &str| {
        let values = rule[field].as_array().into_iter().flatten();
        let mut values: Vec<&str> = values.filter_map(Value::as_str).collect();
        values.sort_unstable();
        format!("{values:?}")
    };
    let scope = rule["scope"].as_str().unwrap_or("*");
    format!(
        "{} {} {} {} {scope}",
        list("operations"),
        list("apiGroups"),
        list("apiVersions"),
        list("resources")
    )
}

/// Returns a value without empty fields, which the API server drops or adds.
fn essential(value: &Value) -> Value {
    match value {
        Value::Object(fields) => {
            let fields = fields.iter().map(|(key, value)| (key.clone(), essential(value)));
            let is_empty = |value: &Value| match value {
                Value::Null => true,
                Value::Array(values) => values.is_empty(),
                Value::Object(fields) => fields.is_empty(),
                // An empty text is the value of a label in `matchLabels`.
                Value::String(_) | Value::Bool(_) | Value::Number(_) => false,
            };
            Value::Object(fields.filter(|(_, value)| !is_empty(value)).collect())
        }
        Value::Array(values) => values.iter().map(essential).collect(),
        other => other.clone(),
    }
}

#[cfg(test)]
mod tests {
    use k8s_openapi::apimachinery::pkg::apis::meta::v1::FieldsV1;

    use super::*;

    fn entry() -> Value {
        json!({
            "name": "a.durward.dev",
            "clientConfig": {"service": {"name": "durward", "namespace": "d", "path": "/a", "port": 443}},
            "rules": [{"operations": ["DELETE"], "apiGroups": [""], "apiVersions": ["v1"], "resources": ["pods"]}],
            "objectSelector": {},
            "matchConditions": [],
            "failurePolicy": "Fail",
        })
    }

    /// Returns the entry as the API server stores it.
    fn stored() -> Value {
        let mut stored = entry();
        stored.as_object_mut().unwrap().remove("matchConditions");
        stored["clientConfig"]["caBundle"] = "AAAA".into();
        stored["rules"][0]["scope"] = "*".into();
        stored["timeoutSeconds"] = 10.into();
        stored
    }

    #[test]
    fn defaults_and_the_ca_bundle_of_others_are_no_difference() {
        assert_eq!(differing_fields(&stored(), &entry()), [""; 0]);
        assert_eq!(missing(&[stored()], &[entry()]), [""; 0]);
        let mut applied = entry();
        applied["rules"][0]["scope"] = "*".into();
        assert!(is_applied(&stored(), &applied));
        set_ca_bundle(&mut applied, &[b"a".to_vec()]);
        assert!(!is_applied(&stored(), &applied), "another caBundle");
    }

    #[test]
    fn each_change_of_a_field_is_a_difference() {
        let mut applied = entry();
        applied["rules"][0]["scope"] = "*".into();
        for (field, value) in [
            ("failurePolicy", json!("Ignore")),
            ("objectSelector", json!({"matchLabels": {"a": ""}})),
            ("matchConditions", json!([{"name": "never", "expression": "false"}])),
            ("clientConfig", json!({"url": "https://d/a"})),
            ("rules", json!([])),
        ] {
            let mut changed = stored();
            changed[field] = value;
            assert!(!is_applied(&changed, &applied), "{field}");
            let is_rules = field == "rules";
            assert_eq!(differing_fields(&changed, &applied), if is_rules { vec![] } else { vec![field] });
            assert_eq!(missing(&[changed], &[applied.clone()]).is_empty(), !is_rules);
        }
        assert_eq!(missing(&[], &[entry()]), ["a.durward.dev"]);
    }

    #[test]
    fn an_entry_is_durwards_by_its_suffix_and_its_name_or_server() {
        let called = |name: &str, service: &str| json!({"name": name, "clientConfig": {"service": {"name": service, "namespace": "d"}}});
        for (name, service, expected) in [
            ("a.durward.dev", "durward", true),
            ("a.durward.dev", "other", true),
            ("b.durward.dev", "durward", true),
            ("b.durward.dev", "other", false),
            ("b.example.org", "durward", false),
        ] {
            assert_eq!(is_ours(&called(name, service), &[entry()]), expected, "{name} {service}");
        }
        assert!(is_named(&entry(), "a") && !is_named(&entry(), "a.durward.dev"));
        let by_url = |name: &str| json!({"name": name, "clientConfig": {"url": format!("https://d/{name}")}});
        assert!(is_ours(&by_url("b.durward.dev"), &[by_url("a.durward.dev")]));
    }

    #[test]
    fn the_manager_of_a_field_is_named() {
        let manager = |name: &str, entry: &str, field: &str| ManagedFieldsEntry {
            manager: Some(name.to_owned()),
            fields_v1: Some(FieldsV1(
                json!({"f:webhooks": {format!("k:{{\"name\":\"{entry}\"}}"): {field: {}}}}),
            )),
            ..ManagedFieldsEntry::default()
        };
        let managed = [
            manager("argocd", "a.durward.dev", "f:matchConditions"),
            manager("kubectl-edit", "b.durward.dev", "f:matchConditions"),
            manager("cainjector", "a.durward.dev", "f:clientConfig"),
            manager("durward", "a.durward.dev", "f:matchConditions"),
        ];
        assert_eq!(other_managers(&managed, "a.durward.dev", &["matchConditions"]), ["argocd"]);
        assert_eq!(other_managers(&managed, "a.durward.dev", &["failurePolicy"]), [""; 0]);
    }
}
