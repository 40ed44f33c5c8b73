//! Command `demo`: sends the requests of `examples/demo/scenes.yaml` over HTTPS to a server on loopback.
//!
//! It writes the examples and a certificate to a temporary directory. The exit code is 1 if a verdict is not the expected one.

mod report;
mod scenes;

use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use ca::pem::Pem;
use ca::{Authority, ServingName, Validity};
use clap::builder::PossibleValuesParser;
use config::Problem;
use console::exit::{Exit, Outcome, Stop};
use console::output::{self, Style, quoted};
use guards::GUARD_KINDS;
use hyper::Request;
use kube::Client;
use server::{Addresses, Bound, Checks, Metrics, PlanCell, Server, Settings, Shutdown, Stopped};
use tempfile::TempDir;

use crate::args::ServerArgs;
use crate::clients::connect::snapshot;
use crate::clients::control_planes::ControlPlanes;
use crate::file::{File, Purpose};
use crate::run::VERSION;
use crate::run::plan::{options, plan};
use crate::run::serve::refused;
use scenes::{EXAMPLES, Scene, SceneStep, example, scenes};

/// `demo`
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Keep the server running and print commands to try
    #[arg(long)]
    pub(crate) keep: bool,
    /// Show only this guard
    #[arg(long, value_name = "NAME", value_parser = PossibleValuesParser::new(GUARD_KINDS.iter().map(|kind| kind.name())))]
    pub(crate) scenario: Option<String>,
}

/// Lifetime of the certificate. With `--keep` the server can run for days.
const LASTS: Duration = Duration::from_secs(30 * 86_400);

/// Timeout of a request. On loopback it takes milliseconds.
const TIMEOUT: Duration = Duration::from_secs(15);

/// `demo`
pub(crate) fn run(args: &Args) -> Outcome {
    let scenes = scenes(args.scenario.as_deref())?;
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()
        .map_err(|error| fault("threads cannot be started", &error))?;
    runtime.block_on(play(&scenes, args.keep))
}

fn fault(what: &str, error: &dyn std::error::Error) -> Stop {
    Stop::fault(Problem::new(what).why(error.to_string()))
}

async fn play(scenes: &[Scene], keep: bool) -> Outcome {
    // Handlers are installed before there is a directory to clean up.
    let mut signals = Shutdown::on_signals().map_err(|error| fault("signals cannot be caught", &error))?;
    let (handle, manual) = Shutdown::manual();
    let shutdown = if keep { signals.clone() } else { manual };
    let (began, style) = (Instant::now(), Style::stdout());
    let showing = async {
        let (mut demo, bound) = Demo::build(scenes)?;
        let serving = tokio::spawn(bound.serve(shutdown));
        let wrong = demo.show(scenes, style).await?;
        Ok::<_, Stop>((demo, serving, wrong))
    };
    let (demo, serving, wrong) = tokio::select! {
        shown = showing => shown?,
        // Dropping the future removes the directory.
        () = signals.requested() => return Err(Stop::fault(Problem::new("the demo was interrupted"))),
    };
    output::data(&ending(scenes, wrong, began, style))?;
    output::note(next_steps(&program()));
    if keep {
        output::data(&demo.to_try(scenes))?;
    }
    handle.request();
    let stopped = serving.await.map_err(|error| fault("the server broke", &error))?;
    Ok(if wrong == 0 && stopped == Stopped::Clean { Exit::Done } else { Exit::No })
}

/// A server with its files.
struct Demo {
    /// A copy of `examples/`, removed on drop.
    dir: TempDir,
    addresses: Addresses,
    client: Client,
    file: File,
    cell: PlanCell,
    metrics: Metrics,
    generation: u64,
}

impl Demo {
    /// Writes all files and binds the server. [`Bound::serve`] starts serving.
    fn build(scenes: &[Scene]) -> Result<(Self, Bound), Stop> {
        let dir = tempfile::Builder::new().prefix("durward-demo-").tempdir();
        let dir = dir.map_err(|error| fault("no directory for the demo", &error))?;
        for (name, text) in EXAMPLES {
            write(&dir.path().join(name), text.as_bytes())?;
        }
        let authority = write_certificate(&dir.path().join("demo"))?;
        let config = dir.path().join("demo/durward.yaml");
        let file = File::load(&config, Purpose::Serving { cert_given: false, key_given: false })?;
        let first = scenes.first().map(|scene| dir.path().join(&scene.snapshot)).unwrap_or_default();
        let (metrics, checks) = (Metrics::new(VERSION), Checks::new());
        let cell =
            PlanCell::new(plan(&file, 1, &ControlPlanes::snapshot(snapshot(&first)?), &metrics, None)?);
        let settings =
            Settings::new(options(&file.server, &ServerArgs::default(), None)?).map_err(|e| refused(&e))?;
        let bound = Server::bind(settings, cell.clone(), metrics.clone(), checks);
        let bound = bound.map_err(|error| refused(&error))?;
        let addresses = bound.addresses();
        let client = client(&format!("https://{}", addresses.webhook), &authority)?;
        Ok((Self { dir, addresses, client, file, cell, metrics, generation: 1 }, bound))
    }

    /// Sends the requests of every scene and prints the answers. Returns the number of unexpected verdicts.
    async fn show(&mut self, scenes: &[Scene], style: Style) -> Result<usize, Stop> {
        let title = style.bold("Durward demo: real requests over HTTPS, clusters from snapshots");
        output::data(&format!("{title}\nserver: https://{}\n", self.addresses.webhook))?;
        let (mut wrong, mut guard) = (0, "");
        for scene in scenes {
            if guard != scene.guard {
                guard = &scene.guard;
                let summary =
                    GUARD_KINDS.iter().find(|kind| kind.name() == guard).map_or("", |kind| kind.summary());
                output::data(&format!("\n{}: {summary}\n", style.bold(guard)))?;
            }
            self.load(&self.dir.path().join(&scene.snapshot))?;
            output::data(&format!("\n {}\n", scene.title))?;
            for step in &scene.steps {
                let began = Instant::now();
                let answer = self.send(&scene.guard, step).await?;
                let report = report::step(step, &answer, began.elapsed(), style)?;
                wrong += usize::from(!report.is_expected);
                output::data(&report.text)?;
            }
        }
        Ok(wrong)
    }

    /// Replaces the plan by one for another snapshot, as a reload of the configuration does.
    fn load(&mut self, dir: &PathBuf) -> Result<(), Stop> {
        let control_planes = ControlPlanes::snapshot(snapshot(dir)?);
        self.generation += 1;
        self.cell.swap(plan(&self.file, self.generation, &control_planes, &self.metrics, None)?);
        Ok(())
    }

    /// Posts a review to a guard as the API server does.
    async fn send(&self, guard: &str, step: &SceneStep) -> Result<String, Stop> {
        let request = Request::post(format!("/{guard}?timeout=10s"))
            .header("content-type", "application/json")
            .body(example(&step.review)?.as_bytes().to_vec())
            .map_err(|error| fault("the demo's request is invalid", &error))?;
        let answer = tokio::time::timeout(TIMEOUT, self.client.request_text(request)).await;
        let answer = answer.map_err(|error| fault("the demo's server does not answer", &error))?;
        answer.map_err(|error| fault("the demo's server failed", &error))
    }

    fn to_try(&self, scenes: &[Scene]) -> String {
        let Addresses { webhook, metrics, .. } = self.addresses;
        let Some((scene, step)) = scenes.iter().find_map(|scene| Some((scene, scene.steps.last()?))) else {
            return String::new();
        };
        let program = program();
        let (dir, Scene { guard, snapshot, .. }, review) = (self.dir.path().display(), scene, &step.review);
        format!(
            "\nThe server is running. Ctrl-C stops it and removes the directory. In another terminal:\n\
             \x20 cd {dir}\n\
             \x20 curl -s --cacert demo/ca.crt -H 'Content-Type: application/json' -d @{review} https://{webhook}/{guard}\n\
             \x20 curl -s http://{metrics}/metrics | grep durward_reviews_total\n\
             \x20 {program} review {review} --config demo/durward.yaml --snapshot {snapshot} -v\n"
        )
    }
}

/// Creates a client that trusts the CA of the demo.
fn client(url: &str, authority: &str) -> Result<Client, Stop> {
    let url = url.parse().map_err(|error| fault("the server's address is invalid", &error))?;
    let mut config = kube::Config::new(url);
    let pem = Pem::read("the demo's CA", authority.as_bytes())?;
    config.root_cert = Some(pem.certificates.iter().map(|certificate| certificate.to_vec()).collect());
    Client::try_from(config).map_err(|error| fault("the demo's client cannot be created", &error))
}

/// Writes a CA and a certificate as `certs new` does, and returns the CA.
fn write_certificate(dir: &Path) -> Result<String, Stop> {
    let names = [ServingName::Address([127, 0, 0, 1].into())];
    let authority = Authority::new(Validity::from_now(LASTS), &names).map_err(Problem::from)?;
    let leaf = authority.sign(&names, Validity::from_now(LASTS)).map_err(Problem::from)?;
    let cert = authority.cert();
    for (name, text) in [("ca.crt", cert.as_bytes()), ("tls.crt", &leaf.cert), ("tls.key", &leaf.key)] {
        write(&dir.join(name), text)?;
    }
    Ok(cert.to_owned())
}

fn write(path: &Path, text: &[u8]) -> Result<(), Stop> {
    let parent = path.parent().map_or(Ok(()), fs::create_dir_all);
    let written = parent.and_then(|()| fs::write(path, text));
    written.map_err(|error| fault(&format!("{} cannot be written", path.display()), &error))
}

fn ending(scenes: &[Scene], wrong: usize, began: Instant, style: Style) -> String {
    let all: usize = scenes.iter().map(|scene| scene.steps.len()).sum();
    let verdict = match wrong {
        0 => style.green(&format!("{all} requests, every verdict as expected")),
        _ => style.red(&format!("{wrong} of {all} verdicts are unexpected")),
    };
    format!("\n{verdict}, in {}.\n", report::time(began.elapsed()))
}

/// Returns the path of this program, because it needn't be in PATH.
fn program() -> String {
    let path = std::env::current_exe().ok().and_then(|path| path.to_str().map(str::to_owned));
    path.map_or_else(|| "durward".to_owned(), |path| quoted(&path))
}

fn next_steps(program: &str) -> String {
    format!(
        "\nNext:\n\
         \x20 # In a clone of the repository: what would a deletion remove?\n\
         \x20 {program} impact ns/shop --snapshot examples/deletion/healthy\n\
         \x20 # Keep the server running\n\
         \x20 {program} demo --keep\n\
         \x20 # A configuration to start with\n\
         \x20 {program} config init --guard deletion > durward.yaml"
    )
}
