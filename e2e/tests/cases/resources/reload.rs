//! Sets of policies are replaced as a whole, and Namespaces are read when a policy needs them.

use e2e::prelude::*;
use rustix::process::Signal;

use super::{file, guards, policy};
use crate::cases::objects::contains_all;

#[e2e::case]
fn a_set_is_replaced_as_a_whole_and_an_invalid_one_is_reported(context: &'static TestContext) -> Result<()> {
    let cluster = context.cluster(&Options::named("resources-reload"))?;
    let directory = context.directory("resources-reload")?.join("policies");
    std::fs::create_dir_all(&directory)?;
    let write = |name: &str, expression: &str, message: &str| {
        file(&directory, name, &policy(name.trim_end_matches(".yaml"), "configmaps", expression, message))
    };
    write("first.yaml", "has(object.data)", "data is missing")?;
    let paths = [directory.display().to_string()];
    let (_installation, durward) =
        Installation::start(context, &cluster, &guards(&paths, ""), "durward-policies")?;
    let config_map =
        json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a", "namespace": "default"}});
    let create = || cluster.api().create("/api/v1/namespaces/default/configmaps?dryRun=All", &config_map);
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
    let cluster = context.cluster(&Options::named("resources-namespaces"))?;
    let directory = context.directory("resources-namespaces")?;
    let text = policy(
        "tier",
        "configmaps",
        "namespaceObject.metadata.?labels['tier'].orValue('') != 'frozen'",
        "the namespace is frozen",
    );
    let paths = [file(&directory, "tier.yaml", &text)?];
    let (_installation, _durward) =
        Installation::start(context, &cluster, &guards(&paths, ""), "durward-namespaces")?;
    let shop = cluster.namespace("shop")?;
    let config_map = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a"}});
    let create = || cluster.api().create(&format!("{}?dryRun=All", shop.path("configmaps")), &config_map);
    create()?.succeeded()?;
    let path = format!("/api/v1/namespaces/{}", shop.name());
    cluster.api().merge(&path, &json!({"metadata": {"labels": {"tier": "frozen"}}}))?.succeeded()?;
    until("the label to count", || {
        let text = create()?.message().to_owned();
        Ok((text.contains("the namespace is frozen"), text))
    })?;
    cluster.api().merge(&path, &json!({"metadata": {"labels": {"tier": null}}}))?.succeeded()?;
    until("the label to be gone", || {
        let answer = create()?;
        Ok((answer.is_success(), answer.message().to_owned()))
    })
}
