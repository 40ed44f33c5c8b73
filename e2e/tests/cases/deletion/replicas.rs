//! A rolling update of two servers behind a Service.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use anyhow::Error;
use e2e::prelude::*;
use e2e::wait::SetOnDrop;
use rustix::process::Signal;

use super::super::environment::scratch;
use super::objects::{create, deployment, dry_run, path_of};
use crate::cases::attempt::await_denied;

/// Ten seconds of lame duck, plus time for a loaded machine.
const ENDED_WITHIN: Duration = Duration::from_secs(30);

const BETWEEN: usize = 40;

#[e2e::case(Slow)]
fn replacing_two_replicas_under_load_judges_every_deletion(context: &'static TestContext) -> Result<()> {
    let cluster = context.cluster(&scratch())?;
    let durward_namespace = cluster.namespace("serving")?;
    let service = durward_namespace.service("durward")?;
    let mut installation = Installation::by_service(context, &cluster, &service, "  deletion: {scope: all}")?;
    let serve = |name: &str| installation.serve().named(name).start_ready(context);
    let [a, b] = [serve("durward-a")?, serve("durward-b")?];
    service.set_endpoints(a.reviews(), b.reviews())?;
    let (used, free) = (cluster.namespace("used")?, cluster.namespace("free")?);
    create(&used, "apps/v1/deployments", &deployment("web", 0))?;
    installation.register()?;
    await_denied("a namespace in use to be guarded", || dry_run(cluster.api(), &path_of(&used)))?;

    let serve = |name: &str| installation.serve().named(name).start_ready(context);
    let (stopped, count) = (AtomicBool::new(false), AtomicUsize::new(0));
    let (loaded, replaced) = std::thread::scope(|scope| {
        let load = scope.spawn(|| -> Result<()> {
            let both = || -> Result<()> {
                let _ = dry_run(cluster.api(), &path_of(&used))?
                    .denied()?
                    .with_message(&["1 Deployment (web)"])?;
                dry_run(cluster.api(), &path_of(&free))?.allowed()?;
                count.fetch_add(2, Ordering::Relaxed);
                Ok(())
            };
            while !stopped.load(Ordering::Relaxed) {
                both().inspect_err(|_| stopped.store(true, Ordering::Relaxed))?;
            }
            Ok(())
        });
        let more = || {
            let before = count.load(Ordering::Relaxed);
            until("more deletions to be reviewed", || {
                let now = count.load(Ordering::Relaxed) - before;
                let is_enough = now >= BETWEEN || stopped.load(Ordering::Relaxed);
                Ok((is_enough, now.to_string()))
            })
        };
        let replace = || -> Result<[Durward; 2]> {
            more()?;
            // The API server reuses its connection, so it can call either one: each of them stops in turn.
            ensure!(reviews(&a)? + reviews(&b)? > 0.5, "no server has a review");
            let c = serve("durward-c")?;
            service.set_endpoints(c.reviews(), b.reviews())?;
            stop(&a)?;
            more()?;
            let d = serve("durward-d")?;
            service.set_endpoints(c.reviews(), d.reviews())?;
            stop(&b)?;
            more()?;
            ensure!(reviews(&c)? + reviews(&d)? > 0.5, "no new server has a review");
            Ok([c, d])
        };
        // Both servers run as long as the load.
        let ends = SetOnDrop(&stopped);
        let replaced = replace();
        drop(ends);
        (load.join().unwrap_or_else(|_| Err(Error::msg("the load panicked"))), replaced)
    });
    loaded?;
    replaced.map(drop)
}

fn reviews(durward: &Durward) -> Result<f64> {
    Ok(durward.metrics()?.sum("durward_reviews_total", &[("guard", "deletion")]))
}

fn stop(durward: &Durward) -> Result<()> {
    durward.signal(Signal::TERM)?;
    let exit = durward.await_end(ENDED_WITHIN)?;
    ensure!(exit == Exit::Code(0), "a server ended with {exit}");
    Ok(())
}
