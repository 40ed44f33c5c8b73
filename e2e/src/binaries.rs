//! The binaries that the tests start, built once from pinned sources. [`crate::parts`] builds them before the first case.
//!
//! A binary is a `tool` dependency of a Go module in `e2e/controlplane`. `CoreDNS` and cert-manager are programs of these modules:
//! the main function of `CoreDNS` selects plugins, and no module proxy has those of cert-manager. A binary is stored in the cache,
//! in a directory named after everything that it is made of (the module's pins, the Go version, the flags). A stale binary is
//! never used, and two pins can coexist.
//! `e2e/controlplane/README.md` says how to change a pin.
//!
//! Without `gitVersion` at link time the API server is v0.0.0, and some of its start-up checks fail. The version comes from
//! the module's `require` line.

use std::fmt::Write as _;
use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, Result, bail};
use sha2::{Digest as _, Sha256};

use crate::supervisor::{Supervisor, Tool};

/// Without Go's build cache kube-apiserver takes four minutes on two idle cores; a loaded machine takes longer.
const BUILD_WITHIN: Duration = Duration::from_secs(3_600);

const NO_GO: &str = "the end-to-end tests build Kubernetes and etcd from source and need `go`, which is not in PATH. \
     Install Go 1.26 or newer (https://go.dev/dl, or your distribution's package golang) and run again";

const KUBERNETES: &str = "k8s.io/kubernetes";

/// A program that is built from source.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Binary {
    /// etcd 3.6.
    Etcd,
    /// etcd 3.5.
    Etcd35,
    /// etcd 3.7.
    Etcd37,
    /// etcdctl 3.5, the last one with etcd's API v2, which older manifests use.
    Etcdctl35,
    /// etcdctl 3.6.
    Etcdctl,
    /// kube-apiserver.
    ApiServer,
    /// kube-apiserver 1.31.
    ApiServer131,
    /// kube-apiserver 1.33.
    ApiServer133,
    /// kube-apiserver 1.37.
    ApiServer137,
    /// kube-controller-manager.
    ControllerManager,
    /// kube-scheduler.
    Scheduler,
    /// kubectl.
    Kubectl,
    /// kubelet.
    Kubelet,
    /// `CoreDNS` with few plugins.
    CoreDns,
    /// karmada-aggregated-apiserver: the API of Clusters, and the proxy to them.
    KarmadaAggregated,
    /// karmada-controller-manager.
    KarmadaControllers,
    /// karmada-webhook.
    KarmadaWebhook,
    /// karmada-scheduler.
    KarmadaScheduler,
    /// karmada-agent, for pull members.
    KarmadaAgent,
    /// karmadactl.
    Karmadactl,
    /// helm.
    Helm,
    /// cert-manager's controllers and its cainjector.
    CertManager,
    /// jv, which validates JSON against a JSON schema.
    Jv,
}

/// The source of the API server of one Kubernetes version.
macro_rules! api_server {
    ($module:literal) => {
        ("kube-apiserver", $module, "k8s.io/kubernetes/cmd/kube-apiserver")
    };
}

/// The environment variable with the release of Karmada in a run: `1.16`, the default, or `1.18`.
pub const KARMADA_RELEASE: &str = "DURWARD_E2E_KARMADA";

/// Returns the Go module of Karmada. The start of a fleet compares the release with its version.
fn karmada_module() -> &'static str {
    if std::env::var_os(KARMADA_RELEASE).is_some_and(|release| release == "1.18") {
        "karmada118"
    } else {
        "karmada"
    }
}

/// The source of one of Karmada's binaries.
macro_rules! karmada {
    ($name:literal, $command:literal) => {
        ($name, karmada_module(), concat!("github.com/karmada-io/karmada/cmd/", $command))
    };
}

impl Binary {
    /// All binaries.
    pub const ALL: [Self; 23] = [
        Self::Etcd,
        Self::Etcd35,
        Self::Etcd37,
        Self::Etcdctl35,
        Self::Etcdctl,
        Self::ApiServer,
        Self::ApiServer131,
        Self::ApiServer133,
        Self::ApiServer137,
        Self::ControllerManager,
        Self::Scheduler,
        Self::Kubectl,
        Self::Kubelet,
        Self::CoreDns,
        Self::KarmadaAggregated,
        Self::KarmadaControllers,
        Self::KarmadaWebhook,
        Self::KarmadaScheduler,
        Self::KarmadaAgent,
        Self::Karmadactl,
        Self::Helm,
        Self::CertManager,
        Self::Jv,
    ];

    /// Returns the program's name.
    pub fn name(self) -> &'static str {
        self.source().0
    }

    /// Returns the program's name, the Go module's directory in `e2e/controlplane`, and the Go package of the main function.
    fn source(self) -> (&'static str, &'static str, &'static str) {
        match self {
            Self::Etcd => ("etcd", "etcd", "go.etcd.io/etcd/server/v3"),
            Self::Etcd35 => ("etcd", "etcd35", "go.etcd.io/etcd/server/v3"),
            Self::Etcd37 => ("etcd", "etcd37", "go.etcd.io/etcd/server/v3"),
            Self::Etcdctl => ("etcdctl", "etcd", "go.etcd.io/etcd/etcdctl/v3"),
            Self::Etcdctl35 => ("etcdctl", "etcd35", "go.etcd.io/etcd/etcdctl/v3"),
            Self::ApiServer => api_server!("kubernetes"),
            Self::ApiServer131 => api_server!("kubernetes131"),
            Self::ApiServer133 => api_server!("kubernetes133"),
            Self::ApiServer137 => api_server!("kubernetes137"),
            Self::ControllerManager => {
                ("kube-controller-manager", "kubernetes", "k8s.io/kubernetes/cmd/kube-controller-manager")
            }
            Self::Scheduler => ("kube-scheduler", "kubernetes", "k8s.io/kubernetes/cmd/kube-scheduler"),
            Self::Kubectl => ("kubectl", "kubernetes", "k8s.io/kubernetes/cmd/kubectl"),
            Self::Kubelet => ("kubelet", "kubernetes", "k8s.io/kubernetes/cmd/kubelet"),
            Self::CoreDns => ("coredns", "kubernetes", "durward.dev/e2e/controlplane/kubernetes/coredns"),
            Self::KarmadaAggregated => karmada!("karmada-aggregated-apiserver", "aggregated-apiserver"),
            Self::KarmadaControllers => karmada!("karmada-controller-manager", "controller-manager"),
            Self::KarmadaWebhook => karmada!("karmada-webhook", "webhook"),
            Self::KarmadaScheduler => karmada!("karmada-scheduler", "scheduler"),
            Self::KarmadaAgent => karmada!("karmada-agent", "agent"),
            Self::Karmadactl => karmada!("karmadactl", "karmadactl"),
            Self::Helm => ("helm", "kubernetes", "helm.sh/helm/v3/cmd/helm"),
            Self::Jv => ("jv", "jv", "github.com/santhosh-tekuri/jsonschema/cmd/jv"),
            Self::CertManager => ("certmanager", "certmanager", "durward.dev/e2e/controlplane/certmanager"),
        }
    }

    fn package(self) -> &'static str {
        self.source().2
    }

    /// Returns the Go module's directory in `e2e/controlplane`.
    pub(crate) fn module(self) -> &'static str {
        self.source().1
    }

    /// Returns the Go module that carries the version.
    fn upstream(self) -> &'static str {
        match (self, self.module()) {
            (Self::CoreDns, _) => "github.com/coredns/coredns",
            (Self::Helm, _) => "helm.sh/helm/v3",
            (_, "etcd" | "etcd35" | "etcd37") => "go.etcd.io/etcd/server/v3",
            (_, "kubernetes" | "kubernetes131" | "kubernetes133" | "kubernetes137") => KUBERNETES,
            (_, "jv") => "github.com/santhosh-tekuri/jsonschema/cmd/jv",
            (_, "certmanager") => "github.com/cert-manager/cert-manager",
            _ => "github.com/karmada-io/karmada",
        }
    }

    /// Returns the pinned version, `v1.35.4`.
    pub fn version(self) -> Result<String> {
        Module::read(self.module())?.version(self.upstream())
    }

    /// Returns the directory of its sources, which contain manifests too. Downloads them if they are not in Go's module cache.
    pub fn sources(self, supervisor: &Arc<Supervisor>) -> Result<PathBuf> {
        let module = Module::read(self.module())?;
        let go = Tool::new("go-mod-download", "go").directory(&module.directory).arguments([
            "mod",
            "download",
            "-json",
            self.upstream(),
        ]);
        let output = supervisor.run(go, BUILD_WITHIN)?.succeeded();
        let output = output.with_context(|| format!("cannot fetch the sources of {}", self.upstream()))?;
        let printed: serde_json::Value =
            serde_json::from_str(&output.stdout).context("the output of go mod download")?;
        let directory = printed["Dir"].as_str().map(PathBuf::from);
        directory.with_context(|| format!("go mod download: no directory of {}: {printed}", self.upstream()))
    }

    /// Returns its path. Builds it first if it is not in the cache, which can take minutes.
    pub fn path(self, supervisor: &Arc<Supervisor>) -> Result<PathBuf> {
        if let Some(path) = self.cached()? {
            return Ok(path);
        }
        build(&[self], supervisor)?;
        self.cached()?.with_context(|| format!("go build made no {}", self.name()))
    }

    /// Returns its path if it is in the cache.
    pub(crate) fn cached(self) -> Result<Option<PathBuf>> {
        let path = Module::read(self.module())?.directory_in_cache()?.join(self.name());
        Ok(path.is_file().then_some(path))
    }

    /// Returns the name that `go build` gives the program: the last element of its package without the major version.
    fn built_name(self) -> &'static str {
        let is_version = |name: &&str| name.strip_prefix('v').is_some_and(|rest| rest.parse::<u32>().is_ok());
        self.package().rsplit('/').find(|name| !is_version(name)).unwrap_or_default()
    }
}

/// Builds programs of one Go module into the cache.
pub(crate) fn build(binaries: &[Binary], supervisor: &Arc<Supervisor>) -> Result<()> {
    let Some(first) = binaries.first() else { return Ok(()) };
    let module = Module::read(first.module())?;
    let directory = module.directory_in_cache()?;
    std::fs::create_dir_all(&directory).with_context(|| format!("cannot make {}", directory.display()))?;
    // If another run builds the same programs, this waits for it. The kernel releases the lock with the process.
    let lock = File::create(directory.join("lock")).context("cannot make the lock of the parts' cache")?;
    lock.lock().context("cannot lock the parts' cache")?;
    let mut missing = Vec::new();
    for binary in binaries {
        if binary.cached()?.is_none() {
            missing.push(*binary);
        }
    }
    if missing.is_empty() {
        return Ok(());
    }
    // Renamed into place when they are complete.
    let unfinished = directory.join("unfinished");
    std::fs::create_dir_all(&unfinished)?;
    let go = Tool::new(format!("go-build-{}", first.module()), "go")
        .directory(&module.directory)
        .environment("CGO_ENABLED", "0")
        // An interrupted build leaves its temporary directory behind; the work directory is removed with the run.
        .environment("GOTMPDIR", supervisor.work().display().to_string())
        .arguments(["build", "-trimpath", "-buildvcs=false", "-ldflags", &ldflags(&module)?, "-o"])
        .argument(format!("{}/", unfinished.display()))
        .arguments(missing.iter().map(|binary| binary.package()));
    let output = supervisor.run(go, BUILD_WITHIN).and_then(crate::supervisor::Output::succeeded);
    output.with_context(|| format!("cannot build {missing:?} in {}", module.directory.display()))?;
    for binary in missing {
        std::fs::rename(unfinished.join(binary.built_name()), directory.join(binary.name()))
            .with_context(|| format!("cannot move {} into place", binary.name()))?;
    }
    Ok(())
}

/// Returns the linker's flags for the programs of a module: no symbols, and the versions that Kubernetes and Helm report. Go ignores
/// a flag for a package that a program doesn't have. Without the version of Kubernetes, `helm template` and `helm lint` assume
/// 1.20. Upstream's Makefile takes it from client-go.
fn ldflags(module: &Module) -> Result<String> {
    let mut flags = "-s -w".to_owned();
    let Ok(version) = module.version(KUBERNETES) else { return Ok(flags) };
    let mut numbers = version.trim_start_matches('v').split('.');
    let (Some(major), Some(minor)) = (numbers.next(), numbers.next()) else {
        bail!("{version} in {} is not a version of Kubernetes", module.directory.display());
    };
    let at = "k8s.io/component-base/version";
    write!(flags, " -X {at}.gitVersion={version} -X {at}.gitMajor={major} -X {at}.gitMinor={minor}")?;
    if let Ok(helm) = module.version("helm.sh/helm/v3") {
        write!(flags, " -X helm.sh/helm/v3/internal/version.version={helm}")?;
        for package in ["pkg/chartutil", "pkg/lint/rules"] {
            let at = format!("helm.sh/helm/v3/{package}.k8sVersion");
            write!(flags, " -X {at}Major={major} -X {at}Minor={minor}")?;
        }
    }
    Ok(flags)
}

/// A Go module that pins binaries.
struct Module {
    directory: PathBuf,
    requirements: String,
    sums: String,
    /// The sources of the module's own programs, or empty.
    program: String,
}

impl Module {
    fn read(name: &str) -> Result<Self> {
        let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("controlplane").join(name);
        let read = |file: &str| {
            let path = directory.join(file);
            std::fs::read_to_string(&path).with_context(|| format!("cannot read {}", path.display()))
        };
        let mut program = String::new();
        for own in ["main.go", "coredns/main.go"] {
            if directory.join(own).is_file() {
                program += &read(own)?;
            }
        }
        Ok(Self {
            requirements: read("go.mod")?,
            sums: read("go.sum")?,
            program,
            directory: directory.clone(),
        })
    }

    /// Returns the version of a required module.
    fn version(&self, required: &str) -> Result<String> {
        self.requirements
            .lines()
            .find_map(|line| {
                let mut words = line.trim().trim_start_matches("require ").split_ascii_whitespace();
                (words.next() == Some(required)).then(|| words.next()).flatten()
            })
            .filter(|version| version.starts_with('v'))
            .map(ToOwned::to_owned)
            .with_context(|| {
                format!("no version of {required} is required in {}/go.mod", self.directory.display())
            })
    }

    /// Returns the directory of its programs in the cache.
    fn directory_in_cache(&self) -> Result<PathBuf> {
        let name = self.directory.file_name().unwrap_or_default().display().to_string();
        Ok(cache()?.join("parts").join(format!("{name}-{}", self.key(&go_version()?))))
    }

    /// Returns a digest of everything that a binary of this module is made of.
    fn key(&self, go: &str) -> String {
        let mut hash = Sha256::new();
        // The recipe's number changes with `Binary::build`.
        let program = (!self.program.is_empty()).then_some(self.program.as_str());
        for ingredient in ["recipe 1", &self.requirements, &self.sums, go].into_iter().chain(program) {
            hash.update(ingredient.len().to_le_bytes());
            hash.update(ingredient);
        }
        hash.finalize().iter().take(8).fold(String::new(), |key, byte| key + &format!("{byte:02x}"))
    }
}

/// Returns Go's version and platform: `go version go1.26.8 linux/amd64`.
fn go_version() -> Result<String> {
    let output = match Command::new("go").arg("version").output() {
        Ok(output) => output,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => bail!(NO_GO),
        Err(error) => return Err(error).context("cannot run `go version`"),
    };
    if !output.status.success() {
        bail!("`go version` fails: {}", String::from_utf8_lossy(&output.stderr).trim());
    }
    Ok(String::from_utf8_lossy(&output.stdout).trim().to_owned())
}

/// Returns the directory that outlives runs, with binaries, images and the logs of runs that did not pass.
pub fn cache() -> Result<PathBuf> {
    let from =
        |variable: &str| std::env::var_os(variable).filter(|value| !value.is_empty()).map(PathBuf::from);
    let cache = from("DURWARD_E2E_CACHE")
        .or_else(|| from("XDG_CACHE_HOME").map(|cache| cache.join("durward")))
        .or_else(|| from("HOME").map(|home| home.join(".cache").join("durward")))
        .context("the end-to-end tests need a cache directory: set DURWARD_E2E_CACHE (HOME is not set)")?;
    // Processes have other working directories, where a relative path would name another place.
    std::path::absolute(&cache).with_context(|| format!("{} is not a path", cache.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn module(requirements: &str, sums: &str) -> Module {
        Module {
            directory: "there".into(),
            requirements: requirements.to_owned(),
            sums: sums.to_owned(),
            program: String::new(),
        }
    }

    #[test]
    fn keys_the_cache_by_pins_sums_program_and_go_version() {
        let key = module("a", "b").key("go1");
        assert_eq!(key, module("a", "b").key("go1"));
        let program = Module { program: "package main".to_owned(), ..module("a", "b") };
        let others = [module("a2", "b"), module("a", "b2"), module("ab", ""), program];
        assert!(others.iter().all(|other| other.key("go1") != key));
        assert_ne!(key, module("a", "b").key("go2"));
    }

    #[test]
    fn reads_the_version_of_a_single_and_of_a_grouped_requirement() {
        let one = module("module m\n\nrequire k8s.io/kubernetes v1.35.4 // indirect\n", "");
        assert_eq!(one.version("k8s.io/kubernetes").unwrap(), "v1.35.4");
        let many =
            module("require (\n\tk8s.io/api v0.35.4 // indirect\n\tk8s.io/kubernetes v1.35.4\n)\n", "");
        assert_eq!(many.version("k8s.io/kubernetes").unwrap(), "v1.35.4");
        let none = module("tool (\n\tk8s.io/kubernetes/cmd/kubectl\n)\n", "");
        assert!(none.version("k8s.io/kubernetes").is_err());
    }

    #[test]
    fn every_binary_is_pinned_and_is_a_tool_or_the_program_of_its_module() {
        for binary in Binary::ALL {
            binary.version().unwrap();
            let module = Module::read(binary.module()).unwrap();
            let is = |line: &str, word: &str| line.trim().trim_start_matches(word) == binary.package();
            let is_tool = module.requirements.lines().any(|line| is(line, "tool "));
            let own = module.requirements.lines().find_map(|line| line.strip_prefix("module "));
            let is_own = own.is_some_and(|own| binary.package().starts_with(own));
            assert!(is_tool || (is_own && !module.program.is_empty()), "{binary:?}");
        }
    }

    #[test]
    fn a_program_is_built_under_the_last_name_of_its_package() {
        let names =
            [Binary::Etcd, Binary::Helm, Binary::KarmadaAgent, Binary::CoreDns].map(Binary::built_name);
        assert_eq!(names, ["server", "helm", "agent", "coredns"]);
    }

    #[test]
    fn links_the_versions_of_kubernetes_and_helm() {
        assert_eq!(ldflags(&module("", "")).unwrap(), "-s -w");
        let kubernetes = "require k8s.io/kubernetes v1.35.4";
        let flags = ldflags(&module(kubernetes, "")).unwrap();
        assert!(flags.ends_with("version.gitVersion=v1.35.4 -X k8s.io/component-base/version.gitMajor=1 -X k8s.io/component-base/version.gitMinor=35"), "{flags}");
        let flags = ldflags(&module(&format!("{kubernetes}\nrequire helm.sh/helm/v3 v3.20.2"), "")).unwrap();
        assert!(
            flags.contains("version.version=v3.20.2 ") && flags.ends_with("rules.k8sVersionMinor=35"),
            "{flags}"
        );
    }
}
