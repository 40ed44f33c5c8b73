//! Restarts background tasks of the server: the certificate reloader, the ports without TLS, the state of clusters.
//!
//! Background tasks must not stop silently. If the certificate reloader stops, the server keeps running until its certificate
//! expires. A task that ends (by a panic, there is no other way) is logged, counted and restarted. Exiting instead would stop
//! all replicas at the same fault, with the reviews that it does not concern.

use std::future::Future;
use std::time::Duration;

use tokio::task::JoinSet;
use tokio::time::sleep;

use crate::metrics::Metrics;

/// Delay before a restart, so that a permanent fault does not fill the log.
const RESTART_DELAY: Duration = Duration::from_secs(1);

/// Runs the future that `start` returns, and starts another one whenever it ends. Dropping this stops it.
pub async fn supervise<F>(name: &'static str, metrics: Metrics, start: impl Fn() -> F)
where
    F: Future<Output = ()> + Send + 'static,
{
    loop {
        let mut task = JoinSet::new();
        task.spawn(start());
        let reason = match task.join_next().await {
            Some(Err(error)) => error.to_string(),
            _ => "it returned".to_owned(),
        };
        metrics.server().count_restarted(name);
        tracing::error!(task = name, reason, "background task ended; restarting it in {RESTART_DELAY:?}");
        sleep(RESTART_DELAY).await;
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::*;

    #[tokio::test]
    async fn counts_and_restarts_a_task_that_panics() {
        let (metrics, starts) = (Metrics::new("t"), Arc::new(AtomicUsize::new(0)));
        let (restarted, mut is_restarted) = tokio::sync::mpsc::unbounded_channel();
        let running = supervise("files", metrics.clone(), || {
            let (starts, restarted) = (Arc::clone(&starts), restarted.clone());
            async move {
                assert!(starts.fetch_add(1, Ordering::Relaxed) > 0, "the first time it fails");
                restarted.send(()).unwrap();
                std::future::pending::<()>().await;
            }
        });
        tokio::select! {
            () = running => {}
            second = is_restarted.recv() => second.unwrap(),
        }
        let text = metrics.encode();
        assert!(text.contains("durward_tasks_restarted_total{task=\"files\"} 1"), "{text}");
    }
}
