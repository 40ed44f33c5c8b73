//! Requests to one etcd member, and its responses.
//!
//! The types contain what guards need. [`live`](crate::live) knows the calls, [`snapshot`](crate::snapshot) the files, which
//! contain them in JSON.
//! No type contains a password or a key: credentials are named by their source.
//!
//! Any program can answer on a member's port, so [`EtcdResponse::check`] decides whether an answer can be one of etcd.

use std::collections::HashSet;
use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;

use admission::Cause;
use admission::text::is_printable;
use serde::{Deserialize, Serialize};

/// The id of a member or of an etcd cluster. Half of them are over 2^63.
pub type Id = u64;

/// The client endpoint of a member: a pod of a configured etcd cluster, and how to connect to it.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Endpoint {
    /// The pod's namespace.
    pub namespace: String,
    /// The pod's name.
    pub name: String,
    /// The pod's uid: a new pod with the same name is another endpoint.
    pub uid: String,
    /// `status.podIP`. Anything but an IP address is [`NO_ADDRESS`](super::cause::NO_ADDRESS) and never dialed: a name could lead
    /// anywhere.
    pub address: String,
    /// The client port.
    pub port: u16,
    /// Options for the connection.
    pub client: Arc<ClientOptions>,
}

impl fmt::Display for Endpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.name)
    }
}

/// Options for connections to the members of an etcd cluster.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash)]
pub struct ClientOptions {
    /// TLS, or `None` for plain HTTP.
    pub tls: Option<Tls>,
    /// The login, if the etcd cluster has authentication on. It is sent only over verified TLS, unless that is
    /// [`insecure`](Tls::insecure), or over plain HTTP if [`open`](Self::open).
    pub login: Option<Login>,
    /// Whether the login can be sent over plain HTTP.
    pub open: bool,
}

/// TLS options.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Tls {
    /// The source of CA and client certificate. `None` only if [`insecure`](Self::insecure).
    pub material: Option<Material>,
    /// The name in the member's certificate. The default is the pod's address.
    pub server_name: Option<String>,
    /// Whether any certificate is accepted.
    pub insecure: bool,
}

/// The source of CA and client certificate. Changes are picked up.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Material {
    /// A Secret in the local cluster: `ca.crt` is required; `tls.crt` and `tls.key` are both set or both absent.
    Secret {
        /// Its namespace.
        namespace: String,
        /// Its name.
        name: String,
    },
    /// Files in PEM.
    Files {
        /// The CA of the members' certificates.
        authority: PathBuf,
        /// The client's certificate and its key.
        identity: Option<(PathBuf, PathBuf)>,
    },
}

/// A Secret in the local cluster with `username` and `password`. Changes are picked up.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Login {
    /// The namespace of the Secret.
    pub namespace: String,
    /// The name of the Secret.
    pub name: String,
}

/// A request to a member.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum EtcdRequest {
    /// `Maintenance.Status`: the member's local state.
    Status,
    /// `Cluster.MemberList` from the member's local state, which may be old. Works without quorum.
    Members,
    /// `Cluster.MemberList` behind a linearizable read, so no list is older than the request.
    MembersByQuorum,
    /// `Maintenance.Alarm`: the raised alarms.
    Alarms,
    /// A linearizable range over the one key `health`, as `etcdctl endpoint health` reads it.
    Read,
}

impl EtcdRequest {
    /// Every request.
    pub const ALL: [Self; 5] = [Self::Status, Self::Members, Self::MembersByQuorum, Self::Alarms, Self::Read];

    /// Returns the cause if a member did not return an answer, from its reason.
    pub fn failed(self, member: &str, why: &Cause) -> Cause {
        Cause::failed(why.code, member, &format!("did not return {self}"), &why.text)
    }

    /// Returns its key in a snapshot.
    pub fn word(self) -> &'static str {
        match self {
            Self::Status => "status",
            Self::Members => "members",
            Self::MembersByQuorum => "membersByQuorum",
            Self::Alarms => "alarms",
            Self::Read => "read",
        }
    }
}

impl fmt::Display for EtcdRequest {
    /// Formats it as the end of "did not return".
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Status => "its status",
            Self::Members => "its member list",
            Self::MembersByQuorum => "the member list",
            Self::Alarms => "the alarms",
            Self::Read => "a linearizable read",
        })
    }
}

/// The response of a member: the variant of its request. Callers treat another variant as [`GARBAGE`](super::cause::GARBAGE).
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(untagged)]
pub enum EtcdResponse {
    /// To [`EtcdRequest::Status`].
    Status(Box<Status>),
    /// To [`EtcdRequest::Members`] and [`EtcdRequest::MembersByQuorum`].
    Members(MemberList),
    /// To [`EtcdRequest::Alarms`].
    Alarms(Vec<Alarm>),
    /// To [`EtcdRequest::Read`].
    Read(Read),
}

/// The longest name, version or URL of a member.
const MAX_TEXT: usize = 1024;

impl EtcdResponse {
    /// Returns the response, or why it cannot be from etcd: its ids are zero or duplicate, its version is not one, or users could not
    /// read a text.
    pub(crate) fn check(self) -> Result<Self, String> {
        match &self {
            Self::Status(status) if status.cluster == 0 || status.member == 0 => {
                return Err("the answer has no cluster ID or no member ID".to_owned());
            }
            Self::Status(status) => {
                check_text("version", &status.version)?;
                if version(&status.version).is_none() {
                    return Err("the answer has no valid version".to_owned());
                }
            }
            Self::Members(list) if list.cluster == 0 => return Err("the answer has no cluster ID".to_owned()),
            Self::Members(list) if list.members.is_empty() => {
                return Err("the member list is empty".to_owned());
            }
            Self::Members(list) => {
                let mut ids = HashSet::new();
                for member in &list.members {
                    if member.id == 0 || !ids.insert(member.id) {
                        return Err(
                            "the member list has an entry without an ID, or a duplicate ID".to_owned()
                        );
                    }
                    check_text("name", &member.name)?;
                    member.client_urls.iter().try_for_each(|url| check_text("URL", url))?;
                }
            }
            Self::Alarms(alarms) => {
                for Alarm { kind, .. } in alarms {
                    if let AlarmKind::Other(text) = kind {
                        check_text("alarm", text)?;
                    }
                }
            }
            Self::Read(_) => {}
        }
        Ok(self)
    }
}

fn check_text(what: &str, text: &str) -> Result<(), String> {
    if text.len() > MAX_TEXT || !text.chars().all(is_printable) {
        return Err(format!("a {what} in the answer is longer than 1 KiB or not printable"));
    }
    Ok(())
}

/// Returns major and minor of a version like `3.5.16`.
pub(crate) fn version(text: &str) -> Option<(u32, u32)> {
    let mut parts = text.split('.');
    let mut part = || parts.next()?.parse().ok();
    Some((part()?, part()?))
}

/// A response, or the cause with a code of [`cause::ALL`](super::cause::ALL).
pub type EtcdResult = Result<EtcdResponse, Cause>;

/// The state of a member.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Status {
    /// The id of its etcd cluster (`header.cluster_id`). Never zero.
    pub cluster: Id,
    /// Its own id (`header.member_id`). Never zero.
    pub member: Id,
    /// The leader that it follows, or `None` if it knows none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub leader: Option<Id>,
    /// Its term.
    pub term: u64,
    /// Its commit index.
    pub index: u64,
    /// Its applied index; 3.4 and later.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub applied: Option<u64>,
    /// Whether it is a learner.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub is_learner: bool,
    /// Its version: `3.5.16`.
    pub version: String,
    /// Its errors: `etcdserver: no leader`, and every raised alarm of any member.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub errors: Vec<String>,
    /// Whether the etcd cluster is being downgraded; 3.6 and later.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub is_downgrading: bool,
}

/// A member list.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct MemberList {
    /// The id of the etcd cluster. Never zero.
    pub cluster: Id,
    /// The members, with unique ids that are never zero.
    pub members: Vec<Member>,
}

/// An entry of the member list.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Member {
    /// Its id.
    pub id: Id,
    /// Its name; empty until a new member has started.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub name: String,
    /// Its client URLs; empty until a new member has started.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub client_urls: Vec<String>,
    /// Whether it is a learner.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub is_learner: bool,
}

/// A raised alarm.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Alarm {
    /// The member, or zero if etcd does not know it, as for CORRUPT from 3.5.7 on.
    pub member: Id,
    /// Its kind.
    pub kind: AlarmKind,
}

/// The kind of an alarm.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "UPPERCASE")]
pub enum AlarmKind {
    /// The database reached its quota: writes fail. Raft continues.
    NoSpace,
    /// Its data differs from the others'.
    Corrupt,
    /// A kind of later versions, with its number.
    #[serde(untagged)]
    Other(String),
}

/// The outcome of a linearizable read. Both variants prove a quorum: etcd checks permissions afterwards
/// (`etcdserver/v3_server.go`: `linearizableReadNotify`, then `doSerialize`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Read {
    /// The read succeeded.
    Served,
    /// The user has no permission for the key, or there was no user and authentication is on.
    Denied,
}
