//! Namespaces whose Pod Security level refuses the volumes that the files need.

use anyhow::Result;
use e2e::installation::Installation;
use e2e::namespace::Namespace;
use e2e::pods::Pod;
use e2e::stage::Stage;
use rustix::process::Signal;
use serde_json::json;

use super::files::{Looks as _, SIX};
use super::house::{DEFAULTS, await_files, await_sentence, restricted, wanting};

const ENFORCE: &str = "pod-security.kubernetes.io/enforce";

/// A pod that wants files and that the level `restricted` has nothing against.
fn careful<'a>(namespace: &'a Namespace<'_>, name: &str) -> Pod<'a> {
    let context = json!({
        "allowPrivilegeEscalation": false, "runAsNonRoot": true,
        "capabilities": {"drop": ["ALL"]}, "seccompProfile": {"type": "RuntimeDefault"},
    });
    wanting(namespace, name).container_like("app", json!({"securityContext": context}))
}

pub(crate) fn pods_that_pod_security_would_refuse_with_files_are_admitted_without_them(
    stage: &'static Stage,
) -> Result<()> {
    let cluster = stage.cluster(&restricted())?;
    let mut installation =
        Installation::by_url(stage, &cluster, "  lxcfs: {podSecurityDefault: restricted}")?;
    let durward = installation.serve().named("durward-restricted").start_ready(stage)?;
    installation.register()?;
    let silent = cluster.namespace("silent")?;
    let lenient = cluster.labelled_namespace("lenient", &[(ENFORCE, "privileged")])?;
    await_files(&lenient)?;

    careful(&silent, "web")
        .is_admitted()?
        .left_without_files_because("podSecurityDefault restricted refuses hostPath volumes")?;
    for level in ["baseline", "restricted"] {
        let strict = cluster.labelled_namespace("strict", &[(ENFORCE, level)])?;
        careful(&strict, "web")
            .is_admitted()?
            .left_without_files_because(&format!("enforces Pod Security {level}, which refuses hostPath"))?;
    }
    careful(&lenient, "web").is_admitted()?.with_files(&SIX)?.without_warnings()?;

    // Left at its default, the option does not fit this cluster: the pod gets volumes and is refused for them.
    // So it was not the pod that the API server liked.
    installation.configure(DEFAULTS)?;
    durward.signal(Signal::HUP)?;
    await_sentence("the pod to be refused", || {
        careful(&silent, "other").as_dry_run().is_refused_with("violates PodSecurity \"restricted:latest\"")
    })?;
    Ok(())
}
