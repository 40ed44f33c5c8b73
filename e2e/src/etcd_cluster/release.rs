//! The releases of etcd, and their programs.
//!
//! Cases run with 3.4, 3.5 and 3.6, or with the release in the variable [`VARIABLE`]. `make parity` sets it to 3.7.
//!
//! 3.5 and later are pinned Go modules. The module of 3.4 cannot be pinned by a version, so 3.4 is Debian's: `make
//! prepare` unpacks the package into the cache, where it starts no service.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;

use anyhow::{Context as _, Result, bail};

use crate::binaries::{Binary, cache};
use crate::supervisor::Supervisor;

/// The program that `scripts/prepare.sh` unpacks, relative to the cache.
const UNPACKED: &str = "debian/etcd-server/usr/bin/etcd";

/// The program of the installed package.
const INSTALLED: &str = "/usr/bin/etcd";

/// The environment variable with the only release of a run, such as `3.7`.
const VARIABLE: &str = "DURWARD_E2E_ETCD";

/// A release of etcd.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Release {
    /// 3.4: no member list without a quorum, status without a login, no check of a learner before its promotion.
    V3_4,
    /// 3.5: a member list without a quorum.
    V3_5,
    /// 3.6: status needs a login if authentication is enabled.
    V3_6,
    /// 3.7.
    V3_7,
}

impl Release {
    /// All releases.
    const ALL: [Self; 4] = [Self::V3_4, Self::V3_5, Self::V3_6, Self::V3_7];

    /// Returns the releases with which a case runs: those of most users, or only the one in the variable.
    pub fn tested() -> Result<Vec<Self>> {
        Ok(match Self::of_run()? {
            Some(release) => vec![release],
            None => vec![Self::V3_4, Self::V3_5, Self::V3_6],
        })
    }

    /// Returns the release of a case that runs with one.
    pub(super) fn of_one_case() -> Result<Self> {
        Ok(Self::of_run()?.unwrap_or(Self::V3_6))
    }

    fn of_run() -> Result<Option<Self>> {
        std::env::var_os(VARIABLE).map(|value| Self::parse(&value.to_string_lossy())).transpose()
    }

    fn parse(value: &str) -> Result<Self> {
        let found = Self::ALL.into_iter().find(|release| release.to_string() == value);
        found.with_context(|| {
            let known = Self::ALL.map(|release| release.to_string()).join(", ");
            format!("{VARIABLE}={value} is not a release of etcd that the tests know: set one of {known}")
        })
    }

    /// Returns the prefix of its versions.
    pub fn prefix(self) -> &'static str {
        match self {
            Self::V3_4 => "3.4.",
            Self::V3_5 => "3.5.",
            Self::V3_6 => "3.6.",
            Self::V3_7 => "3.7.",
        }
    }

    /// Returns the program that is built from source, or none if it is Debian's.
    pub(crate) fn binary(self) -> Option<Binary> {
        match self {
            Self::V3_4 => None,
            Self::V3_5 => Some(Binary::Etcd35),
            Self::V3_6 => Some(Binary::Etcd),
            Self::V3_7 => Some(Binary::Etcd37),
        }
    }

    /// Returns the path of its program, which is built first if necessary.
    pub(super) fn program(self, supervisor: &Arc<Supervisor>) -> Result<PathBuf> {
        self.binary().map_or_else(|| debian(self.prefix()), |binary| binary.path(supervisor))
    }

    /// Returns whether it has a flag against fsync, which takes most of a start.
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

/// Returns the version, from `etcd Version: 3.4.23`.
fn version(program: &Path) -> Result<String> {
    let said = Command::new(program).arg("--version").output();
    let said = said.with_context(|| format!("cannot run {}", program.display()))?;
    let said = String::from_utf8_lossy(&said.stdout).into_owned();
    let version = said.lines().find_map(|release| release.strip_prefix("etcd Version: "));
    version.map(ToOwned::to_owned).with_context(|| format!("{} tells no version", program.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_variable_names_a_release_and_nothing_else() {
        assert_eq!(Release::parse("3.7").unwrap(), Release::V3_7);
        for wrong in ["", "3", "3.7.3", "v3.7"] {
            let error = Release::parse(wrong).unwrap_err().to_string();
            assert!(error.ends_with("set one of 3.4, 3.5, 3.6, 3.7"), "{error}");
        }
    }
}
