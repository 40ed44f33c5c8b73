//! Questions to one member of an etcd ensemble, and what it may answer.
//!
//! The types are what guards need and no more; which path, prefix and form each question has on the wire is the live world's, and
//! which file it stands in the recording's. Nothing here holds a password or a key: credentials are named by where they are kept,
//! and only the world reads them.
//!
//! Facts: `api/etcdserverpb/rpc.proto` of 3.3 to 3.6. Through the JSON gateway numbers of 64 bits are strings, and fields that are
//! zero are absent: no `leader` means that the member knows none, no `isLearner` that it votes.

use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;

use admission::Cause;

/// A member's id, or an ensemble's. Any of 64 bits: more than half of them are over 2^63.
pub type Id = u64;

/// One member that may be asked: a pod, and how its etcd is reached. Only pods of a configured ensemble ever become one.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Endpoint {
    /// The pod's namespace.
    pub namespace: String,
    /// The pod's name.
    pub name: String,
    /// The pod's uid: a successor of the same name is somebody else.
    pub uid: String,
    /// `status.podIP` as it stands there. What is no address is [`NO_ADDRESS`](super::cause::NO_ADDRESS), and nobody is dialled:
    /// a name in its place could lead anywhere.
    pub address: String,
    /// The port on which clients are served.
    pub port: u16,
    /// How to speak to it.
    pub client: Arc<ClientOptions>,
}

impl fmt::Display for Endpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.name)
    }
}

/// How one speaks to the members of an ensemble. Equal ones may share connections.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash)]
pub struct ClientOptions {
    /// None is plain HTTP.
    pub tls: Option<Tls>,
    /// Who asks, where the ensemble has authentication on. Shown only over TLS whose server was verified, unless that is
    /// [`insecure`](Tls::insecure) or there is none and [`open`](Self::open) says so.
    pub login: Option<Login>,
    /// Whether credentials may go over plain HTTP.
    pub open: bool,
}

/// TLS to a member.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Tls {
    /// Where authority and client certificate are kept; none only where [`insecure`](Self::insecure), and then nothing is shown.
    pub material: Option<Material>,
    /// The name that the member's certificate must have; the pod's address where none is given.
    pub server_name: Option<String>,
    /// Whether a member's certificate is taken unverified.
    pub insecure: bool,
}

/// Where authority and client certificate are kept. Read again when they change.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Material {
    /// A Secret of the API server that asks: `ca.crt`, which it must have, and `tls.crt` with `tls.key`, both or neither.
    Secret {
        /// Its namespace.
        namespace: String,
        /// Its name.
        name: String,
    },
    /// Files in PEM.
    Files {
        /// The authority that signed the members' certificates.
        authority: PathBuf,
        /// The client's certificate and its key.
        identity: Option<(PathBuf, PathBuf)>,
    },
}

/// Where user and password are kept. Read again when they change.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Login {
    /// A Secret of the API server that asks: `username` and `password`.
    Secret {
        /// Its namespace.
        namespace: String,
        /// Its name.
        name: String,
    },
    /// A file for each, whose last line end does not count.
    Files {
        /// The user.
        user: PathBuf,
        /// The password.
        password: PathBuf,
    },
}

/// What a member is asked.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum EtcdRequest {
    /// `Maintenance.Status`: what the member itself knows, without asking others.
    Status,
    /// `Cluster.MemberList`, as the member has it, which may be old: also without quorum.
    Members,
    /// The same behind a quorum, 3.5 and later. Earlier versions are [`UNSUPPORTED`](super::cause::UNSUPPORTED), never a local
    /// list in its place.
    MembersByQuorum,
    /// `Maintenance.Alarm`, the ones that are raised.
    Alarms,
    /// A linearizable range over the one key `health`, as `etcdctl endpoint health` reads it.
    Read,
    /// `GET /health?exclude=NOSPACE`, for members without a JSON gateway.
    Health,
    /// `GET /metrics`, for the same.
    Metrics,
}

impl EtcdRequest {
    /// Every question.
    pub const ALL: [Self; 7] = [
        Self::Status,
        Self::Members,
        Self::MembersByQuorum,
        Self::Alarms,
        Self::Read,
        Self::Health,
        Self::Metrics,
    ];

    /// Its name in a recording.
    pub fn word(self) -> &'static str {
        match self {
            Self::Status => "status",
            Self::Members => "members",
            Self::MembersByQuorum => "membersByQuorum",
            Self::Alarms => "alarms",
            Self::Read => "read",
            Self::Health => "health",
            Self::Metrics => "metrics",
        }
    }
}

impl fmt::Display for EtcdRequest {
    /// As the end of "could not be asked for".
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Status => "its status",
            Self::Members => "its list of members",
            Self::MembersByQuorum => "the list of members",
            Self::Alarms => "the alarms",
            Self::Read => "a linearizable read",
            Self::Health => "its health",
            Self::Metrics => "its metrics",
        })
    }
}

/// What a member answered: the variant that belongs to the question. A world that gives another has a fault, and whoever asked
/// takes it for [`GARBAGE`](super::cause::GARBAGE).
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum EtcdResponse {
    /// To [`Question::Status`].
    Status(Box<Status>),
    /// To [`Question::Members`] and [`Question::MembersByQuorum`].
    Members(MemberList),
    /// To [`Question::Alarms`].
    Alarms(Vec<Alarm>),
    /// To [`Question::Read`].
    Read(Read),
    /// To [`Question::Health`].
    Health(Health),
    /// To [`Question::Metrics`].
    Metrics(MemberMetrics),
}

/// An answer, or why there is none; its code is one of [`cause::ALL`](super::cause::ALL).
pub type EtcdResult = Result<EtcdResponse, Cause>;

/// What a member says of itself.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Status {
    /// The ensemble that it is of (`header.cluster_id`). Never zero: an answer without one is garbage.
    pub cluster: Id,
    /// Its own id (`header.member_id`). Never zero.
    pub member: Id,
    /// Who leads, as far as it knows; none while it knows nobody.
    pub leader: Option<Id>,
    /// The term it is in.
    pub term: u64,
    /// What it knows to be committed.
    pub index: u64,
    /// What it has applied; 3.4 and later.
    pub applied: Option<u64>,
    /// Whether it does not vote yet.
    pub is_learner: bool,
    /// As `3.5.16`.
    pub version: String,
    /// What it complains of, one line each: `etcdserver: no leader`, and every raised alarm of any member.
    pub errors: Vec<String>,
    /// Whether the ensemble is being downgraded; 3.6 and later.
    pub is_downgrading: bool,
}

/// The members of an ensemble.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct MemberList {
    /// The ensemble that the list is of. Never zero.
    pub cluster: Id,
    /// In the order in which they came. No id twice, none zero: such a list is garbage.
    pub members: Vec<Member>,
}

/// One member as the list has it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Member {
    /// Its id.
    pub id: Id,
    /// Its name; empty for one that was added and has not started yet.
    pub name: String,
    /// Where others reach it.
    pub peer_urls: Vec<String>,
    /// Where clients do; empty for one that has not started yet.
    pub client_urls: Vec<String>,
    /// Whether it does not vote yet.
    pub is_learner: bool,
}

/// One alarm that is raised.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Alarm {
    /// Whose; zero where etcd cannot tell, as with CORRUPT from 3.5.7 on.
    pub member: Id,
    /// What it warns of.
    pub kind: AlarmKind,
}

/// What an alarm warns of.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum AlarmKind {
    /// Its database has reached its quota: nobody can write any more. Raft goes on.
    NoSpace,
    /// Its data differs from the others'.
    Corrupt,
    /// Something that later versions know.
    Other(String),
}

/// What became of a linearizable read. In either case a quorum was asked: etcd looks at permissions after that
/// (`etcdserver/v3_server.go`: `linearizableReadNotify`, then `doSerialize`).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Read {
    /// It was served.
    Served,
    /// It was not, only because who asks may not read that key, or because no user was named where the ensemble asks for one.
    Denied,
}

/// What `/health` says.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Health {
    /// Whether a linearizable read came about.
    pub is_healthy: bool,
    /// Why not, where it says so.
    pub reason: String,
}

/// What `/metrics` says, as far as it tells of roles; what is not there is none.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct MemberMetrics {
    /// `etcd_server_is_leader`.
    pub is_leader: Option<bool>,
    /// `etcd_server_has_leader`.
    pub has_leader: Option<bool>,
    /// `etcd_server_is_learner`; 3.4 and later.
    pub is_learner: Option<bool>,
    /// `etcd_server_id`, the label `server_id` in hexadecimal.
    pub member: Option<Id>,
    /// `etcd_server_version`, the label `server_version`.
    pub version: Option<String>,
    /// `etcd_disk_defrag_inflight`; 3.4 and later.
    pub is_defragmenting: Option<bool>,
    /// `etcd_server_snapshot_apply_in_progress_total`; 3.4 and later.
    pub is_applying_snapshot: Option<bool>,
}
