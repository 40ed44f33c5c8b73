//! Members that do not answer, and members that nobody knew a second ago: never silently left out.

use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use e2e::context::TestContext;
use e2e::fault::{Fault, Proxy, Relay};
use e2e::fleet::NewMember;
use e2e::wait::{Poll, eventually};
use serde_json::json;

use super::attempt::{Verdict, delete, try_delete};
use super::house::{Alone, alone};
use super::objects::{await_gone_everywhere, path_of, untouched};

/// A member has three seconds of a review's ten; the rest is for a debug build on a loaded machine.
const IN_TIME: Duration = Duration::from_secs(6);

/// A member that is silent is waited for as long: three seconds, of which what goes before the question, and what is
/// cut off, may take some.
const WAITED: Duration = Duration::from_millis(2_500);

/// The fleet's list has five seconds.
const LISTED_IN_TIME: Duration = Duration::from_secs(8);

/// Until what comes back answers again, through Karmada as well.
const BACK_WITHIN: Duration = Duration::from_secs(60);

#[e2e::case(Exclusive)]
fn a_stopped_member_is_named_in_time(context: &'static TestContext) -> Result<()> {
    let fleet = alone(context)?;
    let shop = fleet.namespace("shop")?;
    let path = path_of(&shop);
    let before = fleet.unknown("unreachable")?;
    let stopped = fleet.member("m1")?.stop()?;
    unknown(&fleet, &path, "m1", &["no connection from Karmada to m1", "connection refused"])?;
    ensure!(fleet.unknown("unreachable")? > before + 0.5, "no counter tells of it");
    // What is in use elsewhere is told beside it.
    let m2 = fleet.member("m2")?;
    m2.runs_pod(&m2.known_namespace(shop.name()), "web")?;
    delete(fleet.karmada().api(), &path)?
        .refused()?
        .saying(&["m2 (1 pod: web)", "m1 could not be asked (no connection"])?
        .telling("m1", "Unknown")?
        .telling("m2", "InUse")?;
    stopped.start()?;
    m2.api().delete(&format!("{}/web", shop.path("pods")))?.succeeded()?;
    comes_back(&fleet, &path)?;
    delete(fleet.karmada().api(), &path)?.allowed()?;
    await_gone_everywhere(&fleet, &path)
}

#[e2e::case(Exclusive)]
fn a_frozen_member_takes_its_deadline_and_is_named(context: &'static TestContext) -> Result<()> {
    let fleet = alone(context)?;
    let shop = fleet.namespace("shop")?;
    let path = path_of(&shop);
    let before = fleet.unknown("timeout")?;
    let frozen = fleet.member("m2")?.freeze()?;
    silent(&fleet, &path, "m2")?;
    ensure!(fleet.unknown("timeout")? > before + 0.5, "no counter tells of it");
    frozen.thaw()?;
    comes_back(&fleet, &path)
}

#[e2e::case(Exclusive)]
fn a_frozen_pull_member_is_named(context: &'static TestContext) -> Result<()> {
    let fleet = alone(context)?;
    let shop = fleet.namespace("shop")?;
    let path = path_of(&shop);
    let frozen = fleet.member("m3")?.freeze()?;
    silent(&fleet, &path, "m3")?;
    frozen.thaw()?;
    comes_back(&fleet, &path)
}

#[e2e::case(Exclusive)]
fn a_slow_member_is_awaited_and_a_slower_one_is_named(context: &'static TestContext) -> Result<()> {
    let fleet = alone(context)?;
    let shop = fleet.namespace("shop")?;
    let path = path_of(&shop);
    let m1 = fleet.member("m1")?;
    let proxy = Proxy::before(m1.url(), m1.ca())?;
    let _published = fleet.publish("m1", &proxy.url())?;
    let api = fleet.karmada().api();
    {
        let slow = proxy.on("/api").answers(Fault::Slow(Duration::from_millis(700)));
        await_through(&proxy, &fleet, &path)?;
        // Two questions, each with a way of its own before and after: on a loaded machine not always in time.
        comes_back(&fleet, &path)?;
        m1.runs_pod(&m1.known_namespace(shop.name()), "web")?;
        eventually("m1 to be waited for", BACK_WITHIN, || {
            let told = try_delete(api, &path)?.refused()?.told();
            Ok(if told.contains("m1 (1 pod: web)") { Poll::Ready(()) } else { Poll::Pending(told) })
        })?;
        ensure!(slow.hits() > 0, "nobody was slowed down");
    }
    let slower = proxy.on("/api").answers(Fault::Slow(Duration::from_secs(5)));
    silent(&fleet, &path, "m1")?;
    ensure!(slower.hits() > 0, "nobody was slowed down");
    Ok(())
}

#[e2e::case(Exclusive)]
fn a_member_that_drops_packets_is_named(context: &'static TestContext) -> Result<()> {
    let fleet = alone(context)?;
    let shop = fleet.namespace("shop")?;
    let path = path_of(&shop);
    {
        let hole = Hole::dig()?;
        let _published = fleet.publish("m1", &hole.url()?)?;
        await_unknown(&fleet, &path, "did not answer in")?;
        silent(&fleet, &path, "m1")?;
    }
    comes_back(&fleet, &path)
}

#[e2e::case(Exclusive)]
fn a_cluster_without_an_endpoint_counts_immediately(context: &'static TestContext) -> Result<()> {
    let fleet = alone(context)?;
    let shop = fleet.namespace("shop")?;
    let path = path_of(&shop);
    let api = fleet.karmada().api();
    try_delete(api, &path)?.allowed()?;
    {
        let _ghost = fleet.declare("ghost", &json!({"syncMode": "Push"}))?;
        // With the next word to the API server.
        delete(api, &path)?
            .refused()?
            .saying(&["in 1 of 5 clusters: ghost (", "has no address or no credentials in Karmada"])?
            .telling("ghost", "Unknown")?;
        untouched(fleet.karmada(), &path)?;
        ensure!(fleet.unknown("no-endpoint")? > 0.5, "no counter tells of it");
    }
    comes_back(&fleet, &path)
}

#[e2e::case(Exclusive)]
fn a_cluster_that_joins_while_all_connections_hang_counts(context: &'static TestContext) -> Result<()> {
    let fleet = alone(context)?;
    let shop = fleet.namespace("shop")?;
    let path = path_of(&shop);
    let api = fleet.karmada().api();
    {
        let relay = Relay::before(fleet.karmada().url())?;
        let _elsewhere = fleet.asking_at(context, &relay.url())?;
        try_delete(api, &path)?.allowed()?.warning("in 4 clusters")?;
        relay.silences_what_is_open();
        let _ghost = fleet.declare("ghost", &json!({"syncMode": "Push"}))?;
        // First nobody can be asked; then, on another connection, the new one is. Not once is it left out.
        eventually("the cluster that joined meanwhile to be told", BACK_WITHIN, || {
            let told = try_delete(api, &path)?.refused()?.within(LISTED_IN_TIME)?.told();
            Ok(if told.contains("in 1 of 5 clusters: ghost (") {
                Poll::Ready(())
            } else {
                Poll::Pending(told)
            })
        })?;
        ensure!(relay.held() > 0, "nobody met the silence");
    }
    comes_back(&fleet, &path)
}

#[e2e::case(Exclusive)]
fn a_cluster_that_just_joined_counts(context: &'static TestContext) -> Result<()> {
    let fleet = alone(context)?;
    let shop = fleet.namespace("shop")?;
    let path = path_of(&shop);
    let api = fleet.karmada().api();
    {
        let m4 = fleet.join_more(context, NewMember::push("m4"))?;
        fleet.await_propagated(&m4, &path)?;
        m4.runs_pod(&m4.known_namespace(shop.name()), "web")?;
        let refused = delete(api, &path)?.refused()?;
        // Its permissions may still be on their way; whatever it is, it is not left out.
        refused.saying(&["m4 ("])?;
        eventually("Durward to see into m4", BACK_WITHIN, || {
            let attempt = try_delete(api, &path)?.refused()?;
            let told = attempt.told();
            Ok(if told.contains("m4 (1 pod: web)") { Poll::Ready(()) } else { Poll::Pending(told) })
        })?;
        untouched(&m4, &path)?;
    }
    comes_back(&fleet, &path)
}

#[e2e::case(Exclusive)]
fn without_the_aggregated_api_deletions_are_denied(context: &'static TestContext) -> Result<()> {
    let fleet = alone(context)?;
    let shop = fleet.namespace("shop")?;
    let path = path_of(&shop);
    let api = fleet.karmada().api();
    let before = fleet.unknown("stale-fleet")?;
    let frozen = fleet.aggregated().freeze()?;
    delete(api, &path)?.refused()?.saying(&["could not be checked"])?.within(LISTED_IN_TIME)?;
    untouched(fleet.karmada(), &path)?;
    ensure!(fleet.unknown("stale-fleet")? > before + 0.5, "no counter tells of it");
    frozen.thaw()?;
    eventually("the aggregated API to be back", BACK_WITHIN, || {
        let attempt = try_delete(api, &path)?;
        Ok(if attempt.has_warning("in 4 clusters") { Poll::Ready(()) } else { Poll::Pending(attempt.told()) })
    })?;
    let before = fleet.unknown("stale-fleet")?;
    let stopped = fleet.aggregated().stop()?;
    delete(api, &path)?.refused()?.saying(&["could not be checked"])?.within(LISTED_IN_TIME)?;
    untouched(fleet.karmada(), &path)?;
    // An acknowledgement would be on a Cluster, which nobody can read; and Karmada's own parts are not let go
    // either because nobody can say that there are no clusters.
    delete(api, "/api/v1/namespaces/karmada-system")?.refused()?;
    ensure!(fleet.unknown("stale-fleet")? > before + 0.5, "no counter tells of it");
    stopped.start()?;
    comes_back(&fleet, &path)
}

/// Refused in time because of this member and nothing else, for a reason in which these words stand.
fn unknown(fleet: &Alone, path: &str, member: &str, words: &[&str]) -> Result<Verdict> {
    let share = format!("could not be checked in 1 of 4 clusters: {member} (");
    let verdict = delete(fleet.karmada().api(), path)?
        .refused()?
        .within(IN_TIME)?
        .saying(&[&share, "Nothing is in use in the other 3"])?
        .saying(words)?
        .telling(member, "Unknown")?
        .warning(&format!("{member} could not be asked"))?;
    untouched(fleet.karmada(), path)?;
    Ok(verdict)
}

/// The same of a member that took all of its time. What is told counts from the question on, and so may be a
/// little less.
fn silent(fleet: &Alone, path: &str, member: &str) -> Result<()> {
    unknown(fleet, path, member, &["did not answer in "])?.after(WAITED).map(drop)
}

/// Waits until a dry run is refused for a reason in which this stands: until Karmada's proxy has heard of a
/// change.
fn await_unknown(fleet: &Alone, path: &str, words: &str) -> Result<()> {
    eventually(format_args!("a refusal because of {words}"), BACK_WITHIN, || {
        let told = try_delete(fleet.karmada().api(), path)?.told();
        Ok(if told.contains(words) { Poll::Ready(()) } else { Poll::Pending(told) })
    })
}

/// Waits until questions come through a proxy.
pub(super) fn await_through(proxy: &Proxy, fleet: &Alone, path: &str) -> Result<()> {
    let before = proxy.asked();
    eventually("questions to come through the proxy", BACK_WITHIN, || {
        let told = try_delete(fleet.karmada().api(), path)?.told();
        Ok(if proxy.asked() > before { Poll::Ready(()) } else { Poll::Pending(told) })
    })
}

/// Waits until the deletion would be allowed, with every member that the fleet was made with looked at.
pub(super) fn comes_back(fleet: &Alone, path: &str) -> Result<()> {
    comes_back_within(BACK_WITHIN, fleet, path)
}

/// The same, for so long.
pub(super) fn comes_back_within(within: Duration, fleet: &Alone, path: &str) -> Result<()> {
    eventually("the deletion to be allowed again", within, || {
        let attempt = try_delete(fleet.karmada().api(), path)?;
        let (told, is_whole) = (attempt.told(), attempt.has_warning("is in use in 4 clusters"));
        Ok(if is_whole && attempt.allowed().is_ok() { Poll::Ready(()) } else { Poll::Pending(told) })
    })
}

/// An address at which packets are dropped: a listener that takes nobody, with its queue full. The kernel then
/// answers no SYN.
struct Hole {
    listener: TcpListener,
    _queued: Vec<TcpStream>,
}

impl Hole {
    fn dig() -> Result<Self> {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
        let address = listener.local_addr()?;
        let mut queued = Vec::new();
        // The standard library asks for 128 at most, and Linux has one place more.
        while queued.len() < 5_000 {
            match TcpStream::connect_timeout(&address, Duration::from_millis(300)) {
                Ok(stream) => queued.push(stream),
                Err(_) => return Ok(Self { listener, _queued: queued }),
            }
        }
        anyhow::bail!("{address} still takes connections after {}", queued.len())
    }

    fn url(&self) -> Result<String> {
        let address: SocketAddr = self.listener.local_addr().context("a hole without an address")?;
        Ok(format!("https://{address}"))
    }
}
