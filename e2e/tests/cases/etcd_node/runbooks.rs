//! The commands of the runbooks, run as the pages have them.

use e2e::prelude::*;

use super::environment::{Environment, exclusive};
use super::rolling_update::{await_healthy, create_etcd};
use crate::cases::environment::{await_injection, opted_in, with_short_grace};
use crate::cases::etcd::environment::{LABEL, Profile, namespace as guarded_namespace};
use crate::cases::files::{DEFAULT_FILES, LxcfsChecks as _};
use crate::cases::load::under_load_of;
use crate::cases::objects::{await_gone, list, name_of};
use crate::cases::outage::denied_unreviewed;
use crate::cases::pages::{Expect, Shell};

/// Reviews before and after the renewal.
const BETWEEN: usize = 30;

/// Returns the etcd cluster of the pages, when all members are healthy.
fn etcd(context: &'static TestContext, fixture: &Environment) -> Result<&'static Namespace<'static>> {
    static DB: Lazy<Namespace<'static>> = Lazy::new();
    let node = fixture.node;
    let db = DB.get(|| {
        let db = node.cluster().exact_namespace("db", &[(LABEL, &Profile::Transfer.name())])?;
        create_etcd(context, node, &db)?;
        Ok(db)
    })?;
    await_healthy(node, db)?;
    Ok(db)
}

/// Waits until the members answer, as the page describes. A pod is Ready before its member answers.
fn await_health(shell: &Shell<'_>, command: &str) -> Result<()> {
    until("every etcd member to be healthy", || {
        let health = shell.run(command)?;
        Ok((health.is_success(), format!("{health:?}")))
    })
}

/// Creates the guarded namespace of the pages. The runbooks of other cases use the same name, so it is deleted first.
fn create_shop(shell: &Shell<'_>, node: &Node) -> Result<()> {
    shell.run("kubectl delete namespace shop --ignore-not-found")?.succeeded()?;
    node.cluster().exact_namespace("shop", &[("durward.dev/guard", "deletion")]).map(drop)
}

#[e2e::case]
fn the_runbooks_for_a_drain_and_an_override_work(context: &'static TestContext) -> Result<()> {
    let fixture = exclusive(context)?;
    let db = etcd(context, &fixture)?;
    let shell = Shell::new(context, fixture.node.cluster(), &context.directory("override")?)?;
    let expect = |command: &str| shell.run(command)?.succeeded().map(drop);
    fixture.changing(|| {
        shell.run_page("runbooks/drain.md", |_, command| {
            if command.contains("etcdctl") {
                await_health(&shell, command)?;
            }
            Ok(if command.contains("doctor") { Expect::NoFinding("db/") } else { Expect::Success })
        })?;
        // etcd-2 is missing: its new pod is not scheduled.
        expect(&format!("kubectl cordon {}", e2e::node::NAME))?;
        expect("kubectl -n db delete pod etcd-2")?;
        let denied = shell.run("kubectl -n db delete pod etcd-1")?;
        ensure!(!denied.is_success() && denied.stderr.contains("quorum"), "{}", denied.stderr);
        create_shop(&shell, fixture.node)?;
        shell.run_page("runbooks/override.md", |_, _| Ok(Expect::Success))?;
        expect(&format!("kubectl uncordon {}", e2e::node::NAME))?;
        await_healthy(fixture.node, db)
    })
}

#[e2e::case]
fn the_runbooks_for_an_outage_and_for_troubleshooting_work(context: &'static TestContext) -> Result<()> {
    let fixture = exclusive(context)?;
    let node = fixture.node;
    let db = etcd(context, &fixture)?;
    let shell = Shell::new(context, node.cluster(), &fixture.directory)?;
    let new_shop = || create_shop(&shell, node);
    new_shop()?;
    let scale = |replicas: u8| {
        let command = format!("kubectl -n durward-system scale deployment durward --replicas={replicas}");
        shell.run(&command)?.succeeded().map(drop)
    };
    let restore = || {
        scale(2)?;
        node.await_workload(&fixture.namespace, "deployments", "durward")?;
        shell.restore_webhooks()?;
        fixture.await_guard()
    };
    let stop = || {
        scale(0)?;
        until("Durward to be down", || {
            let pods = list(node.cluster().api(), &fixture.namespace.path("pods"))?;
            Ok((pods.is_empty(), format!("{} pods", pods.len())))
        })
    };
    // The object after `annotate` cannot be deleted yet.
    let await_denial = |command: &str| {
        let before = command.replace(" annotate ", " delete --dry-run=server ");
        let before = before.rsplit_once(' ').context("an annotation")?.0;
        until("a deletion to be denied while Durward is down", || {
            let denied = shell.run(before)?;
            let is_denied = !denied.is_success() && denied.stderr.contains("failed calling webhook");
            Ok((is_denied, format!("{before}: {denied:?}")))
        })
    };
    fixture.changing(|| {
        stop()?;
        ends_without_durward(&fixture)?;
        let down = shell.run_page("runbooks/durward-down.md", |_, command| {
            if command.contains("annotate") {
                await_denial(command)?;
            } else if command.contains("etcdctl") {
                await_healthy(node, db)?;
                await_health(&shell, command)?;
            }
            // This cluster does not run Karmada. A case of the deletion guard runs that command.
            Ok(if command.contains("karmada") { Expect::Skip } else { Expect::Success })
        });
        let troubleshooting = down.and_then(|()| {
            shell.run_page("runbooks/index.md", |_, command| {
                if command.contains("get validatingwebhookconfiguration") {
                    restore()?;
                    new_shop()?;
                } else if command.ends_with("durward doctor") {
                    await_healthy(node, db)?;
                }
                Ok(match command.split(' ').find(|word| ["lxcfs", "snapshot"].contains(word)) {
                    None if command.ends_with("durward doctor") => Expect::NoFinding("db/"),
                    Some("lxcfs") => Expect::Report("no information about LXCFS on node-1"),
                    // The addresses of pods, and so the members, can't be reached from this host.
                    Some(_) => Expect::Report("incident: 1 cluster; replay with: durward impact ns/shop"),
                    None => Expect::Success,
                })
            })
        });
        restore()?;
        troubleshooting
    })
}

/// While Durward is down, the deletion of an etcd pod fails, and the namespace controller deletes the pods of a terminating namespace.
fn ends_without_durward(fixture: &Environment) -> Result<()> {
    let cluster = fixture.node.cluster();
    let ending = guarded_namespace(cluster, "ending", Profile::Transfer)?;
    let container = e2e::node::idle(json!({}));
    ending
        .pod("etcd")
        .labelled("app", "etcd")
        .with(with_short_grace)
        .container_like("etcd", container)
        .is_admitted()?;
    let api = cluster.api();
    let denied = api.delete(&format!("{}/etcd", ending.path("pods")))?;
    ensure!(denied.message().contains("failed calling webhook"), "{}: {}", denied.status, denied.message());
    let path = format!("/api/v1/namespaces/{}", ending.name());
    api.delete(&path)?.succeeded()?;
    await_gone(cluster, &path)
}

#[e2e::case]
fn renewing_the_certificate_as_its_page_says_fails_no_call(context: &'static TestContext) -> Result<()> {
    let fixture = exclusive(context)?;
    let (node, pods) = (fixture.node, fixture.namespace.path("pods"));
    let (cluster, shop) = (node.cluster(), node.namespace("renewal")?);
    await_injection(&shop)?;
    let shell = Shell::new(context, cluster, &fixture.directory)?;
    let expiry = || -> Result<Vec<String>> {
        let read = |pod: &Value| -> Result<String> {
            let metrics = format!("kubectl get --raw {pods}/http:{}:8080/proxy/metrics", name_of(pod));
            let metric = format!("{metrics} | grep ^durward_certificate_not_after_seconds");
            Ok(shell.run(&metric)?.succeeded()?.stdout)
        };
        list(cluster.api(), &pods)?.iter().map(read).collect()
    };
    let (before, failed) = (expiry()?, denied_unreviewed(cluster)?);
    let (calls, ()) = under_load_of(
        &shop,
        |shop, name| opted_in(shop, name).as_dry_run(),
        |_, pod| pod.with_files(&DEFAULT_FILES)?.without_warnings().map(drop),
        |load| {
            load.await_more(BETWEEN)?;
            shell.run_page("operate/certificates.md", |heading, _| {
                let is_here = heading == "Renew the serving certificate";
                Ok(if is_here { Expect::Success } else { Expect::Skip })
            })?;
            // The kubelet updates the files of a pod at once when the pod changes, and otherwise within a minute.
            shell.run("kubectl -n durward-system annotate pods --all renewed=now")?.succeeded()?;
            until("both replicas to use the new certificate", || {
                let now = expiry()?;
                let is_new = now.len() == 2 && now.iter().all(|line| !before.contains(line));
                Ok((is_new, format!("{before:?}, {now:?}")))
            })?;
            // With other pods, the API server opens new connections and sees the new certificate.
            let durward = "-n durward-system deployment/durward";
            shell
                .run(&format!("kubectl rollout restart {durward} && kubectl rollout status {durward}"))?
                .succeeded()?;
            load.await_more(BETWEEN)
        },
    )?;
    let failed = denied_unreviewed(cluster)? - failed;
    print(format_args!("the certificate was renewed: {calls:?}, and {failed} calls of the webhook failed"));
    ensure!(failed < calls.starved as f64 + 0.5, "{failed} calls failed: {calls:?}");
    Ok(())
}
