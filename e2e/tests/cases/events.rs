//! Events about denied requests, as `kubectl` shows them.

use std::fs;
use std::time::{SystemTime, UNIX_EPOCH};

use e2e::prelude::*;
use rustix::process::Signal;

use super::environment::scratch;
use super::objects::contains_all;

/// Waits until this number of warnings is about an object, and returns the lines of `kubectl events`.
pub(in crate::cases) fn await_events(
    cluster: &Cluster,
    namespace: &str,
    object: &str,
    expected: usize,
) -> Result<Vec<String>> {
    let list = ["events", "--no-headers", "--types=Warning", "-n", namespace, "--for", object];
    let mut lines = Vec::new();
    until(format_args!("{expected} Events about {object}"), || {
        let output = cluster.kubectl().run(&list)?.succeeded()?.stdout;
        lines = output.lines().map(str::to_owned).collect();
        Ok((lines.len() == expected, output))
    })?;
    Ok(lines)
}

/// Replicas create Events with the same name only in the same five minutes of the clock.
fn window() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs() / 300
}

fn used_namespace<'a>(cluster: &'a Cluster, name: &str) -> Result<Namespace<'a>> {
    let namespace = cluster.namespace(name)?;
    let create = ["create", "deployment", "web", "--image=images.example/app:1", "--replicas=0", "-n"];
    cluster.kubectl().run(&[&create[..], &[namespace.name()]].concat())?.succeeded()?;
    Ok(namespace)
}

/// Tries to delete a namespace that is in use. Repeats it until Durward is called.
fn try_to_delete(namespace: &Namespace<'_>, flag: &str) -> Result<()> {
    let delete = ["delete", "namespace", namespace.name(), "--wait=false", flag];
    let denied = namespace.cluster().kubectl().run(&delete)?;
    ensure!(!denied.is_success(), "it was deleted: {}", denied.stdout);
    contains_all(&denied.stderr, &["is still in use: 1 Deployment (web)"])
}

#[e2e::case]
fn a_denied_deletion_has_one_event_and_a_dry_run_none(context: &'static TestContext) -> Result<()> {
    let cluster = context.cluster(&scratch())?;
    let (installation, first) = Installation::start(context, &cluster, "  deletion: {}", "durward-events")?;
    let (tried, shop) = (used_namespace(&cluster, "tried")?, used_namespace(&cluster, "shop")?);
    until("the webhook to be called", || {
        let attempt = cluster.kubectl().run(&["delete", "ns", tried.name(), "--dry-run=server"])?;
        Ok((attempt.stderr.contains("is still in use"), attempt.stdout))
    })?;
    let of = |namespace: &Namespace<'_>| format!("namespace/{}", namespace.name());
    let began = window();
    try_to_delete(&shop, "--dry-run=none")?;
    try_to_delete(&shop, "--dry-run=none")?;
    let lines = await_events(&cluster, "default", &of(&shop), 1)?;
    let words = ["Warning", "DeletionDenied", "is still in use: 1 Deployment (web) (requested by a user)"];
    contains_all(&lines.concat(), &words)?;
    let created = first.metrics()?.value("durward_events_total", &[("result", "created")])?;
    ensure!((created - 1.0).abs() < 0.5, "{created} Events");

    // Another replica has no memory of the first one's Event.
    first.signal(Signal::TERM)?;
    first.await_end(WAIT_LIMIT)?;
    let second = installation.serve().named("durward-events-second").start_ready(context)?;
    try_to_delete(&shop, "--dry-run=none")?;
    // Events are created in the order of the denials. So this one shows that the one before was created or left out.
    let other = used_namespace(&cluster, "other")?;
    try_to_delete(&other, "--dry-run=none")?;
    await_events(&cluster, "default", &of(&other), 1)?;
    if window() == began {
        await_events(&cluster, "default", &of(&shop), 1)?;
    }
    await_events(&cluster, "default", &of(&tried), 0)?;

    let text = fs::read_to_string(installation.config())?;
    second.reload_after(|| Ok(fs::write(installation.config(), format!("{text}events: false\n"))?))?;
    let silent = used_namespace(&cluster, "silent")?;
    try_to_delete(&silent, "--dry-run=none")?;
    second.reload_after(|| Ok(fs::write(installation.config(), &text)?))?;
    let last = used_namespace(&cluster, "last")?;
    try_to_delete(&last, "--dry-run=none")?;
    await_events(&cluster, "default", &of(&last), 1)?;
    await_events(&cluster, "default", &of(&silent), 0)?;
    let failed = second.metrics()?.sum("durward_events_total", &[("result", "failed")]);
    ensure!(failed < 0.5, "{failed} Events failed");
    Ok(())
}
