//! `manifests --image`.

use serde_json::{Value, json};

use crate::harness::TestDir;

const SERVER: &str = "apiVersion: durward.dev/v1alpha1\nkind: Configuration\nserver:\n  tls: {files: {cert: tls.crt, key: tls.key, ca: ca.crt}}\n";
const IMAGE: [&str; 2] = ["--image", "registry.example.com/durward:1"];

/// Returns the printed objects and notes.
fn printed(dir: &TestDir, more: &[&str]) -> (Vec<Value>, String) {
    let run = dir.run(&[&["manifests", "--config", "durward.yaml"], &IMAGE[..], more].concat());
    assert_eq!(run.code, 0, "{}", run.err);
    (serde_saphyr::from_multiple(&run.out).unwrap(), run.err)
}

fn configured(rest: &str) -> TestDir {
    let dir = TestDir::new();
    dir.write("durward.yaml", &format!("{SERVER}{rest}"));
    dir
}

fn kinds(objects: &[Value]) -> Vec<&str> {
    objects.iter().map(|object| object["kind"].as_str().unwrap()).collect()
}

fn one<'o>(objects: &'o [Value], kind: &str) -> &'o Value {
    objects.iter().find(|object| object["kind"] == kind).unwrap_or_else(|| panic!("no {kind}"))
}

fn pod(objects: &[Value]) -> &Value {
    &one(objects, "Deployment")["spec"]["template"]["spec"]
}

fn refused(dir: &TestDir, more: &[&str]) -> String {
    let run = dir.run(&[&["manifests", "--config", "durward.yaml"], more].concat());
    assert_eq!((run.code, run.out.as_str()), (2, ""), "{}", run.err);
    run.err
}

#[test]
fn prints_the_workload_first_and_webhook_configurations_last() {
    let dir = configured("guards: {lxcfs: {}}\n");
    let (all, notes) = printed(&dir, &[]);
    assert_eq!(
        kinds(&all),
        [
            "ServiceAccount",
            "ClusterRole",
            "ClusterRoleBinding",
            "ConfigMap",
            "Service",
            "PodDisruptionBudget",
            "NetworkPolicy",
            "Deployment",
            "MutatingWebhookConfiguration",
        ]
    );
    let create = "kubectl -n durward-system create secret tls durward-tls --cert=tls.crt --key=tls.key";
    assert!(notes.contains(create), "{notes}");
    let (single, _) = printed(&dir, &["--only", "workload"]);
    assert_eq!(kinds(&single)[..2], ["ServiceAccount", "ConfigMap"]);
    assert_eq!(kinds(&single).len(), 6);
    let (with_rbac, _) = printed(&dir, &["--only", "workload,rbac"]);
    assert_eq!(kinds(&with_rbac).iter().filter(|kind| **kind == "ServiceAccount").count(), 1);
}

#[test]
fn mounts_the_configuration_and_its_files_at_their_paths() {
    let text = format!("{SERVER}# a word of mine\nguards:\n  lxcfs: {{}}\n");
    let dir = TestDir::new();
    dir.write("durward.yaml", &text);
    let (all, _) = printed(&dir, &["--tls-secret", "other-tls"]);
    let map = one(&all, "ConfigMap");
    assert_eq!(map["data"], json!({"durward.yaml": text}));
    let pod = pod(&all);
    let container = &pod["containers"][0];
    assert_eq!(container["image"], IMAGE[1]);
    assert_eq!(container["args"], json!(["serve", "--config=/etc/durward/durward.yaml"]));
    assert_eq!(
        container["volumeMounts"],
        json!([{"name": "configuration", "mountPath": "/etc/durward", "readOnly": true}])
    );
    let items = json!([{"key": "tls.crt", "path": "tls.crt"}, {"key": "tls.key", "path": "tls.key"}]);
    assert_eq!(
        pod["volumes"][0]["projected"]["sources"],
        json!([
            {"configMap": {"name": map["metadata"]["name"], "items": [{"key": "durward.yaml", "path": "durward.yaml"}]}},
            {"secret": {"name": "other-tls", "items": items}},
        ])
    );
    assert_eq!(pod["serviceAccountName"], one(&all, "ServiceAccount")["metadata"]["name"]);
}

#[test]
fn sets_the_priority_class() {
    let dir = configured("guards: {lxcfs: {}}\n");
    for (flags, class) in [
        (&[][..], json!("system-cluster-critical")),
        (&["--priority-class", "mine"], json!("mine")),
        (&["--priority-class", ""], Value::Null),
    ] {
        assert_eq!(pod(&printed(&dir, flags).0)["priorityClassName"], class);
    }
    let error = refused(&dir, &[&IMAGE[..], &["--priority-class", "Mine"]].concat());
    assert!(error.contains("\"Mine\" is not the name of a PriorityClass"), "{error}");
}

#[test]
fn passes_the_certificate_by_flags_if_the_file_names_none() {
    let dir = TestDir::new();
    dir.write("durward.yaml", "apiVersion: durward.dev/v1alpha1\nkind: Configuration\nguards: {lxcfs: {}}\n");
    let (all, notes) = printed(&dir, &[]);
    let arguments = &pod(&all)["containers"][0]["args"];
    assert_eq!(arguments[2], "--tls-cert=/etc/durward/tls/tls.crt");
    assert_eq!(arguments[3], "--tls-key=/etc/durward/tls/tls.key");
    let secret = &pod(&all)["volumes"][0]["projected"]["sources"][1]["secret"];
    assert_eq!(secret["items"][1], json!({"key": "tls.key", "path": "tls/tls.key"}));
    assert!(notes.contains("--cert=tls.crt --key=tls.key"), "{notes}");
}

#[test]
fn takes_other_files_from_a_secret_and_prints_its_command() {
    let dir = TestDir::new();
    std::fs::create_dir(dir.path().join("conf")).unwrap();
    dir.write(
        "conf/durward.yaml",
        "apiVersion: durward.dev/v1alpha1\nkind: Configuration\nkubeconfig: ../clusters/far.config\nserver:\n  tls:\n    files: {cert: /var/run/door/a.pem, key: /var/run/door/b.pem}\n    \
         clientAuth: {mode: require, caFile: authorities/callers.pem}\nguards:\n  lxcfs: {}\n  deletion: {fleet: {karmada: {kubeconfig: /etc/karmada/k.config}}}\n",
    );
    let run = dir
        .run(&[&["manifests", "--config", "conf/durward.yaml", "--only", "workload"], &IMAGE[..]].concat());
    assert_eq!(run.code, 0, "{}", run.err);
    let all: Vec<Value> = serde_saphyr::from_multiple(&run.out).unwrap();
    let pod = pod(&all);
    let paths: Vec<_> = pod["containers"][0]["volumeMounts"]
        .as_array()
        .unwrap()
        .iter()
        .map(|mount| &mount["mountPath"])
        .collect();
    assert_eq!(paths, ["/etc/durward", "/var/run/door", "/etc/karmada", "/etc/clusters"]);
    let sources = |index: usize| pod["volumes"][index]["projected"]["sources"].clone();
    assert_eq!(
        sources(0)[1],
        json!({"secret": {"name": "durward-files", "items": [{"key": "authorities-callers.pem", "path": "authorities/callers.pem"}]}})
    );
    assert_eq!(
        sources(1),
        json!([{"secret": {"name": "durward-tls", "items": [{"key": "tls.crt", "path": "a.pem"}, {"key": "tls.key", "path": "b.pem"}]}}])
    );
    assert_eq!(
        sources(2),
        json!([{"secret": {"name": "durward-files", "items": [{"key": "etc-karmada-k.config", "path": "k.config"}]}}])
    );
    assert!(
        run.err.contains("create secret generic durward-files --from-file=etc-karmada-k.config=/etc/karmada/k.config --from-file=authorities-callers.pem=conf/authorities/callers.pem --from-file=etc-clusters-far.config=conf/../clusters/far.config"),
        "{}",
        run.err
    );
    assert!(run.err.contains("config view --raw --flatten"), "{}", run.err);
}

#[test]
fn rejects_files_that_cannot_be_mounted() {
    for (files, expected) in [
        (
            "{cert: /tls.crt, key: /etc/tls/tls.key}",
            "server.tls.files.cert: nothing can be mounted at /tls.crt",
        ),
        ("{cert: durward.yaml, key: tls.key}", "the configuration is at that path"),
        (
            "{cert: both.pem, key: both.pem}",
            "server.tls.files.cert and server.tls.files.key have the same path, /etc/durward/both.pem",
        ),
        ("{cert: ../../usr/tls.crt, key: tls.key}", "its directory would hide files of the image"),
    ] {
        let dir = TestDir::new();
        dir.write(
            "durward.yaml",
            &format!("apiVersion: durward.dev/v1alpha1\nkind: Configuration\nserver: {{tls: {{files: {files}}}}}\nguards: {{lxcfs: {{}}}}\n"),
        );
        let said = refused(&dir, &[&["--only", "workload"], &IMAGE[..]].concat());
        assert!(said.contains(expected), "{files}: {said}");
    }
}

#[test]
fn takes_ports_times_and_names_from_the_file() {
    let dir = TestDir::new();
    dir.write(
        "durward.yaml",
        "apiVersion: durward.dev/v1alpha1\nkind: Configuration\nserver:\n  bindAddress: '[::]:9443'\n  metricsBindAddress: 0.0.0.0:9090\n  shutdown: {delay: 1500ms, timeout: 20s}\n  \
         limits: {maxTotalBytes: 256Mi}\n  tls: {files: {cert: tls.crt, key: tls.key}}\n  \
         webhookConfiguration: {service: {name: door, port: 8443}}\nnamespace: guards\nguards: {lxcfs: {}}\n",
    );
    let (all, _) = printed(&dir, &["--replicas", "3"]);
    assert!(all.iter().all(|object| {
        let is_clusters = ["ClusterRole", "ClusterRoleBinding", "MutatingWebhookConfiguration"]
            .contains(&object["kind"].as_str().unwrap());
        is_clusters || object["metadata"]["namespace"] == "guards"
    }));
    let service = one(&all, "Service");
    assert_eq!(service["metadata"]["name"], "door");
    assert_eq!(service["spec"]["ports"][0]["port"], 8443);
    let webhook = &one(&all, "MutatingWebhookConfiguration")["webhooks"][0]["clientConfig"]["service"];
    assert_eq!(
        (&webhook["name"], &webhook["port"]),
        (&service["metadata"]["name"], &service["spec"]["ports"][0]["port"])
    );
    let deployment = one(&all, "Deployment");
    assert_eq!(deployment["spec"]["replicas"], 3);
    let pod = pod(&all);
    assert_eq!(pod["terminationGracePeriodSeconds"], 27);
    let container = &pod["containers"][0];
    let ports: Vec<_> = container["ports"]
        .as_array()
        .unwrap()
        .iter()
        .map(|port| (port["name"].as_str().unwrap(), port["containerPort"].as_u64().unwrap()))
        .collect();
    assert_eq!(ports, [("webhook", 9443), ("metrics", 9090)]);
    assert_eq!(
        one(&all, "NetworkPolicy")["spec"]["ingress"][0]["ports"],
        json!([{"port": 9443, "protocol": "TCP"}, {"port": 9090, "protocol": "TCP"}])
    );
    assert_eq!(container["resources"]["limits"]["memory"], "640Mi");
    for probe in ["readinessProbe", "livenessProbe"] {
        assert_eq!(container[probe]["httpGet"]["port"], "metrics");
    }
}

#[test]
fn mounts_every_file_of_an_etcd_cluster() {
    let files = "client: {tls: {files: {ca: etcd/ca.crt, cert: etcd/tls.crt, key: etcd/tls.key}}, auth: {files: {usernameFile: etcd/user, passwordFile: /secrets/etcd/password}}}";
    let dir = configured(&format!(
        "guards: {{etcd: {{clusters: [{{namespace: db, selector: app=etcd, {files}}}]}}}}\n"
    ));
    let (all, notes) = printed(&dir, &[]);
    let pod = pod(&all);
    let items: Vec<(String, String)> = pod["volumes"]
        .as_array()
        .unwrap()
        .iter()
        .flat_map(|volume| volume["projected"]["sources"].as_array().unwrap())
        .filter(|source| source["secret"]["name"] == "durward-files")
        .flat_map(|source| source["secret"]["items"].as_array().unwrap())
        .map(|item| (item["key"].as_str().unwrap().to_owned(), item["path"].as_str().unwrap().to_owned()))
        .collect();
    let expected = [
        ("etcd-ca.crt", "etcd/ca.crt"),
        ("etcd-tls.crt", "etcd/tls.crt"),
        ("etcd-tls.key", "etcd/tls.key"),
        ("etcd-user", "etcd/user"),
        ("secrets-etcd-password", "password"),
    ];
    assert_eq!(items, expected.map(|(key, path)| (key.to_owned(), path.to_owned())));
    assert!(notes.contains("--from-file=etcd-ca.crt=etcd/ca.crt"), "{notes}");
}

#[test]
fn runs_one_replica_if_reservations_are_local() {
    let dir = configured(
        "guards: {etcd: {coordination: inMemory, clusters: [{namespace: db, selector: app=etcd}]}}\n",
    );
    let refused = dir.run(&["manifests", "--config", "durward.yaml", "--image", "x:1"]);
    assert_eq!((refused.code, refused.out.as_str()), (2, ""));
    assert!(
        refused.err.contains("--replicas 2: this configuration allows only one replica"),
        "{}",
        refused.err
    );
    assert!(refused.err.contains("guards.etcd.coordination is inMemory"), "{}", refused.err);
    assert!(refused.err.contains("use --replicas 1"), "{}", refused.err);
    let (all, _) = printed(&dir, &["--replicas", "1"]);
    let deployment = one(&all, "Deployment");
    assert_eq!(deployment["spec"]["replicas"], 1);
    assert_eq!(deployment["spec"]["strategy"], json!({"type": "Recreate"}));
}

#[test]
fn selects_no_pods_of_the_node_agents() {
    let dir = configured("guards: {lxcfs: {}}\n");
    let (all, _) = printed(&dir, &[]);
    let labels = &one(&all, "Deployment")["spec"]["template"]["metadata"]["labels"];
    for selector in [
        &one(&all, "Deployment")["spec"]["selector"]["matchLabels"],
        &one(&all, "Service")["spec"]["selector"],
        &one(&all, "PodDisruptionBudget")["spec"]["selector"]["matchLabels"],
        &one(&all, "NetworkPolicy")["spec"]["podSelector"]["matchLabels"],
        &pod(&all)["topologySpreadConstraints"][0]["labelSelector"]["matchLabels"],
    ] {
        assert_eq!(selector, labels);
    }
    let directory = crate::harness::root().join("deploy/lxcfs");
    let mut seen = 0;
    for entry in std::fs::read_dir(directory).unwrap() {
        let path = entry.unwrap().path();
        if path.extension().is_none_or(|extension| extension != "yaml") {
            continue;
        }
        let objects: Vec<Value> =
            serde_saphyr::from_multiple(&std::fs::read_to_string(path).unwrap()).unwrap();
        for object in objects.iter().filter(|object| object["kind"] == "DaemonSet") {
            let theirs = &object["spec"]["template"]["metadata"]["labels"];
            assert!(labels.as_object().unwrap().iter().any(|(key, value)| theirs[key] != *value), "{theirs}");
            assert_eq!(theirs["durward.dev/lxcfs"], "disabled");
            seen += 1;
        }
    }
    assert_eq!(seen, 4);
}

#[test]
fn passes_pod_security_restricted() {
    let (all, _) = printed(&configured("guards: {lxcfs: {}}\n"), &[]);
    let pod = pod(&all);
    assert_eq!(pod["securityContext"]["runAsNonRoot"], true);
    assert_eq!(pod["securityContext"]["seccompProfile"]["type"], "RuntimeDefault");
    for field in ["hostNetwork", "hostPID", "hostIPC", "initContainers"] {
        assert!(pod[field].is_null(), "{field}");
    }
    let container = &pod["containers"][0]["securityContext"];
    assert_eq!(
        *container,
        json!({"allowPrivilegeEscalation": false, "capabilities": {"drop": ["ALL"]}, "readOnlyRootFilesystem": true})
    );
    assert!(pod["volumes"].as_array().unwrap().iter().all(|volume| volume["projected"].is_object()));
}

#[test]
fn reports_all_settings_that_do_not_work_in_a_pod() {
    let dir = TestDir::new();
    dir.write(
        "durward.yaml",
        "apiVersion: durward.dev/v1alpha1\nkind: Configuration\nserver: {bindAddress: '127.0.0.1:8443', metricsBindAddress: '0.0.0.0:80'}\nguards: {lxcfs: {}}\n",
    );
    let said = refused(&dir, &["--only", "workload", "--image", "", "--tls-secret", "A B"]);
    for expected in [
        "server.bindAddress: 127.0.0.1:8443 does not work in a pod: the API server and the kubelet cannot reach this address\n    use 0.0.0.0:8443",
        "server.metricsBindAddress: 0.0.0.0:80 does not work in a pod: only root can bind ports below 1024\n    use 0.0.0.0:8080",
        "--only workload needs --image",
        "--tls-secret \"A B\" is not the name of a Secret",
    ] {
        assert!(said.contains(expected), "{expected}: {said}");
    }
    let dir = configured("guards: {lxcfs: {}}\n");
    assert!(refused(&dir, &["--only", "workload"]).contains("--image"));
    for flags in [["--replicas", "3"], ["--tls-secret", "x"]] {
        assert!(refused(&dir, &flags).contains("--image"), "{flags:?}");
    }
}

#[test]
fn never_prints_the_workload_for_karmada() {
    let karmada = "  deletion: {fleet: karmada}\n";
    let dir = TestDir::new();
    let url = "  webhookConfiguration: {url: 'https://door.karmada-system.svc:8443'}\n";
    dir.write("durward.yaml", &format!("{SERVER}{url}kubeconfig: karmada.config\nguards:\n{karmada}"));
    let said = refused(&dir, &IMAGE);
    assert!(
        said.contains("cannot run on the Karmada API server")
            && said.contains("--only workload --image IMAGE"),
        "{said}"
    );
    refused(&dir, &[&["--target", "karmada", "--only", "workload"], &IMAGE[..]].concat());
    let (single, notes) = printed(&dir, &["--only", "workload"]);
    let service = one(&single, "Service");
    assert_eq!(
        (
            &service["metadata"]["name"],
            &service["metadata"]["namespace"],
            &service["spec"]["ports"][0]["port"]
        ),
        (&json!("door"), &json!("karmada-system"), &json!(8443))
    );
    assert!(notes.contains("--from-file=karmada.config=karmada.config"), "{notes}");
    dir.write("durward.yaml", &format!("{SERVER}{url}guards:\n  lxcfs: {{}}\n"));
    let said = refused(&dir, &[&["--only", "workload"], &IMAGE[..]].concat());
    assert!(said.contains("add: namespace: karmada-system"), "{said}");
}

#[test]
fn explains_a_url_that_is_not_a_service() {
    let dir = configured("  webhookConfiguration: {url: 'https://10.0.0.7:6443/x'}\nguards: {lxcfs: {}}\n");
    let (all, notes) = printed(&dir, &["--only", "workload"]);
    assert_eq!(one(&all, "Service")["spec"]["ports"][0]["port"], 6443);
    assert!(
        notes.contains(
            "call https://10.0.0.7:6443/x, which must lead to the Service durward in durward-system"
        ),
        "{notes}"
    );
}
