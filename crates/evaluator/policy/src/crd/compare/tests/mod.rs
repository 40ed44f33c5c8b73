//! Classes of changes, and changes that have none.

mod defaults;

use super::*;
use crate::value::{Arena, read_json};

/// Compares two CRDs as JSON. A change is `class field`, or `class path` if it has no field.
fn changes(old: &str, new: &str) -> Vec<String> {
    let arena = Arena::new();
    let read = |text: &str| Definition::read(read_json(arena.text(text), &arena).unwrap()).ok().unwrap();
    let (old, new) = (read(old), read(new));
    for version in old.crd.versions.iter().chain(&new.crd.versions) {
        assert!(version.not_structural.is_empty(), "{:?}", version.not_structural);
    }
    let text = |change: CrdChange| {
        let field = if change.field.is_empty() { change.path.to_string() } else { change.field };
        format!("{} {field}", change.class.name())
    };
    compare(&old, &new).into_iter().map(text).collect()
}

fn crd(spec: &str) -> String {
    format!(
        r#"{{"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition", "metadata": {{"name": "things.example.org"}},
        "spec": {{"group": "example.org", "names": {{"kind": "Thing", "plural": "things"}}, "scope": "Namespaced", {spec}}}}}"#
    )
}

fn version(name: &str, is_served: bool, is_stored: bool, schema: &str) -> String {
    format!(
        r#"{{"name": "{name}", "served": {is_served}, "storage": {is_stored}, "schema": {{"openAPIV3Schema": {schema}}}}}"#
    )
}

/// Compares two schemas of the field `s`.
fn of_field(old: &str, new: &str) -> Vec<String> {
    let crd = |schema: &str| {
        let schema = format!(r#"{{"type": "object", "properties": {{"s": {schema}}}}}"#);
        crd(&format!(r#""versions": [{}]"#, version("v1", true, true, &schema)))
    };
    changes(&crd(old), &crd(new))
}

#[track_caller]
fn breaks(old: &str, new: &str, expected: &[&str]) {
    assert_eq!(of_field(old, new), expected, "{old} to {new}");
}

/// One direction breaks objects, and the other one does not.
#[track_caller]
fn tightens(old: &str, new: &str, expected: &str) {
    breaks(old, new, &[expected]);
    breaks(new, old, &[]);
    breaks(old, old, &[]);
    breaks(new, new, &[]);
}

#[track_caller]
fn is_harmless(old: &str, new: &str) {
    breaks(old, new, &[]);
}

const ANY: &str = r#"{"x-kubernetes-preserve-unknown-fields": true}"#;

#[test]
fn types_are_tightened_and_loosened() {
    let of = |kind: &str| format!(r#"{{"type": "{kind}"}}"#);
    let int_or_string = r#"{"x-kubernetes-int-or-string": true}"#;
    tightens(&of("number"), &of("integer"), "typeTightened s");
    tightens(int_or_string, &of("integer"), "typeTightened s");
    tightens(int_or_string, &of("string"), "typeTightened s");
    tightens(
        r#"{"x-kubernetes-int-or-string": true, "anyOf": [{"type": "integer"}, {"type": "string"}]}"#,
        &of("integer"),
        "typeTightened s",
    );
    breaks(&of("string"), &of("object"), &["typeTightened s"]);
    breaks(&of("object"), &of("string"), &["typeTightened s"]);
    breaks(int_or_string, &of("number"), &["typeTightened s"]);
    breaks(ANY, &of("string"), &["typeTightened s"]);
    is_harmless(
        r#"{"type": "string", "description": "a"}"#,
        r#"{"type": "string", "description": "b", "title": "c", "example": 1}"#,
    );
}

#[test]
fn the_alternatives_of_an_integer_or_string_are_no_condition() {
    let plain = r#"{"x-kubernetes-int-or-string": true}"#;
    let listed =
        r#"{"x-kubernetes-int-or-string": true, "anyOf": [{"type": "integer"}, {"type": "string"}]}"#;
    is_harmless(plain, listed);
    is_harmless(listed, plain);
    is_harmless(r#"{"type": "integer"}"#, listed);
}

#[test]
fn null_is_removed_or_refused() {
    tightens(r#"{"type": "string", "nullable": true}"#, r#"{"type": "string"}"#, "nullableRemoved s");
    tightens(
        r#"{"type": "array", "items": {"type": "string", "nullable": true}}"#,
        r#"{"type": "array", "items": {"type": "string"}}"#,
        "nullableRemoved s[*]",
    );
}

#[test]
fn enumerations_lose_and_gain_values() {
    let of = |values: &str| format!(r#"{{"type": "string", "enum": [{values}]}}"#);
    tightens(&of(r#""a", "b""#), &of(r#""b""#), "enumTightened s");
    tightens(r#"{"type": "string"}"#, &of(r#""a""#), "enumTightened s");
    breaks(&of(r#""a""#), &of(r#""b""#), &["enumTightened s"]);
    is_harmless(&of(r#""a", "b""#), &of(r#""b", "a""#));
}

#[test]
fn bounds_are_narrower_or_wider() {
    let cases = [
        ("integer", "maximum", "5", "4"),
        ("integer", "minimum", "4", "5"),
        ("number", "maximum", "5.5", "5.25"),
        ("string", "maxLength", "5", "4"),
        ("string", "minLength", "4", "5"),
        ("integer", "multipleOf", "2", "4"),
        ("object", "maxProperties", "5", "4"),
        ("object", "minProperties", "4", "5"),
    ];
    for (kind, name, wide, narrow) in cases {
        let of = |bound: &str| format!(r#"{{"type": "{kind}", "{name}": {bound}}}"#);
        let without = format!(r#"{{"type": "{kind}"}}"#);
        tightens(&of(wide), &of(narrow), "boundsTightened s");
        tightens(&without, &of(narrow), "boundsTightened s");
    }
    let of = |bound: &str| format!(r#"{{"type": "array", "items": {{"type": "string"}}{bound}}}"#);
    tightens(&of(""), &of(r#", "maxItems": 3"#), "boundsTightened s");
    tightens(&of(""), &of(r#", "minItems": 1"#), "boundsTightened s");
    is_harmless(&of(""), &of(r#", "minItems": 0"#));
    let exclusive =
        |flag: bool| format!(r#"{{"type": "integer", "maximum": 5, "exclusiveMaximum": {flag}}}"#);
    tightens(&exclusive(false), &exclusive(true), "boundsTightened s");
    is_harmless(
        r#"{"type": "integer", "maximum": 5, "exclusiveMaximum": true}"#,
        r#"{"type": "integer", "maximum": 6}"#,
    );
    // A bound of a type that no old value has does not matter.
    is_harmless(
        r#"{"type": "integer"}"#,
        r#"{"x-kubernetes-int-or-string": true, "maxLength": 3, "pattern": "a"}"#,
    );
}

#[test]
fn other_patterns_and_formats_are_changes() {
    let pattern = |pattern: &str| format!(r#"{{"type": "string", "pattern": "{pattern}"}}"#);
    tightens(r#"{"type": "string"}"#, &pattern("^a"), "patternChanged s");
    breaks(&pattern("^a"), &pattern("a"), &["patternChanged s"]);
    let format = |kind: &str, format: &str| format!(r#"{{"type": "{kind}", "format": "{format}"}}"#);
    tightens(r#"{"type": "string"}"#, &format("string", "date"), "formatChanged s");
    tightens(&format("integer", "int64"), &format("integer", "int32"), "formatChanged s");
    tightens(r#"{"type": "integer"}"#, &format("integer", "int32"), "formatChanged s");
    // No API server checks it.
    is_harmless(r#"{"type": "string"}"#, &format("string", "color"));
    is_harmless(r#"{"type": "integer"}"#, &format("integer", "int64"));
    is_harmless(&format("string", "date-time"), &format("string", "datetime"));
}

#[test]
fn a_required_field_is_new_unless_it_has_a_default() {
    let of = |required: &str, more: &str| {
        format!(
            r#"{{"type": "object", "required": [{required}], "properties": {{"a": {{"type": "string"{more}}}}}}}"#
        )
    };
    let default = r#", "default": "x""#;
    tightens(&of("", ""), &of(r#""a""#, ""), "requiredAdded s.a");
    is_harmless(&of("", ""), &of(r#""a""#, default));
    // Objects that were stored before the default do not have the field.
    breaks(&of(r#""a""#, default), &of(r#""a""#, ""), &["requiredAdded s.a"]);
    is_harmless(&of("", default), &of("", ""));
}

#[test]
fn a_field_that_is_not_declared_is_removed() {
    let of = |properties: &str| format!(r#"{{"type": "object", "properties": {{{properties}}}}}"#);
    tightens(&of(r#""a": {"type": "string"}"#), &of(""), "fieldRemoved s.a");
    let keeps = r#"{"type": "object", "x-kubernetes-preserve-unknown-fields": true}"#;
    tightens(keeps, r#"{"type": "object"}"#, "fieldRemoved s.*");
    // A field that was kept with any value is declared.
    let declared = r#"{"type": "object", "x-kubernetes-preserve-unknown-fields": true, "properties": {"a": {"type": "string"}}}"#;
    tightens(keeps, declared, "typeTightened s.a");
    breaks(keeps, &of(r#""a": {"type": "string"}"#), &["typeTightened s.a", "fieldRemoved s.*"]);
    // The items of a list that keeps unknown fields keep them.
    let list = |more: &str| format!(r#"{{"type": "array", "items": {{"type": "object"}}{more}}}"#);
    tightens(&list(r#", "x-kubernetes-preserve-unknown-fields": true"#), &list(""), "fieldRemoved s[*].*");
}

#[test]
fn maps_and_objects_are_compared_by_field() {
    let map = |of: &str| format!(r#"{{"type": "object", "additionalProperties": {of}}}"#);
    let object = r#"{"type": "object", "properties": {"a": {"type": "string"}}}"#;
    let text = r#"{"type": "string"}"#;
    tightens(&map(text), object, "fieldRemoved s.*");
    breaks(&map(r#"{"type": "integer"}"#), object, &["typeTightened s.a", "fieldRemoved s.*"]);
    breaks(object, &map(r#"{"type": "integer"}"#), &["typeTightened s.a"]);
    tightens(&map(text), &map(r#"{"type": "string", "maxLength": 3}"#), "boundsTightened s.*");
    let keeps = r#"{"type": "object", "x-kubernetes-preserve-unknown-fields": true}"#;
    tightens(keeps, &map(text), "typeTightened s.*");
    // Below `additionalProperties: true` objects become empty.
    breaks(keeps, &map("true"), &["fieldRemoved s.*.*", "fieldRemoved s.*[*].*"]);
    is_harmless(&map("true"), keeps);
}

#[test]
fn embedded_objects_need_and_keep_their_type() {
    let keeps = r#""type": "object", "x-kubernetes-preserve-unknown-fields": true"#;
    let embedded = format!(r#"{{{keeps}, "x-kubernetes-embedded-resource": true}}"#);
    tightens(&format!("{{{keeps}}}"), &embedded, "typeTightened s");
    let declared = r#""type": "object", "properties": {"spec": {"type": "object"}}"#;
    breaks(
        &format!(r#"{{{declared}, "x-kubernetes-embedded-resource": true}}"#),
        &format!("{{{declared}}}"),
        &["fieldRemoved s.apiVersion", "fieldRemoved s.kind", "fieldRemoved s.metadata"],
    );
}

#[test]
fn conditions_accept_less_or_more() {
    let of = |more: &str| {
        format!(
            r#"{{"type": "object", "properties": {{"a": {{"type": "integer"}}, "b": {{"type": "integer"}}}}{more}}}"#
        )
    };
    let (a, b) = (r#"{"required": ["a"]}"#, r#"{"required": ["b"]}"#);
    let any = |list: &str| of(&format!(r#", "anyOf": [{list}]"#));
    let all = |list: &str| of(&format!(r#", "allOf": [{list}]"#));
    let one = |list: &str| of(&format!(r#", "oneOf": [{list}]"#));
    let not = |schema: &str| of(&format!(r#", "not": {schema}"#));
    let both = format!("{a}, {b}");
    tightens(&of(""), &any(a), "conditionTightened s");
    tightens(&any(&both), &any(a), "conditionTightened s");
    is_harmless(&any(&both), &any(&format!("{b}, {a}")));
    tightens(&all(a), &all(&both), "conditionTightened s");
    is_harmless(&of(r#", "required": ["a"]"#), &all(a));
    is_harmless(&of(r#", "required": ["a"]"#), &any(&both));
    is_harmless(&one(&both), &any(&both));
    breaks(&any(&both), &one(&both), &["conditionTightened s"]);
    is_harmless(&one(&both), &one(&format!("{b}, {a}")));
    // An object with both fields was valid.
    breaks(&one(a), &one(&both), &["conditionTightened s"]);
    breaks(&one(&both), &one(a), &["conditionTightened s"]);
    // An alternative that accepts more can make a second one valid.
    breaks(
        &one(r#"{"required": ["a", "b"]}, {"maxProperties": 1}"#),
        &one(&format!(r#"{a}, {{"maxProperties": 1}}"#)),
        &["conditionTightened s"],
    );
    is_harmless(&one(&both), &of(""));
    tightens(&of(""), &not(a), "conditionTightened s");
    // `not` refuses less if its schema accepts less.
    tightens(&not(r#"{"required": ["a", "b"]}"#), &not(a), "conditionTightened s");
    let bound = |max: u8| all(&format!(r#"{{"properties": {{"a": {{"maximum": {max}}}}}}}"#));
    tightens(&bound(5), &bound(4), "conditionTightened s");
}

#[test]
fn list_types_and_keys_change() {
    let list = |more: &str| {
        format!(
            r#"{{"type": "array", "items": {{"type": "object", "required": ["a", "b"], "properties": {{"a": {{"type": "string"}}, "b": {{"type": "string"}}}}}}{more}}}"#
        )
    };
    let map = |keys: &str| {
        list(&format!(r#", "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": [{keys}]"#))
    };
    let atomic = list(r#", "x-kubernetes-list-type": "atomic""#);
    is_harmless(&list(""), &atomic);
    breaks(&atomic, &map(r#""a""#), &["listTypeChanged s"]);
    breaks(&map(r#""a""#), &atomic, &["listTypeChanged s"]);
    breaks(&map(r#""a", "b""#), &map(r#""a""#), &["listTypeChanged s"]);
    is_harmless(&map(r#""a", "b""#), &map(r#""b", "a""#));
    let set = |kind: &str| {
        format!(r#"{{"type": "array", "items": {{"type": "string"}}, "x-kubernetes-list-type": "{kind}"}}"#)
    };
    breaks(&set("atomic"), &set("set"), &["listTypeChanged s"]);
    breaks(
        r#"{"type": "object"}"#,
        r#"{"type": "object", "x-kubernetes-map-type": "atomic"}"#,
        &["listTypeChanged s"],
    );
}

#[test]
fn a_rule_is_new_or_another_one() {
    let of = |rules: &str| format!(r#"{{"type": "string", "x-kubernetes-validations": [{rules}]}}"#);
    let rule = |rule: &str, more: &str| format!(r#"{{"rule": "{rule}"{more}}}"#);
    tightens(&of(""), &of(&rule("self != 'a'", "")), "ruleAdded s");
    breaks(&of(&rule("self != 'a'", "")), &of(&rule("self != 'b'", "")), &["ruleAdded s"]);
    // The message does not decide.
    is_harmless(&of(&rule("self != 'a'", "")), &of(&rule("self != 'a'", r#", "message": "no a""#)));
    breaks(
        &of(&rule("self == oldSelf", "")),
        &of(&rule("self == oldSelf", r#", "optionalOldSelf": true"#)),
        &["ruleAdded s"],
    );
}

#[test]
fn a_rule_that_sees_another_type_is_not_compared() {
    let of = |kind: &str, rule: bool| {
        let rules = if rule { r#", "x-kubernetes-validations": [{"rule": "has(self.a)"}]"# } else { "" };
        format!(r#"{{"type": "object", "properties": {{"a": {kind}}}{rules}}}"#)
    };
    let (integer, number) = (r#"{"type": "integer"}"#, r#"{"type": "number"}"#);
    is_harmless(&of(integer, false), &of(number, false));
    breaks(&of(integer, true), &of(number, true), &["notCompared s.a"]);
    is_harmless(&of(integer, true), &of(number, false));
    let default = r#"{"type": "integer", "default": 3}"#;
    is_harmless(&of(integer, false), &of(default, false));
    breaks(&of(integer, true), &of(default, true), &["notCompared s.a"]);
}

#[test]
fn a_default_can_exceed_the_number_of_fields() {
    let of = |more: &str| {
        format!(
            r#"{{"type": "object", "maxProperties": 1, "properties": {{"a": {{"type": "string"}}{more}}}}}"#
        )
    };
    breaks(&of(""), &of(r#", "b": {"type": "string", "default": "x"}"#), &["notCompared s.b"]);
    is_harmless(&of(""), &of(r#", "b": {"type": "string"}"#));
}

#[test]
fn a_default_with_duplicates_is_not_compared() {
    let of = |more: &str| {
        let list = r#""type": "array", "items": {"type": "string"}, "x-kubernetes-list-type": "set""#;
        format!(r#"{{"type": "object", "properties": {{"a": {{{list}{more}}}}}}}"#)
    };
    breaks(&of(""), &of(r#", "default": ["x", "x"]"#), &["notCompared s.a"]);
    is_harmless(&of(""), &of(r#", "default": ["x"]"#));
}

#[test]
fn fields_that_are_not_known_are_not_compared() {
    breaks(
        r#"{"type": "string"}"#,
        r#"{"type": "string", "x-kubernetes-new": 1}"#,
        &["notCompared spec.versions[0].schema.openAPIV3Schema.properties[s].x-kubernetes-new"],
    );
    is_harmless(
        r#"{"type": "string", "x-kubernetes-new": 1}"#,
        r#"{"type": "string", "x-kubernetes-new": 1}"#,
    );
    let of = |more: &str| {
        crd(&format!(r#""versions": [{}]{more}"#, version("v1", true, true, r#"{"type": "object"}"#)))
    };
    assert_eq!(changes(&of(""), &of(r#", "later": {}"#)), ["notCompared spec.later"]);
}

#[test]
fn names_of_metadata_can_be_restricted() {
    let of = |metadata: &str| {
        let schema = format!(
            r#"{{"type": "object", "properties": {{"apiVersion": {{"type": "string"}}, "metadata": {metadata}}}}}"#
        );
        crd(&format!(r#""versions": [{}]"#, version("v1", true, true, &schema)))
    };
    let plain = of(r#"{"type": "object"}"#);
    let without = crd(&format!(r#""versions": [{}]"#, version("v1", true, true, r#"{"type": "object"}"#)));
    assert_eq!(changes(&without, &plain), [""; 0]);
    assert_eq!(changes(&plain, &without), [""; 0]);
    let short = of(r#"{"type": "object", "properties": {"name": {"type": "string", "maxLength": 5}}}"#);
    assert_eq!(changes(&plain, &short), ["boundsTightened metadata.name"]);
    assert_eq!(changes(&without, &short), ["boundsTightened metadata.name"]);
    assert_eq!(changes(&short, &without), [""; 0]);
}

#[test]
fn names_and_scope_of_the_crd_change() {
    let old = crd(&format!(r#""versions": [{}]"#, version("v1", true, true, r#"{"type": "object"}"#)));
    let change = |from: &str, to: &str| changes(&old, &old.replace(from, to));
    assert_eq!(change(r#""Thing""#, r#""Item""#), ["nameChanged spec.names.kind"]);
    assert_eq!(change(r#""plural": "things""#, r#""plural": "items""#), ["nameChanged spec.names.plural"]);
    assert_eq!(change(r#""group": "example.org""#, r#""group": "example.com""#), ["nameChanged spec.group"]);
    assert_eq!(change("Namespaced", "Cluster"), ["scopeChanged spec.scope"]);
    assert_eq!(change(r#""plural": "things""#, r#""plural": "things", "shortNames": ["t"]"#), [""; 0]);
}

#[test]
fn versions_are_removed_and_added() {
    let object = r#"{"type": "object"}"#;
    let of =
        |versions: &[String], more: &str| crd(&format!(r#""versions": [{}]{more}"#, versions.join(", ")));
    let v = |name: &str, is_served: bool, is_stored: bool| version(name, is_served, is_stored, object);
    let both = of(&[v("v1", true, true), v("v2", true, false)], "");
    let first = of(&[v("v1", true, true)], "");
    let second = of(&[v("v2", true, true)], "");
    assert_eq!(changes(&first, &both), [""; 0]);
    assert_eq!(changes(&both, &first), ["versionRemoved spec.versions"]);
    assert_eq!(changes(&both, &second), ["versionRemoved spec.versions"]);
    let unserved = of(&[v("v1", false, true), v("v2", true, false)], "");
    assert_eq!(changes(&both, &unserved), ["versionRemoved spec.versions[0]"]);
    // Objects can be stored in a version that is not served.
    let unused = of(&[v("v1", false, false), v("v2", true, true)], "");
    assert_eq!(changes(&unused, &second), ["notCompared spec.versions"]);
    let status = |names: &str| {
        let end = format!(r#"}}, "status": {{"storedVersions": [{names}]}}}}"#);
        unused.strip_suffix("}}").map(|start| format!("{start}{end}")).unwrap()
    };
    assert_eq!(changes(&status(r#""v2""#), &second), [""; 0]);
    assert_eq!(changes(&status(r#""v1", "v2""#), &second), ["versionRemoved spec.versions"]);
}

#[test]
fn objects_are_compared_with_the_version_in_which_they_will_be_stored() {
    let with = |fields: &str| format!(r#"{{"type": "object", "properties": {{{fields}}}}}"#);
    let both = with(r#""a": {"type": "string"}, "b": {"type": "string"}"#);
    let one = with(r#""a": {"type": "string"}"#);
    let old = crd(&format!(r#""versions": [{}]"#, version("v1", true, true, &both)));
    let new = |more: &str| {
        let versions = [version("v1", true, false, &both), version("v2", true, true, &one)].join(", ");
        crd(&format!(r#""versions": [{versions}]{more}"#))
    };
    assert_eq!(changes(&old, &new("")), ["fieldRemoved b"]);
    // A conversion webhook is not called.
    let webhook =
        r#", "conversion": {"strategy": "Webhook", "webhook": {"clientConfig": {"url": "https://a"}}}"#;
    assert_eq!(changes(&old, &new(webhook)), ["notCompared spec.conversion", "notCompared spec.versions[1]"]);
    assert_eq!(changes(&new(webhook), &new(webhook)), [""; 0]);
    let other = webhook.replace("https://a", "https://b");
    assert_eq!(changes(&new(webhook), &new(&other)), ["notCompared spec.conversion"]);
    let ca = webhook.replace(r#""https://a""#, r#""https://a", "caBundle": "Cg==""#);
    assert_eq!(changes(&new(webhook), &new(&ca)), [""; 0]);
}

#[test]
fn subresources_change() {
    let of = |more: &str| {
        let version = version("v1", true, true, r#"{"type": "object"}"#);
        crd(&format!(r#""versions": [{}{more}}}]"#, version.strip_suffix('}').unwrap()))
    };
    let status = of(r#", "subresources": {"status": {}}"#);
    let expected = ["subresourceChanged spec.versions[0].subresources"];
    assert_eq!(changes(&of(""), &status), expected);
    assert_eq!(changes(&status, &of("")), expected);
    let scale = |path: &str| {
        of(&format!(
            r#", "subresources": {{"scale": {{"specReplicasPath": "{path}", "statusReplicasPath": ".b"}}}}"#
        ))
    };
    assert_eq!(changes(&scale(".a"), &scale(".c")), expected);
    assert_eq!(changes(&scale(".a"), &scale(".a")), [""; 0]);
}

#[test]
fn a_crd_that_keeps_all_fields_removes_them_later() {
    let of = |more: &str, schema: &str| {
        crd(&format!(r#""versions": [{}]{more}"#, version("v1", true, true, schema)))
    };
    let keeps = r#", "preserveUnknownFields": true"#;
    let schema = r#"{"type": "object", "properties": {"spec": {"type": "object"}}}"#;
    assert_eq!(changes(&of(keeps, schema), &of("", schema)), ["fieldRemoved spec.*", "fieldRemoved *"]);
    assert_eq!(changes(&of(keeps, schema), &of(keeps, schema)), [""; 0]);
}

#[test]
fn a_comparison_is_bounded() {
    // Each level compares all alternatives with all others.
    let mut schema = r#"{"maximum": 1}"#.to_owned();
    for level in 0..12 {
        schema = format!(r#"{{"anyOf": [{schema}, {schema}, {{"maximum": {level}}}]}}"#);
    }
    let of = |max: u8| {
        let inner = schema.replace(r#""maximum": 1}"#, &format!(r#""maximum": {max}}}"#));
        let root = format!(
            r#"{{"type": "object", "properties": {{"s": {{"type": "integer", "anyOf": [{{"maximum": {max}}}, {inner}]}}}}}}"#
        );
        crd(&format!(r#""versions": [{}]"#, version("v1", true, true, &root)))
    };
    let arena = Arena::new();
    let read = |text: &str| Definition::read(read_json(arena.text(text), &arena).unwrap()).ok().unwrap();
    let (old, new) = (read(&of(7)), read(&of(6)));
    let found = within(1_000, &old, &new);
    assert!(found.iter().any(|change| change.class == Class::NotCompared), "{found:?}");
}

#[test]
fn versions_must_be_complete() {
    let arena = Arena::new();
    let read = |text: &str| match Definition::read(read_json(arena.text(text), &arena).unwrap()) {
        Ok(_) => String::new(),
        Err(errors) => errors[0].to_string(),
    };
    let object = r#"{"type": "object"}"#;
    let of = |versions: &[String]| crd(&format!(r#""versions": [{}]"#, versions.join(", ")));
    let twice = of(&[version("v1", true, true, object), version("v1", true, false, object)]);
    assert_eq!(read(&twice), r#"spec.versions[1].name: Duplicate value: "v1""#);
    let none = of(&[version("v1", true, false, object)]);
    assert!(read(&none).contains("exactly one version marked as storage version"), "{}", read(&none));
}

#[test]
fn every_class_has_a_name() {
    let names: HashSet<&str> = Class::ALL.iter().map(|class| class.name()).collect();
    assert_eq!(names.len(), Class::ALL.len());
}

#[test]
fn a_version_with_stored_objects_is_compared_although_it_is_not_served() {
    let of = |fields: &str, status: &str| {
        let schema = |fields: &str| format!(r#"{{"type": "object", "properties": {{{fields}}}}}"#);
        let both = r#""a": {"type": "string"}, "b": {"type": "string"}"#;
        let versions =
            [version("v1", false, false, &schema(fields)), version("v2", true, true, &schema(both))]
                .join(", ");
        let crd = crd(&format!(r#""versions": [{versions}]"#));
        format!("{}{status}}}", crd.strip_suffix('}').unwrap())
    };
    let (both, one) = (r#""a": {"type": "string"}, "b": {"type": "string"}"#, r#""a": {"type": "string"}"#);
    let stored = |names: &str| format!(r#", "status": {{"storedVersions": [{names}]}}"#);
    for (status, expected) in [
        (String::new(), &["fieldRemoved b"][..]),
        (stored(r#""v1", "v2""#), &["fieldRemoved b"]),
        (stored(r#""v2""#), &[]),
    ] {
        assert_eq!(changes(&of(both, &status), &of(one, &status)), expected, "{status}");
    }
}

#[test]
fn a_version_that_becomes_served_is_compared_with_the_stored_one() {
    let of = |is_served: bool| {
        let schema = |fields: &str| format!(r#"{{"type": "object", "properties": {{{fields}}}}}"#);
        let (a, b) = (r#""a": {"type": "string"}"#, r#", "b": {"type": "string"}"#);
        let versions = [
            version("v1", true, true, &schema(&format!("{a}{b}"))),
            version("v2", is_served, false, &schema(a)),
        ];
        crd(&format!(r#""versions": [{}]"#, versions.join(", ")))
    };
    assert_eq!(changes(&of(false), &of(true)), ["fieldRemoved b"]);
    assert_eq!(changes(&of(true), &of(true)), Vec::<String>::new());
}
