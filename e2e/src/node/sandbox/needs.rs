//! What a host must have before a node can stand on it, told all at once.

use std::ffi::OsString;
use std::fs::File;
use std::path::Path;
use std::process::{Command, Stdio};

use anyhow::{Result, bail};

use crate::node::PLUGINS as PLUGINS_FOLDER;
use crate::supervisor;

/// The commands that lay the sandbox, then those that stand on it, and the Debian package of each.
const COMMANDS: [(&str, &str); 10] = [
    ("ip", "iproute2"),
    ("mount", "mount"),
    ("umount", "mount"),
    ("nsenter", "util-linux"),
    ("unshare", "util-linux"),
    ("env", "coreutils"),
    ("containerd", "containerd"),
    ("ctr", "containerd"),
    ("runc", "runc"),
    ("lxcfs", "lxcfs"),
];

/// The programs that join pods to the node's network, and their Debian package.
const PLUGINS: [&str; 3] = ["bridge", "host-local", "loopback"];
const PLUGINS_PACKAGE: &str = "containernetworking-plugins";

/// What is looked at of a host.
struct Host<'a> {
    is_root: bool,
    path: OsString,
    plugins: &'a Path,
    fuse: &'a Path,
    folder: &'a Path,
    cgroup_lack: Option<String>,
}

/// An error that lists what is missing, each with the way to get it.
pub(super) fn check(folder: &Path) -> Result<()> {
    let host = Host {
        is_root: rustix::process::geteuid().is_root(),
        path: std::env::var_os("PATH").unwrap_or_default(),
        plugins: Path::new(PLUGINS_FOLDER),
        fuse: Path::new("/dev/fuse"),
        folder,
        cgroup_lack: supervisor::cgroup_lack(),
    };
    let mut missing = host.missing();
    if missing.is_empty() {
        missing.extend(namespace_lack());
    }
    if missing.is_empty() {
        return Ok(());
    }
    bail!("a node cannot stand on this host, for it lacks:\n- {}", missing.join("\n- "))
}

impl Host<'_> {
    fn missing(&self) -> Vec<String> {
        let mut missing = Vec::new();
        if !self.is_root {
            missing.push("root: run it as root, or with sudo".to_owned());
        }
        for (command, package) in COMMANDS {
            if !std::env::split_paths(&self.path).any(|folder| folder.join(command).is_file()) {
                missing.push(format!("the command `{command}`: apt-get install {package}"));
            }
        }
        for plugin in
            PLUGINS.map(|plugin| self.plugins.join(plugin)).iter().filter(|plugin| !plugin.is_file())
        {
            missing.push(format!("{}: apt-get install {PLUGINS_PACKAGE}", plugin.display()));
        }
        if let Err(error) = File::options().read(true).write(true).open(self.fuse) {
            missing.push(format!(
                "FUSE, for LXCFS: {} cannot be opened ({error}): modprobe fuse; in a container: docker run --privileged",
                self.fuse.display()
            ));
        }
        missing.extend(self.cgroup_lack.iter().map(|lack| format!("cgroups: {lack}")));
        if self.folder.starts_with("/run") || self.folder.starts_with("/var/run") {
            missing.push(format!(
                "another folder than {}, for a node has a /run of its own: set TMPDIR to a folder elsewhere",
                self.folder.display()
            ));
        }
        missing
    }
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_that_is_missing_is_told_at_once_with_the_way_to_get_it() {
        let host = Host {
            is_root: false,
            path: "/nowhere".into(),
            plugins: Path::new("/nowhere/cni"),
            fuse: Path::new("/nowhere/fuse"),
            folder: Path::new("/run/user/1000/durward"),
            cgroup_lack: Some("no memory".to_owned()),
        };
        let told = host.missing().join("\n");
        for words in [
            "root: run it as root",
            "`ip`: apt-get install iproute2",
            "`nsenter`: apt-get install util-linux",
            "`runc`: apt-get install runc",
            "/nowhere/cni/bridge: apt-get install containernetworking-plugins",
            "/nowhere/fuse cannot be opened (No such file or directory (os error 2)): modprobe fuse",
            "cgroups: no memory",
            "set TMPDIR",
        ] {
            assert!(told.contains(words), "{words:?} is not told:\n{told}");
        }
    }

    #[test]
    fn a_host_that_has_all_lacks_nothing() {
        let folder = std::env::temp_dir().join(format!("durward-needs-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        for name in COMMANDS.iter().map(|(command, _)| command).chain(&PLUGINS) {
            std::fs::write(folder.join(name), "").unwrap();
        }
        let host = Host {
            is_root: true,
            path: folder.clone().into(),
            plugins: &folder,
            fuse: &folder.join("ip"),
            folder: Path::new("/tmp/durward"),
            cgroup_lack: None,
        };
        let missing = host.missing();
        std::fs::remove_dir_all(&folder).unwrap();
        assert_eq!(missing, Vec::<String>::new());
    }
}
