//! `manifests`.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::Value;

use crate::harness::{TestDir, durward_in};

fn objects(dir: &TestDir, more: &[&str]) -> Vec<Value> {
    let run = dir.run(&[&["manifests", "--config", "durward.yaml"], more].concat());
    assert_eq!(run.code, 0, "{}", run.err);
    serde_saphyr::from_multiple(&run.out).unwrap()
}

fn kinds(objects: &[Value]) -> Vec<&str> {
    objects.iter().map(|object| object["kind"].as_str().unwrap()).collect()
}

#[test]
fn webhook_configurations_name_service_path_and_ca() {
    let dir = TestDir::new();
    let all = objects(&dir, &[]);
    assert_eq!(
        kinds(&all),
        ["ServiceAccount", "ClusterRole", "ClusterRoleBinding", "MutatingWebhookConfiguration"]
    );
    let registration = objects(&dir, &["--only", "webhooks"]);
    assert_eq!(kinds(&registration), ["MutatingWebhookConfiguration"]);
    assert_eq!(registration[0]["metadata"]["name"], "durward");
    for webhook in registration[0]["webhooks"].as_array().unwrap() {
        assert!(webhook["name"].as_str().unwrap().ends_with(".durward.dev"), "{webhook}");
        let client = &webhook["clientConfig"];
        assert_eq!(
            client["service"],
            serde_json::json!({"name": "durward", "namespace": "durward-system", "path": "/lxcfs", "port": 443})
        );
        let bundle = STANDARD.decode(client["caBundle"].as_str().unwrap()).unwrap();
        assert_eq!(bundle, std::fs::read(dir.path().join("ca.crt")).unwrap());
        assert_eq!(webhook["sideEffects"], "None");
        assert_eq!(webhook["reinvocationPolicy"], "IfNeeded");
        assert_eq!(webhook["admissionReviewVersions"], serde_json::json!(["v1"]));
    }
}

#[test]
fn prints_the_permissions_of_the_guards() {
    let rbac = objects(&TestDir::new(), &["--only", "rbac"]);
    assert_eq!(kinds(&rbac), ["ServiceAccount", "ClusterRole", "ClusterRoleBinding"]);
    assert_eq!(
        rbac[1]["rules"],
        serde_json::json!([{"apiGroups": [""], "resources": ["namespaces"], "verbs": ["get", "list", "watch"]}])
    );
    assert_eq!(rbac[2]["subjects"][0]["namespace"], rbac[0]["metadata"]["namespace"]);
}

#[test]
fn without_a_namespace_durward_is_a_user() {
    let dir = TestDir::new();
    dir.write(
        "durward.yaml",
        "apiVersion: durward.dev/v1alpha1\nkind: Configuration\nnamespace: \"\"\n\
         server: {tls: {files: {cert: tls.crt, key: tls.key, ca: ca.crt}}, webhookConfiguration: {url: 'https://127.0.0.1:8443'}}\n\
         guards: {lxcfs: {}}\n",
    );
    let run = dir.run(&["manifests", "--config", "durward.yaml", "--only", "rbac"]);
    assert!(run.err.contains("must have a client certificate with CN=durward and no O"), "{}", run.err);
    let rbac = objects(&dir, &["--only", "rbac"]);
    assert_eq!(kinds(&rbac), ["ClusterRole", "ClusterRoleBinding"]);
    let user =
        serde_json::json!([{"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": "durward"}]);
    assert_eq!(rbac[1]["subjects"], user);
}

#[test]
fn prints_a_url_instead_of_a_service() {
    let dir = TestDir::new();
    let server = "webhookConfiguration: {url: 'https://10.0.0.7:8443/'}";
    dir.write("durward.yaml", &TestDir::configuration(server, "  lxcfs: {webhook: {failurePolicy: Fail}}\n"));
    let webhook = &objects(&dir, &["--only", "webhooks"])[0]["webhooks"][0];
    assert_eq!(webhook["clientConfig"]["url"], "https://10.0.0.7:8443/lxcfs");
    assert!(webhook["clientConfig"]["service"].is_null());
    assert_eq!(webhook["failurePolicy"], "Fail");
    let run = dir.run(&["manifests", "--config", "durward.yaml"]);
    assert!(run.err.contains("that calls 10.0.0.7 rejects tls.crt"), "{}", run.err);
}

#[test]
fn webhook_configurations_have_the_label_and_no_entries_that_durward_writes() {
    let dir = TestDir::new();
    let expected = ["MutatingWebhookConfiguration"];
    for manage in ["none", "caBundle"] {
        let server = format!("webhookConfiguration: {{manage: {manage}}}");
        dir.write("durward.yaml", &TestDir::configuration(&server, "  lxcfs: {}\n"));
        let printed = objects(&dir, &["--only", "webhooks"]);
        assert_eq!(kinds(&printed), expected, "{manage}");
        assert_eq!(printed[0]["metadata"]["labels"]["durward.dev/webhooks"], "managed");
        let bundle = &printed[0]["webhooks"][0]["clientConfig"]["caBundle"];
        assert_eq!(bundle.is_null(), manage == "caBundle", "{bundle}");
    }
    dir.write(
        "durward.yaml",
        &TestDir::configuration("webhookConfiguration: {manage: all}", "  lxcfs: {}\n"),
    );
    let printed = objects(&dir, &["--only", "webhooks"]);
    assert_eq!(kinds(&printed), expected);
    let both = TestDir::configuration("webhookConfiguration: {manage: all}", "  lxcfs: {}\n  deletion: {}\n");
    dir.write("durward.yaml", &both);
    let printed = objects(&dir, &["--only", "webhooks"]);
    let both = ["MutatingWebhookConfiguration", "ValidatingWebhookConfiguration"];
    assert_eq!(kinds(&printed), [&both[..], &["ValidatingAdmissionPolicyBinding"]].concat());
    for object in &printed[..2] {
        assert_eq!(object["metadata"]["labels"]["durward.dev/webhooks"], "managed");
        assert!(object["webhooks"].is_null());
    }
}

#[test]
fn permissions_for_webhook_configurations_name_their_objects() {
    let dir = TestDir::new();
    let printed = |manage: &str, guards: &str, more: &[&str]| {
        let server = format!("webhookConfiguration: {{manage: {manage}}}");
        dir.write("durward.yaml", &TestDir::configuration(&server, guards));
        objects(&dir, &[&["--only", "rbac"], more].concat())
    };
    let configuration = |kind: &str, verbs: &[&str]| {
        serde_json::json!({
            "apiGroups": ["admissionregistration.k8s.io"],
            "resources": [format!("{kind}webhookconfigurations")],
            "resourceNames": ["durward"],
            "verbs": verbs,
        })
    };
    let all_verbs = ["get", "patch", "delete"];
    let namespace = serde_json::json!(
        {"apiGroups": [""], "resources": ["namespaces"], "resourceNames": ["durward-system"], "verbs": ["get"]}
    );
    let all = printed("all", "  lxcfs: {}\n", &[]);
    assert_eq!(
        names(&all),
        [
            "ServiceAccount durward",
            "ClusterRole durward",
            "ClusterRoleBinding durward",
            "Role durward",
            "RoleBinding durward"
        ]
    );
    assert_eq!(all[1]["rules"][1], configuration("mutating", &all_verbs));
    assert_eq!(all[3]["metadata"]["namespace"], "durward-system");
    assert_eq!(all[3]["rules"], serde_json::json!([namespace]));
    let ca_bundle = printed("caBundle", "  lxcfs: {}\n", &[]);
    let written = configuration("mutating", &["get", "patch"]);
    assert_eq!((ca_bundle.len(), &ca_bundle[1]["rules"][1]), (3, &written));
    assert_eq!(printed("none", "  lxcfs: {}\n", &[])[1]["rules"].as_array().unwrap().len(), 1);

    // Durward's own cluster has no webhook configuration.
    let karmada = printed("all", KARMADA, &["--target", "karmada"]);
    assert_eq!(names(&karmada)[..2], ["ClusterRole durward", "ClusterRoleBinding durward"]);
    let rules = karmada[0]["rules"].as_array().unwrap();
    assert!(
        rules.contains(&configuration("validating", &all_verbs)) && rules.contains(&namespace),
        "{rules:?}"
    );
    // An API server accepts policies only from an account that can read all objects of their kind of params.
    let on = |resource: &str, names: &[&str], verbs: &[&str]| {
        let mut rule = serde_json::json!(
            {"apiGroups": ["admissionregistration.k8s.io"], "resources": [resource], "verbs": verbs}
        );
        if !names.is_empty() {
            rule["resourceNames"] = serde_json::json!(names);
        }
        rule
    };
    let named = ["durward-deletion-labels"];
    for rule in [
        on("validatingwebhookconfigurations", &[], &["get"]),
        on("validatingadmissionpolicies", &named, &["get", "create", "patch", "delete"]),
        on("validatingadmissionpolicybindings", &named, &["get", "delete"]),
    ] {
        assert!(rules.contains(&rule), "{rule} is not in {rules:?}");
    }
    let home = printed("all", KARMADA, &["--target", "cluster"]);
    assert_eq!(names(&home), ["ServiceAccount durward", "Role durward", "RoleBinding durward"]);
}

#[test]
fn rejects_modes_that_cannot_work() {
    let dir = TestDir::new();
    dir.write(
        "durward.yaml",
        "apiVersion: durward.dev/v1alpha1\nkind: Configuration\nnamespace: \"\"\nserver: {webhookConfiguration: {manage: all}}\nguards: {lxcfs: {}}\n",
    );
    let run = dir.run(&["manifests", "--config", "durward.yaml"]);
    assert_eq!(run.code, 2);
    assert!(run.err.contains("all needs a namespace, which owns the webhook configurations"), "{}", run.err);
    dir.write(
        "durward.yaml",
        "apiVersion: durward.dev/v1alpha1\nkind: Configuration\nserver: {webhookConfiguration: {manage: caBundle}}\nguards: {lxcfs: {}}\n",
    );
    let run = dir.run(&["manifests", "--config", "durward.yaml"]);
    assert!(run.err.contains("no CA is configured, so there is no caBundle to write"), "{}", run.err);
}

#[test]
fn excludes_the_namespace_of_the_file() {
    let dir = TestDir::new();
    let service = "webhookConfiguration: {service: {name: other}}";
    let url = "webhookConfiguration: {url: 'https://10.0.0.7:8443'}";
    for (server, namespace, home) in [
        (service, "namespace: guards\n", "guards"),
        (url, "namespace: elsewhere\n", "elsewhere"),
        (url, "", "durward-system"),
    ] {
        let text = TestDir::configuration(server, "  lxcfs: {}\n");
        dir.write("durward.yaml", &format!("{text}{namespace}"));
        let all = objects(&dir, &[]);
        let account = &all[0]["metadata"]["namespace"];
        assert_eq!((account, &all[2]["subjects"][0]["namespace"]), (&home.into(), &home.into()));
        let webhooks = all[3]["webhooks"].as_array().unwrap();
        assert_eq!(webhooks.len(), 2);
        for webhook in webhooks {
            assert_eq!(
                webhook["matchConditions"][0]["expression"],
                format!("!(request.namespace in [\"kube-system\", \"{home}\"])")
            );
        }
        // The guard uses the same value, so it does not read the labels of its namespace.
        let pod = "{\"apiVersion\":\"v1\",\"kind\":\"Pod\",\"metadata\":{\"name\":\"a\",\"annotations\":{\"durward.dev/lxcfs\":\"enabled\"}},\"spec\":{\"containers\":[{\"name\":\"a\"}]}}";
        for (namespace, is_changed) in [(home, false), ("shop", true)] {
            let inject =
                ["inject", "--config", "durward.yaml", "--namespace-labels", "", "--namespace", namespace];
            let run = durward_in(dir.path(), &inject, pod);
            assert_eq!(
                (run.code, run.out.contains("/proc/meminfo")),
                (0, is_changed),
                "{namespace}: {}",
                run.err
            );
        }
    }
}

#[test]
fn rejects_a_private_key_in_a_ca_bundle() {
    let dir = TestDir::new();
    let both =
        ["ca.crt", "ca.key"].map(|name| std::fs::read_to_string(dir.path().join(name)).unwrap()).concat();
    dir.write("ca.crt", &both);
    let run = dir.run(&["manifests", "--config", "durward.yaml"]);
    assert_eq!((run.code, run.out.as_str()), (2, ""));
    assert!(run.err.contains("contains a private key: a caBundle is public"), "{}", run.err);
}

#[test]
fn reports_a_missing_ca_and_needs_no_key() {
    let dir = TestDir::new();
    std::fs::remove_file(dir.path().join("tls.key")).unwrap();
    std::fs::remove_file(dir.path().join("tls.crt")).unwrap();
    assert_eq!(objects(&dir, &["--only", "webhooks"]).len(), 1);
    std::fs::remove_file(dir.path().join("ca.crt")).unwrap();
    let run = dir.run(&["manifests", "--config", "durward.yaml"]);
    assert_eq!(run.code, 2);
    assert!(run.err.contains("server.tls.files.ca: ca.crt: No such file"), "{}", run.err);
    dir.write("durward.yaml", "apiVersion: durward.dev/v1alpha1\nkind: Configuration\nguards: {lxcfs: {}}\n");
    let run = dir.run(&["manifests", "--config", "durward.yaml"]);
    assert_eq!(run.code, 0);
    assert!(run.err.contains("no caBundle is printed"), "{}", run.err);
}

const KARMADA: &str = "  deletion: {fleet: karmada, crds: {apiGroups: [example.org]}}\n";
const BOTH: &str =
    "  lxcfs: {}\n  deletion: {fleet: {karmada: {kubeconfig: karmada.config, user: keeper}}}\n";

fn names(objects: &[Value]) -> Vec<String> {
    let name = |object: &Value| {
        format!("{} {}", object["kind"].as_str().unwrap(), object["metadata"]["name"].as_str().unwrap())
    };
    objects.iter().map(name).collect()
}

#[test]
fn prints_user_member_roles_and_url_for_karmada() {
    let dir = TestDir::new();
    dir.configure(KARMADA);
    let run = dir.run(&["manifests", "--config", "durward.yaml"]);
    assert!(run.out.starts_with("# For the Karmada API server: "), "{}", run.out);
    assert!(run.err.contains("must have a client certificate with CN=durward and no O"), "{}", run.err);
    let all = objects(&dir, &[]);
    assert_eq!(
        names(&all),
        [
            "ClusterRole durward",
            "ClusterRoleBinding durward",
            "Role durward",
            "RoleBinding durward",
            "ClusterRole durward-member",
            "ClusterRoleBinding durward-member",
            "ClusterPropagationPolicy durward-member",
            "ValidatingWebhookConfiguration durward",
        ]
    );
    let user =
        serde_json::json!([{"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": "durward"}]);
    for binding in [1, 3, 5] {
        assert_eq!(all[binding]["subjects"], user);
    }
    assert_eq!(all[5]["roleRef"]["name"], "durward-member");
    assert_eq!(all[2]["metadata"]["namespace"], "default");
    assert_eq!(all[2]["rules"], events());
    // A wider selector would propagate roles of others to every member.
    assert_eq!(
        all[6]["spec"],
        serde_json::json!({
            "resourceSelectors": [
                {"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole", "name": "durward-member"},
                {"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRoleBinding", "name": "durward-member"},
            ],
            "conflictResolution": "Overwrite",
            "placement": {"clusterTolerations": [{"operator": "Exists"}]},
        })
    );
    // A Service of Karmada's host cluster, which its API server knows only by DNS name.
    let client = &all[7]["webhooks"][0]["clientConfig"];
    assert_eq!(client["url"], "https://durward.durward-system.svc:443/deletion");
    assert!(client["service"].is_null());
    assert_eq!(objects(&dir, &["--target", "karmada"]), all);
    assert_eq!(objects(&dir, &["--only", "members"]), all[4..7]);
    assert_eq!(objects(&dir, &["--only", "rbac,members"]), all[..7]);
    assert_eq!(objects(&dir, &["--only", "webhooks"]), all[7..]);
    let text = std::fs::read_to_string(dir.path().join("durward.yaml")).unwrap();
    dir.write("durward.yaml", &format!("{text}events: false\n"));
    assert_eq!(
        names(&objects(&dir, &["--only", "rbac"])),
        ["ClusterRole durward", "ClusterRoleBinding durward"]
    );
}

/// The rules of a role to create Events.
fn events() -> Value {
    serde_json::json!([{"apiGroups": ["events.k8s.io"], "resources": ["events"], "verbs": ["create"]}])
}

#[test]
fn roles_without_a_wildcard_only_read_or_create_events_and_never_read_secrets() {
    let dir = TestDir::new();
    for guards in [
        KARMADA,
        "  deletion: {fleet: karmada, namespaces: {extraResources: [{group: example.org, version: v1, resource: caches}]}}\n",
        "  deletion: {fleet: {contexts: [a]}}\n",
        "  deletion: {}\n",
    ] {
        dir.configure(guards);
        let mut all = objects(&dir, &[]);
        if guards.contains("contexts") {
            all.extend(objects(&dir, &["--only", "members"]));
        }
        let mut roles = 0;
        for role in all.iter().filter(|object| object["kind"].as_str().unwrap().ends_with("Role")) {
            roles += 1;
            let in_namespace = role["kind"] == "Role";
            let all = role["rules"].as_array().unwrap().iter();
            for rule in all.filter(|rule| !in_namespace || **rule != events()[0]) {
                let texts = |key: &str| -> Vec<&str> {
                    rule[key].as_array().unwrap().iter().map(|text| text.as_str().unwrap()).collect()
                };
                let (groups, resources, verbs) = (texts("apiGroups"), texts("resources"), texts("verbs"));
                assert!(!groups.contains(&"*"), "{rule}");
                let core = groups.contains(&"");
                assert!(!core || resources.iter().all(|r| *r != "*" && *r != "secrets"), "{rule}");
                let clusters = resources == ["clusters"];
                let allowed = |verb: &&str| matches!(*verb, "get" | "list") || (clusters && *verb == "watch");
                assert!(verbs.iter().all(allowed), "{rule}");
            }
        }
        assert!(roles > 0, "{guards}");
    }
    dir.configure("  deletion: {crds: {apiGroups: ['*']}}\n");
    assert!(objects(&dir, &["--only", "rbac"])[1].to_string().contains(r#""apiGroups":["*"]"#));
}

#[test]
fn prints_for_one_api_server_at_a_time() {
    let dir = TestDir::new();
    dir.configure(BOTH);
    for part in [&[][..], &["--only", "rbac"], &["--only", "webhooks"], &["--only", "rbac,webhooks"]] {
        let run = dir.run(&[&["manifests", "--config", "durward.yaml"], part].concat());
        assert_eq!((run.code, run.out.as_str()), (2, ""), "{part:?}");
        assert!(
            run.err
                .contains("called by two API servers: the cluster of Durward (lxcfs) and Karmada (deletion)")
                && run.err.contains("--target cluster | kubectl apply -f -"),
            "{}",
            run.err
        );
    }
    let here = objects(&dir, &["--target", "cluster"]);
    assert_eq!(
        kinds(&here),
        ["ServiceAccount", "ClusterRole", "ClusterRoleBinding", "MutatingWebhookConfiguration"]
    );
    assert!(!serde_json::to_string(&here).unwrap().contains("karmada"));
    let there = objects(&dir, &["--target", "karmada"]);
    assert_eq!(there.len(), 8);
    assert_eq!(there[1]["subjects"][0]["name"], "keeper");
    assert_eq!(objects(&dir, &["--target", "karmada", "--only", "webhooks"]), there[7..]);
    assert_eq!(objects(&dir, &["--only", "members"]), there[4..7]);

    dir.configure("  lxcfs: {}\n");
    let run = dir.run(&["manifests", "--config", "durward.yaml", "--target", "karmada"]);
    assert_eq!((run.code, run.out.as_str()), (2, ""));
    assert!(run.err.contains("there is nothing to print for these flags"), "{}", run.err);
}

#[test]
fn reads_kubeconfig_secrets_in_one_namespace_only() {
    let dir = TestDir::new();
    dir.configure("  deletion: {fleet: {secrets: {}}}\n");
    let all = objects(&dir, &[]);
    let role = all.iter().find(|object| object["kind"] == "Role").unwrap();
    assert_eq!(role["metadata"]["namespace"], "durward-system");
    assert_eq!(
        role["rules"],
        serde_json::json!([{"apiGroups": [""], "resources": ["secrets"], "verbs": ["get", "list", "watch"]}])
    );
    let everywhere = all.iter().find(|object| object["kind"] == "ClusterRole").unwrap();
    assert!(!everywhere.to_string().contains("secrets"), "{everywhere}");
    let members = objects(&dir, &["--only", "members"]);
    assert_eq!(
        names(&members),
        ["ServiceAccount durward", "ClusterRole durward-member", "ClusterRoleBinding durward-member"]
    );
    assert_eq!(members[2]["subjects"][0]["kind"], "ServiceAccount");
}

#[test]
fn prints_no_webhook_configuration_without_the_ca_of_self_managed_certificates() {
    let dir = TestDir::new();
    let text = "apiVersion: durward.dev/v1alpha1\nkind: Configuration\nserver: {tls: {selfManaged: {kubeconfig: gone}}}\nguards: {lxcfs: {}}\n";
    dir.write("d.yaml", text);
    let run = dir.run(&["manifests", "--config", "d.yaml", "--only", "webhooks"]);
    assert_ne!(run.code, 0);
    let cause = "the cluster of the Secret of server.tls.selfManaged: kubeconfig ";
    assert!(run.out.is_empty() && run.err.contains(cause) && run.err.contains("gone"), "{}", run.err);
}
