//! Starts the measured servers, and reads their CPU time and memory.

use std::fs;
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::process::{Child, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicU16, Ordering};
use std::time::{Duration, Instant};

use rustls::ClientConfig;

use crate::load::{Load, request, trusting};
use crate::peers::Peer;
use crate::{Result, SERVER_CORE, kernel, pinned};

/// Certificate, configuration and snapshot for the servers. Removed at the end.
pub(crate) struct Folder(PathBuf);

impl Folder {
    pub(crate) fn new() -> Result<Self> {
        let path = std::env::temp_dir().join(format!("durward-bench-{}", std::process::id()));
        fs::create_dir_all(path.join("snapshot/here"))?;
        let made = rcgen::generate_simple_self_signed(vec!["localhost".to_owned(), "127.0.0.1".to_owned()])?;
        fs::write(path.join("tls.crt"), made.cert.pem())?;
        fs::write(path.join("tls.key"), made.signing_key.serialize_pem())?;
        for guards in [Guards::Lxcfs, Guards::Three, Guards::InUse, Guards::Policies] {
            fs::write(path.join(guards.file()), CONFIGURATION.to_owned() + guards.sections())?;
        }
        fs::write(path.join("snapshot/snapshot.yaml"), SNAPSHOT)?;
        fs::write(path.join("snapshot/here/namespaces.v1.json"), NAMESPACES)?;
        Ok(Self(path))
    }

    pub(crate) fn certificate(&self) -> PathBuf {
        self.0.join("tls.crt")
    }

    pub(crate) fn file(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }

    /// Returns the client's TLS configuration.
    pub(crate) fn client(&self) -> Result<Arc<ClientConfig>> {
        trusting(&self.certificate())
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        // The directory is temporary, so a leftover does no harm.
        let _ = fs::remove_dir_all(&self.0);
    }
}

const CONFIGURATION: &str = "apiVersion: durward.dev/v1alpha1
kind: Configuration
server:
  tls: {files: {cert: tls.crt, key: tls.key, ca: tls.crt}}
  webhookConfiguration: {manage: none, url: \"https://127.0.0.1:8443\"}
guards:
";
const SNAPSHOT: &str = "version: 2\ntime: 2026-11-21T10:00:00Z\nclusters: [{name: here}]\n";
const NAMESPACES: &str = r#"{"apiVersion":"v1","kind":"NamespaceList","items":[{"metadata":{"name":"shop","labels":{"kubernetes.io/metadata.name":"shop"}}}]}"#;

/// The guards of a server.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Guards {
    /// `lxcfs`.
    Lxcfs,
    /// `lxcfs`, `deletion` and `etcd`.
    Three,
    /// The same with all in-use rules of the library.
    InUse,
    /// `resources` with the file `policies.yaml`.
    Policies,
}

impl Guards {
    fn file(self) -> &'static str {
        match self {
            Self::Lxcfs => "lxcfs.yaml",
            Self::Three => "three.yaml",
            Self::InUse => "in-use.yaml",
            Self::Policies => "resources.yaml",
        }
    }

    fn sections(self) -> &'static str {
        match self {
            Self::Lxcfs => "  lxcfs: {}\n",
            Self::Three => {
                "  lxcfs: {}
  deletion: {exempt: {namespaces: [scratch]}}
  etcd: {clusters: [{namespace: db, selector: app=etcd}]}
"
            }
            Self::InUse => {
                "  lxcfs: {}
  deletion:
    exempt: {namespaces: [scratch]}
    inUse: {library: [secrets, secret-owners, configmaps, serviceaccounts, storageclasses, priorityclasses,
                      ingressclasses, runtimeclasses, gatewayclasses, gateways, clusterissuers, issuers]}
  etcd: {clusters: [{namespace: db, selector: app=etcd}]}
"
            }
            Self::Policies => "  resources: {policies: [policies.yaml]}\n",
        }
    }
}

/// A measured server.
pub(crate) struct Server {
    child: Child,
    pub(crate) address: SocketAddr,
    /// The path of the guard that is measured, if the caller names no other.
    pub(crate) path: &'static str,
    /// The time from the start of the process until it was ready.
    pub(crate) started: Duration,
}

impl Server {
    /// Starts the echo: this program with another argument.
    pub(crate) fn echo(folder: &Folder) -> Result<Self> {
        let begun = Instant::now();
        let mut child = pinned(SERVER_CORE, &std::env::current_exe()?)
            .arg("echo")
            .args([folder.certificate(), folder.file("tls.key")])
            .stdout(Stdio::piped())
            .spawn()?;
        let mut port = String::new();
        BufReader::new(child.stdout.take().ok_or("the echo has no output")?).read_line(&mut port)?;
        let address = SocketAddr::from((Ipv4Addr::LOCALHOST, port.trim().parse()?));
        Ok(Self { child, address, path: "/echo", started: begun.elapsed() })
    }

    /// Starts the server on controller-runtime.
    pub(crate) fn controller_runtime(folder: &Folder) -> Result<Self> {
        let address = free_port()?;
        let begun = Instant::now();
        let child = pinned(SERVER_CORE, &Peer::ControllerRuntime.program()?)
            .args(["-port", &address.port().to_string(), "-cert-dir"])
            .arg(&folder.0)
            .stdout(Stdio::null())
            .stderr(fs::File::create(folder.file("controller-runtime.log"))?)
            .spawn()?;
        let mut server = Self { child, address, path: "/lxcfs", started: Duration::ZERO };
        let is_ready = || TcpStream::connect(address).is_ok();
        server.started = wait(begun, is_ready, &folder.file("controller-runtime.log"))?;
        Ok(server)
    }

    /// Starts Durward with a snapshot on disk.
    pub(crate) fn durward(folder: &Folder, guards: Guards) -> Result<Self> {
        let [listen, admin] = [free_port()?, free_port()?];
        let log = folder.file("durward.log");
        let begun = Instant::now();
        let child = pinned(SERVER_CORE, &binary()?)
            .args(["serve", "--config"])
            .arg(folder.file(guards.file()))
            .arg("--snapshot")
            .arg(folder.file("snapshot"))
            .args(["--bind-address", &listen.to_string()])
            .args(["--metrics-bind-address", &admin.to_string()])
            .stdout(Stdio::null())
            .stderr(fs::File::create(&log)?)
            .spawn()?;
        let route = if guards == Guards::Policies { "/resources?timeout=5s" } else { "/lxcfs?timeout=5s" };
        let mut server = Self { child, address: listen, path: route, started: Duration::ZERO };
        server.started = wait(begun, || is_ready(admin), &log)?;
        Ok(server)
    }

    /// Opens connections that send a review to the server.
    pub(crate) fn load<'r>(
        &self,
        folder: &Folder,
        request: &'r [u8],
        connections: usize,
    ) -> Result<Load<'r>> {
        Load::open(self.address, &folder.client()?, request, connections)
    }

    /// Returns a request with this body to the server's own path.
    pub(crate) fn request(&self, body: &[u8]) -> Vec<u8> {
        request(self.path, body)
    }

    /// Returns the CPU time.
    pub(crate) fn cpu(&self) -> Result<Duration> {
        kernel::cpu(&self.child.id().to_string())
    }

    /// Returns the resident memory in bytes.
    pub(crate) fn resident(&self) -> Result<f64> {
        kernel::resident(&self.child.id().to_string())
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // The child can have exited already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Polls until the server is ready, and returns the time since `begun`. It does not sleep, because that would be measured too.
fn wait(begun: Instant, is_ready: impl Fn() -> bool, log: &Path) -> Result<Duration> {
    while !is_ready() {
        if begun.elapsed() > Duration::from_secs(30) {
            let log = fs::read_to_string(log)?;
            return Err(format!("the server is not ready after 30 s:\n{log}").into());
        }
    }
    Ok(begun.elapsed())
}

/// Returns whether `/readyz` answers 200.
fn is_ready(admin: SocketAddr) -> bool {
    let ask = || -> Result<bool> {
        let mut stream = TcpStream::connect(admin)?;
        stream.write_all(b"GET /readyz HTTP/1.1\r\nHost: bench\r\nConnection: close\r\n\r\n")?;
        let mut answer = String::new();
        stream.read_to_string(&mut answer)?;
        Ok(answer.starts_with("HTTP/1.1 200"))
    };
    ask().unwrap_or(false)
}

/// Returns an address with a free port. The kernel gives clients, such as the load generator, ports from 32768 on, so none of them takes
/// the port before the server listens.
fn free_port() -> Result<SocketAddr> {
    const PORTS: Range<u16> = 20_000..32_768;
    static NEXT: AtomicU16 = AtomicU16::new(PORTS.start);
    loop {
        let port = NEXT.fetch_add(1, Ordering::Relaxed);
        if !PORTS.contains(&port) {
            return Err(format!("no free port in {PORTS:?}").into());
        }
        if let Ok(listener) = TcpListener::bind((Ipv4Addr::LOCALHOST, port)) {
            return Ok(listener.local_addr()?);
        }
    }
}

/// Returns the path of Durward.
pub(crate) fn binary() -> Result<PathBuf> {
    let binary = std::env::current_exe()?.with_file_name("durward");
    if binary.exists() {
        return Ok(binary);
    }
    Err(format!("{} does not exist: run make bench-deps", binary.display()).into())
}
