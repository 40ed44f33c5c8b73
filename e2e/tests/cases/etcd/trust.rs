//! TLS, logins, and processes that are not the expected member: which ones Durward trusts, and with which
//! secrets.

use e2e::etcd_cluster::pods::Pods;
use e2e::etcd_cluster::{EtcdCluster, FakeMember, IssuedFor, Release, ServerTls};
use e2e::prelude::*;

use super::environment::{LOGIN, Profile, SERVER_NAME, TRUST, environment, guarded_etcd};
use super::quorum::two_followers;
use super::requests::{delete, dry_run};
use crate::cases::attempt::await_allowed;

/// The password that no other process receives.
const PASSWORD: &str = "a-password-of-etcd";

/// A member that was away catches up when its leader retries.
const BACK_WITHIN: Duration = Duration::from_secs(60);

/// Two requests to members that do not answer, plus time for a loaded machine.
const IN_TIME: Duration = Duration::from_secs(8);

fn apply_secret(ns: &Namespace<'_>, secret: &Value) -> Result<()> {
    let name = secret["metadata"]["name"].as_str().context("a Secret without a name")?;
    let path = format!("{}/{name}", ns.path("secrets"));
    ns.cluster().api().apply(&path, "e2e", secret)?.succeeded().map(drop)
}

fn login(password: &str) -> Value {
    let data = json!({"username": "root", "password": password});
    json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": LOGIN}, "stringData": data})
}

/// Waits until Durward is logged in. etcd spends a tenth of a second on each login, which can exceed the
/// member's deadline.
fn await_login(pods: &Pods<'_>, name: &str) -> Result<()> {
    await_allowed("Durward to be logged in", || dry_run(pods, name))
}

/// Deletes the leader over TLS; it transfers leadership first.
fn check_transfer(etcd: &EtcdCluster, pods: &Pods<'_>) -> Result<()> {
    let leader = etcd.leader()?.name();
    delete(pods, leader)?.allowed()?.with_warning("leadership was transferred to").map(drop)
}

#[e2e::case]
fn members_are_verified_by_address_or_name(context: &'static TestContext) -> Result<()> {
    for (profile, to, asks) in [
        (Profile::Tls, IssuedFor::Addresses, false),
        (Profile::Named, IssuedFor::Name(SERVER_NAME.to_owned()), true),
    ] {
        let ns = environment(context)?.namespace("tls", profile)?;
        let trust = ServerTls::new(to, asks)?;
        apply_secret(&ns, &trust.secret(TRUST))?;
        let etcd = EtcdCluster::of(3).tls(trust).start(context)?;
        let pods = etcd.pods_in(&ns)?;
        dry_run(&pods, etcd.follower()?.name())?.allowed()?.without_warnings()?;
        check_transfer(&etcd, &pods)?;
    }
    Ok(())
}

#[e2e::case]
fn certificates_of_another_ca_or_name_are_not_trusted(context: &'static TestContext) -> Result<()> {
    let ns = environment(context)?.namespace("wrong", Profile::Tls)?;
    let etcd = EtcdCluster::of(3).tls(ServerTls::new(IssuedFor::Addresses, false)?).start(context)?;
    let pods = etcd.pods_in(&ns)?;
    let follower = etcd.follower()?.name();
    dry_run(&pods, follower)?.denied()?.with_message(&["cannot check etcd quorum", TRUST])?;
    apply_secret(&ns, &ServerTls::new(IssuedFor::Addresses, false)?.secret(TRUST))?;
    until("another CA to be read", || {
        let attempt = dry_run(&pods, follower)?;
        ensure!(!attempt.is_allowed(), "{}", attempt.describe());
        let text = attempt.describe();
        Ok((text.contains("certificate"), text))
    })?;
    // The right CA is read without a restart.
    let trust = etcd.trust().context("members without certificates")?;
    apply_secret(&ns, &trust.secret(TRUST))?;
    await_allowed("the CA of the members to be read", || dry_run(&pods, follower))?;

    let ns = environment(context)?.namespace("name", Profile::Tls)?;
    let trust = ServerTls::new(IssuedFor::Name(SERVER_NAME.to_owned()), false)?;
    apply_secret(&ns, &trust.secret(TRUST))?;
    let named = EtcdCluster::of(3).tls(trust).start(context)?;
    let pods = named.pods_in(&ns)?;
    dry_run(&pods, named.follower()?.name())?.denied()?.with_message(&["cannot check etcd quorum"]).map(drop)
}

#[e2e::case]
fn durward_logs_in_if_members_require_it(context: &'static TestContext) -> Result<()> {
    for release in Release::tested()? {
        let ns = environment(context)?.namespace("login", Profile::Login)?;
        let trust = ServerTls::new(IssuedFor::Addresses, false)?;
        apply_secret(&ns, &trust.secret(TRUST))?;
        apply_secret(&ns, &login(PASSWORD))?;
        let etcd = EtcdCluster::of(3).release(release).tls(trust).start(context)?;
        let pods = etcd.pods_in(&ns)?;
        let leader = etcd.leader()?.name();
        etcd.enable_authentication(PASSWORD)?;
        await_login(&pods, leader)?;
        delete(&pods, leader)?.allowed()?.with_warning("leadership was transferred to")?;
    }
    let ns = environment(context)?.namespace("open", Profile::Open)?;
    apply_secret(&ns, &login("another"))?;
    let etcd = EtcdCluster::of(3).start(context)?;
    let pods = etcd.pods_in(&ns)?;
    let follower = etcd.follower()?.name();
    etcd.enable_authentication(PASSWORD)?;
    dry_run(&pods, follower)?.denied()?.without_text(&["another", PASSWORD])?;
    apply_secret(&ns, &login(PASSWORD))?;
    await_login(&pods, follower)
}

/// A member that reports missing permissions can still be reached.
#[e2e::case]
fn members_without_a_configured_login_are_still_contacted(context: &'static TestContext) -> Result<()> {
    for release in Release::tested()? {
        let ns = environment(context)?.namespace("no-login", Profile::Transfer)?;
        let etcd = EtcdCluster::of(3).release(release).start(context)?;
        let pods = etcd.pods_in(&ns)?;
        let follower = etcd.follower()?.name();
        etcd.enable_authentication(PASSWORD)?;
        if release >= Release::V3_6 {
            // From 3.6 on, a member reports its status only after a login.
            dry_run(&pods, follower)?.denied()?.with_message(&["cannot check etcd quorum"])?;
        } else {
            dry_run(&pods, follower)?.allowed()?;
        }
    }
    Ok(())
}

#[e2e::case]
fn a_rogue_pod_gets_no_password_and_does_not_count(context: &'static TestContext) -> Result<()> {
    let (ns, etcd) = guarded_etcd(context, 3, "rogue", Profile::Transfer)?;
    let pods = etcd.pods_in(&ns)?;
    let (leader, [down, up]) = (etcd.leader()?, two_followers(&etcd)?);
    let other = EtcdCluster::of(1).start(context)?;
    let fake = FakeMember::relaying_to(leader.address())?;
    pods.add("etcd-rogue", other.members()[0].address())?;
    // An additional pod is not an additional member.
    dry_run(&pods, up.name())?.allowed()?;
    let stopped = down.stop()?;
    delete(&pods, up.name())?.denied()?.without_text(&["2 other members"])?;
    delete(&pods, leader.name())?.denied()?;
    drop(stopped);
    down.await_reads(BACK_WITHIN)?;
    // Another etcd cluster may need it.
    delete(&pods, "etcd-rogue")?.denied()?.with_message(&["pods of two etcd clusters"])?;
    // A pod that answers with the words of a healthy member does not count either.
    pods.add("etcd-mimic", fake.address())?;
    let _stopped = down.stop()?;
    delete(&pods, up.name())?.denied()?.with_message(&["another pod reports the same member ID"])?;
    ensure!(fake.connections() > 0, "the fake member was never contacted");

    let ns = environment(context)?.namespace("secret", Profile::Login)?;
    let trust = ServerTls::new(IssuedFor::Addresses, false)?;
    apply_secret(&ns, &trust.secret(TRUST))?;
    apply_secret(&ns, &login(PASSWORD))?;
    let etcd = EtcdCluster::of(3).tls(trust).start(context)?;
    let pods = etcd.pods_in(&ns)?;
    let follower = etcd.follower()?.name();
    etcd.enable_authentication(PASSWORD)?;
    let listener = FakeMember::page("200 OK", "application/json", "{\"token\": \"x\"}")?;
    pods.add("etcd-rogue", listener.address())?;
    await_login(&pods, follower)?;
    ensure!(listener.connections() > 0, "it was never contacted, so this proves nothing");
    let text = listener.received();
    ensure!(!text.contains(PASSWORD) && !text.contains("authenticate"), "it received: {text:?}");
    Ok(())
}

/// Two foreign pods with the labels of an etcd cluster of one member are the majority.
#[e2e::case]
fn foreign_pods_do_not_make_a_member_a_stranger(context: &'static TestContext) -> Result<()> {
    let (ns, one) = guarded_etcd(context, 1, "outvoted", Profile::Transfer)?;
    let pods = one.pods_in(&ns)?;
    let others = EtcdCluster::of(3).start(context)?;
    for (at, other) in others.members().iter().take(2).enumerate() {
        pods.add(&format!("etcd-foreign-{at}"), other.address())?;
    }
    for name in ["etcd-0", "etcd-foreign-0"] {
        delete(&pods, name)?.denied()?;
    }
    delete(&pods, "etcd-0")?.denied()?.with_message(&["pods of two etcd clusters"]).map(drop)
}

#[e2e::case]
fn a_process_that_is_not_etcd_does_not_count(context: &'static TestContext) -> Result<()> {
    let (ns, etcd) = guarded_etcd(context, 3, "odd", Profile::Transfer)?;
    let pods = etcd.pods_in(&ns)?;
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
        let context = || format!("the process returns {what}");
        let address = impostor.address();
        let status = json!({"status": {"podIP": address, "podIPs": [{"ip": address}]}});
        pods.set_status(down.name(), &status)?;
        for name in [up.name(), leader.name()] {
            let denied = delete(&pods, name)?.denied().with_context(context)?;
            denied
                .with_cause(down.name(), "NoResponse")
                .and_then(|v| v.within(IN_TIME))
                .with_context(context)?;
        }
        // The other two are a quorum without it.
        dry_run(&pods, down.name())?.allowed().with_context(context)?;
        ensure!(impostor.connections() > 0, "the process that returns {what} was never contacted");
    }
    ensure!(etcd.leader()?.name() == leader.name(), "leadership was transferred");
    Ok(())
}
