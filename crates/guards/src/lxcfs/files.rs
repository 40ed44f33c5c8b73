//! The files that LXCFS serves and a runtime lets in: which there are, where they go, and what each depends on.
//!
//! Upstream facts. runc refuses every mount below `/proc` but those on its list (`checkProcMount` in
//! `libcontainer/rootfs_linux.go`): cpuinfo, diskstats, meminfo, stat, swaps, uptime from 2016 on, loadavg from 1.0.0-rc6,
//! slabinfo from 1.0.0-rc93. Nothing below `/sys` is refused. LXCFS serves loadavg and the processors that are online from
//! 3.1.0 on (loadavg only with `--enable-loadavg`), slabinfo from 5.0.0 on. `/proc/pressure`, which LXCFS 7 has, is on no
//! runc's list: see [`why_refused`].

/// One file that can be mounted over the kernel's own.
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
    /// `/proc/loadavg`: costly to serve, so it is not among the defaults.
    Loadavg,
    /// `/proc/slabinfo`
    Slabinfo,
    /// `/sys/devices/system/cpu/online`
    Online,
}

/// What a file shows the limit of.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Shows {
    /// `limits.memory`
    Memory,
    /// `limits.cpu`
    Cpu,
    /// The container itself (its age, its disk traffic), whatever its limits are.
    Container,
}

impl LxcfsFile {
    /// Every file, in the order in which they are added.
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

    /// What every LXCFS since 2.0 serves and every runc since 2016 lets in.
    pub const DEFAULT: [Self; 6] =
        [Self::Cpuinfo, Self::Meminfo, Self::Diskstats, Self::Stat, Self::Swaps, Self::Uptime];

    /// Its word in the configuration and in a pod's annotation.
    pub fn name(self) -> &'static str {
        self.volume().strip_prefix(VOLUME_PREFIX).unwrap_or_default()
    }

    /// The name that its volume gets where nobody else has it.
    pub(super) fn volume(self) -> &'static str {
        match self {
            Self::Cpuinfo => "lxcfs-cpuinfo",
            Self::Meminfo => "lxcfs-meminfo",
            Self::Diskstats => "lxcfs-diskstats",
            Self::Stat => "lxcfs-stat",
            Self::Swaps => "lxcfs-swaps",
            Self::Uptime => "lxcfs-uptime",
            Self::Loadavg => "lxcfs-loadavg",
            Self::Slabinfo => "lxcfs-slabinfo",
            Self::Online => "lxcfs-online",
        }
    }

    /// Where it stands in the container; below the LXCFS root it has the same path.
    pub fn path(self) -> &'static str {
        match self {
            Self::Cpuinfo => "/proc/cpuinfo",
            Self::Meminfo => "/proc/meminfo",
            Self::Diskstats => "/proc/diskstats",
            Self::Stat => "/proc/stat",
            Self::Swaps => "/proc/swaps",
            Self::Uptime => "/proc/uptime",
            Self::Loadavg => "/proc/loadavg",
            Self::Slabinfo => "/proc/slabinfo",
            Self::Online => "/sys/devices/system/cpu/online",
        }
    }

    /// What it shows the limit of.
    pub(super) fn shows(self) -> Shows {
        match self {
            Self::Meminfo | Self::Swaps | Self::Slabinfo => Shows::Memory,
            Self::Cpuinfo | Self::Stat | Self::Loadavg | Self::Online => Shows::Cpu,
            Self::Diskstats | Self::Uptime => Shows::Container,
        }
    }

    /// The file of that name.
    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|file| file.name() == name)
    }
}

/// What the names of all our volumes begin with.
pub(super) const VOLUME_PREFIX: &str = "lxcfs-";

/// Why a file that LXCFS may well serve cannot be asked for; none for a word that is no file of LXCFS at all.
pub(super) fn why_refused(word: &str) -> Option<&'static str> {
    let word = word.trim_start_matches('/');
    let word = word.strip_prefix("proc/").unwrap_or(word);
    (word == "pressure" || word.starts_with("pressure/")).then_some(
        "runc lets nothing be mounted below /proc/pressure, so the container would not start (\"inside /proc\")",
    )
}

/// A set of files.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Files(u16);

impl Files {
    /// The set of these.
    pub(super) fn of(files: &[LxcfsFile]) -> Self {
        files.iter().fold(Self::default(), |set, &file| set.with(file))
    }

    /// This set and `file`.
    pub(super) fn with(self, file: LxcfsFile) -> Self {
        Self(self.0 | 1 << file as u16)
    }

    /// This set and `other`.
    pub(super) fn and(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }

    /// This set without `other`.
    pub(super) fn without(self, other: Self) -> Self {
        Self(self.0 & !other.0)
    }

    /// Whether `file` is in it.
    pub(super) fn has(self, file: LxcfsFile) -> bool {
        self.0 >> file as u16 & 1 == 1
    }

    /// Whether nothing is in it.
    pub(super) fn is_empty(self) -> bool {
        self.0 == 0
    }

    /// How many there are.
    pub(super) fn len(self) -> usize {
        self.0.count_ones() as usize
    }

    /// Each, in the order of [`LxcfsFile::ALL`].
    pub(super) fn iter(self) -> impl Iterator<Item = LxcfsFile> {
        LxcfsFile::ALL.into_iter().filter(move |&file| self.has(file))
    }

    /// Those for which `keep` holds.
    pub(super) fn filter(self, keep: impl Fn(LxcfsFile) -> bool) -> Self {
        self.iter().filter(|&file| keep(file)).fold(Self::default(), Self::with)
    }

    /// Adds the names to `out`, with commas between them.
    pub(super) fn write(self, out: &mut String) {
        for (index, file) in self.iter().enumerate() {
            if index > 0 {
                out.push(',');
            }
            out.push_str(file.name());
        }
    }
}

impl std::fmt::Display for Files {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let mut text = String::new();
        self.write(&mut text);
        f.write_str(&text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_file_has_a_name_a_volume_and_a_path_of_its_own() {
        for (index, file) in LxcfsFile::ALL.into_iter().enumerate() {
            assert!(!file.name().is_empty());
            assert!(file.path().ends_with(&format!("/{}", file.name())));
            assert_eq!(LxcfsFile::named(file.name()), Some(file));
            assert_eq!(file as usize, index);
        }
    }

    #[test]
    fn a_set_keeps_the_order_of_all_files() {
        let set = Files::of(&[LxcfsFile::Uptime, LxcfsFile::Cpuinfo]);
        assert_eq!(set.to_string(), "cpuinfo,uptime");
        assert_eq!(set.len(), 2);
        assert!(set.without(set).is_empty());
        assert_eq!(
            Files::of(&LxcfsFile::ALL).filter(|file| file.shows() == Shows::Memory).to_string(),
            "meminfo,swaps,slabinfo"
        );
    }

    #[test]
    fn pressure_is_refused_with_its_reason_however_it_is_written() {
        for word in ["pressure", "pressure/cpu", "/proc/pressure/memory", "proc/pressure"] {
            assert!(why_refused(word).is_some_and(|why| why.contains("runc")), "{word}");
        }
        assert_eq!(why_refused("meminf"), None);
        assert_eq!(why_refused("pressures"), None);
    }
}
