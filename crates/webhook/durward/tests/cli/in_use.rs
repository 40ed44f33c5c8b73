//! Commands about in-use rules, over a recorded fleet.

use serde_json::{Value, json};

use crate::harness::{Run, TestDir};

/// A control plane with two members. A pod of `m2` mounts the `ConfigMap` `app`, and a machine of `m1` uses the cluster `prod`.
fn fleet(rules: &str) -> TestDir {
    let dir = TestDir::new();
    let list = |file: &str, items: Value| {
        dir.write(
            &format!("fleet/{file}"),
            &json!({"apiVersion": "v1", "kind": "List", "items": items}).to_string(),
        );
    };
    let map = |name: &str, app: &str| json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name, "namespace": "shop", "uid": name, "labels": {"app": app}}});
    let cluster = |name: &str| json!({"apiVersion": "cluster.karmada.io/v1alpha1", "kind": "Cluster", "metadata": {"name": name}});
    let pod = json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "web", "namespace": "shop", "uid": "1"},
        "spec": {"containers": [], "volumes": [{"name": "v", "configMap": {"name": "app"}}]}, "status": {"phase": "Running"}});
    let machine = json!({"apiVersion": "example.org/v1", "kind": "Machine", "metadata": {"name": "m-1", "namespace": "shop", "uid": "2"}, "spec": {"cluster": "prod"}});
    let crd = |plural: &str, kind: &str, fields: Value| {
        json!({"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
            "metadata": {"name": format!("{plural}.example.org"), "uid": plural},
            "spec": {"group": "example.org", "scope": "Namespaced", "names": {"plural": plural, "kind": kind},
                "versions": [{"name": "v1", "served": true, "storage": true, "schema": {"openAPIV3Schema": {"type": "object",
                    "properties": {"spec": {"type": "object", "properties": fields}}}}}]}})
    };
    dir.write(
        "fleet/snapshot.yaml",
        "version: 2\ntime: \"2026-11-29T10:00:00Z\"\nclusters: [{name: here}, {name: m1}, {name: m2}]\n",
    );
    list("here/clusters.v1alpha1.cluster.karmada.io.yaml", json!([cluster("m1"), cluster("m2")]));
    list("here/configmaps.v1.yaml", json!([map("app", "web"), map("free", "web"), map("other", "back")]));
    list(
        "here/customresourcedefinitions.v1.apiextensions.k8s.io.yaml",
        json!([
            crd("kubernetesclusters", "KubernetesCluster", json!({})),
            crd("machines", "Machine", json!({"cluster": {"type": "string"}}))
        ]),
    );
    list(
        "here/kubernetesclusters.v1.example.org.yaml",
        json!([{"apiVersion": "example.org/v1", "kind": "KubernetesCluster", "metadata": {"name": "prod", "namespace": "shop", "uid": "3"}}]),
    );
    for cluster in ["here", "m1", "m2"] {
        list(&format!("{cluster}/pods.v1.yaml"), if cluster == "m2" { json!([pod]) } else { json!([]) });
        list(
            &format!("{cluster}/machines.v1.example.org.yaml"),
            if cluster == "m1" { json!([machine]) } else { json!([]) },
        );
    }
    dir.configure(&format!(
        "  deletion:\n    fleet: karmada\n    crds: {{apiGroups: ['*']}}\n    inUse: {rules}\n"
    ));
    dir
}

const CONFIGMAPS: &str = "{library: [configmaps]}";

fn machines(condition: &str) -> String {
    format!(
        "{{rules: [{{name: machines, protects: {{group: example.org, resource: kubernetesclusters}}, \
         usedBy: [{{group: example.org, version: v1, resource: machines, where: \"{condition}\"}}]}}]}}"
    )
}

fn impact(dir: &TestDir, arguments: &[&str]) -> Run {
    dir.run(&[&["impact", "--snapshot", "fleet", "--config", "durward.yaml"], arguments].concat())
}

#[test]
fn impact_names_the_objects_that_use_another() {
    let dir = fleet(CONFIGMAPS);
    let used = impact(&dir, &["configmap/app", "-n", "shop"]);
    assert_eq!(used.code, 1, "{}", used.err);
    assert!(
        used.out
            .starts_with("configmaps/shop/app  in use in member cluster m2: a deletion would be denied\n"),
        "{}",
        used.out
    );
    assert!(used.out.contains("  m2  in use  1 pod (web)\n"), "{}", used.out);
    assert_eq!(impact(&dir, &["cm", "free", "-n", "shop"]).code, 0);
    let missing = impact(&dir, &["cm/fre", "-n", "shop"]);
    assert!(
        missing.err.contains("there is no configmap \"fre\"") && missing.err.contains("did you mean free?"),
        "{}",
        missing.err
    );
    let all = impact(&dir, &["cm", "-l", "app=web", "-o", "name"]);
    assert_eq!((all.code, all.out.as_str()), (1, "configmaps/app\n"), "{}", all.err);
}

#[test]
fn impact_of_a_custom_resource_finds_its_scope_in_the_crd() {
    let dir = fleet(&machines("by.spec.cluster == object.metadata.name"));
    let used = impact(&dir, &["kubernetescluster/prod", "-n", "shop", "-o", "json"]);
    assert_eq!(used.code, 1, "{}", used.err);
    let json = used.json();
    assert_eq!(json[0]["kind"], "kubernetesclusters.example.org");
    assert_eq!(
        json[0]["clusters"][1]["inUse"][0],
        json!({"what": "machines", "count": 1, "more": false, "names": ["m-1"]})
    );
}

#[test]
fn a_change_that_removes_a_used_object_is_named() {
    let dir = fleet(CONFIGMAPS);
    let map = |name: &str| {
        format!("---\napiVersion: v1\nkind: ConfigMap\nmetadata: {{name: {name}, namespace: shop}}\n")
    };
    dir.write("old.yaml", &format!("{}{}", map("app"), map("free")));
    dir.write("new.yaml", "");
    let run = dir.run(&[
        "impact",
        "--diff",
        "old.yaml",
        "new.yaml",
        "--snapshot",
        "fleet",
        "--config",
        "durward.yaml",
        "-o",
        "json",
    ]);
    assert_eq!(run.code, 1, "{}", run.err);
    let json = run.json();
    let verdicts: Vec<_> = json["removed"]
        .as_array()
        .unwrap()
        .iter()
        .map(|one| (one["name"].as_str().unwrap(), one["verdict"].as_str().unwrap()))
        .collect();
    assert_eq!(verdicts, [("app", "deny"), ("free", "allow")]);
}

#[test]
fn a_snapshot_answers_as_the_fleet_did() {
    let dir = fleet(CONFIGMAPS);
    let written = dir.run(&[
        "snapshot",
        "cm/app",
        "-n",
        "shop",
        "--out",
        "copy",
        "--snapshot",
        "fleet",
        "--config",
        "durward.yaml",
    ]);
    assert_eq!(written.code, 0, "{}", written.err);
    let again =
        dir.run(&["impact", "cm/app", "-n", "shop", "--snapshot", "copy", "--config", "durward.yaml"]);
    assert_eq!(again.out, impact(&dir, &["cm/app", "-n", "shop"]).out);
}

#[test]
fn a_snapshot_of_everything_answers_about_each_object() {
    let dir = fleet(CONFIGMAPS);
    let list = json!({"apiVersion": "v1", "kind": "List", "items": []}).to_string();
    for cluster in ["here", "m1", "m2"] {
        dir.write(&format!("fleet/{cluster}/namespaces.v1.yaml"), &list);
    }
    let all = ["snapshot", "--out", "copy", "--snapshot", "fleet", "--config", "durward.yaml"];
    let written = dir.run(&all);
    for (name, code) in [("app", 1), ("free", 0), ("other", 0)] {
        let name = format!("cm/{name}");
        let arguments = ["impact", &name, "-n", "shop", "--snapshot", "copy", "--config", "durward.yaml"];
        let run = dir.run(&arguments);
        assert_eq!(run.code, code, "{name}: {} {} {}", run.out, run.err, written.err);
    }
}

#[test]
fn a_manifest_without_a_namespace_is_in_that_of_the_command_line() {
    let dir = fleet(CONFIGMAPS);
    dir.write("old.yaml", "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: app}\n");
    dir.write("new.yaml", "");
    let diff =
        ["impact", "--diff", "old.yaml", "new.yaml", "--snapshot", "fleet", "--config", "durward.yaml"];
    assert_eq!(dir.run(&[&diff[..], &["-n", "shop"]].concat()).code, 1);
    let elsewhere = dir.run(&diff);
    assert!(elsewhere.out.contains("configmaps/default/app  does not exist"), "{}", elsewhere.out);
}

#[test]
fn doctor_names_a_field_that_the_crd_does_not_have() {
    let doctor = |condition: &str| {
        let dir = fleet(&machines(condition));
        dir.run(&["doctor", "fleet", "--snapshot", "fleet", "--config", "durward.yaml"]).out
    };
    let right = doctor("by.spec.?cluster.orValue('') == object.metadata.name");
    assert!(!right.contains("unknown-field"), "{right}");
    let wrong = doctor("by.spec.?clusterName.orValue('') == object.metadata.name");
    assert!(
        wrong.contains(
            "the in-use rule machines reads by.spec.clusterName, which machines.example.org does not have"
        ),
        "{wrong}"
    );
}

#[test]
fn a_kind_without_a_rule_is_refused() {
    let run = impact(&fleet(CONFIGMAPS), &["secret/app", "-n", "shop"]);
    assert!(
        run.err.contains("the deletion guard does not protect secret") && run.err.contains("configmaps/NAME"),
        "{}",
        run.err
    );
    assert_eq!(run.code, 2);
}
