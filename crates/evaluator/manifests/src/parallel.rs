//! Work on many items with all processors. The order of results is the order of items.

use std::num::NonZero;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

use console::output::ProgressLine;

/// Items that one thread handles faster than a second one starts.
const FEW: usize = 8;

/// Items between two updates of the progress line.
const STEP: usize = 64;

/// Maps items. Each thread has a state of its own; `task` names the work in the progress line.
pub fn map<I: Sync, S, O: Send>(
    items: &[I],
    task: &str,
    state: impl Fn() -> S + Sync,
    work: impl Fn(&mut S, &I) -> O + Sync,
) -> Vec<O> {
    let threads = thread::available_parallelism().map_or(1, NonZero::get);
    let next = AtomicUsize::new(0);
    let done = Mutex::new(Vec::with_capacity(items.len()));
    let progress = ProgressLine::stderr();
    let run = || {
        let mut state = state();
        let mut results = Vec::new();
        loop {
            let index = next.fetch_add(1, Ordering::Relaxed);
            let Some(item) = items.get(index) else { break };
            if index.is_multiple_of(STEP) && items.len() > STEP {
                progress.show(&format!("{task}: {index} of {}", items.len()));
            }
            results.push((index, work(&mut state, item)));
        }
        if let Ok(mut done) = done.lock() {
            done.extend(results);
        }
    };
    if threads == 1 || items.len() <= FEW {
        run();
    } else {
        thread::scope(|scope| {
            // The calling thread works too. A thread that can't start leaves its work to the others.
            for _ in 1..threads {
                let _ = thread::Builder::new().spawn_scoped(scope, run);
            }
            run();
        });
    }
    let mut done = done.into_inner().unwrap_or_else(std::sync::PoisonError::into_inner);
    done.sort_unstable_by_key(|(index, _)| *index);
    done.into_iter().map(|(_, result)| result).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keeps_the_order_of_items() {
        let items: Vec<usize> = (0..1_000).collect();
        let doubled = map(&items, "test", || 2, |factor, item| item * *factor);
        assert_eq!(doubled, items.iter().map(|item| item * 2).collect::<Vec<_>>());
    }
}
