//! Durward can be installed and removed as the other cases do it, and rejects an invalid configuration.

use e2e::context::write;
use e2e::prelude::*;

use super::environment::{DEFAULTS, scratch};

#[e2e::case]
fn a_server_with_an_invalid_configuration_exits(context: &TestContext) -> Result<()> {
    let config = write(
        &context.directory("bad")?,
        "durward.yaml",
        "apiVersion: durward.dev/v1alpha1\nkind: Configuration\nguards: {lxcsf: {}}\n",
    )?;
    let path = config.display().to_string();
    let output = Durward::command(context, &["serve", "--config", &path])?;
    output.exited_with(2)?;
    ensure!(
        output.stderr.contains("lxcsf") && output.stderr.contains("lxcfs"),
        "the output names no key: {output:?}"
    );
    Ok(())
}

#[e2e::case]
fn dropping_an_installation_removes_its_webhooks(context: &TestContext) -> Result<()> {
    let cluster = context.cluster(&scratch())?;
    let registrations = || {
        let all = cluster.kubectl().get(&["mutatingwebhookconfigurations"])?;
        anyhow::Ok(all["items"].as_array().map_or(0, Vec::len))
    };
    let mut installation = Installation::by_url(context, &cluster, DEFAULTS)?;
    // From here on this case owns the cluster: no other installation is registered.
    ensure!(registrations()? == 0, "an earlier installation was not removed");
    installation.register()?;
    ensure!(registrations()? == 1, "nothing was registered");
    drop(installation);
    let _turn = Installation::by_url(context, &cluster, DEFAULTS)?;
    ensure!(registrations()? == 0, "the registration is still there");
    Ok(())
}
