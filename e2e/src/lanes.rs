//! The order of the cases of a run.
//!
//! Cases that share an environment are a stage. Lanes run at the same time, and a lane runs its stages one after the other, each with
//! a number of cases at once. So no case takes a processor's time while it waits for an environment, and a run has at most one
//! fleet and two nodes at a time.
//!
//! An idle API server takes a few percent of a processor, and a node more. Therefore the environments of a stage end with its last
//! case: [`Lanes::run`] calls `end` then.

use std::cell::Cell;
use std::collections::VecDeque;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};

/// Cases that share an environment.
#[derive(Debug)]
struct Stage {
    /// The starts of the names of its cases. A case belongs to the stage with the longest start that fits.
    starts: &'static [&'static str],
    /// The number of its cases that run at the same time.
    at_once: usize,
}

/// The fleet takes longest. One case at a time uses the nodes of `chart` and `deploy`, and one at a time installs Durward in the cluster
/// `scratch` or `webhooks`. The last lane has all cases that no other start fits.
const LANES: [&[Stage]; 6] = [
    &[Stage { starts: &["fleet::", "deletion::", "kinds::the_table_of_karmadas"], at_once: 2 }],
    &[Stage { starts: &["binary::", "chart::", "etcd_node::"], at_once: 1 }],
    &[
        Stage { starts: &["deploy::"], at_once: 1 },
        Stage { starts: &["node::", "container_view::"], at_once: 2 },
    ],
    // Some of them wait for the cluster `etcd-scratch`.
    &[
        Stage { starts: &["etcd::", "abuse::etcd_", "native_policies::"], at_once: 2 },
        Stage { starts: &["webhooks::", "abuse::install::the_namespace"], at_once: 1 },
    ],
    &[Stage { starts: SCRATCH, at_once: 1 }],
    &[Stage { starts: &[""], at_once: 1 }],
];

/// The cases that install Durward in the cluster `scratch`.
const SCRATCH: &[&str] = &[
    "abuse::deletion",
    "abuse::install::",
    "abuse::overrides::",
    "abuse::server::",
    "deletion::configuration::only",
    "deletion::replicas::",
    "events::",
    "installation::",
    "opt_in::a_new_namespace",
    "options::",
    "outage::",
    "reload::",
    "replacement::",
    "self_managed::",
    "webhooks::replicas_",
];

thread_local! {
    /// The stage of the case that this thread runs.
    static CURRENT: Cell<Option<StageId>> = const { Cell::new(None) };
}

/// The place of a stage: its lane, and its number there.
pub type StageId = (usize, usize);

/// Returns the stage of the case that this thread runs. Other programs than the tests have none.
pub fn current() -> Option<StageId> {
    CURRENT.get()
}

/// Sets the stage of the case that this thread runs.
pub fn enter(stage: StageId) {
    CURRENT.set(Some(stage));
}

/// Returns the stage of the case of this name.
pub fn stage_of(case: &str) -> StageId {
    let mut found = (0, (LANES.len() - 1, 0));
    for (lane, stages) in LANES.iter().enumerate() {
        for (at, stage) in stages.iter().enumerate() {
            let fits = stage.starts.iter().filter(|start| case.starts_with(**start));
            found = found.max((fits.map(|start| start.len()).max().unwrap_or_default(), (lane, at)));
        }
    }
    found.1
}

/// Orders cases: one of each lane in turn, and stages of a lane one after the other. In a stage, the cases keep their order.
pub fn in_order<C>(cases: Vec<C>, name: impl Fn(&C) -> String) -> Vec<C> {
    let mut lanes: [Vec<_>; LANES.len()] = std::array::from_fn(|_| Vec::new());
    for case in cases {
        let (lane, stage) = stage_of(&name(&case));
        lanes[lane].push((stage, case));
    }
    let places = lanes.into_iter().enumerate().flat_map(|(lane, mut cases)| {
        cases.sort_by_key(|(stage, _)| *stage);
        cases.into_iter().enumerate().map(move |(at, (_, case))| ((at, lane), case))
    });
    let mut places: Vec<_> = places.collect();
    places.sort_by_key(|(place, _)| *place);
    places.into_iter().map(|(_, case)| case).collect()
}

/// The cases of a run that have not ended.
#[derive(Debug)]
pub struct Lanes {
    /// The cases by lane and stage.
    cases: Mutex<Vec<Vec<Cases>>>,
    changed: Condvar,
}

/// The cases of a stage that have not ended.
#[derive(Debug, Default)]
struct Cases {
    waiting: VecDeque<String>,
    running: usize,
    /// Whether the environments of the stage are about to end.
    ends: bool,
}

impl Cases {
    fn has_ended(&self) -> bool {
        self.waiting.is_empty() && self.running == 0 && !self.ends
    }
}

impl Lanes {
    /// Returns the lanes with these cases, in this order within a stage.
    pub fn new(cases: impl IntoIterator<Item = String>) -> Self {
        let mut lanes: Vec<Vec<Cases>> =
            LANES.iter().map(|stages| stages.iter().map(|_| Cases::default()).collect()).collect();
        for case in cases {
            let (lane, stage) = stage_of(&case);
            lanes[lane][stage].waiting.push_back(case);
        }
        Self { cases: Mutex::new(lanes), changed: Condvar::new() }
    }

    /// Waits until it is the turn of this case, and runs it. After the last case of a stage, calls `end` with the stage.
    ///
    /// The callers' threads must take cases in the order of [`Lanes::new`]. Then the first case that has not ended never waits for a
    /// later one, with any number of threads.
    pub fn run<T>(&self, case: &str, run: impl FnOnce() -> T, end: impl FnOnce(StageId)) -> T {
        let (lane, stage) = stage_of(case);
        let is_waiting = |lanes: &mut Vec<Vec<Cases>>| {
            let (earlier, later) = lanes[lane].split_at(stage);
            let own = &later[0];
            let is_next = own.waiting.front().is_some_and(|next| next == case);
            !(is_next && own.running < LANES[lane][stage].at_once && earlier.iter().all(Cases::has_ended))
        };
        let turn = self.changed.wait_while(self.cases(), is_waiting);
        let mut lanes = turn.unwrap_or_else(PoisonError::into_inner);
        let own = &mut lanes[lane][stage];
        own.waiting.pop_front();
        own.running += 1;
        drop(lanes);
        self.changed.notify_all();
        let result = run();
        let mut lanes = self.cases();
        let own = &mut lanes[lane][stage];
        own.running -= 1;
        own.ends = own.has_ended();
        let is_last = own.ends;
        drop(lanes);
        if is_last {
            end((lane, stage));
            self.cases()[lane][stage].ends = false;
        }
        self.changed.notify_all();
        result
    }

    fn cases(&self) -> MutexGuard<'_, Vec<Vec<Cases>>> {
        self.cases.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::*;

    #[test]
    fn a_case_belongs_to_the_stage_with_the_longest_start_that_fits() {
        assert_eq!(stage_of("deletion::crds::a_case"), (0, 0));
        assert_eq!(stage_of("kinds::the_table_of_karmadas_kinds_is_that_of_its_api_server"), (0, 0));
        assert_eq!(stage_of("etcd_node::runbooks::a_case"), (1, 0));
        assert_eq!(stage_of("container_view::a_case"), (2, 1));
        assert_eq!(stage_of("abuse::etcd_operations::a_case"), (3, 0));
        assert_eq!(stage_of("abuse::install::the_namespace_of_durward"), (3, 1));
        assert_eq!(stage_of("abuse::install::entries"), (4, 0));
        assert_eq!(stage_of("deletion::replicas::a_case"), (4, 0));
        for other in ["kinds::the_table_of_types", "opt_in::a_case", "abuse::client_certificates::a_case"] {
            assert_eq!(stage_of(other), (5, 0), "{other}");
        }
    }

    /// Runs these cases on this number of threads, and returns the starts and ends of stages in their order.
    fn run(cases: &[&str], threads: usize) -> Vec<String> {
        let lanes = Lanes::new(cases.iter().map(|&case| case.to_owned()));
        let events = Mutex::new(Vec::new());
        let next = Mutex::new(cases.iter());
        let log = |event: String| events.lock().unwrap().push(event);
        std::thread::scope(|scope| {
            for _ in 0..threads {
                scope.spawn(|| {
                    loop {
                        let Some(case) = next.lock().unwrap().next() else { break };
                        lanes.run(case, || log((*case).to_owned()), |stage| log(format!("end {stage:?}")));
                    }
                });
            }
        });
        events.into_inner().unwrap()
    }

    #[test]
    fn a_stage_begins_when_the_environments_of_the_one_before_have_ended() {
        let cases = ["node::b", "deploy::a", "deploy::b"];
        assert_eq!(run(&cases, 3), ["deploy::a", "deploy::b", "end (2, 0)", "node::b", "end (2, 1)"]);
    }

    #[test]
    fn each_lane_has_its_turn_and_its_stages_keep_their_order() {
        let cases = ["node::a", "deploy::b", "deploy::a", "deletion::a", "opt_in::a", "opt_in::b"];
        let ordered = in_order(cases.to_vec(), |case| (*case).to_owned());
        assert_eq!(ordered, ["deletion::a", "deploy::b", "opt_in::a", "deploy::a", "opt_in::b", "node::a"]);
    }

    #[test]
    fn one_thread_runs_all_cases_in_the_given_order() {
        let cases = ["deploy::a", "deletion::a", "deploy::b", "node::a"];
        let events = run(&cases, 1);
        let ran: Vec<_> = events.iter().filter(|event| !event.starts_with("end")).collect();
        assert_eq!(ran, cases.iter().collect::<Vec<_>>());
    }

    #[test]
    fn a_stage_has_no_more_cases_at_once_than_it_allows() {
        let names: Vec<String> = (0..30).map(|at| format!("etcd::case_{at}")).collect();
        let lanes = &Lanes::new(names.clone());
        let (running, most) = (&AtomicUsize::new(0), &AtomicUsize::new(0));
        std::thread::scope(|scope| {
            for name in &names {
                let run = || {
                    most.fetch_max(running.fetch_add(1, Ordering::SeqCst) + 1, Ordering::SeqCst);
                    std::thread::yield_now();
                    running.fetch_sub(1, Ordering::SeqCst);
                };
                scope.spawn(move || lanes.run(name, run, |_| {}));
            }
        });
        assert!(most.load(Ordering::SeqCst) <= 2);
    }
}
