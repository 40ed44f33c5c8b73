//! The binaries that the tests start, built once from pinned sources.
//!
//! A binary is a `tool` dependency of a Go module in `e2e/controlplane`. `CoreDNS` and cert-manager are programs of these modules:
//! the main function of `CoreDNS` selects plugins, and no module proxy has those of cert-manager. A binary is stored in the cache, in a directory named after everything that it is
//! made of (the module's pins, the Go version, the flags). A stale binary is never used, and two pins can coexist.
//! `e2e/controlplane/README.md` says how to change a pin.
//!
//! Without `gitVersion` at link time the API server is v0.0.0, and some of its start-up checks fail. The version comes from
//! the module's `require` line.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail};
use sha2::{Digest as _, Sha256};

use crate::console::print;
use crate::supervisor::{Supervisor, Tool};

/// Without Go's build cache kube-apiserver takes four minutes on two idle cores; a loaded machine takes longer.
const BUILD_WITHIN: Duration = Duration::from_secs(3_600);

const NO_GO: &str = "the end-to-end tests build Kubernetes and etcd from source and need `go`, which is not in PATH. \
     Install Go 1.26 or newer (https://go.dev/dl, or your distribution's package golang) and run again";

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
}

/// The source of the API server of one Kubernetes version.
macro_rules! api_server {
    ($module:literal) => {
        ("kube-apiserver", $module, "k8s.io/kubernetes/cmd/kube-apiserver")
    };
}

/// The source of one of Karmada's binaries.
macro_rules! karmada {
    ($name:literal, $command:literal) => {
        ($name, "karmada", concat!("github.com/karmada-io/karmada/cmd/", $command))
    };
}

impl Binary {
    /// All binaries.
    pub const ALL: [Self; 22] = [
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
            Self::CoreDns => ("coredns", "coredns", "durward.dev/e2e/controlplane/coredns"),
            Self::KarmadaAggregated => karmada!("karmada-aggregated-apiserver", "aggregated-apiserver"),
            Self::KarmadaControllers => karmada!("karmada-controller-manager", "controller-manager"),
            Self::KarmadaWebhook => karmada!("karmada-webhook", "webhook"),
            Self::KarmadaScheduler => karmada!("karmada-scheduler", "scheduler"),
            Self::KarmadaAgent => karmada!("karmada-agent", "agent"),
            Self::Karmadactl => karmada!("karmadactl", "karmadactl"),
            Self::Helm => ("helm", "helm", "helm.sh/helm/v3/cmd/helm"),
            Self::CertManager => ("certmanager", "certmanager", "durward.dev/e2e/controlplane/certmanager"),
        }
    }

    fn package(self) -> &'static str {
        self.source().2
    }

    fn module(self) -> &'static str {
        self.source().1
    }

    /// Returns the Go module that carries the version.
    fn upstream(self) -> &'static str {
        match self.module() {
            "etcd" | "etcd35" | "etcd37" => "go.etcd.io/etcd/server/v3",
            "kubernetes" | "kubernetes131" | "kubernetes133" | "kubernetes137" => "k8s.io/kubernetes",
            "coredns" => "github.com/coredns/coredns",
            "helm" => "helm.sh/helm/v3",
            "certmanager" => "github.com/cert-manager/cert-manager",
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
        let module = Module::read(self.module())?;
        let ldflags = ldflags(&module, self)?;
        let directory =
            cache()?.join("parts").join(format!("{}-{}", self.module(), module.key(&go_version()?)));
        let path = directory.join(self.name());
        if path.is_file() {
            return Ok(path);
        }
        std::fs::create_dir_all(&directory)
            .with_context(|| format!("cannot make {}", directory.display()))?;
        // If another run builds the same binary, this waits for it. The kernel releases the lock with the process.
        let lock =
            File::create(directory.join("lock")).context("cannot make the lock of the parts' cache")?;
        lock.lock().context("cannot lock the parts' cache")?;
        if !path.is_file() {
            self.build(&module, &ldflags, &path, supervisor)?;
        }
        Ok(path)
    }

    fn build(self, module: &Module, ldflags: &str, path: &Path, supervisor: &Arc<Supervisor>) -> Result<()> {
        let version = module.version(self.upstream())?;
        print(format_args!(
            "building {} {version} into {} (once; minutes if the Go build cache is cold)",
            self.name(),
            path.display()
        ));
        let began = Instant::now();
        let unfinished = path.with_extension("unfinished");
        let go = Tool::new(format!("go-build-{}", self.name()), "go")
            .directory(&module.directory)
            .environment("CGO_ENABLED", "0")
            // An interrupted build leaves its temporary directory behind; the work directory is removed with the run.
            .environment("GOTMPDIR", supervisor.work().display().to_string())
            .arguments(["build", "-trimpath", "-buildvcs=false", "-ldflags", ldflags, "-o"])
            .argument(unfinished.display().to_string())
            .argument(self.package());
        supervisor.run(go, BUILD_WITHIN).and_then(crate::supervisor::Output::succeeded).with_context(
            || format!("cannot build {} {version} in {}", self.name(), module.directory.display()),
        )?;
        std::fs::rename(&unfinished, path)
            .with_context(|| format!("cannot move {} into place", path.display()))?;
        print(format_args!("built {} in {} s", self.name(), began.elapsed().as_secs()));
        Ok(())
    }
}

/// Returns the linker's flags: no symbols, for Kubernetes its version, and for Helm the versions of itself and of Kubernetes.
fn ldflags(module: &Module, binary: Binary) -> Result<String> {
    match binary.upstream() {
        "k8s.io/kubernetes" => {}
        "helm.sh/helm/v3" => return helm_ldflags(module, binary),
        _ => return Ok("-s -w".to_owned()),
    }
    let version = module.version(binary.upstream())?;
    let mut numbers = version.trim_start_matches('v').split('.');
    let (Some(major), Some(minor)) = (numbers.next(), numbers.next()) else {
        bail!("{version} in {} is not a version of Kubernetes", module.directory.display());
    };
    let at = "k8s.io/component-base/version";
    Ok(format!("-s -w -X {at}.gitVersion={version} -X {at}.gitMajor={major} -X {at}.gitMinor={minor}"))
}

/// Without the version of Kubernetes, `helm template` and `helm lint` assume 1.20. Upstream's Makefile takes it from client-go.
fn helm_ldflags(module: &Module, binary: Binary) -> Result<String> {
    let version = module.version(binary.upstream())?;
    let client = module.version("k8s.io/client-go")?;
    let minor =
        client.split('.').nth(1).with_context(|| format!("{client} is not a version of client-go"))?;
    let of_kubernetes = ["pkg/chartutil", "pkg/lint/rules"].map(|package| {
        let at = format!("helm.sh/helm/v3/{package}.k8sVersion");
        format!("-X {at}Major=1 -X {at}Minor={minor}")
    });
    Ok(format!("-s -w -X helm.sh/helm/v3/internal/version.version={version} {}", of_kubernetes.join(" ")))
}

/// A Go module that pins binaries.
struct Module {
    directory: PathBuf,
    requirements: String,
    sums: String,
    /// The source of the module's own program, or empty.
    program: String,
}

impl Module {
    fn read(name: &str) -> Result<Self> {
        let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("controlplane").join(name);
        let read = |file: &str| {
            let path = directory.join(file);
            std::fs::read_to_string(&path).with_context(|| format!("cannot read {}", path.display()))
        };
        let program = if directory.join("main.go").is_file() { read("main.go")? } else { String::new() };
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

/// Returns the directory that outlives runs, with binaries, images, journals and the logs of runs that did not pass.
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
            let is_own = module.requirements.lines().any(|line| is(line, "module "));
            assert!(is_tool || (is_own && !module.program.is_empty()), "{binary:?}");
        }
    }

    #[test]
    fn links_versions_into_kubernetes_and_helm_only() {
        let kubernetes = module("require k8s.io/kubernetes v1.35.4", "");
        let flags = ldflags(&kubernetes, Binary::ApiServer).unwrap();
        assert!(flags.ends_with("version.gitVersion=v1.35.4 -X k8s.io/component-base/version.gitMajor=1 -X k8s.io/component-base/version.gitMinor=35"), "{flags}");
        assert_eq!(ldflags(&module("", ""), Binary::Etcd).unwrap(), "-s -w");
        let helm = module("require helm.sh/helm/v3 v3.22.0\nrequire k8s.io/client-go v0.37.0", "");
        let flags = ldflags(&helm, Binary::Helm).unwrap();
        assert!(
            flags.contains("version.version=v3.22.0 ") && flags.ends_with("rules.k8sVersionMinor=37"),
            "{flags}"
        );
    }
}
