//! Passes over the objects of an API server that the tests provide.

mod enforcement;
mod native;
mod problems;

use ca::{Bundle, CaBundle, StoreError, StoreFault};
use cluster::Clients;
use hyper::Method;
use serde_json::{Value, json};

use super::compare::set_ca_bundle;
use super::*;
use crate::registration::fake::{FakeServer, mutating, validating};

/// A change right after a read of the CA.
type Then = Box<dyn FnOnce() + Send>;

/// The CA of a test. `None` is a Secret that can't be read.
struct FakeBundle(Mutex<Option<&'static str>>, Mutex<Option<Then>>);

impl Bundle for FakeBundle {
    fn read(&self) -> BoxFuture<'_, Result<CaBundle, StoreError>> {
        let pem = self.0.lock().unwrap().map(|text| ca::pem::bundle(&[text.as_bytes().to_vec()]));
        let then = self.1.lock().unwrap().take();
        if let Some(then) = then {
            then();
        }
        Box::pin(std::future::ready(pem.map(|pem| CaBundle { signer: pem.clone(), pem }).ok_or_else(|| {
            StoreError {
                reason: StoreFault::Forbidden,
                text: "cannot get the Secret".to_owned(),
                next: "permit it".to_owned(),
            }
        })))
    }
}

/// A replica with two API servers: its own cluster, and the one that calls the guards.
struct Replica {
    shared: Shared,
    memory: PassMemory,
    checks: Checks,
    metrics: Metrics,
    bundle: Arc<FakeBundle>,
}

fn access(context: &str) -> Access {
    Access { kubeconfig: None, context: Some(context.to_owned()) }
}

fn entry(name: &str) -> Value {
    json!({
        "name": format!("{name}.durward.dev"),
        "clientConfig": {"url": format!("https://durward/{name}")},
        "rules": [{"operations": ["DELETE"], "apiGroups": [""], "apiVersions": ["v1"], "resources": ["namespaces"], "scope": "*"}],
        "matchConditions": [],
        "failurePolicy": "Fail",
    })
}

impl Replica {
    /// Both API servers are the same unless `home` is given.
    fn new(manage: Manage, server: &FakeServer, home: Option<&FakeServer>) -> Self {
        let target = RegistrationTarget {
            is_karmada: home.is_some(),
            access: access("target"),
            entries: [vec![entry("deletion")], Vec::new()],
            ..RegistrationTarget::without_guards()
        };
        let needs = Needs {
            manage,
            namespace: "durward-system".to_owned(),
            targets: vec![target],
            manifests: "durward manifests --config durward.yaml".to_owned(),
        };
        let (checks, metrics) = (Checks::new(), Metrics::new("t"));
        let bundle = Arc::new(FakeBundle(Mutex::new(Some("a")), Mutex::default()));
        let clients =
            vec![(access("target"), server.client()), (access("home"), home.unwrap_or(server).client())];
        let shared = Shared {
            needs: Mutex::new(Arc::new(needs)),
            control_planes: Arc::new(ControlPlanes::snapshot(Clients::offline())),
            home: access("home"),
            ca: CaSource::SelfManaged(Arc::clone(&bundle) as Arc<dyn Bundle>),
            wake: Notify::new(),
            clients: Mutex::new(clients),
            status: PassStatus::new(checks.clone(), &metrics),
        };
        shared.status.expect();
        let memory = PassMemory::default();
        Self { shared, memory, checks, metrics, bundle }
    }

    async fn pass(&mut self) -> Duration {
        self.shared.pass(&mut self.memory).await
    }

    /// Changes the needs of the API server that calls the guards.
    fn need(&self, change: impl FnOnce(&mut RegistrationTarget)) {
        let mut needs = (*self.shared.needs()).clone();
        change(&mut needs.targets[0]);
        *lock(&self.shared.needs) = Arc::new(needs);
    }

    fn readiness(&self) -> (bool, String) {
        let readiness = self.checks.readiness();
        (readiness.ready, readiness.text)
    }

    #[track_caller]
    fn assert_ready(&self, is_ready: bool, words: &[&str]) {
        let (ready, text) = self.readiness();
        assert_eq!(ready, is_ready, "{text}");
        for word in words {
            assert!(text.contains(word), "{word} is not in {text}");
        }
    }

    fn has_metric(&self, line: &str) -> bool {
        self.metrics.encode().lines().any(|found| found == line)
    }
}

fn names(object: &Value) -> Vec<&str> {
    object["webhooks"].as_array().into_iter().flatten().map(compare::name).collect()
}

fn has_owner(object: &Value) -> bool {
    object["metadata"]["ownerReferences"].as_array().is_some_and(|owners| !owners.is_empty())
}

#[tokio::test]
async fn fills_its_configurations_once_and_is_owned_by_its_namespace() {
    let server = FakeServer::installed("u1");
    let mut replica = Replica::new(Manage::All, &server, None);
    replica.assert_ready(false, &["have not been read yet"]);
    assert_eq!(replica.pass().await, INTERVAL);
    replica.assert_ready(true, &["[+]webhooks ok"]);
    let object = server.object(&validating());
    assert_eq!(names(&object), ["deletion.durward.dev"]);
    assert_eq!(trust::certificates(&ca_bundle(&object["webhooks"][0])), [b"a".to_vec()]);
    assert_eq!(
        object["metadata"]["ownerReferences"],
        json!([{"apiVersion": "v1", "kind": "Namespace", "name": "durward-system", "uid": "u1"}])
    );
    assert_eq!(names(&server.object(&mutating())), [""; 0]);
    let writes = server.writes();
    replica.pass().await;
    assert_eq!(server.writes(), writes, "nothing has changed");
    for line in [
        "durward_webhooks_registered{target=\"cluster\",kind=\"validating\"} 1",
        "durward_webhooks_trusted{target=\"cluster\",kind=\"validating\"} 1",
    ] {
        assert!(replica.has_metric(line), "{line}: {}", replica.metrics.encode());
    }
}

#[tokio::test]
async fn sets_no_owner_if_its_namespace_is_in_another_cluster() {
    for uid in ["another", ""] {
        let (karmada, home) = (FakeServer::installed(uid), FakeServer::installed("u1"));
        if uid.is_empty() {
            karmada.remove("/api/v1/namespaces/durward-system");
        }
        let mut replica = Replica::new(Manage::All, &karmada, Some(&home));
        replica.pass().await;
        let object = karmada.object(&validating());
        assert_eq!(names(&object), ["deletion.durward.dev"]);
        assert!(!has_owner(&object), "{object}");
        assert_eq!(home.writes(), [""; 0]);

        // For example from a backup: the garbage collector would delete the configuration.
        karmada.edit(&validating(), |object| {
            object["metadata"]["ownerReferences"] =
                json!([{"apiVersion": "v1", "kind": "Namespace", "name": "durward-system", "uid": "u1"}]);
        });
        replica.pass().await;
        assert!(!has_owner(&karmada.object(&validating())));
    }
}

#[tokio::test]
async fn a_namespace_that_cannot_be_read_changes_no_owner() {
    let server = FakeServer::installed("u1");
    let mut replica = Replica::new(Manage::All, &server, None);
    replica.pass().await;
    server.forbid(Method::GET, "/namespaces/durward-system");
    server.edit(&validating(), |object| object["webhooks"] = json!([]));
    replica.pass().await;
    assert_eq!(server.object(&validating())["metadata"]["ownerReferences"][0]["uid"], "u1");
    replica.assert_ready(true, &["cannot get namespaces durward-system", "RBAC: verb get", "--only rbac"]);
}

#[tokio::test]
async fn does_not_touch_a_configuration_without_the_label() {
    let server = FakeServer::installed("u1");
    server.edit(&validating(), |object| object["metadata"]["labels"] = json!({"a": "b"}));
    let mut replica = Replica::new(Manage::All, &server, None);
    replica.pass().await;
    assert!(!server.writes().iter().any(|write| write.contains("validating")), "{:?}", server.writes());
    replica.assert_ready(
        true,
        &[
            "lacks the label",
            "kubectl label validatingwebhookconfiguration durward durward.dev/webhooks=managed",
        ],
    );
    assert!(replica.has_metric("durward_webhooks_registered{target=\"cluster\",kind=\"validating\"} 0"));
}

#[tokio::test]
async fn creates_no_configuration_and_is_ready_without() {
    let server = FakeServer::installed("u1");
    server.remove(&validating());
    let mut replica = Replica::new(Manage::All, &server, None);
    assert_eq!(replica.pass().await, RETRY);
    assert_eq!(server.object(&validating()), Value::Null);
    assert_eq!(server.writes(), [""; 0]);
    replica.assert_ready(
        true,
        &[
            "[!]webhooks: ValidatingWebhookConfiguration durward doesn't exist",
            "durward manifests --config durward.yaml --only webhooks | kubectl apply -f -",
        ],
    );
    assert!(replica.has_metric("durward_webhooks_registered{target=\"cluster\",kind=\"validating\"} 0"));
}

#[tokio::test]
async fn a_server_that_is_not_ready_writes_nothing() {
    let server = FakeServer::installed("u1");
    let mut replica = Replica::new(Manage::All, &server, None);
    // A server that stops is not ready either.
    let certificate = replica.checks.add("certificate");
    assert_eq!(replica.pass().await, STARTING);
    assert_eq!(server.writes(), [""; 0]);
    certificate.pass();
    replica.pass().await;
    assert_eq!(names(&server.object(&validating())), ["deletion.durward.dev"]);
}

#[tokio::test]
async fn restores_its_fields_and_keeps_conditions_of_others_without_another_write() {
    let server = FakeServer::installed("u1");
    let mut replica = Replica::new(Manage::All, &server, None);
    replica.pass().await;
    let never = json!([{"name": "never", "expression": "false"}]);
    server.edit(&validating(), |object| {
        object["webhooks"][0]["matchConditions"] = never.clone();
        object["webhooks"][0]["failurePolicy"] = "Ignore".into();
        object["metadata"]["managedFields"] = json!([{
            "manager": "argocd", "operation": "Apply", "fieldsType": "FieldsV1",
            "fieldsV1": {"f:webhooks": {"k:{\"name\":\"deletion.durward.dev\"}": {"f:matchConditions": {}}}},
        }]);
    });
    replica.pass().await;
    let object = server.object(&validating());
    assert_eq!(object["webhooks"][0]["failurePolicy"], "Fail");
    assert_eq!(object["webhooks"][0]["matchConditions"], never);
    let words = [
        "matchConditions of deletion.durward.dev in ValidatingWebhookConfiguration durward differs from the configuration, by argocd",
        "remove them: kubectl edit validatingwebhookconfiguration durward",
    ];
    replica.assert_ready(true, &words);
    assert!(replica.has_metric("durward_webhooks_narrowed{target=\"cluster\",kind=\"validating\"} 1"));
    let writes = server.writes();
    assert_eq!(replica.pass().await, INTERVAL);
    assert_eq!(
        server.writes(),
        writes,
        "the condition of another manager stays, so an apply changes nothing"
    );
}

#[tokio::test]
async fn removes_an_entry_of_which_another_field_manager_owns_a_part() {
    let server = FakeServer::installed("u1");
    let mut replica = Replica::new(Manage::All, &server, None);
    replica.need(|target| target.entries[0].push(entry("etcd")));
    replica.pass().await;
    assert_eq!(names(&server.object(&validating())), ["deletion.durward.dev", "etcd.durward.dev"]);
    server.share("etcd.durward.dev");
    replica.need(|target| drop(target.entries[0].pop()));
    replica.pass().await;
    assert_eq!(names(&server.object(&validating())), ["deletion.durward.dev"]);
    replica.assert_ready(true, &["[+]webhooks ok"]);
}

#[tokio::test]
async fn replaces_the_entries_of_an_older_durward() {
    let server = FakeServer::installed("u1");
    server.edit(&validating(), |object| {
        let mut rule = entry("deletion");
        rule["rules"].as_array_mut().unwrap().push(json!({"operations": ["UPDATE"]}));
        object["webhooks"] = json!([rule, entry("old"), {"name": "other.durward.dev"}]);
    });
    Replica::new(Manage::All, &server, None).pass().await;
    let object = server.object(&validating());
    assert_eq!(names(&object), ["deletion.durward.dev", "other.durward.dev"]);
    assert_eq!(object["webhooks"][0]["rules"], entry("deletion")["rules"]);
}

#[tokio::test]
async fn tries_again_after_a_conflict() {
    let server = FakeServer::installed("u1");
    server.conflict(2);
    let mut replica = Replica::new(Manage::All, &server, None);
    replica.pass().await;
    assert_eq!(names(&server.object(&validating())), ["deletion.durward.dev"]);
    replica.assert_ready(true, &["[+]webhooks ok"]);
}

#[tokio::test]
async fn a_replica_with_an_old_ca_does_not_remove_the_new_one() {
    let server = FakeServer::installed("u1");
    let mut replica = Replica::new(Manage::All, &server, None);
    replica.pass().await;
    // Another replica writes a new CA right after this one has read the old one.
    let (writer, bundle) = (server.clone(), Arc::clone(&replica.bundle));
    *replica.bundle.1.lock().unwrap() = Some(Box::new(move || {
        *bundle.0.lock().unwrap() = Some("b");
        writer.edit(&validating(), |object| {
            let pem = ca::pem::bundle(&[b"b".to_vec()]);
            object["webhooks"][0]["clientConfig"]["caBundle"] =
                base64::Engine::encode(&base64::engine::general_purpose::STANDARD, pem).into();
        });
    }));
    replica.need(|target| target.entries[0].push(entry("etcd")));
    replica.pass().await;
    let object = server.object(&validating());
    assert_eq!(names(&object), ["deletion.durward.dev", "etcd.durward.dev"]);
    for entry in object["webhooks"].as_array().unwrap() {
        assert_eq!(trust::certificates(&ca_bundle(entry)), [b"b".to_vec()]);
    }
}

#[tokio::test]
async fn writes_no_entry_while_the_ca_cannot_be_read() {
    let server = FakeServer::installed("u1");
    let mut replica = Replica::new(Manage::All, &server, None);
    *replica.bundle.0.lock().unwrap() = None;
    replica.pass().await;
    assert_eq!(names(&server.object(&validating())), [""; 0]);
    replica.assert_ready(false, &["cannot get the Secret", "permit it"]);
}

#[tokio::test]
async fn restores_an_emptied_ca_bundle_with_both_modes() {
    for manage in [Manage::All, Manage::CaBundle] {
        let server = FakeServer::installed("u1");
        server.edit(&validating(), |object| object["webhooks"] = json!([entry("deletion"), entry("etcd")]));
        let mut replica = Replica::new(manage, &server, None);
        replica.pass().await;
        let object = server.object(&validating());
        for entry in object["webhooks"].as_array().unwrap() {
            assert_eq!(trust::certificates(&ca_bundle(entry)), [b"a".to_vec()], "{manage:?}");
        }
        if manage == Manage::CaBundle {
            replica.assert_ready(true, &["[+]webhooks ok"]);
            assert_eq!(names(&object), ["deletion.durward.dev", "etcd.durward.dev"]);
            let writes = server.writes();
            replica.pass().await;
            assert_eq!(server.writes(), writes);
        }
    }
}

#[tokio::test]
async fn is_not_ready_until_the_ca_bundle_contains_its_ca() {
    let server = FakeServer::installed("u1");
    server.edit(&validating(), |object| object["webhooks"] = json!([entry("deletion")]));
    let mut replica = Replica::new(Manage::None, &server, None);
    replica.pass().await;
    let words = ["lacks the CA of Durward's certificate", "--only webhooks | kubectl apply"];
    replica.assert_ready(false, &words);
    assert!(replica.has_metric("durward_webhooks_trusted{target=\"cluster\",kind=\"validating\"} 0"));
    let trust = |text: &str| {
        server.edit(&validating(), |object| {
            set_ca_bundle(&mut object["webhooks"][0], &[text.as_bytes().to_vec()]);
        });
    };
    trust("a");
    replica.pass().await;
    replica.assert_ready(true, &["[+]webhooks ok"]);
    trust("b");
    replica.pass().await;
    replica.assert_ready(true, &words);
    assert_eq!(server.writes(), [""; 0], "manage: none writes nothing");
}

#[tokio::test]
async fn reads_back_the_ca_bundles_of_its_entries() {
    let server = FakeServer::installed("u1");
    let mut replica = Replica::new(Manage::All, &server, None);
    let manager = |replica: Replica| WebhookManager(Arc::new(replica.shared));
    replica.pass().await;
    server.edit(&validating(), |object| {
        let others = [json!({"name": "other.example.org"}), json!({"name": "other.durward.dev"})];
        object["webhooks"].as_array_mut().unwrap().extend(others);
    });
    let manager = manager(replica);
    let Registered::Bundles(bundles) = manager.read().await else { panic!("unknown") };
    let [bundle] = bundles.as_slice() else { panic!("{bundles:?}") };
    assert_eq!(bundle.place, "webhook deletion.durward.dev of ValidatingWebhookConfiguration durward");
    assert_eq!(trust::certificates(&bundle.pem), [b"a".to_vec()]);
    let apply = "durward manifests --config durward.yaml --only webhooks | kubectl apply -f -";
    assert_eq!(bundle.apply_command, apply);
    // No guard needs this kind, so Durward has no permission on it.
    server.forbid(Method::GET, "mutatingwebhookconfigurations");
    assert!(matches!(manager.read().await, Registered::Bundles(_)));
    server.forbid(Method::GET, "validatingwebhookconfigurations");
    assert!(matches!(manager.read().await, Registered::Unknown(text) if text.contains("RBAC: verb get")));
}

#[tokio::test]
async fn reports_entries_that_it_did_not_write_and_keeps_them() {
    let server = FakeServer::installed("u1");
    let mut replica = Replica::new(Manage::All, &server, None);
    replica.pass().await;
    replica.assert_ready(true, &["[+]webhooks ok"]);
    let foreign = "durward_webhooks_foreign{target=\"cluster\",kind=\"validating\"}";
    assert!(replica.has_metric(&format!("{foreign} 0")), "{}", replica.metrics.encode());
    server.edit(&validating(), |object| {
        object["webhooks"].as_array_mut().unwrap().push(json!({"name": "x.example.org"}));
    });
    replica.pass().await;
    replica.assert_ready(true, &["has entries that Durward did not write: x.example.org"]);
    assert!(replica.has_metric(&format!("{foreign} 1")), "{}", replica.metrics.encode());
    assert_eq!(names(&server.object(&validating())), ["deletion.durward.dev", "x.example.org"]);
}

#[tokio::test]
async fn reads_a_kind_that_no_guard_needs_only_until_its_entries_are_removed() {
    let server = FakeServer::installed("u1");
    let mut replica = Replica::new(Manage::All, &server, None);
    server.forbid(Method::GET, "mutatingwebhookconfigurations");
    replica.pass().await;
    let failed = "durward_webhook_requests_failed_total{reason=\"forbidden\"}";
    assert!(!replica.metrics.encode().contains(failed), "a kind that was never needed is not read");
    server.permit();

    replica.need(|target| target.entries[1].push(entry("lxcfs")));
    replica.pass().await;
    assert_eq!(names(&server.object(&mutating())), ["lxcfs.durward.dev"]);
    replica.need(|target| target.entries[1].clear());
    replica.pass().await;
    assert_eq!(names(&server.object(&mutating())), [""; 0]);
    assert!(!replica.metrics.encode().contains("kind=\"mutating\""), "{}", replica.metrics.encode());
    server.forbid(Method::GET, "mutatingwebhookconfigurations");
    replica.pass().await;
    replica.assert_ready(true, &["[+]webhooks ok"]);
    assert!(!replica.metrics.encode().contains(failed), "the permission can be removed now");
}

#[tokio::test]
async fn inspection_finds_every_problem_and_writes_nothing() {
    let server = FakeServer::installed("u1");
    let mut replica = Replica::new(Manage::All, &server, None);
    let codes = async |replica: &Replica| {
        let needs = replica.shared.needs();
        let target = &needs.targets[0];
        let object = WebhookObject {
            needs: &needs,
            target,
            webhook_type: WebhookType::Validating,
            entries: &target.entries[0],
            client: &server.client(),
            ca: &replica.shared.ca,
        };
        let problems = object.inspect().await.unwrap().problems;
        problems.into_iter().map(|(code, _)| code).collect::<Vec<_>>()
    };
    replica.pass().await;
    assert_eq!(codes(&replica).await, [""; 0]);
    let writes = server.writes();
    server.edit(&validating(), |object| {
        object["metadata"]["labels"] = json!({});
        object["webhooks"][0]["clientConfig"]["caBundle"] = json!("");
        object["webhooks"][0]["objectSelector"] = json!({"matchLabels": {"a": "b"}});
        object["webhooks"][0]["failurePolicy"] = json!("Ignore");
        object["webhooks"][0]["rules"] = json!([]);
    });
    assert_eq!(codes(&replica).await, ["not-labeled", "ca-bundle", "not-registered", "narrowed"]);
    server.edit(&validating(), |object| {
        object["webhooks"].as_array_mut().unwrap().push(json!({"name": "x.example.org"}));
    });
    assert!(codes(&replica).await.contains(&"foreign-entry"));
    *replica.bundle.0.lock().unwrap() = None;
    server.remove(&validating());
    assert_eq!(codes(&replica).await, ["not-registered"]);
    assert_eq!(server.writes(), writes);
}
