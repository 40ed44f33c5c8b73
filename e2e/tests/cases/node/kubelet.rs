//! The kubelet of the node stops and starts again.

use std::time::Instant;

use e2e::node;
use e2e::prelude::*;

#[e2e::case(Exclusive)]
fn a_node_without_its_kubelet_is_not_ready_and_its_pods_run(context: &TestContext) -> Result<()> {
    let node = context.exclusive_node()?;
    let shop = node.namespace("shop")?;
    let count = "i=0; while :; do i=$((i+1)); echo $i >/tmp/count; sleep 0.2; done";
    shop.pod("web").container_like("app", node::shell(count, json!({}))).is_admitted()?;
    let web = node.pod(&shop, "web").is_ready()?;
    let stopped = node.kubelet().stop()?;
    let began = Instant::now();
    let unknown = |node: &Value| {
        let conditions = node["status"]["conditions"].as_array().into_iter().flatten();
        conditions
            .filter(|condition| condition["type"] == "Ready")
            .any(|condition| condition["status"] == "Unknown")
    };
    node.await_state("unknown", unknown)?;
    // The grace period counts from the last lease renewal before the stop.
    let silent = began.elapsed();
    ensure!(silent + Duration::from_secs(5) > node::GRACE, "given up after {silent:?}");
    let refused = web.attempt("app", &["true"])?;
    ensure!(!refused.is_success(), "a command runs in the pod without a kubelet: {refused:?}");
    stopped.undo()?;
    node.await_state("Ready", |node| !unknown(node))?;
    // A kubelet that just started first learns its pods.
    let counted: u32 = eventually("a command in the pod", WAIT_LIMIT, || {
        let output = web.attempt("app", &["cat", "/tmp/count"])?;
        Ok(match output.stdout.trim().parse() {
            Ok(count) if output.is_success() => Poll::Ready(count),
            _ => Poll::Pending(output.stderr),
        })
    })?;
    // Five per second: a restarted container would have started from zero.
    ensure!(counted > 20, "the pod was restarted: it counted {counted}");
    Ok(())
}
