//! Defaults that change, and conditions that can depend on them.

use super::*;

#[test]
fn conditions_can_depend_on_a_new_field_with_a_default() {
    let of = |fields: &str, condition: &str| {
        format!(r#"{{"type": "object", "properties": {{"a": {{"type": "string"}}{fields}}}, {condition}}}"#)
    };
    let added = r#", "b": {"type": "string", "default": "x"}"#;
    for condition in [
        r#""oneOf": [{"required": ["a"]}, {"required": ["b"]}]"#,
        r#""not": {"required": ["b"]}"#,
        r#""anyOf": [{"maxProperties": 1}, {"required": ["a"]}]"#,
        r#""x-kubernetes-validations": [{"rule": "dyn(self) == dyn(self)"}]"#,
    ] {
        breaks(&of("", condition), &of(added, condition), &["notCompared s.b"]);
    }
    is_harmless(&of("", r#""required": ["a"]"#), &of(added, r#""required": ["a"]"#));
    let rule = r#""x-kubernetes-validations": [{"rule": "self.a != 'x'"}]"#;
    is_harmless(&of("", rule), &of(added, rule));
}

#[test]
fn a_new_default_is_completed_by_the_defaults_of_its_fields_and_judged() {
    let of = |default: &str, fields: &str, condition: &str| {
        format!(
            r#"{{"type": "object", "properties": {{"a": {{"type": "object", "properties": {{{fields}}}, {condition}{default}}}}}}}"#
        )
    };
    let fields = r#""x": {"type": "integer"}, "y": {"type": "integer", "default": 2}"#;
    for condition in [
        r#""oneOf": [{"required": ["x"]}, {"required": ["y"]}]"#,
        r#""maxProperties": 1"#,
        r#""x-kubernetes-validations": [{"rule": "!has(self.y)"}]"#,
    ] {
        let new = of(r#", "default": {"x": 1}"#, fields, condition);
        breaks(&of("", fields, condition), &new, &["notCompared s.a"]);
    }
    let rule = r#""x-kubernetes-validations": [{"rule": "self.y == 2"}]"#;
    is_harmless(&of("", fields, rule), &of(r#", "default": {"x": 1}"#, fields, rule));
}

#[test]
fn a_wrong_default_below_additional_properties_is_found() {
    let of = |default: &str| {
        format!(
            r#"{{"type": "object", "additionalProperties": {{"type": "object", "properties": {{"x": {{"type": "string"{default}}}}}}}}}"#
        )
    };
    breaks(&of(""), &of(r#", "default": 5"#), &["notCompared s.*.x"]);
    is_harmless(&of(""), &of(r#", "default": "5""#));
}

#[test]
fn a_rule_can_read_a_default_in_embedded_metadata() {
    let of = |default: &str| {
        format!(
            r#"{{"type": "object", "x-kubernetes-embedded-resource": true, "properties": {{"metadata": {{"type": "object",
            "properties": {{"name": {{"type": "string"{default}}}}}}}}}, "x-kubernetes-validations": [{{"rule": "!has(self.metadata.name)"}}]}}"#
        )
    };
    breaks(&of(""), &of(r#", "default": "z""#), &["notCompared s.metadata.name"]);
}

#[test]
fn a_default_below_additional_properties_must_be_a_valid_embedded_object() {
    let of = |default: &str| {
        format!(
            r#"{{"type": "object", "additionalProperties": {{"type": "object", "properties": {{"t": {{"type": "object",
            "x-kubernetes-embedded-resource": true, "x-kubernetes-preserve-unknown-fields": true{default}}}}}}}}}"#
        )
    };
    breaks(&of(""), &of(r#", "default": {}"#), &["notCompared s.*.t"]);
    is_harmless(&of(""), &of(r#", "default": {"apiVersion": "v1", "kind": "A"}"#));
}

#[test]
fn a_default_replaces_null_in_lists_and_maps() {
    let list = |default: &str| format!(r#"{{"type": "array", "items": {{"type": "string"{default}}}}}"#);
    breaks(&list(r#", "default": "x""#), &list(""), &["notCompared s[*]"]);
    is_harmless(&list(""), &list(r#", "default": "x""#));
    let map = |default: &str| {
        format!(r#"{{"type": "object", "additionalProperties": {{"type": "string"{default}}}}}"#)
    };
    breaks(&map(r#", "default": "x""#), &map(r#", "default": "y""#), &["notCompared s.*"]);
}

#[test]
fn a_rule_with_a_conditional_can_depend_on_a_new_field() {
    let of = |fields: &str| {
        format!(
            r#"{{"type": "object", "properties": {{"port": {{"x-kubernetes-int-or-string": true}}{fields}}},
            "x-kubernetes-validations": [{{"rule": "!has((false ? self.port : self).b)"}}]}}"#
        )
    };
    breaks(&of(""), &of(r#", "b": {"type": "string", "default": "x"}"#), &["notCompared s.b"]);
}
