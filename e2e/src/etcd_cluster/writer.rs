//! Somebody who writes to an etcd cluster without a pause, and somebody who looks at its members meanwhile: what a
//! change of the etcd cluster costs those who use it.
//!
//! All are threads in the network of the node on which the members' pods run. Several write, as a proposal that a
//! follower has handed to a leader who hands over is lost without a word, and who made it waits in vain. A write
//! counts when a member has acknowledged it; one that nobody acknowledged may have been done or not, and is not
//! asked about.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::os::fd::AsFd as _;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Error, Result};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};
use serde_json::{Value, json};

use super::address::CLIENT;
use crate::plain_http;
use crate::wait::{Poll, SetOnDrop, eventually};

/// A connection on this host takes no time at all, unless nobody has the address any more.
const CONNECTED_WITHIN: Duration = Duration::from_millis(200);

/// A write takes milliseconds, and on a machine that does much else hundreds of them. Whom nobody answers for so
/// long asks the next member.
const PATIENCE: Duration = Duration::from_secs(1);

/// How many write at once.
const WRITERS: usize = 4;

/// Between two writes, and between two looks at the members. Far less than any gap that is told apart.
const PAUSE: Duration = Duration::from_millis(5);

/// Before and after the deed there is a quiet time, which every gap is to be compared with.
const QUIET: Duration = Duration::from_secs(2);

/// Members that were all replaced agree again within some elections.
const READ_WITHIN: Duration = Duration::from_secs(120);

/// What every key begins with, and what follows all of them.
const KEYS: (&str, &str) = ("written-", "written.");

/// Where the members are now; the case keeps it true while pods come and go.
#[derive(Debug, Default)]
pub struct Addresses(Mutex<Vec<Ipv4Addr>>);

impl Addresses {
    /// They are these from now on.
    pub fn are(&self, now: Vec<Ipv4Addr>) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = now;
    }

    fn now(&self) -> Vec<Ipv4Addr> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

/// What it cost.
#[derive(Debug)]
pub struct Cost {
    /// How many writes were acknowledged.
    pub acknowledged: usize,
    /// Those of them that are not there afterwards.
    pub lost: BTreeSet<String>,
    /// The longest time without an acknowledged write.
    pub gap: Duration,
    /// The longest time for which one member said that it knows of no leader. A leader that hands over leaves the
    /// members without one for as long as a message takes.
    pub leaderless: Duration,
}

/// Writes while `deed` is done, and counts afterwards what is there. `network` is where the members can be
/// reached.
pub fn under_writes(
    network: &Path,
    addresses: &Addresses,
    deed: impl FnOnce() -> Result<()>,
) -> Result<Cost> {
    let (over, written) = (AtomicBool::new(false), Mutex::new(Written::new()));
    let (done, wrote, leaderless) = thread::scope(|scope| {
        let (written, over) = (&written, &over);
        let writers: Vec<_> = (0..WRITERS)
            .map(|who| {
                scope.spawn(move || {
                    within(network, || {
                        write(who, addresses, written, over);
                        Ok(())
                    })
                })
            })
            .collect();
        let watcher = scope.spawn(|| within(network, || Ok(watch(addresses, over))));
        let ends = SetOnDrop(over);
        thread::sleep(QUIET);
        let done = deed();
        thread::sleep(QUIET);
        drop(ends);
        let panicked = |_| Err(Error::msg("a writer panicked"));
        let wrote: Result<()> =
            writers.into_iter().try_for_each(|writer| writer.join().unwrap_or_else(panicked));
        (done, wrote, watcher.join().unwrap_or_else(|_| Err(Error::msg("the watcher panicked"))))
    });
    done?;
    wrote?;
    let Written { keys, gap, last } = written.into_inner().unwrap_or_else(PoisonError::into_inner);
    let gap = gap.max(last.elapsed());
    let present = thread::scope(|scope| {
        let reader = scope.spawn(|| within(network, || present(addresses)));
        reader.join().unwrap_or_else(|_| Err(Error::msg("the reader panicked")))
    })?;
    let lost = keys.iter().filter(|key| !present.contains(*key)).cloned().collect();
    Ok(Cost { acknowledged: keys.len(), lost, gap, leaderless: leaderless? })
}

/// Does something on this thread, in that network. The thread stays there, so it must be one that ends.
fn within<T>(network: &Path, work: impl FnOnce() -> Result<T>) -> Result<T> {
    let file = File::open(network).with_context(|| format!("cannot open {}", network.display()))?;
    move_into_link_name_space(file.as_fd(), Some(LinkNameSpaceType::Network))
        .with_context(|| format!("cannot join the network {}", network.display()))?;
    work()
}

fn ask(address: Ipv4Addr, path: &str, question: &Value) -> Option<Value> {
    let at = SocketAddr::new(IpAddr::from(address), CLIENT);
    let within = (CONNECTED_WITHIN, PATIENCE);
    let page = plain_http::exchange_within(within, at, "POST", path, &question.to_string()).ok()?;
    (page.status == 200).then(|| serde_json::from_str(&page.body).ok()).flatten()
}

/// What was acknowledged, by whomever.
struct Written {
    keys: Vec<String>,
    gap: Duration,
    last: Instant,
}

impl Written {
    fn new() -> Self {
        Self { keys: Vec::new(), gap: Duration::ZERO, last: Instant::now() }
    }

    fn acknowledge(&mut self, key: String) {
        self.gap = self.gap.max(self.last.elapsed());
        self.last = Instant::now();
        self.keys.push(key);
    }
}

/// Writes one key after another, to the same member for as long as it answers.
fn write(who: usize, addresses: &Addresses, written: &Mutex<Written>, over: &AtomicBool) {
    let mut at = who;
    for number in 0_u32.. {
        if over.load(Ordering::Relaxed) {
            break;
        }
        let members = addresses.now();
        let Some(address) = members.get(at % members.len().max(1)) else {
            thread::sleep(PAUSE);
            continue;
        };
        let key = format!("{}{who}-{number}", KEYS.0);
        let pair = json!({"key": STANDARD.encode(&key), "value": STANDARD.encode(number.to_string())});
        if ask(*address, "/v3/kv/put", &pair).is_some() {
            written.lock().unwrap_or_else(PoisonError::into_inner).acknowledge(key);
        } else {
            at += 1;
        }
        thread::sleep(PAUSE);
    }
}

/// The longest time for which one member said that nobody leads.
fn watch(addresses: &Addresses, over: &AtomicBool) -> Duration {
    let mut since: BTreeMap<Ipv4Addr, Instant> = BTreeMap::new();
    let mut longest = Duration::ZERO;
    while !over.load(Ordering::Relaxed) {
        for address in addresses.now() {
            let Some(status) = ask(address, "/v3/maintenance/status", &json!({})) else {
                since.remove(&address);
                continue;
            };
            if status["leader"].as_str().is_some_and(|leader| leader != "0") {
                since.remove(&address);
            } else {
                longest = longest.max(since.entry(address).or_insert_with(Instant::now).elapsed());
            }
        }
        thread::sleep(PAUSE);
    }
    longest
}

/// All keys that are there, as a quorum has them.
fn present(addresses: &Addresses) -> Result<BTreeSet<String>> {
    let range = json!({
        "key": STANDARD.encode(KEYS.0), "range_end": STANDARD.encode(KEYS.1), "keys_only": true,
    });
    eventually("a member to read what was written", READ_WITHIN, || {
        let read = addresses.now().into_iter().find_map(|address| {
            let at = SocketAddr::new(IpAddr::from(address), CLIENT);
            let page = plain_http::exchange(at, "POST", "/v3/kv/range", &range.to_string()).ok()?;
            (page.status == 200).then(|| serde_json::from_str::<Value>(&page.body).ok()).flatten()
        });
        let Some(read) = read else { return Ok(Poll::Pending("nobody answers".to_owned())) };
        let pairs = read["kvs"].as_array().into_iter().flatten();
        let keys = pairs.filter_map(|pair| STANDARD.decode(pair["key"].as_str()?).ok());
        Ok(Poll::Ready(keys.filter_map(|key| String::from_utf8(key).ok()).collect()))
    })
}
