//! Which Debian package has a file, for the sentence that says that it is missing.
//!
//! `scripts/prepare.sh` installs these, but for what every Debian has.

use std::io::ErrorKind;
use std::path::Path;

/// A file's name, and the package that has it.
const PACKAGES: [(&str, &str); 16] = [
    ("busybox", "busybox-static"),
    ("cc", "gcc"),
    ("containerd", "containerd"),
    ("ctr", "containerd"),
    ("free", "procps"),
    ("fusermount3", "fuse3"),
    ("ip", "iproute2"),
    ("liblxcfs.so", "lxcfs"),
    ("lscpu", "util-linux"),
    ("lxcfs", "lxcfs"),
    ("mount", "mount"),
    ("mountpoint", "util-linux"),
    ("runc", "runc"),
    ("umount", "mount"),
    ("uptime", "procps"),
    ("vmstat", "procps"),
];

/// Of coreutils, what an image may hold: Debian's own, since busybox's namesakes ask the kernel where these read
/// a file.
pub(super) const COREUTILS: [&str; 24] = [
    "cat", "chmod", "cp", "date", "dd", "df", "echo", "env", "head", "id", "ln", "ls", "mkdir", "mv",
    "nproc", "readlink", "rm", "sleep", "stat", "sync", "tail", "timeout", "touch", "wc",
];

/// What every Debian has, and no script installs.
const ALWAYS: [(&str, &str); 2] = [("getconf", "libc-bin"), ("sh", "dash")];

/// The package of a file of this name.
fn of(path: &Path) -> Option<&'static str> {
    let name = path.file_name()?.to_str()?;
    let known = PACKAGES.iter().chain(&ALWAYS).find(|(file, _)| *file == name).map(|(_, package)| *package);
    known.or_else(|| COREUTILS.contains(&name).then_some("coreutils"))
}

/// Why a host file cannot be had for an image, and what to do.
pub(super) fn missing(path: &Path, error: &std::io::Error) -> anyhow::Error {
    let shown = path.display();
    if error.kind() != ErrorKind::NotFound {
        return anyhow::anyhow!("cannot look at {shown}, which goes into an image: {error}");
    }
    match of(path) {
        Some(package) => anyhow::anyhow!(
            "{shown}, which goes into an image, is not on this host. Debian's package {package} has it: `make prepare`, \
             or apt-get install --no-install-recommends {package}"
        ),
        None => anyhow::anyhow!("{shown}, which goes into an image, is not on this host"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn prepare_installs_every_package_that_a_sentence_names() {
        let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../scripts/prepare.sh");
        let script = std::fs::read_to_string(script).unwrap();
        for (file, package) in PACKAGES {
            let is_needed = script.lines().any(|line| {
                let mut words = line.split_ascii_whitespace();
                words.next() == Some("needs") && words.next() == Some(package)
            });
            assert!(is_needed, "{file}: prepare.sh does not install {package}");
        }
    }

    #[test]
    fn a_missing_file_is_told_with_its_package_and_another_trouble_is_told_as_it_is() {
        let gone = std::io::Error::from(ErrorKind::NotFound);
        let said = missing(Path::new("/usr/bin/nproc"), &gone).to_string();
        assert!(said.contains("package coreutils"), "{said}");
        let said = missing(Path::new("/opt/odd"), &gone).to_string();
        assert_eq!(said, "/opt/odd, which goes into an image, is not on this host");
        let denied = std::io::Error::from(ErrorKind::PermissionDenied);
        let said = missing(Path::new("/usr/bin/lxcfs"), &denied).to_string();
        assert!(said.contains("permission denied") && !said.contains("apt-get"), "{said}");
    }
}
