//! The in-use rule of `ConfigMap`s beside a policy of Kyverno with an API call, on a real API server: verdicts, time and memory.
//!
//! The API server and its etcd are those of the end-to-end tests. They run on the core of the load, and the measured webhook on the
//! other one. While one webhook is measured, the configurations of the other one are absent.

mod kyverno;
mod objects;

use std::collections::BTreeSet;
use std::path::Path;
use std::process::Command;

use e2e::api::Answer;
use e2e::binaries::Binary;
use e2e::parts;
use e2e::prelude::*;

use crate::figures::{Limit, Row, Samples};
use crate::peers::Peer;
use crate::report::Report;
use crate::servers::binary;
use crate::{SERVER_CORE, is_short, kernel, rounds};
use kyverno::Kyverno;
use objects::ConfigMap;

/// Numbers of pods in a namespace, and limits of Durward's time over Kyverno's. With few pods, both times are mostly the API server's.
const PODS: [(usize, f64); 2] = [(10, 1.25), (1_000, 1.0)];
const GUARDS: &str = "  deletion: {scope: labeled, inUse: {library: [configmaps]}}";

/// Builds the API server and what it needs.
pub(crate) fn build() -> crate::Result<()> {
    let context = TestContext::new()?;
    let needed = BTreeSet::from([Binary::Etcd, Binary::ApiServer, Binary::Kubectl]);
    let built = context.supervisor().and_then(|supervisor| parts::prepare(&supervisor, &needed));
    built.map_err(|error| format!("{error:#}"))?;
    Ok(context.finish(true)?)
}

/// Measures the rule.
pub(crate) fn measure(report: &mut Report) -> crate::Result<()> {
    // The harness starts Durward by `DURWARD_BIN`, so it must be built.
    binary()?;
    let program = Peer::KyvernoController.program()?;
    let figures = Figures::of(&program).map_err(|error| format!("{error:#}"))?;
    let maps = figures.sizes.first().map_or(0, |size| size.maps.len());
    report.section(
        "An in-use rule beside Kyverno",
        &format!(
            "The rule `configmaps` of the library, and a ClusterPolicy with an API call in Kyverno's admission controller as in \
             peers/kyverno/go.mod. Both are webhooks of one kube-apiserver. All verdicts on {maps} ConfigMaps are equal. A \
             time is the median of dry-run DELETEs of those that no pod uses. A pod has 6 kB.",
        ),
    );
    for Size { pods, limit, times: [plain, kyverno, durward], .. } in figures.sizes {
        let row = Row::seconds(format!("{pods} pods in the namespace"), durward.clone());
        report.row(row.clone().against("Kyverno", kyverno).limit(Limit::RatioAtMost(limit)));
        report.row(row.against("no webhook", plain));
    }
    let [_, kyverno, durward] = figures.memory;
    report.row(Row::bytes("peak memory", durward).against("Kyverno", kyverno));
    Ok(())
}

/// The webhook that the API server asks. The numbers are the places in arrays of samples.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Side {
    NoWebhook,
    Kyverno,
    Durward,
}

/// A namespace with its `ConfigMap`s, and the time of a DELETE on each side.
struct Size {
    pods: usize,
    limit: f64,
    maps: Vec<ConfigMap>,
    times: [Samples; 3],
}

impl Size {
    /// Sends dry-run DELETEs, and checks the verdicts. Returns the median time for `ConfigMap`s that no pod uses.
    ///
    /// Both webhooks write an Event after a denial. A List right after a write waits until the API server's cache has seen it, up
    /// to 100 ms. So the `ConfigMap`s in use come first, and only the others count. With few pods, they come again.
    fn time(&self, api: &Api, side: Side) -> Result<f64> {
        let mut times = Samples::NONE;
        let free = self.maps.iter().filter(|map| !map.is_used);
        for map in self.maps.iter().chain(free.cycle().take(2_000 / self.pods)) {
            let answer = api.delete(&map.path)?;
            let expected = map.is_used && side != Side::NoWebhook;
            ensure!(is_denied(&answer)? == expected, "{side:?}: {}: {}", answer.what, answer.body);
            if !map.is_used {
                times.push_time(answer.took);
            }
        }
        Ok(times.median())
    }
}

/// The samples of all rounds.
struct Figures {
    sizes: Vec<Size>,
    memory: [Samples; 3],
}

impl Figures {
    fn of(program: &Path) -> Result<Self> {
        let context = TestContext::new()?;
        let cluster = context.own_cluster(&Options::named("bench"))?;
        let mut figures = Self { sizes: Vec::new(), memory: [const { Samples::NONE }; 3] };
        for (pods, limit) in PODS {
            let pods = if is_short() { pods.min(50) } else { pods };
            let maps = objects::create(&cluster, &format!("pods-{pods}"), pods)?;
            figures.sizes.push(Size { pods, limit, maps, times: [const { Samples::NONE }; 3] });
        }
        let module = Peer::KyvernoController.module();
        let kyverno = Kyverno::install(&context, &cluster, program, &module)?;
        for _ in 0..rounds() {
            figures.round(&context, &cluster, &kyverno)?;
        }
        context.finish(true)?;
        Ok(figures)
    }

    fn round(&mut self, context: &TestContext, cluster: &Cluster, kyverno: &Kyverno<'_>) -> Result<()> {
        let api = cluster.api();
        self.measure(api, Side::NoWebhook, None)?;
        let running = kyverno.start()?;
        let started = self.await_webhook(api, true);
        started.map_err(|error| running.process.failure(format_args!("{error:#}")))?;
        self.measure(api, Side::Kyverno, Some(running.process.pid()))?;
        running.end()?;
        self.await_webhook(api, false)?;
        let mut installation = Installation::by_url(context, cluster, GUARDS)?;
        let durward = installation.serve().start_ready(context)?;
        installation.register()?;
        self.measure(api, Side::Durward, Some(durward.pid()))?;
        drop(installation);
        self.await_webhook(api, false)
    }

    fn measure(&mut self, api: &Api, side: Side, process: Option<i32>) -> Result<()> {
        if let Some(process) = process {
            let moved = Command::new("taskset").args(["-acp", SERVER_CORE, &process.to_string()]).output();
            let moved = moved.context("taskset (package util-linux) did not start")?;
            ensure!(moved.status.success(), "taskset: {}", String::from_utf8_lossy(&moved.stderr));
        }
        self.await_webhook(api, process.is_some())?;
        for size in &mut self.sizes {
            size.times[side as usize].push(size.time(api, side)?);
        }
        if let Some(process) = process {
            let peak = kernel::peak(&process.to_string());
            self.memory[side as usize].push(peak.ok().context("a webhook has ended")?);
        }
        Ok(())
    }

    /// Waits until the API server asks a webhook, or none.
    fn await_webhook(&self, api: &Api, is_there: bool) -> Result<()> {
        let used = self.sizes.iter().flat_map(|size| &size.maps).find(|map| map.is_used);
        let path = &used.context("no ConfigMap is used")?.path;
        until("the webhook to be called, or to be gone", || {
            let answer = api.delete(path)?;
            let is_seen = is_denied(&answer).is_ok_and(|is_denied| is_denied == is_there);
            Ok((is_seen, format!("{} {}", answer.status, answer.message())))
        })
    }
}

/// Returns whether a webhook denied it. Any other failure is an error.
fn is_denied(answer: &Answer) -> Result<bool> {
    let is_denied = !answer.is_success() && answer.message().contains("denied the request");
    if !is_denied && !answer.is_success() {
        bail!("{}: {} {}", answer.what, answer.status, answer.message());
    }
    Ok(is_denied)
}
