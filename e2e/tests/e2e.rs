//! The end-to-end tests: one binary, so that one supervisor stops all processes.
//!
//! `cargo test -p durward-e2e --test e2e` runs all cases. A word after it selects cases whose name contains the word, and
//! `-- --list` prints the names. A case is a function in `cases/` with the attribute [`e2e::case`]: it takes the
//! [`TestContext`] and returns an error. A function without the attribute is dead code, which does not compile.

#![deny(dead_code)]

mod cases;

use std::any::Any;
use std::collections::BTreeSet;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::process::ExitCode;
use std::sync::{LazyLock, OnceLock, mpsc};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::Result;
use e2e::console::print;
use e2e::context::TestContext;
use e2e::parts;
use e2e::registry::{Case, Schedule};
use e2e::report::{Outcome, Report};
use e2e::supervisor::cpu_time;
use libtest_mimic::{Arguments, Failed, Trial};

/// Concurrent cases, unless the command line sets another number. Cases mostly wait for controllers, watches and other
/// cases, so there are more of them than processors.
const CONCURRENCY: usize = 6;

/// Interval of the messages about a case that still runs. The longest wait for the node or the fleet takes minutes.
const REPORT_INTERVAL: Duration = Duration::from_secs(5 * 60);

/// Time after which a case fails. The longest one takes two minutes, and cases wait for each other.
const LIMIT: Duration = Duration::from_secs(45 * 60);

/// The cases that have ended.
static REPORT: LazyLock<Report> = LazyLock::new(Report::default);

/// Areas that share an environment: the fleet, the node, the nodes of `deploy` and `chart`. All other areas are a group of their own.
const GROUPS: [&[&str]; 4] = [&["fleet", "deletion"], &["node", "container_view"], &["deploy"], &["chart"]];

fn main() -> ExitCode {
    let mut arguments = Arguments::from_args();
    if !arguments.list
        && let Some(exit_code) = e2e::supervisor::isolate()
    {
        return exit_code;
    }
    if let Some(exit_code) = cases::supervisor::victim() {
        return exit_code;
    }
    arguments.test_threads.get_or_insert(CONCURRENCY);
    let context: &'static TestContext = match TestContext::new() {
        // The context lives as long as the process.
        Ok(context) => Box::leak(Box::new(context)),
        Err(error) => {
            print(format_args!("{error:#}"));
            return ExitCode::FAILURE;
        }
    };
    if let Err(error) = prepare(context, &arguments) {
        print(format_args!("{error:#}"));
        return ExitCode::FAILURE;
    }
    let trials = in_order(Case::all()).into_iter().map(|case| trial(context, case)).collect();
    let conclusion = libtest_mimic::run(&arguments, trials);
    REPORT.print(context.logs().as_deref());
    let passed = !conclusion.has_failed();
    match parts::check_uses().and_then(|()| context.finish(passed)) {
        Ok(()) => conclusion.exit_code(),
        Err(error) => {
            print(format_args!("the run did not end cleanly: {error:#}"));
            ExitCode::FAILURE
        }
    }
}

/// Builds the programs of the selected cases.
fn prepare(context: &TestContext, arguments: &Arguments) -> Result<()> {
    let mut needed = BTreeSet::new();
    for case in Case::all().into_iter().filter(|case| !arguments.list && is_selected(arguments, case)) {
        needed.extend(parts::needed_by(&case.name(), case.schedule() == Schedule::Soak)?);
    }
    if needed.is_empty() { Ok(()) } else { parts::prepare(&context.supervisor()?, &needed) }
}

/// Returns whether the arguments select a case, as the test runner does.
fn is_selected(arguments: &Arguments, case: &Case) -> bool {
    let name = case.name();
    let matches = |word: &String| if arguments.exact { name == *word } else { name.contains(word.as_str()) };
    let is_scheduled = arguments.include_ignored || arguments.ignored == (case.schedule() == Schedule::Soak);
    is_scheduled && arguments.filter.as_ref().is_none_or(matches) && !arguments.skip.iter().any(matches)
}

/// Takes one case of each group in turn. The fleet takes longest, so it works from the beginning. Cases that wait for one
/// environment run next to cases of another.
fn in_order(cases: Vec<&'static Case>) -> Vec<&'static Case> {
    let group = |case: &Case| GROUPS.iter().position(|areas| areas.contains(&case.area()));
    let mut counts = [0; GROUPS.len() + 1];
    let mut placed: Vec<_> = cases
        .into_iter()
        .map(|case| {
            let group = group(case).unwrap_or(GROUPS.len());
            counts[group] += 1;
            ((counts[group], group), case)
        })
        .collect();
    placed.sort_by_key(|(place, _)| *place);
    placed.into_iter().map(|(_, case)| case).collect()
}

/// Returns a case for the test runner. A failure names the directory with the logs.
fn trial(context: &'static TestContext, case: &'static Case) -> Trial {
    let is_soak = case.schedule() == Schedule::Soak;
    let run = move || {
        let started = Instant::now();
        let (result, cpu) = in_time(context, case);
        let failure = result.as_ref().err().cloned();
        REPORT.add(Outcome { case: case.name(), took: started.elapsed(), cpu, failure });
        let Err(error) = result else { return Ok(()) };
        let logs = context
            .logs()
            .map_or_else(|| "none, no process was started".to_owned(), |logs| logs.display().to_string());
        Err(Failed::from(format!("{error}\n\nlogs of every process: {logs}")))
    };
    Trial::test(case.name(), run).with_ignored_flag(is_soak)
}

/// Runs a case on its own thread, and returns its result and the processor time of its programs. A case that hangs fails at the
/// limit, and all others that still run fail with it: they can wait for something that it holds.
fn in_time(context: &'static TestContext, case: &'static Case) -> (Result<(), String>, Duration) {
    static HANGS: OnceLock<String> = OnceLock::new();
    let (sender, result) = mpsc::channel();
    let started = Instant::now();
    let mut next_report = REPORT_INTERVAL;
    let run = move || {
        let result = match catch_unwind(AssertUnwindSafe(|| case.run(context))) {
            Ok(result) => result.map_err(|error| format!("{error:#}")),
            Err(panic) => Err(format!("panicked: {}", message_of(panic.as_ref()))),
        };
        drop(sender.send((result, cpu_time())));
    };
    if HANGS.get().is_none() {
        thread::spawn(run);
    }
    let given_up = |why: String| (Err(why), Duration::ZERO);
    loop {
        if let Some(other) = HANGS.get() {
            return given_up(format!("given up, because {other} hangs"));
        }
        match result.recv_timeout(Duration::from_secs(1)) {
            Ok(ended) => return ended,
            Err(_) if started.elapsed() >= LIMIT => {
                let first = HANGS.get_or_init(|| case.name());
                let minutes = LIMIT.as_secs() / 60;
                return given_up(format!("did not end within {minutes} minutes (the first: {first})"));
            }
            Err(_) if started.elapsed() >= next_report => {
                let minutes = next_report.as_secs() / 60;
                print(format_args!("{} runs or waits since {minutes} minutes", case.name()));
                next_report += REPORT_INTERVAL;
            }
            Err(_) => {}
        }
    }
}

fn message_of(panic: &(dyn Any + Send)) -> &str {
    let owned = panic.downcast_ref::<String>().map(String::as_str);
    owned.or_else(|| panic.downcast_ref::<&str>().copied()).unwrap_or("without a message")
}
