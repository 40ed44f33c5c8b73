//! The changes that the guard makes: it reserves deletions and moves leadership. The only user of the writer.
//!
//! A reservation is a compare-and-swap over the set that the decision used. If two members are allowed at once, the second review
//! therefore counts the first member as gone. `reservations.rs` defines how long a reservation counts.
//!
//! Reservations are never withdrawn. A pod that was replaced has another uid. If a later webhook denied the deletion, another review
//! of the same deletion may have relied on the reservation. The next write drops expired reservations.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::SystemTime;

use admission::{Cause, lock};
use tokio::sync::OwnedMutexGuard;
use tokio::time::{Instant, timeout_at};

use super::config::Coordination;
use super::kube_reader::KubeReader;
use super::reservations;
use cluster::cause;
use cluster::etcd::{Endpoint, Id};
use cluster::writer::{Lease, Reservation, Reservations, TransferResult, WriteResult, Writer};

/// The reservations of this process (`coordination: inMemory`). They outlive a reload of the configuration.
static LOCAL: Mutex<LocalReservations> = Mutex::new(LocalReservations::new());

/// The reservations of this process at most, which are 32 full Leases: about 5 MB.
const MAX_LOCAL: usize = 16_384;

/// The queues of reviews in this process that write one Lease, by Lease.
static QUEUES: Mutex<BTreeMap<String, Queue>> = Mutex::new(BTreeMap::new());

type Queue = Arc<tokio::sync::Mutex<()>>;

/// The reservations of this process, by Lease.
#[derive(Debug)]
struct LocalReservations {
    /// The number of writes. All Leases share it, so a set has another version than all sets before it, also if those were dropped.
    writes: u64,
    stores: BTreeMap<String, LocalStore>,
}

#[derive(Debug, Default, Clone)]
struct LocalStore {
    version: u64,
    held: Vec<Reservation>,
}

impl LocalReservations {
    const fn new() -> Self {
        Self { writes: 0, stores: BTreeMap::new() }
    }

    fn read(&self, key: &str) -> Reservations {
        let store = self.stores.get(key).cloned().unwrap_or_default();
        Reservations { version: Some(store.version.to_string()), held: store.held }
    }

    /// Replaces a set that was not written since it was read. Drops reservations of all Leases that count for nothing, and never
    /// others: at the limit, the write fails.
    fn write(&mut self, key: String, set: Reservations, now: SystemTime) -> WriteResult {
        if set.version != self.read(&key).version {
            return WriteResult::Conflict;
        }
        for store in self.stores.values_mut() {
            store.held.retain(|held| reservations::is_kept(held, now));
        }
        self.stores.retain(|_, store| !store.held.is_empty());
        let others = self.stores.iter().filter(|(other, _)| **other != key);
        let others: usize = others.map(|(_, store)| store.held.len()).sum();
        if others + set.held.len() > MAX_LOCAL {
            let text = "too many deletions of etcd members in all namespaces at once";
            return WriteResult::Failed(Cause::new(cause::OVERLOADED, text));
        }
        self.writes += 1;
        self.stores.insert(key, LocalStore { version: self.writes, held: set.held });
        WriteResult::Written
    }
}

/// Makes the changes for one etcd cluster until the end of its reader.
#[derive(Clone, Copy)]
pub(super) struct Effects<'e> {
    pub(super) writer: &'e dyn Writer,
    pub(super) reader: KubeReader<'e>,
    pub(super) store: Coordination,
    pub(super) lease: &'e Lease,
}

/// Reads the reservations.
pub(super) async fn read(
    store: Coordination,
    reader: KubeReader<'_>,
    lease: &Lease,
) -> Result<Reservations, Cause> {
    match store {
        Coordination::Lease => reader.reservations(lease).await,
        Coordination::InMemory => Ok(local(lease)),
    }
}

/// Returns the reservations of this process.
fn local(lease: &Lease) -> Reservations {
    lock(&LOCAL).read(&key(lease))
}

/// Waits for the other reviews in this process whose write conflicted. All etcd clusters of a namespace share a Lease. If a
/// hundred of them lose a member at once, ninety-nine writes would conflict, and each of these reviews would ask all members
/// again.
async fn queue(lease: &Lease) -> OwnedMutexGuard<()> {
    let queue = {
        let mut all = lock(&QUEUES);
        all.retain(|_, queue| Arc::strong_count(queue) > 1);
        Arc::clone(all.entry(key(lease)).or_default())
    };
    queue.lock_owned().await
}

fn key(lease: &Lease) -> String {
    format!("{}/{}", lease.namespace, lease.name)
}

impl Effects<'_> {
    /// Writes a reservation over the set that was read, and after a conflict over newer ones. `entry` returns the reservation for each
    /// set; without one nothing is written.
    pub(super) async fn reserve(
        &self,
        mut read: Reservations,
        now: SystemTime,
        entry: impl Fn(&Reservations) -> Result<Option<Reservation>, Cause>,
    ) -> Option<WriteResult> {
        let mut queued = None;
        loop {
            let entry = match entry(&read) {
                Ok(entry) => entry?,
                Err(why) => return Some(WriteResult::Failed(why)),
            };
            let written = self.write(&read, entry, now).await;
            if written != WriteResult::Conflict || Instant::now() >= self.reader.end {
                return Some(written);
            }
            if queued.is_none() {
                match timeout_at(self.reader.end, queue(self.lease)).await {
                    Ok(guard) => queued = Some(guard),
                    Err(_) => return Some(WriteResult::Conflict),
                }
            }
            read = match self::read(self.store, self.reader, self.lease).await {
                Ok(read) => read,
                Err(why) => return Some(WriteResult::Failed(why)),
            };
        }
    }

    /// Adds a reservation to the set that was read.
    async fn write(&self, read: &Reservations, entry: Reservation, now: SystemTime) -> WriteResult {
        let mut set = read.clone();
        set.held.retain(|held| held.uid != entry.uid && reservations::is_kept(held, now));
        set.held.push(entry);
        // Expired reservations only serve the backoff.
        if set.is_too_long() {
            set.held.retain(|held| reservations::is_valid(held, now));
        }
        if set.is_too_long() {
            let text = "too many deletions of etcd members in this namespace at once";
            return WriteResult::Failed(Cause::new(cause::OVERLOADED, text));
        }
        match self.store {
            Coordination::Lease => self.writer.write(self.lease, &set, self.reader.end.into_std()).await,
            Coordination::InMemory => lock(&LOCAL).write(key(self.lease), set, now),
        }
    }

    /// Asks the leader to transfer leadership.
    pub(super) async fn move_leader(&self, leader: &Endpoint, to: Id) -> TransferResult {
        self.writer.transfer_leadership(leader, to, self.reader.end.into_std()).await
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use admission::BoxFuture;
    use k8s_openapi::jiff::Timestamp;

    use cluster::Clients;

    use super::super::fixture::now;
    use super::*;

    /// A writer that local reservations never call.
    struct NoWriter;

    impl Writer for NoWriter {
        fn write<'a>(
            &'a self,
            _: &'a Lease,
            _: &'a Reservations,
            _: std::time::Instant,
        ) -> BoxFuture<'a, WriteResult> {
            Box::pin(async { WriteResult::Conflict })
        }

        fn transfer_leadership<'a>(
            &'a self,
            _: &'a Endpoint,
            _: Id,
            _: std::time::Instant,
        ) -> BoxFuture<'a, TransferResult> {
            Box::pin(async { TransferResult::NotLeader })
        }
    }

    fn lease(name: &str) -> Lease {
        Lease { namespace: "durward-system".into(), name: name.into() }
    }

    fn entry(uid: &str, age: u64) -> Reservation {
        let since = Timestamp::try_from(now() - Duration::from_secs(age)).unwrap();
        Reservation::new(uid, uid, since)
    }

    async fn reserve(lease: &Lease, read: &Reservations, entry: Reservation) -> WriteResult {
        let clients = Clients::offline();
        let reader = KubeReader { clients: &clients, end: Instant::now() + Duration::from_secs(1) };
        Effects { writer: &NoWriter, reader, store: Coordination::InMemory, lease }
            .write(read, entry, now())
            .await
    }

    #[tokio::test]
    async fn the_second_write_over_the_same_version_conflicts() {
        let lease = lease("same_version");
        let read = local(&lease);
        assert_eq!(reserve(&lease, &read, entry("a", 0)).await, WriteResult::Written);
        assert_eq!(reserve(&lease, &read, entry("b", 0)).await, WriteResult::Conflict);
        assert!(local(&lease).holds("a") && !local(&lease).holds("b"));
    }

    #[tokio::test]
    async fn a_write_drops_reservations_that_neither_count_nor_back_off() {
        let lease = lease("expired");
        let held = vec![entry("old", 76), entry("expired", 75), entry("young", 44), entry("own", 20)];
        let read = Reservations { held, ..local(&lease) };
        assert_eq!(reserve(&lease, &read, entry("own", 0)).await, WriteResult::Written);
        // The backoff of "expired" still needs its reservation.
        assert_eq!(local(&lease).held, [entry("expired", 75), entry("young", 44), entry("own", 0)]);
    }

    #[tokio::test]
    async fn never_writes_more_reservations_than_can_be_read() {
        let lease = lease("never_longer");
        let held = (0..512).map(|at| entry(&format!("pod-{at}"), 1)).collect();
        let full = Reservations { held, ..local(&lease) };
        assert_eq!(reserve(&lease, &full, entry("pod-7", 0)).await, WriteResult::Written);
        let full = local(&lease);
        let WriteResult::Failed(why) = reserve(&lease, &full, entry("one-more", 0)).await else { panic!() };
        assert!(why.text.contains("too many deletions"), "{}", why.text);
        assert_eq!(local(&lease).held.len(), 512);
        // Expired reservations are dropped first.
        let full = Reservations { version: full.version.clone(), held: vec![entry("expired", 46); 512] };
        assert_eq!(reserve(&lease, &full, entry("one-more", 0)).await, WriteResult::Written);
        assert_eq!(local(&lease).held, [entry("one-more", 0)]);
    }

    #[test]
    fn drops_expired_sets_and_never_others_at_the_limit() {
        let mut all = LocalReservations::new();
        let mut write = |key: &str, held: Vec<Reservation>, version: Option<&str>, now| {
            let version = version.map_or_else(|| all.read(key).version, |version| Some(version.to_owned()));
            let result = all.write(key.to_owned(), Reservations { version, held }, now);
            (result, all.stores.len())
        };
        let full = || (0..512).map(|at| entry(&format!("pod-{at}"), 0)).collect::<Vec<_>>();
        for namespace in 0..32 {
            assert_eq!(
                write(&namespace.to_string(), full(), None, now()),
                (WriteResult::Written, namespace + 1)
            );
        }
        let (WriteResult::Failed(why), 32) = write("one-more", vec![entry("a", 0)], None, now()) else {
            panic!()
        };
        assert_eq!(why.code, cause::OVERLOADED);
        // A Lease that is there can be written with as many.
        assert_eq!(write("0", full(), None, now()).0, WriteResult::Written);
        let later = now() + Duration::from_secs(76);
        assert_eq!(write("one-more", vec![entry("a", 0)], None, later), (WriteResult::Written, 1));
        // The version of a dropped set does not come back.
        for _ in 0..40 {
            assert_ne!(write("1", vec![entry("b", 0)], None, now()).0, WriteResult::Conflict);
        }
        assert_eq!(write("1", vec![entry("b", 0)], Some("2"), now()).0, WriteResult::Conflict);
    }

    #[tokio::test]
    async fn reviews_of_one_lease_queue_and_other_leases_do_not() {
        let (one, other) = (lease("one_queue"), lease("another_queue"));
        let first = queue(&one).await;
        drop(queue(&other).await);
        let mut second = Box::pin(queue(&one));
        assert!(futures_util::poll!(&mut second).is_pending());
        drop(first);
        assert!(futures_util::poll!(&mut second).is_ready());
    }
}
