//! Durward in pods, installed with the commands of its README.

use std::path::PathBuf;

use e2e::context;
use e2e::prelude::*;

/// Creates a certificate and its Secret, applies the output of `durward manifests --image`, and waits for the pods.
/// Returns the directory with `durward.yaml` and `tls`, and the output of `kubectl apply`.
pub(crate) fn install(
    context: &TestContext,
    node: &Node,
    namespace: &Namespace<'_>,
    guards: &str,
) -> Result<(PathBuf, Output)> {
    let directory = context.directory("in-pods")?;
    let tls = directory.join("tls").display().to_string();
    let service = format!("durward.{}", namespace.name());
    Durward::command(context, &["certs", "new", "--service", &service, "--out", &tls])?.succeeded()?;
    let kubectl = node.cluster().kubectl();
    let (cert, key) = (format!("--cert={tls}/tls.crt"), format!("--key={tls}/tls.key"));
    kubectl
        .run(&["-n", namespace.name(), "create", "secret", "tls", "durward-tls", &cert, &key])?
        .succeeded()?;
    let server = json!({
        "tls": {"files": {"cert": "tls/tls.crt", "key": "tls/tls.key", "ca": "tls/ca.crt"}},
        "webhookConfiguration": {"service": {"name": "durward"}},
    });
    let header =
        format!("apiVersion: durward.dev/v1alpha1\nkind: Configuration\nnamespace: {}", namespace.name());
    let text = format!("{header}\nserver: {server}\nguards:\n{guards}\n");
    let config = context::write(&directory, "durward.yaml", &text)?.display().to_string();
    let image = node.image(context, Image::Durward)?;
    let printed = Durward::command(context, &["manifests", "--config", &config, "--image", image])?;
    let applied = kubectl.apply(&printed.succeeded()?.stdout)?.succeeded()?;
    node.await_workload(namespace, "deployments", "durward")?;
    Ok((directory, applied))
}
