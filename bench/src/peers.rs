//! The programs in Go that are measured beside Durward. `make bench-deps` builds them from pinned modules into the cache of the
//! end-to-end tests.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use sha2::{Digest as _, Sha256};

use crate::Result;

/// A program in Go.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Peer {
    /// The LXCFS webhook on controller-runtime.
    ControllerRuntime,
    /// The evaluators of the API server.
    ApiServer,
    /// Kyverno's CLI.
    Kyverno,
    /// kubectl-validate.
    KubectlValidate,
}

impl Peer {
    pub(crate) const ALL: [Self; 4] =
        [Self::ControllerRuntime, Self::ApiServer, Self::KubectlValidate, Self::Kyverno];

    /// Returns the program's name, the directory of its Go module, and the package of its main function.
    fn source(self) -> (&'static str, &'static str, &'static str) {
        match self {
            Self::ControllerRuntime => ("controller-runtime", "peers/controller-runtime", "."),
            Self::ApiServer => ("parity", "../crates/evaluator/policy/parity", "."),
            Self::Kyverno => {
                ("kyverno", "peers/kyverno", "github.com/kyverno/kyverno/cmd/cli/kubectl-kyverno")
            }
            Self::KubectlValidate => {
                ("kubectl-validate", "peers/kubectl-validate", "sigs.k8s.io/kubectl-validate")
            }
        }
    }

    /// Returns the path of the program.
    pub(crate) fn program(self) -> Result<PathBuf> {
        let program = self.path()?;
        if program.is_file() {
            return Ok(program);
        }
        Err(format!("{} is not built: run make bench-deps", self.source().0).into())
    }

    /// Builds the program if it is not in the cache, which can take minutes.
    pub(crate) fn build(self) -> Result<()> {
        let (name, _, package) = self.source();
        let program = self.path()?;
        if program.is_file() {
            println!("{name} is built: {}", program.display());
            return Ok(());
        }
        let directory = program.parent().ok_or("the cache has no directory")?;
        fs::create_dir_all(directory)?;
        println!("building {name} into {}", directory.display());
        // A second run must not find a program that is only half written.
        let unfinished = directory.join(format!("unfinished-{}", std::process::id()));
        let status = Command::new("go")
            .current_dir(self.module())
            .env("CGO_ENABLED", "0")
            .args(["build", "-trimpath", "-buildvcs=false", "-ldflags", "-s -w", "-o"])
            .arg(&unfinished)
            .arg(package)
            .status()
            .map_err(|error| no_go(&error))?;
        if !status.success() {
            return Err(format!("go build failed in {}", self.module().display()).into());
        }
        Ok(fs::rename(&unfinished, &program)?)
    }

    /// Returns the version of a Go module that the program is built from.
    pub(crate) fn version(self, module: &str) -> Result<String> {
        let requirements = fs::read_to_string(self.module().join("go.mod"))?;
        let version = requirements.lines().find_map(|line| {
            let mut words = line.trim().trim_start_matches("require ").split_whitespace();
            (words.next() == Some(module)).then(|| words.next().map(str::to_owned))?
        });
        version.ok_or_else(|| format!("{} does not require {module}", self.module().display()).into())
    }

    fn module(self) -> PathBuf {
        Path::new(env!("CARGO_MANIFEST_DIR")).join(self.source().1)
    }

    /// The directory in the cache is named after the pins, the sources and Go's version.
    fn path(self) -> Result<PathBuf> {
        let version = Command::new("go").arg("version").output().map_err(|error| no_go(&error))?.stdout;
        let mut hash = Sha256::new();
        let mut add = |ingredient: &[u8]| {
            hash.update(ingredient.len().to_le_bytes());
            hash.update(ingredient);
        };
        let is_source = |path: &PathBuf| {
            path.extension()
                .is_some_and(|extension| ["mod", "sum", "go"].iter().any(|known| extension == *known))
        };
        let mut sources: Vec<PathBuf> =
            fs::read_dir(self.module())?.flatten().map(|entry| entry.path()).filter(is_source).collect();
        sources.sort();
        for source in sources {
            add(&fs::read(source)?);
        }
        add(&version);
        let key =
            hash.finalize().iter().take(8).fold(String::new(), |key, byte| key + &format!("{byte:02x}"));
        let (name, _, _) = self.source();
        Ok(cache()?.join("parts").join(format!("bench-{name}-{key}")).join(name))
    }
}

fn no_go(error: &std::io::Error) -> String {
    format!("the peers are built from source and need Go 1.26 or newer (https://go.dev/dl): {error}")
}

/// Returns the cache directory of the end-to-end tests, which outlives runs.
fn cache() -> Result<PathBuf> {
    let from =
        |variable: &str| std::env::var_os(variable).filter(|value| !value.is_empty()).map(PathBuf::from);
    from("DURWARD_E2E_CACHE")
        .or_else(|| from("XDG_CACHE_HOME").map(|cache| cache.join("durward")))
        .or_else(|| from("HOME").map(|home| home.join(".cache/durward")))
        .ok_or_else(|| "there is no cache directory: set DURWARD_E2E_CACHE".into())
}
