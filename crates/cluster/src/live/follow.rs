//! The task behind a watch: list, watch from there, start again when told to.
//!
//! kube's own watcher does the same but keeps bookmarks to itself, and they are what freshness stands on.

use std::hash::{BuildHasher as _, Hasher as _, RandomState};
use std::sync::Arc;
use std::time::Duration;

use tokio::time::{Instant, sleep, timeout};

use super::api::Api;
use super::failure::Failure;
use super::watch::{FRESH_FOR, Watch, put};
use crate::cause;
use crate::objects::Objects;

/// A page, and the opening of a watch: the API server gives up itself after 60 s (`--request-timeout`).
const ANSWER_WITHIN: Duration = Duration::from_secs(60);

/// Between attempts: from half a second, doubled up to half a minute. A stream that lived longer than [`LIVED`] was no failure.
const FIRST_PAUSE: Duration = Duration::from_millis(500);
const LAST_PAUSE: Duration = Duration::from_secs(30);
const LIVED: Duration = Duration::from_secs(10);

/// After as many failures in a row to go on from a version, the version is taken to be what is wrong with it (an API server that
/// was restored from a backup answers 504 "too large resource version" for as long as it takes).
const FAILURES_TO_RELIST: u32 = 3;

/// Keeps `watch` up to date for as long as it is polled.
pub(super) async fn follow(api: Api, watch: Arc<Watch>) {
    let mut pause = Pause::default();
    loop {
        match list(&api, &watch).await {
            Ok(version) => stream(&api, &watch, version, &mut pause).await,
            Err(failure) => {
                watch.closed(Some(failure.cause));
                pause.wait().await;
            }
        }
    }
}

/// Reads the whole List, page by page, and gives its version. The old objects stay until the new ones are complete.
async fn list(api: &Api, watch: &Watch) -> Result<String, Failure> {
    let asked = Instant::now();
    let mut objects = Objects::default();
    let mut token: Option<String> = None;
    loop {
        let page = timeout(ANSWER_WITHIN, api.list(watch.resource(), token.as_deref())).await;
        let page = page.map_err(|_| silent("the List did not come"))??;
        for wire in page.objects {
            put(&mut objects, wire);
        }
        if page.r#continue.is_none() {
            watch.listed(objects, asked);
            return Ok(page.version);
        }
        if page.r#continue == token {
            let text = "the API server's List does not end: a page names itself as the next one";
            return Err(Failure::new(cause::GARBAGE, text));
        }
        token = page.r#continue;
    }
}

/// Watches from `version` on, stream after stream, until a new List is needed.
async fn stream(api: &Api, watch: &Watch, mut version: String, pause: &mut Pause) {
    let mut failures = 0;
    while failures < FAILURES_TO_RELIST {
        let began = Instant::now();
        let ended = one_stream(api, watch, &mut version).await;
        let lived = began.elapsed() >= LIVED;
        if lived {
            pause.reset();
            failures = 0;
        }
        match ended {
            Ok(()) => {
                watch.closed(None);
                if !lived {
                    // An API server that ends each watch at once must not be asked without end.
                    pause.wait().await;
                }
            }
            Err(failure) if failure.is_expired => {
                watch.closed(None);
                return pause.wait_unless(lived).await;
            }
            Err(failure) => {
                failures += 1;
                watch.closed(Some(failure.cause));
                pause.wait().await;
            }
        }
    }
}

/// One stream, to its end.
async fn one_stream(api: &Api, watch: &Watch, version: &mut String) -> Result<(), Failure> {
    let opening = timeout(ANSWER_WITHIN, api.watch(watch.resource(), version)).await;
    let mut events = opening.map_err(|_| silent("the watch was not taken up"))??;
    watch.opened(Instant::now());
    loop {
        // A stream without a word for so long is of no use, whether it is broken or its API server sends no bookmarks: a new
        // one, from the last version on, is a word.
        match timeout(FRESH_FOR, events.next()).await {
            Err(_) | Ok(None) => return Ok(()),
            Ok(Some(event)) => *version = watch.heard(event?, Instant::now()),
        }
    }
}

fn silent(what: &str) -> Failure {
    Failure::new(cause::TIMEOUT, format!("{what} within {} s", ANSWER_WITHIN.as_secs()))
}

/// Growing pauses, each between half and the whole of its length, so that replicas do not come all at once.
#[derive(Debug, Default)]
struct Pause {
    duplicate_key: u32,
}

impl Pause {
    async fn wait(&mut self) {
        sleep(self.next(RandomState::new().build_hasher().finish())).await;
    }

    async fn wait_unless(&mut self, condition: bool) {
        if !condition {
            self.wait().await;
        }
    }

    fn next(&mut self, chance: u64) -> Duration {
        let whole = FIRST_PAUSE.saturating_mul(1 << self.duplicate_key.min(16)).min(LAST_PAUSE);
        self.duplicate_key = self.duplicate_key.saturating_add(1);
        let share = u32::try_from(chance % 1000).unwrap_or_default();
        whole / 2 + whole / 2 * share / 1000
    }

    fn reset(&mut self) {
        self.duplicate_key = 0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_grow_to_half_a_minute_and_start_again_after_a_success() {
        let mut pause = Pause::default();
        let longest: Vec<_> = (0..8).map(|_| pause.next(999).as_millis()).collect();
        assert_eq!(longest, [499, 999, 1999, 3998, 7996, 15992, 29985, 29985]);
        pause.reset();
        assert_eq!(pause.next(0), Duration::from_millis(250));
    }
}
