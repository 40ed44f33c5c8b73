//! `demo`: the whole product in a few seconds with nothing else installed. A world on disk, a certificate made on the spot, the
//! real server on a free loopback port, real reviews over HTTPS; ends by itself, with 1 if any verdict is not the expected one.

mod client;
mod scenario;
mod scenarios;
mod stage;
mod tell;

use clap::builder::PossibleValuesParser;
use std::time::Instant;

use config::Problem;
use guards::GUARD_KINDS;
use server::{Shutdown, Stopped};
use tokio::task::JoinHandle;

use crate::exit::{Exit, Outcome, Stop};
use crate::output::{self, Style};
use client::Client;
use scenario::{SCENARIOS, Scenario};
use stage::{Stage, scenes};

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

/// What `--scenario` takes: the guards, each of which has one.
pub(crate) fn names() -> impl Iterator<Item = &'static str> {
    SCENARIOS.iter().map(|scenario| scenario.guard)
}

fn chosen(name: Option<&str>) -> Vec<&'static Scenario> {
    SCENARIOS.iter().copied().filter(|scenario| name.is_none_or(|name| scenario.guard == name)).collect()
}

async fn play(scenarios: &[&'static Scenario], keep: bool) -> Outcome {
    // Before there is anything that a signal would leave behind.
    let mut signals = Shutdown::on_signals()
        .map_err(|error| Stop::fault(Problem::new("signals cannot be caught").why(error.to_string())))?;
    let (stop, by_hand) = Shutdown::by_hand();
    let shutdown = if keep { signals.clone() } else { by_hand };
    let Shown { stage, serving, wrong } = tokio::select! {
        shown = show(scenarios, shutdown) => shown?,
        // What was shown is dropped, and its folder with it.
        () = signals.asked() => return Err(Stop::fault(Problem::new("the demo was interrupted"))),
    };
    if keep {
        output::data(&to_try(&stage, scenarios))?;
    }
    stop.ask();
    let stopped = serving
        .await
        .map_err(|error| Stop::fault(Problem::new("the server broke").why(error.to_string())))?;
    Ok(if wrong == 0 && stopped == Stopped::Clean { Exit::Done } else { Exit::No })
}

/// What is there once everything was shown.
struct Shown {
    /// Its folder goes when it is dropped.
    stage: Stage,
    serving: JoinHandle<Stopped>,
    /// How many verdicts were not the expected ones.
    wrong: u32,
}

/// Builds the stage, plays every scene on it and tells what comes of it.
async fn show(scenarios: &[&'static Scenario], shutdown: Shutdown) -> Result<Shown, Stop> {
    let style = Style::of_stdout();
    let began = Instant::now();
    let (mut stage, bound) = Stage::build(scenarios).await?;
    let serving = tokio::spawn(bound.serve(shutdown));
    let mut client = Client::connect(stage.addresses.listen, &stage.authority).await?;
    output::data(&opening(&stage, scenarios, began, style))?;

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
            stage.show(scenario, index)?;
        }
        output::data(&format!(" {}\n\n", scene.title))?;
        for step in scene.steps {
            number += 1;
            let answer = client.ask(scenario.guard, step.review).await?;
            let told = tell::step(number, step, &answer, style)?;
            wrong += u32::from(!told.is_right);
            output::data(&told.text)?;
        }
    }
    output::data(&ending(number, wrong, began, style))?;
    Ok(Shown { stage, serving, wrong })
}

fn opening(stage: &Stage, scenarios: &[&Scenario], began: Instant, style: Style) -> String {
    let guards: Vec<_> = scenarios.iter().map(|scenario| scenario.guard).collect();
    format!(
        "{}\n\n  {}  {}\n  {}  {}\n  {}  https://{} with the guards: {}\n  {}  after {}\n\n",
        style.bold("Durward, the keeper of the API server's door: real reviews over HTTPS"),
        style.dim("world      "),
        stage.folder().join("worlds").display(),
        style.dim("certificate"),
        "made just now, good for 127.0.0.1, signed by an authority that only this demo trusts",
        style.dim("server     "),
        stage.addresses.listen,
        guards.join(", "),
        style.dim("ready      "),
        tell::time(began.elapsed()),
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
    format!("{verdict}, in {}.\n\nNext:\n{next}", tell::time(began.elapsed()))
}

fn to_try(stage: &Stage, scenarios: &[&Scenario]) -> String {
    let folder = stage.folder().display();
    let server::Addresses { listen, admin, .. } = stage.addresses;
    let guard = scenarios.first().map_or("", |scenario| scenario.guard);
    let impact = match guard {
        "deletion" => format!(
            "  durward impact --all --world {folder}/worlds/deletion-1 --config {folder}/durward.yaml\n"
        ),
        _ => String::new(),
    };
    format!(
        "\nStill serving; Ctrl-C ends it and removes {folder}. Try from another terminal:\n\
         \x20 curl -s --cacert {folder}/ca.crt -H 'Content-Type: application/json' -d @{folder}/reviews/{guard}-1.2.json https://{listen}/{guard}\n\
         \x20 curl -s http://{admin}/readyz?verbose\n\
         \x20 curl -s http://{admin}/metrics | grep durward_reviews_total\n\
         \x20 durward review {folder}/reviews/{guard}-1.*.json --config {folder}/durward.yaml --world {folder}/worlds/{guard}-1 -v\n{impact}"
    )
}
