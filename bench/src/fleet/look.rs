//! Who looks at the fleet: a process of its own, with the live world that `durward serve` has.

use std::path::PathBuf;
use std::time::{Duration, Instant};

use futures_util::StreamExt as _;
use futures_util::future::join_all;
use futures_util::stream::FuturesUnordered;
use guards::world::fleet::{Cluster, Fleet, Look, Part, Query};
use guards::world::live::{Access, Live};
use guards::world::{Address, Resource, World};
use serde_json::{Value, json};

use super::answers::NAMESPACE;
use super::{MEMBER_DEADLINE, Shape, bare};
use crate::{Result, kernel};

/// What is read of a member's namespace: resource, field selector, how much.
pub(super) const LISTS: [(&str, &str, &str, Part); 8] = [
    ("", "pods", "status.phase!=Succeeded,status.phase!=Failed", Part::Metadata),
    ("", "persistentvolumeclaims", "", Part::Metadata),
    ("apps", "deployments", "", Part::Metadata),
    ("apps", "statefulsets", "", Part::Metadata),
    ("apps", "daemonsets", "", Part::Metadata),
    ("batch", "jobs", "", Part::Whole),
    ("batch", "cronjobs", "", Part::Metadata),
    ("", "services", "spec.type=LoadBalancer", Part::Metadata),
];

/// What was found.
#[derive(Debug, Default, PartialEq, Eq)]
struct Found {
    members: usize,
    have: usize,
    pods: usize,
    unknown: usize,
}

/// Carries out an order of [`measure`](super::measure) and prints what it took.
pub(crate) fn look(order: &str) -> Result<bool> {
    let order: Value = serde_json::from_str(order)?;
    let count = |key: &str| order[key].as_u64().and_then(|count| usize::try_from(count).ok());
    let shape = Shape {
        members: count("members").unwrap_or_default(),
        have: count("have").unwrap_or_default(),
        pods: count("pods").unwrap_or_default(),
        hangs: count("hangs"),
    };
    let kubeconfig = PathBuf::from(order["kubeconfig"].as_str().ok_or("no kubeconfig")?);
    let rounds = count("rounds").unwrap_or(1);
    // As `durward serve` has it: as many threads as there are cores to use.
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    let mut times = Times::default();
    if order["how"] == "bare" {
        runtime.block_on(bare::rounds(&kubeconfig, shape, rounds, &mut times))?;
    } else {
        runtime.block_on(verdicts(kubeconfig, shape, rounds, &mut times))?;
    }
    println!("{}", json!({"took": times.took, "cpu": times.cpu, "peak": kernel::peak("self")?}));
    Ok(true)
}

/// In microseconds, round by round.
#[derive(Default)]
pub(super) struct Times {
    took: Vec<u64>,
    cpu: Vec<u64>,
}

impl Times {
    /// Notes one round that began at `since`, when so much had been run.
    pub(super) fn note(&mut self, since: Instant, ran: Duration) -> Result<()> {
        self.took.push(u64::try_from(since.elapsed().as_micros())?);
        self.cpu.push(u64::try_from(kernel::cpu("self")?.saturating_sub(ran).as_micros())?);
        Ok(())
    }
}

async fn verdicts(kubeconfig: PathBuf, shape: Shape, rounds: usize, times: &mut Times) -> Result<()> {
    let access = Access { kubeconfig: Some(kubeconfig), context: None };
    let world = Live::connect(&access).await.map_err(|problem| problem.to_string())?;
    let unknown = usize::from(shape.hangs.is_some());
    let expected = Found { members: shape.members, have: shape.have, pods: shape.have * shape.pods, unknown };
    for _ in 0..rounds {
        let (since, ran) = (Instant::now(), kernel::cpu("self")?);
        let found = verdict(&world).await?;
        times.note(since, ran)?;
        if found != expected {
            return Err(format!("found {found:?}, there is {expected:?}").into());
        }
    }
    Ok(())
}

async fn verdict(world: &Live) -> Result<Found> {
    let deadline = Instant::now() + Duration::from_secs(8);
    let members = world.members(&Fleet::Karmada, deadline).await.map_err(|cause| cause.text)?;
    let deadline = Instant::now() + MEMBER_DEADLINE;
    let mut asked: FuturesUnordered<_> =
        members.iter().map(|member| one(world, &member.cluster, deadline)).collect();
    let mut found = Found { members: members.len(), ..Found::default() };
    while let Some(answer) = asked.next().await {
        match answer {
            Ok(None) => {}
            Ok(Some(pods)) => {
                found.have += 1;
                found.pods += pods;
            }
            Err(()) => found.unknown += 1,
        }
    }
    Ok(found)
}

/// How many objects are in the namespace of one member; nothing if it has no such namespace.
async fn one(world: &Live, of: &Cluster, deadline: Instant) -> Result<Option<usize>, ()> {
    let address = Address { resource: &Resource::NAMESPACES, namespace: "", name: NAMESPACE };
    let found = world.find(of, Look { address, part: Part::Metadata }, deadline).await.map_err(drop)?;
    if found.is_none() {
        return Ok(None);
    }
    let lists = LISTS.map(|(group, plural, fields, part)| async move {
        let resource = Resource { group: group.into(), version: "v1".into(), plural: plural.into() };
        let query = Query { resource: &resource, namespace: NAMESPACE, fields, part, limit: 500, from: None };
        let page = world.list(of, query, deadline).await.map_err(drop)?;
        if page.next.is_some() { Err(()) } else { Ok(page.objects.len()) }
    });
    let counts: Result<Vec<usize>, ()> = join_all(lists).await.into_iter().collect();
    Ok(Some(counts?.iter().sum()))
}
