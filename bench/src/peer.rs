//! Starts the two servers and reads their CPU time and memory.

use std::fs;
use std::io::{BufRead as _, BufReader};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use crate::{Result, SERVER_CORE, kernel};

/// Certificate, configuration and snapshot for the servers. Removed at the end.
pub(crate) struct Snapshot(PathBuf);

impl Snapshot {
    pub(crate) fn new() -> Result<Self> {
        let path = std::env::temp_dir().join(format!("durward-bench-{}", std::process::id()));
        fs::create_dir_all(path.join("snapshot/here"))?;
        let made = rcgen::generate_simple_self_signed(vec!["localhost".to_owned(), "127.0.0.1".to_owned()])?;
        fs::write(path.join("tls.crt"), made.cert.pem())?;
        fs::write(path.join("tls.key"), made.signing_key.serialize_pem())?;
        let section = |guard: &str| CONFIGURATION.to_owned() + guard;
        fs::write(path.join("durward.yaml"), section("  lxcfs: {}\n"))?;
        fs::write(path.join("resources.yaml"), section("  resources: {policies: [policies.yaml]}\n"))?;
        fs::write(path.join("snapshot/snapshot.yaml"), SNAPSHOT)?;
        fs::write(path.join("snapshot/here/core_v1_namespaces.json"), NAMESPACES)?;
        Ok(Self(path))
    }

    pub(crate) fn certificate(&self) -> PathBuf {
        self.0.join("tls.crt")
    }

    pub(crate) fn file(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }
}

impl Drop for Snapshot {
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
const SNAPSHOT: &str = "version: 1\ntime: 2026-11-21T10:00:00Z\nclusters: [{name: here}]\n";
const NAMESPACES: &str = r#"{"apiVersion":"v1","kind":"NamespaceList","items":[{"metadata":{"name":"shop","labels":{"kubernetes.io/metadata.name":"shop"}}}]}"#;

/// A configuration file and the path of its guard.
type Guard = (&'static str, &'static str);

const LXCFS: Guard = ("durward.yaml", "/lxcfs?timeout=5s");
const RESOURCES: Guard = ("resources.yaml", "/resources?timeout=5s");

/// A measured server.
pub(crate) struct Server {
    child: Child,
    pub(crate) address: SocketAddr,
    pub(crate) path: &'static str,
}

impl Server {
    /// Starts the echo: this program with another argument.
    pub(crate) fn echo(folder: &Snapshot) -> Result<Self> {
        let mut child = Command::new("taskset")
            .args(["-c", SERVER_CORE])
            .arg(std::env::current_exe()?)
            .arg("echo")
            .args([folder.certificate(), folder.file("tls.key")])
            .stdout(Stdio::piped())
            .spawn()?;
        let mut port = String::new();
        BufReader::new(child.stdout.take().ok_or("the echo has no output")?).read_line(&mut port)?;
        let address = SocketAddr::from((Ipv4Addr::LOCALHOST, port.trim().parse()?));
        Ok(Self { child, address, path: "/echo" })
    }

    /// Starts Durward with the LXCFS guard and a snapshot on disk.
    pub(crate) fn durward(folder: &Snapshot) -> Result<Self> {
        Self::serve(folder, LXCFS, "--snapshot", &folder.file("snapshot"))
    }

    /// Starts Durward with the guard of policies and `policies.yaml`.
    pub(crate) fn policies(folder: &Snapshot) -> Result<Self> {
        Self::serve(folder, RESOURCES, "--snapshot", &folder.file("snapshot"))
    }

    /// Starts Durward with the LXCFS guard, which watches the namespaces of the API server in the kubeconfig.
    pub(crate) fn watching(folder: &Snapshot, kubeconfig: &Path) -> Result<Self> {
        Self::serve(folder, LXCFS, "--kubeconfig", kubeconfig)
    }

    fn serve(folder: &Snapshot, (file, route): Guard, source: &str, path: &Path) -> Result<Self> {
        let [listen, admin, local] = [free_port()?, free_port()?, free_port()?];
        let child = Command::new("taskset")
            .args(["-c", SERVER_CORE])
            .arg(binary()?)
            .arg("serve")
            .arg("--config")
            .arg(folder.file(file))
            .arg(source)
            .arg(path)
            .args([
                "--bind-address",
                &listen.to_string(),
                "--metrics-bind-address",
                &admin.to_string(),
                "--debug-bind-address",
                &local.to_string(),
            ])
            .stdout(Stdio::null())
            .stderr(fs::File::create(folder.file("durward.log"))?)
            .spawn()?;
        let server = Self { child, address: listen, path: route };
        let deadline = Instant::now() + Duration::from_secs(10);
        while TcpStream::connect(listen).is_err() {
            if Instant::now() > deadline {
                let log = fs::read_to_string(folder.file("durward.log"))?;
                return Err(format!("durward did not listen on {listen} within 10 s:\n{log}").into());
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        Ok(server)
    }

    /// Returns the CPU time.
    pub(crate) fn cpu(&self) -> Result<Duration> {
        kernel::cpu(&self.child.id().to_string())
    }

    /// Returns the resident memory in MiB.
    pub(crate) fn resident(&self) -> Result<f64> {
        kernel::resident(&self.child.id().to_string())
    }

    /// Returns the peak resident memory in MiB.
    pub(crate) fn peak(&self) -> Result<f64> {
        kernel::peak(&self.child.id().to_string())
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // The child can have exited already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn free_port() -> Result<SocketAddr> {
    Ok(TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?.local_addr()?)
}

/// Returns the path of Durward.
pub(crate) fn binary() -> Result<PathBuf> {
    let binary = std::env::current_exe()?.with_file_name("durward");
    if Path::exists(&binary) {
        return Ok(binary);
    }
    Err(format!("{} does not exist: cargo build --profile dist -p durward", binary.display()).into())
}
