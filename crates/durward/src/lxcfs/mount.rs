//! What is mounted at a path, by `/proc/self/mountinfo`: the kernel writes that table by itself, so reading it never waits for
//! the file system in question, as anything below the path may.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

/// The kind of file system that LXCFS mounts.
const LXCFS: &str = "fuse.lxcfs";

/// The topmost mount of a path.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Mount {
    /// The kernel's number for it: another one whenever it is mounted anew.
    pub(crate) id: String,
    /// The number of the file system: the same in every mount namespace that has it, and no other's.
    pub(crate) device: String,
    /// `fuse.lxcfs`, `ext4`, …
    pub(crate) kind: String,
}

impl Mount {
    /// What is mounted at exactly this path, in the mount namespace that this process is in.
    pub(crate) fn at(proc: &Path, path: &str) -> Option<Self> {
        Self::find(&Self::table(proc), path)
    }

    /// Every mount in the namespace that this process is in; nothing where that cannot be read.
    pub(super) fn table(proc: &Path) -> String {
        fs::read_to_string(proc.join("self/mountinfo")).unwrap_or_default()
    }

    /// The numbers of all file systems of LXCFS, wherever they are mounted.
    pub(super) fn devices(table: &str) -> BTreeSet<String> {
        let device = |line: &str| {
            let (mount, source) = line.split_once(" - ")?;
            (source.split(' ').next() == Some(LXCFS)).then_some(mount.split(' ').nth(2)?.to_owned())
        };
        table.lines().filter_map(device).collect()
    }

    /// Whether it is LXCFS's, alive or dead.
    pub(crate) fn is_lxcfs(&self) -> bool {
        self.kind == LXCFS
    }

    /// The same in the namespace of which this is the table. The last line that fits is what lies on top.
    pub(super) fn find(table: &str, path: &str) -> Option<Self> {
        table.lines().rev().find_map(|line| {
            let (mount, source) = line.split_once(" - ")?;
            let mut fields = mount.split(' ');
            let (id, device) = (fields.next()?, fields.nth(1)?);
            (unescaped(fields.nth(1)?) == path).then(|| Self {
                id: id.to_owned(),
                device: device.to_owned(),
                kind: source.split(' ').next().unwrap_or_default().to_owned(),
            })
        })
    }
}

/// The kernel writes blanks and backslashes as three octal digits.
fn unescaped(field: &str) -> String {
    let mut parts = field.split('\\');
    let mut text = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        let code = part.get(..3).and_then(|digits| u8::from_str_radix(digits, 8).ok());
        if let Some(byte) = code {
            text.push(char::from(byte));
            text.push_str(part.get(3..).unwrap_or_default());
        } else {
            text.push('\\');
            text.push_str(part);
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    const TABLE: &str = "21 1 254:1 / / rw,relatime - ext4 /dev/vda1 rw\n\
        90 21 254:1 /lib/lxcfs /var/lib/lxcfs rw shared:4 - ext4 /dev/vda1 rw\n\
        97 90 0:55 / /var/lib/lxcfs rw,nosuid shared:9 master:2 - fuse.lxcfs lxcfs rw,user_id=0\n\
        98 21 0:56 / /mnt/a\\040b\\134c rw - tmpfs tmpfs rw\n";

    #[test]
    fn what_lies_on_top_is_what_counts() {
        let top = Mount::find(TABLE, "/var/lib/lxcfs").unwrap();
        assert_eq!((top.id.as_str(), top.device.as_str(), top.kind.as_str()), ("97", "0:55", "fuse.lxcfs"));
        assert_eq!(Mount::find(TABLE, "/var/lib"), None);
        assert_eq!(Mount::find(TABLE, "/mnt/a b\\c").unwrap().kind, "tmpfs");
        assert_eq!(Mount::find("nonsense\n\n", "/"), None);
    }

    #[test]
    fn the_file_systems_of_lxcfs_are_known_by_their_numbers() {
        assert_eq!(Mount::devices(TABLE).into_iter().collect::<Vec<_>>(), ["0:55"]);
        assert!(Mount::devices("nonsense\n\n - fuse.lxcfs\n").is_empty());
    }

    #[test]
    fn this_process_sees_its_own_mounts() {
        assert!(Mount::at(Path::new("/proc"), "/proc").is_some());
    }
}
