//! The lines of etcd that etcd clusters are made of, and where their programs come from.
//!
//! 3.5 and 3.6 are pinned Go modules like every other part. 3.4 has no module that Go could pin by its version,
//! so it is Debian's: `make prepare` unpacks the package into the cache, where it starts no service.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;

use anyhow::{Context as _, Result, bail};

use crate::binaries::{Binary, cache};
use crate::supervisor::Supervisor;

/// Where `scripts/prepare.sh` unpacks Debian's package, below the cache.
const UNPACKED: &str = "debian/etcd-server/usr/bin/etcd";

/// Where the package puts it where somebody has installed it.
const INSTALLED: &str = "/usr/bin/etcd";

/// A release of etcd.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Release {
    /// 3.4: no member list behind a quorum, status without a login, no learner promotion by health.
    V3_4,
    /// 3.5: the member list behind a quorum.
    V3_5,
    /// 3.6: status only with a login where there is one.
    V3_6,
}

impl Release {
    /// All of them.
    pub const ALL: [Self; 3] = [Self::V3_4, Self::V3_5, Self::V3_6];

    /// What its members' versions begin with.
    pub fn prefix(self) -> &'static str {
        match self {
            Self::V3_4 => "3.4.",
            Self::V3_5 => "3.5.",
            Self::V3_6 => "3.6.",
        }
    }

    /// Its program; built now if it is one that is built and is not there yet.
    pub(super) fn program(self, supervisor: &Arc<Supervisor>) -> Result<PathBuf> {
        match self {
            Self::V3_4 => debian(self.prefix()),
            Self::V3_5 => Binary::Etcd35.path(supervisor),
            Self::V3_6 => Binary::Etcd.path(supervisor),
        }
    }

    /// Whether it can be told to leave data to the kernel; writing it out is what a start mostly waits for.
    pub(super) fn can_do_without_fsync(self) -> bool {
        self > Self::V3_4
    }
}

impl std::fmt::Display for Release {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.write_str(self.prefix().trim_end_matches('.'))
    }
}

fn debian(prefix: &str) -> Result<PathBuf> {
    let mut seen = Vec::new();
    for path in [cache()?.join(UNPACKED), PathBuf::from(INSTALLED)] {
        match version(&path) {
            Ok(version) if version.starts_with(prefix) => return Ok(path),
            Ok(version) => seen.push(format!("{} is {version}", path.display())),
            Err(error) => seen.push(format!("{error:#}")),
        }
    }
    bail!(
        "there is no etcd {prefix}x here: `make prepare` unpacks the one of Debian 12 (package etcd-server) into \
         the cache; {}",
        seen.join("; ")
    )
}

/// `etcd Version: 3.4.23`.
fn version(program: &Path) -> Result<String> {
    let said = Command::new(program).arg("--version").output();
    let said = said.with_context(|| format!("cannot run {}", program.display()))?;
    let said = String::from_utf8_lossy(&said.stdout).into_owned();
    let version = said.lines().find_map(|release| release.strip_prefix("etcd Version: "));
    version.map(ToOwned::to_owned).with_context(|| format!("{} tells no version", program.display()))
}
