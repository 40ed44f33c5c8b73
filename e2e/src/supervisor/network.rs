//! Links between this host and network namespaces.
//!
//! A link is a pair of virtual interfaces: `durward<x>` on the host with 10.98.x.1/30, and `eth0` in the namespace. The kernel
//! removes both with the last process of the namespace, so no other cleanup is needed.

use std::process::{Command, Stdio};

use anyhow::{Context as _, Result, bail};

use super::isolate::run_number;

/// Connects the host to the network namespace of a process. Returns x. The alias of the host's interface is the name of the run.
///
/// The interface `eth0` of the namespace is still down and is meant for the second address of the network.
pub(super) fn link(into: i32, run: &str) -> Result<u8> {
    // Concurrent runs start at different places.
    let [begin, ..] = run_number().to_le_bytes();
    for attempt in 0..=u8::MAX {
        let subnet = begin.wrapping_add(attempt);
        let name = format!("durward{subnet}");
        let exists = || std::path::Path::new("/sys/class/net").join(&name).exists();
        if exists() {
            continue;
        }
        let pair = format!(
            "link add {name} type veth peer name eth0 netns {into}\nlink set {name} alias {run}\n\
             addr add 10.98.{subnet}.1/30 dev {name}\nlink set {name} up\n"
        );
        match ip(&pair) {
            Ok(()) => return Ok(subnet),
            // Another run was faster.
            Err(_) if exists() => {}
            Err(error) => return Err(error),
        }
    }
    bail!("all of 10.98.0.0/16 is in use on this host")
}

fn ip(lines: &str) -> Result<()> {
    let mut child = Command::new("ip")
        .args(["-batch", "-"])
        .stdin(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .context("cannot run `ip`: install it (Debian: apt-get install iproute2)")?;
    std::io::Write::write_all(&mut child.stdin.take().context("no input")?, lines.as_bytes())?;
    let output = child.wait_with_output()?;
    if !output.status.success() {
        bail!(
            "{lines}`ip` failed: {}; it needs CAP_NET_ADMIN and, for a node, the kernel's veth driver",
            String::from_utf8_lossy(&output.stderr).trim()
        );
    }
    Ok(())
}
