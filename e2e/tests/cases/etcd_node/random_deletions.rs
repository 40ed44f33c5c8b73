//! Several callers delete and evict random members for a while, as a script or a node upgrade that has gone wrong.

use std::hash::{BuildHasher as _, RandomState};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Instant;

use e2e::etcd_cluster::writer::{Addresses, Cost, under_writes};
use e2e::prelude::*;
use e2e::wait::SetOnDrop;

use super::environment::{Environment, exclusive};
use super::rolling_update::{MEMBERS, addresses, create_etcd};
use crate::cases::etcd::environment::Profile;

const CALLERS: usize = 4;

/// How long the callers delete.
const ATTACK: Duration = Duration::from_secs(90);

/// Pause between two requests of one caller.
const PAUSE: Duration = Duration::from_millis(250);

/// An election takes at least three seconds here, so a shorter gap means that no leader was lost.
const MAX_GAP: Duration = Duration::from_secs(3);

#[e2e::case(Soak)]
fn random_deletions_for_90_seconds_interrupt_no_write(context: &'static TestContext) -> Result<()> {
    let fixture = exclusive(context)?;
    let guarded = random_deletions_cost(context, &fixture, Some(Profile::Transfer))?;
    let unguarded = random_deletions_cost(context, &fixture, None)?;
    ensure!(guarded.lost.is_empty(), "these acknowledged writes are lost: {:?}", guarded.lost);
    ensure!(guarded.gap <= MAX_GAP, "writes stopped for {:?}, and the limit is {MAX_GAP:?}", guarded.gap);
    let unguarded = unguarded.gap;
    ensure!(unguarded > 4 * MAX_GAP, "without Durward, writes stopped for {unguarded:?} only");
    Ok(())
}

/// Measures the cost of random deletions in a namespace with this guard.
fn random_deletions_cost(
    context: &TestContext,
    fixture: &Environment,
    profile: Option<Profile>,
) -> Result<Cost> {
    let node = fixture.node;
    let ns = fixture.namespace("random", profile)?;
    create_etcd(context, node, &ns)?;
    let members = Addresses::default();
    members.set(addresses(node, &ns)?);
    let (is_over, allowed, denied) = (AtomicBool::new(false), AtomicUsize::new(0), AtomicUsize::new(0));
    let cost = under_writes(&node.network(), &members, || {
        std::thread::scope(|scope| {
            let callers: Vec<_> = (0..CALLERS)
                .map(|_| scope.spawn(|| delete_at_random(&ns, &is_over, &allowed, &denied)))
                .collect();
            let stop = SetOnDrop(&is_over);
            let start = Instant::now();
            while start.elapsed() < ATTACK {
                members.set(addresses(node, &ns)?);
                std::thread::sleep(PAUSE);
            }
            drop(stop);
            let panicked = |_| bail!("a caller panicked");
            callers.into_iter().try_for_each(|caller| caller.join().unwrap_or_else(panicked))
        })?;
        // The writes are read back from the etcd cluster, so it must be whole again.
        until("three members to run", || {
            members.set(addresses(node, &ns)?);
            let set = node.cluster().api().get(&format!("{}/etcd", ns.path("apps/v1/statefulsets")))?;
            let ready = set.succeeded()?.body["status"]["readyReplicas"].clone();
            Ok((ready == 3, ready))
        })
    })?;
    let (allowed, denied) = (allowed.into_inner(), denied.into_inner());
    ensure!(allowed > 0, "no deletion was allowed");
    let guard = if profile.is_some() { "with Durward" } else { "without Durward" };
    print(format_args!(
        "{CALLERS} callers for {ATTACK:?}, {guard}: {} writes, longest gap {:.2?}, {} lost; {allowed} requests allowed, {denied} denied",
        cost.acknowledged,
        cost.gap,
        cost.lost.len()
    ));
    Ok(cost)
}

/// Deletes or evicts one member after the other until `is_over` is set.
fn delete_at_random(
    ns: &Namespace<'_>,
    is_over: &AtomicBool,
    allowed: &AtomicUsize,
    denied: &AtomicUsize,
) -> Result<()> {
    let random = RandomState::new();
    for number in 0_u32.. {
        if is_over.load(Ordering::Relaxed) {
            break;
        }
        let dice = usize::try_from(random.hash_one(number) % 6)?;
        let (name, api) = (MEMBERS[dice / 2], ns.cluster().api());
        let path = format!("{}/{name}", ns.path("pods"));
        let eviction = json!({"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": name}});
        let answer = match dice % 2 {
            0 => api.delete(&path)?,
            _ => api.create(&format!("{path}/eviction"), &eviction)?,
        };
        let count = if answer.is_success() { allowed } else { denied };
        // A pod that is being replaced does not exist for a moment.
        if answer.status != 404 {
            count.fetch_add(1, Ordering::Relaxed);
        }
        std::thread::sleep(PAUSE);
    }
    Ok(())
}
