//! `durward doctor etcd`, and a snapshot that is replayed elsewhere.

use e2e::etcd_cluster::EtcdCluster;
use e2e::prelude::*;

use super::environment::{Profile, installed, namespace, scratch};
use super::requests::dry_run;
use crate::cases::objects::contains_all;

/// Uses only the credentials and permissions that are printed for Durward itself.
#[e2e::case]
fn doctor_and_a_snapshot_give_the_verdict_of_each_pod(context: &'static TestContext) -> Result<()> {
    let cluster = scratch(context)?;
    let (installation, _durward) = installed(context, cluster, &[])?;
    let ns = namespace(cluster, "doctor", Profile::Transfer)?;
    let etcd = EtcdCluster::of(3).start(context)?;
    let pods = etcd.pods_in(&ns)?;
    let only = format!("--namespace={}", ns.name());

    let healthy = installation.command(&["doctor", "etcd", &only])?;
    healthy.exited_with(0)?;
    let follower = etcd.follower()?;
    let _stopped = follower.stop()?;
    let degraded = installation.command(&["doctor", "etcd", &only])?;
    degraded.exited_with(1)?;
    contains_all(&degraded.stdout, &[follower.name()])?;

    let directory = context.directory("snapshot")?;
    let out = format!("--out={}", directory.display());
    installation.command(&["snapshot", &out])?;
    let snapshot = format!("--snapshot={}", directory.display());
    let config = format!("--config={}", installation.config().display());
    let replayed =
        Durward::command(context, &["doctor", "etcd", &config, &snapshot, &only, "--output=json"])?;
    let live = installation.command(&["doctor", "etcd", &only, "--output=json"])?;
    replayed.exited_with(1)?;
    let (live, replayed) = (verdicts(&live.stdout)?, verdicts(&replayed.stdout)?);
    ensure!(live.len() == 3 && live == replayed, "replayed it is {replayed:?}\nand live {live:?}");
    for (pod, verdict) in live {
        let attempt = dry_run(&pods, &pod)?;
        match verdict.as_str() {
            "allow" => attempt.allowed().map(drop)?,
            _ => attempt.denied().map(drop)?,
        }
    }
    Ok(())
}

/// Returns the verdict on the deletion of each pod of the only etcd cluster.
fn verdicts(doctor: &str) -> Result<Vec<(String, String)>> {
    let report: Value = serde_json::from_str(doctor).context("doctor's JSON")?;
    let members = report["clusters"][0]["members"].as_array().context("doctor reports no members")?;
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    Ok(members.iter().map(|member| (text(&member["name"]), text(&member["deletion"]["verdict"]))).collect())
}
