//! Runs the binary and talks to it.

use std::ffi::OsString;
use std::fs::{self, Permissions};
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::{Arc, LazyLock, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::{ClientConfig, ClientConnection, RootCertStore, StreamOwned};
use serde_json::Value;
use tempfile::TempDir;

/// Longer than any step takes on a busy machine.
const TIMEOUT: Duration = Duration::from_secs(30);

/// The result of a run.
pub(crate) struct Run {
    pub(crate) code: i32,
    pub(crate) out: String,
    pub(crate) err: String,
}

impl Run {
    pub(crate) fn json(&self) -> Value {
        serde_json::from_str(&self.out).unwrap_or_else(|error| panic!("{error}: {}", self.out))
    }
}

/// Runs `durward` with these arguments in a directory.
pub(crate) fn durward_in(directory: &Path, arguments: &[&str], input: &str) -> Run {
    let mut child =
        command(directory, arguments).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    // A command that does not read its input closes it.
    let _ = child.stdin.take().unwrap().write_all(input.as_bytes());
    let output = child.wait_with_output().unwrap();
    Run {
        code: output.status.code().unwrap_or(-1),
        out: String::from_utf8(output.stdout).unwrap(),
        err: String::from_utf8(output.stderr).unwrap(),
    }
}

/// Runs `durward` with these arguments at the root of the repository.
pub(crate) fn durward(arguments: &[&str]) -> Run {
    durward_in(&root(), arguments, "")
}

pub(crate) fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../..").canonicalize().unwrap()
}

/// Starts an API server of plain HTTP that answers each request for a path with a status and a body. It ends with the process.
/// Returns its address, and a kubeconfig for it.
pub(crate) fn api_server(
    answer: impl Fn(&str) -> (u16, String) + Send + Sync + 'static,
) -> (SocketAddr, String) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let answer = Arc::new(answer);
    thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            let answer = Arc::clone(&answer);
            thread::spawn(move || {
                let mut requests = BufReader::new(stream);
                let mut line = String::new();
                while requests.read_line(&mut line).is_ok_and(|bytes| bytes > 0) {
                    let path = line.split(' ').nth(1).unwrap().to_owned();
                    while requests.read_line(&mut line).is_ok_and(|bytes| bytes > 2) {}
                    line.clear();
                    let (status, body) = answer(&path);
                    let format = if body.starts_with('{') { "application/json" } else { "text/plain" };
                    let head = format!(
                        "HTTP/1.1 {status} Answer\r\nContent-Type: {format}\r\nContent-Length: {}\r\n\r\n",
                        body.len()
                    );
                    // The command may have ended.
                    let _ = requests.get_mut().write_all((head + &body).as_bytes());
                }
            });
        }
    });
    let kubeconfig = format!(
        "apiVersion: v1\nkind: Config\ncurrent-context: a\nclusters: [{{name: c, cluster: {{server: 'http://{address}'}}}}]\ncontexts: [{{name: a, context: {{cluster: c, user: ''}}}}]\n"
    );
    (address, kubeconfig)
}

/// Copies a directory.
pub(crate) fn copy(from: &Path, to: &Path) {
    fs::create_dir_all(to).unwrap();
    for entry in fs::read_dir(from).unwrap() {
        let entry = entry.unwrap();
        let to = to.join(entry.file_name());
        if entry.file_type().unwrap().is_dir() {
            copy(&entry.path(), &to);
        } else {
            fs::copy(entry.path(), to).unwrap();
        }
    }
}

pub(crate) fn command(directory: &Path, arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_durward"));
    command.args(arguments).current_dir(directory).stderr(Stdio::piped());
    // The cluster of this machine must not be read.
    for name in ["KUBECONFIG", "KUBERNETES_SERVICE_HOST", "KUBERNETES_SERVICE_PORT", "GITHUB_ACTIONS"] {
        command.env_remove(name);
    }
    command.env("HOME", directory);
    command
}

/// The files that `certs new` writes: name, contents and permissions. All tests share them.
static CERTIFICATES: LazyLock<Vec<(OsString, Vec<u8>, Permissions)>> = LazyLock::new(|| {
    let directory = tempfile::tempdir().unwrap();
    let line = "certs new --out . --address 127.0.0.1 --service durward.durward-system";
    let made = durward_in(directory.path(), &line.split(' ').collect::<Vec<_>>(), "");
    assert_eq!(made.code, 0, "{}", made.err);
    let entries = fs::read_dir(directory.path()).unwrap().map(Result::unwrap);
    entries
        .map(|entry| {
            let permissions = entry.metadata().unwrap().permissions();
            (entry.file_name(), fs::read(entry.path()).unwrap(), permissions)
        })
        .collect()
});

/// A directory with certificates, a snapshot and a configuration that serves on free ports.
pub(crate) struct TestDir(pub(crate) TempDir);

impl TestDir {
    pub(crate) fn new() -> Self {
        let dir = Self(tempfile::tempdir().unwrap());
        for (name, contents, permissions) in &*CERTIFICATES {
            fs::write(dir.path().join(name), contents).unwrap();
            fs::set_permissions(dir.path().join(name), permissions.clone()).unwrap();
        }
        copy(&root().join("examples/lxcfs/healthy"), &dir.path().join("snapshot"));
        copy(&root().join("examples/lxcfs/unreachable"), &dir.path().join("blind"));
        dir.configure("  lxcfs: {}\n");
        dir
    }

    pub(crate) fn path(&self) -> &Path {
        self.0.path()
    }

    pub(crate) fn write(&self, name: &str, text: &str) {
        let path = self.path().join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }

    /// Writes `durward.yaml` with these guards.
    pub(crate) fn configure(&self, guards: &str) {
        self.write("durward.yaml", &Self::configuration("shutdown: {delay: 0s}", guards));
    }

    pub(crate) fn configuration(server: &str, guards: &str) -> String {
        format!(
            "apiVersion: durward.dev/v1alpha1\nkind: Configuration\nserver:\n  bindAddress: 127.0.0.1:0\n  metricsBindAddress: 127.0.0.1:0\n  \
             tls: {{files: {{cert: tls.crt, key: tls.key, ca: ca.crt}}}}\n  {server}\nguards:\n{guards}"
        )
    }

    pub(crate) fn run(&self, arguments: &[&str]) -> Run {
        durward_in(self.path(), arguments, "")
    }

    /// Starts `serve` and waits until it is ready.
    pub(crate) fn serve(&self, more: &[&str]) -> Serving {
        let mut arguments = vec!["serve", "--config", "durward.yaml", "--snapshot", "snapshot"];
        arguments.extend(more);
        Serving::start(self.path(), &arguments)
    }
}

/// A running server, killed on drop.
pub(crate) struct Serving {
    child: Child,
    lines: Arc<Mutex<Vec<String>>>,
    authority: PathBuf,
    pub(crate) webhook: SocketAddr,
    pub(crate) metrics: SocketAddr,
}

impl Serving {
    /// Starts a process that might never serve.
    pub(crate) fn begun(directory: &Path, arguments: &[&str]) -> Self {
        let mut child =
            command(directory, arguments).stdin(Stdio::null()).stdout(Stdio::null()).spawn().unwrap();
        let lines = Arc::new(Mutex::new(Vec::new()));
        let (reader, kept) = (BufReader::new(child.stderr.take().unwrap()), Arc::clone(&lines));
        thread::spawn(move || {
            reader.lines().map_while(Result::ok).for_each(|line| kept.lock().unwrap().push(line));
        });
        let nowhere: SocketAddr = ([127, 0, 0, 1], 0).into();
        Self { child, lines, authority: directory.join("ca.crt"), webhook: nowhere, metrics: nowhere }
    }

    /// Starts `serve` with these arguments, and waits until it is ready.
    pub(crate) fn start(directory: &Path, arguments: &[&str]) -> Self {
        let mut serving = Self::begun(directory, arguments);
        for name in ["webhook", "metrics"] {
            let at = serving.wait_for_log(|line| line["message"] == "listening" && line["listener"] == name);
            let address = at["address"].as_str().unwrap().parse().unwrap();
            match name {
                "webhook" => serving.webhook = address,
                _ => serving.metrics = address,
            }
        }
        serving
            .wait_until("it is ready", || Self::get(serving.metrics, "/readyz").starts_with("HTTP/1.1 200"));
        serving
    }

    /// Returns the lines of standard error so far.
    pub(crate) fn lines(&self) -> Vec<String> {
        self.lines.lock().unwrap().clone()
    }

    pub(crate) fn log(&self) -> Vec<Value> {
        let lines = self.lines();
        lines
            .iter()
            .map(|line| serde_json::from_str(line).unwrap_or_else(|_| panic!("no JSON: {line}")))
            .collect()
    }

    pub(crate) fn wait_for_log(&self, is_it: impl Fn(&Value) -> bool) -> Value {
        let mut found = None;
        self.wait_until("the log says it", || {
            found = self.log().into_iter().find(|line| is_it(line));
            found.is_some()
        });
        found.unwrap()
    }

    pub(crate) fn wait_until(&self, what: &str, mut holds: impl FnMut() -> bool) {
        let began = Instant::now();
        while !holds() {
            assert!(
                began.elapsed() < TIMEOUT,
                "not within {TIMEOUT:?}: {what}\n{:#?}",
                self.lines.lock().unwrap()
            );
            thread::sleep(Duration::from_millis(20));
        }
    }

    pub(crate) fn signal(&self, signal: Signal) {
        let pid = Pid::from_raw(i32::try_from(self.child.id()).unwrap()).unwrap();
        kill_process(pid, signal).unwrap();
    }

    pub(crate) fn wait(&mut self) -> ExitStatus {
        let began = Instant::now();
        loop {
            if let Some(status) = self.child.try_wait().unwrap() {
                return status;
            }
            assert!(began.elapsed() < TIMEOUT, "it does not end");
            thread::sleep(Duration::from_millis(20));
        }
    }

    /// Sends a plain request and returns the answer as text; empty if there is none.
    pub(crate) fn get(address: SocketAddr, path: &str) -> String {
        Self::plain(address, &format!("GET {path} HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n"))
    }

    pub(crate) fn plain(address: SocketAddr, request: &str) -> String {
        let mut answer = String::new();
        if let Ok(mut stream) = TcpStream::connect(address) {
            stream.set_read_timeout(Some(TIMEOUT)).unwrap();
            let _ = stream.write_all(request.as_bytes());
            let _ = stream.read_to_string(&mut answer);
        }
        answer
    }

    /// Returns the value of the metric whose line has this prefix.
    pub(crate) fn metric(&self, begin: &str) -> Option<f64> {
        let text = Self::get(self.metrics, "/metrics");
        let line = text.lines().find(|line| line.starts_with(begin))?;
        line.rsplit(' ').next()?.parse().ok()
    }

    pub(crate) fn client(&self) -> Client {
        let mut roots = RootCertStore::empty();
        roots.add(CertificateDer::from_pem_file(&self.authority).unwrap()).unwrap();
        let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
        let config = ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_root_certificates(roots)
            .with_no_client_auth();
        let name = ServerName::from(self.webhook.ip());
        let tcp = TcpStream::connect(self.webhook).unwrap();
        tcp.set_read_timeout(Some(TIMEOUT)).unwrap();
        tcp.set_nodelay(true).unwrap();
        Client(BufReader::new(StreamOwned::new(ClientConnection::new(Arc::new(config), name).unwrap(), tcp)))
    }
}

impl Drop for Serving {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A kept connection.
pub(crate) struct Client(BufReader<StreamOwned<ClientConnection, TcpStream>>);

impl Client {
    /// Posts a review and returns status and answer.
    pub(crate) fn ask(&mut self, path: &str, body: &str) -> (u16, Value) {
        let request = format!(
            "POST {path}?timeout=10s HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\ncontent-length: {}\r\n\r\n{body}",
            body.len()
        );
        self.0.get_mut().write_all(request.as_bytes()).unwrap();
        let (mut status, mut length) = (0, 0);
        loop {
            let mut line = String::new();
            assert!(self.0.read_line(&mut line).unwrap() > 0, "the server closed the connection");
            let line = line.trim_end().to_ascii_lowercase();
            if let Some(rest) = line.strip_prefix("http/1.1 ") {
                status = rest[..3].parse().unwrap();
            } else if let Some(rest) = line.strip_prefix("content-length: ") {
                length = rest.parse().unwrap();
            } else if line.is_empty() {
                break;
            }
        }
        let mut body = vec![0; length];
        self.0.read_exact(&mut body).unwrap();
        (status, serde_json::from_slice(&body).unwrap_or(Value::Null))
    }
}

/// A review from the examples.
pub(crate) fn example(name: &str) -> String {
    fs::read_to_string(root().join("examples/lxcfs/reviews").join(name)).unwrap()
}
