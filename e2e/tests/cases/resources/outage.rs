//! Requests while Durward can't read the API server, and while Durward is down.

use e2e::fault::Proxy;
use e2e::prelude::*;

use super::reload::tier;
use super::{exclusive, file, guards, policy};
use crate::cases::objects::contains_all;

/// Time without an API server. Cached Namespaces answer for 55 s after the first failure.
const AWAY: Duration = Duration::from_secs(45);

#[e2e::case]
fn a_namespace_that_cannot_be_read_is_stated(context: &'static TestContext) -> Result<()> {
    without_api_server(context, Duration::ZERO)
}

#[e2e::case(Soak)]
fn cached_namespaces_answer_for_45_s_without_the_api_server(context: &'static TestContext) -> Result<()> {
    without_api_server(context, AWAY)
}

/// Durward reads through a proxy, which ends after the first reads.
fn without_api_server(context: &'static TestContext, away: Duration) -> Result<()> {
    let cluster = exclusive(context)?;
    let directory = context.directory("resources-away")?;
    let paths = [file(&directory, "tier.yaml", &tier("configmaps", "Deny"))?];
    let mut installation = Installation::by_url(context, &cluster, &guards(&paths, ""))?;
    let proxy = Proxy::before(cluster.url(), cluster.ca())?;
    installation.use_cluster_url(&proxy.url())?;
    let known = cluster.namespace("known")?;
    let frozen = cluster.labelled_namespace("frozen", &[("tier", "frozen")])?;
    let durward = installation.serve().named("durward-away").start_ready(context)?;
    installation.register()?;
    let config_map = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a"}});
    let create = |namespace: &Namespace<'_>| {
        cluster.api().create(&format!("{}?dryRun=All", namespace.path("configmaps")), &config_map)
    };
    let is_frozen = || {
        let text = create(&frozen)?.message().to_owned();
        Ok::<_, anyhow::Error>((text.contains("the namespace is frozen"), text))
    };
    until("the guard to deny", is_frozen)?;
    create(&known)?.succeeded()?;

    drop(proxy);
    let unknown = cluster.namespace("unknown")?;
    std::thread::sleep(away);
    create(&known)?.succeeded().context("a known namespace")?;
    let (denied, text) = is_frozen()?;
    ensure!(denied, "a known namespace: {text}");
    let answer = create(&unknown)?;
    ensure!(answer.status == 403, "{}: {}", answer.status, answer.body);
    contains_all(
        answer.message(),
        &["policy \"tier\"", &format!("namespace \"{}\" could not be read", unknown.name())],
    )?;
    let count =
        durward.metrics()?.sum("durward_unknown_total", &[("guard", "resources"), ("cause", "unreachable")]);
    ensure!(count > 0.5, "the metric does not count it");
    Ok(())
}

/// The entries are as strict as the policies: `Fail` denies and `Ignore` allows while Durward is down.
#[e2e::case]
fn the_failure_policy_of_each_policy_decides_while_durward_is_down(
    context: &'static TestContext,
) -> Result<()> {
    let cluster = exclusive(context)?;
    let directory = context.directory("resources-down")?;
    let closed = policy("closed", "secrets", "Deny", "has(object.data)", "closed");
    let open = policy("open", "configmaps", "Deny", "has(object.data)", "open").replacen(
        "\"spec\":{",
        "\"spec\":{\"failurePolicy\":\"Ignore\",",
        1,
    );
    let paths = [file(&directory, "closed.yaml", &closed)?, file(&directory, "open.yaml", &open)?];
    let (_installation, durward) =
        Installation::start(context, &cluster, &guards(&paths, ""), "durward-down")?;
    let shop = cluster.namespace("shop")?;
    let create = |kind: &str, plural: &str| {
        let object = json!({"apiVersion": "v1", "kind": kind, "metadata": {"name": "a"}});
        cluster.api().create(&format!("{}?dryRun=All", shop.path(plural)), &object)
    };
    for (kind, plural, message) in [("Secret", "secrets", "closed"), ("ConfigMap", "configmaps", "open")] {
        until(format_args!("{plural} to be denied"), || {
            let text = create(kind, plural)?.message().to_owned();
            Ok((text.contains(&format!("denied by policy \"{message}\"")), text))
        })?;
    }
    drop(durward);
    contains_all(
        create("Secret", "secrets")?.message(),
        &["failed calling webhook \"resources-fail.durward.dev\""],
    )?;
    create("ConfigMap", "configmaps")?.succeeded().map(drop)
}
