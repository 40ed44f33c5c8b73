//! `check` with CRDs in PATH: the answer of the API server to a create and an update of them.

use crate::check::files;
use crate::harness::{Run, durward_in};

const BASE: &str = "apiVersion: apiextensions.k8s.io/v1
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
          spec:
            type: object
            properties:
              size: {type: integer, default: 3, maximum: 9}
";

const STATUS: &str = "status:
  conditions: [{type: Established, status: 'True', reason: a, message: b, lastTransitionTime: null}]
  storedVersions: [v1]
  acceptedNames: {kind: Thing, plural: things}
";

const NOTE: &str = "note: not checked of CRDs: whether the cluster has other CRDs with their names, whether their conversion webhooks answer, and the objects that are stored\n";

fn create(crd: &str, options: &[&str]) -> Run {
    durward_in(files(&[("crd.yaml", crd)]).path(), &[&["check", "crd.yaml"], options].concat(), "")
}

fn update(new: &str, old: &str) -> Run {
    let all = [("new.yaml", new), ("old.yaml", old)];
    durward_in(files(&all).path(), &["check", "new.yaml", "--old", "old.yaml"], "")
}

#[test]
fn a_valid_crd_passes_and_a_note_says_what_is_not_checked() {
    let run = create(BASE, &[]);
    assert_eq!(run.code, 0, "{}{}", run.out, run.err);
    assert!(run.err.contains(NOTE), "{}", run.err);
    assert!(!run.err.contains("nothing was judged"), "{}", run.err);
}

#[test]
fn empty_lists_of_schemas_are_not_absent_ones() {
    let crd = BASE.replace("    schema:\n", "    subresources: {status: {}}\n    schema:\n");
    assert_eq!(create(&crd, &[]).code, 0);
    let run = create(
        &crd.replace(
            "        type: object\n        prop",
            "        type: object\n        enum: []\n        prop",
        ),
        &[],
    );
    assert_eq!(run.code, 1, "{}{}", run.out, run.err);
    assert!(run.out.contains("fields are allowed at the root of the schema"), "{}{}", run.out, run.err);
}

#[test]
fn all_parts_of_a_new_crd_are_checked_with_their_places() {
    for (from, to, place, error) in [
        (
            "name: things.example.org",
            "name: items.example.org",
            "3:12",
            "metadata.name: Invalid value: \"items.example.org\": must be spec.names.plural+\".\"+spec.group",
        ),
        (
            "group: example.org",
            "group: org",
            "5:3",
            "spec.group: Invalid value: \"org\": should be a domain with at least one dot",
        ),
        (
            "kind: Thing,",
            "kind: Thing, listKind: Thing,",
            "7:24",
            "spec.names.listKind: Invalid value: \"Thing\": kind and listKind may not be the same",
        ),
        (
            "storage: true",
            "storage: false",
            "8:3",
            "spec.versions: Invalid value: [...]: must have exactly one version marked as storage version",
        ),
        (
            "default: 3",
            "default: 10",
            "19:37",
            "spec.validation.openAPIV3Schema.properties[spec].properties[size].default: Invalid value: 10:  in body should be less than or equal to 9",
        ),
        (
            "default: 3",
            "default: 3, uniqueItems: true",
            "19:49",
            "spec.validation.openAPIV3Schema.properties[spec].properties[size].uniqueItems: Forbidden: uniqueItems cannot be set to true since the runtime complexity becomes quadratic",
        ),
        (
            "default: 3",
            "default: 3, x-kubernetes-validations: [{rule: self > 3}]",
            "19:37",
            "spec.validation.openAPIV3Schema.properties[spec].properties[size].default: Invalid value: 3: failed rule: self > 3",
        ),
        (
            "default: 3",
            "x-kubernetes-validations: [{rule: self > '3'}]",
            "",
            "found no matching overload for '_>_' applied to '(int, string)'",
        ),
        (
            "storage: true",
            "storage: true\n    subresources: {scale: {specReplicasPath: .status.a, statusReplicasPath: .status.b}}",
            "12:28",
            "spec.subresources.scale.specReplicasPath: Invalid value: \".status.a\": should be a json path under .spec",
        ),
        (
            "storage: true",
            "storage: true\n    additionalPrinterColumns: [{name: A, type: text, jsonPath: .a}]",
            "12:42",
            "spec.additionalPrinterColumns[0].type: Invalid value: \"text\": must be one of boolean,date,integer,number,string",
        ),
        (
            "storage: true",
            "storage: true\n    selectableFields: [{jsonPath: .spec}]",
            "12:25",
            "spec.selectableFields[0].jsonPath: Invalid value: \".spec\": must point to a field of type string, boolean or integer.",
        ),
        (
            "scope: Namespaced",
            "scope: Namespaced\n  conversion: {strategy: Webhook}",
            "7:3",
            "spec.conversion.webhookClientConfig: Required value: required when strategy is set to Webhook",
        ),
    ] {
        let crd = BASE.replacen(from, to, 1);
        assert_ne!(crd, BASE);
        let run = create(&crd, &[]);
        let (line, column) = place.split_once(':').unwrap_or_default();
        let found = run.out.lines().any(|text| {
            text.contains(error)
                && text.contains("denied by the API server")
                && (place.is_empty() || text.starts_with(&format!("crd.yaml:{line}:{column}: ")))
        });
        assert!(run.code == 1 && found, "{to}: {place} {error}\n{}{}", run.out, run.err);
    }
}

#[test]
fn an_expensive_rule_has_bounds_with_which_it_is_accepted() {
    let rule = "list: {type: array, items: {type: string, maxLength: 10}, x-kubernetes-validations: [{rule: 'self.all(a, self.exists(b, a == b))'}]}";
    let crd = BASE.replace("size: {type: integer, default: 3, maximum: 9}", rule);
    let run = create(&crd, &[]);
    assert_eq!(run.code, 1, "{}{}", run.out, run.err);
    assert!(
        run.out.contains("estimated rule cost exceeds budget by factor of more than 100x"),
        "{}",
        run.out
    );
    let (_, hint) = run.out.split_once("Next: the API server accepts the rule with ").expect("a hint");
    let (size, rest) = hint.split_once(" in ").unwrap();
    let bounded = |bound: u64| {
        let (keyword, _) = size.split_once(": ").unwrap();
        let text = format!("list: {{type: array, {keyword}: {bound},");
        create(&crd.replace("list: {type: array,", &text), &[])
    };
    assert!(
        rest.starts_with("spec.versions[0].schema.openAPIV3Schema.properties[spec].properties[list]\n"),
        "{rest}"
    );
    let bound: u64 = size.strip_prefix("maxItems: ").unwrap().parse().unwrap();
    assert_eq!(bounded(bound).code, 0, "{}", run.out);
    assert_eq!(bounded(bound + 1).code, 1, "{}", run.out);
}

#[test]
fn an_update_keeps_names_scope_and_stored_versions() {
    let old = BASE.to_owned() + STATUS;
    assert_eq!(update(BASE, &old).code, 0);
    let scope = update(&BASE.replace("scope: Namespaced", "scope: Cluster"), &old);
    assert_eq!(scope.code, 1);
    let error = "new.yaml:6:3: CustomResourceDefinition things.example.org (update): denied by the API server: spec.scope: Invalid value: \"Cluster\": field is immutable\n";
    assert!(scope.out.contains(error), "{}", scope.out);
    let renamed = update(&BASE.replace("name: v1\n", "name: v2\n"), &old);
    assert_eq!(renamed.code, 1);
    assert!(
        renamed.out.contains("status.storedVersions[0]: Invalid value: \"v1\": missing from spec.versions; v1 was previously a storage version"),
        "{}",
        renamed.out
    );
    // Before the API server serves the CRD, its scope can change.
    let pending = old.replace("'True'", "'False'");
    assert_eq!(update(&BASE.replace("scope: Namespaced", "scope: Cluster"), &pending).code, 0);
}

#[test]
fn a_removed_version_of_an_old_crd_without_a_status_leaves_the_verdict_open() {
    let second =
        "  - name: v2\n    served: true\n    storage: false\n    schema: {openAPIV3Schema: {type: object}}\n";
    let old = BASE.to_owned() + second;
    let run = update(BASE, &old);
    assert_eq!(run.code, 3, "{}{}", run.out, run.err);
    assert!(run.out.contains("needed to know whether objects are stored as v2"), "{}", run.out);
    let run = update(BASE, &(old + STATUS));
    assert_eq!(run.code, 0, "{}{}", run.out, run.err);
}

#[test]
fn an_update_tolerates_what_is_wrong_in_the_old_crd() {
    let schema = "size: {type: integer, default: 3, maximum: 9}";
    let bad = BASE.replace(schema, "list: {type: array, x-kubernetes-list-type: set, items: {type: object}}");
    let error = "must be atomic as item of a list with x-kubernetes-list-type=set";
    let created = create(&bad, &[]);
    assert!(created.code == 1 && created.out.contains(error), "{}", created.out);
    let old = bad.clone() + STATUS;
    let run =
        update(&bad.replace("scope: Namespaced", "scope: Namespaced\n  preserveUnknownFields: false"), &old);
    assert_eq!(run.code, 0, "{}{}", run.out, run.err);
    let expensive = BASE.replace(schema, "list: {type: array, items: {type: string}, x-kubernetes-validations: [{rule: 'self.all(a, self.exists(b, a == b))'}]}");
    let run = update(&expensive, &(expensive.clone() + STATUS));
    // The cost of all rules has a limit in any case.
    assert!(!run.out.contains("estimated rule cost exceeds"), "{}", run.out);
    assert!(run.out.contains("estimated rule cost total for entire OpenAPIv3 schema exceeds"), "{}", run.out);
}

#[test]
fn warnings_of_the_api_server_are_those_of_the_minor() {
    let crd = BASE.replace(
        "size: {type: integer",
        "name: {type: string, format: colour}\n              size: {type: integer",
    );
    let warning = "warning by the API server: unrecognized format \"colour\"";
    for (minor, is_warned) in [("1.33", false), ("1.35", true)] {
        let run = create(&crd, &["--kube-version", minor]);
        assert_eq!((run.code, run.out.contains(warning)), (0, is_warned), "{}", run.out);
    }
}

#[test]
fn a_resource_version_denies_a_create_and_a_changed_object() {
    let thing = |version: &str| format!("apiVersion: v1\nkind: ConfigMap\nmetadata: {{name: a{version}}}\n");
    let check = |new: &str, old: Option<&str>| {
        let (new, old) = (thing(new), old.map(thing));
        let mut all = vec![("new.yaml", new.as_str())];
        let mut arguments = vec!["check", "new.yaml"];
        if let Some(old) = &old {
            all.push(("old.yaml", old));
            arguments.extend(["--old", "old.yaml"]);
        }
        durward_in(files(&all).path(), &arguments, "")
    };
    let version = ", resourceVersion: '7'";
    let created = check(version, None);
    assert_eq!(created.code, 1, "{}", created.out);
    let error = "new.yaml:3:21: ConfigMap default/a: denied by the API server: resourceVersion should not be set on objects to be created\n  Next: remove metadata.resourceVersion\n";
    assert!(created.out.starts_with(error), "{}", created.out);
    assert_eq!(check(", resourceVersion: '0'", None).code, 0);
    assert_eq!(check(version, Some(version)).code, 0);
    let changed = check(version, Some(", resourceVersion: '8'"));
    assert_eq!(changed.code, 1, "{}", changed.out);
    assert!(
        changed
            .out
            .contains("Operation cannot be fulfilled on configmaps \"a\": the object has been modified"),
        "{}",
        changed.out
    );
    let unknown = check(version, Some(""));
    assert_eq!(unknown.code, 3, "{}", unknown.out);
}
