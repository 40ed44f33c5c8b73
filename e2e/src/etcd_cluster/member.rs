//! A member of an etcd cluster: a process that can be stopped, killed, frozen and queried.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::ops::Deref;
use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use rustix::process::Signal;
use serde_json::{Value, json};

use super::address::CLIENT;
use crate::api::Api;
use crate::daemon::Daemon;
use crate::fixture::Undo;
use crate::metrics::Metrics;
use crate::plain_http;
use crate::wait::eventually;

/// A member that gets SIGTERM transfers the leadership in a tenth of a second. Version 3.6 can ignore SIGTERM while it
/// starts to serve.
const GRACE: Duration = Duration::from_secs(5);

/// A member of an etcd cluster. It ends with the cluster.
#[derive(Debug)]
pub struct Member {
    pub(super) name: String,
    pub(super) address: Ipv4Addr,
    pub(super) directory: PathBuf,
    pub(super) daemon: Daemon,
    pub(super) transport: Transport,
}

/// The transport to a member.
#[derive(Debug, Clone)]
pub(super) enum Transport {
    /// Plain HTTP, a connection for each request.
    Plain,
    /// TLS.
    Tls(Api),
}

/// A member's status, which it answers without the others.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Status {
    /// Its id.
    pub id: u64,
    /// The leader that it knows.
    pub leader: Option<u64>,
    /// Its term.
    pub term: u64,
    /// The last entry that it knows to be committed.
    pub index: u64,
    /// Its version.
    pub version: String,
    /// Its errors and alarms.
    pub errors: Vec<String>,
}

impl Status {
    /// Returns whether it is the leader by its own status.
    pub fn leads(&self) -> bool {
        self.leader == Some(self.id)
    }
}

/// An answer of a member.
#[derive(Debug, Clone)]
pub struct Said {
    /// The HTTP status.
    pub status: u16,
    /// The body, as text if it is not JSON.
    pub body: Value,
}

impl Said {
    /// Returns the body on success.
    pub fn succeeded(self) -> Result<Value> {
        ensure!(self.status == 200, "{}: {}", self.status, self.body);
        Ok(self.body)
    }
}

impl Member {
    /// Returns its name, which is also its pod's.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Returns its address, which is also its pod's.
    pub fn address(&self) -> Ipv4Addr {
        self.address
    }

    /// Returns its data directory.
    pub fn directory(&self) -> &std::path::Path {
        &self.directory
    }

    /// Calls its JSON gateway. Over TLS, a frozen member never answers.
    pub fn ask(&self, path: &str, question: &Value) -> Result<Said> {
        match &self.transport {
            Transport::Plain => {
                let at = SocketAddr::new(IpAddr::from(self.address), CLIENT);
                let page = plain_http::exchange(at, "POST", path, &question.to_string())?;
                let body = serde_json::from_str(&page.body).unwrap_or_else(|_| page.body.into());
                Ok(Said { status: page.status, body })
            }
            Transport::Tls(api) => {
                let answer = api.create(path, question)?;
                Ok(Said { status: answer.status, body: answer.body })
            }
        }
    }

    /// Reads one of its metrics over plain HTTP.
    pub fn metric(&self, name: &str) -> Result<f64> {
        let page = plain_http::get(SocketAddr::new(IpAddr::from(self.address), CLIENT), "/metrics")?;
        Metrics::parse(&page.body)?.value(name, &[])
    }

    /// Returns its status.
    pub fn status(&self) -> Result<Status> {
        let said = self.ask("/v3/maintenance/status", &json!({}))?.succeeded();
        let said = said.with_context(|| format!("{} tells no status", self.name))?;
        let id = number(&said["header"]["member_id"]);
        let errors = said["errors"].as_array().map(Vec::as_slice).unwrap_or_default();
        Ok(Status {
            id: id.with_context(|| format!("{} has no id: {said}", self.name))?,
            leader: number(&said["leader"]).filter(|id| *id != 0),
            term: number(&said["raftTerm"]).unwrap_or_default(),
            index: number(&said["raftIndex"]).unwrap_or_default(),
            version: said["version"].as_str().unwrap_or_default().to_owned(),
            errors: errors.iter().filter_map(|line| line.as_str().map(ToOwned::to_owned)).collect(),
        })
    }

    /// Returns its id.
    pub fn id(&self) -> Result<u64> {
        Ok(self.status()?.id)
    }

    /// Does a linearizable read. Without a quorum, etcd takes nine seconds to fail.
    pub fn read(&self) -> Result<()> {
        self.ask("/v3/kv/range", &json!({"key": STANDARD.encode("health")}))?.succeeded().map(drop)
    }

    /// Writes a value.
    pub fn write(&self, key: &str, value: &[u8]) -> Result<Said> {
        let pair = json!({"key": STANDARD.encode(key), "value": STANDARD.encode(value)});
        self.ask("/v3/kv/put", &pair)
    }

    /// Raises an alarm for this member: `CORRUPT`, `NOSPACE`.
    pub fn raise_alarm(&self, alarm: &str) -> Result<()> {
        self.raises_of(self.id()?, alarm)
    }

    /// Raises an alarm without a member, as etcd does if it cannot tell which member's data is corrupt.
    pub fn raise_alarm_without_member(&self, alarm: &str) -> Result<()> {
        self.raises_of(0, alarm)
    }

    fn raises_of(&self, id: u64, alarm: &str) -> Result<()> {
        let alarm = json!({"action": "ACTIVATE", "memberID": id.to_string(), "alarm": alarm});
        self.ask("/v3/maintenance/alarm", &alarm)?.succeeded().map(drop)
    }

    /// Ends it as a kubelet does: SIGTERM, on which a leader transfers the leadership, a grace period, SIGKILL. It
    /// starts again when the result is dropped.
    pub fn stop(&self) -> Result<Undo<'_>> {
        self.daemon.signal(Signal::TERM)?;
        self.daemon.has_ended(GRACE)?;
        self.daemon.stop()
    }

    /// Returns whether it runs and is not frozen.
    pub(super) fn is_up(&self) -> bool {
        let stat = std::fs::read_to_string(format!("/proc/{}/stat", self.pid())).unwrap_or_default();
        let state = stat.rsplit(')').next().and_then(|rest| rest.trim_start().chars().next());
        !matches!(state, None | Some('T' | 'Z'))
    }

    /// Waits until it serves clients and a quorum answers it.
    pub fn await_reads(&self, within: Duration) -> Result<()> {
        eventually(format_args!("{} to serve a linearizable read", self.name), within, || {
            Ok(self.read().into())
        })
        .map_err(|error| self.daemon.failure(format_args!("{error:#}")))
    }
}

impl Deref for Member {
    type Target = Daemon;

    fn deref(&self) -> &Daemon {
        &self.daemon
    }
}

/// The gateway writes 64-bit numbers as text.
fn number(value: &Value) -> Option<u64> {
    value.as_str()?.parse().ok()
}
