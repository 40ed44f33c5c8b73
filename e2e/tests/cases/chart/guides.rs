//! The quick starts, from a cluster without Durward to the last command: first a warning, then the denial or the mount.

use std::collections::VecDeque;
use std::path::Path;

use e2e::context::write;
use e2e::prelude::*;

use super::environment::{Environment, exclusive, values};
use crate::cases::pages::{self, Expect, Shell};

/// The etcd cluster of the etcd guide.
const ETCD: &str = include_str!("../../../../examples/etcd/statefulset.yaml");

/// The image in that file.
const ETCD_IMAGE: &str = "registry.k8s.io/etcd:3.6.4-0";

/// A page, relative to `docs/src`.
struct Guide {
    page: &'static str,
    /// The heading above `values.yaml`.
    values: &'static str,
    /// The commands whose output depends on Durward, in the order of the page.
    verdicts: &'static [Verdict],
}

/// A command, and the text that a dry run of it prints as soon as Durward has the state that the page describes.
struct Verdict {
    command: &'static str,
    dry_run: &'static str,
    prints: &'static str,
    is_denied: bool,
}

#[e2e::case]
fn the_page_of_the_deletion_guard_works(context: &'static TestContext) -> Result<()> {
    let environment = exclusive(context)?;
    let guide = Guide {
        page: "get-started/deletion.md",
        values: "2. Configure",
        verdicts: &[
            Verdict {
                command: "kubectl delete namespace shop --dry-run=server",
                dry_run: "kubectl delete namespace shop --dry-run=server",
                prints: "would be denied",
                is_denied: false,
            },
            Verdict {
                command: "kubectl delete namespace shop",
                dry_run: "kubectl delete namespace shop --dry-run=server",
                prints: "denied the request",
                is_denied: true,
            },
        ],
    };
    guide.follow(context, &environment, |_, _| Ok(Expect::Success))
}

#[e2e::case]
fn the_page_of_in_use_rules_works(context: &'static TestContext) -> Result<()> {
    const DELETE: &str = "kubectl delete --namespace default configmap app";
    const DRY_RUN: &str = "kubectl delete --namespace default configmap app --dry-run=server";
    let environment = exclusive(context)?;
    let guide = Guide {
        page: "deletion/in-use.md",
        values: "1. Install Durward",
        verdicts: &[
            Verdict {
                command: DELETE,
                dry_run: DRY_RUN,
                prints: "still in use: 1 pod (web)",
                is_denied: true,
            },
            Verdict { command: DELETE, dry_run: DRY_RUN, prints: "deleted", is_denied: false },
        ],
    };
    guide.follow(context, &environment, |_, _| Ok(Expect::Success))
}

#[e2e::case]
fn the_page_of_the_etcd_guard_works(context: &'static TestContext) -> Result<()> {
    let environment = exclusive(context)?;
    let (node, kubectl) = (environment.node, environment.node.cluster().kubectl());
    node.image(context, Image::Etcd)?;
    let guide = Guide {
        page: "get-started/etcd.md",
        values: "3. Configure",
        verdicts: &[
            Verdict {
                command: "kubectl -n db delete pod etcd-0 --dry-run=server",
                dry_run: "kubectl -n db delete pod etcd-0 --dry-run=server",
                prints: "would be denied",
                is_denied: false,
            },
            Verdict {
                command: "kubectl -n db delete pod etcd-0",
                dry_run: "kubectl -n db delete pod etcd-0 --dry-run=server",
                prints: "denied the request: cannot delete pod db/etcd-0: it is the etcd leader",
                is_denied: true,
            },
            Verdict {
                command: "kubectl -n db delete pod etcd-1",
                dry_run: "kubectl -n db delete pod etcd-1 --dry-run=server",
                prints: "deleted",
                is_denied: false,
            },
            Verdict {
                command: "kubectl -n db delete pod etcd-1",
                dry_run: "kubectl -n db delete pod etcd-1 --dry-run=server",
                prints: "etcd-2 cannot be reached (no-address)\nNext: bring",
                is_denied: true,
            },
        ],
    };
    let data = context.directory("etcd-guide")?;
    guide.follow(context, &environment, |heading, command| {
        if command.ends_with("apply -f etcd.yaml") {
            make_volumes(node, &data)?;
        } else if command.ends_with("doctor etcd") {
            lead_by(node, "etcd-0")?;
            // Beside other cases, a member answers later than Durward waits.
            until("Durward to reach the members", || {
                let doctor = kubectl.run(&command.split(' ').skip(1).collect::<Vec<_>>())?;
                Ok((doctor.is_success(), doctor.stdout))
            })?;
        } else if command.contains("rollout status") {
            until("three healthy members", || {
                let health =
                    ["exec", "-n", "db", "etcd-0", "--", "etcdctl", "endpoint", "health", "--cluster"];
                let health = kubectl.run(&health)?;
                Ok((health.is_success() || heading.starts_with("1."), health.stderr))
            })?;
        } else if command.contains("\"partition\":0") {
            kubectl
                .run(&["wait", "-n", "db", "pod", "etcd-2", "--for=condition=Ready", "--timeout=2m"])?
                .succeeded()?;
        }
        Ok(Expect::Success)
    })?;
    kubectl.run(&["delete", "namespace", "db"])?.succeeded().map(drop)
}

#[e2e::case]
fn the_page_of_the_lxcfs_guard_works(context: &'static TestContext) -> Result<()> {
    let environment = exclusive(context)?;
    let guide = Guide {
        page: "get-started/lxcfs.md",
        values: "2. Configure and install Durward",
        verdicts: &[
            Verdict {
                command: "kubectl apply -f web.yaml --dry-run=server",
                dry_run: "kubectl apply -f web.yaml --dry-run=server",
                prints: "audit:",
                is_denied: false,
            },
            Verdict {
                command: "kubectl apply -f web.yaml",
                dry_run: "kubectl apply -f web.yaml --dry-run=server -o yaml",
                prints: "durward.dev/lxcfs-status",
                is_denied: false,
            },
        ],
    };
    guide.follow(context, &environment, |_, _| Ok(Expect::Success))?;
    let kubectl = environment.node.cluster().kubectl();
    kubectl.run(&["delete", "pod", "web", "--now"])?.succeeded().map(drop)
}

impl Guide {
    /// Runs the commands of the page on a cluster without Durward. Only names of images differ. `prepare` gets the heading and the
    /// command of each other command.
    fn follow(
        &self,
        context: &'static TestContext,
        environment: &Environment,
        mut prepare: impl FnMut(&str, &str) -> Result<Expect>,
    ) -> Result<()> {
        environment.remove()?;
        let directory = context.directory("guide")?;
        let mut node = json!({"image": values()["image"]});
        if self.page.ends_with("/etcd.md") {
            // Beside other cases, a member needs longer than a second, the tenth of the default.
            node["config"]["guards"]["etcd"]["webhook"]["timeoutSeconds"] = 30.into();
        }
        write(&directory, "node.json", &node.to_string())?;
        write(&directory, "values.yaml", &pages::block(self.page, "yaml", self.values)?)?;
        if let Ok(pod) = pages::block(self.page, "yaml", "3. See a warning") {
            let image = Image::Busybox.name();
            write(&directory, "web.yaml", &pod.replace("buildpack-deps:bookworm-scm", image))?;
        }
        if let Ok(app) = pages::block(self.page, "yaml", "2. Mount a ConfigMap") {
            write(&directory, "app.yaml", &app)?;
        }
        write(&directory, "etcd.yaml", &ETCD.replace(ETCD_IMAGE, Image::Etcd.name()))?;
        let shell = Shell::new(context, environment.node.cluster(), &directory)?.with_helm()?;
        let mut verdicts: VecDeque<_> = self.verdicts.iter().collect();
        let mut is_upgraded = false;
        shell.run_page(self.page, |heading, command| {
            if command.starts_with("helm ") {
                // The namespace of the other cases enforces Pod Security.
                environment.make_home()?;
                is_upgraded = command.starts_with("helm upgrade");
                command.push_str(" --values node.json");
                return Ok(Expect::Success);
            }
            if command.contains("apt-get") || command.contains("get customresourcedefinitions") {
                return Ok(Expect::Skip);
            }
            if command == "kubectl create namespace durward-system" {
                return Ok(Expect::Skip);
            }
            *command = command.replace("examples/etcd/statefulset.yaml", "etcd.yaml");
            let next = verdicts.front().copied().filter(|next| next.command == command);
            let Some(verdict) = next else { return prepare(heading, command) };
            verdicts.pop_front();
            if std::mem::take(&mut is_upgraded) {
                environment.mount_again()?;
            }
            eventually(format_args!("{} to print {:?}", verdict.dry_run, verdict.prints), WITHIN, || {
                let output = shell.run(verdict.dry_run)?;
                let text = format!("{}{}", output.stdout, output.stderr);
                let is_ready = output.is_success() != verdict.is_denied && text.contains(verdict.prints);
                Ok(if is_ready { Poll::Ready(()) } else { Poll::Pending(text) })
            })?;
            Ok(if verdict.is_denied { Expect::Failure } else { Expect::Success })
        })?;
        ensure!(verdicts.is_empty(), "the page has no {:?}", verdicts.front().map(|next| next.command));
        environment.remove()?;
        environment.audit.clear()
    }
}

/// The kubelet replaces the files of a pod, and etcd has healthy members again.
const WITHIN: Duration = Duration::from_secs(180);

/// Makes the volumes of the three PVCs.
fn make_volumes(node: &Node, data: &Path) -> Result<()> {
    for name in ["etcd-0", "etcd-1", "etcd-2"] {
        let volume = json!({
            "apiVersion": "v1", "kind": "PersistentVolume", "metadata": {"name": format!("guide-{name}")},
            "spec": {
                "capacity": {"storage": "1Gi"}, "accessModes": ["ReadWriteOnce"],
                "persistentVolumeReclaimPolicy": "Retain",
                "claimRef": {"namespace": "db", "name": format!("datadir-{name}")},
                "hostPath": {"path": data.join(name), "type": "DirectoryOrCreate"},
            },
        });
        node.cluster().api().create("/api/v1/persistentvolumes", &volume)?.succeeded()?;
    }
    Ok(())
}

/// Makes a member the leader, as the page shows it.
fn lead_by(node: &Node, name: &str) -> Result<()> {
    let kubectl = node.cluster().kubectl();
    until(format_args!("{name} to lead"), || {
        let status =
            ["exec", "-n", "db", name, "--", "etcdctl", "endpoint", "status", "--cluster", "-w", "json"];
        let status = kubectl.run(&status)?;
        let Ok(all) = serde_json::from_str::<Vec<Value>>(&status.stdout) else {
            return Ok((false, status.stderr));
        };
        let is_led_by = |one: &&Value| one["Status"]["leader"] == one["Status"]["header"]["member_id"];
        let named =
            |one: &&Value| one["Endpoint"].as_str().is_some_and(|place| place.contains(&format!("{name}.")));
        let (Some(leader), Some(wanted)) = (all.iter().find(is_led_by), all.iter().find(named)) else {
            return Ok((false, status.stdout));
        };
        if leader["Endpoint"] == wanted["Endpoint"] {
            return Ok((true, String::new()));
        }
        let id = wanted["Status"]["header"]["member_id"].as_u64().context("a member without an id")?;
        let endpoint = format!("--endpoints={}", leader["Endpoint"].as_str().context("no endpoint")?);
        let moved = ["exec", "-n", "db", name, "--", "etcdctl", &endpoint, "move-leader", &format!("{id:x}")];
        Ok((false, kubectl.run(&moved)?.stderr))
    })
}
