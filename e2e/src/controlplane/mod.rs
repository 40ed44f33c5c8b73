//! A control plane for one test or several: kube-apiserver with etcd, and controllers if wanted.
//!
//! There is no node: pods are created, changed by webhooks and stored, but never run. [`crate::node`] adds a node to a
//! control plane in a network of its own. One etcd serves all control planes of a run, each with a key prefix. Writes
//! are not synced and processes are killed, because all of it is temporary. An API server takes about 300 MB and
//! controllers take 100.

mod etcd;
mod location;
mod options;

use std::net::{IpAddr, Ipv4Addr};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result};
use serde_json::{Value, json};
use tokio::runtime::Runtime;

pub use etcd::Etcd;
pub(crate) use location::Location;
pub use options::Options;

use crate::api::Api;
use crate::binaries::Binary;
use crate::certificates::{self, Ca, Leaf};
use crate::console::print;
use crate::daemon::Daemon;
use crate::fixture::Undo;
use crate::kubectl::Kubectl;
use crate::metrics::Metrics;
use crate::namespace::Namespace;
use crate::supervisor::{Process, Supervisor, Tool};
use crate::wait::{Poll, eventually};

/// A case that installs Durward keeps the cluster until it ends; another one waits.
const TURN_WITHIN: Duration = Duration::from_secs(600);

/// The time until the API server has seen a role and a binding.
const PERMITTED_WITHIN: Duration = Duration::from_secs(30);

/// `ClusterIPs`, which are not routed.
const SERVICE_RANGE: &str = "10.0.0.0/24";

const TOKEN_ISSUER: &str = "https://kubernetes.default.svc.cluster.local";

/// A running control plane. It ends when its last owner drops it.
#[derive(Debug)]
pub struct Cluster {
    options: Options,
    supervisor: Arc<Supervisor>,
    runtime: Arc<Runtime>,
    directory: PathBuf,
    kubectl: PathBuf,
    place: Location,
    url: String,
    ca: Ca,
    admin_leaf: Leaf,
    admin: User,
    server: Daemon,
    controllers: Option<Process>,
    namespaces: AtomicU32,
    users: AtomicU32,
    installed: AtomicBool,
}

/// A user of the API server, with a client and kubectl.
#[derive(Debug, Clone)]
pub struct User {
    /// The client of this user.
    pub api: Api,
    /// The kubectl of this user.
    pub kubectl: Kubectl,
}

impl User {
    /// Waits until this user is allowed to read this path. The API server watches roles and bindings, and sees a new
    /// one with a delay.
    pub fn await_permitted(&self, path: &str) -> Result<()> {
        eventually(format_args!("{path} to be permitted"), PERMITTED_WITHIN, || {
            let answer = self.api.get(path)?;
            Ok(if answer.status == 403 {
                Poll::Pending(answer.message().to_owned())
            } else {
                Poll::Ready(())
            })
        })
    }
}

impl Cluster {
    /// Starts a control plane and returns when it is ready. Tests call [`crate::context::TestContext::cluster`].
    pub(crate) fn start(
        supervisor: &Arc<Supervisor>,
        runtime: &Arc<Runtime>,
        (place, etcd): (Location, &Etcd),
        options: &Options,
        number: u32,
    ) -> Result<Self> {
        let began = Instant::now();
        let directory = supervisor.work().join(format!("cluster-{number}-{}", options.name()));
        let kubectl = Binary::Kubectl.path(supervisor)?;
        let ca = Ca::new("e2e")?;
        let admin_leaf = ca.client("admin", Some("system:masters"))?;
        let pki = Pki::write(&directory, &ca, &place)?;
        let port = place.server_port()?;
        let url = format!("https://{}:{port}", place.address());
        let tool =
            Tool::new(format!("kube-apiserver-{}", options.name()), options.api_server().path(supervisor)?)
                .grace(Duration::ZERO)
                .arguments(server_flags(&pki, etcd, port, number))
                .arguments(place.server_flags(&directory, &ca)?)
                .arguments(options.server_flags(&directory)?);
        let config = certificates::kubeconfig(&url, &ca, &certificates::by_certificate(&admin_leaf));
        let path = certificates::write(&directory, "admin.kubeconfig", &config.to_string())?;
        let admin = User {
            api: Api::new(runtime, &config)?,
            kubectl: Kubectl::new(supervisor, kubectl.clone(), path),
        };
        let api = admin.api.clone();
        let server =
            Daemon::start(supervisor, place.tool(tool), move || api.get("/readyz")?.succeeded().map(drop))?;
        server.await_ready()?;
        let mut cluster = Self {
            options: options.clone(),
            supervisor: Arc::clone(supervisor),
            runtime: Arc::clone(runtime),
            directory,
            kubectl,
            place,
            url,
            ca,
            admin_leaf,
            admin,
            server,
            controllers: None,
            namespaces: AtomicU32::new(1),
            users: AtomicU32::new(1),
            installed: AtomicBool::new(false),
        };
        cluster.controllers = cluster.start_controllers(&pki)?;
        print(format_args!(
            "cluster {} is ready after {:.1} s",
            options.name(),
            began.elapsed().as_secs_f32()
        ));
        Ok(cluster)
    }

    /// Returns the client of an administrator (`system:masters`).
    pub fn api(&self) -> &Api {
        &self.admin.api
    }

    /// Returns the kubectl of an administrator.
    pub fn kubectl(&self) -> &Kubectl {
        &self.admin.kubectl
    }

    /// Returns the API server's URL for tests, `https://127.0.0.1:…` unless it is a node's.
    pub fn url(&self) -> &str {
        &self.url
    }

    /// Returns the address at which the API server reaches this host, for a webhook by URL.
    pub fn host(&self) -> Ipv4Addr {
        self.place.host()
    }

    /// Returns the API server's process id.
    pub fn pid(&self) -> i32 {
        self.server.pid()
    }

    /// Returns the controller-manager's process id, if it runs.
    pub fn controllers_pid(&self) -> Option<i32> {
        self.controllers.as_ref().map(Process::pid)
    }

    /// Returns the CA of its certificates, for a case that replaces its API server.
    pub fn ca(&self) -> &Ca {
        &self.ca
    }

    /// Freezes the API server (SIGSTOP) until the result is dropped. Requests to it block, also those of the case.
    pub fn freeze(&self) -> Result<Undo<'_>> {
        self.server.freeze()
    }

    /// Ends the API server until the result is dropped. It keeps its port and its data.
    pub fn stop(&self) -> Result<Undo<'_>> {
        self.server.stop()
    }

    /// Ends its processes, after the last case that uses it.
    pub fn end(&self) {
        let _ = self.controllers.as_ref().map(Process::end);
        let _ = self.server.end();
    }

    /// Makes a user of this name and group with a client certificate.
    pub fn certified(&self, name: &str, group: Option<&str>) -> Result<User> {
        self.user_by(&certificates::by_certificate(&self.ca.client(name, group)?))
    }

    /// Makes a user of this name and these groups, without permissions.
    pub fn user(&self, name: &str, groups: &[&str]) -> Result<User> {
        self.user_by(&certificates::impersonated(&self.admin_leaf, name, groups))
    }

    /// Returns an existing service account with a token that the API server issues, like a pod's.
    pub fn service_account(&self, namespace: &str, name: &str) -> Result<User> {
        let path = format!("/api/v1/namespaces/{namespace}/serviceaccounts/{name}/token");
        let request = json!({"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {}});
        let answer = self.api().create(&path, &request)?.succeeded()?;
        let token = answer.body["status"]["token"].as_str().context("a TokenRequest without a token")?;
        self.user_by(&certificates::by_token(token))
    }

    fn user_by(&self, user: &Value) -> Result<User> {
        let config = certificates::kubeconfig(&self.url, &self.ca, user);
        let number = self.users.fetch_add(1, Ordering::Relaxed);
        let path =
            certificates::write(&self.directory, &format!("user-{number}.kubeconfig"), &config.to_string())?;
        let kubectl = Kubectl::new(&self.supervisor, self.kubectl.clone(), path);
        Ok(User { api: Api::new(&self.runtime, &config)?, kubectl })
    }

    /// Makes a namespace of this name and a number. With controllers, it waits until pods can be created in it.
    pub fn namespace(&self, name: &str) -> Result<Namespace<'_>> {
        self.labelled_namespace(name, &[])
    }

    /// Does the same with labels.
    pub fn labelled_namespace(&self, name: &str, labels: &[(&str, &str)]) -> Result<Namespace<'_>> {
        let number = self.namespaces.fetch_add(1, Ordering::Relaxed);
        self.exact_namespace(&format!("{name}-{number}"), labels)
    }

    /// Does the same without waiting until pods can be created in it.
    pub fn namespace_without_account(&self, name: &str, labels: &[(&str, &str)]) -> Result<Namespace<'_>> {
        let number = self.namespaces.fetch_add(1, Ordering::Relaxed);
        Namespace::create(self, format!("{name}-{number}"), labels)
    }

    /// Makes a namespace of exactly this name, once in a cluster: `durward-system`.
    pub fn exact_namespace(&self, name: &str, labels: &[(&str, &str)]) -> Result<Namespace<'_>> {
        let namespace = Namespace::create(self, name.to_owned(), labels)?;
        if self.options.makes_accounts() {
            namespace.await_account()?;
        }
        Ok(namespace)
    }

    /// Makes a namespace of exactly this name, unless it exists.
    pub fn ensure_namespace(&self, name: &str) -> Result<()> {
        let object = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}});
        let answer = self.api().create("/api/v1/namespaces", &object)?;
        if answer.status != 409 {
            answer.succeeded()?;
        }
        Ok(())
    }

    /// Returns the API server's current metrics.
    pub fn metrics(&self) -> Result<Metrics> {
        Metrics::parse(&self.admin.api.text("/metrics")?)
    }

    /// Takes the turn to install Durward here. Unlike a lock's guard, it can move to another thread, as that of a
    /// shared installation does.
    pub(crate) fn turn(&self) -> Result<Turn<'_>> {
        let what = "the installation of another case on the same cluster to end (or of the same case: one at a time)";
        eventually(what, TURN_WITHIN, || {
            let free = self.installed.compare_exchange(false, true, Ordering::AcqRel, Ordering::Acquire);
            Ok(match free {
                Ok(_) => Poll::Ready(Turn(&self.installed)),
                Err(_) => Poll::Pending("it stands".to_owned()),
            })
        })
    }

    /// Returns an error with the end of the API server's log.
    pub fn failure(&self, what: impl std::fmt::Display) -> anyhow::Error {
        self.server.failure(what)
    }

    fn start_controllers(&self, pki: &Pki) -> Result<Option<Process>> {
        let Some(controllers) = self.options.controllers() else { return Ok(None) };
        let leaf = self.ca.client("system:kube-controller-manager", None)?;
        let config = certificates::kubeconfig(&self.url, &self.ca, &certificates::by_certificate(&leaf));
        let path = certificates::write(&self.directory, "controllers.kubeconfig", &config.to_string())?;
        let signing = certificates::write(&self.directory, "signing.key", &self.ca.key_pem())?;
        let name = format!("kube-controller-manager-{}", self.options.name());
        let tool = Tool::new(name, Binary::ControllerManager.path(&self.supervisor)?)
            .grace(Duration::ZERO)
            .flag("kubeconfig", path.display())
            .flag("controllers", controllers)
            .flag("use-service-account-credentials", true)
            .flag("service-account-private-key-file", pki.token_private.display())
            .flag("root-ca-file", pki.ca.display())
            .flag("cluster-signing-cert-file", pki.ca.display())
            .flag("cluster-signing-key-file", signing.display())
            .flag("leader-elect", false)
            .flag("secure-port", 0)
            // The default is a directory of this host, which the controller-manager would make.
            .flag("flex-volume-plugin-dir", self.directory.join("volume-plugins").display())
            .arguments(self.options.controller_flags().iter().cloned())
            // The defaults of 20 and 30 make it start four seconds later.
            .flag("kube-api-qps", 200)
            .flag("kube-api-burst", 400);
        self.supervisor.start_process(self.place.tool(tool)).map(Some)
    }
}

/// The turn to install Durward in a cluster. It ends when this is dropped.
#[derive(Debug)]
#[must_use = "the turn is over when this is dropped"]
pub(crate) struct Turn<'a>(&'a AtomicBool);

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        self.0.store(false, Ordering::Release);
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        self.end();
    }
}

/// The files that the API server and the controllers share.
struct Pki {
    ca: PathBuf,
    server: (PathBuf, PathBuf),
    token_private: PathBuf,
    token_public: PathBuf,
}

impl Pki {
    fn write(directory: &Path, ca: &Ca, place: &Location) -> Result<Self> {
        let names = [
            "localhost",
            "kubernetes",
            "kubernetes.default",
            "kubernetes.default.svc",
            "kubernetes.default.svc.cluster.local",
        ];
        let addresses = [Ipv4Addr::LOCALHOST, Ipv4Addr::new(10, 0, 0, 1), place.address()];
        let server = ca.server(&names, &addresses.map(IpAddr::from))?;
        let (private, public) = certificates::token_key()?;
        Ok(Self {
            ca: certificates::write(directory, "ca.crt", &ca.pem())?,
            server: server.write(directory, "apiserver")?,
            token_private: certificates::write(directory, "tokens.key", &private)?,
            token_public: certificates::write(directory, "tokens.pub", &public)?,
        })
    }
}

fn server_flags(pki: &Pki, etcd: &Etcd, port: u16, number: u32) -> Vec<String> {
    let (certificate, key) = &pki.server;
    vec![
        format!("--etcd-servers={}", etcd.url()),
        format!("--etcd-prefix=/cluster-{number}"),
        format!("--secure-port={port}"),
        format!("--service-cluster-ip-range={SERVICE_RANGE}"),
        format!("--tls-cert-file={}", certificate.display()),
        format!("--tls-private-key-file={}", key.display()),
        format!("--client-ca-file={}", pki.ca.display()),
        "--anonymous-auth=false".to_owned(),
        "--allow-privileged=true".to_owned(),
        format!("--service-account-issuer={TOKEN_ISSUER}"),
        format!("--service-account-key-file={}", pki.token_public.display()),
        format!("--service-account-signing-key-file={}", pki.token_private.display()),
    ]
}
