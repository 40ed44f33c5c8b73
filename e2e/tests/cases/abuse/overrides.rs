//! Overrides that should not count any more, or not for this caller.

use e2e::prelude::*;

use crate::cases::environment::{eventually_ok, scratch};
use crate::cases::objects::{allow, contains_all};

const BREAK_GLASS: &str = "durward.dev/break-glass";

const EXPIRED: &str = "2026-01-01T00:00:00Z";

/// Expects that the deletion is denied with these words.
fn is_denied(api: &Api, path: &str, words: &[&str]) -> Result<()> {
    let answer = api.delete(path)?;
    ensure!(answer.status == 403, "{}: {}", answer.status, answer.message());
    contains_all(answer.message(), words)
}

#[e2e::case]
fn an_expired_override_is_expired_for_administrators(context: &'static TestContext) -> Result<()> {
    let cluster = context.cluster(&scratch())?;
    let shop = cluster.namespace("shop")?;
    shop.pod("web").is_admitted()?;
    let (name, path) = (shop.name(), format!("/api/v1/namespaces/{}", shop.name()));
    let annotate = |annotations: Value| {
        cluster.api().merge(&path, &json!({"metadata": {"annotations": annotations}}))?.succeeded().map(drop)
    };
    // The annotations are older than this Durward, and nobody removed them.
    annotate(json!({
        "durward.dev/delete-anyway": name, "durward.dev/delete-reason": "moved",
        "durward.dev/delete-until": EXPIRED, BREAK_GLASS: name,
    }))?;
    let guards = "  deletion: {scope: all}";
    let (installation, durward) = Installation::start(context, &cluster, guards, "durward-overrides")?;
    let rules =
        json!([{"apiGroups": [""], "resources": ["namespaces"], "verbs": ["get", "delete", "patch"]}]);
    allow(&cluster, "overrides", &rules, "eve")?;
    let mallory = cluster.user("eve", &[])?;
    mallory.await_permitted(&path)?;
    let needs = "lacks the verb break-glass on guards.durward.dev/deletion";
    let past = format!("{EXPIRED} is in the past");
    let dry_run = format!("{path}?dryRun=All");
    let words = ["1 pod (web)", &past, needs];
    eventually_ok("the guard to deny", || is_denied(&mallory.api, &dry_run, &words))?;
    is_denied(&mallory.api, &path, &words)?;

    // The annotation that does not expire is listed, with the command that removes it.
    let doctor = installation.command(&["doctor", "fleet"])?;
    doctor.exited_with(1)?;
    contains_all(&doctor.stdout, &["(break-glass)", "does not expire", &format!("{BREAK_GLASS}-")])?;

    let root = cluster.certified("root", Some("system:masters"))?;
    root.api.delete(&dry_run)?.succeeded()?;
    let removal = ["annotate", "namespace", name, "durward.dev/break-glass-"];
    cluster.kubectl().run(&removal)?.succeeded()?;
    is_denied(&root.api, &path, &["1 pod (web)", &past])?;

    // With `overrides: permission`, a valid override does not count, and the printed command works.
    let strict = "  deletion: {scope: all, overrides: permission}";
    durward.reload_after(|| installation.configure(strict))?;
    let valid = ["override", &format!("ns/{name}"), "--reason", "moved", "--for", "1h", "--dry-run"];
    let command = Durward::command(context, &valid)?.succeeded()?.stdout;
    cluster.kubectl().shell(command.trim())?.succeeded()?;
    let printed = format!("kubectl annotate --overwrite ns {name} {BREAK_GLASS}={name}");
    let ignored = "delete-anyway has no effect with overrides: permission";
    is_denied(&root.api, &path, &[ignored, &printed])?;
    cluster.kubectl().shell(&printed)?.succeeded()?;
    is_denied(&mallory.api, &path, &[needs])?;
    root.api.delete(&dry_run)?.succeeded()?;

    // The API server decides alone, also while Durward is down.
    drop(durward);
    root.api.delete(&dry_run)?.succeeded()?;
    let down = mallory.api.delete(&dry_run)?;
    ensure!(down.message().contains("failed calling webhook"), "{}", down.message());
    drop(installation);
    Ok(())
}
