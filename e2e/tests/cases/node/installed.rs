//! Durward in pods of its own, asked by the API server behind a Service with a selector.

use anyhow::{Context as _, Result, ensure};
use e2e::image::Image;
use e2e::installation::Installation;
use e2e::namespace::Namespace;
use e2e::node;
use e2e::stage::Stage;
use serde_json::{Value, json};

use crate::cases::house::await_files;

/// The container's uid, as the image has it.
const NOBODY: u32 = 65_532;

pub(crate) fn two_replicas_behind_a_service_are_asked_and_free_says_what_the_limit_is(
    stage: &Stage,
) -> Result<()> {
    let node = stage.node()?;
    let image = node.image(stage, Image::Durward)?;
    let door = node.namespace("door")?;
    let service = door.service("durward")?;
    let selector = json!({"spec": {
        "selector": {"app": "durward"},
        "ports": [{"name": "https", "port": 443, "targetPort": 8443, "protocol": "TCP"}],
    }});
    node.cluster().api().merge(&format!("{}/durward", door.path("services")), &selector)?.succeeded()?;
    let mut installation = Installation::by_service(stage, node.cluster(), &service, "  lxcfs: {}")?;
    deploy(&door, &installation, image)?;
    node.stands(&door, "deployments", "durward")?;
    installation.register()?;

    let shop = node.namespace("shop")?;
    await_files(&shop)?;
    let limits = json!({"resources": {"limits": {"memory": "256Mi"}}});
    shop.pod("web")
        .annotated("durward.dev/lxcfs", "enabled")
        .container_like("app", node::idle(limits))
        .is_admitted()?
        .without_warnings()?;
    let web = node.pod(&shop, "web").is_ready()?;
    let free = web.exec("app", &["/usr/bin/free", "-m"])?;
    let total = free.lines().nth(1).and_then(|line| line.split_ascii_whitespace().nth(1));
    ensure!(total == Some("256"), "free says {free}");
    Ok(())
}

/// The files of the installation as a Secret, and a Deployment that reads them.
fn deploy(door: &Namespace<'_>, installation: &Installation<'_>, image: &str) -> Result<()> {
    let api = door.cluster().api();
    let folder = installation.config().parent().context("a configuration without a folder")?;
    let names = ["durward.yaml", "tls.crt", "tls.key", "ca.crt"];
    let files = names.iter().map(|&name| {
        let text = std::fs::read_to_string(folder.join(name)).with_context(|| name.to_owned())?;
        Ok((name.to_owned(), Value::String(text)))
    });
    let files = files.collect::<Result<serde_json::Map<_, _>>>()?;
    let secret =
        json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "durward"}, "stringData": files});
    api.create(&door.path("secrets"), &secret)?.succeeded()?;
    let labels = json!({"app": "durward"});
    let deployment = json!({
        "apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "durward"},
        "spec": {"replicas": 2, "selector": {"matchLabels": labels}, "template": {
            "metadata": {"labels": labels},
            "spec": {
                "serviceAccountName": "durward",
                "securityContext": {"runAsNonRoot": true, "runAsUser": NOBODY, "fsGroup": NOBODY},
                "containers": [{
                    "name": "durward", "image": image, "imagePullPolicy": "Never",
                    "args": ["serve", "--config", "/etc/durward/durward.yaml"],
                    "readinessProbe": {"httpGet": {"path": "/readyz", "port": 8080}, "periodSeconds": 1},
                    "volumeMounts": [{"name": "files", "mountPath": "/etc/durward", "readOnly": true}],
                }],
                "volumes": [{"name": "files", "secret": {"secretName": "durward"}}],
            },
        }},
    });
    api.create(&door.path("apps/v1/deployments"), &deployment)?.succeeded()?;
    Ok(())
}
