//! The control plane of the tests is a real one, without Durward.

use e2e::binaries::Binary;
use e2e::prelude::*;

use super::environment::{common, restricted};
use crate::cases::objects::contains_all;

#[e2e::case]
fn the_api_server_reports_the_pinned_version(context: &TestContext) -> Result<()> {
    let cluster = context.cluster(&common())?;
    let version = cluster.api().get("/version")?.succeeded()?.body;
    let pinned = Binary::ApiServer.version()?;
    ensure!(version["gitVersion"] == pinned.as_str(), "expected {pinned}, and it is {version}");
    let minor = pinned.split('.').nth(1).context("no minor")?;
    ensure!(version["minor"] == minor, "expected minor {minor}, and it is {version}");
    Ok(())
}

#[e2e::case]
fn kubectl_creates_and_lists_a_pod(context: &TestContext) -> Result<()> {
    let cluster = context.cluster(&common())?;
    let shop = cluster.namespace("shop")?;
    let kubectl = cluster.kubectl();
    kubectl.run(&["-n", shop.name(), "run", "web", "--image=images.example/web:1"])?.succeeded()?;
    let pods = kubectl.get(&["-n", shop.name(), "pods"])?;
    let names: Vec<&Value> =
        pods["items"].as_array().into_iter().flatten().map(|pod| &pod["metadata"]["name"]).collect();
    ensure!(names == [&json!("web")], "expected web, and there is {names:?}");
    let absent = kubectl.run(&["-n", shop.name(), "get", "pod", "other"])?;
    absent.exited_with(1)?;
    contains_all(&absent.stderr, &["NotFound"])
}

#[e2e::case]
fn controllers_create_the_pod_of_a_deployment(context: &TestContext) -> Result<()> {
    let cluster = context.cluster(&common())?;
    let shop = cluster.namespace("shop")?;
    let admitted = shop
        .pod("web")
        .annotated("example.org/why", "test")
        .from_a_deployment()
        .is_admitted()?
        .untouched()?;
    ensure!(admitted.name().starts_with("web-"), "the name of a Deployment's pod is {}", admitted.name());
    let owner = &admitted.pod["metadata"]["ownerReferences"][0]["kind"];
    ensure!(owner == "ReplicaSet", "expected a ReplicaSet to own the pod, and it is {owner}");
    Ok(())
}

#[e2e::case]
fn the_restricted_default_denies_a_privileged_pod(context: &TestContext) -> Result<()> {
    let cluster = context.cluster(&restricted())?;
    let shop = cluster.namespace("shop")?;
    let privileged = json!({"securityContext": {"privileged": true}});
    let refused = shop
        .pod("root")
        .container_like("app", privileged.clone())
        .is_denied_with("violates PodSecurity \"restricted:latest\"")?;
    ensure!(refused.status == Some(403), "expected 403, and it is {:?}", refused.status);
    // The same pod is admitted in a namespace with another level, so the default denied it.
    let lenient =
        cluster.labelled_namespace("lenient", &[("pod-security.kubernetes.io/enforce", "privileged")])?;
    lenient.pod("root").container_like("app", privileged).is_admitted().map(drop)
}

#[e2e::case]
fn a_user_can_do_only_what_a_binding_allows(context: &TestContext) -> Result<()> {
    let cluster = context.cluster(&common())?;
    let shop = cluster.namespace("shop")?;
    let jane = cluster.user("jane", &["devs", "ops"])?;
    shop.pod("web").by(&jane).is_denied_with("User \"jane\" cannot create resource \"pods\"")?;
    // Not a built-in role: `view`, `edit` and `admin` are empty until a controller aggregates them.
    let group = "rbac.authorization.k8s.io";
    let role = json!({
        "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "Role", "metadata": {"name": "pods"},
        "rules": [{"apiGroups": [""], "resources": ["pods"], "verbs": ["create", "list"]}],
    });
    cluster.api().create(&shop.path("rbac.authorization.k8s.io/v1/roles"), &role)?.succeeded()?;
    let binding = json!({
        "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "RoleBinding", "metadata": {"name": "ops"},
        "roleRef": {"apiGroup": group, "kind": "Role", "name": "pods"},
        "subjects": [{"apiGroup": group, "kind": "Group", "name": "ops"}],
    });
    cluster.api().create(&shop.path("rbac.authorization.k8s.io/v1/rolebindings"), &binding)?.succeeded()?;
    // The authorizer learns of a new binding through a watch.
    until("the binding to count", || {
        let answer = jane.api.get(&shop.path("pods"))?;
        Ok((answer.is_success(), answer.message().to_owned()))
    })?;
    shop.pod("web").by(&jane).is_admitted()?;
    let output = jane.kubectl.run(&["get", "nodes"])?;
    output.exited_with(1)?;
    contains_all(&output.stderr, &["Forbidden"])
}

#[e2e::case]
fn two_api_servers_share_an_etcd_but_no_objects(context: &TestContext) -> Result<()> {
    let (one, other) = (context.cluster(&common())?, context.cluster(&restricted())?);
    ensure!(one.url() != other.url(), "both clusters are {}", one.url());
    let here = one.namespace("only-here")?;
    let answer = other.api().get(&format!("/api/v1/namespaces/{}", here.name()))?;
    ensure!(answer.status == 404, "both clusters have the namespace: {}", answer.body);
    Ok(())
}

#[e2e::case]
fn an_api_server_that_cannot_start_reports_why(context: &TestContext) -> Result<()> {
    let started = context.own_cluster(&Options::named("broken").flag("--no-such-flag=1"));
    let error = format!("{:#}", started.err().context("it started")?);
    contains_all(
        &error,
        &["kube-apiserver-broken", "unknown flag: --no-such-flag", "kube-apiserver-broken.log"],
    )?;
    Ok(())
}
