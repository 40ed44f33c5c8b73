//! Addresses of this host that no other process uses. Every address of 127.0.0.0/8 exists without being added.
//!
//! All members of an etcd cluster listen on ports 2379 and 2380, as pods do, so each needs an address of its own.

use std::net::{Ipv4Addr, TcpListener};
use std::sync::atomic::{AtomicU32, Ordering};

use anyhow::{Result, bail};

/// The port for clients.
pub const CLIENT: u16 = 2379;

/// The port for peers.
pub(super) const PEER: u16 = 2380;

/// From 127.64.0.0 on, with enough addresses that concurrent runs start at different places.
const FIRST: u32 = u32::from_be_bytes([127, 64, 0, 0]);
const COUNT: u32 = 1 << 20;

/// The number of attempts; other runs can have members too.
const TRIES: u32 = 1_000;

/// The number of addresses that this process has tried.
static LOOKED: AtomicU32 = AtomicU32::new(0);

/// Returns an address on which both ports are free, each address once.
pub fn free() -> Result<Ipv4Addr> {
    // Concurrent runs start at different places.
    let begin = crate::supervisor::run_number().wrapping_mul(4_099) % COUNT;
    for _ in 0..TRIES {
        let looked = LOOKED.fetch_add(1, Ordering::Relaxed);
        let address = Ipv4Addr::from(FIRST + (begin + looked) % COUNT);
        if [CLIENT, PEER].into_iter().all(|port| TcpListener::bind((address, port)).is_ok()) {
            return Ok(address);
        }
    }
    bail!(
        "of {TRIES} loopback addresses none has the ports {CLIENT} and {PEER} free: does something listen there \
         on every address of this host?"
    )
}

#[cfg(test)]
mod tests {
    #[test]
    fn gives_no_address_twice_and_only_loopback_ones() {
        let some: std::collections::BTreeSet<_> = (0..50).map(|_| super::free().unwrap()).collect();
        assert_eq!(some.len(), 50);
        assert!(some.iter().all(std::net::Ipv4Addr::is_loopback));
    }
}
