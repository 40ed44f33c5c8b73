//! Tests of single gets: requests, answers and sharing.

use std::time::Duration;

use serde_json::{Value, json};
use tokio::time::Instant;

use super::fake::{live, namespace, not_found, settled, status};
use super::{ask, get, shop, team, watched};
use crate::{Address, Reader as _, Resource, cause};

#[tokio::test(start_paused = true)]
async fn asks_for_metadata_only() {
    let (live, mut fake) = live();
    let (answer, ()) = tokio::join!(get(&live, shop()), async {
        let asked = fake.asked("/api/v1/namespaces/shop").await;
        assert!(asked.accept.starts_with("application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1"));
        asked.json(200, &namespace("shop", 1, "a"));
    });
    assert_eq!(team(answer).as_deref(), Some("a"));
}

#[tokio::test(start_paused = true)]
async fn a_whole_object_is_accepted_as_metadata() {
    let (live, mut fake) = live();
    let body = json!({"kind": "Namespace", "apiVersion": "v1", "metadata": {"name": "shop", "labels": {"team": "a"}}, "spec": {}});
    let (answer, ()) = tokio::join!(get(&live, shop()), async { fake.next().await.json(200, &body) });
    assert_eq!(team(answer).as_deref(), Some("a"));
}

#[tokio::test(start_paused = true)]
async fn objects_in_groups_and_namespaces_have_longer_paths() {
    let (live, mut fake) = live();
    let resource = Resource { group: "apps".into(), version: "v1".into(), plural: "deployments".into() };
    let address = Address { resource: &resource, namespace: "shop", name: "a b:c?d" };
    let (answer, ()) = tokio::join!(get(&live, address), async {
        let asked = fake.asked("/apis/apps/v1/namespaces/shop/deployments/a%20b%3Ac%3Fd").await;
        asked.json(
            404,
            &json!({"kind": "Status", "reason": "NotFound", "code": 404,
                    "details": {"name": "a b:c?d", "group": "apps", "kind": "deployments"}}),
        );
    });
    assert_eq!(answer, Ok(None));
}

#[tokio::test(start_paused = true)]
async fn names_that_would_change_the_path_are_never_requested() {
    let (live, mut fake) = live();
    for (namespace, name) in
        [("", ""), ("", "."), ("", ".."), ("..", "web"), ("", "a/b"), ("", "a%2fb"), ("a/b", "web")]
    {
        let address = Address { resource: &Resource::NAMESPACES, namespace, name };
        assert_eq!(get(&live, address).await.unwrap_err().code, cause::REFUSED, "{namespace:?}/{name:?}");
    }
    fake.was_not_asked().await;
}

#[tokio::test(start_paused = true)]
async fn absence_is_believed_only_from_a_status_about_the_very_object() {
    let other = |path: &str, value: Value| {
        let mut body = not_found("shop");
        *body.pointer_mut(path).unwrap() = value;
        body.to_string()
    };
    for (what, body, expected) in [
        ("as it should be", not_found("shop").to_string(), true),
        ("plain text, as for a path that is not served", "404 page not found\n".to_owned(), false),
        ("nothing", String::new(), false),
        ("another object", other("/details/name", json!("shopping")), false),
        ("another resource", other("/details/kind", json!("pods")), false),
        (
            "another group",
            not_found("shop")
                .to_string()
                .replace("\"kind\":\"namespaces\"", "\"kind\":\"namespaces\",\"group\":\"example.org\""),
            false,
        ),
        ("no details", other("/details", Value::Null), false),
        ("another reason", other("/reason", json!("Unknown")), false),
        ("no Status", other("/kind", json!("Sorry")), false),
    ] {
        let (live, mut fake) = live();
        let (answer, ()) = tokio::join!(get(&live, shop()), async { fake.next().await.bytes(404, body) });
        match answer {
            Ok(None) => assert!(expected, "{what}"),
            Err(found) => assert!(
                !expected && matches!(found.code, cause::GARBAGE | cause::NOT_SERVED),
                "{what}: {found:?}"
            ),
            Ok(Some(_)) => panic!("{what}"),
        }
    }
}

#[tokio::test(start_paused = true)]
async fn every_refusal_has_its_cause_and_text() {
    for (code, body, expected, words) in [
        (
            401,
            status(401, "Unauthorized", "Unauthorized"),
            cause::CREDENTIALS,
            "does not accept Durward's credentials",
        ),
        (
            403,
            status(403, "Forbidden", "no"),
            cause::FORBIDDEN,
            "not permitted to get namespaces (RBAC: verb get)",
        ),
        (429, status(429, "TooManyRequests", "slow down"), cause::BUSY, "cannot answer now (429: slow down)"),
        (500, status(500, "InternalError", "etcd"), cause::BUSY, "cannot answer now (500: etcd)"),
        (503, json!("no Status"), cause::BUSY, "cannot answer now (503)"),
        (400, status(400, "BadRequest", "bad"), cause::REFUSED, "answers 400: bad"),
        (302, json!({}), cause::REFUSED, "answers 302"),
        (200, not_found("shop"), cause::GARBAGE, "something else (v1 Status"),
        (
            200,
            namespace("shopping", 1, "a"),
            cause::GARBAGE,
            "something else (meta.k8s.io/v1 PartialObjectMetadata \"shopping\")",
        ),
        (
            200,
            json!({"kind": "Pod", "apiVersion": "v2", "metadata": {"name": "shop"}}),
            cause::GARBAGE,
            "something else",
        ),
        (
            200,
            json!({"kind": "NamespaceList", "apiVersion": "v1", "metadata": {"name": "shop"}}),
            cause::GARBAGE,
            "something else",
        ),
        (
            200,
            json!({"kind": "PartialObjectMetadata", "apiVersion": "v1", "metadata": {"name": "shop"}}),
            cause::GARBAGE,
            "something else",
        ),
        (
            200,
            json!({"kind": "Namespace", "apiVersion": "v1", "metadata": {"name": "shop", "namespace": "x"}}),
            cause::GARBAGE,
            "something else",
        ),
        (200, json!([1]), cause::GARBAGE, "cannot be parsed"),
    ] {
        let (live, mut fake) = live();
        let (answer, ()) = tokio::join!(get(&live, shop()), async { fake.next().await.json(code, &body) });
        let found = answer.unwrap_err();
        assert_eq!(found.code, expected, "{code} {body}: {}", found.text);
        assert!(found.text.starts_with("namespace \"shop\" could not be read: "), "{}", found.text);
        assert!(found.text.contains(words), "{}", found.text);
    }
}

#[tokio::test(start_paused = true)]
async fn an_answer_that_is_not_json_or_too_long_is_garbage() {
    let long = vec![b' '; (4 << 20) + 1];
    for body in [b"<html>Login</html>".to_vec(), b"\xff\xfe".to_vec(), Vec::new(), long] {
        let (live, mut fake) = live();
        let (answer, ()) = tokio::join!(get(&live, shop()), async { fake.next().await.bytes(200, body) });
        assert_eq!(answer.unwrap_err().code, cause::GARBAGE);
    }
}

#[tokio::test(start_paused = true)]
async fn a_foreign_message_is_short_and_on_one_line() {
    let (live, mut fake) = live();
    let body = status(400, "BadRequest", &format!("line\nline\u{7}{}", "x".repeat(10_000)));
    let (answer, ()) = tokio::join!(get(&live, shop()), async { fake.next().await.json(400, &body) });
    let text = answer.unwrap_err().text;
    assert!(text.contains("line line x") && text.len() < 300, "{text}");
}

#[tokio::test(start_paused = true)]
async fn a_broken_connection_is_unreachable() {
    let (live, mut fake) = live();
    let (answer, ()) = tokio::join!(get(&live, shop()), async { drop(fake.next().await) });
    let found = answer.unwrap_err();
    assert_eq!(
        (found.code, found.text.ends_with("connection reset")),
        (cause::UNREACHABLE, true),
        "{}",
        found.text
    );
}

#[tokio::test(start_paused = true)]
async fn a_missing_answer_is_a_timeout_at_the_deadline() {
    let (live, mut fake) = live();
    let start = Instant::now();
    let (answer, asked) = tokio::join!(get(&live, shop()), fake.next());
    let found = answer.unwrap_err();
    assert_eq!(found.code, cause::TIMEOUT);
    assert!(found.text.ends_with("did not answer in 5.0 s"), "{}", found.text);
    let waited = start.elapsed();
    assert!(waited >= Duration::from_secs(5) && waited <= Duration::from_millis(5001), "{waited:?}");
    assert!(asked.is_abandoned());
}

#[tokio::test(start_paused = true)]
async fn a_deadline_that_has_passed_is_a_timeout() {
    let (live, mut fake) = live();
    let before = Instant::now();
    tokio::time::advance(Duration::from_secs(1)).await;
    let (answer, _asked) =
        tokio::join!(live.get(shop(), before.into_std()), async { fake.was_not_asked().await });
    assert_eq!(answer.unwrap_err().code, cause::TIMEOUT);
}

#[tokio::test(start_paused = true)]
async fn concurrent_gets_share_a_request_that_is_sent_after_all_of_them_asked() {
    let (live, mut fake) = live();
    let gets = (get(&live, shop()), get(&live, shop()), get(&live, shop()));
    let (first, second, third, ()) = tokio::join!(gets.0, gets.1, gets.2, async {
        settled().await;
        let asked = fake.next().await;
        fake.was_not_asked().await;
        asked.json(200, &namespace("shop", 1, "a"));
        fake.next().await.json(200, &namespace("shop", 2, "b"));
        fake.was_not_asked().await;
    });
    assert_eq!(team(first).as_deref(), Some("a"), "its request was sent before the other calls");
    assert_eq!((team(second).as_deref(), team(third).as_deref()), (Some("b"), Some("b")));
    // Answers are not cached.
    let (fourth, ()) =
        tokio::join!(get(&live, shop()), async { fake.next().await.json(200, &namespace("shop", 3, "c")) });
    assert_eq!(team(fourth).as_deref(), Some("c"));
}

#[tokio::test(start_paused = true)]
async fn an_absence_that_is_older_than_the_request_is_requested_again() {
    let (live, mut fake) = live();
    let late = async {
        settled().await;
        get(&live, shop()).await
    };
    let (first, second, ()) = tokio::join!(get(&live, shop()), late, async {
        let asked = fake.next().await;
        fake.was_not_asked().await;
        asked.json(404, &not_found("shop"));
        fake.next().await.json(200, &namespace("shop", 1, "a"));
    });
    assert_eq!(first, Ok(None));
    assert_eq!(team(second).as_deref(), Some("a"));
}

#[tokio::test(start_paused = true)]
async fn a_request_that_hangs_is_not_joined_for_long() {
    let (live, mut fake) = live();
    let late = async {
        tokio::time::sleep(Duration::from_secs(2)).await;
        get(&live, shop()).await
    };
    let (first, second, _hanging) = tokio::join!(get(&live, shop()), late, async {
        let hanging = fake.next().await;
        fake.next().await.json(200, &namespace("shop", 1, "a"));
        hanging
    });
    assert_eq!(first.unwrap_err().code, cause::TIMEOUT);
    assert_eq!(team(second).as_deref(), Some("a"));
}

#[tokio::test(start_paused = true)]
async fn dropping_the_last_caller_cancels_a_shared_request() {
    let (live, mut fake) = live();
    // The first get occupies the key, so that the others share a request.
    let mut hanging = Box::pin(get(&live, shop()));
    tokio::select! { biased; _ = &mut hanging => panic!(), () = settled() => {} }
    let _first = fake.next().await;
    let mut second = Box::pin(get(&live, shop()));
    let mut third = Box::pin(get(&live, shop()));
    let batch = tokio::time::sleep(Duration::from_millis(150));
    tokio::select! { biased; _ = &mut second => panic!(), _ = &mut third => panic!(), () = batch => {} }
    let asked = fake.next().await;
    drop(second);
    tokio::select! { biased; _ = &mut third => panic!(), () = settled() => {} }
    assert!(!asked.is_abandoned());
    drop(third);
    settled().await;
    assert!(asked.is_abandoned());
    // A new get does not join a cancelled request.
    let (answer, ()) =
        tokio::join!(get(&live, shop()), async { fake.next().await.json(200, &namespace("shop", 1, "a")) });
    assert_eq!(team(answer).as_deref(), Some("a"));
}

#[tokio::test(start_paused = true)]
async fn a_namespace_that_is_newer_than_the_last_watch_event_is_found() {
    let (live, mut fake, _stream) = watched().await;
    let address = Address { name: "new", ..shop() };
    let (answer, ()) = tokio::join!(get(&live, address), async {
        fake.asked("/api/v1/namespaces/new").await.json(200, &namespace("new", 11, "b"));
    });
    assert_eq!(team(answer).as_deref(), Some("b"));
}

#[tokio::test(start_paused = true)]
async fn an_uncached_get_asks_the_api_server() {
    let (live, mut fake, _stream) = watched().await;
    let (answer, ()) = tokio::join!(ask(&live, shop()), async {
        fake.asked("/api/v1/namespaces/shop").await.json(200, &namespace("shop", 11, "b"));
    });
    assert_eq!(team(answer).as_deref(), Some("b"));
    // An uncached answer does not change the cache, which only the watch writes.
    assert_eq!(team(get(&live, shop()).await).as_deref(), Some("a"));
    fake.was_not_asked().await;
}

#[tokio::test(start_paused = true)]
async fn the_cache_never_replaces_an_uncached_answer() {
    let (live, mut fake, _stream) = watched().await;
    let (answer, ()) = tokio::join!(ask(&live, shop()), async { drop(fake.next().await) });
    assert_eq!(answer.unwrap_err().code, cause::UNREACHABLE);
    let busy = status(429, "TooManyRequests", "later");
    let (answer, ()) = tokio::join!(ask(&live, shop()), async { fake.next().await.json(429, &busy) });
    assert_eq!(answer.unwrap_err().code, cause::BUSY);
    let start = Instant::now();
    let (answer, _hanging) = tokio::join!(ask(&live, shop()), fake.next());
    assert_eq!(answer.unwrap_err().code, cause::TIMEOUT);
    assert!(start.elapsed() <= Duration::from_millis(5001), "{:?}", start.elapsed());
}

#[tokio::test(start_paused = true)]
async fn an_uncached_get_shares_only_requests_that_are_sent_later() {
    let (live, mut fake, _stream) = watched().await;
    let late = async {
        settled().await;
        let both = tokio::join!(ask(&live, shop()), ask(&live, shop()));
        (team(both.0), team(both.1))
    };
    let (first, second, ()) = tokio::join!(ask(&live, shop()), late, async {
        let older = fake.next().await;
        fake.was_not_asked().await;
        settled().await;
        older.json(200, &namespace("shop", 10, "a"));
        let newer = fake.next().await;
        fake.was_not_asked().await;
        newer.json(200, &namespace("shop", 11, "b"));
    });
    assert_eq!(team(first).as_deref(), Some("a"));
    assert_eq!((second.0.as_deref(), second.1.as_deref()), (Some("b"), Some("b")));
    fake.was_not_asked().await;
}
