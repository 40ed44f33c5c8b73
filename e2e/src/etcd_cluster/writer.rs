//! Writes to an etcd cluster without pause and watches its members, to measure the effect of a change on clients.
//!
//! The threads are in the network of the members' node. There are several writers, because a proposal that a follower
//! sent to a leader that transfers the leadership is lost, and its writer waits. A write counts if a member has
//! acknowledged it.

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

/// A connection on this host takes no time, unless the address is gone.
const CONNECTED_WITHIN: Duration = Duration::from_millis(200);

/// A write takes milliseconds, and hundreds of them on a loaded machine. After this time the writer uses the next
/// member.
const PATIENCE: Duration = Duration::from_secs(1);

/// The number of concurrent writers.
const WRITERS: usize = 4;

/// The pause between writes and between status requests, far less than any measured gap.
const PAUSE: Duration = Duration::from_millis(5);

/// The quiet time before and after the change, for comparison.
const QUIET: Duration = Duration::from_secs(2);

/// The kubelet restarts containers that end again and again after up to five minutes. Then members need some elections.
const READ_WITHIN: Duration = Duration::from_secs(420);

/// The prefix of every key, and the end of the range.
const KEYS: (&str, &str) = ("written-", "written.");

/// The current addresses of the members, which the case updates.
#[derive(Debug, Default)]
pub struct Addresses(Mutex<Vec<Ipv4Addr>>);

impl Addresses {
    /// Sets the addresses.
    pub fn set(&self, now: Vec<Ipv4Addr>) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = now;
    }

    fn now(&self) -> Vec<Ipv4Addr> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

/// The measured effect.
#[derive(Debug)]
pub struct Cost {
    /// The number of acknowledged writes.
    pub acknowledged: usize,
    /// The acknowledged keys that are missing afterwards.
    pub lost: BTreeSet<String>,
    /// The longest time without an acknowledged write.
    pub gap: Duration,
    /// The longest time in which one member knew no leader. A leadership transfer takes as long as a message.
    pub leaderless: Duration,
}

/// Writes during `change` and compares the keys afterwards. `network` is the network namespace of the members.
pub fn under_writes(
    network: &Path,
    addresses: &Addresses,
    change: impl FnOnce() -> Result<()>,
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
        let done = change();
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

/// Runs `work` on this thread in that network. The thread stays there, so it must end afterwards.
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

/// The acknowledged writes of all writers.
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

/// Writes one key after another to the same member as long as it answers.
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

/// Returns the longest time in which one member knew no leader.
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

/// Returns all keys by a linearizable read.
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
        let Some(read) = read else { return Ok(Poll::Pending("no member answers".to_owned())) };
        let pairs = read["kvs"].as_array().into_iter().flatten();
        let keys = pairs.filter_map(|pair| STANDARD.decode(pair["key"].as_str()?).ok());
        Ok(Poll::Ready(keys.filter_map(|key| String::from_utf8(key).ok()).collect()))
    })
}
