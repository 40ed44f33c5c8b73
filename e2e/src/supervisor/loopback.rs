//! Addresses of our own on the loopback device.
//!
//! The API server does not accept 127.0.0.0/8 in an `EndpointSlice`, so a webhook behind a Service needs
//! another address of this host. Adding one to `lo` needs `ip` and `CAP_NET_ADMIN`, and works where there is
//! no dummy driver.

use std::net::{Ipv4Addr, TcpListener};
use std::process::{Command, Stdio};

use anyhow::{Context as _, Result, bail};

use crate::console::print;

/// The address that a run would take as its `attempt`-th try: the middle of a /24 that nothing else here
/// uses.
pub(super) fn candidate(attempt: u8) -> Ipv4Addr {
    let spread = u8::try_from(std::process::id() % 254).unwrap_or_default();
    Ipv4Addr::new(10, 99, 1 + (spread.wrapping_add(attempt) % 254), 1)
}

/// Whether this host already has the address.
pub(super) fn is_present(address: Ipv4Addr) -> bool {
    TcpListener::bind((address, 0)).is_ok()
}

/// Adds the address. It must be in the journal already.
pub(super) fn add(address: Ipv4Addr) -> Result<()> {
    let output = ip("add", address).output().context(
        "cannot run `ip`, which adds an address to the loopback device: install it (Debian: apt-get install iproute2)",
    )?;
    if !output.status.success() {
        bail!(
            "cannot add {address} to the loopback device: {}; the tests need root, or CAP_NET_ADMIN, for webhooks behind a Service",
            String::from_utf8_lossy(&output.stderr).trim()
        );
    }
    Ok(())
}

/// Removes the address if it is there.
pub(super) fn remove(address: Ipv4Addr) {
    if !is_present(address) {
        return;
    }
    match ip("del", address).output() {
        Ok(output) if output.status.success() => {}
        Ok(output) => {
            let why = String::from_utf8_lossy(&output.stderr);
            print(format_args!("cannot remove {address} from the loopback device: {}", why.trim()));
        }
        Err(error) => print(format_args!("cannot remove {address} from the loopback device: {error}")),
    }
}

fn ip(verb: &str, address: Ipv4Addr) -> Command {
    let mut command = Command::new("ip");
    command.args(["addr", verb, &format!("{address}/32"), "dev", "lo"]).stdin(Stdio::null());
    command
}
