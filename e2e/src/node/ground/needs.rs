//! What a host must have before a node can stand on it, told all at once.

use std::fs::File;
use std::path::Path;
use std::process::{Command, Stdio};

use anyhow::{Result, bail};

use crate::keeper;

/// The commands that lay the ground, and the Debian package of each.
const COMMANDS: [(&str, &str); 6] = [
    ("ip", "iproute2"),
    ("mount", "mount"),
    ("umount", "mount"),
    ("nsenter", "util-linux"),
    ("unshare", "util-linux"),
    ("env", "coreutils"),
];

/// An error that lists what is missing, each with the way to get it.
pub(super) fn check(folder: &Path) -> Result<()> {
    let mut missing = Vec::new();
    if !rustix::process::geteuid().is_root() {
        missing.push("root: run it as root, or with sudo".to_owned());
    }
    for (command, package) in COMMANDS {
        if !is_there(command) {
            missing.push(format!("the command `{command}`: apt-get install {package}"));
        }
    }
    if let Err(error) = File::options().read(true).write(true).open("/dev/fuse") {
        missing.push(format!(
            "FUSE, for LXCFS: /dev/fuse cannot be opened ({error}): modprobe fuse; in a container: docker run --privileged"
        ));
    }
    missing.extend(keeper::cgroup_lack().map(|lack| format!("cgroups: {lack}")));
    if missing.is_empty() {
        missing.extend(namespace_lack());
    }
    if folder.starts_with("/run") || folder.starts_with("/var/run") {
        missing.push(format!(
            "another folder than {}: the node has a /run of its own: set TMPDIR to a folder elsewhere",
            folder.display()
        ));
    }
    if missing.is_empty() {
        return Ok(());
    }
    bail!("a node cannot stand on this host, for it lacks:\n- {}", missing.join("\n- "))
}

/// Asked last: without root or `unshare` the answer would say the same again.
fn namespace_lack() -> Option<String> {
    let tried = Command::new("unshare")
        .args(["--mount", "--net", "--propagation=slave", "true"])
        .stdin(Stdio::null())
        .output();
    let why = match tried {
        Ok(output) if output.status.success() => return None,
        Ok(output) => String::from_utf8_lossy(&output.stderr).trim().to_owned(),
        Err(error) => error.to_string(),
    };
    Some(format!(
        "mount and network namespaces of its own ({why}): they need CAP_SYS_ADMIN; in a container: docker run --privileged"
    ))
}

fn is_there(command: &str) -> bool {
    std::env::var_os("PATH")
        .is_some_and(|path| std::env::split_paths(&path).any(|folder| folder.join(command).is_file()))
}
