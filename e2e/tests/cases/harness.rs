//! The harness itself: its assertions accept and reject what they should.

use e2e::prelude::*;
use e2e::third_party::Webhook;

use super::environment::common;

#[e2e::case]
fn every_way_to_create_a_pod_returns_that_pod(context: &TestContext) -> Result<()> {
    let cluster = context.cluster(&common())?;
    let shop = cluster.namespace("shop")?;
    let mounted = json!({"volumeMounts": [{"name": "v", "mountPath": "/v"}]});
    let pod = |name| {
        shop.pod(name)
            .annotated("example.org/a", "1")
            .labelled("example.org/b", "2")
            .container("plain")
            .container_like("mounted", mounted.clone())
            .with(|pod| pod["spec"]["volumes"] = json!([{"name": "v", "emptyDir": {}}]))
    };
    let pods = [
        pod("posted"),
        pod("generated").with_generated_name(),
        pod("applied").by_kubectl_apply(),
        pod("applied-there").by_server_side_apply(),
        pod("deployed").from_a_deployment(),
    ];
    for pod in pods {
        let admitted = pod
            .is_admitted()?
            .untouched()?
            .without_warnings()?
            .with_annotation("example.org/a", "1")?
            .without_annotation("example.org/z")?
            .with_field("/metadata/labels/example.org~1b", &json!("2"))?
            .with_mounts_in("plain", &[])?
            .with_mounts_in("mounted", &["/v"])?;
        let stored = cluster.api().get(&format!("{}/{}", shop.path("pods"), admitted.name()))?.succeeded()?;
        let is_same = stored.body["metadata"]["uid"] == admitted.pod["metadata"]["uid"];
        ensure!(is_same, "{} is another pod", admitted.name());
        ensure!(admitted.with_mounts(&["/v"]).is_err(), "a look that should fail does not");
    }
    let warned = shop
        .pod("warned")
        .with(|pod| pod["spec"]["nodeSelector"] = json!({"beta.kubernetes.io/os": "linux"}));
    warned.clone().as_dry_run().is_admitted()?.with_warning("beta.kubernetes.io/os")?;
    warned.by_kubectl_apply().is_admitted()?.with_warning("beta.kubernetes.io/os").map(drop)
}

#[e2e::case]
fn a_dry_run_stores_nothing(context: &TestContext) -> Result<()> {
    let cluster = context.cluster(&common())?;
    let shop = cluster.namespace("shop")?;
    shop.pod("a").as_dry_run().is_admitted()?;
    shop.pod("b").by_kubectl_apply().as_dry_run().is_admitted()?;
    shop.pod("c").by_server_side_apply().as_dry_run().is_admitted()?;
    let pods = cluster.api().get(&shop.path("pods"))?.succeeded()?.body;
    ensure!(pods["items"] == json!([]), "dry runs stored {}", pods["items"]);
    Ok(())
}

#[e2e::case]
fn another_webhook_is_called_at_its_address(context: &TestContext) -> Result<()> {
    let cluster = context.cluster(&common())?;
    let shop = cluster.labelled_namespace("shop", &[("foreign", "by-address")])?;
    let webhook = Webhook::start([127, 0, 0, 1], &[], |_| vec![annotate("by-address")])?;
    register(&cluster, &webhook.registration("by-address", ("foreign", "by-address")))?;
    await_annotation(&shop, "by-address")?;
    let names: Vec<Value> = webhook.requests().iter().map(|request| request["namespace"].clone()).collect();
    ensure!(!names.is_empty() && names.iter().all(|name| name == shop.name()), "it reviewed {names:?}");
    let pod = shop.pod("web").is_admitted()?.with_annotation("foreign", "by-address")?;
    ensure!(pod.untouched().is_err(), "a pod that a webhook changed counts as unchanged");
    Ok(())
}

#[e2e::case]
fn another_webhook_is_called_through_a_service(context: &TestContext) -> Result<()> {
    let cluster = context.cluster(&common())?;
    let shop = cluster.labelled_namespace("shop", &[("foreign", "by-service")])?;
    let service = shop.service("hook")?;
    let host = service.host();
    let address = context.address()?;
    let old = Webhook::start(address, &[&host], |_| vec![annotate("old")])?;
    service.set_endpoint(old.address())?;
    let registration =
        old.service_registration("by-service", ("foreign", "by-service"), (shop.name(), "hook"));
    register(&cluster, &registration)?;
    await_annotation(&shop, "old")?;

    let new = Webhook::start(address, &[&host], |_| vec![annotate("new")])?;
    service.set_endpoint(new.address())?;
    let answer = new.service_registration("by-service", ("foreign", "by-service"), (shop.name(), "hook"));
    let path = "/apis/admissionregistration.k8s.io/v1/mutatingwebhookconfigurations/by-service";
    cluster.api().merge(path, &json!({"webhooks": answer["webhooks"]}))?.succeeded()?;
    await_annotation(&shop, "new")
}

#[e2e::case]
fn the_api_server_counts_calls_to_a_missing_webhook(context: &TestContext) -> Result<()> {
    let cluster = context.cluster(&common())?;
    let shop = cluster.labelled_namespace("shop", &[("foreign", "gone")])?;
    let webhook = Webhook::start([127, 0, 0, 1], &[], |_| vec![annotate("here")])?;
    register(&cluster, &webhook.registration("gone", ("foreign", "gone")))?;
    await_annotation(&shop, "here")?;
    let failed = |labels: &[(&str, &str)]| {
        cluster.metrics().map(|metrics| metrics.sum("apiserver_admission_webhook_rejection_count", labels))
    };
    let labels = [("name", "gone.foreign.example"), ("error_type", "calling_webhook_error")];
    ensure!(failed(&labels)? < 0.5, "calls failed before the webhook was stopped");

    let unreachable = json!({"webhooks": [{"name": "gone.foreign.example", "clientConfig": {"url": "https://127.0.0.1:1/"},
        "admissionReviewVersions": ["v1"], "sideEffects": "None",
        "namespaceSelector": {"matchLabels": {"foreign": "gone"}},
        "rules": [{"apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["pods"]}]}]});
    let path = "/apis/admissionregistration.k8s.io/v1/mutatingwebhookconfigurations/gone";
    cluster.api().merge(path, &unreachable)?.succeeded()?;
    eventually("a pod to be denied", WAIT_LIMIT, || {
        let pod = shop.pod("web").as_dry_run();
        Ok(match pod.is_denied_with("failed calling webhook") {
            Ok(refused) => Poll::Ready(refused),
            Err(error) => Poll::Pending(format!("{error:#}")),
        })
    })?;
    ensure!(failed(&labels)? > 0.5, "a call failed without a counter");
    Ok(())
}

fn register(cluster: &Cluster, configuration: &Value) -> Result<()> {
    let path = "/apis/admissionregistration.k8s.io/v1/mutatingwebhookconfigurations";
    cluster.api().create(path, configuration)?.succeeded().map(drop)
}

fn annotate(value: &str) -> Value {
    json!({"op": "add", "path": "/metadata/annotations", "value": {"foreign": value}})
}

fn await_annotation(namespace: &Namespace<'_>, value: &str) -> Result<()> {
    until(format_args!("the webhook to annotate pods with {value}"), || {
        let admitted = namespace.pod("probe").as_dry_run().is_admitted()?;
        let has = admitted.pod["metadata"]["annotations"]["foreign"].clone();
        Ok((has == value, has.to_string()))
    })
}
