//! The configuration is reloaded while pods are created.

use e2e::prelude::*;
use rustix::process::Signal;

use super::environment::{await_injection, scratch};
use super::files::{DEFAULT_FILES, LxcfsChecks as _};
use super::load::under_load;
use crate::cases::objects::contains_all;

const FEWER: [&str; 2] = ["meminfo", "uptime"];

#[e2e::case(Slow)]
fn a_valid_configuration_is_reloaded_and_an_invalid_one_ignored(context: &'static TestContext) -> Result<()> {
    let cluster = context.cluster(&scratch())?;
    let (installation, durward) = Installation::start(
        context,
        &cluster,
        "  lxcfs: {webhook: {failurePolicy: Fail}}",
        "durward-reloaded",
    )?;
    let shop = cluster.namespace("shop")?;
    await_injection(&shop)?;
    let unknown = unknown(&durward)?;

    // After the mark, no pod gets the files of the old configuration.
    let expected = |marks: usize, pod: Admitted| {
        let has_all = pod.pod["spec"]["volumes"].as_array().map_or(0, Vec::len) == DEFAULT_FILES.len();
        let files: &[&str] = if has_all && marks == 0 { &DEFAULT_FILES } else { &FEWER };
        pod.with_files(files)?.without_warnings().map(drop)
    };
    under_load(&shop, expected, |load| {
        load.await_more(20)?;
        installation.configure("  lxcfs: {files: [meminfo, uptime], webhook: {failurePolicy: Fail}}")?;
        durward.signal(Signal::HUP)?;
        await_metric(&durward, "durward_config_generation", 2.0)?;
        load.mark();
        load.await_more(20)?;

        installation.configure("  lxcfs: {files: [memifno]}")?;
        durward.signal(Signal::HUP)?;
        await_metric(&durward, "durward_config_stale", 1.0)?;
        let page = durward.page("/readyz?verbose")?;
        ensure!(page.status == 200, "an invalid file made a server unready: {}", page.body);
        contains_all(&page.body, &["configuration", "generation 2 stays active", "memifno"])?;
        ensure!(durward.log()?.contains("memifno"), "the log does not name the error in the new file");
        load.await_more(20)?;

        installation.configure("  lxcfs: {files: [meminfo, uptime], webhook: {failurePolicy: Fail}}")?;
        durward.signal(Signal::HUP)?;
        await_metric(&durward, "durward_config_stale", 0.0)
    })?;
    let now = self::unknown(&durward)?;
    ensure!((now - unknown).abs() < 0.5, "{} reviews were Unknown during the reload", now - unknown);
    Ok(())
}

fn unknown(durward: &Durward) -> Result<f64> {
    Ok(durward.metrics()?.sum("durward_unknown_total", &[]))
}

fn await_metric(durward: &Durward, name: &str, expected: f64) -> Result<()> {
    until(format_args!("{name} to be {expected}"), || {
        let value = durward.metrics()?.value(name, &[])?;
        Ok(((value - expected).abs() < 0.5, value.to_string()))
    })
}
