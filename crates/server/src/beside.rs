//! What runs beside the door for as long as the process does: looking at files, the ports without TLS, the world's state.
//!
//! None of it may end, least of all unseen: a server whose certificate nobody renews any more goes on until the day it ends. So
//! what ends (a panic, since there is no other way out) is told, counted and begun anew. Leaving instead would take every replica
//! down at the same fault, with the reviews that it has no part in.

use std::future::Future;
use std::time::Duration;

use tokio::task::JoinSet;
use tokio::time::sleep;

use crate::metrics::Metrics;

/// Between an end and the next beginning: a fault that stays must not fill the log.
const PAUSE: Duration = Duration::from_secs(1);

/// Runs what `begin` makes, and begins anew whenever it ends. What it makes ends with this future.
pub async fn keep_running<F>(name: &'static str, metrics: Metrics, begin: impl Fn() -> F)
where
    F: Future<Output = ()> + Send + 'static,
{
    loop {
        let mut one = JoinSet::new();
        one.spawn(begin());
        let ended = one.join_next().await;
        let reason = match ended {
            Some(Err(error)) => error.to_string(),
            _ => "it came to an end".to_owned(),
        };
        metrics.door().count_restarted(name);
        tracing::error!(task = name, reason, "a task beside the server ended; it begins anew in {PAUSE:?}");
        sleep(PAUSE).await;
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::*;

    #[tokio::test]
    async fn what_panics_is_counted_and_begun_anew() {
        let (metrics, begun) = (Metrics::new("t"), Arc::new(AtomicUsize::new(0)));
        let (say, mut again) = tokio::sync::mpsc::unbounded_channel();
        let running = keep_running("files", metrics.clone(), || {
            let (begun, say) = (Arc::clone(&begun), say.clone());
            async move {
                assert!(begun.fetch_add(1, Ordering::Relaxed) > 0, "the first time it fails");
                say.send(()).unwrap();
                std::future::pending::<()>().await;
            }
        });
        tokio::select! {
            () = running => {}
            said = again.recv() => said.unwrap(),
        }
        let text = metrics.encode();
        assert!(text.contains("durward_tasks_restarted_total{task=\"files\"} 1"), "{text}");
    }
}
