//! Controllers and operators work as without the policies, with a user for each controller and with one for all.

use e2e::etcd_cluster::{self, pods};
use e2e::prelude::*;

use super::{KEYS, is_allowed};
use crate::cases::environment::eventually_ok;
use crate::cases::etcd::environment::{LABEL, Profile, guards, namespace};

#[e2e::case]
fn controllers_work_with_a_user_for_each(context: &'static TestContext) -> Result<()> {
    controllers_work(context, &Options::named("normal-life").with_every_controller())
}

#[e2e::case]
fn controllers_work_with_one_user(context: &'static TestContext) -> Result<()> {
    let options = Options::named("normal-life-one-user").with_every_controller();
    controllers_work(context, &options.controller_flag("--use-service-account-credentials=false"))
}

fn controllers_work(context: &'static TestContext, options: &Options) -> Result<()> {
    let cluster = context.own_cluster(options)?;
    // The user of all controllers has few permissions of its own.
    let user = [
        "create",
        "clusterrolebinding",
        "controllers",
        "--clusterrole=cluster-admin",
        "--user=system:kube-controller-manager",
    ];
    cluster.kubectl().run(&user)?.succeeded()?;
    let trusting = "trustedOwners: [ConfigMap]";
    let guards = guards(&[KEYS[0], trusting]);
    let (_installation, _durward) = Installation::start(context, &cluster, &guards, "durward-life")?;
    let ns = namespace(&cluster, "life", Profile::Transfer)?;
    let (api, kubectl) = (cluster.api(), cluster.kubectl());
    let path = format!("/api/v1/namespaces/{}?dryRun=All", ns.name());
    let leave = json!({"metadata": {"labels": {LABEL: null}}});
    eventually_ok("the policies", || {
        let answer = api.merge(&path, &leave)?;
        ensure!(answer.status == 403, "{}", answer.status);
        Ok(())
    })?;

    // The controller creates pods and PVCs, and its HPA, status and rollout are not denied.
    let etcd = pods::set(&ns, "etcd", 3, |template| {
        template["spec"]["containers"][0]["resources"] = json!({"requests": {"cpu": "100m"}});
    })?;
    let set = etcd.stateful_set_path();
    let pods_of = |expected: usize| {
        until(format_args!("{expected} pods"), || {
            let active = etcd.active()?;
            Ok((active.len() == expected, format!("{active:?}")))
        })
    };
    pods_of(3)?;
    etcd.set_status(
        "etcd-0",
        &json!({"status": {"phase": "Running", "podIP": etcd_cluster::address()?.to_string()}}),
    )?;
    kubectl.run(&["-n", ns.name(), "rollout", "restart", "statefulset/etcd"])?.succeeded()?;
    is_allowed(api.merge(&format!("{set}/scale"), &json!({"spec": {"replicas": 4}}))?)?;
    pods_of(4)?;
    let applied = json!({"apiVersion": "apps/v1", "kind": "StatefulSet", "metadata": {"name": "etcd"}, "spec": {"replicas": 4}});
    is_allowed(api.apply(&format!("{set}?force=true"), "helm", &applied)?)?;

    // In-place resize, and an eviction of a pod that was never scheduled.
    let more =
        json!({"spec": {"containers": [{"name": "etcd", "resources": {"requests": {"cpu": "200m"}}}]}});
    let resize = [
        "-n",
        ns.name(),
        "patch",
        "pod",
        "etcd-1",
        "--subresource=resize",
        "--type=strategic",
        "--patch",
        &more.to_string(),
    ];
    kubectl.run(&resize)?.succeeded()?;
    let eviction = json!({"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": "etcd-3"}});
    is_allowed(api.create(&format!("{}/eviction", etcd.path("etcd-3")), &eviction)?)?;

    // An autoscaler needs no metrics to bring a set within its bounds.
    let target = json!({"apiVersion": "apps/v1", "kind": "StatefulSet", "name": "etcd"});
    let autoscaler = json!({
        "apiVersion": "autoscaling/v2", "kind": "HorizontalPodAutoscaler", "metadata": {"name": "etcd"},
        "spec": {"scaleTargetRef": target, "minReplicas": 1, "maxReplicas": 3},
    });
    let autoscalers = ns.path("autoscaling/v2/horizontalpodautoscalers");
    api.create(&autoscalers, &autoscaler)?.succeeded()?;
    until("the autoscaler to scale down", || {
        let replicas = api.get(&set)?.succeeded()?.body["spec"]["replicas"].clone();
        Ok((replicas == 3, replicas.to_string()))
    })?;
    api.delete(&format!("{autoscalers}/etcd"))?.succeeded()?;
    is_allowed(api.merge(&format!("{set}/scale"), &json!({"spec": {"replicas": 4}}))?)?;

    // An operator owns its set.
    let owner = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "operator"}});
    let owner = api.create(&ns.path("configmaps"), &owner)?.succeeded()?.body;
    let reference = json!([{"apiVersion": "v1", "kind": "ConfigMap", "name": "operator", "uid": owner["metadata"]["uid"]}]);
    is_allowed(api.merge(&set, &json!({"metadata": {"ownerReferences": reference}}))?)?;
    is_allowed(api.merge(&set, &json!({"metadata": {"ownerReferences": null}}))?)?;

    // The garbage collector takes the owner of orphaned pods away, and the next set adopts them.
    api.delete_with(&set, &json!({"propagationPolicy": "Orphan"}))?.succeeded()?;
    until("the pods to be orphaned", || {
        let owners = etcd.object("etcd-0")?["metadata"]["ownerReferences"].clone();
        Ok((owners.is_null() && api.get(&set)?.status == 404, owners.to_string()))
    })?;
    let etcd = pods::set(&ns, "etcd", 4, |_| {})?;
    until("the pods to be adopted", || {
        let owners = etcd.object("etcd-0")?["metadata"]["ownerReferences"].clone();
        Ok((!owners.is_null(), owners.to_string()))
    })?;

    // The namespace is deleted with everything in it, also sets and PVCs.
    let pvc = json!({
        "apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": {"name": "data-etcd-0", "labels": {"app": "etcd"}},
        "spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}},
    });
    api.create(&ns.path("persistentvolumeclaims"), &pvc)?.succeeded()?;
    api.delete(&format!("/api/v1/namespaces/{}", ns.name()))?.succeeded()?;
    until("the namespace to be gone", || {
        let answer = api.get(&format!("/api/v1/namespaces/{}", ns.name()))?;
        Ok((answer.status == 404, answer.body["status"].to_string()))
    })
}
