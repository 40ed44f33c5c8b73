//! Network leases: addresses of the loopback device, and links into network namespaces.
//!
//! A link is a pair of virtual interfaces: `durward<x>` on the host with 10.98.x.1/30, and `eth0` in the namespace. The
//! kernel removes both a moment after the last process of the namespace has ended; [`remove_link`] waits for it. The
//! host's end has the run's name as its alias, so that a link of another run with the same number is never removed.

use std::net::{Ipv4Addr, TcpListener};
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail};

use super::journal::Lease;
use crate::console::print;

/// The kernel removes a namespace in tenths of a second on an idle machine.
const GONE_WITHIN: Duration = Duration::from_secs(10);

/// Returns an address in the middle of a /24 that nothing else here uses.
pub(super) fn address(number: u8) -> Ipv4Addr {
    Ipv4Addr::new(10, 99, number, 1)
}

fn link_address(subnet: u8) -> Ipv4Addr {
    Ipv4Addr::new(10, 98, subnet, 1)
}

fn link_name(subnet: u8) -> String {
    format!("durward{subnet}")
}

/// Returns whether the host has this address or link already.
pub(super) fn is_present(lease: &Lease) -> bool {
    let has = |address| TcpListener::bind((address, 0)).is_ok();
    match lease {
        Lease::Address(address) => has(*address),
        Lease::Link(subnet) => sysfs(*subnet).exists() || has(link_address(*subnet)),
        Lease::Cgroup(_) => false,
    }
}

/// Adds the address. It must be in the journal already.
pub(super) fn add_address(lease: &Lease) -> Result<()> {
    let Lease::Address(address) = lease else { return Ok(()) };
    ip(&["addr", "add", &format!("{address}/32"), "dev", "lo"])
}

/// Removes the address if it is there.
pub(super) fn remove_address(address: Ipv4Addr) {
    if is_present(&Lease::Address(address))
        && let Err(error) = ip(&["addr", "del", &format!("{address}/32"), "dev", "lo"])
    {
        print(format_args!("{error:#}"));
    }
}

/// Makes the link. It must be in the journal already.
pub(super) fn add_link(lease: &Lease, into: i32, run: &str) -> Result<()> {
    let Lease::Link(subnet) = lease else { return Ok(()) };
    let name = link_name(*subnet);
    ip(&["link", "add", &name, "type", "veth", "peer", "name", "eth0", "netns", &into.to_string()])?;
    let address = format!("{}/30", link_address(*subnet));
    let configured = ip(&["link", "set", &name, "alias", run])
        .and_then(|()| ip(&["addr", "add", &address, "dev", &name]))
        .and_then(|()| ip(&["link", "set", &name, "up"]));
    if configured.is_err() {
        let _ = ip(&["link", "del", &name]);
    }
    configured
}

/// Removes the link if it is there and has the run's alias. A link without an alias is one that its run could not name
/// before it was killed; the kernel removes it.
pub(super) fn remove_link(subnet: u8, run: &str) {
    let began = Instant::now();
    while sysfs(subnet).exists() && began.elapsed() < GONE_WITHIN {
        let alias = std::fs::read_to_string(sysfs(subnet).join("ifalias")).unwrap_or_default();
        match alias.trim() {
            "" => {}
            alias if alias == run => {
                if let Err(error) = ip(&["link", "del", &link_name(subnet)])
                    && sysfs(subnet).exists()
                {
                    print(format_args!("{error:#}"));
                }
            }
            _ => return,
        }
        std::thread::sleep(Duration::from_millis(10));
    }
}

fn sysfs(subnet: u8) -> PathBuf {
    PathBuf::from("/sys/class/net").join(link_name(subnet))
}

fn ip(arguments: &[&str]) -> Result<()> {
    let output = Command::new("ip").args(arguments).stdin(Stdio::null()).output();
    let output = output.context("cannot run `ip`: install it (Debian: apt-get install iproute2)")?;
    if !output.status.success() {
        bail!(
            "`ip {}` failed: {}; it needs CAP_NET_ADMIN and, for a node, the kernel's veth driver",
            arguments.join(" "),
            String::from_utf8_lossy(&output.stderr).trim()
        );
    }
    Ok(())
}
