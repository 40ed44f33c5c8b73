//! Follows the page [Client certificates](../../../../docs/src/operate/credentials.md): the API server shows a
//! certificate, and Durward refuses other certificates of the same CA.

use std::path::Path;

use e2e::prelude::*;
use e2e::supervisor::Tool;

use crate::cases::environment::{await_injection, eventually_ok, opted_in};
use crate::cases::pages::{block, commands};

const PAGE: &str = "operate/credentials.md";

const GUARDS: &str = "  lxcfs: {webhook: {failurePolicy: Fail}}";

/// The directory of the page.
const DIRECTORY: &str = "/etc/kubernetes/webhooks";

const TIME: Duration = Duration::from_secs(60);

/// Returns the `clientAuth` of a block of the page.
fn client_auth(heading: &str) -> Result<Value> {
    let configuration: Value = serde_saphyr::from_str(&block(PAGE, "yaml", heading)?)?;
    Ok(configuration["server"]["tls"]["clientAuth"].clone())
}

/// Makes the files of the page in this directory, with the page's commands.
fn make_files(context: &TestContext, directory: &Path) -> Result<()> {
    let path = directory.display().to_string();
    for (name, heading) in [
        ("admission.yaml", "2. Configure the API servers"),
        ("kubeconfig", "Name the certificate for Durward"),
    ] {
        let text = block(PAGE, "yaml", heading)?.replace(DIRECTORY, &path);
        e2e::context::write(directory, name, &text)?;
    }
    for command in commands(PAGE, "1. Create a CA and a client certificate")? {
        let bash = Tool::new("page", "bash").arguments(["-euo", "pipefail", "-c", &command]);
        context.supervisor()?.run(bash.directory(directory), TIME)?.succeeded()?;
    }
    Ok(())
}

#[e2e::case]
fn only_the_certificate_of_the_api_server_is_accepted(context: &'static TestContext) -> Result<()> {
    let directory = context.directory("callers")?;
    make_files(context, &directory)?;
    let flag = format!("--admission-control-config-file={}", directory.join("admission.yaml").display());
    let cluster = context.own_cluster(&Options::named("callers").with_aggregator_routing().flag(flag))?;
    let namespace = cluster.exact_namespace("durward-system", &[])?;
    let service = namespace.service("durward")?;
    let mut installation = Installation::by_service(context, &cluster, &service, GUARDS)?;
    let ca = installation.directory().join("callers-ca.crt");
    std::fs::copy(directory.join("callers-ca.crt"), ca)?;
    let files = json!({"cert": "tls.crt", "key": "tls.key", "ca": "ca.crt"});
    let tls = |client_auth: &Value| json!({"files": files, "clientAuth": client_auth});
    let refused = |durward: &Durward, reason: &str| -> Result<f64> {
        Ok(durward.metrics()?.sum("durward_handshakes_failed_total", &[("reason", reason)]))
    };
    let required = client_auth("3. Require a certificate")?;
    installation.use_tls(&tls(&required), "none", GUARDS)?;
    let durward = installation.serve().named("durward-accepts").start_ready(context)?;
    service.set_endpoint(durward.reviews())?;
    installation.register()?;
    let shop = cluster.namespace("shop")?;
    await_injection(&shop)?;
    ensure!(refused(&durward, "client_certificate")? < 0.5, "the API server shows no certificate");
    drop(durward);

    // The same CA, and another name.
    let mut other = required.clone();
    other["allowedNames"] = json!(["kubelet"]);
    installation.use_tls(&tls(&other), "none", GUARDS)?;
    let durward = installation.serve().named("durward-requires").start_ready(context)?;
    service.set_endpoint(durward.reviews())?;
    eventually_ok("the API server to be refused", || {
        opted_in(&shop, "refused").as_dry_run().is_denied_with("failed calling webhook")?;
        ensure!(refused(&durward, "other_name")? > 0.5, "no handshake was refused because of the name");
        Ok(())
    })?;
    ensure!(durward.log()?.contains("apiserver-webhooks"), "the log does not name the caller");

    // A new list of names needs no restart.
    durward.reload_after(|| installation.use_tls(&tls(&required), "none", GUARDS))?;
    await_injection(&shop)
}
