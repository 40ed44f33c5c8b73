//! `impact`, `snapshot` and `doctor fleet`, over recorded fleets.

use std::fs;

use serde_json::{Value, json};

use crate::harness::{Run, TestDir, api_server, copy, durward, durward_in, root};

const WORLD: &str = "examples/deletion/healthy";
const CUT: &str = "examples/deletion/m3-unreachable";
const CONFIG: &str = "examples/deletion/durward.yaml";

fn impact(arguments: &[&str]) -> Run {
    durward(&[&["impact"], arguments].concat())
}

/// A writable copy of the fleet in the examples.
fn fleet() -> TestDir {
    let dir = TestDir::new();
    copy(&root().join(WORLD), &dir.path().join("fleet"));
    dir.configure("  deletion: {fleet: karmada, crds: {apiGroups: [example.org]}}\n");
    dir
}

/// Changes a recorded List.
fn change(dir: &TestDir, file: &str, change: impl FnOnce(&mut Value)) {
    let path = dir.path().join("fleet").join(file);
    let mut list: Value = serde_saphyr::from_str(&fs::read_to_string(&path).unwrap()).unwrap();
    change(&mut list);
    fs::write(path, list.to_string()).unwrap();
}

/// Annotates a Cluster with an acknowledgement.
fn acknowledge(dir: &TestDir, at: usize, until: &str) {
    change(dir, "here/clusters.v1alpha1.cluster.karmada.io.yaml", |list| {
        list["items"][at]["metadata"]["annotations"] =
            json!({"durward.dev/acknowledge-unreachable": "cut", "durward.dev/acknowledge-until": until});
    });
}

/// Returns the verdicts by name.
fn verdicts(run: &Run) -> Vec<(String, String)> {
    let text = |value: &Value| value.as_str().unwrap().to_owned();
    let all = run.json();
    all.as_array().unwrap().iter().map(|one| (text(&one["name"]), text(&one["verdict"]))).collect()
}

#[test]
fn impact_lists_objects_in_use_by_cluster() {
    let shop = impact(&["ns/shop", "--snapshot", WORLD]);
    assert_eq!((shop.code, shop.err.as_str()), (1, ""));
    assert_eq!(
        shop.out,
        "ns/shop  in use in member cluster m2: a deletion would be denied\n  \
         m2  in use  2 pods (web-0, web-1), 1 PVC (data-web-0)\n  nothing in use in the control plane, m1, m3\n"
    );
    let docs = impact(&["ns/docs", "--snapshot", WORLD]);
    assert_eq!(docs.code, 0);
    assert!(
        docs.out.starts_with(
            "ns/docs  can be deleted: nothing in use in the control plane and 3 member clusters\n"
        ),
        "{}",
        docs.out
    );
    let widgets = impact(&["crd/widgets.example.org", "--snapshot", WORLD, "--config", CONFIG]);
    assert_eq!(widgets.code, 1);
    assert!(widgets.out.contains("m2  in use  1 object (shop/blue)\n"), "{}", widgets.out);
}

#[test]
fn reports_an_unreadable_crd_group_with_the_line_to_add() {
    let dir = fleet();
    dir.configure("  deletion: {fleet: karmada}\n");
    let run =
        dir.run(&["impact", "crd/widgets.example.org", "--snapshot", "fleet", "--config", "durward.yaml"]);
    assert_eq!(run.code, 3);
    assert!(run.out.starts_with("crd/widgets.example.org  could not check: "), "{}", run.out);
    assert!(run.out.contains("add it to values.yaml, then helm upgrade; without the chart, apply what `durward manifests` prints: crds: {apiGroups: [example.org]}"), "{}", run.out);
}

#[test]
fn impact_prints_json_with_stable_names() {
    let run = impact(&["ns/shop", "--snapshot", WORLD, "-o", "json"]);
    assert_eq!(run.code, 1);
    let shop = &run.json()[0];
    assert_eq!(
        shop["clusters"][2]["inUse"][0],
        json!({"what": "pods", "count": 2, "more": false, "names": ["web-0", "web-1"]})
    );
    assert_eq!(
        (&shop["kind"], &shop["verdict"], &shop["exists"]),
        (&"Namespace".into(), &"deny".into(), &true.into())
    );
    assert_eq!(shop["clusters"][0], json!({"cluster": "(local)", "state": "empty", "summary": ""}));
}

#[test]
fn reports_unknown_clusters_with_their_causes() {
    let run = impact(&["ns/docs", "--snapshot", CUT, "-o", "json"]);
    assert_eq!(run.code, 3);
    let docs = &run.json()[0];
    assert_eq!(docs["verdict"], "unknown");
    assert_eq!(docs["clusters"][3]["unchecked"][0]["cause"], "timeout");
    let text = impact(&["ns/docs", "--snapshot", CUT]).out;
    assert!(
        text.starts_with(
            "ns/docs  could not check member cluster m3: a deletion would be denied\n  m3  not checked  "
        ),
        "{text}"
    );

    let dir = fleet();
    dir.write("fleet/snapshot.yaml", &fs::read_to_string(root().join(CUT).join("snapshot.yaml")).unwrap());
    fs::remove_dir_all(dir.path().join("fleet/m3")).unwrap();
    dir.configure("  deletion: {fleet: karmada}\n");
    acknowledge(&dir, 2, "2026-12-01T00:00:00Z");
    let run = dir.run(&["impact", "ns/docs", "--snapshot", "fleet", "--config", "durward.yaml"]);
    assert_eq!(run.code, 3, "an acknowledged cluster is still unknown: {}", run.out);
    assert!(run.out.contains("member cluster m3 could not be checked (acknowledged)"), "{}", run.out);
    assert!(run.out.contains("(acknowledged until 2026-12-01T00:00:00Z: cut)"), "{}", run.out);
    assert!(run.out.contains("Warning:"), "{}", run.out);
}

#[test]
fn impact_lists_all_objects_of_a_kind() {
    let expected = |names: &[(&str, &str)]| -> Vec<(String, String)> {
        names.iter().map(|(name, verdict)| ((*name).to_owned(), (*verdict).to_owned())).collect()
    };
    let namespaces = [("docs", "allow"), ("shop", "deny")];
    let run = impact(&["ns", "--all", "--snapshot", WORLD, "-o", "json"]);
    assert_eq!((run.code, verdicts(&run)), (1, expected(&namespaces)));
    let run = impact(&["--all", "--snapshot", WORLD, "-o", "json"]);
    let all = [&namespaces[..], &[("widgets.example.org", "deny")]].concat();
    assert_eq!(verdicts(&run), expected(&all));
    for wrong in [&["ns"][..], &[], &["ns/shop", "--all"], &["pod/web"], &["ns/../x"]] {
        let run = impact(&[wrong, &["--snapshot", WORLD]].concat());
        assert_eq!((run.code, run.out.as_str()), (2, ""), "{wrong:?}");
    }
}

#[test]
fn impact_takes_the_words_and_selectors_of_kubectl() {
    let names = |run: &Run| verdicts(run).into_iter().map(|(name, _)| name).collect::<Vec<_>>();
    let spaced = impact(&["ns", "shop", "docs", "--snapshot", WORLD, "-o", "json"]);
    assert_eq!(names(&spaced), ["shop", "docs"], "{}", spaced.err);
    let dir = TestDir::new();
    copy(&root().join(WORLD), &dir.path().join("fleet"));
    change(&dir, "here/namespaces.v1.yaml", |list| {
        let shop =
            list["items"].as_array_mut().unwrap().iter_mut().find(|one| one["metadata"]["name"] == "shop");
        shop.unwrap()["metadata"]["labels"] = json!({"team": "shop"});
    });
    let selected =
        |selector: &str| dir.run(&["impact", "ns", "-l", selector, "--snapshot", "fleet", "-o", "json"]);
    assert_eq!(names(&selected("team=shop")), ["shop"]);
    assert_eq!(names(&selected("team!=shop")), ["docs"]);
    let none = selected("team=none");
    assert_eq!((none.code, none.out.as_str()), (2, ""), "{}", none.err);
    let in_use = impact(&["--all", "--snapshot", WORLD, "-o", "name"]);
    let expected = "namespace/shop\ncustomresourcedefinition.apiextensions.k8s.io/widgets.example.org\n";
    assert_eq!((in_use.code, in_use.out.as_str()), (1, expected));
    let wide = impact(&["ns/docs", "--snapshot", WORLD, "-o", "wide"]);
    assert!(wide.out.contains("\n  m1                 empty") && wide.out.contains("\n  m3"), "{}", wide.out);
}

#[test]
fn rejects_a_name_that_does_not_exist() {
    let run = impact(&["ns/shpo", "--snapshot", WORLD]);
    assert_eq!(run.code, 2);
    assert!(run.out.starts_with("ns/shpo  does not exist in the control plane\n"), "{}", run.out);
    assert!(run.err.contains("there is no namespace \"shpo\"\n    did you mean shop?"), "{}", run.err);
}

#[test]
fn detects_the_fleet_without_a_configuration() {
    // Without Karmada's Clusters, other recorded clusters are contexts.
    let dir = fleet();
    fs::remove_file(dir.path().join("fleet/here/clusters.v1alpha1.cluster.karmada.io.yaml")).unwrap();
    let run = durward_in(dir.path(), &["impact", "ns/shop", "--snapshot", "fleet"], "");
    assert_eq!(run.code, 1);
    assert!(run.out.contains("m2  in use"), "{}", run.out);
    // A single cluster.
    dir.write("fleet/snapshot.yaml", "version: 2\ntime: 2026-11-21T10:00:00Z\nclusters:\n- name: here\n");
    for member in ["m1", "m2", "m3"] {
        fs::remove_dir_all(dir.path().join("fleet").join(member)).unwrap();
    }
    let run = durward_in(dir.path(), &["impact", "ns/shop", "--snapshot", "fleet"], "");
    assert_eq!(
        (run.code, run.out.as_str()),
        (0, "ns/shop  can be deleted: nothing in use in this cluster\n  nothing in use in this cluster\n")
    );
    // An unreachable API server does not count as a single cluster.
    dir.write(
        "absent.config",
        "apiVersion: v1\nkind: Config\ncurrent-context: a\nclusters: [{name: c, cluster: {server: 'http://127.0.0.1:1'}}]\ncontexts: [{name: a, context: {cluster: c, user: ''}}]\n",
    );
    let run = dir.run(&["impact", "ns/shop", "--kubeconfig", "absent.config"]);
    assert_eq!((run.code, run.out.as_str()), (3, ""));
    assert!(run.err.contains("could not find out whether"), "{}", run.err);
    assert!(run.err.contains(": no connection to the API server at http://127.0.0.1:1: "), "{}", run.err);
    let next = "\n    check the API server: kubectl --kubeconfig absent.config get --raw /version; or use another --kubeconfig FILE\n";
    assert!(run.err.ends_with(next), "{}", run.err);
    // Without the deletion guard there is no fleet.
    dir.configure("  lxcfs: {}\n");
    let run = dir.run(&["impact", "ns/shop", "--snapshot", "fleet", "--config", "durward.yaml"]);
    assert_eq!(run.code, 2);
    assert!(run.err.contains("the deletion guard is off"), "{}", run.err);
}

#[test]
fn notes_that_only_a_single_cluster_was_read() {
    let dir = fleet();
    let (address, kubeconfig) = api_server(|_| (404, "404 page not found\n".to_owned()));
    dir.write("plain.config", &kubeconfig);
    let run = dir.run(&["impact", "ns/shop", "--kubeconfig", "plain.config"]);
    let expected = format!("{address}/ is not a Karmada control plane, so only this cluster is read");
    assert!(run.err.contains(&expected), "{}", run.err);
    assert_eq!(
        dir.run(&["impact", "ns/shop", "--snapshot", "fleet"]).err,
        "",
        "a recording is no API server"
    );
}

#[test]
fn a_snapshot_gives_the_same_impact() {
    let dir = fleet();
    for (snapshot, things, code) in [
        ("fleet", &["ns/shop", "ns/docs", "crd/widgets.example.org"][..], 0),
        ("fleet", &[], 0),
        (CUT, &["ns/docs"], 1),
    ] {
        let from = if snapshot == CUT { root().join(CUT) } else { dir.path().join(snapshot) };
        let from = from.to_str().unwrap().to_owned();
        let out = format!("snap-{}-{}", things.len(), code);
        let configured = ["--config", "durward.yaml"];
        let made =
            dir.run(&[&["snapshot", "--out", &out, "--snapshot", &from], things, &configured].concat());
        assert_eq!(made.code, code, "{}", made.err);
        let all = if things.is_empty() { &["--all"][..] } else { things };
        let line =
            format!("replay with: durward impact {} --snapshot {out} --config durward.yaml\n", all.join(" "));
        assert!(made.err.ends_with(&line), "{}", made.err);
        let replay = |snapshot: &str| {
            dir.run(&[&["impact", "-o", "json", "--snapshot", snapshot], all, &configured].concat())
        };
        let (first, again) = (replay(&from), replay(&out));
        if snapshot == CUT {
            assert_eq!(verdicts(&first), verdicts(&again));
            let again = again.json()[0]["clusters"][3]["unchecked"][0].clone();
            assert_eq!(again["cause"], "timeout");
            let why =
                "namespace \"docs\" in m3 could not be read when the snapshot was taken: no answer in 3.0 s";
            assert_eq!(again["text"], why, "the text is recorded once");
        } else {
            assert_eq!(first.json(), again.json(), "{things:?}");
        }
    }
}

#[test]
fn writes_a_snapshot_of_a_missing_object_and_exits_with_two() {
    let dir = fleet();
    let run = dir.run(&["snapshot", "--out", "snap", "ns/shpo", "--snapshot", "fleet"]);
    assert_eq!(run.code, 2, "{}", run.err);
    assert!(run.err.contains("there is no namespace \"shpo\"\n    did you mean shop?"), "{}", run.err);
    assert!(dir.path().join("snap/snapshot.yaml").exists());
}

#[test]
fn a_snapshot_contains_only_what_was_read() {
    let dir = fleet();
    let out = dir.path().join("snap");
    let run =
        dir.run(&["snapshot", "--out", "snap", "ns/docs", "--snapshot", "fleet", "--config", "durward.yaml"]);
    assert_eq!((run.code, run.out.as_str()), (0, ""), "{}", run.err);
    let replay =
        dir.run(&["impact", "ns/shop", "--snapshot", "snap", "--config", "durward.yaml", "-o", "json"]);
    assert_eq!(replay.code, 3);
    assert_eq!(
        verdicts(&replay),
        [("shop".to_owned(), "unknown".to_owned())],
        "objects that were not read are unknown"
    );
    let text = fs::read_to_string(out.join("m1/namespaces.v1.yaml")).unwrap();
    assert!(text.contains("docs") && !text.contains("shop"), "{text}");
    assert!(!out.join("m2/pods.v1.yaml").exists(), "m2 has no namespace docs");
    // The same review on both.
    let review = root().join("examples/deletion/reviews/deletion-allow.json");
    let run =
        dir.run(&["review", review.to_str().unwrap(), "--config", "durward.yaml", "--snapshot", "snap"]);
    assert_eq!(run.code, 0, "{}", run.out);
    let again = dir.run(&["snapshot", "--out", "snap", "ns/docs", "--snapshot", "fleet"]);
    assert_eq!(again.code, 2);
    assert!(again.err.contains("snap: the directory is not empty"), "{}", again.err);
}

#[test]
fn reports_no_findings_for_a_healthy_fleet() {
    let run = durward(&["doctor", "fleet", "--snapshot", WORLD, "--config", CONFIG]);
    assert_eq!((run.code, run.out.as_str()), (0, "Durward can check 4 of 4 clusters\nno problems found\n"));
}

#[test]
fn reports_the_unreachable_cluster_of_the_example() {
    let run = durward(&["doctor", "fleet", "--snapshot", CUT, "--config", CONFIG]);
    assert_eq!(run.code, 1);
    assert!(run.out.starts_with("Durward can check 3 of 4 clusters\n\n- m3: "), "{}", run.out);
    assert_eq!(run.out.matches("\n- ").count(), 1, "{}", run.out);
    let shop = impact(&["ns/shop", "--snapshot", CUT]);
    assert!(
        shop.out
            .starts_with("ns/shop  in use in member cluster m2: a deletion would be denied\n  m2  in use"),
        "{}",
        shop.out
    );
}

#[test]
fn reports_problems_with_reasons_and_fixes() {
    let dir = fleet();
    dir.write(
        "fleet/snapshot.yaml",
        "version: 2\ntime: 2026-11-21T10:00:00Z\nclusters:\n- name: here\n- name: m1\n- name: m2\n  unread:\n  - {what: pods.v1, cause: forbidden, text: 'm2: may not list pods'}\n- name: m3\n  unread:\n  - {what: namespaces.v1, cause: no-endpoint, text: m3 has no address}\n",
    );
    for file in ["m2/pods.v1.yaml", "m3/namespaces.v1.yaml"] {
        fs::remove_file(dir.path().join("fleet").join(file)).unwrap();
    }
    let crd = "here/customresourcedefinitions.v1.apiextensions.k8s.io.yaml";
    change(&dir, crd, |list| {
        let one = list["items"][0].clone();
        for name in ["b.one.org", "a.two.org", "c.two.org", "works.work.karmada.io"] {
            let mut other = one.clone();
            other["metadata"]["name"] = name.into();
            list["items"].as_array_mut().unwrap().push(other);
        }
    });
    change(&dir, "here/namespaces.v1.yaml", |list| {
        list["items"][1]["metadata"]["annotations"] =
            json!({"durward.dev/delete-anyway": "shop", "durward.dev/delete-reason": "x"});
    });
    acknowledge(&dir, 0, "2026-11-22T00:00:00Z");
    acknowledge(&dir, 1, "2026-11-20T00:00:00Z");
    let run = dir.run(&["doctor", "fleet", "--snapshot", "fleet", "--config", "durward.yaml", "-o", "json"]);
    assert_eq!((run.code, run.err.as_str()), (1, ""));
    let report = run.json();
    let ready: Vec<_> =
        report["clusters"].as_array().unwrap().iter().map(|one| one["ready"] == true).collect();
    assert_eq!(ready, [true, true, false, false]);
    let findings = report["findings"].as_array().unwrap();
    let codes: Vec<_> =
        findings.iter().map(|one| (one["code"].as_str().unwrap(), one["cluster"].as_str())).collect();
    assert_eq!(
        codes,
        [
            ("forbidden", Some("m2")),
            ("no-endpoint", Some("m3")),
            ("groups", None),
            ("override", None),
            ("acknowledgement", Some("m1")),
            ("acknowledgement", Some("m2")),
        ]
    );
    for (at, key, part) in [
        (0, "what", "pods"),
        (
            0,
            "fix",
            "durward manifests --config durward.yaml --only members | kubectl --kubeconfig karmada-admin.config apply -f -",
        ),
        (1, "fix", "(kubectl get cluster m3 -o yaml)"),
        (
            1,
            "fix",
            "unregister for a pull member), then join it again. If it is Ready, unjoining deletes what Karmada deployed there",
        ),
        (2, "fix", "crds:\n  apiGroups:\n  - one.org\n  - two.org"),
        (3, "what", "ns shop has the annotation durward.dev/delete-anyway=shop"),
        (
            3,
            "fix",
            "kubectl --kubeconfig karmada-admin.config annotate ns shop durward.dev/delete-anyway- durward.dev/delete-reason-",
        ),
        (4, "what", "expires within three days"),
        (5, "what", "2026-11-20T00:00:00Z is in the past"),
    ] {
        assert!(findings[at][key].as_str().unwrap().contains(part), "{}", findings[at]);
    }
    let text = dir.run(&["doctor", "fleet", "--snapshot", "fleet", "--config", "durward.yaml"]).out;
    assert!(text.starts_with("Durward can check 2 of 4 clusters\n\n- m2: "), "{text}");
    assert!(text.contains("\n  effect ") && text.contains("\n  fix    "), "{text}");
}

#[test]
fn reports_an_acknowledged_context_that_is_not_in_the_fleet() {
    let dir = fleet();
    dir.configure(
        "  deletion: {fleet: {contexts: [m1]}, unreachableClusters: [{cluster: m7, until: 2026-12-01, reason: x}]}\n",
    );
    let run = dir.run(&["doctor", "fleet", "--snapshot", "fleet", "--config", "durward.yaml"]);
    assert!(run.out.contains("acknowledged from the start"), "{}", run.out);
}

/// A directory whose configuration names an unreachable control plane.
fn dead() -> TestDir {
    let dir = fleet();
    dir.write(
        "karmada.config",
        "apiVersion: v1\nkind: Config\ncurrent-context: a\nclusters: [{name: c, cluster: {server: 'http://127.0.0.1:1'}}]\ncontexts: [{name: a, context: {cluster: c, user: ''}}]\n",
    );
    dir.configure("  deletion: {fleet: {karmada: {kubeconfig: karmada.config}}}\n");
    dir
}

#[test]
fn reports_an_unreachable_control_plane_once_with_its_address() {
    let run = dead().run(&["doctor", "fleet", "--config", "durward.yaml"]);
    assert_eq!(run.code, 1);
    let expected = "could not read the list of member clusters\n\n- the control plane: no connection to the API server at http://127.0.0.1:1: ";
    assert!(run.out.starts_with(expected), "{}", run.out);
    assert!(
        run.out.ends_with("\n  fix    kubectl --kubeconfig karmada.config get --raw /version\n"),
        "{}",
        run.out
    );
    assert_eq!(run.out.matches("\n- ").count(), 1, "{}", run.out);
}

#[test]
fn suggests_no_names_if_the_list_is_unreachable() {
    let run = dead().run(&["impact", "ns", "--all", "--config", "durward.yaml"]);
    assert_eq!((run.code, run.out.as_str()), (3, ""));
    assert!(
        run.err.contains("namespaces of the control plane cannot be listed: no connection"),
        "{}",
        run.err
    );
    assert!(run.err.contains("check the API server: kubectl --kubeconfig karmada.config get"), "{}", run.err);
    assert!(!run.err.contains("name the objects"), "{}", run.err);
}

#[test]
fn reports_an_unreadable_cluster_list_first() {
    let dir = fleet();
    fs::remove_file(dir.path().join("fleet/here/clusters.v1alpha1.cluster.karmada.io.yaml")).unwrap();
    let run = dir.run(&["doctor", "fleet", "--snapshot", "fleet", "--config", "durward.yaml"]);
    assert_eq!(run.code, 1);
    let expected = "could not read the list of member clusters\n\n- the list of the fleet's clusters could not be read: ";
    assert!(run.out.starts_with(expected), "{}", run.out);
    assert!(run.out.contains("(stale-fleet)"), "{}", run.out);
}

#[test]
fn reports_a_fleet_without_clusters() {
    let dir = fleet();
    change(&dir, "here/clusters.v1alpha1.cluster.karmada.io.yaml", |list| {
        list["items"] = json!([]);
    });
    let run = dir.run(&["doctor", "fleet", "--snapshot", "fleet", "--config", "durward.yaml"]);
    assert_eq!(run.code, 1);
    let expected = "Durward can check 1 of 1 cluster\n\n- the fleet has no member clusters (no-clusters)\n";
    assert!(run.out.starts_with(expected), "{}", run.out);
    change(&dir, "here/namespaces.v1.yaml", |list| {
        list["items"][0]["metadata"]["name"] = "karmada-es-m1".into();
    });
    let run = dir.run(&["doctor", "fleet", "--snapshot", "fleet", "--config", "durward.yaml"]);
    let expected = "- the list of Clusters is empty, but namespace karmada-es-m1 exists (stale-fleet)\n";
    assert!(run.out.contains(expected), "{}", run.out);
}

#[test]
fn uses_the_singular_for_one_group_and_one_cluster() {
    let dir = fleet();
    dir.configure("  deletion: {fleet: karmada}\n");
    let run = dir.run(&["doctor", "fleet", "--snapshot", "fleet", "--config", "durward.yaml"]);
    let expected = "- API group example.org has CRDs and is not in guards.deletion.crds.apiGroups";
    assert!(run.out.contains(expected), "{}", run.out);
    dir.configure("  deletion: {}\n");
    let run =
        dir.run(&["snapshot", "--out", "one", "ns/shop", "--snapshot", "fleet", "--config", "durward.yaml"]);
    assert!(run.err.contains("one: 1 cluster; replay with"), "{}", run.err);
}
