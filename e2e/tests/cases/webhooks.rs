//! Durward writes its webhook configurations (`manage: all` and `caBundle`).
//!
//! The cases share a control plane with a garbage collector, and install Durward there one after another.

use std::time::Instant;

use e2e::context::write;
use e2e::durward::Serve;
use e2e::prelude::*;
use rustix::process::Signal;

use super::environment::eventually_ok;

const VALIDATING: &str = "/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations/durward";
const MUTATING: &str = "/apis/admissionregistration.k8s.io/v1/mutatingwebhookconfigurations/durward";
const HOME: &str = "/api/v1/namespaces/durward-system";

const DELETION: &str = "  deletion: {scope: all}";
const DELETION_AND_LXCFS: &str = "  deletion: {scope: all}\n  lxcfs: {}";
const DELETION_AND_ETCD: &str =
    "  deletion: {scope: all}\n  etcd: {clusters: [{namespace: db, selector: app=etcd}]}";

/// `newGuardDelay` of these installations.
const NEW_GUARD_DELAY: Duration = Duration::from_secs(10);

/// More than the interval of passes.
const A_PASS: Duration = Duration::from_secs(7);

/// The entries of the guards of the last two configurations. Entries that are not needed any more stay for ten minutes.
const ALL: [&str; 7] = [
    "deletion.durward.dev",
    "etcd-evictions.durward.dev",
    "etcd-pods.durward.dev",
    "etcd-updates.durward.dev",
    "install-namespace.durward.dev",
    "lxcfs-namespaces.durward.dev",
    "lxcfs-pods.durward.dev",
];

/// Returns the options of the cluster for installations that write their webhook configurations, one at a time.
pub(super) fn options() -> Options {
    Options::named("webhooks").with_controllers()
}

fn object(cluster: &Cluster, path: &str) -> Result<Value> {
    Ok(cluster.api().get(path)?.succeeded()?.body)
}

/// Returns the names of the entries of both configurations, sorted. A kind that no guard needs doesn't exist.
fn entries(cluster: &Cluster) -> Result<Vec<String>> {
    let mut names = Vec::new();
    for path in [VALIDATING, MUTATING] {
        let found = cluster.api().get(path)?;
        if found.status == 404 {
            continue;
        }
        let object = found.succeeded()?.body;
        let entries = object["webhooks"].as_array().into_iter().flatten();
        names.extend(entries.filter_map(|entry| entry["name"].as_str()).map(str::to_owned));
    }
    names.sort();
    Ok(names)
}

fn await_entries(cluster: &Cluster, expected: &[&str]) -> Result<()> {
    until(format_args!("the entries {expected:?}"), || {
        let names = entries(cluster)?;
        Ok((names == expected, format!("{names:?}")))
    })
}

/// Checks that the deletion guard denies deleting a namespace that is in use.
fn await_denied(namespace: &Namespace<'_>) -> Result<()> {
    let arguments = ["delete", "namespace", namespace.name(), "--dry-run=server"];
    until("the deletion guard to deny", || {
        let output = namespace.cluster().kubectl().run(&arguments)?;
        Ok((output.stderr.contains("denied the request"), output.stderr))
    })
}

#[e2e::case]
fn durward_fills_and_restores_its_webhook_configurations(context: &'static TestContext) -> Result<()> {
    let cluster = context.cluster(&options())?;
    let mut installation = Installation::managed_by_url(context, &cluster, "all", DELETION)?;
    let shop = cluster.namespace("shop")?;
    shop.pod("web").is_admitted()?;
    let durward = installation.serve().named("durward-webhooks").start_ready(context)?;
    let page = durward.page("/readyz?verbose")?;
    ensure!(
        page.body.contains("[!]webhooks: ValidatingWebhookConfiguration durward doesn't exist"),
        "{}",
        page.body
    );

    installation.register()?;
    await_entries(&cluster, &["deletion.durward.dev", "install-namespace.durward.dev"])?;
    await_denied(&shop)?;
    let first = object(&cluster, VALIDATING)?;
    let manager = first["metadata"]["managedFields"].as_array().into_iter().flatten();
    let applied =
        manager.filter(|entry| entry["manager"] == "durward" && entry["operation"] == "Apply").count();
    ensure!(applied == 1, "Durward did not apply: {first}");

    // A GitOps tool applies the same again, by the client and by the server.
    let printed = installation.printed("webhooks")?;
    cluster.kubectl().apply(&printed)?.succeeded()?;
    let by_server = ["apply", "--server-side", "--force-conflicts", "-f", "-"];
    for _ in 0..2 {
        cluster.kubectl().run_with(&by_server, &printed)?.succeeded()?;
    }
    let second = object(&cluster, VALIDATING)?;
    ensure!(second["webhooks"] == first["webhooks"], "applying again changed the entries: {second}");

    // Damage: no caBundle and a rule less; a condition that is never true, a selector and another policy; no entry.
    let never = json!({"name": "never", "expression": "false"});
    for damage in [
        json!([{"op": "remove", "path": "/webhooks/0/clientConfig/caBundle"}, {"op": "remove", "path": "/webhooks/0/rules/0"}]),
        json!([
            {"op": "add", "path": "/webhooks/0/matchConditions/-", "value": never},
            {"op": "add", "path": "/webhooks/0/objectSelector", "value": {"matchLabels": {"a": "b"}}},
            {"op": "replace", "path": "/webhooks/0/failurePolicy", "value": "Ignore"},
        ]),
        json!([{"op": "remove", "path": "/webhooks"}]),
    ] {
        let patch = damage.to_string();
        let arguments = ["patch", "validatingwebhookconfiguration", "durward", "--type=json", "-p", &patch];
        cluster.kubectl().run(&arguments)?.succeeded()?;
        until(format_args!("{patch} to be restored"), || {
            let now = object(&cluster, VALIDATING)?;
            let sorted = |object: &Value| {
                let mut rules: Vec<_> = object["webhooks"][0]["rules"]
                    .as_array()
                    .into_iter()
                    .flatten()
                    .map(Value::to_string)
                    .collect();
                rules.sort();
                let mut entry = object["webhooks"][0].clone();
                entry["rules"] = Value::Null;
                (entry, rules)
            };
            Ok((sorted(&now) == sorted(&first), now["webhooks"].to_string()))
        })?;
    }
    await_denied(&shop)?;

    // A new configuration changes the entries without another command.
    durward.reload_after(|| installation.configure(DELETION_AND_ETCD))?;
    await_entries(&cluster, &ALL[..5])?;
    let log = durward.log()?;
    ensure!(!log.contains("apply the output of `durward manifests` again"), "the log asks for a command");

    // The first guard that changes objects needs the other kind, with its permission.
    ensure!(cluster.api().get(MUTATING)?.status == 404, "the mutating configuration exists without lxcfs");
    durward.reload_after(|| installation.configure(DELETION_AND_LXCFS))?;
    installation.grant()?;
    installation.register()?;
    await_entries(&cluster, &ALL)?;
    installation.command(&["doctor", "install"])?.succeeded()?;

    // `unregister` frees the cluster although Durward runs, and can be repeated.
    for _ in 0..2 {
        installation.command(&["unregister"])?.succeeded()?;
    }
    await_entries(&cluster, &[])?;
    // Without the label Durward writes nothing.
    std::thread::sleep(A_PASS);
    ensure!(entries(&cluster)?.is_empty(), "Durward wrote a configuration without its label");
    let page = durward.page("/readyz?verbose")?;
    ensure!(
        page.status == 200 && page.body.contains("lacks the label durward.dev/webhooks=managed"),
        "{}",
        page.body
    );
    cluster.kubectl().run(&["delete", "clusterrolebinding", "durward"])?.succeeded()?;
    eventually_ok("the doctor to name the missing permissions", || {
        let doctor = installation.command(&["doctor", "install"])?;
        doctor.exited_with(1)?;
        let words = "patch validatingwebhookconfigurations.admissionregistration.k8s.io durward";
        ensure!(doctor.stdout.contains(words) && doctor.stdout.contains("--only rbac"), "{}", doctor.stdout);
        Ok(())
    })?;
    installation.grant()?;
    let deleted = cluster.kubectl().run(&["delete", "namespace", shop.name(), "--dry-run=server"])?;
    deleted.succeeded()?;
    // Applying the printed objects again sets the label.
    installation.register()?;
    await_denied(&shop)
}

#[e2e::case]
fn replicas_with_different_configurations_keep_all_entries(context: &'static TestContext) -> Result<()> {
    let cluster = context.cluster(&options())?;
    let mut installation = Installation::managed_by_url(context, &cluster, "all", DELETION_AND_LXCFS)?;
    installation.register()?;
    let old = installation.serve().named("durward-old").start_ready(context)?;
    await_entries(
        &cluster,
        &[
            "deletion.durward.dev",
            "install-namespace.durward.dev",
            "lxcfs-namespaces.durward.dev",
            "lxcfs-pods.durward.dev",
        ],
    )?;
    let newer = installation.configure_as("newer.yaml", DELETION_AND_ETCD)?;
    let began = Instant::now();
    let kubeconfig = format!("--kubeconfig={}", installation.kubeconfig().display());
    let new = Serve::with(&newer).flag(kubeconfig).named("durward-new").start_ready(context)?;
    await_entries(&cluster, &ALL)?;
    // The old one answers 404 for a guard that it does not have, so the entries of a new guard wait.
    ensure!(began.elapsed() >= NEW_GUARD_DELAY, "the entries were added after {:?}", began.elapsed());
    let version = || anyhow::Ok(object(&cluster, VALIDATING)?["metadata"]["resourceVersion"].clone());
    let before = version()?;
    std::thread::sleep(A_PASS);
    ensure!(version()? == before, "two replicas write the same object in turn");
    // The old one ends, as in a rolling upgrade. Its entries stay for ten minutes.
    old.signal(Signal::TERM)?;
    await_entries(&cluster, &ALL)?;
    let registered =
        new.metrics()?.sum("durward_webhooks_registered", &[("target", "cluster"), ("kind", "validating")]);
    ensure!((registered - 1.0).abs() < 0.1, "durward_webhooks_registered is {registered}");
    Ok(())
}

#[e2e::case]
fn deleting_the_namespace_frees_the_cluster(context: &'static TestContext) -> Result<()> {
    let cluster = context.cluster(&options())?;
    let mut installation = Installation::managed_by_url(context, &cluster, "all", DELETION)?;
    let shop = cluster.namespace("shop")?;
    shop.pod("web").is_admitted()?;
    installation.register()?;
    let durward = installation.serve().named("durward-owned").start_ready(context)?;
    await_denied(&shop)?;
    let owner = object(&cluster, VALIDATING)?["metadata"]["ownerReferences"][0].clone();
    ensure!(owner["uid"] == object(&cluster, HOME)?["metadata"]["uid"], "the owner is {owner}");
    // No replica answers any more, and the guard fails closed.
    drop(durward);
    cluster.kubectl().run(&["delete", "namespace", "durward-system", "--wait=false"])?.succeeded()?;
    for path in [VALIDATING, MUTATING, HOME] {
        until(format_args!("{path} to be deleted"), || {
            let status = cluster.api().get(path)?.status;
            Ok((status == 404, status.to_string()))
        })?;
    }
    eventually_ok("a namespace in use to be deletable", || {
        let output = cluster.kubectl().run(&["delete", "namespace", shop.name(), "--dry-run=server"])?;
        output.succeeded().map(drop)
    })
}

#[e2e::case]
fn a_namespace_of_another_cluster_never_owns_a_configuration(context: &'static TestContext) -> Result<()> {
    let (karmada, host) = (context.cluster(&options())?, context.own_cluster(&Options::named("host"))?);
    // Both have a namespace durward-system, with different uids. Both installations are only for their files and turns.
    let there = Installation::by_url(context, &karmada, DELETION)?;
    let home = Installation::by_url(context, &host, DELETION)?;
    let user = karmada.certified("durward", None)?;
    let config = json!({
        "apiVersion": "durward.dev/v1alpha1", "kind": "Configuration",
        "server": {
            "tls": {"files": {"cert": "tls.crt", "key": "tls.key", "ca": "ca.crt"}},
            "webhookConfiguration": {"manage": "all", "url": "https://127.0.0.1:1"},
        },
        "guards": {"deletion": {"fleet": {"karmada": {"kubeconfig": user.kubectl.kubeconfig()}}}},
    });
    let directory = there.config().parent().context("a configuration without directory")?;
    let config = write(directory, "karmada.yaml", &config.to_string())?;
    let path = config.display().to_string();
    for (cluster, target, parts) in [(&*karmada, "karmada", "rbac,webhooks"), (&host, "cluster", "rbac")] {
        let arguments = ["manifests", "--config", &path, "--target", target, "--only", parts];
        let printed = Durward::command(context, &arguments)?.succeeded()?.stdout;
        cluster.kubectl().apply(&printed)?.succeeded()?;
    }
    let kubeconfig = format!("--kubeconfig={}", home.kubeconfig().display());
    let durward = Serve::with(&config).flag(&kubeconfig).named("durward-karmada").start(context)?;
    await_entries(&karmada, &["deletion.durward.dev"])?;
    let client = [("credential", "api_server_client")];
    let expiry = durward.metrics()?.value("durward_credential_not_after_seconds", &client)?;
    ensure!(expiry > 1.9e9, "the client certificate in the kubeconfig expires at {expiry}");

    // An object whose owner does not exist is deleted by the garbage collector, the configuration is not.
    let owned = json!({
        "apiVersion": "v1", "kind": "ConfigMap",
        "metadata": {"name": "orphan", "namespace": "durward-system", "ownerReferences": [
            {"apiVersion": "v1", "kind": "Namespace", "name": "durward-system", "uid": object(&host, HOME)?["metadata"]["uid"]}]},
    });
    karmada.kubectl().apply(&owned.to_string())?.succeeded()?;
    until("a garbage collection", || {
        let status = karmada.api().get("/api/v1/namespaces/durward-system/configmaps/orphan")?.status;
        Ok((status == 404, status.to_string()))
    })?;
    let configuration = object(&karmada, VALIDATING)?;
    ensure!(configuration["metadata"]["ownerReferences"].is_null(), "{configuration}");
    drop(durward);
    let arguments = ["unregister", "--delete", "--config", &path, &kubeconfig];
    let refused = Durward::command(context, &arguments)?;
    refused.exited_with(1)?;
    ensure!(refused.stderr.contains("RBAC: verb delete"), "{}", refused.stderr);
    karmada.api().delete(VALIDATING)?.succeeded().map(drop)
}
