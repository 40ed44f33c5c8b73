//! Parses the answers of etcd's JSON gateway and of its plain HTTP paths, and encodes them for snapshots.
//!
//! Live clients and snapshots share this parser. Any program may answer on a member's port, so nothing is filled in: an answer
//! without a required part is an error.
//!
//! Facts (measured on 3.4.23 and 3.6.15; `api/etcdserverpb/rpc.proto`): numbers of 64 bits are strings, and what is zero is
//! omitted; `raftAppliedIndex`, `errors` and `isLearner` came with 3.4, `downgradeInfo` with 3.6. Without alarms, 3.4 answers
//! `{}` without a header. From 3.5.7 on an alarm CORRUPT may have the member id zero, where etcd cannot tell whose data differs
//! (`etcdserver/corrupt.go`); then the id is omitted.

mod metrics;

use admission::Cause;
use admission::text::{excerpt, is_printable};
use serde::de::{DeserializeOwned, Error as _};
use serde::{Deserialize, Deserializer};
use serde_json::{Map, Value, json};

use super::cause;
use super::etcd::{
    Alarm, AlarmKind, EtcdRequest, EtcdResponse, Health, Id, Member, MemberList, Read, Status,
};

/// The longest name, version or URL of a member.
const MAX_TEXT: usize = 1024;

/// Errors of a member that are kept. It has one for each raised alarm, so this is enough for two alarms of each of thirty
/// members; etcd advises at most seven members.
const MAX_ERRORS: usize = 64;

/// Words of a snapshot for a linearizable read that succeeded, and for one that was denied.
const SERVED: &str = "served";
const DENIED: &str = "denied";

/// Parses the answer to a request. The cause's text is the end of a sentence about the member.
pub(super) fn read(request: EtcdRequest, body: &[u8]) -> Result<EtcdResponse, Cause> {
    match request {
        EtcdRequest::Status => status(body).map(|status| EtcdResponse::Status(Box::new(status))),
        EtcdRequest::Members | EtcdRequest::MembersByQuorum => members(body).map(EtcdResponse::Members),
        EtcdRequest::Alarms => alarms(body).map(EtcdResponse::Alarms),
        EtcdRequest::Read => {
            header(parsed::<Bare>(body)?.header.as_ref())?;
            Ok(EtcdResponse::Read(Read::Served))
        }
        EtcdRequest::Health => health(body).map(EtcdResponse::Health),
        EtcdRequest::Metrics => metrics::read(body).map(EtcdResponse::Metrics),
    }
}

/// Parses an answer in a snapshot: the body as it came, or a word for a read. The error is the end of a sentence.
pub(super) fn recorded(request: EtcdRequest, value: &Value) -> Result<EtcdResponse, String> {
    let of = |body: &[u8]| read(request, body).map_err(|cause| cause.text);
    match (request, value) {
        (EtcdRequest::Read, Value::String(word)) if word == SERVED => Ok(EtcdResponse::Read(Read::Served)),
        (EtcdRequest::Read, Value::String(word)) if word == DENIED => Ok(EtcdResponse::Read(Read::Denied)),
        (EtcdRequest::Read, _) => Err(format!("is neither {SERVED:?} nor {DENIED:?}")),
        (EtcdRequest::Metrics, Value::String(text)) => of(text.as_bytes()),
        (EtcdRequest::Metrics, _) => Err("is no text".to_owned()),
        _ => of(value.to_string().as_bytes()),
    }
}

/// Returns an answer in the form that [`recorded`] parses.
pub(super) fn written(answer: &EtcdResponse) -> Value {
    match answer {
        EtcdResponse::Status(status) => status_written(status),
        EtcdResponse::Members(members) => {
            let all: Vec<Value> = members.members.iter().map(member_written).collect();
            json!({"header": {"cluster_id": members.cluster.to_string()}, "members": all})
        }
        EtcdResponse::Alarms(alarms) => {
            let alarm =
                |alarm: &Alarm| json!({"memberID": alarm.member.to_string(), "alarm": alarm.kind.word()});
            json!({"alarms": alarms.iter().map(alarm).collect::<Vec<_>>()})
        }
        EtcdResponse::Read(Read::Served) => SERVED.into(),
        EtcdResponse::Read(Read::Denied) => DENIED.into(),
        EtcdResponse::Health(health) => {
            json!({"health": health.is_healthy.to_string(), "reason": health.reason})
        }
        EtcdResponse::Metrics(metrics) => metrics::written(metrics).into(),
    }
}

fn status_written(status: &Status) -> Value {
    let mut out = json!({
        "header": {"cluster_id": status.cluster.to_string(), "member_id": status.member.to_string()},
        "version": status.version,
        "raftIndex": status.index.to_string(),
        "raftTerm": status.term.to_string(),
    });
    let mut put = |key: &str, value: Option<Value>| {
        if let (Some(value), Some(out)) = (value, out.as_object_mut()) {
            out.insert(key.to_owned(), value);
        }
    };
    put("leader", status.leader.map(|id| id.to_string().into()));
    put("raftAppliedIndex", status.applied.map(|index| index.to_string().into()));
    put("isLearner", status.is_learner.then_some(true.into()));
    put("errors", (!status.errors.is_empty()).then(|| status.errors.clone().into()));
    put("downgradeInfo", status.is_downgrading.then(|| json!({"enabled": true})));
    out
}

fn member_written(member: &Member) -> Value {
    let mut out = Map::new();
    out.insert("ID".to_owned(), member.id.to_string().into());
    if !member.name.is_empty() {
        out.insert("name".to_owned(), member.name.as_str().into());
    }
    for (key, urls) in [("peerURLs", &member.peer_urls), ("clientURLs", &member.client_urls)] {
        if !urls.is_empty() {
            out.insert(key.to_owned(), urls.clone().into());
        }
    }
    if member.is_learner {
        out.insert("isLearner".to_owned(), true.into());
    }
    Value::Object(out)
}

/// A number of 64 bits: a string, as the gateway writes it, or a JSON number, as in snapshots written by hand.
#[derive(Debug, Clone, Copy, Default)]
struct Number(u64);

impl<'de> Deserialize<'de> for Number {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        #[derive(Deserialize)]
        #[serde(untagged)]
        enum Form {
            Number(u64),
            Text(String),
        }
        match Form::deserialize(deserializer) {
            Ok(Form::Number(number)) => Ok(Self(number)),
            Ok(Form::Text(text)) => {
                let is_plain = (1..=20).contains(&text.len()) && text.bytes().all(|b| b.is_ascii_digit());
                let number = text.parse().ok().filter(|_| is_plain);
                number.map(Self).ok_or_else(|| D::Error::custom("expected a 64-bit number"))
            }
            Err(_) => Err(D::Error::custom("expected a 64-bit number")),
        }
    }
}

#[derive(Default, Deserialize)]
struct Header {
    cluster_id: Option<Number>,
    member_id: Option<Number>,
}

/// An answer that needs a header only.
#[derive(Deserialize)]
struct Bare {
    header: Option<Header>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct StatusWire {
    header: Option<Header>,
    version: Option<String>,
    leader: Option<Number>,
    raft_index: Option<Number>,
    raft_term: Option<Number>,
    raft_applied_index: Option<Number>,
    errors: Option<Vec<String>>,
    is_learner: Option<bool>,
    downgrade_info: Option<Downgrade>,
}

#[derive(Deserialize)]
struct Downgrade {
    enabled: Option<bool>,
}

#[derive(Deserialize)]
struct MembersWire {
    header: Option<Header>,
    members: Option<Vec<MemberWire>>,
}

#[derive(Deserialize)]
struct MemberWire {
    #[serde(rename = "ID")]
    id: Option<Number>,
    name: Option<String>,
    #[serde(rename = "peerURLs")]
    peer_urls: Option<Vec<String>>,
    #[serde(rename = "clientURLs")]
    client_urls: Option<Vec<String>>,
    #[serde(rename = "isLearner")]
    is_learner: Option<bool>,
}

#[derive(Deserialize)]
struct AlarmsWire {
    header: Option<Header>,
    alarms: Option<Vec<AlarmWire>>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct AlarmWire {
    #[serde(rename = "memberID")]
    member_id: Option<Number>,
    alarm: Option<String>,
}

fn status(body: &[u8]) -> Result<Status, Cause> {
    let wire: StatusWire = parsed(body)?;
    let (cluster, member) = header(wire.header.as_ref())?;
    let member = member.ok_or_else(|| garbage("the answer has no member ID"))?;
    let version = wire.version.unwrap_or_default();
    let version = printable("version", version)?;
    let since = self::version(&version).ok_or_else(|| garbage("the answer has no valid version"))?;
    let number = |wire: Option<Number>| wire.unwrap_or_default().0;
    Ok(Status {
        cluster,
        member,
        leader: wire.leader.map(|Number(id)| id).filter(|&id| id != 0),
        term: number(wire.raft_term),
        index: number(wire.raft_index),
        // Zero is omitted, and so is an unknown index.
        applied: wire.raft_applied_index.map(|Number(at)| at).or_else(|| (since >= (3, 4)).then_some(0)),
        is_learner: wire.is_learner.unwrap_or_default(),
        version,
        errors: wire.errors.unwrap_or_default().iter().take(MAX_ERRORS).map(|line| one_line(line)).collect(),
        is_downgrading: wire.downgrade_info.and_then(|info| info.enabled).unwrap_or_default(),
    })
}

fn members(body: &[u8]) -> Result<MemberList, Cause> {
    let wire: MembersWire = parsed(body)?;
    let (cluster, _) = header(wire.header.as_ref())?;
    let wires = wire.members.filter(|members| !members.is_empty());
    let wires = wires.ok_or_else(|| garbage("the member list is empty"))?;
    let mut members: Vec<Member> = Vec::with_capacity(wires.len());
    let mut ids = std::collections::HashSet::new();
    for wire in wires {
        let id = wire.id.map(|Number(id)| id).filter(|&id| id != 0);
        let id = id.ok_or_else(|| garbage("the member list has an entry without an ID"))?;
        if !ids.insert(id) {
            return Err(garbage("the member list has a duplicate ID"));
        }
        let urls = |urls: Option<Vec<String>>| -> Result<Vec<String>, Cause> {
            urls.unwrap_or_default().into_iter().map(|url| printable("URL", url)).collect()
        };
        members.push(Member {
            id,
            name: printable("name", wire.name.unwrap_or_default())?,
            peer_urls: urls(wire.peer_urls)?,
            client_urls: urls(wire.client_urls)?,
            is_learner: wire.is_learner.unwrap_or_default(),
        });
    }
    Ok(MemberList { cluster, members })
}

fn alarms(body: &[u8]) -> Result<Vec<Alarm>, Cause> {
    let wire: AlarmsWire = parsed(body)?;
    // Without alarms, 3.4 omits the header too, so `{}` is valid. Other answers need one of the two keys.
    if wire.header.is_none() && wire.alarms.is_none() && body.trim_ascii() != b"{}" {
        return Err(something_else());
    }
    if wire.header.is_some() {
        header(wire.header.as_ref())?;
    }
    let alarm = |wire: AlarmWire| {
        let Number(member) = wire.member_id.unwrap_or_default();
        // A missing kind is `NONE` (zero), which etcd never raises.
        let kind = wire.alarm.ok_or_else(|| garbage("an alarm has no type"))?;
        Ok(Alarm { member, kind: AlarmKind::read(printable("alarm", kind)?) })
    };
    wire.alarms.unwrap_or_default().into_iter().map(alarm).collect()
}

fn health(body: &[u8]) -> Result<Health, Cause> {
    #[derive(Deserialize)]
    struct Wire {
        health: Option<Value>,
        reason: Option<String>,
    }
    let wire: Wire = parsed(body)?;
    let is_healthy = match wire.health {
        Some(Value::Bool(is_healthy)) => is_healthy,
        Some(Value::String(word)) if word == "true" => true,
        Some(Value::String(word)) if word == "false" => false,
        None => return Err(something_else()),
        Some(_) => return Err(garbage("its health is neither true nor false")),
    };
    Ok(Health { is_healthy, reason: one_line(&wire.reason.unwrap_or_default()) })
}

/// Returns major and minor of a version like `3.5.16`.
pub(super) fn version(text: &str) -> Option<(u32, u32)> {
    let mut parts = text.split('.');
    let mut part = || parts.next()?.parse().ok();
    Some((part()?, part()?))
}

/// Returns the version in an answer to `GET /version`, or `None` if it is not from etcd.
pub(super) fn version_of(body: &[u8]) -> Option<(u32, u32)> {
    #[derive(Deserialize)]
    struct Wire {
        etcdserver: String,
    }
    serde_json::from_slice(body).ok().and_then(|wire: Wire| version(&wire.etcdserver))
}

/// An error of the gateway. Versions up to 3.5 also have its text in `error`.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct GatewayError {
    /// The gRPC code. The HTTP status is less precise: a request to a follower gets 412 in 3.4 and 400 in 3.6.
    pub(super) code: Option<i64>,
    pub(super) message: String,
    error: Value,
}

impl GatewayError {
    /// Returns `None` if the answer is not from the gateway.
    pub(super) fn read(body: &[u8]) -> Option<Self> {
        let mut refusal: Self = serde_json::from_slice(body).ok()?;
        refusal.code?;
        if let (true, Value::String(error)) = (refusal.message.is_empty(), &refusal.error) {
            refusal.message.clone_from(error);
        }
        Some(refusal)
    }
}

/// Returns the ids of a header. The cluster's id is required; some answers have no member id.
fn header(header: Option<&Header>) -> Result<(Id, Option<Id>), Cause> {
    let Some(header) = header else { return Err(something_else()) };
    let id = |number: Option<Number>| number.map(|Number(id)| id).filter(|&id| id != 0);
    let cluster = id(header.cluster_id).ok_or_else(|| garbage("the answer has no cluster ID"))?;
    Ok((cluster, id(header.member_id)))
}

/// Parses a JSON body. A body that is not JSON may be a login page or a part of an answer.
fn parsed<T: DeserializeOwned>(body: &[u8]) -> Result<T, Cause> {
    serde_json::from_slice(body).map_err(|error| {
        if body.trim_ascii_start().starts_with(b"{") {
            // Only the position: the parser's text repeats the input.
            let (line, column) = (error.line(), error.column());
            garbage(&format!("invalid answer (line {line}, column {column})"))
        } else {
            let begins = String::from_utf8_lossy(body.get(..40).unwrap_or(body)).into_owned();
            let text = format!("another program answers there, not etcd: {:?}", one_line(&begins));
            Cause::new(cause::NOT_ETCD, text)
        }
    })
}

fn something_else() -> Cause {
    Cause::new(cause::NOT_ETCD, "another program answers there, not etcd: other JSON")
}

fn garbage(text: &str) -> Cause {
    Cause::new(cause::GARBAGE, text)
}

/// Returns a text that guards compare, unchanged, or an error if users could not read it.
fn printable(what: &str, text: String) -> Result<String, Cause> {
    if text.len() > MAX_TEXT || !text.chars().all(is_printable) {
        return Err(garbage(&format!("a {what} in the answer is longer than 1 KiB or not printable")));
    }
    Ok(text)
}

/// Returns foreign text for a sentence.
fn one_line(text: &str) -> String {
    excerpt(text, 160)
}

impl AlarmKind {
    fn word(&self) -> &str {
        match self {
            Self::NoSpace => "NOSPACE",
            Self::Corrupt => "CORRUPT",
            Self::Other(word) => word,
        }
    }

    fn read(word: String) -> Self {
        match word.as_str() {
            "NOSPACE" => Self::NoSpace,
            "CORRUPT" => Self::Corrupt,
            _ => Self::Other(word),
        }
    }
}

#[cfg(test)]
mod tests;
