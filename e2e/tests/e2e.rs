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
use std::sync::{Arc, LazyLock, OnceLock, mpsc};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::Result;
use e2e::console::print;
use e2e::context::TestContext;
use e2e::lanes::{self, Lanes};
use e2e::parts;
use e2e::registry::{Case, Schedule};
use e2e::report::{Outcome, Report};
use libtest_mimic::{Arguments, Failed, Trial};

/// Interval of the messages about a case that still runs.
const REPORT_INTERVAL: Duration = Duration::from_secs(5 * 60);

/// Time after which a case fails. The longest one takes two minutes.
const LIMIT: Duration = Duration::from_secs(45 * 60);

/// The cases that have ended.
static REPORT: LazyLock<Report> = LazyLock::new(Report::default);

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
    let cases = lanes::in_order(Case::all(), |case| case.name());
    // Each case waits on a thread of its own for its turn.
    arguments.test_threads.get_or_insert(cases.len());
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
    let selected = cases.iter().filter(|case| is_selected(&arguments, case));
    let lanes = Arc::new(Lanes::new(selected.map(|case| case.name())));
    let trials = cases.into_iter().map(|case| trial(context, &lanes, case)).collect();
    let conclusion = libtest_mimic::run(&arguments, trials);
    REPORT.print(context.logs().as_deref());
    let passed = !conclusion.has_failed();
    match context.finish(passed) {
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

/// Returns a case for the test runner. A failure names the directory with the logs.
fn trial(context: &'static TestContext, lanes: &Arc<Lanes>, case: &'static Case) -> Trial {
    let is_soak = case.schedule() == Schedule::Soak;
    let lanes = Arc::clone(lanes);
    let run = move || lanes.run(&case.name(), || report(context, case), |stage| context.end_stage(stage));
    Trial::test(case.name(), run).with_ignored_flag(is_soak)
}

/// Runs a case, adds it to the report, and returns its result for the test runner.
fn report(context: &'static TestContext, case: &'static Case) -> Result<(), Failed> {
    let started = Instant::now();
    let result = in_time(context, case);
    let failure = result.as_ref().err().cloned();
    REPORT.add(Outcome { case: case.name(), took: started.elapsed(), failure });
    let Err(error) = result else { return Ok(()) };
    let logs = context
        .logs()
        .map_or_else(|| "none, no process was started".to_owned(), |logs| logs.display().to_string());
    Err(Failed::from(format!("{error}\n\nlogs of every process: {logs}")))
}

/// Runs a case on its own thread, and returns its result. A case that hangs fails at the limit, and all others that still run fail
/// with it: they can wait for something that it holds.
fn in_time(context: &'static TestContext, case: &'static Case) -> Result<(), String> {
    static HANGS: OnceLock<String> = OnceLock::new();
    let (sender, result) = mpsc::channel();
    let started = Instant::now();
    let mut next_report = REPORT_INTERVAL;
    let run = move || {
        lanes::enter(lanes::stage_of(&case.name()));
        let result = match catch_unwind(AssertUnwindSafe(|| case.run(context))) {
            Ok(result) => result.map_err(|error| format!("{error:#}")),
            Err(panic) => Err(format!("panicked: {}", message_of(panic.as_ref()))),
        };
        drop(sender.send(result));
    };
    if HANGS.get().is_none() {
        thread::spawn(run);
    }
    loop {
        if let Some(other) = HANGS.get() {
            return Err(format!("given up, because {other} hangs"));
        }
        match result.recv_timeout(Duration::from_secs(1)) {
            Ok(ended) => return ended,
            Err(_) if started.elapsed() >= LIMIT => {
                let first = HANGS.get_or_init(|| case.name());
                let minutes = LIMIT.as_secs() / 60;
                return Err(format!("did not end within {minutes} minutes (the first: {first})"));
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
