//! Command `demo`: shows all guards with the real server on loopback and reviews over HTTPS.
//!
//! It writes cluster snapshots and a certificate to a temporary directory. The exit code is 1 if a verdict is not the expected
//! one.

mod client;
mod environment;
mod report;
mod scenario;
mod scenarios;

use clap::builder::PossibleValuesParser;
use std::time::Instant;

use config::Problem;
use guards::GUARD_KINDS;
use server::{Shutdown, Stopped};
use tokio::task::JoinHandle;

use crate::exit::{Exit, Outcome, Stop};
use crate::output::{self, Style};
use client::Client;
use environment::{DemoEnvironment, scenes};
use scenario::{SCENARIOS, Scenario};

/// `demo`
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Leave the server running and tell what to try
    #[arg(long)]
    pub(crate) keep: bool,
    /// Only this guard's scenario
    #[arg(long, value_name = "NAME", value_parser = PossibleValuesParser::new(crate::demo::names()))]
    pub(crate) scenario: Option<String>,
}

/// `demo`
pub(crate) fn run(args: &Args) -> Outcome {
    let scenarios = chosen(args.scenario.as_deref());
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()
        .map_err(|error| Stop::fault(Problem::new("threads cannot be started").why(error.to_string())))?;
    runtime.block_on(play(&scenarios, args.keep))
}

/// Returns the values of `--scenario`: the names of the guards.
pub(crate) fn names() -> impl Iterator<Item = &'static str> {
    SCENARIOS.iter().map(|scenario| scenario.guard)
}

fn chosen(name: Option<&str>) -> Vec<&'static Scenario> {
    SCENARIOS.iter().copied().filter(|scenario| name.is_none_or(|name| scenario.guard == name)).collect()
}

async fn play(scenarios: &[&'static Scenario], keep: bool) -> Outcome {
    // Handlers are installed before there is a directory to clean up.
    let mut signals = Shutdown::on_signals()
        .map_err(|error| Stop::fault(Problem::new("signals cannot be caught").why(error.to_string())))?;
    let (handle, manual) = Shutdown::manual();
    let shutdown = if keep { signals.clone() } else { manual };
    let Shown { environment, serving, wrong } = tokio::select! {
        shown = show(scenarios, shutdown) => shown?,
        // Dropping the future removes the directory.
        () = signals.requested() => return Err(Stop::fault(Problem::new("the demo was interrupted"))),
    };
    if keep {
        output::data(&to_try(&environment, scenarios))?;
    }
    handle.request();
    let stopped = serving
        .await
        .map_err(|error| Stop::fault(Problem::new("the server broke").why(error.to_string())))?;
    Ok(if wrong == 0 && stopped == Stopped::Clean { Exit::Done } else { Exit::No })
}

/// The state after all scenarios.
struct Shown {
    /// Dropping it removes its directory.
    environment: DemoEnvironment,
    serving: JoinHandle<Stopped>,
    /// The number of unexpected verdicts.
    wrong: u32,
}

/// Starts the server, sends the reviews of every scene, and prints the answers.
async fn show(scenarios: &[&'static Scenario], shutdown: Shutdown) -> Result<Shown, Stop> {
    let style = Style::stdout();
    let began = Instant::now();
    let (mut environment, bound) = DemoEnvironment::build(scenarios).await?;
    let serving = tokio::spawn(bound.serve(shutdown));
    let mut client = Client::connect(environment.addresses.listen, &environment.authority).await?;
    output::data(&opening(&environment, scenarios, began, style))?;

    let (mut number, mut wrong) = (0, 0);
    let mut guard = "";
    for (scenario, index, scene) in scenes(scenarios) {
        if guard != scenario.guard {
            guard = scenario.guard;
            let summary =
                GUARD_KINDS.iter().find(|kind| kind.name() == guard).map_or("", |kind| kind.summary());
            output::data(&format!("{}  {summary}\n\n", style.bold(guard)))?;
        }
        if number > 0 {
            environment.show(scenario, index)?;
        }
        output::data(&format!(" {}\n\n", scene.title))?;
        for step in scene.steps {
            number += 1;
            let answer = client.ask(scenario.guard, step.review).await?;
            let told = report::step(number, step, &answer, style)?;
            wrong += u32::from(!told.is_expected);
            output::data(&told.text)?;
        }
    }
    output::data(&ending(number, wrong, began, style))?;
    Ok(Shown { environment, serving, wrong })
}

fn opening(environment: &DemoEnvironment, scenarios: &[&Scenario], began: Instant, style: Style) -> String {
    let guards: Vec<_> = scenarios.iter().map(|scenario| scenario.guard).collect();
    format!(
        "{}\n\n  {}  {}\n  {}  {}\n  {}  https://{} with the guards: {}\n  {}  after {}\n\n",
        style.bold("Durward, the keeper of the API server's door: real reviews over HTTPS"),
        style.dim("world      "),
        environment.dir().join("worlds").display(),
        style.dim("certificate"),
        "made just now, good for 127.0.0.1, signed by an authority that only this demo trusts",
        style.dim("server     "),
        environment.addresses.listen,
        guards.join(", "),
        style.dim("ready      "),
        report::time(began.elapsed()),
    )
}

fn ending(number: usize, wrong: u32, began: Instant, style: Style) -> String {
    let verdict = match wrong {
        0 => style.green(&format!("{number} reviews, every verdict as expected")),
        _ => style.red(&format!("{wrong} of {number} verdicts are not the expected ones")),
    };
    let next = "  durward impact ns/shop --world examples/fleet/world   what a deletion would reach, before anybody deletes; in the repository\n  \
                durward demo --keep                                   leaves the server running and tells what to try\n  \
                durward config defaults > durward.yaml                every key, with what it does\n";
    format!("{verdict}, in {}.\n\nNext:\n{next}", report::time(began.elapsed()))
}

fn to_try(environment: &DemoEnvironment, scenarios: &[&Scenario]) -> String {
    let dir = environment.dir().display();
    let server::Addresses { listen, admin, .. } = environment.addresses;
    let guard = scenarios.first().map_or("", |scenario| scenario.guard);
    let impact = match guard {
        "deletion" => {
            format!("  durward impact --all --world {dir}/worlds/deletion-1 --config {dir}/durward.yaml\n")
        }
        _ => String::new(),
    };
    format!(
        "\nStill serving; Ctrl-C ends it and removes {dir}. Try from another terminal:\n\
         \x20 curl -s --cacert {dir}/ca.crt -H 'Content-Type: application/json' -d @{dir}/reviews/{guard}-1.2.json https://{listen}/{guard}\n\
         \x20 curl -s http://{admin}/readyz?verbose\n\
         \x20 curl -s http://{admin}/metrics | grep durward_reviews_total\n\
         \x20 durward review {dir}/reviews/{guard}-1.*.json --config {dir}/durward.yaml --world {dir}/worlds/{guard}-1 -v\n{impact}"
    )
}
