//! Whom Durward believes, and to whom it tells a secret: members over TLS, members that ask for a login, and
//! everything that stands where a member is expected and is none.

use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use e2e::ensemble::pods::Pods;
use e2e::ensemble::{Ensemble, Impostor, Line, MadeOutTo, Trust};
use e2e::namespace::Namespace;
use e2e::patience::{Seen, eventually};
use e2e::stage::Stage;
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
        Ok(if attempt.is_allowed() { Seen::Yes(()) } else { Seen::NotYet(attempt.told()) })
    })
}

/// The whole way over TLS: a follower goes, and a leader hands over.
fn goes_well(ensemble: &Ensemble, pods: &Pods<'_>) -> Result<()> {
    let leader = ensemble.leader()?.name();
    delete(pods, leader)?.allowed()?.warning("leadership moved to")?;
    Ok(())
}

pub(crate) fn members_are_verified_by_their_address_or_by_a_name(stage: &'static Stage) -> Result<()> {
    for (kind, to, asks) in [
        (Kind::Tls, MadeOutTo::Addresses, false),
        (Kind::Named, MadeOutTo::Name(SERVER_NAME.to_owned()), true),
    ] {
        let space = house(stage)?.namespace("tls", kind)?;
        let trust = Trust::new(to, asks)?;
        keep(&space, &trust.secret(TRUST))?;
        let ensemble = Ensemble::of(3).trusting(trust).start(stage)?;
        let pods = ensemble.pods_in(&space)?;
        try_delete(&pods, ensemble.follower()?.name())?.allowed()?.without_warnings()?;
        goes_well(&ensemble, &pods)?;
    }
    Ok(())
}

pub(crate) fn certificates_of_another_authority_or_for_another_name_vouch_for_nobody(
    stage: &'static Stage,
) -> Result<()> {
    let space = house(stage)?.namespace("wrong", Kind::Tls)?;
    let ensemble = Ensemble::of(3).trusting(Trust::new(MadeOutTo::Addresses, false)?).start(stage)?;
    let pods = ensemble.pods_in(&space)?;
    let follower = ensemble.follower()?.name();
    try_delete(&pods, follower)?.refused()?.saying(&["could not be checked", TRUST])?;
    keep(&space, &Trust::new(MadeOutTo::Addresses, false)?.secret(TRUST))?;
    eventually("the authority of somebody else to be read", READ_WITHIN, || {
        let attempt = try_delete(&pods, follower)?;
        ensure!(!attempt.is_allowed(), "{}", attempt.told());
        let told = attempt.told();
        Ok(if told.contains("certificate") { Seen::Yes(()) } else { Seen::NotYet(told) })
    })?;
    // The right one in its place is read without anybody saying so.
    let trust = ensemble.trust().context("members without certificates")?;
    keep(&space, &trust.secret(TRUST))?;
    eventually("the authority of the members to be read", READ_WITHIN, || {
        let attempt = try_delete(&pods, follower)?;
        Ok(if attempt.is_allowed() { Seen::Yes(()) } else { Seen::NotYet(attempt.told()) })
    })?;

    let space = house(stage)?.namespace("name", Kind::Tls)?;
    let trust = Trust::new(MadeOutTo::Name(SERVER_NAME.to_owned()), false)?;
    keep(&space, &trust.secret(TRUST))?;
    let named = Ensemble::of(3).trusting(trust).start(stage)?;
    let pods = named.pods_in(&space)?;
    try_delete(&pods, named.follower()?.name())?.refused()?.saying(&["could not be checked"])?;
    Ok(())
}

pub(crate) fn where_members_ask_for_logins_durward_logs_in(stage: &'static Stage) -> Result<()> {
    for line in Line::ALL {
        let space = house(stage)?.namespace("login", Kind::Login)?;
        let trust = Trust::new(MadeOutTo::Addresses, false)?;
        keep(&space, &trust.secret(TRUST))?;
        keep(&space, &login(PASSWORD))?;
        let ensemble = Ensemble::of(3).line(line).trusting(trust).start(stage)?;
        let pods = ensemble.pods_in(&space)?;
        let leader = ensemble.leader()?.name();
        ensemble.ask_for_logins(PASSWORD)?;
        await_login(&pods, leader)?;
        delete(&pods, leader)?.allowed()?.warning("leadership moved to")?;
    }
    let space = house(stage)?.namespace("open", Kind::Open)?;
    keep(&space, &login("another"))?;
    let ensemble = Ensemble::of(3).start(stage)?;
    let pods = ensemble.pods_in(&space)?;
    let follower = ensemble.follower()?.name();
    ensemble.ask_for_logins(PASSWORD)?;
    try_delete(&pods, follower)?.refused()?.not_saying(&["another", PASSWORD])?;
    keep(&space, &login(PASSWORD))?;
    await_login(&pods, follower)
}

/// A member that says who may not read is a member that reads.
pub(crate) fn members_that_ask_for_a_login_and_get_none_are_reached_all_the_same(
    stage: &'static Stage,
) -> Result<()> {
    for line in Line::ALL {
        let space = house(stage)?.namespace("nobody", Kind::Transfer)?;
        let ensemble = Ensemble::of(3).line(line).start(stage)?;
        let pods = ensemble.pods_in(&space)?;
        let follower = ensemble.follower()?.name();
        ensemble.ask_for_logins(PASSWORD)?;
        if line == Line::V3_6 {
            // It tells nobody how it is.
            try_delete(&pods, follower)?.refused()?.saying(&["could not be checked"])?;
        } else {
            try_delete(&pods, follower)?.allowed()?;
        }
    }
    Ok(())
}

pub(crate) fn a_rogue_pod_learns_nothing_and_vouches_for_nobody(stage: &'static Stage) -> Result<()> {
    let space = house(stage)?.namespace("rogue", Kind::Transfer)?;
    let ensemble = Ensemble::of(3).start(stage)?;
    let pods = ensemble.pods_in(&space)?;
    let (leader, [down, up]) = (ensemble.leader()?, two_followers(&ensemble)?);
    let stranger = Ensemble::of(1).start(stage)?;
    let mimic = Impostor::passing_for(leader.address())?;
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

    let space = house(stage)?.namespace("secret", Kind::Login)?;
    let trust = Trust::new(MadeOutTo::Addresses, false)?;
    keep(&space, &trust.secret(TRUST))?;
    keep(&space, &login(PASSWORD))?;
    let ensemble = Ensemble::of(3).trusting(trust).start(stage)?;
    let pods = ensemble.pods_in(&space)?;
    let follower = ensemble.follower()?.name();
    ensemble.ask_for_logins(PASSWORD)?;
    let listener = Impostor::page("200 OK", "application/json", "{\"token\": \"x\"}")?;
    pods.add("etcd-rogue", listener.address())?;
    await_login(&pods, follower)?;
    ensure!(listener.met() > 0, "it was never asked, so this proves nothing");
    let told = listener.told();
    ensure!(!told.contains(PASSWORD) && !told.contains("authenticate"), "it was told: {told:?}");
    Ok(())
}

pub(crate) fn what_is_no_etcd_is_named_and_counts_for_nothing(stage: &'static Stage) -> Result<()> {
    let space = house(stage)?.namespace("odd", Kind::Transfer)?;
    let ensemble = Ensemble::of(3).start(stage)?;
    let pods = ensemble.pods_in(&space)?;
    let (leader, [down, up]) = (ensemble.leader()?, two_followers(&ensemble)?);
    let _stopped = down.stop()?;
    let elsewhere = format!("http://{}:2379/v3/maintenance/status", leader.address());
    let odd = [
        ("a page", Impostor::page("200 OK", "text/html", "<!doctype html><title>It works</title>")?),
        ("nothing of the kind", Impostor::page("404 Not Found", "text/plain", "404 page not found\n")?),
        ("half a list", Impostor::page("200 OK", "application/json", "{\"header\":{\"cluster_id\":\"1\"")?),
        ("another API", Impostor::page("200 OK", "application/json", "{\"kind\":\"Status\",\"code\":200}")?),
        ("a way to a healthy member", Impostor::redirecting(&elsewhere)?),
        ("another protocol", Impostor::greeting("SSH-2.0-OpenSSH_9.2\r\n")?),
        ("nothing", Impostor::silent()?),
        ("no end", Impostor::endless()?),
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
    ensure!(ensemble.leader()?.name() == leader.name(), "the leadership was moved");
    Ok(())
}
