//! The files that LXCFS serves and that container runtimes can mount.
//!
//! runc rejects mounts below `/proc` except those on its list (`checkProcMount` in `libcontainer/rootfs_linux.go`): cpuinfo,
//! diskstats, meminfo, stat, swaps and uptime since 2016, loadavg since 1.0.0-rc6, slabinfo since 1.0.0-rc93. It allows mounts below
//! `/sys`. LXCFS serves loadavg and the online CPUs since 3.1.0 (loadavg only with `--enable-loadavg`), slabinfo since 5.0.0.
//! LXCFS 7 has `/proc/pressure`, which is on no list of runc: see [`rejection`].

/// A file of LXCFS that can be mounted over the file of the kernel.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LxcfsFile {
    /// `/proc/cpuinfo`
    Cpuinfo,
    /// `/proc/meminfo`
    Meminfo,
    /// `/proc/diskstats`
    Diskstats,
    /// `/proc/stat`
    Stat,
    /// `/proc/swaps`
    Swaps,
    /// `/proc/uptime`
    Uptime,
    /// `/proc/loadavg`. It is expensive to serve, so it is not a default.
    Loadavg,
    /// `/proc/slabinfo`
    Slabinfo,
    /// `/sys/devices/system/cpu/online`
    Online,
}

/// The resource whose limit a file shows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FileScope {
    /// `limits.memory`
    Memory,
    /// `limits.cpu`
    Cpu,
    /// The container itself: its age or its disk traffic.
    Container,
}

/// The common prefix of default volume names.
pub const VOLUME_PREFIX: &str = "lxcfs-";

impl LxcfsFile {
    /// All files, in the order in which they are added.
    pub const ALL: [Self; 9] = [
        Self::Cpuinfo,
        Self::Meminfo,
        Self::Diskstats,
        Self::Stat,
        Self::Swaps,
        Self::Uptime,
        Self::Loadavg,
        Self::Slabinfo,
        Self::Online,
    ];

    /// The files that LXCFS serves since 2.0 and runc allows since 2016.
    pub const DEFAULT: [Self; 6] =
        [Self::Cpuinfo, Self::Meminfo, Self::Diskstats, Self::Stat, Self::Swaps, Self::Uptime];

    /// Returns the default volume name, the path and the scope.
    fn properties(self) -> (&'static str, &'static str, FileScope) {
        match self {
            Self::Cpuinfo => ("lxcfs-cpuinfo", "/proc/cpuinfo", FileScope::Cpu),
            Self::Meminfo => ("lxcfs-meminfo", "/proc/meminfo", FileScope::Memory),
            Self::Diskstats => ("lxcfs-diskstats", "/proc/diskstats", FileScope::Container),
            Self::Stat => ("lxcfs-stat", "/proc/stat", FileScope::Cpu),
            Self::Swaps => ("lxcfs-swaps", "/proc/swaps", FileScope::Memory),
            Self::Uptime => ("lxcfs-uptime", "/proc/uptime", FileScope::Container),
            Self::Loadavg => ("lxcfs-loadavg", "/proc/loadavg", FileScope::Cpu),
            Self::Slabinfo => ("lxcfs-slabinfo", "/proc/slabinfo", FileScope::Memory),
            Self::Online => ("lxcfs-online", "/sys/devices/system/cpu/online", FileScope::Cpu),
        }
    }

    /// Returns the name in the configuration and in annotations.
    pub fn name(self) -> &'static str {
        self.volume().strip_prefix(VOLUME_PREFIX).unwrap_or_default()
    }

    /// Returns the default name of its volume.
    pub fn volume(self) -> &'static str {
        self.properties().0
    }

    /// Returns the path in a container. Below the LXCFS directory, the file has the same path.
    pub fn path(self) -> &'static str {
        self.properties().1
    }

    /// Returns the resource whose limit the file shows.
    pub fn scope(self) -> FileScope {
        self.properties().2
    }

    /// Returns the file with this name.
    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|file| file.name() == name)
    }
}

/// Returns the reason why a file of LXCFS cannot be mounted, or none for other names.
pub fn rejection(name: &str) -> Option<&'static str> {
    let name = name.trim_start_matches('/');
    let name = name.strip_prefix("proc/").unwrap_or(name);
    (name == "pressure" || name.starts_with("pressure/")).then_some(
        "runc allows no mounts below /proc/pressure, so the container would not start (\"inside /proc\")",
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_file_has_a_unique_name_volume_and_path() {
        for (index, file) in LxcfsFile::ALL.into_iter().enumerate() {
            assert!(!file.name().is_empty());
            assert!(file.path().ends_with(&format!("/{}", file.name())));
            assert_eq!(LxcfsFile::named(file.name()), Some(file));
            assert_eq!(file as usize, index);
        }
    }

    #[test]
    fn rejects_every_spelling_of_pressure() {
        for word in ["pressure", "pressure/cpu", "/proc/pressure/memory", "proc/pressure"] {
            assert!(rejection(word).is_some_and(|why| why.contains("runc")), "{word}");
        }
        assert_eq!(rejection("meminf"), None);
        assert_eq!(rejection("pressures"), None);
    }
}
