//! Creates pods concurrently while something is done to the servers behind the webhook.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};

use e2e::prelude::*;
use e2e::pressure::Pressure;
use e2e::wait::SetOnDrop;

use super::environment::opted_in;

/// Concurrent creators, and so connections of the API server to the webhook.
const CREATORS: usize = 3;

/// Pause between two pods of one creator, which leaves processor time for the step under load.
const PAUSE: Duration = Duration::from_millis(40);

/// The load stops after this many errors.
const MAX_FAULTS: usize = 5;

/// More calls that time out are a fault of the server, also on a starved machine.
const MAX_STARVED: usize = 3;

/// Parts of the errors of calls that got no answer in time, by the API server and by the client.
const TIMEOUTS: [&str; 3] =
    ["context deadline exceeded", "Client.Timeout exceeded", "return a response in the time allotted"];

/// The calls of a load.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Calls {
    /// Calls with the expected result.
    pub(crate) as_expected: usize,
    /// Calls that timed out while processes waited for a processor, and that passed when they were repeated.
    pub(crate) starved: usize,
}

pub(crate) struct Load<'a> {
    namespace: &'a Namespace<'a>,
    created: AtomicUsize,
    starved: AtomicUsize,
    marks: AtomicUsize,
    faults: Mutex<Vec<String>>,
    stopped: AtomicBool,
}

/// Creates pods that opt in until `action` returns, and checks each admitted pod.
///
/// A call can get no answer in time because the machine is busy. Such a call is repeated once and must pass then; a server that
/// does not work fails it again.
///
/// Fails if a pod is denied or differs from `expected`, which also gets the number of marks before the
/// request. The result of `action` is kept until no more pods are created, because it can hold the server.
pub(crate) fn under_load<T>(
    namespace: &Namespace<'_>,
    expected: impl Fn(usize, Admitted) -> Result<()> + Sync,
    action: impl FnOnce(&Load<'_>) -> Result<T>,
) -> Result<(Calls, T)> {
    under_load_of(namespace, opted_in, expected, action)
}

/// Does the same with other pods.
pub(crate) fn under_load_of<T>(
    namespace: &Namespace<'_>,
    pod: impl for<'p> Fn(&'p Namespace<'_>, &str) -> Pod<'p> + Sync,
    expected: impl Fn(usize, Admitted) -> Result<()> + Sync,
    action: impl FnOnce(&Load<'_>) -> Result<T>,
) -> Result<(Calls, T)> {
    let load = Load {
        namespace,
        created: AtomicUsize::new(0),
        starved: AtomicUsize::new(0),
        marks: AtomicUsize::new(0),
        faults: Mutex::default(),
        stopped: AtomicBool::new(false),
    };
    let result = std::thread::scope(|scope| {
        for creator in 0..CREATORS {
            let (load, pod, expected) = (&load, &pod, &expected);
            scope.spawn(move || load.create(creator, pod, expected));
        }
        let _ends = SetOnDrop(&load.stopped);
        action(&load)
    });
    let created = load.created.load(Ordering::Relaxed);
    let starved = load.starved.load(Ordering::Relaxed);
    if starved > 0 {
        print(format_args!(
            "{starved} calls timed out on a starved machine, and passed when they were repeated"
        ));
    }
    let faults = load.faults.into_inner().unwrap_or_else(PoisonError::into_inner).join("; ");
    match result {
        Ok(result) if faults.is_empty() => Ok((Calls { as_expected: created, starved }, result)),
        Ok(_) => bail!("of {created} pods and some more, these were not as expected: {faults}"),
        // Pods can be wrong because the action failed, or the other way round.
        Err(error) => {
            Err(error
                .context(format!("under load, with {created} pods as expected and these not: [{faults}]")))
        }
    }
}

impl Load<'_> {
    /// Waits for this many more pods, so that the last step ran under load.
    pub(crate) fn await_more(&self, pods: usize) -> Result<()> {
        let expected = self.created.load(Ordering::Relaxed) + pods;
        until(format_args!("{pods} more pods under load"), || {
            let created = self.created.load(Ordering::Relaxed);
            if self.stopped.load(Ordering::Relaxed) {
                bail!("the load has ended after {created} pods");
            }
            Ok((created >= expected, format!("{created} of {expected}")))
        })
    }

    /// Sets a mark: `expected` can require more from here on.
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
            let call = |name: &str| {
                let pressure = Pressure::begin();
                let marks = self.marks.load(Ordering::SeqCst);
                let result =
                    pod(self.namespace, name).is_admitted().and_then(|admitted| expected(marks, admitted));
                result.map_err(|error| (format!("{name}: {error:#}"), pressure.is_starved()))
            };
            let name = format!("load-{creator}-{number}");
            let mut result = call(&name);
            if let Err((text, true)) = &result
                && self.starved.load(Ordering::Relaxed) < MAX_STARVED
                && TIMEOUTS.iter().any(|timeout| text.contains(timeout))
            {
                print(format_args!("a call timed out on a starved machine, and is repeated: {text}"));
                self.starved.fetch_add(1, Ordering::Relaxed);
                result = call(&format!("{name}-again"));
            }
            match result {
                Ok(()) => {
                    self.created.fetch_add(1, Ordering::Relaxed);
                }
                Err((text, _)) => self.add_fault(text),
            }
            std::thread::sleep(PAUSE);
        }
    }

    fn add_fault(&self, text: String) {
        let mut faults = self.faults.lock().unwrap_or_else(PoisonError::into_inner);
        faults.push(text);
        if faults.len() >= MAX_FAULTS {
            self.stopped.store(true, Ordering::Relaxed);
        }
    }
}
