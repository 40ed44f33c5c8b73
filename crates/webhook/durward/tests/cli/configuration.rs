//! The configuration file: all problems at once, and the commands `config check`, `config defaults` and `config schema`.

use serde_json::Value;

use crate::harness::{TestDir, durward_in};

#[test]
fn reports_all_problems_with_line_key_and_allowed_values() {
    let dir = TestDir::new();
    dir.write(
        "bad.yaml",
        "apiVersion: v2\nserver:\n  bindAdress: 0.0.0.0:1\n  bindAddress: 8443\n  debugBindAddress: 10.0.0.1:8081\n  tls:\n    self: {}\n    files: {cert: nothing.crt, key: .}\n  \
         webhookConfiguration:\n    manage: everything\n    url: http://x\n    service: {name: Durward_1}\n  limits: {maxRequestBytes: 8Mi, maxTotalBytes: 1Mi}\nguards:\n  lxcf: {}\n  lxcfs:\n",
    );
    let run = dir.run(&["config", "check", "bad.yaml"]);
    assert_eq!((run.code, run.out.as_str()), (2, ""));
    for line in [
        "bad.yaml:1:13: apiVersion: invalid value \"v2\"",
        "bad.yaml:3:3: unknown field \"server.bindAdress\": did you mean bindAddress?",
        "bad.yaml:4:16: server.bindAddress: invalid value \"8443\": invalid socket address",
        "bad.yaml:5:3: field \"server.debugBindAddress\" was removed\n    use log, a key of the whole file, which is reloaded",
        "bad.yaml:7:5: unknown field \"server.tls.self\"",
        "known fields: minVersion, clientAuth, files, selfManaged",
        "bad.yaml:8:19: server.tls.files.cert: nothing.crt: No such file or directory (os error 2)\n    write the path of an existing file, or create tls.crt, tls.key and ca.crt and name them: durward certs new --service NAME.NAMESPACE --out .",
        "server.tls.files.key: .: it is a directory, not a file",
        "bad.yaml:10:13: server.webhookConfiguration.manage: invalid value \"everything\"",
        "must be one of: none, caBundle, all",
        "bad.yaml:11:10: server.webhookConfiguration.url: invalid value \"http://x\": does not start with https://",
        "server.webhookConfiguration.url: cannot be combined with service",
        "server.webhookConfiguration.service.name: invalid value \"Durward_1\": is not the name of a Service",
        "must be a name of a Service: lower-case letters, digits and -",
        "server.limits.maxTotalBytes: must be larger",
        "bad.yaml:15:3: unknown field \"guards.lxcf\": did you mean lxcfs?",
        "guards.lxcfs: is empty",
        "write lxcfs: {} to turn it on",
    ] {
        assert!(run.err.contains(line), "missing: {line}\n{}", run.err);
    }
}

#[test]
fn removed_keys_of_the_server_name_what_replaces_them() {
    let dir = TestDir::new();
    dir.write(
        "old.yaml",
        "apiVersion: durward.dev/v1alpha1\nkind: Configuration\nserver:\n  tls: {selfManaged: {names: [a.b], addresses: [10.0.0.1], secretName: ca}}\n  limits: {requestTimeout: 9s}\nguards: {lxcfs: {}}\n",
    );
    let run = dir.run(&["config", "check", "old.yaml"]);
    assert_eq!((run.code, run.out.as_str()), (2, ""));
    let certificate = "the certificate has the name that the API server calls";
    for (key, next) in [
        ("tls.selfManaged.names", certificate),
        ("tls.selfManaged.addresses", certificate),
        ("tls.selfManaged.secretName", "the Secret is durward-ca"),
        ("limits.requestTimeout", "the timeoutSeconds of its webhook"),
    ] {
        let removed = format!("field \"server.{key}\" was removed\n    remove it: ");
        let (_, then) = run.err.split_once(&removed).unwrap_or_else(|| panic!("{key}: {}", run.err));
        assert!(then.lines().next().unwrap().contains(next), "{key}: {}", run.err);
    }
}

#[test]
fn reports_files_that_are_not_a_configuration() {
    let dir = TestDir::new();
    for (text, expected) in [
        ("", "is empty"),
        ("- a\n", "the file: is not a map"),
        ("a: [", "the file is not YAML"),
        (
            "replicas: 2\nconfig: {guards: {lxcfs: {}}}\n",
            "d.yaml has values of the Helm chart, not a configuration\n    check the keys below `config` in a file of their own",
        ),
        ("apiVersion: durward.dev/v1alpha1\nkind: Configuration\n", "guards: no guard is on"),
        ("guards: {lxcfs: {}}\n", "apiVersion: is required"),
        (
            "apiVersion: durward.dev/v1alpha1\nkind: Configuration\nguards: {lxcfs: {}}\nserver: {tls: {clientAuth: {mode: require}}}\n",
            "clientAuth.caFile: is required",
        ),
        (
            "apiVersion: durward.dev/v1alpha1\nkind: Configuration\nguards: {lxcfs: {}}\nserver: {tls: {clientAuth: {mode: require}}}\n",
            "server.tls.clientAuth.allowedNames: is required with mode require\n    add the common name of the certificate that the API servers send: allowedNames: [apiserver-webhooks]",
        ),
        (
            "apiVersion: durward.dev/v1alpha1\nkind: Configuration\nguards: {lxcfs: {}}\nserver: {tls: {clientAuth: {allowedNames: [a]}}}\n",
            "server.tls.clientAuth.allowedNames: has no effect with mode none",
        ),
        (
            "apiVersion: durward.dev/v1alpha1\nkind: Configuration\nguards: {lxcfs: {}}\nserver: {tls: {clientAuth: {mode: require, allowedNames: ['']}}}\n",
            "server.tls.clientAuth.allowedNames: contains an empty name",
        ),
        (
            "apiVersion: durward.dev/v1alpha1\nkind: Configuration\nguards: {lxcfs: {}}\nserver: {tls: {clientAuth: {mode: request}}}\n",
            "server.tls.clientAuth.mode: invalid value \"request\"\n    must be one of: none, require",
        ),
        (
            "apiVersion: durward.dev/v1alpha1\nkind: Configuration\nguards: {lxcfs: {}}\nserver: {bindAddress: '127.0.0.1:80', metricsBindAddress: '127.0.0.1:80'}\n",
            "metricsBindAddress: has the same port as bindAddress",
        ),
    ] {
        dir.write("d.yaml", text);
        let run = dir.run(&["config", "check", "d.yaml"]);
        assert_eq!(run.code, 2, "{text}");
        assert!(run.err.contains(expected), "{text}: {}", run.err);
    }
    let missing = dir.run(&["config", "check", "nothing.yaml"]);
    assert_eq!(missing.code, 2);
    assert!(
        missing.err.contains("nothing.yaml cannot be read") && missing.err.contains("durward config init")
    );
}

#[test]
fn rejects_values_that_the_api_server_would_reject() {
    let dir = TestDir::new();
    dir.write(
        "d.yaml",
        "apiVersion: durward.dev/v1alpha1\nkind: Configuration\nserver:\n  webhookConfiguration: {service: {name: 9dur}}\nnamespace: Bad Ns\nguards:\n  lxcfs:\n    \
         exempt: {namespaces: [Foo_Bar, kube-*]}\n    webhook:\n      namespaceSelector: {matchLabels: {\"bad key!\": \"x y\"}}\n",
    );
    let run = dir.run(&["manifests", "--config", "d.yaml"]);
    assert_eq!((run.code, run.out.as_str()), (2, ""));
    for line in [
        "d.yaml:4:42: server.webhookConfiguration.service.name: invalid value \"9dur\": is not the name of a Service\n    must be ",
        "d.yaml:5:12: namespace: invalid value \"Bad Ns\": is not the name of a namespace\n    must be ",
        "d.yaml:8:27: guards.lxcfs.exempt.namespaces: invalid value \"Foo_Bar\": is not the name of a namespace\n    must be ",
        "d.yaml:10:41: guards.lxcfs.webhook.namespaceSelector.matchLabels: invalid value \"bad key!\": is not a label key\n    must be ",
        "guards.lxcfs.webhook.namespaceSelector.matchLabels.bad key!: invalid value \"x y\": is not a label value\n    must be ",
    ] {
        assert!(run.err.contains(line), "missing: {line}\n{}", run.err);
    }
    dir.write(
        "d.yaml",
        "apiVersion: durward.dev/v1alpha1\nkind: Configuration\nserver: {webhookConfiguration: {url: 'https://h:99999'}}\nguards: {lxcfs: {}}\n",
    );
    let run = dir.run(&["manifests", "--config", "d.yaml"]);
    assert_eq!(run.code, 2);
    assert!(
        run.err.contains("d.yaml:3:38: server.webhookConfiguration.url: invalid value \"https://h:99999\": has an invalid port (1 to 65535)"),
        "{}",
        run.err
    );
}

#[test]
fn rejects_certificates_that_the_api_server_would_reject() {
    let dir = TestDir::new();
    let check = |registration: &str| {
        dir.write(
            "durward.yaml",
            &TestDir::configuration(registration, "  deletion: {crds: {apiGroups: ['*']}}\n"),
        );
        dir.run(&["config", "check", "durward.yaml"])
    };
    for (registration, called, make) in [
        (
            "webhookConfiguration: {url: 'https://durward.karmada-system.svc:443'}",
            "durward.karmada-system.svc",
            "--name durward.karmada-system.svc",
        ),
        ("webhookConfiguration: {url: 'https://10.0.0.7:8443'}", "10.0.0.7", "--address 10.0.0.7"),
        (
            "webhookConfiguration: {service: {name: other}}",
            "other.durward-system.svc",
            "--service other.durward-system",
        ),
    ] {
        let run = check(registration);
        assert_eq!((run.code, run.out.as_str()), (2, ""), "{registration}");
        let expected = format!(
            "server.tls.files.cert: tls.crt: the API server calls {called}, but the certificate is valid for durward.durward-system.svc, "
        );
        assert!(run.err.contains(&expected), "{}", run.err);
        let next = format!("create another one: durward certs new {make} --out . --force");
        assert!(run.err.contains(&next), "{}", run.err);
    }
    for right in ["shutdown: {}", "webhookConfiguration: {url: 'https://127.0.0.1'}"] {
        let run = check(right);
        assert_eq!((run.code, run.err.as_str()), (0, ""), "{right}");
    }
    std::fs::remove_file(dir.path().join("ca.crt")).unwrap();
    let run = check("shutdown: {}");
    assert!(run.code == 2 && run.err.contains("server.tls.files.ca: ca.crt cannot be read"), "{}", run.err);
}

#[test]
fn reads_json_and_resolves_paths_relative_to_the_file() {
    let dir = TestDir::new();
    dir.write(
        "conf/d.json",
        r#"{"apiVersion": "durward.dev/v1alpha1", "kind": "Configuration", "server": {"tls": {"files": {"cert": "../tls.crt", "key": "../tls.key"}}}, "guards": {"lxcfs": {}}}"#,
    );
    let run = dir.run(&["config", "check", "conf/d.json"]);
    assert_eq!((run.code, run.err.as_str()), (0, ""));
    assert_eq!(
        run.out,
        "conf/d.json is valid\nlxcfs: CREATE pods; UPDATE pods/ephemeralcontainers, only namespaces labeled durward.dev/lxcfs in (enabled)\nlxcfs: CREATE pods; UPDATE pods/ephemeralcontainers, only namespaces labeled durward.dev/lxcfs notin (enabled)\n"
    );
}

/// Returns the printed defaults with all guards, without the keys that every guard has.
fn uncommented(defaults: &str) -> String {
    let (server, guards) = defaults.split_once("guards:\n").unwrap();
    let (_, guards) = guards.split_once("  #\n").unwrap();
    let lines: Vec<_> = guards.lines().map(|line| line.replacen("  # ", "  ", 1)).collect();
    format!("{server}guards:\n{}\n", lines.join("\n").replace("\n  #\n", "\n"))
}

#[test]
fn init_writes_a_file_that_is_valid_and_served() {
    let dir = TestDir::new();
    let init = |more: &[&str]| dir.run(&[&["config", "init"], more].concat());
    let made = dir.run(&["certs", "new", "--service", "durward.durward-system", "--out", "tls"]);
    assert_eq!(made.code, 0, "{}", made.err);
    for more in [
        &["--guard", "lxcfs"][..],
        &["--guard", "deletion"],
        &["--guard", "etcd", "--namespace", "db", "--selector", "app=etcd,tier in (a, b)"],
        &["--guard", "lxcfs", "--guard", "etcd", "-n", "db", "-l", "app=etcd", "--guard", "deletion"],
    ] {
        let file = init(more);
        assert_eq!(file.code, 0, "{}", file.err);
        assert!(file.out.lines().count() < 20, "{}", file.out);
        dir.write("new.yaml", &file.out);
        let check = dir.run(&["config", "check", "new.yaml"]);
        assert_eq!((check.code, check.err.contains("warning")), (0, false), "{}{}", file.out, check.err);
        let has_crds = file.out.contains("crds: {apiGroups: []}");
        assert_eq!(has_crds, more.contains(&"deletion"), "{}", file.out);
    }
    let recorded = crate::harness::root().join("examples/deletion/healthy");
    let proposed = init(&["--guard", "deletion", "--snapshot", recorded.to_str().unwrap()]);
    for line in ["    fleet: karmada #", "    crds: {apiGroups: [\"example.org\"]}"] {
        assert!(proposed.out.contains(line), "{}{}", proposed.out, proposed.err);
    }
    // The values of the chart begin in audit mode.
    let values = init(&["--guard", "deletion", "--guard", "lxcfs", "--chart"]).out;
    let expected = "config:\n  guards:\n    deletion:\n";
    assert!(
        values.contains(expected)
            && values.contains("      mode: audit\n      webhook: {failurePolicy: Ignore}\n"),
        "{values}"
    );
    assert!(values.contains("    lxcfs:\n      mode: audit"), "{values}");
    let addresses = ["--bind-address", "127.0.0.1:0", "--metrics-bind-address", "127.0.0.1:0"];
    let serve = ["serve", "--config", "new.yaml", "--snapshot", "snapshot"];
    let serving = crate::harness::Serving::begun(dir.path(), &[&serve[..], &addresses].concat());
    serving.wait_for_log(|line| line["message"] == "listening");
    for (more, expected) in [
        (&["--guard", "etcd"][..], "add --namespace and --selector"),
        (&["--guard", "lxcfs", "--namespace", "db"], "add --guard etcd"),
        (&["--guard", "etcd", "-n", "Db", "-l", "app=etcd"], "namespace: invalid value \"Db\""),
        (&["--guard", "moon"], "must be one of: deletion, lxcfs, etcd"),
        (&[], "--guard <NAME> is required"),
    ] {
        let run = init(more);
        assert_eq!((run.code, run.out.as_str()), (2, ""), "{more:?}");
        assert!(run.err.contains(expected), "{more:?}: {}", run.err);
    }
}

#[test]
fn printed_defaults_mean_the_same_as_an_empty_file() {
    let dir = TestDir::new();
    let defaults = dir.run(&["config", "defaults"]).out;
    dir.write("printed.yaml", &defaults);
    let printed = dir.run(&["config", "check", "printed.yaml"]);
    assert!(printed.err.contains("no guard is on"), "every guard is commented out: {}", printed.err);
    assert_eq!(defaults.matches("controllerUsers: []").count(), 1, "common keys are printed once");
    dir.write("defaults.yaml", &uncommented(&defaults));
    let made = dir.run(&["certs", "new", "--service", "durward.durward-system", "--out", "tls"]);
    assert_eq!(made.code, 0, "{}", made.err);
    dir.write(
        "short.yaml",
        "apiVersion: durward.dev/v1alpha1\nkind: Configuration\nserver: {tls: {files: {cert: tls/tls.crt, key: tls/tls.key, ca: tls/ca.crt}}}\nguards: {deletion: {}, lxcfs: {}, etcd: {clusters: []}, resources: {}}\n",
    );
    let check = dir.run(&["config", "check", "defaults.yaml"]);
    assert_eq!(check.code, 0, "{}", check.err);
    for warning in [
        "warning: etcd protects nothing: no webhook is configured\n",
        "warning: resources protects nothing: no webhook is configured\n",
    ] {
        assert!(check.err.contains(warning), "{}", check.err);
    }
    let manifests = |file: &str| dir.run(&["manifests", "--config", file]);
    let (long, short) = (manifests("defaults.yaml"), manifests("short.yaml"));
    assert_eq!(long.code, 0, "{}", long.err);
    assert_eq!(long.out, short.out);
}

#[test]
fn printed_defaults_show_the_keys_of_list_entries() {
    let defaults = uncommented(&TestDir::new().run(&["config", "defaults"]).out);
    let all: Vec<&str> = defaults.lines().collect();
    let at = all.iter().position(|line| *line == "    clusters: []").unwrap();
    let entry: Vec<&str> = all[at + 1..].iter().map_while(|line| line.strip_prefix("      # ")).collect();
    assert!(entry[0].starts_with("- # "), "{entry:?}");
    for key in ["  groupBy: statefulset", "  client:", "    port: 2379", "  memberOnPodDelete: keep"] {
        assert!(entry.contains(&key), "{key}: {entry:#?}");
    }
}

#[test]
fn config_check_warns_of_a_limited_scope_on_karmada() {
    let dir = TestDir::new();
    dir.configure("  deletion: {fleet: karmada, scope: labeled}\n");
    let run = dir.run(&["config", "check", "durward.yaml"]);
    let limit = "only objects labeled durward.dev/guard=deletion, and Karmada's own namespaces and CRDs";
    assert_eq!(run.code, 0, "{}", run.err);
    let note = "deletion: crds.apiGroups is empty: Durward can't read custom objects, so it denies the deletion of each CRD that it protects";
    assert_eq!(run.err, format!("warning: deletion protects {limit}\nnote: {note}\n"));
    assert!(run.out.contains(&format!("DELETE customresourcedefinitions, {limit}\n")), "{}", run.out);
    let text = std::fs::read_to_string(dir.path().join("durward.yaml")).unwrap();
    let run = durward_in(dir.path(), &["config", "check", "-", "-o", "json"], &text);
    let report = run.json();
    assert_eq!((&report["file"], run.code), (&"standard input".into(), 0));
    assert_eq!(report["warnings"][0], format!("deletion protects {limit}"));
    assert!(report["scopes"][0].as_str().unwrap().starts_with("deletion: DELETE "), "{report}");
}

#[test]
fn config_check_warns_of_an_exemption_of_every_user() {
    let dir = TestDir::new();
    for (exempt, key) in [
        ("users: [ci, '*']", Some("users")),
        ("groups: ['system:*']", Some("groups")),
        ("groups: ['system:authenticated']", Some("groups")),
        ("users: ['system:*'], groups: [admins], serviceAccounts: ['*']", None),
    ] {
        dir.configure(&format!(
            "  deletion: {{fleet: karmada, crds: {{apiGroups: ['*']}}, exempt: {{{exempt}}}}}\n"
        ));
        let run = dir.run(&["config", "check", "durward.yaml"]);
        let warning =
            key.map(|key| format!("warning: deletion protects nothing: exempt.{key} matches every user\n"));
        assert_eq!((run.code, run.err), (0, warning.unwrap_or_default()), "{exempt}");
    }
}

#[test]
fn config_check_checks_files_of_guards() {
    let dir = TestDir::new();
    let made = dir.run(&["certs", "new", "--service", "durward.durward-system", "--out", "tls"]);
    assert_eq!(made.code, 0, "{}", made.err);
    let files = "files: {ca: tls/ca.crt, cert: client.crt, key: client.key}}";
    dir.configure(&format!(
        "  etcd: {{clusters: [{{namespace: db, selector: app=etcd, client: {{tls: {{{files}}}}}]}}\n"
    ));
    dir.write("client.crt", "x");
    let run = dir.run(&["config", "check", "durward.yaml"]);
    assert_eq!(run.code, 2, "{}", run.err);
    assert!(run.err.contains("guards.etcd.clusters[0].client.tls.files.key: client.key: "), "{}", run.err);
    assert!(!run.err.contains("files.cert") && !run.err.contains("files.ca"), "{}", run.err);
    dir.write("client.key", "x");
    let run = dir.run(&["config", "check", "-q", "durward.yaml"]);
    assert_eq!((run.code, run.err.as_str()), (0, ""));
}

#[test]
fn config_check_warns_of_acknowledgements_without_effect() {
    let dir = TestDir::new();
    let entries = "{cluster: m5, until: 2026-01-01, reason: x}, {cluster: m6, until: 2999-01-01, reason: x}";
    let guard = format!(
        "fleet: {{secrets: {{}}}}, crds: {{apiGroups: [example.org]}}, unreachableClusters: [{entries}]"
    );
    dir.configure(&format!("  deletion: {{{guard}}}\n"));
    let run = dir.run(&["config", "check", "durward.yaml"]);
    let warning = |at: usize, why: &str| {
        format!(
            "warning: deletion: unreachableClusters[{at}] has no effect: until {why} can block deletions\n"
        )
    };
    let past = warning(0, "2026-01-01T00:00:00Z is in the past; m5");
    // The latest time is in parentheses, and depends on the clock.
    let latest = run.err.split_once(" (at most ").and_then(|(_, rest)| rest.split_once(')')).unwrap().0;
    let far = format!("2999-01-01T00:00:00Z is more than 30 days ahead (at most {latest}); m6");
    assert!(latest.ends_with('Z') && latest.len() == 20, "{latest}");
    assert_eq!((run.code, run.err), (0, past + &warning(1, &far)));
}

#[test]
fn config_check_notes_what_happens_to_members_and_what_is_left_out() {
    let dir = TestDir::new();
    let all = "namespaceSelector: {matchExpressions: [{key: kubernetes.io/metadata.name, operator: Exists}]}";
    dir.configure(&format!(
        "  etcd: {{clusters: [{{{all}, selector: app=etcd}}, {{namespace: db, selector: x=y, memberOnPodDelete: remove}}]}}\n"
    ));
    let run = dir.run(&["config", "check", "durward.yaml"]);
    let notes: Vec<&str> = run.err.lines().collect();
    let [keep, home, remove] = notes[..] else { panic!("{}", run.err) };
    assert!(keep.starts_with("note: etcd: clusters[0].memberOnPodDelete: keep: a deleted pod's member stays in the list. Use remove only if"), "{keep}");
    assert_eq!(
        home,
        "note: etcd: clusters[0].namespaceSelector also covers the namespace of Durward, durward-system; the guard leaves it out"
    );
    assert!(
        remove.starts_with(
            "note: etcd: clusters[1].memberOnPodDelete: remove: a deleted pod's member leaves the list."
        ),
        "{remove}"
    );
    assert!(run.out.contains("etcd: CREATE pods/eviction, only namespace db\n"), "{}", run.out);
    dir.configure("  lxcfs: {webhook: {namespaceSelector: {matchExpressions: [{key: team, operator: DoesNotExist}]}}}\n");
    let run = dir.run(&["config", "check", "durward.yaml"]);
    let home = "note: lxcfs: webhook.namespaceSelector also covers the namespace of Durward, durward-system; the guard leaves it out\n";
    assert_eq!((run.code, run.err.as_str()), (0, home));
}

#[test]
fn the_deletion_guard_works_outside_a_cluster_without_a_namespace() {
    let dir = TestDir::new();
    let text =
        TestDir::configuration("webhookConfiguration: {url: \"https://127.0.0.1:8443\"}", "  deletion: {}\n");
    dir.write("durward.yaml", &format!("namespace: \"\"\n{text}"));
    let run = dir.run(&["config", "check", "-q", "durward.yaml"]);
    assert_eq!((run.code, run.err.as_str()), (0, ""));
    let run = dir.run(&["manifests", "--config", "durward.yaml", "--only", "webhooks"]);
    assert_eq!(run.code, 0, "{}", run.err);
    assert!(!run.out.contains("not-the-install-namespace"), "{}", run.out);
}

fn without_comments(yaml: &str) -> String {
    let lines = yaml.lines().filter(|line| !line.trim_start().starts_with('#'));
    lines.collect::<Vec<_>>().join("\n")
}

#[test]
fn the_schema_accepts_the_defaults() {
    type Change = fn(&mut Value);
    let dir = TestDir::new();
    let schema = dir.run(&["config", "schema"]).json();
    let defaults: Value =
        serde_saphyr::from_str(&without_comments(&uncommented(&dir.run(&["config", "defaults"]).out)))
            .unwrap();
    takes(&schema, &defaults, "");
    assert_eq!(
        schema["properties"]["guards"]["properties"]["lxcfs"]["properties"]["lxcfsPath"]["type"],
        "string"
    );
    let cluster = &schema["properties"]["guards"]["properties"]["etcd"]["properties"]["clusters"]["items"];
    assert_eq!(
        cluster["properties"]["client"]["properties"]["tls"]["properties"]["secretName"]["type"],
        "string"
    );
    assert_eq!(
        cluster["properties"]["onLeaderDelete"]["enum"],
        serde_json::json!(["transfer", "deny", "allow"])
    );
    let changes: [Change; 4] = [
        |wrong| wrong["server"]["listn"] = 1.into(),
        |wrong| wrong["guards"]["lxcfs"]["onUnknown"] = "perhaps".into(),
        |wrong| wrong["guards"]["lxcfs"]["initContainers"] = Value::Null,
        |wrong| wrong["server"]["limits"] = "many".into(),
    ];
    for (index, change) in changes.into_iter().enumerate() {
        let mut wrong = defaults.clone();
        change(&mut wrong);
        let taken = std::panic::catch_unwind(|| takes(&schema, &wrong, ""));
        assert!(taken.is_err(), "change {index} is taken");
    }
}

/// Checks a value against the subset of JSON schema that the schema uses.
fn takes(schema: &Value, value: &Value, path: &str) {
    match value {
        Value::Object(members) if schema["additionalProperties"] == false => {
            for (key, inner) in members {
                let inner_schema = &schema["properties"][key];
                assert!(inner_schema.is_object(), "{path}.{key} is not in the schema");
                takes(inner_schema, inner, &format!("{path}.{key}"));
            }
        }
        // Null is an empty section, in which no key has a default.
        Value::Null | Value::Object(_) => assert_eq!(schema["type"], "object", "{path}"),
        Value::Array(items) => {
            assert_eq!(schema["type"], "array", "{path}");
            for item in items {
                takes(&schema["items"], item, path);
            }
        }
        Value::String(_) if schema["enum"].is_array() => {
            assert!(schema["enum"].as_array().unwrap().contains(value), "{path}: {value}");
        }
        // The key accepts a word or a map.
        Value::String(_) if schema["anyOf"].is_array() => takes(&schema["anyOf"][0], value, path),
        Value::String(_) => assert_eq!(schema["type"], "string", "{path}"),
        Value::Bool(_) => assert_eq!(schema["type"], "boolean", "{path}"),
        Value::Number(_) => assert_eq!(schema["type"], "integer", "{path}"),
    }
}

#[test]
fn recipes_for_etcd_are_valid_and_say_what_is_tested() {
    let recipes = crate::harness::root().join("examples/etcd/recipes");
    let mut count = 0;
    for entry in std::fs::read_dir(recipes).unwrap() {
        let path = entry.unwrap().path();
        let run = durward_in(path.parent().unwrap(), &["config", "check", &path.display().to_string()], "");
        assert_eq!(run.code, 0, "{}: {}", path.display(), run.err);
        let text = std::fs::read_to_string(&path).unwrap();
        let mut head = text.lines().take_while(|line| line.starts_with('#'));
        assert!(
            head.any(|line| line.contains("Tested on a real ") || line.contains("Not tested on a real ")),
            "{}: say whether it is tested",
            path.display()
        );
        count += 1;
    }
    assert_eq!(count, 4);
}
