//! `manifests`: what `kubectl apply -f -` is given.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::Value;

use crate::harness::{House, durward_in};

fn objects(house: &House, more: &[&str]) -> Vec<Value> {
    let run = house.run(&[&["manifests", "--config", "durward.yaml"], more].concat());
    assert_eq!(run.code, 0, "{}", run.err);
    serde_saphyr::from_multiple(&run.out).unwrap()
}

fn kinds(objects: &[Value]) -> Vec<&str> {
    objects.iter().map(|object| object["kind"].as_str().unwrap()).collect()
}

#[test]
fn registration_names_the_service_the_path_and_the_authority() {
    let house = House::new();
    let all = objects(&house, &[]);
    assert_eq!(
        kinds(&all),
        ["ServiceAccount", "ClusterRole", "ClusterRoleBinding", "MutatingWebhookConfiguration"]
    );
    let registration = objects(&house, &["--only", "registration"]);
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
        assert_eq!(bundle, std::fs::read(house.path().join("ca.crt")).unwrap());
        assert_eq!(webhook["sideEffects"], "None");
        assert_eq!(webhook["reinvocationPolicy"], "IfNeeded");
        assert_eq!(webhook["admissionReviewVersions"], serde_json::json!(["v1"]));
    }
}

#[test]
fn permissions_are_the_guards() {
    let rbac = objects(&House::new(), &["--only", "rbac"]);
    assert_eq!(kinds(&rbac), ["ServiceAccount", "ClusterRole", "ClusterRoleBinding"]);
    assert_eq!(
        rbac[1]["rules"],
        serde_json::json!([{"apiGroups": [""], "resources": ["namespaces"], "verbs": ["get", "list", "watch"]}])
    );
    assert_eq!(rbac[2]["subjects"][0]["namespace"], rbac[0]["metadata"]["namespace"]);
}

#[test]
fn a_url_stands_in_place_of_the_service() {
    let house = House::new();
    let server = "registration: {url: 'https://10.0.0.7:8443/'}";
    house.write(
        "durward.yaml",
        &House::configuration(
            server,
            "  lxcfs: {webhook: {reviewVersions: [v1beta1], failurePolicy: Fail}}\n",
        ),
    );
    let webhook = &objects(&house, &["--only", "registration"])[0]["webhooks"][0];
    assert_eq!(webhook["clientConfig"]["url"], "https://10.0.0.7:8443/lxcfs");
    assert!(webhook["clientConfig"]["service"].is_null());
    assert_eq!(webhook["admissionReviewVersions"], serde_json::json!(["v1beta1"]));
    assert_eq!(webhook["failurePolicy"], "Fail");
    let run = house.run(&["manifests", "--config", "durward.yaml"]);
    assert!(run.err.contains("that calls 10.0.0.7 refuses tls.crt"), "{}", run.err);
}

#[test]
fn the_namespace_that_durward_runs_in_is_left_alone_wherever_the_file_tells_it() {
    let house = House::new();
    let service = "registration: {service: {name: door, namespace: guards}}";
    let url = "registration: {url: 'https://10.0.0.7:8443'}";
    for (server, guards, home) in [
        (service, "  lxcfs: {}\n", "guards"),
        (service, "  lxcfs: {installNamespace: guards}\n", "guards"),
        (url, "  lxcfs: {installNamespace: elsewhere}\n", "elsewhere"),
        (url, "  lxcfs: {}\n", "durward-system"),
    ] {
        house.write("durward.yaml", &House::configuration(server, guards));
        let all = objects(&house, &[]);
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
        // The guard itself decides by the same value: its namespace's labels are not even asked for.
        let pod = "{\"apiVersion\":\"v1\",\"kind\":\"Pod\",\"metadata\":{\"name\":\"a\",\"annotations\":{\"durward.dev/lxcfs\":\"enabled\"}},\"spec\":{\"containers\":[{\"name\":\"a\"}]}}";
        for (namespace, is_changed) in [(home, false), ("shop", true)] {
            let inject =
                ["inject", "--config", "durward.yaml", "--namespace-labels", "", "--namespace", namespace];
            let run = durward_in(house.path(), &inject, pod);
            assert_eq!(
                (run.code, run.out.contains("/proc/meminfo")),
                (0, is_changed),
                "{namespace}: {}",
                run.err
            );
        }
    }
    for given in ["elsewhere", "''"] {
        let guards = format!("  lxcfs: {{installNamespace: {given}}}\n");
        house.write("durward.yaml", &House::configuration(service, &guards));
        let run = house.run(&["config", "check", "durward.yaml"]);
        assert_eq!(run.code, 2);
        let told = "but server.registration.service.namespace is \"guards\", and Durward runs in one namespace\n    \
                    write the same at both, or take installNamespace out: it follows server.registration.service.namespace";
        assert!(
            run.err.contains("durward.yaml:9:29: guards.lxcfs.installNamespace: is ")
                && run.err.contains(told),
            "{}",
            run.err
        );
    }
}

#[test]
fn a_key_never_reaches_a_ca_bundle() {
    let house = House::new();
    let both =
        ["ca.crt", "ca.key"].map(|name| std::fs::read_to_string(house.path().join(name)).unwrap()).concat();
    house.write("ca.crt", &both);
    let run = house.run(&["manifests", "--config", "durward.yaml"]);
    assert_eq!((run.code, run.out.as_str()), (2, ""));
    assert!(run.err.contains("holds a private key: everyone may read a caBundle"), "{}", run.err);
}

#[test]
fn an_authority_that_is_not_there_is_told_and_keys_need_not_be_there() {
    let house = House::new();
    std::fs::remove_file(house.path().join("tls.key")).unwrap();
    std::fs::remove_file(house.path().join("tls.crt")).unwrap();
    assert_eq!(objects(&house, &["--only", "registration"]).len(), 1);
    std::fs::remove_file(house.path().join("ca.crt")).unwrap();
    let run = house.run(&["manifests", "--config", "durward.yaml"]);
    assert_eq!(run.code, 2);
    assert!(run.err.contains("server.tls.files.ca: ca.crt: No such file"), "{}", run.err);
    house.write("durward.yaml", "version: 1\nguards: {lxcfs: {}}\n");
    let run = house.run(&["manifests", "--config", "durward.yaml"]);
    assert_eq!(run.code, 0);
    assert!(run.err.contains("no caBundle is printed"), "{}", run.err);
}
