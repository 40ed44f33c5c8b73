//! The objects of the example, with every kind of write.

use e2e::prelude::*;

use super::{example, guards};
use crate::cases::objects::contains_all;

const PATH: &str = "/apis/ecs.yun.com/v1/namespaces/default/kubernetesclusters";

/// The message of the rule about keys.
const NO_KEY: &str = "spec.privateSSHKey and spec.rootPassword are both empty; set one of them";

#[e2e::case]
fn the_example_is_denied_and_allowed_as_its_rules_say(context: &'static TestContext) -> Result<()> {
    for versions in ["", ", webhook: {admissionReviewVersions: [v1beta1]}"] {
        let cluster = context.cluster(&Options::named("resources-example"))?;
        let kubectl = cluster.kubectl();
        kubectl.run(&["apply", "-f", &example("crd.yaml")])?.succeeded()?;
        let guards = guards(&[example("policy.yaml")], versions);
        let (_installation, durward) = Installation::start(context, &cluster, &guards, "durward-example")?;
        let sample = example("sample.yaml");
        until("the guard to deny the sample", || {
            let output = kubectl.run(&["create", "--dry-run=server", "-f", &sample])?;
            Ok((output.stderr.contains(NO_KEY), output.stderr))
        })?;
        let denied = kubectl.run(&["create", "-f", &sample])?;
        contains_all(
            &denied.stderr,
            &["\"test-cluster\" is invalid: ", &format!("denied by policy \"kubernetesclusters\": {NO_KEY}")],
        )?;
        every_write(&cluster)?;
        let outcomes = [("policy", "kubernetesclusters"), ("outcome", "deny")];
        ensure!(durward.metrics()?.sum("durward_policy_outcomes_total", &outcomes) > 5.0, "too few denials");
        kubectl.run(&["delete", "kubernetesclusters", "--all"])?.succeeded()?;
    }
    Ok(())
}

/// Writes objects in every way that kubectl and controllers use.
fn every_write(cluster: &Cluster) -> Result<()> {
    let (api, kubectl) = (cluster.api(), cluster.kubectl());
    let object = |masters: &[&str], key: &str| {
        let masters: Vec<Value> = masters.iter().map(|ip| json!({"ip": ip})).collect();
        json!({
            "apiVersion": "ecs.yun.com/v1", "kind": "KubernetesCluster", "metadata": {"name": "c1", "namespace": "default"},
            "spec": {"clusterType": "kubernetes", "masterList": masters, "nodeList": [{"ip": "10.0.0.9"}], "privateSSHKey": key},
        })
    };
    let one = format!("{PATH}/c1");
    // All violations of one object are in one denial.
    let broken = json!({
        "apiVersion": "ecs.yun.com/v1", "kind": "KubernetesCluster", "metadata": {"name": "broken", "namespace": "default"},
        "spec": {"clusterType": "kubernetes", "masterList": [], "nodeList": []},
    });
    let denied = api.create(PATH, &broken)?;
    ensure!(denied.status == 422, "{} {}", denied.status, denied.body);
    contains_all(
        denied.message(),
        &["(3 violations)", "spec.masterList must begin", "spec.nodeList must begin", NO_KEY],
    )?;
    let first = denied.message().lines().next().unwrap_or_default().to_owned();
    ensure!(
        first.split_once("denied the request: ").is_some_and(|(_, line)| line.chars().count() <= 160),
        "{first}"
    );

    kubectl.run(&["create", "-f", &example("with-key.yaml")])?.succeeded()?;
    api.apply(&one, "e2e", &object(&["10.0.0.1", "10.0.0.2"], "key"))?.succeeded()?;
    // The masters can't change, apart from their order.
    let changed = api.apply(&one, "e2e", &object(&["10.0.0.1", "10.0.0.3"], "key"))?;
    contains_all(changed.message(), &["spec.masterList can't be changed, except for its order"])?;
    let patch =
        |patch: &str| kubectl.run(&["patch", "kubernetesclusters", "c1", "--type=merge", "-p", patch]);
    let denied = patch(r#"{"spec": {"masterList": [{"ip": "10.0.0.1"}]}}"#)?;
    contains_all(&denied.stderr, &["spec.masterList can't be changed"])?;
    contains_all(&patch(r#"{"spec": {"privateSSHKey": ""}}"#)?.stderr, &[NO_KEY])?;
    patch(r#"{"spec": {"masterList": [{"ip": "10.0.0.2"}, {"ip": "10.0.0.1"}]}}"#)?.succeeded()?;
    let edited = kubectl
        .shell("KUBE_EDITOR='sed -i s/10.0.0.1/10.0.0.7/' kubectl edit kubernetesclusters c1 -n default")?;
    contains_all(&format!("{}{}", edited.stdout, edited.stderr), &["spec.masterList can't be changed"])?;

    // An object that breaks the rules and is being deleted can lose its finalizers.
    patch(r#"{"metadata": {"finalizers": ["ecs.yun.com/machines"]}}"#)?.succeeded()?;
    kubectl.run(&["delete", "kubernetesclusters", "c1", "--wait=false"])?.succeeded()?;
    patch(r#"{"metadata": {"finalizers": null}, "spec": {"nodeList": []}}"#)?.succeeded()?;
    until("the object to be gone", || {
        let status = api.get(&one)?.status;
        Ok((status == 404, status.to_string()))
    })
}
