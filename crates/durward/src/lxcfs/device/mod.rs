//! `lxcfs-device`: the files of LXCFS as a resource of the node, for namespaces in which no pod may have a hostPath volume.
//!
//! A kubelet device plugin: the kubelet mounts what `Allocate` answers, and Pod Security admission, which judges pods, never sees
//! it. What is mounted is fixed by the configuration; a pod can ask for it, and for nothing else.
//!
//! How the kubelet wants it (1.35, `pkg/kubelet/cm/devicemanager`): a plugin listens on a socket in the kubelet's folder and then
//! calls `Register` on `kubelet.sock`; the kubelet calls back at once, and keeps a stream of devices open. When the kubelet starts
//! it removes every socket in the folder, forgets all plugins, and makes `kubelet.sock` anew: whoever was there before must come
//! again. When the stream ends, no device is healthy until then.

mod api;
mod grpc;
mod plugin;

use crate::args::LogArgs;
use std::fs;
use std::io;
use std::os::unix::fs::{FileTypeExt as _, MetadataExt as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use config::Problem;
use guards::lxcfs::DEVICE;
use hyper::server::conn::http2;
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo};
use server::Shutdown;
use tokio::net::{UnixListener, UnixStream};
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::{Instant, MissedTickBehavior, interval, sleep, timeout};

use super::settings::Settings;
use super::watcher::Watcher;
use crate::exit::{Exit, Outcome, Stop};
use crate::log;
use crate::review::runtime;
use api::{Empty, KUBELET, REGISTER, RegisterRequest, VERSION};
use plugin::{OPTIONS, Plugin};

/// `lxcfs-device`
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// The configuration file
    #[arg(long, short, value_name = "FILE")]
    pub(crate) config: PathBuf,
    /// The folder in which the kubelet and its plugins have their sockets
    #[arg(long, value_name = "DIR", default_value = "/var/lib/kubelet/device-plugins")]
    pub(crate) kubelet_dir: PathBuf,
    /// How many containers of this node may have the files at once; more than there can be, or they become a limit
    #[arg(long, value_name = "NUMBER", default_value_t = 1000, value_parser = clap::value_parser!(u32).range(1..=100_000))]
    pub(crate) devices: u32,
    /// Where mounts and processes are told of; another folder than the kernel's is for tests
    #[arg(long, value_name = "DIR", default_value = "/proc", hide = true)]
    pub(crate) proc: PathBuf,
    #[command(flatten)]
    pub(crate) log: LogArgs,
}

/// The name of our socket.
const SOCKET: &str = "durward-lxcfs.sock";

/// How often LXCFS is looked at.
const LOOKS: Duration = Duration::from_secs(2);

/// How often it is looked whether the sockets are still those that they were: the kubelet says nothing when it removes one.
const SOCKET_LOOKS: Duration = Duration::from_millis(500);

/// The kubelet answers once it has called us back, for which it gives itself ten seconds.
const REGISTERED_WITHIN: Duration = Duration::from_secs(15);

/// A kubelet that does not take us is asked again; the pause doubles.
const FIRST_PAUSE: Duration = Duration::from_secs(1);
const LONGEST_PAUSE: Duration = Duration::from_secs(30);

/// How often it is said again what keeps the kubelet from knowing us.
const TOLD_AGAIN: Duration = Duration::from_secs(60);

/// From registration to the stream of devices. A kubelet without a stream has lost it, and takes it up only after a registration.
const WATCHED_WITHIN: Duration = Duration::from_secs(10);

/// For answers under way at the end: one takes three looks at worst, which is 6 s. The pod has 10 s (`deploy/lxcfs/device.yaml`).
const LEAVE_WITHIN: Duration = Duration::from_secs(7);

/// `lxcfs-device`
pub(crate) fn run(args: &Args) -> Outcome {
    let settings = Settings::load(&args.config)?;
    let _: Arc<_> = log::start(&args.log.level, args.log.format)?;
    let runtime = runtime()?;
    let outcome = runtime.block_on(start(args, settings));
    // A file that hangs must not keep the process from ending.
    runtime.shutdown_background();
    outcome
}

async fn start(args: &Args, settings: Settings) -> Outcome {
    let mut shutdown = Shutdown::on_signals()
        .map_err(|error| Stop::fault(Problem::new("signals cannot be caught").why(error.to_string())))?;
    let (end, ends) = watch::channel(false);
    let plugin = Arc::new(Plugin::new(Watcher::new(&args.proc, settings), args.devices, ends.clone()).await);
    let mut tasks = JoinSet::new();
    tasks.spawn(look(Arc::clone(&plugin)));
    let mut office = Office::new(&args.kubelet_dir, plugin, ends);
    tokio::select! {
        biased;
        () = shutdown.requested() => {}
        () = office.keep() => {}
    }
    end.send_replace(true);
    office.close().await;
    tasks.shutdown().await;
    tracing::info!("stopped");
    Ok(Exit::Done)
}

/// Looks at LXCFS for ever; whoever watches the devices hears of every change.
async fn look(plugin: Arc<Plugin>) {
    let mut ticks = interval(LOOKS);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        ticks.tick().await;
        plugin.look().await;
    }
}

/// What tells one socket from another at the same path. Numbers are given away again, times are not.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Identity(u64, u64, i64, i64);

impl Identity {
    /// Of the socket at a path; none where there is none.
    fn of(path: &Path) -> Option<Self> {
        let metadata = fs::symlink_metadata(path).ok().filter(|metadata| metadata.file_type().is_socket())?;
        Some(Self(metadata.dev(), metadata.ino(), metadata.ctime(), metadata.ctime_nsec()))
    }
}

/// The plugin's place in the kubelet's folder.
struct Office {
    own: PathBuf,
    kubelet: PathBuf,
    plugin: Arc<Plugin>,
    ends: watch::Receiver<bool>,
    /// Our socket, and who takes calls there.
    open: Option<(Identity, JoinSet<()>)>,
    registered: Option<(Identity, Instant)>,
    /// When to ask a kubelet again that did not take us, and the pause after that.
    again: Option<(Instant, Duration)>,
    told: Option<(String, Instant)>,
}

impl Office {
    fn new(folder: &Path, plugin: Arc<Plugin>, ends: watch::Receiver<bool>) -> Self {
        Self {
            own: folder.join(SOCKET),
            kubelet: folder.join(KUBELET),
            plugin,
            ends,
            open: None,
            registered: None,
            again: None,
            told: None,
        }
    }

    /// Sees to it that the kubelet knows the plugin, for ever.
    async fn keep(&mut self) {
        let mut ticks = interval(SOCKET_LOOKS);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            ticks.tick().await;
            self.round().await;
        }
    }

    async fn round(&mut self) {
        match (Identity::of(&self.own), &self.open) {
            (Some(there), Some((own, _))) if there == *own => {}
            // Another process has put its own in our place: two of us would take it from each other for ever.
            (Some(_), Some(_)) => {
                self.tell("another process listens at our socket; waiting until it has gone");
                return;
            }
            (_, was) => {
                if was.is_some() {
                    tracing::info!(socket = %self.own.display(), "our socket was removed, as a kubelet does that starts");
                }
                (self.open, self.registered, self.again) = (None, None, None);
                match self.bind() {
                    Ok(open) => self.open = Some(open),
                    Err(error) => {
                        let own = self.own.display();
                        let what = format!(
                            "the socket {own} cannot be made: {error}; is the kubelet's folder elsewhere? --kubelet-dir"
                        );
                        // Not a matter of waiting, as the others are.
                        if is_due(&mut self.told, &what) {
                            tracing::error!("{what}");
                        }
                        return;
                    }
                }
            }
        }
        self.register().await;
    }

    /// Says what keeps the kubelet from knowing us.
    fn tell(&mut self, what: &str) {
        if is_due(&mut self.told, what) {
            tracing::warn!("{what}");
        }
    }

    /// Listens. A socket of a process that is gone is taken away; anything else that stands there is left.
    fn bind(&self) -> io::Result<(Identity, JoinSet<()>)> {
        match fs::symlink_metadata(&self.own) {
            Ok(metadata) if metadata.file_type().is_socket() => fs::remove_file(&self.own)?,
            Ok(_) => return Err(io::Error::other("something that is no socket stands there")),
            Err(_) => {}
        }
        let listener = UnixListener::bind(&self.own)?;
        let identity = Identity::of(&self.own).ok_or(io::ErrorKind::NotFound)?;
        let mut taking = JoinSet::new();
        taking.spawn(take(listener, Arc::clone(&self.plugin), self.ends.clone()));
        tracing::info!(socket = %self.own.display(), "listening");
        Ok((identity, taking))
    }

    /// Tells the kubelet of us if it does not know, or has lost us.
    async fn register(&mut self) {
        let Some(kubelet) = Identity::of(&self.kubelet) else {
            self.registered = None;
            self.tell(&format!("there is no kubelet at {}; waiting for it", self.kubelet.display()));
            return;
        };
        if let Some((known, at)) = self.registered
            && known == kubelet
        {
            let is_late = at.elapsed() > WATCHED_WITHIN;
            if self.plugin.watching() > 0 || !is_late {
                return;
            }
            tracing::warn!("the kubelet does not watch the devices any more");
            self.registered = None;
        }
        if self.again.is_some_and(|(at, _)| Instant::now() < at) {
            return;
        }
        let request = RegisterRequest {
            version: VERSION.to_owned(),
            endpoint: SOCKET.to_owned(),
            resource_name: DEVICE.to_owned(),
            options: Some(OPTIONS),
        };
        let calling = grpc::call::<Empty>(&self.kubelet, REGISTER, &request);
        let why = match timeout(REGISTERED_WITHIN, calling).await {
            Ok(Ok(_)) => {
                tracing::info!(resource = DEVICE, "the kubelet knows the devices");
                (self.registered, self.again, self.told) = (Some((kubelet, Instant::now())), None, None);
                return;
            }
            Ok(Err(fault)) => fault.to_string(),
            Err(_) => format!("no answer in {} s", REGISTERED_WITHIN.as_secs()),
        };
        let pause = self.again.map_or(FIRST_PAUSE, |(_, pause)| (pause * 2).min(LONGEST_PAUSE));
        self.again = Some((Instant::now() + pause, pause));
        self.tell(&format!("the kubelet does not take the devices: {why}"));
    }

    /// Answers what is under way, and takes our socket away, unless it is not ours.
    async fn close(&mut self) {
        let Some((own, mut taking)) = self.open.take() else { return };
        if Identity::of(&self.own) == Some(own)
            && let Err(error) = fs::remove_file(&self.own)
        {
            tracing::warn!(socket = %self.own.display(), %error, "our socket cannot be removed");
        }
        let ended = async { while taking.join_next().await.is_some() {} };
        if timeout(LEAVE_WITHIN, ended).await.is_err() {
            tracing::warn!("some calls of the kubelet were not answered to their end");
        }
    }
}

/// Whether something is to be said: at once, and again each minute as long as it is so, for whoever looks later.
fn is_due(told: &mut Option<(String, Instant)>, what: &str) -> bool {
    if told.as_ref().is_some_and(|(told, at)| told == what && at.elapsed() < TOLD_AGAIN) {
        return false;
    }
    *told = Some((what.to_owned(), Instant::now()));
    true
}

/// Takes connections until the end, and then waits for those that are there. Dropped, it drops them.
async fn take(listener: UnixListener, plugin: Arc<Plugin>, mut ends: watch::Receiver<bool>) {
    /// A kubelet has one. Who has this many does not need another.
    const CONNECTIONS: usize = 64;
    let mut connections = JoinSet::new();
    loop {
        let taken = tokio::select! {
            biased;
            () = over(&mut ends) => break,
            Some(_) = connections.join_next(), if !connections.is_empty() => continue,
            taken = listener.accept(), if connections.len() < CONNECTIONS => taken,
        };
        match taken {
            Ok((stream, _)) => drop(connections.spawn(serve(stream, Arc::clone(&plugin), ends.clone()))),
            Err(error) => {
                tracing::warn!(%error, "a connection cannot be taken");
                sleep(FIRST_PAUSE).await;
            }
        }
    }
    drop(listener);
    while connections.join_next().await.is_some() {}
}

/// Returns when it is the end, also where whoever could say so has gone.
async fn over(ends: &mut watch::Receiver<bool>) {
    let _ = ends.wait_for(|ended| *ended).await;
}

async fn serve(stream: UnixStream, plugin: Arc<Plugin>, mut ends: watch::Receiver<bool>) {
    let service = service_fn(move |request| Arc::clone(&plugin).answer(request));
    let connection =
        http2::Builder::new(TokioExecutor::new()).serve_connection(TokioIo::new(stream), service);
    tokio::pin!(connection);
    let ended = tokio::select! {
        ended = connection.as_mut() => ended,
        () = over(&mut ends) => {
            connection.as_mut().graceful_shutdown();
            connection.await
        }
    };
    // A kubelet that ends breaks off; there is nothing to do about it.
    if let Err(error) = ended {
        tracing::debug!(%error, "a connection broke");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn what_stays_so_is_said_again_each_minute() {
        let mut told = None;
        assert!(is_due(&mut told, "a") && !is_due(&mut told, "a"));
        assert!(is_due(&mut told, "b") && is_due(&mut told, "a"), "another thing is said at once");
        tokio::time::advance(TOLD_AGAIN).await;
        assert!(is_due(&mut told, "a") && !is_due(&mut told, "a"));
    }
}
