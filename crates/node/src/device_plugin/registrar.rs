//! Listens on the plugin's socket, and registers it with the kubelet.
//!
//! The kubelet (1.35, `pkg/kubelet/cm/devicemanager`) calls back at once after `Register` on `kubelet.sock`, and keeps a stream of
//! devices open. When it starts, it removes every socket in the directory, forgets all plugins, and creates `kubelet.sock` again:
//! plugins must register again. While there is no stream, no device is healthy.

use std::fs;
use std::io;
use std::os::unix::fs::{FileTypeExt as _, MetadataExt as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use futures_util::stream;
use lxcfs::DEVICE;
use tokio::net::UnixListener;
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::{Instant, MissedTickBehavior, interval, sleep, timeout};
use tonic::client::Grpc;
use tonic::codegen::http::uri::PathAndQuery;
use tonic::transport::{Endpoint, Server};
use tonic::{Request, Status};
use tonic_prost::ProstCodec;

use super::generated::device_plugin_server::DevicePluginServer;
use super::generated::{Empty, RegisterRequest};
use super::service::{OPTIONS, PluginService, stopped};

/// The version in `Register` and in the names of the services.
const VERSION: &str = "v1beta1";

/// The kubelet's socket, in the directory of the plugins' sockets.
const KUBELET_SOCKET: &str = "kubelet.sock";

/// The call by which a plugin registers with the kubelet.
const REGISTER: &str = "/v1beta1.Registration/Register";

/// The name of the plugin's socket.
const SOCKET: &str = "durward-lxcfs.sock";

/// Time between two checks of the sockets: the kubelet does not announce that it removes one.
const SOCKET_INTERVAL: Duration = Duration::from_millis(500);

/// Timeout of a registration. The kubelet answers after it called back, for which it allows itself ten seconds.
const REGISTER_TIMEOUT: Duration = Duration::from_secs(15);

/// Pauses after a failed registration; each doubles the one before.
const FIRST_BACKOFF: Duration = Duration::from_secs(1);
const MAX_BACKOFF: Duration = Duration::from_secs(30);

/// Time between two log lines about the same problem.
const LOG_INTERVAL: Duration = Duration::from_secs(60);

/// Time for calls in flight when the plugin stops: at most three probes, 6 s. The pod has 10 s (`deploy/lxcfs/device.yaml`).
const STOP_TIMEOUT: Duration = Duration::from_secs(7);

/// Identifies a socket. Inode numbers are reused, times are not.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct SocketId(u64, u64, i64, i64);

impl SocketId {
    fn of(path: &Path) -> Option<Self> {
        let metadata = fs::symlink_metadata(path).ok().filter(|metadata| metadata.file_type().is_socket())?;
        Some(Self(metadata.dev(), metadata.ino(), metadata.ctime(), metadata.ctime_nsec()))
    }
}

/// Keeps the plugin registered.
pub(super) struct Registrar {
    socket: PathBuf,
    kubelet_socket: PathBuf,
    service: Arc<PluginService>,
    stop: watch::Receiver<bool>,
    /// Time from registration to the stream of devices. A kubelet without a stream opens one only after a registration.
    watch_timeout: Duration,
    /// The plugin's socket and the task that accepts connections.
    listener: Option<(SocketId, JoinSet<()>)>,
    /// The kubelet that accepted the registration, and when.
    registered: Option<(SocketId, Instant)>,
    /// When to register again after a failure, and the pause before that.
    retry: Option<(Instant, Duration)>,
    logged: Option<(String, Instant)>,
}

impl Registrar {
    pub(super) fn new(
        directory: &Path,
        service: Arc<PluginService>,
        stop: watch::Receiver<bool>,
        watch_timeout: Duration,
    ) -> Self {
        Self {
            socket: directory.join(SOCKET),
            kubelet_socket: directory.join(KUBELET_SOCKET),
            service,
            stop,
            watch_timeout,
            listener: None,
            registered: None,
            retry: None,
            logged: None,
        }
    }

    /// Listens and registers as often as necessary. Never returns.
    pub(super) async fn run(&mut self) {
        let mut ticks = interval(SOCKET_INTERVAL);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            ticks.tick().await;
            if self.ensure_listening() {
                self.ensure_registered().await;
            }
        }
    }

    /// Returns whether the socket at the path is the plugin's.
    fn ensure_listening(&mut self) -> bool {
        match (SocketId::of(&self.socket), &self.listener) {
            (Some(found), Some((own, _))) if found == *own => return true,
            // Another process replaced the socket. Two plugins would replace each other's socket forever.
            (Some(_), Some(_)) => {
                self.warn("another process listens on the plugin socket; waiting for its end");
                return false;
            }
            (_, Some(_)) => {
                tracing::info!(socket = %self.socket.display(), "the plugin socket was removed, probably by a starting kubelet");
            }
            (_, None) => {}
        }
        (self.listener, self.registered, self.retry) = (None, None, None);
        match self.listen() {
            Ok(listener) => {
                self.listener = Some(listener);
                true
            }
            Err(error) => {
                let socket = self.socket.display();
                let problem = format!("could not create the socket {socket}: {error}; check --kubelet-dir");
                // An error, because waiting does not help.
                if is_due(&mut self.logged, &problem) {
                    tracing::error!("{problem}");
                }
                false
            }
        }
    }

    fn warn(&mut self, problem: &str) {
        if is_due(&mut self.logged, problem) {
            tracing::warn!("{problem}");
        }
    }

    /// Listens at the plugin's path. Replaces the socket of a process that exited, but no other file.
    fn listen(&self) -> io::Result<(SocketId, JoinSet<()>)> {
        match fs::symlink_metadata(&self.socket) {
            Ok(metadata) if metadata.file_type().is_socket() => fs::remove_file(&self.socket)?,
            Ok(_) => return Err(io::Error::other("the path exists and is not a socket")),
            Err(_) => {}
        }
        let listener = UnixListener::bind(&self.socket)?;
        let id = SocketId::of(&self.socket).ok_or(io::ErrorKind::NotFound)?;
        let mut tasks = JoinSet::new();
        tasks.spawn(serve(listener, Arc::clone(&self.service), self.stop.clone()));
        tracing::info!(socket = %self.socket.display(), "listening");
        Ok((id, tasks))
    }

    /// Registers if the kubelet is new or has no stream of devices.
    async fn ensure_registered(&mut self) {
        let Some(kubelet) = SocketId::of(&self.kubelet_socket) else {
            self.registered = None;
            self.warn(&format!("no kubelet listens on {}; waiting", self.kubelet_socket.display()));
            return;
        };
        if let Some((known, at)) = self.registered
            && known == kubelet
        {
            if self.service.open_streams() > 0 || at.elapsed() <= self.watch_timeout {
                return;
            }
            tracing::warn!("the kubelet no longer watches the devices");
            self.registered = None;
        }
        if self.retry.is_some_and(|(at, _)| Instant::now() < at) {
            return;
        }
        let request = RegisterRequest {
            version: VERSION.to_owned(),
            endpoint: SOCKET.to_owned(),
            resource_name: DEVICE.to_owned(),
            options: Some(OPTIONS),
        };
        let call = register(&self.kubelet_socket, request);
        let problem = match timeout(REGISTER_TIMEOUT, call).await {
            Ok(Ok(_)) => {
                tracing::info!(resource = DEVICE, "registered with the kubelet");
                (self.registered, self.retry, self.logged) = (Some((kubelet, Instant::now())), None, None);
                return;
            }
            Ok(Err(status)) => format!("{} (gRPC code {})", status.message(), i32::from(status.code())),
            Err(_) => format!("no response in {} s", REGISTER_TIMEOUT.as_secs()),
        };
        let pause = self.retry.map_or(FIRST_BACKOFF, |(_, pause)| (pause * 2).min(MAX_BACKOFF));
        self.retry = Some((Instant::now() + pause, pause));
        self.warn(&format!("the kubelet rejects the plugin: {problem}"));
    }

    /// Removes the plugin's own socket, and waits for calls in flight.
    pub(super) async fn close(&mut self) {
        let Some((own, mut tasks)) = self.listener.take() else { return };
        if SocketId::of(&self.socket) == Some(own)
            && let Err(error) = fs::remove_file(&self.socket)
        {
            tracing::warn!(socket = %self.socket.display(), %error, "could not remove the plugin socket");
        }
        let done = async { while tasks.join_next().await.is_some() {} };
        if timeout(STOP_TIMEOUT, done).await.is_err() {
            tracing::warn!("some calls of the kubelet were canceled");
        }
    }
}

/// Returns whether to log a problem: a new one at once, a known one once a minute.
fn is_due(logged: &mut Option<(String, Instant)>, problem: &str) -> bool {
    if logged.as_ref().is_some_and(|(text, at)| text == problem && at.elapsed() < LOG_INTERVAL) {
        return false;
    }
    *logged = Some((problem.to_owned(), Instant::now()));
    true
}

/// Registers the plugin with the kubelet at a socket.
async fn register(kubelet: &Path, request: RegisterRequest) -> Result<Empty, Status> {
    let endpoint = Endpoint::from_shared(format!("unix://{}", kubelet.display()));
    let unavailable = |error: tonic::transport::Error| {
        let why = std::error::Error::source(&error).map_or_else(|| error.to_string(), ToString::to_string);
        Status::unavailable(why)
    };
    let mut client = Grpc::new(endpoint.map_err(unavailable)?.connect().await.map_err(unavailable)?);
    client.ready().await.map_err(unavailable)?;
    let path = PathAndQuery::from_static(REGISTER);
    client.unary(Request::new(request), path, ProstCodec::default()).await.map(tonic::Response::into_inner)
}

/// Serves connections until the plugin stops, and then waits for the open ones.
async fn serve(listener: UnixListener, service: Arc<PluginService>, mut stop: watch::Receiver<bool>) {
    let connections = stream::unfold(listener, |listener| async {
        let accepted = listener.accept().await.map(|(stream, _)| stream);
        if let Err(error) = &accepted {
            tracing::warn!(%error, "could not accept a connection");
            sleep(FIRST_BACKOFF).await;
        }
        Some((accepted, listener))
    });
    let service = DevicePluginServer::from_arc(service);
    let served =
        Server::builder().serve_with_incoming_shutdown(service, connections, stopped(&mut stop)).await;
    if let Err(error) = served {
        tracing::warn!(%error, "the plugin socket failed");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn logs_a_lasting_problem_once_a_minute() {
        let mut logged = None;
        assert!(is_due(&mut logged, "a") && !is_due(&mut logged, "a"));
        assert!(is_due(&mut logged, "b") && is_due(&mut logged, "a"), "another problem is logged at once");
        tokio::time::advance(LOG_INTERVAL).await;
        assert!(is_due(&mut logged, "a") && !is_due(&mut logged, "a"));
    }
}
