//! The objects of the example, with every kind of write.

use std::path::Path;

use e2e::prelude::*;

use super::{example, exclusive, guards};
use crate::cases::objects::{await_gone, contains_all};

const PATH: &str = "/apis/ecs.yun.com/v1/namespaces/default/kubernetesclusters";

/// The message of the rule about keys.
const NO_KEY: &str = "spec.privateSSHKey and spec.rootPassword are both empty; set one of them";

/// The message of the rule about changes of masters.
const MASTERS: &str = "spec.masterList can't be changed, except for its order";

#[e2e::case]
fn every_write_of_the_example_is_judged(context: &'static TestContext) -> Result<()> {
    let cluster = exclusive(context)?;
    let kubectl = cluster.kubectl();
    kubectl.run(&["apply", "-f", &example("crd.yaml")])?.succeeded()?;
    let status = r#"[{"op": "add", "path": "/spec/versions/0/subresources", "value": {"status": {}}}]"#;
    kubectl
        .run(&["patch", "crd", "kubernetesclusters.ecs.yun.com", "--type=json", "-p", status])?
        .succeeded()?;
    // An object that broke the rules before they existed.
    until("an object without rules", || {
        let output = kubectl.run(&["apply", "-f", &example("broken.yaml")])?;
        Ok((output.is_success(), output.stderr))
    })?;
    let guards = guards(&[example("policy.yaml")], "");
    let (_installation, durward) = Installation::start(context, &cluster, &guards, "durward-example")?;
    the_sample_is_denied(&cluster)?;
    every_violation_is_in_one_denial(&cluster)?;
    every_write(&cluster, &context.directory("edited")?)?;
    the_status_is_not_judged(&cluster)?;
    let outcomes = [("policy", "kubernetesclusters"), ("outcome", "deny")];
    ensure!(durward.metrics()?.sum("durward_policy_outcomes_total", &outcomes) > 9.5, "too few denials");
    kubectl.run(&["delete", "kubernetesclusters", "--all"])?.succeeded()?;
    Ok(())
}

/// Waits until the guard denies the sample, and expects the denial of each way to create it. With a key it is allowed.
pub(in crate::cases) fn the_sample_is_denied(cluster: &Cluster) -> Result<()> {
    let kubectl = cluster.kubectl();
    let sample = example("sample.yaml");
    until("the guard to deny the sample", || {
        let output = kubectl.run(&["create", "--dry-run=server", "-f", &sample])?;
        Ok((output.stderr.contains(NO_KEY), output.stderr))
    })?;
    for verb in [&["create"][..], &["apply"], &["apply", "--server-side"]] {
        let denied = kubectl.run(&[verb, &["-f", &sample]].concat())?;
        contains_all(&denied.stderr, &[&format!("denied by policy \"kubernetesclusters\": {NO_KEY}")])?;
    }
    kubectl.run(&["create", "--dry-run=server", "-f", &example("with-key.yaml")])?.succeeded().map(drop)
}

fn every_violation_is_in_one_denial(cluster: &Cluster) -> Result<()> {
    let broken = json!({
        "apiVersion": "ecs.yun.com/v1", "kind": "KubernetesCluster", "metadata": {"name": "other"},
        "spec": {"clusterType": "kubernetes", "masterList": [], "nodeList": []},
    });
    let denied = cluster.api().create(PATH, &broken)?;
    ensure!(denied.status == 422, "{} {}", denied.status, denied.body);
    contains_all(
        denied.message(),
        &["(3 violations)", "spec.masterList must begin", "spec.nodeList must begin", NO_KEY],
    )?;
    let first = denied.message().lines().next().unwrap_or_default();
    let is_short =
        first.split_once("denied the request: ").is_some_and(|(_, line)| line.chars().count() <= 160);
    ensure!(is_short, "{first}");
    Ok(())
}

/// Writes objects in every way that kubectl and controllers use.
fn every_write(cluster: &Cluster, directory: &Path) -> Result<()> {
    let (api, kubectl) = (cluster.api(), cluster.kubectl());
    let object = |masters: &[&str], key: &str| {
        let masters: Vec<Value> = masters.iter().map(|ip| json!({"ip": ip})).collect();
        json!({
            "apiVersion": "ecs.yun.com/v1", "kind": "KubernetesCluster", "metadata": {"name": "c1", "namespace": "default"},
            "spec": {"clusterType": "kubernetes", "masterList": masters, "nodeList": [{"ip": "10.0.0.9"}], "privateSSHKey": key},
        })
    };
    let one = format!("{PATH}/c1");
    kubectl.run(&["create", "-f", &example("with-key.yaml")])?.succeeded()?;
    api.apply(&one, "e2e", &object(&["10.0.0.1", "10.0.0.2"], "key"))?.succeeded()?;
    // The masters can't change, apart from their order.
    let changed = api.apply(&one, "e2e", &object(&["10.0.0.1", "10.0.0.3"], "key"))?;
    contains_all(changed.message(), &[MASTERS])?;
    let patch =
        |patch: &str| kubectl.run(&["patch", "kubernetesclusters", "c1", "--type=merge", "-p", patch]);
    contains_all(&patch(r#"{"spec": {"masterList": [{"ip": "10.0.0.1"}]}}"#)?.stderr, &[MASTERS])?;
    contains_all(&patch(r#"{"spec": {"privateSSHKey": ""}}"#)?.stderr, &[NO_KEY])?;
    patch(r#"{"spec": {"masterList": [{"ip": "10.0.0.2"}, {"ip": "10.0.0.1"}]}}"#)?.succeeded()?;
    // kubectl opens the editor again, with the reasons in the file. This editor changes nothing then, so kubectl keeps a copy and ends.
    let editor = format!("TMPDIR={} KUBE_EDITOR='sed -i s/10.0.0.1/10.0.0.7/'", directory.display());
    let edited = kubectl.shell(&format!("{editor} kubectl edit kubernetesclusters c1 -n default"))?;
    contains_all(&edited.stderr, &["\"c1\" is invalid", "Edit cancelled"])?;
    let copies: Vec<_> = std::fs::read_dir(directory)?.collect::<Result<_, _>>()?;
    let copy = std::fs::read_to_string(copies.first().context("no copy of the edited file")?.path())?;
    contains_all(&copy, &["10.0.0.7"])?;

    // An object that breaks the rules and is being deleted can lose its finalizers.
    patch(r#"{"metadata": {"finalizers": ["ecs.yun.com/machines"]}}"#)?.succeeded()?;
    kubectl.run(&["delete", "kubernetesclusters", "c1", "--wait=false"])?.succeeded()?;
    patch(r#"{"metadata": {"finalizers": null}, "spec": {"nodeList": []}}"#)?.succeeded()?;
    await_gone(cluster, &one)
}

/// The policy names no subresource, so a controller can report the status of an object that breaks the rules. It can't change the object.
fn the_status_is_not_judged(cluster: &Cluster) -> Result<()> {
    let broken = format!("{PATH}/broken");
    let status = json!({"status": {"phase": "Failed"}});
    let reported = cluster.api().merge(&format!("{broken}/status"), &status)?.succeeded()?.body;
    ensure!(reported["status"]["phase"] == "Failed", "{reported}");
    let labeled = cluster.api().merge(&broken, &json!({"metadata": {"labels": {"a": "b"}}}))?;
    contains_all(labeled.message(), &[NO_KEY])
}
