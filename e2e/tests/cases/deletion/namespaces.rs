//! Resources that deny deleting a namespace, in each kind of cluster.

use e2e::prelude::*;

use super::environment::shared;
use super::objects::{await_deleted_everywhere, create, delete, deployment, exists, get, path_of, remove};
use crate::cases::events::await_events;
use crate::cases::objects::{await_gone, contains_all};

/// The user that deletes the dependents of a deleted owner.
const GARBAGE_COLLECTOR: &str = "system:serviceaccount:kube-system:generic-garbage-collector";

#[e2e::case]
fn a_running_pod_in_a_push_member_denies_the_deletion(context: &'static TestContext) -> Result<()> {
    denied_until_empty(context, "m2", "1 pod (web)", &["pods/web"], |member, shop| {
        member.make_running_pod(shop, "web")
    })
}

#[e2e::case]
fn a_running_pod_in_the_pull_member_denies_the_deletion(context: &'static TestContext) -> Result<()> {
    denied_until_empty(context, "m3", "1 pod (web)", &["pods/web"], |member, shop| {
        member.make_running_pod(shop, "web")
    })
}

#[e2e::case]
fn a_pvc_alone_denies_the_deletion(context: &'static TestContext) -> Result<()> {
    denied_until_empty(context, "m1", "1 PVC (data)", &["persistentvolumeclaims/data"], |_, shop| {
        let pvc = json!({
            "apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": {"name": "data"},
            "spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}},
        });
        create(shop, "persistentvolumeclaims", &pvc).map(drop)
    })
}

#[e2e::case]
fn a_load_balancer_denies_the_deletion_and_a_cluster_ip_does_not(
    context: &'static TestContext,
) -> Result<()> {
    denied_until_empty(context, "m3", "1 LoadBalancer Service (front)", &["services/front"], |_, shop| {
        for (name, kind) in [("front", "LoadBalancer"), ("inner", "ClusterIP")] {
            let service = json!({
                "apiVersion": "v1", "kind": "Service", "metadata": {"name": name},
                "spec": {"type": kind, "ports": [{"port": 80}]},
            });
            create(shop, "services", &service)?;
        }
        Ok(())
    })
}

#[e2e::case]
fn workloads_without_pods_deny_the_deletion(context: &'static TestContext) -> Result<()> {
    let template = json!({
        "metadata": {"labels": {"app": "idle"}},
        "spec": {"containers": [{"name": "app", "image": "images.example/app:1"}]},
    });
    let mut once = template.clone();
    once["spec"]["restartPolicy"] = json!("Never");
    let paths = [
        "apps/v1/deployments/web",
        "apps/v1/statefulsets/db",
        "apps/v1/daemonsets/agent",
        "batch/v1/jobs/later",
        "batch/v1/cronjobs/nightly",
        "apps/v1/replicasets/orphan",
        "replicationcontrollers/old",
    ];
    denied_until_empty(context, "m1", "web", &paths, |_, shop| {
        create(shop, "apps/v1/deployments", &deployment("web", 0))?;
        let selector = json!({"matchLabels": {"app": "idle"}});
        let set = json!({
            "apiVersion": "apps/v1", "kind": "StatefulSet", "metadata": {"name": "db"},
            "spec": {"replicas": 0, "serviceName": "db", "selector": selector, "template": template},
        });
        create(shop, "apps/v1/statefulsets", &set)?;
        // The cluster has no node, so the DaemonSet has no pod.
        let daemons = json!({
            "apiVersion": "apps/v1", "kind": "DaemonSet", "metadata": {"name": "agent"},
            "spec": {"selector": selector, "template": template},
        });
        create(shop, "apps/v1/daemonsets", &daemons)?;
        let job = json!({"suspend": true, "template": once});
        let suspended =
            json!({"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": "later"}, "spec": job});
        create(shop, "batch/v1/jobs", &suspended)?;
        let nightly = json!({
            "apiVersion": "batch/v1", "kind": "CronJob", "metadata": {"name": "nightly"},
            "spec": {"schedule": "0 3 * * *", "jobTemplate": {"spec": {"template": once}}},
        });
        create(shop, "batch/v1/cronjobs", &nightly)?;
        let orphan = json!({
            "apiVersion": "apps/v1", "kind": "ReplicaSet", "metadata": {"name": "orphan"},
            "spec": {"replicas": 0, "selector": selector, "template": template},
        });
        create(shop, "apps/v1/replicasets", &orphan)?;
        let old = json!({
            "apiVersion": "v1", "kind": "ReplicationController", "metadata": {"name": "old"},
            "spec": {"replicas": 0, "selector": {"app": "idle"}, "template": template},
        });
        create(shop, "replicationcontrollers", &old).map(drop)
    })
}

/// Expects a denial that names the objects while they exist, and an allowed dry run afterwards. Other cases delete an empty namespace.
fn denied_until_empty(
    context: &'static TestContext,
    name: &str,
    expected: &str,
    paths: &[&str],
    fill: impl Fn(&Member, &Namespace<'_>) -> Result<()>,
) -> Result<()> {
    let fleet = shared(context)?;
    let (shop, path) = fleet.new_namespace("shop")?;
    let member = fleet.member(name)?;
    let inside = member.existing_namespace(shop.name());
    fill(member, &inside)?;

    let denied = fleet.delete(&path)?.denied()?;
    let expected = [&format!("is still in use in member cluster {name}: "), expected];
    denied.with_message(&expected)?.with_cause(name, "InUse")?;
    exists(fleet.karmada(), &path)?;
    exists(member, &path)?;
    // The API server that was asked has the Event.
    let event = await_events(fleet.karmada(), "default", &format!("namespace/{}", shop.name()), 1)?;
    contains_all(&event.concat(), &["DeletionDenied", &format!("member cluster {name}")])?;

    // One after another: a single remaining object is enough for a denial.
    for (at, part) in paths.iter().enumerate() {
        if at > 0 {
            fleet.dry_run(&path)?.denied()?.with_cause(name, "InUse")?;
        }
        let (resource, object) = part.rsplit_once('/').unwrap_or((part, ""));
        let object = format!("{}/{object}", inside.path(resource));
        exists(member, &object)?;
        remove(member, &object)?;
        await_gone(member, &object)?;
    }
    fleet.dry_run(&path)?.allowed().map(drop)
}

#[e2e::case]
fn an_unplaced_resource_template_denies_the_deletion(context: &'static TestContext) -> Result<()> {
    let fleet = shared(context)?;
    let (shop, path) = fleet.new_namespace("shop")?;
    fleet.await_seen(&shop)?;
    let template = create(&shop, "apps/v1/deployments", &deployment("web", 0))?;
    fleet.delete(&path)?.denied()?.with_message(&["the control plane: 1 Deployment (web)"])?;
    exists(fleet.karmada(), &path)?;
    remove(fleet.karmada(), &template)?;
    fleet.delete(&path)?.allowed()?;
    await_deleted_everywhere(&fleet, &path)
}

#[e2e::case]
fn finished_pods_do_not_deny_the_deletion(context: &'static TestContext) -> Result<()> {
    let fleet = shared(context)?;
    let shop = fleet.namespace("shop")?;
    for (name, phase) in [("m1", "Succeeded"), ("m2", "Failed"), ("m3", "Succeeded")] {
        let member = fleet.member(name)?;
        member.make_pod(&member.existing_namespace(shop.name()), "done", phase)?;
    }
    fleet.await_seen(&shop)?;
    fleet.delete(&path_of(&shop))?.allowed()?.without_warnings()?;
    await_deleted_everywhere(&fleet, &path_of(&shop))
}

#[e2e::case]
fn a_namespace_in_use_everywhere_names_every_cluster(context: &'static TestContext) -> Result<()> {
    let fleet = shared(context)?;
    let (shop, path) = fleet.new_namespace("shop")?;
    create(&shop, "apps/v1/deployments", &deployment("web", 0))?;
    for member in fleet.members() {
        let inside = member.existing_namespace(shop.name());
        for number in 0..7 {
            member.make_running_pod(&inside, &format!("web-{number}"))?;
        }
    }
    let mut denied = fleet.delete(&path)?.denied()?;
    denied = denied.with_message(&[
        "in use in the control plane and 3 of 3 member clusters",
        "the control plane: 1 Deployment (web)",
    ])?;
    for name in ["m1", "m2", "m3"] {
        denied = denied
            .with_message(&[&format!("{name}: 7 pods (web-0, web-1, web-2, web-3, web-4, …)")])?
            .with_cause(name, "InUse")?;
    }
    denied.with_cause("(local)", "InUse")?.without_text(&["web-5"]).map(drop)
}

#[e2e::case]
fn a_dry_run_reports_the_usage_and_changes_nothing(context: &'static TestContext) -> Result<()> {
    let fleet = shared(context)?;
    let (shop, empty) = (fleet.namespace("shop")?, fleet.namespace("empty")?);
    let m2 = fleet.member("m2")?;
    fleet.run_pod("m2", &shop, "web")?;
    let kubectl = fleet.karmada().kubectl();
    let tried = |name: &str| kubectl.run(&["delete", "namespace", name, "--dry-run=server"]);

    let denied = tried(shop.name())?;
    ensure!(!denied.is_success(), "the dry run passed: {}", denied.stdout);
    contains_all(
        &denied.stderr,
        &["Warning: deletion: m2 has 1 pod (web)", "(Forbidden)", "denied the request"],
    )?;
    let passed = tried(empty.name())?.succeeded()?;
    let words =
        format!("namespace \"{}\" is not in use in the control plane and 3 member clusters", empty.name());
    ensure!(passed.stderr.contains(&words), "kubectl does not print {words:?}: {}", passed.stderr);

    for namespace in [&shop, &empty] {
        exists(fleet.karmada(), &path_of(namespace))?;
        for member in fleet.members() {
            exists(member, &path_of(namespace))?;
        }
    }
    exists(m2, &format!("{}/web", shop.path("pods")))
}

#[e2e::case]
fn a_terminating_namespace_can_be_deleted_again(context: &'static TestContext) -> Result<()> {
    let fleet = shared(context)?;
    let m2 = fleet.member("m2")?;
    // Karmada does not adopt an existing namespace, so this one stays in m2 with its pod.
    let karmada = fleet.karmada();
    let own = m2.namespace("older")?;
    m2.make_running_pod(&own, "web")?;
    let shop = karmada.exact_namespace(own.name(), &[])?;
    let path = path_of(&shop);
    let held = json!({"metadata": {
        "finalizers": ["example.org/held"],
        "annotations": {"durward.dev/break-glass": shop.name()},
    }});
    fleet.dry_run(&path)?.denied()?.with_cause("m2", "InUse")?;
    karmada.api().merge(&path, &held)?.succeeded()?;
    fleet.delete(&path)?.allowed()?;
    // While `spec.finalizers` is set, a second DELETE calls no webhook.
    until("only the case's finalizer to remain", || {
        let finalizers = &get(karmada, &path)?["spec"]["finalizers"];
        let left = finalizers.as_array().map_or(0, Vec::len);
        Ok((left == 0, finalizers.to_string()))
    })?;
    let without = json!({"metadata": {"annotations": {"durward.dev/break-glass": null}}});
    karmada.api().merge(&path, &without)?.succeeded()?;
    exists(m2, &format!("{}/web", own.path("pods")))?;
    fleet.delete(&path)?.allowed()?;
    karmada.api().merge(&path, &json!({"metadata": {"finalizers": null}}))?.succeeded()?;
    await_gone(karmada, &path)
}

#[e2e::case]
fn controllers_are_denied_like_users(context: &'static TestContext) -> Result<()> {
    let fleet = shared(context)?;
    let karmada: &Cluster = fleet.karmada();
    let (shop, path) = fleet.new_namespace("shop")?;
    fleet.await_seen(&shop)?;
    let m1 = fleet.member("m1")?;
    let inside = m1.existing_namespace(shop.name());
    m1.make_running_pod(&inside, "web")?;

    let groups = ["system:serviceaccounts", "system:serviceaccounts:kube-system", "system:authenticated"];
    let controller = karmada.user("system:serviceaccount:kube-system:namespace-controller", &groups)?;
    delete(&controller.api, &path)?.denied()?.with_message(&["m1: 1 pod (web)"])?;

    let roles = "/apis/rbac.authorization.k8s.io/v1/clusterroles";
    let owner = json!({
        "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole",
        "metadata": {"name": format!("owner-of-{}", shop.name())}, "rules": [],
    });
    let owner = karmada.api().create(roles, &owner)?.succeeded()?.body;
    let reference = json!({
        "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole",
        "name": owner["metadata"]["name"], "uid": owner["metadata"]["uid"],
    });
    karmada.api().merge(&path, &json!({"metadata": {"ownerReferences": [reference]}}))?.succeeded()?;
    remove(karmada, &format!("{roles}/owner-of-{}", shop.name()))?;
    eventually("the garbage collector to be denied", WAIT_LIMIT, || {
        let log = fleet.durward(Durward::log)?;
        let its = |line: &&str| line.contains(GARBAGE_COLLECTOR) && line.contains(shop.name());
        Ok(match log.lines().rfind(its) {
            Some(_) => Poll::Ready(()),
            None => Poll::Pending("no attempt yet".to_owned()),
        })
    })?;
    exists(karmada, &path)?;
    exists(m1, &path)?;

    // The garbage collector retries by itself, and now it is allowed.
    remove(m1, &format!("{}/web", inside.path("pods")))?;
    await_deleted_everywhere(&fleet, &path)
}
