//! A set of files of LXCFS.

use ::lxcfs::LxcfsFile;

/// A set of files.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Files(u16);

impl Files {
    /// Returns the set of these files.
    pub(super) fn of(files: &[LxcfsFile]) -> Self {
        files.iter().fold(Self::default(), |set, &file| set.with(file))
    }

    /// Returns this set with `file`.
    pub(super) fn with(self, file: LxcfsFile) -> Self {
        Self(self.0 | 1 << file as u16)
    }

    /// Returns the union of both sets.
    pub(super) fn union(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }

    /// Returns the files in both sets.
    pub(super) fn intersection(self, other: Self) -> Self {
        Self(self.0 & other.0)
    }

    /// Returns this set without the files of `other`.
    pub(super) fn without(self, other: Self) -> Self {
        Self(self.0 & !other.0)
    }

    /// Returns whether the set contains `file`.
    pub(super) fn contains(self, file: LxcfsFile) -> bool {
        self.0 >> file as u16 & 1 == 1
    }

    /// Returns whether the set is empty.
    pub(super) fn is_empty(self) -> bool {
        self.0 == 0
    }

    /// Returns the number of files.
    pub(super) fn len(self) -> usize {
        self.0.count_ones() as usize
    }

    /// Returns the files in the order of [`LxcfsFile::ALL`].
    pub(super) fn iter(self) -> impl Iterator<Item = LxcfsFile> {
        LxcfsFile::ALL.into_iter().filter(move |&file| self.contains(file))
    }

    /// Returns the files for which `keep` returns true.
    pub(super) fn filter(self, keep: impl Fn(LxcfsFile) -> bool) -> Self {
        self.iter().filter(|&file| keep(file)).fold(Self::default(), Self::with)
    }
}

impl std::fmt::Display for Files {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        for (index, file) in self.iter().enumerate() {
            f.write_str(if index > 0 { "," } else { "" })?;
            f.write_str(file.name())?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use ::lxcfs::FileScope;

    use super::*;

    #[test]
    fn a_set_keeps_the_order_of_all_files() {
        let set = Files::of(&[LxcfsFile::Uptime, LxcfsFile::Cpuinfo]);
        assert_eq!(set.to_string(), "cpuinfo,uptime");
        assert_eq!(set.len(), 2);
        assert!(set.without(set).is_empty());
        assert_eq!(
            Files::of(&LxcfsFile::ALL).filter(|file| file.scope() == FileScope::Memory).to_string(),
            "meminfo,swaps,slabinfo"
        );
    }
}
