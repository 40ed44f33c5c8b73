//! Tests of lists, watches, freshness, and cached objects in place of failed requests.

use std::sync::Arc;
use std::time::Duration;

use serde_json::json;
use tokio::time::{Instant, sleep};

use super::fake::{Asked, Fake, bookmark, list, live, namespace, not_found, settled, status};
use super::{LIST, from, get, shop, team, watched};
use crate::live::Live;
use crate::live::reflector::{FRESH_FOR, SETTLE_TIME};
use crate::{Address, MetadataResult, Resource, cause};

const SECOND: Duration = Duration::from_secs(1);

/// Returns the answer, which must come without a request.
async fn known(live: &Live, fake: &mut Fake) -> Option<String> {
    let answer = get(live, shop()).await;
    fake.was_not_asked().await;
    team(answer)
}

/// Returns the answer if the API server does `reply`.
async fn asked(live: &Live, fake: &mut Fake, reply: impl FnOnce(Asked)) -> MetadataResult {
    let (answer, ()) = tokio::join!(get(live, shop()), async {
        reply(fake.asked("/api/v1/namespaces/shop").await);
    });
    answer
}

fn reason(live: &Live) -> (bool, String) {
    let lines = live.readiness();
    assert_eq!((lines.len(), lines[0].name.as_str()), (1, "namespaces"));
    (lines[0].ok, lines[0].reason.clone())
}

#[tokio::test(start_paused = true)]
async fn fresh_objects_are_returned_without_a_request() {
    let (live, mut fake, _stream) = watched().await;
    assert_eq!(known(&live, &mut fake).await.as_deref(), Some("a"));
    assert_eq!(reason(&live), (true, "watched, 1 objects, last event 1 s ago".to_owned()));
}

#[tokio::test(start_paused = true)]
async fn a_watch_that_has_just_been_opened_is_not_trusted_yet() {
    let (live, mut fake) = live();
    live.watch(&Resource::NAMESPACES);
    fake.asked(LIST).await.json(200, &list(10, "", &[namespace("shop", 9, "a")]));
    let _stream = fake.asked(&from(10)).await.stream();
    settled().await;
    let answer = asked(&live, &mut fake, |asked| asked.json(200, &namespace("shop", 11, "b"))).await;
    assert_eq!(team(answer).as_deref(), Some("b"));
    sleep(SETTLE_TIME).await;
    assert_eq!(known(&live, &mut fake).await.as_deref(), Some("a"));
}

#[tokio::test(start_paused = true)]
async fn events_change_the_cache() {
    let (live, mut fake, stream) = watched().await;
    stream.event("MODIFIED", &namespace("shop", 11, "b"));
    settled().await;
    assert_eq!(known(&live, &mut fake).await.as_deref(), Some("b"));
    stream.event("DELETED", &namespace("shop", 12, "b"));
    settled().await;
    // The cache never proves absence.
    let answer = asked(&live, &mut fake, |asked| asked.json(404, &not_found("shop"))).await;
    assert_eq!(answer, Ok(None));
    stream.event("ADDED", &namespace("shop", 13, "c"));
    settled().await;
    assert_eq!(known(&live, &mut fake).await.as_deref(), Some("c"));
}

#[tokio::test(start_paused = true)]
async fn events_may_come_in_pieces_and_together() {
    let (live, mut fake, stream) = watched().await;
    let line = format!("{}\n", json!({"type": "MODIFIED", "object": namespace("shop", 11, "b")}));
    for byte in line.as_bytes() {
        stream.bytes(vec![*byte]);
        settled().await;
    }
    assert_eq!(known(&live, &mut fake).await.as_deref(), Some("b"));
    let next = line.replace("\"b\"", "\"c\"");
    stream.bytes(format!("{line}{next}"));
    settled().await;
    assert_eq!(known(&live, &mut fake).await.as_deref(), Some("c"));
}

#[tokio::test(start_paused = true)]
async fn bookmarks_keep_the_cache_fresh_and_start_the_next_stream() {
    let (live, mut fake, stream) = watched().await;
    for minute in 1..=5 {
        sleep(60 * SECOND).await;
        stream.event("BOOKMARK", &bookmark(10 + minute));
        settled().await;
        assert_eq!(known(&live, &mut fake).await.as_deref(), Some("a"), "minute {minute}");
    }
    drop(stream);
    fake.asked(&from(15)).await;
}

#[tokio::test(start_paused = true)]
async fn a_stream_without_events_becomes_stale() {
    let (live, mut fake, stream) = watched().await;
    sleep(72 * SECOND).await;
    assert_eq!(known(&live, &mut fake).await.as_deref(), Some("a"));
    // At the limit the watch is closed, and another one is opened from the last version.
    let start = Instant::now();
    let reopening = fake.asked(&from(10)).await;
    assert!(start.elapsed() <= 3 * SECOND, "{:?}", start.elapsed());
    settled().await;
    assert!(stream.is_closed());
    let answer = asked(&live, &mut fake, drop).await;
    assert_eq!(answer.unwrap_err().code, cause::UNREACHABLE);
    let _stream = reopening.stream();
    sleep(SETTLE_TIME).await;
    settled().await;
    assert_eq!(known(&live, &mut fake).await.as_deref(), Some("a"));
}

#[tokio::test(start_paused = true)]
async fn while_the_watch_is_interrupted_gets_are_sent_to_the_api_server() {
    let (live, mut fake, stream) = watched().await;
    stream.breaks();
    let _reopening = fake.asked(&from(10)).await;
    let answer = asked(&live, &mut fake, |asked| asked.json(200, &namespace("shop", 11, "b"))).await;
    assert_eq!(team(answer).as_deref(), Some("b"));
    let (ok, reason) = reason(&live);
    assert!(ok && reason.starts_with("the watch is interrupted, last event 1 s ago"), "{reason}");
    assert!(reason.ends_with("no connection to the API server: connection reset"), "{reason}");
}

#[tokio::test(start_paused = true)]
async fn a_recent_object_replaces_a_failed_request() {
    type Reply = fn(Asked);
    let failures: [Reply; 4] = [
        |asked| drop(asked),
        |asked| asked.json(429, &status(429, "TooManyRequests", "later")),
        |asked| asked.json(503, &status(503, "ServiceUnavailable", "starting")),
        |asked| std::mem::forget(asked),
    ];
    for (at, reply) in failures.into_iter().enumerate() {
        let (live, mut fake, stream) = watched().await;
        stream.breaks();
        let _reopening = fake.asked(&from(10)).await;
        let start = Instant::now();
        let answer = asked(&live, &mut fake, reply).await;
        assert_eq!(team(answer).as_deref(), Some("a"), "{at}");
        assert!(start.elapsed() <= Duration::from_millis(2501), "half of the time must be left: {at}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_recent_object_never_replaces_a_refusal() {
    type Reply = fn(Asked);
    let refusals: [(Reply, &str); 4] = [
        (|asked| asked.json(403, &status(403, "Forbidden", "")), cause::FORBIDDEN),
        (|asked| asked.json(401, &status(401, "Unauthorized", "")), cause::CREDENTIALS),
        (|asked| asked.bytes(404, "404 page not found"), cause::NOT_SERVED),
        (|asked| asked.bytes(400, "{}"), cause::REFUSED),
    ];
    for (reply, expected) in refusals {
        let (live, mut fake, stream) = watched().await;
        stream.breaks();
        let _reopening = fake.asked(&from(10)).await;
        assert_eq!(asked(&live, &mut fake, reply).await.unwrap_err().code, expected);
    }
    // A certain absence wins over the cache.
    let (live, mut fake, stream) = watched().await;
    stream.breaks();
    let _reopening = fake.asked(&from(10)).await;
    assert_eq!(asked(&live, &mut fake, |asked| asked.json(404, &not_found("shop"))).await, Ok(None));
}

#[tokio::test(start_paused = true)]
async fn stale_objects_are_not_used() {
    let (live, mut fake, stream) = watched().await;
    stream.breaks();
    let reopening = fake.asked(&from(10)).await;
    sleep(FRESH_FOR).await;
    // The opening timed out after a minute and is tried again.
    assert!(reopening.is_abandoned());
    let _again = fake.asked(&from(10)).await;
    let found = asked(&live, &mut fake, drop).await.unwrap_err();
    assert_eq!(found.code, cause::UNREACHABLE);
}

#[tokio::test(start_paused = true)]
async fn an_expired_version_makes_a_new_list_that_replaces_the_old_one() {
    let (live, mut fake, stream) = watched().await;
    stream.event("ERROR", &status(410, "Expired", "too old resource version"));
    let listing = fake.asked(LIST).await;
    // The old state stays until the new one is there.
    let answer = asked(&live, &mut fake, drop).await;
    assert_eq!(team(answer).as_deref(), Some("a"));
    listing.json(200, &list(50, "", &[namespace("other", 40, "b")]));
    let _stream = fake.asked(&from(50)).await.stream();
    sleep(SETTLE_TIME).await;
    settled().await;
    assert_eq!(asked(&live, &mut fake, |asked| asked.json(404, &not_found("shop"))).await, Ok(None));
}

#[tokio::test(start_paused = true)]
async fn a_new_list_shares_unchanged_objects_with_the_old_one() {
    let (live, mut fake, stream) = watched().await;
    let before = get(&live, shop()).await.unwrap().unwrap();
    let mut stream = stream;
    for (team_name, is_shared) in [("a", true), ("b", false)] {
        stream.event("ERROR", &status(410, "Expired", "too old resource version"));
        fake.asked(LIST).await.json(200, &list(50, "", &[namespace("shop", 40, team_name)]));
        stream = fake.asked(&from(50)).await.stream();
        sleep(SETTLE_TIME).await;
        settled().await;
        let after = get(&live, shop()).await.unwrap().unwrap();
        assert_eq!(Arc::ptr_eq(&before, &after), is_shared);
        assert_eq!(after.labels["team"], team_name);
    }
}

#[tokio::test(start_paused = true)]
async fn an_expired_version_at_the_opening_makes_a_new_list_too() {
    let (_live, mut fake, stream) = watched().await;
    drop(stream);
    fake.asked(&from(10)).await.json(410, &status(410, "Expired", "too old resource version"));
    fake.asked(LIST).await;
}

#[tokio::test(start_paused = true)]
async fn a_list_of_several_pages_is_read_to_its_end() {
    let (live, mut fake) = live();
    live.watch(&Resource::NAMESPACES);
    fake.asked(LIST).await.json(200, &list(10, "a/b=", &[namespace("shop", 9, "a")]));
    let second = fake.asked("/api/v1/namespaces?limit=500&continue=a%2Fb%3D").await;
    assert!(second.accept.starts_with("application/json;as=PartialObjectMetadataList"));
    assert!(!reason(&live).0);
    second.json(200, &list(10, "", &[namespace("other", 8, "b")]));
    let _stream = fake.asked(&from(10)).await.stream();
    settled().await;
    assert_eq!(
        reason(&live),
        (
            true,
            "the watch is reconnecting, last event 0 s ago, each get is sent to the API server".to_owned()
        )
    );
    sleep(SETTLE_TIME).await;
    assert_eq!(reason(&live), (true, "watched, 2 objects, last event 1 s ago".to_owned()));
}

#[tokio::test(start_paused = true)]
async fn a_list_is_as_old_as_its_first_page() {
    let (live, mut fake) = live();
    live.watch(&Resource::NAMESPACES);
    let first = fake.next().await;
    sleep(40 * SECOND).await;
    first.json(200, &list(10, "next", &[namespace("shop", 9, "a")]));
    let second = fake.next().await;
    sleep(40 * SECOND).await;
    second.json(200, &list(10, "", &[]));
    let _opening = fake.next().await;
    settled().await;
    assert!(reason(&live).1.contains("last event 80 s ago"), "{}", reason(&live).1);
    let answer = asked(&live, &mut fake, drop).await;
    assert_eq!(answer.unwrap_err().code, cause::UNREACHABLE);
}

#[tokio::test(start_paused = true)]
async fn a_list_that_never_ends_is_given_up() {
    let (live, mut fake) = live();
    live.watch(&Resource::NAMESPACES);
    fake.next().await.json(200, &list(10, "again", &[]));
    fake.next().await.json(200, &list(10, "again", &[]));
    settled().await;
    assert!(reason(&live).1.contains("does not end"), "{}", reason(&live).1);
    fake.asked(LIST).await;
}

#[tokio::test(start_paused = true)]
async fn a_failed_list_is_reported_and_retried_with_backoff() {
    let (live, mut fake) = live();
    live.watch(&Resource::NAMESPACES);
    let mut last = Instant::now();
    for attempt in 0..12 {
        let asked = fake.asked(LIST).await;
        let pause = last.elapsed();
        assert!(pause <= 30 * SECOND, "{attempt}: {pause:?}");
        if attempt > 7 {
            assert!(pause >= 14 * SECOND, "{attempt}: {pause:?}");
        }
        last = Instant::now();
        asked.json(403, &status(403, "Forbidden", "no"));
        settled().await;
        let expected = "not read yet: Durward is not permitted to list namespaces (RBAC: verb list)";
        assert_eq!(reason(&live), (false, expected.to_owned()));
    }
    // Gets are sent to the API server meanwhile.
    fake.asked(LIST).await.json(200, &list(10, "", &[]));
    let _stream = fake.asked(&from(10)).await.stream();
    sleep(SETTLE_TIME).await;
    settled().await;
    assert_eq!(reason(&live), (true, "watched, 0 objects, last event 1 s ago".to_owned()));
}

#[tokio::test(start_paused = true)]
async fn an_invalid_list_is_never_an_empty_one() {
    for body in [
        json!({"kind": "Status", "metadata": {}, "items": []}),
        json!({"kind": "NamespaceList", "metadata": {}, "items": []}),
        json!({"kind": "NamespaceList", "metadata": {"resourceVersion": "1"}, "items": [{"metadata": {}}]}),
        json!({"items": []}),
        json!("<html>"),
    ] {
        let (live, mut fake) = live();
        live.watch(&Resource::NAMESPACES);
        fake.next().await.json(200, &body);
        settled().await;
        assert!(!reason(&live).0, "{body}");
        fake.asked(LIST).await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_version_that_never_works_is_replaced_by_a_new_list() {
    let (_live, mut fake, stream) = watched().await;
    drop(stream);
    for _ in 0..3 {
        fake.asked(&from(10)).await.json(504, &status(504, "Timeout", "Too large resource version"));
    }
    fake.asked(LIST).await;
}

#[tokio::test(start_paused = true)]
async fn an_invalid_event_is_not_used() {
    for line in [
        "garbage\n".to_owned(),
        format!("{}\n", json!({"type": "SURPRISE", "object": namespace("shop", 11, "b")})),
        format!(
            "{}\n",
            json!({"type": "MODIFIED", "object": {"kind": "Pod", "apiVersion": "v2", "metadata": {"name": "shop", "resourceVersion": "11"}}})
        ),
        format!("{}\n", json!({"type": "MODIFIED", "object": namespace("", 11, "b")})),
        format!(
            "{}\n",
            json!({"type": "MODIFIED", "object": {"kind": "PartialObjectMetadata", "apiVersion": "meta.k8s.io/v1", "metadata": {"name": "shop"}}})
        ),
        format!("{}\n", json!({"type": "ERROR", "object": status(500, "InternalError", "etcd")})),
        " ".repeat((4 << 20) + 1),
    ] {
        let (live, mut fake, stream) = watched().await;
        let shown: String = line.chars().take(60).collect();
        stream.bytes(line);
        let _reopening = fake.asked(&from(10)).await;
        let answer = asked(&live, &mut fake, |asked| asked.json(200, &namespace("shop", 12, "c"))).await;
        assert_eq!(team(answer).as_deref(), Some("c"), "{shown}");
        assert!(reason(&live).1.contains("interrupted"), "{shown}");
    }
}

#[tokio::test(start_paused = true)]
async fn an_api_server_that_ends_each_stream_gets_few_requests() {
    let (_live, mut fake, stream) = watched().await;
    drop(stream);
    let start = Instant::now();
    for _ in 0..10 {
        drop(fake.asked(&from(10)).await.stream());
    }
    assert!(start.elapsed() > 60 * SECOND, "{:?}", start.elapsed());
}

#[tokio::test(start_paused = true)]
async fn a_second_watch_of_a_resource_changes_nothing() {
    let (live, mut fake, _stream) = watched().await;
    live.watch(&Resource::NAMESPACES);
    fake.was_not_asked().await;
}

#[tokio::test(start_paused = true)]
async fn the_same_name_in_another_resource_is_another_object() {
    let (live, mut fake, _stream) = watched().await;
    let resource = Resource { group: String::new().into(), version: "v1".into(), plural: "nodes".into() };
    let address = Address { resource: &resource, ..shop() };
    let (answer, ()) =
        tokio::join!(get(&live, address), async { drop(fake.asked("/api/v1/nodes/shop").await) });
    assert_eq!(answer.unwrap_err().code, cause::UNREACHABLE);
}

#[tokio::test(start_paused = true)]
async fn dropping_live_stops_its_tasks() {
    let tasks = || tokio::runtime::Handle::current().metrics().num_alive_tasks();
    let before = tasks();
    let (live, fake, stream) = watched().await;
    assert!(tasks() > before);
    drop(live);
    settled().await;
    assert!(stream.is_closed());
    assert_eq!(tasks(), before);
    drop(fake);
}
