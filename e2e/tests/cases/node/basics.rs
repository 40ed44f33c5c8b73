//! That the node is one: what runs on it runs as on any other.

use anyhow::{Result, ensure};
use e2e::node;
use e2e::stage::Stage;
use serde_json::{Value, json};

pub(crate) fn a_pod_runs_and_says_what_it_was_asked(stage: &Stage) -> Result<()> {
    let node = stage.node()?;
    let shop = node.namespace("shop")?;
    let container = node::shell("echo in the log; trap 'exit 0' TERM; while :; do sleep 1; done", json!({}));
    shop.pod("web").container_like("app", container).is_admitted()?;
    let web = node.pod(&shop, "web").is_ready()?;
    ensure!(web.logs("app")? == "in the log\n", "the log says {:?}", web.logs("app")?);
    ensure!(web.exec("app", &["echo", "by exec"])? == "by exec\n", "exec says something else");
    let refused = web.attempt("app", &["sh", "-c", "echo why >&2; exit 3"])?;
    ensure!(refused.code() == Some(3) && refused.stderr.contains("why"), "a command that fails: {refused:?}");
    web.meets("Started: ")?;
    web.is_deleted()
}

pub(crate) fn a_pod_that_ends_is_done_and_one_that_fails_says_why(stage: &Stage) -> Result<()> {
    let node = stage.node()?;
    let shop = node.namespace("shop")?;
    let once = |pod: &mut Value| pod["spec"]["restartPolicy"] = "Never".into();
    shop.pod("good").container_like("app", node::shell("echo well", json!({}))).with(once).is_admitted()?;
    shop.pod("bad")
        .container_like("app", node::shell("echo ill; exit 7", json!({})))
        .with(once)
        .is_admitted()?;
    let good = node.pod(&shop, "good").is_done()?;
    ensure!(good.logs("app")? == "well\n", "the log says {:?}", good.logs("app")?);
    let error = node.pod(&shop, "bad").is_done().err().map(|error| format!("{error:#}")).unwrap_or_default();
    ensure!(error.contains("it is Failed") && error.contains("app: ill"), "the error says {error:?}");
    Ok(())
}
