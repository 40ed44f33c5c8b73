//! Pods that are created one after another, by several at once, while something is done to what stands behind
//! the door.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use anyhow::{Result, bail};
use e2e::namespace::Namespace;
use e2e::pods::{Admitted, Pod};
use e2e::wait::{Poll, SetOnDrop, eventually};

use super::house::wanting;

/// So many create at once, and so many connections the API server has to the webhook.
const CREATORS: usize = 3;

/// Between two pods of one creator: the machine has few cores, and what is done under load wants some too.
const PAUSE: Duration = Duration::from_millis(5);

/// A pod takes milliseconds; this is for a machine that does much else.
const CREATED_WITHIN: Duration = Duration::from_secs(60);

/// So many faults are told; then the load ends.
const TOLD: usize = 5;

/// Pods being created.
pub(crate) struct Load<'a> {
    namespace: &'a Namespace<'a>,
    created: AtomicUsize,
    marks: AtomicUsize,
    faults: Mutex<Vec<String>>,
    stopped: AtomicBool,
}

/// Creates pods that want files for as long as `deed` takes, looks at each as it was admitted, and counts
/// them. It is an error if any is refused, or is not as `expected` wants it, which is told how many marks
/// there were before the pod was sent. What `deed` gives back lives on until no more pods are created: the
/// server that they need, for one.
pub(crate) fn under_load<T>(
    namespace: &Namespace<'_>,
    expected: impl Fn(usize, Admitted) -> Result<()> + Sync,
    deed: impl FnOnce(&Load<'_>) -> Result<T>,
) -> Result<(usize, T)> {
    under_load_of(namespace, wanting, expected, deed)
}

/// The same with pods as `pod` describes them, by namespace and name.
pub(crate) fn under_load_of<T>(
    namespace: &Namespace<'_>,
    pod: impl for<'p> Fn(&'p Namespace<'_>, &str) -> Pod<'p> + Sync,
    expected: impl Fn(usize, Admitted) -> Result<()> + Sync,
    deed: impl FnOnce(&Load<'_>) -> Result<T>,
) -> Result<(usize, T)> {
    let load = Load {
        namespace,
        created: AtomicUsize::new(0),
        marks: AtomicUsize::new(0),
        faults: Mutex::default(),
        stopped: AtomicBool::new(false),
    };
    let done = std::thread::scope(|scope| {
        for creator in 0..CREATORS {
            let (load, pod, expected) = (&load, &pod, &expected);
            scope.spawn(move || load.create(creator, pod, expected));
        }
        let _ends = SetOnDrop(&load.stopped);
        deed(&load)
    });
    let created = load.created.load(Ordering::Relaxed);
    let faults = load.faults.into_inner().unwrap_or_else(PoisonError::into_inner).join("; ");
    match done {
        Ok(done) if faults.is_empty() => Ok((created, done)),
        Ok(_) => bail!("of {created} pods and some more, these were not as expected: {faults}"),
        // What was done has gone wrong; pods may have suffered from that, or it may be the other way round.
        Err(error) => {
            Err(error
                .context(format!("under load, with {created} pods as expected and these not: [{faults}]")))
        }
    }
}

impl Load<'_> {
    /// Waits until so many more pods were created from now on: so that what was done just now was done under
    /// load.
    pub(crate) fn await_more(&self, pods: usize) -> Result<()> {
        let until = self.created.load(Ordering::Relaxed) + pods;
        eventually(format_args!("{pods} more pods under load"), CREATED_WITHIN, || {
            let created = self.created.load(Ordering::Relaxed);
            if self.stopped.load(Ordering::Relaxed) {
                bail!("the load has ended after {created} pods");
            }
            Ok(if created >= until {
                Poll::Ready(())
            } else {
                Poll::Pending(format!("{created} of {until}"))
            })
        })
    }

    /// Puts a mark: something holds from here on.
    pub(crate) fn mark(&self) {
        self.marks.fetch_add(1, Ordering::SeqCst);
    }

    fn create(
        &self,
        creator: usize,
        pod: &impl for<'p> Fn(&'p Namespace<'_>, &str) -> Pod<'p>,
        expected: &impl Fn(usize, Admitted) -> Result<()>,
    ) {
        for number in 0.. {
            if self.stopped.load(Ordering::Relaxed) {
                return;
            }
            let pod = pod(self.namespace, &format!("load-{creator}-{number}"));
            let marks = self.marks.load(Ordering::SeqCst);
            match pod.is_admitted().and_then(|admitted| expected(marks, admitted)) {
                Ok(()) => {
                    self.created.fetch_add(1, Ordering::Relaxed);
                }
                Err(error) => self.fault(format!("load-{creator}-{number}: {error:#}")),
            }
            std::thread::sleep(PAUSE);
        }
    }

    fn fault(&self, told: String) {
        let mut faults = self.faults.lock().unwrap_or_else(PoisonError::into_inner);
        faults.push(told);
        if faults.len() >= TOLD {
            self.stopped.store(true, Ordering::Relaxed);
        }
    }
}
