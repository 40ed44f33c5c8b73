//! What the members say, asked all at once, each within its own deadline: one that hangs costs no more than that.
//!
//! Nothing is spawned, so nothing outlives the review. Who shares an answer with whom is the world's to say; that none is older
//! than the question is its contract, and what the second look of a reservation rests on.

use std::collections::BTreeSet;
use std::time::SystemTime;

use admission::Cause;
use futures_util::future::{join, join_all};
use tokio::time::{Instant, timeout_at};

use super::config::Config;
use super::ground::{GRACE, Ground, Leaving, Look, Standing};
use super::group::Group;
use super::makers::Size;
use super::notes::{self, Note, When};
use super::pod::Pod;
use cluster::etcd::{
    Alarm, Endpoint, EtcdRequest, EtcdResponse, Health, MemberList, MemberMetrics, Read, Status,
};
use cluster::writer::Reservations;
use cluster::{Clients, cause};

/// Everything that a decision about a member rests on.
#[derive(Debug, Clone)]
pub(super) struct Facts {
    /// What time it is.
    pub(super) now: SystemTime,
    /// What people call the ensemble.
    pub(super) ensemble: String,
    /// Every pod of it, with what its member says.
    pub(super) seen: Vec<Seen>,
    /// Whether only who has a certificate of the ensemble's authority could say it.
    pub(super) is_verified: bool,
    /// How many pods its `StatefulSet` is to have; none where it has none, or is made of several.
    pub(super) replicas: Option<u64>,
    /// How many members it is to have, as far as anybody says.
    pub(super) size: Size,
    /// The uids of pods that do not come back: their `StatefulSet` was scaled down, or what makes them goes.
    pub(super) surplus: BTreeSet<String>,
    /// The uids of those among them whose maker goes or is to have no pods, while others of the ensemble stay.
    pub(super) unmade: BTreeSet<String>,
    /// The uids of pods that go for good, each with its claim, as their `StatefulSet` was scaled down.
    pub(super) scaled_away: BTreeSet<String>,
    /// When the review has ended.
    pub(super) ends: SystemTime,
    /// Why nobody knows who is on the way out.
    pub(super) book_unread: Option<Cause>,
    /// What is noted already of the pod that is to go.
    pub(super) note: Note,
    /// The uid of the pod that is about to hand leadership over to it.
    pub(super) giver: Option<String>,
}

/// One pod of the ensemble.
#[derive(Debug, Clone)]
pub(super) struct Seen {
    pub(super) pod: Pod,
    /// What its member says.
    pub(super) view: View,
    /// Whether it was let go and may be on its way out; never so for the pod that this is about.
    pub(super) is_reserved: bool,
    /// What becomes of its node. Where that is gone it goes unasked and unnoted at any moment, however well it is; never said of the
    /// pod that this is about.
    pub(super) node: Option<Leaving>,
    /// Whether what makes it goes, and others stay; never so for the pod that this is about.
    pub(super) is_unmade: bool,
    /// Whether it is what its `StatefulSet` updates its pods to.
    pub(super) is_updated: bool,
}

impl Seen {
    /// Whether its node is gone.
    pub(super) fn is_stranded(&self) -> bool {
        self.node == Some(Leaving::Gone)
    }

    /// Why it may be on its way out, whatever it answers.
    pub(super) fn leaving(&self) -> Option<&'static str> {
        if self.pod.is_going {
            return Some("its pod is being deleted");
        }
        if self.is_reserved {
            return Some("its pod was asked for or let go a moment ago");
        }
        if self.is_unmade {
            return Some("what makes its pod is going, or is to have none");
        }
        self.is_stranded().then_some("its node is gone, and its pod is deleted without a question")
    }
}

/// What a member says.
#[derive(Debug, Clone)]
pub(super) enum View {
    /// By the JSON gateway.
    Full(Box<Answers>),
    /// Without one: only health and metrics.
    Poor(Health, MemberMetrics),
    /// Nothing.
    Silent(Cause),
}

/// What a member answers.
#[derive(Debug, Clone)]
pub(super) struct Answers {
    pub(super) status: Status,
    pub(super) read: Result<Read, Cause>,
    pub(super) members: Result<MemberList, Cause>,
    pub(super) by_quorum: Result<MemberList, Cause>,
    pub(super) alarms: Result<Vec<Alarm>, Cause>,
}

impl Facts {
    /// The same facts where this pod is the one that is to go.
    pub(super) fn about(mut self, uid: &str, book: &Reservations) -> Self {
        let when = When { now: self.now, ends: self.ends };
        let is_held =
            |uid: &str| book.held.iter().any(|held| held.uid == uid && notes::is_live(held, when.now));
        for seen in &mut self.seen {
            let is_it = seen.pod.uid == uid;
            seen.is_reserved = !is_it && is_held(&seen.pod.uid);
            seen.node = seen.node.filter(|_| !is_it);
            // Those that go together count for each other, as each is asked about and noted in its turn.
            seen.is_unmade = !self.unmade.contains(uid) && self.unmade.contains(&seen.pod.uid);
            if let Some(why) = when.disagreement(book, &seen.pod) {
                self.book_unread.get_or_insert_with(|| why.clone());
                if !is_it {
                    seen.view = View::Silent(why);
                }
            }
        }
        self.note = when.note(book, uid);
        self.giver = when.giver(book, uid, &self.seen);
        self
    }
}

/// One gathering.
#[derive(Clone, Copy)]
pub(super) struct Gathering<'g> {
    pub(super) clients: &'g Clients,
    pub(super) config: &'g Config,
    pub(super) group: &'g Group,
    pub(super) end: Instant,
}

impl Gathering<'_> {
    /// Asks every pod of the ensemble. `uid`: the one that is to go.
    pub(super) async fn about(&self, uid: &str, ground: &Ground, pods: &[Pod]) -> Facts {
        let standing = |pod: &Pod| ground.makers.standing(&ground.owner, pod).as_ref().ok();
        let set = |pod: &Pod| standing(pod).and_then(Standing::set);
        let ends = ground.now + self.end.saturating_duration_since(Instant::now());
        let nodes: BTreeSet<&str> =
            pods.iter().map(|pod| pod.node.as_str()).filter(|n| !n.is_empty()).collect();
        let look =
            Look { clients: self.clients, end: self.end.min(Instant::now() + self.config.member_deadline) };
        let nodes = look.leaving_nodes(nodes.into_iter().map(str::to_owned).collect());
        let views = join_all(pods.iter().map(|pod| self.view(pod)));
        let (nodes, views) = join(nodes, views).await;
        let seen = pods.iter().zip(views).map(|(pod, view)| Seen {
            view,
            is_reserved: false,
            is_unmade: false,
            node: nodes.get(&pod.node).copied(),
            is_updated: set(pod).is_some_and(|set| {
                !set.revision.is_empty() && pod.labels.get("controller-revision-hash") == Some(&set.revision)
            }),
            pod: pod.clone(),
        });
        let uids = |is: &dyn Fn(&&Pod) -> bool| pods.iter().filter(is).map(|pod| pod.uid.clone()).collect();
        let is_unmade = |pod: &&Pod| standing(pod).is_some_and(Standing::has_no_pods_left);
        let is_surplus = |pod: &&Pod| set(pod).is_some_and(|set| set.is_surplus(&pod.name));
        // Where all of it goes, nobody is left who could count on them.
        let is_torn_down = matches!(ground.owner, Ok(Standing::Going | Standing::Ends));
        let own_set = ground.owner.as_ref().ok().and_then(Standing::set);
        let facts = Facts {
            now: ground.now,
            scaled_away: uids(&|pod| set(pod).is_some_and(|set| set.drops_claim_of(&pod.name))),
            surplus: uids(&|pod| is_surplus(pod) || is_unmade(pod)),
            unmade: if is_torn_down { BTreeSet::new() } else { uids(&is_unmade) },
            ensemble: self.group.told(),
            seen: seen.collect(),
            is_verified: self.group.is_verified(),
            replicas: own_set.filter(|_| self.group.is_of_one_set()).map(|set| set.replicas),
            size: ground.makers.size.clone(),
            ends,
            book_unread: ground.book.as_ref().err().cloned(),
            note: Note::default(),
            giver: None,
        };
        facts.about(uid, ground.book.as_ref().unwrap_or(&Reservations::default()))
    }

    async fn view(&self, pod: &Pod) -> View {
        if pod.runs_no_etcd() {
            let text = format!("etcd does not run in {}", pod.name);
            return View::Silent(Cause::new(cause::UNREACHABLE, text));
        }
        if pod.address.is_empty() {
            return View::Silent(Cause::new(cause::NO_ADDRESS, format!("{} has no address", pod.name)));
        }
        let peer = self.group.peer(pod);
        let end = self.end.min(Instant::now() + self.config.member_deadline);
        let of = |question| self.ask(&peer, question, end);
        let (status, (rest, alarms)) = join(
            of(EtcdRequest::Status),
            join(
                join(of(EtcdRequest::Read), join(of(EtcdRequest::Members), of(EtcdRequest::MembersByQuorum))),
                of(EtcdRequest::Alarms),
            ),
        )
        .await;
        let status = match status {
            Ok(EtcdResponse::Status(status)) => *status,
            Err(why) if why.code == cause::GATEWAY_OFF => return self.poor(&peer).await,
            Err(why) => return View::Silent(why),
            Ok(_) => return View::Silent(another(&peer, EtcdRequest::Status)),
        };
        let (read, (members, by_quorum)) = rest;
        let list = |answer, question| match answer {
            Ok(EtcdResponse::Members(members)) => Ok(members),
            Err(why) => Err(why),
            Ok(_) => Err(another(&peer, question)),
        };
        View::Full(Box::new(Answers {
            status,
            read: match read {
                Ok(EtcdResponse::Read(read)) => Ok(read),
                Err(why) => Err(why),
                Ok(_) => Err(another(&peer, EtcdRequest::Read)),
            },
            members: list(members, EtcdRequest::Members),
            by_quorum: list(by_quorum, EtcdRequest::MembersByQuorum),
            alarms: match alarms {
                Ok(EtcdResponse::Alarms(alarms)) => Ok(alarms),
                Err(why) => Err(why),
                Ok(_) => Err(another(&peer, EtcdRequest::Alarms)),
            },
        }))
    }

    async fn poor(&self, peer: &Endpoint) -> View {
        let end = self.end.min(Instant::now() + self.config.member_deadline);
        match join(self.ask(peer, EtcdRequest::Health, end), self.ask(peer, EtcdRequest::Metrics, end)).await
        {
            (Ok(EtcdResponse::Health(health)), Ok(EtcdResponse::Metrics(metrics))) => {
                View::Poor(health, metrics)
            }
            (Err(why), _) | (_, Err(why)) => View::Silent(why),
            (Ok(_), Ok(_)) => View::Silent(another(peer, EtcdRequest::Health)),
        }
    }

    /// Asks a member its status, for what has to be known of it alone.
    pub(super) async fn status(&self, pod: &Pod) -> Result<Status, Cause> {
        let peer = self.group.peer(pod);
        let end = self.end.min(Instant::now() + self.config.member_deadline);
        match self.ask(&peer, EtcdRequest::Status, end).await? {
            EtcdResponse::Status(status) => Ok(*status),
            _ => Err(another(&peer, EtcdRequest::Status)),
        }
    }

    /// The answer, or that there was none.
    async fn ask(&self, peer: &Endpoint, question: EtcdRequest, end: Instant) -> Result<EtcdResponse, Cause> {
        let given = end.saturating_duration_since(Instant::now());
        let asked = self.clients.etcd.call(peer, question, end.into_std());
        timeout_at(end + GRACE, asked).await.unwrap_or_else(|_| {
            let text =
                format!("{peer} gave no answer in {:.1} s when asked for {question}", given.as_secs_f64());
            Err(Cause::new(cause::TIMEOUT, text))
        })
    }
}

/// An answer to something else.
fn another(peer: &Endpoint, question: EtcdRequest) -> Cause {
    Cause::new(cause::GARBAGE, format!("{peer} was asked for {question} and answered something else"))
}
