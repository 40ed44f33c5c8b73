//! Durward writes its webhook configurations (`manage: all` and `caBundle`).
//!
//! The cases share a control plane with a garbage collector, and install Durward there one after another.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

use e2e::context::write;
use e2e::durward::Serve;
use e2e::prelude::*;
use e2e::wait::SetOnDrop;

use super::environment::{eventually_ok, scratch};
use super::objects::contains_all;

const VALIDATING: &str = "/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations/durward";
const MUTATING: &str = "/apis/admissionregistration.k8s.io/v1/mutatingwebhookconfigurations/durward";
const HOME: &str = "/api/v1/namespaces/durward-system";

const DELETION: &str = "  deletion: {scope: all}";
const DELETION_AND_LXCFS: &str = "  deletion: {scope: all}\n  lxcfs: {}";
const DELETION_AND_ETCD: &str =
    "  deletion: {scope: all}\n  etcd: {clusters: [{namespace: db, selector: app=etcd}]}";

/// More than the interval of passes.
const A_PASS: Duration = Duration::from_secs(65);

/// The time after which the end state must be there.
const RIGHT_WITHIN: Duration = Duration::from_secs(120);

/// Returns the options of the cluster for installations that write their webhook configurations, one at a time.
pub(super) fn options() -> Options {
    Options::named("webhooks").with_controllers()
}

fn object(cluster: &Cluster, path: &str) -> Result<Value> {
    Ok(cluster.api().get(path)?.succeeded()?.body)
}

/// Returns the guards that have entries in both configurations, sorted: the first words of their names. A kind that no guard needs
/// doesn't exist.
fn guards(cluster: &Cluster) -> Result<Vec<String>> {
    let mut guards = Vec::new();
    for path in [VALIDATING, MUTATING] {
        let found = cluster.api().get(path)?;
        if found.status == 404 {
            continue;
        }
        let object = found.succeeded()?.body;
        for entry in object["webhooks"].as_array().into_iter().flatten() {
            let name = entry["name"].as_str().unwrap_or_default();
            guards.extend(name.split(['-', '.']).next().map(str::to_owned));
        }
    }
    guards.sort();
    guards.dedup();
    Ok(guards.into_iter().filter(|guard| guard != "install").collect())
}

fn await_guards(cluster: &Cluster, expected: &[&str]) -> Result<()> {
    until(format_args!("the entries of {expected:?}"), || {
        let guards = guards(cluster)?;
        Ok((guards == expected, format!("{guards:?}")))
    })
}

/// Returns the version of the validating configuration.
fn version(cluster: &Cluster) -> Result<String> {
    let object = object(cluster, VALIDATING)?;
    object["metadata"]["resourceVersion"].as_str().map(str::to_owned).context("no version")
}

/// Changes the validating configuration as an administrator does.
fn patch(cluster: &Cluster, changes: &Value) -> Result<()> {
    let changes = changes.to_string();
    let arguments = ["patch", "validatingwebhookconfiguration", "durward", "--type=json", "-p", &changes];
    cluster.kubectl().run(&arguments)?.succeeded().map(drop)
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
    await_guards(&cluster, &["deletion"])?;
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

    // Damage: no caBundle and a rule less; a selector and another policy; no entry. A reload makes a pass, which otherwise follows within a
    // minute, as for the last damage.
    for (number, damage) in [
        json!([{"op": "remove", "path": "/webhooks/0/clientConfig/caBundle"}, {"op": "remove", "path": "/webhooks/0/rules/0"}]),
        json!([
            {"op": "add", "path": "/webhooks/0/objectSelector", "value": {"matchLabels": {"a": "b"}}},
            {"op": "replace", "path": "/webhooks/0/failurePolicy", "value": "Ignore"},
        ]),
        json!([{"op": "remove", "path": "/webhooks"}]),
    ]
    .into_iter()
    .enumerate()
    {
        patch(&cluster, &damage)?;
        if number < 2 {
            durward.reload_after(|| installation.configure(&format!("{DELETION}\n# {number}")))?;
        }
        until(format_args!("{damage} to be restored"), || {
            let now = object(&cluster, VALIDATING)?;
            Ok((now["webhooks"] == first["webhooks"], now["webhooks"].to_string()))
        })?;
    }
    await_denied(&shop)?;

    // A new configuration changes the entries without another command.
    durward.reload_after(|| installation.configure(DELETION_AND_ETCD))?;
    await_guards(&cluster, &["deletion", "etcd"])?;
    let log = durward.log()?;
    ensure!(!log.contains("apply the output of `durward manifests` again"), "the log asks for a command");

    // The first guard that changes objects needs the other kind, with its permission.
    ensure!(cluster.api().get(MUTATING)?.status == 404, "the mutating configuration exists without lxcfs");
    durward.reload_after(|| installation.configure(DELETION_AND_LXCFS))?;
    installation.grant()?;
    installation.register()?;
    await_guards(&cluster, &["deletion", "lxcfs"])?;
    eventually_ok("the doctor to find no problem", || {
        installation.command(&["doctor", "install"])?.succeeded().map(drop)
    })?;

    // `unregister` frees the cluster although Durward runs, and can be repeated. Durward creates nothing.
    for _ in 0..2 {
        installation.command(&["unregister"])?.succeeded()?;
    }
    std::thread::sleep(A_PASS);
    for path in [VALIDATING, MUTATING] {
        ensure!(cluster.api().get(path)?.status == 404, "{path} is there again");
    }
    let page = durward.page("/readyz?verbose")?;
    ensure!(
        page.status == 200 && page.body.contains("ValidatingWebhookConfiguration durward doesn't exist"),
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
    installation.register()?;
    await_denied(&shop)
}

/// The permissions that `durward manifests` prints suffice to create, change and delete the native policies of the guards that are on, and
/// no others. An API server accepts a policy only from an account that can read the kind of its params.
#[e2e::case]
fn the_permissions_suffice_for_native_policies(context: &'static TestContext) -> Result<()> {
    let cluster = context.cluster(&options())?;
    let _installation = Installation::managed_by_url(context, &cluster, "all", DELETION)?;
    let policy = |name: &str, expression: &str| {
        json!({
            "apiVersion": "admissionregistration.k8s.io/v1", "kind": "ValidatingAdmissionPolicy",
            "metadata": {"name": name},
            "spec": {
                "paramKind": {
                    "apiVersion": "admissionregistration.k8s.io/v1", "kind": "ValidatingWebhookConfiguration",
                },
                "matchConstraints": {"resourceRules": [{
                    "operations": ["CREATE"], "apiGroups": ["example.org"], "apiVersions": ["v1"], "resources": ["x"],
                }]},
                "validations": [{"expression": expression}],
            },
        })
        .to_string()
    };
    let account = "--as=system:serviceaccount:durward-system:durward";
    let apply = |name: &str, expression: &str| {
        let arguments = ["apply", "--server-side", "--field-manager=durward", account, "-f", "-"];
        cluster.kubectl().run_with(&arguments, &policy(name, expression))
    };
    eventually_ok("the permissions to be known", || {
        apply("durward-deletion-labels", "true")?.succeeded().map(drop)
    })?;
    apply("durward-deletion-labels", "false")?.succeeded()?;
    let refused = apply("durward-etcd-pods", "true")?;
    refused.exited_with(1)?;
    contains_all(&refused.stderr, &["forbidden"])?;
    let delete = ["delete", "validatingadmissionpolicy", "durward-deletion-labels", account];
    cluster.kubectl().run(&delete)?.succeeded().map(drop)
}

/// A tool like Argo CD applies the object again and again, with a match condition and an entry of its own.
#[e2e::case]
fn a_gitops_tool_and_durward_do_not_overwrite_each_other(context: &'static TestContext) -> Result<()> {
    let cluster = context.cluster(&options())?;
    let mut installation = Installation::managed_by_url(context, &cluster, "all", DELETION)?;
    installation.register()?;
    let durward = installation.serve().named("durward-gitops").start_ready(context)?;
    await_guards(&cluster, &["deletion"])?;
    let committed = json!({
        "apiVersion": "admissionregistration.k8s.io/v1", "kind": "ValidatingWebhookConfiguration",
        "metadata": {"name": "durward", "labels": {"durward.dev/webhooks": "managed", "team": "platform"}},
        "webhooks": [{
            "name": "deletion.durward.dev",
            "matchConditions": [{"name": "not-sandbox", "expression": "!request.name.startsWith('sandbox')"}],
        }],
    })
    .to_string();
    let arguments =
        ["apply", "--server-side", "--force-conflicts", "--field-manager=argocd-controller", "-f", "-"];
    let apply = || cluster.kubectl().run_with(&arguments, &committed)?.succeeded().map(drop);
    apply()?;
    durward.reload_after(|| installation.configure(&format!("{DELETION}\n# again")))?;
    until("the condition to be reported", || {
        let narrowed = durward
            .metrics()?
            .sum("durward_webhooks_narrowed", &[("target", "cluster"), ("kind", "validating")]);
        Ok((narrowed > 0.5, narrowed.to_string()))
    })?;
    let doctor = installation.command(&["doctor", "install"])?;
    doctor.exited_with(1)?;
    contains_all(
        &doctor.stdout,
        &["(narrowed)", "matchConditions of deletion.durward.dev", "argocd-controller"],
    )?;
    let before = version(&cluster)?;
    let began = Instant::now();
    while began.elapsed() < A_PASS {
        apply()?;
        std::thread::sleep(Duration::from_secs(5));
    }
    ensure!(version(&cluster)? == before, "the object is written although nothing changes");
    let conditions = object(&cluster, VALIDATING)?["webhooks"].to_string();
    contains_all(&conditions, &["not-sandbox"])
}

/// Two replicas read a new configuration one after the other, while both answer calls.
#[e2e::case]
fn replicas_with_different_configurations_fail_no_call(context: &'static TestContext) -> Result<()> {
    let cluster = context.cluster(&scratch())?;
    let durward_namespace = cluster.namespace("serving")?;
    let service = durward_namespace.service("durward")?;
    let mut installation = Installation::by_service(context, &cluster, &service, DELETION)?;
    let files = json!({"files": {"cert": "tls.crt", "key": "tls.key", "ca": "ca.crt"}});
    installation.use_tls(&files, "all", DELETION_AND_LXCFS)?;
    installation.register()?;
    let late = installation.configure_as("late.yaml", DELETION_AND_LXCFS)?;
    let first = installation.serve().named("durward-first").start_ready(context)?;
    let kubeconfig = format!("--kubeconfig={}", installation.kubeconfig().display());
    let second = Serve::with(&late)
        .flag(kubeconfig)
        .listening_on(first.reviews().ip())
        .named("durward-second")
        .start_ready(context)?;
    service.set_endpoints(first.reviews(), second.reviews())?;
    await_guards(&cluster, &["deletion", "lxcfs"])?;
    let (used, free) = (cluster.namespace("used")?, cluster.namespace("free")?);
    used.pod("web").is_admitted()?;
    await_denied(&used)?;

    let stopped = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let load = scope.spawn(|| -> Result<usize> {
            let mut calls = 0;
            while !stopped.load(Ordering::Relaxed) {
                for (namespace, is_denied) in [(&used, true), (&free, false)] {
                    let path = format!("/api/v1/namespaces/{}?dryRun=All", namespace.name());
                    let answer = cluster.api().delete(&path)?;
                    let message = answer.message();
                    ensure!(!message.contains("failed calling webhook"), "{message}");
                    ensure!(answer.is_success() != is_denied, "{}: {message}", namespace.name());
                    calls += 1;
                }
            }
            Ok(calls)
        });
        let ends = SetOnDrop(&stopped);
        // The first one removes the entries of lxcfs, and the second one writes them again until it reads the same file.
        first.reload_after(|| installation.configure(DELETION))?;
        await_guards(&cluster, &["deletion"])?;
        await_guards(&cluster, &["deletion", "lxcfs"])?;
        second.reload_after(|| installation.configure_as("late.yaml", DELETION).map(drop))?;
        eventually("the entries of the new configuration", RIGHT_WITHIN, || {
            let guards = guards(&cluster)?;
            Ok(if guards == ["deletion"] { Poll::Ready(()) } else { Poll::Pending(format!("{guards:?}")) })
        })?;
        let before = version(&cluster)?;
        std::thread::sleep(A_PASS);
        ensure!(version(&cluster)? == before, "two replicas write the same object in turn");
        drop(ends);
        let calls = load.join().unwrap_or_else(|_| Err(anyhow::Error::msg("the load panicked")))?;
        print(format_args!("0 of {calls} calls failed"));
        Ok(())
    })
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
    // A native policy keeps the namespace, until it has the annotation.
    let anyway = ["annotate", "namespace", "durward-system", "durward.dev/delete-anyway=durward-system"];
    cluster.kubectl().run(&anyway)?.succeeded()?;
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
    await_guards(&karmada, &["deletion"])?;
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
    let arguments = ["unregister", "--config", &path, &kubeconfig];
    Durward::command(context, &arguments)?.succeeded()?;
    ensure!(karmada.api().get(VALIDATING)?.status == 404, "the configuration is left");
    Ok(())
}
