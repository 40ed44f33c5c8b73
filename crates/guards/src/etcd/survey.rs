//! What the guard would find, told to a person beforehand and recorded for later: every ensemble that the configuration names, by
//! the very questions that a review asks, and for each of its pods what would become of its deletion now.
//!
//! Nothing is done: it has no hands, and decides as for a dry run by a person. What could not be asked is told with its cause.

mod told;

use std::sync::Arc;
use std::time::Duration;

use admission::{Cause, Ruling, Verdict};
use futures_util::future::{join, join_all};
use tokio::time::Instant;

use super::config::{self, Book, Config, Within};
use super::decide::{self, Case, Done, Effect, Step};
use super::facts::{Facts, Gathering};
use super::glass::DELETE_ANYWAY;
use super::ground::{Ground, Look, Namespace, PODS, whole};
use super::group::{self, Chosen, Group};
use super::makers::Makers;
use super::pod::{self, Pod};
use super::table::{Row, State, Table};
use super::target::{Deed, Target};
use super::tell;
use ::config::SelectorExt as _;
use cluster::fleet::{Object, Part};
use cluster::writer::{Lease, Reservations};
use cluster::{Clients, Resource};

pub use told::{Deletion, Empty, Ensemble, Member, Overlap, Surveyed, Unseen, Why};

/// For what is asked of Kubernetes about one namespace: a person waits longer than an API server does.
const PATIENCE: Duration = Duration::from_secs(10);

/// Namespaces that are looked into at once.
const AT_ONCE: usize = 16;

/// The guard's eyes.
pub struct Survey {
    config: Arc<Config>,
}

/// What one namespace holds.
#[derive(Default)]
struct Place {
    ensembles: Vec<Ensemble>,
    empty: Vec<Empty>,
    overlaps: Vec<Overlap>,
}

impl Place {
    /// Notes that a pod is chosen by an entry beside the one that counts.
    fn overlap(&mut self, namespace: &str, pod: &str, (first, second): (usize, usize)) {
        let entry = |at: usize| format!("ensembles[{at}]");
        let (first, second) = (entry(first), entry(second));
        match self.overlaps.iter_mut().find(|known| known.first == first && known.second == second) {
            Some(known) => known.pods.push(pod.to_owned()),
            None => self.overlaps.push(Overlap {
                namespace: namespace.to_owned(),
                first,
                second,
                pods: vec![pod.to_owned()],
            }),
        }
    }
}

/// An ensemble that is looked at: its entry, which pods are in it, and the uids of those on which its entry rules.
struct Known<'c> {
    entry: &'c config::Ensemble,
    group: Group,
    own: Vec<String>,
}

impl Survey {
    pub(super) fn new(config: Arc<Config>) -> Self {
        Self { config }
    }

    /// The Leases that reviews write, so that it can be tried whether they may.
    pub fn install_namespace(&self) -> Option<&str> {
        (self.config.reservation == Book::Lease)
            .then_some(self.config.common_config.install_namespace.as_str())
    }

    /// The namespace in which Durward runs.
    pub fn home(&self) -> &str {
        &self.config.common_config.install_namespace
    }

    /// Looks at everything, or at these namespaces only. `progress` is told how many namespaces of how many were looked into.
    pub async fn look(
        &self,
        clients: &Clients,
        only: &[String],
        progress: &(dyn Fn(usize, usize) + Sync),
    ) -> Surveyed {
        let mut found = Surveyed::default();
        let (mut names, unseen) = self.namespaces(clients).await;
        names.retain(|name| only.is_empty() || only.contains(name));
        found.unseen.extend(unseen.map(|why| Unseen { namespace: None, why: Why::from(&why) }));
        for (at, some) in names.chunks(AT_ONCE).enumerate() {
            progress(at * AT_ONCE, names.len());
            let places = join_all(some.iter().map(|name| self.place(clients, name))).await;
            for (name, place) in some.iter().zip(places) {
                match place {
                    Ok(Place { ensembles, empty, overlaps }) => {
                        found.ensembles.extend(ensembles);
                        found.empty.extend(empty);
                        found.overlaps.extend(overlaps);
                    }
                    Err(why) => {
                        found.unseen.push(Unseen { namespace: Some(name.clone()), why: Why::from(&why) });
                    }
                }
            }
        }
        found
    }

    /// The namespaces that ensembles may be in, in their order; and why there may be more.
    async fn namespaces(&self, clients: &Clients) -> (Vec<String>, Option<Cause>) {
        let mut names: Vec<String> = Vec::new();
        let mut selectors = Vec::new();
        for ensemble in &self.config.ensembles {
            match &ensemble.within {
                Within::Named(name) => names.push(name.clone()),
                Within::Labelled(selector) => selectors.push(selector),
            }
        }
        let mut unseen = None;
        if !selectors.is_empty() {
            let look = Look { clients, end: Instant::now() + PATIENCE };
            match look.listed(&Resource::NAMESPACES, "", Part::Metadata).await {
                Ok(all) => names.extend(all.into_iter().filter_map(|object| {
                    selectors
                        .iter()
                        .any(|selector| selector.matches(&object.metadata.labels))
                        .then_some(object.name)
                })),
                Err(why) => unseen = Some(why),
            }
        }
        names.sort_unstable();
        names.dedup();
        names.retain(|name| *name != self.config.common_config.install_namespace);
        (names, unseen)
    }

    async fn place(&self, clients: &Clients, name: &str) -> Result<Place, Cause> {
        let look = Look { clients, end: Instant::now() + PATIENCE };
        let (namespace, objects) = join(look.namespace(name), look.all(&PODS, name)).await;
        let (namespace, objects) = (namespace?, objects?);
        let mut place = Place::default();
        let known = self.known(&namespace, name, &objects, &mut place)?;
        let seem = || {
            let seem = objects.iter().filter(|object| whole(object).is_ok_and(pod::is_recognised));
            seem.map(|object| object.name.clone()).collect()
        };
        // Where an earlier entry has all the pods of one, that is told and not that it chooses none.
        let is_idle = |at: usize, entry: &config::Ensemble| {
            let called = format!("ensembles[{at}]");
            is_within(entry, name, &namespace)
                && !known.iter().any(|known| std::ptr::eq(known.entry, entry))
                && !place.overlaps.iter().any(|overlap| overlap.second == called)
        };
        let idle = self.config.ensembles.iter().enumerate().filter(|(at, entry)| is_idle(*at, entry));
        let empty = idle.map(|(at, _)| Empty {
            entry: format!("ensembles[{at}]"),
            namespace: name.to_owned(),
            is_going: namespace.is_going,
            pods: objects.len(),
            seem_members: seem(),
        });
        place.empty = empty.collect();
        for known in &known {
            let mut pods = Vec::new();
            for object in &objects {
                let json = whole(object)?;
                let pod = Pod::read(json, known.entry.port)?;
                if !pod.has_ended() && group::chooses(known.entry, &pod, json) && known.group.holds(&pod) {
                    pods.push(pod);
                }
            }
            place.ensembles.push(self.ensemble(clients, &namespace, known, &pods).await);
        }
        place.ensembles.sort_by(|a, b| a.name.cmp(&b.name));
        Ok(place)
    }

    /// The ensembles of a namespace, as reviews of its pods would find them: the first entry that chooses a pod counts.
    fn known(
        &self,
        namespace: &Namespace,
        name: &str,
        objects: &[Object],
        place: &mut Place,
    ) -> Result<Vec<Known<'_>>, Cause> {
        let mut all: Vec<Known<'_>> = Vec::new();
        for object in objects {
            let json = whole(object)?;
            let pod = Pod::read(json, 0)?;
            if pod.has_ended() {
                continue;
            }
            let mut chosen = group::entry(&self.config, &pod, json)
                .filter(|(entry, is)| *is == Chosen::Yes || is_within(entry, name, namespace))
                .map(|(entry, _)| entry);
            let Some(entry) = chosen.next() else { continue };
            let at = |entry: &config::Ensemble| {
                self.config.ensembles.iter().position(|one| std::ptr::eq(one, entry)).unwrap_or_default()
            };
            for other in chosen {
                place.overlap(name, &pod.name, (at(entry), at(other)));
            }
            let group = Group::of(entry, &Pod::read(json, entry.port)?);
            match all.iter_mut().find(|known| known.group == group) {
                Some(known) => known.own.push(pod.uid),
                None => all.push(Known { entry, group, own: vec![pod.uid] }),
            }
        }
        Ok(all)
    }

    async fn ensemble(
        &self,
        clients: &Clients,
        namespace: &Namespace,
        Known { entry, group, own }: &Known<'_>,
        pods: &[Pod],
    ) -> Ensemble {
        let look = Look { clients, end: Instant::now() + PATIENCE };
        let lease = group.lease(&self.config.common_config.install_namespace);
        let first = pods.first().cloned().unwrap_or_default();
        let book = async {
            match self.config.reservation {
                Book::Lease => look.book(&lease).await,
                Book::Local => Ok(Reservations::default()),
            }
        };
        let nodes = join_all(pods.iter().map(|pod| look.has_node(&pod.node)));
        let (owner, (nodes, book)) = join(look.stands(entry, &first), join(nodes, book)).await;
        let (owner, makers) = Makers::of(look, entry, group, (&first, owner), Some(pods)).await;
        let ground = Ground {
            now: clients.context.now(),
            namespace: Ok(namespace.clone()),
            owner,
            makers,
            has_node: Ok(true),
            pods: Ok(pods.to_vec()),
            book,
        };
        let gathering = Gathering { clients, config: &self.config, group, end: Instant::now() + PATIENCE };
        let facts = gathering.about("", &ground, pods).await;
        let deletions: Vec<(String, Deletion)> = pods
            .iter()
            .zip(nodes)
            .filter(|(pod, _)| own.contains(&pod.uid))
            .map(|(pod, has_node)| {
                let ground = Ground { has_node, ..ground.clone() };
                (pod.uid.clone(), deletion(&self.ruled(entry, pod, &ground, &facts)))
            })
            .collect();
        let table = Table::of(&self.config, &facts);
        let members = table.rows.iter().map(|row| {
            let deletion = deletions.iter().find(|(uid, _)| *uid == row.uid);
            let pod = pods.iter().find(|pod| pod.uid == row.uid);
            member(&table, row, deletion.map(|(_, deletion)| deletion.clone()), pod)
        });
        self.told(&table, members.collect(), (&first, &lease), &facts)
    }

    fn told(
        &self,
        table: &Table,
        members: Vec<Member>,
        (first, lease): (&Pod, &Lease),
        facts: &Facts,
    ) -> Ensemble {
        let Lease { namespace, name } = lease;
        let voters = table.voters.as_ref().ok().copied();
        Ensemble {
            name: table.ensemble.clone(),
            namespace: first.namespace.clone(),
            voters,
            quorum: voters.map(|voters| voters / 2 + 1),
            healthy: table.rows.iter().filter(|row| row.state == State::Healthy).count(),
            is_lost: table.is_lost,
            unclear: table.voters.as_ref().err().map(Why::from),
            by_metrics_only: table.is_poor,
            members,
            changes: table.changes.clone(),
            notes: table.notes.clone(),
            lease: (self.config.reservation == Book::Lease).then(|| format!("{namespace}/{name}")),
            lease_unread: facts.book_unread.as_ref().map(Why::from),
        }
    }

    /// As a dry run by a person is ruled.
    fn ruled(&self, ensemble: &config::Ensemble, pod: &Pod, ground: &Ground, facts: &Facts) -> Ruling {
        let target = Target {
            deed: Deed::Delete,
            namespace: pod.namespace.clone(),
            name: pod.name.clone(),
            grace: None,
            dry_run: true,
            by_controller: false,
            by_kubelet: false,
            only: None,
            pod: None,
        };
        let early = decide::of_pod(&self.config, &target, pod, ground.now)
            .or_else(|| decide::of_ground(&self.config, &target, pod, ground));
        if let Some(unasked) = early {
            return unasked.ruling;
        }
        let book = ground.book.as_ref().cloned().unwrap_or_default();
        let facts = facts.clone().about(&pod.uid, &book);
        let mut done = Done::default();
        loop {
            let case =
                Case { config: &self.config, ensemble, target: &target, pod, facts: &facts, done: &done };
            match decide::close(case) {
                Step::Rule(ruling) => return ruling,
                Step::Act(Effect::Reserve | Effect::Appoint { .. }) => done.is_reserved = true,
                Step::Act(Effect::Move { name, .. }) => done.pretended = Some(name),
            }
        }
    }
}

fn is_within(ensemble: &config::Ensemble, name: &str, namespace: &Namespace) -> bool {
    match &ensemble.within {
        Within::Named(named) => named == name,
        Within::Labelled(selector) => selector.matches(&namespace.labels),
    }
}

fn member(table: &Table, row: &Row, deletion: Option<Deletion>, pod: Option<&Pod>) -> Member {
    Member {
        name: row.name.clone(),
        role: tell::role(table, row),
        state: tell::word(&row.state),
        health: tell::health(row),
        unseen: match &row.state {
            State::Silent(why) => Some(Why::from(why)),
            _ => None,
        },
        term: row.term,
        lag: row.lag,
        deletion,
        left_open: pod.and_then(|pod| pod.annotations.get(DELETE_ANYWAY).cloned()),
    }
}

fn deletion(ruling: &Ruling) -> Deletion {
    let audited = |key: &str| {
        let found = ruling.audit.iter().find(|(own, _)| *own == key);
        found.map(|(_, value)| value.to_owned()).unwrap_or_default()
    };
    let (verdict, why) = match &ruling.verdict {
        Verdict::Allow | Verdict::Mutate(_) => ("allow", audited("allowed")),
        Verdict::Deny(_) => ("deny", audited("refused")),
        Verdict::Unknown(causes) => {
            let texts: Vec<&str> = causes.iter().map(|cause| cause.text.as_str()).collect();
            ("unknown", texts.join("; "))
        }
    };
    Deletion { verdict, why, warnings: ruling.warnings.iter().map(str::to_owned).collect() }
}
