//! Healthy etcd clusters that cases have left, for the next cases.
//!
//! The start of three members takes two seconds of processor time, and their election two seconds more. A cluster is kept only if it is as
//! after its start, apart from its data and its leader:
//!
//! - every member runs, agrees on the leader and reports no error
//! - the list of members has three voters
//! - no login is required

use std::sync::{Mutex, MutexGuard, PoisonError};

use anyhow::{Result, bail, ensure};
use serde_json::json;

use super::EtcdCluster;

/// Members of a cluster that can be kept.
pub(super) const MEMBERS: usize = 3;

/// Clusters that are kept. More cases at the same time start their own.
const MAX_SPARE: usize = 2;

static SPARE: Mutex<Vec<EtcdCluster>> = Mutex::new(Vec::new());

/// Takes a cluster that is still healthy.
pub(super) fn take() -> Option<EtcdCluster> {
    loop {
        // One that is not healthy any more ends when it is dropped.
        let etcd = spare().pop()?;
        if check(&etcd).is_ok() {
            return Some(etcd);
        }
    }
}

/// Keeps a cluster if it is healthy. The caller's value is empty then.
pub(super) fn keep(etcd: &mut EtcdCluster) -> bool {
    if std::thread::panicking() || check(etcd).is_err() {
        return false;
    }
    let mut spare = spare();
    let has_room = spare.len() < MAX_SPARE;
    if has_room {
        spare.push(etcd.take());
    }
    has_room
}

/// Ends all of them.
pub(super) fn end_all() {
    let mut ended = std::mem::take(&mut *spare());
    for etcd in &mut ended {
        etcd.is_default = false;
    }
}

fn check(etcd: &EtcdCluster) -> Result<()> {
    let mut leaders = Vec::new();
    for member in &etcd.members {
        ensure!(member.is_up(), "{} does not run", member.name());
        let status = member.status()?;
        ensure!(status.errors.is_empty(), "{}: {:?}", member.name(), status.errors);
        leaders.push((status.term, status.leader));
    }
    leaders.dedup();
    ensure!(matches!(leaders[..], [(_, Some(_))]), "the leaders are {leaders:?}");
    let Some(member) = etcd.members.first() else { bail!("it has no members") };
    let authentication = member.ask("/v3/auth/status", &json!({}))?.succeeded()?;
    ensure!(authentication["enabled"].is_null(), "it requires logins");
    let listed = member.ask("/v3/cluster/member/list", &json!({}))?.succeeded()?["members"].take();
    let listed = listed.as_array().map(Vec::as_slice).unwrap_or_default();
    let voters = listed.iter().filter(|member| member["isLearner"].is_null()).count();
    ensure!(voters == MEMBERS && listed.len() == MEMBERS, "the members are {listed:?}");
    Ok(())
}

fn spare() -> MutexGuard<'static, Vec<EtcdCluster>> {
    SPARE.lock().unwrap_or_else(PoisonError::into_inner)
}
