//! Tests of the cache of namespaces.

use std::time::Duration;

use serde_json::json;
use tokio::time::Instant;

use super::fake::{Fake, bookmark, list, live, namespace, settled, status};
use super::{LIST, from, get, shop, team, watched};
use crate::live::Live;
use crate::{Address, Resource};

/// Returns the answer, which must come without a request.
async fn known(live: &Live, fake: &mut Fake) -> Option<String> {
    let answer = get(live, shop()).await;
    fake.was_not_asked().await;
    team(answer)
}

fn reason(live: &Live) -> (bool, String) {
    let line = live.readiness().unwrap();
    assert_eq!(line.name, "namespaces");
    (line.ok, line.reason)
}

#[tokio::test(start_paused = true)]
async fn watched_namespaces_are_returned_without_a_request() {
    let (live, mut fake, _stream) = watched().await;
    assert_eq!(known(&live, &mut fake).await.as_deref(), Some("a"));
    assert_eq!(reason(&live), (true, "watched, 1 objects".to_owned()));
}

#[tokio::test(start_paused = true)]
async fn events_change_the_cache() {
    let (live, mut fake, stream) = watched().await;
    stream.event("MODIFIED", &namespace("shop", 11, "b"));
    settled().await;
    assert_eq!(known(&live, &mut fake).await.as_deref(), Some("b"));
    stream.event("BOOKMARK", &bookmark(12));
    stream.event("DELETED", &namespace("shop", 13, "b"));
    settled().await;
    // The cache never proves absence.
    let (answer, ()) = tokio::join!(get(&live, shop()), async {
        fake.asked("/api/v1/namespaces/shop").await.json(200, &namespace("shop", 14, "c"));
    });
    assert_eq!(team(answer).as_deref(), Some("c"));
}

#[tokio::test(start_paused = true)]
async fn the_cache_has_annotations_of_durward_only() {
    let (live, mut fake, stream) = watched().await;
    let mut object = namespace("shop", 11, "b");
    object["metadata"]["annotations"] = json!({"durward.dev/a": "1", "kubectl.kubernetes.io/b": "2"});
    stream.event("MODIFIED", &object);
    settled().await;
    let found = get(&live, shop()).await.unwrap().unwrap();
    assert_eq!(found.annotations.keys().collect::<Vec<_>>(), ["durward.dev/a"]);
    fake.was_not_asked().await;
}

#[tokio::test(start_paused = true)]
async fn an_api_server_that_is_down_at_first_is_reported_and_tried_again_with_backoff() {
    let (live, mut fake) = live();
    live.watch_namespaces();
    assert_eq!(reason(&live), (false, "not read yet".to_owned()));
    for _ in 0..3 {
        drop(fake.asked(LIST).await);
    }
    settled().await;
    let (is_ok, why) = reason(&live);
    assert!(
        !is_ok && why.starts_with("not read yet: no connection to the API server at https://api"),
        "{why}"
    );
    let forbidden = status(403, "Forbidden", "no");
    fake.asked(LIST).await.json(403, &forbidden);
    settled().await;
    let why = reason(&live).1;
    assert!(why.ends_with("Durward is not permitted to list namespaces (RBAC: verb list)"), "{why}");
    fake.asked(LIST).await.json(200, &list(10, "", &[namespace("shop", 9, "a")]));
    let _stream = fake.asked(&from(10)).await.stream();
    settled().await;
    assert_eq!(known(&live, &mut fake).await.as_deref(), Some("a"));
    assert_eq!(reason(&live), (true, "watched, 1 objects".to_owned()));
}

#[tokio::test(start_paused = true)]
async fn a_watch_that_breaks_is_opened_again_and_the_cache_is_used_for_a_minute_at_most() {
    let (live, mut fake, stream) = watched().await;
    stream.breaks();
    settled().await;
    assert_eq!(known(&live, &mut fake).await.as_deref(), Some("a"));
    assert!(reason(&live).1.starts_with("the watch is interrupted, 1 objects: "), "{}", reason(&live).1);
    let begin = Instant::now();
    // The watch is tried again with the same version, and then begins with a new List.
    let renewed = loop {
        let asked = fake.next().await;
        if asked.path == LIST {
            break asked;
        }
        assert_eq!(asked.path, from(10));
    };
    assert!(begin.elapsed() > Duration::from_secs(55));
    let (answer, ()) = tokio::join!(get(&live, shop()), async {
        fake.asked("/api/v1/namespaces/shop").await.json(200, &namespace("shop", 14, "b"));
    });
    assert_eq!(team(answer).as_deref(), Some("b"));
    renewed.json(200, &list(20, "", &[namespace("shop", 19, "c")]));
    let _stream = fake.asked(&from(20)).await.stream();
    settled().await;
    assert_eq!(known(&live, &mut fake).await.as_deref(), Some("c"));
    assert_eq!(reason(&live), (true, "watched, 1 objects".to_owned()));
}

#[tokio::test(start_paused = true)]
async fn an_expired_version_makes_a_new_list() {
    let (live, mut fake, stream) = watched().await;
    stream.event("ERROR", &status(410, "Expired", "too old"));
    fake.asked(LIST).await.json(200, &list(20, "", &[namespace("shop", 19, "b")]));
    let _stream = fake.asked(&from(20)).await.stream();
    settled().await;
    assert_eq!(known(&live, &mut fake).await.as_deref(), Some("b"));
}

#[tokio::test(start_paused = true)]
async fn the_same_name_in_another_resource_is_another_object() {
    let (live, mut fake, _stream) = watched().await;
    let deployments = Resource::from_argument("deployments.v1.apps").unwrap();
    let address = Address { resource: &deployments, namespace: "shop", name: "shop" };
    let (answer, ()) = tokio::join!(get(&live, address), async { drop(fake.next().await) });
    answer.unwrap_err();
}

#[tokio::test(start_paused = true)]
async fn a_second_watch_changes_nothing_and_dropping_live_stops_it() {
    let (live, mut fake, stream) = watched().await;
    live.watch_namespaces();
    fake.was_not_asked().await;
    drop(live);
    settled().await;
    assert!(stream.is_closed());
}
