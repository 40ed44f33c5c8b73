//! A pair of virtual interfaces between this host and a network namespace of the run's own.
//!
//! The host's end is `durward<x>` with 10.98.x.1/30; the other end is `eth0` in the namespace. The kernel takes
//! both away with the namespace, a moment after its last process has ended; what is done here is to have them
//! gone when the supervisor says that the run is over. The host's end bears the run's name as its alias, so that
//! no link of another run, which may have the same number by then, is ever taken for ours.

use std::net::{Ipv4Addr, TcpListener};
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail};

use crate::console::print;

/// The kernel tears a namespace down in its own time: tenths of a second on an idle machine.
const GONE_WITHIN: Duration = Duration::from_secs(10);

/// The number that a run would take as its `attempt`-th try.
pub(super) fn candidate(attempt: u8) -> u8 {
    let spread = u8::try_from(std::process::id() % 254).unwrap_or_default();
    1 + (spread.wrapping_add(attempt) % 254)
}

/// The host's address in this network.
pub(super) fn host_address(subnet: u8) -> Ipv4Addr {
    Ipv4Addr::new(10, 98, subnet, 1)
}

/// The name of the host's end.
pub(super) fn name(subnet: u8) -> String {
    format!("durward{subnet}")
}

/// Whether this host already has the link, or its address elsewhere.
pub(super) fn is_present(subnet: u8) -> bool {
    folder(subnet).exists() || TcpListener::bind((host_address(subnet), 0)).is_ok()
}

/// Makes the link. It must be in the journal already.
pub(super) fn add(subnet: u8, into: i32, run: &str) -> Result<()> {
    let name = name(subnet);
    let into = into.to_string();
    ip(&["link", "add", &name, "type", "veth", "peer", "name", "eth0", "netns", &into])?;
    let address = format!("{}/30", host_address(subnet));
    let dressed = ip(&["link", "set", &name, "alias", run])
        .and_then(|()| ip(&["addr", "add", &address, "dev", &name]))
        .and_then(|()| ip(&["link", "set", &name, "up"]));
    if dressed.is_err() {
        let _ = ip(&["link", "del", &name]);
    }
    dressed
}

/// Removes the link if it is there and ours; waits while it has no alias, which is one that a killed supervisor
/// had no time to give it: its namespace has ended.
pub(super) fn remove(subnet: u8, run: &str) {
    let began = Instant::now();
    while folder(subnet).exists() && began.elapsed() < GONE_WITHIN {
        let alias = std::fs::read_to_string(folder(subnet).join("ifalias")).unwrap_or_default();
        match alias.trim() {
            "" => {}
            alias if alias == run => {
                if let Err(error) = ip(&["link", "del", &name(subnet)])
                    && folder(subnet).exists()
                {
                    print(format_args!("cannot remove the link {}: {error:#}", name(subnet)));
                }
            }
            _ => return,
        }
        std::thread::sleep(Duration::from_millis(10));
    }
}

fn folder(subnet: u8) -> PathBuf {
    PathBuf::from("/sys/class/net").join(name(subnet))
}

fn ip(arguments: &[&str]) -> Result<()> {
    let output = Command::new("ip").args(arguments).stdin(Stdio::null()).output().context(
        "cannot run `ip`, which makes a node's network: install it (Debian: apt-get install iproute2)",
    )?;
    if !output.status.success() {
        let said = String::from_utf8_lossy(&output.stderr);
        bail!(
            "`ip {}` failed: {}; a node's network needs root, or CAP_NET_ADMIN, and the kernel's veth driver",
            arguments.join(" "),
            said.trim()
        );
    }
    Ok(())
}
