//! `serve`: file, world, plan and server put together, and kept together until a signal says stop.

use crate::args::ClusterArgs;
use crate::args::LogArgs;
use crate::args::ServerArgs;
use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use cluster::Readiness;
use cluster::fleet::ClusterHealth;
use config::Problem;
use server::{
    Addresses, BindError, Bound, CertificateSource, Checks, LogControl, Metrics, PlanCell, Server,
    ServerOptions, Settings, Shutdown, Stopped, supervise,
};
use tokio::signal::unix::{SignalKind, signal};
use tokio::task::JoinSet;

use crate::certs::{Pem, is_for, server_name};
use crate::exit::{Exit, Outcome, Stop};
use crate::file::{File, Purpose};
use crate::input;
use crate::manifests::called;
use crate::reload::{self, Reload};
use crate::rounds::Told;
use crate::version::VERSION;
use crate::{log, plan, world};

/// `serve`
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// The configuration file
    #[arg(long, short, value_name = "FILE")]
    pub(crate) config: PathBuf,
    #[command(flatten)]
    pub(crate) server: ServerArgs,
    #[command(flatten)]
    pub(crate) world: ClusterArgs,
    #[command(flatten)]
    pub(crate) log: LogArgs,
}

/// How often the world's state is written into `/readyz`.
const LOOKS: Duration = Duration::from_secs(1);

/// `serve`
pub(crate) fn run(args: &Args) -> Outcome {
    let purpose = Purpose::Serving {
        cert_given: args.server.tls_cert.is_some(),
        key_given: args.server.tls_key.is_some(),
    };
    let file = File::load(&args.config, purpose)?;
    let control = log::start(&args.log.level, args.log.format)?;
    let runtime = runtime()?;
    let outcome = runtime.block_on(start(args, purpose, file, control));
    // A look at a file that hangs on its file system must not keep the process from ending.
    runtime.shutdown_background();
    outcome
}

/// Everything from the first signal handler to the end. Signals come first: opening the world may take as long as a credential
/// plugin does, and whoever stops a server that is not yet one wants nothing else than that it is gone.
async fn start(
    args: &Args,
    purpose: Purpose,
    file: File,
    control: Arc<dyn LogControl>,
) -> Result<Exit, Stop> {
    let uncaught =
        |error: io::Error| Stop::fault(Problem::new("signals cannot be caught").why(error.to_string()));
    let mut shutdown = Shutdown::on_signals().map_err(uncaught)?;
    // Kept from here on: one that comes during the start is answered by a look at the file after it.
    let hangup = signal(SignalKind::hangup()).map_err(uncaught)?;
    // In a task of its own: a plugin blocks the thread that waits for it.
    let flags = args.world.clone();
    let opening = tokio::spawn(async move { (world::open(&flags, &file).await, file) });
    let (worlds, file) = tokio::select! {
        biased;
        () = shutdown.requested() => {
            tracing::info!("stopped before it served");
            return Ok(Exit::Done);
        }
        opened = opening => opened
            .map_err(|error| Stop::fault(Problem::new("the world cannot be opened").why(error.to_string())))?,
    };
    let worlds = Arc::new(worlds?);
    let (metrics, checks) = (Metrics::new(VERSION), Checks::new());
    let cell = PlanCell::new(plan::plan(&file, 1, &worlds, &metrics)?);
    let options = plan::options(&file.server, &args.server)?;
    warn_of_names(&file, &options);
    let settings = Settings::new(options).map_err(|error| refused(&error))?;
    let bound = Server::bind(settings, cell.clone(), metrics.clone(), checks.clone(), Some(control))
        .await
        .map_err(|error| refused(&error))?;
    worlds.in_force(&file);
    let reload = Reload::new(file, purpose, cell, Arc::clone(&worlds), metrics.clone(), &checks);
    // Both end when this is dropped, at the end of serving.
    let mut beside = JoinSet::new();
    beside.spawn(reload.follow(hangup, reload::POLL, metrics.clone()));
    let look = move || (worlds.readiness(), worlds.health());
    beside.spawn(follow_worlds(look, checks, metrics));
    Ok(serve(bound, shutdown).await)
}

/// The API server calls by the name that the registration gives, and takes no certificate without it.
fn warn_of_names(file: &File, options: &ServerOptions) {
    let CertificateSource::Files(files) = &options.tls.certificate else { return };
    let name = called(&file.server.registration.reach);
    // What cannot be read is told when the server binds.
    let Some(pem) = input::bytes(&files.cert, input::SMALL).ok().and_then(|text| Pem::read("", &text).ok())
    else {
        return;
    };
    let (Some(leaf), Some(called)) = (pem.certificates.first(), server_name(&name)) else { return };
    if !is_for(leaf, &called) {
        tracing::warn!(name, "the API server calls by this name, and the certificate is not for it");
    }
}

/// As many threads as the container may use: the standard library counts by cgroup quota.
fn runtime() -> Result<tokio::runtime::Runtime, Stop> {
    tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .thread_name("durward")
        .build()
        .map_err(|error| Stop::fault(Problem::new("threads cannot be started").why(error.to_string())))
}

/// Why the server does not start: what the configuration says is exit 2, what the system says is exit 1.
pub(crate) fn refused(error: &BindError) -> Stop {
    let problem = Problem::new(error.what()).why(error.why()).next(error.next());
    match error {
        BindError::Address { .. } => Stop::fault(problem),
        _ => problem.into(),
    }
}

async fn serve(bound: Bound, shutdown: Shutdown) -> Exit {
    let Addresses { listen, admin, local } = bound.addresses();
    // Scripts read these lines: with port 0 nobody knows the port before.
    tracing::info!(listener = "listen", address = %listen, version = VERSION, "listening");
    tracing::info!(listener = "admin", address = %admin, "listening");
    if let Some(local) = local {
        tracing::info!(listener = "local", address = %local, "listening");
    }
    match bound.serve(shutdown).await {
        Stopped::Clean => {
            tracing::info!("stopped; everything in flight was answered");
            Exit::Done
        }
        Stopped::CutOff { connections } => {
            tracing::error!(
                connections,
                "stopped; these connections were still busy after drain.finish and were cut"
            );
            Exit::No
        }
        Stopped::Aborted => {
            tracing::error!("stopped at once, since a second signal asked for it");
            Exit::No
        }
    }
}

/// Keeps `/readyz` and the numbers true to what the worlds have at hand, and to how the rounds went. The first look is taken before this returns: no probe may find a server
/// ready that has not looked yet.
fn follow_worlds(
    look: impl Fn() -> (Vec<Readiness>, Option<Vec<ClusterHealth>>) + Send + Sync + 'static,
    checks: Checks,
    metrics: Metrics,
) -> impl Future<Output = ()> + Send {
    let look = Arc::new(look);
    let was_ready = Arc::new(AtomicBool::new(tell_of_worlds(&look().0, &checks, false)));
    let told = Arc::new(Told::new(checks.clone(), &metrics));
    supervise("world", metrics, move || {
        let (look, checks, was_ready) = (Arc::clone(&look), checks.clone(), Arc::clone(&was_ready));
        let told = Arc::clone(&told);
        async move {
            let mut ticks = tokio::time::interval(LOOKS);
            ticks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Skip);
            loop {
                ticks.tick().await;
                let (readiness, health) = look();
                let is_ready = tell_of_worlds(&readiness, &checks, was_ready.load(Ordering::Relaxed));
                was_ready.store(is_ready, Ordering::Relaxed);
                told.tell(health.as_deref());
            }
        }
    })
}

/// Writes into `/readyz` what the world has at hand, and returns whether everything has been read once. Until then it makes the
/// server unready; afterwards it only tells: every replica sees the same API server, and none is better off if all take
/// themselves away. So what a reload adds to be watched does not make a serving server unready either.
fn tell_of_worlds(all: &[Readiness], checks: &Checks, was_ready: bool) -> bool {
    for one in all {
        let check = checks.add(format!("world-{}", one.name));
        match (one.ok, was_ready) {
            (true, _) => check.note(&one.reason),
            (false, true) => check.note(format!("{} (added while serving)", one.reason)),
            (false, false) => check.fail(&one.reason),
        }
    }
    let is_ready = was_ready || all.iter().all(|one| one.ok);
    // Guards that keep nothing at hand ask for each review: nothing was read, and nothing is to be waited for.
    if is_ready && !was_ready && !all.is_empty() {
        tracing::info!("the world is read");
    }
    is_ready
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicUsize;

    use super::*;

    fn namespaces(ok: bool) -> Vec<Readiness> {
        vec![Readiness { name: "namespaces".to_owned(), ok, reason: "as told".to_owned() }]
    }

    #[test]
    fn a_server_is_not_ready_before_its_world_was_looked_at() {
        let checks = Checks::new();
        let never_polled = follow_worlds(|| (namespaces(false), None), checks.clone(), Metrics::new("t"));
        assert!(!checks.readiness().ready, "{}", checks.readiness().text);
        drop(never_polled);
    }

    #[tokio::test]
    async fn a_look_at_the_world_that_panics_is_not_the_last() {
        let (checks, metrics) = (Checks::new(), Metrics::new("t"));
        let looks = AtomicUsize::new(0);
        let panics_once = move || {
            let look = looks.fetch_add(1, Ordering::Relaxed);
            assert_ne!(look, 1, "this look fails");
            (namespaces(look > 1), None)
        };
        let following = follow_worlds(panics_once, checks.clone(), metrics.clone());
        let ready = async {
            while !checks.readiness().ready {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        };
        tokio::select! {
            () = following => {}
            looked = tokio::time::timeout(Duration::from_secs(20), ready) => looked.unwrap(),
        }
        assert!(metrics.encode().contains("durward_tasks_restarted_total{task=\"world\"} 1"));
    }

    #[test]
    fn a_server_that_was_ready_stays_so_whatever_it_is_to_read_besides() {
        let checks = Checks::new();
        assert!(!tell_of_worlds(&namespaces(false), &checks, false));
        assert!(tell_of_worlds(&namespaces(true), &checks, false));
        assert!(checks.readiness().ready);
        assert!(tell_of_worlds(&namespaces(false), &checks, true));
        assert!(checks.readiness().ready);
        assert!(
            checks.readiness().text.contains("as told (added while serving)"),
            "{}",
            checks.readiness().text
        );
    }
}
