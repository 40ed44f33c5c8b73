//! The world of tests: a [`World`] that changes during a review, with etcd members, a writer, faults and a log.
//!
//! Objects are JSON, and [`World`] answers. Each request has a text, by which tests find it in the log and make it fail:
//!
//! | text | request |
//! |---|---|
//! | `(local): pods db/etcd-0`, `(local): cached namespaces shop` | an object, or its metadata from the cache |
//! | `m1: pods/v1 in "shop" from 2`; `fleet` | a page, from the third object on; the member clusters |
//! | `etcd: etcd-0 status` | a request to an etcd member |
//! | `write: lease NAME`, `write: leader etcd-0 to 11`, `write: event NAME` | a change |

mod clients;
mod content;
mod etcd;

use std::sync::{Arc, Mutex, MutexGuard};
use std::time::{Duration, Instant};

use admission::Cause;
use tokio::task::yield_now;
use tokio::time::{sleep, sleep_until};

use crate::fleet::{ListQuery, Page};
use crate::world::World;
use crate::{Clients, Context, cause};

pub use content::FakeContent;
pub use etcd::{FakeEtcd, FakeEtcdMember, Reply, ReportedLeader, etcd_pod};

/// Reader, etcd client and writer of a test. Clones share the content. Every answer yields first, so that concurrent reviews
/// interleave, and every request ends by its deadline.
#[derive(Clone, Default)]
pub struct FakeWorld(Arc<Mutex<FakeContent>>);

/// A request, for a [`FaultRule`].
#[derive(Debug, Clone, Copy)]
pub struct SentRequest<'r> {
    /// Its text.
    pub text: &'r str,
    /// The query for a page.
    pub list: Option<&'r ListQuery<'r>>,
}

/// The result of a request instead of an answer of the world.
#[derive(Debug, Clone)]
pub enum RequestFault {
    /// It fails.
    Fails(Cause),
    /// It has no answer before its deadline.
    Hangs,
    /// It takes this time, whatever its result is.
    Takes(Duration),
    /// It takes so many turns of other tasks, whatever its result is.
    Yields(usize),
    /// It returns this page.
    Page(Page),
}

/// Sees every request before the world answers it, and can change the content.
pub type FaultRule = Box<dyn FnMut(&mut FakeContent, SentRequest<'_>) -> Option<RequestFault> + Send>;

/// An entry of the log.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum WorldEvent {
    /// A request was sent.
    Sent(String),
    /// An object was returned: the text of the request, and the uid.
    Returned(String, String),
}

impl FakeWorld {
    /// Returns the content, to read or to change it.
    pub fn content(&self) -> MutexGuard<'_, FakeContent> {
        admission::lock(&self.0)
    }

    /// Changes the content.
    #[must_use]
    pub fn with(self, change: impl FnOnce(&mut FakeContent)) -> Self {
        change(&mut self.content());
        self
    }

    /// Returns clients with a writer, at the time of the world.
    pub fn clients(&self) -> Clients {
        let context = Context { fixed_time: self.content().world.time, ..Context::default() };
        Clients { context, writer: Some(Arc::new(self.clone())), ..Clients::new(Arc::new(self.clone())) }
    }

    /// Returns the texts of all requests.
    pub fn requests(&self) -> Vec<String> {
        let sent = |event: &WorldEvent| match event {
            WorldEvent::Sent(text) => Some(text.clone()),
            WorldEvent::Returned(..) => None,
        };
        self.content().events.iter().filter_map(sent).collect()
    }

    /// Logs a request and waits. Returns the page or the failure of a fault.
    async fn begin(
        &self,
        text: &str,
        list: Option<&ListQuery<'_>>,
        deadline: Instant,
    ) -> Result<Option<Page>, Cause> {
        self.content().begin(text);
        yield_now().await;
        let (mut takes, mut yields, mut page) = (Duration::ZERO, 0, Ok(None));
        let faults = self.content().faults(SentRequest { text, list });
        for fault in faults {
            match fault {
                RequestFault::Fails(why) => page = Err(why),
                RequestFault::Hangs => takes = Duration::MAX,
                RequestFault::Takes(time) => takes = takes.max(time),
                RequestFault::Yields(turns) => yields = turns,
                RequestFault::Page(given) => page = Ok(Some(given)),
            }
        }
        for _ in 0..yields {
            yield_now().await;
        }
        let left = deadline.saturating_duration_since(tokio::time::Instant::now().into_std());
        if takes > left {
            return Err(no_answer(deadline).await);
        }
        if !takes.is_zero() {
            sleep(takes).await;
        }
        self.content().in_progress -= 1;
        page
    }
}

/// Waits until the deadline, as every reader does, and returns the cause.
async fn no_answer(deadline: Instant) -> Cause {
    let started = tokio::time::Instant::now();
    sleep_until(deadline.into()).await;
    Cause::new(cause::TIMEOUT, format!("no answer in {:.1} s", started.elapsed().as_secs_f64()))
}

/// Reads an answer that a [`World`] has at once.
fn at_once<T>(answer: impl Future<Output = T>) -> T {
    use futures_util::FutureExt as _;
    answer.now_or_never().unwrap()
}
