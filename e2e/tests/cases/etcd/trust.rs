//! Whom Durward believes, and to whom it tells a secret: members over TLS, members that ask for a login, and
//! everything that stands where a member is expected and is none.

use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use e2e::context::TestContext;
use e2e::etcd_cluster::pods::Pods;
use e2e::etcd_cluster::{EtcdCluster, FakeMember, IssuedFor, Release, ServerTls};
use e2e::namespace::Namespace;
use e2e::wait::{Poll, eventually};
use serde_json::{Value, json};

use super::attempt::{delete, try_delete};
use super::house::{Kind, LOGIN, SERVER_NAME, TRUST, house};
use super::quorum::two_followers;

/// What nobody else may be told.
const PASSWORD: &str = "a-password-of-etcd";

/// A Secret that is looked at again.
const READ_WITHIN: Duration = Duration::from_secs(60);

/// A member that was away catches up as soon as its leader tries it again.
const BACK_WITHIN: Duration = Duration::from_secs(60);

/// Two looks at members that say nothing, and what a loaded machine takes.
const IN_TIME: Duration = Duration::from_secs(8);

fn keep(space: &Namespace<'_>, secret: &Value) -> Result<()> {
    let name = secret["metadata"]["name"].as_str().context("a Secret without a name")?;
    let path = format!("{}/{name}", space.path("secrets"));
    space.cluster().api().apply(&path, "e2e", secret)?.succeeded().map(drop)
}

fn login(password: &str) -> Value {
    let data = json!({"username": "root", "password": password});
    json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": LOGIN}, "stringData": data})
}

/// The first to come logs in, which takes etcd a tenth of a second of work for each question: on a machine that does
/// much else, longer than a member is waited for.
fn await_login(pods: &Pods<'_>, name: &str) -> Result<()> {
    eventually("the members to have let Durward in", READ_WITHIN, || {
        let attempt = try_delete(pods, name)?;
        Ok(if attempt.is_allowed() { Poll::Ready(()) } else { Poll::Pending(attempt.told()) })
    })
}

/// The whole way over TLS: a follower goes, and a leader hands over.
fn goes_well(etcd: &EtcdCluster, pods: &Pods<'_>) -> Result<()> {
    let leader = etcd.leader()?.name();
    delete(pods, leader)?.allowed()?.warning("leadership moved to")?;
    Ok(())
}

#[e2e::case]
fn members_are_verified_by_address_or_name(context: &'static TestContext) -> Result<()> {
    for (kind, to, asks) in [
        (Kind::Tls, IssuedFor::Addresses, false),
        (Kind::Named, IssuedFor::Name(SERVER_NAME.to_owned()), true),
    ] {
        let space = house(context)?.namespace("tls", kind)?;
        let trust = ServerTls::new(to, asks)?;
        keep(&space, &trust.secret(TRUST))?;
        let etcd = EtcdCluster::of(3).tls(trust).start(context)?;
        let pods = etcd.pods_in(&space)?;
        try_delete(&pods, etcd.follower()?.name())?.allowed()?.without_warnings()?;
        goes_well(&etcd, &pods)?;
    }
    Ok(())
}

#[e2e::case]
fn certificates_of_another_ca_or_name_are_not_trusted(context: &'static TestContext) -> Result<()> {
    let space = house(context)?.namespace("wrong", Kind::Tls)?;
    let etcd = EtcdCluster::of(3).tls(ServerTls::new(IssuedFor::Addresses, false)?).start(context)?;
    let pods = etcd.pods_in(&space)?;
    let follower = etcd.follower()?.name();
    try_delete(&pods, follower)?.refused()?.saying(&["could not be checked", TRUST])?;
    keep(&space, &ServerTls::new(IssuedFor::Addresses, false)?.secret(TRUST))?;
    eventually("the authority of somebody else to be read", READ_WITHIN, || {
        let attempt = try_delete(&pods, follower)?;
        ensure!(!attempt.is_allowed(), "{}", attempt.told());
        let told = attempt.told();
        Ok(if told.contains("certificate") { Poll::Ready(()) } else { Poll::Pending(told) })
    })?;
    // The right one in its place is read without anybody saying so.
    let trust = etcd.trust().context("members without certificates")?;
    keep(&space, &trust.secret(TRUST))?;
    eventually("the authority of the members to be read", READ_WITHIN, || {
        let attempt = try_delete(&pods, follower)?;
        Ok(if attempt.is_allowed() { Poll::Ready(()) } else { Poll::Pending(attempt.told()) })
    })?;

    let space = house(context)?.namespace("name", Kind::Tls)?;
    let trust = ServerTls::new(IssuedFor::Name(SERVER_NAME.to_owned()), false)?;
    keep(&space, &trust.secret(TRUST))?;
    let named = EtcdCluster::of(3).tls(trust).start(context)?;
    let pods = named.pods_in(&space)?;
    try_delete(&pods, named.follower()?.name())?.refused()?.saying(&["could not be checked"])?;
    Ok(())
}

#[e2e::case]
fn durward_logs_in_if_members_require_it(context: &'static TestContext) -> Result<()> {
    for release in Release::ALL {
        let space = house(context)?.namespace("login", Kind::Login)?;
        let trust = ServerTls::new(IssuedFor::Addresses, false)?;
        keep(&space, &trust.secret(TRUST))?;
        keep(&space, &login(PASSWORD))?;
        let etcd = EtcdCluster::of(3).release(release).tls(trust).start(context)?;
        let pods = etcd.pods_in(&space)?;
        let leader = etcd.leader()?.name();
        etcd.ask_for_logins(PASSWORD)?;
        await_login(&pods, leader)?;
        delete(&pods, leader)?.allowed()?.warning("leadership moved to")?;
    }
    let space = house(context)?.namespace("open", Kind::Open)?;
    keep(&space, &login("another"))?;
    let etcd = EtcdCluster::of(3).start(context)?;
    let pods = etcd.pods_in(&space)?;
    let follower = etcd.follower()?.name();
    etcd.ask_for_logins(PASSWORD)?;
    try_delete(&pods, follower)?.refused()?.not_saying(&["another", PASSWORD])?;
    keep(&space, &login(PASSWORD))?;
    await_login(&pods, follower)
}

/// A member that says who may not read is a member that reads.
#[e2e::case]
fn members_without_a_configured_login_are_still_contacted(context: &'static TestContext) -> Result<()> {
    for release in Release::ALL {
        let space = house(context)?.namespace("nobody", Kind::Transfer)?;
        let etcd = EtcdCluster::of(3).release(release).start(context)?;
        let pods = etcd.pods_in(&space)?;
        let follower = etcd.follower()?.name();
        etcd.ask_for_logins(PASSWORD)?;
        if release == Release::V3_6 {
            // It tells nobody how it is.
            try_delete(&pods, follower)?.refused()?.saying(&["could not be checked"])?;
        } else {
            try_delete(&pods, follower)?.allowed()?;
        }
    }
    Ok(())
}

#[e2e::case]
fn a_rogue_pod_gets_no_password_and_does_not_count(context: &'static TestContext) -> Result<()> {
    let space = house(context)?.namespace("rogue", Kind::Transfer)?;
    let etcd = EtcdCluster::of(3).start(context)?;
    let pods = etcd.pods_in(&space)?;
    let (leader, [down, up]) = (etcd.leader()?, two_followers(&etcd)?);
    let stranger = EtcdCluster::of(1).start(context)?;
    let mimic = FakeMember::passing_for(leader.address())?;
    pods.add("etcd-rogue", stranger.members()[0].address())?;
    // All is well, and it still is: a pod more is no member more.
    try_delete(&pods, up.name())?.allowed()?;
    let stopped = down.stop()?;
    delete(&pods, up.name())?.refused()?.not_saying(&["2 other members"])?;
    delete(&pods, leader.name())?.refused()?;
    drop(stopped);
    down.await_reads(BACK_WITHIN)?;
    delete(&pods, "etcd-rogue")?.allowed()?.warning("another ensemble")?;
    pods.finish("etcd-rogue")?;
    // Nor does one vouch that answers with a healthy member's own words.
    pods.add("etcd-mimic", mimic.address())?;
    let _stopped = down.stop()?;
    delete(&pods, up.name())?.refused()?.saying(&["another pod says that it is the same member"])?;
    ensure!(mimic.met() > 0, "the mimic was never asked");

    let space = house(context)?.namespace("secret", Kind::Login)?;
    let trust = ServerTls::new(IssuedFor::Addresses, false)?;
    keep(&space, &trust.secret(TRUST))?;
    keep(&space, &login(PASSWORD))?;
    let etcd = EtcdCluster::of(3).tls(trust).start(context)?;
    let pods = etcd.pods_in(&space)?;
    let follower = etcd.follower()?.name();
    etcd.ask_for_logins(PASSWORD)?;
    let listener = FakeMember::page("200 OK", "application/json", "{\"token\": \"x\"}")?;
    pods.add("etcd-rogue", listener.address())?;
    await_login(&pods, follower)?;
    ensure!(listener.met() > 0, "it was never asked, so this proves nothing");
    let told = listener.told();
    ensure!(!told.contains(PASSWORD) && !told.contains("authenticate"), "it was told: {told:?}");
    Ok(())
}

#[e2e::case]
fn a_process_that_is_not_etcd_does_not_count(context: &'static TestContext) -> Result<()> {
    let space = house(context)?.namespace("odd", Kind::Transfer)?;
    let etcd = EtcdCluster::of(3).start(context)?;
    let pods = etcd.pods_in(&space)?;
    let (leader, [down, up]) = (etcd.leader()?, two_followers(&etcd)?);
    let _stopped = down.stop()?;
    let elsewhere = format!("http://{}:2379/v3/maintenance/status", leader.address());
    let odd = [
        ("a page", FakeMember::page("200 OK", "text/html", "<!doctype html><title>It works</title>")?),
        ("nothing of the kind", FakeMember::page("404 Not Found", "text/plain", "404 page not found\n")?),
        ("half a list", FakeMember::page("200 OK", "application/json", "{\"header\":{\"cluster_id\":\"1\"")?),
        (
            "another API",
            FakeMember::page("200 OK", "application/json", "{\"kind\":\"Status\",\"code\":200}")?,
        ),
        ("a way to a healthy member", FakeMember::redirecting(&elsewhere)?),
        ("another protocol", FakeMember::greeting("SSH-2.0-OpenSSH_9.2\r\n")?),
        ("nothing", FakeMember::silent()?),
        ("no end", FakeMember::endless()?),
    ];
    for (what, impostor) in &odd {
        let context = || format!("where it says {what}");
        let address = impostor.address();
        let status = json!({"status": {"podIP": address, "podIPs": [{"ip": address}]}});
        pods.say(down.name(), &status)?;
        for name in [up.name(), leader.name()] {
            let refused = delete(&pods, name)?.refused().with_context(context)?;
            refused.telling(down.name(), "Silent").and_then(|v| v.within(IN_TIME)).with_context(context)?;
        }
        // The other two are a quorum without whatever that is.
        try_delete(&pods, down.name())?.allowed().with_context(context)?;
        ensure!(impostor.met() > 0, "what says {what} was never asked");
    }
    ensure!(etcd.leader()?.name() == leader.name(), "the leadership was moved");
    Ok(())
}
