//! Mounts, read from `/proc/self/mountinfo`. The kernel writes that table itself, so reading it never waits for a file system,
//! as reading anything below a mount point can.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

/// The file system type of LXCFS.
const LXCFS: &str = "fuse.lxcfs";

/// The topmost mount at a path.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Mount {
    /// The mount ID; a new one for each mount.
    pub(crate) id: String,
    /// The device number `major:minor` of the file system; the same in every mount namespace.
    pub(crate) device: String,
    /// `fuse.lxcfs`, `ext4`, …
    pub fs_type: String,
}

impl Mount {
    /// Returns the table of mounts of this process; empty if it cannot be read.
    pub(crate) fn table(proc: &Path) -> String {
        fs::read_to_string(proc.join("self/mountinfo")).unwrap_or_default()
    }

    /// Returns the device numbers of all LXCFS file systems in a table.
    pub(crate) fn lxcfs_devices(table: &str) -> BTreeSet<String> {
        let device = |line: &str| {
            let (mount, source) = line.split_once(" - ")?;
            (source.split(' ').next() == Some(LXCFS)).then_some(mount.split(' ').nth(2)?.to_owned())
        };
        table.lines().filter_map(device).collect()
    }

    /// Returns whether LXCFS is mounted, alive or dead.
    pub fn is_lxcfs(&self) -> bool {
        self.fs_type == LXCFS
    }

    /// Returns the mount at exactly this path in a table. A later line hides earlier ones.
    pub(crate) fn find(table: &str, path: &str) -> Option<Self> {
        table.lines().rev().find_map(|line| {
            let (mount, source) = line.split_once(" - ")?;
            let mut fields = mount.split(' ');
            let (id, device) = (fields.next()?, fields.nth(1)?);
            (unescaped(fields.nth(1)?) == path).then(|| Self {
                id: id.to_owned(),
                device: device.to_owned(),
                fs_type: source.split(' ').next().unwrap_or_default().to_owned(),
            })
        })
    }
}

/// Decodes the kernel's `\040` for blanks, tabs, line ends and backslashes.
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
    fn returns_the_topmost_mount() {
        let top = Mount::find(TABLE, "/var/lib/lxcfs").unwrap();
        assert_eq!((top.id.as_str(), top.device.as_str(), top.fs_type.as_str()), ("97", "0:55", LXCFS));
        assert_eq!(Mount::find(TABLE, "/var/lib"), None);
        assert_eq!(Mount::find(TABLE, "/mnt/a b\\c").unwrap().fs_type, "tmpfs");
        assert_eq!(Mount::find("nonsense\n\n", "/"), None);
    }

    #[test]
    fn returns_the_device_numbers_of_lxcfs() {
        assert_eq!(Mount::lxcfs_devices(TABLE).into_iter().collect::<Vec<_>>(), ["0:55"]);
        assert!(Mount::lxcfs_devices("nonsense\n\n - fuse.lxcfs\n").is_empty());
    }

    #[test]
    fn reads_the_mounts_of_this_process() {
        assert!(Mount::find(&Mount::table(Path::new("/proc")), "/proc").is_some());
    }
}
