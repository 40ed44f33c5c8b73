//! What the guard would find, told to a person beforehand and recorded for later: every ensemble that the configuration names, by
//! the very questions that a review asks, and for each of its pods what would become of its deletion now.
//!
//! Nothing is done: it has no hands, and decides as for a dry run by a person. What could not be asked is told with its cause.

use std::sync::Arc;
use std::time::Duration;

use admission::{Cause, Ruling, Verdict};
use futures_util::future::{join, join_all};
use serde::Serialize;
use tokio::time::Instant;

use super::config::{self, Book, Config, Within};
use super::decide::{self, Case, Done, Effect, Step};
use super::facts::{Facts, Gathering};
use super::glass::ANYWAY;
use super::ground::{Ground, Look, Namespace, PODS, whole};
use super::group::{self, Chosen, Group};
use super::pod::{self, Pod};
use super::table::{Row, State, Table};
use super::target::{Deed, Target};
use super::tell;
use crate::hands::{Lease, Reservations};
use crate::world::fleet::Part;
use crate::world::{Resource, World};

/// For what is asked of Kubernetes about one namespace: a person waits longer than an API server does.
const PATIENCE: Duration = Duration::from_secs(10);

/// Namespaces that are looked into at once.
const AT_ONCE: usize = 16;

/// The guard's eyes.
pub struct Survey {
    config: Arc<Config>,
}

/// Everything that was found.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Surveyed {
    /// Every ensemble, by namespace and name.
    pub ensembles: Vec<Ensemble>,
    /// Where the configuration names an ensemble and no pod is one of its members.
    pub empty: Vec<Empty>,
    /// What of Kubernetes could not be asked.
    pub unseen: Vec<Unseen>,
}

/// One ensemble.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Ensemble {
    /// What people call it: `db/etcd`.
    pub name: String,
    /// Where its pods are.
    pub namespace: String,
    /// How many members vote; none where nobody knows.
    pub voters: Option<usize>,
    /// How many of them are a quorum.
    pub quorum: Option<usize>,
    /// How many can be counted on.
    pub healthy: usize,
    /// Whether its members answer at all that know of no leader, and no other do.
    pub is_lost: bool,
    /// Why it is not known who votes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub unclear: Option<Why>,
    /// Whether only health and metrics could be had of it.
    pub by_metrics_only: bool,
    /// Who is in it, and pods that may be.
    pub members: Vec<Member>,
    /// What is changing about the membership.
    pub changes: Vec<String>,
    /// What else is wrong.
    pub notes: Vec<String>,
    /// Where it is noted who leaves, as `namespace/name`; none with `reservation: local`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub lease: Option<String>,
    /// Why that cannot be read, or what it says not be understood.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub lease_unread: Option<Why>,
}

/// A member, or a pod that may be one.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Member {
    /// The pod's name, or what etcd's list has where no pod answers as it.
    pub name: String,
    /// `leader`, `follower`, `learner`, or `-`.
    pub role: &'static str,
    /// A closed set: `Healthy`, `Unfit`, `Corrupt`, `Leaving`, `Learner`, `Stranger`, `Silent`, `Absent`.
    pub state: &'static str,
    /// The same for people.
    pub health: String,
    /// Why it could not be asked.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub unseen: Option<Why>,
    #[serde(skip_serializing_if = "Option::is_none")]
    /// Its term.
    pub term: Option<u64>,
    /// How many entries it is behind.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub lag: Option<u64>,
    /// What would become of the deletion of its pod now; none where there is no pod.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub deletion: Option<Deletion>,
    /// What stands under `durward.dev/delete-anyway` on its pod.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub left_open: Option<String>,
}

/// What would become of a deletion by a person.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Deletion {
    /// `allow`, `deny` or `unknown`.
    pub verdict: &'static str,
    /// Why.
    pub why: String,
    /// What the person would be told beside it.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub warnings: Vec<String>,
}

/// Where an entry of the configuration chooses no pod.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Empty {
    /// Which entry: `ensembles[0]`.
    pub entry: String,
    /// Where.
    pub namespace: String,
    /// Whether that is being deleted, or not there.
    pub is_going: bool,
    /// How many pods are there.
    pub pods: usize,
    /// Those of them that seem to run etcd.
    pub seem_members: Vec<String>,
}

/// What of Kubernetes could not be asked.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Unseen {
    /// The namespace; none where it is about all.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub namespace: Option<String>,
    /// Why.
    #[serde(flatten)]
    pub why: Why,
}

/// Why something could not be asked.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Why {
    /// One of the world's causes.
    pub cause: &'static str,
    /// Its sentence.
    pub text: String,
}

impl From<&Cause> for Why {
    fn from(why: &Cause) -> Self {
        Self { cause: why.code, text: why.text.clone() }
    }
}

/// What one namespace holds.
#[derive(Default)]
struct Place {
    ensembles: Vec<Ensemble>,
    empty: Vec<Empty>,
}

impl Survey {
    pub(super) fn new(config: Arc<Config>) -> Self {
        Self { config }
    }

    /// The Leases that reviews write, so that it can be tried whether they may.
    pub fn install_namespace(&self) -> Option<&str> {
        (self.config.reservation == Book::Lease).then_some(self.config.terms.install_namespace.as_str())
    }

    /// Looks at everything. `progress` is told how many namespaces of how many were looked into.
    pub async fn look(&self, world: &dyn World, progress: &(dyn Fn(usize, usize) + Sync)) -> Surveyed {
        let mut found = Surveyed::default();
        let (names, unseen) = self.namespaces(world).await;
        found.unseen.extend(unseen.map(|why| Unseen { namespace: None, why: Why::from(&why) }));
        for (at, some) in names.chunks(AT_ONCE).enumerate() {
            progress(at * AT_ONCE, names.len());
            let places = join_all(some.iter().map(|name| self.place(world, name))).await;
            for (name, place) in some.iter().zip(places) {
                match place {
                    Ok(Place { ensembles, empty }) => {
                        found.ensembles.extend(ensembles);
                        found.empty.extend(empty);
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
    async fn namespaces(&self, world: &dyn World) -> (Vec<String>, Option<Cause>) {
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
            let look = Look { world, end: Instant::now() + PATIENCE };
            match look.listed(&Resource::NAMESPACES, "", Part::Metadata).await {
                Ok(all) => names.extend(all.into_iter().filter_map(|object| {
                    let label = |key: &str| object.metadata.labels.get(key).map(String::as_str);
                    selectors.iter().any(|selector| selector.matches(label)).then_some(object.name)
                })),
                Err(why) => unseen = Some(why),
            }
        }
        names.sort_unstable();
        names.dedup();
        names.retain(|name| *name != self.config.terms.install_namespace);
        (names, unseen)
    }

    async fn place(&self, world: &dyn World, name: &str) -> Result<Place, Cause> {
        let look = Look { world, end: Instant::now() + PATIENCE };
        let (namespace, objects) = join(look.namespace(name), look.all(&PODS, name)).await;
        let (namespace, objects) = (namespace?, objects?);
        let mut groups: Vec<(&config::Ensemble, Group)> = Vec::new();
        for object in &objects {
            let json = whole(object)?;
            let pod = Pod::read(json, 0)?;
            if pod.has_ended() {
                continue;
            }
            let of_pod = group::entry(&self.config, &pod, json)
                .find(|(ensemble, chosen)| *chosen == Chosen::Yes || is_within(ensemble, name, &namespace));
            let Some((ensemble, _)) = of_pod else { continue };
            let group = Group::of(ensemble, &Pod::read(json, ensemble.port)?);
            if !groups.iter().any(|(_, other)| *other == group) {
                groups.push((ensemble, group));
            }
        }
        let seem = || {
            let seem = objects.iter().filter(|object| whole(object).is_ok_and(pod::is_recognised));
            seem.map(|object| object.name.clone()).collect()
        };
        let entries = self.config.ensembles.iter().enumerate();
        let empty = entries
            .filter(|(_, entry)| is_within(entry, name, &namespace))
            .filter(|(_, entry)| !groups.iter().any(|(other, _)| std::ptr::eq(*other, *entry)))
            .map(|(at, _)| Empty {
                entry: format!("ensembles[{at}]"),
                namespace: name.to_owned(),
                is_going: namespace.is_going,
                pods: objects.len(),
                seem_members: seem(),
            })
            .collect();
        let mut ensembles = Vec::with_capacity(groups.len());
        for (entry, group) in &groups {
            let mut pods = Vec::new();
            for object in &objects {
                let json = whole(object)?;
                let pod = Pod::read(json, entry.port)?;
                if !pod.has_ended() && group::chooses(entry, &pod, json) && group.holds(&pod) {
                    pods.push(pod);
                }
            }
            ensembles.push(self.ensemble(world, &namespace, (entry, group), &pods).await);
        }
        ensembles.sort_by(|a, b| a.name.cmp(&b.name));
        Ok(Place { ensembles, empty })
    }

    async fn ensemble(
        &self,
        world: &dyn World,
        namespace: &Namespace,
        (entry, group): (&config::Ensemble, &Group),
        pods: &[Pod],
    ) -> Ensemble {
        let look = Look { world, end: Instant::now() + PATIENCE };
        let lease = group.lease(&self.config.terms.install_namespace);
        let first = pods.first().cloned().unwrap_or_default();
        let book = async {
            match self.config.reservation {
                Book::Lease => look.book(&lease).await,
                Book::Local => Ok(Reservations::default()),
            }
        };
        let nodes = join_all(pods.iter().map(|pod| look.has_node(&pod.node)));
        let (owner, (nodes, book)) =
            join(look.standing(&first.namespace, first.owner.as_ref()), join(nodes, book)).await;
        let owner = match owner {
            Ok(standing) => Ok(look.ending(standing, first.owner.as_ref(), pods).await),
            Err(why) => Err(why),
        };
        let ground = Ground {
            now: world.now(),
            namespace: Ok(namespace.clone()),
            owner,
            has_node: Ok(true),
            pods: Ok(pods.to_vec()),
            book,
        };
        let gathering = Gathering { world, config: &self.config, group, end: Instant::now() + PATIENCE };
        let facts = gathering.about("", &ground, pods).await;
        let deletions: Vec<(String, Deletion)> = pods
            .iter()
            .zip(nodes)
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
        if let Some(ruling) = early {
            return ruling;
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
        Within::Labelled(selector) => {
            selector.matches(|key: &str| namespace.labels.get(key).map(String::as_str))
        }
    }
}

fn member(table: &Table, row: &Row, deletion: Option<Deletion>, pod: Option<&Pod>) -> Member {
    Member {
        name: row.name.clone(),
        role: tell::role(table, row),
        state: tell::word(&row.state),
        health: tell::health(&row.state),
        unseen: match &row.state {
            State::Silent(why) => Some(Why::from(why)),
            _ => None,
        },
        term: row.term,
        lag: row.lag,
        deletion,
        left_open: pod.and_then(|pod| pod.annotations.get(ANYWAY).cloned()),
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
