//! Free ports of this host.
//!
//! They are below the kernel's range for outgoing connections (32768 and up), so only another listener can take a port
//! before the process binds it. Within one run each is given out once.

use std::net::{Ipv4Addr, TcpListener};
use std::sync::atomic::{AtomicU16, Ordering};

use anyhow::{Result, bail};

const FIRST: u16 = 20_000;
const COUNT: u16 = 12_000;

/// The number of ports that this process has given out.
static GIVEN: AtomicU16 = AtomicU16::new(0);

/// Returns a port on which no process listens.
pub fn free() -> Result<u16> {
    // Concurrent runs start at different places.
    let begin = crate::supervisor::run_number().wrapping_mul(97) % u32::from(COUNT);
    for _ in 0..COUNT {
        let given = GIVEN.fetch_add(1, Ordering::Relaxed);
        let step = (begin + u32::from(given)) % u32::from(COUNT);
        let port = FIRST + u16::try_from(step).unwrap_or_default();
        if TcpListener::bind((Ipv4Addr::UNSPECIFIED, port)).is_ok() {
            return Ok(port);
        }
    }
    bail!("no port between {FIRST} and {} is free on this host", FIRST + COUNT)
}

#[cfg(test)]
mod tests {
    #[test]
    fn gives_no_port_twice() {
        let ports: std::collections::BTreeSet<_> = (0..50).map(|_| super::free().unwrap()).collect();
        assert_eq!(ports.len(), 50);
    }
}
