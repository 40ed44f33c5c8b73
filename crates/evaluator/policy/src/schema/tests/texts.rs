//! Texts of errors, with at least one example of each.

use super::super::{Schema, defaults, list_types, prune, structural, validate};
use crate::field::Path;
use crate::release::Release;
use crate::value::format::go_json;
use crate::value::{Arena, Value, read_json};

fn schema(text: &str) -> Schema {
    let arena = Arena::new();
    Schema::parse(read_json(text, &arena).unwrap(), &Path::default()).unwrap()
}

/// The errors of a field `f`, one in a line.
fn errors(server: u8, field: &str, value: &str) -> String {
    update(server, field, value, None)
}

fn update(server: u8, field: &str, value: &str, old: Option<&str>) -> String {
    let schema = schema(&format!(r#"{{"type":"object","properties":{{"f":{field}}}}}"#));
    let arena = Arena::new();
    let read = |value: &str| read_json(arena.text(&format!(r#"{{"f":{value}}}"#)), &arena).unwrap();
    let release = Release::for_stored(server);
    let path = Path::default();
    let (value, old) = (read(value), old.map(read));
    let validation = validate::validate(value, &schema, &path, old, release);
    assert_eq!(validation.undecided, []);
    let lists = list_types::validate(value, &schema, &path);
    let texts: Vec<String> = validation.errors.iter().chain(&lists).map(ToString::to_string).collect();
    texts.join("\n")
}

/// A schema, a value and its errors.
const CASES: &[(&str, &str, &str)] = &[
    (
        r#"{"type":"string"}"#,
        "5",
        r#"f: Invalid value: "integer": f in body must be of type string: "integer""#,
    ),
    (
        r#"{"type":"integer"}"#,
        "null",
        r#"f: Invalid value: "null": f in body must be of type integer: "null""#,
    ),
    (
        r#"{"type":"integer"}"#,
        "1.5",
        r#"f: Invalid value: "number": f in body must be of type integer: "number""#,
    ),
    (r#"{"type":"integer"}"#, "3.0", ""),
    (r#"{"type":"number"}"#, "3", ""),
    (r#"{"type":"string","nullable":true}"#, "null", ""),
    (
        r#"{"x-kubernetes-int-or-string":true}"#,
        "true",
        r#"f: Invalid value: "boolean": f in body must be of type integer,string: "boolean""#,
    ),
    (r#"{"type":"string","maxLength":2}"#, r#""äöü""#, "f: Too long: may not be more than 2 bytes"),
    (r#"{"type":"string","maxLength":1}"#, r#""ab""#, "f: Too long: may not be more than 1 byte"),
    (r#"{"type":"string","maxLength":3}"#, r#""äöü""#, ""),
    (
        r#"{"type":"string","minLength":2}"#,
        r#""ä""#,
        r#"f: Invalid value: "ä": f in body should be at least 2 chars long"#,
    ),
    (
        r#"{"type":"string","pattern":"^[[:digit:]]+$"}"#,
        r#""a\n""#,
        r#"f: Invalid value: "a\n": f in body should match '^[[:digit:]]+$'"#,
    ),
    (
        r#"{"type":"string","pattern":"^\\d$"}"#,
        r#""١""#,
        r#"f: Invalid value: "١": f in body should match '^\d$'"#,
    ),
    (
        r#"{"type":"string","enum":["a","b"]}"#,
        r#""c""#,
        r#"f: Unsupported value: "c": supported values: "a", "b""#,
    ),
    (
        r#"{"enum":[1,{"a":[null,1.5]}],"x-kubernetes-preserve-unknown-fields":true}"#,
        r#"{"a":1}"#,
        r#"f: Unsupported value: {"a":1}: supported values: "1", "{\"a\":[null,1.5]}""#,
    ),
    (
        r#"{"type":"integer","nullable":true,"enum":[1,null]}"#,
        "null",
        r#"f: Unsupported value: null: supported values: "1", "null""#,
    ),
    (
        r#"{"type":"integer","minimum":0}"#,
        "-1",
        "f: Invalid value: -1: f in body should be greater than or equal to 0",
    ),
    (
        r#"{"type":"integer","minimum":0,"exclusiveMinimum":true}"#,
        "0",
        "f: Invalid value: 0: f in body should be greater than 0",
    ),
    (
        r#"{"type":"number","maximum":1.5e6}"#,
        "2500000.5",
        "f: Invalid value: 2.5000005e+06: f in body should be less than or equal to 1.5e+06",
    ),
    (
        r#"{"type":"number","maximum":1,"exclusiveMaximum":true}"#,
        "1.0",
        "f: Invalid value: 1: f in body should be less than 1",
    ),
    (r#"{"type":"integer","multipleOf":5}"#, "7", "f: Invalid value: 7: f in body should be a multiple of 5"),
    (r#"{"type":"number","multipleOf":0.1}"#, "0.3", ""),
    (
        r#"{"type":"integer","multipleOf":-1}"#,
        "7",
        "f: Invalid value: -1: factor MultipleOf declared for f must be positive: -1",
    ),
    (
        r#"{"type":"array","items":{"type":"integer"},"maxItems":1}"#,
        "[1,2]",
        "f: Too many: 2: must have at most 1 item",
    ),
    (
        r#"{"type":"array","items":{"type":"integer"},"minItems":1}"#,
        "[]",
        "f: Invalid value: 0: f in body should have at least 1 items",
    ),
    (
        r#"{"type":"array","items":{"type":"integer"}}"#,
        r#"[1,"a"]"#,
        r#"f[1]: Invalid value: "string": f[1] in body must be of type integer: "string""#,
    ),
    (
        r#"{"type":"array","items":{"type":"integer"},"uniqueItems":true}"#,
        "[1,1]",
        r#"f: Invalid value: "": f in body shouldn't contain duplicates"#,
    ),
    (
        r#"{"type":"object","additionalProperties":{"type":"integer"},"maxProperties":1}"#,
        r#"{"a":1,"b/c.d":"x"}"#,
        "f: Too many: 2: must have at most 1 item\n\
             f.b/c.d: Invalid value: \"string\": f.b/c.d in body must be of type integer: \"string\"",
    ),
    (
        r#"{"type":"object","additionalProperties":false,"minProperties":2}"#,
        r#"{"a":1}"#,
        "f: Invalid value: 1: f in body should have at least 2 properties\n\
             f: Invalid value: \"a\": f.a in body is a forbidden property",
    ),
    (r#"{"type":"object","required":["a","b"]}"#, "{}", "f.a: Required value\nf.b: Required value"),
    (
        r#"{"type":"string","not":{"enum":["a"]},"allOf":[{"minLength":2},{"pattern":"b"}]}"#,
        r#""a""#,
        "f: Invalid value: \"a\": f in body should be at least 2 chars long\n\
             f: Invalid value: \"a\": f in body should match 'b'\n\
             <nil>: Invalid value: \"\": \"f\" must validate all the schemas (allOf). None validated\n\
             <nil>: Invalid value: \"\": \"f\" must not validate the schema (not)",
    ),
    (
        r#"{"type":"integer","oneOf":[{"minimum":1},{"minimum":2},{"maximum":0}]}"#,
        "3",
        "<nil>: Invalid value: \"\": \"f\" must validate one and only one schema (oneOf). Found 2 valid alternatives",
    ),
    (
        r#"{"type":"string","format":"date"}"#,
        r#""2026-02-30""#,
        r#"f: Invalid value: "2026-02-30": f in body must be of type date: "2026-02-30""#,
    ),
    (
        r#"{"type":"string","format":"date"}"#,
        "5",
        r#"f: Invalid value: "int64": f in body must be of type date: "int64""#,
    ),
    // A list passes for a text with a format.
    (r#"{"type":"string","format":"date"}"#, "[]", ""),
    (r#"{"type":"string","format":"unheard-of"}"#, r#""x""#, ""),
    (
        r#"{"type":"array","items":{"type":"string"},"x-kubernetes-list-type":"set"}"#,
        r#"["a","b","a","a"]"#,
        r#"f[2]: Duplicate value: "a""#,
    ),
    (
        r#"{"type":"array","x-kubernetes-list-type":"map","x-kubernetes-list-map-keys":["k"],"items":{"type":"object","properties":{"k":{"type":"string"}}}}"#,
        r#"[{"k":"<"},{},{"k":"<"},{}]"#,
        "f[2]: Duplicate value: {\"k\":\"\\u003c\"}\nf[3]: Duplicate value: {}",
    ),
    (
        r#"{"type":"array","x-kubernetes-list-type":"map","x-kubernetes-list-map-keys":["p","k"],"items":{"type":"object","properties":{"k":{"type":"string"},"p":{"type":"integer"}}}}"#,
        r#"[{"k":"a","p":1},{"k":"a","p":2},{"p":1,"k":"a"}]"#,
        r#"f[2]: Duplicate value: {"k":"a","p":1}"#,
    ),
];

#[test]
fn prints_each_error_of_a_value_as_the_api_server_does() {
    for &(schema, value, expected) in CASES {
        assert_eq!(errors(35, schema, value), expected, "{schema} {value}");
    }
}

#[test]
fn reports_the_alternative_with_the_most_checks_that_pass() {
    let field = r#"{"type":"object","properties":{"a":{"type":"string"},"b":{"type":"string"}},
        "anyOf":[{"required":["c"]},{"properties":{"a":{"pattern":"^a$"},"b":{"pattern":"^b$"}}}]}"#;
    let expected = "<nil>: Invalid value: \"\": \"f\" must validate at least one schema (anyOf)\n\
                    f.b: Invalid value: \"c\": f.b in body should match '^b$'";
    assert_eq!(errors(35, field, r#"{"a":"a","b":"c"}"#), expected);
}

#[test]
fn prints_values_and_units_as_each_minor_does() {
    let long = |server| errors(server, r#"{"type":"string","maxLength":1}"#, r#""ab""#);
    assert_eq!(long(31), "f: Too long: may not be longer than 1");
    assert_eq!(long(33), "f: Too long: may not be more than 1 bytes");
    assert_eq!(long(34), "f: Too long: may not be more than 1 byte");
    let list = |server| {
        let field = r#"{"type":"array","items":{"type":"object"},"maxItems":1,"x-kubernetes-list-type":"map","x-kubernetes-list-map-keys":["k"]}"#;
        errors(server, field, r#"[{"k":[null,1.5]},{"k":[null,1.5]}]"#)
    };
    let duplicate = r#"f[1]: Duplicate value: {"k":[null,1.5]}"#;
    assert_eq!(list(33), format!("f: Too many: 2: must have at most 1 items\n{duplicate}"));
    assert_eq!(list(34), format!("f: Too many: 2: must have at most 1 item\n{duplicate}"));
}

#[test]
fn checks_the_formats_that_each_minor_knows() {
    let name = |server| errors(server, r#"{"type":"string","format":"k8s-short-name"}"#, r#""A""#);
    assert_eq!(name(34), "");
    assert_eq!(name(35), r#"f: Invalid value: "A": f in body must be of type k8s-short-name: "A""#);
    let number = |server| errors(server, r#"{"type":"integer","format":"int32"}"#, "2147483648");
    assert_eq!(number(35), "");
    let text = "Checked value must be of type integer with format int32 in f";
    assert_eq!(number(36), format!("<nil>: Invalid value: \"\": {text}"));
    let bound = |server| errors(server, r#"{"type":"integer","minimum":1.5}"#, "1");
    assert_eq!(bound(35), "");
    let text = "Minimum boundary value must be of type integer (default format) in f";
    let below = "f: Invalid value: 1: f in body should be greater than or equal to 1.5";
    assert_eq!(bound(36), format!("<nil>: Invalid value: \"\": {text}\n{below}"));
}

#[test]
fn ignores_errors_of_unchanged_values() {
    let text = r#"{"type":"string","maxLength":1}"#;
    assert_eq!(update(35, text, r#""ab""#, Some(r#""ab""#)), "");
    assert_eq!(update(35, text, r#""ab""#, Some(r#""ac""#)), "f: Too long: may not be more than 1 byte");
    let atomic = format!(r#"{{"type":"array","items":{text}}}"#);
    assert_eq!(update(35, &atomic, r#"["ab"]"#, Some(r#"["ab"]"#)), "");
    let error = "f[0]: Too long: may not be more than 1 byte";
    assert_eq!(update(35, &atomic, r#"["ab","c"]"#, Some(r#"["ab"]"#)), error);
    let keyed = format!(
        r#"{{"type":"array","x-kubernetes-list-type":"map","x-kubernetes-list-map-keys":["k"],"items":{{"type":"object","properties":{{"k":{{"type":"integer"}},"v":{text}}}}}}}"#
    );
    let old = Some(r#"[{"k":1,"v":"ab"},{"k":2,"v":"a"}]"#);
    assert_eq!(update(35, &keyed, r#"[{"k":3},{"k":1,"v":"ab"}]"#, old), "");
    let error = "f[0].v: Too long: may not be more than 1 byte";
    assert_eq!(update(35, &keyed, r#"[{"k":2,"v":"ab"}]"#, old), error);
    // Errors of combined schemas belong to the value that has them.
    let combined = format!(
        r#"{{"type":"object","properties":{{"a":{text}}},"anyOf":[{{"properties":{{"a":{text}}}}}]}}"#
    );
    let combined = combined.replace(r#"[{"properties":{"a":{"type":"string","#, r#"[{"properties":{"a":{"#);
    let new = r#"{"a":"ab","b":1}"#;
    let expected = "<nil>: Invalid value: \"\": \"f\" must validate at least one schema (anyOf)\n\
                    f.a: Too long: may not be more than 1 byte";
    assert_eq!(update(35, &combined, new, Some(r#"{"a":"ab","b":2}"#)), expected);
}

#[test]
fn names_what_is_not_structural() {
    let check = |text: &str| {
        let errors = structural::check(&schema(text), &Path::new("s"));
        errors.iter().map(ToString::to_string).collect::<Vec<_>>().join("\n")
    };
    let cases = [
        (
            r#"{"properties":{"a":{"type":"string"}}}"#,
            "s.type: Required value: must not be empty at the root",
        ),
        (
            r#"{"type":"object","properties":{"a":{}}}"#,
            "s.properties[a].type: Required value: must not be empty for specified object fields",
        ),
        (
            r#"{"type":"object","properties":{"a":{"type":"array"}}}"#,
            "s.properties[a].items: Required value: must be specified",
        ),
        (
            r#"{"type":"object","properties":{"a":{"type":"array","items":{}}}}"#,
            "s.properties[a].items.type: Required value: must not be empty for specified array items",
        ),
        (
            r#"{"type":"object","additionalProperties":true}"#,
            "s.additionalProperties: Forbidden: must not be used at the root",
        ),
        (r#"{"type":"string"}"#, r#"s.type: Invalid value: "string": must be object at the root"#),
        (
            r#"{"type":"object","anyOf":[{"type":"object","description":"x","properties":{"a":{"minLength":1}}}]}"#,
            "s.anyOf[0].description: Forbidden: must be empty to be structural\n\
             s.anyOf[0].type: Forbidden: must be empty to be structural\n\
             s.properties[a]: Required value: because it is defined in s.anyOf[0].properties[a]",
        ),
        (
            r#"{"type":"object","properties":{"metadata":{"type":"object","properties":{"labels":{"type":"object"}}}}}"#,
            "s.properties[metadata]: Forbidden: must not specify anything other than name and generateName, but metadata is implicitly specified",
        ),
        (
            r#"{"type":"object","properties":{"metadata":{"type":"object","properties":{"name":{"type":"string"}}}}}"#,
            "",
        ),
        (
            r#"{"type":"object","properties":{"a":{"x-kubernetes-int-or-string":true,"anyOf":[{"type":"integer"},{"type":"string"}]}}}"#,
            "",
        ),
        (
            r#"{"type":"object","properties":{"a":{"type":"string","pattern":"("}}}"#,
            r#"s.properties[a].pattern: Invalid value: "(": must be a valid regular expression, but isn't: error parsing regexp: missing closing ): `(`"#,
        ),
        (
            r##"{"type":"object","properties":{"a":{"$ref":"#/x"},"b":{}}}"##,
            "s.properties[a].$ref: Forbidden: $ref is not supported",
        ),
        (
            r#"{"type":"object","properties":{"a":{"x-kubernetes-embedded-resource":true}}}"#,
            "s.properties[a].properties: Required value: must not be empty if x-kubernetes-embedded-resource is true without x-kubernetes-preserve-unknown-fields\n\
             s.properties[a].type: Required value: must be object if x-kubernetes-embedded-resource is true",
        ),
    ];
    for (schema, expected) in cases {
        assert_eq!(check(schema), expected, "{schema}");
    }
}

#[test]
fn reads_no_schema_with_other_types_and_no_deep_one() {
    let arena = Arena::new();
    let parse = |text: &str| {
        let errors =
            Schema::parse(read_json(arena.text(text), &arena).unwrap(), &Path::new("s")).unwrap_err();
        errors.iter().map(ToString::to_string).collect::<Vec<_>>().join("\n")
    };
    let text = r#"{"type":5,"properties":{"a":{"maxLength":1.5,"enum":{}}},"items":[{}]}"#;
    let expected = [
        "s.type: Invalid type: expected a string",
        "s.properties[a].enum: Invalid type: expected a list",
        "s.properties[a].maxLength: Invalid type: expected an integer",
    ];
    let found = parse(text);
    for line in expected {
        assert!(found.contains(line), "{found}");
    }
    let deep = format!("{}{}", r#"{"not":"#.repeat(900), "{}".to_owned() + &"}".repeat(900));
    assert!(parse(&deep).contains("nested over 200 levels"), "{}", parse(&deep));
}

#[test]
fn does_not_decide_a_schema_that_multiplies() {
    let mut inner = r#"{"minLength":100}"#.to_owned();
    for _ in 0..3 {
        inner = format!(r#"{{"anyOf":[{}]}}"#, vec![inner; 8].join(","));
    }
    let schema = schema(&format!(r#"{{"type":"array","items":{{"type":"string","anyOf":[{inner}]}}}}"#));
    let arena = Arena::new();
    let value = read_json(r#"["a","b","c","d","e","f","g","h"]"#, &arena).unwrap();
    let path = Path::new("x");
    let release = Release::for_stored(35);
    let undecided = |max_steps| {
        let found = validate::within(max_steps, value, &schema, &path, None, release).undecided;
        found.iter().map(ToString::to_string).collect::<Vec<_>>().join("\n")
    };
    assert_eq!(undecided(10_000), "");
    assert!(undecided(1_000).contains("too many alternatives"), "{}", undecided(1_000));
}

#[test]
fn does_not_decide_a_pattern_that_is_too_large() {
    let field = r#"{"type":"object","properties":{"f":{"type":"string","pattern":"(\\pL{1000}){1000}"}}}"#;
    let arena = Arena::new();
    let large = schema(&field.replace("{1000}){1000}", "{1,500}){2}"));
    let value = read_json(r#"{"f":"x"}"#, &arena).unwrap();
    let validation = validate::validate(value, &large, &Path::default(), None, Release::for_stored(35));
    let undecided: Vec<String> = validation.undecided.iter().map(ToString::to_string).collect();
    assert_eq!(validation.errors, []);
    assert_eq!(undecided.len(), 1, "{undecided:?}");
}

#[test]
fn handles_the_deepest_schemas_and_values() {
    let deep = |open: &str, inner: &str, close: &str, levels: usize| {
        format!("{}{inner}{}", open.repeat(levels), close.repeat(levels))
    };
    let release = Release::for_stored(35);
    let path = Path::default();
    let arena = Arena::new();
    let text =
        deep(r#"{"type":"object","properties":{"a":"#, r#"{"type":"string","pattern":"b"}"#, "}}", 190);
    let objects = schema(&text);
    assert_eq!(structural::check(&objects, &path), []);
    let value = read_json(arena.text(&deep(r#"{"a":"#, r#""c""#, "}", 190)), &arena).unwrap();
    let value = defaults::set(prune::prune(value, &objects, false, &arena).0, &objects, &arena);
    assert_eq!(validate::validate(value, &objects, &path, Some(Value::Null), release).errors.len(), 1);
    assert!(validate::validate(value, &objects, &path, Some(value), release).errors.is_empty());

    let junctors =
        schema(&format!(r#"{{"type":"object",{}"#, &deep(r#"{"not":{"anyOf":["#, "{}", "]}}", 95)[1..]));
    assert_eq!(validate::validate(value, &junctors, &path, None, release).errors.len(), 1);

    let any = schema(r#"{"type":"object","additionalProperties":true}"#);
    let lists = format!(r#"{{"a":{}}}"#, deep("[", r#"{"b":1}"#, "]", 990));
    let lists = read_json(arena.text(&lists), &arena).unwrap();
    let (pruned, unknown) = prune::prune(lists, &any, false, &arena);
    assert_eq!(unknown.len(), 1);
    assert!(go_json(pruned).contains("[{}]"));
    let set = schema(
        r#"{"type":"object","properties":{"a":{"type":"array","x-kubernetes-list-type":"set","items":{"x-kubernetes-preserve-unknown-fields":true}}}}"#,
    );
    assert_eq!(list_types::validate(lists, &set, &path), []);
    let values = format!(r#"{{"a":[{0},{0}]}}"#, deep("[", "1", "]", 990));
    let values = read_json(arena.text(&values), &arena).unwrap();
    assert_eq!(list_types::validate(values, &set, &path).len(), 1);
}
