//! `diff crd`: changes of a CRD that can break existing objects.

use std::fs;

use serde_json::json;

use crate::harness::{Run, TestDir, durward_in, root};

const OLD: &str = "examples/kubernetesclusters/crd.yaml";
const NEW: &str = "examples/kubernetesclusters/crd-undeclared.yaml";

/// A CRD with this schema of `spec`.
fn crd(name: &str, spec: &str) -> String {
    let kind = name.to_uppercase();
    format!(
        "apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {{name: {name}s.example.org}}
spec:
  group: example.org
  scope: Namespaced
  names: {{kind: {kind}, plural: {name}s}}
  versions:
  - name: v1
    served: true
    storage: true
    schema:
      openAPIV3Schema:
        type: object
        properties:
          spec: {spec}
"
    )
}

fn object(kind: &str, name: &str, spec: &str) -> String {
    format!(
        "apiVersion: example.org/v1\nkind: {kind}\nmetadata: {{name: {name}, namespace: shop}}\nspec: {spec}\n"
    )
}

/// Compares two texts, with objects if there are any.
fn diff(old: &str, new: &str, objects: &str, more: &[&str]) -> Run {
    let directory = TestDir::new();
    let write = |name: &str, text: &str| fs::write(directory.path().join(name), text).unwrap();
    write("old.yaml", old);
    write("new.yaml", new);
    write("objects.yaml", objects);
    let mut arguments = vec!["diff", "crd", "old.yaml", "new.yaml"];
    if !objects.is_empty() {
        arguments.extend(["--objects", "objects.yaml"]);
    }
    arguments.extend(more);
    durward_in(directory.path(), &arguments, "")
}

#[test]
fn names_changes_with_place_field_and_class() {
    let old = crd("a", "{type: object, properties: {size: {type: string, enum: [small, large]}}}");
    let new = old.replace("small, large", "small");
    let run = diff(&old, &new, "", &[]);
    assert_eq!((run.code, run.err.as_str()), (1, ""));
    assert_eq!(
        run.out,
        "new.yaml:16:66: v1 spec.size: enumTightened: not valid any more: \"large\"\nas.example.org: 1 change can break existing objects\n"
    );
    let run = diff(&new, &old, "", &[]);
    assert_eq!((run.code, run.out.as_str()), (0, "as.example.org: no change can break existing objects\n"));
}

#[test]
fn writes_objects_again() {
    let old = crd("a", "{type: object, properties: {size: {type: string}, color: {type: string}}}");
    let new = crd("a", "{type: object, properties: {size: {type: string, maxLength: 2}}}");
    let objects = [object("A", "x", "{size: long, color: red}"), object("A", "z", "{size: m}")].join("---\n");
    let run = diff(&old, &new, &objects, &[]);
    assert_eq!(run.code, 1, "{}", run.err);
    let lines: Vec<&str> = run.out.lines().collect();
    assert_eq!(
        lines[2..],
        [
            "objects.yaml:1:1: A shop/x: loses fields: spec.color",
            "objects.yaml:1:1: A shop/x: create refused: spec.size: Too long: may not be more than 2 bytes", // lint: allow(text of the API server)
            "as.example.org: 2 changes can break existing objects; of 2 objects 1 breaks",
        ]
    );
    let report = diff(&old, &new, &objects, &["-o", "json"]).json();
    assert_eq!((&report["exitCode"], &report["kubeVersion"]), (&json!(1), &json!("1.35")));
    let crd = &report["crds"][0];
    assert_eq!(crd["changes"][0]["class"], "fieldRemoved");
    assert_eq!(crd["changes"][1]["field"], "spec.size");
    assert_eq!(crd["objects"][0]["verdict"], "breaks");
    assert_eq!(crd["objects"][0]["lost"], json!(["spec.color"]));
    assert_eq!(crd["objects"][0]["update"], json!([]));
    assert_eq!(
        (&crd["objects"][1]["verdict"], &crd["objects"][1]["line"]),
        (&json!("unaffected"), &json!(6))
    );
}

#[test]
fn an_error_that_an_object_has_already_is_no_effect() {
    let old = crd("a", "{type: object, required: [size], properties: {size: {type: string}}}");
    let run = diff(&old, &old, &object("A", "x", "{}"), &[]);
    assert_eq!(run.code, 0, "{}{}", run.out, run.err);
    assert!(run.out.ends_with("of 1 object none breaks\n"), "{}", run.out);
}

#[test]
fn a_field_of_a_crd_that_is_not_known_is_not_compared() {
    let old = crd("a", "{type: object, properties: {size: {type: string}}}");
    let new = old.replace("size: {type: string}", "size: {type: string, x-kubernetes-later: 1}");
    let run = diff(&old, &new, "", &[]);
    assert_eq!(run.code, 3, "{}", run.out);
    assert!(run.out.contains("v1: could not compare: schema.openAPIV3Schema.properties[spec].properties[size].x-kubernetes-later differs"), "{}", run.out);
    assert!(run.out.ends_with("as.example.org: 1 change could not be compared\n"), "{}", run.out);
    // A class outranks it.
    let run =
        diff(&old, &new.replace("x-kubernetes-later: 1", "x-kubernetes-later: 1, maxLength: 2"), "", &[]);
    assert_eq!(run.code, 1, "{}", run.out);
}

#[test]
fn crds_of_files_are_paired_by_name() {
    let of = |name: &str| crd(name, "{type: object}");
    let old = [of("a"), of("b"), of("c")].join("---\n");
    let new =
        ["kind: Namespace\napiVersion: v1\nmetadata: {name: x}\n".to_owned(), of("c"), of("a")].join("---\n");
    let run = diff(&old, &new, "", &[]);
    assert_eq!(run.code, 1, "{}", run.err);
    assert_eq!(
        run.out.lines().collect::<Vec<_>>(),
        [
            "as.example.org: no change can break existing objects",
            "old.yaml:20:12: metadata.name: crdRemoved: not in new.yaml: deleting the CRD deletes all its objects",
            "bs.example.org: 1 change can break existing objects",
            "cs.example.org: no change can break existing objects",
        ]
    );
    // Objects of a removed CRD alone are of a compared CRD.
    let run = diff(&old, &new, &object("B", "x", "{}"), &[]);
    assert_eq!((run.code, run.err.as_str()), (1, ""), "{}", run.out);
    let other = of("a").replace("as.example.org", "ds.example.org").replace("plural: as", "plural: ds");
    let run = diff(&of("a"), &other, "", &[]);
    assert!(run.out.contains("spec.names.plural: nameChanged: was as, now it is ds"), "{}", run.out);
}

#[test]
fn an_old_crd_of_v1beta1_keeps_unknown_fields() {
    let arguments = ["diff", "crd", "examples/kubernetesclusters/crd-v1beta1.yaml", NEW];
    let run = durward_in(&root(), &arguments, "");
    assert_eq!(run.code, 1, "{}", run.err);
    assert!(run.out.contains("v1 spec.*: fieldRemoved"), "{}", run.out);
    assert!(run.err.contains("is compared as durward convert crd prints it"), "{}", run.err);
    let arguments = ["diff", "crd", OLD, "examples/kubernetesclusters/crd-v1beta1.yaml"];
    let run = durward_in(&root(), &arguments, "");
    assert_eq!((run.code, run.out.as_str()), (2, ""));
    assert!(run.err.contains("convert the CRD to v1: durward convert crd FILE"), "{}", run.err);
}

#[test]
fn reads_a_crd_from_standard_input() {
    let old = fs::read_to_string(root().join(OLD)).unwrap();
    let run = durward_in(&root(), &["diff", "crd", "-", OLD], &old);
    assert_eq!(run.code, 0, "{}{}", run.out, run.err);
}

#[test]
fn refuses_input_that_it_cannot_use() {
    let old = crd("a", "{type: object, properties: {size: {type: string}}}");
    for (new, objects, expected) in [
        ("a: [1\n", "", "new.yaml:"),
        ("", "", "new.yaml contains no CRD"),
        ("apiVersion: v1\nkind: Pod\nmetadata: {name: a}\n", "", "new.yaml contains no CRD"),
        (
            &old.replace("type: object", "type: 5"),
            "",
            "openAPIV3Schema.type: Invalid type: expected a string",
        ),
        (
            &old.replace("size: {type: string}", "size: {}"),
            "",
            "the API server refuses the CRD: spec.validation.openAPIV3Schema.properties[spec].properties[size].type: Required value",
        ),
        (
            &old.replace("type: string}", "type: string, x-kubernetes-validations: [{rule: self > 1}]}"),
            "",
            "the API server refuses the CRD",
        ),
        (
            &old.replace(
                "type: string}",
                "x-kubernetes-int-or-string: true, anyOf: [{type: integer}, {type: string, properties: {}}]}",
            ),
            "",
            "the API server refuses the CRD",
        ),
        (
            &old.replace("storage: true", "storage: false"),
            "",
            "must have exactly one version marked as storage version",
        ),
        (&old.replace("apiextensions.k8s.io/v1", "apiextensions.k8s.io/v2"), "", "is not a version of CRDs"),
        (&format!("{old}---\n{old}"), "", "the CRD is there twice"),
        (&old, &object("B", "x", "{}"), "--objects has no object of as.example.org"),
        (&old, &object("A", "x", "{}").replace("v1", "v2"), "the old CRD does not serve example.org/v2"),
        (
            &old,
            &object("A", "x", "{}").replace("name: x", "generateName: x"),
            "an existing object has a name",
        ),
        (
            &old,
            &object("A", "x", "{}").replace("namespace: shop", "labels: 1"),
            "metadata.labels: Invalid type",
        ),
    ] {
        let run = diff(&old, new, objects, &[]);
        assert_eq!((run.code, run.out.as_str()), (2, ""), "{expected}: {}", run.err);
        assert!(run.err.contains(expected), "{expected}: {}", run.err);
    }
    let run = diff(&old, &old, &[object("A", "x", "{}"), object("B", "x", "{}")].join("---\n"), &[]);
    assert_eq!(run.code, 0, "{}", run.err);
    assert!(run.err.contains("note: 1 of 2 objects are not of a compared CRD"), "{}", run.err);
}

#[test]
fn strange_crds_are_errors_in_bounded_time() {
    let old = crd("a", "{type: object}");
    let deep = |levels: usize| {
        let schema =
            "{type: object, properties: {a: ".repeat(levels) + "{type: string}" + &"}}".repeat(levels);
        crd("a", &schema)
    };
    let started = std::time::Instant::now();
    assert_eq!(diff(&old, &deep(10_000), "", &[]).code, 2);
    assert_eq!(diff(&deep(90), &deep(91), "", &[]).code, 1);
    // An alias repeats a schema within itself.
    let mut levels = String::from("&a0 {type: string}");
    for level in 1..13 {
        let inner = level - 1;
        levels =
            format!("&a{level} {{type: object, properties: {{p: {levels}, q: *a{inner}, r: *a{inner}}}}}");
    }
    assert_eq!(diff(&old, &crd("a", &levels), "", &[]).code, 2);
    let reference = crd("a", r##"{type: object, properties: {a: {$ref: "#/a"}}}"##);
    let run = diff(&old, &reference, "", &[]);
    assert!(run.err.contains("$ref is not supported"), "{}", run.err);
    assert!(started.elapsed().as_secs() < 30, "{:?}", started.elapsed());
}

#[test]
fn the_page_names_every_class() {
    let page = fs::read_to_string(root().join("docs/src/check/diff.md")).unwrap();
    for class in policy::crd::compare::Class::ALL {
        assert!(page.contains(&format!("| `{}` |", class.name())), "{}", class.name());
    }
}
