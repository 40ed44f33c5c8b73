//! Pods that cannot have all files are admitted and get a warning.

use e2e::prelude::*;

use super::environment::{OPT_IN, opted_in, shared};
use super::files::{DEFAULT_FILES, LxcfsChecks as _, STATUS, check_mounts, check_volumes};

#[e2e::case]
fn an_unsuitable_pod_is_admitted_without_files(context: &'static TestContext) -> Result<()> {
    let fixture = shared(context)?;
    let shop = fixture.cluster.namespace("shop")?;
    let class = json!({"apiVersion": "node.k8s.io/v1", "kind": "RuntimeClass", "metadata": {"name": "kata"}, "handler": "kata"});
    fixture.cluster.api().create("/apis/node.k8s.io/v1/runtimeclasses", &class)?.succeeded()?;
    let reasons = [
        ("host-pid", json!({"hostPID": true}), "hostPID is true"),
        ("shared", json!({"shareProcessNamespace": true}), "shareProcessNamespace is true"),
        ("kata", json!({"runtimeClassName": "kata"}), "runtimeClassName \"kata\" is not one of"),
        ("windows", json!({"os": {"name": "windows"}}), "it runs on Windows"),
        ("windows-node", json!({"nodeSelector": {"kubernetes.io/os": "windows"}}), "it runs on Windows"),
    ];
    for (name, fields, why) in reasons {
        let pod = opted_in(&shop, name).with(|pod| {
            for (key, value) in fields.as_object().into_iter().flatten() {
                pod["spec"][key] = value.clone();
            }
        });
        pod.is_admitted()?.skipped_because(why)?;
    }
    Ok(())
}

#[e2e::case]
fn a_pod_keeps_its_own_mount(context: &'static TestContext) -> Result<()> {
    let fixture = shared(context)?;
    let shop = fixture.cluster.namespace("shop")?;
    let own = json!({"volumeMounts": [{"name": "own", "mountPath": "/proc/meminfo", "subPath": "meminfo"}]});
    let admitted = opted_in(&shop, "own")
        .container_like("app", own.clone())
        .container("side")
        .with(|pod| pod["spec"]["volumes"] = json!([{"name": "own", "emptyDir": {}}]))
        .is_admitted()?
        .with_warning("container \"app\" already mounts /proc/meminfo")?;
    let others: Vec<&str> = DEFAULT_FILES.into_iter().filter(|file| *file != "meminfo").collect();
    check_volumes(&admitted.pod, &DEFAULT_FILES)?;
    check_mounts(&admitted.pod["spec"]["containers"][0], &others)?;
    check_mounts(&admitted.pod["spec"]["containers"][1], &DEFAULT_FILES)?;
    let kept = &admitted.pod["spec"]["containers"][0]["volumeMounts"][0];
    ensure!(*kept == own["volumeMounts"][0], "the pod's own mount has become {kept}");
    Ok(())
}

#[e2e::case]
fn a_copy_of_an_injected_pod_gets_nothing_twice(context: &'static TestContext) -> Result<()> {
    let fixture = shared(context)?;
    let shop = fixture.cluster.namespace("shop")?;
    let original = opted_in(&shop, "original").is_admitted()?.with_files(&DEFAULT_FILES)?;
    copy_of(&original, &shop, "copy").is_admitted()?.with_files(&DEFAULT_FILES)?.without_warnings()?;
    // The copy has two containers: the new one gets files, and the old one is not changed.
    copy_of(&original, &shop, "grown")
        .container("more")
        .is_admitted()?
        .with_files(&DEFAULT_FILES)?
        .without_warnings()
        .map(drop)
}

#[e2e::case]
fn a_copied_status_annotation_does_not_prevent_injection(context: &'static TestContext) -> Result<()> {
    let fixture = shared(context)?;
    let shop = fixture.cluster.namespace("shop")?;
    let text = "app=cpuinfo,meminfo,diskstats,stat,swaps,uptime";
    for (name, status) in [("true-once", text), ("never-true", "mutated")] {
        opted_in(&shop, name)
            .annotated(STATUS, status)
            .is_admitted()?
            .with_files(&DEFAULT_FILES)?
            .without_warnings()?;
    }
    opted_in(&shop, "deployed")
        .annotated(STATUS, "mutated")
        .from_a_deployment()
        .is_admitted()?
        .with_files(&DEFAULT_FILES)
        .map(drop)
}

#[e2e::case]
fn kubectl_prints_the_warnings_of_the_header(context: &'static TestContext) -> Result<()> {
    let fixture = shared(context)?;
    let shop = fixture.cluster.namespace("shop")?;
    let warning = "lxcfs: no files added: hostPID is true, so LXCFS would show values of the node";
    let pod = |name| opted_in(&shop, name).with(|pod| pod["spec"]["hostPID"] = true.into());
    let by_kubectl = pod("by-kubectl").by_kubectl_apply().is_admitted()?;
    let by_hand = pod("by-hand").is_admitted()?;
    for admitted in [by_kubectl, by_hand] {
        ensure!(admitted.warnings == [warning], "the warnings are {:?}", admitted.warnings);
    }
    // An unknown value can be a misspelled opt-out: nothing is added, and the warning names the value.
    shop.pod("unclear")
        .annotated(OPT_IN, "enable")
        .by_kubectl_apply()
        .is_admitted()?
        .skipped_because("annotation durward.dev/lxcfs=\"enable\" is not a valid value")
        .map(drop)
}

/// Returns the same pod under another name, like a copy of `kubectl get -o yaml`.
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
