//! Pods that cannot have the files, or not all of them, are admitted all the same and say why.

use anyhow::Result;
use e2e::context::TestContext;
use e2e::pods::Admitted;
use serde_json::json;

use super::files::{Looks as _, SIX, STATUS, check_mounts, check_volumes};
use super::house::{SWITCH, visit, wanting};

#[e2e::case]
fn an_unsuitable_pod_is_admitted_without_files(context: &'static TestContext) -> Result<()> {
    let house = visit(context)?;
    let shop = house.cluster.namespace("shop")?;
    let class = json!({"apiVersion": "node.k8s.io/v1", "kind": "RuntimeClass", "metadata": {"name": "kata"}, "handler": "kata"});
    house.cluster.api().create("/apis/node.k8s.io/v1/runtimeclasses", &class)?.succeeded()?;
    let reasons = [
        ("host-pid", json!({"hostPID": true}), "it has hostPID"),
        ("shared", json!({"shareProcessNamespace": true}), "it has shareProcessNamespace"),
        ("kata", json!({"runtimeClassName": "kata"}), "its runtimeClassName \"kata\" is not among"),
        ("windows", json!({"os": {"name": "windows"}}), "it runs on Windows"),
        ("windows-node", json!({"nodeSelector": {"kubernetes.io/os": "windows"}}), "it runs on Windows"),
    ];
    for (name, fields, why) in reasons {
        let pod = wanting(&shop, name).with(|pod| {
            for (key, value) in fields.as_object().into_iter().flatten() {
                pod["spec"][key] = value.clone();
            }
        });
        pod.is_admitted()?.left_without_files_because(why)?;
    }
    Ok(())
}

#[e2e::case]
fn a_pod_keeps_its_own_mount(context: &'static TestContext) -> Result<()> {
    let house = visit(context)?;
    let shop = house.cluster.namespace("shop")?;
    let own = json!({"volumeMounts": [{"name": "own", "mountPath": "/proc/meminfo", "subPath": "meminfo"}]});
    let admitted = wanting(&shop, "own")
        .container_like("app", own.clone())
        .container("side")
        .with(|pod| pod["spec"]["volumes"] = json!([{"name": "own", "emptyDir": {}}]))
        .is_admitted()?
        .with_warning("container \"app\" keeps the pod's own mount at /proc/meminfo")?;
    let others: Vec<&str> = SIX.into_iter().filter(|file| *file != "meminfo").collect();
    check_volumes(&admitted.pod, &SIX)?;
    check_mounts(&admitted.pod["spec"]["containers"][0], &others)?;
    check_mounts(&admitted.pod["spec"]["containers"][1], &SIX)?;
    let kept = &admitted.pod["spec"]["containers"][0]["volumeMounts"][0];
    anyhow::ensure!(*kept == own["volumeMounts"][0], "the pod's own mount has become {kept}");
    Ok(())
}

#[e2e::case]
fn a_copy_of_an_injected_pod_gets_nothing_twice(context: &'static TestContext) -> Result<()> {
    let house = visit(context)?;
    let shop = house.cluster.namespace("shop")?;
    let original = wanting(&shop, "original").is_admitted()?.with_files(&SIX)?;
    copy_of(&original, &shop, "copy").is_admitted()?.with_files(&SIX)?.without_warnings()?;
    // The copy has become two containers: the new one is completed, the old one is not touched.
    copy_of(&original, &shop, "grown")
        .container("more")
        .is_admitted()?
        .with_files(&SIX)?
        .without_warnings()?;
    Ok(())
}

#[e2e::case]
fn a_copied_status_annotation_does_not_prevent_injection(context: &'static TestContext) -> Result<()> {
    let house = visit(context)?;
    let shop = house.cluster.namespace("shop")?;
    let told = "app=cpuinfo,meminfo,diskstats,stat,swaps,uptime";
    for (name, status) in [("true-once", told), ("never-true", "mutated")] {
        wanting(&shop, name).annotated(STATUS, status).is_admitted()?.with_files(&SIX)?.without_warnings()?;
    }
    wanting(&shop, "deployed")
        .annotated(STATUS, "mutated")
        .from_a_deployment()
        .is_admitted()?
        .with_files(&SIX)?;
    Ok(())
}

#[e2e::case]
fn kubectl_prints_the_warnings_of_the_header(context: &'static TestContext) -> Result<()> {
    let house = visit(context)?;
    let shop = house.cluster.namespace("shop")?;
    let warning =
        "lxcfs: this pod gets no files: it has hostPID, so LXCFS would take its processes for the node's";
    let pod = |name| wanting(&shop, name).with(|pod| pod["spec"]["hostPID"] = true.into());
    let by_kubectl = pod("by-kubectl").by_kubectl_apply().is_admitted()?;
    let by_hand = pod("by-hand").is_admitted()?;
    for admitted in [by_kubectl, by_hand] {
        anyhow::ensure!(admitted.warnings == [warning], "the warnings are {:?}", admitted.warnings);
    }
    // A word that is neither yes nor no may be a misspelt no: nothing is added, and whoever wrote it learns of it.
    shop.pod("unclear")
        .annotated(SWITCH, "enable")
        .by_kubectl_apply()
        .is_admitted()?
        .left_without_files_because("annotation durward.dev/lxcfs is \"enable\"")?;
    Ok(())
}

/// The same pod again under another name, as somebody makes it who copies `kubectl get -o yaml`.
fn copy_of<'a>(
    original: &Admitted,
    shop: &'a e2e::namespace::Namespace<'_>,
    name: &str,
) -> e2e::pods::Pod<'a> {
    let copied = &original.pod;
    let (spec, annotations) = (copied["spec"].clone(), copied["metadata"]["annotations"].clone());
    shop.pod(name).with(|pod| {
        pod["spec"] = spec;
        pod["metadata"]["annotations"] = annotations;
    })
}
