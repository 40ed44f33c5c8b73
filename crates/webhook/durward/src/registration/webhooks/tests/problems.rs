//! Objects that other clients changed or deleted, missing permissions, and an API server that does not answer: check, metric and
//! the command that fixes it.

use super::*;

#[tokio::test]
async fn each_missing_permission_is_named_with_the_command_that_grants_it() {
    let validating = "validatingwebhookconfigurations";
    for (method, path, verb, object) in [
        (Method::GET, validating, "get", "validatingwebhookconfigurations durward"),
        (Method::PATCH, validating, "patch", "validatingwebhookconfigurations durward"),
        (Method::GET, "/namespaces/durward-system", "get", "namespaces durward-system"),
    ] {
        let server = FakeServer::installed("u1");
        server.forbid(method, path);
        let mut replica = Replica::new(Manage::All, &server, None);
        replica.pass().await;
        let (_, text) = replica.readiness();
        let cannot = format!("cannot {verb} {object}: Durward is not permitted to {verb} ");
        let fix = "durward manifests --config durward.yaml --only rbac | kubectl apply -f -";
        assert!(text.contains(&cannot) && text.contains(fix), "{text}");
        let failed = "durward_webhook_requests_failed_total{reason=\"forbidden\"} ";
        assert!(replica.metrics.encode().contains(failed), "{verb} {object}");
    }
}

#[tokio::test]
async fn a_permission_in_the_cluster_of_durward_is_granted_there() {
    for (is_home, kubectl) in
        [(true, "| kubectl apply"), (false, "| kubectl --kubeconfig karmada-admin.config apply")]
    {
        let (karmada, home) = (FakeServer::installed("u2"), FakeServer::installed("u1"));
        let failing = if is_home { &home } else { &karmada };
        failing.forbid(Method::GET, "/namespaces/durward-system");
        let mut replica = Replica::new(Manage::All, &karmada, Some(&home));
        replica.pass().await;
        let (_, text) = replica.readiness();
        let line = text.lines().find(|line| line.contains("cannot get namespaces")).unwrap_or_default();
        assert!(line.contains(kubectl), "{text}");
    }
}

#[tokio::test]
async fn an_api_server_that_does_not_answer_keeps_only_a_new_server_unready() {
    let server = FakeServer::installed("u1");
    server.stop();
    let mut replica = Replica::new(Manage::All, &server, None);
    replica.pass().await;
    let words = [
        "cannot get validatingwebhookconfigurations durward: the API server cannot answer now (503",
        "Durward tries again; check the API server",
        "kubectl get --raw /readyz",
    ];
    replica.assert_ready(false, &words);
    server.start();
    replica.pass().await;
    replica.assert_ready(true, &["[+]webhooks ok"]);
    server.stop();
    replica.pass().await;
    replica.assert_ready(true, &words);
    assert!(
        replica.metrics.encode().contains("durward_webhook_requests_failed_total{reason=\"unreachable\"} ")
    );
    assert!(
        replica.has_metric("durward_webhooks_trusted{target=\"cluster\",kind=\"validating\"} 1"),
        "the last known state"
    );
}

#[tokio::test]
async fn a_configuration_that_is_deleted_later_is_reported_and_makes_no_server_unready() {
    let server = FakeServer::installed("u1");
    let mut replica = Replica::new(Manage::All, &server, None);
    replica.pass().await;
    server.remove(&validating());
    replica.pass().await;
    replica.assert_ready(
        true,
        &["[!]webhooks: ValidatingWebhookConfiguration durward doesn't exist", "create it: "],
    );
    let metrics = replica.metrics.encode();
    assert!(
        metrics.contains("durward_webhooks_registered{target=\"cluster\",kind=\"validating\"} 0"),
        "{metrics}"
    );
    assert!(!metrics.contains("durward_webhooks_trusted{"), "{metrics}");
}

#[tokio::test]
async fn reports_fields_that_differ_if_it_cannot_restore_them() {
    for manage in [Manage::All, Manage::CaBundle, Manage::None] {
        let server = FakeServer::installed("u1");
        Replica::new(Manage::All, &server, None).pass().await;
        server.forbid(Method::PATCH, "webhook");
        server.edit(&validating(), |object| object["webhooks"][0]["failurePolicy"] = "Ignore".into());
        let mut replica = Replica::new(manage, &server, None);
        replica.pass().await;
        let fix = if manage == Manage::All {
            "Durward restores it within a minute; if not, read its log: kubectl -n durward-system logs deploy/durward"
        } else {
            "replace it: durward manifests --config durward.yaml --only webhooks | kubectl replace -f -"
        };
        let words = [
            "failurePolicy of deletion.durward.dev in ValidatingWebhookConfiguration durward differs",
            "may call Durward for fewer requests",
            fix,
        ];
        replica.assert_ready(true, &words);
        let metric =
            |value| format!("durward_webhooks_narrowed{{target=\"cluster\",kind=\"validating\"}} {value}");
        assert!(replica.has_metric(&metric(1)), "{manage:?}");
        server.edit(&validating(), |object| object["webhooks"][0]["failurePolicy"] = "Fail".into());
        replica.pass().await;
        assert!(replica.has_metric(&metric(0)), "{manage:?}");
    }
}

#[tokio::test]
async fn a_server_whose_ca_was_unknown_was_not_ready_yet() {
    // The Secret of a new installation is empty at the first pass.
    let server = FakeServer::installed("u1");
    server.edit(&validating(), |object| object["webhooks"] = json!([entry("deletion")]));
    let mut replica = Replica::new(Manage::None, &server, None);
    *replica.bundle.0.lock().unwrap() = None;
    replica.pass().await;
    replica.assert_ready(false, &["[-]webhooks failed", "cannot get the Secret"]);
    *replica.bundle.0.lock().unwrap() = Some("a");
    replica.pass().await;
    replica.assert_ready(false, &["lacks the CA of Durward's certificate"]);
}

#[tokio::test]
async fn a_server_whose_ca_file_is_missing_was_ready() {
    let server = FakeServer::installed("u1");
    server.edit(&validating(), |object| object["webhooks"] = json!([entry("deletion")]));
    let mut replica = Replica::new(Manage::All, &server, None);
    replica.shared.ca = CaSource::missing_file();
    replica.pass().await;
    replica.assert_ready(true, &["[!]webhooks: "]);
    server.forbid(Method::GET, "validatingwebhookconfigurations");
    replica.pass().await;
    replica.assert_ready(true, &["[!]webhooks: cannot get validatingwebhookconfigurations durward"]);
}

#[tokio::test]
async fn a_missing_permission_is_named_and_makes_no_ready_server_unready() {
    let server = FakeServer::installed("u1");
    server.forbid(Method::GET, "validatingwebhookconfigurations");
    let mut replica = Replica::new(Manage::All, &server, None);
    replica.pass().await;
    let words = ["cannot get validatingwebhookconfigurations durward", "RBAC: verb get", "--only rbac"];
    replica.assert_ready(false, &words);
    server.permit();
    replica.pass().await;
    replica.assert_ready(true, &["[+]webhooks ok"]);
    server.forbid(Method::GET, "validatingwebhookconfigurations");
    replica.pass().await;
    replica.assert_ready(true, &words);
    assert!(replica.has_metric("durward_webhook_requests_failed_total{reason=\"forbidden\"} 2"));

    server.permit();
    server.forbid(Method::PATCH, "validatingwebhookconfigurations");
    server.edit(&validating(), |object| object["webhooks"] = json!([]));
    replica.pass().await;
    replica.assert_ready(true, &["cannot patch validatingwebhookconfigurations durward", "RBAC: verb patch"]);
}
