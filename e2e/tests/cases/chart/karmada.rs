//! Durward in pods guards a Karmada control plane outside of their cluster. The case runs the commands of the documentation.
//!
//! Karmada runs on this host, and the pods are in the cluster of a node. The node has no kube-proxy, so Karmada's API server calls a
//! pod at the address of the node (`hostNetwork`), and one replica runs.

mod doctor;
mod etcd;

use std::collections::BTreeSet;
use std::net::Ipv4Addr;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread::ScopedJoinHandle;

use e2e::audit::AuditLog;
use e2e::context::write;
use e2e::metrics::Metrics;
use e2e::plain_http;
use e2e::prelude::*;
use e2e::wait::SetOnDrop;

use super::configurations::HOME;
use crate::cases::attempt::{Attempt, DELETION, await_denied};
use crate::cases::environment::eventually_ok;
use crate::cases::objects::{await_gone, list, name_of};
use crate::cases::pages::{self, Expect, Shell};

/// The page of the installation, relative to `docs/src`.
const INSTALLATION: &str = "get-started/karmada.md";

/// The page of an upgrade.
const UPGRADE: &str = "operate/upgrade.md";

/// The page of the removal.
const REMOVAL: &str = "operate/uninstall.md";

/// The kubeconfig of an administrator of Karmada in the pages.
const ADMIN: &str = "karmada-admin.config";

/// The validating webhook configuration on the control plane.
const VALIDATING: &str = "/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations/durward";

/// The objects of `durward manifests` on the control plane, for `kubectl get`.
const ON_KARMADA: &str = "clusterroles,clusterrolebindings,clusterpropagationpolicies,\
    validatingwebhookconfigurations,mutatingwebhookconfigurations";

/// Concurrent callers while the CA rotates.
const CALLERS: usize = 2;

/// Pause between the calls of one caller, which leaves processor time for the rotation.
const PAUSE: Duration = Duration::from_millis(50);

/// The kubelet replaces the files of a pod, and Durward writes the webhook configurations.
const WITHIN: Duration = Duration::from_secs(180);

/// Two rotations of forty seconds, on a loaded machine.
const ROTATED_WITHIN: Duration = Duration::from_secs(300);

#[e2e::case(Soak)]
fn pods_guard_karmada_by_url_while_their_ca_rotates(context: &'static TestContext) -> Result<()> {
    let site = Site::start(context)?;
    let shell = Shell::new(context, site.node.cluster(), &site.directory)?.with_helm()?;
    site.follow_installation(&shell).context("the page of the installation")?;
    let used = site.used_namespace()?;
    site.rotates_under_load(&used)?;
    site.survives_a_garbage_collection()?;
    site.has_no_secret_on_karmada()?;
    site.audit.has_no_forbidden_requests()?;
    site.doctor_names_the_fix(&shell, &used)?;
    site.follow_upgrade(&shell, &used).context("the page of an upgrade")?;
    site.guards_karmadas_etcd(context, &shell).context("the etcd of Karmada")?;
    site.follow_removal(&shell).context("the page of the removal")
}

/// A fleet, a node of another cluster, and the files of its administrator.
struct Site {
    fleet: Fleet,
    node: Node,
    audit: AuditLog,
    directory: PathBuf,
}

impl Site {
    fn start(context: &'static TestContext) -> Result<Self> {
        let (fleet, node) = std::thread::scope(|scope| {
            let fleet = scope.spawn(|| context.own_fleet());
            let node = context.own_audited_node();
            (fleet.join(), node)
        });
        let fleet = fleet.map_err(|_| anyhow::anyhow!("the start of the fleet panicked"))??;
        let (node, audit) = node?;
        node.image(context, Image::Durward)?;
        // The Namespace on the control plane has the same name as that of the pods, but another uid.
        fleet.karmada().exact_namespace(HOME, &[])?;
        let directory = context.directory("administrator")?;
        let admin = administrator(&fleet, node.cluster().host())?.to_string();
        let values = values(node.address())?.to_string();
        for (name, content) in [
            (ADMIN, admin),
            ("m1.config", std::fs::read_to_string(fleet.member("m1")?.kubectl().kubeconfig())?),
            ("values.yaml", pages::block(INSTALLATION, "yaml", "2. Configure")?),
            ("node.json", values),
        ] {
            write(&directory, name, &content)?;
        }
        Ok(Self { fleet, node, audit, directory })
    }

    fn karmada(&self) -> &Cluster {
        self.fleet.karmada()
    }

    /// Runs all commands of the page. Those that depend on controllers wait for them first.
    fn follow_installation(&self, shell: &Shell<'_>) -> Result<()> {
        let m1 = self.fleet.member("m1")?;
        let (mut is_enforced, mut is_removed) = (false, false);
        shell.run_page(INSTALLATION, |heading, command| {
            if command.contains("openssl") || command.contains(".spec.request") {
                // The signer of the fleet works, so the request is not signed by hand.
                return Ok(Expect::Skip);
            } else if command.contains(".status.certificate") {
                eventually_ok("Karmada's signer to sign", || {
                    let request =
                        shell.run("kubectl --kubeconfig karmada-admin.config get csr durward -o yaml")?;
                    ensure!(request.stdout.contains("  certificate: "), "{}", request.stdout);
                    Ok(())
                })?;
            } else if command.starts_with("helm ") {
                is_enforced = command.starts_with("helm upgrade");
                command.push_str(" --values node.json");
            } else if command.contains("doctor fleet") {
                // Karmada propagates the permissions.
                eventually_ok("the doctor to find nothing", || shell.run(command)?.succeeded())?;
            } else if command.contains("run web") {
                await_account(m1)?;
            } else if command.ends_with("delete pod web --now") {
                is_removed = true;
            } else if command.contains("delete namespace shop") {
                let expected =
                    if heading == "6. See a warning" { "would be denied" } else { "denied the request" };
                if is_removed {
                    await_gone(m1, "/api/v1/namespaces/shop/pods/web")?;
                    return Ok(Expect::Success);
                }
                if is_enforced {
                    mount_again(shell)?;
                }
                let dry_run =
                    "kubectl --kubeconfig karmada-admin.config delete namespace shop --dry-run=server";
                eventually(format_args!("{dry_run} to print {expected:?}"), WITHIN, || {
                    let output = shell.run(dry_run)?;
                    let is_ready = output.stderr.contains(expected) && output.is_success() != is_enforced;
                    Ok(if is_ready { Poll::Ready(()) } else { Poll::Pending(output.stderr) })
                })?;
                return Ok(if is_enforced { Expect::Failure } else { Expect::Success });
            }
            Ok(Expect::Success)
        })?;
        // The doctor prints commands with this file.
        let file = "kubectl -n durward-system get configmap durward -o jsonpath='{.data.durward\\.yaml}' > durward.yaml";
        shell.run(file)?.succeeded().map(drop)
    }

    /// Returns the path of a namespace with a pod in m2.
    fn used_namespace(&self) -> Result<String> {
        let used = self.fleet.namespace("used")?;
        let m2 = self.fleet.member("m2")?;
        m2.make_running_pod(&m2.existing_namespace(used.name()), "web")?;
        Ok(path_of(&used))
    }

    /// Deletes a namespace in use and an empty one, as dry runs, while the CA rotates twice. Afterwards it deletes both.
    fn rotates_under_load(&self, used: &str) -> Result<()> {
        let empty = path_of(&self.fleet.namespace("empty")?);
        await_denied("the namespace to be in use", || self.delete(&format!("{used}?dryRun=All")))?;
        let failed = self.failed_calls()?;
        let (stopped, calls) = (AtomicBool::new(false), AtomicUsize::new(0));
        let call = || -> Result<()> {
            while !stopped.load(Ordering::Relaxed) {
                let denied = self.delete(&format!("{used}?dryRun=All"))?.denied()?;
                denied.with_message(&["m2: 1 pod (web)"])?;
                let allowed = self.delete(&format!("{empty}?dryRun=All"))?.allowed()?;
                allowed.with_warning("is not in use in the control plane and 3 member clusters")?;
                calls.fetch_add(2, Ordering::Relaxed);
                std::thread::sleep(PAUSE);
            }
            Ok(())
        };
        let (rotations, leaves) = std::thread::scope(|scope| {
            let callers: Vec<_> = (0..CALLERS).map(|_| scope.spawn(call)).collect();
            let rotated = {
                let _ends = SetOnDrop(&stopped);
                self.await_rotations(&|| callers.iter().any(ScopedJoinHandle::is_finished))
            };
            for caller in callers {
                caller.join().map_err(|_| anyhow::anyhow!("a caller panicked"))??;
            }
            rotated
        })?;
        let calls = calls.load(Ordering::Relaxed);
        let failed = self.failed_calls()? - failed;
        ensure!(failed < 0.5, "of {calls} calls {failed} failed");
        print(format_args!(
            "{rotations} rotations of the CA, {leaves} serving certificates: 0 of {calls} calls of the Karmada API server failed"
        ));
        self.delete(used)?.denied()?;
        self.delete(&empty)?.allowed()?;
        await_gone(self.karmada(), &empty)
    }

    /// Waits for two more rotations. Returns the number of CAs and of serving certificates that were seen.
    fn await_rotations(&self, has_failed: &dyn Fn() -> bool) -> Result<(f64, usize)> {
        let removed = || self.metrics()?.value("durward_ca_changes_total", &[("change", "removed")]);
        let before = removed()?;
        let mut expiries = BTreeSet::new();
        eventually("two rotations of the CA", ROTATED_WITHIN, || {
            ensure!(!has_failed(), "a caller has ended");
            let expiry = self.metrics()?.value("durward_certificate_not_after_seconds", &[])?;
            expiries.insert(expiry.to_string());
            let rotations = removed()? - before;
            let is_done = rotations > 1.5;
            Ok(if is_done {
                Poll::Ready((rotations, expiries.len()))
            } else {
                Poll::Pending(rotations.to_string())
            })
        })
    }

    /// Returns the metrics of the pod, which has the node's address.
    fn metrics(&self) -> Result<Metrics> {
        Metrics::parse(&plain_http::get((self.node.address(), 8080).into(), "/metrics")?.body)
    }

    /// Returns the number of calls that Karmada's API server counts as failed.
    fn failed_calls(&self) -> Result<f64> {
        let labels = [("name", "deletion.durward.dev"), ("error_type", "calling_webhook_error")];
        Ok(self.karmada().metrics()?.sum("apiserver_admission_webhook_rejection_count", &labels))
    }

    /// An owner in another cluster does not exist for Karmada's garbage collector. Durward sets none there.
    fn survives_a_garbage_collection(&self) -> Result<()> {
        let home = format!("/api/v1/namespaces/{HOME}");
        let uid = |cluster: &Cluster| {
            Ok::<_, anyhow::Error>(cluster.api().get(&home)?.succeeded()?.body["metadata"]["uid"].clone())
        };
        let owner =
            json!({"apiVersion": "v1", "kind": "Namespace", "name": HOME, "uid": uid(self.node.cluster())?});
        ensure!(owner["uid"] != uid(self.karmada())?, "both Namespaces have the same uid");
        let owned = json!({
            "apiVersion": "v1", "kind": "ConfigMap",
            "metadata": {"name": "owned", "namespace": "default", "ownerReferences": [owner]},
        });
        self.karmada().kubectl().apply(&owned.to_string())?.succeeded()?;
        await_gone(self.karmada(), "/api/v1/namespaces/default/configmaps/owned")?;
        let configuration = self.karmada().api().get(VALIDATING)?.succeeded()?.body;
        ensure!(configuration["metadata"]["ownerReferences"].is_null(), "it has an owner: {configuration}");
        ensure!(configuration["webhooks"][0]["name"] == "deletion.durward.dev", "{configuration}");
        Ok(())
    }

    /// Expects the CA in the cluster of the pods, and no Secret of Durward on the control plane.
    fn has_no_secret_on_karmada(&self) -> Result<()> {
        let ca = self.node.cluster().api().get(&format!("/api/v1/namespaces/{HOME}/secrets/durward-ca"))?;
        ensure!(ca.succeeded()?.body["data"]["ca.key"].is_string(), "the Secret of the CA has no key");
        let secrets = list(self.karmada().api(), "/api/v1/secrets")?;
        let names: Vec<_> = secrets.iter().map(name_of).collect();
        // Those of the members' credentials show that the list is not empty.
        ensure!(names.contains(&"m1"), "the Secrets on the control plane are {names:?}");
        ensure!(
            !secrets.iter().any(|one| one.to_string().contains("durward")),
            "Durward has a Secret: {names:?}"
        );
        Ok(())
    }

    /// Runs the commands of the page. A new annotation replaces the pod.
    fn follow_upgrade(&self, shell: &Shell<'_>, used: &str) -> Result<()> {
        shell.run_page(UPGRADE, |heading, command| {
            if command.starts_with("helm upgrade") {
                command.push_str(" --values node.json --set podAnnotations.version=next");
            }
            let is_here = ["Upgrade Durward", "Upgrade Durward on Karmada"].contains(&heading);
            let is_followed = is_here && !command.contains("rollback");
            Ok(if is_followed { Expect::Success } else { Expect::Skip })
        })?;
        self.is_healthy(shell, used)
    }

    /// Runs the commands of the page. They leave no object of Durward on the control plane and in the members.
    fn follow_removal(&self, shell: &Shell<'_>) -> Result<()> {
        shell.run_page(REMOVAL, |heading, command| {
            if heading != "From a Karmada control plane" {
                return Ok(Expect::Skip);
            }
            if command.starts_with("durward manifests") {
                let left = self.karmada().api().get(VALIDATING)?;
                ensure!(left.status == 404, "the Job has left the webhook configuration: {}", left.body);
            }
            Ok(Expect::Success)
        })?;
        let clusters =
            self.fleet.members().iter().map(|member| (&**member, "clusterroles,clusterrolebindings"));
        for (cluster, kinds) in [(self.karmada(), ON_KARMADA)].into_iter().chain(clusters) {
            until("all objects of Durward to be gone", || {
                let arguments = ["get", kinds, "-o", "name", "-l", "app.kubernetes.io/name=durward"];
                let left = cluster.kubectl().run(&arguments)?.succeeded()?.stdout;
                Ok((left.is_empty(), left))
            })?;
        }
        Ok(())
    }

    fn delete(&self, path: &str) -> Result<Attempt> {
        Ok(Attempt::new(self.karmada().api().delete(path)?, &DELETION))
    }
}

/// Returns the kubeconfig of an administrator that pods can use too: with this host's address for the node.
fn administrator(fleet: &Fleet, host: Ipv4Addr) -> Result<Value> {
    let text = std::fs::read_to_string(fleet.karmada().kubectl().kubeconfig())?;
    let mut config: Value = serde_json::from_str(&text)?;
    let cluster = &mut config["clusters"][0]["cluster"];
    cluster["server"] = fleet.karmada().url().replace("127.0.0.1", &host.to_string()).into();
    cluster["tls-server-name"] = "localhost".into();
    config["users"][0]["name"] = "karmada-admin".into();
    config["contexts"][0]["context"]["user"] = "karmada-admin".into();
    Ok(config)
}

/// Returns the values in addition to those of the page: the image, the node's address, and lifetimes of seconds.
fn values(node: Ipv4Addr) -> Result<Value> {
    let (repository, tag) = Image::Durward.name().rsplit_once(':').context("an image without a tag")?;
    Ok(json!({
        "image": {"repository": repository, "tag": tag, "pullPolicy": "Never"},
        "replicas": 1,
        "hostNetwork": true,
        "config": {"server": {
            "tls": {"selfManaged": {"caLifetime": "60s", "certificateLifetime": "20s"}},
            "webhookConfiguration": {"url": format!("https://{node}:8443")},
        }},
    }))
}

/// Changes the pod, so that the kubelet updates its files at once instead of within a minute.
fn mount_again(shell: &Shell<'_>) -> Result<()> {
    let command = format!("kubectl -n {HOME} annotate pods --all --overwrite example.org/mounted=again");
    shell.run(&command)?.succeeded().map(drop)
}

/// Waits until Karmada has created the namespace in a member cluster, and pods can be created in it.
fn await_account(member: &Cluster) -> Result<()> {
    eventually_ok("the namespace shop in m1", || {
        member.api().get("/api/v1/namespaces/shop/serviceaccounts/default")?.succeeded()
    })
    .map(drop)
}

fn path_of(namespace: &Namespace<'_>) -> String {
    format!("/api/v1/namespaces/{}", namespace.name())
}
