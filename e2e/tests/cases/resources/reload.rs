//! Sets of policies are replaced as a whole, and Namespaces are read when a policy needs them.

use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};

use e2e::prelude::*;
use rustix::process::Signal;

use super::{exclusive, file, guards, policy};
use crate::cases::load::under_load_of;
use crate::cases::objects::contains_all;

const CONFIG_MAPS: &str = "/api/v1/namespaces/default/configmaps?dryRun=All";

#[e2e::case]
fn a_set_is_replaced_as_a_whole_and_an_invalid_one_is_reported(context: &'static TestContext) -> Result<()> {
    let cluster = exclusive(context)?;
    let directory = context.directory("resources-reload")?.join("policies");
    std::fs::create_dir_all(&directory)?;
    let write = |name: &str, expression: &str, message: &str| {
        let text = policy(name.trim_end_matches(".yaml"), "configmaps", "Deny", expression, message);
        file(&directory, name, &text)
    };
    write("first.yaml", "has(object.data)", "data is missing")?;
    let paths = [directory.display().to_string()];
    let (_installation, durward) =
        Installation::start(context, &cluster, &guards(&paths, ""), "durward-policies")?;
    let config_map =
        json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a", "namespace": "default"}});
    let create = || cluster.api().create(CONFIG_MAPS, &config_map);
    let await_message = |words: &[&str]| {
        until(format_args!("the denial to contain {words:?}"), || {
            let answer = create()?;
            let text = answer.message().to_owned();
            Ok((words.iter().all(|word| text.contains(word)), text))
        })
    };
    await_message(&["data is missing"])?;
    // The file is read every ten seconds, and without a signal.
    write("second.yaml", "has(object.metadata.labels)", "labels are missing")?;
    await_message(&["data is missing", "labels are missing"])?;

    // An invalid policy leaves the whole old set in force.
    write("first.yaml", "object.data.x ==", "broken")?;
    durward.signal(Signal::HUP)?;
    until("the invalid set to be reported", || {
        let page = durward.page("/readyz?verbose")?.body;
        Ok((page.contains("first.yaml") && page.contains("stays active"), page))
    })?;
    contains_all(&durward.log()?, &["first.yaml", "the old one stays active"])?;
    await_message(&["data is missing", "labels are missing"])?;
    ensure!(durward.metrics()?.value("durward_config_stale", &[])? > 0.5, "the metric is not set");
    std::fs::remove_file(directory.join("first.yaml"))?;
    until("the set without the invalid policy", || {
        let text = create()?.message().to_owned();
        Ok((text.contains("labels are missing") && !text.contains("data is missing"), text))
    })?;
    // Without any policy the last set stays.
    std::fs::remove_dir_all(&directory)?;
    durward.signal(Signal::HUP)?;
    until("the missing directory to be reported", || {
        let page = durward.page("/readyz?verbose")?.body;
        Ok((page.contains("cannot be read"), page))
    })?;
    await_message(&["labels are missing"])
}

#[e2e::case]
fn labels_of_namespaces_decide_when_they_change(context: &'static TestContext) -> Result<()> {
    let cluster = exclusive(context)?;
    let directory = context.directory("resources-namespaces")?;
    let paths = [file(&directory, "tier.yaml", &tier("configmaps", "Deny"))?];
    let (_installation, _durward) =
        Installation::start(context, &cluster, &guards(&paths, ""), "durward-namespaces")?;
    let shop = cluster.namespace("shop")?;
    let config_map = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a"}});
    let create = || cluster.api().create(&format!("{}?dryRun=All", shop.path("configmaps")), &config_map);
    create()?.succeeded()?;
    set_tier(&shop, &json!("frozen"))?;
    until("the label to count", || {
        let text = create()?.message().to_owned();
        Ok((text.contains(FROZEN), text))
    })?;
    set_tier(&shop, &Value::Null)?;
    until("the label to be gone", || {
        let answer = create()?;
        Ok((answer.is_success(), answer.message().to_owned()))
    })
}

/// Rounds in which the set and a label change under load.
const ROUNDS: usize = 8;

/// A set has two policies, which warn with the name of the set. A warning of one set without the other one is half a set.
#[e2e::case(Slow)]
fn no_object_is_judged_by_half_a_set_under_load(context: &'static TestContext) -> Result<()> {
    let cluster = exclusive(context)?;
    let mounted = Mounted::new(context)?;
    mounted.swap("a")?;
    let paths = [mounted.directory.display().to_string()];
    let (_installation, durward) =
        Installation::start(context, &cluster, &guards(&paths, ""), "durward-under-load")?;
    let shop = cluster.namespace("shop")?;
    let warnings = || Ok::<_, anyhow::Error>(shop.pod("probe").as_dry_run().is_admitted()?.warnings);
    until("the guard to warn", || {
        let warnings = warnings()?;
        Ok((is_whole(&warnings), format!("{warnings:?}")))
    })?;
    let expected = |_: usize, pod: Admitted| {
        ensure!(is_whole(&pod.warnings), "half a set: {:?}", pod.warnings);
        Ok(())
    };
    let (calls, ()) = under_load_of(
        &shop,
        |shop, name| shop.pod(name).as_dry_run(),
        expected,
        |load| {
            for round in 0..ROUNDS {
                let set = if round % 2 == 0 { "b" } else { "a" };
                mounted.swap(set)?;
                set_tier(&shop, &if round % 3 == 0 { json!("frozen") } else { Value::Null })?;
                durward.signal(Signal::HUP)?;
                until(format_args!("set {set}"), || {
                    let warnings = warnings()?;
                    let has_set = warnings.iter().any(|warning| warning.contains(&format!("first of {set}")));
                    Ok((has_set, format!("{warnings:?}")))
                })?;
                load.await_more(5)?;
            }
            Ok(())
        },
    )?;
    let unknown = durward.metrics()?.sum("durward_unknown_total", &[("guard", "resources")]);
    ensure!(unknown < 0.5, "{unknown} requests could not be checked");
    print(format_args!("{} pods were judged by whole sets", calls.as_expected));
    Ok(())
}

/// Returns whether the warnings are those of all policies of one set.
fn is_whole(warnings: &[String]) -> bool {
    ["a", "b"].iter().any(|set| {
        let other = if *set == "a" { "b" } else { "a" };
        let has = |part: &str, set: &str| {
            warnings.iter().any(|warning| warning.contains(&format!("{part} of {set}")))
        };
        ["first", "second"].iter().all(|part| has(part, set) && !has(part, other))
    })
}

/// A directory as the kubelet mounts a `ConfigMap`: a link `..data` to a directory with the files, and links to the files in it.
struct Mounted {
    directory: PathBuf,
}

impl Mounted {
    fn new(context: &TestContext) -> Result<Self> {
        let directory = context.directory("resources-mounted")?;
        for name in ["first.yaml", "second.yaml", "tier.yaml"] {
            symlink(Path::new("..data").join(name), directory.join(name))?;
        }
        Ok(Self { directory })
    }

    /// Replaces all files at once by those of a set.
    fn swap(&self, set: &str) -> Result<()> {
        let version = format!("..{set}");
        let files = self.directory.join(&version);
        std::fs::create_dir_all(&files)?;
        for part in ["first", "second"] {
            let text = policy(part, "pods", "Warn", "false", &format!("{part} of {set}"));
            file(&files, &format!("{part}.yaml"), &text)?;
        }
        file(&files, "tier.yaml", &tier("pods", "Warn"))?;
        let link = self.directory.join("..data_tmp");
        symlink(&version, &link)?;
        std::fs::rename(&link, self.directory.join("..data")).context("cannot replace ..data")
    }
}

const FROZEN: &str = "the namespace is frozen";

/// Returns a policy that depends on a label of the Namespace.
pub(super) fn tier(resource: &str, action: &str) -> String {
    policy(
        "tier",
        resource,
        action,
        "namespaceObject.metadata.?labels['tier'].orValue('') != 'frozen'",
        FROZEN,
    )
}

fn set_tier(namespace: &Namespace<'_>, tier: &Value) -> Result<()> {
    let path = format!("/api/v1/namespaces/{}", namespace.name());
    let labels = json!({"metadata": {"labels": {"tier": tier}}});
    namespace.cluster().api().merge(&path, &labels)?.succeeded().map(drop)
}
