//! Checks the host before a node starts, and reports everything that is missing at once.

use std::fs::File;
use std::path::Path;
use std::process::{Command, Stdio};

use anyhow::{Result, bail};

use crate::node::PLUGINS as PLUGINS_DIRECTORY;
use crate::supervisor;

/// The commands that make the sandbox, and those that run in it.
const COMMANDS: [&str; 10] =
    ["ip", "mount", "umount", "nsenter", "unshare", "env", "containerd", "ctr", "runc", "lxcfs"];

/// The CNI plugins of the node's network.
const PLUGINS: [&str; 3] = ["bridge", "host-local", "loopback"];

/// Returns an error that lists what is missing, each with the remedy.
pub(super) fn check(work: &Path) -> Result<()> {
    let mut missing =
        missing_files(&std::env::var_os("PATH").unwrap_or_default(), Path::new(PLUGINS_DIRECTORY));
    if let Err(error) = File::options().read(true).write(true).open("/dev/fuse") {
        missing.push(format!(
            "FUSE, for LXCFS: /dev/fuse cannot be opened ({error}): modprobe fuse; in a container: docker run --privileged"
        ));
    }
    missing.extend(supervisor::cgroup_lack().map(|lack| format!("cgroups: {lack}")));
    if work.starts_with("/run") || work.starts_with("/var/run") {
        missing.push(format!(
            "another directory than {}, because a node has a /run of its own: set TMPDIR to one elsewhere",
            work.display()
        ));
    }
    if missing.is_empty() {
        missing.extend(namespace_lack());
    }
    if missing.is_empty() {
        return Ok(());
    }
    bail!("a node cannot run on this host, which lacks:\n- {}", missing.join("\n- "))
}

fn missing_files(path: &std::ffi::OsStr, plugins: &Path) -> Vec<String> {
    let is_in_path =
        |command: &str| std::env::split_paths(path).any(|directory| directory.join(command).is_file());
    let commands =
        COMMANDS.iter().filter(|command| !is_in_path(command)).map(|command| format!("`{command}`"));
    let plugins = PLUGINS.iter().map(|plugin| plugins.join(plugin)).filter(|plugin| !plugin.is_file());
    let files = commands.chain(plugins.map(|plugin| plugin.display().to_string()));
    files.map(|file| format!("{file}: `make prepare` installs it")).collect()
}

fn namespace_lack() -> Option<String> {
    let tried = Command::new("unshare")
        .args(["--mount", "--net", "--propagation=slave", "true"])
        .stdin(Stdio::null())
        .output();
    let error = match tried {
        Ok(output) if output.status.success() => return None,
        Ok(output) => String::from_utf8_lossy(&output.stderr).trim().to_owned(),
        Err(error) => error.to_string(),
    };
    Some(format!(
        "mount and network namespaces ({error}): they need CAP_SYS_ADMIN; in a container: docker run --privileged"
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reports_all_missing_files_with_the_remedy() {
        let nowhere = Path::new("/nowhere");
        let missing = missing_files(nowhere.as_os_str(), nowhere);
        assert_eq!(missing.len(), COMMANDS.len() + PLUGINS.len());
        assert!(missing.contains(&"`runc`: `make prepare` installs it".to_owned()), "{missing:?}");
        assert!(missing.contains(&"/nowhere/bridge: `make prepare` installs it".to_owned()), "{missing:?}");
    }

    #[test]
    fn reports_nothing_if_all_files_exist() {
        let directory = std::env::temp_dir().join(format!("durward-needs-{}", std::process::id()));
        std::fs::create_dir_all(&directory).unwrap();
        for name in COMMANDS.iter().chain(&PLUGINS) {
            std::fs::write(directory.join(name), "").unwrap();
        }
        let missing = missing_files(directory.as_os_str(), &directory);
        std::fs::remove_dir_all(&directory).unwrap();
        assert_eq!(missing, Vec::<String>::new());
    }
}
