//! The programs in Go that are measured beside Durward. `make bench-deps` builds them from pinned modules into `target/bench/peers`.

use std::path::{Path, PathBuf};
use std::process::Command;

use crate::{Result, report};

/// A program in Go.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Peer {
    /// The LXCFS webhook on controller-runtime.
    ControllerRuntime,
    /// Kyverno's CLI.
    Kyverno,
    /// Kyverno's admission controller, of the same module.
    KyvernoController,
}

impl Peer {
    /// Returns the program's name, the directory of its module, and the package of its main function.
    fn source(self) -> (&'static str, &'static str, &'static str) {
        match self {
            Self::ControllerRuntime => ("controller-runtime", "controller-runtime", "."),
            Self::Kyverno => ("kyverno", "kyverno", "github.com/kyverno/kyverno/cmd/cli/kubectl-kyverno"),
            Self::KyvernoController => {
                ("kyverno-controller", "kyverno", "github.com/kyverno/kyverno/cmd/kyverno")
            }
        }
    }

    /// Returns the path of the program.
    pub(crate) fn program(self) -> Result<PathBuf> {
        let program = self.path();
        if program.is_file() {
            return Ok(program);
        }
        Err(format!("{} is not built: run make bench-deps", self.source().0).into())
    }

    fn path(self) -> PathBuf {
        report::directory().join("peers").join(self.source().0)
    }

    /// Returns the directory of the Go module that pins it.
    pub(crate) fn module(self) -> PathBuf {
        Path::new(env!("CARGO_MANIFEST_DIR")).join("peers").join(self.source().1)
    }

    /// Builds all programs. The first time takes minutes; later Go finds what it has compiled.
    pub(crate) fn build_all() -> Result<()> {
        for peer in [Self::ControllerRuntime, Self::Kyverno, Self::KyvernoController] {
            let (name, _, package) = peer.source();
            println!("building {name} into {}", peer.path().display());
            let status = Command::new("go")
                .current_dir(peer.module())
                .env("CGO_ENABLED", "0")
                .args(["build", "-trimpath", "-buildvcs=false", "-ldflags", "-s -w", "-o"])
                .arg(peer.path())
                .arg(package)
                .status()
                .map_err(|error| format!("Go 1.26 or newer (https://go.dev/dl) did not start: {error}"))?;
            if !status.success() {
                return Err(format!("go build failed in {}", peer.module().display()).into());
            }
        }
        Ok(())
    }
}
