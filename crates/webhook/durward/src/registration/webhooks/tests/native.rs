//! Native policies: applied beside the webhook configuration, deleted when they are not needed, and never without it.

use admission::Mode;
use guards::NativePolicy;
use k8s_openapi::api::admissionregistration::v1::ValidatingAdmissionPolicySpec;

use super::*;
use crate::registration::fake::{binding, policy};

fn native(purpose: &'static str) -> NativePolicy {
    NativePolicy { purpose, spec: ValidatingAdmissionPolicySpec::default(), mode: Mode::Enforce }
}

/// Returns a replica that needs one policy, of a guard with two.
fn replica(manage: Manage, server: &FakeServer) -> Replica {
    let replica = Replica::new(manage, server, None);
    replica.need(|target| {
        target.native = vec![native("etcd-pods")];
        target.purposes = vec!["etcd-pods", "etcd-sets"];
    });
    replica
}

fn bind(server: &FakeServer) {
    server.put(&binding("etcd-pods"), native("etcd-pods").binding());
}

fn inactive(count: usize) -> String {
    format!("durward_native_policies_inactive{{target=\"cluster\"}} {count}")
}

#[tokio::test]
async fn applies_the_needed_policies_once_and_deletes_the_others() {
    let server = FakeServer::installed("u1");
    bind(&server);
    server.put(&policy("etcd-sets"), native("etcd-sets").policy());
    let mut replica = replica(Manage::All, &server);
    replica.pass().await;
    replica.assert_ready(true, &["[+]webhooks ok"]);
    let object = server.object(&policy("etcd-pods"));
    assert_eq!(object["metadata"]["labels"]["app.kubernetes.io/managed-by"], "durward");
    let owner = &object["metadata"]["ownerReferences"][0];
    assert_eq!((&owner["kind"], &owner["uid"]), (&json!("ValidatingWebhookConfiguration"), &json!("w1")));
    assert_eq!(server.object(&policy("etcd-sets")), Value::Null);
    assert!(replica.has_metric(&inactive(0)), "{}", replica.metrics.encode());
    let writes = server.writes();
    replica.pass().await;
    assert_eq!(server.writes(), writes, "nothing has changed");
    server.edit(&policy("etcd-pods"), |object| object["spec"] = json!({"failurePolicy": "Ignore"}));
    replica.pass().await;
    assert_eq!(server.object(&policy("etcd-pods"))["spec"], json!({}));
}

#[tokio::test]
async fn creates_no_binding_and_reports_a_policy_without_one() {
    let server = FakeServer::installed("u1");
    let mut replica = replica(Manage::All, &server);
    assert_eq!(replica.pass().await, INTERVAL);
    assert_eq!(server.object(&binding("etcd-pods")), Value::Null);
    let words = ["ValidatingAdmissionPolicyBinding durward-etcd-pods doesn't exist", "--only webhooks"];
    replica.assert_ready(true, &words);
    assert!(replica.has_metric(&inactive(1)));
}

#[tokio::test]
async fn applies_no_policy_without_the_webhook_configuration_or_with_another_value_of_manage() {
    for manage in [Manage::All, Manage::CaBundle, Manage::None] {
        let server = FakeServer::installed("u1");
        bind(&server);
        if manage == Manage::All {
            server.remove(&validating());
        }
        replica(manage, &server).pass().await;
        assert_eq!(server.object(&policy("etcd-pods")), Value::Null, "{manage:?}");
    }
}

#[tokio::test]
async fn takes_over_no_policy_of_another_program() {
    let server = FakeServer::installed("u1");
    bind(&server);
    let foreign = json!({"metadata": {"name": "durward-etcd-pods"}, "spec": {"a": "b"}});
    for purpose in ["etcd-pods", "etcd-sets"] {
        server.put(&policy(purpose), foreign.clone());
    }
    let mut replica = replica(Manage::All, &server);
    replica.pass().await;
    replica.assert_ready(true, &["durward-etcd-pods lacks the label app.kubernetes.io/managed-by=durward"]);
    for purpose in ["etcd-pods", "etcd-sets"] {
        assert_eq!(server.object(&policy(purpose))["spec"], foreign["spec"]);
    }
}

#[tokio::test]
async fn a_missing_permission_is_named_unless_its_guard_was_turned_off() {
    let server = FakeServer::installed("u1");
    bind(&server);
    let mut replica = replica(Manage::All, &server);
    replica.pass().await;
    server.forbid(Method::GET, "validatingadmissionpolicies");
    assert_eq!(replica.pass().await, RETRY);
    replica.assert_ready(true, &["cannot get validatingadmissionpolicies durward-etcd-pods", "--only rbac"]);
    replica.need(|target| {
        target.native.clear();
        target.purposes.clear();
    });
    replica.pass().await;
    replica.assert_ready(true, &["[+]webhooks ok"]);
}

#[tokio::test]
async fn the_doctor_reports_policies_and_bindings_that_are_missing() {
    let server = FakeServer::installed("u1");
    let codes = async |manage| {
        let replica = replica(manage, &server);
        let (needs, client) = (replica.shared.needs(), server.client());
        let native = NativePolicies { needs: &needs, target: &needs.targets[0], client: &client };
        native.inspect().await.into_iter().map(|(code, _)| code).collect::<Vec<_>>()
    };
    assert_eq!(codes(Manage::None).await, ["policy-missing"]);
    server.put(&policy("etcd-pods"), native("etcd-pods").policy());
    assert_eq!(codes(Manage::None).await, ["binding-missing"]);
    bind(&server);
    assert_eq!(codes(Manage::None).await, [""; 0]);
    for actions in [json!(["Warn", "Audit"]), json!(["Deny"])] {
        let expected = if actions == json!(["Deny"]) { &[][..] } else { &["policy-differs"] };
        server.edit(&binding("etcd-pods"), |binding| binding["spec"]["validationActions"] = actions);
        assert_eq!(codes(Manage::All).await, expected);
    }
    // A policy of a guard that is off.
    server.put(&policy("deletion-labels"), native("deletion-labels").policy());
    assert_eq!(codes(Manage::None).await, [""; 0], "it denies nothing without a binding");
    server.put(&binding("deletion-labels"), native("deletion-labels").binding());
    assert_eq!(codes(Manage::None).await, ["policy-leftover"]);
    server.remove(&binding("deletion-labels"));
    server.forbid(Method::GET, "validatingadmissionpolicies");
    assert_eq!(codes(Manage::None).await, [""; 0], "Durward's account has no permission");
    assert_eq!(codes(Manage::All).await, ["permission"]);
}
