//! Durward in pods with a certificate of files and webhook configurations that an administrator applies.

use std::path::PathBuf;

use e2e::context;
use e2e::prelude::*;

/// Creates a certificate and its Secret, installs the chart, waits for the pods, and applies the output of `durward manifests --only
/// webhooks`. Returns the directory with `durward.yaml` and `tls`.
pub(crate) fn install(
    context: &TestContext,
    node: &Node,
    namespace: &Namespace<'_>,
    guards: &str,
) -> Result<PathBuf> {
    let directory = context.directory("in-pods")?;
    let tls = directory.join("tls").display().to_string();
    let home = namespace.name();
    let service = format!("durward.{home}");
    Durward::command(context, &["certs", "new", "--service", &service, "--out", &tls])?.succeeded()?;
    let kubectl = node.cluster().kubectl();
    let (cert, key) = (format!("--cert={tls}/tls.crt"), format!("--key={tls}/tls.key"));
    kubectl.run(&["-n", home, "create", "secret", "tls", "durward-tls", &cert, &key])?.succeeded()?;
    node.image(context, Image::Durward)?;
    let helm = Helm::of(context, node.cluster())?;
    helm.install(home, &values(guards)?)?.succeeded()?;
    let map =
        node.cluster().api().get(&format!("{}/durward", namespace.path("configmaps")))?.succeeded()?.body;
    let text = map["data"]["durward.yaml"].as_str().context("the ConfigMap has no durward.yaml")?;
    let config = context::write(&directory, "durward.yaml", text)?.display().to_string();
    let printed = Durward::command(context, &["manifests", "--config", &config, "--only", "webhooks"])?;
    kubectl.apply(&printed.succeeded()?.stdout)?.succeeded()?;
    Ok(directory)
}

fn values(guards: &str) -> Result<Value> {
    let guards: Value =
        serde_saphyr::from_str(guards).map_err(|error| anyhow::anyhow!("{error}: {guards}"))?;
    let files = json!({"cert": "tls/tls.crt", "key": "tls/tls.key", "ca": "tls/ca.crt"});
    let (name, tag) = Image::Durward.name().rsplit_once(':').context("an image without a tag")?;
    Ok(json!({
        "image": {"repository": name, "tag": tag, "pullPolicy": "Never"},
        "config": {
            "server": {"tls": {"selfManaged": null, "files": files}, "webhookConfiguration": {"manage": "none"}},
            "guards": guards,
        },
        "extraVolumes": [{"name": "tls", "secret": {"secretName": "durward-tls", "defaultMode": 0o440}}],
        "extraVolumeMounts": [{"name": "tls", "mountPath": "/etc/durward/tls", "readOnly": true}],
    }))
}
