//! That Durward can be installed, asked, and ended as the other cases do it.

use std::time::Duration;

use anyhow::{Result, ensure};
use e2e::certificates;
use e2e::controlplane::Options;
use e2e::durward::Durward;
use e2e::installation::Installation;
use e2e::keeper::Ending;
use e2e::patience::{Seen, eventually};
use e2e::stage::{Stage, write};
use rustix::process::Signal;

/// The API server hears of new webhooks through a watch.
const HEARD_WITHIN: Duration = Duration::from_secs(30);

/// A server looks at its certificate's files now and then.
const SWAPPED_WITHIN: Duration = Duration::from_secs(60);

const GUARDS: &str = "  lxcfs: {files: [meminfo]}";

fn installed() -> Options {
    Options::named("installed")
}

pub(crate) fn a_registered_server_is_asked_about_pods_that_want_it_and_no_others(
    stage: &Stage,
) -> Result<()> {
    let cluster = stage.cluster(&installed())?;
    let mut installation = Installation::by_url(stage, &cluster, GUARDS)?;
    let durward = installation.serve().start_ready(stage)?;
    installation.register()?;
    let shop = cluster.namespace("shop")?;
    let wanting = || shop.pod("web").annotated("durward.dev/lxcfs", "enabled").as_dry_run();
    eventually("a pod with mounts", HEARD_WITHIN, || {
        Ok(match wanting().is_admitted()?.with_mounts(&["/proc/meminfo"]) {
            Ok(_) => Seen::Yes(()),
            Err(error) => Seen::NotYet(format!("{error:#}")),
        })
    })?;
    let asked =
        || durward.metrics().map(|metrics| metrics.sum("durward_reviews_total", &[("guard", "lxcfs")]));
    let before = asked()?;
    ensure!(before > 0.5, "a pod was changed, and durward_reviews_total says that nobody asked");
    shop.pod("plain").is_admitted()?.untouched()?;
    ensure!((asked()? - before).abs() < 0.5, "the server was asked about a plain pod");
    wanting().is_admitted()?.with_mounts(&["/proc/meminfo"])?;
    ensure!(asked()? > before + 0.5, "the server was not asked about a pod that wants it");
    Ok(())
}

pub(crate) fn a_server_with_a_bad_configuration_says_so_and_ends(stage: &Stage) -> Result<()> {
    let config = write(&stage.folder("bad")?, "durward.yaml", "version: 1\nguards: {lxcsf: {}}\n")?;
    let path = config.display().to_string();
    let output = Durward::command(stage, &["serve", "--config", &path])?;
    ensure!(output.code() == Some(2), "expected exit code 2, and it ended with {}", output.ending);
    ensure!(
        output.stderr.contains("lxcsf") && output.stderr.contains("lxcfs"),
        "it does not say what: {output:?}"
    );
    Ok(())
}

pub(crate) fn a_server_ends_well_when_it_is_asked_to(stage: &Stage) -> Result<()> {
    let cluster = stage.cluster(&installed())?;
    let installation = Installation::by_url(stage, &cluster, GUARDS)?;
    let durward = installation.serve().named("durward-asked-to-end").start_ready(stage)?;
    durward.signal(Signal::TERM)?;
    let ending = durward.await_end(Duration::from_secs(30))?;
    ensure!(ending == Ending::Code(0), "it ended with {ending}");
    Ok(())
}

pub(crate) fn an_installation_is_taken_back(stage: &Stage) -> Result<()> {
    let cluster = stage.cluster(&installed())?;
    let registrations = || {
        let all = cluster.kubectl().get(&["mutatingwebhookconfigurations"])?;
        anyhow::Ok(all["items"].as_array().map_or(0, Vec::len))
    };
    let mut installation = Installation::by_url(stage, &cluster, GUARDS)?;
    // From here on it is our turn: nobody else registers on this cluster.
    ensure!(registrations()? == 0, "an installation before this one was not taken back");
    installation.register()?;
    ensure!(registrations()? == 1, "nothing was registered");
    drop(installation);
    let _turn = Installation::by_url(stage, &cluster, GUARDS)?;
    ensure!(registrations()? == 0, "the registration is still there");
    Ok(())
}

pub(crate) fn a_swapped_certificate_is_served(stage: &Stage) -> Result<()> {
    let cluster = stage.cluster(&installed())?;
    let installation = Installation::by_url(stage, &cluster, GUARDS)?;
    let durward = installation.serve().start_ready(stage)?;
    let served = || certificates::served(durward.reviews(), "127.0.0.1", installation.authority());
    let old = served()?;
    let new = installation.swap_certificate()?;
    ensure!(old != new.der, "the new certificate is the old one");
    eventually("the new certificate to be served", SWAPPED_WITHIN, || {
        Ok(if served()? == new.der { Seen::Yes(()) } else { Seen::NotYet("the old one".to_owned()) })
    })
}

pub(crate) fn a_server_behind_a_service_is_replaced_by_another(stage: &Stage) -> Result<()> {
    let cluster = stage.cluster(&Options::named("installed-behind-a-service").with_aggregator_routing())?;
    let door = cluster.namespace("door")?;
    let service = door.service("durward")?;
    let mut installation = Installation::by_service(stage, &cluster, &service, GUARDS)?;
    let old = installation.serve().named("durward-old").start_ready(stage)?;
    service.leads_to(old.reviews())?;
    installation.register()?;
    let shop = cluster.namespace("shop")?;
    let wanting = || shop.pod("web").annotated("durward.dev/lxcfs", "enabled").as_dry_run();
    eventually("a pod with mounts", HEARD_WITHIN, || {
        Ok(match wanting().is_admitted()?.with_mounts(&["/proc/meminfo"]) {
            Ok(_) => Seen::Yes(()),
            Err(error) => Seen::NotYet(format!("{error:#}")),
        })
    })?;

    let new = installation.serve().named("durward-new").start_ready(stage)?;
    service.leads_to(new.reviews())?;
    old.signal(Signal::TERM)?;
    old.await_unready()?;
    let asked = || new.metrics().map(|metrics| metrics.sum("durward_reviews_total", &[("guard", "lxcfs")]));
    eventually("the new server to be asked", HEARD_WITHIN, || {
        wanting().is_admitted()?.with_mounts(&["/proc/meminfo"])?;
        let asked = asked()?;
        Ok(if asked > 0.5 { Seen::Yes(()) } else { Seen::NotYet(format!("asked {asked} times")) })
    })?;
    let ending = old.await_end(Duration::from_secs(30))?;
    ensure!(ending == Ending::Code(0), "the old server ended with {ending}");
    Ok(())
}
