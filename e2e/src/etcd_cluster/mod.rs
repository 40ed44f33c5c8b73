//! Real etcd clusters: members as processes on loopback addresses of their own, and pods in a real API server with those
//! addresses ([`pods`]).
//!
//! ```no_run
//! # fn case(context: &e2e::context::TestContext) -> anyhow::Result<()> {
//! use e2e::etcd_cluster::{EtcdCluster, Release};
//! let etcd = EtcdCluster::of(3).release(Release::V3_5).start(context)?;
//! let leader = etcd.leader()?;
//! let stopped = etcd.follower()?.stop()?;
//! # Ok(()) }
//! ```
//!
//! A member takes 40 MB, and a cluster has a leader after two seconds. Most cases need three members with the defaults, and leave them
//! healthy. Such a cluster is kept for the next case ([`spare`]). There is no kubelet: a deleted pod's process runs until the case ends
//! it.

mod address;
mod fake_member;
mod member;
mod peer_relay;
pub mod pods;
mod release;
mod spare;
mod tls;
pub mod writer;

use std::collections::BTreeSet;
use std::net::Ipv4Addr;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, Result, bail, ensure};
use serde_json::json;

use crate::context::TestContext;
use crate::daemon::{Daemon, accepts};
use crate::supervisor::{Supervisor, Tool};
use crate::wait::{Poll, eventually};

pub use address::{CLIENT, free as address};
pub use fake_member::FakeMember;
pub use member::{Member, Said, Status};
pub use release::Release;
pub use tls::{IssuedFor, ServerTls};

use address::PEER;
use member::Transport;
use peer_relay::PeerRelays;

/// The prefix of member names.
const DEFAULT_NAME: &str = "etcd";

/// An election takes a second or two, longer on a loaded machine.
const AGREED_WITHIN: Duration = Duration::from_secs(60);

/// The options of an etcd cluster.
#[derive(Debug)]
#[must_use = "nothing is started before `start`"]
pub struct EtcdClusterOptions {
    members: usize,
    name: String,
    release: Option<Release>,
    trust: Option<Arc<ServerTls>>,
    flags: Vec<String>,
    has_relays: bool,
}

impl EtcdClusterOptions {
    /// Sets the release. The default is that of the run, 3.6 unless a variable sets another one.
    pub fn release(mut self, release: Release) -> Self {
        self.release = Some(release);
        self
    }

    /// Sets the prefix of member names, `etcd` by default.
    pub fn named(mut self, name: &str) -> Self {
        name.clone_into(&mut self.name);
        self
    }

    /// Adds a flag for every member, `--name=value`.
    pub fn flag(mut self, flag: impl Into<String>) -> Self {
        self.flags.push(flag.into());
        self
    }

    /// Lets members reach each other by relays, so that one can be isolated.
    pub fn with_relays(mut self) -> Self {
        self.has_relays = true;
        self
    }

    /// Limits the database size, so that it is soon full and the alarm NOSPACE is raised.
    pub fn quota(self, bytes: u32) -> Self {
        self.flag(format!("--quota-backend-bytes={bytes}"))
    }

    /// Makes members serve clients over TLS.
    pub fn tls(mut self, trust: ServerTls) -> Self {
        self.trust = Some(Arc::new(trust));
        self
    }

    /// Starts it and returns when all members agree on a leader. With the defaults, it can be one that an earlier case has left healthy.
    pub fn start(self, context: &TestContext) -> Result<EtcdCluster> {
        let is_default = self.is_default();
        if is_default && let Some(etcd) = spare::take() {
            return Ok(etcd);
        }
        let Self { members, name, release, trust, flags, has_relays } = self;
        let supervisor = context.supervisor()?;
        let release = release.map_or_else(Release::of_one_case, Ok)?;
        let program = release.program(&supervisor)?;
        let seats = (0..members).map(|at| Ok((format!("{name}-{at}"), address::free()?)));
        let seats = seats.collect::<Result<Vec<_>>>()?;
        let directory = context.directory("etcd-cluster")?;
        let token = directory.file_name().map(|name| name.display().to_string()).unwrap_or_default();
        let relays = has_relays.then(PeerRelays::new).transpose()?;
        let make = Arc::new(Make { supervisor, program, release, trust, flags, directory, token, relays });
        let mut etcd = EtcdCluster { make, name, members: Vec::new(), is_default };
        for (name, address) in &seats {
            let member = etcd.make.member(context, name, *address, &seats, "new")?;
            etcd.members.push(member);
        }
        let up = if etcd.has_gateway() { etcd.leader().map(drop) } else { etcd.roles_by_metrics().map(drop) };
        up.with_context(|| format!("an etcd {release} cluster does not come up"))?;
        if is_default {
            context.at_stage_end(|_| spare::end_all());
        }
        Ok(etcd)
    }

    fn is_default(&self) -> bool {
        let Self { members, name, release, trust, flags, has_relays } = self;
        *members == spare::MEMBERS
            && name == DEFAULT_NAME
            && release.is_none()
            && trust.is_none()
            && flags.is_empty()
            && !has_relays
    }
}

/// The inputs of each member's start.
#[derive(Debug)]
struct Make {
    supervisor: Arc<Supervisor>,
    program: std::path::PathBuf,
    release: Release,
    trust: Option<Arc<ServerTls>>,
    flags: Vec<String>,
    directory: std::path::PathBuf,
    token: String,
    relays: Option<PeerRelays>,
}

impl Make {
    /// Returns the URL at which other members reach this one.
    fn peer_url(&self, member: Ipv4Addr) -> Result<String> {
        let address = self.relays.as_ref().map_or(Ok(member), |relays| relays.of(member))?;
        Ok(format!("http://{address}:{PEER}"))
    }

    fn member(
        &self,
        context: &TestContext,
        name: &str,
        address: Ipv4Addr,
        seats: &[(String, Ipv4Addr)],
        cluster_state: &str,
    ) -> Result<Member> {
        let directory = self.directory.join(name);
        std::fs::create_dir_all(&directory)
            .with_context(|| format!("cannot make {}", directory.display()))?;
        let scheme = if self.trust.is_some() { "https" } else { "http" };
        let client = format!("{scheme}://{address}:{CLIENT}");
        let seated = seats.iter().map(|(name, address)| Ok(format!("{name}={}", self.peer_url(*address)?)));
        let seated = seated.collect::<Result<Vec<_>>>()?;
        let mut tool = Tool::new(format!("{}-{name}", self.token), &self.program)
            .grace(Duration::ZERO)
            .flag("name", name)
            .flag("data-dir", directory.join("data").display())
            .flag("listen-client-urls", &client)
            .flag("advertise-client-urls", &client)
            .flag("listen-peer-urls", format!("http://{address}:{PEER}"))
            .flag("initial-advertise-peer-urls", self.peer_url(address)?)
            .flag("initial-cluster", seated.join(","))
            .flag("initial-cluster-state", cluster_state)
            .flag("initial-cluster-token", &self.token)
            // Twice etcd's defaults: on a busy machine a heartbeat is late by more than a second, and an election would
            // change the leader during a case.
            .flag("heartbeat-interval", 200)
            .flag("election-timeout", 2_000)
            // A member can be added before all members have been connected for five seconds.
            .flag("strict-reconfig-check", false)
            .flag("logger", "zap");
        if self.release.can_do_without_fsync() {
            tool = tool.argument("--unsafe-no-fsync");
        }
        let mut transport = Transport::Plain;
        if let Some(trust) = &self.trust {
            tool = tool.arguments(trust.flags(&directory, address)?);
            transport = Transport::Tls(context.api(&trust.kubeconfig(address, CLIENT))?);
        }
        let tool = tool.arguments(self.flags.iter().cloned());
        // It serves clients only in a quorum, and a case can start it without one.
        let daemon = Daemon::start(&self.supervisor, tool, accepts((address, PEER)))?;
        Ok(Member { name: name.to_owned(), address, directory, daemon, transport })
    }
}

/// A running etcd cluster. Its members end when it is dropped.
#[derive(Debug)]
pub struct EtcdCluster {
    make: Arc<Make>,
    name: String,
    members: Vec<Member>,
    /// Whether it was started with the defaults, so that it can be kept.
    is_default: bool,
}

impl EtcdCluster {
    /// Returns the options of a cluster with this number of members.
    pub fn of(members: usize) -> EtcdClusterOptions {
        EtcdClusterOptions {
            members,
            name: DEFAULT_NAME.to_owned(),
            release: None,
            trust: None,
            flags: Vec::new(),
            has_relays: false,
        }
    }

    /// Returns the prefix of its members' names, which is also the name of its `StatefulSet`.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Returns all members, stopped ones included.
    pub fn members(&self) -> &[Member] {
        &self.members
    }

    /// Returns the member of this name.
    pub fn member(&self, name: &str) -> Result<&Member> {
        self.members.iter().find(|member| member.name == name).with_context(|| format!("no member {name}"))
    }

    /// Returns its directory.
    pub fn directory(&self) -> &Path {
        &self.make.directory
    }

    /// Returns its TLS, if it has any.
    pub fn trust(&self) -> Option<&ServerTls> {
        self.make.trust.as_deref()
    }

    /// Moves everything into another value. This one is empty then.
    fn take(&mut self) -> Self {
        let (name, members) = (std::mem::take(&mut self.name), std::mem::take(&mut self.members));
        Self { make: Arc::clone(&self.make), name, members, is_default: self.is_default }
    }

    fn has_gateway(&self) -> bool {
        !self.make.flags.iter().any(|flag| flag == "--enable-grpc-gateway=false")
    }

    fn up(&self) -> impl Iterator<Item = &Member> {
        self.members.iter().filter(|member| member.is_up())
    }

    /// Waits until all running members agree on a leader and returns it.
    pub fn leader(&self) -> Result<&Member> {
        eventually("the members to agree on a leader", AGREED_WITHIN, || {
            let said: Vec<(&Member, Result<Status>)> =
                self.up().map(|member| (member, member.status())).collect();
            let mut leaders = BTreeSet::new();
            for (member, status) in &said {
                match status {
                    Ok(status) => leaders.insert((status.term, status.leader)),
                    Err(error) => return Ok(Poll::Pending(format!("{}: {error:#}", member.name))),
                };
            }
            let [(_, Some(leader))] = Vec::from_iter(&leaders)[..] else {
                return Ok(Poll::Pending(format!("{leaders:?}")));
            };
            let leading = said.iter().find(|(_, status)| status.as_ref().is_ok_and(|s| s.id == *leader));
            Ok(match leading {
                Some((member, _)) => Poll::Ready(*member),
                None => Poll::Pending(format!("{leader:x} leads, and does not run")),
            })
        })
        .map_err(|error| self.failure(&error))
    }

    /// Waits until one running member is the leader by its metrics. Returns all running members and whether they lead.
    /// Works without the gateway.
    pub fn roles_by_metrics(&self) -> Result<Vec<(&Member, bool)>> {
        eventually("exactly one member to report that it leads", AGREED_WITHIN, || {
            let mut roles = Vec::new();
            for member in self.up() {
                match member.metric("etcd_server_is_leader") {
                    Ok(value) => roles.push((member, value > 0.5)),
                    Err(error) => return Ok(Poll::Pending(format!("{}: {error:#}", member.name))),
                }
            }
            let leaders = roles.iter().filter(|(_, leads)| *leads).count();
            Ok(if leaders == 1 { Poll::Ready(roles) } else { Poll::Pending(format!("{leaders} lead")) })
        })
        .map_err(|error| self.failure(&error))
    }

    /// Returns a running member that is not the leader.
    pub fn follower(&self) -> Result<&Member> {
        self.followers()?.first().copied().context("no member follows the leader")
    }

    /// Returns all running members that are not the leader.
    pub fn followers(&self) -> Result<Vec<&Member>> {
        let leader = self.leader()?;
        Ok(self.up().filter(|member| member.name != leader.name).collect())
    }

    /// Transfers the leadership to this member, unless it is the leader.
    pub fn transfer_leadership_to(&self, member: &Member) -> Result<()> {
        let leader = self.leader()?;
        if leader.name == member.name {
            return Ok(());
        }
        let target = json!({"targetID": member.id()?.to_string()});
        leader.ask("/v3/maintenance/transfer-leadership", &target)?.succeeded()?;
        let now = self.leader()?;
        ensure!(now.name == member.name, "{} leads, and not {}", now.name, member.name);
        Ok(())
    }

    /// Waits until this member knows no leader, which takes a moment after the quorum is lost.
    pub fn await_leaderless(&self, member: &Member) -> Result<()> {
        eventually(format_args!("{} to know of no leader", member.name), AGREED_WITHIN, || {
            Ok(match member.status() {
                Err(error) => Poll::Pending(format!("{error:#}")),
                Ok(Status { leader: None, .. }) => Poll::Ready(()),
                Ok(Status { leader: Some(leader), term, .. }) => {
                    Poll::Pending(format!("{leader:x} leads in term {term}"))
                }
            })
        })
        .map_err(|error| self.failure(&error))
    }

    /// Adds a learner and returns when it knows the leader.
    pub fn add_learner(&mut self, context: &TestContext) -> Result<()> {
        self.add(context, true)?;
        self.leader().map(drop)
    }

    /// Adds a voter and returns when a quorum answers it.
    pub fn add_voter(&mut self, context: &TestContext) -> Result<()> {
        self.add(context, false)?;
        self.members.last().context("no members")?.await_reads(AGREED_WITHIN)
    }

    /// Cuts this member off from the others. Clients still reach it.
    pub fn isolate(&self, member: &Member) -> Result<()> {
        let relays = self.make.relays.as_ref().context("start the cluster with relays")?;
        relays.isolate(member.id()?, member.address);
        Ok(())
    }

    fn add(&mut self, context: &TestContext, is_learner: bool) -> Result<()> {
        let name = format!("{}-{}", self.name, self.members.len());
        let address = address::free()?;
        let new = json!({"peerURLs": [self.make.peer_url(address)?], "isLearner": is_learner});
        let leading = |member: &&Member| member.status().is_ok_and(|status| status.leads());
        let leader = self.up().find(leading).context("no member leads")?;
        leader.ask("/v3/cluster/member/add", &new)?.succeeded()?;
        let mut seats: Vec<_> = self.members.iter().map(|m| (m.name.clone(), m.address)).collect();
        seats.push((name.clone(), address));
        let member = self.make.member(context, &name, address, &seats, "existing")?;
        self.members.push(member);
        Ok(())
    }

    /// Adds a member that is never started.
    pub fn add_unstarted_member(&self) -> Result<()> {
        let new = json!({"peerURLs": [format!("http://{}:{PEER}", address::free()?)]});
        self.leader()?.ask("/v3/cluster/member/add", &new)?.succeeded().map(drop)
    }

    /// Enables authentication with the user `root` and this password.
    pub fn enable_authentication(&self, password: &str) -> Result<()> {
        let leader = self.leader()?;
        let steps = [
            ("/v3/auth/user/add", json!({"name": "root", "password": password})),
            ("/v3/auth/role/add", json!({"name": "root"})),
            ("/v3/auth/user/grant", json!({"user": "root", "role": "root"})),
            ("/v3/auth/enable", json!({})),
        ];
        for (path, question) in steps {
            leader.ask(path, &question)?.succeeded().with_context(|| path.to_owned())?;
        }
        Ok(())
    }

    /// Returns an error with the end of a member's log.
    fn failure(&self, error: &anyhow::Error) -> anyhow::Error {
        match self.members.first() {
            Some(member) => member.daemon.failure(format_args!("{error:#}")),
            None => anyhow::anyhow!("{error:#}"),
        }
    }

    /// Waits until every running member reports an alarm of this name.
    pub fn await_alarm(&self, alarm: &str) -> Result<()> {
        eventually(format_args!("the alarm {alarm}"), AGREED_WITHIN, || {
            for member in self.up() {
                let status = match member.status() {
                    Ok(status) => status,
                    Err(error) => return Ok(Poll::Pending(format!("{}: {error:#}", member.name))),
                };
                if !status.errors.iter().any(|release| release.contains(alarm)) {
                    return Ok(Poll::Pending(format!("{}: {:?}", member.name, status.errors)));
                }
            }
            Ok(Poll::Ready(()))
        })
    }

    /// Writes until the database is full and the alarm NOSPACE is raised.
    pub fn fill(&self) -> Result<()> {
        const TRIES: usize = 200;
        let leader = self.leader()?;
        for number in 0..TRIES {
            let said = leader.write(&format!("full-{number}"), &vec![b'x'; 256 << 10])?;
            if said.status != 200 {
                ensure!(said.body.to_string().contains("space exceeded"), "{}: {}", said.status, said.body);
                return self.await_alarm("NOSPACE");
            }
        }
        bail!("there is still room after {TRIES} writes: the quota is too large for this")
    }
}

impl Drop for EtcdCluster {
    fn drop(&mut self) {
        if self.is_default && spare::keep(self) {
            return;
        }
        for member in &self.members {
            // It can have ended already.
            let _ = member.daemon.end();
        }
        // A member's log takes 128 MB from its first entry on, and a run has a hundred members.
        let _ = std::fs::remove_dir_all(&self.make.directory);
    }
}
