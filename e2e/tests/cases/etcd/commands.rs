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
    let doctor = || installation.command(&["doctor", "etcd", "--output=json"]);

    let (findings, _) = report(&doctor()?.stdout, ns.name())?;
    ensure!(findings.is_empty(), "{findings:?}");
    let follower = etcd.follower()?;
    let _stopped = follower.stop()?;
    let degraded = installation.command(&["doctor", "etcd"])?;
    degraded.exited_with(1)?;
    contains_all(&degraded.stdout, &[ns.name(), follower.name()])?;

    let directory = context.directory("snapshot")?;
    let out = format!("--out={}", directory.display());
    installation.command(&["snapshot", &out])?;
    let snapshot = format!("--snapshot={}", directory.display());
    let config = format!("--config={}", installation.config().display());
    let replayed = Durward::command(context, &["doctor", "etcd", &config, &snapshot, "--output=json"])?;
    replayed.exited_with(1)?;
    let ((_, live), (_, replayed)) =
        (report(&doctor()?.stdout, ns.name())?, report(&replayed.stdout, ns.name())?);
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

/// Pods and the verdict on the deletion of each.
type Verdicts = Vec<(String, String)>;

/// Returns the findings about the etcd cluster of a namespace, and the verdict on the deletion of each of its pods.
fn report(doctor: &str, namespace: &str) -> Result<(Vec<Value>, Verdicts)> {
    let report: Value = serde_json::from_str(doctor).context("doctor's JSON")?;
    let all =
        |name: &str| report[name].as_array().cloned().with_context(|| format!("doctor reports no {name}"));
    let prefix = format!("{namespace}/");
    let is_of = |value: &Value| value.as_str().is_some_and(|name| name.starts_with(&prefix));
    let findings = all("findings")?.into_iter().filter(|one| is_of(&one["etcdCluster"])).collect();
    let clusters = all("clusters")?;
    let cluster =
        clusters.iter().find(|one| one["namespace"] == *namespace).context("doctor misses the cluster")?;
    let members = cluster["members"].as_array().context("doctor reports no members")?;
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let verdict = |member: &Value| (text(&member["name"]), text(&member["deletion"]["verdict"]));
    Ok((findings, members.iter().map(verdict).collect()))
}
