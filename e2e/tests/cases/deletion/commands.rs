//! The commands of Durward on a real fleet.

use std::os::unix::fs::symlink;

use e2e::prelude::*;

use super::environment::{exclusive, shared};
use super::objects::{exists, path_of};
use crate::cases::attempt::Attempt;
use crate::cases::objects::contains_all;
use crate::cases::pages::{Expect, Shell};

#[e2e::case]
fn impact_gives_the_verdict_of_the_guard(context: &'static TestContext) -> Result<()> {
    let fleet = shared(context)?;
    let (shop, empty) = (fleet.namespace("shop")?, fleet.namespace("empty")?);
    fleet.run_pod("m2", &shop, "web")?;
    let installation = fleet.installation();
    let (used, free) = (format!("ns/{}", shop.name()), format!("ns/{}", empty.name()));

    let output = installation.command(&["impact", &used])?;
    output.exited_with(1)?;
    contains_all(&output.stdout, &["m2", "1 pod", "web"])?;
    let json = installation.command(&["impact", &used, "--output=json"])?;
    let impact: Value = serde_json::from_str(&json.stdout).context("impact's JSON")?;
    ensure!(impact.to_string().contains("\"web\""), "impact's JSON does not name the pod: {impact}");
    let output = installation.command(&["impact", &free])?;
    output.exited_with(0)?;
    exists(fleet.karmada(), &path_of(&shop))?;
    exists(fleet.karmada(), &path_of(&empty))
}

#[e2e::case(Exclusive)]
fn a_stopped_member_is_unchecked_in_a_snapshot_and_for_the_doctor(
    context: &'static TestContext,
) -> Result<()> {
    let fleet = exclusive(context)?;
    let (shop, empty) = (fleet.namespace("shop")?, fleet.namespace("empty")?);
    fleet.run_pod("m3", &shop, "web")?;
    let installation = fleet.installation();
    let directory = context.directory("snapshot")?.join("snapshot");
    let out = format!("--out={}", directory.display());
    let (used, free) = (format!("ns/{}", shop.name()), format!("ns/{}", empty.name()));
    let stopped = fleet.member("m2")?.stop()?;
    let config = format!("--config={}", installation.config().display());
    installation.command(&["snapshot", &out, &used, &free])?;
    let snapshot = format!("--snapshot={}", directory.display());
    for (what, namespace, code) in [(&used, &shop, 1), (&free, &empty, 3)] {
        let live = installation.command(&["impact", what, "--output=json"])?;
        let replayed = Durward::command(context, &["impact", what, &config, &snapshot, "--output=json"])?;
        live.exited_with(code)?;
        ensure!(replayed.code() == live.code(), "replayed it is {:?}: {}", replayed.code(), replayed.stderr);
        let (live, replayed) = (findings(&live.stdout)?, findings(&replayed.stdout)?);
        ensure!(live == replayed, "replayed it is {replayed:?}\nand live {live:?}");
        fleet.dry_run(&path_of(namespace))?.denied()?;
    }
    let output = installation.command(&["doctor", "fleet"])?;
    output.exited_with(1)?;
    ensure!(output.stdout.contains("m2"), "doctor does not name m2: {}", output.stdout);
    stopped.undo()
}

/// Returns the verdict and the findings of each cluster. Texts are left out, because those of a snapshot differ.
fn findings(impact: &str) -> Result<Vec<Value>> {
    let impact: Value = serde_json::from_str(impact).context("impact's JSON")?;
    let report = impact.get(0).context("impact reported no object")?;
    let clusters = report["clusters"].as_array().context("impact reported no clusters")?;
    ensure!(clusters.len() == 4, "impact reported {} clusters", clusters.len());
    let found = clusters.iter().map(|cluster| {
        let causes: Vec<&Value> =
            cluster["unchecked"].as_array().into_iter().flatten().map(|why| &why["cause"]).collect();
        json!([cluster["cluster"], cluster["state"], cluster["inUse"], causes])
    });
    Ok(std::iter::once(report["verdict"].clone()).chain(found).collect())
}

#[e2e::case(Exclusive)]
fn the_runbook_for_an_outage_unblocks_a_karmada_control_plane(context: &'static TestContext) -> Result<()> {
    let fleet = exclusive(context)?;
    let (_shop, path) = fleet.new_namespace("shop")?;
    let directory = context.directory("karmada-admin")?;
    symlink(fleet.karmada().kubectl().kubeconfig(), directory.join("karmada-admin.config"))?;
    let shell = Shell::new(context, fleet.karmada(), &directory)?;
    let down = fleet.stop_durward(context);
    fleet.dry_run(&path)?.not_reviewed()?;
    let followed = shell.run_page("runbooks/durward-down.md", |_, command| {
        Ok(if command.contains("karmada") { Expect::Success } else { Expect::Skip })
    });
    let unblocked =
        followed.and_then(|()| fleet.await_dry_run("a deletion to be allowed", &path, Attempt::is_allowed));
    drop(down);
    fleet.installation().register()?;
    fleet.await_dry_run("the guard to be called", &path, |attempt| attempt.has_warning("is not in use"))?;
    unblocked
}
