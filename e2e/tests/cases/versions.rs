//! Every guard with API servers of other versions. All other cases run with the default version. `make parity` runs these.

use e2e::audit::AuditLog;
use e2e::binaries::Binary;
use e2e::etcd_cluster::EtcdCluster;
use e2e::prelude::*;

use super::chart::configurations::make_namespaces;
use super::chart::rendering::accepts_every_configuration;
use super::deletion::configuration::only_labeled_namespaces_are_guarded;
use super::environment::{await_injection, eventually_ok, opted_in};
use super::etcd::environment::{Profile, await_guard, guards, namespace};
use super::etcd::quorum::{each_can_be_deleted, only_a_stopped_member_can_be_deleted};
use super::native_policies::KEYS;
use super::native_policies::objects::{namespaces_are_kept, pods_are_kept, sets_are_kept};
use super::native_policies::turned_off::policies_are_turned_off;
use super::resources;

/// The guards besides `etcd` and `resources`.
const OTHERS: &str =
    "  deletion: {fleet: none, scope: labeled}\n  lxcfs: {onUnknown: deny, webhook: {failurePolicy: Fail}}";

#[e2e::case(Soak)]
fn every_guard_works_with_api_server_1_31(context: &'static TestContext) -> Result<()> {
    every_guard_works(context, Binary::ApiServer131)
}

#[e2e::case(Soak)]
fn every_guard_works_with_api_server_1_33(context: &'static TestContext) -> Result<()> {
    every_guard_works(context, Binary::ApiServer133)
}

#[e2e::case(Soak)]
fn every_guard_works_with_api_server_1_37(context: &'static TestContext) -> Result<()> {
    every_guard_works(context, Binary::ApiServer137)
}

/// The policies are inert within two seconds, with each API server.
#[e2e::case(Soak)]
fn the_policies_are_turned_off_with_every_api_server(context: &'static TestContext) -> Result<()> {
    for api_server in [Binary::ApiServer131, Binary::ApiServer133, Binary::ApiServer137] {
        let options = Options::named(&format!("off-{}", api_server.version()?)).with_api_server(api_server);
        let cluster = context.own_cluster(&options.with_controllers())?;
        policies_are_turned_off(context, &cluster, &["Background", "Orphan"])?;
    }
    Ok(())
}

/// Installs Durward with exactly the permissions that it prints. Durward fills its webhook configurations and creates its certificate.
/// Each guard allows and denies.
fn every_guard_works(context: &'static TestContext, api_server: Binary) -> Result<()> {
    let version = api_server.version()?;
    let audit = AuditLog::new(context)?;
    let options = Options::named(&format!("kubernetes-{version}")).with_api_server(api_server);
    let cluster = context.own_cluster(&audit.options(options))?;
    let served = cluster.api().get("/version")?.succeeded()?.body;
    ensure!(served["gitVersion"] == version, "the API server is {served}");
    make_namespaces(&cluster)?;
    accepts_every_configuration(context, &cluster)?;

    let policy = resources::guards(&[resources::example("policy.yaml")], "");
    let guards = format!("{}\n{OTHERS}\n{policy}", guards(&KEYS));
    let mut installation = Installation::by_url(context, &cluster, &guards)?;
    let mut webhooks = strictly_validated(&installation, &cluster)?;
    webhooks.retain(|one| one["kind"].as_str().is_some_and(|kind| kind.ends_with("WebhookConfiguration")));
    ensure!(webhooks.len() == 2, "{webhooks:?}");
    installation.use_tls(&json!({"selfManaged": {}}), "all", &guards)?;
    installation.create_ca_secret()?;
    let durward = installation.serve().named("durward-versions").start_ready(context)?;
    installation.register()?;
    webhooks.iter().try_for_each(|expected| await_filled(&cluster, expected))?;

    cluster.kubectl().run(&["apply", "-f", &resources::example("crd.yaml")])?.succeeded()?;
    resources::example::the_sample_is_denied(&cluster)?;
    let shop = cluster.namespace("shop")?;
    await_injection(&shop)?;
    opted_in(&shop, "web").is_admitted()?.without_warnings()?;
    shop.pod("plain").is_admitted()?.untouched()?;
    only_labeled_namespaces_are_guarded(&cluster)?;
    await_guard(&cluster)?;
    let db = |name| namespace(&cluster, name, Profile::Transfer);
    each_can_be_deleted(&db("three")?, &EtcdCluster::of(3).start(context)?)?;
    only_a_stopped_member_can_be_deleted(&db("down")?, &EtcdCluster::of(3).start(context)?)?;
    pods_are_kept(&db("changed")?, cluster.api())?;
    namespaces_are_kept(&cluster, cluster.api())?;
    sets_are_kept(&cluster, cluster.api())?;

    let requests = audit.has_no_forbidden_requests()?;
    print(format_args!("{version} answered {requests} requests of Durward, and none with 403"));
    // Durward's account isn't allowed to list native policies, so the requests of `doctor` are not counted.
    installation.command(&["doctor", "install"])?.succeeded()?;

    // Durward cannot read the namespace, and the guard `lxcfs` then denies.
    drop(durward);
    cluster.kubectl().run(&["delete", "clusterrolebinding", "durward"])?.succeeded()?;
    let _durward = installation.serve().named("durward-not-permitted").start(context)?;
    eventually_ok("a denied pod", || {
        let pod = opted_in(&shop, "denied").as_dry_run();
        pod.is_denied_with("Durward is not permitted to get namespaces (RBAC: verb get)")
    })
    .map(drop)
}

/// Returns the webhook configurations that Durward prints, as the API server stores them. Expects no warning from strict validation.
fn strictly_validated(installation: &Installation<'_>, cluster: &Cluster) -> Result<Vec<Value>> {
    let arguments = ["apply", "--dry-run=server", "--validate=strict", "--output=json", "-f", "-"];
    let output = cluster.kubectl().run_with(&arguments, &installation.printed("webhooks")?)?.succeeded()?;
    ensure!(output.stderr.is_empty(), "{}", output.stderr);
    let mut list: Value = serde_json::from_str(&output.stdout).context("the output of kubectl apply")?;
    let Value::Array(objects) = list["items"].take() else { bail!("not a list: {}", output.stdout) };
    Ok(objects)
}

/// Waits until a webhook configuration has the expected entries. Their caBundle is that of another certificate.
fn await_filled(cluster: &Cluster, expected: &Value) -> Result<()> {
    let entries = |object: &Value| -> Vec<Value> {
        let mut entries = object["webhooks"].as_array().cloned().unwrap_or_default();
        for entry in &mut entries {
            entry["clientConfig"]["caBundle"] = Value::Null;
        }
        entries
    };
    let kind = expected["kind"].as_str().unwrap_or_default().to_lowercase();
    let path = format!("/apis/admissionregistration.k8s.io/v1/{kind}s/durward");
    until(format_args!("the entries of the {kind}"), || {
        let object = cluster.api().get(&path)?.succeeded()?.body;
        Ok((entries(&object) == entries(expected), object["webhooks"].to_string()))
    })
}
