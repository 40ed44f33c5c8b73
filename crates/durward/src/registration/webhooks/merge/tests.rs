use serde_json::json;

use super::*;

const MINUTE: Duration = Duration::from_secs(60);

/// A rule of one resource.
fn rule(resource: &str) -> Value {
    json!({"operations": ["DELETE"], "apiGroups": [""], "apiVersions": ["v1"], "resources": [resource], "scope": "Cluster"})
}

/// An entry with these resources, as `targets.rs` returns it.
fn entry(guard: &str, resources: &[&str]) -> Value {
    json!({
        "name": format!("{guard}.durward.dev"),
        "clientConfig": {"service": {"name": "durward", "namespace": "durward-system", "path": format!("/{guard}"), "port": 443}},
        "rules": resources.iter().map(|resource| rule(resource)).collect::<Vec<_>>(),
        "namespaceSelector": {},
        "objectSelector": {},
        "matchConditions": [{"name": "not-terminating", "expression": "true"}],
        "matchPolicy": "Equivalent",
        "failurePolicy": "Fail",
        "sideEffects": "None",
        "timeoutSeconds": 10,
        "admissionReviewVersions": ["v1"],
    })
}

fn ca(certificates: &[&str], is_exact: bool) -> TrustedCa {
    let certificates: Vec<_> = certificates.iter().map(|text| text.as_bytes().to_vec()).collect();
    TrustedCa { signer: certificates.clone(), certificates, is_exact }
}

fn bundle(entry: &Value) -> Vec<String> {
    let certificates = trust::certificates(&ca_bundle(entry));
    certificates.into_iter().map(|certificate| String::from_utf8(certificate).unwrap()).collect()
}

/// An API server, which stores an entry with its defaults and without empty fields.
#[derive(Default)]
struct Server {
    webhooks: Vec<Value>,
    writes: usize,
}

impl Server {
    fn store(&mut self, webhooks: &[Value]) {
        self.writes += 1;
        self.webhooks = webhooks.iter().map(stored).collect();
    }

    fn resources(&self, guard: &str) -> Vec<&str> {
        let entry = self.webhooks.iter().find(|entry| name(entry) == format!("{guard}.durward.dev")).unwrap();
        rules(entry).map(|rule| rule["resources"][0].as_str().unwrap()).collect()
    }

    fn names(&self) -> Vec<&str> {
        self.webhooks.iter().map(name).collect()
    }
}

/// The order of fields changes, empty lists and strings are dropped, and there is a field of a later version.
fn stored(entry: &Value) -> Value {
    let mut fields: Vec<(String, Value)> = entry.as_object().unwrap().clone().into_iter().rev().collect();
    fields.retain(|(_, value)| *value != json!([]));
    fields.push(("fieldOfALaterVersion".to_owned(), json!("Default")));
    let mut entry: Value = Value::Object(fields.into_iter().collect());
    for rule in entry["rules"].as_array_mut().unwrap() {
        if rule["scope"] == Value::Null {
            rule["scope"] = "*".into();
        }
    }
    entry
}

/// A replica with a configuration of its own.
struct Running {
    entries: Vec<Value>,
    ca: Option<TrustedCa>,
    only_ca: bool,
    is_holder: bool,
    unneeded: Unneeded,
}

impl Running {
    fn new(entries: &[Value]) -> Self {
        Self {
            entries: entries.to_vec(),
            ca: None,
            only_ca: false,
            is_holder: false,
            unneeded: Unneeded::new(10 * MINUTE),
        }
    }

    fn holder(entries: &[Value]) -> Self {
        Self { is_holder: true, ..Self::new(entries) }
    }

    fn with_ca(entries: &[Value], ca: TrustedCa) -> Self {
        Self { ca: Some(ca), ..Self::new(entries) }
    }

    /// Makes a pass, and returns the changes.
    fn pass(&mut self, server: &mut Server, now: Instant) -> Vec<String> {
        let merged = merge(
            &server.webhooks,
            &Replica {
                entries: &self.entries,
                ca: self.ca.as_ref(),
                only_ca: self.only_ca,
                is_holder: self.is_holder,
                is_due: &|part| self.unneeded.is_due(part, now),
            },
        );
        self.unneeded.observe(merged.unneeded, now);
        if !merged.changes.is_empty() {
            server.store(&merged.webhooks);
        }
        merged.changes
    }
}

fn server_with(entries: &[Value]) -> Server {
    Server { webhooks: entries.iter().map(stored).collect(), writes: 0 }
}

#[test]
fn fills_an_empty_configuration_once() {
    let mut server = Server::default();
    let mut replica = Running::with_ca(&[entry("deletion", &["namespaces"])], ca(&["a"], true));
    let now = Instant::now();
    assert_eq!(replica.pass(&mut server, now), ["deletion.durward.dev added"]);
    assert_eq!(bundle(&server.webhooks[0]), ["a"]);
    assert_eq!(replica.pass(&mut server, now), [""; 0]);
    replica.is_holder = true;
    assert_eq!(replica.pass(&mut server, now), [""; 0], "defaults of the API server are no difference");
    assert_eq!(server.writes, 1);
}

#[test]
fn selectors_that_lose_empty_lists_are_equal() {
    let mut needed = entry("etcd", &["pods"]);
    needed["objectSelector"] =
        json!({"matchExpressions": [{"key": "app", "operator": "Exists", "values": []}], "matchLabels": {}});
    let mut live = stored(&needed);
    live["objectSelector"] = json!({"matchExpressions": [{"operator": "Exists", "key": "app"}]});
    let mut server = Server { webhooks: vec![live], writes: 0 };
    assert_eq!(Running::holder(&[needed]).pass(&mut server, Instant::now()), [""; 0]);
}

#[test]
fn labels_without_a_value_and_joined_values_are_differences() {
    let labeled = |labels: Value| {
        let mut entry = entry("etcd", &["pods"]);
        entry["objectSelector"] = json!({"matchLabels": labels});
        entry
    };
    for (needed, live) in [(json!({}), json!({"a": ""})), (json!({"a": ""}), json!({"b": ""}))] {
        let mut server = Server { webhooks: vec![stored(&labeled(live))], writes: 0 };
        let changes = Running::holder(&[labeled(needed)]).pass(&mut server, Instant::now());
        assert_eq!(changes, ["etcd.durward.dev: objectSelector restored"]);
    }
    let mut server = server_with(&[entry("etcd", &["configmaps,secrets"])]);
    let mut needed = entry("etcd", &["configmaps"]);
    needed["rules"][0]["resources"] = json!(["configmaps", "secrets"]);
    let changes = Running::holder(&[needed]).pass(&mut server, Instant::now());
    assert_eq!(changes, ["etcd.durward.dev: 1 rules added"]);
}

#[test]
fn rules_with_another_order_of_values_are_equal() {
    let mut needed = entry("etcd", &["pods"]);
    needed["rules"] = json!([{"operations": ["UPDATE", "DELETE"], "apiGroups": ["", "apps"], "apiVersions": ["v1"], "resources": ["*"]}]);
    let mut server = server_with(&[needed.clone()]);
    needed["rules"][0]["operations"] = json!(["DELETE", "UPDATE"]);
    assert_eq!(Running::holder(&[needed]).pass(&mut server, Instant::now()), [""; 0]);
}

#[test]
fn two_replicas_with_different_configurations_lose_no_rule_for_two_minutes() {
    let mut server = Server::default();
    let mut old = Running::holder(&[entry("deletion", &["namespaces"]), entry("lxcfs", &["pods"])]);
    let mut new = Running::new(&[entry("deletion", &["namespaces", "crds"]), entry("etcd", &["pods"])]);
    let start = Instant::now();
    old.pass(&mut server, start);
    for second in (0..120).step_by(5) {
        let now = start + Duration::from_secs(second);
        new.pass(&mut server, now);
        old.pass(&mut server, now);
        assert_eq!(server.names(), ["deletion.durward.dev", "lxcfs.durward.dev", "etcd.durward.dev"]);
        assert_eq!(server.resources("deletion"), ["namespaces", "crds"]);
    }
    assert_eq!(server.writes, 2, "one write for each replica");
}

#[test]
fn a_rolling_upgrade_removes_old_rules_ten_minutes_after_it() {
    let mut server = Server::default();
    let old_entries = [entry("deletion", &["namespaces", "crds"]), entry("lxcfs", &["pods"])];
    let mut old = [Running::holder(&old_entries), Running::new(&old_entries)];
    let mut new = [
        Running::new(&[entry("deletion", &["namespaces"])]),
        Running::new(&[entry("deletion", &["namespaces"])]),
    ];
    let start = Instant::now();
    for second in (0..900).step_by(5) {
        let now = start + Duration::from_secs(second);
        // The first pod is replaced after a minute, and the second after two. A minute later a new pod holds the Lease.
        let (first_is_new, second_is_new) = (second >= 60, second >= 120);
        new[0].is_holder = second >= 180;
        let [old_first, old_second] = &mut old;
        let [new_first, new_second] = &mut new;
        if first_is_new { new_first } else { old_first }.pass(&mut server, now);
        if second_is_new { new_second } else { old_second }.pass(&mut server, now);
        if second < 60 + 600 {
            assert_eq!(server.resources("deletion"), ["namespaces", "crds"], "{second} s");
            assert_eq!(server.resources("lxcfs"), ["pods"], "{second} s");
        } else {
            assert_eq!(server.names(), ["deletion.durward.dev"], "{second} s");
            assert_eq!(server.resources("deletion"), ["namespaces"], "{second} s");
        }
    }
}

#[test]
fn only_the_holder_removes_and_a_part_that_is_needed_again_starts_over() {
    let both = [entry("deletion", &["namespaces"]), entry("etcd", &["pods"])];
    let mut server = server_with(&both);
    let start = Instant::now();
    let mut follower = Running::new(&both[..1]);
    follower.pass(&mut server, start);
    assert_eq!(follower.pass(&mut server, start + 60 * MINUTE), [""; 0]);

    let mut holder = Running::holder(&both[..1]);
    holder.pass(&mut server, start);
    holder.entries = both.to_vec();
    holder.pass(&mut server, start + 9 * MINUTE);
    holder.entries.truncate(1);
    holder.pass(&mut server, start + 10 * MINUTE);
    assert_eq!(holder.pass(&mut server, start + 19 * MINUTE), [""; 0]);
    assert_eq!(holder.pass(&mut server, start + 20 * MINUTE), ["etcd.durward.dev removed"]);
}

#[test]
fn every_replica_restores_a_removed_entry_and_a_removed_rule() {
    let needed = [entry("deletion", &["namespaces", "crds"]), entry("etcd", &["pods"])];
    let mut server = server_with(&[entry("deletion", &["crds"])]);
    let changes = Running::new(&needed).pass(&mut server, Instant::now());
    assert_eq!(changes, ["deletion.durward.dev: 1 rules added", "etcd.durward.dev added"]);
    assert_eq!(server.resources("deletion"), ["crds", "namespaces"]);
}

#[test]
fn only_the_holder_restores_a_narrowed_entry() {
    let needed = [entry("deletion", &["namespaces"])];
    let mut narrowed = needed[0].clone();
    narrowed["objectSelector"] = json!({"matchLabels": {"a": "b"}});
    narrowed["matchConditions"].as_array_mut().unwrap().push(json!({"name": "never", "expression": "false"}));
    narrowed["failurePolicy"] = "Ignore".into();
    narrowed["clientConfig"] = json!({"url": "https://elsewhere", "caBundle": "eA=="});
    let mut server = server_with(&[narrowed]);
    assert_eq!(Running::new(&needed).pass(&mut server, Instant::now()), [""; 0]);
    let changes = Running::holder(&needed).pass(&mut server, Instant::now());
    assert_eq!(
        changes,
        ["deletion.durward.dev: clientConfig, objectSelector, matchConditions, failurePolicy restored"]
    );
    let entry = &server.webhooks[0];
    assert_eq!(entry["matchConditions"].as_array().unwrap().len(), 1);
    assert_eq!(entry["clientConfig"]["service"]["path"], "/deletion");
    assert_eq!(entry["clientConfig"]["caBundle"], "eA==", "without a CA, Durward leaves caBundle alone");
    assert_eq!(entry["fieldOfALaterVersion"], "Default");
}

#[test]
fn entries_of_others_stay_as_they_are() {
    let other =
        json!({"name": "policy.example.org", "rules": [rule("pods")], "clientConfig": {"url": "https://x"}});
    let mut server = Server { webhooks: vec![other.clone()], writes: 0 };
    let mut holder = Running { ca: Some(ca(&["a"], true)), ..Running::holder(&[entry("etcd", &["pods"])]) };
    let start = Instant::now();
    holder.pass(&mut server, start);
    holder.pass(&mut server, start + 60 * MINUTE);
    assert_eq!(server.names(), ["policy.example.org", "etcd.durward.dev"]);
    assert_eq!(server.webhooks[0]["clientConfig"], other["clientConfig"]);
}

#[test]
fn every_replica_restores_an_emptied_ca_bundle() {
    let needed = [entry("etcd", &["pods"])];
    for broken in [json!(null), json!(""), json!("bm8gY2VydGlmaWNhdGU="), json!("###")] {
        let mut emptied = needed[0].clone();
        emptied["clientConfig"]["caBundle"] = broken;
        let mut server = server_with(&[emptied]);
        let mut replica = Running::with_ca(&needed, ca(&["a", "b"], true));
        assert_eq!(replica.pass(&mut server, Instant::now()), ["etcd.durward.dev: caBundle replaced"]);
        assert_eq!(bundle(&server.webhooks[0]), ["a", "b"]);
        assert_eq!(replica.pass(&mut server, Instant::now()), [""; 0]);
    }
}

#[test]
fn a_shared_ca_replaces_others_at_once() {
    let needed = [entry("etcd", &["pods"])];
    let mut server = Server::default();
    Running::with_ca(&needed, ca(&["a", "b"], true)).pass(&mut server, Instant::now());
    Running::with_ca(&needed, ca(&["c", "b"], true)).pass(&mut server, Instant::now());
    assert_eq!(bundle(&server.webhooks[0]), ["c", "b"]);
}

#[test]
fn replicas_with_different_files_agree_on_both_cas_for_ten_minutes() {
    let needed = [entry("etcd", &["pods"])];
    let mut server = Server::default();
    let mut old = Running::with_ca(&needed, ca(&["a"], false));
    let mut new = Running { is_holder: true, ..Running::with_ca(&needed, ca(&["b"], false)) };
    let start = Instant::now();
    for _ in 0..3 {
        old.pass(&mut server, start);
        new.pass(&mut server, start);
        assert!(bundle(&server.webhooks[0]).starts_with(&["a".to_owned()]));
    }
    assert_eq!((bundle(&server.webhooks[0]), server.writes), (vec!["a".to_owned(), "b".to_owned()], 2));
    assert_eq!(new.pass(&mut server, start + 10 * MINUTE), ["etcd.durward.dev: caBundle replaced"]);
    assert_eq!(bundle(&server.webhooks[0]), ["b"]);
}

#[test]
fn with_ca_bundle_only_nothing_else_changes() {
    let existing = entry("deletion", &["namespaces"]);
    let mut server = server_with(&[existing]);
    let mut replica = Running {
        only_ca: true,
        is_holder: true,
        ..Running::with_ca(&[entry("deletion", &["crds"]), entry("etcd", &["pods"])], ca(&["a"], true))
    };
    let start = Instant::now();
    assert_eq!(replica.pass(&mut server, start), ["deletion.durward.dev: caBundle replaced"]);
    assert_eq!(replica.pass(&mut server, start + 60 * MINUTE), [""; 0]);
    assert_eq!(server.names(), ["deletion.durward.dev"]);
    assert_eq!(server.resources("deletion"), ["namespaces"]);
}

#[test]
fn names_entries_that_lack_a_rule() {
    let needed = [entry("deletion", &["namespaces", "crds"]), entry("etcd", &["pods"])];
    let existing = [stored(&needed[0]), stored(&needed[1])];
    assert_eq!(missing(&existing, &needed), [""; 0]);
    assert_eq!(missing(&existing[..1], &needed), ["etcd.durward.dev"]);
    assert_eq!(missing(&[entry("deletion", &["crds"])], &needed[..1]), ["deletion.durward.dev"]);
}

#[test]
fn names_entries_that_call_another_server() {
    let service = |name: &str, namespace: &str| {
        let service = serde_json::json!({"name": "durward", "namespace": namespace, "path": "/x"});
        serde_json::json!({"name": name, "clientConfig": {"service": service}})
    };
    let url = |name: &str, url: &str| serde_json::json!({"name": name, "clientConfig": {"url": url}});
    let ours = service("deletion.durward.dev", "durward-system");
    // An entry of a replica with another configuration.
    let other = service("etcd-pods.durward.dev", "durward-system");
    let (like_ours, named) = (service("x.durward.dev", "evil"), service("x.example.org", "durward-system"));
    let all = [ours.clone(), other, like_ours, named, url("y.durward.dev", "https://h/deletion")];
    assert_eq!(super::foreign(&all, &[ours]), ["x.durward.dev", "x.example.org", "y.durward.dev"]);
    let ours = url("deletion.durward.dev", "https://durward:8443/deletion");
    let all =
        [url("etcd-pods.durward.dev", "https://durward:8443/etcd"), url("a.durward.dev", "https://h/etcd")];
    assert_eq!(super::foreign(&all, &[ours]), ["a.durward.dev"]);
}
