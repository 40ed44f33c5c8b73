//! A Karmada fleet: a control plane, two push members, and a pull member.
//!
//! ```no_run
//! # fn case(context: &'static e2e::context::TestContext) -> anyhow::Result<()> {
//! let fleet = context.fleet()?;
//! let shop = fleet.namespace("shop")?;
//! let m2 = fleet.member("m2")?;
//! m2.make_running_pod(&m2.existing_namespace(shop.name()), "web")?;
//! let pods = fleet.karmada().api().get(&fleet.proxied("m2", "/api/v1/pods"))?;
//! # Ok(()) }
//! ```
//!
//! All programs, CRDs, the `APIService` and the webhook configurations are upstream's (`control.rs`). karmadactl joins m1 and
//! m2, and karmada-agent joins m3 (`member.rs`). There is no kubelet: pods have no node, and the case writes their phase. The
//! fleet takes two GB, so a run has one ([`crate::fixture`]). Users have no permissions in members until the case grants them.

mod control;
mod member;

use std::net::Ipv4Addr;
use std::ops::Deref;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result};
use serde_json::{Value, json};

use crate::console::print;
use crate::context::TestContext;
use crate::controlplane::Cluster;
use crate::daemon::Daemon;
use crate::fixture::{Fixture, Undo};
use crate::namespace::Namespace;
use crate::wait::{Poll, eventually};
use control::Control;
pub use member::{Member, Mode};

/// A member is Ready within five seconds on an idle machine.
const READY_WITHIN: Duration = Duration::from_secs(120);

/// A namespace reaches the members within three seconds on an idle machine. After a member was unreachable, it takes up
/// to a minute.
const PROPAGATED_WITHIN: Duration = Duration::from_secs(120);

/// The path of Clusters.
const CLUSTERS: &str = "/apis/cluster.karmada.io/v1alpha1/clusters";

/// A running fleet. Tests call [`TestContext::fleet`] and [`TestContext::exclusive_fleet`].
#[derive(Debug)]
pub struct Fleet {
    control: Control,
    members: Vec<Member>,
}

impl Fleet {
    /// Starts a fleet with m1 and m2 (push) and m3 (pull), and returns when all are Ready. Karmada's API server listens on this
    /// address.
    pub(crate) fn start(context: &TestContext, address: Ipv4Addr) -> Result<Self> {
        let began = Instant::now();
        let members = [("m1", Mode::Push), ("m2", Mode::Push), ("m3", Mode::Pull)];
        // The members' API servers start at the same time as the control plane.
        let (control, members) = std::thread::scope(|scope| {
            let members = members.map(|(name, mode)| scope.spawn(move || Member::start(context, name, mode)));
            let control = Control::start(context, address);
            (control, members.map(|member| member.join().unwrap_or_else(|_| Err(panicked()))))
        });
        let fleet = Self { control: control?, members: members.into_iter().collect::<Result<_>>()? };
        let up = began.elapsed();
        let control = &fleet.control;
        std::thread::scope(|scope| {
            let joins: Vec<_> =
                fleet.members.iter().map(|member| scope.spawn(|| member.join(control))).collect();
            joins.into_iter().try_for_each(|join| join.join().unwrap_or_else(|_| Err(panicked())))
        })?;
        fleet.await_restored()?;
        print(format_args!(
            "the fleet is up after {:.1} s and joined after {:.1} s",
            up.as_secs_f32(),
            began.elapsed().as_secs_f32()
        ));
        Ok(fleet)
    }

    /// Ends its processes, after the last case that uses it.
    pub(crate) fn end(&self) {
        self.control.end();
        self.members.iter().for_each(Member::end);
    }

    /// Returns Karmada's API server.
    pub fn karmada(&self) -> &Cluster {
        &self.control.cluster
    }

    /// Returns the API server of `cluster.karmada.io`: Clusters, and the proxy to them.
    pub fn aggregated(&self) -> &Daemon {
        &self.control.aggregated
    }

    /// Returns the audit events of deletions of the namespace or CRD of this name, the latest last.
    pub fn audited(&self, name: &str) -> Result<Vec<Value>> {
        let path = &self.control.audit;
        let log = std::fs::read_to_string(path).with_context(|| format!("cannot read {}", path.display()))?;
        // The last line can be incomplete.
        let lines = log.split_inclusive('\n').filter(|line| line.ends_with('\n'));
        let events = lines.map(serde_json::from_str::<Value>).collect::<Result<Vec<_>, _>>()?;
        Ok(events.into_iter().filter(|event| event["objectRef"]["name"] == name).collect())
    }

    /// Returns karmada-controller-manager, which acts after an allowed deletion.
    pub fn controllers(&self) -> &Daemon {
        &self.control.controllers
    }

    /// Returns m1, m2 and m3.
    pub fn members(&self) -> &[Member] {
        &self.members
    }

    /// Returns the member of this name.
    pub fn member(&self, name: &str) -> Result<&Member> {
        let found = self.members.iter().find(|member| member.name() == name);
        found.with_context(|| format!("the fleet has no member {name}"))
    }

    /// Returns the path by which Karmada proxies a path of a member: `proxied("m3", "/api/v1/pods")`.
    pub fn proxied(&self, member: &str, path: &str) -> String {
        format!("{CLUSTERS}/{member}/proxy{path}")
    }

    /// Returns the Cluster of this name.
    pub fn cluster_object(&self, name: &str) -> Result<Value> {
        Ok(self.karmada().api().get(&format!("{CLUSTERS}/{name}"))?.succeeded()?.body)
    }

    /// Makes a namespace on the control plane and returns when every member has it. A case that deletes it in the members first calls
    /// [`Self::await_seen`].
    pub fn namespace(&self, name: &str) -> Result<Namespace<'_>> {
        let namespace = self.karmada().namespace(name)?;
        for member in &self.members {
            member.await_brought(&format!("/api/v1/namespaces/{}", namespace.name()))?;
        }
        Ok(namespace)
    }

    /// Waits until Karmada has seen a namespace in every member.
    pub fn await_seen(&self, namespace: &Namespace<'_>) -> Result<()> {
        let path = format!("/api/v1/namespaces/{}", namespace.name());
        self.members.iter().try_for_each(|member| self.await_propagated(member, &path))
    }

    /// Waits until Karmada has propagated the object at this path to a member and has seen it there. If its watch has
    /// not delivered the object yet, Karmada does not delete it later; after the member was unreachable, that takes up
    /// to a minute.
    pub fn await_propagated(&self, member: &Member, path: &str) -> Result<()> {
        let work = member.await_brought(path)?;
        let name = member.name();
        eventually(format_args!("Karmada to see {path} in {name}"), PROPAGATED_WITHIN, || {
            let answer = self.karmada().api().get(&work)?;
            let status = &answer.body["status"];
            let seen = status["manifestStatuses"].as_array().is_some_and(|seen| !seen.is_empty());
            Ok(if seen { Poll::Ready(()) } else { Poll::Pending(format!("{} {status}", answer.status)) })
        })
    }

    /// Starts another member and returns when it has joined and is Ready. It leaves when the result is dropped.
    pub fn join_more(&self, context: &TestContext, name: &str, mode: Mode) -> Result<AddedMember<'_>> {
        let member = Member::start(context, name, mode)?;
        let joined = AddedMember { fleet: self, member };
        joined.member.join(&self.control)?;
        self.await_ready(joined.member.name())?;
        Ok(joined)
    }

    /// Makes a Cluster with this `spec` and nothing to reach it, as in the first moments of joining. It is deleted when
    /// the result is dropped.
    pub fn declare(&self, name: &str, spec: &Value) -> Result<Undo<'_>> {
        let object = json!({
            "apiVersion": "cluster.karmada.io/v1alpha1", "kind": "Cluster",
            "metadata": {"name": name}, "spec": spec,
        });
        self.karmada().api().create(CLUSTERS, &object)?.succeeded()?;
        let name = name.to_owned();
        Ok(Undo::new("a Cluster is not deleted", move || self.control.delete_cluster(&name)))
    }

    /// Removes a member from the fleet, with everything that was propagated. It joins again when the result is dropped.
    pub fn unjoin(&self, name: &str) -> Result<Undo<'_>> {
        let member = self.member(name)?;
        member.unjoin(&self.control)?;
        Ok(Undo::new("a member does not join again", || {
            member.join(&self.control)?;
            self.await_ready(member.name())
        }))
    }

    /// Makes Karmada reach a member at another URL, for a proxy of the case. The certificate there must be of the
    /// member's CA ([`Cluster::ca`]). The own URL returns when the result is dropped.
    pub fn publish(&self, name: &str, url: &str) -> Result<Undo<'_>> {
        let member = self.member(name)?;
        self.control.publish(name, url)?;
        let own = || self.control.publish(member.name(), member.url());
        Ok(Undo::new("a member's own URL is not published again", own))
    }

    fn await_ready(&self, name: &str) -> Result<()> {
        self.control.await_ready(name)
    }
}

impl Fixture for Fleet {
    /// Waits until m1, m2 and m3 are Ready.
    fn await_restored(&self) -> Result<()> {
        self.members.iter().try_for_each(|member| self.await_ready(member.name()))
    }
}

impl Control {
    /// Waits until the Cluster of this name is Ready.
    fn await_ready(&self, name: &str) -> Result<()> {
        let path = format!("{CLUSTERS}/{name}");
        eventually(format_args!("cluster {name} to be Ready"), READY_WITHIN, || {
            let answer = self.cluster.api().get(&path)?;
            let conditions = answer.body["status"]["conditions"].as_array();
            let ready = conditions.into_iter().flatten().find(|condition| condition["type"] == "Ready");
            Ok(match ready {
                Some(condition) if condition["status"] == "True" => Poll::Ready(()),
                Some(condition) => Poll::Pending(condition.to_string()),
                None => Poll::Pending(format!("{} {}, no such condition", answer.status, answer.message())),
            })
        })
        .map_err(|error| self.controllers.failure(format_args!("{error:#}")))
    }

    /// Makes Karmada reach a member at this URL.
    fn publish(&self, name: &str, url: &str) -> Result<()> {
        let changes = json!({"spec": {"apiEndpoint": url}});
        self.cluster.api().merge(&format!("{CLUSTERS}/{name}"), &changes)?.succeeded()?;
        Ok(())
    }

    /// Deletes what is left of a member's credentials. The garbage collector does so within half a minute, and a join
    /// before that uses the old ones and gets `Unauthorized` forever.
    fn forget_credentials(&self, name: &str) -> Result<()> {
        for secret in [name.to_owned(), format!("{name}-impersonator")] {
            let path = format!("/api/v1/namespaces/karmada-cluster/secrets/{secret}");
            let answer = self.cluster.api().delete(&path)?;
            if answer.status != 404 {
                answer.succeeded()?;
            }
        }
        Ok(())
    }

    /// Deletes the Cluster of this name and waits until it is gone.
    fn delete_cluster(&self, name: &str) -> Result<()> {
        let path = format!("{CLUSTERS}/{name}");
        let answer = self.cluster.api().delete(&path)?;
        if answer.status != 404 {
            answer.succeeded()?;
        }
        eventually(format_args!("cluster {name} to be gone"), READY_WITHIN, || {
            let answer = self.cluster.api().get(&path)?;
            let left = answer.body["metadata"]["finalizers"].to_string();
            Ok(if answer.status == 404 {
                Poll::Ready(())
            } else {
                Poll::Pending(format!("finalizers {left}"))
            })
        })
    }
}

/// A member that a case added. It leaves the fleet when this is dropped.
#[derive(Debug)]
#[must_use = "it leaves at once when this is dropped"]
pub struct AddedMember<'a> {
    fleet: &'a Fleet,
    member: Member,
}

impl Deref for AddedMember<'_> {
    type Target = Member;

    fn deref(&self) -> &Member {
        &self.member
    }
}

impl Drop for AddedMember<'_> {
    fn drop(&mut self) {
        if let Err(error) = self.member.unjoin(&self.fleet.control) {
            print(format_args!("a member does not leave: {error:#}"));
        }
    }
}

fn panicked() -> anyhow::Error {
    anyhow::anyhow!("a thread that starts a part of the fleet panicked")
}
