//! The environment of the demo: a directory with snapshots, certificate and configuration, and the server that uses it.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use config::Problem;
use server::{Addresses, Bound, Checks, Metrics, PlanCell, Server, Settings};
use tempfile::TempDir;

use super::scenario::{Scenario, Scene};
use crate::args::ServerArgs;
use crate::certs::{Authority, Names};
use crate::connect::snapshot;
use crate::control_planes::ControlPlanes;
use crate::exit::Stop;
use crate::file::{File, Purpose};
use crate::output::lines;
use crate::plan::{options, plan};
use crate::serve::refused;
use crate::version::VERSION;

/// Lifetime of the certificate. With `--keep` the server can run for days.
const LASTS: Duration = Duration::from_secs(30 * 86_400);

/// The directory and the state of the server.
pub(super) struct DemoEnvironment {
    dir: TempDir,
    /// The CA in PEM.
    pub(super) authority: String,
    /// The addresses of the server.
    pub(super) addresses: Addresses,
    file: File,
    cell: PlanCell,
    metrics: Metrics,
    generation: u64,
}

impl DemoEnvironment {
    /// Writes all files and binds the server. [`Bound::serve`] starts serving.
    pub(super) async fn build(scenarios: &[&Scenario]) -> Result<(Self, Bound), Stop> {
        let dir = tempfile::Builder::new()
            .prefix("durward-demo-")
            .tempdir()
            .map_err(|error| Stop::fault(Problem::new("no folder for the demo").why(error.to_string())))?;
        let authority = certificate(dir.path())?;
        let config = dir.path().join("durward.yaml");
        write(&config, &configuration(scenarios))?;
        for scenario in scenarios {
            for (index, scene) in scenario.scenes.iter().enumerate() {
                for (name, text) in scene.snapshot {
                    write(&snapshot_dir(dir.path(), scenario, index).join(name), text)?;
                }
                for (number, step) in scene.steps.iter().enumerate() {
                    let name = format!("{}-{}.{}.json", scenario.guard, index + 1, number + 1);
                    write(&dir.path().join("reviews").join(name), step.review)?;
                }
            }
        }
        let file = File::load(&config, Purpose::Serving { cert_given: false, key_given: false })?;
        let first = scenarios.first().map(|scenario| snapshot_dir(dir.path(), scenario, 0));
        let control_planes = ControlPlanes::snapshot(snapshot(&first.unwrap_or_default())?);
        let (metrics, checks) = (Metrics::new(VERSION), Checks::new());
        let cell = PlanCell::new(plan(&file, 1, &control_planes, &metrics)?);
        let options = options(&file.server, &ServerArgs::default())?;
        let settings = Settings::new(options).map_err(|error| refused(&error))?;
        let bound = Server::bind(settings, cell.clone(), metrics.clone(), checks, None)
            .await
            .map_err(|error| refused(&error))?;
        let addresses = bound.addresses();
        Ok((Self { dir, authority, addresses, file, cell, metrics, generation: 1 }, bound))
    }

    /// Returns the directory.
    pub(super) fn dir(&self) -> &Path {
        self.dir.path()
    }

    /// Replaces the plan by one for the snapshot of another scene, as a reload of the configuration does.
    pub(super) fn show(&mut self, scenario: &Scenario, index: usize) -> Result<(), Stop> {
        let control_planes =
            ControlPlanes::snapshot(snapshot(&snapshot_dir(self.dir.path(), scenario, index))?);
        self.generation += 1;
        self.cell.swap(plan(&self.file, self.generation, &control_planes, &self.metrics)?);
        Ok(())
    }
}

/// Returns the directory of the snapshot of a scene.
pub(super) fn snapshot_dir(dir: &Path, scenario: &Scenario, index: usize) -> PathBuf {
    dir.join("worlds").join(format!("{}-{}", scenario.guard, index + 1))
}

fn configuration(scenarios: &[&Scenario]) -> String {
    let sections = lines(scenarios.iter().map(|scenario| format!("  {}", scenario.section)));
    format!(
        "version: 1\nserver:\n  listen: 127.0.0.1:0\n  admin: 127.0.0.1:0\n  local: none\n  \
         tls: {{files: {{cert: tls.crt, key: tls.key, ca: ca.crt}}}}\n  drain: {{lameDuck: 0s}}\nguards:\n{sections}"
    )
}

/// Writes a CA and a certificate as `certs new` does, and returns the CA.
fn certificate(dir: &Path) -> Result<String, Stop> {
    let mut names = Names::default();
    names.address([127, 0, 0, 1].into());
    let authority = Authority::make(LASTS)?;
    let leaf = authority.sign(names, LASTS)?;
    for (name, text) in [("ca.crt", &authority.cert), ("tls.crt", &leaf.cert), ("tls.key", &leaf.key)] {
        write(&dir.join(name), text)?;
    }
    Ok(authority.cert)
}

fn write(path: &Path, text: &str) -> Result<(), Stop> {
    let parent = path.parent().map_or(Ok(()), fs::create_dir_all);
    parent.and_then(|()| fs::write(path, text)).map_err(|error| {
        Stop::fault(Problem::new(format!("{} cannot be written", path.display())).why(error.to_string()))
    })
}

/// Returns the scenes of all scenarios with their indices.
pub(super) fn scenes<'s>(
    scenarios: &'s [&'s Scenario],
) -> impl Iterator<Item = (&'s Scenario, usize, &'s Scene)> {
    scenarios.iter().flat_map(|scenario| {
        scenario.scenes.iter().enumerate().map(move |(index, scene)| (*scenario, index, scene))
    })
}
