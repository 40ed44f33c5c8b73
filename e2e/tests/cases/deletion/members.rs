//! Members that do not answer, and members that just joined. Durward must name each of them.

use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};

use e2e::fault::{Fault, Proxy, Relay};
use e2e::fleet::Mode;
use e2e::prelude::*;

use super::environment::{ExclusiveFleet, exclusive};
use super::objects::{exists, remove};
use crate::cases::attempt::{Attempt, Verdict};

/// A member has three of the ten seconds of a review; the rest allows for a debug build on a loaded machine.
const IN_TIME: Duration = Duration::from_secs(6);

/// A hanging member is awaited for three seconds, minus the time before its request and for cancelling it.
const MEMBER_DEADLINE: Duration = Duration::from_millis(2_500);

/// The list of the fleet has five seconds.
const LISTED_IN_TIME: Duration = Duration::from_secs(8);

#[e2e::case(Exclusive)]
fn a_stopped_member_is_named_in_time(context: &'static TestContext) -> Result<()> {
    let fleet = exclusive(context)?;
    let (shop, path) = fleet.new_namespace("shop")?;
    let before = fleet.unknown("unreachable")?;
    let stopped = fleet.member("m1")?.stop()?;
    unknown(&fleet, &path, "m1", &["no connection from Karmada to m1", "connection refused"])?;
    ensure!(fleet.unknown("unreachable")? > before + 0.5, "no counter increased");
    // The denial also names what is in use elsewhere.
    let m2 = fleet.member("m2")?;
    fleet.run_pod("m2", &shop, "web")?;
    fleet
        .delete(&path)?
        .denied()?
        .with_message(&["m2: 1 pod (web)", "; 1 cluster could not be checked"])?
        .with_cause("m1", "Unknown")?
        .with_cause("m2", "InUse")?;
    stopped.undo()?;
    m2.api().delete(&format!("{}/web", shop.path("pods")))?.succeeded()?;
    await_allowed(&fleet, &path)
}

#[e2e::case(Exclusive)]
fn a_frozen_member_takes_its_deadline_and_is_named(context: &'static TestContext) -> Result<()> {
    let fleet = exclusive(context)?;
    let (_, path) = fleet.new_namespace("shop")?;
    let before = fleet.unknown("timeout")?;
    let frozen = fleet.member("m2")?.freeze()?;
    denied_by_timeout(&fleet, &path, "m2")?;
    ensure!(fleet.unknown("timeout")? > before + 0.5, "no counter increased");
    frozen.undo()?;
    await_allowed(&fleet, &path)
}

#[e2e::case(Exclusive)]
fn a_frozen_pull_member_is_named(context: &'static TestContext) -> Result<()> {
    let fleet = exclusive(context)?;
    let (_, path) = fleet.new_namespace("shop")?;
    let frozen = fleet.member("m3")?.freeze()?;
    denied_by_timeout(&fleet, &path, "m3")?;
    frozen.undo()?;
    await_allowed(&fleet, &path)
}

#[e2e::case(Exclusive)]
fn a_slow_member_is_awaited_and_a_slower_one_is_named(context: &'static TestContext) -> Result<()> {
    let fleet = exclusive(context)?;
    let (shop, path) = fleet.new_namespace("shop")?;
    let m1 = fleet.member("m1")?;
    let proxy = Proxy::before(m1.url(), m1.ca())?;
    let _published = fleet.publish("m1", &proxy.url())?;
    let _api = fleet.karmada().api();
    {
        let slow = proxy.on("/api").answers(Fault::Slow(Duration::from_millis(700)));
        await_through(&proxy, &fleet, &path)?;
        // Each of the two requests has its own round trip, which is not always in time on a loaded machine.
        await_allowed(&fleet, &path)?;
        fleet.run_pod("m1", &shop, "web")?;
        eventually("m1 to be waited for", WAIT_LIMIT, || {
            Ok(denied_with("m1: 1 pod (web)", fleet.dry_run(&path)?.denied()?))
        })?;
        ensure!(slow.hits() > 0, "no request was delayed");
    }
    let slower = proxy.on("/api").answers(Fault::Slow(Duration::from_secs(5)));
    denied_by_timeout(&fleet, &path, "m1")?;
    ensure!(slower.hits() > 0, "no request was delayed");
    Ok(())
}

#[e2e::case(Exclusive)]
fn a_member_that_drops_packets_is_named(context: &'static TestContext) -> Result<()> {
    let fleet = exclusive(context)?;
    let (_, path) = fleet.new_namespace("shop")?;
    {
        let blackhole = Blackhole::open()?;
        let _published = fleet.publish("m1", &blackhole.url()?)?;
        await_unknown(&fleet, &path, "did not answer in")?;
        denied_by_timeout(&fleet, &path, "m1")?;
    }
    await_allowed(&fleet, &path)
}

/// Karmada takes twenty seconds to release a cluster, so both clusters of this case leave at the same time.
#[e2e::case(Exclusive)]
fn a_cluster_without_an_endpoint_counts_immediately_and_while_all_connections_hang(
    context: &'static TestContext,
) -> Result<()> {
    let fleet = exclusive(context)?;
    let (_, path) = fleet.new_namespace("shop")?;
    {
        let relay = Relay::before(fleet.karmada().url())?;
        let url = relay.url();
        let through_relay = fleet.reading_from(context, &url)?;
        fleet.dry_run(&path)?.allowed()?.with_warning("and 3 member clusters")?;
        relay.silence_open_connections();
        let _late = fleet.declare("late", &json!({"syncMode": "Push"}))?;
        // First no member can be contacted; then, on a new connection, the new one is. It is never left out.
        eventually("the new cluster to be named", WAIT_LIMIT, || {
            let verdict = fleet.dry_run(&path)?.denied()?.within(LISTED_IN_TIME)?;
            Ok(denied_with("member cluster late could not be checked (", verdict))
        })?;
        ensure!(relay.dropped_bytes() > 0, "no request met the fault");
        through_relay.undo()?;
        let alone = "member cluster late could not be checked (";
        let reason = "has no address or no credentials in Karmada";
        fleet.dry_run(&path)?.denied()?.with_message(&[alone, reason])?.with_cause("late", "Unknown")?;

        let _ghost = fleet.declare("ghost", &json!({"syncMode": "Push"}))?;
        // Immediately, with the next request to the API server.
        fleet
            .delete(&path)?
            .denied()?
            .with_message(&["ghost, late: no API endpoint or token"])?
            .with_cause("ghost", "Unknown")?;
        exists(fleet.karmada(), &path)?;
        ensure!(fleet.unknown("no-endpoint")? > 0.5, "no counter increased");
        for name in ["late", "ghost"] {
            remove(fleet.karmada(), &format!("/apis/cluster.karmada.io/v1alpha1/clusters/{name}"))?;
        }
    }
    await_allowed(&fleet, &path)
}

#[e2e::case(Exclusive)]
fn a_cluster_that_just_joined_counts(context: &'static TestContext) -> Result<()> {
    let fleet = exclusive(context)?;
    let (shop, path) = fleet.new_namespace("shop")?;
    {
        let m4 = fleet.join_more(context, "m4", Mode::Push)?;
        fleet.await_propagated(&m4, &path)?;
        m4.make_running_pod(&m4.existing_namespace(shop.name()), "web")?;
        let denied = fleet.delete(&path)?.denied()?;
        // Its permissions can still be missing, but it is not left out.
        denied.with_message(&["member cluster m4"])?;
        eventually("Durward to read m4", WAIT_LIMIT, || {
            Ok(denied_with("m4: 1 pod (web)", fleet.dry_run(&path)?.denied()?))
        })?;
        exists(&m4, &path)?;
    }
    await_allowed(&fleet, &path)
}

#[e2e::case(Exclusive)]
fn without_the_aggregated_api_deletions_are_denied(context: &'static TestContext) -> Result<()> {
    let fleet = exclusive(context)?;
    let (_, path) = fleet.new_namespace("shop")?;
    let _api = fleet.karmada().api();
    let before = fleet.unknown("stale-fleet")?;
    let frozen = fleet.aggregated().freeze()?;
    fleet
        .delete(&path)?
        .denied()?
        .with_message(&["the list of the fleet's clusters could not be read"])?
        .within(LISTED_IN_TIME)?;
    exists(fleet.karmada(), &path)?;
    ensure!(fleet.unknown("stale-fleet")? > before + 0.5, "no counter increased");
    frozen.undo()?;
    let is_back = |attempt: &Attempt| attempt.has_warning("and 3 member clusters");
    fleet.await_dry_run("the aggregated API to be back", &path, is_back)?;
    let before = fleet.unknown("stale-fleet")?;
    let stopped = fleet.aggregated().stop()?;
    fleet
        .delete(&path)?
        .denied()?
        .with_message(&["the list of the fleet's clusters could not be read"])?
        .within(LISTED_IN_TIME)?;
    exists(fleet.karmada(), &path)?;
    // A Cluster cannot be read, so it cannot be acknowledged. The missing list does not allow deleting
    // Karmada's parts either.
    fleet.delete("/api/v1/namespaces/karmada-system")?.denied()?;
    ensure!(fleet.unknown("stale-fleet")? > before + 0.5, "no counter increased");
    stopped.undo()?;
    await_allowed(&fleet, &path)
}

/// Expects a denial in time that is caused by this member only, with these words as the reason.
fn unknown(fleet: &ExclusiveFleet, path: &str, member: &str, words: &[&str]) -> Result<Verdict> {
    let share = format!("member cluster {member} could not be checked (");
    let verdict = fleet
        .delete(path)?
        .denied()?
        .within(IN_TIME)?
        .with_message(&[&share, "nothing in use in the other 2"])?
        .with_message(words)?
        .with_cause(member, "Unknown")?;
    exists(fleet.karmada(), path)?;
    Ok(verdict)
}

/// Expects the same of a member that used its whole deadline. The time counts from the request, so it can be
/// a little less.
fn denied_by_timeout(fleet: &ExclusiveFleet, path: &str, member: &str) -> Result<()> {
    unknown(fleet, path, member, &["did not answer in "])?.after(MEMBER_DEADLINE).map(drop)
}

/// Waits until a dry run is denied with these words, that is until Karmada's proxy knows of a change.
fn await_unknown(fleet: &ExclusiveFleet, path: &str, words: &str) -> Result<()> {
    let what = format!("a denial because of {words}");
    fleet.await_dry_run(&what, path, |attempt| attempt.contains(words))
}

/// Waits until requests pass the proxy.
pub(super) fn await_through(proxy: &Proxy, fleet: &ExclusiveFleet, path: &str) -> Result<()> {
    let before = proxy.requests();
    fleet.await_dry_run("requests to pass the proxy", path, |_| proxy.requests() > before)
}

/// Waits until the deletion would be allowed and every initial member was read.
pub(super) fn await_allowed(fleet: &ExclusiveFleet, path: &str) -> Result<()> {
    fleet.await_dry_run("the deletion to be allowed again", path, |attempt| {
        attempt.is_allowed()
            && attempt.has_warning("is not in use in the control plane and 3 member clusters")
    })
}

/// Is ready when the denial contains this text. A caller fails if the deletion is allowed meanwhile.
fn denied_with(text: &str, denial: Verdict) -> Poll<()> {
    match denial.with_message(&[text]) {
        Ok(_) => Poll::Ready(()),
        Err(error) => Poll::Pending(error.to_string()),
    }
}

/// An address that drops packets: a listener with a full queue that accepts nothing. The kernel then answers
/// no SYN.
struct Blackhole {
    listener: TcpListener,
    _queued: Vec<TcpStream>,
}

impl Blackhole {
    fn open() -> Result<Self> {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
        let address = listener.local_addr()?;
        let mut queued = Vec::new();
        // The standard library asks for a backlog of 128 at most, and Linux adds one.
        while queued.len() < 5_000 {
            match TcpStream::connect_timeout(&address, Duration::from_millis(300)) {
                Ok(stream) => queued.push(stream),
                Err(_) => return Ok(Self { listener, _queued: queued }),
            }
        }
        bail!("{address} still accepts connections after {}", queued.len())
    }

    fn url(&self) -> Result<String> {
        let address: SocketAddr = self.listener.local_addr().context("a hole without an address")?;
        Ok(format!("https://{address}"))
    }
}
