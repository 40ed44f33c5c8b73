//! The `ValidatingAdmissionPolicy` of `deploy/lxcfs/rbac.yaml` on a real API server: what a stolen token of
//! a pod of `durward-node label` can change.

use e2e::prelude::*;

use super::environment::restricted;

const RBAC: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../deploy/lxcfs/rbac.yaml");

const LABEL: &str = "durward.dev/lxcfs-ready";
const ANNOTATION: &str = "durward.dev/lxcfs-node";

/// Returns the account of `durward-node label` with the token of a pod on this node, or without a node.
fn stolen_token(context: &TestContext, cluster: &Cluster, node: Option<&str>) -> Result<Api> {
    let mut config: Value = serde_json::from_slice(&std::fs::read(cluster.kubectl().kubeconfig())?)?;
    let user = config["users"][0]["user"].as_object_mut().context("a kubeconfig without a user")?;
    user.insert("as".to_owned(), "system:serviceaccount:durward-lxcfs:durward-lxcfs".into());
    let extra = node.map(|node| json!({"authentication.kubernetes.io/node-name": [node]}));
    user.insert("as-user-extra".to_owned(), extra.unwrap_or_else(|| json!({})));
    context.api(&config)
}

fn expect_denied(api: &Api, path: &str, change: &Value, why: &str) -> Result<()> {
    let answer = api.merge(path, change)?;
    let message = answer.message();
    ensure!(!answer.is_success() && message.contains(why), "{path} {change} is answered: {message}");
    Ok(())
}

#[e2e::case]
fn a_node_token_can_change_only_two_keys_of_its_node(context: &'static TestContext) -> Result<()> {
    let cluster = context.cluster(&restricted())?;
    let admin = cluster.api();
    let held = json!({"finalizers": ["example.org/held"]});
    for (name, more) in [("n1", json!({})), ("n2", json!({})), ("held", held)] {
        let mut metadata = json!({"name": name, "labels": {"kept": "yes"}, "annotations": {"kept": "yes"}});
        merge(&mut metadata, &more);
        admin
            .create("/api/v1/nodes", &json!({"apiVersion": "v1", "kind": "Node", "metadata": metadata}))?
            .succeeded()?;
    }
    cluster.kubectl().run(&["apply", "-f", RBAC])?.succeeded()?;
    let (stolen_token, held) =
        (stolen_token(context, &cluster, Some("n1"))?, stolen_token(context, &cluster, Some("held"))?);
    let (own, other) = ("/api/v1/nodes/n1", "/api/v1/nodes/n2");
    let labelled = |key: &str, value: Value| json!({"metadata": {"labels": {key: value}}});
    until("the policy to be in force", || {
        let answer = stolen_token.merge(&format!("{other}?dryRun=All"), &labelled(LABEL, "true".into()))?;
        let is_refused = answer.message().contains("only the Node on which it runs");
        Ok((is_refused, answer.message().to_owned()))
    })?;

    let owner = json!({"apiVersion": "v1", "kind": "Pod", "name": "gone", "uid": "1-2-3"});
    let only = "can change only the label";
    for change in [
        labelled("shop", "x".into()),
        labelled("kept", Value::Null),
        labelled("kept", "no".into()),
        json!({"metadata": {"annotations": {"shop": "x"}}}),
        json!({"metadata": {"annotations": {"kept": null}}}),
        json!({"metadata": {"finalizers": ["example.org/hold"]}}),
        json!({"metadata": {"ownerReferences": [owner]}}),
        json!({"metadata": {"ownerReferences": [owner], "labels": {LABEL: "true"}}}),
        json!({"spec": {"unschedulable": true}}),
        json!({"spec": {"taints": [{"key": "shop", "effect": "NoExecute"}]}}),
    ] {
        expect_denied(&stolen_token, own, &change, only)?;
    }
    expect_denied(&held, "/api/v1/nodes/held", &json!({"metadata": {"finalizers": null}}), only)?;
    expect_denied(
        &stolen_token,
        other,
        &labelled(LABEL, "true".into()),
        "only the Node on which it runs (n1)",
    )?;
    let unbound = self::stolen_token(context, &cluster, None)?;
    expect_denied(&unbound, own, &labelled(LABEL, "true".into()), "only the Node on which it runs ()")?;
    // RBAC denies these without the policy.
    expect_denied(
        &stolen_token,
        &format!("{own}/status"),
        &json!({"status": {"capacity": {"x": "1"}}}),
        "cannot patch resource",
    )?;
    for answer in [stolen_token.get(own)?, stolen_token.get("/api/v1/nodes")?, stolen_token.delete(own)?] {
        ensure!(answer.message().contains("is forbidden"), "it is answered: {}", answer.message());
    }

    for (api, path) in [(&stolen_token, own), (&held, "/api/v1/nodes/held")] {
        for value in [json!("true"), Value::Null] {
            let both = json!({"metadata": {"labels": {LABEL: value}, "annotations": {ANNOTATION: value}}});
            let node = api.merge(path, &both)?.succeeded()?.body;
            let [labels, annotations] = ["labels", "annotations"].map(|map| &node["metadata"][map]);
            ensure!(labels[LABEL] == value && annotations[ANNOTATION] == value, "{node}");
            ensure!(labels["kept"] == "yes" && annotations["kept"] == "yes", "{node}");
        }
    }
    // The policy does not match other users.
    admin.merge(own, &labelled("shop", "x".into()))?.succeeded().map(drop)
}

fn merge(object: &mut Value, more: &Value) {
    for (key, value) in more.as_object().into_iter().flatten() {
        object[key] = value.clone();
    }
}
