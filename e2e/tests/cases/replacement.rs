//! Servers and certificates are replaced under load, as in a rollout and a renewal, and no pod fails.

use e2e::certificates;
use e2e::prelude::*;
use e2e::service::Service;
use rustix::process::Signal;

use super::environment::{await_injection, reviews, scratch};
use super::files::{DEFAULT_FILES, LxcfsChecks as _};
use super::load::{Load, under_load};
use super::outage::{admitted_unreviewed, denied_unreviewed};

/// Ten seconds of lame duck, as behind a Service, plus time for a loaded machine.
const ENDED_WITHIN: Duration = Duration::from_secs(30);

const BETWEEN: usize = 30;

#[e2e::case(Slow)]
fn replacing_server_and_certificate_fails_no_pod_with_policy_fail(
    context: &'static TestContext,
) -> Result<()> {
    replace_under_load(context, "Fail")
}

#[e2e::case(Soak)]
fn replacing_server_and_certificate_skips_no_pod_with_policy_ignore(
    context: &'static TestContext,
) -> Result<()> {
    replace_under_load(context, "Ignore")
}

fn replace_under_load(context: &'static TestContext, failure_policy: &str) -> Result<()> {
    let cluster = context.cluster(&scratch())?;
    let durward_namespace = cluster.namespace("serving")?;
    let service = durward_namespace.service("durward")?;
    let guards = format!("  lxcfs: {{webhook: {{failurePolicy: {failure_policy}}}}}");
    let mut installation = Installation::by_service(context, &cluster, &service, &guards)?;
    let first = installation.serve().named("durward-first").start_ready(context)?;
    service.set_endpoint(first.reviews())?;
    installation.register()?;
    let shop = cluster.namespace("shop")?;
    await_injection(&shop)?;

    let (failed, open) = (denied_unreviewed(&cluster)?, admitted_unreviewed(&cluster)?);
    let replace = |load: &Load<'_>| {
        load.await_more(BETWEEN)?;
        let second = replace_server(context, load, &installation, &service, &first, Order::MoveThenStop)?;
        let served = || certificates::served(second.reviews(), &service.host(), installation.ca());
        let old = served()?;
        let new = installation.swap_certificate()?;
        ensure!(serial(&old)? != serial(&new.der)?, "the serial number did not change");
        until("the new certificate to be served", || {
            let now = served()?;
            ensure!(now == old || now == new.der, "an unknown certificate is served");
            Ok((now == new.der, "the old one".to_owned()))
        })?;
        load.await_more(BETWEEN)?;
        // New connections of the API server get the new certificate.
        let third = replace_server(context, load, &installation, &service, &second, Order::StopThenMove)?;
        ensure!(
            certificates::served(third.reviews(), &service.host(), installation.ca())? == new.der,
            "a server that was started after the swap serves another certificate"
        );
        Ok(third)
    };
    let (calls, _third) =
        under_load(&shop, |_, pod| pod.with_files(&DEFAULT_FILES)?.without_warnings().map(drop), replace)?;
    let (failed, open) = (denied_unreviewed(&cluster)? - failed, admitted_unreviewed(&cluster)? - open);
    ensure!(
        failed < calls.starved as f64 + 0.5 && open < 0.5,
        "{failed} calls failed and {open} were not reviewed: {calls:?}"
    );
    Ok(())
}

fn serial(certificate: &[u8]) -> Result<String> {
    Ok(x509_parser::parse_x509_certificate(certificate)?.1.raw_serial_as_string())
}

/// The order in which the Service leaves a server and the server is stopped. A rollout does both at once.
#[derive(Clone, Copy)]
enum Order {
    MoveThenStop,
    StopThenMove,
}

/// Starts another server, moves the Service to it, and stops the old one. The old one must exit with zero,
/// and the new one must get reviews.
fn replace_server(
    context: &TestContext,
    load: &Load<'_>,
    installation: &Installation<'_>,
    service: &Service<'_>,
    old: &Durward,
    order: Order,
) -> Result<Durward> {
    let new = installation.serve().named("durward-next").start_ready(context)?;
    match order {
        Order::MoveThenStop => {
            service.set_endpoint(new.reviews())?;
            old.signal(Signal::TERM)?;
        }
        Order::StopThenMove => {
            old.signal(Signal::TERM)?;
            // Not ready, but the API server still calls it: it must serve, also new connections.
            old.await_unready()?;
            let before = reviews(old)?;
            until("a review by the server that stops", || {
                let count = reviews(old)? - before;
                Ok((count > 0.5, count.to_string()))
            })?;
            service.set_endpoint(new.reviews())?;
        }
    }
    let exit = old.await_end(ENDED_WITHIN)?;
    ensure!(exit == Exit::Code(0), "the old server ended with {exit}");
    load.await_more(BETWEEN)?;
    ensure!(reviews(&new)? > 0.5, "the new server had no reviews");
    Ok(new)
}
