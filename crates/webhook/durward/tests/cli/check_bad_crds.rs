//! `check` with CRDs and custom resources that can't be used: an error with a place, in bounded time and memory, and never a panic.

use std::fs;

use crate::check::files;
use crate::check_strangers::measured;
use crate::harness::durward_in;

const CRD: &str = "apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: things.example.org}
spec:
  group: example.org
  scope: Namespaced
  names: {kind: Thing, plural: things}
  versions:
  - name: v1
    served: true
    storage: true
    schema:
      openAPIV3Schema:
        type: object
        properties:
          spec: SPEC
";

const SPEC: &str =
    "{type: object, properties: {size: {type: integer}, list: {type: array, items: {type: string}}}}";

fn crd(spec: &str) -> String {
    CRD.replace("SPEC", spec)
}

fn thing(spec: &str) -> String {
    format!("apiVersion: example.org/v1\nkind: Thing\nmetadata: {{name: a}}\nspec: {spec}\n")
}

/// Both outputs of a run on these files, with its exit code.
fn check(all: &[(&str, &str)]) -> (i32, String) {
    let run = durward_in(files(all).path(), &["check", "."], "");
    (run.code, run.out + &run.err)
}

#[test]
fn crds_that_are_nonsense_have_errors_with_their_places() {
    for (from, to, code, place, error) in [
        ("spec:\n", "spec: 5\nother:\n", 2, ":4:1: ", "spec"),
        ("  names: {kind: Thing, plural: things}", "  names: 5", 2, ":7:3: ", "spec.names"),
        ("  scope: Namespaced", "  scope: [Namespaced]", 2, ":6:3: ", "spec.scope"),
        (
            "    schema:\n",
            "    schema: x\n    other:\n",
            1,
            ":12:5: ",
            "spec.versions[0].schema: Invalid type: expected an object, found a string",
        ),
        (
            "        type: object\n",
            "        type: [object]\n",
            2,
            ":14:9: ",
            "type: Invalid type: expected a string",
        ),
        (SPEC, "5", 2, ":16:11: ", "spec"),
        (SPEC, "{$ref: '#'}", 1, ":16:18: ", "$ref: Forbidden: $ref is not supported"),
        (
            SPEC,
            "{$ref: '#/definitions/a', definitions: {a: {$ref: '#/definitions/a'}}}",
            1,
            ":16:18: ",
            "$ref is not supported",
        ),
        (
            SPEC,
            "{type: array, items: [{type: string}]}",
            1,
            ":16:31: ",
            "items must be a schema object and not an array",
        ),
        (
            SPEC,
            "{type: string, maxLength: 99999999999999999999}",
            2,
            ":16:43: ",
            "readers of YAML and JSON differ",
        ),
        (SPEC, "{type: number, maximum: .nan}", 2, ":16:", ""),
        (SPEC, "{type: number, maximum: 1e400}", 2, ":16:", ""),
        (SPEC, "{type: object, type: string}", 2, ":16:", "type"),
        (
            SPEC,
            "{type: string, pattern: '('}",
            1,
            ":16:32: ",
            "must be a valid regular expression, but isn't: error parsing regexp: missing closing )",
        ),
        (SPEC, "{type: string, pattern: '((a{100}){100}){100}'}", 1, ":16:32: ", "invalid repeat count"),
    ] {
        let text = crd(SPEC).replacen(from, to, 1);
        assert_ne!(text, crd(SPEC), "{from}");
        let (found, out) = check(&[("crd.yaml", &text)]);
        let has_line = out.lines().any(|line| line.contains(place) && line.contains(error));
        assert!(found == code && has_line, "{to}: {code} {place} {error}\n{found} {out}");
    }
}

#[test]
fn objects_that_are_nonsense_have_errors_with_their_places() {
    let definition = crd(SPEC);
    for (spec, code, place, error) in [
        ("{size: 123456789012345678901234567890}", 2, "a.yaml:4:14: ", "readers of YAML and JSON differ"),
        ("{size: -9223372036854775809}", 2, "a.yaml:4:14: ", "readers of YAML and JSON differ"),
        ("{size: .nan}", 2, "a.yaml:4:", ""),
        ("{size: .inf}", 2, "a.yaml:4:", ""),
        ("{size: 1, size: 2}", 2, "a.yaml:4:", "size"),
        ("{list: [1]}", 1, "a.yaml:4:", "spec.list[0]"),
        ("[1]", 1, "a.yaml:4:1: ", "must be of type object"),
        ("!!binary x", 2, "a.yaml:4:", ""),
    ] {
        let (found, out) = check(&[("crd.yaml", &definition), ("a.yaml", &thing(spec))]);
        let has_line = out.lines().any(|line| line.contains(place) && line.contains(error));
        assert!(found == code && has_line, "{spec}: {code} {place} {error}\n{found} {out}");
    }
}

#[test]
fn a_file_that_is_not_utf_8_is_named() {
    let directory = files(&[("crd.yaml", "")]);
    fs::write(directory.path().join("crd.yaml"), b"apiVersion: \xff\n").unwrap();
    let run = durward_in(directory.path(), &["check", "."], "");
    assert_eq!(run.code, 2, "{}", run.err);
    assert!(run.err.contains("crd.yaml") && run.err.contains("UTF-8"), "{}", run.err);
}

#[test]
fn crds_and_objects_without_bounds_end_in_bounded_time_and_memory() {
    let nested =
        |open: &str, close: &str, depth| format!("{}{{}}{}", open.repeat(depth), close.repeat(depth));
    let deep = nested("{not: ", "}", 10_000);
    let hundreds = nested("{type: object, properties: {a: ", "}}", 300);
    let junctors: Vec<String> = (b'b'..=b'j')
        .map(|c| {
            format!(
                "&{} {{anyOf: [{}]}}",
                char::from(c),
                vec![format!("*{}", char::from(c - 1)); 8].join(", ")
            )
        })
        .collect();
    let multiplied =
        format!("{{type: string, x: [&a {{minLength: 1}}, {}], allOf: [*j]}}", junctors.join(", "));
    let properties: Vec<String> = (0..60_000).map(|index| format!("p{index}: {{type: string}}, ")).collect();
    let properties = properties.concat();
    let wide = format!("{{type: object, properties: {{{properties}}}}}");
    let large = thing(&format!("{{list: [{}]}}", "abcdefgh, ".repeat(280_000)));
    let rule = "{type: object, properties: {list: {type: array, items: {type: string}, x-kubernetes-validations: [{rule: 'self.all(a, self.exists(b, a == b))'}]}}}";
    let keys: Vec<String> = (0..30_000).map(|index| format!("k{index}")).collect();
    let keys = keys.join(", ");
    let keyed = format!(
        "{{type: array, items: {{type: object}}, x-kubernetes-list-type: map, x-kubernetes-list-map-keys: [{keys}]}}"
    );
    let dear = format!(
        "{{type: object, properties: {{{}list: {{type: array, items: {{type: string}}}}}}, x-kubernetes-validations: [{{rule: 'self.list.all(a, self.list.exists(b, a == b))'}}]}}",
        properties.replace("string", "boolean")
    );
    for (spec, object, code, part) in [
        (deep.as_str(), "", 2, ""),
        (&keyed, "", 1, "entries must all be names of item properties"),
        (&dear, "", 1, "estimated rule cost exceeds budget"),
        (&hundreds, "", 2, "problem"),
        (&multiplied, "", 2, "problem"),
        (&wide, "", 0, "no violations"),
        (SPEC, &large, 0, "no violations"),
        (rule, &large, 1, "exceeds budget"),
    ] {
        let directory = files(&[("crd.yaml", &crd(spec)), ("a.yaml", object)]);
        let (found, out, peak) = measured(directory.path());
        assert!(found == code && out.contains(part), "{}: {found} {out}", spec.get(..60).unwrap_or(spec));
        assert!(peak < 512, "{peak} MiB");
        // A large schema is not searched for a bound.
        assert!(spec.len() < 100_000 || !out.contains("the API server accepts the rule with"), "{out}");
    }
}
