//! The part of JSON Schema that the schemas of reports use.

use serde_json::Value;

/// Returns all errors of a value.
pub(crate) fn errors(schema: &Value, value: &Value) -> Vec<String> {
    let mut errors = Vec::new();
    check(schema, schema, value, "$", &mut errors);
    errors
}

fn check(root: &Value, schema: &Value, value: &Value, path: &str, errors: &mut Vec<String>) {
    for (keyword, rule) in schema.as_object().unwrap() {
        match keyword.as_str() {
            "$ref" => {
                let name = rule.as_str().unwrap().strip_prefix("#/$defs/").unwrap();
                check(root, &root["$defs"][name], value, path, errors);
            }
            "type" => {
                let fits = match rule.as_str().unwrap() {
                    "object" => value.is_object(),
                    "array" => value.is_array(),
                    "string" => value.is_string(),
                    "integer" => value.is_i64(),
                    "boolean" => value.is_boolean(),
                    "null" => value.is_null(),
                    other => panic!("type {other}"),
                };
                if !fits {
                    errors.push(format!("{path}: {value} is not of type {rule}"));
                }
            }
            "required" => {
                for name in rule.as_array().unwrap() {
                    if value.is_object() && value.get(name.as_str().unwrap()).is_none() {
                        errors.push(format!("{path}: {name} is missing"));
                    }
                }
            }
            "properties" => {
                for (name, inner) in rule.as_object().unwrap() {
                    if let Some(value) = value.get(name) {
                        check(root, inner, value, &format!("{path}.{name}"), errors);
                    }
                }
            }
            "additionalProperties" => {
                assert_eq!(rule, false);
                for name in value.as_object().into_iter().flat_map(|object| object.keys()) {
                    if schema["properties"].get(name).is_none() {
                        errors.push(format!("{path}: {name} is not declared"));
                    }
                }
            }
            "items" => {
                for (index, value) in value.as_array().into_iter().flatten().enumerate() {
                    check(root, rule, value, &format!("{path}[{index}]"), errors);
                }
            }
            "anyOf" => {
                let fits = |schema: &Value| {
                    let mut errors = Vec::new();
                    check(root, schema, value, path, &mut errors);
                    errors.is_empty()
                };
                if !rule.as_array().unwrap().iter().any(fits) {
                    errors.push(format!("{path}: {value} fits to no alternative"));
                }
            }
            "enum" => {
                if !rule.as_array().unwrap().contains(value) {
                    errors.push(format!("{path}: {value} is not listed"));
                }
            }
            "minimum" => {
                if value.as_i64() < rule.as_i64() {
                    errors.push(format!("{path}: {value} is below {rule}"));
                }
            }
            "pattern" => {
                assert_eq!(rule, r"^1\.[0-9]+$", "the only pattern");
                let minor = value.as_str().unwrap().strip_prefix("1.").unwrap_or("x");
                if minor.parse::<u8>().is_err() {
                    errors.push(format!("{path}: {value} is no version"));
                }
            }
            "$schema" | "$defs" | "title" | "description" => {}
            other => panic!("keyword {other}"),
        }
    }
}

#[test]
fn finds_values_that_do_not_fit() {
    let schema = serde_json::json!({
        "type": "object",
        "additionalProperties": false,
        "required": ["a"],
        "properties": {"a": {"$ref": "#/$defs/a"}},
        "$defs": {"a": {"type": "integer", "minimum": 1}},
    });
    assert!(errors(&schema, &serde_json::json!({"a": 1})).is_empty());
    for wrong in [
        serde_json::json!({}),
        serde_json::json!({"a": 0}),
        serde_json::json!({"a": 1, "b": 1}),
        serde_json::json!([]),
    ] {
        assert!(!errors(&schema, &wrong).is_empty(), "{wrong}");
    }
}
