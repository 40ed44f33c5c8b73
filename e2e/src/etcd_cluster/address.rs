//! Addresses of this host that nobody else has: every one of 127.0.0.0/8 is there without being added.
//!
//! Members of one etcd cluster all listen on 2379 and 2380, as pods do, so each needs an address of its own.

use std::net::{Ipv4Addr, TcpListener};
use std::sync::atomic::{AtomicU32, Ordering};

use anyhow::{Result, bail};

/// Where members serve clients.
pub const CLIENT: u16 = 2379;

/// Where members speak to each other.
pub(super) const PEER: u16 = 2380;

/// 127.64.0.0 and up, and so many that two runs which begin at different places do not meet.
const FIRST: u32 = u32::from_be_bytes([127, 64, 0, 0]);
const COUNT: u32 = 1 << 20;

/// So many are tried. More than one run has members.
const TRIES: u32 = 1_000;

/// How many have been looked at in this process.
static LOOKED: AtomicU32 = AtomicU32::new(0);

/// An address on which both ports are free. Within one run none is given out twice.
pub fn free() -> Result<Ipv4Addr> {
    // Runs beside each other begin at different places: the process id spreads them.
    let begin = std::process::id().wrapping_mul(4_099) % COUNT;
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
