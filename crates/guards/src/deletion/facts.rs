//! What every cluster says, gathered: all of them at once, each within its own time, everything before the review's deadline.
//!
//! Nothing is spawned, so nothing outlives the review, and a review that is given up costs nothing from then on. How many
//! questions are under way at an API server is the world's to bound; here it is bounded how many clusters are being looked at,
//! so that memory does not grow with the fleet.

use std::sync::Arc;
use std::time::{Duration, SystemTime};

use admission::Cause;
use futures_util::StreamExt as _;
use futures_util::future::join;
use futures_util::stream::FuturesUnordered;
use tokio::time::{Instant, sleep};

use super::acknowledge;
use super::config::{Config, Unmanaged};
use super::look::{Look, Time};
use super::own::{Own, Standing};
use super::owners::Room;
use super::sight::Sight;
use super::target::{Subject, Target};
use cluster::fleet::{Cluster, Fleet, FleetMember, MembersResult};
use cluster::{Clients, Metadata, cause};

/// Everything that a decision rests on.
#[derive(Debug, Clone)]
pub(super) struct Facts {
    /// What time it is.
    pub(super) now: SystemTime,
    /// The clusters of the fleet, without the one that asks.
    pub(super) members: MembersResult,
    /// The clusters that were looked at: the one that asks first, the others in the order of the list.
    pub(super) seen: Vec<Seen>,
}

/// One cluster that was looked at.
#[derive(Debug, Clone)]
pub(super) struct Seen {
    /// Which, with what its Cluster says of it; the one that asks has no Cluster.
    pub(super) member: FleetMember,
    /// What was seen there.
    pub(super) sight: Sight,
}

impl Seen {
    /// Whether it is the cluster that asks.
    pub(super) fn is_here(&self) -> bool {
        self.member.cluster == Cluster::Local
    }
}

/// How far the gathering has come.
#[derive(Debug, Clone, Copy)]
pub struct Progress<'p> {
    /// The cluster that has just been seen, or not been seen in time.
    pub cluster: &'p str,
    /// How many have been.
    pub done: usize,
    /// How many there are.
    pub of: usize,
}

/// Clusters that are looked at once at a time: no more than the live world has places for questions at one API server over HTTP/2
/// (eight connections, 96 each), so that clusters which stay silent, one question each, leave nobody without a place.
const AT_ONCE: usize = 768;

/// The cluster that asks is waited for at least this long: half of what the API server gives, since nothing is allowed without
/// its answer, and members are not kept waiting by it.
const HERE: Duration = Duration::from_secs(5);

/// Before a member is asked again for which there was no room; twice as long each time.
const PAUSE: Duration = Duration::from_millis(100);

/// Kept of the review's time for deciding and answering: a tenth, and no more than this.
const FOR_THE_ANSWER: Duration = Duration::from_millis(200);

/// The list of the fleet is waited for half of the time at most: without the other half it would be of no use.
const LIST_SHARE: u32 = 2;

fn seen_here(sight: Sight) -> Seen {
    Seen { member: FleetMember { cluster: Cluster::Local, metadata: Metadata::default() }, sight }
}

fn facts(now: SystemTime, (here, (members, of_members)): (Seen, (MembersResult, Vec<Seen>))) -> Facts {
    Facts { now, members, seen: std::iter::once(here).chain(of_members).collect() }
}

/// One gathering.
pub(super) struct Gathering<'g> {
    /// Whom to ask.
    pub(super) clients: &'g Clients,
    /// About what.
    pub(super) config: &'g Config,
    /// Told of each cluster.
    pub(super) progress: &'g (dyn Fn(Progress<'_>) + Sync),
    /// What is held of all clusters has this.
    pub(super) room: &'g Room,
}

impl Gathering<'_> {
    /// Gathers what decides about the target. Where `only_own`, only what decides whether it is a part of Karmada that is needed.
    pub(super) async fn about(&self, target: &Target, deadline: Instant, only_own: bool) -> Facts {
        let begun = Instant::now();
        let left = deadline.saturating_duration_since(begun);
        let end = deadline - FOR_THE_ANSWER.min(left / 10);
        let list_end = begun + end.saturating_duration_since(begun) / LIST_SHARE;
        let now = self.clients.context.now();
        let own = Own::of(self.config, target);
        if let Some(own) = own {
            // Whether it may be looked at at all depends on the list.
            let members = self.members(list_end).await;
            let standing = members.as_ref().map(|members| own.standing(members));
            return match (standing, only_own) {
                (Ok(Standing::Needed) | Err(_), _) => Facts { now, members, seen: Vec::new() },
                (Ok(_), true) => {
                    // The list was read here, so it says something only if this is where the target stands.
                    let time = Time::until(self.end_of_here(end));
                    let here = seen_here(self.look(&Cluster::Local).is_here(target, time).await);
                    Facts { now, members: Ok(Arc::from([])), seen: vec![here] }
                }
                (Ok(Standing::Local), _) => {
                    let here = self.here(target, end).await;
                    Facts { now, members: Ok(Arc::from([])), seen: vec![here] }
                }
                (Ok(Standing::Ordinary), _) => {
                    let members = async { self.with_members(target, members, end).await };
                    facts(now, join(self.here(target, end), members).await)
                }
            };
        }
        // Neither waits for the other: a List that is slow here hides nothing that members have.
        let members = async { self.with_members(target, self.members(list_end).await, end).await };
        facts(now, join(self.here(target, end), members).await)
    }

    /// A look that takes nothing for preserved.
    fn look<'l>(&'l self, cluster: &'l Cluster) -> Look<'l> {
        Look { clients: self.clients, config: self.config, cluster, preserved: false, room: self.room }
    }

    /// How long the one that asks is waited for.
    fn end_of_here(&self, end: Instant) -> Instant {
        end.min(Instant::now() + HERE.max(self.config.member_deadline))
    }

    async fn members(&self, end: Instant) -> MembersResult {
        if self.config.fleet == Fleet::None {
            return Ok(Arc::from([]));
        }
        let time = Time::until(end);
        time.limit(self.clients.reader.members(&self.config.fleet, end.into_std())).await.map_err(|why| {
            let told = "the list of the fleet's clusters could not be read";
            if why.text.starts_with(told) {
                why
            } else {
                Cause::new(why.code, format!("{told}: {}", why.text))
            }
        })
    }

    async fn here(&self, target: &Target, end: Instant) -> Seen {
        seen_here(self.look(&Cluster::Local).at(target, Time::until(self.end_of_here(end))).await)
    }

    /// What is seen of the members, in the order of the list.
    async fn with_members(
        &self,
        target: &Target,
        members: MembersResult,
        end: Instant,
    ) -> (MembersResult, Vec<Seen>) {
        let Ok(list) = &members else { return (members, Vec::new()) };
        let preserved = self.is_preserved(target, end).await;
        let mut sights = self.sights(target, list, preserved, end).await;
        sights.sort_by_key(|(at, _)| *at);
        let seen = list.iter().cloned().zip(sights);
        let seen = seen.map(|(member, (_, sight))| Seen { member, sight }).collect();
        (members, seen)
    }

    /// What is seen of each member, in the order in which they answer, with its place in the list: one for each of them. Those
    /// that need not answer are asked last, so that a region that is down takes nobody else's time.
    async fn sights(
        &self,
        target: &Target,
        members: &[FleetMember],
        preserved: bool,
        end: Instant,
    ) -> Vec<(usize, Sight)> {
        let now = self.clients.context.now();
        let is_last = |member: &FleetMember| matches!(acknowledge::of(self.config, member, now), Some(Ok(_)));
        let (last, first): (Vec<_>, Vec<_>) =
            members.iter().enumerate().partition(|(_, member)| is_last(member));
        let turns = u32::try_from(last.len().div_ceil(AT_ONCE)).unwrap_or(u32::MAX).max(1);
        let whole = first.into_iter().map(|one| (one, 1));
        let mut waiting = whole.chain(last.into_iter().map(|one| (one, turns)));
        let mut asked: FuturesUnordered<_> = FuturesUnordered::new();
        let one = async |((at, member), turns): ((usize, &'_ FleetMember), u32)| {
            let cluster = member.cluster.clone();
            let sight = self.member(target, &cluster, preserved, end, turns).await;
            (at, cluster, sight)
        };
        for next in waiting.by_ref().take(AT_ONCE) {
            asked.push(one(next));
        }
        let mut sights = Vec::with_capacity(members.len());
        while let Some((at, cluster, sight)) = asked.next().await {
            sights.push((at, sight));
            (self.progress)(Progress { cluster: cluster.name(), done: sights.len(), of: members.len() });
            if let Some(next) = waiting.next() {
                asked.push(one(next));
            }
        }
        sights
    }

    /// What is seen of one member. Where Durward itself had no room to ask it is asked again while there is time: a place that
    /// somebody silent held comes free when that one's time is over. `turns`: of how many this is one that share what is left.
    async fn member(
        &self,
        target: &Target,
        cluster: &Cluster,
        preserved: bool,
        end: Instant,
        turns: u32,
    ) -> Sight {
        let look = Look { preserved, ..self.look(cluster) };
        let mut pause = PAUSE;
        let first = Instant::now();
        let given = self.config.member_deadline.min(end.saturating_duration_since(first) / turns);
        loop {
            let begun = Instant::now();
            if begun >= end {
                let text = format!("Durward had no time left to ask {cluster}; try again");
                return Sight::blind(Cause::new(cause::CROWDED, text));
            }
            let sight = look.at(target, Time::until(end.min(begun + given))).await;
            if !sight.is_crowded() || self.clients.context.is_snapshot || Instant::now() + pause >= end {
                return sight;
            }
            sleep(pause).await;
            pause *= 2;
        }
    }

    /// Whether Karmada keeps a propagated definition in the members when it is deleted here. It keeps the definition, not the
    /// objects that it brought itself; and what cannot be read keeps nothing.
    async fn is_preserved(&self, target: &Target, end: Instant) -> bool {
        let matters = self.config.is_karmada()
            && self.config.unmanaged == Unmanaged::Ignore
            && target.subject == Subject::Definition;
        if !matters {
            return false;
        }
        self.look(&Cluster::Local)
            .is_preserved(target, Time::until(end.min(Instant::now() + self.config.member_deadline)))
            .await
    }
}
