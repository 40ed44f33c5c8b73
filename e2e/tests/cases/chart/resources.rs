//! The guard `resources` in pods: an upgrade that turns it on, and the commands of the page about custom resources.

use std::path::Path;

use e2e::context::write;
use e2e::prelude::*;

use super::configurations::HOME;
use super::environment::{Environment, exclusive, home_path, installed, values};
use crate::cases::environment::eventually_ok;
use crate::cases::objects::contains_all;
use crate::cases::pages::{self, Expect, Shell};
use crate::cases::policies::EXAMPLE;

/// The page, relative to `docs/src`.
const PAGE: &str = "get-started/custom-resources.md";

/// The first message of the example's policy.
const DENIED: &str = "spec.masterList must begin with a master";

/// The `ConfigMap` of the upgrade.
const CONFIG_MAP: &str = "company-rules";

/// A release without the guard gets it, with policies of a `ConfigMap`. A change of the `ConfigMap` counts without another command.
#[e2e::case(Soak)]
fn an_upgrade_turns_the_guard_on_without_a_failed_call(context: &'static TestContext) -> Result<()> {
    let environment = installed(context)?;
    let kubectl = environment.node.cluster().kubectl();
    kubectl.run(&["apply", "-f", &example("crd.yaml")])?.succeeded()?;
    environment.await_verdict("")?;
    let policy = std::fs::read_to_string(example("policy.yaml"))?;
    let map = |text: &str| {
        let map = json!({
            "apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": CONFIG_MAP, "namespace": HOME},
            "data": {"rules.yaml": text},
        });
        kubectl.apply(&map.to_string())?.succeeded().map(drop)
    };
    map(&policy)?;
    let base = values();
    environment.install(&base)?;
    let mut guarded = base.clone();
    guarded["config"]["guards"]["resources"] = json!({});
    guarded["policies"] = json!({"configMap": CONFIG_MAP});
    environment.under_load(|load| {
        load.await_more(10)?;
        environment.release(&guarded)?;
        environment.await_verdict(DENIED)?;
        load.await_more(10)
    })?;
    // The kubelet replaces the files within about a minute.
    map(&policy.replace(DENIED, "changed spec.masterList must begin with a master"))?;
    environment.mount_again()?;
    eventually("the changed policy", Duration::from_secs(180), || {
        Ok(Poll::from(environment.verdict_is("changed spec.masterList")))
    })?;
    environment.audit.has_no_forbidden_requests()?;
    environment.helm.uninstall(HOME, &[])?.succeeded()?;
    environment.await_verdict("")?;
    environment.api().delete(&format!("{}/{CONFIG_MAP}", home_path("configmaps")))?.succeeded().map(drop)
}

/// From a cluster without Durward to the first denial.
#[e2e::case]
fn the_page_of_custom_resources_works(context: &'static TestContext) -> Result<()> {
    let environment = exclusive(context)?;
    environment.remove()?;
    let directory = context.directory("custom-resources")?;
    copy(Path::new(EXAMPLE), &directory.join("examples/kubernetesclusters"))?;
    let image = values()["image"].clone();
    write(&directory, "node.json", &json!({"image": image}).to_string())?;
    write(&directory, "values.yaml", &pages::block(PAGE, "yaml", "3. The guard")?)?;
    let shell = Shell::new(context, environment.node.cluster(), &directory)?.with_helm()?;
    let kubectl = environment.node.cluster().kubectl();
    kubectl.run(&["delete", "crd", "kubernetesclusters.ecs.yun.com", "--ignore-not-found"])?.succeeded()?;
    let mut installed = false;
    shell.run_page(PAGE, |heading, command| {
        if command.starts_with("helm ") {
            installed = true;
            command.push_str(" --values node.json");
        }
        if command == "kubectl create namespace durward-system" {
            // The namespace of the other cases enforces Pod Security.
            environment.make_home()?;
            return Ok(Expect::Skip);
        }
        if command.contains("logs") {
            eventually_ok("the log to have the request", || {
                let printed = shell.run(command)?.succeeded()?.stdout;
                ensure!(printed.trim() == "1", "{printed}");
                Ok(())
            })?;
        }
        let is_write = command.starts_with("kubectl create -f")
            || command.starts_with("kubectl apply -f examples/kubernetesclusters/with-key");
        if command.starts_with("durward check") {
            return Ok(Expect::Failure);
        }
        if !is_write {
            return Ok(Expect::Success);
        }
        // The API server serves a new CRD, and evaluates policies, some time after they were created.
        let is_allowed = command.contains("with-key") || heading == "Audit first";
        let expected = match heading {
            "Audit first" => "would be denied",
            _ if is_allowed => "",
            _ => DENIED,
        };
        if heading == "Enforce" {
            environment.mount_again()?;
        }
        let dry = format!("{command} --dry-run=server");
        eventually(format_args!("{command} to print {expected:?}"), Duration::from_secs(180), || {
            let output = shell.run(&dry)?;
            let text = format!("{}{}", output.stdout, output.stderr);
            let is_ready = output.is_success() == is_allowed && text.contains(expected);
            Ok(if is_ready { Poll::Ready(()) } else { Poll::Pending(text) })
        })?;
        Ok(if is_allowed { Expect::Success } else { Expect::Failure })
    })?;
    ensure!(installed, "the page does not install Durward");
    kubectl.run(&["delete", "kubernetesclusters", "--all"])?.succeeded()?;
    environment.audit.has_no_forbidden_requests()?;
    // The Job before the removal also asks for the mutating configuration, which this release has no permission for. Pods that
    // end have no permissions.
    environment.remove()?;
    environment.audit.clear()
}

impl Environment {
    /// Waits until a broken object is denied with this text, or allowed if the text is empty.
    fn await_verdict(&self, text: &str) -> Result<()> {
        eventually_ok("the verdict on a broken object", || self.verdict_is(text))
    }

    fn verdict_is(&self, text: &str) -> Result<()> {
        let kubectl = self.node.cluster().kubectl();
        let output = kubectl.run(&["create", "--dry-run=server", "-f", &example("broken.yaml")])?;
        ensure!(output.is_success() == text.is_empty(), "{}", output.stderr);
        contains_all(&output.stderr, &[text])
    }
}

/// Copies the files of a directory. `durward check` reads no file outside of the working directory through a link.
fn copy(from: &Path, to: &Path) -> Result<()> {
    std::fs::create_dir_all(to)?;
    for entry in std::fs::read_dir(from)? {
        let path = entry?.path();
        if path.is_file() {
            std::fs::copy(&path, to.join(path.file_name().context("a file without a name")?))?;
        }
    }
    Ok(())
}

fn example(file: &str) -> String {
    format!("{EXAMPLE}/{file}")
}
