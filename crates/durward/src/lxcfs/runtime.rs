//! Which files a runc lets be mounted below `/proc`. What it refuses keeps the container from starting.
//!
//! Upstream fact: `checkProcMount` in `libcontainer/rootfs_linux.go` has had loadavg since 1.0.0-rc6 and slabinfo since
//! 1.0.0-rc93; the six others since 2016. Below `/sys` nothing is refused.

use std::cmp::Ordering;

use guards::lxcfs::File;

/// A version as runc writes it: `1.1.5+ds1`, `1.0.0-rc93`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Version {
    numbers: [u32; 3],
    /// None: released, which comes after every candidate.
    candidate: Option<u32>,
}

impl Version {
    fn read(text: &str) -> Option<Self> {
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

/// The files that a runc of this version refuses; none where the version cannot be read, which is no reason to refuse anything.
pub(crate) fn refuses(version: &str) -> Vec<File> {
    let Some(version) = Version::read(version) else { return Vec::new() };
    let candidate = |number| Version { numbers: [1, 0, 0], candidate: Some(number) };
    [(File::Loadavg, candidate(6)), (File::Slabinfo, candidate(93))]
        .into_iter()
        .filter(|(_, since)| version.is_before(*since))
        .map(|(file, _)| file)
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_old_runc_refuses_what_came_later() {
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
            let refused: Vec<_> = refuses(version).into_iter().map(File::name).collect();
            assert_eq!(refused, names, "{version}");
        }
    }
}
