//! The runc of the node: its version, and the files that it refuses to mount below `/proc`. A refused mount keeps the container
//! from starting.
//!
//! Upstream fact: `checkProcMount` in `libcontainer/rootfs_linux.go` lists loadavg since 1.0.0-rc6 and slabinfo since
//! 1.0.0-rc93; the six other files since 2016. Below `/sys` runc refuses nothing.

use std::cmp::Ordering;
use std::ffi::OsString;
use std::path::Path;

use guards::lxcfs::LxcfsFile;
use serde::{Deserialize, Serialize};

use super::host_binary::{HostBinary, Output, find_on_host, run};

/// The runc that starts the containers of a node.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Runc {
    /// Its version.
    #[serde(rename = "runc")]
    pub version: String,
    /// The files that it refuses to mount.
    pub refuses: Vec<String>,
}

/// Runs `program --version`, first as a program of this mount namespace, then as a program of the host.
pub async fn find_runc(program: &Path) -> Option<Runc> {
    let version: [OsString; 1] = ["--version".into()];
    let here = run(program, &version).await.ok();
    if let Some(runc) = here.and_then(|output| parse_output(&output)) {
        return Some(runc);
    }
    let (root, found) = find_on_host(program)?;
    let host_binary = HostBinary::new(root, &found).ok()?;
    parse_output(&host_binary.run(&version).await.ok()?)
}

/// Parses words of runc: urfave/cli, help.go, `printVersion`.
fn parse_output(output: &Output) -> Option<Runc> {
    let version = output.text.lines().find_map(|line| line.strip_prefix("runc version "))?.trim().to_owned();
    let refuses = refused_files(&version).into_iter().map(|file| file.name().to_owned()).collect();
    output.status.success().then_some(Runc { version, refuses })
}

/// Returns the files that a runc of this version refuses; none if the version cannot be parsed.
fn refused_files(version: &str) -> Vec<LxcfsFile> {
    let Some(version) = Version::parse(version) else { return Vec::new() };
    let candidate = |number| Version { numbers: [1, 0, 0], candidate: Some(number) };
    [(LxcfsFile::Loadavg, candidate(6)), (LxcfsFile::Slabinfo, candidate(93))]
        .into_iter()
        .filter(|(_, since)| version.is_before(*since))
        .map(|(file, _)| file)
        .collect()
}

/// A version of runc: `1.1.5+ds1`, `1.0.0-rc93`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Version {
    numbers: [u32; 3],
    /// The number of a release candidate; none for a release, which comes after its candidates.
    candidate: Option<u32>,
}

impl Version {
    fn parse(text: &str) -> Option<Self> {
        let text = text.split(['+', '~']).next()?;
        let (numbers, candidate) = match text.split_once("-rc") {
            Some((numbers, rest)) => {
                let digits = rest.trim_start_matches('.');
                let end = digits.find(|c: char| !c.is_ascii_digit()).unwrap_or(digits.len());
                (numbers, Some(digits.get(..end)?.parse().ok()?))
            }
            None => (text.split('-').next()?, None),
        };
        let mut parts = numbers.split('.').map(|part| part.parse().ok());
        let mut next = || parts.next().unwrap_or(Some(0));
        Some(Self { numbers: [next()?, next()?, next()?], candidate })
    }

    fn is_before(self, other: Self) -> bool {
        match self.numbers.cmp(&other.numbers) {
            Ordering::Equal => self.candidate.unwrap_or(u32::MAX) < other.candidate.unwrap_or(u32::MAX),
            order => order == Ordering::Less,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::host_binary::tests::script;
    use super::*;

    #[test]
    fn an_old_runc_refuses_files_that_were_added_later() {
        for (version, names) in [
            ("1.1.5+ds1", vec![]),
            ("1.0.0", vec![]),
            ("1.4.0-rc.2", vec![]),
            ("1.0.0-rc93", vec![]),
            ("1.0.0-rc92+dev", vec!["slabinfo"]),
            ("1.0.0-rc10", vec!["slabinfo"]),
            ("1.0.0-rc5", vec!["loadavg", "slabinfo"]),
            ("0.1.1", vec!["loadavg", "slabinfo"]),
            ("unheard of", vec![]),
        ] {
            let refused: Vec<_> = refused_files(version).into_iter().map(LxcfsFile::name).collect();
            assert_eq!(refused, names, "{version}");
        }
    }

    #[tokio::test]
    async fn reads_the_version_that_a_program_prints() {
        let directory = tempfile::tempdir().unwrap();
        let old = script(directory.path(), "echo runc version 1.0.0-rc92; echo spec: 1.0.2");
        let runc = find_runc(&old).await.unwrap();
        assert_eq!((runc.version.as_str(), runc.refuses), ("1.0.0-rc92", vec!["slabinfo".to_owned()]));
        assert_eq!(find_runc(Path::new("/nowhere/runc")).await, None);
        assert_eq!(find_runc(&script(directory.path(), "echo runc version 1.1.5; exit 1")).await, None);
    }
}
