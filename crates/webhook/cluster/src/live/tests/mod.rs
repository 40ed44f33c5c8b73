//! Tests of `live` with a fake API server, with tokio's clock paused; [`transport`] and [`etcd`] use sockets.

mod access;
mod deadline;
mod etcd;
mod expiry;
pub(super) mod fake;
mod fleet;
mod gets;
mod hostile;
mod member_deadlines;
mod member_requests;
mod transport;
mod watching;

use std::time::Duration;

use tokio::time::Instant;

use super::Live;
use crate::{Address, MetadataResult, Reader as _, Resource};
use fake::{Fake, Stream, list, live, settled};

/// The List and the watch of kube's watcher.
const LIST: &str = "/api/v1/namespaces?limit=500";

/// The address of most gets.
fn shop() -> Address<'static> {
    Address { resource: &Resource::NAMESPACES, namespace: "", name: "shop" }
}

/// Gets with a deadline of five seconds.
async fn get(live: &Live, address: Address<'_>) -> MetadataResult {
    live.get(address, (Instant::now() + Duration::from_secs(5)).into_std()).await
}

/// Gets uncached with a deadline of five seconds.
async fn ask(live: &Live, address: Address<'_>) -> MetadataResult {
    live.get_uncached(address, (Instant::now() + Duration::from_secs(5)).into_std()).await
}

/// Returns the label `team` of a namespace, if the namespace exists.
fn team(answer: MetadataResult) -> Option<String> {
    answer.unwrap().map(|metadata| metadata.labels["team"].clone())
}

/// The path of a watch from `version` on.
fn from(version: u64) -> String {
    format!(
        "/api/v1/namespaces?watch=true&timeoutSeconds=50&allowWatchBookmarks=true&resourceVersion={version}"
    )
}

/// A client that watches namespaces. At version 10 there is `shop` with team `a`.
async fn watched() -> (Live, Fake, Stream) {
    let (live, mut fake) = live();
    live.watch_namespaces();
    fake.asked(LIST).await.json(200, &list(10, "", &[fake::namespace("shop", 9, "a")]));
    let stream = fake.asked(&from(10)).await.stream();
    settled().await;
    (live, fake, stream)
}
